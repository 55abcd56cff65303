//! What tests need of a machine: network namespaces of their own, a browser, or a reason to skip; and
//! waits that end.
//!
//! A test asks before it begins ([`can_make_namespaces`], [`has_cpus`], [`in_namespace`]); where the
//! machine lacks something it is skipped: by name and with the reason, on standard output and in the
//! file that `TCPCOST_SKIPPED` names. With `TCPCOST_REQUIRE=all` a skip is a failure.

#![forbid(unsafe_code)]

mod browser;
mod json;
mod namespace;
mod need;
mod slurm;
mod wait;

pub use browser::{Browser, Loaded};
pub use json::{change_json, over_corpus};
pub use namespace::{CLIENT, SERVER, in_namespace, thread_id, with_bed};
pub use need::{can_make_namespaces, has_cpus, has_program, is_root, skip};
pub use slurm::Slurm;
pub use wait::{unless_missed, until};
