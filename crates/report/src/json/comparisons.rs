//! Verdicts on pairs of cells, and contrasts that are not decided.

use std::collections::BTreeMap;

use serde::Serialize;
use tcpcost_study::Study;

use crate::comparison::Comparison;
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
    copies_differ_in: Option<&'a str>,
    pairs_needed: Option<usize>,
    ratios: BTreeMap<String, Estimate>,
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
        paired: one.is_paired,
        quantity: one.quantity.to_string(),
        ratio: one.contrast.map(|contrast| contrast.ratio),
        min_effect_ratio: one.min_effect,
        verdict: one.decision.name(),
        regime: one.regime.map(|regime| RegimeJson {
            count: regime.count.to_string(),
            from: regime.from,
            to: regime.to,
        }),
        copies_differ_in: one.copies_differ_in.as_deref(),
        pairs_needed: one.pairs_needed,
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
