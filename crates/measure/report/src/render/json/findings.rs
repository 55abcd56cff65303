//! Findings in the JSON document: each with its sentence and the numbers in the sentence.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::derive::estimate::Estimate;
use crate::judge::comparable::Incomparable;
use crate::judge::conclusions::{Against, Crossing, Finding, FindingKind, Step};
use crate::judge::effects::Effect;
use crate::judge::held::Held;
use crate::judge::reason::{Reason, ReasonBy};
use crate::judge::second_clock::ByInstructions;
use crate::judge::sign::is_established;
use crate::words::effects;
use crate::words::findings::{sentence, slope_unit};

#[derive(Serialize)]
pub(super) struct FindingJson<'a> {
    text: &'a str,
    sentence: String,
    quantity: String,
    #[serde(flatten)]
    what: KindJson<'a>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum KindJson<'a> {
    Value {
        unit: &'static str,
        cells: Vec<CellFindingJson<'a>>,
        published: Option<f64>,
    },
    Change {
        knob: &'a str,
        from: &'a tcpcost_study::Value,
        at: &'a str,
        steps: Vec<StepJson<'a>>,
    },
    Crossover {
        knob: &'a str,
        from: &'a tcpcost_study::Value,
        to: &'a tcpcost_study::Value,
        over: &'a str,
        at: &'a str,
        crossings: Vec<CrossingJson<'a>>,
    },
    Line {
        over: String,
        cells: usize,
        unit: String,
        slope: Option<Estimate>,
        intercept: Option<Estimate>,
        published: Option<f64>,
        against: Option<&'static str>,
    },
}

#[derive(Serialize)]
struct CellFindingJson<'a> {
    cell: &'a str,
    estimate: Option<Estimate>,
    against: Option<&'static str>,
}

#[derive(Serialize)]
struct CrossingJson<'a> {
    at: &'a tcpcost_study::Value,
    change_percent: Option<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_comparable: Option<String>,
}

#[derive(Serialize)]
struct StepJson<'a> {
    to: &'a tcpcost_study::Value,
    change_percent: Option<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_comparable: Option<String>,
    established: bool,
    published_percent: Option<f64>,
    against: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    statement: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    because: Option<ReasonJson>,
}

/// Effect of one knob, at each setting of the others.
#[derive(Serialize)]
pub(super) struct EffectJson<'a> {
    knob: &'a str,
    sentence: String,
    quantity: String,
    at: Vec<EffectAtJson<'a>>,
}

#[derive(Serialize)]
struct EffectAtJson<'a> {
    setting: &'a str,
    from: Option<&'a tcpcost_study::Value>,
    to: Option<&'a tcpcost_study::Value>,
    change_percent: Estimate,
    established: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    with: Option<MovedJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    because: Option<ReasonJson>,
}

#[derive(Serialize)]
struct ReasonJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    layer: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    share_ratio: f64,
}

impl ReasonJson {
    fn new(reason: Reason) -> ReasonJson {
        let of = |by| (reason.by == by).then_some(reason.what);
        ReasonJson {
            layer: of(ReasonBy::CallChains),
            cause: of(ReasonBy::Prices),
            share_ratio: reason.share,
        }
    }
}

#[derive(Serialize)]
struct MovedJson {
    quantity: String,
    change_percent: Estimate,
    median_from: f64,
    median_to: f64,
}

pub(super) fn effect(effect: &Effect) -> EffectJson<'_> {
    let at = effect.at.iter().map(|at| EffectAtJson {
        setting: &at.setting,
        from: at.from.as_ref(),
        to: at.to.as_ref(),
        change_percent: at.percent,
        established: is_established(&at.percent),
        with: at.with.map(|moved| MovedJson {
            quantity: moved.quantity.to_string(),
            change_percent: moved.percent,
            median_from: moved.from,
            median_to: moved.to,
        }),
        because: at.because.map(ReasonJson::new),
    });
    EffectJson {
        knob: &effect.knob,
        sentence: effects::sentence(effect),
        quantity: effect.quantity.to_string(),
        at: at.collect(),
    }
}

/// Findings and effects in instructions.
#[derive(Serialize)]
pub(super) struct ByInstructionsJson<'a> {
    kernels: &'a BTreeSet<String>,
    findings: Vec<CountedJson<'a>>,
    effects: Vec<EffectJson<'a>>,
}

/// A finding in instructions.
#[derive(Serialize)]
struct CountedJson<'a> {
    of_finding: usize,
    finding: FindingJson<'a>,
}

pub(super) fn by_instructions(by: &ByInstructions) -> ByInstructionsJson<'_> {
    let findings = by.findings.iter().map(|(index, found)| CountedJson {
        of_finding: *index,
        finding: finding(found),
    });
    ByInstructionsJson {
        kernels: &by.kernels,
        findings: findings.collect(),
        effects: by.effects.iter().map(effect).collect(),
    }
}

pub(super) fn finding(found: &Finding) -> FindingJson<'_> {
    FindingJson {
        text: &found.text,
        sentence: sentence(found),
        quantity: found.quantity.to_string(),
        what: kind(found),
    }
}

fn kind(found: &Finding) -> KindJson<'_> {
    match &found.kind {
        FindingKind::Value { cells, published } => {
            let cells = cells.iter().map(|(cell, estimate)| CellFindingJson {
                cell,
                estimate: *estimate,
                against: against(*estimate, *published),
            });
            KindJson::Value {
                unit: found.quantity.kind.unit(),
                cells: cells.collect(),
                published: *published,
            }
        }
        FindingKind::Change {
            knob,
            from,
            at,
            steps,
        } => KindJson::Change {
            knob,
            from,
            at,
            steps: steps.iter().map(step).collect(),
        },
        FindingKind::Crossover {
            knob,
            from,
            to,
            over,
            at,
            crossings,
        } => KindJson::Crossover {
            knob,
            from,
            to,
            over,
            at,
            crossings: crossings.iter().map(crossing).collect(),
        },
        FindingKind::Line {
            over,
            cells,
            slope,
            intercept,
            published,
        } => KindJson::Line {
            over: over.to_string(),
            cells: *cells,
            unit: slope_unit(found.quantity, *over).0,
            slope: *slope,
            intercept: *intercept,
            published: *published,
            against: against(*slope, *published),
        },
    }
}

fn step(step: &Step) -> StepJson<'_> {
    StepJson {
        to: &step.to,
        change_percent: step.percent,
        not_comparable: step.incomparable.as_ref().map(Incomparable::to_string),
        established: step.percent.as_ref().is_some_and(is_established),
        published_percent: step.published_percent,
        against: against(step.percent, step.published_percent),
        statement: step.held.map(Held::name),
        because: step.because.map(ReasonJson::new),
    }
}

fn crossing(one: &Crossing) -> CrossingJson<'_> {
    CrossingJson {
        at: &one.at,
        change_percent: one.percent,
        not_comparable: one.incomparable.as_ref().map(Incomparable::to_string),
    }
}

fn against(estimate: Option<Estimate>, published: Option<f64>) -> Option<&'static str> {
    Some(Against::of(&estimate?, published?).name())
}
