//! Decisions on pairs of cells in words.

use tcpcost_study::Derived;

use crate::derive::contrast::Contrast;
use crate::derive::number::{precise, show, signed};
use crate::judge::comparable::Incomparable;
use crate::judge::comparison::{Basis, Comparison, StoredDecision};
use crate::judge::decision::Decision;
use crate::judge::sign::is_established;
use crate::words::effects::claim;
use crate::words::labels;

/// Sentence of a decision, such as `IMPROVES: "b" saves 23 % [19, 28] of the CPU per KiB against "a" (12
/// pairs).`
pub(crate) fn sentence(one: &Comparison) -> String {
    let verdict = one.decision.name();
    let (from, to) = (&one.from, &one.to);
    if let Some(reason) = &one.incomparable {
        let instead = match reason {
            Incomparable::Copies(_) => "; judge them by time",
            Incomparable::Transactions => "; a quantity per KiB compares them",
            Incomparable::UnequalWork => "",
        };
        return format!(
            "{verdict}: \"{to}\" and \"{from}\" are not comparable: {reason}{instead}."
        );
    }
    if let Basis::Runs(stored) = &one.basis {
        return of_runs(one, stored);
    }
    let Some(contrast) = &one.contrast else {
        return format!("{verdict}: no trials of both \"{from}\" and \"{to}\" have a cost.");
    };
    let change = contrast.percent();
    if let Some(regime) = &one.regime {
        return format!(
            "{verdict}: \"{to}\" and \"{from}\" are of two regimes, which instructions do not compare: {} {} and {} ({}).",
            labels::in_sentence(regime.count),
            show(regime.to),
            show(regime.from),
            signed(&change)
        );
    }
    let what = match one.decision {
        Decision::Equivalent => format!(
            "costs the same as \"{from}\" to {} %: {}",
            show(one.min_effect * 100.0),
            signed(&change)
        ),
        _ => format!("{} against \"{from}\"", claim(one.quantity, &change)),
    };
    let (counted, more) = match one.basis {
        Basis::Pairs => ("pairs", "Seven pairs at least have an interval."),
        _ => (
            "snapshots each",
            "Two snapshots each at least have an interval.",
        ),
    };
    let more = match (one.decision, one.pairs_needed) {
        (Decision::Inconclusive, Some(needed)) => {
            format!(" About {needed} {counted} would decide.")
        }
        (Decision::Inconclusive, None) => format!(" {more}"),
        _ => String::new(),
    };
    let n = contrast.ratio.n;
    format!("{verdict}: \"{to}\" {what} ({n} {counted}).{more}")
}

/// All decisions, each with the other quantities that changed. Cells of stored runs without a decision share
/// one sentence.
pub(crate) fn sentences(all: &[Comparison]) -> Vec<String> {
    let is_open = |one: &&Comparison| {
        matches!(&one.basis, Basis::Runs(stored) if !stored.is_of_level && one.contrast.is_some())
            && one.decision == Decision::Inconclusive
    };
    let open: Vec<&Comparison> = all.iter().filter(is_open).collect();
    let are_joined = open.len() > 1;
    let each = all.iter().filter(|one| !(are_joined && is_open(one)));
    let each = each.map(|one| {
        let causes = causes(one);
        match causes.is_empty() {
            true => sentence(one),
            false => format!("{} Also changed: {}.", sentence(one), causes.join("; ")),
        }
    });
    let joined = open.first().filter(|_| are_joined).and_then(|first| {
        let Basis::Runs(stored) = &first.basis else {
            return None;
        };
        let changes = open.iter().filter_map(|one| one.contrast);
        let percents: Vec<f64> = changes.map(|one| one.percent().median).collect();
        let least = percents.iter().copied().fold(f64::INFINITY, f64::min);
        let most = percents.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let which = match open.len() == stored.cells {
            true => format!("any of {} cells", stored.cells),
            false => format!("{} of {} cells", open.len(), stored.cells),
        };
        Some(format!(
            "NO VERDICT on {}: {}; against each other they changed by {} to {} %. {}",
            which,
            level(first, stored),
            precise(least, 0),
            precise(most, 0),
            unseen(stored)
        ))
    });
    let last = all.first().and_then(|one| match &one.basis {
        Basis::Runs(stored) if stored.after > 1 => Some(format!(
            "All that follows is of the last of the {} runs after the change.",
            stored.after
        )),
        _ => None,
    });
    each.chain(joined).chain(last).collect()
}

/// Sentence of a decision on stored runs.
fn of_runs(one: &Comparison, stored: &StoredDecision) -> String {
    let to = &one.to;
    let Some(contrast) = &one.contrast else {
        return format!("NO VERDICT on \"{to}\": not every run has trials of it that have a cost.");
    };
    let change = contrast.percent();
    if one.decision == Decision::Inconclusive {
        let what = match (stored.is_of_level, contrast.ratio.lo) {
            (true, _) => {
                return format!(
                    "NO VERDICT on all {} cells together: {} in {} runs before and {} after, in turn.",
                    stored.cells,
                    signed(&change),
                    stored.before,
                    stored.after
                );
            }
            (false, Some(_)) => {
                format!("{} against the other cells of its study; ", signed(&change))
            }
            (false, None) => String::new(),
        };
        return format!(
            "NO VERDICT on \"{to}\": {what}{}. {}",
            level(one, stored),
            unseen(stored)
        );
    }
    let what = match one.decision {
        Decision::Equivalent => format!(
            "costs the same to {} %: {}",
            show(one.min_effect * 100.0),
            signed(&change)
        ),
        _ => claim(one.quantity, &change),
    };
    let runs = format!("{} before, {} after", runs(stored.before), stored.after);
    let chance = match stored.stands || one.decision == Decision::Equivalent {
        true => String::new(),
        false => format!(
            " With {} cells this may be chance, so the exit code ignores it.",
            stored.cells
        ),
    };
    let verdict = one.decision.name();
    match stored.is_of_level {
        true => format!(
            "{verdict}: all {} cells together: {what} ({runs}, in turn).{chance}",
            stored.cells
        ),
        false => format!(
            "{verdict}: \"{to}\" {what} against the other cells of its study ({runs}; {}, which may be the machine).{chance}",
            level(one, stored)
        ),
    }
}

fn runs(count: usize) -> String {
    match count {
        1 => "1 run".to_string(),
        _ => format!("{count} runs"),
    }
}

/// Text such as `all 8 cells cost 38 % more after the change, as when a machine is busier`.
fn level(one: &Comparison, stored: &StoredDecision) -> String {
    let cells = match stored.cells {
        1 => "its only cell".to_string(),
        cells => format!("all {cells} cells"),
    };
    let Some(level) = stored.level else {
        return format!("the level of {cells} is not known");
    };
    let percent = (level.median - 1.0) * 100.0;
    let size = precise(percent.abs(), usize::from(percent.abs() < 10.0));
    match one.quantity.kind.is_cost() {
        false => format!(
            "{cells} moved by {} %",
            precise(percent, usize::from(percent.abs() < 10.0))
        ),
        true if percent.abs() < LEVEL_NAMED => {
            format!("{cells} together cost the same to {size} %")
        }
        true if percent > 0.0 => {
            format!("{cells} cost {size} % more after, as when a machine is busier")
        }
        true => format!("{cells} cost {size} % less after, as when a machine is quieter"),
    }
}

/// Smallest change of the level, in percent, whose direction is stated.
const LEVEL_NAMED: f64 = 2.0;

/// Sentences about what the runs cannot show, and how to decide.
fn unseen(stored: &StoredDecision) -> String {
    let each = match (stored.before, stored.after) {
        (1, 1) => "one run each".to_string(),
        (before, after) => format!("{before} runs before and {after} after"),
    };
    match (stored.visible, stored.cells) {
        (None, _) if stored.is_too_far => format!(
            "The level changed too much: cells can be compared only if the runs alternate. To decide: {}.",
            stored.to_decide
        ),
        (Some(visible), _) => format!(
            "With {each} a change below {} % is not seen. To decide: {}.",
            precise(visible * 100.0, 0),
            stored.to_decide
        ),
        (None, cells) => format!(
            "With {each} of {cells} {} no change has an interval. To decide: {}.",
            if cells == 1 { "cell" } else { "cells" },
            stored.to_decide
        ),
    }
}

/// Quantities that changed, by their intervals, largest first, such as `segments per skb −84 % [−85, −83]`.
pub(crate) fn causes(one: &Comparison) -> Vec<String> {
    let mut moved: Vec<&(Derived, Contrast)> = one
        .causes
        .iter()
        .filter(|(_, contrast)| is_established(&contrast.percent()))
        .collect();
    let size = |contrast: &Contrast| contrast.ratio.median.ln().abs();
    moved.sort_by(|a, b| size(&b.1).total_cmp(&size(&a.1)));
    // A count exists for both ends together and for each end. Only the one that changed most is named.
    let mut kinds = Vec::new();
    moved.retain(|(of, _)| {
        let is_first = !kinds.contains(&of.kind);
        kinds.push(of.kind);
        is_first
    });
    let told = moved.into_iter().take(CAUSES_TOLD);
    told.map(|(of, contrast)| {
        format!(
            "{} {}",
            labels::in_sentence(*of),
            signed(&contrast.percent())
        )
    })
    .collect()
}

/// Limit on the causes in a sentence. The JSON document has all.
const CAUSES_TOLD: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_study::Figure;

    fn comparison(decision: Decision, ratios: &[f64]) -> Comparison {
        let contrast = |factor: f64| {
            let pairs = ratios.iter().map(|ratio| (1.0, ratio * factor));
            Contrast::of_pairs(pairs, true)
        };
        Comparison {
            from: "a".into(),
            to: "b".into(),
            basis: Basis::Pairs,
            min_effect: 0.01,
            quantity: Derived::total(Figure::ExactUsPerKib),
            contrast: contrast(1.0),
            decision,
            pairs_needed: Some(40),
            regime: None,
            incomparable: None,
            causes: [(Figure::AcksPerKib, 0.5), (Figure::SegmentsPerSkb, 1.25)]
                .map(|(kind, factor)| (Derived::total(kind), contrast(factor).unwrap()))
                .to_vec(),
        }
    }

    #[test]
    fn the_verdict_comes_first_and_what_moved_most_leads_the_causes() {
        let saves = [0.8, 0.79, 0.78, 0.81, 0.8, 0.82, 0.8];
        let one = comparison(Decision::Improves, &saves);
        assert_eq!(
            sentence(&one),
            "IMPROVES: \"b\" saves 20 % [18, 22] of the exact CPU per KiB against \"a\" (7 pairs)."
        );
        assert_eq!(
            causes(&one),
            ["ACKs per KiB \u{2212}60 % [\u{2212}61, \u{2212}59]"],
            "what holds no change is no cause"
        );
        let open = comparison(
            Decision::Inconclusive,
            &[0.9, 1.1, 1.0, 0.95, 1.05, 1.0, 1.2],
        );
        assert_eq!(
            sentence(&open),
            "INCONCLUSIVE: \"b\" has no established effect on the exact CPU per KiB: 0.0 % [\u{2212}10.0, 20.0] against \"a\" \
             (7 pairs). About 40 pairs would decide."
        );
    }
}
