//! `tcpcost compare`: whether one thing costs more than another.
//!
//! Cells, settings and builds are a study of pairs, which `run` conducts until each is decided; commands are run by `stat`;
//! runs that are stored are only read.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use tcpcost_report::Summary;
use tcpcost_study::{Sides, units};

use crate::exit::usage;
use crate::output::{Format, RunFormat};
use crate::run::{self, Baseline, Directory, Launchers, Overrides, StoredRun};
use crate::{cli, output, stat, uperf};

/// `tcpcost compare`.
pub fn compare(args: &cli::Compare) -> anyhow::Result<ExitCode> {
    let min_effect = run::percentage("--min-effect", Some(args.min_effect))?;
    if !args.command.is_empty() {
        return commands(args);
    }
    let is_run = |path: &String| Path::new(path).join(run::RECORDS).exists();
    match &args.of[..] {
        [one, other] if is_run(one) || is_run(other) => {
            if args.cells.is_some() || sides(args)?.is_some() {
                return Err(usage(
                    "runs that are stored are compared as they are: --cells, --cell, --a, --b and --with take a study",
                ));
            }
            stored(args, Path::new(one), Path::new(other), min_effect)
        }
        [one, other] => Err(usage(format!(
            "neither {one} nor {other} holds a run: name two directories of runs, or one study with --cells, --a, --b or --with"
        ))),
        [one] if is_run(one) => Err(usage(format!(
            "{one} holds one run: name the directory of another one, too"
        ))),
        [study] => live(args, study, min_effect),
        _ => unreachable!("clap takes one or two"),
    }
}

/// Two runs that are stored: the second against the first.
fn stored(
    args: &cli::Compare,
    one: &Path,
    other: &Path,
    min_effect: Option<f64>,
) -> anyhow::Result<ExitCode> {
    let baseline = Baseline::load(one)?;
    let run = StoredRun::load(other)?;
    run.say();
    let mut summary = Summary::new(&run.study, &run.records);
    if let Some(min_effect) = min_effect {
        summary.study.measure.min_effect = min_effect;
    }
    baseline.hold(&mut summary);
    if summary.comparisons.is_empty() {
        return Err(usage(format!(
            "{} and {} have no cell with the same name and knobs",
            one.display(),
            other.display()
        )));
    }
    let exit = output::exit(&summary);
    output::print(&[summary], args.telling.format, args.telling.details)?;
    Ok(exit.into())
}

/// A study's cells in turn.
fn live(args: &cli::Compare, named: &str, min_effect: Option<f64>) -> anyhow::Result<ExitCode> {
    let sides = match (&args.cells, sides(args)?) {
        (Some(cells), _) => Sides::Cells(cells[0].clone(), cells[1].clone()),
        (None, Some(sides)) => sides,
        (None, None) => {
            return Err(usage(
                "what is to be compared? --cells \"CELL\" \"CELL\", --a and --b KNOB=VALUE, or --with tcpcost=PATH",
            ));
        }
    };
    let (study_name, text, file) = uperf::find(named)?;
    let overrides = Overrides {
        study: study_name,
        set: run::pairs("--set", &args.set)?,
        duration: args.duration.clone(),
        seed: args.seed,
        compare: Some(sides),
        min_effect,
        time_max: Some(args.time.clone()),
        exact_instructions: None,
        ..Overrides::default()
    };
    let study = overrides.apply(&text, &file)?;
    if study.awaits_nodes() {
        return Err(usage(
            "every node of a job is a host of this study: name hosts of it to compare",
        ));
    }
    let mut launchers = Launchers::for_study(&args.hosts, &study)?;
    launchers.consent = launchers.consent.with_typed(&overrides);
    launchers.consent.check(&study, &overrides)?;
    let path = args
        .out
        .clone()
        .unwrap_or_else(|| run::default_directory(&format!("compare-{}", study.name)));
    let mut store = Directory::create(&path, &text, &overrides)?;
    let exit = run::conduct(
        &mut store,
        &study,
        Vec::new(),
        launchers,
        None,
        args.telling,
    )?;
    Ok(exit.into())
}

/// What the flags set in the first and the second of a pair; absent without any.
fn sides(args: &cli::Compare) -> anyhow::Result<Option<Sides>> {
    let program = args.with.as_deref().map(program).transpose()?;
    if args.a.is_empty() && args.b.is_empty() && program.is_none() {
        return Ok(None);
    }
    Ok(Some(Sides::Set {
        cell: args.cell.clone(),
        a: run::pairs("--a", &args.a)?,
        b: run::pairs("--b", &args.b)?,
        program,
    }))
}

/// Of `tcpcost=PATH`, absolute, since a bed's agents may be elsewhere.
fn program(text: &str) -> anyhow::Result<PathBuf> {
    let wrong = |what: String| usage(format!("--with {text}: {what}"));
    let path = text
        .strip_prefix("tcpcost=")
        .ok_or_else(|| wrong("expected tcpcost=PATH".to_string()))?;
    let path = Path::new(path)
        .canonicalize()
        .map_err(|error| wrong(error.to_string()))?;
    if !path.is_file() {
        return Err(wrong("not a program".to_string()));
    }
    // Another program would end a bed's first agent with whatever it says of arguments that it does not know.
    let mut asks = std::process::Command::new(&path);
    let told = asks
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| wrong(error.to_string()))?;
    match String::from_utf8_lossy(&told.stdout).starts_with("tcpcost ") {
        true => Ok(path),
        false => Err(wrong("not a build of tcpcost".to_string())),
    }
}

/// Two commands.
fn commands(args: &cli::Compare) -> anyhow::Result<ExitCode> {
    let time = units::duration(&args.time)
        .map_err(|error| usage(format!("--time {}: expected {error}", args.time)))?;
    let RunFormat { json, csv, .. } = args.telling.format;
    if !(json || csv || args.telling.format.is_text()) {
        return Err(usage(
            "two commands are compared as text, with --json or with --csv",
        ));
    }
    let stat = cli::Stat {
        syscalls: false,
        repeat: u32::MAX,
        per: None,
        fresh_netns: false,
        pid: Vec::new(),
        cgroup: None,
        netns: None,
        min_effect: args.min_effect,
        seed: args.seed,
        output: None,
        format: Format { json, csv },
        command: args.command.clone(),
    };
    stat::compare(&stat, time)
}
