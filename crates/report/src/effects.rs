//! What each knob does that a study varies, made of its cells whether or not the study concludes anything:
//! cells that differ in this knob alone are held against each other, and the count that moved most with
//! their cost is named beside it.

use std::collections::BTreeSet;

use tcpcost_study::{Derived, Figure, Knobs, Value};

use crate::cell::{CellSummary, Load};
use crate::conclusions::{Finding, FindingKind, Sign};
use crate::contrast::Contrast;
use crate::estimate::Estimate;

/// What one knob does to the main quantity, at each setting of the other knobs.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// The knob.
    pub knob: String,
    /// The main quantity of its cells.
    pub quantity: Derived,
    /// At each setting of the other knobs, in the study's order; at least one.
    pub at: Vec<EffectAt>,
}

/// What it does at one setting of the others.
#[derive(Debug, Clone, PartialEq)]
pub struct EffectAt {
    /// What holds the load, and those of the other knobs in which the settings differ.
    pub setting: String,
    /// Its value in the first cell; absent where a sysctl is not set.
    pub from: Option<Value>,
    /// The value that changes most of all whose change is established, else the last.
    pub to: Option<Value>,
    /// How many values it has.
    pub values: usize,
    /// The change of the quantity in percent.
    pub percent: Estimate,
    /// The count that moved most in the direction of the cost.
    pub cause: Option<Cause>,
}

/// A count that changed with the cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cause {
    /// The count.
    pub quantity: Derived,
    /// Its medians in both cells.
    pub from: f64,
    /// In the cell with the other value.
    pub to: f64,
}

/// Knobs that set the load: cells that differ in one do other work.
const OF_THE_LOAD: &[&str] = &["workload", "rate", "transaction_rate", "bottleneck"];

/// By the name without its host.
pub(crate) fn is_of_the_load(name: &str) -> bool {
    let name = name.rsplit('.').next().unwrap_or(name);
    OF_THE_LOAD.contains(&name)
}

/// All of them, in the order of the knobs' names. Not of knobs that the study's own findings are about.
pub(crate) fn effects(cells: &[CellSummary], findings: &[Finding]) -> Vec<Effect> {
    let concluded = |name: &str| {
        findings.iter().any(
            |found| matches!(&found.kind, FindingKind::Change { knob, .. } if knob.as_str() == name),
        )
    };
    let names = knobs(cells).into_iter().filter(|name| !concluded(name));
    names.flat_map(|name| effects_of(name, cells)).collect()
}

/// Names of the knobs that cells may be held against each other by.
pub(crate) fn knobs(cells: &[CellSummary]) -> BTreeSet<&str> {
    let names = cells.iter().flat_map(|cell| cell.knobs.iter());
    names
        .map(|(name, _)| name)
        .filter(|name| !is_of_the_load(name))
        .collect()
}

/// Cells with the same main quantity that differ in a knob alone, at least two in a group.
pub(crate) fn groups_by<'a>(knob: &str, cells: &'a [CellSummary]) -> Vec<Vec<&'a CellSummary>> {
    let mut groups: Vec<Vec<&CellSummary>> = Vec::new();
    for cell in cells.iter().filter(|cell| cell.n > 0) {
        let is_alike = |other: &CellSummary| {
            other.main == cell.main && differing(&other.knobs, &cell.knobs).all(|name| name == knob)
        };
        match groups.iter_mut().find(|group| is_alike(group[0])) {
            Some(group) => group.push(cell),
            None => groups.push(vec![cell]),
        }
    }
    groups.retain(|group| group.len() > 1);
    groups
}

/// Of one knob: one for each main quantity that its cells have.
fn effects_of(knob: &str, cells: &[CellSummary]) -> Vec<Effect> {
    let groups = groups_by(knob, cells);
    let firsts: Vec<&CellSummary> = groups.iter().map(|group| group[0]).collect();
    let mut effects: Vec<Effect> = Vec::new();
    for group in &groups {
        let Some(at) = effect_at(knob, group, &firsts) else {
            continue;
        };
        let quantity = group[0].main;
        match effects
            .iter_mut()
            .find(|effect| effect.quantity == quantity)
        {
            Some(effect) => effect.at.push(at),
            None => effects.push(Effect {
                knob: knob.to_string(),
                quantity,
                at: vec![at],
            }),
        }
    }
    effects
}

fn effect_at(knob: &str, group: &[&CellSummary], firsts: &[&CellSummary]) -> Option<EffectAt> {
    let (first, others) = group.split_first()?;
    let quantity = first.main;
    let changes: Vec<(&CellSummary, Estimate)> = others
        .iter()
        .filter_map(|cell| Some((*cell, Contrast::new(first, cell, quantity)?.percent())))
        .collect();
    let size = |percent: &Estimate| percent.median.abs();
    let (cell, percent) = changes
        .iter()
        .filter(|(_, percent)| is_established(percent))
        .max_by(|a, b| size(&a.1).total_cmp(&size(&b.1)))
        .or(changes.last())?;
    Some(EffectAt {
        setting: setting(knob, first, firsts),
        from: first.knobs.value(knob),
        to: cell.knobs.value(knob),
        values: group.len(),
        percent: *percent,
        cause: is_established(percent)
            .then(|| cause(first, cell, percent.median < 0.0))
            .flatten(),
    })
}

/// Whether the interval tells the direction of a change.
pub(crate) fn is_established(percent: &Estimate) -> bool {
    matches!(Sign::of(percent), Sign::Below | Sign::Above)
}

/// Names of knobs that hold otherwise in two cells.
pub(crate) fn differing<'a>(one: &'a Knobs, other: &'a Knobs) -> impl Iterator<Item = &'a str> {
    let names: BTreeSet<&str> = one
        .iter()
        .chain(other.iter())
        .map(|(name, _)| name)
        .collect();
    names
        .into_iter()
        .filter(|name| one.value(name) != other.value(name))
}

/// The load of a group's cells, and in what else the groups of a knob differ.
fn setting(knob: &str, first: &CellSummary, firsts: &[&CellSummary]) -> String {
    let mut parts = vec![match &first.load {
        Load::FixedRate(rate) => rate
            .rsplit_once(' ')
            .map_or(rate.clone(), |(_, rate)| format!("at {rate}")),
        Load::CpuBound => first.load.name().to_string(),
    }];
    let names: BTreeSet<&str> = firsts
        .iter()
        .flat_map(|other| differing(&first.knobs, &other.knobs))
        .filter(|name| *name != knob && !is_of_the_load(name))
        .collect();
    parts.extend(names.into_iter().filter_map(|name| {
        let value = first.knobs.value(name)?;
        Some(format!("{name} {value}"))
    }));
    parts.join(", ")
}

/// Counts that a cost may follow, and whether more of them cost more.
pub(crate) const CAUSES: &[(Figure, bool, &str)] = &[
    (Figure::AcksPerKib, true, "ACKs per KiB"),
    (
        Figure::PacketsPerTransaction,
        true,
        "packets per transaction",
    ),
    (Figure::SwitchesPerMib, true, "context switches per MiB"),
    (
        Figure::SwitchesPerTransaction,
        true,
        "context switches per transaction",
    ),
    (Figure::RetransmitRatio, true, "retransmissions"),
    (Figure::CacheMissesPerKib, true, "cache misses per KiB"),
    (Figure::OctetsPerDatagram, false, "octets per packet"),
    (Figure::SegmentsPerSkb, false, "segments per skb"),
    (Figure::BytesPerSend, false, "bytes per call that sends"),
    (
        Figure::BytesPerReceive,
        false,
        "bytes per call that receives",
    ),
];

/// A count that is 0 in most trials of one cell moves by nothing that a reader could see.
pub(crate) fn is_seen(quantity: Derived, cells: [&CellSummary; 2]) -> bool {
    let estimates = cells.map(|cell| cell.estimates.get(&quantity));
    let is_seen = |estimate: Option<&Estimate>| estimate.is_some_and(|one| one.median > 0.0);
    estimates.into_iter().all(is_seen)
}

/// Less than this is no cause: a tenth more or less.
const MOVED_LEAST: f64 = 0.1;

/// The count that moved most, in the direction in which the cost moved; only where its interval tells so.
fn cause(from: &CellSummary, to: &CellSummary, is_cheaper: bool) -> Option<Cause> {
    let moved = |quantity: Derived| {
        let (_, is_costly, _) = CAUSES.iter().find(|(kind, ..)| *kind == quantity.kind)?;
        let contrast = Contrast::new(from, to, quantity)?;
        let percent = contrast.percent();
        let has_fallen = percent.median < 0.0;
        let size = contrast.ratio.median.ln().abs();
        (is_established(&percent)
            && is_seen(quantity, [from, to])
            && size > MOVED_LEAST
            && has_fallen == (is_cheaper == *is_costly))
            .then_some((size, quantity))
    };
    let (_, quantity) = from
        .estimates
        .keys()
        .filter_map(|&of| moved(of))
        .max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Cause {
        quantity,
        from: from.estimates.get(&quantity)?.median,
        to: to.estimates.get(&quantity)?.median,
    })
}
