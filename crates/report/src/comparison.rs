//! Two cells of which somebody wants to know whether the second costs more: a verdict, and what moved with it.

use tcpcost_study::{Derived, Figure, Study};

use crate::cell::CellSummary;
use crate::contrast::Contrast;
use crate::copy_path;
use crate::decision::{Decision, pairs_needed};
use crate::effects::{is_seen, row};
use crate::regime::{self, Regime};

/// A verdict on two cells.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The first.
    pub from: String,
    /// The second.
    pub to: String,
    /// Whether their trials ran in turn; else the ratio of the machine's states at both times is in it.
    pub is_paired: bool,
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
    /// Where instructions would decide: the knob by which the two copy payload more or less often, so that they decide nothing.
    pub copies_differ_in: Option<String>,
    /// Other quantities that both have, second to first, each with an interval of its own.
    pub causes: Vec<(Derived, Contrast)>,
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
    /// `contrast` holds the cells against each other, however they were run.
    pub(crate) fn new(
        from: &CellSummary,
        to: &CellSummary,
        is_paired: bool,
        min_effect: f64,
        contrast: impl Fn(Derived) -> Option<Contrast>,
    ) -> Comparison {
        let decide = |quantity: Derived| {
            let contrast = contrast(quantity);
            let decision = contrast.map_or(Decision::Inconclusive, |contrast| {
                Decision::of(&contrast.ratio, min_effect)
            });
            (quantity, contrast, decision)
        };
        let decided = |(.., decision): &(_, _, Decision)| *decision != Decision::Inconclusive;
        let by_time = decide(from.main);
        let copies = copy_path::differs(from, to);
        let by_instructions = || {
            if copies.is_some() {
                return None;
            }
            let counts = INSTRUCTIONS.map(|kind| Derived { kind, ..from.main });
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
        let is_per_transaction = |kind: Figure| kind.name().ends_with("_per_transaction");
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
                    || **of == from.main
                    || row(kind).is_some())
        };
        let causes = from.estimates.keys().filter(is_cause);
        Comparison {
            from: from.name.clone(),
            to: to.name.clone(),
            is_paired,
            min_effect,
            quantity,
            contrast: contrast_of,
            decision,
            regime,
            copies_differ_in: copies
                .filter(|_| copy_path::refuses(from, to, quantity))
                .map(String::from),
            pairs_needed: match decision {
                // More trials would be of these two regimes, too.
                Decision::Inconclusive if regime.is_none() => {
                    contrast_of.and_then(|contrast| pairs_needed(&contrast.ratio, min_effect))
                }
                _ => None,
            },
            causes: causes
                .filter(|of| is_seen(**of, [from, to]))
                .filter_map(|&of| Some((of, contrast(of)?)))
                .collect(),
        }
    }
}

/// Each cell of a run against the cell of an earlier run with the same name and knobs.
pub(crate) fn against_baseline(
    cells: &[CellSummary],
    baseline: &[CellSummary],
    min_effect: f64,
) -> Vec<Comparison> {
    let same = |cell: &&CellSummary| {
        let mut earlier = baseline.iter();
        earlier.find(|other| other.name == cell.name && other.knobs == cell.knobs)
    };
    let pairs = cells.iter().filter_map(|cell| Some((same(&cell)?, cell)));
    let mut all: Vec<Comparison> = pairs
        .map(|(from, to)| {
            let contrast = |of| Contrast::unpaired(&from.used_values(of), &to.used_values(of));
            Comparison::new(from, to, false, min_effect, contrast)
        })
        .collect();
    for one in &mut all {
        one.from += ", before";
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
            Comparison::new(from, to, true, study.measure.min_effect, contrast)
        })
        .collect()
}
