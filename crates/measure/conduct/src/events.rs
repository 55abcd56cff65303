//! Queue of the agents' lines: each agent's standard output is read on a thread of its own.

use std::io::{self, BufReader, ErrorKind};
use std::process::ChildStdout;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tcpcost_agent::protocol::ANSWER_BYTES_MAX;
use tcpcost_signals::Interrupt;
use tcpcost_study::HostName;

use super::lines;

/// Event that the command waits for.
#[derive(Debug)]
pub enum Event {
    /// Line of an agent: its generation, the host, and the text.
    Line(u64, HostName, String),
    /// No more lines of an agent, for any of its hosts: its generation, its first host, and the reason. Without a reason the agent
    /// closed its standard output; with one, the output could not be read or broke the protocol.
    Gone(u64, HostName, Option<String>),
    /// A request to stop: [`Events::interrupt`] has its state.
    Wake,
}

/// Queue of the events of all agents.
pub struct Events {
    pub(super) sender: SyncSender<Event>,
    pub(super) receiver: Receiver<Event>,
    /// Number of the current set of agents, so that late lines of a dead agent are not attributed to its successor.
    pub(super) generation: u64,
    /// Requests to stop.
    pub interrupt: Interrupt,
}

impl Events {
    /// Makes an empty queue. A request to stop ends a wait for its next event.
    pub fn new(interrupt: Interrupt) -> Events {
        // The queue has room for one event. A reader thread blocks while it is full, so memory is limited by the number of hosts.
        let (sender, receiver) = sync_channel(1);
        let waker = sender.clone();
        // If the queue is full, its receiver checks the interrupt after the queued event.
        interrupt.on_each(move || drop(waker.try_send(Event::Wake)));
        Events {
            sender,
            receiver,
            generation: 0,
            interrupt,
        }
    }
}

/// Reader of an agent's standard output, on a thread of its own.
pub(super) struct AgentReader {
    pub(super) generation: u64,
    /// Hosts that the agent answers for: at least one.
    pub(super) hosts: Vec<HostName>,
    /// True if another program is between this process and the agent.
    pub(super) is_remote: bool,
    pub(super) sender: SyncSender<Event>,
}

impl AgentReader {
    /// Reads lines until the end of the output, or until a line breaks the protocol.
    pub(super) fn run(self, stdout: ChildStdout) {
        let why = self.forward_lines(&mut BufReader::new(stdout)).err();
        let why = why.map(|error| error.to_string());
        // An error means that the command has ended and has no receiver any more, which is fine.
        let _ = self
            .sender
            .send(Event::Gone(self.generation, self.hosts[0], why));
    }

    fn forward_lines(&self, stdout: &mut BufReader<ChildStdout>) -> io::Result<()> {
        let mut greeting_bytes = 0;
        let mut has_answered = false;
        while let Some(line) = lines::read_line(stdout, ANSWER_BYTES_MAX)? {
            // A line without the name of a host is attributed to the first host, and breaks the protocol there.
            let answer = line.split_once(' ').and_then(|(host, answer)| {
                let host = self.hosts.iter().find(|own| own.as_str() == host)?;
                Some((*host, answer.to_string()))
            });
            // The shell of a remote host may print a greeting before the agent's first answer (a `.bashrc` that prints).
            let is_json = |(_, answer): &(HostName, String)| answer.starts_with('{');
            if self.is_remote && !has_answered && !answer.as_ref().is_some_and(is_json) {
                greeting_bytes += line.len();
                if greeting_bytes > GREETING_BYTES_MAX {
                    let reason = format!(
                        "printed more than {} KiB before its first answer",
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

/// Limit on the greeting that a shell prints before it starts the agent; `/etc/motd` has some kilobytes.
const GREETING_BYTES_MAX: usize = 1 << 20;
