//! Why a meter has no totals.

use std::fmt;
use std::io;
use std::path::PathBuf;

use tcpcost_counts::MeterName;

/// A source of counts that could not be read or is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum MeterError {
    /// A file that could not be read.
    #[error("read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file whose content makes no sense.
    #[error("{path}: expected {expected}, found {found:?}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What should be there.
        expected: &'static str,
        /// What is there, shortened.
        found: String,
    },
    /// A system call that failed.
    #[error("{call}: {source}")]
    Call {
        /// The call, e.g. `getrusage`.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A meter that cannot be had here. What to do about it is for whoever prints it to say.
    #[error("meter {meter}: {}", cause(tried, source.as_ref(), *needs))]
    Unavailable {
        /// The meter.
        meter: MeterName,
        /// What was tried, e.g. `load`; where nothing was, what stands in the way.
        tried: String,
        /// What the kernel said.
        source: Option<io::Error>,
        /// What it would take, where that is known.
        needs: Option<Needs>,
    },
}

/// What a meter needs that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// These of capabilities(7).
    Capabilities(&'static str),
    /// Something of the kernel: its configuration, its first PID namespace.
    Kernel(&'static str),
    /// A PMU that counts cycles.
    Pmu,
    /// That nobody else holds it.
    Free(&'static str),
    /// A program built with this feature.
    Feature(&'static str),
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Needs::Capabilities(names) => write!(f, "needs {names}"),
            Needs::Kernel(what) => write!(f, "needs {what}"),
            Needs::Pmu => {
                f.write_str("needs a PMU that counts cycles, a virtual one in a virtual machine")
            }
            Needs::Free(who) => write!(f, "held by {who}"),
            Needs::Feature(name) => write!(f, "needs a program built with the feature {name}"),
        }
    }
}

/// One line: what was tried, what the kernel said, what it needs.
fn cause(tried: &str, source: Option<&io::Error>, needs: Option<Needs>) -> String {
    let mut text = tried.to_string();
    if let Some(source) = source {
        let said = source.to_string();
        // The number is for programs, which have it in `source`.
        text += ": ";
        text += said.split(" (os error").next().unwrap_or(&said);
    }
    if let Some(needs) = needs {
        text += &format!(" ({needs})");
    }
    text
}

impl MeterError {
    /// What it says but for the meter's name.
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

    /// What it would take, where that is known.
    pub fn needs(&self) -> Option<Needs> {
        match self {
            MeterError::Unavailable { needs, .. } => *needs,
            _ => None,
        }
    }

    /// Of a program that was built without eBPF.
    pub fn built_without_bpf(meter: MeterName) -> Self {
        MeterError::Unavailable {
            meter,
            tried: "built without eBPF".to_string(),
            source: None,
            needs: Some(Needs::Feature("bpf")),
        }
    }

    /// Of what was looked at before anything was tried.
    #[cfg(feature = "bpf")]
    pub(crate) fn refused(meter: MeterName, why: impl Into<String>) -> Self {
        MeterError::Unavailable {
            meter,
            tried: why.into(),
            source: None,
            needs: None,
        }
    }

    /// Content that makes no sense; only its first 80 characters are kept.
    pub(crate) fn format(path: impl Into<PathBuf>, expected: &'static str, found: &str) -> Self {
        let (path, found) = (path.into(), found.chars().take(80).collect());
        MeterError::Format {
            path,
            expected,
            found,
        }
    }

    /// From `errno`, right after the call.
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
