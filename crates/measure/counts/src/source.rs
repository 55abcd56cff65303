//! Sources of a figure's counts, and sums that several figures share.

use crate::meter_name::MeterName;
use crate::quantity::Quantity;

/// A buffer of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketBuffer {
    /// SO_SNDBUF.
    Send,
    /// SO_RCVBUF.
    Receive,
}

/// Counts of meters in an interval, for a subject: hosts in a trial, this host while `watch` runs,
/// a connection, one direction of a capture. Unknown counts are `None`, never 0.
pub trait Source {
    /// Growth of a count by a meter, summed over the members of the subject; `None` if one of them
    /// lacks the count.
    fn count(&self, by: MeterName, of: Quantity) -> Option<f64>;

    /// Growth of a count, summed over the members that have it: a host that only receives has no
    /// sending calls.
    fn count_of_some(&self, by: MeterName, of: Quantity) -> Option<f64> {
        self.count(by, of)
    }

    /// Growth per second, each member by its own clock.
    fn per_s(&self, by: MeterName, of: Quantity) -> Option<f64>;

    /// Time that the counts of a meter cover, ns: the interval, once for each CPU or connection.
    fn time_ns(&self, by: MeterName) -> Option<f64>;

    /// Number of CPUs that a meter of CPUs covers.
    fn cpus(&self, _by: MeterName) -> Option<f64> {
        None
    }

    /// Instructions per nanosecond of the CPUs' clock; `None` if the clock tells time.
    fn instructions_per_ns(&self) -> Option<f64> {
        None
    }

    /// Work of all workers of the trial together, whatever the subject: costs are per unit of work.
    fn work(&self, _of: Quantity) -> Option<f64> {
        None
    }

    /// Work of all workers of the trial together, per second.
    fn work_per_s(&self, _of: Quantity) -> Option<f64> {
        None
    }

    /// Percentile (0..=1) of the trial's response times, µs.
    fn response_us(&self, _percentile: f64) -> Option<f64> {
        None
    }

    /// Highest observed limit of a host's `avoidance` receiver; `None` for several hosts.
    fn ack_limit_top(&self) -> Option<f64> {
        None
    }

    /// Number of observed falls of that limit after its timer had fired, and number of firings.
    fn ack_limit_falls(&self) -> Option<(f64, f64)> {
        None
    }

    /// Buffer size of the socket of a host's first connection, bytes; `None` for several hosts.
    fn buffer_bytes(&self, _of: SocketBuffer) -> Option<f64> {
        None
    }

    /// Buffer size that was asked for, bytes; `None` if none was.
    fn buffer_asked_bytes(&self, _of: SocketBuffer) -> Option<f64> {
        None
    }

    /// Standard error of the payload bytes, relative to them, if they are estimated from a sample.
    fn sampling_error(&self) -> Option<f64> {
        None
    }

    /// True if its namespaces hold no other connections.
    fn owns_namespaces(&self) -> bool {
        false
    }
}

/// Quotient; `None` if the divisor is not positive.
pub(crate) fn ratio(over: f64, under: f64) -> Option<f64> {
    (under > 0.0).then(|| over / under)
}

/// Sum of counts of one meter; `None` if one is missing.
pub(crate) fn sum(from: &dyn Source, by: MeterName, of: &[Quantity]) -> Option<f64> {
    of.iter().map(|&of| from.count(by, of)).sum()
}

/// Quotient of two counts of one meter.
pub(crate) fn per(
    from: &dyn Source,
    by: MeterName,
    over: Quantity,
    under: Quantity,
) -> Option<f64> {
    ratio(from.count(by, over)?, from.count(by, under)?)
}

/// Quotient of two counts of one meter, each summed over the members that have it.
pub(crate) fn per_of_some(
    from: &dyn Source,
    by: MeterName,
    over: Quantity,
    under: Quantity,
) -> Option<f64> {
    ratio(
        from.count_of_some(by, over)?,
        from.count_of_some(by, under)?,
    )
}

/// Share of a meter's time.
pub(crate) fn share(from: &dyn Source, by: MeterName, of: &[Quantity]) -> Option<f64> {
    ratio(sum(from, by, of)?, from.time_ns(by)?)
}

/// KiB of payload delivered.
pub(crate) fn kib(from: &dyn Source) -> Option<f64> {
    Some(from.work(Quantity::PayloadBytesReceived)? / 1024.0)
}

/// MiB of payload delivered.
pub(crate) fn mib(from: &dyn Source) -> Option<f64> {
    Some(kib(from)? / 1024.0)
}

/// Transactions completed.
pub(crate) fn transactions(from: &dyn Source) -> Option<f64> {
    from.work(Quantity::Transactions)
}

/// System calls that sent, received and waited.
pub(crate) fn system_calls(from: &dyn Source) -> Option<f64> {
    let by = MeterName::Workload;
    let apart = [
        Quantity::SendCalls,
        Quantity::ReceiveCalls,
        Quantity::PollCalls,
    ];
    from.count(by, Quantity::IoUringSystemCalls)
        .or_else(|| sum(from, by, &apart))
}

/// KiB of payload in the namespace's data skbs, sent and received.
pub(crate) fn payload_kib(from: &dyn Source) -> Option<f64> {
    let of = [Quantity::DataSkbBytesSent, Quantity::DataSkbBytesReceived];
    Some(sum(from, MeterName::Segments, &of)? / 1024.0)
}

/// Connections opened in the namespace, by either end.
pub(crate) fn opens(from: &dyn Source) -> Option<f64> {
    let of = [Quantity::ActiveOpens, Quantity::PassiveOpens];
    sum(from, MeterName::Netstat, &of)
}

/// KiB of the namespace's IP packets, sent and received.
pub(crate) fn ip_kib(from: &dyn Source) -> Option<f64> {
    let of = [Quantity::IpOctetsSent, Quantity::IpOctetsReceived];
    Some(sum(from, MeterName::Netstat, &of)? / 1024.0)
}

/// CPU time of the soaker's spinners, which is no part of any cost, ns; 0 if none ran.
pub(crate) fn soaker_ns(from: &dyn Source) -> f64 {
    let spun = from.count(MeterName::Soak, Quantity::SoakTaskNs);
    spun.unwrap_or(0.0)
}

/// Time in which the CPUs were not idle, ns: idle time is measured where the kernel stops the tick of an idle CPU (NO_HZ), while
/// the other modes are what the ticks met. Stolen time is part of what it hit, as with `exact`.
pub(crate) fn busy_ns(from: &dyn Source) -> Option<f64> {
    let idle_ns = sum(from, MeterName::Proc, Quantity::CPU_IDLE)?;
    let busy_ns = from.time_ns(MeterName::Proc)? - idle_ns - soaker_ns(from);
    // Idle time grows in steps, so that of an idle CPU may exceed the interval.
    Some(busy_ns.max(0.0))
}

/// Busy share of the CPUs' time by the ticks of the modes in which a CPU works.
pub(crate) fn ticked_ratio(from: &dyn Source) -> Option<f64> {
    let ticked_ns = sum(from, MeterName::Proc, Quantity::CPU_BUSY)? - soaker_ns(from);
    ratio(ticked_ns, from.time_ns(MeterName::Proc)?)
}

/// Share of other tasks, by the tick: time of tasks without the workload's threads.
pub(crate) fn others(from: &dyn Source) -> Option<f64> {
    let tasks_ns = sum(from, MeterName::Proc, OF_TASKS)? - soaker_ns(from);
    let wire_ns = from.count_of_some(MeterName::Wire, Quantity::WireCpuNs);
    let others_ns = tasks_ns - threads_ns(from)? - wire_ns.unwrap_or(0.0);
    // A difference below one step of /proc/stat on each CPU cannot be told from 0.
    let is_told = others_ns > TICK_NS * from.cpus(MeterName::Proc)?;
    let others_ns = if is_told { others_ns } else { 0.0 };
    // A tick in a short trial may stand for more time than the trial has.
    Some(ratio(others_ns, from.time_ns(MeterName::Proc)?)?.min(1.0))
}

/// CPU time of the workload's threads, ns.
pub(crate) fn threads_ns(from: &dyn Source) -> Option<f64> {
    let of = [Quantity::TaskUserNs, Quantity::TaskSystemNs];
    // Two ends in one thread report their turns.
    let turns = from.count(MeterName::Workload, Quantity::TurnsNs);
    turns.or_else(|| sum(from, MeterName::Rusage, &of))
}

/// Context switches of the workload's threads.
pub(crate) fn switches(from: &dyn Source) -> Option<f64> {
    let of = [Quantity::VoluntarySwitches, Quantity::InvoluntarySwitches];
    sum(from, MeterName::Rusage, &of)
}

/// Busy time by context, ns, without spinners: the CPU would be idle without them.
pub(crate) fn exact_busy_ns(from: &dyn Source) -> Option<f64> {
    let idle = sum(from, MeterName::Exact, Quantity::EXACT_IDLE)?;
    Some(sum(from, MeterName::Exact, Quantity::EXACT_CONTEXTS)? - idle)
}

/// Busy share of the CPUs' time by context. Compare shares, not times: the meters' intervals differ
/// by microseconds.
pub(crate) fn exact_busy_ratio(from: &dyn Source) -> Option<f64> {
    ratio(exact_busy_ns(from)?, from.time_ns(MeterName::Exact)?)
}

/// Events of hosts: for their processes where CPU time has owners, else on their CPUs.
pub(crate) fn events(from: &dyn Source, on_cpus: Quantity, of_process: Quantity) -> Option<f64> {
    let owned = from.count(MeterName::Exact, of_process);
    owned.or_else(|| from.count(MeterName::Exact, on_cpus))
}

/// CPU time of a process with sockets, or of several, ns; in a trial, of a host's process.
pub(crate) fn holder_ns(from: &dyn Source) -> Option<f64> {
    sum(from, MeterName::Exact, &Quantity::EXACT_OF_HOST)
}

/// CPU time of a trial's hosts that no host owns, ns: kernel threads, ticks, softirqs without a socket
/// or for sockets of other processes.
pub(crate) fn unowned_ns(from: &dyn Source) -> Option<f64> {
    Some(exact_cost_ns(from)? - holder_ns(from)?)
}

/// User-mode part of its tasks' time, ns; limited to that time, because a few ticks may exceed it.
pub(crate) fn holder_user_ns(from: &dyn Source) -> Option<f64> {
    let task = from.count(MeterName::Exact, Quantity::HolderTaskNs)?;
    Some(
        from.count(MeterName::Exact, Quantity::HolderUserNs)?
            .min(task),
    )
}

/// CPU time of the measured subject, ns. If softirqs have owners: its own tasks, and softirqs and
/// hard interrupts for its own sockets. Otherwise busy time without other tasks, which includes all
/// softirqs, interrupts and kernel threads.
pub fn exact_cost_ns(from: &dyn Source) -> Option<f64> {
    let [softirq, hardirq] = Quantity::EXACT_OWNED[0];
    let own = [Quantity::ExactTaskOwnNs, softirq, hardirq];
    if let Some(own_ns) = sum(from, MeterName::Exact, &own) {
        return Some(own_ns);
    }
    let others = from.count(MeterName::Exact, Quantity::ExactTaskOthersNs)?;
    Some(exact_busy_ns(from)? - others)
}

/// Share of the soaker's work that was not done.
pub(crate) fn soak_load(from: &dyn Source) -> Option<f64> {
    let of = |quantity| from.count(MeterName::Soak, quantity);
    let done = ratio(
        of(Quantity::SoakWorkUnits)?,
        of(Quantity::SoakIdleWorkUnits)?,
    )?;
    Some(1.0 - done)
}

/// Count of the PMU; `None` while a soaker spins, whose cycles cannot be separated.
pub(crate) fn pmu(from: &dyn Source, of: Quantity) -> Option<f64> {
    let is_quiet = soaker_ns(from) == 0.0;
    from.count(MeterName::Perf, of).filter(|_| is_quiet)
}

/// Instructions that the trial cost: by the PMU, or by the meter `exact` where the clock counts
/// them. The latter excludes instructions that move memory if they are known.
pub(crate) fn instructions(from: &dyn Source) -> Option<f64> {
    match from.instructions_per_ns() {
        Some(per_ns) => {
            let emulated = |quantity| from.count(MeterName::Emulator, quantity);
            // The emulator counts between two marks; the clock's sum has the ends of the interval, too.
            let all = emulated(Quantity::Instructions);
            let all = all.or_else(|| Some(exact_cost_ns(from)? * per_ns))?;
            Some(all - emulated(Quantity::MemoryInstructions).unwrap_or(0.0))
        }
        None => pmu(from, Quantity::Instructions),
    }
}

/// Instructions in some contexts, by the meter `exact` or, without it, by the emulator; `None` if the
/// clock tells time.
pub(crate) fn instructions_in(
    from: &dyn Source,
    contexts: &[Quantity],
    emulated: Quantity,
) -> Option<f64> {
    // Both are asked for before the clock, so that the documents list them ([`Figure::counts`]).
    let exact = sum(from, MeterName::Exact, contexts);
    let emulated = from.count(MeterName::Emulator, emulated);
    let per_ns = from.instructions_per_ns()?;
    exact.map(|ns| ns * per_ns).or(emulated)
}

/// Cycles of the time-stamp counter in busy time.
pub(crate) fn tsc_cycles(from: &dyn Source) -> Option<f64> {
    let per_us = from.per_s(MeterName::Tsc, Quantity::TscCycles)? / 1e6;
    Some(busy_ns(from)? / 1e3 * per_us)
}

/// Segments without payload received, by TCP_INFO, SYN and FIN included. The peer may have sent
/// more: an ACK filter drops some on the path.
pub(crate) fn pure_acks_received(from: &dyn Source) -> Option<f64> {
    let of = |quantity| from.count(MeterName::TcpInfo, quantity);
    Some(of(Quantity::ConnSegmentsReceived)? - of(Quantity::ConnDataSegmentsReceived)?)
}

/// Segments without payload sent, by TCP_INFO.
pub(crate) fn pure_acks_sent(from: &dyn Source) -> Option<f64> {
    let of = |quantity| from.count(MeterName::TcpInfo, quantity);
    Some(of(Quantity::ConnSegmentsSent)? - of(Quantity::ConnDataSegmentsSent)?)
}

/// Segments that the namespace sent, retransmissions included.
pub(crate) const ALL_SENT: &[Quantity] = &[Quantity::SegmentsSent, Quantity::SegmentsRetransmitted];

/// CPU time of tcpcost itself and of its eBPF programs, ns; without programs, of tcpcost alone.
pub fn self_cpu_ns(from: &dyn Source) -> Option<f64> {
    let programs = from.count(MeterName::Programs, Quantity::SelfProgramsNs);
    Some(from.count(MeterName::SelfCost, Quantity::SelfCpuNs)? + programs.unwrap_or(0.0))
}

/// Share of ACKs that the filter held and never flushed, of all that it saw.
pub(crate) fn filtered_ratio(from: &dyn Source) -> Option<f64> {
    let of = |quantity| from.count_of_some(MeterName::AckFilter, quantity);
    let held = of(Quantity::AckFilterHeldAcks)?;
    let seen = of(Quantity::AckFilterPassedAcks)? + held;
    // An ACK that was held before the interval may be flushed in it.
    ratio((held - of(Quantity::AckFilterFlushedAcks)?).max(0.0), seen)
}

/// Difference of kernel and workload in payload bytes received, which both counted at the same
/// moments, relative to the workload.
pub(crate) fn payload_disagreement(from: &dyn Source) -> Option<f64> {
    let of = |quantity| from.count_of_some(MeterName::TcpInfo, quantity);
    let (kernel, workload) = (
        of(Quantity::ConnBytesReceived)?,
        of(Quantity::PayloadBytesReceived)?,
    );
    ratio((kernel - workload).abs(), workload)
}

/// Difference of namespace and connections in segments sent, relative to the connections; per
/// second, because their intervals differ by milliseconds.
pub(crate) fn segment_disagreement(from: &dyn Source) -> Option<f64> {
    if !from.owns_namespaces() {
        return None;
    }
    let sent = ALL_SENT
        .iter()
        .map(|&of| from.per_s(MeterName::Netstat, of));
    let by_namespace: f64 = sent.sum::<Option<f64>>()?;
    let by_connections = from.per_s(MeterName::TcpInfo, Quantity::ConnSegmentsSent)?;
    ratio((by_namespace - by_connections).abs(), by_connections)
}

/// Modes of /proc/stat in which a CPU works for a task.
const OF_TASKS: &[Quantity] = &[
    Quantity::CpuUserNs,
    Quantity::CpuNiceNs,
    Quantity::CpuSystemNs,
    Quantity::CpuGuestNs,
];

/// Step of /proc/stat, ns: two readings may be off by this much on each CPU.
const TICK_NS: f64 = 1e7;
