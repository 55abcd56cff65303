//! Error for a program.

use super::Program;

/// Error for a program, in one line: its place, what is wrong, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// Error in an operation: its place, such as `2.1`, and what is wrong with it.
    #[error("operation {0}: {1}")]
    Operation(String, Box<ProgramError>),
    /// Error in the value of this key.
    #[error("{0}: {1}")]
    Key(&'static str, Box<ProgramError>),
    /// Value of another kind or range than the described one.
    #[error("expected {0}")]
    Expected(String),
    /// Table without an operation, with the operations that exist.
    #[error("is empty; one of {0}")]
    Empty(String),
    /// Name that no operation has, with a hint.
    #[error("no such operation \"{0}\"; {1}")]
    NoOperation(String, String),
    /// Operation, a key that it does not have, and a hint.
    #[error("{0} has no \"{1}\"; {2}")]
    NoKey(&'static str, String, String),
    /// Two operations in one table.
    #[error("{0} and {1} are two operations: a table for each")]
    Two(&'static str, String),
    /// Loop without a body.
    #[error("{0} needs do = [...]: what is done over and over")]
    NoBody(&'static str),
    /// Loops within loops.
    #[error("loops may be {} deep: take one out", Program::DEPTH_MAX)]
    TooDeep,
    /// More operations than allowed.
    #[error("{0} operations are more than {max}: use repeat", max = Program::OPERATIONS_MAX)]
    TooMany(usize),
    /// Number of a connection, and the number in whose place it is opened.
    #[error("connection {0} is opened as number {1}: give each its conn, 1 first")]
    Misnumbered(u8, usize),
    /// Number of the last connection that is used, and number of connections that are opened.
    #[error("uses connection {0} and opens {1}: connect each by its number, 1 first")]
    NotOpened(u8, usize),
    /// Rule about the order of operations that the program breaks.
    #[error("{0}")]
    Rule(&'static str),
}

impl ProgramError {
    pub(super) fn expected(what: impl Into<String>) -> ProgramError {
        ProgramError::Expected(what.into())
    }

    /// Adds the key whose value is wrong.
    pub(super) fn at(self, key: &'static str) -> ProgramError {
        ProgramError::Key(key, self.into())
    }
}
