//! The command.
#![allow(dead_code, reason = "the commands that use host/ come with the runner")]

mod host;

fn main() {}
