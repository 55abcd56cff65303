//! One record to its derived quantities: every formula of the report is in this file.
//!
//! Whatever lacks an input is absent, never 0. Nothing here averages over trials.

use std::collections::{BTreeMap, BTreeSet};

use tcpcost_study::{
    Derived, DerivedKind, End, EndRecord, Quantity, Reading, Record, Whose, WorkloadKind,
};

use crate::response::response_times;

/// What one trial's counts amount to.
pub type Values = BTreeMap<Derived, f64>;

/// Every derived quantity that this record has the counts for; none unless it was measured.
///
/// CPU of one end is told only where the ends' CPUs are disjoint and the bed is `netns`: on loopback
/// the receiver's softirq runs on the sender's CPU. A count of a namespace is one end's only in
/// `netns`: on loopback both ends are in one, which then counts once.
pub fn derive(record: &Record) -> Values {
    let mut values = Values::new();
    if !record.is_measured() {
        return values;
    }
    let trial = Trial::new(record);
    for scope in [None, Some(End::Client), Some(End::Server)] {
        for (kind, value) in trial.cpu(scope).into_iter().chain(trial.counts(scope)) {
            if let Some(value) = value.filter(|value| value.is_finite())
                && (scope.is_none() || kind.per_end())
            {
                values.insert(Derived { kind, end: scope }, value);
            }
        }
    }
    let of_response_times = record
        .ends
        .get(&End::Client)
        .and_then(|end| end.response_time_hdr.as_deref())
        .map(response_times)
        .unwrap_or_default();
    for (kind, us) in of_response_times {
        values.insert(Derived::both(kind), us);
    }
    values
}

/// Busy is all but idle, iowait and steal: netperf takes these two for busy, and is wrong.
const BUSY: [Quantity; 6] = [
    Quantity::CpuUserNs,
    Quantity::CpuNiceNs,
    Quantity::CpuSystemNs,
    Quantity::CpuIrqNs,
    Quantity::CpuSoftirqNs,
    Quantity::CpuGuestNs,
];

/// Busy time that belongs to tasks.
const OF_TASKS: [Quantity; 4] = [
    Quantity::CpuUserNs,
    Quantity::CpuNiceNs,
    Quantity::CpuSystemNs,
    Quantity::CpuGuestNs,
];

/// The unit of /proc/stat: two readings of it may be off by this much on each CPU.
const TICK_NS: f64 = 1e7;

type Kinds = Vec<(DerivedKind, Option<f64>)>;

/// A measured record, and what can be told apart in it.
struct Trial<'a> {
    record: &'a Record,
    kind: Option<WorkloadKind>,
    /// Whether each end's CPUs, and each end's namespace, are its own.
    apart: (bool, bool),
}

impl<'a> Trial<'a> {
    fn new(record: &'a Record) -> Self {
        let cpus = |end: End| record.ends.get(&end).map(|end| &end.cpus);
        let disjoint = match (cpus(End::Client), cpus(End::Server)) {
            (Some(client), Some(server)) => client.iter().all(|cpu| !server.contains(cpu)),
            _ => false,
        };
        let netns = record.bed == "netns";
        Trial {
            record,
            kind: record
                .knobs
                .word("workload")
                .and_then(|word| WorkloadKind::from_word(&word)),
            apart: (netns && disjoint, netns),
        }
    }

    fn ends(&self, scope: Option<End>) -> impl Iterator<Item = &'a EndRecord> {
        let record = self.record;
        End::BOTH
            .into_iter()
            .filter(move |end| scope.is_none_or(|scope| scope == *end))
            .filter_map(|end| record.ends.get(&end))
    }

    /// A count summed over these ends; absent where one of them has it not.
    fn sum(&self, scope: Option<End>, meter: &str, whose: &Whose, of: Quantity) -> Option<f64> {
        let expected = if scope.is_some() { 1 } else { 2 };
        let counts: Vec<f64> = self
            .ends(scope)
            .filter_map(|end| end.growth(meter, whose, of))
            .map(|count| count as f64)
            .collect();
        (counts.len() == expected).then(|| counts.iter().sum())
    }

    /// A count of the workload's own, summed over the ends of the scope that have it: an end that
    /// only receives has no sending calls.
    fn workload(&self, scope: Option<End>, of: Quantity) -> Option<f64> {
        self.ends(scope)
            .filter_map(|end| end.growth("workload", &Whose::Workload, of))
            .map(|count| count as f64)
            .reduce(|a, b| a + b)
    }

    /// A count of the namespaces: each once.
    fn namespaces(&self, scope: Option<End>, of: Quantity) -> Option<f64> {
        let netns = self.apart.1;
        match scope {
            Some(_) if !netns => None,
            None if !netns => self
                .ends(None)
                .find_map(|end| end.growth("netstat", &Whose::Namespace, of))
                .map(|count| count as f64),
            scope => self.sum(scope, "netstat", &Whose::Namespace, of),
        }
    }

    /// Payload delivered to the applications of both ends, and the same per second. Every end that
    /// the workload sends to must have counted; each end by its own clock.
    fn delivered(&self) -> Option<(f64, f64)> {
        let (mut bytes, mut bytes_per_s) = (0.0, 0.0);
        for end in End::BOTH {
            let reading = self.record.ends.get(&end).and_then(|end| {
                end.readings.iter().find(|reading| {
                    reading.meter == "workload"
                        && reading.whose == Whose::Workload
                        && reading.counts.contains_key(&Quantity::PayloadBytesReceived)
                })
            });
            match reading {
                Some(reading) => {
                    let count = reading.counts[&Quantity::PayloadBytesReceived] as f64;
                    bytes += count;
                    bytes_per_s += ratio(count, reading.duration_ns as f64 / 1e9)?;
                }
                None if self.kind?.sends(end.peer()) => return None,
                None => {}
            }
        }
        Some((bytes, bytes_per_s))
    }

    /// Transactions, which the client counts, and its interval in s.
    fn transactions(&self) -> Option<(f64, f64)> {
        let reading = self
            .record
            .ends
            .get(&End::Client)?
            .readings
            .iter()
            .find(|reading| reading.meter == "workload" && reading.whose == Whose::Workload)?;
        let count = *reading.counts.get(&Quantity::Transactions)?;
        Some((count as f64, reading.duration_ns as f64 / 1e9))
    }

    /// What CPU time amounts to.
    fn cpu(&self, scope: Option<End>) -> Kinds {
        use DerivedKind as D;
        if scope.is_some() && !self.apart.0 {
            return Vec::new();
        }
        let Some(cpus) = CpuTime::new(self.ends(scope), self.record.ends.len() == 2) else {
            return Vec::new();
        };
        let busy_us = cpus.sum(&BUSY).map(|ns| ns / 1e3);
        let kib = self.delivered().map(|(bytes, _)| bytes / 1024.0);
        let transactions = self.transactions().map(|(count, _)| count);
        let per = |of: Option<f64>| ratio(busy_us?, of?);
        let tsc = self.tsc_per_us(scope);
        let cycles = |us: Option<f64>| Some(us? * tsc?);
        let share = |of: &[Quantity]| ratio(cpus.sum(of)?, cpus.available_ns);
        let tasks_ns = self
            .sum(scope, "rusage", &Whose::Threads, Quantity::TaskUserNs)
            .zip(self.sum(scope, "rusage", &Whose::Threads, Quantity::TaskSystemNs))
            .map(|(user, system)| user + system);
        let others = || {
            let others_ns = cpus.sum(&OF_TASKS)? - tasks_ns?;
            // Within one step of /proc/stat on each CPU nothing can be told from nothing.
            let told = others_ns > TICK_NS * cpus.count;
            ratio(if told { others_ns } else { 0.0 }, cpus.available_ns)
        };
        vec![
            (D::CpuUsPerKib, per(kib)),
            (D::CpuUsPerTransaction, per(transactions)),
            (D::TscCyclesPerKib, cycles(per(kib))),
            (D::TscCyclesPerTransaction, cycles(per(transactions))),
            (
                D::UserRatio,
                share(&[Quantity::CpuUserNs, Quantity::CpuNiceNs]),
            ),
            (D::SystemRatio, share(&[Quantity::CpuSystemNs])),
            (D::IrqRatio, share(&[Quantity::CpuIrqNs])),
            (D::SoftirqRatio, share(&[Quantity::CpuSoftirqNs])),
            (
                D::IdleRatio,
                share(&[Quantity::CpuIdleNs, Quantity::CpuIowaitNs]),
            ),
            (D::StealRatio, share(&[Quantity::CpuStealNs])),
            (D::OthersRatio, others()),
        ]
    }

    /// What all other counts amount to.
    fn counts(&self, scope: Option<End>) -> Kinds {
        use DerivedKind as D;
        let threads = |of| self.sum(scope, "rusage", &Whose::Threads, of);
        let both = |a: Option<f64>, b: Option<f64>| Some(a? + b?);
        let task_us = both(
            threads(Quantity::TaskUserNs),
            threads(Quantity::TaskSystemNs),
        )
        .map(|ns| ns / 1e3);
        let switches = both(
            threads(Quantity::VoluntarySwitches),
            threads(Quantity::InvoluntarySwitches),
        );
        let delivered = self.delivered();
        let bytes = delivered.map(|(bytes, _)| bytes);
        let kib = bytes.map(|bytes| bytes / 1024.0);
        let transactions = self.transactions();
        let transaction_count = transactions.map(|(count, _)| count);
        let workload = |of| self.workload(scope, of);
        let namespaces = |of| self.namespaces(scope, of);
        let connections = |scope, of| self.sum(scope, "tcp_info", &Whose::Connections, of);
        let per = |a: Option<f64>, b: Option<f64>| ratio(a?, b?);
        // The peer's segments without payload; of both ends together, everybody's.
        let pure_acks = || {
            let peer = scope.map(End::peer);
            let all = connections(peer, Quantity::ConnSegmentsSent)?;
            Some(all - connections(peer, Quantity::ConnDataSegmentsSent)?)
        };
        let data_segments = connections(scope, Quantity::ConnDataSegmentsSent);
        let packets = namespaces(Quantity::IpPacketsSent);
        let disagreement = || {
            let bytes = bytes?;
            let kernel = connections(None, Quantity::ConnBytesReceived)?;
            ratio((kernel - bytes).abs(), bytes)
        };
        vec![
            (
                D::Goodput,
                delivered.map(|(_, bytes_per_s)| bytes_per_s * 8.0),
            ),
            (
                D::TransactionsPerS,
                transactions.and_then(|(n, s)| ratio(n, s)),
            ),
            (D::TaskUsPerKib, per(task_us, kib)),
            (
                D::SegmentsPerSkb,
                per(namespaces(Quantity::SegmentsSent), packets),
            ),
            (
                D::OctetsPerDatagram,
                per(namespaces(Quantity::IpOctetsSent), packets),
            ),
            (D::PacketsPerTransaction, per(packets, transaction_count)),
            (D::DataSegmentsPerPureAck, per(data_segments, pure_acks())),
            (
                D::RetransmitRatio,
                per(
                    connections(scope, Quantity::ConnSegmentsRetransmitted),
                    data_segments,
                ),
            ),
            (
                D::SwitchesPerMib,
                per(switches, kib.map(|kib| kib / 1024.0)),
            ),
            (D::SwitchesPerTransaction, per(switches, transaction_count)),
            (
                D::BytesPerSend,
                per(
                    workload(Quantity::PayloadBytesSent),
                    workload(Quantity::SendCalls),
                ),
            ),
            (
                D::BytesPerReceive,
                per(
                    workload(Quantity::PayloadBytesReceived),
                    workload(Quantity::ReceiveCalls),
                ),
            ),
            (
                D::ZerocopyCopiedRatio,
                per(
                    workload(Quantity::ZerocopyCopied),
                    workload(Quantity::ZerocopyCompletions),
                ),
            ),
            (D::PayloadDisagreement, disagreement()),
        ]
    }

    /// Cycles of the time-stamp counter per µs, as the `tsc` meter saw it run.
    fn tsc_per_us(&self, scope: Option<End>) -> Option<f64> {
        self.ends(scope)
            .flat_map(|end| &end.readings)
            .filter(|reading| reading.meter == "tsc")
            .find_map(|reading| {
                let cycles = *reading.counts.get(&Quantity::TscCycles)?;
                ratio(cycles as f64, reading.duration_ns as f64 / 1e3)
            })
    }
}

/// What the `proc` meter told of a set of CPUs, each once.
struct CpuTime<'a> {
    readings: Vec<&'a Reading>,
    count: f64,
    /// CPUs times the time between the snapshots.
    available_ns: f64,
}

impl<'a> CpuTime<'a> {
    /// `None` where a CPU of these ends has no reading, or one of two ends is missing.
    fn new(ends: impl Iterator<Item = &'a EndRecord>, complete: bool) -> Option<Self> {
        if !complete {
            return None;
        }
        let ends: Vec<&EndRecord> = ends.collect();
        let wanted: BTreeSet<usize> = ends.iter().flat_map(|end| &end.cpus).copied().collect();
        let proc = || {
            ends.iter()
                .flat_map(|end| &end.readings)
                .filter(|reading| reading.meter == "proc")
        };
        let single = |cpu: usize| proc().find(move |reading| reading.whose == Whose::Cpu(cpu));
        let (readings, count): (Vec<&Reading>, usize) = match wanted
            .iter()
            .map(|&cpu| single(cpu))
            .collect::<Option<Vec<_>>>()
        {
            Some(readings) => (readings, wanted.len()),
            // A record may have the sums alone: good where they are of just these CPUs, each once.
            None => {
                let mut left = wanted.clone();
                let mut sums = Vec::new();
                for reading in proc() {
                    if let Whose::Cpus(cpus) = &reading.whose
                        && !cpus.is_empty()
                        && cpus.iter().all(|cpu| left.contains(cpu))
                    {
                        left.retain(|cpu| !cpus.contains(cpu));
                        sums.push(reading);
                    }
                }
                (left.is_empty()).then_some((sums, wanted.len()))?
            }
        };
        if readings.is_empty() {
            return None;
        }
        let available_ns = readings
            .iter()
            .map(|reading| {
                let cpus = match &reading.whose {
                    Whose::Cpus(cpus) => cpus.len(),
                    _ => 1,
                };
                reading.duration_ns as f64 * cpus as f64
            })
            .sum();
        Some(CpuTime {
            readings,
            count: count as f64,
            available_ns,
        })
    }

    /// Time of these kinds, ns. Absent where a CPU has none of one kind.
    fn sum(&self, of: &[Quantity]) -> Option<f64> {
        let mut sum = 0.0;
        for reading in &self.readings {
            for quantity in of {
                sum += *reading.counts.get(quantity)? as f64;
            }
        }
        Some(sum)
    }
}

/// A quotient; absent where it has no value.
fn ratio(a: f64, b: f64) -> Option<f64> {
    (b > 0.0).then(|| a / b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap as Map;
    use tcpcost_study::{Counts, Environment, HostEnvironment, Knobs, Outcome, SCHEMA_VERSION};

    const S: u64 = 1_000_000_000;

    fn reading(meter: &str, whose: Whose, counts: &[(Quantity, u64)]) -> Reading {
        Reading {
            meter: meter.into(),
            whose,
            duration_ns: 2 * S,
            counts: counts.iter().copied().collect::<Counts>(),
        }
    }

    /// One CPU: user 0.2 s, nice 0.1, system 0.4, irq 0.1, softirq 0.2, guest 0.1 (1.1 s busy),
    /// idle 0.5, iowait 0.3, steal 0.1.
    fn proc(cpu: usize) -> Reading {
        let tenths = [
            (Quantity::CpuUserNs, 2),
            (Quantity::CpuNiceNs, 1),
            (Quantity::CpuSystemNs, 4),
            (Quantity::CpuIrqNs, 1),
            (Quantity::CpuSoftirqNs, 2),
            (Quantity::CpuGuestNs, 1),
            (Quantity::CpuIdleNs, 5),
            (Quantity::CpuIowaitNs, 3),
            (Quantity::CpuStealNs, 1),
        ];
        reading(
            "proc",
            Whose::Cpu(cpu),
            &tenths.map(|(of, n)| (of, n * S / 10)),
        )
    }

    /// A stream of 1 MiB in 2 s, the client on CPU 0 and the server on 1.
    fn stream(bed: &str) -> Record {
        let end = |cpu: usize, readings: Vec<Reading>| EndRecord {
            cpus: vec![cpu],
            threads: 1,
            environment: Environment::default(),
            readings,
            response_time_hdr: None,
        };
        let rusage = |user, system| {
            let counts = [
                (Quantity::TaskUserNs, user),
                (Quantity::TaskSystemNs, system),
                (Quantity::VoluntarySwitches, 30),
                (Quantity::InvoluntarySwitches, 2),
            ];
            reading("rusage", Whose::Threads, &counts)
        };
        let netstat = |segments, packets, octets| {
            let counts = [
                (Quantity::SegmentsSent, segments),
                (Quantity::IpPacketsSent, packets),
                (Quantity::IpOctetsSent, octets),
            ];
            reading("netstat", Whose::Namespace, &counts)
        };
        let tcp_info = |all, data, retransmitted, bytes| {
            let counts = [
                (Quantity::ConnSegmentsSent, all),
                (Quantity::ConnDataSegmentsSent, data),
                (Quantity::ConnSegmentsRetransmitted, retransmitted),
                (Quantity::ConnBytesReceived, bytes),
            ];
            reading("tcp_info", Whose::Connections, &counts)
        };
        let sent = [
            (Quantity::PayloadBytesSent, 1 << 20),
            (Quantity::SendCalls, 16),
            (Quantity::ZerocopyCompletions, 16),
            (Quantity::ZerocopyCopied, 4),
        ];
        let received = [
            (Quantity::PayloadBytesReceived, 1 << 20),
            (Quantity::ReceiveCalls, 32),
        ];
        let tsc = reading("tsc", Whose::Host, &[(Quantity::TscCycles, 5 * S)]);
        let client = vec![
            proc(0),
            rusage(S / 10, S / 2),
            netstat(800, 20, 1_048_576),
            tcp_info(801, 800, 8, 0),
            reading("workload", Whose::Workload, &sent),
            tsc.clone(),
        ];
        let server = vec![
            proc(1),
            rusage(S / 10, S),
            netstat(40, 40, 2080),
            tcp_info(40, 0, 0, (1 << 20) + 1024),
            reading("workload", Whose::Workload, &received),
            tsc,
        ];
        Record {
            schema_version: SCHEMA_VERSION,
            study: "s".into(),
            cell: "c".into(),
            knobs: Knobs::default(),
            repetition: 0,
            attempt: 0,
            seed: 1,
            started: String::new(),
            bed: bed.into(),
            interval_ns: 2 * S,
            outcome: Outcome::Measured,
            warnings: vec![],
            host: HostEnvironment::default(),
            ends: Map::from([(End::Client, end(0, client)), (End::Server, end(1, server))]),
        }
    }

    fn check(values: &Values, expected: &[(&str, Option<f64>)]) {
        for (name, value) in expected {
            let found = values.get(&name.parse().unwrap()).copied();
            let near = match (found, value) {
                (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * b.abs().max(1e-3),
                (a, b) => a.is_none() && b.is_none(),
            };
            assert!(near, "{name}: {found:?}, expected {value:?}");
        }
    }

    #[test]
    fn a_stream_between_namespaces_gives_every_end_its_own() {
        let kib = 1024.0;
        check(
            &derive(&stream("netns")),
            &[
                ("goodput_bits_per_s", Some(4_194_304.0)),
                ("cpu_us_per_kib", Some(2.2e6 / kib)),
                ("client_cpu_us_per_kib", Some(1.1e6 / kib)),
                ("server_cpu_us_per_kib", Some(1.1e6 / kib)),
                ("task_us_per_kib", Some(1.7e6 / kib)),
                ("client_task_us_per_kib", Some(0.6e6 / kib)),
                ("tsc_cycles_per_kib", Some(2.2e6 * 2500.0 / kib)),
                ("client_user_ratio", Some(0.15)),
                ("system_ratio", Some(0.2)),
                ("irq_ratio", Some(0.05)),
                ("softirq_ratio", Some(0.1)),
                ("idle_ratio", Some(0.4)),
                ("steal_ratio", Some(0.05)),
                // Tasks 0.8 s of a CPU; the client's threads 0.6, the server's 1.1: not below 0.
                ("client_others_ratio", Some(0.1)),
                ("server_others_ratio", Some(0.0)),
                ("segments_per_skb", Some(840.0 / 60.0)),
                ("client_segments_per_skb", Some(40.0)),
                ("server_octets_per_datagram", Some(52.0)),
                ("client_data_segments_per_pure_ack", Some(20.0)),
                ("data_segments_per_pure_ack", Some(800.0 / 41.0)),
                ("retransmit_ratio", Some(0.01)),
                // The server sent no data segment: a share of nothing.
                ("server_retransmit_ratio", None),
                ("context_switches_per_mib", Some(64.0)),
                ("server_context_switches_per_mib", Some(32.0)),
                ("bytes_per_send_call", Some(65536.0)),
                ("server_bytes_per_receive_call", Some(32768.0)),
                ("server_bytes_per_send_call", None),
                ("zerocopy_copied_ratio", Some(0.25)),
                ("payload_disagreement_ratio", Some(1.0 / 1024.0)),
                ("cpu_us_per_transaction", None),
                ("transactions_per_s", None),
                ("response_us_p50", None),
            ],
        );
    }

    #[test]
    fn on_loopback_cpu_and_namespace_are_told_of_both_ends_alone() {
        check(
            &derive(&stream("loopback")),
            &[
                ("cpu_us_per_kib", Some(2.2e6 / 1024.0)),
                ("client_cpu_us_per_kib", None),
                ("server_softirq_ratio", None),
                ("client_task_us_per_kib", Some(0.6e6 / 1024.0)),
                // One namespace, read by both ends, counts once.
                ("segments_per_skb", Some(40.0)),
                ("client_segments_per_skb", None),
                ("client_data_segments_per_pure_ack", Some(20.0)),
            ],
        );
    }

    #[test]
    fn a_cpu_that_both_ends_share_counts_once() {
        let mut record = stream("netns");
        let server = record.ends.get_mut(&End::Server).unwrap();
        server.cpus = vec![0];
        server.readings[0] = proc(0);
        check(
            &derive(&record),
            &[
                ("cpu_us_per_kib", Some(1.1e6 / 1024.0)),
                ("idle_ratio", Some(0.4)),
                ("client_cpu_us_per_kib", None),
                ("client_segments_per_skb", Some(40.0)),
            ],
        );
    }

    #[test]
    fn sums_of_cpus_serve_where_single_ones_are_missing() {
        let mut record = stream("netns");
        for (end, cpu) in [(End::Client, 0), (End::Server, 1)] {
            record.ends.get_mut(&end).unwrap().readings[0].whose = Whose::Cpus(vec![cpu]);
        }
        check(
            &derive(&record),
            &[("cpu_us_per_kib", Some(2.2e6 / 1024.0))],
        );
        record.ends.get_mut(&End::Client).unwrap().readings[0].whose = Whose::Cpus(vec![0, 7]);
        check(
            &derive(&record),
            &[
                ("cpu_us_per_kib", None),
                ("server_cpu_us_per_kib", Some(1.1e6 / 1024.0)),
            ],
        );
    }

    #[test]
    fn what_lacks_an_input_is_absent() {
        let without = |meter: &str| {
            let mut record = stream("netns");
            for end in record.ends.values_mut() {
                end.readings.retain(|reading| reading.meter != meter);
            }
            derive(&record)
        };
        check(
            &without("tsc"),
            &[("tsc_cycles_per_kib", None), ("user_ratio", Some(0.15))],
        );
        check(
            &without("rusage"),
            &[("others_ratio", None), ("task_us_per_kib", None)],
        );
        check(
            &without("workload"),
            &[("cpu_us_per_kib", None), ("user_ratio", Some(0.15))],
        );
        check(&without("netstat"), &[("segments_per_skb", None)]);
        let mut failed = stream("netns");
        failed.outcome = Outcome::Failed {
            reason: "no".into(),
        };
        assert!(derive(&failed).is_empty());
    }

    #[test]
    fn others_within_a_tick_of_each_cpu_are_none() {
        let mut record = stream("netns");
        let client = record.ends.get_mut(&End::Client).unwrap();
        client.readings[1]
            .counts
            .insert(Quantity::TaskSystemNs, 690_000_000);
        check(&derive(&record), &[("client_others_ratio", Some(0.0))]);
    }
}
