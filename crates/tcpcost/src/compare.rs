//! `tcpcost compare`: which of two cells, settings, builds, commands or stored runs costs more.
//!
//! Cells, settings and builds become a study of pairs, which `run` conducts until each is decided. `stat` runs commands. Stored
//! runs are only read.

use std::path::PathBuf;
use std::process::ExitCode;
use std::slice::from_ref;

use tcpcost_report::{Incomparable, is_per_transaction, transactions_differ};
use tcpcost_study::{Sides, Study, units};

use crate::exit::usage;
use crate::hosts_file::Lab;
use crate::run::{self, Baseline, Directory, Launchers, Overrides};
use crate::{cli, stat, uperf};

/// Runs `tcpcost compare`.
pub fn compare(args: &cli::Compare) -> anyhow::Result<ExitCode> {
    let min_effect = run::percentage("--min-effect", Some(args.min_effect))?;
    if !args.command.is_empty() {
        return commands(args);
    }
    let is_stored = |path: &PathBuf| run::runs_at(path).is_ok_and(|runs| !runs.is_empty());
    let paths = |names: &[String]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    let (of, versus) = (paths(&args.of), paths(&args.versus));
    let any_is_stored = of.iter().chain(&versus).any(is_stored);
    if any_is_stored && (args.cells.is_some() || sides(args)?.is_some()) {
        return Err(usage(
            "stored runs are compared as they are: --cells, --cell, --a, --b and --with need a study",
        ));
    }
    match (&of[..], &versus[..]) {
        (_, []) if of.len() > 2 => Err(usage(
            "which runs are before the change and which after it? compare BEFORE… --versus AFTER…",
        )),
        ([one, other], []) if any_is_stored => {
            stored(args, from_ref(one), from_ref(other), min_effect)
        }
        ([one, other], []) => Err(usage(format!(
            "neither {} nor {} holds a run: name two directories of runs, or one study with --cells, --a, --b or --with",
            one.display(),
            other.display()
        ))),
        ([one], []) if is_stored(one) => Err(usage(format!(
            "{} holds one side: name the directory of other runs, too",
            one.display()
        ))),
        (_, []) => live(args, &args.of[0], min_effect),
        _ => stored(args, &of, &versus, min_effect),
    }
}

/// Compares the stored runs after a change with the stored runs before it.
fn stored(
    args: &cli::Compare,
    before: &[PathBuf],
    after: &[PathBuf],
    min_effect: Option<f64>,
) -> anyhow::Result<ExitCode> {
    // Refuses a run that is on both sides: it would be equal to itself.
    run::directories(&[before, after].concat())?;
    let baseline = Baseline::load(before)?;
    Ok(run::stored(Some(&baseline), after, min_effect, &args.telling)?.into())
}

/// Runs a study's cells in turn, and compares them.
fn live(args: &cli::Compare, named: &str, min_effect: Option<f64>) -> anyhow::Result<ExitCode> {
    let sides = match (&args.cells, sides(args)?) {
        (Some(cells), _) => Sides::Cells(cells[0].clone(), cells[1].clone()),
        (None, Some(sides)) => sides,
        (None, None) => {
            return Err(usage(
                "nothing to compare: expected --cells \"CELL\" \"CELL\", --a and --b KNOB=VALUE, or --with tcpcost=PATH",
            ));
        }
    };
    let (study_name, text, file) = uperf::find(named)?;
    let mut set = Lab::read(&args.hosts.lab)?.knobs;
    set.extend(run::pairs("--set", &args.set)?);
    let overrides = Overrides {
        study: study_name,
        set,
        duration: args.duration.clone(),
        seed: args.seed,
        compare: Some(sides),
        min_effect,
        time_max: Some(args.time.clone()),
        exact_instructions: None,
        ..Overrides::default()
    };
    let study = overrides.apply(&text, &file)?;
    check_comparable(&study)?;
    if study.awaits_nodes() {
        return Err(usage(
            "every node of a job is a host of this study: name its hosts to compare",
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
        &args.telling,
    )?;
    Ok(exit.into())
}

/// Checks before any trial that the cells' main quantity can be compared.
///
/// # Errors
/// The quantity is per transaction, and the transactions carry different numbers of bytes.
fn check_comparable(study: &Study) -> anyhow::Result<()> {
    let named = |name: &str| study.cells.iter().find(|cell| cell.name == name);
    for pair in &study.comparisons {
        let Some((from, to)) = named(&pair.from).zip(named(&pair.to)) else {
            continue;
        };
        let is_per_transaction = match study.measure.quantity {
            Some(quantity) => is_per_transaction(quantity.kind),
            None => from.knobs.has_transactions(),
        };
        if is_per_transaction && transactions_differ(&from.knobs, &to.knobs) {
            return Err(usage(format!(
                "\"{}\" and \"{}\" are not comparable: {}; compare a quantity per KiB ([measure] quantity = \"exact_cpu_us_per_kib\")",
                pair.from,
                pair.to,
                Incomparable::Transactions
            )));
        }
    }
    Ok(())
}

/// Settings of the first and the second of a pair; `None` without `--a`, `--b` and `--with`.
fn sides(args: &cli::Compare) -> anyhow::Result<Option<Sides>> {
    let program = args.with.as_deref().map(run::build).transpose()?;
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

/// Compares two commands.
fn commands(args: &cli::Compare) -> anyhow::Result<ExitCode> {
    let time = units::duration(&args.time)
        .map_err(|error| usage(format!("--time {}: expected {error}", args.time)))?;
    let output = args.telling.output.clone().into_formats_of();
    let output = output.map_err(|error| usage(format!("two commands: {error}")))?;
    let stat = cli::Stat {
        syscalls: false,
        repetitions: u32::MAX,
        per: None,
        fresh_netns: false,
        pid: Vec::new(),
        cgroup: None,
        netns: None,
        min_effect: args.min_effect,
        seed: args.seed,
        output,
        command: args.command.clone(),
    };
    stat::compare(&stat, time)
}
