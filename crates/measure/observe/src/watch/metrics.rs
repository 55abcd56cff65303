//! The meters' totals as Prometheus counters in base units. Labels have at most a dozen values. The exception
//! is owners of CPU time, which are shown if `--by` asks for them, and are limited to
//! [`OWNERS_MAX`](crate::watch::rows::OWNERS_MAX). No
//! label is an address or a connection.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Unit;
use tcpcost_counts::{CountOwner, Counts, Growth, MeterName, Quantity, Snapshot, self_cpu_ns};
use tcpcost_model::PriceList;

use crate::watch::connections::Wanted;
use crate::watch::costs::Costs;
use crate::watch::driver::Moment;
use crate::watch::exposition::metrics_text;
use crate::watch::priced::Priced;
use crate::watch::rows::{By, Owner, place};
use crate::watch::sample::Sample;

/// Totals of the last reading, shared by the loop that reads and the server.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Mutex<Last>>);

#[derive(Debug, Default)]
struct Last {
    snapshots: Vec<Snapshot>,
    /// Kinds of owners that are shown.
    by: Vec<By>,
    /// CPU time of each owner that was shown once, in the order of [`CONTEXTS`].
    owners: BTreeMap<Owner, [u64; 4]>,
    /// Cost by cause. `None` without prices of this host.
    priced: Option<Priced>,
}

/// Totals of a meter, without those of single CPUs.
fn of(snapshots: &[Snapshot], meter: MeterName) -> Option<&Counts> {
    let snapshot = snapshots.iter().find(|snapshot| snapshot.meter == meter)?;
    let mut totals = snapshot.totals.iter();
    totals
        .find(|totals| !matches!(totals.whose, CountOwner::Cpu(_)))
        .map(|totals| &totals.counts)
}

/// Totals of all meters, as growth since they began.
fn all(snapshots: &[Snapshot]) -> Growth {
    let totals = MeterName::ALL.iter();
    let totals = totals.filter_map(|&meter| Some((meter, of(snapshots, meter)?.clone())));
    Growth {
        counts: totals.collect(),
        ..Growth::default()
    }
}

impl Last {
    /// Updates the owners' times, none of which may shrink: a late estimate of user time would lower the
    /// system time.
    fn set_owners(&mut self, costs: &Costs) {
        let rows = costs.totals();
        for &by in &self.by {
            let mut sums: BTreeMap<Owner, [u64; 4]> = BTreeMap::new();
            for row in &rows {
                let key = place(&self.owners, by, row);
                self.owners.entry(key.clone()).or_default();
                let sum = sums.entry(key).or_default();
                let of = |quantity| row.counts.get(&quantity).copied().unwrap_or(0);
                for (sum, quantity) in sum.iter_mut().zip(Quantity::HOLDER) {
                    *sum += of(quantity);
                }
            }
            for (key, [task, user, softirq, hardirq]) in sums {
                let user = user.min(task);
                let now = [user, task - user, softirq, hardirq];
                let told = self.owners.entry(key).or_default();
                for (told, now) in told.iter_mut().zip(now) {
                    *told = now.max(*told);
                }
            }
        }
    }
}

impl Metrics {
    /// Makes metrics with the CPU time of the owners that `wanted` asks for, and with the cost by cause if there are prices.
    pub fn of(wanted: &Wanted, prices: Option<PriceList>) -> Metrics {
        let by = wanted.rows.keys().copied();
        let last = Last {
            by: by.filter(|&by| by != By::Connection).collect(),
            priced: prices.map(Priced::by),
            ..Last::default()
        };
        Metrics(Arc::new(Mutex::new(last)))
    }

    /// Replaces the totals. Totals of meters that saw nothing since then stay.
    pub fn set(&self, now: &Moment) {
        // A panic with the lock held leaves whole snapshots.
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshots = &mut last.snapshots;
        snapshots.retain(|old| now.unseen.contains(&old.meter));
        snapshots.extend(now.snapshots.iter().cloned());
        if let Some(costs) = &now.costs {
            last.set_owners(costs);
        }
        let last = &mut *last;
        if let Some(priced) = &mut last.priced {
            priced.set(&all(&last.snapshots));
        }
    }

    /// Adds the cost of an interval to its owners.
    pub fn add(&self, sample: &Sample) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = &mut *last;
        if let Some(priced) = &mut last.priced {
            for &by in &last.by {
                priced.add(by, sample);
            }
        }
    }

    /// The text for Prometheus (OpenMetrics 1.0).
    pub fn text(&self) -> Result<String, fmt::Error> {
        metrics_text(self.clone())
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshots = &last.snapshots;
        owners(&last.owners, &mut encoder)?;
        if let Some(priced) = &last.priced {
            priced.encode(&mut encoder)?;
        }
        let of = |meter: MeterName| of(snapshots, meter);
        for counter in COUNTERS {
            if let Some(counts) = of(counter.meter) {
                counter.encode(counts, &mut encoder)?;
            }
        }
        if let Some(ns) = self_cpu_ns(&all(snapshots)) {
            let help = "CPU time of tcpcost itself and of its eBPF programs";
            let counts = Counts::from([(Quantity::SelfCpuNs, ns as u64)]);
            let values = [("", Quantity::SelfCpuNs)];
            family("tcpcost_self_cpu", help, "", &values, &counts, &mut encoder)?;
        }
        // Only one method: both count the same time.
        if let Some(exact) = of(MeterName::Exact) {
            cpu(Quantity::EXACT_CONTEXTS, "exact_", exact, &mut encoder)
        } else if let Some(proc) = of(MeterName::Proc) {
            cpu(Quantity::CPU_MODES, "cpu_", proc, &mut encoder)
        } else {
            Ok(())
        }
    }
}

/// Encodes `tcpcost_owner_cpu_seconds_total`.
fn owners(owners: &BTreeMap<Owner, [u64; 4]>, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    if owners.is_empty() {
        return Ok(());
    }
    let help = "CPU time of processes with sockets: of their tasks, and of interrupts for their sockets (docs/records.md)";
    let seconds = Some(&Unit::Seconds);
    let name = "tcpcost_owner_cpu";
    let mut metric = encoder.encode_descriptor(name, help, seconds, MetricType::Counter)?;
    for ((by, owner), ns) in owners {
        for (context, ns) in CONTEXTS.iter().zip(ns) {
            let labels = [
                ("by", by.one()),
                ("owner", owner.as_str()),
                ("context", context),
            ];
            let total = ConstCounter::new(*ns as f64 / 1e9);
            total.encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

const CONTEXTS: [&str; 4] = ["user", "system", "softirq", "hardirq"];

/// Encodes `tcpcost_cpu_seconds_total`. A context is named like its quantity, without prefix and unit.
fn cpu(
    contexts: &[Quantity],
    prefix: &str,
    counts: &Counts,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let help = "CPU time of all CPUs of the host by context (docs/quantities.md)";
    let labelled: Vec<(&str, Quantity)> = contexts
        .iter()
        .map(|&context| {
            let name = context.name();
            let name = name.strip_prefix(prefix).unwrap_or(name);
            (name.strip_suffix("_ns").unwrap_or(name), context)
        })
        .collect();
    family("tcpcost_cpu", help, "context", &labelled, counts, encoder)
}

/// A family of counters of one meter.
struct Counter {
    meter: MeterName,
    name: &'static str,
    help: &'static str,
    /// Name of the label; empty for no label.
    label: &'static str,
    values: &'static [(&'static str, Quantity)],
}

impl Counter {
    fn encode(&self, counts: &Counts, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        family(
            self.name,
            self.help,
            self.label,
            self.values,
            counts,
            encoder,
        )
    }
}

/// Encodes a family. The unit comes from the quantities' names: `_ns` is converted to seconds. Absent counts
/// are omitted.
fn family(
    name: &str,
    help: &str,
    label: &str,
    values: &[(&str, Quantity)],
    counts: &Counts,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let known: Vec<(&str, Quantity, u64)> = values
        .iter()
        .filter_map(|&(value, of)| Some((value, of, *counts.get(&of)?)))
        .collect();
    let Some(&(_, first, first_total)) = known.first() else {
        return Ok(());
    };
    let unit = match first.name() {
        name if name.ends_with("_ns") => Some(Unit::Seconds),
        name if name.contains("_bytes") => Some(Unit::Bytes),
        _ => None,
    };
    let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
    if label.is_empty() {
        return value(first, first_total, metric);
    }
    for (name, of, total) in known {
        let labels = [(label, name)];
        value(of, total, metric.encode_family(&labels)?)?;
    }
    Ok(())
}

fn value(of: Quantity, total: u64, encoder: MetricEncoder<'_>) -> fmt::Result {
    match of.name().ends_with("_ns") {
        true => ConstCounter::new(total as f64 / 1e9).encode(encoder),
        false => ConstCounter::new(total).encode(encoder),
    }
}

const COUNTERS: &[Counter] = &[
    Counter {
        meter: MeterName::Segments,
        name: "tcpcost_tcp_wire_segments",
        help: "TCP segments with payload, as on the wire",
        label: "direction",
        values: &[
            ("sent", Quantity::DataWireSegmentsSent),
            ("received", Quantity::DataWireSegmentsReceived),
        ],
    },
    Counter {
        meter: MeterName::Segments,
        name: "tcpcost_tcp_skbs",
        help: "skbs with TCP payload, before segmentation and after GRO",
        label: "direction",
        values: &[
            ("sent", Quantity::DataSkbsSent),
            ("received", Quantity::DataSkbsReceived),
        ],
    },
    Counter {
        meter: MeterName::Segments,
        name: "tcpcost_tcp_payload",
        help: "TCP payload in these skbs",
        label: "direction",
        values: &[
            ("sent", Quantity::DataSkbBytesSent),
            ("received", Quantity::DataSkbBytesReceived),
        ],
    },
    Counter {
        meter: MeterName::Segments,
        name: "tcpcost_tcp_pure_acks",
        help: "TCP segments that have no payload and no SYN, FIN or RST",
        label: "direction",
        values: &[
            ("sent", Quantity::PureAcksSent),
            ("received", Quantity::PureAcksReceived),
        ],
    },
    Counter {
        meter: MeterName::Segments,
        name: "tcpcost_xmit_drain",
        help: "Data skbs sent, by what sent them",
        label: "drainer",
        values: &[
            ("system_call", Quantity::DrainedSystemCallSkbs),
            ("net_rx", Quantity::DrainedNetRxSkbs),
            ("tasklet", Quantity::DrainedTaskletSkbs),
            ("timer", Quantity::DrainedTimerSkbs),
            ("others", Quantity::DrainedOthersSkbs),
        ],
    },
    Counter {
        meter: MeterName::Netstat,
        name: "tcpcost_tcp_retransmitted_segments",
        help: "TCP segments retransmitted",
        label: "",
        values: &[("", Quantity::SegmentsRetransmitted)],
    },
    Counter {
        meter: MeterName::Netstat,
        name: "tcpcost_tcp_events",
        help: "Other events of TCP (docs/quantities.md)",
        label: "event",
        values: &[
            ("delayed_ack_sent", Quantity::DelayedAcksSent),
            ("header_predicted_data", Quantity::HeaderPredictedData),
            ("header_predicted_ack", Quantity::HeaderPredictedAcks),
            ("backlog_coalesced", Quantity::BacklogCoalesced),
            ("autocorked_write", Quantity::Autocorked),
            ("out_of_order_skb", Quantity::OutOfOrderQueued),
            ("dsack_received", Quantity::DsacksReceived),
            ("compressed_ack", Quantity::CompressedAcks),
            ("receive_collapsed_skb", Quantity::ReceiveCollapsed),
            ("receive_prune", Quantity::ReceivePruned),
            ("zero_window_advertised", Quantity::ZeroWindowsSent),
            ("timeout", Quantity::Timeouts),
        ],
    },
    Counter {
        meter: MeterName::Segments,
        name: "tcpcost_tcp_acks_sent",
        help: "Pure ACKs sent, by effect on the receive window; duplicates count as only acknowledging",
        label: "kind",
        values: &[
            ("window_advancing", Quantity::WindowAdvancingAcksSent),
            ("only_acknowledging", Quantity::OnlyAcknowledgingAcksSent),
            ("duplicate", Quantity::DuplicateAcksSent),
        ],
    },
    Counter {
        meter: MeterName::Vmstat,
        name: "tcpcost_page_faults",
        help: "Page faults of the whole host, by whether they waited for a disk",
        label: "kind",
        values: &[
            ("minor", Quantity::MinorFaults),
            ("major", Quantity::MajorFaults),
        ],
    },
    Counter {
        meter: MeterName::Perf,
        name: "tcpcost_branch_misses",
        help: "Branches predicted wrong on all CPUs of the host",
        label: "",
        values: &[("", Quantity::BranchMisses)],
    },
    Counter {
        meter: MeterName::Perf,
        name: "tcpcost_core_cycles",
        help: "Core cycles of all CPUs of the host, user and kernel",
        label: "",
        values: &[("", Quantity::CoreCycles)],
    },
    Counter {
        meter: MeterName::Programs,
        name: "tcpcost_self_idle",
        help: "Time in which the eBPF programs were idle: while it grows other counters grow by estimates",
        label: "",
        values: &[("", Quantity::SelfProgramsIdleNs)],
    },
];

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::watch::rows::OWNERS_MAX;
    use tcpcost_counts::Totals;

    type Meter<'a> = (MeterName, CountOwner, &'a [(Quantity, u64)]);

    fn text(meters: &[Meter<'_>]) -> String {
        let snapshots = meters.iter().map(|(meter, whose, counts)| Snapshot {
            meter: *meter,
            at_ns: 1,
            totals: vec![Totals {
                whose: whose.clone(),
                counts: counts.iter().copied().collect(),
            }],
        });
        let moment = Moment {
            snapshots: snapshots.collect(),
            ..Moment::default()
        };
        let metrics = Metrics::default();
        metrics.set(&moment);
        metrics.text().unwrap()
    }

    #[test]
    fn totals_are_in_base_units_with_few_labels() {
        let text = text(&[
            (
                MeterName::Segments,
                CountOwner::Namespace,
                &[
                    (Quantity::DataWireSegmentsSent, 44),
                    (Quantity::DataSkbBytesReceived, 1000),
                    (Quantity::DrainedNetRxSkbs, 5),
                ],
            ),
            (
                MeterName::SelfCost,
                CountOwner::Tcpcost,
                &[(Quantity::SelfCpuNs, 2_500_000)],
            ),
            (
                MeterName::Programs,
                CountOwner::Tcpcost,
                &[
                    (Quantity::SelfProgramsNs, 500_000),
                    (Quantity::SelfProgramsIdleNs, 1_000_000_000),
                ],
            ),
            (
                MeterName::Perf,
                CountOwner::Cpus(vec![0]),
                &[(Quantity::CoreCycles, 3_000_000_000)],
            ),
            (
                MeterName::Exact,
                CountOwner::Cpus(vec![0]),
                &[(Quantity::ExactSoftirqNetRxNs, 1_500_000_000)],
            ),
            (
                MeterName::Proc,
                CountOwner::Host,
                &[(Quantity::CpuUserNs, 7)],
            ),
        ]);
        assert_eq!(
            text,
            "\
# HELP tcpcost_tcp_wire_segments TCP segments with payload, as on the wire
# TYPE tcpcost_tcp_wire_segments counter
tcpcost_tcp_wire_segments_total{direction=\"sent\"} 44
# HELP tcpcost_tcp_payload_bytes TCP payload in these skbs
# TYPE tcpcost_tcp_payload_bytes counter
# UNIT tcpcost_tcp_payload_bytes bytes
tcpcost_tcp_payload_bytes_total{direction=\"received\"} 1000
# HELP tcpcost_xmit_drain Data skbs sent, by what sent them
# TYPE tcpcost_xmit_drain counter
tcpcost_xmit_drain_total{drainer=\"net_rx\"} 5
# HELP tcpcost_core_cycles Core cycles of all CPUs of the host, user and kernel
# TYPE tcpcost_core_cycles counter
tcpcost_core_cycles_total 3000000000
# HELP tcpcost_self_idle_seconds Time in which the eBPF programs were idle: while it grows other counters grow by estimates
# TYPE tcpcost_self_idle_seconds counter
# UNIT tcpcost_self_idle_seconds seconds
tcpcost_self_idle_seconds_total 1.0
# HELP tcpcost_self_cpu_seconds CPU time of tcpcost itself and of its eBPF programs
# TYPE tcpcost_self_cpu_seconds counter
# UNIT tcpcost_self_cpu_seconds seconds
tcpcost_self_cpu_seconds_total 0.003
# HELP tcpcost_cpu_seconds CPU time of all CPUs of the host by context (docs/quantities.md)
# TYPE tcpcost_cpu_seconds counter
# UNIT tcpcost_cpu_seconds seconds
tcpcost_cpu_seconds_total{context=\"softirq_net_rx\"} 1.5
# EOF
"
        );
    }

    /// Row of the page for a counter: its name as served, the values of its label, its help.
    fn row(counter: &Counter) -> String {
        let counts: Vec<(Quantity, u64)> = counter.values.iter().map(|&(_, of)| (of, 1)).collect();
        let text = text(&[(counter.meter, CountOwner::Namespace, &counts)]);
        let line = text.lines().find(|line| !line.starts_with('#'));
        let name = line.and_then(|line| line.split(['{', ' ']).next());
        let values: Vec<&str> = counter.values.iter().map(|&(value, _)| value).collect();
        let label = match counter.label {
            "" => String::new(),
            label => format!("{label}: {}", values.join(", ")),
        };
        format!(
            "| {} | {label} | {} |\n",
            name.expect("a counter is served"),
            counter.help
        )
    }

    /// Table of the counters for docs/records.md.
    pub(in crate::watch) fn counter_table() -> String {
        let rows: String = COUNTERS.iter().map(row).collect();
        format!("| metric | label | meaning |\n|---|---|---|\n{rows}")
    }

    #[test]
    fn owners_are_told_where_they_are_asked_for_and_never_shrink() {
        let mut wanted = Wanted::default();
        wanted.rows.insert(By::Process, 1);
        wanted.rows.insert(By::Connection, 1);
        let metrics = Metrics::of(&wanted, None);
        let set = |of: &[(u32, &str, [u64; 4])]| {
            metrics.set(&Moment {
                costs: Some(Costs::of(of)),
                ..Moment::default()
            });
        };
        let second = 1_000_000_000;
        set(&[
            (7, "web", [4 * second, second, 0, 0]),
            (8, "web", [second, 0, second, 0]),
        ]);
        // The estimate of user time came late, but the system time must not shrink.
        set(&[(7, "web", [4 * second, 4 * second, 0, 0])]);
        let text = metrics.text().unwrap();
        let told = text
            .lines()
            .filter(|line| line.starts_with("tcpcost_owner"));
        let of = |context, seconds| {
            format!(
                "tcpcost_owner_cpu_seconds_total{{by=\"process\",owner=\"web\",context=\"{context}\"}} {seconds}"
            )
        };
        let expected = [
            ("user", "4.0"),
            ("system", "4.0"),
            ("softirq", "1.0"),
            ("hardirq", "0.0"),
        ];
        assert_eq!(
            told.collect::<Vec<_>>(),
            expected.map(|(of_, s)| of(of_, s))
        );
    }

    #[test]
    fn owners_beyond_the_limit_are_one() {
        let mut wanted = Wanted::default();
        wanted.rows.insert(By::Process, 1);
        let metrics = Metrics::of(&wanted, None);
        let names: Vec<String> = (0..2 * OWNERS_MAX).map(|of| format!("p{of:04}")).collect();
        let all: Vec<(u32, &str, [u64; 4])> = names
            .iter()
            .map(|name| (1, name.as_str(), [5; 4]))
            .collect();
        metrics.set(&Moment {
            costs: Some(Costs::of(&all)),
            ..Moment::default()
        });
        let text = metrics.text().unwrap();
        assert_eq!(text.matches("context=\"user\"").count(), OWNERS_MAX);
        assert!(text.contains("owner=\"others\""), "{text}");
    }

    #[test]
    fn a_meter_that_saw_nothing_keeps_its_totals() {
        let metrics = Metrics::default();
        let netstat = |count| Snapshot {
            meter: MeterName::Netstat,
            at_ns: 1,
            totals: vec![Totals {
                whose: CountOwner::Namespace,
                counts: Counts::from([(Quantity::SegmentsRetransmitted, count)]),
            }],
        };
        let mut moment = Moment {
            snapshots: vec![netstat(7)],
            ..Moment::default()
        };
        metrics.set(&moment);
        moment.snapshots.clear();
        moment.unseen = vec![MeterName::Netstat];
        metrics.set(&moment);
        assert!(metrics.text().unwrap().contains("_segments_total 7\n"));
        moment.unseen.clear();
        metrics.set(&moment);
        assert!(!metrics.text().unwrap().contains("_segments_total"));
    }

    #[test]
    fn without_ebpf_cpu_time_is_of_proc() {
        let text = text(&[(
            MeterName::Proc,
            CountOwner::Host,
            &[(Quantity::CpuUserNs, 7_000_000_000)],
        )]);
        assert!(
            text.contains("tcpcost_cpu_seconds_total{context=\"user\"} 7.0\n"),
            "{text}"
        );
        assert!(!text.contains("skbs"), "{text}");
    }
}
