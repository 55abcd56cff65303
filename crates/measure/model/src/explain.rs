//! Cost of a workload by prices: a term for each cause, their sum, and the measured CPU time that has no price.

use serde::Serialize;

use crate::causes::{Cause, Counts, Kind};
use crate::prices::{Interval, PriceList};

/// One cause's part of a cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Term {
    /// The cause.
    pub cause: Cause,
    /// Who decides how often it occurs.
    pub kind: Kind,
    /// Number of units.
    pub count: f64,
    /// Price x count, ns.
    pub ns: f64,
    /// Interval of `ns` by that of the price, at 90 % confidence.
    pub interval: Interval,
    /// Share of the priced sum, 0 to 1.
    pub share: f64,
    /// True if the cause is more frequent than in any studied cell, so that the term is a guess.
    pub is_outside: bool,
}

/// Explanation of a cost, in ns of whatever the counts are of: an interval, or one unit of work.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// Terms, the largest first, without causes that did not occur.
    pub terms: Vec<Term>,
    /// Part of causes that occurred but have no price of their own, ns: only the sum with others is known.
    pub inseparable_ns: f64,
    /// These causes.
    pub inseparable: Vec<Cause>,
    /// Sum of the terms and of `inseparable_ns`, ns.
    pub priced_ns: f64,
    /// Interval of the sum, at 90 % confidence, by the errors of check cells.
    pub interval: Interval,
    /// Measured CPU time, ns; `None` if it was not measured.
    pub measured_ns: Option<f64>,
    /// Measured CPU time without the sum, ns: the program's own. Negative if the prices say more than
    /// was measured. `None` if CPU time was not measured.
    pub unpriced_ns: Option<f64>,
    /// Priced causes that were not counted here, so that their cost is missing from the sum.
    pub not_counted: Vec<Cause>,
}

/// Explains counts by prices. `measured_ns` is the CPU time of the same work.
pub fn explain(list: &PriceList, counts: &Counts, measured_ns: Option<f64>) -> Explanation {
    let priced_ns = list.cost_ns(counts);
    let mut terms = Vec::new();
    let mut not_counted = Vec::new();
    for price in &list.prices {
        let Some(count) = counts.get(price.cause) else {
            not_counted.push(price.cause);
            continue;
        };
        if count <= 0.0 {
            continue;
        }
        let ns = price.ns * count;
        terms.push(Term {
            cause: price.cause,
            kind: price.cause.kind(),
            count,
            ns,
            interval: Interval {
                low: price.interval.low * count,
                high: price.interval.high * count,
            },
            share: if priced_ns > 0.0 { ns / priced_ns } else { 0.0 },
            is_outside: count * 1e9 > price.most_per_cpu_s * priced_ns * OUTSIDE,
        });
    }
    terms.sort_by(|one, other| other.ns.total_cmp(&one.ns));
    let mut inseparable = Vec::new();
    for unpriced in list.unpriced.iter().filter(|one| one.in_sums_ns > 0.0) {
        match counts.get(unpriced.cause) {
            None => not_counted.push(unpriced.cause),
            Some(count) if count > 0.0 => inseparable.push(unpriced.cause),
            Some(_) => {}
        }
    }
    let of_sum = list.accuracy.interval;
    Explanation {
        terms,
        inseparable_ns: list.inseparable_ns(counts),
        inseparable,
        priced_ns,
        interval: Interval {
            low: priced_ns * of_sum.low,
            high: priced_ns * of_sum.high,
        },
        measured_ns,
        unpriced_ns: measured_ns.map(|ns| ns - priced_ns),
        not_counted,
    }
}

/// Factor beyond the highest studied rate from which a term is a guess. Trials of one cell differ by 16 %.
const OUTSIDE: f64 = 1.25;
