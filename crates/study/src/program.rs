//! What each connection of a group does, over and over: a list of operations, as the side that connects sees it.
//!
//! The other side does the mirror of it, which nobody writes: it receives what this one sends, sends what this one receives,
//! and thinks and sleeps nothing. Reading is in `program/read.rs`, what goes together in `program/rules.rs`.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::choices::{ReceiveWith, SendWith};
use crate::raw::Raw;
use crate::side::Side;
use crate::units;
use crate::words::words;

mod read;
mod rules;

pub(crate) use read::LIST;

/// A program: operations that are done in order, then again from the first.
///
/// A pass through its operations is a round, which is counted as a transaction. Where the last operations stand in a loop
/// that time or nothing ends (`for`, `repeat = "forever"`), a round is a pass through that loop, and what stands before it
/// is done once for each connection.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Program {
    operations: Vec<Operation>,
}

/// One operation of the side that connects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Opens the connection.
    Connect,
    /// Sends a message, so many times.
    Send {
        /// Its size.
        size: MessageSize,
        /// The call; `None` is the knob `send_with`.
        with: Option<SendWith>,
        /// How often, at least once.
        count: u32,
    },
    /// Receives a message, so many times.
    Receive {
        /// Its size.
        size: MessageSize,
        /// The call; `None` is the knob `receive_with`.
        with: Option<ReceiveWith>,
        /// How often, at least once.
        count: u32,
    },
    /// Keeps its CPU busy.
    Think(Duration),
    /// Waits without a CPU.
    Sleep(Duration),
    /// Closes the connection.
    Close {
        /// Who closes first, and has the TIME_WAIT.
        by: CloseBy,
    },
    /// Other operations, over and over.
    Loop {
        /// How often.
        times: Times,
        /// Passes per second at which they begin; `None` is one right after the other.
        at_rate: Option<u64>,
        /// What is done in each.
        body: Vec<Operation>,
    },
}

/// Size of a message, bytes: at random and evenly distributed from the least to the most, or always the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageSize {
    /// The least.
    pub least: u32,
    /// The most.
    pub most: u32,
}

words! {
    /// Which side closes a connection first.
    CloseBy {
        /// The one that listens: TIME_WAIT stays there, and the other side's ports are free at once.
        Listener = "listener",
        /// The one that connects.
        Connector = "connector",
    }
}

/// When a loop is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Times {
    /// After so many passes, at least one.
    Count(u32),
    /// After the first pass that ends this long after it began.
    For(Duration),
    /// Never.
    Forever,
}

impl Program {
    /// Most operations, those in loops included.
    pub const OPERATIONS_MAX: usize = 1000;
    /// Most loops inside each other.
    pub const DEPTH_MAX: usize = 4;
    /// Largest message, bytes; 64 MiB as all sizes of a workload.
    pub const MESSAGE_MAX: u32 = 64 << 20;

    /// A program of these operations.
    ///
    /// # Errors
    /// In one line: what does not go together, and what to do.
    pub fn new(operations: Vec<Operation>) -> Result<Program, String> {
        rules::check(&operations)?;
        Ok(Program { operations })
    }

    /// Its operations.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Whether its connections are there before the traffic and stay: nothing opens them, or it is done once at the start.
    pub fn stands(&self) -> bool {
        !self.connects()
            || matches!(self.operations.last(), Some(operation) if operation.is_endless())
    }

    /// Whether it opens its connections itself.
    pub fn connects(&self) -> bool {
        self.operations.first() == Some(&Operation::Connect)
    }

    /// Whether this side sends payload.
    pub fn sends(&self, side: Side) -> bool {
        self.all().any(|operation| match operation {
            Operation::Send { .. } => side == Side::Connects,
            Operation::Receive { .. } => side == Side::Listens,
            _ => false,
        })
    }

    /// Whether the side that connects ever waits: for time, or for a pass that is not due yet.
    pub fn waits(&self) -> bool {
        self.all().any(|operation| match operation {
            Operation::Sleep(_) => true,
            Operation::Loop { at_rate, .. } => at_rate.is_some(),
            _ => false,
        })
    }

    /// All operations, each loop before what is in it.
    pub fn all(&self) -> impl Iterator<Item = &Operation> {
        all(&self.operations).into_iter()
    }

    /// The largest message of each direction, bytes: sent, received by the side that connects; 0 where there is none.
    pub fn largest(&self) -> [u32; 2] {
        let mut largest = [0, 0];
        for operation in self.all() {
            match operation {
                Operation::Send { size, .. } => largest[0] = largest[0].max(size.most),
                Operation::Receive { size, .. } => largest[1] = largest[1].max(size.most),
                _ => {}
            }
        }
        largest
    }
}

impl Operation {
    /// Whether it is a loop that is never over.
    fn is_endless(&self) -> bool {
        let times = Times::Forever;
        matches!(self, Operation::Loop { times: own, .. } if *own == times)
    }

    fn raw(&self) -> Raw {
        let text = |text: &str| Raw::Text(text.to_string());
        let counted = |count: &u32| (*count > 1).then(|| Raw::Integer(i64::from(*count)));
        let time = |time: &Duration| Raw::Text(units::show_duration(*time));
        let fields = match self {
            Operation::Connect => vec![("connect", Some(Raw::Table(Vec::new())))],
            Operation::Send { size, with, count } => vec![
                ("send", Some(size.raw())),
                ("with", with.map(|with| text(with.word()))),
                ("count", counted(count)),
            ],
            Operation::Receive { size, with, count } => vec![
                ("receive", Some(size.raw())),
                ("with", with.map(|with| text(with.word()))),
                ("count", counted(count)),
            ],
            Operation::Think(spent) => vec![("think", Some(time(spent)))],
            Operation::Sleep(spent) => vec![("sleep", Some(time(spent)))],
            Operation::Close { by } => {
                let by = match by {
                    CloseBy::Listener => Vec::new(),
                    CloseBy::Connector => vec![("by".to_string(), text(by.word()))],
                };
                vec![("close", Some(Raw::Table(by)))]
            }
            Operation::Loop {
                times,
                at_rate,
                body,
            } => {
                let times = match times {
                    Times::Count(count) => ("repeat", Raw::Integer(i64::from(*count))),
                    Times::Forever => ("repeat", text("forever")),
                    Times::For(limit) => ("for", time(limit)),
                };
                let body = body.iter().map(Operation::raw).collect();
                vec![
                    (times.0, Some(times.1)),
                    (
                        "at_rate",
                        at_rate.map(|rate| Raw::Text(format!("{rate}/s"))),
                    ),
                    ("do", Some(Raw::List(body))),
                ]
            }
        };
        let set = |(key, value): (&str, Option<Raw>)| Some((key.to_string(), value?));
        Raw::Table(fields.into_iter().filter_map(set).collect())
    }
}

impl MessageSize {
    /// Always this many bytes.
    pub fn exactly(bytes: u32) -> MessageSize {
        MessageSize {
            least: bytes,
            most: bytes,
        }
    }

    fn raw(self) -> Raw {
        let size = |bytes: u32| Raw::Text(units::show_bytes(bytes.into()));
        if self.least == self.most {
            return size(self.least);
        }
        Raw::List(vec![size(self.least), size(self.most)])
    }
}

/// These operations, each before those inside it.
fn all(operations: &[Operation]) -> Vec<&Operation> {
    let mut found = Vec::new();
    for operation in operations {
        found.push(operation);
        if let Operation::Loop { body, .. } = operation {
            found.extend(all(body));
        }
    }
    found
}

impl fmt::Display for Program {
    /// As a study file writes it, in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw().fmt(f)
    }
}

impl Serialize for Program {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw().serialize(serializer)
    }
}

impl Program {
    fn raw(&self) -> Raw {
        Raw::List(self.operations.iter().map(Operation::raw).collect())
    }
}
