//! Sockets: made with the options that a test asks for, and ended by the clock.

pub mod option;
pub mod socket;
pub mod timers;
