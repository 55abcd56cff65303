//! `tcpcost kernels` compares two kernels by instructions. `tcpcost kernels bisect` judges one kernel for `git bisect run`.

use std::path::Path;

use tcpcost_guest::Kernel;
use tcpcost_report::{Decision, Earlier, Summary};

use crate::exit::{Exit, usage};
use crate::run::{ByFunction, Consent, ExactInstructions, Overrides, StoredRun, default_directory};
use crate::{cli, output, run, uperf};

/// Exit code that tells `git bisect run` to skip a commit.
const SKIP_COMMIT: u8 = 125;
/// Boots of each kernel, unless `--repetitions` says otherwise.
const REPETITIONS: u32 = 6;
/// Boots of the kernel that `bisect` judges.
const BISECT_REPETITIONS: u32 = 4;
/// Least difference that matters, in percent.
const MIN_EFFECT: f64 = 0.2;

/// Runs `tcpcost kernels A B [STUDY…]`.
pub fn kernels(args: &cli::Kernels) -> anyhow::Result<Exit> {
    let min_effect = args.min_effect.unwrap_or(MIN_EFFECT);
    let min_effect = run::percentage("--min-effect", Some(min_effect))?;
    let out = match &args.out {
        Some(out) => out.clone(),
        None => default_directory("kernels"),
    };
    let interrupt = run::requests_to_stop()?;
    let mut summaries = Vec::new();
    let mut differences = Vec::new();
    for named in &args.studies {
        let (name, text, file) = uperf::find(named)?;
        let mut pair = Vec::new();
        for (letter, kernel) in [("a", &args.a), ("b", &args.b)] {
            let kernel = kernel.as_ref().expect("clap asks for both");
            let overrides = Overrides {
                study: name.clone(),
                set: run::pairs("--set", &args.set)?,
                repetitions: Some(args.repetitions.unwrap_or(REPETITIONS)),
                seed: args.seed,
                min_effect,
                exact_instructions: Some(ExactInstructions::InGuests(Some(kernel.clone()))),
                ..Overrides::default()
            };
            let path = out.join(format!("{name}-{letter}"));
            let source = run::Source {
                text: &text,
                file: &file,
            };
            let consent = Consent::new(args.allow_exec).with_typed(&overrides);
            let ran = run::in_guests(
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
    output::print(&summaries, &args.telling.output)?;
    if args.telling.output.is_text() {
        let shown = differences.iter().filter(|text| !text.is_empty());
        let shown: Vec<String> = shown.map(|text| format!("\n{text}")).collect();
        output::write(&shown.concat())?;
    }
    let exits: Vec<Exit> = summaries.iter().map(output::exit).collect();
    let worst = [
        Exit::Failed,
        Exit::Unavailable,
        Exit::Missed,
        Exit::Inconclusive,
    ];
    let shown = worst.into_iter().find(|exit| exits.contains(exit));
    Ok(shown.unwrap_or(Exit::Ok))
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
/// boot, or no verdict.
pub fn bisect(args: &cli::Kernels, asked: &cli::Bisect) -> anyhow::Result<u8> {
    let min_effect = run::percentage("--min-effect", args.min_effect)?;
    let before = StoredRun::load(&asked.baseline)?;
    if before.overrides.exact_instructions.is_none() {
        return Err(usage(format!(
            "--baseline {}: not a run with --guest",
            asked.baseline.display()
        )));
    }
    let overrides = Overrides {
        repetitions: Some(args.repetitions.unwrap_or(BISECT_REPETITIONS)),
        min_effect: min_effect.or(before.overrides.min_effect),
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
    let now = measured(&path, &before, &overrides, args, asked)?;
    let Some(now) = now else {
        return Ok(Exit::Interrupted as u8);
    };
    let mut now = judged(now, &Summary::new(&before.study, &before.records));
    if let Some(cell) = &asked.cell {
        if !now.cells.iter().any(|one| one.name == *cell) {
            return Err(usage(format!(
                "--cell \"{cell}\": no such cell in this study"
            )));
        }
        let of_cell = format!("{cell}, before");
        now.comparisons.retain(|one| one.from == of_cell);
    }
    output::print(std::slice::from_ref(&now), &args.telling.output)?;
    Ok(judge(
        now.comparisons.iter().map(|one| one.final_decision()),
    ))
}

fn measured(
    path: &Path,
    before: &StoredRun,
    overrides: &Overrides,
    args: &cli::Kernels,
    asked: &cli::Bisect,
) -> anyhow::Result<Option<Summary>> {
    let file = asked.baseline.display().to_string();
    let source = run::Source {
        text: &before.text,
        file: &file,
    };
    let interrupt = run::requests_to_stop()?;
    let typed = Overrides {
        exact_instructions: overrides.exact_instructions.clone(),
        ..Overrides::default()
    };
    let consent = Consent::new(args.allow_exec).with_typed(&typed);
    run::in_guests(
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
