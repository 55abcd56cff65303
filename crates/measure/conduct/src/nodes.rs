//! The agents of a bed's hosts, and their answers.
//!
//! Does not know the meaning of the questions, which `bed` and `trial` ask.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use tcpcost_agent::protocol::{Answer, Ask, Hello, PROTOCOL};
use tcpcost_counts::printable_json;
use tcpcost_signals::Interrupt;
use tcpcost_study::{HostName, KnobError, Reach, Topology};

use super::ask_error::{AskError, all_failed};
use super::events::{AgentReader, Event, Events};
use super::launcher::{Launchers, advice};
use super::lines::excerpt;
use super::reap::{LEAVE_MAX, end, ended_within, reap};
use super::stderr_tail::StderrTail;

/// Time limit for setting up connections: half a minute and a millisecond for each connection (`agent/src/trial.rs`). A host has at
/// most 30,000.
const SET_UP_MAX: Duration = Duration::from_secs(60);
/// Additional time for the answer of a host that waits until another run releases its settings.
const HOLD_MAX: Duration = Duration::from_secs(5);
/// Interval between attempts to reach a standing agent. An agent that is restarted is there within a second, unless its supervisor waits
/// between two starts.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Limit on the interval between heartbeats. A standing agent has a lease that this command does not know, so the interval fits the
/// default lease.
const HEARTBEAT_MAX: Duration = Duration::from_secs(15);
/// Shortest delay of a wait after which this process counts as stopped, for example by Ctrl-Z.
const LATE_LEAST: Duration = Duration::from_secs(1);
/// Interval at which a blocked write checks for a request to stop.
const WRITE_PAUSE: Duration = Duration::from_millis(100);
/// Limit on the wait for the end of a program whose agent has ended.
const END_MAX: Duration = Duration::from_secs(2);

/// A process that answers for one host, or for several.
struct Process {
    child: Child,
    /// `None` after the process was asked to end.
    stdin: Option<ChildStdin>,
    /// Standard error of the program by which the host is reached. `None` if the host needs no such program.
    stderr_tail: Option<StderrTail>,
    /// True if the process was silent for too long or broke the protocol: it is killed without a wait for its end.
    given_up: bool,
}

/// One host's agent.
struct Node {
    host: HostName,
    /// Index of the process that answers for the host.
    process: usize,
    answers: VecDeque<Answer>,
    /// Number of questions without an answer.
    unanswered: usize,
    hello: Option<Hello>,
    /// Time at which a host without an answer is given up. `None` before the first question.
    due: Option<Instant>,
    /// True if the last question was to run and has no answer yet.
    runs: bool,
}

/// Time limit of a trial.
#[derive(Debug, Clone, Copy)]
struct TrialLimit {
    began: Instant,
    end: Instant,
}

/// The agents of all hosts.
pub struct Nodes {
    processes: Vec<Process>,
    nodes: Vec<Node>,
    generation: u64,
    interrupt: Interrupt,
    /// Hosts that failed at the last question to several hosts, in the order of their answers.
    failed: Vec<HostName>,
    /// Limit on the time that a host may be silent.
    silence_max: Duration,
    /// Time limit of the running trial. `None` if the run has no time limit.
    trial_limit: Option<TrialLimit>,
    /// Time of the next heartbeat to agents behind another program.
    next_heartbeat: Instant,
    /// Time from the order to run until the trial's traffic ends.
    pub run_takes: Duration,
}

impl Nodes {
    /// Starts the agents and exchanges greetings with them. Hosts that are reached in memory or take turns in one thread share one
    /// agent; each other host has its own.
    pub fn start(
        events: &mut Events,
        topology: &Topology,
        launchers: &Launchers,
        program: Option<&Path>,
        turns: bool,
    ) -> Result<Nodes, AskError> {
        events.generation += 1;
        let mut nodes = Nodes {
            processes: Vec::new(),
            nodes: Vec::new(),
            generation: events.generation,
            interrupt: events.interrupt.clone(),
            failed: Vec::new(),
            silence_max: launchers.silence_max,
            trial_limit: None,
            next_heartbeat: Instant::now(),
            run_takes: Duration::ZERO,
        };
        launchers.push(topology, &events.interrupt)?;
        let in_one_process: Vec<HostName> = topology
            .hosts
            .iter()
            .filter(|host| turns || host.reach == Reach::Memory)
            .map(|host| host.name)
            .collect();
        for host in &topology.hosts {
            if let (Some(program), false) = (program, host.reach.is_own()) {
                let text = format!(
                    "{} is a file of this machine, but the host is reached by another program: such a host runs its own tcpcost, or a copy of this one with --hosts push=on",
                    program.display()
                );
                return Err(AskError::Unfit(host.name, text));
            }
            let alone = [host.name];
            let hosts = match in_one_process.first() {
                _ if !in_one_process.contains(&host.name) => &alone[..],
                Some(first) if *first == host.name => &in_one_process,
                _ => continue,
            };
            let command = launchers.agent(hosts, &host.reach, program, turns);
            let started = nodes.start_process(events, command, &host.reach, hosts);
            let started =
                started.map_err(|error| AskError::Unfit(host.name, format!("{error:#}")))?;
            let process = nodes.processes.len();
            nodes.processes.push(started);
            nodes.nodes.extend(hosts.iter().map(|&host| Node {
                host,
                process,
                answers: VecDeque::new(),
                unanswered: 0,
                hello: None,
                due: None,
                runs: false,
            }));
        }
        nodes.greet(events, topology, launchers)?;
        Ok(nodes)
    }

    fn start_process(
        &self,
        events: &Events,
        mut command: Command,
        reach: &Reach,
        hosts: &[HostName],
    ) -> anyhow::Result<Process> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        if !reach.is_own() {
            command.stderr(Stdio::piped());
            // Ctrl-C is for the command, which then ends its agents. The program between them would die without passing it on.
            tcpcost_signals::unblocked(&mut command).process_group(0);
        }
        let mut child = command
            .spawn()
            .with_context(|| format!("start {}", command.get_program().display()))?;
        let stdin = child.stdin.take().expect("stdin is piped");
        if !reach.is_own() {
            // A program that does not read its input must not block the command.
            rustix::io::ioctl_fionbio(&stdin, true).context("make a pipe non-blocking")?;
        }
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr_tail = child.stderr.take().map(StderrTail::read);
        let reader = AgentReader {
            generation: self.generation,
            hosts: hosts.to_vec(),
            is_remote: !reach.is_own(),
            sender: events.sender.clone(),
        };
        std::thread::spawn(move || reader.run(stdout));
        Ok(Process {
            child,
            stdin: Some(stdin),
            stderr_tail,
            given_up: false,
        })
    }

    /// Asks each agent for its greeting, and checks that all have this version. Retries a standing agent, which may be restarting,
    /// for as long as a host may be silent.
    fn greet(
        &mut self,
        events: &Events,
        topology: &Topology,
        launchers: &Launchers,
    ) -> Result<(), AskError> {
        let hosts: Vec<HostName> = self.nodes.iter().map(|node| node.host).collect();
        let ask = Ask::Hello { protocol: PROTOCOL };
        let until = Instant::now() + self.silence_max;
        let standing = |host: HostName| {
            let own = topology.hosts.iter().find(|own| own.name == host);
            own.map(|own| &own.reach)
                .filter(|reach| matches!(reach, Reach::Attach(_)))
        };
        for &host in &hosts {
            match self.ask(host, &ask) {
                // The loop below notices that the agent is gone.
                Err(_) if standing(host).is_some() => {}
                asked => asked?,
            }
        }
        let mut waited_for = Vec::new();
        for host in hosts {
            let answer = loop {
                let (gone, reason) = match self.answer(events, host) {
                    Err(AskError::Gone(gone, reason)) => (gone, reason),
                    answer => break answer?,
                };
                let Some(reach) = standing(gone).filter(|_| Instant::now() < until) else {
                    return Err(AskError::Gone(gone, reason));
                };
                if !waited_for.contains(&gone) {
                    waited_for.push(gone);
                    tcpcost_console::output::say!("tcpcost: waiting for {gone}: {reason}");
                }
                if self.interrupt.wait(1, RETRY_PAUSE) {
                    return Err(AskError::Interrupted);
                }
                let command = launchers.command(gone, reach, None, &[]);
                let started = self.start_process(events, command, reach, &[gone]);
                let started =
                    started.map_err(|error| AskError::Unfit(gone, format!("{error:#}")))?;
                let process = self.node(gone).process;
                self.processes[process] = started;
                self.node(gone).unanswered = 0;
                let _ = self.ask(gone, &ask);
            };
            let Answer::Hello(hello) = answer else {
                return Err(self.broken(host, "did not say hello".to_string()));
            };
            let ours = env!("CARGO_PKG_VERSION");
            if hello.protocol != PROTOCOL || hello.version != ours {
                let (version, protocol) = (excerpt(&hello.version), hello.protocol);
                let text = format!(
                    "is tcpcost {version} and speaks protocol {protocol}; this is {ours}, which speaks {PROTOCOL}: install one version"
                );
                return Err(AskError::Unfit(host, text));
            }
            self.node(host).hello = Some(*hello);
        }
        Ok(())
    }

    fn node(&mut self, host: HostName) -> &mut Node {
        let mut nodes = self.nodes.iter_mut();
        let node = nodes.find(|node| node.host == host);
        node.expect("the topology's hosts have an agent each")
    }

    /// True if a host was given up. It may still be there and hold its settings.
    pub fn has_given_up(&self) -> bool {
        self.processes.iter().any(|process| process.given_up)
    }

    /// Greeting of a host's agent.
    pub fn hello(&self, host: HostName) -> &Hello {
        let node = self.nodes.iter().find(|node| node.host == host);
        let hello = node.and_then(|node| node.hello.as_ref());
        hello.expect("every agent has said hello")
    }

    /// Index of the process that answers for a host.
    pub fn process(&self, host: HostName) -> usize {
        let node = self.nodes.iter().find(|node| node.host == host);
        node.expect("every host has an agent").process
    }

    /// The hosts of a machine.
    pub fn on_machine(&self, machine: &str) -> Vec<HostName> {
        let hosts = self.nodes.iter().map(|node| node.host);
        hosts
            .filter(|&host| self.hello(host).machine == machine)
            .collect()
    }

    /// Sets the time limit of the next trial: a host that has not answered by then is given up. With `None` there is only the limit
    /// on silence.
    pub fn limit_trial(&mut self, time: Option<Duration>) {
        let began = Instant::now();
        let end = time.and_then(|time| began.checked_add(time));
        self.trial_limit = end.map(|end| TrialLimit { began, end });
    }

    /// Asks a host without waiting for the answer.
    pub fn ask(&mut self, host: HostName, ask: &Ask) -> Result<(), AskError> {
        let line = serde_json::to_string(ask).expect("questions have only text keys");
        let takes = match ask {
            Ask::Run(_) => self.run_takes,
            Ask::Listen | Ask::Connect { .. } | Ask::Relay { .. } | Ask::Accepted => SET_UP_MAX,
            Ask::Port { held_max_ns, .. } => Duration::from_nanos(*held_max_ns) + HOLD_MAX,
            _ => Duration::ZERO,
        };
        let silent = Instant::now() + takes + self.silence_max;
        let due = self
            .trial_limit
            .map_or(silent, |limit| limit.end.min(silent));
        let node = self.node(host);
        node.runs = matches!(ask, Ask::Run(_));
        node.unanswered += 1;
        node.due = Some(due);
        let process = node.process;
        self.write(process, format!("{host} {line}\n").as_bytes())
            .map_err(|error| {
                let how = self.how_ended(process);
                let how = how.unwrap_or_else(|| format!("does not read its input: {error}"));
                self.gone(host, &how)
            })
    }

    /// Writes to an agent. Gives up an agent behind another program if it does not read its input for as long as it may be silent.
    fn write(&mut self, process: usize, mut bytes: &[u8]) -> io::Result<()> {
        let until = Instant::now() + self.silence_max;
        let stdin = self.processes[process].stdin.as_mut();
        let stdin = stdin.expect("open until the agents are dropped");
        while !bytes.is_empty() {
            match stdin.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Only the pipe to a program that reaches another host is non-blocking.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let now = Instant::now();
                    if now >= until || self.interrupt.is_set() {
                        self.processes[process].given_up = true;
                        return Err(ErrorKind::TimedOut.into());
                    }
                    let timeout = Timespec::try_from((until - now).min(WRITE_PAUSE)).ok();
                    poll(&mut [PollFd::new(stdin, PollFlags::OUT)], timeout.as_ref()).or_else(
                        |error| match error {
                            rustix::io::Errno::INTR => Ok(0),
                            error => Err(error),
                        },
                    )?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// True if another program is between this process and the agent.
    fn is_remote(&self, process: usize) -> bool {
        self.processes[process].stderr_tail.is_some()
    }

    /// Says how a process ended. `None` if it does not end soon.
    fn how_ended(&mut self, process: usize) -> Option<String> {
        let child = &mut self.processes[process].child;
        ended_within(child, END_MAX).then(|| match child.wait() {
            Ok(status) => format!("ended ({status})"),
            Err(error) => format!("ended ({error})"),
        })
    }

    /// Error of an agent that is gone: `how` its process ended, and the last lines of its standard error.
    fn gone(&mut self, host: HostName, how: &str) -> AskError {
        let process = self.node(host).process;
        let Process {
            child, stderr_tail, ..
        } = &mut self.processes[process];
        let said = stderr_tail
            .as_ref()
            .filter(|_| ended_within(child, END_MAX));
        match said.and_then(StderrTail::take) {
            None => AskError::Gone(host, how.to_string()),
            Some(said) => {
                // The advice is about agents that cannot be started: this one has not greeted yet.
                let is_new = self.node(host).hello.is_none();
                let advice = advice(&said).filter(|_| is_new);
                let advice = advice.map_or(String::new(), |advice| format!(" ({advice})"));
                AskError::Gone(host, format!("{how}: {said}{advice}"))
            }
        }
    }

    /// Error of a host whose agent has ended. Failures of other hosts are consequences of this. `None` if all agents run.
    fn ended(&mut self) -> Option<AskError> {
        let mut processes = self.processes.iter_mut().enumerate();
        let (process, status) = processes.find_map(|(index, process)| {
            let status = process.child.try_wait().ok()??;
            Some((index, status))
        })?;
        let mut nodes = self.nodes.iter();
        let host = nodes.find(|node| node.process == process)?.host;
        Some(self.gone(host, &format!("ended ({status})")))
    }

    /// Waits for a host's next answer.
    pub fn answer(&mut self, events: &Events, host: HostName) -> Result<Answer, AskError> {
        loop {
            if let Some(answer) = self.node(host).answers.pop_front() {
                let process = self.node(host).process;
                let is_remote = self.is_remote(process);
                return match answer {
                    // Names the host, because the others may support it.
                    Answer::Unsupported(KnobError { knob, reason }) if is_remote => {
                        Err(KnobError::new(knob, format!("{host}: {reason}")).into())
                    }
                    Answer::Unsupported(error) => Err(error.into()),
                    Answer::Failed { reason } => {
                        let failed = AskError::Failed(host, reason);
                        Err(self.ended().unwrap_or(failed))
                    }
                    answer => Ok(answer),
                };
            }
            if events.interrupt.is_set() {
                return Err(AskError::Interrupted);
            }
            match self.next(events, host)? {
                Some(Event::Line(generation, from, line)) if generation == self.generation => {
                    self.add_answer(from, &line)?;
                }
                Some(Event::Gone(generation, from, Some(why))) if generation == self.generation => {
                    return Err(self.broken(from, why));
                }
                Some(Event::Gone(generation, from, None)) if generation == self.generation => {
                    let process = self.node(from).process;
                    let how = self.how_ended(process);
                    let how = how.unwrap_or_else(|| {
                        self.processes[process].given_up = true;
                        "closed its output".to_string()
                    });
                    return Err(self.gone(from, &how));
                }
                Some(Event::Wake | Event::Line(..) | Event::Gone(..)) | None => {}
            }
        }
    }

    /// Parses a line as a host's answer, and queues it.
    fn add_answer(&mut self, from: HostName, line: &str) -> Result<(), AskError> {
        let answer = serde_json::from_str(&printable_json(line))
            .map_err(|error| self.broken(from, format!("said {:?}: {error}", excerpt(line))))?;
        let node = self.node(from);
        if node.unanswered == 0 {
            return Err(self.broken(from, "answered without a question".to_string()));
        }
        node.unanswered -= 1;
        node.runs = false;
        let answer = match answer {
            Answer::Failed { reason } => Answer::Failed {
                reason: excerpt(&reason),
            },
            Answer::Unsupported(KnobError { knob, reason }) => {
                Answer::Unsupported(KnobError::new(excerpt(&knob), excerpt(&reason)))
            }
            answer => answer,
        };
        node.answers.push_back(answer);
        if let Some(Answer::Failed { .. }) = self.node(from).answers.back() {
            self.failed.push(from);
        }
        Ok(())
    }

    /// Error of a host whose agent broke the protocol. The agent will be killed without a wait for its end.
    fn broken(&mut self, host: HostName, why: String) -> AskError {
        let process = self.node(host).process;
        self.processes[process].given_up = true;
        AskError::Gone(host, why)
    }

    /// Waits for the next event. `None` if a heartbeat or a limit was due first.
    fn next(&mut self, events: &Events, host: HostName) -> Result<Option<Event>, AskError> {
        let Some(due) = self.node(host).due else {
            let event = events.receiver.recv();
            return Ok(Some(event.expect("the queue has a sender itself")));
        };
        let now = Instant::now();
        if now >= due {
            let process = self.node(host).process;
            self.processes[process].given_up = true;
            let text = match self.trial_limit.filter(|limit| limit.end <= due) {
                Some(limit) => format!("no end after {} s", (now - limit.began).as_secs()),
                None => {
                    let silence = self.silence_max.as_secs();
                    format!("has not answered for {silence} s longer than the step takes")
                }
            };
            return Err(AskError::Gone(host, text));
        }
        // No heartbeats during a measurement.
        let is_quiet = self.nodes.iter().any(|node| node.runs);
        if now >= self.next_heartbeat && !is_quiet {
            self.send_heartbeats();
            self.next_heartbeat = now + (self.silence_max / 4).min(HEARTBEAT_MAX);
        }
        let until = match is_quiet {
            true => due,
            false => due.min(self.next_heartbeat),
        };
        let received = events.receiver.recv_timeout(until - now);
        self.extend_limits(Instant::now().saturating_duration_since(until));
        match received {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                unreachable!("the queue has a sender itself")
            }
        }
    }

    /// Extends all limits by the time for which this process was stopped or had no CPU.
    fn extend_limits(&mut self, late: Duration) {
        if late < LATE_LEAST {
            return;
        }
        for node in &mut self.nodes {
            node.due = node.due.map(|due| due + late);
        }
        if let Some(limit) = &mut self.trial_limit {
            limit.end += late;
        }
    }

    /// Sends an empty line to each agent behind another program, which shows that the command is there.
    fn send_heartbeats(&mut self) {
        for process in 0..self.processes.len() {
            if self.is_remote(process) {
                // An agent that cannot be written to is noticed when it does not answer.
                let _ = self.write(process, b"\n");
            }
        }
    }

    /// Asks a host and waits for the answer.
    pub fn call(&mut self, events: &Events, host: HostName, ask: &Ask) -> Result<Answer, AskError> {
        self.ask(host, ask)?;
        self.answer(events, host)
    }

    /// Asks all these hosts, then waits for their answers, so that they work at the same time.
    pub fn call_all(
        &mut self,
        events: &Events,
        hosts: &[HostName],
        ask: impl Fn(HostName) -> Ask,
    ) -> Result<Vec<(HostName, Answer)>, AskError> {
        self.failed.clear();
        for &host in hosts {
            self.ask(host, &ask(host))?;
        }
        let (mut answers, mut failures) = (Vec::new(), Vec::new());
        let mut other = None;
        // Waits for all hosts even if one failed, so that no answer is left for the next question.
        for &host in hosts {
            match self.answer(events, host) {
                Ok(answer) => answers.push((host, answer)),
                Err(error @ (AskError::Interrupted | AskError::Gone(..))) => return Err(error),
                Err(AskError::Failed(host, reason)) => failures.push((host, reason)),
                Err(error) => drop(other.get_or_insert(error)),
            }
        }
        if let Some(error) = other {
            return Err(error);
        }
        // The first host that fails breaks its connections, which makes the others fail.
        failures.sort_by_key(|(host, _)| self.failed.iter().position(|failed| failed == host));
        all_failed(failures).map_or(Ok(answers), Err)
    }
}

impl Drop for Nodes {
    /// Closes all standard inputs. The agents then restore what they changed and exit; see [`reap`].
    fn drop(&mut self) {
        for process in &mut self.processes {
            process.stdin = None;
            if process.given_up {
                end(&mut process.child, process.stderr_tail.is_some());
            }
        }
        let until = Instant::now() + LEAVE_MAX;
        let mut printed = BTreeSet::new();
        for process in &mut self.processes {
            let leads_group = process.stderr_tail.is_some();
            reap(&mut process.child, leads_group, until, &self.interrupt);
            let tail = process.stderr_tail.as_ref();
            // An agent may report a setting that it could not restore. A text that srun writes for each of hundreds of steps is printed
            // once.
            if let Some(said) = tail.and_then(StderrTail::take)
                && printed.insert(said.clone())
            {
                tcpcost_console::output::say!("{said}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_does_not_answer_or_read_is_given_up() {
        let mut events = Events::new(Interrupt::default());
        let mut nodes = Nodes {
            processes: Vec::new(),
            nodes: Vec::new(),
            generation: 0,
            interrupt: Interrupt::default(),
            failed: Vec::new(),
            silence_max: Duration::from_millis(10),
            trial_limit: None,
            next_heartbeat: Instant::now(),
            run_takes: Duration::ZERO,
        };
        let mut command = Command::new("sleep");
        command.arg("100000");
        let reach: Reach = "exec:sleep".parse().unwrap();
        let process = nodes.start_process(&events, command, &reach, &[HostName::SERVER]);
        nodes.processes.push(process.unwrap());
        events.generation += 1;
        nodes.nodes.push(Node {
            host: HostName::SERVER,
            process: 0,
            answers: VecDeque::new(),
            unanswered: 0,
            hello: None,
            due: None,
            runs: false,
        });
        nodes.silence_max = Duration::from_secs(1000);
        nodes.limit_trial(Some(Duration::from_millis(10)));
        let error = nodes
            .call(&events, HostName::SERVER, &Ask::Finish)
            .unwrap_err();
        assert_eq!(error.to_string(), "server agent: no end after 0 s");
        nodes.silence_max = Duration::from_millis(10);
        // More than fits into a pipe.
        let error = nodes.write(0, &vec![b'x'; 4 << 20]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(nodes.has_given_up());
    }
}
