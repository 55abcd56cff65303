//! Comparison of two cells: a decision on whether the second costs more, and other quantities that changed.

use serde::Serialize;
use tcpcost_study::{Derived, Figure, Study};

use crate::derive::cell::CellSummary;
use crate::derive::contrast::Contrast;
use crate::derive::estimate::Estimate;
use crate::judge::comparable::{Incomparable, is_per_transaction};
use crate::judge::copy_path;
use crate::judge::decision::{Decision, pairs_needed};
use crate::judge::effects::{SHARE_LEAST, is_seen, price};
use crate::judge::regime::{self, Regime};
use crate::judge::stored::{Shift, StoredRuns, holm};

/// A decision on two cells.
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
    /// The decision.
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
    /// Guests whose clock counts instructions. Each trial of a cell is of a snapshot of its own.
    Guests,
    /// Stored runs: the change of a cell, compared with the other cells of its study.
    Runs(StoredDecision),
}

/// Details of a decision on stored runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoredDecision {
    /// Runs before the change.
    pub before: usize,
    /// Runs after the change.
    pub after: usize,
    /// Number of cells that every run has.
    pub cells: usize,
    /// Ratio of the cost of all cells together, after over before. It has an interval only if the runs
    /// alternated.
    #[serde(rename = "level_ratio")]
    pub level: Option<Estimate>,
    /// True if `level` changed too much for cells to be compared.
    #[serde(skip)]
    pub is_too_far: bool,
    /// True if this is the decision on `level`, not on a cell.
    #[serde(skip)]
    pub is_of_level: bool,
    /// True if the change is significant among those of all cells, by Holm's rule. The exit code follows only
    /// such decisions.
    pub stands: bool,
    /// Smallest change that these runs could show, as a fraction.
    #[serde(rename = "visible_ratio")]
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
        let causes = from.estimates.keys().filter(|of| {
            let may_be = **of == main || is_cause(of.kind, from.has_transactions());
            let is_told = is_seen(**of, [from, to])
                && is_large_enough(**of, quantity, [from, to], min_effect);
            **of != quantity && may_be && is_told
        });
        Comparison {
            from: from.name.clone(),
            to: to.name.clone(),
            pairs_needed: match (decision, &basis) {
                // More trials would have the same two regimes, and more trials of a stored run would have its
                // level.
                (Decision::Inconclusive, Basis::Pairs | Basis::Guests) if regime.is_none() => {
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
            causes: causes.filter_map(|&of| Some((of, contrast(of)?))).collect(),
        }
    }
}

/// True unless the quantity is a part of a cost in instructions, and its change is too small to be a part of a
/// change that matters.
fn is_large_enough(
    of: Derived,
    cost: Derived,
    [from, to]: [&CellSummary; 2],
    min_effect: f64,
) -> bool {
    let counts = |of: Derived| of.kind.unit().starts_with("instructions");
    let median = |cell: &CellSummary, of| cell.estimates.get(&of).map_or(0.0, |one| one.median);
    let moved = (median(to, of) - median(from, of)).abs();
    !(counts(of) && counts(cost)) || moved >= SHARE_LEAST * min_effect * median(from, cost)
}

/// True if a change of this figure may be a cause of a change of the cost. A cost per byte is none if the cells
/// have transactions, although requests have bytes.
fn is_cause(kind: Figure, has_transactions: bool) -> bool {
    match kind.unit().starts_with("instructions") {
        true => is_per_transaction(kind) == has_transactions,
        false => price(kind).is_some(),
    }
}

/// Compares each cell of a run with the cell of earlier runs with the same name and knobs. Runs that
/// alternated also have a decision on all cells together.
pub(crate) fn against_baseline(
    cells: &[CellSummary],
    runs: &StoredRuns<'_>,
    min_effect: f64,
    to_decide: impl Fn(&str, Option<usize>) -> String,
) -> Vec<Comparison> {
    let baseline = Baseline {
        runs,
        level: runs.common(),
        n_cells: runs.n_cells(),
        is_too_far: runs.are_too_unlike(),
        min_effect,
        to_decide,
    };
    let of_cells = cells.iter().filter_map(|cell| baseline.cell(cell));
    let of_level = cells.first().and_then(|first| baseline.level(first));
    let mut all: Vec<(Comparison, Option<Shift>)> = of_cells.chain(of_level).collect();
    let shifts = all.iter().filter_map(|(_, shift)| *shift);
    let values: Vec<f64> = shifts.map(|shift| shift.p_value(1.0)).collect();
    let judged = all.iter_mut().filter(|(_, shift)| shift.is_some());
    for ((one, _), stands) in judged.zip(holm(&values)) {
        if let Basis::Runs(stored) = &mut one.basis {
            stored.stands = stands;
        }
    }
    all.into_iter().map(|(one, _)| one).collect()
}

/// Earlier runs that cells are compared with.
struct Baseline<'a, F> {
    runs: &'a StoredRuns<'a>,
    /// Change of all cells together.
    level: Option<Shift>,
    n_cells: usize,
    is_too_far: bool,
    min_effect: f64,
    to_decide: F,
}

impl<F: Fn(&str, Option<usize>) -> String> Baseline<'_, F> {
    /// Comparison of a cell, with the change that may be significant. `None` if the earlier runs lack the cell.
    fn cell(&self, cell: &CellSummary) -> Option<(Comparison, Option<Shift>)> {
        let runs = self.runs;
        let earlier = runs.earlier(cell)?;
        let (mut one, shift) = if earlier.counts_instructions && cell.counts_instructions {
            let contrast = |of| runs.of_guests(cell, of);
            let (main, basis) = (earlier.main, Basis::Guests);
            let one = Comparison::new(earlier, cell, main, basis, self.min_effect, contrast);
            (one, None)
        } else {
            let main = runs.main(cell);
            let contrast = |of: Derived| {
                let is_cost = of == main || INSTRUCTIONS.contains(&of.kind);
                let shift = match is_cost {
                    true => runs.against_others(cell, of),
                    false => runs.by_itself(cell, of),
                };
                shift.map(|shift| shift.contrast())
            };
            let basis = self.basis(runs.against_others(cell, main), false, &cell.name);
            let one = Comparison::new(earlier, cell, main, basis, self.min_effect, contrast);
            let shift = runs.against_others(cell, one.quantity);
            (one, shift)
        };
        one.from += ", before";
        Some((one, shift))
    }

    /// Comparison of all cells together. `None` unless the runs alternated.
    fn level(&self, first: &CellSummary) -> Option<(Comparison, Option<Shift>)> {
        let level = self.level.filter(Shift::has_error)?;
        let contrast = level.contrast();
        let one = Comparison {
            from: "all cells, before".to_string(),
            to: "all cells".to_string(),
            basis: self.basis(Some(level), true, &first.name),
            min_effect: self.min_effect,
            quantity: first.main,
            contrast: Some(contrast),
            decision: Decision::of(&contrast.ratio, self.min_effect),
            pairs_needed: None,
            regime: None,
            incomparable: None,
            causes: Vec::new(),
        };
        Some((one, Some(level)))
    }

    fn basis(&self, shift: Option<Shift>, is_of_level: bool, cell: &str) -> Basis {
        let runs_needed = shift.and_then(|shift| shift.runs_needed());
        Basis::Runs(StoredDecision {
            before: self.runs.before.len(),
            after: self.runs.after.len(),
            cells: self.n_cells,
            level: self.level.map(|level| level.contrast().ratio),
            is_too_far: self.is_too_far,
            is_of_level,
            stands: false,
            visible: shift.and_then(|shift| Some(shift.half_width()?.exp_m1())),
            runs_needed,
            to_decide: (self.to_decide)(cell, runs_needed),
        })
    }
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
