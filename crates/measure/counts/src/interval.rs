//! Counts of one host's meters in one interval.

use std::collections::BTreeMap;

use crate::meter_name::MeterName;
use crate::quantity::Quantity;
use crate::reading::Counts;
use crate::source::Source;

/// Counts of one host's meters in one interval.
#[derive(Debug, Clone, Copy)]
pub struct Interval<'a> {
    /// Growth of each count, by meter.
    pub counts: &'a BTreeMap<MeterName, Counts>,
    /// Length of the interval, ns.
    pub duration_ns: u64,
}

impl Source for Interval<'_> {
    fn count(&self, by: MeterName, of: Quantity) -> Option<f64> {
        Some(*self.counts.get(&by)?.get(&of)? as f64)
    }

    fn per_s(&self, by: MeterName, of: Quantity) -> Option<f64> {
        let count = self.count(by, of)?;
        (self.duration_ns > 0).then(|| count * 1e9 / self.duration_ns as f64)
    }

    fn time_ns(&self, by: MeterName) -> Option<f64> {
        let counts = self.counts.get(&by)?;
        Some(match by {
            // Each ns of a CPU is in one of the modes or contexts.
            MeterName::Proc | MeterName::Exact => counts.values().sum::<u64>() as f64,
            _ => self.duration_ns as f64,
        })
    }
}
