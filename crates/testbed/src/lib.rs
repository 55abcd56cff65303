//! Helpers for tests: network namespaces, a browser, reasons to skip, and waits that end.
//!
//! A test first checks what it needs ([`can_make_namespaces`], [`has_cpus`], [`in_namespace`]). If
//! the machine lacks it, the test is skipped: its name and the reason go to standard output and to
//! the file that `TCPCOST_SKIPPED` names. With `TCPCOST_REQUIRE=all` a skip is a failure.

#![forbid(unsafe_code)]

mod browser;
mod json;
mod namespace;
mod need;
mod random;
mod slurm;
mod sources;
mod wait;

pub use browser::{Browser, Loaded};
pub use json::{change_json, over_corpus};
pub use namespace::{CLIENT, SERVER, in_namespace, thread_id, with_bed};
pub use need::{can_make_namespaces, has_cpus, has_program, is_root, skip};
pub use random::Random;
pub use slurm::Slurm;
pub use sources::source_folders;
pub use wait::{unless_missed, until};
