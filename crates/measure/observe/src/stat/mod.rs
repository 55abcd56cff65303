//! `tcpcost stat`: what a command costs in CPU and what its TCP did meanwhile, or one command against another.
//!
//! `measure.rs` runs a command once between two snapshots, `rows.rs` has the table of reported values, `print.rs` the output
//! formats, `versus.rs` the verdict on two commands.

mod args;
mod measure;
mod print;
mod rows;
mod versus;

use std::time::{Duration, Instant};

use anyhow::Context;
use tcpcost_console::exit::{Exit, Stop, usage};
use tcpcost_console::format::Format;
use tcpcost_console::output;
use tcpcost_counts::{Growth, TextForm};
use tcpcost_host::cpu_quota::CpuQuota;
use tcpcost_host::namespace::{self, NamespaceMethod};
use tcpcost_report::Decision;
use tcpcost_signals::Interrupt;

pub use args::{StatArgs, Target};

use self::measure::{Bench, Run};
use self::versus::Verdict;

/// Number of signals that end this process at once. Ctrl-C reaches the command as well.
const ENDS_AT_ONCE: u32 = 3;

/// Exit code after an interrupt: that of a shell after SIGINT.
const INTERRUPTED: u8 = 130;

/// Result that decides the exit code.
#[derive(Debug, Clone, Copy)]
pub enum End {
    /// Exit code of the command: the first that is not 0 among several runs, 128 + n after signal n, 127 if there is no such program,
    /// 126 if it cannot be run, 130 after an interrupt.
    Code(u8),
    /// Decision on two commands.
    Decided(Decision),
}

/// A command and its runs.
struct Measured {
    command: Vec<String>,
    runs: Vec<Run>,
}

/// Runs a command, or two in turn, and prints what they cost. Returns [`End::Code`].
///
/// # Errors
/// The options do not fit together, a meter can no longer be read, or the results cannot be written.
pub fn stat(args: &StatArgs) -> anyhow::Result<End> {
    run(args, None)
}

/// Runs two commands in turn until the verdict is decided, or the time is over.
///
/// # Errors
/// See [`stat`]; or a command failed.
pub fn compare(args: &StatArgs, time: Duration) -> anyhow::Result<End> {
    run(args, Some(time))
}

fn run(args: &StatArgs, until_decided: Option<Duration>) -> anyhow::Result<End> {
    let commands = commands(&args.command)?;
    if until_decided.is_some() && commands.len() != 2 {
        return Err(usage(
            "expected two commands: tcpcost compare -- COMMAND… --versus -- COMMAND…",
        ));
    }
    let per = match &args.target.per {
        Some(per) => Some(measure::Per::parse(per)?),
        None => None,
    };
    if !(args.min_effect.is_finite() && (0.0..100.0).contains(&args.min_effect)) {
        return Err(usage("--min-effect: expected a percentage from 0 to 100"));
    }
    let (quota, interrupt) = begin(args)?;
    let bench = Bench::open(per.as_ref(), args, quota)?;
    measured(args, commands, bench, until_decided, &interrupt)
}

/// Finds the CPU quota, enters the fresh namespace if one was asked for, where the quota cannot be seen, and watches for signals.
fn begin(args: &StatArgs) -> anyhow::Result<(Option<CpuQuota>, Interrupt)> {
    let quota = CpuQuota::find();
    // Before a second thread starts, because the kernel moves no process with several threads into a user namespace.
    if args.target.fresh_netns {
        enter_fresh_network()?;
    }
    let interrupt = Interrupt::watch(ENDS_AT_ONCE).context("wait for signals")?;
    Ok((quota, interrupt))
}

/// Moves this process into a fresh network namespace. Without privileges it enters a user namespace first, where the command
/// keeps its user id.
fn enter_fresh_network() -> anyhow::Result<()> {
    match namespace::can_make_namespaces() {
        Ok(NamespaceMethod::Privileged) => {}
        Ok(NamespaceMethod::UserNamespace) => namespace::enter_user_namespace_as_self()?,
        Err(why) => {
            let (exit, text) = (Exit::Unavailable, format!("--fresh-netns: {why}"));
            return Err(Stop { exit, text }.into());
        }
    }
    namespace::enter_new_network().context("--fresh-netns")
}

fn measured(
    args: &StatArgs,
    commands: Vec<Vec<String>>,
    mut bench: Bench<'_>,
    until_decided: Option<Duration>,
    interrupt: &Interrupt,
) -> anyhow::Result<End> {
    // With two commands the verdict is the result, not their own output.
    bench.answer_on_stdout = commands.len() == 2;
    let mut all: Vec<Measured> = commands
        .into_iter()
        .map(|command| Measured {
            command,
            runs: Vec::new(),
        })
        .collect();
    let mut order = versus::Order::new(args.seed.unwrap_or_else(measure::seed), all.len());
    let mut code = 0;
    let started = Instant::now();
    'runs: for _ in 0..args.repetitions {
        for which in order.next_block() {
            if interrupt.is_set() {
                break 'runs;
            }
            let measured = &mut all[which];
            let run = bench.run(&measured.command, interrupt)?;
            if code == 0 {
                code = run.code;
            }
            if !run.was_started {
                return Ok(End::Code(run.code));
            }
            measured.runs.push(run);
        }
        let is_over = |time| {
            started.elapsed() >= time
                || verdict(args, until_decided, &all)
                    .is_some_and(|verdict| verdict.decision != Decision::Inconclusive)
        };
        if code != 0 && until_decided.is_some() || until_decided.is_some_and(is_over) {
            break;
        }
    }
    // Without a command, Ctrl-C is the normal end.
    if interrupt.is_set() && code == 0 && !all[0].command.is_empty() {
        code = INTERRUPTED;
    }
    let verdict = verdict(args, until_decided, &all);
    let document = print::Document {
        about: bench.about(args),
        measured: &all,
        verdict: verdict.as_ref(),
    };
    for (format, file) in args.output.each() {
        let (text, form) = match format {
            Format::Json => (document.json(), TextForm::Json),
            Format::Csv => (document.csv(), TextForm::Lines),
            _ => (document.text(), TextForm::Lines),
        };
        let printed = format!("{}\n", text.trim_end());
        if let Some(file) = file {
            output::write_file(file, &text)?;
        } else if bench.answer_on_stdout {
            output::put(&printed, form, None)?;
        } else {
            // Standard output is the command's.
            output::results_to_stderr(&printed, form);
        }
    }
    if until_decided.is_none() || code == INTERRUPTED {
        return Ok(End::Code(code));
    }
    if code != 0 {
        anyhow::bail!("a command ended with exit code {code}: commands that fail are not compared");
    }
    let decision = verdict.map_or(Decision::Inconclusive, |verdict| verdict.decision);
    Ok(End::Decided(decision))
}

/// Verdict on two commands; `None` for one command.
fn verdict(args: &StatArgs, until_decided: Option<Duration>, all: &[Measured]) -> Option<Verdict> {
    match all {
        [one, other] => {
            let min_effect = args.min_effect / 100.0;
            Verdict::of(one, other, min_effect, until_decided.is_some())
        }
        _ => None,
    }
}

/// Counts and CPU time of one run of a command, or of attached processes.
#[derive(Debug)]
pub struct Observed {
    /// Exit code of the command, as a shell has it in `$?`.
    pub code: u8,
    /// True if the program could be started, or none was named.
    pub was_started: bool,
    /// Growth of all counts.
    pub growth: Growth,
    /// True if the counts of the network namespace are the measured workload's alone.
    pub is_alone: bool,
    /// Meters that are not available, a line each.
    pub unavailable: Vec<String>,
}

/// Measures one run of a command, or of attached processes while a command runs.
///
/// # Errors
/// See [`stat`].
pub fn observe(args: &StatArgs) -> anyhow::Result<Observed> {
    let per = args
        .target
        .per
        .as_deref()
        .map(measure::Per::parse)
        .transpose()?;
    let (quota, interrupt) = begin(args)?;
    let mut bench = Bench::open(per.as_ref(), args, quota)?;
    bench.answer_on_stdout = true;
    let run = bench.run(&args.command, &interrupt)?;
    let about = bench.about(args);
    Ok(Observed {
        code: if interrupt.is_set() && !args.command.is_empty() && run.code == 0 {
            INTERRUPTED
        } else {
            run.code
        },
        was_started: run.was_started,
        is_alone: about.is_fresh || about.is_elsewhere,
        growth: run.growth,
        unavailable: about.refused,
    })
}

/// Splits the words into one command, or into two at `--versus --`.
fn commands(words: &[String]) -> anyhow::Result<Vec<Vec<String>>> {
    let between = words
        .windows(2)
        .position(|two| two[0] == "--versus" && two[1] == "--");
    let Some(at) = between else {
        return Ok(vec![words.to_vec()]);
    };
    let (one, other) = (words[..at].to_vec(), words[at + 2..].to_vec());
    if one.is_empty() || other.is_empty() {
        return Err(usage(
            "--versus: expected two commands: tcpcost stat -n 20 -- COMMAND… --versus -- COMMAND…",
        ));
    }
    Ok(vec![one, other])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_string).collect()
    }

    #[test]
    fn two_commands_are_parted_by_versus_alone() {
        assert_eq!(commands(&words("a -- b")).unwrap().len(), 1);
        assert_eq!(commands(&words("a --versus b")).unwrap().len(), 1);
        let two = commands(&words("a -x --versus -- b -- c")).unwrap();
        assert_eq!(two, [words("a -x"), words("b -- c")]);
        assert!(commands(&words("a --versus --")).is_err());
    }
}
