//! Parts that the commands share: exit codes, formats of results, `--set`, and output that waits for its reader.
//!
//! This crate knows no command. [`exit`] has the errors, [`format`](mod@format) the options `--format` and `-o`, [`output`] the
//! writers, [`set`] the option `--set`, [`values`] the parsers of values that several commands take.

#![forbid(unsafe_code)]

pub mod exit;
pub mod format;
pub mod output;
pub mod set;
pub mod values;
