//! Commands that start the agents of hosts: this program, the host's own, or either of them as an argument of another program such as
//! ssh.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tcpcost_console::exit::usage;
use tcpcost_study::{HostName, Reach, Study, Topology};

use super::access::bed_of;
use super::args::HostArgs;
use super::commands::Consent;
use super::hosts_file::Lab;
use super::placement::ONE_THREAD;
use super::shell::{command_line, quoted};
use super::slurm::{self, Allocation};

/// Default command for hosts that are reached by ssh. It asks for no password, and notices that a host is gone.
const SSH: &str = "ssh -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3";

/// Programs, with their arguments, that start the agents of hosts.
#[derive(Debug)]
pub struct Launchers {
    /// `--launch`: program and arguments that come before this program's path, by host.
    prefixes: BTreeMap<HostName, Vec<String>>,
    /// `ssh` and its options.
    ssh: Vec<String>,
    /// `--hosts program=`: tcpcost on the hosts, possibly after another program such as sudo. `None` means the default of each way to
    /// reach a host.
    program: Option<Vec<String>>,
    /// Paths of the copies of this program, by way to reach the host. `None` without `push=on`.
    pub(super) pushed: Option<Mutex<BTreeMap<String, String>>>,
    /// Limit on the time that a host may be silent.
    pub silence_max: Duration,
    /// The job of Slurm that this process is part of.
    pub job: Option<Allocation>,
    /// Which of the study's commands may run.
    pub consent: Consent,
}

impl Default for Launchers {
    fn default() -> Launchers {
        Launchers::new(&HostArgs::default()).expect("the default arguments are valid")
    }
}

impl Launchers {
    /// Reads the options of the command line.
    ///
    /// # Errors
    /// An option has no valid host name, program or time.
    pub fn new(args: &HostArgs) -> anyhow::Result<Launchers> {
        let mut prefixes = BTreeMap::new();
        for text in &args.launch {
            let wrong = |what: String| usage(format!("--launch {text}: {what}"));
            let (host, prefix) = text.split_once('=').unwrap_or((text, ""));
            let host = host
                .parse::<HostName>()
                .map_err(|error| wrong(error.to_string()))?;
            let prefix = words(prefix);
            if prefix.is_empty() {
                return Err(wrong("expected HOST=PROGRAM ARGUMENT…".to_string()));
            }
            prefixes.insert(host, prefix);
        }
        let lab = Lab::read(&args.lab)?;
        let ssh = match words(lab.ssh.as_deref().unwrap_or(SSH)) {
            ssh if ssh.is_empty() => return Err(usage("--hosts ssh=: expected a program")),
            ssh => ssh,
        };
        let program = lab.program.as_deref().map(words);
        if program.as_ref().is_some_and(Vec::is_empty) {
            return Err(usage("--hosts program=: expected a program"));
        }
        let silence_max = match &lab.silence_max {
            None => SILENCE_MAX,
            Some(text) => tcpcost_study::units::duration(text)
                .map_err(|error| error.to_string())
                .and_then(|time| match time >= SILENCE_LEAST {
                    true => Ok(time),
                    false => Err("at least 2s".to_string()),
                })
                .map_err(|error| usage(format!("--hosts silence_max={text}: expected {error}")))?,
        };
        Ok(Launchers {
            prefixes,
            ssh,
            program,
            job: None,
            consent: Consent::new(args.allow_exec),
            pushed: lab.push.then(Mutex::default),
            silence_max,
        })
    }

    /// Reads the options of the command line, and the nodes of this process's job if the study has hosts on nodes.
    ///
    /// # Errors
    /// Errors of [`Launchers::new`], or Slurm does not name the nodes.
    pub fn for_study(args: &HostArgs, study: &Study) -> anyhow::Result<Launchers> {
        let mut launchers = Launchers::new(args)?;
        if slurm::nodes(study) != Some(0) {
            launchers.job = Allocation::here()?;
        }
        Ok(launchers)
    }

    /// Assigns nodes of the job to hosts that are reached by Slurm.
    ///
    /// # Errors
    /// This process is not part of a job, or the job has too few nodes or not the named ones.
    pub fn place(&self, topology: &mut Topology) -> anyhow::Result<()> {
        let mut hosts = topology.hosts.iter();
        let of_slurm = hosts.find(|host| matches!(host.reach, Reach::Slurm(_)));
        match (of_slurm, &self.job) {
            (None, _) => Ok(()),
            (Some(_), Some(job)) => job.place(topology),
            (Some(host), None) => Err(usage(format!(
                "{} is on a node of a job: use --slurm, which submits a job or runs within one",
                host.name
            ))),
        }
    }

    /// Command that starts the agent of these hosts. `reach`: how the first host is reached; `turns`: the hosts take turns in one thread.
    pub fn agent(
        &self,
        hosts: &[HostName],
        reach: &Reach,
        program: Option<&Path>,
        turns: bool,
    ) -> Command {
        let lease = format!("{}ms", self.lease().as_millis());
        let flags: &[&str] = match reach {
            Reach::Local => &[],
            Reach::Netns => &["--isolate"],
            Reach::Memory => &["--memory"],
            Reach::Ssh(_) | Reach::Exec(_) | Reach::Slurm(_) => &["--lease", &lease],
            Reach::Attach(_) => &[],
        };
        let arguments = ["agent"].into_iter().chain(flags.iter().copied());
        let arguments = arguments.chain(turns.then_some("--one-thread"));
        let names = hosts.iter().map(HostName::as_str);
        let arguments: Vec<&str> = arguments.chain(names).collect();
        self.command(hosts[0], reach, program, &arguments)
    }

    /// Commands that would start the agents of a study and copy this program to hosts: one line each, quoted for a shell. Omits agents
    /// that run this program on this host.
    pub fn dry_run(&self, study: &Study) -> String {
        let mut lines: Vec<String> = Vec::new();
        let mut add = |command: &Command| {
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
            let line = command_line(words.iter().map(AsRef::as_ref));
            if !lines.contains(&line) {
                lines.push(line);
            }
        };
        for cell in &study.cells {
            let bed = bed_of(cell, &Ok(()));
            let topology = bed.ok().and_then(|bed| Topology::of(bed, &cell.knobs).ok());
            let Some(mut topology) = topology else {
                continue; // Its trials are skipped.
            };
            if self.job.is_some() {
                // The run itself reports missing nodes when it begins.
                let _ = self.place(&mut topology);
            }
            let turns = cell.knobs.word("placement").as_deref() == Some(ONE_THREAD);
            let program = cell.program.as_deref();
            for host in &topology.hosts {
                let is_own = host.reach.is_own();
                if is_own && program.is_none() && !self.prefixes.contains_key(&host.name) {
                    continue;
                }
                if !is_own && let Some(copy) = self.copy_command(host.name, &host.reach) {
                    add(&copy);
                }
                let program = program.filter(|_| is_own);
                add(&self.agent(&[host.name], &host.reach, program, turns));
            }
        }
        lines.iter().map(|line| format!("      {line}\n")).collect()
    }

    /// Command that starts a host's agent with these arguments. `program`: another build to start instead of this program, if the host is on
    /// the command's own machine.
    pub fn command(
        &self,
        host: HostName,
        reach: &Reach,
        program: Option<&Path>,
        arguments: &[&str],
    ) -> Command {
        // The running binary itself, even if the file was replaced after the start.
        let own = |pid: &str| PathBuf::from(format!("/proc/{pid}/exe"));
        let agent = |pid: &str| program.map_or_else(|| own(pid), Path::to_path_buf);
        if let Some([launcher, before @ ..]) = self.prefixes.get(&host).map(Vec::as_slice) {
            let mut command = Command::new(launcher);
            command.args(before);
            command.arg(agent(&std::process::id().to_string()));
            command.args(arguments);
            return command;
        }
        if reach.is_own() {
            let mut command = Command::new(agent("self"));
            command.args(arguments);
            return command;
        }
        // The host's agent runs already, with its own arguments.
        if let Reach::Attach(_) = reach {
            return self.at(host, reach, &[]);
        }
        let there = self.program_at(reach);
        let there = there.iter().map(String::as_str);
        let words: Vec<&str> = there.chain(arguments.iter().copied()).collect();
        self.at(host, reach, &words)
    }

    /// Command that runs these words at a host.
    pub(super) fn at(&self, host: HostName, reach: &Reach, words: &[&str]) -> Command {
        let command = |prefix: &[String]| {
            let (program, before) = prefix.split_first().expect("no prefix is empty");
            let mut command = Command::new(program);
            command.args(before);
            command
        };
        match reach {
            Reach::Ssh(destination) => {
                let mut command = command(&self.ssh);
                // ssh gives the host's shell a single text.
                let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
                command.arg("--").arg(destination);
                command.arg(format!("exec {}", quoted.join(" ")));
                command
            }
            Reach::Exec(prefix) | Reach::Attach(prefix) => {
                let mut command = command(prefix);
                command.args(words);
                command
            }
            // A step that shares the node with others, on all CPUs of the job.
            Reach::Slurm(node) => {
                let mut command = Command::new("srun");
                command.args(["--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none"]);
                let node = node.as_deref().unwrap_or(host.as_str());
                let group = self.job.as_ref().and_then(|job| job.group_of(node));
                command.args(group.map(|group| format!("--het-group={group}")));
                command.args(["--unbuffered", "--nodelist"]);
                command.arg(node).args(words);
                command
            }
            Reach::Local | Reach::Netns | Reach::Memory => {
                let mut command = Command::new(words[0]);
                command.args(&words[1..]);
                command
            }
        }
    }

    /// Time without input after which an agent behind another program restores what it changed and ends. It is longer than the command
    /// waits for an answer, so that the command reports first.
    pub fn lease(&self) -> Duration {
        self.silence_max * 3 / 2
    }

    /// Command that starts tcpcost on a host: the path of the copy, the given program, or `tcpcost` on the host's PATH.
    fn program_at(&self, reach: &Reach) -> Vec<String> {
        let pushed = self.pushed.as_ref().and_then(|pushed| {
            let pushed = pushed.lock().unwrap_or_else(PoisonError::into_inner);
            pushed.get(&reach.to_string()).cloned()
        });
        let pushed = pushed.map(|path| vec![path]);
        pushed.or_else(|| self.program.clone()).unwrap_or_else(|| {
            // Nodes of a job see the files of the host that submitted it.
            let own = std::env::current_exe()
                .ok()
                .filter(|_| matches!(reach, Reach::Slurm(_)));
            let own = own.map(|path| path.to_string_lossy().into_owned());
            vec![own.unwrap_or("tcpcost".to_string())]
        })
    }
}

/// Default limit on a host's silence. Apart from the measured interval, each step of a trial takes less than a minute.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Shortest limit on a host's silence, because a host on a busy machine may be silent for a second.
const SILENCE_LEAST: Duration = Duration::from_secs(2);

/// Advice about an agent that could not be started, from the output `said` of the programs that start it. `None` if the output needs none.
pub(super) fn advice(said: &str) -> Option<&'static str> {
    const LIBRARIES: [&str; 2] = ["error while loading shared libraries", "version `GLIBC"];
    const MISSING: [&str; 5] = [
        "tcpcost: not found",
        "tcpcost: command not found",
        "tcpcost: No such file or directory",
        "tcpcost\u{2019}: No such file or directory",
        "executable file not found",
    ];
    let says = |texts: &[&str]| texts.iter().any(|text| said.contains(text));
    if says(&LIBRARIES) {
        return Some(
            "the host lacks libraries: `make static` builds a tcpcost that needs none, and --hosts push=on copies it",
        );
    }
    says(&MISSING).then_some(
        "the host has no such program: --hosts push=on copies this one, --hosts program=COMMAND says where it is",
    )
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(String::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(args: HostArgs, reach: &str) -> String {
        let launchers = Launchers::new(&args).unwrap();
        let reach = reach.parse().unwrap();
        let command = launchers.command(HostName::CLIENT, &reach, None, &["agent", "client"]);
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<String> = words
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        words.join("|")
    }

    #[test]
    fn each_reach_has_the_same_agent_behind_its_program() {
        let plain = HostArgs::default;
        assert_eq!(line(plain(), "local"), "/proc/self/exe|agent|client");
        let ssh = line(plain(), "ssh:me@alpha");
        assert!(ssh.starts_with("ssh|-T|-o|BatchMode=yes|"), "{ssh}");
        assert!(
            ssh.ends_with("|--|me@alpha|exec tcpcost agent client"),
            "{ssh}"
        );
        assert_eq!(
            line(plain(), "exec:docker exec -i a"),
            "docker|exec|-i|a|tcpcost|agent|client"
        );
        assert_eq!(
            line(plain(), "attach:kubectl attach -i -q svc/a"),
            "kubectl|attach|-i|-q|svc/a",
            "whose agent has its arguments already"
        );
        let own = HostArgs {
            lab: vec![
                "ssh=ssh -F lab.conf".to_string(),
                "program=sudo -n /opt/tools/tcpcost".to_string(),
            ],
            ..plain()
        };
        assert_eq!(
            line(own, "ssh:alpha"),
            "ssh|-F|lab.conf|--|alpha|exec sudo -n /opt/tools/tcpcost agent client"
        );
        let own = HostArgs {
            lab: vec!["program=sudo -n tcpcost".to_string()],
            ..plain()
        };
        assert_eq!(
            line(own, "exec:docker exec -i a"),
            "docker|exec|-i|a|sudo|-n|tcpcost|agent|client"
        );
        let none = HostArgs {
            lab: vec!["program= ".to_string()],
            ..plain()
        };
        assert!(Launchers::new(&none).is_err());
    }

    #[test]
    fn advice_names_what_the_host_lacks() {
        let has = |said: &str, expected: &str| {
            let advice = advice(said).unwrap_or_default();
            assert!(advice.contains(expected), "{said}: {advice}");
        };
        has("bash: line 1: exec: tcpcost: not found", "push=on");
        has("sudo: tcpcost: command not found", "push=on");
        has(
            "sh: 1: exec: /opt/tcpcost: not found",
            "push=on copies this one",
        );
        has(
            "env: \u{2018}/opt/tcpcost\u{2019}: No such file or directory",
            "push=on",
        );
        has(
            "OCI runtime exec failed: exec: \"tcpcost\": executable file not found in $PATH",
            "push=on",
        );
        let libraries = "tcpcost: error while loading shared libraries: libelf.so.1: cannot open shared object file: No such file or directory";
        has(libraries, "make static");
        assert_eq!(
            advice("ssh: connect to host a port 22: Connection refused"),
            None
        );
        assert_eq!(advice("sudo: a password is required"), None);
    }
}
