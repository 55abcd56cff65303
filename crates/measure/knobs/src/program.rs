//! Programs: the list of operations that each connection of a group repeats, as seen by one side,
//! the author.
//!
//! The author is the side that connects; in a program that begins with `accept`, the side that
//! listens. The other side does the mirror image, which no file contains: it receives what the
//! author sends, sends what the author receives, and does not think or sleep unless the operation
//! is for both. `program/read.rs` parses programs, and `program/rules.rs` checks which operations
//! can be combined.

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

/// Program: operations that are done in order, then again from the first.
///
/// A pass through its operations is a round, which counts as a transaction. If the last operations
/// are a loop that ends by time or never (`for`, `repeat = "forever"`), a round is a pass through
/// that loop, and the operations before it are done once for each connection.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Program {
    operations: Vec<Operation>,
}

/// Operation of the author.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Opens a connection.
    Connect {
        /// Index of the connection within the flow, from 0.
        conn: u8,
        /// True if the trial goes on when the connection cannot be made, or breaks: the program
        /// then begins again.
        can_fail: bool,
    },
    /// Accepts a connection that the other side opens.
    Accept {
        /// Index of the connection within the flow, from 0.
        conn: u8,
    },
    /// Sends a message, `count` times.
    Send {
        /// Size of the message.
        size: MessageSize,
        /// Call that sends. `None` for that of the knob `send_with`.
        with: Option<SendWith>,
        /// Number of messages, at least 1.
        count: u32,
        /// Index of the connection within the flow, from 0.
        conn: u8,
    },
    /// Receives a message, `count` times.
    Receive {
        /// Size of the message.
        size: MessageSize,
        /// Call that receives. `None` for that of the knob `receive_with`.
        with: Option<ReceiveWith>,
        /// Number of messages, at least 1.
        count: u32,
        /// Index of the connection within the flow, from 0.
        conn: u8,
    },
    /// Keeps its CPU busy.
    Think {
        /// Duration.
        time: Duration,
        /// Side or sides that think.
        at: PauseAt,
    },
    /// Sleeps without a CPU.
    Sleep {
        /// Duration.
        time: Duration,
        /// Side or sides that sleep.
        at: PauseAt,
    },
    /// Does nothing.
    Nop,
    /// Closes the connection.
    Close {
        /// Side that closes first, and so has the TIME_WAIT.
        by: CloseBy,
    },
    /// Repeats other operations.
    Loop {
        /// Condition for the end of the loop.
        times: Times,
        /// Rate at which passes begin, per second. `None` for one right after the other.
        at_rate: Option<u64>,
        /// Operations of each pass.
        body: Vec<Operation>,
    },
}

/// Size of a message, bytes: random, evenly distributed from `least` to `most`. Fixed if both are
/// equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageSize {
    /// Smallest size.
    pub least: u32,
    /// Largest size.
    pub most: u32,
}

words! {
    /// Side that closes a connection first.
    CloseBy {
        /// Listening side: TIME_WAIT stays there, and the other side's ports are free at once.
        Listener = "listener",
        /// Connecting side.
        Connector = "connector",
    }
}

words! {
    /// Side or sides that think or sleep.
    PauseAt {
        /// Author only.
        Here = "here",
        /// Both sides, each when it reaches the operation, like the strands of uperf's two ends.
        Both = "both",
    }
}

/// Error for a program, in one line: its place, what is wrong, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each variant has its message")]
pub enum ProgramError {
    #[error("operation {0}: {1}")]
    Operation(String, Box<ProgramError>),
    #[error("{0}: {1}")]
    Key(&'static str, Box<ProgramError>),
    #[error("expected {0}")]
    Expected(String),
    #[error("is empty; one of {0}")]
    Empty(String),
    #[error("no such operation \"{0}\"; {1}")]
    NoOperation(String, String),
    #[error("{0} has no \"{1}\"; {2}")]
    NoKey(&'static str, String, String),
    #[error("{0} and {1} are two operations: a table for each")]
    Two(&'static str, String),
    #[error("{0} needs do = [...]: what is done over and over")]
    NoBody(&'static str),
    #[error("loops may be {} deep: take one out", Program::DEPTH_MAX)]
    TooDeep,
    #[error("{0} operations are more than {max}: use repeat", max = Program::OPERATIONS_MAX)]
    TooMany(usize),
    #[error("connection {0} is opened as number {1}: give each its conn, 1 first")]
    Misnumbered(u8, usize),
    #[error("uses connection {0} and opens {1}: connect each by its number, 1 first")]
    NotOpened(u8, usize),
    #[error("{0}")]
    Rule(&'static str),
}

impl ProgramError {
    fn expected(what: impl Into<String>) -> ProgramError {
        ProgramError::Expected(what.into())
    }

    /// Adds the key whose value is wrong.
    fn at(self, key: &'static str) -> ProgramError {
        ProgramError::Key(key, self.into())
    }
}

/// Condition for the end of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Times {
    /// End after this many passes, at least 1.
    Count(u32),
    /// End after the first pass that ends this long after the loop began.
    For(Duration),
    /// No end.
    Forever,
}

impl Program {
    /// Limit of operations, including those in loops.
    pub const OPERATIONS_MAX: usize = 1000;
    /// Limit of nested loops.
    pub const DEPTH_MAX: usize = 4;
    /// Limit of a message, bytes: 64 MiB, like all sizes of a workload.
    pub const MESSAGE_MAX: u32 = 64 << 20;
    /// Limit of connections of a flow.
    pub const CONNECTIONS_MAX: u8 = 16;

    /// Creates a program of these operations.
    ///
    /// # Errors
    /// Operations that cannot be combined, with a remedy.
    pub fn new(operations: Vec<Operation>) -> Result<Program, ProgramError> {
        rules::check(&operations)?;
        Ok(Program { operations })
    }

    /// Operations in their order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// True if its connections are made before the traffic and stay open: no operation opens them,
    /// or they are opened once at the start.
    pub fn stands(&self) -> bool {
        !self.connects() || self.is_endless()
    }

    /// True if it opens its connections itself.
    pub fn connects(&self) -> bool {
        self.operations.first().is_some_and(Operation::opens)
    }

    /// Side whose operations these are.
    pub fn author(&self) -> Side {
        match self.operations.first() {
            Some(Operation::Accept { .. }) => Side::Listens,
            _ => Side::Connects,
        }
    }

    /// Number of connections of each flow.
    pub fn connections(&self) -> usize {
        let numbers = self.all().filter_map(Operation::conn);
        usize::from(numbers.max().unwrap_or(0)) + 1
    }

    /// True if a connection may fail.
    pub fn can_fail(&self) -> bool {
        self.all()
            .any(|operation| matches!(operation, Operation::Connect { can_fail: true, .. }))
    }

    /// True if this side sends payload.
    pub fn sends(&self, side: Side) -> bool {
        self.all().any(|operation| match operation {
            Operation::Send { .. } => side == self.author(),
            Operation::Receive { .. } => side != self.author(),
            _ => false,
        })
    }

    /// True if this side ever waits: for time, or for a pass that is not due yet.
    pub fn waits(&self, side: Side) -> bool {
        let is_author = side == self.author();
        self.all().any(|operation| match operation {
            Operation::Sleep { at, .. } => is_author || *at == PauseAt::Both,
            Operation::Loop { at_rate, .. } => is_author && at_rate.is_some(),
            _ => false,
        })
    }

    /// Operations that are timed, each with its place in the program: numbers from 1, that of a
    /// loop before those of its body, as in error messages.
    pub fn timed(&self) -> Vec<(String, &Operation)> {
        let mut found = Vec::new();
        timed(&self.operations, "", self.stands(), &mut found);
        found
    }

    /// All operations, each loop before its body.
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

    /// Largest message of each direction, bytes: sent by the author, then received by it. 0 if
    /// there is none.
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
    /// True if it begins a connection.
    pub fn opens(&self) -> bool {
        matches!(self, Operation::Connect { .. } | Operation::Accept { .. })
    }

    /// Index of its connection within the flow, from 0. `None` for operations without a connection.
    fn conn(&self) -> Option<u8> {
        match self {
            Operation::Connect { conn, .. }
            | Operation::Accept { conn }
            | Operation::Send { conn, .. }
            | Operation::Receive { conn, .. } => Some(*conn),
            _ => None,
        }
    }

    /// True if it is timed. `stands`: true if the program's connections stay open.
    pub fn is_timed(&self, stands: bool) -> bool {
        match self {
            Operation::Connect { .. } | Operation::Accept { .. } => !stands,
            Operation::Send { .. } | Operation::Receive { .. } | Operation::Close { .. } => true,
            _ => false,
        }
    }

    /// Label in a few words: `send 90B`, `connect`.
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

    /// Copy of the operation; a loop without its body.
    pub fn without_body(&self) -> Operation {
        match self {
            Operation::Loop { times, at_rate, .. } => Operation::Loop {
                times: *times,
                at_rate: *at_rate,
                body: Vec::new(),
            },
            other => other.clone(),
        }
    }

    /// True for a loop without end.
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
    /// Creates a fixed size.
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

/// Flattens operations, each loop before its body.
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

/// Appends the timed operations among these to `found`.
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
    /// Formats as a study file writes it, in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw().fmt(f)
    }
}

impl fmt::Display for Program {
    /// Formats as a study file writes it, in one line.
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
