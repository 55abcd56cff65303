//! Sockets with the options of a test, and timers that end them.

pub mod socket;
pub mod timers;
