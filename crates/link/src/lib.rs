//! Ends of a wire.
