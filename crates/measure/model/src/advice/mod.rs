//! Advice: which knob would lower a workload's cost, by how much, and the proof of it.
//!
//! `rules.rs` is the table, `rule.rs` the form of its rows, `signal.rs` the numbers that rows test. [`advise`]
//! tests the table on a [`Situation`]. Nothing here reads or changes a host.

mod evaluate;
mod json;
mod rule;
mod rules;
mod signal;
mod situation;
#[cfg(test)]
mod tests;
mod text;

pub use evaluate::{Advice, Advised, LEAST, NotHere, Saving, advise};
pub use json::SCHEMA_VERSION;
pub use rule::{By, Change, Class, Condition, Needs, Rule, Size, Test, Unknowns, Verify};
pub use rules::{rule, rules};
pub use signal::Signal;
pub use situation::{Settings, Situation, release};
pub use text::{Lines, Remarks, Subject, saving_words};
