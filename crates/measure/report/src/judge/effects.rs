//! Effect of each knob that a study varies, also if the study has no conclusions. Cells that differ only in
//! this knob and did equal work are compared. The count that changed most with their cost is named; it is not
//! called a cause.

use std::collections::BTreeSet;

use tcpcost_study::{Derived, Figure, Value};

use crate::derive::cell::{CellSummary, Load, differing};
use crate::derive::contrast::Contrast;
use crate::derive::estimate::Estimate;
use crate::judge::comparable;
use crate::judge::conclusions::{Finding, FindingKind};
use crate::judge::reason::{Reason, is_time, reason};
use crate::judge::sign::is_established;

/// Effect of one knob on the main quantity, at each setting of the other knobs.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// Name of the knob.
    pub knob: String,
    /// Main quantity of the cells.
    pub quantity: Derived,
    /// Effect at each setting of the other knobs, in the study's order. Not empty.
    pub at: Vec<EffectAt>,
}

/// Effect of a knob at one setting of the others.
#[derive(Debug, Clone, PartialEq)]
pub struct EffectAt {
    /// The load, and the values of the other knobs in which the settings differ.
    pub setting: String,
    /// Value of the knob in the first cell; `None` if a sysctl is not set.
    pub from: Option<Value>,
    /// Value with the largest established change; without one, the last value.
    pub to: Option<Value>,
    /// Number of the knob's values.
    pub values: usize,
    /// Change of the quantity in percent.
    pub percent: Estimate,
    /// Count that changed most in the direction of the cost.
    pub with: Option<Moved>,
    /// Part that has at least half of the change.
    pub because: Option<Reason>,
}

/// A count that changed with the cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moved {
    /// Quantity of the count.
    pub quantity: Derived,
    /// Change of the count in percent.
    pub percent: Estimate,
    /// Median in the first cell.
    pub from: f64,
    /// Median in the cell with the other value.
    pub to: f64,
}

/// Knobs that set the load: cells that differ in one of them do different work.
const OF_THE_LOAD: &[&str] = &["workload", "rate", "transaction_rate", "bottleneck"];

/// Knobs that set the size of a transaction, whose costs are also those of different work.
const OF_A_TRANSACTION: &[&str] = &["request_size", "response_size"];

fn without_host(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn sets_the_load(name: &str) -> bool {
    OF_THE_LOAD.contains(&without_host(name))
}

/// True if a knob sets the load or a transaction's size. `name` may have a host's prefix.
pub(crate) fn is_of_the_load(name: &str) -> bool {
    sets_the_load(name) || OF_A_TRANSACTION.contains(&without_host(name))
}

/// Effects in the order of the knobs' names. Omits knobs that the study's own findings are about.
pub(crate) fn effects(cells: &[CellSummary], findings: &[Finding]) -> Vec<Effect> {
    let concluded = |name: &str| {
        findings.iter().any(
            |found| matches!(&found.kind, FindingKind::Change { knob, .. } | FindingKind::Crossover { knob, .. } if knob.as_str() == name),
        )
    };
    let names = knobs(cells).into_iter().filter(|name| !concluded(name));
    names.flat_map(|name| effects_of(name, cells)).collect()
}

/// Names of the knobs by which cells may be compared.
pub(crate) fn knobs(cells: &[CellSummary]) -> BTreeSet<&str> {
    let names = cells.iter().flat_map(|cell| cell.knobs.iter());
    names
        .map(|(name, _)| name)
        .filter(|name| !is_of_the_load(name))
        .collect()
}

/// Groups of at least two cells with the same main quantity that differ only in a knob and did equal work. Of cells with one value of
/// the knob, as a study has that measures a cell twice, a group has the first.
pub(crate) fn groups_by<'a>(knob: &str, cells: &'a [CellSummary]) -> Vec<Vec<&'a CellSummary>> {
    let mut groups: Vec<Vec<&CellSummary>> = Vec::new();
    for cell in cells.iter().filter(|cell| cell.n > 0) {
        let is_alike = |other: &CellSummary| {
            other.main == cell.main
                && differing(&other.knobs, &cell.knobs).all(|name| name == knob)
                && !comparable::is_unequal(other, cell)
        };
        match groups.iter_mut().find(|group| is_alike(group[0])) {
            Some(group) => {
                let value = cell.knobs.value(knob);
                if group.iter().all(|other| other.knobs.value(knob) != value) {
                    group.push(cell);
                }
            }
            None => groups.push(vec![cell]),
        }
    }
    groups.retain(|group| group.len() > 1);
    groups
}

/// Effects of one knob: one for each main quantity of its cells.
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
        setting: setting(knob, group, firsts),
        from: first.knobs.value(knob),
        to: cell.knobs.value(knob),
        values: group.len(),
        percent: *percent,
        with: is_established(percent)
            .then(|| moved_with(first, cell, percent.median < 0.0))
            .flatten(),
        because: is_established(percent)
            .then(|| reason(first, cell))
            .flatten(),
    })
}

/// Describes a group of cells: its load, and how it differs from the knob's other groups, in the names of the
/// study's cells and in the knobs varied within them.
fn setting(knob: &str, group: &[&CellSummary], firsts: &[&CellSummary]) -> String {
    let first = group[0];
    let own = own_name(&first.name);
    // A name that only one cell of the group has describes the knob, not the other settings.
    let has_name = !own.is_empty()
        && group.iter().all(|other| own_name(&other.name) == own)
        && firsts.iter().any(|other| own_name(&other.name) != own);
    let mut parts = Vec::new();
    // A name such as "stream 64 KiB, 2 Gbit/s" states the load already.
    if !(has_name && (own.contains("/s") || own.contains("CPU-bound"))) {
        parts.push(match &first.load {
            Load::FixedRate(rate) => rate
                .rsplit_once(' ')
                .map_or(rate.clone(), |(_, rate)| format!("at {rate}")),
            Load::CpuBound => first.load.name().to_string(),
        });
    }
    let names: BTreeSet<&str> = firsts
        .iter()
        .flat_map(|other| differing(&first.knobs, &other.knobs))
        .filter(|name| *name != knob && !sets_the_load(name))
        .filter(|name| !has_name || first.name.contains(&format!("{name}=")))
        .collect();
    if has_name {
        let is_rate = own.starts_with(|first: char| first.is_ascii_digit());
        parts.push(if is_rate { format!("at {own}") } else { own });
    }
    parts.extend(names.into_iter().filter_map(|name| {
        let value = first.knobs.value(name)?;
        Some(format!("{name} {value}"))
    }));
    parts.join(", ")
}

/// Name of a cell without the knobs that the study varied within it.
fn own_name(name: &str) -> String {
    let words = name.split(' ').filter(|word| !word.contains('='));
    let name = words.collect::<Vec<_>>().join(" ");
    // Removes the comma of a name such as "4 connections, stack=kernel".
    name.trim_end_matches([',', ':']).to_string()
}

/// Counts that may change with a cost, each with the highest CPU time of one unit of it, in the unit of the cost
/// (µs per KiB or per transaction). A count that could not make a quarter of the change at this price is no
/// cause. A size has no price: the larger it is, the less a KiB costs. A price is several times that of a current
/// server: an ACK or a packet costs well below 1 µs, a switch with its wake-up 1 to 3 µs, a run of NET_RX up to 12 µs on a
/// loaded VM, a cache miss 0.1 µs, a branch miss 0.01 µs. A retransmitted segment costs as much as a packet. One KiB is at most about one segment.
const CAUSES: &[(Figure, Option<f64>)] = &[
    (Figure::AcksPerKib, Some(5.0)),
    (Figure::PacketsPerTransaction, Some(10.0)),
    (Figure::SwitchesPerMib, Some(10.0 / 1024.0)),
    (Figure::SwitchesPerTransaction, Some(10.0)),
    (Figure::NetRxRunsPerMib, Some(15.0 / 1024.0)),
    (Figure::NetRxRunsPerTransaction, Some(15.0)),
    (Figure::RetransmitRatio, Some(10.0)),
    (Figure::CacheMissesPerKib, Some(0.5)),
    (Figure::BranchMissesPerKib, Some(0.05)),
    (Figure::OctetsPerDatagram, None),
    (Figure::SegmentsPerSkb, None),
    (Figure::BytesPerSend, None),
    (Figure::BytesPerReceive, None),
];

/// Price of a count, `Some(None)` for a size. `None` if the figure is no cause.
pub(crate) fn price(kind: Figure) -> Option<Option<f64>> {
    let found = CAUSES.iter().find(|(cause, _)| *cause == kind);
    found.map(|(_, price)| *price)
}

/// Smallest share of a cost's change that a count must be able to make to be named.
pub(crate) const SHARE_LEAST: f64 = 0.25;

/// Smallest change of a count that is named, as a fraction.
const MOVED_LEAST: f64 = 0.1;

/// True if the count is above 0 in most trials of both cells. Otherwise its change has no meaning for a
/// reader.
pub(crate) fn is_seen(quantity: Derived, cells: [&CellSummary; 2]) -> bool {
    let estimates = cells.map(|cell| cell.estimates.get(&quantity));
    let is_seen = |estimate: Option<&Estimate>| estimate.is_some_and(|one| one.median > 0.0);
    estimates.into_iter().all(is_seen)
}

/// True if a count that changed by `moved` could make its share of a change of the cost, at the highest
/// price.
fn could_make(price: Option<f64>, moved: f64, cost: f64) -> bool {
    price.is_none_or(|price| moved * price >= SHARE_LEAST * cost)
}

/// Count that changed most in the direction of the cost, if its interval shows that direction.
fn moved_with(from: &CellSummary, to: &CellSummary, is_cheaper: bool) -> Option<Moved> {
    let moved_by = |of: Derived| {
        let medians = [from, to].map(|cell| Some(cell.estimates.get(&of)?.median));
        Some((medians[1]? - medians[0]?).abs())
    };
    // A cost that is no time has no prices.
    let could_be = |price: Option<f64>, quantity: Derived| {
        let moved = moved_by(quantity).zip(moved_by(from.main));
        let price = price.filter(|_| is_time(from.main.kind));
        moved.is_some_and(|(moved, cost)| could_make(price, moved, cost))
    };
    let moved = |quantity: Derived| {
        let price = price(quantity.kind)?;
        let contrast = Contrast::new(from, to, quantity)?;
        let percent = contrast.percent();
        let has_fallen = percent.median < 0.0;
        let size = contrast.ratio.median.ln().abs();
        (is_established(&percent)
            && is_seen(quantity, [from, to])
            && size > MOVED_LEAST
            && has_fallen == (is_cheaper == price.is_some())
            && could_be(price, quantity))
        .then_some((size, quantity))
    };
    let (_, quantity) = from
        .estimates
        .keys()
        .filter_map(|&of| moved(of))
        .max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Moved {
        quantity,
        percent: Contrast::new(from, to, quantity)?.percent(),
        from: from.estimates.get(&quantity)?.median,
        to: to.estimates.get(&quantity)?.median,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handful_of_switches_is_no_cause_of_a_copy() {
        let switches = price(Figure::SwitchesPerMib).unwrap();
        // sendfile instead of send: 0.3 µs per KiB less, and 3 switches per MiB less, which take at most 0.03
        // µs per KiB.
        assert!(!could_make(switches, 3.2, 0.3));
        // One-byte writes: a switch for each.
        assert!(could_make(switches, 400.0, 4.0));
        let segments = price(Figure::SegmentsPerSkb).unwrap();
        assert!(could_make(segments, 1.0, 5.0), "no price can be put");
    }

    #[test]
    fn a_cells_own_name_is_what_the_study_gave_it() {
        assert_eq!(own_name("ours to kernel send_with=send"), "ours to kernel");
        assert_eq!(own_name("flows=1 rate=1Gbit"), "");
    }
}
