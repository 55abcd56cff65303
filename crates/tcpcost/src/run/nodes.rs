//! The agents of a bed's hosts, and the one queue on which the command waits for them.
//!
//! Does not know what the questions mean: `bed` and `trial` do.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::Context;
use tcpcost_agent::protocol::{Answer, Ask, Hello, PROTOCOL};
use tcpcost_signals::Interrupt;
use tcpcost_study::{HostName, Reach, Topology};

use super::launcher::Launchers;
use super::reap::reap;

/// Something the command waits for.
#[derive(Debug)]
pub enum Event {
    /// A line of an agent of this generation: whose, and what.
    Line(u64, HostName, String),
    /// An agent of this generation closed its standard output: it is dead, and with it these hosts.
    Gone(u64, HostName),
    /// It was asked to stop: what was asked is in [`Events::interrupt`].
    Wake,
}

/// Where events come together.
pub struct Events {
    sender: Sender<Event>,
    receiver: Receiver<Event>,
    /// Counts the sets of agents, so that a dead one's last words are not taken for a live one's.
    generation: u64,
    /// Whether it was asked to stop.
    pub interrupt: Interrupt,
}

impl Events {
    /// An empty queue, whose waits end when it is asked to stop.
    pub fn new(interrupt: Interrupt) -> Events {
        let (sender, receiver) = channel();
        let waker = sender.clone();
        // Without a queue there is nobody to wake.
        interrupt.on_each(move || drop(waker.send(Event::Wake)));
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
    /// The host's agent is dead or does not keep to the protocol: the bed is no longer usable.
    #[error("{0} agent: {1}")]
    Gone(HostName, String),
    /// The host's agent cannot be started, or is of another version: no other trial would do better.
    #[error("{0} agent: {1}")]
    Unfit(HostName, String),
}

/// An answer to another question.
pub(super) fn out_of_turn(host: HostName, answer: &Answer) -> AskError {
    AskError::Gone(host, format!("answered out of turn: {answer:?}"))
}

/// A process that answers for one host, or for several.
struct Process {
    child: Child,
    /// `None` once it is told to end.
    stdin: Option<ChildStdin>,
}

/// One host's agent.
struct Node {
    host: HostName,
    /// The process that answers for it.
    process: usize,
    answers: VecDeque<Answer>,
    hello: Option<Hello>,
}

/// The agents of all hosts.
pub struct Nodes {
    processes: Vec<Process>,
    nodes: Vec<Node>,
    generation: u64,
    interrupt: Interrupt,
}

impl Nodes {
    /// Starts an agent for each host, one for all that are reached in memory, and hears who they are.
    pub fn start(
        events: &mut Events,
        topology: &Topology,
        launchers: &Launchers,
        program: Option<&Path>,
    ) -> Result<Nodes, AskError> {
        events.generation += 1;
        let mut nodes = Nodes {
            processes: Vec::new(),
            nodes: Vec::new(),
            generation: events.generation,
            interrupt: events.interrupt.clone(),
        };
        let in_memory: Vec<HostName> = topology
            .hosts
            .iter()
            .filter(|host| host.reach == Reach::Memory)
            .map(|host| host.name)
            .collect();
        for host in &topology.hosts {
            let (flag, hosts): (Option<&str>, &[HostName]) = match host.reach {
                Reach::Here => (None, &[host.name]),
                Reach::Namespace => (Some("--isolate"), &[host.name]),
                Reach::Memory if in_memory.first() == Some(&host.name) => {
                    (Some("--memory"), &in_memory)
                }
                Reach::Memory => continue,
            };
            let started =
                nodes.start_process(events, launchers.command(host.name, program), flag, hosts);
            started.map_err(|error| AskError::Unfit(host.name, format!("{error:#}")))?;
        }
        nodes.greet(events)?;
        Ok(nodes)
    }

    fn start_process(
        &mut self,
        events: &Events,
        mut command: Command,
        flag: Option<&str>,
        hosts: &[HostName],
    ) -> anyhow::Result<()> {
        command
            .arg("agent")
            .args(flag)
            .args(hosts.iter().map(HostName::as_str))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .with_context(|| format!("start {}", command.get_program().display()))?;
        let stdin = Some(child.stdin.take().expect("stdin is piped"));
        let stdout = child.stdout.take().expect("stdout is piped");
        let (sender, generation) = (events.sender.clone(), self.generation);
        let own = hosts.to_vec();
        std::thread::spawn(move || {
            let first = own[0];
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { break };
                // A line that is no host's answer counts as the first host's, which then breaks the protocol.
                let answer = line.split_once(' ').and_then(|(host, answer)| {
                    let host = own.iter().find(|own| own.as_str() == host)?;
                    Some((*host, answer.to_string()))
                });
                let (host, answer) = answer.unwrap_or((first, line));
                if sender.send(Event::Line(generation, host, answer)).is_err() {
                    return;
                }
            }
            // The command may have ended; then nobody listens and that is fine.
            let _ = sender.send(Event::Gone(generation, first));
        });
        let process = self.processes.len();
        self.processes.push(Process { child, stdin });
        self.nodes.extend(hosts.iter().map(|&host| Node {
            host,
            process,
            answers: VecDeque::new(),
            hello: None,
        }));
        Ok(())
    }

    /// Hears who each agent is; each must be of this version.
    fn greet(&mut self, events: &Events) -> Result<(), AskError> {
        let hosts: Vec<HostName> = self.nodes.iter().map(|node| node.host).collect();
        let ask = Ask::Hello { protocol: PROTOCOL };
        for (host, answer) in self.call_all(events, &hosts, |_| ask.clone())? {
            let Answer::Hello(hello) = answer else {
                return Err(AskError::Gone(host, "did not say hello".to_string()));
            };
            let ours = env!("CARGO_PKG_VERSION");
            if hello.protocol != PROTOCOL || hello.version != ours {
                let (version, protocol) = (&hello.version, hello.protocol);
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

    /// Who a host's agent is.
    pub fn hello(&self, host: HostName) -> &Hello {
        let node = self.nodes.iter().find(|node| node.host == host);
        let hello = node.and_then(|node| node.hello.as_ref());
        hello.expect("every agent has said hello")
    }

    /// The hosts of a machine.
    pub fn on_machine(&self, machine: &str) -> Vec<HostName> {
        let hosts = self.nodes.iter().map(|node| node.host);
        hosts
            .filter(|&host| self.hello(host).machine == machine)
            .collect()
    }

    /// Asks without waiting.
    pub fn ask(&mut self, host: HostName, ask: &Ask) -> Result<(), AskError> {
        let line = serde_json::to_string(ask).expect("questions have only text keys");
        let process = self.node(host).process;
        let stdin = self.processes[process].stdin.as_mut();
        let stdin = stdin.expect("open until the agents are dropped");
        stdin
            .write_all(format!("{host} {line}\n").as_bytes())
            .and_then(|()| stdin.flush())
            .map_err(|error| AskError::Gone(host, format!("does not listen: {error}")))
    }

    /// Waits for a host's next answer.
    pub fn answer(&mut self, events: &Events, host: HostName) -> Result<Answer, AskError> {
        loop {
            if let Some(answer) = self.node(host).answers.pop_front() {
                return match answer {
                    Answer::Unsupported { knob, reason } => {
                        Err(AskError::Unsupported { knob, reason })
                    }
                    Answer::Failed { reason } => Err(AskError::Failed(host, reason)),
                    answer => Ok(answer),
                };
            }
            if events.interrupt.is_set() {
                return Err(AskError::Interrupted);
            }
            match events
                .receiver
                .recv()
                .expect("the queue holds a sender of its own")
            {
                Event::Line(generation, from, line) if generation == self.generation => {
                    let answer = serde_json::from_str(&line)
                        .map_err(|error| AskError::Gone(from, format!("said {line:?}: {error}")))?;
                    self.node(from).answers.push_back(answer);
                }
                Event::Gone(generation, from) if generation == self.generation => {
                    let process = self.node(from).process;
                    let status = match self.processes[process].child.wait() {
                        Ok(status) => status.to_string(),
                        Err(error) => error.to_string(),
                    };
                    return Err(AskError::Gone(from, format!("ended ({status})")));
                }
                Event::Wake | Event::Line(..) | Event::Gone(..) => {}
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
        for &host in hosts {
            self.ask(host, &ask(host))?;
        }
        let mut answers = Vec::new();
        let mut failed = None;
        // All are waited for even if one failed, so that no answer is left for the next question.
        for &host in hosts {
            match self.answer(events, host) {
                Ok(answer) => answers.push((host, answer)),
                Err(error @ (AskError::Interrupted | AskError::Gone(..))) => return Err(error),
                Err(error) => drop(failed.get_or_insert(error)),
            }
        }
        failed.map_or(Ok(answers), Err)
    }
}

impl Drop for Nodes {
    /// Closes all standard inputs, at which the agents put back what they changed and exit; see [`reap`].
    fn drop(&mut self) {
        for process in &mut self.processes {
            process.stdin = None;
        }
        for process in &mut self.processes {
            reap(&mut process.child, &self.interrupt);
        }
    }
}
