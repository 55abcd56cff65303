//! Command lines of other programs, as they are: `tcpcost netperf …`, or a link named `netperf` to this program, and the
//! same for `netserver`.
//!
//! Their options are not this program's (`-v` has an argument, `-c` may have one), so they never meet its parser; their
//! exit codes are netperf's, too.

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use tcpcost_signals::Interrupt;

use crate::output::say;

/// What was asked for, and its words.
pub struct Front {
    program: Program,
    args: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Netperf,
    /// Whether by its own name, which leaves the foreground.
    Netserver(bool),
}

impl Front {
    /// By the name of the program, or by its first word.
    pub fn asked() -> Option<Front> {
        let mut words = std::env::args_os();
        let called = words.next()?;
        let called = Path::new(&called).file_name().and_then(OsStr::to_str);
        let args: Vec<String> = words
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        match (called, args.first().map(String::as_str)) {
            (Some("netperf"), _) => Some(Front::netperf(args)),
            (Some("netserver"), _) => Some(Front::netserver(args, true)),
            (_, Some("netperf")) => Some(Front::netperf(args[1..].to_vec())),
            (_, Some("netserver")) => Some(Front::netserver(args[1..].to_vec(), false)),
            _ => None,
        }
    }

    /// netperf with these words.
    pub fn netperf(args: Vec<String>) -> Front {
        let program = Program::Netperf;
        Front { program, args }
    }

    /// netserver with these words.
    pub fn netserver(args: Vec<String>, by_name: bool) -> Front {
        let program = Program::Netserver(by_name);
        Front { program, args }
    }

    /// Runs it to its end.
    pub fn run(self) -> ExitCode {
        let (name, done) = match self.program {
            Program::Netperf => {
                let watch = || Interrupt::watch(ENDS_AT_ONCE);
                ("netperf", tcpcost_netperf::netperf(&self.args, watch))
            }
            Program::Netserver(by_name) => {
                ("netserver", tcpcost_netperf::serve(&self.args, by_name))
            }
        };
        match done {
            Ok(code) => code.into(),
            Err(failure) => {
                say!("{name}: {failure}");
                failure.code.into()
            }
        }
    }
}

/// The first request to stop ends netperf's test, the second one the process.
const ENDS_AT_ONCE: u32 = 2;
