//! `tcpcost compare`: which of two cells, settings, builds, commands or stored runs costs more.
//!
//! Cells, settings and builds become a study of pairs, which `run` conducts until each is decided. `stat` runs commands. Stored
//! runs are only read.

use std::path::PathBuf;
use std::process::ExitCode;
use std::slice::from_ref;

use clap::Args;
use tcpcost_conduct::{
    self as conduct, Baseline, Directory, HostArgs, Lab, Launchers, Overrides, Telling, results,
    studies,
};
use tcpcost_console::exit::usage;
use tcpcost_observe::{End, StatArgs, Target};
use tcpcost_report::{Incomparable, is_per_transaction, transactions_differ};
use tcpcost_study::{Sides, Study, units};

/// `tcpcost compare`.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  tcpcost compare before/ after/                          runs that are stored: two, or two folders of runs\n  tcpcost compare B1 B2 B3 --versus A1 A2 A3              the same, each run named\n  tcpcost compare tour --cells \"CELL\" \"CELL\"             two cells of a study, in turn\n  tcpcost compare tour --cell \"CELL\" --b mtu=9000        a cell against itself with a knob set otherwise\n  tcpcost compare tour --with tcpcost=./target/release/tcpcost   this program against another build\n  tcpcost compare -- ./old --versus -- ./new             two commands"
)]
pub struct CompareArgs {
    /// Runs before and after a change: two directories, or several before --versus. Or a study, by name or file, whose cells run in turn.
    #[arg(value_name = "DIR|STUDY", num_args = 1.., required_unless_present = "command")]
    pub of: Vec<String>,
    /// Runs after the change.
    #[arg(long, value_name = "DIR", num_args = 1..)]
    pub versus: Vec<String>,
    /// Two cells of the study, by name.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["cell", "a", "b", "with"])]
    pub cells: Option<Vec<String>>,
    /// Cell of the study that is compared with itself [default: each].
    #[arg(long, value_name = "NAME")]
    pub cell: Option<String>,
    /// Set a knob in the first of each pair; may be repeated.
    #[arg(long, value_name = "KNOB=VALUE")]
    pub a: Vec<String>,
    /// Set a knob in the second of each pair; may be repeated.
    #[arg(long, value_name = "KNOB=VALUE")]
    pub b: Vec<String>,
    /// Run the second of each pair with agents of another build.
    #[arg(long, value_name = "tcpcost=PATH")]
    pub with: Option<String>,
    /// Set a knob in both of a pair; may be repeated.
    #[arg(long, value_name = "KNOB=VALUE")]
    pub set: Vec<String>,
    /// Least difference that matters, in percent; below it they are equivalent.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    pub min_effect: f64,
    /// Measuring time after which an undecided comparison ends.
    #[arg(long, value_name = "TIME", default_value = "2min")]
    pub time: String,
    /// Length of the measured interval of each trial, e.g. 500ms [default: the study's].
    #[arg(long, value_name = "TIME")]
    pub duration: Option<String>,
    /// Seed of the order [default: the study's; of commands by the clock].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Directory for records and report [default: tcpcost-out/compare-STUDY-TIME].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How hosts of other machines are reached.
    #[command(flatten)]
    pub hosts: HostArgs,
    /// Formats of the results.
    #[command(flatten)]
    pub telling: Telling,
    /// Two commands: COMMAND… --versus -- COMMAND…
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "of")]
    pub command: Vec<String>,
}

/// Runs `tcpcost compare`.
pub fn compare(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let min_effect = conduct::percentage("--min-effect", Some(args.min_effect))?;
    if !args.command.is_empty() {
        return commands(args);
    }
    let is_stored = |path: &PathBuf| conduct::runs_at(path).is_ok_and(|runs| !runs.is_empty());
    let paths = |names: &[String]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    let (of, versus) = (paths(&args.of), paths(&args.versus));
    let any_is_stored = of.iter().chain(&versus).any(is_stored);
    if args.cells.is_some() || sides(args)?.is_some() {
        let is_study = of.len() == 1 && versus.is_empty();
        // A folder of runs may have a study's name.
        return match is_study && (!any_is_stored || studies::find(&args.of[0]).is_ok()) {
            true => live(args, &args.of[0], min_effect),
            false => Err(usage(
                "stored runs are compared as they are: --cells, --cell, --a, --b and --with need one study",
            )),
        };
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
    args: &CompareArgs,
    before: &[PathBuf],
    after: &[PathBuf],
    min_effect: Option<f64>,
) -> anyhow::Result<ExitCode> {
    // Refuses a run that is on both sides: it would be equal to itself.
    conduct::directories(&[before, after].concat())?;
    let baseline = Baseline::load(before)?;
    Ok(conduct::stored(Some(&baseline), after, min_effect, &args.telling)?.into())
}

/// Study of a pair, its text and its overrides.
fn pair(
    args: &CompareArgs,
    named: &str,
    min_effect: Option<f64>,
) -> anyhow::Result<(Study, String, Overrides)> {
    let sides = match (&args.cells, sides(args)?) {
        (Some(cells), _) => Sides::Cells(cells[0].clone(), cells[1].clone()),
        (None, Some(sides)) => sides,
        (None, None) => {
            return Err(usage(
                "nothing to compare: expected --cells \"CELL\" \"CELL\", --a and --b KNOB=VALUE, or --with tcpcost=PATH",
            ));
        }
    };
    let (study_name, text, file) = studies::find(named)?;
    let mut set = Lab::read(&args.hosts.lab)?.knobs;
    set.extend(conduct::pairs("--set", &args.set)?);
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
    Ok((study, text, overrides))
}

/// Runs a study's cells in turn, and compares them.
fn live(args: &CompareArgs, named: &str, min_effect: Option<f64>) -> anyhow::Result<ExitCode> {
    let (study, text, overrides) = pair(args, named, min_effect)?;
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
        .unwrap_or_else(|| conduct::default_directory(&format!("compare-{}", study.name)));
    let mut store = Directory::create(&path, &text, &overrides)?;
    let exit = conduct::conduct(
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
fn sides(args: &CompareArgs) -> anyhow::Result<Option<Sides>> {
    let program = args.with.as_deref().map(conduct::build).transpose()?;
    if args.a.is_empty() && args.b.is_empty() && program.is_none() {
        return Ok(None);
    }
    Ok(Some(Sides::Set {
        cell: args.cell.clone(),
        a: conduct::pairs("--a", &args.a)?,
        b: conduct::pairs("--b", &args.b)?,
        program,
    }))
}

/// Compares two commands.
fn commands(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let time = units::duration(&args.time)
        .map_err(|error| usage(format!("--time {}: expected {error}", args.time)))?;
    let output = args.telling.output.clone().into_formats_of();
    let output = output.map_err(|error| usage(format!("two commands: {error}")))?;
    let stat = StatArgs {
        syscalls: false,
        repetitions: u32::MAX,
        target: Target::default(),
        min_effect: args.min_effect,
        seed: args.seed,
        output,
        command: args.command.clone(),
    };
    tcpcost_observe::compare(&stat, time).map(exit_code)
}

/// Returns the exit code of `stat`, or of a comparison of two commands.
pub fn exit_code(end: End) -> ExitCode {
    match end {
        End::Code(code) => code.into(),
        End::Decided(decision) => results::exit_of(decision).into(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use clap::FromArgMatches;

    use super::*;
    use crate::cli::{Cli, Command};

    /// Checks that `compare` takes a command line, and that its study has the pair.
    pub(crate) fn check(words: &[String]) -> Result<(), String> {
        let matches = crate::screen::command().try_get_matches_from(words);
        let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
        match cli.map_err(|error| error.to_string())?.command {
            Command::Compare(args) => pair(&args, &args.of[0], Some(0.01))
                .map(|_| ())
                .map_err(|error| error.to_string()),
            _ => Err("not a comparison".to_string()),
        }
    }
}
