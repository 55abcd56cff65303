//! An interval: the growth of each meter's totals, and the figures that are shown.
//!
//! JSON has every figure of [`COLUMNS`]; lines and screen show one figure in each column.

use tcpcost_counts::{Figure, Growth, MeterName};

use crate::watch::column::{Column, column};
use crate::watch::rows::Row;

/// Growth between two instants.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// Growth of this host's counts.
    pub growth: Growth,
    /// Growth by connection and by process. `None` if it was not asked for.
    pub rows: Option<Vec<Row>>,
    /// Meters that missed a part of the interval. Their figures are absent, and no other meter replaces them.
    pub unseen: Vec<MeterName>,
}

impl Sample {
    /// True if the meter is available, even if it saw nothing in this interval.
    fn has(&self, meter: MeterName) -> bool {
        self.growth.counts.contains_key(&meter) || self.unseen.contains(&meter)
    }

    /// Value in a column.
    pub fn value(&self, column: &Column) -> Option<f64> {
        column.value(&self.growth, |meter| self.has(meter))
    }

    /// Text in a column.
    pub fn text(&self, column: &Column) -> String {
        column.text(self.value(column))
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
            "1.040", "0.104", "7.197", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "10.0",
            "7", "0.50", "-", "-",
        ];
        assert_eq!(shown(&counters_only(0)), expected);
    }

    #[test]
    fn no_traffic_is_no_ratio_and_nothing_measured_is_nothing_shown() {
        assert!(shown(&Sample::default()).iter().all(|text| text == "-"));
        let mut idle = tracepoints(0);
        for counts in idle.growth.counts.values_mut() {
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
}
