//! What each connection of a group does, over and over: a list of operations, as one side sees it, which is its author.
//!
//! The author is the side that connects, or, of a program that begins with `accept`, the one that listens. The other side does
//! the mirror of it, which nobody writes: it receives what the author sends, sends what it receives, and thinks and sleeps
//! nothing unless the operation says that both do. Reading is in `program/read.rs`, what goes together in `program/rules.rs`.

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

/// One operation of the author.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Opens a connection.
    Connect {
        /// Which of the flow's connections, from 0.
        conn: u8,
        /// Whether the trial goes on where the connection cannot be had, or breaks: the program begins again.
        can_fail: bool,
    },
    /// Takes a connection that the other side opens.
    Accept {
        /// Which of the flow's connections, from 0.
        conn: u8,
    },
    /// Sends a message, so many times.
    Send {
        /// Its size.
        size: MessageSize,
        /// The call; `None` is the knob `send_with`.
        with: Option<SendWith>,
        /// How often, at least once.
        count: u32,
        /// On which of the flow's connections, from 0.
        conn: u8,
    },
    /// Receives a message, so many times.
    Receive {
        /// Its size.
        size: MessageSize,
        /// The call; `None` is the knob `receive_with`.
        with: Option<ReceiveWith>,
        /// How often, at least once.
        count: u32,
        /// On which of the flow's connections, from 0.
        conn: u8,
    },
    /// Keeps its CPU busy.
    Think {
        /// How long.
        time: Duration,
        /// Who does.
        at: PauseAt,
    },
    /// Waits without a CPU.
    Sleep {
        /// How long.
        time: Duration,
        /// Who does.
        at: PauseAt,
    },
    /// Does nothing.
    Nop,
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

words! {
    /// Who thinks, or sleeps.
    PauseAt {
        /// The author alone.
        Here = "here",
        /// Each side when it comes to it, as the strands of uperf's two ends do.
        Both = "both",
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
    /// Most connections of a flow.
    pub const CONNECTIONS_MAX: u8 = 16;

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
        !self.connects() || self.is_endless()
    }

    /// Whether it opens its connections itself.
    pub fn connects(&self) -> bool {
        self.operations.first().is_some_and(Operation::opens)
    }

    /// Whose operations they are.
    pub fn author(&self) -> Side {
        match self.operations.first() {
            Some(Operation::Accept { .. }) => Side::Listens,
            _ => Side::Connects,
        }
    }

    /// Connections of each flow.
    pub fn connections(&self) -> usize {
        let numbers = self.all().filter_map(Operation::conn);
        usize::from(numbers.max().unwrap_or(0)) + 1
    }

    /// Whether a connection may fail.
    pub fn can_fail(&self) -> bool {
        self.all()
            .any(|operation| matches!(operation, Operation::Connect { can_fail: true, .. }))
    }

    /// Whether this side sends payload.
    pub fn sends(&self, side: Side) -> bool {
        self.all().any(|operation| match operation {
            Operation::Send { .. } => side == self.author(),
            Operation::Receive { .. } => side != self.author(),
            _ => false,
        })
    }

    /// Whether this side ever waits: for time, or for a pass that is not due yet.
    pub fn waits(&self, side: Side) -> bool {
        let is_author = side == self.author();
        self.all().any(|operation| match operation {
            Operation::Sleep { at, .. } => is_author || *at == PauseAt::Both,
            Operation::Loop { at_rate, .. } => is_author && at_rate.is_some(),
            _ => false,
        })
    }

    /// The operations whose times are taken, each with its place in the program: numbers from 1, that of a loop before those
    /// of what is in it, as in messages about a program.
    pub fn timed(&self) -> Vec<(String, &Operation)> {
        let mut found = Vec::new();
        timed(&self.operations, "", self.stands(), &mut found);
        found
    }

    /// All operations, each loop before what is in it.
    pub fn all(&self) -> impl Iterator<Item = &Operation> {
        all(&self.operations).into_iter()
    }

    /// Bytes that a round sends and receives, as its author sees it: the mean where sizes are random. A loop that time ends
    /// counts as one pass.
    pub fn bytes_of_round(&self) -> [f64; 2] {
        let of_round = match self.operations.last() {
            Some(Operation::Loop { body, .. }) if self.is_endless() => body,
            _ => &self.operations,
        };
        bytes(of_round)
    }

    fn is_endless(&self) -> bool {
        self.operations.last().is_some_and(Operation::is_endless)
    }

    /// The largest message of each direction, bytes: sent, received by the author; 0 where there is none.
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
    /// Whether it begins a connection.
    pub(crate) fn opens(&self) -> bool {
        matches!(self, Operation::Connect { .. } | Operation::Accept { .. })
    }

    /// Which of the flow's connections it is about, from 0.
    fn conn(&self) -> Option<u8> {
        match self {
            Operation::Connect { conn, .. }
            | Operation::Accept { conn }
            | Operation::Send { conn, .. }
            | Operation::Receive { conn, .. } => Some(*conn),
            _ => None,
        }
    }

    /// Whether its time is taken, in a program whose connections stand or do not.
    pub fn is_timed(&self, stands: bool) -> bool {
        match self {
            Operation::Connect { .. } | Operation::Accept { .. } => !stands,
            Operation::Send { .. } | Operation::Receive { .. } | Operation::Close { .. } => true,
            _ => false,
        }
    }

    /// A few words: `send 90B`, `connect`.
    pub fn label(&self) -> String {
        let size = |size: &MessageSize| {
            let show = |bytes: u32| units::show_bytes(bytes.into());
            match size.least == size.most {
                true => show(size.least),
                false => format!("{} to {}", show(size.least), show(size.most)),
            }
        };
        let on = |conn: &u8| match conn {
            0 => String::new(),
            conn => format!(" on {}", conn + 1),
        };
        match self {
            Operation::Connect { conn, .. } => format!("connect{}", on(conn)),
            Operation::Accept { conn } => format!("accept{}", on(conn)),
            Operation::Send {
                size: bytes,
                with: Some(with),
                conn,
                ..
            } => format!("{} {}{}", with.word(), size(bytes), on(conn)),
            Operation::Send {
                size: bytes, conn, ..
            } => format!("send {}{}", size(bytes), on(conn)),
            Operation::Receive {
                size: bytes, conn, ..
            } => format!("receive {}{}", size(bytes), on(conn)),
            Operation::Think { .. } => "think".to_string(),
            Operation::Sleep { .. } => "sleep".to_string(),
            Operation::Nop => "nop".to_string(),
            Operation::Close { .. } => "close".to_string(),
            Operation::Loop { .. } => "loop".to_string(),
        }
    }

    /// The same loop with nothing in it.
    pub(crate) fn without_body(&self) -> Operation {
        match self {
            Operation::Loop { times, at_rate, .. } => Operation::Loop {
                times: *times,
                at_rate: *at_rate,
                body: Vec::new(),
            },
            other => other.clone(),
        }
    }

    /// Whether it is a loop that is never over.
    fn is_endless(&self) -> bool {
        let times = Times::Forever;
        matches!(self, Operation::Loop { times: own, .. } if *own == times)
    }

    fn raw(&self) -> Raw {
        let text = |text: &str| Raw::Text(text.to_string());
        let counted = |count: &u32| (*count > 1).then(|| Raw::Integer(i64::from(*count)));
        let numbered = |conn: &u8| (*conn > 0).then(|| Raw::Integer(i64::from(*conn) + 1));
        let time = |time: &Duration| Raw::Text(units::show_duration(*time));
        let pause = |at: &PauseAt| (*at != PauseAt::Here).then(|| text(at.word()));
        let table = |options: Vec<(&str, Option<Raw>)>| {
            let set = |(key, value): (&str, Option<Raw>)| Some((key.to_string(), value?));
            Some(Raw::Table(options.into_iter().filter_map(set).collect()))
        };
        let fields = match self {
            Operation::Connect { conn, can_fail } => {
                let can_fail = can_fail.then_some(Raw::Boolean(true));
                let options = table(vec![("conn", numbered(conn)), ("can_fail", can_fail)]);
                vec![("connect", options)]
            }
            Operation::Accept { conn } => {
                vec![("accept", table(vec![("conn", numbered(conn))]))]
            }
            Operation::Send {
                size,
                with,
                count,
                conn,
            } => vec![
                ("send", Some(size.raw())),
                ("with", with.map(|with| text(with.word()))),
                ("count", counted(count)),
                ("conn", numbered(conn)),
            ],
            Operation::Receive {
                size,
                with,
                count,
                conn,
            } => vec![
                ("receive", Some(size.raw())),
                ("with", with.map(|with| text(with.word()))),
                ("count", counted(count)),
                ("conn", numbered(conn)),
            ],
            Operation::Think { time: spent, at } => {
                vec![("think", Some(time(spent))), ("at", pause(at))]
            }
            Operation::Sleep { time: spent, at } => {
                vec![("sleep", Some(time(spent))), ("at", pause(at))]
            }
            Operation::Nop => vec![("nop", table(Vec::new()))],
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
        table(fields).unwrap_or(Raw::Other)
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

/// Bytes that these operations send and receive, the mean of random sizes.
fn bytes(operations: &[Operation]) -> [f64; 2] {
    let mean = |size: &MessageSize, count: &u32| {
        f64::from(*count) * f64::midpoint(size.least.into(), size.most.into())
    };
    let mut sum = [0.0, 0.0];
    for operation in operations {
        let [sent, received] = match operation {
            Operation::Send { size, count, .. } => [mean(size, count), 0.0],
            Operation::Receive { size, count, .. } => [0.0, mean(size, count)],
            Operation::Loop { times, body, .. } => {
                let passes = match times {
                    Times::Count(count) => f64::from(*count),
                    Times::For(_) | Times::Forever => 1.0,
                };
                bytes(body).map(|of_pass| passes * of_pass)
            }
            _ => [0.0, 0.0],
        };
        sum = [sum[0] + sent, sum[1] + received];
    }
    sum
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

/// These operations' timed ones, behind those that were found before.
fn timed<'a>(
    operations: &'a [Operation],
    within: &str,
    stands: bool,
    found: &mut Vec<(String, &'a Operation)>,
) {
    for (index, operation) in operations.iter().enumerate() {
        let place = match within {
            "" => (index + 1).to_string(),
            _ => format!("{within}.{}", index + 1),
        };
        if operation.is_timed(stands) {
            found.push((place.clone(), operation));
        }
        if let Operation::Loop { body, .. } = operation {
            timed(body, &place, stands, found);
        }
    }
}

impl fmt::Display for Operation {
    /// As a study file writes it, in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw().fmt(f)
    }
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
