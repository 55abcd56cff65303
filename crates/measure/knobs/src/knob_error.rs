//! Error for a knob.

/// Error for a knob: a name that is none, a value that it does not accept, or a contradiction with
/// others.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {reason}")]
pub struct KnobError {
    /// Name as given.
    pub name: String,
    /// What is wrong, or what was expected.
    pub reason: String,
}

impl KnobError {
    /// Creates the error for a knob of this name.
    pub fn new(name: impl Into<String>, reason: impl Into<String>) -> KnobError {
        KnobError {
            name: name.into(),
            reason: reason.into(),
        }
    }
}
