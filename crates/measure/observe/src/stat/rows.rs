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
    /// Unit in JSON and CSV.
    pub unit: &'static str,
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

const fn count(
    section: &'static str,
    label: &'static str,
    by: M,
    of: &'static [Q],
    key: &'static str,
    unit: &'static str,
) -> Row {
    Row {
        section,
        key,
        label,
        unit,
        kind: Kind::Count(by, of),
    }
}

const fn figure(section: &'static str, label: &'static str, of: Figure) -> Row {
    Row {
        section,
        key: of.name(),
        label,
        unit: of.unit(),
        kind: Kind::Figure(of),
    }
}

const COST: &str = "cost";
const CPU: &str = "CPU time of the command, all CPUs, exact by eBPF";
const HOST: &str = "CPU time of this whole host meanwhile";
const TASKS: &str = "the command's threads";
const CALLS: &str = "network system calls";
const TCP: &str = "TCP of the network namespace";
const SIZES: &str = "sizes and ACKs";
const DRAIN: &str = "data sent, by context";
const LOSS: &str = "loss and stalls";

/// All rows, in the order in which they are shown.
pub const ROWS: &[Row] = &[
    figure(
        COST,
        "CPU per KiB of payload",
        Figure::CommandUsPerPayloadKib,
    ),
    figure(COST, "CPU per unit", Figure::ExactUsPerTransaction),
    figure(
        COST,
        "CPU per connection opened",
        Figure::CommandUsPerConnection,
    ),
    figure(
        COST,
        "task clock of its threads, per KiB",
        Figure::CommandTaskUsPerPayloadKib,
    ),
    figure(
        COST,
        "cycles of its threads, per KiB",
        Figure::CommandCyclesPerPayloadKib,
    ),
    figure(
        COST,
        "instructions of its threads, per KiB",
        Figure::CommandInstructionsPerPayloadKib,
    ),
    Row {
        section: COST,
        key: "elapsed_s",
        label: "elapsed",
        unit: "s",
        kind: Kind::Elapsed,
    },
    Row {
        section: COST,
        key: "units",
        label: "units",
        unit: "",
        kind: Kind::Units,
    },
    count(
        CPU,
        "the command's tasks",
        M::Exact,
        &[Q::ExactTaskOwnNs],
        "exact_task_own_ns",
        "ns",
    ),
    count(
        CPU,
        "softirqs for its sockets",
        M::Exact,
        &[Q::ExactOwnSoftirqNs],
        "exact_own_softirq_ns",
        "ns",
    ),
    count(
        CPU,
        "hard interrupts for its sockets",
        M::Exact,
        &[Q::ExactOwnHardirqNs],
        "exact_own_hardirq_ns",
        "ns",
    ),
    count(
        HOST,
        "softirqs for the other ends on this host",
        M::Exact,
        &[Q::ExactPeerSoftirqNs, Q::ExactPeerHardirqNs],
        "exact_peer_softirq_ns",
        "ns",
    ),
    count(
        HOST,
        "softirqs for neighbours' sockets",
        M::Exact,
        &[Q::ExactNeighbourSoftirqNs, Q::ExactNeighbourHardirqNs],
        "exact_neighbour_softirq_ns",
        "ns",
    ),
    count(
        HOST,
        "softirq NET_RX, of all sockets",
        M::Exact,
        &[Q::ExactSoftirqNetRxNs],
        "exact_softirq_net_rx_ns",
        "ns",
    ),
    count(
        HOST,
        "softirq NET_TX",
        M::Exact,
        &[Q::ExactSoftirqNetTxNs],
        "exact_softirq_net_tx_ns",
        "ns",
    ),
    count(
        HOST,
        "softirq TASKLET",
        M::Exact,
        &[Q::ExactSoftirqTaskletNs],
        "exact_softirq_tasklet_ns",
        "ns",
    ),
    count(
        HOST,
        "softirqs TIMER, HRTIMER",
        M::Exact,
        &[Q::ExactSoftirqTimerNs, Q::ExactSoftirqHrtimerNs],
        "exact_softirq_timers_ns",
        "ns",
    ),
    count(
        HOST,
        "other softirqs",
        M::Exact,
        &[
            Q::ExactSoftirqSchedNs,
            Q::ExactSoftirqRcuNs,
            Q::ExactSoftirqOthersNs,
        ],
        "exact_softirq_rest_ns",
        "ns",
    ),
    count(
        HOST,
        "ksoftirqd, NAPI, kworkers",
        M::Exact,
        &[Q::ExactKsoftirqdNs, Q::ExactNapiNs, Q::ExactKworkerNs],
        "exact_kernel_threads_ns",
        "ns",
    ),
    count(
        HOST,
        "hard interrupts",
        M::Exact,
        &[Q::ExactHardirqNs],
        "exact_hardirq_ns",
        "ns",
    ),
    count(
        HOST,
        "tasks of others",
        M::Exact,
        &[Q::ExactTaskOthersNs],
        "exact_task_others_ns",
        "ns",
    ),
    count(
        HOST,
        "stolen by the hypervisor (/proc/stat)",
        M::Proc,
        &[Q::CpuStealNs],
        "cpu_steal_ns",
        "ns",
    ),
    count(
        TASKS,
        "CPU time",
        M::Descendants,
        &[Q::TaskClockNs],
        "task_clock_ns",
        "ns",
    ),
    count(
        TASKS,
        "CPU time of processes waited for",
        M::Rusage,
        &[Q::TaskUserNs, Q::TaskSystemNs],
        "command_cpu_ns",
        "ns",
    ),
    count(
        TASKS,
        "  in user mode",
        M::Rusage,
        &[Q::TaskUserNs],
        "task_user_ns",
        "ns",
    ),
    count(
        TASKS,
        "  in the kernel",
        M::Rusage,
        &[Q::TaskSystemNs],
        "task_system_ns",
        "ns",
    ),
    count(
        TASKS,
        "  voluntary context switches",
        M::Rusage,
        &[Q::VoluntarySwitches],
        "voluntary_switches",
        "",
    ),
    count(
        TASKS,
        "  involuntary context switches",
        M::Rusage,
        &[Q::InvoluntarySwitches],
        "involuntary_switches",
        "",
    ),
    count(
        TASKS,
        "  minor page faults",
        M::Rusage,
        &[Q::MinorFaults],
        "minor_page_faults",
        "",
    ),
    count(
        TASKS,
        "  major page faults",
        M::Rusage,
        &[Q::MajorFaults],
        "major_page_faults",
        "",
    ),
    count(
        TASKS,
        "context switches",
        M::Descendants,
        &[Q::ContextSwitches],
        "context_switches",
        "",
    ),
    count(
        TASKS,
        "migrations",
        M::Descendants,
        &[Q::CpuMigrations],
        "cpu_migrations",
        "",
    ),
    count(
        TASKS,
        "page faults",
        M::Descendants,
        &[Q::PageFaults],
        "page_faults",
        "",
    ),
    count(
        TASKS,
        "core cycles",
        M::Descendants,
        &[Q::CoreCycles],
        "core_cycles",
        "cycles",
    ),
    count(
        TASKS,
        "instructions",
        M::Descendants,
        &[Q::Instructions],
        "instructions",
        "instructions",
    ),
    count(
        CALLS,
        "sends on internet sockets",
        M::SocketCalls,
        &[Q::SocketSends],
        "socket_sends",
        "",
    ),
    count(
        CALLS,
        "bytes that they sent",
        M::SocketCalls,
        &[Q::SocketBytesSent],
        "socket_bytes_sent",
        "bytes",
    ),
    count(
        CALLS,
        "receives on internet sockets",
        M::SocketCalls,
        &[Q::SocketReceives],
        "socket_receives",
        "",
    ),
    count(
        CALLS,
        "bytes that they received",
        M::SocketCalls,
        &[Q::SocketBytesReceived],
        "socket_bytes_received",
        "bytes",
    ),
    count(
        CALLS,
        "sendto, sendmsg, sendmmsg",
        M::Descendants,
        &[Q::SendSystemCalls],
        "send_system_calls",
        "",
    ),
    count(
        CALLS,
        "recvfrom, recvmsg, recvmmsg",
        M::Descendants,
        &[Q::ReceiveSystemCalls],
        "receive_system_calls",
        "",
    ),
    count(
        CALLS,
        "sendfile, splice",
        M::Descendants,
        &[Q::SendfileSystemCalls],
        "sendfile_system_calls",
        "",
    ),
    count(
        CALLS,
        "connect",
        M::Descendants,
        &[Q::ConnectSystemCalls],
        "connect_system_calls",
        "",
    ),
    count(
        CALLS,
        "accept, accept4",
        M::Descendants,
        &[Q::AcceptSystemCalls],
        "accept_system_calls",
        "",
    ),
    count(
        CALLS,
        "epoll_wait, poll, select",
        M::Descendants,
        &[Q::PollSystemCalls],
        "poll_system_calls",
        "",
    ),
    count(
        CALLS,
        "io_uring_enter",
        M::Descendants,
        &[Q::IoUringSystemCalls],
        "io_uring_enter_system_calls",
        "",
    ),
    count(
        TCP,
        "payload sent",
        M::Segments,
        &[Q::DataSkbBytesSent],
        "data_skb_bytes_sent",
        "bytes",
    ),
    count(
        TCP,
        "payload received",
        M::Segments,
        &[Q::DataSkbBytesReceived],
        "data_skb_bytes_received",
        "bytes",
    ),
    count(
        TCP,
        "IP bytes sent",
        M::Netstat,
        &[Q::IpOctetsSent],
        "ip_octets_sent",
        "bytes",
    ),
    count(
        TCP,
        "IP bytes received",
        M::Netstat,
        &[Q::IpOctetsReceived],
        "ip_octets_received",
        "bytes",
    ),
    count(
        TCP,
        "segments sent",
        M::Netstat,
        &[Q::SegmentsSent],
        "segments_sent",
        "",
    ),
    count(
        TCP,
        "segments received, after GRO",
        M::Netstat,
        &[Q::SuperSegmentsReceived],
        "super_segments_received",
        "",
    ),
    count(
        TCP,
        "pure ACKs sent",
        M::Segments,
        &[Q::PureAcksSent],
        "pure_acks_sent",
        "",
    ),
    count(
        TCP,
        "pure ACKs received",
        M::Segments,
        &[Q::PureAcksReceived],
        "pure_acks_received",
        "",
    ),
    count(
        TCP,
        "connections opened",
        M::Netstat,
        &[Q::ActiveOpens],
        "active_opens",
        "",
    ),
    count(
        TCP,
        "connections accepted",
        M::Netstat,
        &[Q::PassiveOpens],
        "passive_opens",
        "",
    ),
    figure(SIZES, "payload per skb sent, mean", Figure::SkbBytesMean),
    figure(
        SIZES,
        "payload per skb, weighted by bytes",
        Figure::SkbBytesWeighted,
    ),
    figure(
        SIZES,
        "wire segments per skb sent (TSO)",
        Figure::WireSegmentsPerDataSkb,
    ),
    figure(
        SIZES,
        "wire segments per skb received (GRO)",
        Figure::WireSegmentsPerDataSkbReceived,
    ),
    figure(SIZES, "bytes per IP packet sent", Figure::OctetsPerDatagram),
    figure(
        SIZES,
        "data segments sent per ACK received",
        Figure::WireSegmentsPerAckReceived,
    ),
    figure(
        SIZES,
        "data segments received per ACK sent",
        Figure::WireSegmentsPerAckSent,
    ),
    figure(SIZES, "burst of data, segments", Figure::DataBurst),
    figure(DRAIN, "system calls", Figure::DrainedBySystemCall),
    figure(DRAIN, "softirq NET_RX: ACKs", Figure::DrainedByNetRx),
    figure(DRAIN, "tasklet: TCP small queues", Figure::DrainedByTasklet),
    figure(DRAIN, "timers: pacing", Figure::DrainedByTimer),
    count(
        LOSS,
        "segments retransmitted",
        M::Netstat,
        &[Q::SegmentsRetransmitted],
        "segments_retransmitted",
        "",
    ),
    figure(
        LOSS,
        "share of segments retransmitted",
        Figure::CommandRetransmitRatio,
    ),
    count(LOSS, "timeouts", M::Netstat, &[Q::Timeouts], "timeouts", ""),
    count(
        LOSS,
        "delayed ACKs by the timer, ≥ 40 ms each",
        M::Netstat,
        &[Q::DelayedAcksSent],
        "delayed_acks_sent",
        "",
    ),
    count(
        LOSS,
        "requests dropped, full listen queue",
        M::Netstat,
        &[Q::ListenDrops],
        "listen_drops",
        "",
    ),
];

impl Row {
    /// Value of one run; `None` if it was not measured.
    pub fn value(&self, run: &Run) -> Option<f64> {
        match &self.kind {
            Kind::Elapsed => Some(run.duration_ns as f64 / 1e9),
            Kind::Count(by, of) => of.iter().map(|&of| run.count(*by, of)).sum(),
            Kind::Figure(figure) => figure.value(run),
            Kind::Units => run.units,
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
        let all: Option<f64> = owned.map(|&of| run.count(M::Exact, of)).sum();
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

    use super::*;

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
                counts: BTreeMap::from([(M::Exact, counts.clone().collect())]),
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
            counts: BTreeMap::from([(M::Exact, contexts.collect())]),
            ..Run::default()
        };
        let rows = ROWS.iter().filter(|row| row.section == HOST);
        let all: f64 = rows.filter_map(|row| row.value(&run)).sum();
        let without = Q::EXACT_IDLE.len() + 1;
        assert_eq!(all as usize + without, Q::EXACT_CONTEXTS.len());
    }
}
