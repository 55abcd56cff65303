//! What a report derives from counts: names, units and formulas. The arithmetic is in `report`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::knob::End;

macro_rules! derived {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $unit:literal, $per_end:literal, $lower:expr;)+) => {
        /// A derived quantity, without the end it is of.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum DerivedKind {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl DerivedKind {
            /// Every kind, in the order of the documentation.
            pub const ALL: &[DerivedKind] = &[$(DerivedKind::$variant,)+];

            /// The name without end, e.g. `cpu_us_per_kib`.
            pub fn name(self) -> &'static str {
                match self { $(DerivedKind::$variant => $name,)+ }
            }

            /// The unit, as printed.
            pub fn unit(self) -> &'static str {
                match self { $(DerivedKind::$variant => $unit,)+ }
            }

            /// Whether `client_…` and `server_…` exist.
            pub fn per_end(self) -> bool {
                match self { $(DerivedKind::$variant => $per_end,)+ }
            }

            /// Whether less is better; `None` where neither is.
            pub fn lower_is_better(self) -> Option<bool> {
                match self { $(DerivedKind::$variant => $lower,)+ }
            }

            /// The definition, as in the documentation.
            pub fn definition(self) -> &'static str {
                match self { $(DerivedKind::$variant => concat!($($doc,)+).trim_ascii(),)+ }
            }
        }
    };
}

derived! {
    /// Payload delivered to the receiving applications per second of the interval, both directions together.
    Goodput = "goodput_bits_per_s", "bit/s", false, Some(false);
    /// Transactions completed per second of the interval, all connections together.
    TransactionsPerS = "transactions_per_s", "1/s", false, Some(false);
    /// CPU µs per KiB (1024 bytes) of payload delivered: netperf's service demand. CPU = user + nice + system + irq + softirq (guest included) of /proc/stat on the end's CPUs, or on the CPUs of both ends together; iowait and steal are not in it, other tasks on these CPUs are.
    CpuUsPerKib = "cpu_us_per_kib", "µs/KiB", true, Some(true);
    /// CPU µs per KiB by getrusage of the workload's threads: it misses softirqs that ran on idle or elsewhere.
    TaskUsPerKib = "task_us_per_kib", "µs/KiB", true, Some(true);
    /// CPU µs per transaction, CPU as in `cpu_us_per_kib`.
    CpuUsPerTransaction = "cpu_us_per_transaction", "µs", true, Some(true);
    /// Cycles of the time-stamp counter during CPU time as in `cpu_us_per_kib`, per KiB: time at a constant rate, not core cycles.
    TscCyclesPerKib = "tsc_cycles_per_kib", "TSC cycles/KiB", true, Some(true);
    /// TSC cycles per transaction.
    TscCyclesPerTransaction = "tsc_cycles_per_transaction", "TSC cycles", true, Some(true);
    /// Share of the CPUs' time in user mode (user + nice).
    UserRatio = "user_ratio", "ratio", true, None;
    /// Share of the CPUs' time in the kernel for tasks.
    SystemRatio = "system_ratio", "ratio", true, None;
    /// Share of the CPUs' time in hard interrupts.
    IrqRatio = "irq_ratio", "ratio", true, None;
    /// Share of the CPUs' time in softirqs.
    SoftirqRatio = "softirq_ratio", "ratio", true, None;
    /// Share of the CPUs' time idle, iowait included.
    IdleRatio = "idle_ratio", "ratio", true, None;
    /// Share of the CPUs' time that the hypervisor took.
    StealRatio = "steal_ratio", "ratio", true, Some(true);
    /// Share of the CPUs' time that tasks of others used: busy time that is neither the workload's threads' nor softirq's nor irq's.
    OthersRatio = "others_ratio", "ratio", true, Some(true);
    /// CPU µs per KiB by the meter `exact` (eBPF): all time of the CPUs that is neither idle nor tasks of others; softirqs and interrupts on behalf of others are in it.
    ExactUsPerKib = "exact_cpu_us_per_kib", "µs/KiB", true, Some(true);
    /// CPU µs per transaction, by the meter `exact` as above.
    ExactUsPerTransaction = "exact_cpu_us_per_transaction", "µs", true, Some(true);
    /// Share of the CPUs' time in the trial's own tasks, interrupts taken out. Meter `exact`, as all `exact` quantities.
    ExactOwnRatio = "exact_own_tasks_ratio", "ratio", true, None;
    /// Share of the CPUs' time in softirq NET_RX.
    ExactNetRxRatio = "exact_net_rx_ratio", "ratio", true, None;
    /// Share of the CPUs' time in all other softirqs, ksoftirqd, threaded NAPI and kworkers.
    ExactDeferredRatio = "exact_deferred_ratio", "ratio", true, None;
    /// Share of the CPUs' time in hard interrupts.
    ExactHardirqRatio = "exact_hardirq_ratio", "ratio", true, None;
    /// Share of the CPUs' time in tasks of others.
    ExactOthersRatio = "exact_others_ratio", "ratio", true, Some(true);
    /// Share of the CPUs' time idle.
    ExactIdleRatio = "exact_idle_ratio", "ratio", true, None;
    /// Busy time by /proc/stat over busy time by `exact`, tasks of others in both: how far the tick's sampling is off. 1 is right.
    ProcToExact = "proc_to_exact_factor", "factor", true, None;
    /// CPU time of the workload's threads by getrusage over the CPU time of `exact_cpu_us_per_kib`: what the per-process view makes of the whole cost. 1 is right.
    RusageToExact = "rusage_to_exact_factor", "factor", true, None;
    /// Load by the soaker (Morton 2001): the share of a lowest-priority spinner's work that went missing, interrupts, cache and memory contention included; an upper bound of busy time. Tasks of others are in it.
    SoakLoadRatio = "soak_load_ratio", "ratio", true, None;
    /// Load by the soaker over the busy share by `exact`, the spinner itself taken out, tasks of others in both. 1 would be right; more is what contention costs.
    SoakToExact = "soak_to_exact_factor", "factor", true, None;
    /// Core cycles (PMU) of all that ran on the CPUs, per KiB; absent without a PMU and while a soaker spins.
    CoreCyclesPerKib = "core_cycles_per_kib", "cycles/KiB", true, Some(true);
    /// Core cycles (PMU) per transaction.
    CoreCyclesPerTransaction = "core_cycles_per_transaction", "cycles", true, Some(true);
    /// Instructions per core cycle (PMU).
    InstructionsPerCycle = "instructions_per_cycle", "1/cycle", true, Some(false);
    /// Last-level cache misses (PMU) per KiB.
    CacheMissesPerKib = "cache_misses_per_kib", "1/KiB", true, Some(true);
    /// Wire segments per skb handed to IP ((TcpOutSegs + TcpRetransSegs) / IpOutRequests): the mean super-segment, pure ACKs included.
    SegmentsPerSkb = "segments_per_skb", "segments", true, Some(false);
    /// Octets per IP datagram sent, a super-segment being one (IpExtOutOctets / IpOutRequests): Dumazet's occupancy.
    OctetsPerDatagram = "octets_per_datagram", "bytes", true, Some(false);
    /// IP packets sent per transaction, a super-segment being one.
    PacketsPerTransaction = "packets_per_transaction", "packets", true, Some(true);
    /// Mean payload of the skbs with data that TCP handed down: the LSO size, each skb counting once. Meter `segments` (eBPF), as the rows below.
    SkbBytesMean = "skb_bytes_mean", "bytes", true, None;
    /// The same weighted by bytes: the size of the skb that a mean byte travels in. Short tails pull the plain mean down and hardly this one.
    SkbBytesWeighted = "skb_bytes_weighted_mean", "bytes", true, None;
    /// Wire segments per skb with data.
    WireSegmentsPerDataSkb = "wire_segments_per_data_skb", "segments", true, None;
    /// Share of skbs with data that are a short tail right behind a full one.
    TailRatio = "tail_ratio", "ratio", true, Some(true);
    /// Payload bytes sent per pure ACK received.
    BytesPerAck = "payload_bytes_per_pure_ack", "bytes", true, None;
    /// Wire segments of data sent in a row, with no ACK taken in between: the mean burst.
    DataBurst = "data_burst_segments", "segments", true, None;
    /// Pure ACKs taken in in a row.
    AckBurst = "ack_burst_received", "ACKs", true, None;
    /// Share of skbs with data sent from the writer's system call: who drains (Sun 2008).
    DrainedBySystemCall = "drained_by_system_call_ratio", "ratio", true, None;
    /// Share sent from softirq NET_RX: an ACK's arrival.
    DrainedByNetRx = "drained_by_net_rx_ratio", "ratio", true, None;
    /// Share sent from softirq TASKLET or a work queue: TCP small queues.
    DrainedByTasklet = "drained_by_tasklet_ratio", "ratio", true, None;
    /// Share sent from timers, pacing's among them.
    DrainedByTimer = "drained_by_timer_ratio", "ratio", true, None;
    /// Wire segments with payload that this end sent, per pure ACK that it received. From the captured trials, at the end's own device, as the rows below.
    CapturedSegmentsPerAck = "captured_wire_segments_per_pure_ack", "segments", true, None;
    /// Wire segments of data sent with no packet taken in between.
    CapturedDataBurst = "captured_data_burst_segments", "segments", true, None;
    /// Pure ACKs taken in in a row.
    CapturedAckBurst = "captured_ack_burst_received", "ACKs", true, None;
    /// Share of captured packets with data that are a sub-MSS tail right behind a full-sized super-segment.
    CapturedTailRatio = "captured_tail_ratio", "ratio", true, Some(true);
    /// Share of the connections' time that they stood in delayed-ACK stalls.
    CapturedStallRatio = "captured_stall_ratio", "ratio", true, Some(true);
    /// Wire segments with payload that this end sent, per segment without payload that it received.
    DataSegmentsPerPureAck = "data_segments_per_pure_ack", "segments", true, None;
    /// Pure ACKs that this end's connections received per KiB delivered: what sending TCP has to do per ACK goes by it. Segments without payload, by TCP_INFO.
    AcksPerKib = "acks_per_kib", "ACKs/KiB", true, None;
    /// ACKs per second that this end's delayed-ACK timer sent. In a bulk transfer each is a time in which the sender stood still.
    DelayedAcksPerS = "delayed_acks_per_s", "1/s", true, Some(true);
    /// Incoming segments that were merged while the reader held the socket (BacklogCoalesce), per MiB delivered: what the sender's ACKs, or the receiver's segments, have been spared.
    BacklogCoalescedPerMib = "backlog_coalesced_per_mib", "1/MiB", true, None;
    /// Of the pure ACKs that `ack_thin` saw at this end, the share that never left.
    ThinnedRatio = "acks_thinned_ratio", "ratio", true, None;
    /// Share of the data segments sent that were retransmissions.
    RetransmitRatio = "retransmit_ratio", "ratio", true, Some(true);
    /// Context switches of the workload's threads per MiB of payload delivered.
    SwitchesPerMib = "context_switches_per_mib", "1/MiB", true, Some(true);
    /// Context switches of the workload's threads per transaction.
    SwitchesPerTransaction = "context_switches_per_transaction", "switches", true, Some(true);
    /// Payload bytes per call that sent some.
    BytesPerSend = "bytes_per_send_call", "bytes", true, None;
    /// Payload bytes per call that received some.
    BytesPerReceive = "bytes_per_receive_call", "bytes", true, None;
    /// Share of MSG_ZEROCOPY sends that the kernel copied after all.
    ZerocopyCopiedRatio = "zerocopy_copied_ratio", "ratio", true, Some(true);
    /// Response time, 50th percentile. From the request's writing, or from when it was due at a fixed rate.
    ResponseP50 = "response_us_p50", "µs", false, Some(true);
    /// Response time, 90th percentile.
    ResponseP90 = "response_us_p90", "µs", false, Some(true);
    /// Response time, 99th percentile.
    ResponseP99 = "response_us_p99", "µs", false, Some(true);
    /// Response time, 99.9th percentile.
    ResponseP999 = "response_us_p99_9", "µs", false, Some(true);
    /// Response time, 99.99th percentile.
    ResponseP9999 = "response_us_p99_99", "µs", false, Some(true);
    /// How far the kernel's count of payload received (TCP_INFO) is from the workload's at the same two moments: |kernel - workload| / workload. Bytes in receive queues, counted by one and not yet by the other, are in it.
    PayloadDisagreement = "payload_disagreement_ratio", "ratio", false, Some(true);
    /// How far the namespace's count of segments sent (TcpOutSegs + TcpRetransSegs) is from its connections' (TCP_INFO), both per second: |namespace - connections| / connections. `netns` only.
    SegmentDisagreement = "segment_disagreement_ratio", "ratio", true, Some(true);
}

/// A derived quantity of one end, or of both together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Derived {
    /// What.
    pub kind: DerivedKind,
    /// Whose; `None` is both ends together.
    pub end: Option<End>,
}

impl Derived {
    /// Of both ends together.
    pub const fn both(kind: DerivedKind) -> Derived {
        Derived { kind, end: None }
    }

    /// Of one end.
    pub const fn of(end: End, kind: DerivedKind) -> Derived {
        Derived {
            kind,
            end: Some(end),
        }
    }

    /// Every derived quantity: both ends together, then each end.
    pub fn all() -> impl Iterator<Item = Derived> {
        DerivedKind::ALL.iter().flat_map(|&kind| {
            let ends = if kind.per_end() { &End::BOTH[..] } else { &[] };
            std::iter::once(Derived::both(kind))
                .chain(ends.iter().map(move |&end| Derived::of(end, kind)))
        })
    }
}

impl fmt::Display for Derived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end {
            Some(end) => write!(f, "{end}_{}", self.kind.name()),
            None => f.write_str(self.kind.name()),
        }
    }
}

impl FromStr for Derived {
    type Err = String;

    /// The error names the nearest that exists.
    fn from_str(name: &str) -> Result<Self, String> {
        if let Some(derived) = Derived::all().find(|derived| derived.to_string() == name) {
            return Ok(derived);
        }
        let names: Vec<String> = Derived::all().map(|derived| derived.to_string()).collect();
        let near = crate::knob::nearest(name, names.iter().map(String::as_str));
        Err(match near {
            Some(near) => format!("no such quantity; nearest is \"{near}\""),
            None => "no such quantity; see docs/quantities.md".to_string(),
        })
    }
}

impl Serialize for Derived {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Derived {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_a_misspelt_one_names_the_nearest() {
        for derived in Derived::all() {
            assert_eq!(derived.to_string().parse(), Ok(derived));
        }
        let error = "client_cpu_us_per_kb".parse::<Derived>().unwrap_err();
        assert_eq!(
            error,
            "no such quantity; nearest is \"client_cpu_us_per_kib\""
        );
    }
}
