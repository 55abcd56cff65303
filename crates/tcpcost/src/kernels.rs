//! `tcpcost kernels` compares two kernels by instructions. `tcpcost kernels bisect` judges one kernel for `git bisect run`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};
use tcpcost_conduct::{
    self as conduct, ByFunction, Consent, ExactInstructions, Overrides, StoredRun, Telling,
    default_directory, results, studies,
};
use tcpcost_console::exit::{Exit, line, usage};
use tcpcost_console::output;
use tcpcost_console::values::at_least_one;
use tcpcost_guest::{GuestError, Kernel, Snapshots};
use tcpcost_report::{Decision, Earlier, Summary};

/// Options of `kernels` that `kernels bisect` has, too.
const OF_BOTH: [&str; 7] = [
    "repetitions",
    "jobs",
    "allow_exec",
    "min_effect",
    "out",
    "format",
    "output",
];

/// `tcpcost kernels`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    mut_args(|arg| if OF_BOTH.contains(&arg.get_id().as_str()) { arg.global(true) } else { arg }),
    after_long_help = "A kernel is a package (.deb), a directory with boot/vmlinuz-*, a build tree, or an image."
)]
pub struct KernelsArgs {
    /// The kernel that B is compared with.
    #[arg(required = true)]
    pub a: Option<PathBuf>,
    /// The other kernel.
    #[arg(required = true)]
    pub b: Option<PathBuf>,
    /// Studies, by name or file.
    #[arg(value_name = "STUDY", default_value = "cost-of-tcp")]
    pub studies: Vec<String>,
    /// Snapshots of each kernel, booted with a seed each; from two on there is an interval [default: 3].
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: Option<u32>,
    /// Guests at the same time [default: one for each CPU].
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub jobs: Option<usize>,
    /// Let commands of the study run in the guests: `exec:…`, `attach:…`.
    #[arg(long)]
    pub allow_exec: bool,
    /// Least difference that matters, in percent [default: 0.1, of bisect the baseline's].
    #[arg(long, value_name = "PERCENT")]
    pub min_effect: Option<f64>,
    /// Set a knob in every cell; may be repeated.
    #[arg(long, value_name = "KNOB=VALUE")]
    pub set: Vec<String>,
    /// Options for both kernels' command lines, e.g. `mitigations=auto`; they follow those of every guest.
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub append: Option<String>,
    /// Run a command in each guest before it is saved: e.g. `nft -f rules.nft`, as of `tcpcost run`.
    #[arg(long, value_name = "COMMAND")]
    pub init: Vec<String>,
    /// Seed of the snapshots [default: the study's].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Directory for the records; trials that are there are not repeated [default: tcpcost-out/kernels-TIME, of bisect none].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Remove the saved guests, which the next command would use.
    #[arg(long, exclusive = true)]
    pub clean: bool,
    /// Formats of the results.
    #[command(flatten)]
    pub telling: Telling,
    /// Another question about kernels.
    #[command(subcommand)]
    pub command: Option<KernelsCommand>,
}

/// Commands of `tcpcost kernels`.
#[derive(Debug, Subcommand)]
pub enum KernelsCommand {
    /// Judge the kernel built in a tree, for `git bisect run`.
    Bisect(Box<BisectArgs>),
}

/// `tcpcost kernels bisect`.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Example, in a kernel tree, v6.12 being good and HEAD bad:\n  make bzImage modules && tcpcost run cost-of-tcp --guest=. --out /tmp/good    at v6.12\n  git bisect start HEAD v6.12\n  git bisect run sh -c 'make -s olddefconfig bzImage modules || exit 125; tcpcost kernels bisect . --baseline /tmp/good'"
)]
pub struct BisectArgs {
    /// The kernel: its build tree, or another form that `kernels` takes.
    pub tree: PathBuf,
    /// Directory of the run of a good kernel, with --guest.
    #[arg(long, value_name = "DIR")]
    pub baseline: PathBuf,
    /// Run this cell alone, and judge by it.
    #[arg(long, value_name = "NAME")]
    pub cell: Option<String>,
}

/// Exit code that tells `git bisect run` to skip a commit.
const SKIP_COMMIT: u8 = 125;
/// Exit code that ends `git bisect run`: it takes 1 to 127 as a word on the commit.
pub const END_BISECT: u8 = 128;
/// Least difference that matters, in percent.
const MIN_EFFECT: f64 = 0.1;

/// Runs `tcpcost kernels A B [STUDY…]`.
pub fn kernels(args: &KernelsArgs) -> anyhow::Result<Exit> {
    if args.clean {
        return clean();
    }
    let min_effect = args.min_effect.unwrap_or(MIN_EFFECT);
    let min_effect = conduct::percentage("--min-effect", Some(min_effect))?;
    let out = match &args.out {
        Some(out) => out.clone(),
        None => default_directory("kernels"),
    };
    let interrupt = conduct::requests_to_stop()?;
    let mut summaries = Vec::new();
    let mut differences = Vec::new();
    let find =
        |kernel: &Option<PathBuf>| Kernel::find(kernel.as_deref()).map_err(conduct::unavailable);
    let (a, b) = (find(&args.a)?, find(&args.b)?);
    let is_one = is_one_kernel(&a, &b)?;
    tell_configs(&a, &b, args.telling.quiet);
    for named in &args.studies {
        let (name, text, file) = studies::find(named)?;
        let mut pair = Vec::new();
        for (letter, kernel, is_second) in [("a", &args.a, false), ("b", &args.b, true)] {
            let kernel = kernel.as_ref().expect("clap asks for both");
            let mut overrides = Overrides {
                study: name.clone(),
                set: conduct::pairs("--set", &args.set)?,
                repetitions: Some(args.repetitions.unwrap_or(conduct::SNAPSHOTS)),
                seed: args.seed,
                min_effect,
                exact_instructions: Some(ExactInstructions::InGuests(Some(kernel.clone()))),
                append: args.append.clone(),
                init: args.init.clone(),
                caches: None,
                ..Overrides::default()
            };
            if is_one && is_second {
                // With the same seeds the kernel would be compared with its own copy.
                let seed = overrides.apply(&text, &file)?.measure.seed;
                overrides.seed = Some(seed + 1);
            }
            let path = out.join(format!("{name}-{letter}"));
            let source = conduct::Source {
                text: &text,
                file: &file,
            };
            let consent = Consent::new(args.allow_exec).with_typed(&overrides);
            let ran = conduct::in_guests(
                &path,
                &source,
                &overrides,
                &consent,
                args.jobs,
                &interrupt,
                args.telling.quiet,
            );
            match ran? {
                Some(summary) => pair.push(summary),
                None => return Ok(Exit::Interrupted),
            }
        }
        let second = pair.pop().expect("there are two");
        let first = pair.pop().expect("there are two");
        let at = |letter: &str| ByFunction::load(&out.join(format!("{name}-{letter}")));
        if let Some((before, after)) = at("a").zip(at("b")) {
            let cells = second.cells.iter();
            differences.extend(cells.map(|cell| after.difference(&before, &cell.name)));
        }
        summaries.push(judged(second, &first));
    }
    results::print(&summaries, &args.telling.output)?;
    if args.telling.output.is_text() {
        let shown = differences.iter().filter(|text| !text.is_empty());
        let shown: Vec<String> = shown.map(|text| format!("\n{text}")).collect();
        output::write(&shown.concat())?;
    }
    let exits: Vec<Exit> = summaries.iter().map(results::exit).collect();
    let worst = [
        Exit::Failed,
        Exit::Unavailable,
        Exit::Missed,
        Exit::Inconclusive,
    ];
    let shown = worst.into_iter().find(|exit| exits.contains(exit));
    Ok(shown.unwrap_or(Exit::Ok))
}

/// True if two kernels are the same image.
fn is_one_kernel(a: &Kernel, b: &Kernel) -> anyhow::Result<bool> {
    let content = |kernel: &Kernel| {
        let image = &kernel.image;
        std::fs::read(image).with_context(|| format!("read {}", image.display()))
    };
    Ok(content(a)? == content(b)?)
}

/// Says before the first trial in which options the kernels differ.
fn tell_configs(a: &Kernel, b: &Kernel, is_quiet: bool) {
    const SHOWN: usize = 8;
    if let (Some(before), Some(after), false) = (a.config(), b.config(), is_quiet) {
        let changed = after.difference(&before);
        if !changed.is_empty() {
            let more = changed.len().saturating_sub(SHOWN);
            let shown = changed[..changed.len() - more].join(", ");
            let more = if more > 0 {
                format!(", and {more} more")
            } else {
                String::new()
            };
            output::say!("the kernels' .config differ: {shown}{more}");
        }
    }
}

/// Runs `tcpcost kernels --clean`.
fn clean() -> anyhow::Result<Exit> {
    let snapshots = Snapshots::open().map_err(conduct::unavailable)?;
    let mib = snapshots.clean() >> 20;
    output::say!("tcpcost: {mib} MiB of saved guests removed");
    Ok(Exit::Ok)
}

/// Adds to the second summary its verdicts against the first.
fn judged(mut second: Summary, first: &Summary) -> Summary {
    second.hold_against(&Earlier {
        runs: std::slice::from_ref(first),
        beside: &[],
        min_effect: second.study.measure.min_effect,
        study: &first.study.name,
        for_compare: "",
        for_run: "",
        directory: "",
    });
    second
}

/// Runs `tcpcost kernels bisect`. Returns 0 if the kernel is as good as the baseline, 1 if it costs more, 125 if undecided: no
/// boot, or no verdict; 128, as for any error, if the command was stopped.
///
/// # Errors
/// The command itself failed.
pub fn bisect(args: &KernelsArgs, asked: &BisectArgs) -> anyhow::Result<u8> {
    let min_effect = conduct::percentage("--min-effect", args.min_effect)?;
    let before = StoredRun::load(&asked.baseline)?;
    if before.overrides.exact_instructions.is_none() {
        return Err(usage(format!(
            "--baseline {}: not a run with --guest",
            asked.baseline.display()
        )));
    }
    let overrides = Overrides {
        repetitions: Some(args.repetitions.unwrap_or(conduct::SNAPSHOTS)),
        min_effect: min_effect.or(before.overrides.min_effect),
        cells: asked.cell.iter().cloned().collect(),
        exact_instructions: Some(ExactInstructions::InGuests(Some(asked.tree.clone()))),
        ..before.overrides.clone()
    };
    let folder = tempfile::tempdir()?;
    let path = args
        .out
        .clone()
        .unwrap_or_else(|| folder.path().join("run"));
    // A tree without a built kernel must not make the commit bad.
    if let Err(error) = Kernel::find(Some(&asked.tree)) {
        output::say!("tcpcost: {error}");
        return Ok(SKIP_COMMIT);
    }
    let now = match measured(&path, &before, &overrides, args, asked) {
        Ok(Some(now)) => now,
        Ok(None) => return Ok(END_BISECT),
        // A commit that does not boot is neither good nor bad.
        Err(error) if matches!(error.downcast_ref(), Some(GuestError::DidNotComeUp(_))) => {
            output::say!("tcpcost: {}", line(&error));
            return Ok(SKIP_COMMIT);
        }
        Err(error) => return Err(error),
    };
    let now = judged(now, &before.summary());
    results::print(std::slice::from_ref(&now), &args.telling.output)?;
    Ok(judge(
        now.comparisons.iter().map(|one| one.final_decision()),
    ))
}

fn measured(
    path: &Path,
    before: &StoredRun,
    overrides: &Overrides,
    args: &KernelsArgs,
    asked: &BisectArgs,
) -> anyhow::Result<Option<Summary>> {
    let file = asked.baseline.display().to_string();
    let source = conduct::Source {
        text: &before.text,
        file: &file,
    };
    let interrupt = conduct::requests_to_stop()?;
    let typed = Overrides {
        exact_instructions: overrides.exact_instructions.clone(),
        ..Overrides::default()
    };
    let consent = Consent::new(args.allow_exec).with_typed(&typed);
    conduct::in_guests(
        path,
        &source,
        overrides,
        &consent,
        args.jobs,
        &interrupt,
        args.telling.quiet,
    )
}

/// Exit code for the decisions on all cells: bad if any cell costs more, else undecided if any is inconclusive, else good.
fn judge(decisions: impl Iterator<Item = Decision>) -> u8 {
    let decisions: Vec<Decision> = decisions.collect();
    if decisions.contains(&Decision::Regresses) {
        1
    } else if decisions.is_empty() || decisions.contains(&Decision::Inconclusive) {
        SKIP_COMMIT
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_bisect_hears_good_bad_or_cannot_tell() {
        use Decision::{Equivalent, Improves, Inconclusive, Regresses};
        assert_eq!(judge([Equivalent, Improves].into_iter()), 0);
        assert_eq!(judge([Inconclusive, Regresses].into_iter()), 1);
        assert_eq!(judge([Equivalent, Inconclusive].into_iter()), 125);
        assert_eq!(judge([].into_iter()), 125);
    }
}
