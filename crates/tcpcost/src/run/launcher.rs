//! How a host's agent is started: this very program, or the host's, behind the arguments of another that puts it where it
//! is to run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tcpcost_study::{HostName, Reach, Study, Topology};

use super::access::bed_of;
use super::commands::Consent;
use super::placement::ONE_THREAD;
use super::shell::{for_a_shell, quoted};
use crate::cli::HostArgs;
use tcpcost_console::exit::usage;
use crate::hosts_file::Lab;
use crate::slurm::{self, Allocation};

/// Of an ssh that was asked for no options: nobody is there to type a password, and a host that is gone is noticed.
const SSH: &str = "ssh -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3";

/// The programs, with their arguments, that start the agents of hosts.
#[derive(Debug)]
pub struct Launchers {
    /// Of `--launch`: words before this program's own, by host.
    prefixes: BTreeMap<HostName, Vec<String>>,
    /// ssh and its options.
    ssh: Vec<String>,
    /// tcpcost as the hosts find it, behind the words of another program such as sudo; `None` leaves it to how they are reached.
    program: Option<Vec<String>>,
    /// Whether this program is copied to the hosts, and where it was.
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
        Launchers::new(&HostArgs::default()).expect("nothing is asked for")
    }
}

impl Launchers {
    /// As the command line says.
    ///
    /// # Errors
    /// No name of a host, no program, no time.
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
                    false => Err("2s at least".to_string()),
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

    /// As the command line says, with the nodes of the job that this process is part of, if the study has hosts on some.
    ///
    /// # Errors
    /// As of [`Launchers::new`]; Slurm does not tell the nodes.
    pub fn for_study(args: &HostArgs, study: &Study) -> anyhow::Result<Launchers> {
        let mut launchers = Launchers::new(args)?;
        if slurm::nodes(study) != Some(0) {
            launchers.job = Allocation::here()?;
        }
        Ok(launchers)
    }

    /// Says of hosts that are reached by Slurm on which nodes they are.
    ///
    /// # Errors
    /// This is no job, or its nodes are too few or others.
    pub fn place(&self, topology: &mut Topology) -> anyhow::Result<()> {
        let mut hosts = topology.hosts.iter();
        let of_slurm = hosts.find(|host| matches!(host.reach, Reach::Slurm(_)));
        match (of_slurm, &self.job) {
            (None, _) => Ok(()),
            (Some(_), Some(job)) => job.place(topology),
            (Some(host), None) => Err(usage(format!(
                "{} is on a node of a job: --slurm submits a job, or runs within one",
                host.name
            ))),
        }
    }

    /// The command that starts the agent of these hosts, of which the first is reached so. `turns`: in one thread.
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

    /// The commands that would start the agents of a study, and copy this program there, a line each, as a shell reads them. Agents
    /// that are this very program on this host are left out.
    pub fn dry_run(&self, study: &Study) -> String {
        let mut lines: Vec<String> = Vec::new();
        let mut add = |command: &Command| {
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
            let line = for_a_shell(words.iter().map(AsRef::as_ref));
            if !lines.contains(&line) {
                lines.push(line);
            }
        };
        for cell in &study.cells {
            let bed = bed_of(cell, &Ok(()));
            let topology = bed.ok().and_then(|bed| Topology::of(bed, &cell.knobs).ok());
            let Some(mut topology) = topology else {
                continue; // A trial that is skipped.
            };
            if self.job.is_some() {
                // Nodes that are not there are said when the run begins.
                let _ = self.place(&mut topology);
            }
            let turns = cell.knobs.word("placement").as_deref() == Some(ONE_THREAD);
            let program = cell.program.as_deref();
            for host in &topology.hosts {
                let is_own = host.reach.is_own();
                if is_own && program.is_none() && !self.prefixes.contains_key(&host.name) {
                    continue;
                }
                if !is_own && let Some(copy) = self.copying(host.name, &host.reach) {
                    add(&copy);
                }
                let program = program.filter(|_| is_own);
                add(&self.agent(&[host.name], &host.reach, program, turns));
            }
        }
        lines.iter().map(|line| format!("      {line}\n")).collect()
    }

    /// The command that starts a host's agent, with these arguments. `program`: by that one in place of this, where the host
    /// is of the command's own machine.
    pub fn command(
        &self,
        host: HostName,
        reach: &Reach,
        program: Option<&Path>,
        arguments: &[&str],
    ) -> Command {
        // The running binary itself, even if the file was replaced since it was started.
        let own = |of: &str| PathBuf::from(format!("/proc/{of}/exe"));
        let agent = |of: &str| program.map_or_else(|| own(of), Path::to_path_buf);
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
        // Its agent runs already, with its own arguments.
        if let Reach::Attach(_) = reach {
            return self.at(host, reach, &[]);
        }
        let there = self.program_at(reach);
        let there = there.iter().map(String::as_str);
        let words: Vec<&str> = there.chain(arguments.iter().copied()).collect();
        self.at(host, reach, &words)
    }

    /// The command that runs these words at a host that is reached by another program.
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
                // ssh hands one text to the shell there.
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
            // A step beside others, on all CPUs of the node that the job has.
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

    /// How long an agent behind another program hears nothing before it puts back what it changed: longer than the command
    /// waits for it, so that it is the command that says what happened.
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
            let own = std::env::current_exe()
                .ok()
                .filter(|_| matches!(reach, Reach::Slurm(_)));
            // The nodes of a job see the files of who submitted it.
            let own = own.map(|path| path.to_string_lossy().into_owned());
            vec![own.unwrap_or("tcpcost".to_string())]
        })
    }
}

/// A minute is more than any step of a trial takes but its own interval, and less than anybody waits for a dead host.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// A host on a busy machine is silent for a second.
const SILENCE_LEAST: Duration = Duration::from_secs(2);

/// What to do about an agent that could not be started, by what the programs that start it said; `None` where that says enough.
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
    fn what_a_host_lacks_is_said() {
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
