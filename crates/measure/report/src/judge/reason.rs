//! Part that has most of a change of CPU time between two cells: a layer by call chains, or a cause by the prices of the host.

use std::collections::BTreeMap;

use tcpcost_study::{Figure, Scope};

use crate::derive::cell::CellSummary;
use crate::derive::profile::{Layer, Profile};
use crate::judge::sign::is_established;

/// Part that has at least half of a change of CPU time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reason {
    /// Name of the layer or of the cause.
    pub what: &'static str,
    /// Share of the change. More than 1 if other parts changed in the opposite direction.
    pub share: f64,
    /// Method that found it.
    pub by: ReasonBy,
}

/// Method that found a [`Reason`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasonBy {
    /// Call chains of the meter `profile`.
    CallChains,
    /// Counts and a price list of the machine.
    Prices,
}

impl ReasonBy {
    /// Name in sentences and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            ReasonBy::CallChains => "call chains",
            ReasonBy::Prices => "prices",
        }
    }
}

/// Smallest share of a change that is named.
const SHARE_LEAST: f64 = 0.5;

/// Part with the largest share of the change of the main quantity. `None` if that is no CPU time, or the share is below half.
pub(crate) fn reason(from: &CellSummary, to: &CellSummary) -> Option<Reason> {
    if !is_time(from.main.kind) || from.main != to.main {
        return None;
    }
    let change = to.main_estimate()?.median - from.main_estimate()?.median;
    let largest = |parts: Vec<(&'static str, f64)>, by| {
        let shares = parts.into_iter().map(|(what, grown)| Reason {
            what,
            share: grown / change,
            by,
        });
        shares
            .filter(|one| one.share.is_finite() && one.share >= SHARE_LEAST)
            .max_by(|a, b| a.share.total_cmp(&b.share))
    };
    largest(by_layer(from, to), ReasonBy::CallChains)
        .or_else(|| largest(by_cause(from, to), ReasonBy::Prices))
}

/// True if a cost is CPU µs per KiB or per transaction.
pub(crate) fn is_time(kind: Figure) -> bool {
    kind.is_cost() && kind.unit().starts_with("µs")
}

/// Established growth of each layer of the cost's hosts.
fn by_layer(from: &CellSummary, to: &CellSummary) -> Vec<(&'static str, f64)> {
    let scope = from.main.scope;
    let of_cost = |profile: &&Profile| scope == Scope::All || profile.scope == scope;
    let mut grown: BTreeMap<Layer, (f64, bool)> = BTreeMap::new();
    for profile in to.profiles.iter().filter(of_cost) {
        let Some(before) = profile.of(&from.profiles) else {
            continue;
        };
        for (layer, cost) in &profile.layers {
            let Some(growth) = before.layer(*layer).and_then(|first| cost.growth(first)) else {
                continue;
            };
            let (sum, is_sure) = grown.entry(*layer).or_default();
            *sum += growth.median;
            *is_sure |= is_established(&growth);
        }
    }
    let sure = grown.into_iter().filter(|(_, (_, is_sure))| *is_sure);
    sure.map(|(layer, (growth, _))| (layer.name(), growth))
        .collect()
}

/// Growth of what each cause costs the cost's hosts. Empty if one of the cells has no prices.
fn by_cause(from: &CellSummary, to: &CellSummary) -> Vec<(&'static str, f64)> {
    let mut grown: BTreeMap<&'static str, f64> = BTreeMap::new();
    for (sign, cell) in [(-1.0, from), (1.0, to)] {
        let mut is_priced = false;
        for (host, costs) in &cell.priced {
            if cell.main.scope.holds(*host) {
                is_priced = true;
                for (cause, cost) in costs {
                    *grown.entry(*cause).or_default() += sign * cost;
                }
            }
        }
        if !is_priced {
            return Vec::new();
        }
    }
    grown.into_iter().collect()
}
