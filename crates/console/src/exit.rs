//! Exit codes of the command, and errors as one line on standard error.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Exit codes, documented: scripts depend on the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The command did all its work.
    Ok = 0,
    /// An operation failed that should have worked.
    Failed = 1,
    /// The command line or a study file is wrong.
    Usage = 2,
    /// A threshold of the study is missed.
    Missed = 3,
    /// A threshold cannot be decided, or a cell with a target did not converge.
    Inconclusive = 4,
    /// This host or user lacks what the command needs.
    Unavailable = 77,
    /// Ctrl-C: the measurements made until then are kept and reported.
    Interrupted = 130,
}

impl Exit {
    /// All exit codes, in the order of their numbers.
    pub const ALL: [Exit; 7] = [
        Exit::Ok,
        Exit::Failed,
        Exit::Usage,
        Exit::Missed,
        Exit::Inconclusive,
        Exit::Unavailable,
        Exit::Interrupted,
    ];

    /// Returns the meaning in words, for help and manuals.
    pub const fn meaning(self) -> &'static str {
        match self {
            Exit::Ok => "done",
            Exit::Failed => "failed",
            Exit::Usage => "wrong command line or study file",
            Exit::Missed => "a threshold is missed",
            Exit::Inconclusive => "inconclusive",
            Exit::Unavailable => "this host or user lacks a capability, memory or disk space",
            Exit::Interrupted => "interrupted",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// An error with an exit code other than 1.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct Stop {
    /// Exit code of the command.
    pub exit: Exit,
    /// Message: one line.
    pub text: String,
}

/// Returns an error of the user's input, with exit code 2.
pub fn usage(text: impl Display) -> anyhow::Error {
    anyhow::Error::new(Stop {
        exit: Exit::Usage,
        text: text.to_string(),
    })
}

/// Returns the error of a file that the command line names and that cannot be read, with exit code 2.
pub fn unread(file: &Path, error: &io::Error) -> anyhow::Error {
    usage(format!("read {}: {error}", file.display()))
}

/// Returns the exit code for an error: that of [`Stop`], else 1.
pub fn code(error: &anyhow::Error) -> Exit {
    error
        .downcast_ref::<Stop>()
        .map_or(Exit::Failed, |stop| stop.exit)
}

/// Returns an error and its causes as one line. A cause that the line already contains is omitted.
pub fn line(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |line, cause| {
        let cause = cause.to_string();
        let known = cause.split(" (os error").next().unwrap_or_default();
        match line {
            line if line.is_empty() => cause,
            line if line.contains(known) => line,
            line => format!("{line}: {cause}"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_cause_is_said_once() {
        let system = || std::io::Error::from_raw_os_error(22);
        let plain = Err::<(), _>(system()).context("open x").unwrap_err();
        assert_eq!(line(&plain), "open x: Invalid argument (os error 22)");
        let told = Err::<(), _>(system())
            .context("open x: Invalid argument")
            .unwrap_err();
        assert_eq!(line(&told), "open x: Invalid argument");
    }
}
