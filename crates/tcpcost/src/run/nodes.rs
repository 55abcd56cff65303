//! The agents of a bed's hosts, and the one queue on which the command waits for them.
//!
//! Does not know what the questions mean: `bed` and `trial` do.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, BufReader, ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use tcpcost_agent::protocol::{ANSWER_BYTES_MAX, Answer, Ask, Hello, PROTOCOL};
use tcpcost_counts::printable_json;
use tcpcost_signals::Interrupt;
use tcpcost_study::{HostName, Reach, Topology};

use super::hear::{self, excerpt};
use super::last_words::LastWords;
use super::launcher::{Launchers, advice};
use super::reap::{LEAVE_MAX, end, ended_within, reap};

/// Something the command waits for.
#[derive(Debug)]
pub enum Event {
    /// A line of an agent of this generation: whose, and what.
    Line(u64, HostName, String),
    /// An agent of this generation is heard no more, and with it all of its hosts: it closed its standard output, or said what
    /// no agent says.
    Gone(u64, HostName, Option<String>),
    /// It was asked to stop: what was asked is in [`Events::interrupt`].
    Wake,
}

/// Where events come together.
pub struct Events {
    sender: SyncSender<Event>,
    receiver: Receiver<Event>,
    /// Counts the sets of agents, so that a dead one's last words are not taken for a live one's.
    generation: u64,
    /// Whether it was asked to stop.
    pub interrupt: Interrupt,
}

impl Events {
    /// An empty queue, whose waits end when it is asked to stop.
    pub fn new(interrupt: Interrupt) -> Events {
        // One event waits: a thread that hears an agent hears no more of it meanwhile, so memory is bounded by hosts.
        let (sender, receiver) = sync_channel(1);
        let waker = sender.clone();
        // Where the queue is full, its reader looks at the interrupt after the event that is in it.
        interrupt.on_each(move || drop(waker.try_send(Event::Wake)));
        Events {
            sender,
            receiver,
            generation: 0,
            interrupt,
        }
    }
}

/// Why a question got no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// A knob cannot be had here.
    #[error("{knob}: {reason}")]
    Unsupported {
        /// Which.
        knob: String,
        /// Why.
        reason: String,
    },
    /// The host says that it failed.
    #[error("{0}: {1}")]
    Failed(HostName, String),
    /// A host could not connect to another.
    #[error(
        "{on}: no data connection to {to} at {target}: {reason}; {}",
        whats_likely(reason)
    )]
    Unreached {
        /// The host that connects.
        on: HostName,
        /// The host that listens.
        to: HostName,
        /// Where it listens.
        target: SocketAddr,
        /// What connect said.
        reason: String,
    },
    /// The host's agent is dead or does not keep to the protocol: the bed is no longer usable.
    #[error("{0} agent: {1}")]
    Gone(HostName, String),
    /// The host's agent cannot be started, or is of another version: no other trial would do better.
    #[error("{0} agent: {1}")]
    Unfit(HostName, String),
}

/// Why a host whose agent listens is not reached, and what to do.
fn whats_likely(reason: &str) -> &'static str {
    if reason.contains("Network is unreachable") {
        "no route leads there: look at `device` and `address` of both hosts"
    } else if reason.contains("no answer") {
        "a firewall drops it, most likely: open the ports that the knob data_ports names (docs/fleet.md)"
    } else {
        "a firewall refuses it, most likely: open the ports that the knob data_ports names (docs/fleet.md)"
    }
}

/// Of hosts that failed at the same question, the first of them first; `None` without any.
fn all_failed(failures: Vec<(HostName, String)>) -> Option<AskError> {
    let more = failures.len().saturating_sub(FAILURES_SHOWN);
    let mut failures = failures.into_iter().take(FAILURES_SHOWN);
    let (host, mut reason) = failures.next()?;
    for (host, then) in failures {
        reason += &format!("; then {host}: {then}");
    }
    if more > 0 {
        reason += &format!("; then {more} hosts more");
    }
    Some(AskError::Failed(host, reason))
}

/// The first is the cause, most likely; one of hundreds of hosts that lost their connections tells as much as all.
const FAILURES_SHOWN: usize = 2;

/// An answer to another question.
pub(super) fn out_of_turn(host: HostName, answer: &Answer) -> AskError {
    AskError::Gone(host, format!("answered out of turn: {answer:?}"))
}

/// Connections are set up within half a minute and a millisecond for each (`agent/src/trial.rs`), of which a host has
/// 30,000 at most.
const SET_UP_MAX: Duration = Duration::from_secs(60);
/// Of a host whose settings somebody holds: more than it waits for that.
const HOLD_MAX: Duration = Duration::from_secs(5);
/// A standing agent that is started anew is there within a second, unless whoever starts it waits between two starts.
const AGAIN: Duration = Duration::from_secs(1);
/// An agent that runs already has a lease that this command does not know: it hears of the command as often as by the default.
const BEAT_MAX: Duration = Duration::from_secs(15);
/// Delay of a wait from which on this process counts as stopped, for example by Ctrl-Z.
const LATE_LEAST: Duration = Duration::from_secs(1);
/// How long a write waits before it looks for a request to stop.
const WRITE_PAUSE: Duration = Duration::from_millis(100);
/// A program whose agent has ended ends by itself.
const END_MAX: Duration = Duration::from_secs(2);

/// A process that answers for one host, or for several.
struct Process {
    child: Child,
    /// `None` once it is told to end.
    stdin: Option<ChildStdin>,
    /// What another program, by which the host is reached, says of itself and of the host.
    last_words: Option<LastWords>,
    /// Whether it was silent for too long: its end is not waited for.
    given_up: bool,
}

/// One host's agent.
struct Node {
    host: HostName,
    /// The process that answers for it.
    process: usize,
    answers: VecDeque<Answer>,
    /// Questions that it has not answered.
    asked: usize,
    hello: Option<Hello>,
    /// Time at which a host without an answer is given up. `None` before the first question.
    due: Option<Instant>,
    /// Whether it was asked to run and has not answered.
    runs: bool,
}

/// What hears an agent's standard output, on a thread of its own.
struct Hearing {
    generation: u64,
    /// Hosts that the agent answers for: at least one.
    hosts: Vec<HostName>,
    is_far: bool,
    sender: SyncSender<Event>,
}

impl Hearing {
    /// Hears lines until their end, or until one breaks the protocol.
    fn run(self, stdout: ChildStdout) {
        let why = self.lines(&mut BufReader::new(stdout)).err();
        let why = why.map(|error| error.to_string());
        // The command may have ended; then nobody listens and that is fine.
        let _ = self
            .sender
            .send(Event::Gone(self.generation, self.hosts[0], why));
    }

    fn lines(&self, stdout: &mut BufReader<ChildStdout>) -> io::Result<()> {
        let mut greeting_bytes = 0;
        let mut has_answered = false;
        while let Some(line) = hear::line(stdout, ANSWER_BYTES_MAX)? {
            // A line that is no host's answer counts as the first host's, which then breaks the protocol.
            let answer = line.split_once(' ').and_then(|(host, answer)| {
                let host = self.hosts.iter().find(|own| own.as_str() == host)?;
                Some((*host, answer.to_string()))
            });
            // Before the agent's first word the shell there may greet (a `.bashrc` that prints).
            let is_json = |(_, answer): &(HostName, String)| answer.starts_with('{');
            if self.is_far && !has_answered && !answer.as_ref().is_some_and(is_json) {
                greeting_bytes += line.len();
                if greeting_bytes > GREETING_BYTES_MAX {
                    let reason = format!(
                        "greeted with more than {} KiB and no answer",
                        GREETING_BYTES_MAX >> 10
                    );
                    return Err(io::Error::new(ErrorKind::InvalidData, reason));
                }
                continue;
            }
            has_answered = true;
            let (host, answer) = answer.unwrap_or((self.hosts[0], line));
            let event = Event::Line(self.generation, host, answer);
            if self.sender.send(event).is_err() {
                break;
            }
        }
        Ok(())
    }
}

/// What a shell prints before it starts the agent; `/etc/motd` has some kilobytes.
const GREETING_BYTES_MAX: usize = 1 << 20;

/// Time limit of a trial.
#[derive(Debug, Clone, Copy)]
struct Bound {
    began: Instant,
    end: Instant,
}

/// The agents of all hosts.
pub struct Nodes {
    processes: Vec<Process>,
    nodes: Vec<Node>,
    generation: u64,
    interrupt: Interrupt,
    /// Hosts that said of the last question to all that they failed, as they said it.
    failed: Vec<HostName>,
    /// Limit on the time that a host may be silent.
    silence_max: Duration,
    /// Limit of the running trial. `None` if the run has no time limit.
    bound: Option<Bound>,
    /// When such hosts are told again that the command is there.
    next_beat: Instant,
    /// How long the trial's traffic takes, from the order to run.
    pub run_takes: Duration,
}

impl Nodes {
    /// Starts an agent for each host, one for all that are reached in memory or take turns in one thread, and hears who they are.
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
            bound: None,
            next_beat: Instant::now(),
            run_takes: Duration::ZERO,
        };
        launchers.push(topology, &events.interrupt)?;
        let of_one_process: Vec<HostName> = topology
            .hosts
            .iter()
            .filter(|host| turns || host.reach == Reach::Memory)
            .map(|host| host.name)
            .collect();
        for host in &topology.hosts {
            if let (Some(program), false) = (program, host.reach.is_own()) {
                let text = format!(
                    "{} is of this machine: a host that is reached by another program runs its own tcpcost, or this one by --hosts push=on",
                    program.display()
                );
                return Err(AskError::Unfit(host.name, text));
            }
            let alone = [host.name];
            let hosts = match of_one_process.first() {
                _ if !of_one_process.contains(&host.name) => &alone[..],
                Some(first) if *first == host.name => &of_one_process,
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
                asked: 0,
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
            // Ctrl-C is for the command, which ends its agents; this program would not pass it on.
            tcpcost_signals::unblocked(&mut command).process_group(0);
        }
        let mut child = command
            .spawn()
            .with_context(|| format!("start {}", command.get_program().display()))?;
        let stdin = child.stdin.take().expect("stdin is piped");
        if !reach.is_own() {
            // One that takes nothing must not keep the command.
            rustix::io::ioctl_fionbio(&stdin, true).context("make a pipe non-blocking")?;
        }
        let stdout = child.stdout.take().expect("stdout is piped");
        let last_words = child.stderr.take().map(LastWords::hear);
        let hearing = Hearing {
            generation: self.generation,
            hosts: hosts.to_vec(),
            is_far: !reach.is_own(),
            sender: events.sender.clone(),
        };
        std::thread::spawn(move || hearing.run(stdout));
        Ok(Process {
            child,
            stdin: Some(stdin),
            last_words,
            given_up: false,
        })
    }

    /// Hears who each agent is; each must be of this version. One that runs already may just be started anew: it is tried
    /// again, as long as a host may be silent.
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
                // That it is gone is heard below.
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
                    tcpcost_console::output::say!("tcpcost: {gone} is waited for: {reason}");
                }
                if self.interrupt.wait(1, AGAIN) {
                    return Err(AskError::Interrupted);
                }
                let command = launchers.command(gone, reach, None, &[]);
                let started = self.start_process(events, command, reach, &[gone]);
                let started =
                    started.map_err(|error| AskError::Unfit(gone, format!("{error:#}")))?;
                let process = self.node(gone).process;
                self.processes[process] = started;
                self.node(gone).asked = 0;
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

    /// Whether a host was given up for its silence. It may still be there, and hold its settings.
    pub fn has_given_up(&self) -> bool {
        self.processes.iter().any(|process| process.given_up)
    }

    /// Who a host's agent is.
    pub fn hello(&self, host: HostName) -> &Hello {
        let node = self.nodes.iter().find(|node| node.host == host);
        let hello = node.and_then(|node| node.hello.as_ref());
        hello.expect("every agent has said hello")
    }

    /// Number of the process that answers as this host.
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

    /// Sets the time limit of the next trial: a host that has not answered by then is given up. With `None` only the limit on
    /// silence holds.
    pub fn bound(&mut self, time: Option<Duration>) {
        let began = Instant::now();
        let end = time.and_then(|time| began.checked_add(time));
        self.bound = end.map(|end| Bound { began, end });
    }

    /// Asks without waiting.
    pub fn ask(&mut self, host: HostName, ask: &Ask) -> Result<(), AskError> {
        let line = serde_json::to_string(ask).expect("questions have only text keys");
        let takes = match ask {
            Ask::Run(_) => self.run_takes,
            Ask::Listen | Ask::Connect { .. } | Ask::Relay { .. } | Ask::Accepted => SET_UP_MAX,
            Ask::Port { held_max_ns, .. } => Duration::from_nanos(*held_max_ns) + HOLD_MAX,
            _ => Duration::ZERO,
        };
        let silent = Instant::now() + takes + self.silence_max;
        let due = self.bound.map_or(silent, |bound| bound.end.min(silent));
        let node = self.node(host);
        node.runs = matches!(ask, Ask::Run(_));
        node.asked += 1;
        node.due = Some(due);
        let process = node.process;
        self.write(process, format!("{host} {line}\n").as_bytes())
            .map_err(|error| {
                let how = self.how_ended(process);
                let how = how.unwrap_or_else(|| format!("does not listen: {error}"));
                self.gone(host, &how)
            })
    }

    /// Writes to an agent. One behind another program that takes nothing is given up as if it were silent.
    fn write(&mut self, process: usize, mut bytes: &[u8]) -> io::Result<()> {
        let until = Instant::now() + self.silence_max;
        let stdin = self.processes[process].stdin.as_mut();
        let stdin = stdin.expect("open until the agents are dropped");
        while !bytes.is_empty() {
            match stdin.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Only the pipe to one behind another program does not block.
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

    /// Whether another program is between this one and the agent.
    fn is_far(&self, process: usize) -> bool {
        self.processes[process].last_words.is_some()
    }

    /// How a process ended; `None` if it does not end soon.
    fn how_ended(&mut self, process: usize) -> Option<String> {
        let child = &mut self.processes[process].child;
        ended_within(child, END_MAX).then(|| match child.wait() {
            Ok(status) => format!("ended ({status})"),
            Err(error) => format!("ended ({error})"),
        })
    }

    /// That an agent is gone, with how its process ended and what that said last.
    fn gone(&mut self, host: HostName, how: &str) -> AskError {
        let process = self.node(host).process;
        let Process {
            child, last_words, ..
        } = &mut self.processes[process];
        let said = last_words.as_ref().filter(|_| ended_within(child, END_MAX));
        match said.and_then(LastWords::take) {
            None => AskError::Gone(host, how.to_string()),
            Some(said) => {
                // One that has greeted was there.
                let is_new = self.node(host).hello.is_none();
                let advice = advice(&said).filter(|_| is_new);
                let advice = advice.map_or(String::new(), |advice| format!(" ({advice})"));
                AskError::Gone(host, format!("{how}: {said}{advice}"))
            }
        }
    }

    /// A host whose agent has ended: what others then say follows from it.
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
                let is_far = self.is_far(process);
                return match answer {
                    // Which of many has not what others have.
                    Answer::Unsupported { knob, reason } if is_far => {
                        let reason = format!("{host}: {reason}");
                        Err(AskError::Unsupported { knob, reason })
                    }
                    Answer::Unsupported { knob, reason } => {
                        Err(AskError::Unsupported { knob, reason })
                    }
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
                    self.take(from, &line)?;
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

    /// Takes in a line that a host said: the answer to a question.
    fn take(&mut self, from: HostName, line: &str) -> Result<(), AskError> {
        let answer = serde_json::from_str(&printable_json(line))
            .map_err(|error| self.broken(from, format!("said {:?}: {error}", excerpt(line))))?;
        let node = self.node(from);
        if node.asked == 0 {
            return Err(self.broken(from, "answered what it was not asked".to_string()));
        }
        node.asked -= 1;
        node.runs = false;
        let answer = match answer {
            Answer::Failed { reason } => Answer::Failed {
                reason: excerpt(&reason),
            },
            Answer::Unsupported { knob, reason } => Answer::Unsupported {
                knob: excerpt(&knob),
                reason: excerpt(&reason),
            },
            answer => answer,
        };
        node.answers.push_back(answer);
        if let Some(Answer::Failed { .. }) = self.node(from).answers.back() {
            self.failed.push(from);
        }
        Ok(())
    }

    /// A host whose agent does not keep to the protocol: nothing that it says is of use, and its end is not waited for.
    fn broken(&mut self, host: HostName, why: String) -> AskError {
        let process = self.node(host).process;
        self.processes[process].given_up = true;
        AskError::Gone(host, why)
    }

    /// The next event; `None` where something else was due first.
    fn next(&mut self, events: &Events, host: HostName) -> Result<Option<Event>, AskError> {
        let Some(due) = self.node(host).due else {
            let event = events.receiver.recv();
            return Ok(Some(event.expect("the queue holds a sender of its own")));
        };
        let now = Instant::now();
        if now >= due {
            let process = self.node(host).process;
            self.processes[process].given_up = true;
            let text = match self.bound.filter(|bound| bound.end <= due) {
                Some(bound) => format!("no end after {} s", (now - bound.began).as_secs()),
                None => {
                    let silence = self.silence_max.as_secs();
                    format!("has not answered for {silence} s longer than it takes")
                }
            };
            return Err(AskError::Gone(host, text));
        }
        // Nothing is said to any host while one is measured.
        let is_quiet = self.nodes.iter().any(|node| node.runs);
        if now >= self.next_beat && !is_quiet {
            self.beat();
            self.next_beat = now + (self.silence_max / 4).min(BEAT_MAX);
        }
        let until = match is_quiet {
            true => due,
            false => due.min(self.next_beat),
        };
        let received = events.receiver.recv_timeout(until - now);
        self.forgive(Instant::now().saturating_duration_since(until));
        match received {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                unreachable!("the queue holds a sender of its own")
            }
        }
    }

    /// Extends all limits by the time for which this process was stopped or had no CPU.
    fn forgive(&mut self, late: Duration) {
        if late < LATE_LEAST {
            return;
        }
        for node in &mut self.nodes {
            node.due = node.due.map(|due| due + late);
        }
        if let Some(bound) = &mut self.bound {
            bound.end += late;
        }
    }

    /// Tells the agents behind other programs that somebody is there: an empty line.
    fn beat(&mut self) {
        for process in 0..self.processes.len() {
            if self.is_far(process) {
                // One that does not listen is noticed when it does not answer.
                let _ = self.write(process, b"\n");
            }
        }
    }

    /// Asks and waits.
    pub fn call(&mut self, events: &Events, host: HostName, ask: &Ask) -> Result<Answer, AskError> {
        self.ask(host, ask)?;
        self.answer(events, host)
    }

    /// Asks these hosts, then waits for all: they work at the same time.
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
        // All are waited for even if one failed, so that no answer is left for the next question.
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
        // One that fails breaks its connections, at which the others fail.
        failures.sort_by_key(|(host, _)| self.failed.iter().position(|failed| failed == host));
        all_failed(failures).map_or(Ok(answers), Err)
    }
}

impl Drop for Nodes {
    /// Closes all standard inputs, at which the agents put back what they changed and exit; see [`reap`].
    fn drop(&mut self) {
        for process in &mut self.processes {
            process.stdin = None;
            if process.given_up {
                end(&mut process.child, process.last_words.is_some());
            }
        }
        let until = Instant::now() + LEAVE_MAX;
        let mut told = BTreeSet::new();
        for process in &mut self.processes {
            let leads_group = process.last_words.is_some();
            reap(&mut process.child, leads_group, until, &self.interrupt);
            let words = process.last_words.as_ref();
            // What an agent could not put back, say; what srun says of each of hundreds of steps is told once.
            if let Some(said) = words.and_then(LastWords::take)
                && told.insert(said.clone())
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
    fn of_hosts_that_fail_together_the_first_is_told_first_and_not_all() {
        let told = |count: usize| {
            let hosts = ["server", "client", "h3", "h4"].into_iter().take(count);
            let failures = hosts.map(|host| (host.parse().unwrap(), format!("why {host}")));
            all_failed(failures.collect()).map(|error| error.to_string())
        };
        assert_eq!(told(0), None);
        assert_eq!(told(1).unwrap(), "server: why server");
        let two = "server: why server; then client: why client";
        assert_eq!(told(2).unwrap(), two);
        assert_eq!(told(4).unwrap(), format!("{two}; then 2 hosts more"));
    }
    #[test]
    fn a_host_that_answers_nothing_or_takes_nothing_is_given_up() {
        let mut events = Events::new(Interrupt::default());
        let mut nodes = Nodes {
            processes: Vec::new(),
            nodes: Vec::new(),
            generation: 0,
            interrupt: Interrupt::default(),
            failed: Vec::new(),
            silence_max: Duration::from_millis(10),
            bound: None,
            next_beat: Instant::now(),
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
            asked: 0,
            hello: None,
            due: None,
            runs: false,
        });
        nodes.silence_max = Duration::from_secs(1000);
        nodes.bound(Some(Duration::from_millis(10)));
        let error = nodes
            .call(&events, HostName::SERVER, &Ask::Finish)
            .unwrap_err();
        assert_eq!(error.to_string(), "server agent: no end after 0 s");
        nodes.silence_max = Duration::from_millis(10);
        // More than a pipe takes.
        let error = nodes.write(0, &vec![b'x'; 4 << 20]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(nodes.has_given_up());
    }
}
