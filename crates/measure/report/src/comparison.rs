//! Comparison of two cells: a verdict on whether the second costs more, and other quantities that changed.

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
    /// Name of the first cell.
    pub from: String,
    /// Name of the second cell.
    pub to: String,
    /// Trials that are compared.
    pub basis: Basis,
    /// Smallest difference that matters, as a fraction of the first.
    pub min_effect: f64,
    /// Quantity that decides: the main one, or instructions if time cannot decide and instructions can.
    pub quantity: Derived,
    /// Ratio of the second cell to the first.
    pub contrast: Option<Contrast>,
    /// The verdict.
    pub decision: Decision,
    /// Estimated total number of pairs for a decision. `None` if there is a decision.
    pub pairs_needed: Option<usize>,
    /// Count that differs between two cells of one setting whose instructions are compared. If set, nothing
    /// is decided.
    pub regime: Option<Regime>,
    /// Reason why the cells cannot be compared. If set, nothing is decided.
    pub incomparable: Option<Incomparable>,
    /// Other quantities that both cells have, as ratios of the second to the first, each with its own
    /// interval.
    pub causes: Vec<(Derived, Contrast)>,
}

/// Trials that are compared of two cells.
#[derive(Debug, Clone, PartialEq)]
pub enum Basis {
    /// Pairs of trials that ran in turn.
    Pairs,
    /// Boots of guests whose clock counts instructions. No two trials share the state of a machine.
    Boots,
    /// Stored runs: the change of a cell, compared with the other cells of its study.
    Runs(StoredVerdict),
}

/// Details of a verdict on stored runs.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredVerdict {
    /// Runs before the change.
    pub before: usize,
    /// Runs after the change.
    pub after: usize,
    /// Number of cells that every run has.
    pub cells: usize,
    /// Ratio of the cost of all cells together, after over before. It has an interval only if the runs
    /// alternated.
    pub level: Option<Estimate>,
    /// True if `level` changed too much for cells to be compared.
    pub is_too_far: bool,
    /// True if this is the verdict on `level`, not on a cell.
    pub is_of_level: bool,
    /// True if the change is significant among those of all cells, by Holm's rule. The exit code follows only
    /// such verdicts.
    pub stands: bool,
    /// Smallest change that these runs could show, as a fraction.
    pub visible: Option<f64>,
    /// Estimated number of runs before and after, in turn, that would show a change of 20 %.
    pub runs_needed: Option<usize>,
    /// Command that makes the runs for a decision.
    pub to_decide: String,
}

/// Earlier runs that a run is compared with.
#[derive(Debug, Clone, Copy)]
pub struct Earlier<'a, S> {
    /// The earlier runs.
    pub runs: &'a [S],
    /// Other runs after the change.
    pub beside: &'a [S],
    /// Smallest difference that matters, as a fraction.
    pub min_effect: f64,
    /// The study as an argument of the command line.
    pub study: &'a str,
    /// Changes of the study as flags of `compare`, each after a space.
    pub for_compare: &'a str,
    /// Changes of the study as flags of `run`, each after a space.
    pub for_run: &'a str,
    /// The directory of the earlier runs.
    pub directory: &'a str,
}

/// Figures of instructions. They are the same on a busy and on a quiet machine, so they may decide if time
/// cannot.
const INSTRUCTIONS: [Figure; 2] = [
    Figure::InstructionsPerKib,
    Figure::InstructionsPerTransaction,
];

/// Instructions by context.
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
    /// Decision for exit codes and results of tests. A change of one cell counts only if it is significant
    /// among those of all cells.
    pub fn final_decision(&self) -> Decision {
        match (&self.basis, self.decision) {
            (Basis::Runs(stored), Decision::Regresses) if !stored.stands => Decision::Inconclusive,
            (_, decision) => decision,
        }
    }

    /// Compares two cells by `contrast`, however they were run. `main` decides if it can.
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
        // Cells with different settings may make a different number of ACKs on purpose.
        let regime = (from.knobs == to.knobs)
            .then(|| regime::differs(from, to, quantity, min_effect))
            .flatten();
        let decision = match regime {
            Some(_) => Decision::Inconclusive,
            None => decision,
        };
        // A cost per byte is no cause if the cells have transactions, although requests have bytes.
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
                // More trials would have the same two regimes, and more trials of a stored run would have its
                // level.
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

/// Compares each cell of a run with the cell of earlier runs with the same name and knobs. Runs that
/// alternated also have a verdict on all cells together.
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

/// Comparisons that the study asks for.
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
