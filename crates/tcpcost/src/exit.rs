//! How the command ends: documented numbers, one line on stderr.

use std::process::ExitCode;

/// Exit codes; scripts depend on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All was done.
    Ok = 0,
    /// Something that should have worked did not.
    Failed = 1,
    /// The command line or a study file is wrong.
    Usage = 2,
    /// A threshold of the study is missed.
    Missed = 3,
    /// A threshold cannot be decided, or a cell with a target did not converge.
    Inconclusive = 4,
    /// This host or user lacks what the command needs.
    Unavailable = 77,
    /// Ctrl-C: what was measured until then is kept and reported.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// An error that ends with another code than 1.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct Stop {
    /// The code.
    pub exit: Exit,
    /// The line.
    pub text: String,
}

/// An error of the user's input: exit code 2.
pub fn usage(text: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Stop {
        exit: Exit::Usage,
        text: text.into(),
    })
}

/// The code an error ends with.
pub fn code(error: &anyhow::Error) -> Exit {
    error
        .downcast_ref::<Stop>()
        .map_or(Exit::Failed, |stop| stop.exit)
}
