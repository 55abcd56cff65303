//! What one interval showed: the growth of each meter's totals, and the figures made of it.
//!
//! The one table of figures, [`FIGURES`], is what lines, JSON and the screen show.

use std::collections::BTreeMap;

use tcpcost_study::{Counts, Quantity, Reading, Snapshot, Whose};

use super::connections::Row;

/// Growth between two instants.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// Time between the snapshots, ns: the longest of all meters.
    pub duration_ns: u64,
    /// Growth by meter, each of its widest owner: all CPUs, the host, the namespace.
    pub counts: BTreeMap<String, Counts>,
    /// Growth by connection, where asked for.
    pub rows: Option<Vec<Row>>,
    /// Meters that saw nothing of some of it: their figures are absent, and not another meter's.
    pub unseen: Vec<&'static str>,
    /// Standard error of payload bytes, over them, where they are sampled.
    pub sampling_error: Option<f64>,
    /// Why something is absent in this interval.
    pub notes: Vec<String>,
}

impl Sample {
    /// What grew. A meter that went backwards is absent, with a note.
    pub fn between(earlier: &[Snapshot], later: &[Snapshot]) -> Sample {
        let mut sample = Sample::default();
        for after in later {
            let Some(before) = earlier.iter().find(|before| before.meter == after.meter) else {
                continue;
            };
            match after.since(before) {
                Ok(readings) => readings
                    .into_iter()
                    .filter(|reading| !matches!(reading.whose, Whose::Cpu(_)))
                    .for_each(|reading| sample.add(reading)),
                Err(error) => sample.notes.push(error.to_string()),
            }
        }
        sample
    }

    fn add(&mut self, reading: Reading) {
        self.duration_ns = self.duration_ns.max(reading.duration_ns);
        self.counts.insert(reading.meter, reading.counts);
    }

    fn count(&self, meter: &str, quantity: Quantity) -> Option<f64> {
        Some(*self.counts.get(meter)?.get(&quantity)? as f64)
    }

    fn sum(&self, meter: &str, quantities: &[Quantity]) -> Option<f64> {
        quantities.iter().map(|&of| self.count(meter, of)).sum()
    }

    fn per_s(&self, count: f64) -> Option<f64> {
        ratio(count * 1e9, self.duration_ns as f64)
    }

    /// One meter's figure where that meter is, else another's.
    fn first_of(
        &self,
        meter: &str,
        better: impl FnOnce() -> Option<f64>,
        other: impl FnOnce() -> Option<f64>,
    ) -> Option<f64> {
        match self.unseen.contains(&meter) {
            true => None,
            false => better().or_else(other),
        }
    }

    /// TCP payload where the meter `segments` is, else octets of IP packets.
    fn bytes(&self, payload: Quantity, octets: Quantity) -> Option<f64> {
        self.first_of(
            "segments",
            || self.count("segments", payload),
            || self.count("netstat", octets),
        )
    }

    fn kib(&self) -> Option<f64> {
        Some((self.sent_bytes()? + self.received_bytes()?) / 1024.0)
    }

    /// Bytes that left.
    pub fn sent_bytes(&self) -> Option<f64> {
        self.bytes(Quantity::DataSkbBytesSent, Quantity::IpOctetsSent)
    }

    /// Bytes that came in.
    pub fn received_bytes(&self) -> Option<f64> {
        self.bytes(Quantity::DataSkbBytesReceived, Quantity::IpOctetsReceived)
    }

    /// Time in which the host's CPUs did anything at all, ns.
    fn busy_ns(&self) -> Option<f64> {
        let exact = || {
            Some(
                self.sum("exact", Quantity::EXACT_CONTEXTS)?
                    - self.count("exact", Quantity::ExactIdleNs)?,
            )
        };
        self.first_of("exact", exact, || self.sum("proc", BUSY))
    }

    fn cpu_us_per_kib(&self) -> Option<f64> {
        ratio(self.busy_ns()? / 1e3, self.kib()?)
    }

    fn core_cycles_per_kib(&self) -> Option<f64> {
        ratio(self.count("perf", Quantity::CoreCycles)?, self.kib()?)
    }

    fn softirq_ratio(&self) -> Option<f64> {
        let exact = || {
            ratio(
                self.sum("exact", SOFTIRQS)?,
                self.sum("exact", Quantity::EXACT_CONTEXTS)?,
            )
        };
        self.first_of("exact", exact, || {
            let all = self.sum("proc", BUSY)? + self.sum("proc", NOT_BUSY)?;
            ratio(self.count("proc", Quantity::CpuSoftirqNs)?, all)
        })
    }

    /// Quotient of two counts of the meter `segments`.
    fn of_segments(&self, over: Quantity, under: Quantity) -> Option<f64> {
        ratio(
            self.count("segments", over)?,
            self.count("segments", under)?,
        )
    }

    /// Share of data skbs that this drainer sent.
    fn drained(&self, drainer: Quantity) -> Option<f64> {
        self.of_segments(drainer, Quantity::DataSkbsSent)
    }
}

/// A quotient, absent where there is nothing to divide by.
fn ratio(over: f64, under: f64) -> Option<f64> {
    (under > 0.0).then(|| over / under)
}

/// One figure of a sample.
#[derive(Debug)]
pub struct Figure {
    /// The key in JSON; the value there is in the unit of the name.
    pub name: &'static str,
    /// The head of its column.
    pub head: &'static str,
    /// What people read: the value times this.
    pub scale: f64,
    /// Digits after the point, for people.
    pub decimals: usize,
    /// The value.
    pub value: fn(&Sample) -> Option<f64>,
}

impl Figure {
    /// For people: `-` where it is absent.
    pub fn text(&self, sample: &Sample) -> String {
        (self.value)(sample).map_or_else(
            || "-".to_string(),
            |value| format!("{:.*}", self.decimals, value * self.scale),
        )
    }
}

/// All of them, in the order of the columns.
pub const FIGURES: &[Figure] = &[
    Figure {
        name: "sent_bits_per_s",
        head: "out Gb/s",
        scale: 1e-9,
        decimals: 3,
        value: |sample| sample.per_s(sample.sent_bytes()? * 8.0),
    },
    Figure {
        name: "received_bits_per_s",
        head: "in Gb/s",
        scale: 1e-9,
        decimals: 3,
        value: |sample| sample.per_s(sample.received_bytes()? * 8.0),
    },
    Figure {
        name: "cpu_us_per_kib",
        head: "us/KiB",
        scale: 1.0,
        decimals: 3,
        value: Sample::cpu_us_per_kib,
    },
    Figure {
        name: "core_cycles_per_kib",
        head: "cyc/KiB",
        scale: 1.0,
        decimals: 0,
        value: Sample::core_cycles_per_kib,
    },
    Figure {
        name: "wire_segments_per_skb",
        head: "seg/skb",
        scale: 1.0,
        decimals: 1,
        value: |sample| sample.of_segments(Quantity::DataWireSegmentsSent, Quantity::DataSkbsSent),
    },
    Figure {
        name: "skb_bytes_mean",
        head: "skb B",
        scale: 1.0,
        decimals: 0,
        value: |sample| sample.of_segments(Quantity::DataSkbBytesSent, Quantity::DataSkbsSent),
    },
    Figure {
        name: "tail_ratio",
        head: "tail%",
        scale: 100.0,
        decimals: 1,
        value: |sample| sample.of_segments(Quantity::TailSkbsSent, Quantity::DataSkbsSent),
    },
    Figure {
        name: "sent_segments_per_ack",
        head: "seg/ack>",
        scale: 1.0,
        decimals: 1,
        value: |sample| {
            sample.of_segments(Quantity::DataWireSegmentsSent, Quantity::PureAcksReceived)
        },
    },
    Figure {
        name: "received_segments_per_ack",
        head: "seg/ack<",
        scale: 1.0,
        decimals: 1,
        value: |sample| {
            sample.of_segments(Quantity::DataWireSegmentsReceived, Quantity::PureAcksSent)
        },
    },
    Figure {
        name: "drained_by_system_call_ratio",
        head: "call%",
        scale: 100.0,
        decimals: 0,
        value: |sample| sample.drained(Quantity::DrainedSystemCallSkbs),
    },
    Figure {
        name: "drained_by_net_rx_ratio",
        head: "ack%",
        scale: 100.0,
        decimals: 0,
        value: |sample| sample.drained(Quantity::DrainedNetRxSkbs),
    },
    Figure {
        name: "drained_by_tasklet_ratio",
        head: "tsq%",
        scale: 100.0,
        decimals: 0,
        value: |sample| sample.drained(Quantity::DrainedTaskletSkbs),
    },
    Figure {
        name: "drained_by_timer_ratio",
        head: "tmr%",
        scale: 100.0,
        decimals: 0,
        value: |sample| sample.drained(Quantity::DrainedTimerSkbs),
    },
    Figure {
        name: "softirq_ratio",
        head: "sirq%",
        scale: 100.0,
        decimals: 1,
        value: Sample::softirq_ratio,
    },
    Figure {
        name: "retransmits_per_s",
        head: "retr/s",
        scale: 1.0,
        decimals: 0,
        value: |sample| sample.per_s(sample.count("netstat", Quantity::SegmentsRetransmitted)?),
    },
    Figure {
        name: "self_cpu_ratio",
        head: "self%",
        scale: 100.0,
        decimals: 2,
        value: |sample| {
            let programs = sample.count("programs", Quantity::SelfProgramsNs);
            let own = sample.count("self", Quantity::SelfCpuNs)? + programs.unwrap_or(0.0);
            ratio(own, sample.duration_ns as f64)
        },
    },
    Figure {
        name: "seen_ratio",
        head: "seen%",
        scale: 100.0,
        decimals: 1,
        value: |sample| {
            let rested_ns = sample.count("programs", Quantity::SelfProgramsRestedNs)?;
            ratio(rested_ns, sample.duration_ns as f64).map(|rested| (1.0 - rested).max(0.0))
        },
    },
    Figure {
        name: "sampling_error_ratio",
        head: "+-%",
        scale: 100.0,
        decimals: 1,
        value: |sample| sample.sampling_error,
    },
];

/// Modes of /proc/stat in which a CPU works.
const BUSY: &[Quantity] = &[
    Quantity::CpuUserNs,
    Quantity::CpuNiceNs,
    Quantity::CpuSystemNs,
    Quantity::CpuIrqNs,
    Quantity::CpuSoftirqNs,
    Quantity::CpuGuestNs,
];

/// The others.
const NOT_BUSY: &[Quantity] = &[
    Quantity::CpuIdleNs,
    Quantity::CpuIowaitNs,
    Quantity::CpuStealNs,
];

/// Contexts of the meter `exact` that are softirqs.
pub const SOFTIRQS: &[Quantity] = &[
    Quantity::ExactSoftirqNetRxNs,
    Quantity::ExactSoftirqNetTxNs,
    Quantity::ExactSoftirqTimerNs,
    Quantity::ExactSoftirqHrtimerNs,
    Quantity::ExactSoftirqTaskletNs,
    Quantity::ExactSoftirqSchedNs,
    Quantity::ExactSoftirqRcuNs,
    Quantity::ExactSoftirqOthersNs,
];

#[cfg(test)]
mod tests {
    use super::super::testing::{counters_only, tracepoints};
    use super::*;

    fn shown(sample: &Sample) -> Vec<String> {
        FIGURES.iter().map(|figure| figure.text(sample)).collect()
    }

    #[test]
    fn every_figure_is_made_of_the_counts() {
        // By hand from testing.rs: 125 MB sent and 12.5 MB received in 1 s, CPUs busy for 1 s.
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
    fn what_rested_is_absent_and_no_other_meters_figure() {
        let mut sample = counters_only(0);
        sample.unseen = vec!["segments", "exact"];
        let texts = shown(&sample);
        assert_eq!(texts[..3], ["-", "-", "-"]);
        assert_eq!(texts[13..15], ["-", "7"]);
    }

    #[test]
    fn a_total_that_went_backwards_is_absent_with_a_note() {
        let snapshot = |count| Snapshot {
            meter: "netstat".to_string(),
            at_ns: 5,
            totals: vec![tcpcost_study::Totals {
                whose: Whose::Namespace,
                counts: Counts::from([(Quantity::SegmentsRetransmitted, count)]),
            }],
        };
        let sample = Sample::between(&[snapshot(2)], &[snapshot(1)]);
        assert!(sample.counts.is_empty());
        assert!(sample.notes[0].contains("went back from 2 to 1"));
    }
}
