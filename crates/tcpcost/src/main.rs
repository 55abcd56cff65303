//! Command `tcpcost`: measures what each kilobyte of TCP costs in CPU time, why, and which knob
//! lowers the cost.
//!
//! Each subcommand has one file or folder here, or is a function of another crate: `run` of `conduct`;
//! `stat`, `watch` and `doctor` of `observe`; `peer` of `peer`.

#![forbid(unsafe_code)]

mod advise;
mod cli;
mod compare;
mod explain;
mod fronts;
mod generate;
mod kernels;
mod manifest;
mod model;
#[cfg(test)]
mod pages;
mod privileges;
mod reference;
mod relay;
mod report;
mod screen;
mod study;
mod trace;
mod uperf;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use tcpcost_console::exit::{self, Exit, usage};
use tcpcost_console::output;

use crate::cli::{Cli, Command};
use crate::kernels::KernelsCommand;

fn main() -> ExitCode {
    if tcpcost_guest::init::is_asked() {
        tcpcost_guest::init::main();
    }
    if let Some(front) = fronts::Front::asked() {
        return front.run();
    }
    let words = fronts::words();
    let is_for_git = subcommand(&words).is_some_and(|name| name == "kernels bisect");
    let outcome = parse(words).and_then(|cli| {
        log(cli.verbose);
        let command = cli.into_command();
        privileges::give_up(&command);
        dispatch(command)
    });
    let code = outcome.unwrap_or_else(|error| {
        output::say!("tcpcost: {}", exit::line(&error));
        match is_for_git {
            true => kernels::END_BISECT.into(),
            false => exit::code(&error).into(),
        }
    });
    // A closed terminal counts as an interruption, because the last output may be lost.
    if tcpcost_signals::is_terminal_closed() {
        Exit::Interrupted.into()
    } else {
        code
    }
}

/// Parses the command line. If it asks for help or the version, prints that and exits.
///
/// # Errors
/// The command line is wrong: one line, exit code 2.
fn parse(words: Vec<OsString>) -> anyhow::Result<Cli> {
    let matches = screen::command().try_get_matches_from(&words);
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    cli.map_err(|error| {
        if matches!(
            error.kind(),
            ErrorKind::DisplayHelp
                | ErrorKind::DisplayVersion
                | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        ) {
            error.exit();
        }
        let text = error.to_string();
        let lines: Vec<&str> = text
            .lines()
            .map(str::trim)
            .take_while(|line| !line.starts_with("Usage:"))
            .filter(|line| !line.is_empty() && !line.starts_with("For more information"))
            .collect();
        let see = match wanted(&error) {
            Some(command) => format!("{command}, and --help"),
            None => subcommand(&words).map_or(String::new(), |name| name + " ") + "--help",
        };
        let what = lines.join(" ");
        usage(format!(
            "{} (see tcpcost {see})",
            what.trim_start_matches("error: ")
        ))
    })
}

/// Words that people try first for what another command does.
const OTHER_WORDS: [(&str, &str); 5] = [
    ("soak", "watch --soak"),
    ("top", "watch"),
    ("list", "study list"),
    ("knobs", "study knobs"),
    ("diff", "compare"),
];

/// Command that an unknown one most likely means.
fn wanted(error: &clap::Error) -> Option<&'static str> {
    let ContextValue::String(unknown) = error.get(ContextKind::InvalidSubcommand)? else {
        return None;
    };
    let (_, command) = OTHER_WORDS.iter().find(|(word, _)| word == unknown)?;
    Some(command)
}

/// Returns the names of the subcommands on the command line, even if other words are wrong.
fn subcommand(words: &[OsString]) -> Option<String> {
    let mut known = &screen::command();
    let mut names = Vec::new();
    for word in words.iter().skip(1).filter_map(|word| word.to_str()) {
        match known.find_subcommand(word) {
            Some(found) => known = found,
            None if word.starts_with('-') && names.is_empty() => continue,
            None => break,
        }
        names.push(word);
    }
    (!names.is_empty()).then(|| names.join(" "))
}

fn log(verbose: u8) {
    use tracing::level_filters::LevelFilter;
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    tracing_subscriber::fmt()
        .with_writer(|| output::Log)
        .with_max_level(level)
        .without_time()
        // Without this, a failed write to standard error would itself be reported there.
        .log_internal_errors(false)
        .init();
}

fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    let print = |text: String| output::write(&text).map(|_| Exit::Ok.into());
    match command {
        Command::Run(args) => Ok(tcpcost_conduct::run(&args)?.into()),
        Command::Compare(args) => compare::compare(&args),
        Command::Study(command) => print(study::study(&command)?),
        Command::Kernels(args) => match &args.command {
            Some(KernelsCommand::Bisect(asked)) => Ok(kernels::bisect(&args, asked)?.into()),
            None => Ok(kernels::kernels(&args)?.into()),
        },
        Command::Report(args) => Ok(report::report(&args)?.into()),
        Command::Doctor(args) => Ok(tcpcost_observe::doctor(&args, &privileges::NEEDS)?.into()),
        Command::Trace(args) => Ok(trace::trace(&args)?.into()),
        Command::Watch(args) => Ok(tcpcost_observe::watch(&args, model::kept().ok())?.into()),
        Command::Stat(args) => tcpcost_observe::stat(&args).map(compare::exit_code),
        Command::Explain(args) => explain::explain(&args),
        Command::Advise(args) => advise::run(&args),
        Command::Model(args) => Ok(model::model(&args)?.into()),
        Command::Peer(flags) => Ok(tcpcost_peer::run(&flags)?.into()),
        Command::Relay(flags) => Ok(relay::run(&flags)?.into()),
        Command::Netperf { args } => Ok(fronts::Front::netperf(args).run()),
        Command::Netserver { args } => Ok(fronts::Front::netserver(args, false).run()),
        Command::Uperf { args } => Ok(fronts::Front::uperf(args).run()),
        Command::Generate(command) => print(generate::generate(&command)?),
        Command::Carry {
            device,
            peer_device,
            peer_pid,
        } => {
            tcpcost_agent::wire(&device, &peer_device, peer_pid)?;
            Ok(Exit::Ok.into())
        }
        Command::Agent {
            isolate,
            memory,
            one_thread,
            lease,
            standing,
            only,
            mut hosts,
        } => {
            let how = tcpcost_agent::ProcessSetup {
                isolate,
                memory,
                one_thread,
                standing,
            };
            if let Some(number) = only {
                let count = hosts.len();
                let one = hosts.get(number).copied();
                let one = one.ok_or_else(|| {
                    exit::usage(format!("--only {number}: expected less than {count}"))
                })?;
                hosts = vec![one];
            }
            match tcpcost_agent::main(how, lease, &hosts)? {}
        }
    }
}
