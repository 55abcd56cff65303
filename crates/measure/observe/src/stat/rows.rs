//! Table of the values that `stat` reports of a command: counts, and figures of the table `Figure`.

use tcpcost_counts::{Figure, MeterName as M, Quantity as Q, Source};
use tcpcost_report::Estimate;

use super::measure::Run;

/// A reported value: where it is shown, and how it is computed.
pub struct Row {
    /// Heading in the text.
    pub section: &'static str,
    /// Name in JSON and CSV.
    pub key: &'static str,
    /// Name in the text.
    pub label: &'static str,
    kind: Kind,
}

enum Kind {
    /// Duration of a run, s.
    Elapsed,
    /// Sum of counts of one meter.
    Count(M, &'static [Q]),
    Figure(Figure),
    /// Number of `--per`.
    Units,
}

/// Sum of counts, with the name and the words of the first.
const fn count(section: &'static str, by: M, of: &'static [Q]) -> Row {
    sum(section, of[0].name(), of[0].words(), by, of)
}

const fn sum(
    section: &'static str,
    key: &'static str,
    label: &'static str,
    by: M,
    of: &'static [Q],
) -> Row {
    Row {
        section,
        key,
        label,
        kind: Kind::Count(by, of),
    }
}

const fn figure(section: &'static str, of: Figure) -> Row {
    Row {
        section,
        key: of.name(),
        label: of.words(),
        kind: Kind::Figure(of),
    }
}

const COST: &str = "cost";
const CPU: &str = "CPU time of the command, all CPUs, exact by eBPF";
const HOST: &str = "CPU time of this whole host meanwhile";
const EVENTS: &str = "runs, sleeps and interrupts of the command, by eBPF";
const HOST_EVENTS: &str = "runs and interrupts of this whole host meanwhile";
const TASKS: &str = "the command's threads";
const WAITED: &str = "processes waited for, by getrusage";
const CALLS: &str = "network system calls";
const TCP: &str = "TCP of the network namespace";
const SIZES: &str = "sizes and ACKs";
const DRAIN: &str = "data sent, by context";
const LOSS: &str = "loss and stalls";

/// All rows, in the order in which they are shown.
pub const ROWS: &[Row] = &[
    figure(COST, Figure::CommandUsPerPayloadKib),
    figure(COST, Figure::ExactUsPerTransaction),
    figure(COST, Figure::CommandUsPerConnection),
    figure(COST, Figure::CommandTaskUsPerPayloadKib),
    figure(COST, Figure::CommandCyclesPerPayloadKib),
    figure(COST, Figure::CommandInstructionsPerPayloadKib),
    Row {
        section: COST,
        key: "elapsed_s",
        label: "elapsed",
        kind: Kind::Elapsed,
    },
    Row {
        section: COST,
        key: "units",
        label: "units",
        kind: Kind::Units,
    },
    count(CPU, M::Exact, &[Q::ExactTaskOwnNs]),
    count(CPU, M::Exact, &[Q::ExactOwnSoftirqNs]),
    count(CPU, M::Exact, &[Q::ExactOwnHardirqNs]),
    count(
        HOST,
        M::Exact,
        &[Q::ExactPeerSoftirqNs, Q::ExactPeerHardirqNs],
    ),
    count(
        HOST,
        M::Exact,
        &[Q::ExactNeighbourSoftirqNs, Q::ExactNeighbourHardirqNs],
    ),
    count(HOST, M::Exact, &[Q::ExactSoftirqNetRxNs]),
    count(HOST, M::Exact, &[Q::ExactSoftirqNetTxNs]),
    count(HOST, M::Exact, &[Q::ExactSoftirqTaskletNs]),
    sum(
        HOST,
        "exact_softirq_timers_ns",
        "softirqs TIMER, HRTIMER",
        M::Exact,
        &[Q::ExactSoftirqTimerNs, Q::ExactSoftirqHrtimerNs],
    ),
    sum(
        HOST,
        "exact_softirq_rest_ns",
        "other softirqs",
        M::Exact,
        &[
            Q::ExactSoftirqSchedNs,
            Q::ExactSoftirqRcuNs,
            Q::ExactSoftirqOthersNs,
        ],
    ),
    sum(
        HOST,
        "exact_kernel_threads_ns",
        "ksoftirqd, NAPI, kworkers",
        M::Exact,
        &[Q::ExactKsoftirqdNs, Q::ExactNapiNs, Q::ExactKworkerNs],
    ),
    count(HOST, M::Exact, &[Q::ExactHardirqNs]),
    count(HOST, M::Exact, &[Q::ExactTaskOthersNs]),
    count(HOST, M::Proc, &[Q::CpuStealNs]),
    count(EVENTS, M::Exact, &[Q::ExactTaskOwnSleeps]),
    count(EVENTS, M::Exact, &[Q::ExactOwnNetRxRuns]),
    count(EVENTS, M::Exact, &[Q::ExactOwnRescheduleIpis]),
    count(EVENTS, M::Exact, &[Q::ExactOwnCallIpis]),
    count(EVENTS, M::Exact, &[Q::ExactOwnExtraTimerInterrupts]),
    count(HOST_EVENTS, M::Exact, &[Q::ExactNetRxRuns]),
    count(HOST_EVENTS, M::Exact, &[Q::ExactPeerNetRxRuns]),
    count(HOST_EVENTS, M::Exact, &[Q::ExactNeighbourNetRxRuns]),
    count(HOST_EVENTS, M::Exact, &[Q::ExactRescheduleIpis]),
    count(HOST_EVENTS, M::Exact, &[Q::ExactCallIpis]),
    count(HOST_EVENTS, M::Exact, &[Q::ExactExtraTimerInterrupts]),
    count(TASKS, M::Descendants, &[Q::TaskClockNs]),
    count(TASKS, M::Descendants, &[Q::ContextSwitches]),
    count(TASKS, M::Descendants, &[Q::CpuMigrations]),
    count(TASKS, M::Descendants, &[Q::PageFaults]),
    count(TASKS, M::Descendants, &[Q::CoreCycles]),
    count(TASKS, M::Descendants, &[Q::Instructions]),
    sum(
        WAITED,
        "command_cpu_ns",
        "CPU time",
        M::Rusage,
        &[Q::TaskUserNs, Q::TaskSystemNs],
    ),
    count(WAITED, M::Rusage, &[Q::TaskUserNs]),
    count(WAITED, M::Rusage, &[Q::TaskSystemNs]),
    count(WAITED, M::Rusage, &[Q::VoluntarySwitches]),
    count(WAITED, M::Rusage, &[Q::InvoluntarySwitches]),
    count(WAITED, M::Rusage, &[Q::MinorFaults]),
    count(WAITED, M::Rusage, &[Q::MajorFaults]),
    count(CALLS, M::SocketCalls, &[Q::SocketSends]),
    count(CALLS, M::SocketCalls, &[Q::SocketBytesSent]),
    count(CALLS, M::SocketCalls, &[Q::SocketReferenceSends]),
    count(CALLS, M::SocketCalls, &[Q::SocketReferenceBytesSent]),
    count(CALLS, M::SocketCalls, &[Q::SocketReceives]),
    count(CALLS, M::SocketCalls, &[Q::SocketBytesReceived]),
    count(CALLS, M::Descendants, &[Q::SendSystemCalls]),
    count(CALLS, M::Descendants, &[Q::ReceiveSystemCalls]),
    count(CALLS, M::Descendants, &[Q::SendfileSystemCalls]),
    count(CALLS, M::Descendants, &[Q::ConnectSystemCalls]),
    count(CALLS, M::Descendants, &[Q::AcceptSystemCalls]),
    count(CALLS, M::Descendants, &[Q::PollSystemCalls]),
    count(CALLS, M::Descendants, &[Q::IoUringSystemCalls]),
    count(TCP, M::Segments, &[Q::DataSkbBytesSent]),
    count(TCP, M::Segments, &[Q::DataSkbBytesReceived]),
    count(TCP, M::Netstat, &[Q::IpOctetsSent]),
    count(TCP, M::Netstat, &[Q::IpOctetsReceived]),
    count(TCP, M::Netstat, &[Q::SegmentsSent]),
    count(TCP, M::Netstat, &[Q::SuperSegmentsReceived]),
    count(TCP, M::Segments, &[Q::PureAcksSent]),
    count(TCP, M::Segments, &[Q::PureAcksReceived]),
    count(TCP, M::Netstat, &[Q::ActiveOpens]),
    count(TCP, M::Netstat, &[Q::PassiveOpens]),
    figure(SIZES, Figure::SkbBytesMean),
    figure(SIZES, Figure::SkbBytesWeighted),
    figure(SIZES, Figure::WireSegmentsPerDataSkb),
    figure(SIZES, Figure::WireSegmentsPerDataSkbReceived),
    figure(SIZES, Figure::OctetsPerDatagram),
    figure(SIZES, Figure::WireSegmentsPerAckReceived),
    figure(SIZES, Figure::WireSegmentsPerAckSent),
    figure(SIZES, Figure::DataBurst),
    figure(DRAIN, Figure::DrainedBySystemCall),
    figure(DRAIN, Figure::DrainedByNetRx),
    figure(DRAIN, Figure::DrainedByTasklet),
    figure(DRAIN, Figure::DrainedByTimer),
    count(LOSS, M::Netstat, &[Q::SegmentsRetransmitted]),
    figure(LOSS, Figure::CommandRetransmitRatio),
    count(LOSS, M::Netstat, &[Q::Timeouts]),
    count(LOSS, M::Netstat, &[Q::DelayedAcksSent]),
    count(LOSS, M::Netstat, &[Q::ListenDrops]),
];

impl Row {
    /// Unit in JSON and CSV.
    pub fn unit(&self) -> &'static str {
        match &self.kind {
            Kind::Elapsed => "s",
            Kind::Count(_, of) => unit(of[0]),
            Kind::Figure(figure) => figure.unit(),
            Kind::Units => "",
        }
    }

    /// Value of one run; `None` if it was not measured.
    pub fn value(&self, run: &Run) -> Option<f64> {
        match &self.kind {
            Kind::Elapsed => Some(run.growth.duration_ns as f64 / 1e9),
            Kind::Count(by, of) => of.iter().map(|&of| run.growth.count(*by, of)).sum(),
            Kind::Figure(figure) => figure.value(&run.growth),
            Kind::Units => run.growth.units,
        }
    }

    /// Estimate over the runs that have a value for this row.
    pub fn estimate(&self, runs: &[Run]) -> Option<Estimate> {
        Estimate::new(runs.iter().filter_map(|run| self.value(run)))
    }

    /// Meters that count the value; empty if the clock or the command's output has it.
    pub fn meters(&self) -> Vec<M> {
        match &self.kind {
            Kind::Count(by, _) => vec![*by],
            Kind::Figure(figure) => figure.meters().into_iter().collect(),
            Kind::Elapsed | Kind::Units => Vec::new(),
        }
    }
}

/// Unit of a count of the table. Counts of events have none.
fn unit(of: Q) -> &'static str {
    match of.name() {
        "core_cycles" => "cycles",
        "instructions" => "instructions",
        name if name.ends_with("_ns") => "ns",
        name if name.contains("bytes") || name.contains("octets") => "bytes",
        _ => "",
    }
}

/// Row with this key.
pub fn row(key: &str) -> &'static Row {
    let row = ROWS.iter().find(|row| row.key == key);
    row.expect("callers use keys of the table")
}

/// Payload of a run below which its TCP counts as background traffic.
const TRAFFIC_MIN_BYTES: f64 = 65_536.0;

/// Share of softirq time for neighbours' sockets above which the namespace's payload is not the command's alone.
const NEIGHBOURS_MAX: f64 = 0.02;

/// How much TCP ran in the network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// Too little for a cost per KiB in some run.
    Little,
    /// Enough, but in some run softirqs ran for sockets of neighbours: the payload is not the command's alone.
    Shared,
    /// Enough, and as far as is known only the command's.
    Own,
}

impl Traffic {
    /// Least traffic among all runs.
    pub fn of(runs: &[Run]) -> Traffic {
        let value = |run: &Run, key| row(key).value(run).unwrap_or(0.0);
        let bytes =
            |run: &Run| value(run, "data_skb_bytes_sent") + value(run, "data_skb_bytes_received");
        if runs.iter().any(|run| bytes(run) < TRAFFIC_MIN_BYTES) {
            Traffic::Little
        } else if has_neighbours(runs) {
            Traffic::Shared
        } else {
            Traffic::Own
        }
    }
}

/// True if sockets of neighbours may be in the network namespace of a run.
fn has_neighbours(runs: &[Run]) -> bool {
    runs.iter().filter(|run| !run.is_fresh).any(|run| {
        let owned = Q::EXACT_OWNED.as_flattened().iter();
        let all: Option<f64> = owned.map(|&of| run.growth.count(M::Exact, of)).sum();
        let neighbours = row("exact_neighbour_softirq_ns").value(run);
        match (neighbours, all) {
            (Some(neighbours), Some(all)) => neighbours > NEIGHBOURS_MAX * all,
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use tcpcost_counts::{Counts, Growth};

    use super::*;

    /// Growth of the meter `exact`.
    fn grown(counts: Counts) -> Growth {
        Growth {
            counts: BTreeMap::from([(M::Exact, counts)]),
            ..Growth::default()
        }
    }

    #[test]
    fn keys_are_unique() {
        let keys: BTreeSet<&str> = ROWS.iter().map(|row| row.key).collect();
        assert_eq!(keys.len(), ROWS.len());
    }

    #[test]
    fn neighbours_of_a_fresh_namespace_are_outside_of_it() {
        let owned = Q::EXACT_OWNED.as_flattened().iter();
        let counts = owned.map(|&quantity| (quantity, 1000));
        for is_fresh in [false, true] {
            let run = Run {
                growth: grown(counts.clone().collect()),
                is_fresh,
                ..Run::default()
            };
            assert_eq!(has_neighbours(&[run]), !is_fresh);
        }
    }

    #[test]
    fn the_hosts_rows_are_all_contexts_but_idle_and_the_commands_tasks() {
        let contexts = Q::EXACT_CONTEXTS.iter().map(|&quantity| (quantity, 1));
        let run = Run {
            growth: grown(contexts.collect()),
            ..Run::default()
        };
        let rows = ROWS.iter().filter(|row| row.section == HOST);
        let all: f64 = rows.filter_map(|row| row.value(&run)).sum();
        let without = Q::EXACT_IDLE.len() + 1;
        assert_eq!(all as usize + without, Q::EXACT_CONTEXTS.len());
    }
}
