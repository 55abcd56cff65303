//! Error for a knob.

use serde::{Deserialize, Serialize};

/// Error for a knob: a name that is none, a value that it does not accept, a contradiction with
/// others, or a setting that is not available.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{knob}: {reason}")]
pub struct KnobError {
    /// Name as given, with that of the end if it is for one end.
    pub knob: String,
    /// Reason for the refusal, or the value that was expected, in one line.
    pub reason: String,
}

impl KnobError {
    /// Creates the error for a knob of this name.
    pub fn new(knob: impl Into<String>, reason: impl Into<String>) -> KnobError {
        KnobError {
            knob: knob.into(),
            reason: reason.into(),
        }
    }
}
