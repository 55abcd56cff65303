//! Reasons why a meter has no totals.

use std::fmt;
use std::io;
use std::path::PathBuf;

use tcpcost_counts::MeterName;

/// Failure of a source of counts.
#[derive(Debug, thiserror::Error)]
pub enum MeterError {
    /// A file could not be read.
    #[error("read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A file has unexpected content.
    #[error("{path}: expected {expected}, found {found:?}")]
    Format {
        /// The file.
        path: PathBuf,
        /// Expected content.
        expected: &'static str,
        /// Actual content, shortened.
        found: String,
    },
    /// A system call failed.
    #[error("{call}: {source}")]
    Call {
        /// Name of the call, e.g. `getrusage`.
        call: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A meter is unavailable here. The program that prints this adds what to do.
    #[error("meter {meter}: {}", cause(tried, source.as_ref(), *needs))]
    Unavailable {
        /// The meter.
        meter: MeterName,
        /// Failed step, e.g. `load`; if there was none, the obstacle.
        tried: String,
        /// Error of the kernel.
        source: Option<io::Error>,
        /// Requirement that is missing, if it is known.
        needs: Option<Needs>,
    },
}

/// Missing requirement of a meter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Capabilities of capabilities(7).
    Capabilities(&'static str),
    /// A property of the kernel: its configuration.
    Kernel(&'static str),
    /// A place in the kernel's first PID namespace.
    FirstPids,
    /// A PMU that counts cycles.
    Pmu,
    /// Exclusive use, which another program has.
    Free(&'static str),
    /// A program built with this feature.
    Feature(&'static str),
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Needs::Capabilities(names) => write!(f, "needs {names}"),
            Needs::Kernel(what) => write!(f, "needs {what}"),
            Needs::FirstPids => {
                f.write_str("needs the kernel's first PID namespace; a container: --pid=host")
            }
            Needs::Pmu => {
                f.write_str("needs a PMU that counts cycles, a virtual one in a virtual machine")
            }
            Needs::Free(who) => write!(f, "held by {who}"),
            Needs::Feature(name) => write!(f, "needs a program built with the feature {name}"),
        }
    }
}

/// One line: the failed step, the kernel's error, the requirement.
fn cause(tried: &str, source: Option<&io::Error>, needs: Option<Needs>) -> String {
    let mut text = tried.to_string();
    if let Some(source) = source {
        let said = source.to_string();
        // Removes the error number, which programs find in `source`.
        text += ": ";
        text += said.split(" (os error").next().unwrap_or(&said);
    }
    if let Some(needs) = needs {
        text += &format!(" ({needs})");
    }
    text
}

impl MeterError {
    /// Text of the error without the meter's name.
    pub fn cause(&self) -> String {
        match self {
            MeterError::Unavailable {
                tried,
                source,
                needs,
                ..
            } => cause(tried, source.as_ref(), *needs),
            other => other.to_string(),
        }
    }

    /// Requirement that is missing, if it is known.
    pub fn needs(&self) -> Option<Needs> {
        match self {
            MeterError::Unavailable { needs, .. } => *needs,
            _ => None,
        }
    }

    /// Error of a program that was built without eBPF.
    pub fn built_without_bpf(meter: MeterName) -> Self {
        MeterError::Unavailable {
            meter,
            tried: "built without eBPF".to_string(),
            source: None,
            needs: Some(Needs::Feature("bpf")),
        }
    }

    /// Error of a check before the first step.
    #[cfg(feature = "bpf")]
    pub(crate) fn refused(meter: MeterName, why: impl Into<String>) -> Self {
        MeterError::Unavailable {
            meter,
            tried: why.into(),
            source: None,
            needs: None,
        }
    }

    /// Error of unexpected content, of which only the first 80 characters are kept.
    pub(crate) fn format(path: impl Into<PathBuf>, expected: &'static str, found: &str) -> Self {
        let (path, found) = (path.into(), found.chars().take(80).collect());
        MeterError::Format {
            path,
            expected,
            found,
        }
    }

    /// Error from `errno`, right after the call.
    pub(crate) fn last(call: &'static str) -> Self {
        let source = io::Error::last_os_error();
        MeterError::Call { call, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_was_tried_and_what_it_needs_and_gives_no_advice() {
        let error = |errno, needs| MeterError::Unavailable {
            meter: MeterName::Exact,
            tried: "load".to_string(),
            source: Some(io::Error::from_raw_os_error(errno)),
            needs,
        };
        let needs = Some(Needs::Capabilities("CAP_BPF and CAP_PERFMON"));
        assert_eq!(
            error(libc::EPERM, needs).to_string(),
            "meter exact: load: Operation not permitted (needs CAP_BPF and CAP_PERFMON)"
        );
        assert_eq!(
            error(libc::E2BIG, None).cause(),
            "load: Argument list too long"
        );
    }
}
