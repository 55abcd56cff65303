//! One record to its derived quantities: every formula of the report is in this file.
//!
//! Whatever lacks an input is absent, never 0. Nothing here averages over trials.

mod captured;
mod exact;
mod segments;

use std::collections::BTreeMap;

use tcpcost_study::{Derived, DerivedKind, End, EndRecord, Quantity, Record, Whose, WorkloadKind};

use crate::cpu_time::CpuTime;
use crate::response::response_times;

/// What one trial's counts amount to.
pub type Values = BTreeMap<Derived, f64>;

/// Every derived quantity that this record has the counts for; none unless it was measured.
///
/// CPU of one end is told only where the ends' CPUs are disjoint and the kernel's receive work is
/// steered, which it is not on loopback: else the receiver's softirq runs on the sender's CPU. A
/// count of a namespace is one end's, but on loopback both ends are in one, which then counts once;
/// an end that is not the kernel's has none.
pub fn derive(record: &Record) -> Values {
    let mut values = Values::new();
    if !record.is_measured() {
        return values;
    }
    let trial = Trial::new(record);
    if record.captured {
        // The capture cost CPU, too: nothing but what passed is told.
        for scope in [None, Some(End::Client), Some(End::Server)] {
            for (kind, value) in trial.captured(scope) {
                if let Some(value) = value.filter(|value| value.is_finite()) {
                    values.insert(Derived { kind, end: scope }, value);
                }
            }
        }
        return values;
    }
    for scope in [None, Some(End::Client), Some(End::Server)] {
        let kinds = [
            trial.cpu(scope),
            trial.exact(scope),
            trial.counters(scope),
            trial.segments(scope),
            trial.counts(scope),
        ];
        for (kind, value) in kinds.into_iter().flatten() {
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

/// Whether the end's receive work is steered to CPUs (to which, the runner sees to).
fn is_steered(end: &EndRecord) -> bool {
    let mask = end.environment.rps_cpus.as_deref().unwrap_or_default();
    mask.contains(|digit: char| digit.is_ascii_hexdigit() && digit != '0')
}

/// Whether each end's CPUs do its own work alone.
pub(crate) fn cpus_apart(record: &Record) -> bool {
    Trial::new(record).cpus_apart
}

/// A measured record, and what can be told apart in it.
struct Trial<'a> {
    record: &'a Record,
    kind: Option<WorkloadKind>,
    /// Whether each end's CPUs do its own work alone.
    cpus_apart: bool,
    /// Whether each end has a namespace of its own.
    namespaces_apart: bool,
}

impl<'a> Trial<'a> {
    fn new(record: &'a Record) -> Self {
        let cpus = |end: End| record.ends.get(&end).map(|end| &end.cpus);
        let disjoint = match (cpus(End::Client), cpus(End::Server)) {
            (Some(client), Some(server)) => client.iter().all(|cpu| !server.contains(cpu)),
            _ => false,
        };
        // Our own TCP does all its work in its own thread; receive work of the kernel's is where it
        // is steered to, which is seen at the ends that are the kernel's.
        let steered = match record.bed.as_str() {
            "netns" => record.ends.values().all(is_steered),
            "tap" => record.ends.values().any(is_steered),
            bed => bed == "memory",
        };
        Trial {
            record,
            kind: record
                .knobs
                .word("workload")
                .and_then(|word| WorkloadKind::from_word(&word)),
            cpus_apart: disjoint && steered,
            namespaces_apart: record.bed != "loopback",
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

    /// A count of the namespaces: each once. An end of our own TCP is as good as a namespace.
    fn namespaces(&self, scope: Option<End>, of: Quantity) -> Option<f64> {
        let count = |end: &EndRecord| {
            let by = |meter| end.growth(meter, &Whose::Namespace, of);
            by("netstat")
                .or_else(|| by("tcp"))
                .map(|count| count as f64)
        };
        match scope {
            Some(_) if !self.namespaces_apart => None,
            None if !self.namespaces_apart => self.ends(None).find_map(count),
            Some(_) => self.ends(scope).find_map(count),
            None => {
                let counts: Vec<f64> = self.ends(None).filter_map(count).collect();
                (counts.len() == 2).then(|| counts.iter().sum())
            }
        }
    }

    /// A count of a namespace's meter, summed over those ends of the scope that have it.
    fn sum_of_any(&self, scope: Option<End>, meter: &str, of: Quantity) -> Option<f64> {
        if scope.is_some() && !self.namespaces_apart {
            return None;
        }
        let ends = if self.namespaces_apart { 2 } else { 1 };
        self.ends(scope)
            .filter_map(|end| end.growth(meter, &Whose::Namespace, of))
            .take(ends)
            .map(|count| count as f64)
            .reduce(|a, b| a + b)
    }

    /// By /proc/net/netstat, or by our own TCP's connections.
    fn delayed_acks_per_s(&self, scope: Option<End>) -> Option<f64> {
        if scope.is_some() && !self.namespaces_apart {
            return None;
        }
        let ends = if self.namespaces_apart { 2 } else { 1 };
        let per_s = |end: &EndRecord| {
            let reading = end
                .readings
                .iter()
                .find(|reading| reading.counts.contains_key(&Quantity::DelayedAcksSent))?;
            let count = reading.counts[&Quantity::DelayedAcksSent] as f64;
            ratio(count, reading.duration_ns as f64 / 1e9)
        };
        let found: Vec<f64> = self.ends(scope).filter_map(per_s).take(ends).collect();
        let wanted = if scope.is_some() { 1 } else { ends };
        (found.len() == wanted).then(|| found.iter().sum())
    }

    /// ACKs held and never flushed, of all that thinning saw.
    fn thinned(&self, scope: Option<End>) -> Option<f64> {
        let of = |quantity| self.sum_of_any(scope, "ack_thin", quantity);
        let held = of(Quantity::ThinAcksHeld)?;
        let seen = of(Quantity::ThinAcksPassed)? + held;
        // One that was held before the interval may be flushed in it.
        ratio((held - of(Quantity::ThinAcksFlushed)?).max(0.0), seen)
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
        let Some(cpus) = self.cpu_time("proc", scope) else {
            return Vec::new();
        };
        let busy_us = cpus.sum(&BUSY).map(|ns| (ns - self.soaker_ns(scope)) / 1e3);
        let kib = self.delivered().map(|(bytes, _)| bytes / 1024.0);
        let transactions = self.transactions().map(|(count, _)| count);
        let per = |of: Option<f64>| ratio(busy_us?, of?);
        let tsc = self.tsc_per_us(scope);
        let cycles = |us: Option<f64>| Some(us? * tsc?);
        let share = |of: &[Quantity]| ratio(cpus.sum(of)?, cpus.available_ns);
        let tasks_ns = self.tasks_ns(scope);
        let others = || {
            let others_ns = cpus.sum(&OF_TASKS)? - tasks_ns? - self.soaker_ns(scope);
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

    /// CPU time of the workload's threads, by getrusage.
    fn tasks_ns(&self, scope: Option<End>) -> Option<f64> {
        let of = |quantity| self.sum(scope, "rusage", &Whose::Threads, quantity);
        Some(of(Quantity::TaskUserNs)? + of(Quantity::TaskSystemNs)?)
    }

    /// What a meter told of the CPUs of one end, or of both; `None` where ends cannot be told apart.
    fn cpu_time(&self, meter: &str, scope: Option<End>) -> Option<CpuTime<'a>> {
        if scope.is_some() && !self.cpus_apart {
            return None;
        }
        CpuTime::new(meter, self.ends(scope), self.record.ends.len() == 2)
    }

    /// CPU time of the soaker's own spinners: no part of any cost. 0 where none ran.
    fn soaker_ns(&self, scope: Option<End>) -> f64 {
        let of = |end: &EndRecord| {
            let sums = end
                .readings
                .iter()
                .filter(|reading| matches!(reading.whose, Whose::Cpus(_)));
            sums.filter_map(|reading| reading.counts.get(&Quantity::SoakTaskNs))
                .sum::<u64>()
        };
        self.ends(scope).map(of).sum::<u64>() as f64
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
        // What came in without payload. What the peer sent may be more: thinning takes some off the path.
        let pure_acks = || {
            let all = connections(scope, Quantity::ConnSegmentsReceived)?;
            Some(all - connections(scope, Quantity::ConnDataSegmentsReceived)?)
        };
        let data_segments = connections(scope, Quantity::ConnDataSegmentsSent);
        let packets = namespaces(Quantity::IpPacketsSent);
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
                per(
                    both(
                        namespaces(Quantity::SegmentsSent),
                        namespaces(Quantity::SegmentsRetransmitted),
                    ),
                    packets,
                ),
            ),
            (
                D::OctetsPerDatagram,
                per(namespaces(Quantity::IpOctetsSent), packets),
            ),
            (D::PacketsPerTransaction, per(packets, transaction_count)),
            (D::DataSegmentsPerPureAck, per(data_segments, pure_acks())),
            (D::AcksPerKib, per(pure_acks(), kib)),
            (D::DelayedAcksPerS, self.delayed_acks_per_s(scope)),
            (
                D::BacklogCoalescedPerMib,
                per(
                    self.sum_of_any(scope, "netstat", Quantity::BacklogCoalesced),
                    kib.map(|kib| kib / 1024.0),
                ),
            ),
            (D::ThinnedRatio, self.thinned(scope)),
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
            (D::PayloadDisagreement, self.payload_disagreement()),
            (D::SegmentDisagreement, self.segment_disagreement(scope)),
        ]
    }

    /// Kernel against workload: what both counted at the same moments, at the ends that receive.
    fn payload_disagreement(&self) -> Option<f64> {
        let (mut kernel, mut workload) = (0.0, 0.0);
        for end in self.ends(None) {
            let of = |quantity| end.growth("tcp_info", &Whose::Connections, quantity);
            let both = of(Quantity::ConnBytesReceived).zip(of(Quantity::PayloadBytesReceived));
            if let Some((by_kernel, by_workload)) = both {
                kernel += by_kernel as f64;
                workload += by_workload as f64;
            }
        }
        ratio((kernel - workload).abs(), workload)
    }

    /// Namespace against connections, per second, since their intervals differ by milliseconds.
    fn segment_disagreement(&self, scope: Option<End>) -> Option<f64> {
        if !self.namespaces_apart {
            return None;
        }
        let (mut by_namespace, mut by_connections) = (0.0, 0.0);
        for end in self.ends(scope) {
            let per_s = |meter: &str, of| {
                let reading = end.readings.iter().find(|reading| reading.meter == meter)?;
                ratio(*reading.counts.get(&of)? as f64, reading.duration_ns as f64)
            };
            by_namespace += per_s("netstat", Quantity::SegmentsSent)?
                + per_s("netstat", Quantity::SegmentsRetransmitted)?;
            by_connections += per_s("tcp_info", Quantity::ConnSegmentsSent)?;
        }
        ratio((by_namespace - by_connections).abs(), by_connections)
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

/// A quotient; absent where it has no value.
fn ratio(a: f64, b: f64) -> Option<f64> {
    (b > 0.0).then(|| a / b)
}

#[cfg(test)]
mod tests;
