//! Figures: quotients of counts, each with one name, one definition and one formula.
//!
//! A figure is defined by its row alone. `docs/quantities.md` is generated from the rows;
//! docs/dev/add-a-figure.md says how to add one.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::meter_name::MeterName as M;
use crate::quantity::Quantity as Q;
use crate::source::{
    ALL_SENT, SocketBuffer, Source, busy_ns, events, exact_busy_ns, exact_busy_ratio,
    exact_cost_ns, filtered_ratio, holder_ns, holder_user_ns, instructions, instructions_in,
    ip_kib, kib, mib, opens, others, payload_disagreement, payload_kib, per, per_of_some, pmu,
    pure_acks_received, pure_acks_sent, ratio, segment_disagreement, self_cpu_ns, share, soak_load,
    sum, switches, system_calls, threads_ns, ticked_ratio, transactions, tsc_cycles, unowned_ns,
};

/// Subject of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FigureOf {
    /// A trial as a whole.
    Trial,
    /// A trial as a whole, or one group of its connections.
    Group,
    /// A trial as a whole, or one host of it.
    Host,
    /// A host while `watch` observes it, whatever runs there.
    Window,
    /// A command that `tcpcost stat` runs.
    Command,
    /// One connection that `watch` observes, or all connections of one process, cgroup, network
    /// namespace or port.
    Connection,
    /// One end of a captured connection.
    Direction,
}

macro_rules! figures {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $unit:literal, $whose:ident, $better:ident,
        $words:literal $(, $heading:literal)? => $formula:expr;)+) => {
        /// A quotient of counts.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Figure {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Figure {
            /// Every figure, in the order of the documentation.
            pub const ALL: &[Figure] = &[$(Figure::$variant,)+];

            /// Name, e.g. `cpu_us_per_kib`; for one host of a trial the host's name is put before
            /// it.
            pub const fn name(self) -> &'static str {
                match self { $(Figure::$variant => $name,)+ }
            }

            /// Unit, as printed.
            pub const fn unit(self) -> &'static str {
                match self { $(Figure::$variant => $unit,)+ }
            }

            /// Subject of the figure.
            pub const fn whose(self) -> FigureOf {
                match self { $(Figure::$variant => FigureOf::$whose,)+ }
            }

            /// True if less is better; `None` if neither direction is better.
            pub const fn lower_is_better(self) -> Option<bool> {
                match self { $(Figure::$variant => Better::$better.lower(),)+ }
            }

            /// True if the figure is a cost in CPU: work of the CPU per unit of what was done.
            pub const fn is_cost(self) -> bool {
                match self { $(Figure::$variant => matches!(Better::$better, Better::Cost),)+ }
            }

            /// Name in sentences, without the unit, e.g. `exact CPU per KiB`.
            pub const fn words(self) -> &'static str {
                match self { $(Figure::$variant => $words,)+ }
            }

            /// Heading of a column that shows the figure: a short name, else the unit.
            pub fn heading(self) -> &'static str {
                let own: &[&str] = match self { $(Figure::$variant => &[$($heading)?],)+ };
                own.first().copied().unwrap_or(self.shown_unit().0)
            }

            /// Definition, as in the documentation.
            pub fn definition(self) -> &'static str {
                match self { $(Figure::$variant => concat!($($doc,)+).trim_ascii(),)+ }
            }

            fn formula(self) -> fn(&dyn Source) -> Option<f64> {
                match self { $(Figure::$variant => $formula,)+ }
            }
        }
    };
}

figures! {
    /// Payload delivered to the receiving applications per second of the interval, both directions
    /// together.
    Goodput = "goodput_bits_per_s", "bit/s", Group, More, "goodput"
        => |from| Some(from.work_per_s(Q::PayloadBytesReceived)? * 8.0);
    /// Transactions completed per second of the interval, all connections together.
    TransactionsPerS = "transactions_per_s", "1/s", Group, More, "transactions per s", "trans./s"
        => |from| from.work_per_s(Q::Transactions);
    /// Connections that a host, or a set of hosts one after the other, opened per second of set-up:
    /// connect, accept, and a hello each way.
    SetUpConnectionsPerS = "set_up_connections_per_s", "1/s", Host, More, "connections per s at set-up"
        => |from| ratio(from.count(M::SetUp, Q::ConnectionsSetUp)? * 1e9, from.count(M::SetUp, Q::SetUpNs)?);
    /// Memory of a host's process per connection: growth during set-up (RSS), shared buffers
    /// included.
    ProcessBytesPerConnection = "process_bytes_per_connection", "bytes", Host, Less, "bytes of the process per connection"
        => |from| per(from, M::SetUp, Q::SetUpProcessBytes, Q::ConnectionsSetUp);
    /// Kernel objects per connection: growth of the machine's slab during set-up, for both ends if
    /// both are on one machine.
    SlabBytesPerConnection = "slab_bytes_per_connection", "bytes", Host, Less, "bytes of the slab per connection"
        => |from| per(from, M::SetUp, Q::SetUpSlabBytes, Q::ConnectionsSetUp);
    /// Memory of the machine's TCP queues at the end of the interval, per connection of the host.
    TcpQueueBytesPerConnection = "tcp_queue_bytes_per_connection", "bytes", Host, Less, "bytes of TCP's queues per connection"
        => |from| per(from, M::SetUp, Q::TcpQueueBytes, Q::ConnectionsSetUp);
    /// CPU µs per KiB (1024 bytes) of payload delivered: netperf's service demand. CPU =
    /// time in which the end's CPUs, or those of both ends together, were neither idle nor waiting
    /// for a disk, by /proc/stat. It includes other tasks, and the way into and out of idle.
    CpuUsPerKib = "cpu_us_per_kib", "µs/KiB", Host, Cost, "CPU per KiB"
        => |from| ratio(busy_ns(from)? / 1e3, kib(from)?);
    /// CPU µs per KiB by getrusage of the workload's threads: it lacks softirqs that ran on idle or
    /// elsewhere.
    TaskUsPerKib = "task_us_per_kib", "µs/KiB", Host, Cost, "threads' CPU per KiB", "threads' µs/KiB"
        => |from| ratio(threads_ns(from)? / 1e3, kib(from)?);
    /// CPU µs per transaction, with CPU as in `cpu_us_per_kib`.
    CpuUsPerTransaction = "cpu_us_per_transaction", "µs", Host, Cost, "CPU per transaction", "µs/trans."
        => |from| ratio(busy_ns(from)? / 1e3, transactions(from)?);
    /// Cycles of the time-stamp counter during CPU time as in `cpu_us_per_kib`, per KiB: time at a
    /// constant rate, not core cycles.
    TscCyclesPerKib = "tsc_cycles_per_kib", "TSC cycles/KiB", Host, Cost, "TSC cycles per KiB"
        => |from| ratio(tsc_cycles(from)?, kib(from)?);
    /// TSC cycles per transaction.
    TscCyclesPerTransaction = "tsc_cycles_per_transaction", "TSC cycles", Host, Cost, "TSC cycles per transaction"
        => |from| ratio(tsc_cycles(from)?, transactions(from)?);
    /// Share of the CPUs' time in user mode (user + nice), by the ticks.
    UserRatio = "user_ratio", "ratio", Host, Neither, "share of CPU time in user mode", "user"
        => |from| share(from, M::Proc, &[Q::CpuUserNs, Q::CpuNiceNs]);
    /// Share of the CPUs' time in the kernel for tasks, by the ticks.
    SystemRatio = "system_ratio", "ratio", Host, Neither, "share of CPU time in the kernel", "system"
        => |from| share(from, M::Proc, &[Q::CpuSystemNs]);
    /// Share of the CPUs' time in hard interrupts, by the ticks.
    IrqRatio = "irq_ratio", "ratio", Host, Neither, "share of CPU time in hard interrupts", "irq"
        => |from| share(from, M::Proc, &[Q::CpuIrqNs]);
    /// Share of the CPUs' time in softirqs, by the ticks.
    SoftirqRatio = "softirq_ratio", "ratio", Host, Neither, "share of CPU time in softirqs", "softirq"
        => |from| share(from, M::Proc, &[Q::CpuSoftirqNs]);
    /// Idle share of the CPUs' time, iowait included.
    IdleRatio = "idle_ratio", "ratio", Host, Neither, "idle share of CPU time", "idle"
        => |from| share(from, M::Proc, Q::CPU_IDLE);
    /// Share of the CPUs' time that the hypervisor took.
    StealRatio = "steal_ratio", "ratio", Host, Less, "stolen share of CPU time", "steal"
        => |from| share(from, M::Proc, &[Q::CpuStealNs]);
    /// Share of the CPUs' time that other tasks used: busy time without the workload's threads,
    /// softirq and irq.
    OthersRatio = "others_ratio", "ratio", Host, Less, "share of CPU time in other tasks", "others"
        => |from| others(from);
    /// CPU µs per KiB by the meter `exact` (eBPF): all time of the CPUs that is neither idle nor in
    /// other tasks; it includes softirqs and interrupts on behalf of other tasks.
    ExactUsPerKib = "exact_cpu_us_per_kib", "µs/KiB", Host, Cost, "exact CPU per KiB"
        => |from| ratio(exact_cost_ns(from)? / 1e3, kib(from)?);
    /// CPU µs per transaction, by the meter `exact` as in `exact_cpu_us_per_kib`.
    ExactUsPerTransaction = "exact_cpu_us_per_transaction", "µs", Host, Cost, "exact CPU per transaction", "µs/trans."
        => |from| ratio(exact_cost_ns(from)? / 1e3, transactions(from)?);
    /// CPUs that the work kept busy, `CPUs utilized` of perf stat: CPU time as in
    /// `exact_cpu_us_per_kib` over the interval. 0.44 is Jones's 22 % of two processors (2005).
    ExactBusyCpus = "exact_busy_cpus", "CPUs", Host, Less, "CPUs utilised", "CPUs"
        => |from| ratio(exact_cost_ns(from)? * from.cpus(M::Exact)?, from.time_ns(M::Exact)?);
    /// CPU µs per KiB of one host by owner, where hosts share CPUs or are on loopback: time of the
    /// tasks of the host's process, and of softirqs and hard interrupts for its sockets, on any CPU of
    /// the trial. Meter `exact` with owners.
    OwnedUsPerKib = "owned_cpu_us_per_kib", "µs/KiB", Host, Cost, "CPU by owner per KiB", "by owner, µs/KiB"
        => |from| ratio(holder_ns(from)? / 1e3, kib(from)?);
    /// CPU µs per transaction of one host by owner, as in `owned_cpu_us_per_kib`.
    OwnedUsPerTransaction = "owned_cpu_us_per_transaction", "µs", Host, Cost, "CPU by owner per transaction", "by owner, µs/trans."
        => |from| ratio(holder_ns(from)? / 1e3, transactions(from)?);
    /// Part of `exact_cpu_us_per_kib` that no host owns: kernel threads, ticks, RCU, and softirqs
    /// without a socket or for sockets of other processes. `exact_cpu_us_per_kib` is the sum of
    /// `owned_cpu_us_per_kib` of all hosts and this figure.
    UnownedUsPerKib = "unowned_cpu_us_per_kib", "µs/KiB", Trial, Cost, "CPU without an owner per KiB", "no owner, µs/KiB"
        => |from| ratio(unowned_ns(from)? / 1e3, kib(from)?);
    /// Part of `exact_cpu_us_per_transaction` that no host owns, as in `unowned_cpu_us_per_kib`.
    UnownedUsPerTransaction = "unowned_cpu_us_per_transaction", "µs", Trial, Cost, "CPU without an owner per transaction", "no owner, µs/trans."
        => |from| ratio(unowned_ns(from)? / 1e3, transactions(from)?);
    /// Share of the CPUs' time in the trial's own tasks, without interrupts. Meter `exact`, as for
    /// all `exact` figures.
    ExactOwnRatio = "exact_own_tasks_ratio", "ratio", Host, Neither, "exact share of CPU time in own tasks", "own tasks"
        => |from| share(from, M::Exact, &[Q::ExactTaskOwnNs]);
    /// Share of the CPUs' time in softirq NET_RX.
    ExactNetRxRatio = "exact_net_rx_ratio", "ratio", Host, Neither, "exact share of CPU time in NET_RX", "NET_RX"
        => |from| share(from, M::Exact, &[Q::ExactSoftirqNetRxNs]);
    /// Share of the CPUs' time in ksoftirqd, threaded NAPI, kworkers and softirqs other than
    /// NET_RX.
    ExactDeferredRatio = "exact_deferred_ratio", "ratio", Host, Neither, "exact share of CPU time in deferred work", "deferred"
        => |from| share(from, M::Exact, Q::EXACT_DEFERRED);
    /// Share of the CPUs' time in hard interrupts, by the meter `exact`.
    ExactHardirqRatio = "exact_hardirq_ratio", "ratio", Host, Neither, "exact share of CPU time in hard interrupts", "hard irq"
        => |from| share(from, M::Exact, &[Q::ExactHardirqNs]);
    /// Share of the CPUs' time in other tasks.
    ExactOthersRatio = "exact_others_ratio", "ratio", Host, Less, "exact share of CPU time in other tasks", "others"
        => |from| share(from, M::Exact, &[Q::ExactTaskOthersNs]);
    /// Idle share of the CPUs' time.
    ExactIdleRatio = "exact_idle_ratio", "ratio", Host, Neither, "exact idle share of CPU time", "idle"
        => |from| share(from, M::Exact, Q::EXACT_IDLE);
    /// Busy time by the ticks of /proc/stat (user, nice, system, irq, softirq, guest) over busy time
    /// by `exact`, other tasks included in both: the error of the tick's sampling. 1 is correct.
    ProcToExact = "proc_to_exact_factor", "factor", Host, Neither, "busy time by the ticks of /proc/stat over exact busy time", "proc ÷"
        => |from| ratio(ticked_ratio(from)?, exact_busy_ratio(from)?);
    /// CPU time of the workload's threads by getrusage over the CPU time of `exact_cpu_us_per_kib`:
    /// the part of the whole cost that the per-process view shows. 1 is correct.
    RusageToExact = "rusage_to_exact_factor", "factor", Host, Neither, "threads' CPU over exact CPU", "rusage ÷"
        => |from| ratio(threads_ns(from)?, exact_cost_ns(from)?);
    /// Load by the soaker (Morton 2001): how much an idle-priority spinner is slowed, including by
    /// interrupts and by contention for cache and memory; an upper bound of busy time. Other tasks
    /// are included.
    SoakLoadRatio = "soak_load_ratio", "ratio", Host, Neither, "load by the soaker"
        => |from| soak_load(from);
    /// Load by the soaker over the busy share by `exact`, without the spinner itself, other tasks
    /// included in both. 1 would be correct; the excess is the cost of contention.
    SoakToExact = "soak_to_exact_factor", "factor", Host, Neither, "load by the soaker over exact busy time", "soak ÷"
        => |from| ratio(soak_load(from)?, exact_busy_ratio(from)?);
    /// Core cycles (PMU) of everything that ran on the CPUs, per KiB; absent without a PMU and
    /// while a soaker spins.
    CoreCyclesPerKib = "core_cycles_per_kib", "cycles/KiB", Host, Cost, "cycles per KiB"
        => |from| ratio(pmu(from, Q::CoreCycles)?, kib(from)?);
    /// Core cycles (PMU) per transaction.
    CoreCyclesPerTransaction = "core_cycles_per_transaction", "cycles", Host, Cost, "cycles per transaction"
        => |from| ratio(pmu(from, Q::CoreCycles)?, transactions(from)?);
    /// Instructions of everything that ran on the CPUs, user and kernel, per KiB: nearly the same
    /// on a busy machine as on a quiet one. Counted by the PMU, and absent without one. In a guest
    /// whose clock counts instructions (docs/kernels.md), counted by the meter `exact`, without
    /// other tasks, and without `memory_instructions_per_kib` if those are known. Instructions are
    /// not time.
    InstructionsPerKib = "instructions_per_kib", "instructions/KiB", Host, Cost, "instructions per KiB"
        => |from| ratio(instructions(from)?, kib(from)?);
    /// Instructions of everything that ran on the CPUs, as in `instructions_per_kib`, per
    /// transaction.
    InstructionsPerTransaction = "instructions_per_transaction", "instructions", Host, Cost, "instructions per transaction"
        => |from| ratio(instructions(from)?, transactions(from)?);
    /// Instructions that copy, clear or set memory, per KiB; not included in
    /// `instructions_per_kib`. A byte is an eighth of an instruction in the guest, one or a
    /// sixty-fourth on other CPUs.
    MemoryInstructionsPerKib = "memory_instructions_per_kib", "instructions/KiB", Host, Neither, "memory instructions per KiB", "memory"
        => |from| ratio(from.count(M::Emulator, Q::MemoryInstructions)?, kib(from)?);
    /// Instructions that copy, clear or set memory, per transaction.
    MemoryInstructionsPerTransaction = "memory_instructions_per_transaction", "instructions", Host, Neither, "memory instructions per transaction", "memory"
        => |from| ratio(from.count(M::Emulator, Q::MemoryInstructions)?, transactions(from)?);
    /// Instructions in user mode per KiB, of all programs. Only in a guest whose clock counts
    /// instructions, by the emulator, as in the row below.
    UserInstructionsPerKib = "user_instructions_per_kib", "instructions/KiB", Host, Cost, "instructions in user mode per KiB", "user"
        => |from| ratio(from.count(M::Emulator, Q::UserInstructions)?, kib(from)?);
    /// Instructions in user mode per transaction.
    UserInstructionsPerTransaction = "user_instructions_per_transaction", "instructions", Host, Cost, "instructions in user mode per transaction", "user"
        => |from| ratio(from.count(M::Emulator, Q::UserInstructions)?, transactions(from)?);
    /// Instructions, memory instructions included, of the trial's own tasks per KiB, without
    /// interrupts: system calls, and user mode. Only in a guest whose clock counts instructions, as
    /// in the seven rows below: by the meter `exact`; where that does not load, by
    /// the emulator, of all tasks.
    TaskInstructionsPerKib = "task_instructions_per_kib", "instructions/KiB", Host, Cost, "instructions in tasks per KiB", "tasks"
        => |from| ratio(instructions_in(from, &[Q::ExactTaskOwnNs], Q::TaskInstructions)?, kib(from)?);
    /// Instructions in softirq NET_RX per KiB: packets received, and data that an ACK lets TCP
    /// send.
    NetRxInstructionsPerKib = "net_rx_instructions_per_kib", "instructions/KiB", Host, Cost, "instructions in NET_RX per KiB", "NET_RX"
        => |from| ratio(instructions_in(from, &[Q::ExactSoftirqNetRxNs], Q::NetRxInstructions)?, kib(from)?);
    /// Instructions in ksoftirqd, kworkers and softirqs other than NET_RX per KiB; the record has
    /// each vector.
    DeferredInstructionsPerKib = "deferred_instructions_per_kib", "instructions/KiB", Host, Cost, "instructions in deferred work per KiB", "deferred"
        => |from| ratio(instructions_in(from, Q::EXACT_DEFERRED, Q::DeferredInstructions)?, kib(from)?);
    /// Instructions in hard interrupts per KiB.
    HardirqInstructionsPerKib = "hardirq_instructions_per_kib", "instructions/KiB", Host, Cost, "instructions in hard interrupts per KiB", "hard irq"
        => |from| ratio(instructions_in(from, &[Q::ExactHardirqNs], Q::HardirqInstructions)?, kib(from)?);
    /// Instructions of the trial's own tasks, as in `task_instructions_per_kib`, per transaction.
    TaskInstructionsPerTransaction = "task_instructions_per_transaction", "instructions", Host, Cost, "instructions in tasks per transaction", "tasks"
        => |from| ratio(instructions_in(from, &[Q::ExactTaskOwnNs], Q::TaskInstructions)?, transactions(from)?);
    /// Instructions in softirq NET_RX per transaction.
    NetRxInstructionsPerTransaction = "net_rx_instructions_per_transaction", "instructions", Host, Cost, "instructions in NET_RX per transaction", "NET_RX"
        => |from| ratio(instructions_in(from, &[Q::ExactSoftirqNetRxNs], Q::NetRxInstructions)?, transactions(from)?);
    /// Instructions in ksoftirqd, kworkers and softirqs other than NET_RX per transaction.
    DeferredInstructionsPerTransaction = "deferred_instructions_per_transaction", "instructions", Host, Cost, "instructions in deferred work per transaction", "deferred"
        => |from| ratio(instructions_in(from, Q::EXACT_DEFERRED, Q::DeferredInstructions)?, transactions(from)?);
    /// Instructions in hard interrupts per transaction.
    HardirqInstructionsPerTransaction = "hardirq_instructions_per_transaction", "instructions", Host, Cost, "instructions in hard interrupts per transaction", "hard irq"
        => |from| ratio(instructions_in(from, &[Q::ExactHardirqNs], Q::HardirqInstructions)?, transactions(from)?);
    /// Instructions while threads of the workload ran, per KiB, interrupts and softirqs that hit
    /// them included: a host's part if both ends share a CPU. By getrusage, in a guest whose clock
    /// counts instructions.
    ThreadInstructionsPerKib = "thread_instructions_per_kib", "instructions/KiB", Host, Cost, "threads' instructions per KiB", "threads"
        => |from| ratio(threads_ns(from)? * from.instructions_per_ns()?, kib(from)?);
    /// Instructions while threads of the workload ran, as in `thread_instructions_per_kib`, per
    /// transaction.
    ThreadInstructionsPerTransaction = "thread_instructions_per_transaction", "instructions", Host, Cost, "threads' instructions per transaction", "threads"
        => |from| ratio(threads_ns(from)? * from.instructions_per_ns()?, transactions(from)?);
    /// Instructions per core cycle (PMU).
    InstructionsPerCycle = "instructions_per_cycle", "1/cycle", Host, More, "instructions per cycle"
        => |from| ratio(pmu(from, Q::Instructions)?, pmu(from, Q::CoreCycles)?);
    /// Last-level cache misses (PMU) per KiB.
    CacheMissesPerKib = "cache_misses_per_kib", "1/KiB", Host, Less, "cache misses per KiB"
        => |from| ratio(pmu(from, Q::CacheMisses)?, kib(from)?);
    /// Mispredicted branches (PMU) per KiB.
    BranchMissesPerKib = "branch_misses_per_kib", "1/KiB", Host, Less, "branch misses per KiB"
        => |from| ratio(pmu(from, Q::BranchMisses)?, kib(from)?);
    /// Wire segments per skb passed to IP ((TcpOutSegs + TcpRetransSegs) / IpOutRequests): the mean
    /// super-segment, pure ACKs included.
    SegmentsPerSkb = "segments_per_skb", "segments", Host, More, "segments per skb", "segments/skb"
        => |from| ratio(sum(from, M::Netstat, ALL_SENT)?, from.count(M::Netstat, Q::IpPacketsSent)?);
    /// Bytes per IP packet sent, a super-segment counting as one (IpExtOutOctets / IpOutRequests):
    /// Dumazet's occupancy.
    OctetsPerDatagram = "octets_per_datagram", "bytes", Host, More, "bytes per packet", "bytes/packet"
        => |from| per(from, M::Netstat, Q::IpOctetsSent, Q::IpPacketsSent);
    /// IP packets sent per KiB, a super-segment counting as one, pure ACKs included: skbs that
    /// passed through the stack.
    PacketsPerKib = "packets_per_kib", "packets/KiB", Host, Less, "packets per KiB"
        => |from| ratio(from.count(M::Netstat, Q::IpPacketsSent)?, kib(from)?);
    /// IP packets sent per transaction, a super-segment counting as one.
    PacketsPerTransaction = "packets_per_transaction", "packets", Host, Less, "packets per transaction", "packets/trans."
        => |from| ratio(from.count(M::Netstat, Q::IpPacketsSent)?, transactions(from)?);
    /// Mean payload of data skbs that TCP passed down: the LSO size, each skb counting once. Meter
    /// `segments` (eBPF), as in the rows below.
    SkbBytesMean = "skb_bytes_mean", "bytes", Host, Neither, "payload per skb", "skb B"
        => |from| per_of_some(from, M::Segments, Q::DataSkbBytesSent, Q::DataSkbsSent);
    /// Mean payload of data skbs that TCP passed down, weighted by bytes: the size of the skb that
    /// an average byte travels in. Short tails lower the plain mean, and hardly affect this one.
    SkbBytesWeighted = "skb_bytes_weighted_mean", "bytes", Host, Neither, "payload per skb, weighted by bytes"
        => |from| per_of_some(from, M::Segments, Q::DataSkbSquaredBytesSent, Q::DataSkbBytesSent);
    /// Mean payload of data skbs of more than one segment that TCP passed down: what a probe of the
    /// large-send path sees, without tails of one segment.
    LargeSkbBytes = "large_skb_bytes_mean", "bytes", Host, Neither, "payload per skb of several segments", "large skb B"
        => |from| per_of_some(from, M::Segments, Q::LargeSkbBytesSent, Q::LargeSkbsSent);
    /// Wire segments per data skb.
    WireSegmentsPerDataSkb = "wire_segments_per_data_skb", "segments", Host, Neither, "wire segments per skb sent", "seg/skb"
        => |from| per_of_some(from, M::Segments, Q::DataWireSegmentsSent, Q::DataSkbsSent);
    /// Share of data skbs that are a short tail directly after a full one.
    TailRatio = "tail_ratio", "ratio", Host, Less, "share of skbs that are a short tail", "tail%"
        => |from| per_of_some(from, M::Segments, Q::TailSkbsSent, Q::DataSkbsSent);
    /// Data skbs that TCP passed down per KiB of their payload: the number of per-skb costs.
    DataSkbsPerKib = "data_skbs_per_kib", "1/KiB", Host, Less, "skbs per KiB"
        => |from| ratio(from.count_of_some(M::Segments, Q::DataSkbsSent)?, from.count_of_some(M::Segments, Q::DataSkbBytesSent)? / 1024.0);
    /// Pieces of memory per skb passed to a driver, headers included: Sun 2008's DMA calls.
    FragmentsPerSkb = "fragments_per_device_skb", "fragments", Host, Neither, "fragments per skb"
        => |from| per_of_some(from, M::Segments, Q::DeviceFragmentsSent, Q::DeviceSkbsSent);
    /// Pieces of memory of skbs passed to a driver, per KiB of payload sent.
    FragmentsPerKib = "device_fragments_per_kib", "1/KiB", Host, Less, "fragments per KiB"
        => |from| ratio(from.count_of_some(M::Segments, Q::DeviceFragmentsSent)?, from.count_of_some(M::Segments, Q::DataSkbBytesSent)? / 1024.0);
    /// Duplicate ACKs sent per MiB of payload delivered. 0 on a path without loss and reordering.
    DuplicateAcksPerMib = "duplicate_acks_sent_per_mib", "1/MiB", Host, Less, "duplicate ACKs per MiB"
        => |from| ratio(from.count_of_some(M::Segments, Q::DuplicateAcksSent)?, mib(from)?);
    /// Payload bytes sent per pure ACK received.
    BytesPerAck = "payload_bytes_per_pure_ack", "bytes", Host, Neither, "bytes per ACK"
        => |from| per_of_some(from, M::Segments, Q::DataSkbBytesSent, Q::PureAcksReceived);
    /// Pure ACKs sent that moved the right edge of the receive window, per MiB of payload
    /// delivered: they announce reads of the application.
    WindowAdvancingAcksPerMib = "window_advancing_acks_sent_per_mib", "1/MiB", Host, Neither, "ACKs that moved the window per MiB"
        => |from| ratio(from.count(M::Segments, Q::WindowAdvancingAcksSent)? * 1024.0, kib(from)?);
    /// Pure ACKs sent that only acknowledged, per MiB of payload delivered: the receiver's first
    /// ACK, which Klemkow 2020 omits.
    OnlyAcknowledgingAcksPerMib = "only_acknowledging_acks_sent_per_mib", "1/MiB", Host, Neither, "ACKs that only acknowledged per MiB"
        => |from| ratio(from.count(M::Segments, Q::OnlyAcknowledgingAcksSent)? * 1024.0, kib(from)?);
    /// Wire segments of data sent in a row, with no ACK received in between: the mean burst.
    DataBurst = "data_burst_segments", "segments", Host, Neither, "segments per data burst", "burst>"
        => |from| per_of_some(from, M::Segments, Q::DataWireSegmentsSent, Q::DataBurstsSent);
    /// Pure ACKs received in a row, by the meter `segments`.
    AckBurst = "ack_burst_received", "ACKs", Host, Neither, "ACKs per burst of ACKs", "acks<"
        => |from| per_of_some(from, M::Segments, Q::PureAcksReceived, Q::AckBurstsReceived);
    /// Share of data skbs sent from the writer's system call: who drains the send queue (Sun 2008).
    DrainedBySystemCall = "drained_by_system_call_ratio", "ratio", Host, Neither, "share of skbs sent by system calls", "call%"
        => |from| per_of_some(from, M::Segments, Q::DrainedSystemCallSkbs, Q::DataSkbsSent);
    /// Share of data skbs sent from softirq NET_RX: on arrival of an ACK.
    DrainedByNetRx = "drained_by_net_rx_ratio", "ratio", Host, Neither, "share of skbs sent by NET_RX", "ack%"
        => |from| per_of_some(from, M::Segments, Q::DrainedNetRxSkbs, Q::DataSkbsSent);
    /// Share of data skbs sent from softirq TASKLET or a work queue: TCP small queues.
    DrainedByTasklet = "drained_by_tasklet_ratio", "ratio", Host, Neither, "share of skbs sent by TCP small queues", "tsq%"
        => |from| per_of_some(from, M::Segments, Q::DrainedTaskletSkbs, Q::DataSkbsSent);
    /// Share of data skbs sent from timers, including pacing.
    DrainedByTimer = "drained_by_timer_ratio", "ratio", Host, Neither, "share of skbs sent by timers", "tmr%"
        => |from| per_of_some(from, M::Segments, Q::DrainedTimerSkbs, Q::DataSkbsSent);
    /// Wire segments with payload that this end sent, per pure ACK that it received. From the
    /// captured trials, at the end's own device, as in the rows below.
    CapturedSegmentsPerAck = "captured_wire_segments_per_pure_ack_received", "segments", Host, Neither, "captured segments per ACK received", "seg/ack>, captured"
        => |from| per(from, M::Trace, Q::DataWireSegmentsSent, Q::PureAcksReceived);
    /// Wire segments of data sent in a row, with no packet received in between.
    CapturedDataBurst = "captured_data_burst_segments", "segments", Host, Neither, "captured segments per data burst", "segments/burst, captured"
        => |from| per(from, M::Trace, Q::DataWireSegmentsSent, Q::DataBurstsSent);
    /// Pure ACKs received in a row, by a capture.
    CapturedAckBurst = "captured_ack_burst_received", "ACKs", Host, Neither, "captured ACKs per burst of ACKs"
        => |from| per(from, M::Trace, Q::PureAcksReceived, Q::AckBurstsReceived);
    /// Pure ACKs received per burst of data sent, by a capture: 0 where the next request acknowledges
    /// all.
    CapturedAcksPerDataBurst = "captured_acks_per_data_burst", "ACKs", Host, Neither, "captured ACKs per data burst"
        => |from| per(from, M::Trace, Q::PureAcksReceived, Q::DataBurstsSent);
    /// Share of captured data packets that are a tail below the MSS directly after a full-sized
    /// super-segment.
    CapturedTailRatio = "captured_tail_ratio", "ratio", Host, Less, "share of captured packets that are a short tail"
        => |from| per(from, M::Trace, Q::TailSkbsSent, Q::DataSkbsSent);
    /// Share of the connections' time in delayed-ACK stalls.
    CapturedStallRatio = "captured_stall_ratio", "ratio", Host, Less, "share of time in delayed-ACK stalls"
        => |from| share(from, M::Trace, &[Q::DelayedAckStallNs]);
    /// Wire segments with payload that this end sent, per segment without payload that it received.
    DataSegmentsPerPureAck = "data_segments_per_pure_ack_received", "segments", Host, Neither, "segments per ACK received", "seg/ack>"
        => |from| ratio(from.count(M::TcpInfo, Q::ConnDataSegmentsSent)?, pure_acks_received(from)?);
    /// Pure ACKs that this end's connections received per KiB delivered; the sender's work per ACK
    /// depends on it. Segments without payload, by TCP_INFO.
    AcksPerKib = "acks_per_kib", "ACKs/KiB", Host, Neither, "ACKs per KiB", "ACKs/KiB"
        => |from| ratio(pure_acks_received(from)?, kib(from)?);
    /// ACKs per second that this end's delayed-ACK timer sent. In a bulk transfer the sender stalls
    /// before each.
    DelayedAcksPerS = "delayed_acks_per_s", "1/s", Host, Less, "delayed ACKs per s", "delACKs/s"
        => |from| from.per_s(M::Netstat, Q::DelayedAcksSent);
    /// Incoming segments that were merged while the reader held the socket (BacklogCoalesce), per
    /// MiB delivered: ACKs that the sender, or segments that the receiver, need not process
    /// separately.
    BacklogCoalescedPerMib = "backlog_coalesced_per_mib", "1/MiB", Host, Neither, "coalesced segments per MiB", "coalesced/MiB"
        => |from| ratio(from.count_of_some(M::Netstat, Q::BacklogCoalesced)?, mib(from)?);
    /// Wire segments per data skb that TCP received, after GRO. Meter `segments`.
    WireSegmentsPerDataSkbReceived = "wire_segments_per_data_skb_received", "segments", Host, Neither, "wire segments per skb received", "seg/gro"
        => |from| per(from, M::Segments, Q::DataWireSegmentsReceived, Q::DataSkbsReceived);
    /// Share of received packets, data and ACKs, that took TCP's fast path (header prediction).
    HeaderPredictedRatio = "header_predicted_ratio", "ratio", Host, More, "share of packets on TCP's fast path", "fast%"
        => |from| ratio(sum(from, M::Netstat, &[Q::HeaderPredictedData, Q::HeaderPredictedAcks])?, from.count(M::Netstat, Q::SuperSegmentsReceived)?);
    /// Incoming skbs that went to the out-of-order queue, per MiB delivered.
    OutOfOrderPerMib = "out_of_order_skbs_per_mib", "1/MiB", Host, Less, "out-of-order skbs per MiB"
        => |from| ratio(from.count_of_some(M::Netstat, Q::OutOfOrderQueued)?, mib(from)?);
    /// ACKs that the receiver omitted while data came out of order, per MiB delivered.
    CompressedAcksPerMib = "compressed_acks_per_mib", "1/MiB", Host, Neither, "compressed ACKs per MiB"
        => |from| ratio(from.count_of_some(M::Netstat, Q::CompressedAcks)?, mib(from)?);
    /// Writes whose small skb waited for one in the device (autocorking), per MiB delivered.
    AutocorkedPerMib = "autocorked_writes_per_mib", "1/MiB", Host, Neither, "autocorked writes per MiB"
        => |from| ratio(from.count_of_some(M::Netstat, Q::Autocorked)?, mib(from)?);
    /// skbs that were copied together because the receive buffer was short, per MiB delivered.
    CollapsedPerMib = "receive_collapsed_skbs_per_mib", "1/MiB", Host, Less, "collapsed skbs per MiB"
        => |from| ratio(from.count_of_some(M::Netstat, Q::ReceiveCollapsed)?, mib(from)?);
    /// Duplicate SACKs received, per MiB delivered: unnecessary retransmissions.
    DsacksPerMib = "dsacks_received_per_mib", "1/MiB", Host, Less, "duplicate SACKs per MiB"
        => |from| ratio(from.count_of_some(M::Netstat, Q::DsacksReceived)?, mib(from)?);
    /// Share of the packets passed to a wire with delay and loss that it did not deliver: `loss`,
    /// and a full `wire_queue`.
    WireLossRatio = "wire_loss_ratio", "ratio", Trial, Less, "share of packets that the wire lost"
        => |from| ratio(from.count_of_some(M::Wire, Q::WireLostPackets)? + from.count_of_some(M::Wire, Q::WireOverflowedPackets)?, from.count_of_some(M::Wire, Q::WirePackets)?);
    /// Highest limit that an `avoidance` receiver's first connection had learned, by the samples of
    /// `series`.
    AckLimitTop = "ack_limit_top", "segments", Host, Neither, "highest learned limit of segments per ACK"
        => |from| from.ack_limit_top();
    /// Share of the samples of `series` after a firing of the receiver's delayed-ACK timer that
    /// found its limit lower than the sample before.
    AckLimitFallRatio = "ack_limit_fall_ratio", "ratio", Host, Neither, "share of timer firings that lowered the limit"
        => |from| from.ack_limit_falls().and_then(|(falls, ends)| ratio(falls, ends));
    /// Share of the pure ACKs that `ack_filter` saw at this end and never sent.
    AcksFilteredRatio = "acks_filtered_ratio", "ratio", Host, Neither, "share of ACKs that the filter dropped", "% filtered"
        => |from| filtered_ratio(from);
    /// Share of the data segments sent that were retransmissions.
    RetransmitRatio = "retransmit_ratio", "ratio", Host, Less, "retransmissions per data segment", "% retransmitted"
        => |from| per(from, M::TcpInfo, Q::ConnSegmentsRetransmitted, Q::ConnDataSegmentsSent);
    /// Share of the time in which this end's connections had data to send and the peer's window was
    /// the limit: the peer's receive buffer was full. By TCP_INFO.
    ReceiveWindowLimitedRatio = "receive_window_limited_ratio", "ratio", Host, Neither, "share of sending time limited by the peer's window", "window-limited"
        => |from| per(from, M::TcpInfo, Q::ConnReceiveWindowLimitedNs, Q::ConnBusyNs);
    /// Context switches of the workload's threads per MiB of payload delivered.
    SwitchesPerMib = "context_switches_per_mib", "1/MiB", Host, Less, "context switches per MiB", "switches/MiB"
        => |from| ratio(switches(from)?, mib(from)?);
    /// Context switches of the workload's threads per transaction.
    SwitchesPerTransaction = "context_switches_per_transaction", "switches", Host, Less, "context switches per transaction", "switches/trans."
        => |from| ratio(switches(from)?, transactions(from)?);
    /// Runs of softirq NET_RX per MiB of payload delivered: on the CPUs of the host or, with owners,
    /// for its sockets. Each costs its entry, a poll of the device and mostly a wake-up, however
    /// many packets it handles.
    NetRxRunsPerMib = "net_rx_runs_per_mib", "1/MiB", Host, Less, "runs of NET_RX per MiB", "NET_RX/MiB"
        => |from| ratio(events(from, Q::ExactNetRxRuns, Q::HolderNetRxRuns)?, mib(from)?);
    /// Runs of softirq NET_RX per transaction, as in `net_rx_runs_per_mib`.
    NetRxRunsPerTransaction = "net_rx_runs_per_transaction", "runs", Host, Less, "runs of NET_RX per transaction", "NET_RX/trans."
        => |from| ratio(events(from, Q::ExactNetRxRuns, Q::HolderNetRxRuns)?, transactions(from)?);
    /// Times that a thread of the host slept until it was woken, per MiB of payload delivered.
    SleepsPerMib = "sleeps_per_mib", "1/MiB", Host, Less, "sleeps per MiB", "sleeps/MiB"
        => |from| ratio(events(from, Q::ExactTaskOwnSleeps, Q::HolderSleeps)?, mib(from)?);
    /// Times that a thread of the host slept until it was woken, per transaction.
    SleepsPerTransaction = "sleeps_per_transaction", "sleeps", Host, Less, "sleeps per transaction", "sleeps/trans."
        => |from| ratio(events(from, Q::ExactTaskOwnSleeps, Q::HolderSleeps)?, transactions(from)?);
    /// System calls of the workload per transaction: sends, receives and waits (a thread for each
    /// connection waits in sends and receives); with io_uring, calls of io_uring_enter.
    SystemCallsPerTransaction = "system_calls_per_transaction", "calls", Host, Less, "system calls per transaction", "calls/trans."
        => |from| ratio(system_calls(from)?, transactions(from)?);
    /// Page faults of the workload's threads, minor and major, per MiB of payload delivered: memory
    /// that each call newly touches.
    FaultsPerMib = "page_faults_per_mib", "1/MiB", Host, Less, "page faults per MiB"
        => |from| ratio(sum(from, M::Rusage, &[Q::MinorFaults, Q::MajorFaults])?, mib(from)?);
    /// Times per second that the scheduler moved one of the workload's threads to another CPU; 0 if
    /// each is bound to one.
    MigrationsPerS = "cpu_migrations_per_s", "1/s", Host, Less, "CPU migrations per s"
        => |from| from.per_s(M::Rusage, Q::CpuMigrations);
    /// Send buffer of the socket of the host's first connection at the end of the interval:
    /// SO_SNDBUF as getsockopt reports it, bookkeeping included; for our TCP, payload.
    SendBuffer = "send_buffer_bytes", "bytes", Host, Neither, "send buffer"
        => |from| from.buffer_bytes(SocketBuffer::Send);
    /// Receive buffer of the socket of the host's first connection at the end of the interval:
    /// SO_RCVBUF, as in `send_buffer_bytes`.
    ReceiveBuffer = "receive_buffer_bytes", "bytes", Host, Neither, "receive buffer"
        => |from| from.buffer_bytes(SocketBuffer::Receive);
    /// Send buffer as in `send_buffer_bytes` over the size that was asked for (`send_buffer`):
    /// Linux doubles it. Absent if none was asked for.
    SendBufferFactor = "send_buffer_to_asked_factor", "factor", Host, Neither, "send buffer over the size asked for"
        => |from| ratio(from.buffer_bytes(SocketBuffer::Send)?, from.buffer_asked_bytes(SocketBuffer::Send)?);
    /// Receive buffer as in `receive_buffer_bytes` over the size that was asked for
    /// (`receive_buffer`): Linux doubles it. Absent if none was asked for.
    ReceiveBufferFactor = "receive_buffer_to_asked_factor", "factor", Host, Neither, "receive buffer over the size asked for"
        => |from| ratio(from.buffer_bytes(SocketBuffer::Receive)?, from.buffer_asked_bytes(SocketBuffer::Receive)?);
    /// Payload bytes per send call.
    BytesPerSend = "bytes_per_send_call", "bytes", Host, Neither, "bytes per send call"
        => |from| per_of_some(from, M::Workload, Q::PayloadBytesSent, Q::SendCalls);
    /// Payload bytes per receive call.
    BytesPerReceive = "bytes_per_receive_call", "bytes", Host, Neither, "bytes per receive call"
        => |from| per_of_some(from, M::Workload, Q::PayloadBytesReceived, Q::ReceiveCalls);
    /// Share of sends by reference (MSG_ZEROCOPY, IORING_OP_SEND_ZC) that the kernel copied after
    /// all.
    ZerocopyCopiedRatio = "zerocopy_copied_ratio", "ratio", Host, Less, "share of zero-copy sends that were copied"
        => |from| per_of_some(from, M::Workload, Q::ZerocopyCopied, Q::ZerocopyCompletions);
    /// Share of the received payload whose pages were mapped and not copied (TCP_ZEROCOPY_RECEIVE).
    ZerocopyMappedRatio = "zerocopy_mapped_ratio", "ratio", Host, More, "share of payload that was mapped"
        => |from| per_of_some(from, M::Workload, Q::PayloadBytesMapped, Q::PayloadBytesReceived);
    /// Share of the sent files' pages that were in the page cache when the trial's interval ended.
    FileCachedRatio = "file_cached_ratio", "ratio", Host, Neither, "share of the files in the page cache"
        => |from| per_of_some(from, M::Workload, Q::FilePagesCached, Q::FilePages);
    /// Response time, 50th percentile. Measured from the write of the request or, at a fixed rate,
    /// from the time when it was due.
    ResponseP50 = "response_us_p50", "µs", Group, Less, "median response time", "p50"
        => |from| from.response_us(0.5);
    /// Response time, 90th percentile.
    ResponseP90 = "response_us_p90", "µs", Group, Less, "90th percentile of the response time", "p90"
        => |from| from.response_us(0.9);
    /// Response time, 99th percentile.
    ResponseP99 = "response_us_p99", "µs", Group, Less, "99th percentile of the response time", "p99"
        => |from| from.response_us(0.99);
    /// Response time, 99.9th percentile.
    ResponseP999 = "response_us_p99_9", "µs", Group, Less, "99.9th percentile of the response time", "p99.9"
        => |from| from.response_us(0.999);
    /// Response time, 99.99th percentile.
    ResponseP9999 = "response_us_p99_99", "µs", Group, Less, "99.99th percentile of the response time", "p99.99"
        => |from| from.response_us(0.9999);
    /// Difference of the kernel's count of payload received (TCP_INFO) and the workload's at the
    /// same two moments: |kernel - workload| / workload. It includes bytes in receive queues, which
    /// only the kernel has counted.
    PayloadDisagreement = "payload_disagreement_ratio", "ratio", Trial, Less, "difference of the payload counts"
        => |from| payload_disagreement(from);
    /// Difference of the namespace's count of segments sent (TcpOutSegs + TcpRetransSegs) and its
    /// connections' (TCP_INFO), both per second: |namespace - connections| / connections. `netns`
    /// only.
    SegmentDisagreement = "segment_disagreement_ratio", "ratio", Host, Less, "difference of the segment counts"
        => |from| segment_disagreement(from);
    /// Wire segments with payload that a connection received, per segment without payload that it
    /// sent, SYN and FIN included: how this host acknowledges.
    DataSegmentsPerPureAckSent = "data_segments_per_pure_ack_sent", "segments", Connection, Neither, "segments received per ACK sent", "seg/ack<"
        => |from| ratio(from.count(M::TcpInfo, Q::ConnDataSegmentsReceived)?, pure_acks_sent(from)?);
    /// Payload that a network namespace sent per second, by the meter `segments`, retransmissions
    /// included.
    PayloadSent = "payload_sent_bits_per_s", "bit/s", Window, Neither, "payload sent per s", "out Gb/s"
        => |from| Some(from.per_s(M::Segments, Q::DataSkbBytesSent)? * 8.0);
    /// Payload that a network namespace received per second, by the meter `segments`.
    PayloadReceived = "payload_received_bits_per_s", "bit/s", Window, Neither, "payload received per s", "in Gb/s"
        => |from| Some(from.per_s(M::Segments, Q::DataSkbBytesReceived)? * 8.0);
    /// IP packets that a network namespace sent per second, in bits, all protocols and IP headers
    /// included (IpExtOutOctets + Ip6OutOctets).
    IpSent = "ip_sent_bits_per_s", "bit/s", Window, Neither, "IP bits sent per s"
        => |from| Some(from.per_s(M::Netstat, Q::IpOctetsSent)? * 8.0);
    /// IP packets that a network namespace received per second, in bits.
    IpReceived = "ip_received_bits_per_s", "bit/s", Window, Neither, "IP bits received per s"
        => |from| Some(from.per_s(M::Netstat, Q::IpOctetsReceived)? * 8.0);
    /// Busy time of all CPUs of the host by the meter `exact`, whatever ran there, per KiB of
    /// payload that a network namespace sent and received: over loopback each byte counts twice.
    HostExactUsPerPayloadKib = "host_exact_cpu_us_per_payload_kib", "µs/KiB", Window, Cost, "the host's exact CPU per KiB of payload", "us/KiB"
        => |from| ratio(exact_busy_ns(from)? / 1e3, payload_kib(from)?);
    /// Busy time of all CPUs of the host by /proc/stat, per KiB of payload that a network namespace
    /// sent and received.
    HostUsPerPayloadKib = "host_cpu_us_per_payload_kib", "µs/KiB", Window, Cost, "the host's CPU per KiB of payload"
        => |from| ratio(busy_ns(from)? / 1e3, payload_kib(from)?);
    /// Busy time of all CPUs of the host by the meter `exact`, whatever ran there, per KiB of IP
    /// packets that a network namespace sent and received.
    HostExactUsPerIpKib = "host_exact_cpu_us_per_ip_kib", "µs/KiB", Window, Cost, "the host's exact CPU per KiB of IP"
        => |from| ratio(exact_busy_ns(from)? / 1e3, ip_kib(from)?);
    /// Busy time of all CPUs of the host by /proc/stat, per KiB of IP packets that a network
    /// namespace sent and received.
    HostUsPerIpKib = "host_cpu_us_per_ip_kib", "µs/KiB", Window, Cost, "the host's CPU per KiB of IP"
        => |from| ratio(busy_ns(from)? / 1e3, ip_kib(from)?);
    /// Core cycles (PMU) of all CPUs of the host per KiB of payload that a network namespace sent
    /// and received.
    HostCyclesPerPayloadKib = "host_core_cycles_per_payload_kib", "cycles/KiB", Window, Cost, "the host's cycles per KiB of payload", "cyc/KiB"
        => |from| ratio(pmu(from, Q::CoreCycles)?, payload_kib(from)?);
    /// Core cycles (PMU) of all CPUs of the host per KiB of IP packets that a network namespace
    /// sent and received.
    HostCyclesPerIpKib = "host_core_cycles_per_ip_kib", "cycles/KiB", Window, Cost, "the host's cycles per KiB of IP"
        => |from| ratio(pmu(from, Q::CoreCycles)?, ip_kib(from)?);
    /// Wire segments with payload that a network namespace sent, per pure ACK that it received: how
    /// the peers acknowledge. Meter `segments`.
    WireSegmentsPerAckReceived = "wire_segments_per_pure_ack_received", "segments", Window, Neither, "data segments sent per ACK received", "seg/ack>"
        => |from| per(from, M::Segments, Q::DataWireSegmentsSent, Q::PureAcksReceived);
    /// Wire segments with payload that a network namespace received, per pure ACK that it sent: how
    /// this host acknowledges. Meter `segments`.
    WireSegmentsPerAckSent = "wire_segments_per_pure_ack_sent", "segments", Window, Neither, "data segments received per ACK sent", "seg/ack<"
        => |from| per(from, M::Segments, Q::DataWireSegmentsReceived, Q::PureAcksSent);
    /// Share of the CPUs' time in softirqs, by the meter `exact`.
    ExactSoftirqRatio = "exact_softirq_ratio", "ratio", Window, Neither, "exact share of CPU time in softirqs", "sirq%"
        => |from| share(from, M::Exact, Q::EXACT_SOFTIRQS);
    /// Segments that a network namespace retransmitted per second (TcpRetransSegs).
    RetransmitsPerS = "retransmits_per_s", "1/s", Window, Less, "retransmissions per s", "retr/s"
        => |from| from.per_s(M::Netstat, Q::SegmentsRetransmitted);
    /// Share of the pure ACKs sent that moved the right edge of the receive window; the others only
    /// acknowledged.
    WindowAdvancingRatio = "window_advancing_acks_sent_ratio", "ratio", Window, Neither, "share of ACKs that moved the window", "wnd ack%"
        => |from| ratio(from.count(M::Segments, Q::WindowAdvancingAcksSent)?, sum(from, M::Segments, &[Q::WindowAdvancingAcksSent, Q::OnlyAcknowledgingAcksSent])?);
    /// Duplicate ACKs sent per second: the same acknowledgement and window again.
    DuplicateAcksPerS = "duplicate_acks_sent_per_s", "1/s", Window, Less, "duplicate ACKs per s", "dup acks"
        => |from| from.per_s(M::Segments, Q::DuplicateAcksSent);
    /// skbs per second that went to the out-of-order queue.
    OutOfOrderPerS = "out_of_order_skbs_per_s", "1/s", Window, Less, "out-of-order skbs per s", "reorder"
        => |from| from.per_s(M::Netstat, Q::OutOfOrderQueued);
    /// Duplicate SACKs received per second: unnecessary retransmissions.
    DsacksPerS = "dsacks_received_per_s", "1/s", Window, Less, "duplicate SACKs per s", "dsacks"
        => |from| from.per_s(M::Netstat, Q::DsacksReceived);
    /// ACKs per second that the receiver omitted while data came out of order.
    CompressedAcksPerS = "compressed_acks_per_s", "1/s", Window, Neither, "compressed ACKs per s", "compress"
        => |from| from.per_s(M::Netstat, Q::CompressedAcks);
    /// Writes per second whose small skb waited for one in the device (autocorking).
    AutocorkedPerS = "autocorked_writes_per_s", "1/s", Window, Neither, "autocorked writes per s", "cork/s"
        => |from| from.per_s(M::Netstat, Q::Autocorked);
    /// skbs per second that were copied together because the receive buffer was short.
    CollapsedPerS = "receive_collapsed_skbs_per_s", "1/s", Window, Less, "collapsed skbs per s", "collapse"
        => |from| from.per_s(M::Netstat, Q::ReceiveCollapsed);
    /// Times per second that a receive queue exceeded its buffer and was collapsed or emptied.
    PrunesPerS = "receive_prunes_per_s", "1/s", Window, Less, "prunes of receive queues per s", "prune"
        => |from| from.per_s(M::Netstat, Q::ReceivePruned);
    /// Times per second that a receiver closed its window.
    ZeroWindowsPerS = "zero_windows_advertised_per_s", "1/s", Window, Less, "closed windows per s", "zero wnd"
        => |from| from.per_s(M::Netstat, Q::ZeroWindowsSent);
    /// Retransmission timeouts per second.
    TimeoutsPerS = "timeouts_per_s", "1/s", Window, Less, "timeouts per s", "timeout"
        => |from| from.per_s(M::Netstat, Q::Timeouts);
    /// Connection requests per second that were dropped because a listen queue was full.
    ListenDropsPerS = "listen_drops_per_s", "1/s", Window, Less, "drops of full listen queues per s", "lst drop"
        => |from| from.per_s(M::Netstat, Q::ListenDrops);
    /// Page faults of the whole host per second that needed no disk.
    MinorFaultsPerS = "minor_page_faults_per_s", "1/s", Window, Less, "minor page faults per s", "fault/s"
        => |from| from.per_s(M::Vmstat, Q::MinorFaults);
    /// Page faults of the whole host per second that waited for a disk.
    MajorFaultsPerS = "major_page_faults_per_s", "1/s", Window, Less, "major page faults per s", "majfault"
        => |from| from.per_s(M::Vmstat, Q::MajorFaults);
    /// Mispredicted branches (PMU) on all CPUs of the host per second.
    BranchMissesPerS = "branch_misses_per_s", "1/s", Window, Less, "branch misses per s", "brmiss/s"
        => |from| from.per_s(M::Perf, Q::BranchMisses);
    /// CPU time of tcpcost itself and of its eBPF programs over the interval; 1 is one CPU.
    SelfCpuRatio = "self_cpu_ratio", "ratio", Window, Less, "CPU of tcpcost itself", "self%"
        => |from| ratio(self_cpu_ns(from)?, from.time_ns(M::SelfCost)?);
    /// Share of the interval in which tcpcost's eBPF programs ran. Below 1, the counts of `exact`
    /// and `segments` are estimates.
    SeenRatio = "seen_ratio", "ratio", Window, More, "share of time that was observed", "seen%"
        => |from| Some((1.0 - share(from, M::Programs, &[Q::SelfProgramsIdleNs])?).max(0.0));
    /// Standard error of the payload bytes, relative to them, if they are estimated.
    SamplingErrorRatio = "sampling_error_ratio", "ratio", Window, Less, "error of the payload", "+-%"
        => |from| from.sampling_error();
    /// CPU µs by the meter `exact` per KiB of payload that a command's network namespace sent and
    /// received: of the command's own tasks, and of softirqs and hard interrupts for its own
    /// sockets. Over loopback each byte counts twice. If softirqs have no owners here (no BTF), all
    /// softirqs, interrupts and kernel threads are included. If `tcp_probe` names their owners
    /// (no cgroup v2, no CAP_NET_ADMIN), some softirqs for its sockets are missing (docs/method.md).
    CommandUsPerPayloadKib = "command_exact_cpu_us_per_payload_kib", "µs/KiB", Command, Cost, "CPU per KiB of payload"
        => |from| ratio(exact_cost_ns(from)? / 1e3, payload_kib(from)?);
    /// CPU µs as in `command_exact_cpu_us_per_payload_kib` per connection that was opened in the
    /// namespace, by either end: over loopback each connection counts twice.
    CommandUsPerConnection = "command_exact_cpu_us_per_connection", "µs", Command, Cost, "CPU per connection opened"
        => |from| ratio(exact_cost_ns(from)? / 1e3, opens(from)?);
    /// CPU µs of the command's threads alone, interrupts that hit them included, per KiB of payload
    /// that the command's network namespace sent and received: the per-process view.
    CommandTaskUsPerPayloadKib = "command_task_us_per_payload_kib", "µs/KiB", Command, Cost, "threads' CPU per KiB of payload"
        => |from| ratio(from.count(M::Descendants, Q::TaskClockNs)? / 1e3, payload_kib(from)?);
    /// Core cycles (PMU) of the command's threads per KiB of payload that its network namespace
    /// sent and received.
    CommandCyclesPerPayloadKib = "command_core_cycles_per_payload_kib", "cycles/KiB", Command, Cost, "threads' cycles per KiB of payload"
        => |from| ratio(from.count(M::Descendants, Q::CoreCycles)?, payload_kib(from)?);
    /// Instructions of the command's threads per KiB of payload that its network namespace sent and
    /// received.
    CommandInstructionsPerPayloadKib = "command_instructions_per_payload_kib", "instructions/KiB", Command, Cost, "threads' instructions per KiB of payload"
        => |from| ratio(from.count(M::Descendants, Q::Instructions)?, payload_kib(from)?);
    /// Switches away from the command's threads per MiB of payload that its network namespace sent
    /// and received.
    CommandSwitchesPerPayloadMib = "command_context_switches_per_payload_mib", "1/MiB", Command, Less, "context switches per MiB of payload"
        => |from| ratio(from.count(M::Descendants, Q::ContextSwitches)? * 1024.0, payload_kib(from)?);
    /// Share of the namespace's segments that were retransmissions (TcpRetransSegs).
    CommandRetransmitRatio = "namespace_retransmit_ratio", "ratio", Command, Less, "share of segments retransmitted"
        => |from| ratio(from.count(M::Netstat, Q::SegmentsRetransmitted)?, sum(from, M::Netstat, ALL_SENT)?);
    /// Payload of a connection that its peer acknowledged per second, by TCP_INFO.
    ConnAcked = "conn_acked_bits_per_s", "bit/s", Connection, Neither, "payload acknowledged per s", "out Gb/s"
        => |from| Some(from.per_s(M::TcpInfo, Q::ConnBytesAcked)? * 8.0);
    /// Payload that a connection received in order per second, by TCP_INFO.
    ConnReceived = "conn_received_bits_per_s", "bit/s", Connection, Neither, "payload received in order per s", "in Gb/s"
        => |from| Some(from.per_s(M::TcpInfo, Q::ConnBytesReceived)? * 8.0);
    /// Wire segments that a connection sent per second, ACKs included.
    ConnSegmentsSent = "conn_segments_sent_per_s", "1/s", Connection, Neither, "segments sent per s", "seg/s>"
        => |from| from.per_s(M::TcpInfo, Q::ConnSegmentsSent);
    /// Wire segments that a connection received per second, ACKs included.
    ConnSegmentsReceived = "conn_segments_received_per_s", "1/s", Connection, Neither, "segments received per s", "seg/s<"
        => |from| from.per_s(M::TcpInfo, Q::ConnSegmentsReceived);
    /// Wire segments that a connection retransmitted per second.
    ConnRetransmitsPerS = "conn_retransmits_per_s", "1/s", Connection, Less, "retransmitted segments per s", "retr/s"
        => |from| from.per_s(M::TcpInfo, Q::ConnSegmentsRetransmitted);
    /// CPU time of a process with sockets over the interval: of its tasks, and of softirqs and hard
    /// interrupts for its sockets; 1 is one CPU. Meter `exact`, as in the five rows below.
    HolderCpuRatio = "holder_cpu_ratio", "ratio", Connection, Less, "CPU of the process", "cpu%"
        => |from| ratio(holder_ns(from)?, from.time_ns(M::Exact)?);
    /// CPU time as in `holder_cpu_ratio` per KiB of payload: bytes that the peers of its
    /// connections acknowledged, and bytes that it received, over the connections in the watched
    /// namespace.
    HolderUsPerPayloadKib = "holder_cpu_us_per_payload_kib", "µs/KiB", Connection, Cost, "CPU of the process per KiB of payload", "us/KiB"
        => |from| ratio(holder_ns(from)? / 1e3, sum(from, M::TcpInfo, &[Q::ConnBytesAcked, Q::ConnBytesReceived])? / 1024.0);
    /// User time of the tasks of a process with sockets over the interval, by the tick.
    HolderUserRatio = "holder_user_ratio", "ratio", Connection, Less, "user time of the process", "user%"
        => |from| ratio(holder_user_ns(from)?, from.time_ns(M::Exact)?);
    /// Kernel time of the tasks of a process with sockets over the interval: their time without
    /// user time, interrupts and softirqs.
    HolderSystemRatio = "holder_system_ratio", "ratio", Connection, Less, "kernel time of the process", "sys%"
        => |from| ratio(from.count(M::Exact, Q::HolderTaskNs)? - holder_user_ns(from)?, from.time_ns(M::Exact)?);
    /// Time of softirqs for the sockets of a process over the interval, in whatever task they ran.
    HolderSoftirqRatio = "holder_softirq_ratio", "ratio", Connection, Less, "softirqs for the process", "sirq%"
        => |from| ratio(from.count(M::Exact, Q::HolderSoftirqNs)?, from.time_ns(M::Exact)?);
    /// Time of the hard interrupts that raised the softirqs of `holder_softirq_ratio`, over the
    /// interval.
    HolderHardirqRatio = "holder_hardirq_ratio", "ratio", Connection, Less, "hard interrupts for the process", "irq%"
        => |from| ratio(from.count(M::Exact, Q::HolderHardirqNs)?, from.time_ns(M::Exact)?);
    /// Wire segments with payload that an end received, per pure ACK that it sent: how it
    /// acknowledges. From a capture, as in the row below.
    CapturedSegmentsPerAckSent = "captured_wire_segments_per_pure_ack_sent", "segments", Direction, Neither, "captured segments per ACK sent", "segs/ACK"
        => |from| per(from, M::Trace, Q::DataWireSegmentsReceived, Q::PureAcksSent);
    /// Bytes per captured IP packet that an end sent, IP headers included, a super-segment counting
    /// as one.
    CapturedOctetsPerDatagram = "captured_octets_per_datagram", "bytes", Direction, More, "captured bytes per packet"
        => |from| per(from, M::Trace, Q::IpOctetsSent, Q::IpPacketsSent);
}

impl Figure {
    /// Value of the figure; `None` if a count that it needs is missing, or if the divisor is 0.
    pub fn value(self, from: &dyn Source) -> Option<f64> {
        self.formula()(from).filter(|value| value.is_finite())
    }

    /// Unit for people, and the factor to it: bit/s as Gbit/s, ratios as percent.
    pub fn shown_unit(self) -> (&'static str, f64) {
        match (self, self.unit()) {
            (Figure::TransactionsPerS, _) => ("transactions/s", 1.0),
            (_, "bit/s") => ("Gbit/s", 1e-9),
            (_, "ratio") => ("%", 100.0),
            (_, unit) => (unit, 1.0),
        }
    }

    /// True if the figure is a share of CPU time.
    pub fn is_share_of_cpu(self) -> bool {
        let meters = self.meters();
        let by_cpu = [M::Proc, M::Exact];
        self.unit() == "ratio"
            && !meters.is_empty()
            && meters.iter().all(|one| by_cpu.contains(one))
    }

    /// True if the figure is a time, or per time: meaningless where the clock counts instructions.
    pub fn is_time(self) -> bool {
        let unit = self.unit();
        ["\u{b5}s", "/s", "TSC"]
            .iter()
            .any(|of_time| unit.contains(of_time))
    }

    /// Figure for the same cost where the clock counts instructions.
    #[must_use]
    pub fn in_instructions(self) -> Figure {
        match self {
            Figure::CpuUsPerKib | Figure::ExactUsPerKib | Figure::TscCyclesPerKib => {
                Figure::InstructionsPerKib
            }
            Figure::CpuUsPerTransaction
            | Figure::ExactUsPerTransaction
            | Figure::TscCyclesPerTransaction => Figure::InstructionsPerTransaction,
            Figure::TaskUsPerKib => Figure::ThreadInstructionsPerKib,
            other => other,
        }
    }

    /// True for the main figures where the clock counts instructions.
    #[must_use]
    pub fn counts_instructions(self) -> bool {
        matches!(
            self,
            Figure::InstructionsPerKib | Figure::InstructionsPerTransaction
        )
    }

    /// Counts that the formula asks for, each with its meter.
    pub fn counts(self) -> BTreeSet<(M, Q)> {
        let probe = Probe::default();
        self.formula()(&probe);
        probe.counts.into_inner()
    }

    /// Meters without which the figure is `None`.
    pub fn meters(self) -> BTreeSet<M> {
        let is_needed = |&by: &M| {
            let without = Probe {
                lacks: Some(by),
                ..Probe::default()
            };
            self.formula()(&without).is_none()
        };
        let asked = self.counts().into_iter().map(|(by, _)| by);
        asked.filter(is_needed).collect()
    }
}

/// Figures as a Markdown table, for pages of `docs/`, which tests compare with it.
pub fn figure_table(figures: impl IntoIterator<Item = Figure>) -> String {
    let mut table = String::from(
        "| name | unit | better | in words | heading | meters | definition |\n|---|---|---|---|---|---|---|\n",
    );
    for figure in figures {
        let better = match figure.lower_is_better() {
            Some(true) => "less",
            Some(false) => "more",
            None => "",
        };
        let meters: Vec<&str> = figure.meters().iter().map(|meter| meter.name()).collect();
        let definition = figure.definition().replace('|', "\\|");
        table += &format!(
            "| `{}` | {} | {better} | {} | {} | {} | {definition} |\n",
            figure.name(),
            figure.unit(),
            figure.words(),
            figure.heading(),
            meters.join(", ")
        );
    }
    table
}

/// Direction that is better.
enum Better {
    /// Less, and the figure is a cost in CPU.
    Cost,
    Less,
    More,
    Neither,
}

impl Better {
    const fn lower(self) -> Option<bool> {
        match self {
            Better::Cost | Better::Less => Some(true),
            Better::More => Some(false),
            Better::Neither => None,
        }
    }
}

/// A source that answers everything except for one meter, and records the questions.
#[derive(Default)]
struct Probe {
    counts: RefCell<BTreeSet<(M, Q)>>,
    lacks: Option<M>,
}

impl Source for Probe {
    fn count(&self, by: M, of: Q) -> Option<f64> {
        self.counts.borrow_mut().insert((by, of));
        // A soaker's own time is 0 in most trials, and some figures are `None` if it is not.
        let count = if of == Q::SoakTaskNs { 0.0 } else { 1.0 };
        (self.lacks != Some(by)).then_some(count)
    }

    fn per_s(&self, by: M, of: Q) -> Option<f64> {
        self.count(by, of)
    }

    fn time_ns(&self, by: M) -> Option<f64> {
        (self.lacks != Some(by)).then_some(1.0)
    }

    fn cpus(&self, by: M) -> Option<f64> {
        self.time_ns(by)
    }

    fn work(&self, of: Q) -> Option<f64> {
        self.count(M::Workload, of)
    }

    fn work_per_s(&self, of: Q) -> Option<f64> {
        self.count(M::Workload, of)
    }

    fn ack_limit_top(&self) -> Option<f64> {
        Some(1.0)
    }

    fn ack_limit_falls(&self) -> Option<(f64, f64)> {
        Some((1.0, 1.0))
    }

    fn buffer_bytes(&self, _: SocketBuffer) -> Option<f64> {
        Some(1.0)
    }

    fn buffer_asked_bytes(&self, _: SocketBuffer) -> Option<f64> {
        Some(1.0)
    }

    fn owns_namespaces(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
