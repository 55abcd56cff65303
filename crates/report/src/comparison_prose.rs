//! Verdicts on pairs of cells in words.

use tcpcost_study::{Derived, Figure, Scope};

use crate::comparison::Comparison;
use crate::contrast::Contrast;
use crate::decision::Decision;
use crate::effect_prose::{claim, signed};
use crate::effects::{is_established, row};
use crate::number::show;

/// `IMPROVES: "b" saves 23 % [19, 28] of the CPU per KiB against "a" (12 pairs).`
pub(crate) fn sentence(one: &Comparison) -> String {
    let verdict = one.decision.name();
    let (from, to) = (&one.from, &one.to);
    if let Some(knob) = &one.copies_differ_in {
        return format!(
            "{verdict}: \"{to}\" and \"{from}\" copy payload more or less often ({knob}), and what a copy costs is not in a count of instructions: to be judged by time."
        );
    }
    let Some(contrast) = &one.contrast else {
        return format!("{verdict}: no trials of both \"{from}\" and \"{to}\" have a cost.");
    };
    let change = contrast.percent();
    if let Some(regime) = &one.regime {
        return format!(
            "{verdict}: \"{to}\" and \"{from}\" are of two regimes, which instructions do not compare: {} {} and {} ({}).",
            name(regime.count),
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
    let counted = match one.is_paired {
        true => format!("{} pairs", contrast.ratio.n),
        false => format!(
            "{} trials each, which did not run in turn",
            contrast.ratio.n
        ),
    };
    let more = match (one.decision, one.pairs_needed, one.is_paired) {
        (Decision::Inconclusive, Some(pairs), true) => {
            format!(" About {pairs} pairs would decide.")
        }
        (Decision::Inconclusive, Some(trials), false) => {
            format!(" About {trials} trials each would decide.")
        }
        (Decision::Inconclusive, None, true) => " Seven pairs at least have an interval.".into(),
        (Decision::Inconclusive, None, false) => {
            " Four trials each at least have an interval.".into()
        }
        _ => String::new(),
    };
    format!("{verdict}: \"{to}\" {what} ({counted}).{more}")
}

/// What moved with it, by its interval, the most first: `segments per skb −84 % [−85, −83]`.
pub(crate) fn causes(one: &Comparison) -> Vec<String> {
    let mut moved: Vec<&(Derived, Contrast)> = one
        .causes
        .iter()
        .filter(|(_, contrast)| is_established(&contrast.percent()))
        .collect();
    let size = |contrast: &Contrast| contrast.ratio.median.ln().abs();
    moved.sort_by(|a, b| size(&b.1).total_cmp(&size(&a.1)));
    // The same count is both ends' together and each end's: the one that moved most says it.
    let mut kinds = Vec::new();
    moved.retain(|(of, _)| {
        let is_first = !kinds.contains(&of.kind);
        kinds.push(of.kind);
        is_first
    });
    let told = moved.into_iter().take(CAUSES_TOLD);
    told.map(|(of, contrast)| format!("{} {}", name(*of), signed(&contrast.percent())))
        .collect()
}

/// Of more causes the largest say enough; the document has all.
const CAUSES_TOLD: usize = 5;

fn name(of: Derived) -> String {
    let what = match (row(of.kind), of.kind) {
        (Some(row), _) => row.words,
        (None, Figure::InstructionsPerKib) => "instructions per KiB",
        (None, Figure::InstructionsPerTransaction) => "instructions per transaction",
        (None, Figure::TaskInstructionsPerKib | Figure::TaskInstructionsPerTransaction) => {
            "instructions in system calls and programs"
        }
        (None, Figure::NetRxInstructionsPerKib | Figure::NetRxInstructionsPerTransaction) => {
            "instructions in NET_RX"
        }
        (None, Figure::DeferredInstructionsPerKib | Figure::DeferredInstructionsPerTransaction) => {
            "instructions in other softirqs"
        }
        (None, Figure::HardirqInstructionsPerKib | Figure::HardirqInstructionsPerTransaction) => {
            "instructions in hard interrupts"
        }
        (None, Figure::ThreadInstructionsPerKib | Figure::ThreadInstructionsPerTransaction) => {
            "instructions of threads"
        }
        (None, Figure::MemoryInstructionsPerKib | Figure::MemoryInstructionsPerTransaction) => {
            "instructions that move memory"
        }
        (None, kind) => kind.name(),
    };
    match of.scope {
        Scope::All => what.to_string(),
        Scope::Of(host) => format!("{what} of the {host}"),
        Scope::Group(group) => format!("{what} of {group}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(decision: Decision, ratios: &[f64]) -> Comparison {
        let contrast = |factor: f64| {
            let pairs = ratios.iter().map(|ratio| (1.0, ratio * factor));
            Contrast::of_pairs(pairs, true)
        };
        Comparison {
            from: "a".into(),
            to: "b".into(),
            is_paired: true,
            min_effect: 0.01,
            quantity: Derived::total(Figure::ExactUsPerKib),
            contrast: contrast(1.0),
            decision,
            pairs_needed: Some(40),
            regime: None,
            copies_differ_in: None,
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
            "IMPROVES: \"b\" saves 20 % [18, 22] of the CPU per KiB against \"a\" (7 pairs)."
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
            "INCONCLUSIVE: \"b\" has no established effect on the CPU per KiB: 0.0 % [\u{2212}10.0, 20.0] against \"a\" \
             (7 pairs). About 40 pairs would decide."
        );
    }
}
