//! An interval: the growth of each meter's totals, and the figures that are shown.
//!
//! JSON has every figure of [`COLUMNS`]; lines and screen show one figure in each column.

use std::collections::BTreeMap;

use tcpcost_counts::{
    CountOwner, Counts, Figure, Interval, MeterName, Quantity, Reading, Snapshot, Source,
};

use crate::watch::column::{Column, column};
use crate::watch::rows::Row;

/// Growth between two instants.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// Time between the snapshots, ns: the longest of all meters.
    pub duration_ns: u64,
    /// Growth by meter, for its widest owner: all CPUs, the host, or the namespace.
    pub counts: BTreeMap<MeterName, Counts>,
    /// Growth by connection and by process. `None` if it was not asked for.
    pub rows: Option<Vec<Row>>,
    /// Meters that missed a part of the interval. Their figures are absent, and no other meter replaces them.
    pub unseen: Vec<MeterName>,
    /// Relative standard error of payload bytes. `None` if they are not sampled.
    pub sampling_error: Option<f64>,
    /// Reasons for values that are absent in this interval.
    pub warnings: Vec<String>,
}

impl Sample {
    /// Growth between two readings. A meter that went backwards is absent, with a warning.
    pub fn between(earlier: &[Snapshot], later: &[Snapshot]) -> Sample {
        let mut sample = Sample::default();
        for after in later {
            let Some(before) = earlier.iter().find(|before| before.meter == after.meter) else {
                continue;
            };
            match after.since(before) {
                Ok(readings) => readings
                    .into_iter()
                    .filter(|reading| !matches!(reading.whose, CountOwner::Cpu(_)))
                    .for_each(|reading| sample.add(reading)),
                Err(error) => sample.warnings.push(error.to_string()),
            }
        }
        sample
    }

    fn add(&mut self, reading: Reading) {
        self.duration_ns = self.duration_ns.max(reading.duration_ns);
        self.counts.insert(reading.meter, reading.counts);
    }

    /// True if the meter is available, even if it saw nothing in this interval.
    fn has(&self, meter: MeterName) -> bool {
        self.counts.contains_key(&meter) || self.unseen.contains(&meter)
    }

    /// Value in a column.
    pub fn value(&self, column: &Column) -> Option<f64> {
        column.value(self, |meter| self.has(meter))
    }

    /// Text in a column.
    pub fn text(&self, column: &Column) -> String {
        column.text(self.value(column))
    }
}

impl Sample {
    fn interval(&self) -> Interval<'_> {
        Interval {
            counts: &self.counts,
            duration_ns: self.duration_ns,
        }
    }
}

/// Counts of this host in the interval.
impl Source for Sample {
    fn count(&self, by: MeterName, of: Quantity) -> Option<f64> {
        self.interval().count(by, of)
    }

    fn per_s(&self, by: MeterName, of: Quantity) -> Option<f64> {
        self.interval().per_s(by, of)
    }

    fn time_ns(&self, by: MeterName) -> Option<f64> {
        self.interval().time_ns(by)
    }

    fn sampling_error(&self) -> Option<f64> {
        self.sampling_error
    }
}

/// All columns, in their order.
pub const COLUMNS: &[Column] = &[
    column(3, &[Figure::PayloadSent, Figure::IpSent]),
    column(3, &[Figure::PayloadReceived, Figure::IpReceived]),
    column(
        3,
        &[
            Figure::HostExactUsPerPayloadKib,
            Figure::HostExactUsPerIpKib,
            Figure::HostUsPerPayloadKib,
            Figure::HostUsPerIpKib,
        ],
    ),
    column(
        0,
        &[Figure::HostCyclesPerPayloadKib, Figure::HostCyclesPerIpKib],
    ),
    column(1, &[Figure::WireSegmentsPerDataSkb]),
    column(0, &[Figure::SkbBytesMean]),
    column(1, &[Figure::TailRatio]),
    column(1, &[Figure::WireSegmentsPerAckReceived]),
    column(1, &[Figure::WireSegmentsPerAckSent]),
    column(0, &[Figure::DrainedBySystemCall]),
    column(0, &[Figure::DrainedByNetRx]),
    column(0, &[Figure::DrainedByTasklet]),
    column(0, &[Figure::DrainedByTimer]),
    column(1, &[Figure::ExactSoftirqRatio, Figure::SoftirqRatio]),
    column(0, &[Figure::RetransmitsPerS]),
    column(2, &[Figure::SelfCpuRatio]),
    column(1, &[Figure::SeenRatio]),
    column(1, &[Figure::SamplingErrorRatio]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::testing::{counters_only, tracepoints};

    fn shown(sample: &Sample) -> Vec<String> {
        COLUMNS.iter().map(|column| sample.text(column)).collect()
    }

    #[test]
    fn every_figure_is_made_of_the_counts() {
        // Calculated by hand from testing.rs: 125 MB sent and 12.5 MB received in 1 s, CPUs busy for 1 s.
        let expected = [
            "1.000", "0.100", "7.447", "23831", "10.0", "12500", "5.0", "20.0", "10.0", "60", "30",
            "8", "2", "12.5", "7", "0.75", "5.0", "1.5",
        ];
        assert_eq!(shown(&tracepoints(0)), expected);
    }

    #[test]
    fn without_ebpf_proc_and_netstat_give_what_they_can() {
        let expected = [
            "1.040", "0.104", "7.161", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "10.0",
            "7", "0.50", "-", "-",
        ];
        assert_eq!(shown(&counters_only(0)), expected);
    }

    #[test]
    fn no_traffic_is_no_ratio_and_nothing_measured_is_nothing_shown() {
        assert!(shown(&Sample::default()).iter().all(|text| text == "-"));
        let mut idle = tracepoints(0);
        for counts in idle.counts.values_mut() {
            counts.values_mut().for_each(|count| *count = 0);
        }
        assert_eq!(shown(&idle)[..4], ["0.000", "0.000", "-", "-"]);
    }

    #[test]
    fn what_was_idle_is_absent_and_no_other_meters_figure() {
        let mut sample = counters_only(0);
        sample.unseen = vec![MeterName::Segments, MeterName::Exact];
        let texts = shown(&sample);
        assert_eq!(texts[..3], ["-", "-", "-"]);
        assert_eq!(texts[13..15], ["-", "7"]);
    }

    #[test]
    fn a_total_that_went_backwards_is_absent_with_a_note() {
        let snapshot = |count| Snapshot {
            meter: MeterName::Netstat,
            at_ns: 5,
            totals: vec![tcpcost_counts::Totals {
                whose: CountOwner::Namespace,
                counts: Counts::from([(Quantity::SegmentsRetransmitted, count)]),
            }],
        };
        let sample = Sample::between(&[snapshot(2)], &[snapshot(1)]);
        assert!(sample.counts.is_empty());
        assert!(sample.warnings[0].contains("decreased from 2 to 1"));
    }
}
