//! Front ends with the command lines of other programs, unchanged: `tcpcost netperf …`, or a link
//! named `netperf` to this program. `netserver` and `uperf` work in both ways, too.
//!
//! Their options are not parsed by this program's parser, because they differ: `-v` has an
//! argument, `-c` may have one. Their exit codes are netperf's.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use tcpcost_console::exit::Exit;
use tcpcost_console::output::say;
use tcpcost_netperf::Usage;

use crate::uperf;
use tcpcost_signals::Interrupt;

/// A front end to run, and its arguments.
pub struct Front {
    program: Program,
    args: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Netperf,
    /// True if started by the name `netserver`: it then moves to the background.
    Netserver(bool),
    Uperf,
}

impl Front {
    /// Returns the front end that the program's name or its first argument asks for. `None` for
    /// every other subcommand.
    pub fn asked() -> Option<Front> {
        let (name, by_link, args) = called()?;
        match name.as_str() {
            "netperf" => Some(Front::netperf(args)),
            "netserver" => Some(Front::netserver(args, by_link)),
            // With options of `tcpcost run` it is that command: see `words`.
            "uperf" if uperf::run_words(&args).is_none() => Some(Front::uperf(args)),
            _ => None,
        }
    }

    /// Returns the front end `uperf` with these arguments.
    pub fn uperf(args: Vec<String>) -> Front {
        let program = Program::Uperf;
        Front { program, args }
    }

    /// Returns the front end `netperf` with these arguments.
    pub fn netperf(args: Vec<String>) -> Front {
        let program = Program::Netperf;
        Front { program, args }
    }

    /// Returns the front end `netserver` with these arguments. `by_name`: started by the name
    /// `netserver`.
    pub fn netserver(args: Vec<String>, by_name: bool) -> Front {
        let program = Program::Netserver(by_name);
        Front { program, args }
    }

    /// Runs the front end to its end. `--help` as the first word is its `-h`. A failure becomes a line on standard error and its exit code.
    pub fn run(mut self) -> ExitCode {
        if let Some(first) = self.args.first_mut().filter(|first| *first == "--help") {
            *first = "-h".to_string();
        }
        let (name, done) = match self.program {
            Program::Netperf => {
                let watch = || Interrupt::watch(ENDS_AT_ONCE);
                ("netperf", tcpcost_netperf::netperf(&self.args, watch))
            }
            Program::Netserver(by_name) => {
                ("netserver", tcpcost_netperf::serve(&self.args, by_name))
            }
            Program::Uperf => {
                return uperf::uperf(&self.args).map_or_else(
                    |why| {
                        say!("uperf: {why}");
                        Exit::Failed.into()
                    },
                    ExitCode::from,
                );
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

/// Returns the usage text and the exit codes of a command that parses its own options. `None` for other commands.
pub fn usage(command: &str) -> Option<Usage> {
    match command {
        "netperf" => Some(tcpcost_netperf::netperf_usage()),
        "netserver" => Some(tcpcost_netperf::netserver_usage()),
        "uperf" => Some(uperf::usage()),
        _ => None,
    }
}

/// Returns the words of the command line for this program's own parser. `uperf` with options of
/// `tcpcost run` is that command.
pub fn words() -> Vec<OsString> {
    let as_study = called().filter(|(name, ..)| name == "uperf");
    let as_study = as_study.and_then(|(_, _, args)| uperf::run_words(&args));
    as_study.unwrap_or_else(|| std::env::args_os().collect())
}

/// Returns the front's name by which this program was called, true if that is the name of a link to it, and the words behind it.
/// Another name may be of no front.
fn called() -> Option<(String, bool, Vec<String>)> {
    let mut words = std::env::args_os();
    let link = file_name(&words.next()?);
    let mut args = words.map(|word| word.to_string_lossy().into_owned());
    match link.filter(|name| ["netperf", "netserver", "uperf"].contains(&name.as_str())) {
        Some(name) => Some((name, true, args.collect())),
        None => Some((args.next()?, false, args.collect())),
    }
}

fn file_name(word: &OsStr) -> Option<String> {
    let name = Path::new(word).file_name();
    name.and_then(OsStr::to_str).map(String::from)
}

/// Signal that ends the process at once: the first one ends netperf's test.
const ENDS_AT_ONCE: u32 = 2;
