//! One run of a command between two snapshots of all meters.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use regex::Regex;
use tcpcost_console::exit::usage;
use tcpcost_console::output::say;
use tcpcost_counts::{Growth, MeterName, Quantity, Snapshot, Source};
use tcpcost_host::cpu_quota::CpuQuota;
use tcpcost_host::cpus;
use tcpcost_host::namespace::{self, NetworkOf};
use tcpcost_meter::bpf::{self, Follower};
use tcpcost_meter::descendants::Descendants;
use tcpcost_meter::proc::Proc;
use tcpcost_meter::rusage::Children;
use tcpcost_meter::{MeterError, Missing, Needs, Observer, Owners, Scope, opener};
use tcpcost_signals::Interrupt;

use super::StatArgs;

/// Result of one run.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// Exit code of the command, as a shell has it in `$?`.
    pub code: u8,
    /// True if the program could be started.
    pub was_started: bool,
    /// Growth from just before the start of the command to its end. `units`: the number that `--per` found in its output.
    pub growth: Growth,
    /// True if the command has a network namespace of its own.
    pub is_fresh: bool,
}

/// Pattern of a number in a command's output (`--per`).
pub struct Per(Regex);

impl Per {
    /// Parses a regular expression whose first group, or else whole match, is a number.
    ///
    /// # Errors
    /// `text` is not a regular expression.
    pub fn parse(text: &str) -> anyhow::Result<Per> {
        let why = |error: regex::Error| {
            let text = error.to_string();
            let line = text.lines().last().unwrap_or_default();
            usage(format!("--per: {}", line.trim_start_matches("error: ")))
        };
        let regex = Regex::new(text).map_err(why)?;
        Ok(Per(regex))
    }

    /// Finds the last number in an output, because programs print sums at the end. `1,234.5` and `12.3k` are numbers.
    fn find(&self, output: &str) -> Option<f64> {
        let found = self.0.captures_iter(output).last()?;
        number(found.get(1).or_else(|| found.get(0))?.as_str())
    }
}

fn number(text: &str) -> Option<f64> {
    let text = text.trim().replace([',', '_'], "");
    let (digits, factor) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1e3),
        (at, 'M') => (&text[..at], 1e6),
        (at, 'G') => (&text[..at], 1e9),
        _ => (&text[..], 1.0),
    };
    let value: f64 = digits.trim().parse().ok()?;
    Some(value * factor).filter(|value| value.is_finite())
}

/// Meters of the runs. They are opened and read on the thread that runs the commands.
pub struct Bench<'a> {
    observer: Observer,
    /// Marks the command's tasks for the meter `exact`; `None` without that meter.
    follower: Option<Follower>,
    per: Option<&'a Per>,
    cpus: usize,
    /// True if processes are measured that ran before `stat`.
    is_attached: bool,
    /// True if the commands have a network namespace of their own.
    is_fresh: bool,
    /// Network namespace of the attached processes; `None` if it is that of `stat`.
    network: Option<NetworkOf>,
    /// CPU quota that the commands share with this process.
    quota: Option<CpuQuota>,
    /// True if standard output has the results, so that the commands' own output goes to standard error.
    pub answer_on_stdout: bool,
}

impl<'a> Bench<'a> {
    /// Opens all meters that are available here.
    ///
    /// # Errors
    /// A process or cgroup to attach to does not exist, or the processes are in several network namespaces.
    pub fn open(
        per: Option<&'a Per>,
        args: &StatArgs,
        quota: Option<CpuQuota>,
    ) -> anyhow::Result<Bench<'a>> {
        if let Some(pid) = args.target.pid.iter().find(|pid| !is_there(**pid)) {
            return Err(usage(format!("--pid {pid}: there is no such process")));
        }
        // Members of a cgroup and inhabitants of a namespace may end meanwhile.
        let mut attached = args.target.pid.clone();
        if let Some(cgroup) = &args.target.cgroup {
            attached.extend(members(cgroup)?);
        }
        let mut network = None;
        if let Some(name) = &args.target.netns {
            let (namespace, inhabitants) = inhabited(name)?;
            attached.extend(inhabitants);
            network = namespace;
        }
        let cpus = cpus::online();
        let scope = Scope {
            cpus: cpus.clone(),
            ..Scope::default()
        };
        let mut bench = Bench {
            observer: Observer::default(),
            follower: None,
            per,
            cpus: cpus.len(),
            answer_on_stdout: false,
            is_attached: !attached.is_empty() || args.target.netns.is_some(),
            is_fresh: args.target.fresh_netns,
            network: match args.target.netns {
                Some(_) => network,
                None => common_network(&attached)?,
            },
            quota: quota.filter(|_| attached.is_empty()),
        };
        let commands = Scope {
            owners: Owners::Command,
            ..scope.clone()
        };
        let observer = &mut bench.observer;
        observer.open(MeterName::Exact, &commands, |scope| {
            let (meter, follower) = bpf::load_following(scope)?;
            bench.follower = Some(follower);
            Ok(meter)
        });
        if let Some(follower) = &bench.follower {
            for pid in with_children(&attached) {
                follower.follow(pid, true)?;
            }
            if bench.is_attached {
                follower.adopt_open_sockets()?;
            }
            if args.syscalls {
                observer.add(follower.count_calls());
            }
        }
        within(&bench.network, || {
            for name in [MeterName::Segments, MeterName::Netstat] {
                observer.open(name, &scope, opener(name).expect("it has a row"));
            }
        })?;
        observer.add(Ok(Box::new(Proc::of_host())));
        // Attached processes do not inherit counters from this thread, and it does not wait for them.
        if !bench.is_attached {
            observer.add(Ok(Box::new(Children)));
            let mut opened = Descendants::open();
            if let (Ok(meter), true) = (&mut opened, args.syscalls)
                && let Err(error) = meter.count_system_calls()
            {
                observer.missing.push(Missing::Meter(error));
            }
            observer.add(opened.map(|meter| Box::new(meter) as _));
        }
        Ok(bench)
    }

    /// Runs a command to its end; without one, until it is interrupted.
    ///
    /// # Errors
    /// A meter can no longer be read.
    pub fn run(&mut self, command: &[String], interrupt: &Interrupt) -> anyhow::Result<Run> {
        let quota_before = self.quota.as_ref().map(CpuQuota::periods);
        let online = cpus::online().len();
        let before = self.snapshots()?;
        let begin = Instant::now();
        let (status, output) = match command {
            [] => {
                interrupt.wait(1, Duration::MAX);
                (Ok(ExitStatus::default()), String::new())
            }
            [program, arguments @ ..] => self.spawn_and_wait(program, arguments, interrupt)?,
        };
        let duration = begin.elapsed();
        let after = self.snapshots()?;
        let (code, was_started) = match &status {
            Ok(status) => {
                let signal = status.signal().map(|signal| 128 + signal);
                (status.code().or(signal).unwrap_or(1), true)
            }
            Err(error) => {
                let program = &command[0];
                let hint = if program.contains(' ') {
                    " (give the command and its arguments as separate words; for a shell's line: sh -c 'LINE')"
                } else {
                    ""
                };
                say!("tcpcost: stat: run {program}: {error}{hint}");
                let code = match error.kind() {
                    io::ErrorKind::NotFound => 127,
                    _ => 126,
                };
                (code, false)
            }
        };
        let mut growth = Growth {
            duration_ns: u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX),
            units: self.per.and_then(|per| per.find(&output)),
            ..Growth::between(&before, &after)
        };
        growth.warnings.extend(elsewhere(&growth));
        if self.observer.has(MeterName::Exact) {
            let line = other_cpus(online, cpus::online().len());
            growth.warnings.extend(line);
        }
        if let (Some(quota), Some(before)) = (&self.quota, quota_before) {
            let stopped = quota.stopped_since(&before);
            let line =
                |stopped| format!("this cgroup's {stopped}: elapsed times include these stops.");
            growth.warnings.extend(stopped.map(line));
        }
        if self.is_fresh {
            growth.warnings.extend(left_behind()?);
        }
        let run = Run {
            code: u8::try_from(code).unwrap_or(u8::MAX),
            was_started,
            growth,
            is_fresh: self.is_fresh,
        };
        self.observer.note_overflow();
        Ok(run)
    }

    fn snapshots(&mut self) -> anyhow::Result<Vec<Snapshot>> {
        let read = || self.observer.read().map(|(_, read)| read).collect();
        let read: Result<_, MeterError> = within(&self.network, read)?;
        Ok(read?)
    }

    /// Runs a command to its end. Returns its status, or why it could not be started, and its output if `--per` needs that.
    fn spawn_and_wait(
        &self,
        program: &str,
        arguments: &[String],
        interrupt: &Interrupt,
    ) -> anyhow::Result<(io::Result<ExitStatus>, String)> {
        let mut command = Command::new(program);
        command.args(arguments);
        if self.per.is_some() {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        } else if self.answer_on_stdout {
            command.stdout(io::stderr().as_fd().try_clone_to_owned()?);
        }
        // A process that a followed process starts is followed from its first instruction.
        let follower = self.follower.as_ref().filter(|_| !self.is_attached);
        let own = std::process::id();
        if let Some(follower) = follower {
            follower.follow(own, true)?;
        }
        let child = tcpcost_signals::unblocked(&mut command).spawn();
        if let Some(follower) = follower {
            follower.follow(own, false)?;
            // Searching the files of all processes takes CPU, so only if the command inherits sockets.
            if inherits_sockets() {
                follower.adopt_open_sockets()?;
            }
        }
        match child {
            Ok(child) => {
                let (status, output) = wait(child, self.answer_on_stdout, interrupt);
                Ok((status, output))
            }
            Err(error) => Ok((Err(error), String::new())),
        }
    }

    /// Returns how the runs were measured.
    pub fn about(&self, args: &StatArgs) -> About {
        let missing = &self.observer.missing;
        let has_exact = self.observer.has(MeterName::Exact);
        let lacks_owners = missing
            .iter()
            .any(|missing| matches!(missing, Missing::Owners(_)));
        let refused = missing.iter().map(|missing| match missing {
            Missing::Meter(error) => error.to_string(),
            Missing::Owners(error) => format!("owners of softirqs are not known: {error}"),
            Missing::Part(line) => line.clone(),
        });
        let mut needs = missing.iter().filter_map(Missing::needs);
        About {
            cpus: self.cpus,
            has_exact,
            has_owners: has_exact && !lacks_owners,
            is_fresh: self.is_fresh,
            is_attached: self.is_attached,
            is_elsewhere: self.network.is_some(),
            refused: refused.collect(),
            lacks_privileges: needs.any(|needs| matches!(needs, Needs::Capabilities(_))),
            per: args.target.per.clone(),
        }
    }
}

/// Line about CPUs that went offline or came online. The kernel calls no eBPF program of a tracepoint on a CPU that is offline, so
/// the meter `exact` counts the CPU's last task as running on.
fn other_cpus(before: usize, after: usize) -> Option<String> {
    (before != after).then(|| {
        format!(
            "{before} CPUs were online before and {after} after: \"tasks of others\" may count time in which a CPU was offline. Measure again."
        )
    })
}

/// Line about bytes that the sockets moved and this namespace did not see as TCP payload, as with `ip netns exec`. `None` if it saw at
/// least a tenth of them.
fn elsewhere(growth: &Growth) -> Option<String> {
    let sum = |by, of: [Quantity; 2]| {
        let counts = of.iter().map(|&of| growth.count(by, of));
        counts.sum::<Option<f64>>()
    };
    let of_sockets = [Quantity::SocketBytesSent, Quantity::SocketBytesReceived];
    let moved = sum(MeterName::SocketCalls, of_sockets)?;
    let of_tcp = [Quantity::DataSkbBytesSent, Quantity::DataSkbBytesReceived];
    let seen = sum(MeterName::Segments, of_tcp)?;
    (moved >= ELSEWHERE_LEAST && seen < moved / 10.0).then(|| {
        format!(
            "Of {:.1} MiB that its sockets moved this network namespace saw {:.1} MiB as TCP payload: the rest is UDP, or TCP in another \
             namespace, whose skbs, ACKs and connections are not in these counts. Measure it there: ip netns exec NAME tcpcost …",
            moved / MIB,
            seen / MIB
        )
    })
}

const MIB: f64 = 1_048_576.0;
/// Least bytes of sockets for this line: fewer are of a name server's answers.
const ELSEWHERE_LEAST: f64 = 0.1 * MIB;

/// Calls `work` in the network namespace of the attached processes.
fn within<T>(network: &Option<NetworkOf>, work: impl FnOnce() -> T) -> anyhow::Result<T> {
    match network {
        Some(network) => Ok(network.within(work)?),
        None => Ok(work()),
    }
}

/// How the runs were measured.
#[derive(Debug)]
pub struct About {
    /// CPUs online.
    pub cpus: usize,
    /// True if CPU time is exact, by eBPF.
    pub has_exact: bool,
    /// True if softirqs and hard interrupts are counted by owner.
    pub has_owners: bool,
    /// True if the command has a network namespace of its own.
    pub is_fresh: bool,
    /// True if processes were measured that ran before `stat`.
    pub is_attached: bool,
    /// True if these processes are in another network namespace than `stat`.
    pub is_elsewhere: bool,
    /// Meters that are not available, a line each.
    pub refused: Vec<String>,
    /// True if some meters need capabilities that this process does not have.
    pub lacks_privileges: bool,
    /// Regular expression of `--per`, which counts units.
    pub per: Option<String>,
}

/// Waits for a command. Copies its piped output to the output of this process, and keeps it.
fn wait(
    mut child: Child,
    to_stderr: bool,
    interrupt: &Interrupt,
) -> (io::Result<ExitStatus>, String) {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let status = thread::scope(|scope| {
        if let Some(stdout) = stdout {
            scope.spawn(|| {
                if to_stderr {
                    pass_on(stdout, io::stderr(), &kept)
                } else {
                    pass_on(stdout, io::stdout(), &kept)
                }
            });
        }
        if let Some(stderr) = stderr {
            scope.spawn(|| pass_on(stderr, io::stderr(), &kept));
        }
        interrupt.wait_for(&mut child)
    });
    let kept = kept
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    (status, String::from_utf8_lossy(&kept).into_owned())
}

/// Bytes that are kept of the end of an output, where the number for `--per` is.
const KEPT_MAX: usize = 1 << 20;

fn pass_on(mut from: impl Read, mut to: impl Write, kept: &Mutex<Vec<u8>>) {
    let mut buffer = vec![0; 65_536];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        // A reader that has closed our output may still read the results.
        let _ = to.write_all(&buffer[..length]).and_then(|()| to.flush());
        let mut kept = kept
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        kept.extend_from_slice(&buffer[..length]);
        if kept.len() > 2 * KEPT_MAX {
            let gone = kept.len() - KEPT_MAX;
            kept.drain(..gone);
        }
    }
}

/// Finds a network namespace by its name (ip-netns), process id or path, and the processes in it. The namespace is `None` if
/// it is this thread's.
fn inhabited(name: &str) -> anyhow::Result<(Option<NetworkOf>, Vec<u32>)> {
    let path = namespace::path(name);
    let wrong = |error: &io::Error| {
        usage(format!(
            "--netns {name}: {path}: {error}: expected a name of ip netns, a process or a path"
        ))
    };
    let file = fs::File::open(&path).map_err(|error| wrong(&error))?;
    let inode = file.metadata()?.ino();
    let inhabitants = inhabitants(inode).collect();
    if namespace::inode()? == inode {
        return Ok((None, inhabitants));
    }
    let network = NetworkOf::namespace(file);
    network
        .within(|| ())
        .with_context(|| format!("--netns {name}"))?;
    Ok((Some(network), inhabitants))
}

/// Lists the processes in a network namespace, without this process.
fn inhabitants(inode: u64) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_in = move |pid: &u32| {
        fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|found| found.ino() == inode)
    };
    pids.filter(is_in).filter(|pid| *pid != std::process::id())
}

/// Names the processes, such as a daemon, that the command left running in its network namespace. They are the user's, so they
/// are not ended.
fn left_behind() -> anyhow::Result<Option<String>> {
    let left: Vec<u32> = inhabitants(namespace::inode()?).collect();
    let name = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        format!("{} ({pid})", name.trim_end())
    };
    let names: Vec<String> = left.iter().map(name).collect();
    let pids: Vec<String> = left.iter().map(u32::to_string).collect();
    Ok((!left.is_empty()).then(|| {
        format!(
            "Left running by the command, which keeps its network namespace: {}. To end it: kill {}",
            names.join(", "),
            pids.join(" ")
        )
    }))
}

/// Finds the network namespace of all these processes; `None` if it is this thread's.
fn common_network(pids: &[u32]) -> anyhow::Result<Option<NetworkOf>> {
    // A process that has ended is in no namespace.
    let mut inodes = pids.iter().filter_map(|pid| {
        let metadata = fs::metadata(format!("/proc/{pid}/ns/net")).ok()?;
        Some((pid, metadata.ino()))
    });
    let Some((first, of_first)) = inodes.next() else {
        return Ok(None);
    };
    if let Some((other, _)) = inodes.find(|(_, of)| *of != of_first) {
        return Err(usage(format!(
            "processes {first} and {other} are in different network namespaces: attach to processes of one namespace"
        )));
    }
    Ok(NetworkOf::process(*first)?)
}

/// True if a process that this process starts inherits a socket, as from inetd.
fn inherits_sockets() -> bool {
    let files = fs::read_dir("/proc/self/fd").into_iter().flatten();
    files.flatten().any(|file| {
        let target = fs::read_link(file.path()).unwrap_or_default();
        // Most files here are eBPF's, and the kernel writes long texts about those.
        if !target.to_string_lossy().starts_with("socket:") {
            return false;
        }
        let info = Path::new("/proc/self/fdinfo").join(file.file_name());
        let flags = fs::read_to_string(info).unwrap_or_default();
        let flags = flags.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
        flags.is_some_and(|flags| flags & CLOSE_ON_EXEC == 0)
    })
}

/// O_CLOEXEC as /proc/PID/fdinfo has it (proc_pid_fdinfo(5)).
const CLOSE_ON_EXEC: u32 = 0o2_000_000;

fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Processes of a cgroup and of the cgroups below it.
fn members(cgroup: &Path) -> anyhow::Result<Vec<u32>> {
    let path = cgroup.join("cgroup.procs");
    let text = fs::read_to_string(&path)
        .map_err(|error| usage(format!("--cgroup: read {}: {error}", path.display())))?;
    let mut found: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    for entry in fs::read_dir(cgroup)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(members(&entry.path())?);
        }
    }
    Ok(found)
}

/// These processes and their descendants.
fn with_children(pids: &[u32]) -> Vec<u32> {
    let mut found: Vec<u32> = Vec::new();
    let mut left = pids.to_vec();
    while let Some(pid) = left.pop() {
        if found.contains(&pid) {
            continue;
        }
        found.push(pid);
        let tasks = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten();
        for task in tasks.flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            left.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
    }
    found
}

/// Seed from the clock, so that each call of the command has another order.
pub fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_that_fits_is_the_commands_count() {
        let per = |regex, output| Per::parse(regex).unwrap().find(output);
        assert_eq!(
            per(r"(\d+) requests", "5 requests\n120 requests in 2 s"),
            Some(120.0)
        );
        assert_eq!(per(r"[\d,.]+k?", "sent 1,234.5k"), Some(1_234_500.0));
        assert_eq!(per(r"(\d+) requests", "none"), None);
        assert_eq!(per(r"(\w+) requests", "many requests"), None);
        assert!(Per::parse("(").is_err());
    }

    #[test]
    fn a_cpu_that_went_offline_is_told() {
        assert_eq!(other_cpus(4, 4), None);
        let line = other_cpus(4, 3).unwrap();
        assert!(
            line.starts_with("4 CPUs were online before and 3 after"),
            "{line}"
        );
    }

    #[test]
    fn bytes_that_the_namespace_did_not_see_are_told() {
        let with = |moved, seen| {
            let counts = [
                (
                    MeterName::SocketCalls,
                    [
                        (Quantity::SocketBytesSent, moved),
                        (Quantity::SocketBytesReceived, 0),
                    ],
                ),
                (
                    MeterName::Segments,
                    [
                        (Quantity::DataSkbBytesSent, seen),
                        (Quantity::DataSkbBytesReceived, 0),
                    ],
                ),
            ];
            elsewhere(&Growth {
                counts: counts.map(|(by, of)| (by, of.into())).into(),
                ..Growth::default()
            })
        };
        let told = with(2 << 20, 0).unwrap();
        assert!(
            told.starts_with("Of 2.0 MiB that its sockets moved"),
            "{told}"
        );
        assert_eq!(with(2 << 20, 2 << 20), None);
        assert_eq!(with(1000, 0), None, "a few bytes, as of a name server");
        assert_eq!(elsewhere(&Growth::default()), None, "nothing was counted");
    }
}
