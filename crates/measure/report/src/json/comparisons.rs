//! Verdicts on pairs of cells, and contrasts that are not decided.

use std::collections::BTreeMap;

use serde::Serialize;
use tcpcost_study::Study;

use crate::comparable::Incomparable;
use crate::comparison::{Basis, Comparison, StoredVerdict};
use crate::comparison_prose::sentence;
use crate::estimate::Estimate;
use crate::headline::Headline;

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
    regime: Option<RegimeJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_comparable: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    copies_differ_in: Option<&'a str>,
    pairs_needed: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    runs: Option<RunsJson<'a>>,
    ratios: BTreeMap<String, Estimate>,
}

#[derive(Serialize)]
struct RunsJson<'a> {
    before: usize,
    after: usize,
    cells: usize,
    level_ratio: Option<Estimate>,
    stands: bool,
    visible_ratio: Option<f64>,
    runs_needed: Option<usize>,
    to_decide: &'a str,
}

fn runs(stored: &StoredVerdict) -> RunsJson<'_> {
    RunsJson {
        before: stored.before,
        after: stored.after,
        cells: stored.cells,
        level_ratio: stored.level,
        stands: stored.stands,
        visible_ratio: stored.visible,
        runs_needed: stored.runs_needed,
        to_decide: &stored.to_decide,
    }
}

#[derive(Serialize)]
struct RegimeJson {
    count: String,
    from: f64,
    to: f64,
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
        regime: one.regime.map(|regime| RegimeJson {
            count: regime.count.to_string(),
            from: regime.from,
            to: regime.to,
        }),
        not_comparable: one.incomparable.as_ref().map(Incomparable::to_string),
        copies_differ_in: match &one.incomparable {
            Some(Incomparable::Copies(knob)) => Some(knob),
            _ => None,
        },
        pairs_needed: one.pairs_needed,
        runs: match &one.basis {
            Basis::Runs(stored) => Some(runs(stored)),
            Basis::Pairs | Basis::Boots => None,
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

pub(super) fn undecided<'a>(study: &Study, one: &'a Headline) -> UndecidedJson<'a> {
    UndecidedJson {
        from: &one.from,
        to: &one.to,
        quantity: one.quantity.to_string(),
        ratio: one.contrast.map(|contrast| contrast.ratio),
        repetitions_needed: one.repetitions_needed(study),
    }
}
