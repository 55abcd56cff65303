//! State of one direction of a connection whose bytes io_uring moves.

/// State of one direction of a connection in the ring.
#[derive(Debug, Default)]
pub(crate) struct RingFlow {
    pub(crate) receiving: bool,
    pub(crate) sending: Option<Sending>,
    /// Limit of a receive, bytes, set since the receiver did not accept all.
    pub(crate) careful: Option<usize>,
}

/// Source of a send in flight: a buffer, or a box with the rest of one.
#[derive(Debug)]
pub(crate) enum Sending {
    Buffer { buffer: u16, bytes: usize },
    Boxed { at: usize, bytes: usize },
}
