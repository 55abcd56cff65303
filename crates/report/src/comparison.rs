//! Two cells of which somebody wants to know whether the second costs more: a verdict, and what moved with it.

use tcpcost_study::{Derived, Figure, Study};

use crate::cell::CellSummary;
use crate::comparable::{Incomparable, is_per_transaction};
use crate::contrast::Contrast;
use crate::copy_path;
use crate::decision::{Decision, pairs_needed};
use crate::effects::{is_seen, row};
use crate::estimate::Estimate;
use crate::regime::{self, Regime};
use crate::stored::{Shift, StoredRuns, holm};

/// A verdict on two cells.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The first.
    pub from: String,
    /// The second.
    pub to: String,
    /// What is compared of them.
    pub basis: Basis,
    /// The least difference that matters, over the first.
    pub min_effect: f64,
    /// The quantity that decides: the main one, or instructions where time cannot decide and they can.
    pub quantity: Derived,
    /// Second to first.
    pub contrast: Option<Contrast>,
    /// What is decided.
    pub decision: Decision,
    /// Where nothing is: about how many pairs would do.
    pub pairs_needed: Option<usize>,
    /// Of instructions, and of one setting: the count whose number was another, so that nothing is decided.
    pub regime: Option<Regime>,
    /// Why nothing is decided of cells whose quantity must not be related.
    pub incomparable: Option<Incomparable>,
    /// Other quantities that both have, second to first, each with an interval of its own.
    pub causes: Vec<(Derived, Contrast)>,
}

/// What is compared of two cells.
#[derive(Debug, Clone, PartialEq)]
pub enum Basis {
    /// Pairs of trials that ran in turn.
    Pairs,
    /// Boots of guests whose clock counts instructions: no trial shares the state of a machine with another one.
    Boots,
    /// Stored runs: the change of a cell against the other cells of its study.
    Runs(StoredVerdict),
}

/// What is known of a verdict on stored runs besides its interval.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredVerdict {
    /// Runs before the change.
    pub before: usize,
    /// Runs after it.
    pub after: usize,
    /// Cells that every run has.
    pub cells: usize,
    /// How many times as much all cells together cost after as before. Its interval is there only if the runs alternated.
    pub level: Option<Estimate>,
    /// True if that is too far for cells to be compared.
    pub is_too_far: bool,
    /// True if this is the verdict on that, not on a cell.
    pub is_of_level: bool,
    /// True if the change stands among those of all cells, by Holm's rule: the exit code follows such verdicts alone.
    pub stands: bool,
    /// The smallest change that these runs could show, over 1.
    pub visible: Option<f64>,
    /// About how many runs of each, in turn, would show a change of 20 %.
    pub runs_needed: Option<usize>,
    /// The command that decides.
    pub to_decide: String,
}

/// Earlier runs that a run is compared with.
#[derive(Debug, Clone, Copy)]
pub struct Earlier<'a, S> {
    /// The earlier runs.
    pub runs: &'a [S],
    /// Other runs after the change.
    pub beside: &'a [S],
    /// The smallest difference that matters, over 1.
    pub min_effect: f64,
    /// The study as a command line takes it.
    pub study: &'a str,
    /// What was changed of it, as flags of `compare`, each after a space.
    pub for_compare: &'a str,
    /// The same as flags of `run`.
    pub for_run: &'a str,
    /// The directory of the earlier runs.
    pub directory: &'a str,
}

/// Instructions are the same on a busy machine and on a quiet one, so they may decide where time cannot.
const INSTRUCTIONS: [Figure; 2] = [
    Figure::InstructionsPerKib,
    Figure::InstructionsPerTransaction,
];

/// Where instructions went.
const CONTEXTS: [Figure; 12] = [
    Figure::MemoryInstructionsPerKib,
    Figure::MemoryInstructionsPerTransaction,
    Figure::TaskInstructionsPerKib,
    Figure::NetRxInstructionsPerKib,
    Figure::DeferredInstructionsPerKib,
    Figure::HardirqInstructionsPerKib,
    Figure::ThreadInstructionsPerKib,
    Figure::TaskInstructionsPerTransaction,
    Figure::NetRxInstructionsPerTransaction,
    Figure::DeferredInstructionsPerTransaction,
    Figure::HardirqInstructionsPerTransaction,
    Figure::ThreadInstructionsPerTransaction,
];

impl Comparison {
    /// The decision that exit codes and results of tests follow: a change of one cell of many counts only if it stands among
    /// those of all.
    pub fn final_decision(&self) -> Decision {
        match (&self.basis, self.decision) {
            (Basis::Runs(stored), Decision::Regresses) if !stored.stands => Decision::Inconclusive,
            (_, decision) => decision,
        }
    }

    /// `contrast` compares the cells, however they were run; `main` decides where it can.
    pub(crate) fn new(
        from: &CellSummary,
        to: &CellSummary,
        main: Derived,
        basis: Basis,
        min_effect: f64,
        contrast: impl Fn(Derived) -> Option<Contrast>,
    ) -> Comparison {
        let incomparable = Incomparable::of(from, to, main);
        let decide = |quantity: Derived| {
            let contrast = contrast(quantity).filter(|_| incomparable.is_none());
            let decision = contrast.map_or(Decision::Inconclusive, |contrast| {
                Decision::of(&contrast.ratio, min_effect)
            });
            (quantity, contrast, decision)
        };
        let decided = |(.., decision): &(_, _, Decision)| *decision != Decision::Inconclusive;
        let by_time = decide(main);
        let by_instructions = || {
            if incomparable.is_some() || copy_path::differs(from, to).is_some() {
                return None;
            }
            let counts = INSTRUCTIONS.map(|kind| Derived { kind, ..main });
            counts.into_iter().map(decide).find(decided)
        };
        let (quantity, contrast_of, decision) = match decided(&by_time) {
            true => by_time,
            false => by_instructions().unwrap_or(by_time),
        };
        // What is set otherwise may be meant to make another number of ACKs.
        let regime = (from.knobs == to.knobs)
            .then(|| regime::differs(from, to, quantity, min_effect))
            .flatten();
        let decision = match regime {
            Some(_) => Decision::Inconclusive,
            None => decision,
        };
        // Requests have bytes, too; what a byte costs is then no cause.
        let is_of_its_unit = |kind: Figure| {
            !kind.name().contains("instructions_per_")
                || is_per_transaction(kind) == from.has_transactions()
        };
        let is_cause = |of: &&Derived| {
            let kind = of.kind;
            **of != quantity
                && is_of_its_unit(kind)
                && (INSTRUCTIONS.contains(&kind)
                    || CONTEXTS.contains(&kind)
                    || **of == main
                    || row(kind).is_some())
        };
        let causes = from.estimates.keys().filter(is_cause);
        Comparison {
            from: from.name.clone(),
            to: to.name.clone(),
            pairs_needed: match (decision, &basis) {
                // More trials would be of these two regimes, too; and more trials of a stored run have its level, too.
                (Decision::Inconclusive, Basis::Pairs | Basis::Boots) if regime.is_none() => {
                    contrast_of.and_then(|contrast| pairs_needed(&contrast.ratio, min_effect))
                }
                _ => None,
            },
            basis,
            min_effect,
            quantity,
            contrast: contrast_of,
            decision,
            regime,
            incomparable,
            causes: causes
                .filter(|of| is_seen(**of, [from, to]))
                .filter_map(|&of| Some((of, contrast(of)?)))
                .collect(),
        }
    }
}

/// Each cell of a run against the cell of earlier runs with the same name and knobs. Runs that alternated have a verdict on all
/// cells together as well.
pub(crate) fn against_baseline(
    cells: &[CellSummary],
    runs: &StoredRuns<'_>,
    min_effect: f64,
    to_decide: impl Fn(&str, Option<usize>) -> String,
) -> Vec<Comparison> {
    let level = runs.common();
    let n_cells = runs.n_cells();
    let is_too_far = runs.are_too_unlike();
    let verdict = |shift: Option<Shift>, is_of_level: bool, cell: &str| {
        let runs_needed = shift.and_then(|shift| shift.runs_needed());
        Basis::Runs(StoredVerdict {
            before: runs.before.len(),
            after: runs.after.len(),
            cells: n_cells,
            level: level.map(|level| level.contrast().ratio),
            is_too_far,
            is_of_level,
            stands: false,
            visible: shift.and_then(|shift| Some(shift.half_width()?.exp_m1())),
            runs_needed,
            to_decide: to_decide(cell, runs_needed),
        })
    };
    let mut all = Vec::new();
    let mut shifts = Vec::new();
    for cell in cells {
        let Some(earlier) = runs.earlier(cell) else {
            continue;
        };
        if earlier.counts_instructions && cell.counts_instructions {
            let contrast = |of| runs.of_boots(cell, of);
            all.push(Comparison::new(
                earlier,
                cell,
                earlier.main,
                Basis::Boots,
                min_effect,
                contrast,
            ));
            shifts.push(None);
            continue;
        }
        let main = runs.main(cell);
        let change = runs.against_others(cell, main);
        let contrast = |of: Derived| {
            let is_cost = of == main || INSTRUCTIONS.contains(&of.kind);
            let shift = match is_cost {
                true => runs.against_others(cell, of),
                false => runs.by_itself(cell, of),
            };
            shift.map(|shift| shift.contrast())
        };
        let basis = verdict(change, false, &cell.name);
        let one = Comparison::new(earlier, cell, main, basis, min_effect, contrast);
        shifts.push(runs.against_others(cell, one.quantity));
        all.push(one);
    }
    for one in &mut all {
        one.from += ", before";
    }
    let of_level = level.filter(Shift::has_error).zip(cells.first());
    if let Some((level, first)) = of_level {
        let contrast = level.contrast();
        all.push(Comparison {
            from: "all cells, before".to_string(),
            to: "all cells".to_string(),
            basis: verdict(Some(level), true, &first.name),
            min_effect,
            quantity: first.main,
            contrast: Some(contrast),
            decision: Decision::of(&contrast.ratio, min_effect),
            pairs_needed: None,
            regime: None,
            incomparable: None,
            causes: Vec::new(),
        });
        shifts.push(Some(level));
    }
    let values: Vec<f64> = shifts
        .iter()
        .flatten()
        .map(|shift| shift.p_value(1.0))
        .collect();
    let mut stand = holm(&values).into_iter();
    for (one, _) in all
        .iter_mut()
        .zip(&shifts)
        .filter(|(_, shift)| shift.is_some())
    {
        if let (Basis::Runs(stored), Some(stands)) = (&mut one.basis, stand.next()) {
            stored.stands = stands;
        }
    }
    all
}

/// Those that the study asks for.
pub(crate) fn comparisons(study: &Study, cells: &[CellSummary]) -> Vec<Comparison> {
    let named = |name: &str| cells.iter().find(|cell| cell.name == name);
    let pairs = study.comparisons.iter();
    let pairs = pairs.filter_map(|pair| Some((named(&pair.from)?, named(&pair.to)?)));
    pairs
        .map(|(from, to)| {
            let contrast = |of| Contrast::new(from, to, of);
            Comparison::new(
                from,
                to,
                from.main,
                Basis::Pairs,
                study.measure.min_effect,
                contrast,
            )
        })
        .collect()
}
