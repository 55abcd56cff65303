//! Decisions on pairs of cells, and contrasts that are not decided.

use std::collections::BTreeMap;

use serde::Serialize;
use tcpcost_study::Study;

use crate::derive::estimate::Estimate;
use crate::judge::comparable::Incomparable;
use crate::judge::comparison::{Basis, Comparison, StoredDecision};
use crate::judge::contrasts::MainContrast;
use crate::judge::regime::Regime;
use crate::words::comparisons::sentence;

#[derive(Serialize)]
pub(super) struct ComparisonJson<'a> {
    from: &'a str,
    to: &'a str,
    sentence: String,
    paired: bool,
    quantity: String,
    ratio: Option<Estimate>,
    min_effect_ratio: f64,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    regime: Option<Regime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_comparable: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    copies_differ_in: Option<&'a str>,
    pairs_needed: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    runs: Option<&'a StoredDecision>,
    ratios: BTreeMap<String, Estimate>,
}

pub(super) fn comparison(one: &Comparison) -> ComparisonJson<'_> {
    let ratios = one.causes.iter();
    ComparisonJson {
        from: &one.from,
        to: &one.to,
        sentence: sentence(one),
        paired: one.basis == Basis::Pairs,
        quantity: one.quantity.to_string(),
        ratio: one.contrast.map(|contrast| contrast.ratio),
        min_effect_ratio: one.min_effect,
        verdict: one.decision.name(),
        regime: one.regime,
        not_comparable: one.incomparable.as_ref().map(Incomparable::to_string),
        copies_differ_in: match &one.incomparable {
            Some(Incomparable::Copies(knob)) => Some(knob),
            _ => None,
        },
        pairs_needed: one.pairs_needed,
        runs: match &one.basis {
            Basis::Runs(stored) => Some(stored),
            Basis::Pairs | Basis::Guests => None,
        },
        ratios: ratios
            .map(|(of, contrast)| (of.to_string(), contrast.ratio))
            .collect(),
    }
}

#[derive(Serialize)]
pub(super) struct UndecidedJson<'a> {
    from: &'a str,
    to: &'a str,
    quantity: String,
    ratio: Option<Estimate>,
    repetitions_needed: Option<usize>,
}

pub(super) fn undecided<'a>(study: &Study, one: &'a MainContrast) -> UndecidedJson<'a> {
    UndecidedJson {
        from: &one.from,
        to: &one.to,
        quantity: one.quantity.to_string(),
        ratio: one.contrast.map(|contrast| contrast.ratio),
        repetitions_needed: one.repetitions_needed(study),
    }
}
