//! Second clock: the same study counted in instructions, for what time leaves undecided.

use std::collections::{BTreeMap, BTreeSet};

use tcpcost_study::{Derived, Figure, Study};

use crate::derive::cell::CellSummary;
use crate::derive::estimate::Estimate;
use crate::judge::conclusions::{Finding, FindingKind, cells_of, conclude};
use crate::judge::effects::{self, Effect};
use crate::judge::held::Held;
use crate::judge::sign::{Sign, is_established};

/// Findings and effects of a study in instructions, beside those in time.
#[derive(Debug, Clone, Default)]
pub struct ByInstructions {
    /// Kernels of the guests.
    pub kernels: BTreeSet<String>,
    /// Findings in instructions, by the index of the finding in time.
    pub findings: BTreeMap<usize, Finding>,
    /// Effects of knobs in instructions.
    pub effects: Vec<Effect>,
    /// Least and largest share, over the cells, of instructions that copy, clear or set memory. `None` if they were not counted.
    pub memory_shares: Option<[f64; 2]>,
}

impl ByInstructions {
    /// Pairs findings and effects in time with those of a run in guests, of which the second tuple has cells, findings and effects.
    pub(crate) fn new(
        (findings, effects): (&[Finding], &[Effect]),
        (cells, by_findings, by_effects): (&[CellSummary], &[Finding], &[Effect]),
        kernels: BTreeSet<String>,
    ) -> ByInstructions {
        let of_time = findings.iter().enumerate();
        let of_time = of_time.filter(|(_, found)| is_change_of_cost(found));
        let same = |effect: &Effect| {
            let mut by = by_effects.iter();
            by.find(|other| {
                other.knob == effect.knob && is_counted(effect.quantity, other.quantity)
            })
        };
        ByInstructions {
            kernels,
            findings: of_time
                .filter_map(|(at, found)| Some((at, counterpart(found, by_findings)?.clone())))
                .collect(),
            effects: effects.iter().filter_map(same).cloned().collect(),
            memory_shares: memory_shares(cells),
        }
    }
}

fn memory_shares(cells: &[CellSummary]) -> Option<[f64; 2]> {
    let share = |cell: &CellSummary| {
        let median = |figure| Some(cell.estimates.get(&Derived::total(figure))?.median);
        let of = |memory, others| {
            let (memory, others): (f64, f64) = (median(memory)?, median(others)?);
            Some(memory / (memory + others))
        };
        of(Figure::MemoryInstructionsPerKib, Figure::InstructionsPerKib).or_else(|| {
            of(
                Figure::MemoryInstructionsPerTransaction,
                Figure::InstructionsPerTransaction,
            )
        })
    };
    let shares: Vec<f64> = cells.iter().filter_map(share).collect();
    let least = shares.iter().copied().reduce(f64::min)?;
    Some([least, shares.into_iter().reduce(f64::max)?])
}

/// True if the second quantity is the first in instructions, of one host or of all.
fn is_counted(time: Derived, instructions: Derived) -> bool {
    time.kind.in_instructions() == instructions.kind
}

/// Names of the cells to count in instructions: those of conclusions and effects of CPU time that time leaves undecided. With `all`
/// also those that it decides.
pub(crate) fn cells_to_count(
    study: &Study,
    cells: &[CellSummary],
    found: &[Effect],
    all: bool,
) -> BTreeSet<String> {
    let is_asked = |found: &Finding| is_undecided(found) || all && is_change_of_cost(found);
    let conclusions = study.conclusions.iter();
    let of_conclusions = conclusions
        .filter(|one| conclude(study, one, cells).iter().any(is_asked))
        .flat_map(|one| cells_of(study, one, cells));
    let of_effects = found
        .iter()
        .filter(|effect| is_open_effect(effect) || all && is_cost_in_time(effect.quantity))
        .flat_map(|effect| effects::groups_by(&effect.knob, cells))
        .flatten();
    let all = of_conclusions.chain(of_effects);
    all.map(|cell| cell.name.clone()).collect()
}

/// True if a finding compares CPU time. A limit in time is none in instructions.
fn is_change_of_cost(found: &Finding) -> bool {
    let is_change = matches!(
        found.kind,
        FindingKind::Change { .. } | FindingKind::Crossover { .. }
    );
    is_change && is_cost_in_time(found.quantity)
}

/// True if time does not decide a finding, and an instruction count can.
fn is_undecided(found: &Finding) -> bool {
    if !is_change_of_cost(found) {
        return false;
    }
    match (&found.tests, &found.kind) {
        (Some((_, held)), _) => *held == Held::Undecided,
        (None, FindingKind::Change { steps, .. }) => {
            steps.iter().any(|step| is_open(step.percent.as_ref()))
        }
        (None, FindingKind::Crossover { crossings, .. }) => {
            crossings.iter().any(|one| is_open(one.percent.as_ref()))
        }
        (None, FindingKind::Value { .. } | FindingKind::Line { .. }) => false,
    }
}

/// True if the quantity is CPU time, which has a counterpart in instructions.
fn is_cost_in_time(quantity: Derived) -> bool {
    quantity.kind.in_instructions() != quantity.kind
}

fn is_open(percent: Option<&Estimate>) -> bool {
    percent.is_some_and(|percent| !is_established(percent))
}

/// True if time establishes the effect at none of its settings.
fn is_open_effect(effect: &Effect) -> bool {
    is_cost_in_time(effect.quantity) && effect.at.iter().all(|at| is_open(Some(&at.percent)))
}

/// The finding of a run in guests that answers the same conclusion for the same cells. `None` if it has no number.
fn counterpart<'a>(found: &Finding, by: &'a [Finding]) -> Option<&'a Finding> {
    let is_same = |other: &&Finding| {
        other.text == found.text
            && match (&found.kind, &other.kind) {
                (
                    FindingKind::Change { knob, from, at, .. },
                    FindingKind::Change {
                        knob: other_knob,
                        from: other_from,
                        at: other_at,
                        ..
                    },
                ) => (knob, from, at) == (other_knob, other_from, other_at),
                (
                    FindingKind::Crossover {
                        knob, from, to, at, ..
                    },
                    FindingKind::Crossover {
                        knob: other_knob,
                        from: other_from,
                        to: other_to,
                        at: other_at,
                        ..
                    },
                ) => (knob, from, to, at) == (other_knob, other_from, other_to, other_at),
                _ => false,
            }
    };
    by.iter().find(is_same).filter(|other| has_number(other))
}

/// Result of a finding's test. What time decides stands, step by step; instructions decide the other steps.
pub(crate) fn held(found: &Finding, by_instructions: Option<&Finding>) -> Option<Held> {
    let (_, by_time) = found.tests.as_ref()?;
    let steps = match (&found.kind, by_instructions.map(|by| &by.kind)) {
        (FindingKind::Change { steps, .. }, Some(FindingKind::Change { steps: by, .. })) => {
            steps.iter().map(|step| {
                let same = by.iter().find(|other| other.to == step.to);
                match step.held {
                    Some(Held::Undecided) | None => same.and_then(|other| other.held),
                    decided => decided,
                }
            })
        }
        _ => return Some(*by_time),
    };
    Some(Held::all(steps.map(|held| held.unwrap_or(Held::Undecided))))
}

fn has_number(found: &Finding) -> bool {
    let has_interval = |percent: &Option<Estimate>| {
        percent.is_some_and(|percent| Sign::of(&percent) != Sign::Unknown)
    };
    match &found.kind {
        FindingKind::Change { steps, .. } => steps.iter().any(|step| has_interval(&step.percent)),
        FindingKind::Crossover { crossings, .. } => {
            crossings.iter().any(|one| has_interval(&one.percent))
        }
        FindingKind::Value { .. } | FindingKind::Line { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::conclusions::Step;
    use tcpcost_study::Value;

    fn change(steps: &[(u64, Held)]) -> Finding {
        let steps: Vec<Step> = steps
            .iter()
            .map(|&(to, held)| Step {
                to: Value::Count(to),
                percent: None,
                incomparable: None,
                published_percent: None,
                because: None,
                held: Some(held),
            })
            .collect();
        let held = Held::all(steps.iter().filter_map(|step| step.held));
        Finding {
            text: String::new(),
            continues: false,
            quantity: Derived::total(Figure::ExactUsPerKib),
            tests: Some(("s".to_string(), held)),
            kind: FindingKind::Change {
                knob: "flows".to_string(),
                from: Value::Count(1),
                at: String::new(),
                steps,
            },
        }
    }

    #[test]
    fn instructions_decide_only_the_steps_that_time_leaves_open() {
        use Held::{Fails, Holds, Undecided};
        let time = change(&[(10, Holds), (100, Undecided)]);
        let of = |by: &[(u64, Held)]| held(&time, Some(&change(by))).unwrap();
        assert_eq!(held(&time, None), Some(Undecided));
        assert_eq!(of(&[(10, Fails), (100, Holds)]), Holds);
        assert_eq!(of(&[(10, Holds), (100, Fails)]), Fails);
        assert_eq!(of(&[(10, Holds)]), Undecided, "no number for 100");
        let fails = change(&[(10, Fails)]);
        assert_eq!(held(&fails, Some(&change(&[(10, Holds)]))), Some(Fails));
    }
}
