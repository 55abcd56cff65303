//! Command `tcpcost`: measures what each kilobyte of TCP costs in CPU time, why, and which knob
//! lowers the cost.
//!
//! Each subcommand has one file or folder. `run` conducts a study and sends requests to `agent`,
//! which acts on each host.

#![deny(unsafe_code)]

mod cli;
mod compare;
mod doctor;
mod exit;
mod format;
mod fronts;
mod hosts_file;
mod kernels;
mod manifest;
mod metrics_address;
mod output;
mod peer;
mod privileges;
mod relay;
mod report;
mod run;
mod set;
mod slurm;
mod soak;
mod stat;
mod studies;
mod trace;
mod uperf;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::FromArgMatches;
use clap::error::ErrorKind;

use crate::cli::{Cli, Command, KernelsCommand};
use crate::exit::{Exit, usage};
use crate::format::Format;

fn main() -> ExitCode {
    if tcpcost_guest::init::is_asked() {
        tcpcost_guest::init::main();
    }
    if let Some(front) = fronts::Front::asked() {
        return front.run();
    }
    let outcome = parse(fronts::words()).and_then(|cli| {
        log(cli.verbose);
        let command = cli.into_command();
        privileges::give_up(&command);
        dispatch(command)
    });
    let code = outcome.unwrap_or_else(|error| {
        output::say!("tcpcost: {}", exit::line(&error));
        exit::code(&error).into()
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
    let matches = cli::command().try_get_matches_from(&words);
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
        usage(format!(
            "{} (see tcpcost {}--help)",
            lines.join(" ").trim_start_matches("error: "),
            subcommand(&words).map_or(String::new(), |name| name + " "),
        ))
    })
}

/// Returns the names of the subcommands on the command line, even if other words are wrong.
fn subcommand(words: &[OsString]) -> Option<String> {
    let mut known = &cli::command();
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
        Command::Run(args) => Ok(run::run(&args)?.into()),
        Command::Compare(args) => compare::compare(&args),
        Command::Study(study) => print(study_output(&study)?),
        Command::Uperf(args) => dispatch(parse(uperf::run_words(&args))?.into_command()),
        Command::Kernels(args) => match &args.command {
            Some(KernelsCommand::Bisect(asked)) => Ok(kernels::bisect(&args, asked)?.into()),
            None => Ok(kernels::kernels(&args)?.into()),
        },
        Command::Report(args) => Ok(report::report(&args)?.into()),
        Command::Doctor(args) if args.restore => restore(),
        Command::Doctor(args) => {
            let (text, exit) = doctor::doctor(args.output.has(Format::Json));
            output::write(&text)?;
            Ok(exit.into())
        }
        Command::Trace(args) => Ok(trace::trace(&args)?.into()),
        Command::Watch(args) if args.soak.is_some() => Ok(soak::soak(&args)?.into()),
        Command::Watch(args) => tcpcost_watch::watch(&args.options()).map(|()| Exit::Ok.into()),
        Command::Stat(args) => stat::stat(&args),
        Command::Peer(flags) => Ok(peer::run(&flags)?.into()),
        Command::Relay(flags) => Ok(relay::run(&flags)?.into()),
        Command::Netperf { args } => Ok(fronts::Front::netperf(args).run()),
        Command::Netserver { args } => Ok(fronts::Front::netserver(args, false).run()),
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

/// Returns the output of `tcpcost study`.
fn study_output(command: &cli::Study) -> anyhow::Result<String> {
    match command {
        cli::Study::List(output) => studies::list(output),
        cli::Study::Show(args) if args.output.has(Format::Manifest) => manifest::manifest(args),
        cli::Study::Show(args) if args.pod.is_empty() => studies::show(&args.name),
        cli::Study::Show(_) => Err(usage("--pod needs --format manifest")),
        cli::Study::Knobs { name: None } => Ok(studies::knobs()),
        cli::Study::Knobs { name: Some(name) } => studies::one_knob(name),
        cli::Study::Convert { profile } => uperf::convert(profile),
    }
}

/// Runs `tcpcost doctor --restore`: restores settings of the host that a killed run left changed.
fn restore() -> anyhow::Result<ExitCode> {
    let folder = tcpcost_host::journal::folder()?;
    let restored = tcpcost_host::journal::restore(&folder)?;
    if restored == tcpcost_host::journal::Restored::default() {
        output::write("nothing to restore\n")?;
    } else {
        output::write(&restored.to_string())?;
    }
    Ok(if restored.failed.is_empty() {
        Exit::Ok
    } else {
        Exit::Failed
    }
    .into())
}
