//! The two agent processes of a bed, and the one queue on which the command waits for them.
//!
//! Does not know what the questions mean: `bed` and `trial` do.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::Context;
use tcpcost_study::End;

use crate::protocol::{Answer, Ask};

/// Something the command waits for.
#[derive(Debug)]
pub enum Event {
    /// A line of an agent of this generation.
    Line(u64, End, String),
    /// An agent of this generation closed its standard output: it is dead.
    Gone(u64, End),
    /// Ctrl-C or SIGTERM.
    Interrupted,
}

/// Where events come together.
pub struct Events {
    sender: Sender<Event>,
    receiver: Receiver<Event>,
    /// Counts the pairs of agents, so that a dead pair's last words are not taken for a live one's.
    generation: u64,
}

impl Events {
    /// An empty queue.
    pub fn new() -> Events {
        let (sender, receiver) = channel();
        Events {
            sender,
            receiver,
            generation: 0,
        }
    }

    /// For the thread that waits for signals.
    pub fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// Whether Ctrl-C came while nobody waited. Drops stale lines.
    pub fn interrupted(&self) -> bool {
        self.receiver
            .try_iter()
            .any(|event| matches!(event, Event::Interrupted))
    }
}

/// Why a question got no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum Halt {
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
    /// The end says that it failed.
    #[error("{0}: {1}")]
    Failed(End, String),
    /// The end is dead or talks nonsense: the bed is no longer usable.
    #[error("{0} agent: {1}")]
    Gone(End, String),
}

struct Process {
    /// `None` where the other end's process is this one's too.
    child: Option<Child>,
    /// `None` once the agent is told to end.
    stdin: Option<ChildStdin>,
    answers: VecDeque<Answer>,
}

/// How agents are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processes {
    /// Two, in the command's own network namespace.
    Two,
    /// Two, each in a network namespace of its own.
    Isolated,
    /// One for both ends; each line begins with the end's name.
    One,
}

/// Both agents.
pub struct Ends {
    client: Process,
    server: Process,
    processes: Processes,
    generation: u64,
}

impl Ends {
    /// Starts both.
    pub fn start(events: &mut Events, processes: Processes) -> anyhow::Result<Ends> {
        events.generation += 1;
        let generation = events.generation;
        let start = |end: End| -> anyhow::Result<Process> {
            // The running binary itself, even if the file was replaced since it was started.
            let mut command = Command::new("/proc/self/exe");
            command
                .arg("agent")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            match processes {
                Processes::Two => {}
                Processes::Isolated => drop(command.arg("--isolate")),
                Processes::One => drop(command.arg("--pair")),
            }
            let mut child = command
                .spawn()
                .with_context(|| format!("start the {end} agent"))?;
            let stdin = Some(child.stdin.take().expect("stdin is piped"));
            let stdout = child.stdout.take().expect("stdout is piped");
            let sender = events.sender();
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines() {
                    let Ok(line) = line else { break };
                    let (end, line) = match line.split_once(' ') {
                        Some(("client", rest)) if processes == Processes::One => {
                            (End::Client, rest.to_string())
                        }
                        Some(("server", rest)) if processes == Processes::One => {
                            (End::Server, rest.to_string())
                        }
                        _ => (end, line),
                    };
                    if sender.send(Event::Line(generation, end, line)).is_err() {
                        return;
                    }
                }
                // The command may have ended; then nobody listens and that is fine.
                let _ = sender.send(Event::Gone(generation, end));
            });
            Ok(Process {
                child: Some(child),
                stdin,
                answers: VecDeque::new(),
            })
        };
        let server = match processes {
            Processes::Two | Processes::Isolated => start(End::Server)?,
            Processes::One => Process {
                child: None,
                stdin: None,
                answers: VecDeque::new(),
            },
        };
        Ok(Ends {
            client: start(End::Client)?,
            server,
            processes,
            generation,
        })
    }

    fn process(&mut self, end: End) -> &mut Process {
        match end {
            End::Client => &mut self.client,
            End::Server => &mut self.server,
        }
    }

    /// Asks without waiting.
    pub fn ask(&mut self, end: End, ask: &Ask) -> Result<(), Halt> {
        let line = serde_json::to_string(ask).expect("questions have only text keys");
        let (listens, line) = match self.processes {
            Processes::One => (End::Client, format!("{end} {line}\n")),
            Processes::Two | Processes::Isolated => (end, format!("{line}\n")),
        };
        let stdin = self
            .process(listens)
            .stdin
            .as_mut()
            .expect("open until the agents are dropped");
        stdin
            .write_all(line.as_bytes())
            .and_then(|()| stdin.flush())
            .map_err(|error| Halt::Gone(end, format!("does not listen: {error}")))
    }

    /// Waits for one end's next answer.
    pub fn answer(&mut self, events: &Events, end: End) -> Result<Answer, Halt> {
        loop {
            if let Some(answer) = self.process(end).answers.pop_front() {
                return match answer {
                    Answer::Unsupported { knob, reason } => Err(Halt::Unsupported { knob, reason }),
                    Answer::Failed { reason } => Err(Halt::Failed(end, reason)),
                    answer => Ok(answer),
                };
            }
            match events
                .receiver
                .recv()
                .expect("the queue holds a sender of its own")
            {
                Event::Interrupted => return Err(Halt::Interrupted),
                Event::Line(generation, from, line) if generation == self.generation => {
                    let answer = serde_json::from_str(&line)
                        .map_err(|error| Halt::Gone(from, format!("said {line:?}: {error}")))?;
                    self.process(from).answers.push_back(answer);
                }
                Event::Gone(generation, from) if generation == self.generation => {
                    let status = match self.process(from).child.as_mut().map(Child::wait) {
                        Some(Ok(status)) => status.to_string(),
                        Some(Err(error)) => error.to_string(),
                        None => "it had no process".to_string(),
                    };
                    return Err(Halt::Gone(from, format!("ended during a trial ({status})")));
                }
                Event::Line(..) | Event::Gone(..) => {}
            }
        }
    }

    /// Asks and waits.
    pub fn call(&mut self, events: &Events, end: End, ask: &Ask) -> Result<Answer, Halt> {
        self.ask(end, ask)?;
        self.answer(events, end)
    }

    /// Asks both, then waits for both: they work at the same time.
    pub fn call_both(
        &mut self,
        events: &Events,
        ask: impl Fn(End) -> Ask,
    ) -> Result<[Answer; 2], Halt> {
        for end in End::BOTH {
            self.ask(end, &ask(end))?;
        }
        // Both are waited for even if one failed, so that no answer is left for the next question.
        let client = self.answer(events, End::Client);
        if matches!(client, Err(Halt::Interrupted | Halt::Gone(..))) {
            return Err(client.expect_err("just matched"));
        }
        let server = self.answer(events, End::Server);
        Ok([client?, server?])
    }

    /// Process ids, client first.
    pub fn pids(&self) -> [u32; 2] {
        let id = |process: &Process| process.child.as_ref().map(Child::id);
        let client = id(&self.client).expect("the client always has a process");
        [client, id(&self.server).unwrap_or(client)]
    }
}

impl Drop for Ends {
    /// Closes both standard inputs, at which the agents put back what they changed and exit.
    fn drop(&mut self) {
        for process in [&mut self.client, &mut self.server] {
            process.stdin = None;
        }
        for process in [&mut self.client, &mut self.server] {
            // An agent that is already gone was waited for; then this is an error of no interest.
            let _ = process.child.as_mut().map(Child::wait);
        }
    }
}
