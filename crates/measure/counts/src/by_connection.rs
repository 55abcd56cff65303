//! Distribution of an end's counts over its connections. The connections' own counts are not kept:
//! those of 30,000 connections would be 30 MiB a trial.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;
use crate::reading::Counts;

/// Growth of the counts of an end's connections between two reads, one before and one after the
/// interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByConnection {
    /// Time between the reads, ns: some ms more than between the snapshots.
    pub duration_ns: u64,
    /// Connections included: all but those that the meter had forgotten at one of the reads.
    pub connections: u64,
    /// Distribution of each quantity.
    pub quantities: BTreeMap<Quantity, Spread>,
}

/// Distribution of one count over connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// Smallest count.
    pub min: u64,
    /// Median count; of an even number of connections the lower one, which a connection really had.
    pub median: u64,
    /// Largest count.
    pub max: u64,
    /// Sum over all connections.
    pub sum: u64,
}

impl ByConnection {
    /// Computes the growth from totals by connection at two instants; `keys` are the connections to
    /// include. A connection that is missing at one instant, or whose count shrank, was forgotten
    /// in between and is omitted; `None` if all are omitted.
    pub fn between(
        before: &HashMap<u64, Counts>,
        after: &HashMap<u64, Counts>,
        keys: impl IntoIterator<Item = u64>,
        duration_ns: u64,
    ) -> Option<ByConnection> {
        let growth = |key| -> Option<Counts> {
            let (before, after) = (before.get(&key)?, after.get(&key)?);
            let grown = after
                .iter()
                .map(|(&of, now)| Some((of, now.checked_sub(*before.get(&of)?)?)));
            grown.collect()
        };
        let grown: Vec<Counts> = keys.into_iter().filter_map(growth).collect();
        let quantities = grown.first()?.keys().filter_map(|&of| {
            let counts = grown.iter().filter_map(|counts| counts.get(&of).copied());
            Some((of, Spread::of(counts.collect())?))
        });
        Some(ByConnection {
            duration_ns,
            connections: grown.len() as u64,
            quantities: quantities.collect(),
        })
    }
}

impl Spread {
    fn of(mut counts: Vec<u64>) -> Option<Spread> {
        counts.sort_unstable();
        Some(Spread {
            min: *counts.first()?,
            median: counts[(counts.len() - 1) / 2],
            max: *counts.last()?,
            sum: counts
                .iter()
                .fold(0, |sum, count| sum.saturating_add(*count)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Totals of one quantity for connections 1, 2, …
    fn totals(totals: &[u64]) -> HashMap<u64, Counts> {
        let counts = |&total: &u64| Counts::from([(Quantity::DataSkbsSent, total)]);
        (1..).zip(totals.iter().map(counts)).collect()
    }

    fn check(before: &[u64], after: &[u64], keys: &[u64], expected: Option<(u64, [u64; 4])>) {
        let keys = keys.iter().copied();
        let found = ByConnection::between(&totals(before), &totals(after), keys, 5);
        let found = found.map(|found| {
            let spread = found.quantities[&Quantity::DataSkbsSent];
            let numbers = [spread.min, spread.median, spread.max, spread.sum];
            (found.connections, numbers)
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn the_growth_of_each_is_spread_over_all() {
        check(
            &[1, 2, 3],
            &[1, 12, 8],
            &[1, 2, 3],
            Some((3, [0, 5, 10, 15])),
        );
        check(&[0, 0], &[4, 6], &[1, 2], Some((2, [4, 4, 6, 10])));
        check(&[7], &[9], &[1], Some((1, [2, 2, 2, 2])));
    }

    #[test]
    fn what_was_forgotten_is_left_out() {
        check(&[5, 5], &[3, 6], &[1, 2], Some((1, [1, 1, 1, 1])));
        check(&[5], &[6, 9], &[1, 2, 3], Some((1, [1, 1, 1, 1])));
        check(&[5], &[4], &[1], None);
        check(&[5], &[6], &[], None);
    }
}
