//! Several runs of a study, alone or in turn with runs of another build or study.
//!
//! Each run is a process of its own, because a run may enter a user namespace, which a process can do only once.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use tcpcost_console::exit::{Exit, Stop, usage};
use tcpcost_console::output;
use tcpcost_signals::Interrupt;

use super::args::{RunArgs, Telling};
use super::baseline::{Baseline, directories};
use super::directory::{Directory, RECORDS, StoredRun};
use super::launcher::Launchers;
use super::overrides::Overrides;
use super::{default_directory, overrides, results, studies};

/// One of the two things that are compared: a study with its overrides, the build that runs it, and the folder of its runs.
struct Side {
    text: String,
    overrides: Overrides,
    program: PathBuf,
    folder: PathBuf,
}

/// Runs of each build if `--runs` is not given. Five runs in turn find a change of 30 % in some 8 of 10 cases (docs/dev/decisions.md).
const RUNS_IN_TURN: u32 = 5;

/// `tcpcost run STUDY` with `--runs K`, `--in-turn-with DIR`, or `--baseline DIR --with tcpcost=PATH`. Continues runs of the
/// same study and command line that are in the folders already.
pub fn several(args: &RunArgs) -> anyhow::Result<Exit> {
    let runs = args.runs.unwrap_or(RUNS_IN_TURN);
    let named = args.study.as_deref().expect("clap asks for a study");
    let (name, text, file) = studies::find(named)?;
    let own = overrides(args, name)?;
    let study = own.apply(&text, &file)?;
    let launchers = Launchers::new(&args.hosts)?;
    launchers
        .consent
        .clone()
        .with_typed(&own)
        .check(&study, &own)?;
    let program = std::env::current_exe().context("find this program")?;
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| default_directory(&study.name));
    let mut sides = vec![Side {
        text,
        overrides: own,
        program: program.clone(),
        folder: out.clone(),
    }];
    let earlier = args.baseline.as_ref().filter(|_| args.with.is_some());
    if let Some(directory) = args.in_turn_with.as_ref().or(earlier) {
        let paths = directories(std::slice::from_ref(directory))?;
        let newest = paths.last().expect("a folder without runs is an error");
        let before = StoredRun::load(newest)?;
        launchers.consent.check(&before.study, &before.overrides)?;
        let is_in_both = before.study.cells.iter().any(|cell| {
            let mut own = study.cells.iter();
            own.any(|own| own.name == cell.name && own.knobs == cell.knobs)
        });
        if !is_in_both {
            return Err(usage(format!(
                "{}: it has no cell with the same name and knobs",
                directory.display()
            )));
        }
        let with = args.with.as_deref().map(super::build).transpose()?;
        sides[0].folder = out.join(AFTER);
        sides.insert(
            0,
            Side {
                text: before.text,
                overrides: before.overrides,
                program: with.unwrap_or(program),
                folder: out.join(BEFORE),
            },
        );
    }
    let interrupt = super::requests_to_stop()?;
    for number in 1..=runs {
        for side in &sides {
            let path = side.folder.join(format!("{number:03}"));
            if !args.telling.quiet {
                output::say!("run {number} of {runs} of {}", side.folder.display());
            }
            let exit = run_once(args, side, &path, &interrupt)?;
            if exit == Exit::Interrupted {
                let out = out.display();
                output::say!(
                    "tcpcost: interrupted; the runs so far: {out}; the same command with --out {out} continues"
                );
                return Ok(exit);
            }
        }
    }
    report_last(args, &sides)
}

/// Folders of the runs that alternate.
const BEFORE: &str = "before";
const AFTER: &str = "after";

/// Makes the directory of one run, or opens an existing one, and starts a process that conducts the remaining trials.
fn run_once(
    args: &RunArgs,
    side: &Side,
    path: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<Exit> {
    if path.join(RECORDS).exists() {
        let run = StoredRun::load(path)?;
        if (&run.text, &run.overrides) != (&side.text, &side.overrides) {
            return Err(usage(format!(
                "{} holds a run of another study or with other options: choose another --out",
                path.display()
            )));
        }
    } else {
        // The child gets --allow-exec, because `several` has checked the study's commands.
        drop(Directory::create(path, &side.text, &side.overrides)?);
    }
    let mut command = Command::new(&side.program);
    command
        // Several runs decide together, so none asks the second clock.
        .env("TCPCOST_SECOND_CLOCK", "never")
        .args(["run", "--allow-exec", "--quiet", "--resume"])
        .arg(path);
    let hosts = &args.hosts;
    command.args(hosts.lab.iter().map(|word| format!("--hosts={word}")));
    command.args(
        hosts
            .launch
            .iter()
            .map(|launch| format!("--launch={launch}")),
    );
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let tried = || format!("start {}", side.program.display());
    let mut child = tcpcost_signals::unblocked(&mut command)
        .spawn()
        .with_context(tried)?;
    let status = interrupt.wait_for(&mut child).with_context(tried)?;
    match status.code() {
        // A missed threshold of the study does not stop the other runs.
        Some(0 | 3 | 4) if !interrupt.is_set() => Ok(Exit::Ok),
        Some(0 | 3 | 4 | 130) => Ok(Exit::Interrupted),
        code => Err(anyhow::Error::new(Stop {
            exit: match code {
                Some(2) => Exit::Usage,
                Some(77) => Exit::Unavailable,
                _ => Exit::Failed,
            },
            text: format!(
                "run {path}: it ended with {status}: tcpcost report {path} says why",
                path = path.display()
            ),
        })),
    }
}

/// Reports the last run, compared with the runs that it alternated with, or else with the baseline.
fn report_last(args: &RunArgs, sides: &[Side]) -> anyhow::Result<Exit> {
    let after = sides.last().expect("there is at least one side");
    let baseline = match (sides, &args.baseline) {
        ([before, _], _) => Some(Baseline::load(std::slice::from_ref(&before.folder))?),
        (_, Some(baseline)) => Some(Baseline::load(std::slice::from_ref(baseline))?),
        _ => None,
    };
    stored(
        baseline.as_ref(),
        std::slice::from_ref(&after.folder),
        super::percentage("--min-effect", args.min_effect)?,
        &args.telling,
    )
}

/// Reports the last of the stored runs of these directories, with verdicts that compare all of them with the baseline.
pub fn stored(
    baseline: Option<&Baseline>,
    after: &[PathBuf],
    min_effect: Option<f64>,
    telling: &Telling,
) -> anyhow::Result<Exit> {
    let mut summaries = Vec::new();
    for path in directories(after)? {
        let run = StoredRun::load(&path)?;
        run.print_oddities();
        summaries.push(run.summary());
    }
    let mut last = summaries
        .pop()
        .expect("a directory without a run is an error");
    if let Some(min_effect) = min_effect {
        last.study.measure.min_effect = min_effect;
    }
    if let Some(baseline) = baseline {
        baseline.add_verdicts(&mut last, &summaries);
        if last.comparisons.is_empty() {
            return Err(usage(
                "the runs have no cell with the same name and knobs: nothing can be compared",
            ));
        }
    }
    let exit = results::exit(&last);
    results::print(std::slice::from_ref(&last), &telling.output)?;
    if let (Some(baseline), true) = (baseline, telling.output.is_text()) {
        baseline.suggest_guests(&last);
    }
    Ok(exit)
}
