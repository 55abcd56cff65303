//! Runs the real binary in a directory of its own, or in a network namespace.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::ffi::CStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tcpcost_testbed::{can_make_namespaces, has_cpus, until};
use tempfile::TempDir;

/// One flow in one direction, with each end on a CPU of its own.
pub const STUDY: &str = r#"
[bed]
kind = "netns"
[workload]
kind = "stream"
client_cpus = [0]
server_cpus = [1]
[measure]
warm_up = "50ms"
duration = "300ms"
repetitions = 1
others_max = "100%"
retries = 0
"#;

/// One short trial without a retry, whatever other load the machine has.
pub const MEASURE: &str = r#"
[measure]
warm_up = "20ms"
duration = "100ms"
repetitions = 1
others_max = "100%"
retries = 0
"#;

/// Directory in which commands run; it also holds the state folder with the journal.
pub struct Place {
    pub directory: TempDir,
}

impl Place {
    pub fn new() -> Place {
        Place {
            directory: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tcpcost"));
        command
            .args(args)
            .current_dir(self.directory.path())
            .env("TCPCOST_STATE_DIR", self.path("state"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("XDG_STATE_HOME", self.path("xdg-state"))
            // A test boots guests only if it asks for them.
            .env("TCPCOST_SECOND_CLOCK", "never")
            .stdin(Stdio::null());
        // SIGHUP must end the command as from a terminal, also if the tests run under nohup.
        // SAFETY: resetting a signal is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGHUP, libc::SIG_DFL);
                Ok(())
            });
        }
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        self.start(args).end()
    }

    /// Starts the command. Its progress lines can be read while it runs.
    pub fn start(&self, args: &[&str]) -> Started {
        Started::new(self.command(args))
    }

    /// Runs a study into `out`, at most six times: again if a trial failed because a host had no
    /// CPU for a second, or did not do its work. Both happen on a machine with dozens of other
    /// programs for each CPU.
    pub fn in_time(&self, run: impl Fn() -> Ran) -> Ran {
        let is_late = |record: &serde_json::Value| {
            let reason = record["reason"].as_str().unwrap_or_default();
            let is_late = reason.contains("its meters were read");
            record["outcome"] == "failed" && is_late || did_no_work(record)
        };
        for _ in 0..5 {
            let ran = run();
            let out = self.path("out");
            if !out.join("records.jsonl").exists() || !records(&out).iter().any(is_late) {
                return ran;
            }
            std::fs::remove_dir_all(out).unwrap();
        }
        run()
    }

    /// Reads the records file of a run.
    pub fn records(&self, directory: &str) -> Vec<serde_json::Value> {
        records(&self.path(directory))
    }

    /// Reads the records without failed trials that moved too little: a short trial on a busy
    /// machine may fail so, and is repeated.
    pub fn records_of_work(&self, directory: &str) -> Vec<serde_json::Value> {
        let mut records = self.records(directory);
        records.retain(|record| !did_no_work(record));
        records
    }
}

/// Reads the records of a run, which may still go on: a last line without its end is left out.
pub fn records(directory: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(directory.join("records.jsonl")).unwrap();
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// True if a trial ran and failed because nothing, or too little, moved.
pub fn did_no_work(record: &serde_json::Value) -> bool {
    let reason = record["reason"].as_str().unwrap_or_default();
    record["outcome"] == "failed"
        && ["the work was not done", "less than half of the rate"]
            .iter()
            .any(|begin| reason.starts_with(begin))
}

/// State of the only port of a host.
pub fn environment<'a>(record: &'a serde_json::Value, host: &str) -> &'a serde_json::Value {
    let ports = record["hosts"][host]["ports"].as_object().unwrap();
    assert_eq!(ports.len(), 1, "{host}: {ports:?}");
    ports.values().next().unwrap()
}

/// Result of a command that has ended.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Command that runs.
pub struct Started {
    pub child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

/// Limit for a run. It is many times what a test's run takes on a busy machine, so a longer run
/// hangs.
const LONGEST: Duration = Duration::from_secs(300);

/// Reads lines from a pipe in a thread, so that waiting for one can time out. Line ends are
/// included.
fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = String::new();
        while pipe.read_line(&mut line).is_ok_and(|read| read > 0) {
            if sender.send(std::mem::take(&mut line)).is_err() {
                return;
            }
        }
    });
    lines
}

/// Reads all lines until the pipe is closed. Errors: what came until the limit.
fn rest_of(lines: &Receiver<String>) -> Result<String, String> {
    let deadline = Instant::now() + LONGEST;
    let mut all = String::new();
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => all += &line,
            Err(RecvTimeoutError::Disconnected) => return Ok(all),
            Err(RecvTimeoutError::Timeout) => return Err(all),
        }
    }
}

impl Started {
    /// Starts the command. Its lines can be read while it runs.
    pub fn new(mut command: Command) -> Started {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let stdout = lines_of(child.stdout.take().expect("stdout is piped"));
        let stderr = lines_of(child.stderr.take().expect("stderr is piped"));
        Started {
            child,
            stdout,
            stderr,
        }
    }

    /// Waits until a line of stderr contains `part`, and returns the line. Panics with the lines
    /// that came if none does.
    #[track_caller]
    pub fn wait_for(&mut self, part: &str) -> String {
        let mut seen = String::new();
        loop {
            match self.stderr.recv_timeout(LONGEST) {
                Ok(line) if line.contains(part) => return line,
                Ok(line) => seen += &line,
                Err(error) => panic!("{part:?} never came ({error}):\n{seen}"),
            }
        }
    }

    /// Returns the next line of standard output.
    #[track_caller]
    pub fn next_line(&mut self) -> String {
        self.stdout.recv_timeout(LONGEST).expect("a line")
    }

    pub fn signal(&self, signal: libc::c_int) {
        let pid = i32::try_from(self.child.id()).unwrap();
        // SAFETY: the child is ours and not yet waited for, so the id names it.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    /// Ids of the agents.
    pub fn agents(&self) -> Vec<i32> {
        let id = self.child.id();
        let mut agents = Vec::new();
        for task in std::fs::read_dir(format!("/proc/{id}/task")).unwrap() {
            let children = task.unwrap().path().join("children");
            let children = std::fs::read_to_string(children).unwrap_or_default();
            agents.extend(
                children
                    .split_whitespace()
                    .map(|pid| pid.parse::<i32>().unwrap()),
            );
        }
        agents
    }

    /// Id of a host's agent.
    pub fn agent_of(&self, host: &str) -> i32 {
        let answers_for = |pid: &i32| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split('\0').any(|argument| argument == host)
        };
        let agent = self.agents().into_iter().find(answers_for);
        agent.unwrap_or_else(|| panic!("no agent answers for {host}"))
    }

    /// Ids of the agents, in the order of their start. Waits until both run.
    pub fn two_agents(&self) -> Vec<i32> {
        // A child that has not yet called exec shows the command's own line; its parent waits for
        // it.
        let is_agent = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).nth(1) == Some(b"agent")
        };
        until("two agents", || {
            let agents = self.agents();
            (agents.iter().filter(|pid| is_agent(pid)).count() == 2).then_some(agents)
        })
    }

    /// Waits for the command, and for all processes that hold its stderr (the agents do).
    #[track_caller]
    pub fn end(mut self) -> Ran {
        let outcome = [rest_of(&self.stdout), rest_of(&self.stderr)];
        let [Ok(stdout), Ok(stderr)] = outcome.clone() else {
            panic!("it does not end: {outcome:?}");
        };
        let code = self.child.wait().unwrap().code();
        Ran {
            code,
            stdout,
            stderr,
        }
    }
}

impl Drop for Started {
    /// Kills the command of a test that fails, and prints its stderr.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.child.kill();
            let said: String = self.stderr.try_iter().collect();
            eprintln!("it was killed; its stderr:\n{said}");
        }
    }
}

/// Waits for the end of a process that is not our child.
pub struct Exit(std::os::fd::OwnedFd);

impl Exit {
    /// Opens a process that exists now.
    pub fn of(pid: i32) -> Exit {
        use std::os::fd::FromRawFd;
        // SAFETY: pidfd_open takes no pointers; what it returns is a new descriptor or -1.
        unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
            assert!(
                fd >= 0,
                "pidfd_open {pid}: {}",
                std::io::Error::last_os_error()
            );
            Exit(std::os::fd::OwnedFd::from_raw_fd(fd as i32))
        }
    }

    /// Waits for the end. False if the process still runs after a minute.
    pub fn wait(&self) -> bool {
        use std::os::fd::AsRawFd;
        let mut poll = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid pollfd.
        unsafe { libc::poll(&mut poll, 1, 60_000) == 1 }
    }
}

/// MTU of lo in this thread's network namespace.
pub fn mtu_of_lo() -> String {
    tcpcost_host::link::read("lo").unwrap().mtu.to_string()
}

/// Mounts a new filesystem of this kind for the command alone, in place of all that is mounted there. Needs root.
pub fn with_mounted(mut command: Command, kind: &'static CStr, place: &'static CStr) -> Command {
    // SAFETY: unshare and mount are plain system calls, and all strings are constants.
    unsafe {
        command.pre_exec(move || {
            let (none, data) = (std::ptr::null(), std::ptr::null());
            let private = libc::MS_REC | libc::MS_PRIVATE;
            // Nothing may be mounted there.
            let unmount = || libc::umount2(place.as_ptr(), libc::MNT_DETACH);
            let is_done = libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(none, c"/".as_ptr(), none, private, data) == 0
                && unmount() <= 0
                && libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, data) == 0;
            match is_done {
                true => Ok(()),
                false => Err(std::io::Error::last_os_error()),
            }
        });
    }
    command
}

/// True if there are namespaces and two CPUs; else the test is skipped.
#[track_caller]
pub fn able() -> bool {
    can_make_namespaces() && has_cpus(2)
}

/// Count that a meter read at an end.
pub fn count(record: &serde_json::Value, end: &str, meter: &str, quantity: &str) -> u64 {
    let readings = record["hosts"][end]["readings"].as_array().unwrap();
    readings
        .iter()
        .filter(|reading| reading["meter"] == meter)
        .find_map(|reading| reading["counts"][quantity].as_u64())
        .unwrap_or_else(|| panic!("{end} {meter} {quantity}: {record}"))
}
