//! Quantities: counts with one definition each, shared by every meter and every file.
//!
//! Counts only grow; a quotient of counts is a [`crate::Figure`]. `docs/quantities.md` is generated
//! from this file. A changed meaning is a breaking change of the records.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! quantities {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal $(, $words:literal)?,)+) => {
        /// A count that a meter can report. The name ends in the unit: `_ns`, `_bytes`, or a
        /// plural.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Quantity {
            $($(#[doc = $doc])+ #[serde(rename = $name)] $variant,)+
        }

        impl Quantity {
            /// Every quantity, in the order of the documentation.
            pub const ALL: &[Quantity] = &[$(Quantity::$variant,)+];

            /// Name in records, e.g. `cpu_softirq_ns`.
            pub const fn name(self) -> &'static str {
                match self { $(Quantity::$variant => $name,)+ }
            }

            /// Name in a list for people; the name itself if no list shows the count.
            pub const fn words(self) -> &'static str {
                let own: &[&str] = match self { $(Quantity::$variant => &[$($words)?],)+ };
                if own.is_empty() { self.name() } else { own[0] }
            }

            /// Definition, as in the documentation.
            pub fn definition(self) -> &'static str {
                match self { $(Quantity::$variant => concat!($($doc,)+).trim_ascii(),)+ }
            }
        }
    };
}

quantities! {
    /// CPU time in user mode, guests and nice excluded. /proc/stat `user` - `guest`; sampled by the
    /// tick.
    CpuUserNs = "cpu_user_ns",
    /// CPU time in user mode of niced tasks, guests excluded. /proc/stat `nice` - `guest_nice`.
    CpuNiceNs = "cpu_nice_ns",
    /// CPU time in the kernel on a task's behalf. /proc/stat `system`; on a kernel with tick
    /// accounting a softirq that runs inside a system call may be counted here.
    CpuSystemNs = "cpu_system_ns",
    /// CPU time in hard interrupts. /proc/stat `irq`; near zero without IRQ_TIME_ACCOUNTING.
    CpuIrqNs = "cpu_irq_ns",
    /// CPU time in softirqs. /proc/stat `softirq`.
    CpuSoftirqNs = "cpu_softirq_ns",
    /// Idle CPU time. /proc/stat `idle`; measured with NO_HZ, else sampled by the tick.
    CpuIdleNs = "cpu_idle_ns",
    /// Idle CPU time while a task waited for a disk. /proc/stat `iowait`; idle, not busy.
    CpuIowaitNs = "cpu_iowait_ns",
    /// Time that the hypervisor gave to other guests. /proc/stat `steal`; not busy.
    CpuStealNs = "cpu_steal_ns", "stolen by the hypervisor (/proc/stat)",
    /// CPU time of guests of this host. /proc/stat `guest` + `guest_nice`.
    CpuGuestNs = "cpu_guest_ns",
    /// User CPU time of the workload's own threads. getrusage(RUSAGE_THREAD) `ru_utime`.
    TaskUserNs = "task_user_ns", "CPU time in user mode",
    /// Kernel CPU time of the workload's own threads. getrusage(RUSAGE_THREAD) `ru_stime`: it lacks
    /// softirqs that ran on idle, on ksoftirqd or on other tasks, and includes softirqs that
    /// interrupted these threads.
    TaskSystemNs = "task_system_ns", "CPU time in the kernel",
    /// Time of an end's turns in the thread that both ends share (`placement = "one-thread"`), with
    /// the interrupts and softirqs that hit them. Meter `workload`.
    TurnsNs = "turns_ns",
    /// Times that the workload's threads gave up the CPU to wait. getrusage `ru_nvcsw`.
    VoluntarySwitches = "voluntary_switches", "voluntary context switches",
    /// Times that the workload's threads were preempted. getrusage `ru_nivcsw`.
    InvoluntarySwitches = "involuntary_switches", "involuntary context switches",
    /// CPU time of a command and of all processes that it starts, interrupts that hit them
    /// included. PERF_COUNT_SW_TASK_CLOCK, inherited.
    TaskClockNs = "task_clock_ns", "CPU time",
    /// Switches away from the command's threads. PERF_COUNT_SW_CONTEXT_SWITCHES.
    ContextSwitches = "context_switches", "context switches",
    /// Moves of the command's threads, or of the workload's, to another CPU.
    /// PERF_COUNT_SW_CPU_MIGRATIONS for a command. `se.nr_migrations` of /proc/thread-self/sched
    /// for a workload; absent with a thread for each connection (`io`).
    CpuMigrations = "cpu_migrations", "migrations",
    /// Page faults of the command's threads, minor and major. PERF_COUNT_SW_PAGE_FAULTS.
    PageFaults = "page_faults", "page faults",
    /// Page faults of the workload's threads, or of the whole host, that needed no disk, e.g. when
    /// memory is touched for the first time. getrusage `ru_minflt`; /proc/vmstat `pgfault` -
    /// `pgmajfault`.
    MinorFaults = "minor_page_faults", "minor page faults",
    /// Page faults of the workload's threads, or of the whole host, that waited for a disk.
    /// getrusage `ru_majflt`; /proc/vmstat `pgmajfault`.
    MajorFaults = "major_page_faults", "major page faults",
    /// System calls of the command's threads that send: sendto, sendmsg, sendmmsg (not write, which
    /// is used for files, too). Tracepoints of system calls, inherited.
    SendSystemCalls = "send_system_calls", "sendto, sendmsg, sendmmsg",
    /// System calls of the command's threads that receive: recvfrom, recvmsg, recvmmsg (not read).
    ReceiveSystemCalls = "receive_system_calls", "recvfrom, recvmsg, recvmmsg",
    /// System calls of the command's threads that move pages without copying: sendfile, splice.
    SendfileSystemCalls = "sendfile_system_calls", "sendfile, splice",
    /// Calls of connect by the command's threads.
    ConnectSystemCalls = "connect_system_calls", "connect",
    /// Calls of accept and accept4 by the command's threads.
    AcceptSystemCalls = "accept_system_calls", "accept, accept4",
    /// Waits for readiness by the command's threads: all variants of epoll_wait, poll and select.
    PollSystemCalls = "poll_system_calls", "epoll_wait, poll, select",
    /// Calls of io_uring_enter by the command's threads, each of which may stand for many sends and
    /// receives. For a workload with `io = "io-uring"`, by its own count.
    IoUringSystemCalls = "io_uring_enter_system_calls", "io_uring_enter",
    /// Sends on internet sockets, by any system call: includes write, sendfile and io_uring, and
    /// calls that sent nothing. eBPF at sock_send_length.
    SocketSends = "socket_sends", "sends on internet sockets",
    /// Bytes that sends on internet sockets took. eBPF at sock_send_length.
    SocketBytesSent = "socket_bytes_sent", "bytes sent on internet sockets",
    /// Receives on internet sockets, by any system call but splice: includes read, and calls that
    /// found nothing. eBPF at sock_recv_length.
    SocketReceives = "socket_receives", "receives on internet sockets",
    /// Bytes that receives on internet sockets returned. eBPF at sock_recv_length.
    SocketBytesReceived = "socket_bytes_received", "bytes received on internet sockets",
    /// Part of `socket_sends` that passed pages by reference: sendfile and splice, in steps of at most
    /// 16 pages. Not MSG_ZEROCOPY, nor io_uring's splice. eBPF at sock_send_length, by the number of
    /// the system call (Linux 6.5).
    SocketReferenceSends = "socket_reference_sends", "sends by reference (sendfile, splice)",
    /// Bytes that the sends of `socket_reference_sends` took.
    SocketReferenceBytesSent = "socket_reference_bytes_sent", "bytes sent by reference",
    /// Cycles of the time-stamp counter (x86-64 TSC, arm64 CNTVCT): a clock at a constant rate, not
    /// core cycles.
    TscCycles = "tsc_cycles",
    /// Core cycles in user and kernel mode of everything that ran, interrupts included.
    /// perf_event_open PERF_COUNT_HW_CPU_CYCLES; absent without a PMU. The count is scaled up for
    /// the time in which the PMU counted other events.
    CoreCycles = "core_cycles", "core cycles",
    /// Instructions retired, counted like `core_cycles`. PERF_COUNT_HW_INSTRUCTIONS.
    Instructions = "instructions", "instructions",
    /// Accesses that missed the last-level cache, counted like `core_cycles`; the CPU model defines
    /// the event. PERF_COUNT_HW_CACHE_MISSES.
    CacheMisses = "cache_misses",
    /// Mispredicted branches, counted like `core_cycles`. PERF_COUNT_HW_BRANCH_MISSES.
    BranchMisses = "branch_misses",
    /// Instructions in functions that copy, clear or set memory, at most eight bytes each: other
    /// CPUs need fewer or more. Meter `emulator`.
    MemoryInstructions = "memory_instructions",
    /// Instructions in user mode, in whatever context. Meter `emulator`, like the four rows below,
    /// which it gets from the kernel functions that begin a context.
    UserInstructions = "user_instructions",
    /// Instructions in tasks, kernel threads included.
    TaskInstructions = "task_instructions",
    /// Instructions in softirq NET_RX.
    NetRxInstructions = "net_rx_instructions",
    /// Instructions in other softirqs.
    DeferredInstructions = "deferred_instructions",
    /// Instructions in hard interrupts.
    HardirqInstructions = "hardirq_instructions",
    /// Time that the events of `core_cycles`, `instructions`, `cache_misses` and `branch_misses`
    /// were enabled, summed over events. PERF_FORMAT_TOTAL_TIME_ENABLED.
    PmuEnabledNs = "pmu_enabled_ns",
    /// Part of `pmu_enabled_ns` in which the PMU counted the events. If it is less, events took
    /// turns and the counts are scaled up. PERF_FORMAT_TOTAL_TIME_RUNNING.
    PmuRunningNs = "pmu_running_ns",
    /// Work that the soaker's spinners did, in units of a fixed amount; comparable only between
    /// spinners of one start.
    SoakWorkUnits = "soak_work_units",
    /// Work that the soaker's spinners would have done in the same time on an idle CPU, without
    /// steal: the idle rate, mean of the calibrations before and after, times the time. 1 -
    /// `soak_work_units` / `soak_idle_work_units` is the load.
    SoakIdleWorkUnits = "soak_idle_work_units",
    /// CPU time of the soaker's spinners, interrupts that hit them included. Each thread's CPU-time
    /// clock.
    SoakTaskNs = "soak_task_ns",
    /// CPU time of all tasks that are not the trial's, on the trial's CPUs, without ksoftirqd, napi
    /// and kworker threads, which carry the network's work. /proc/PID/stat, by the CPU on which
    /// each thread ran last, in steps of 10 ms; a thread that ended between the snapshots counts up
    /// to the earlier one.
    OtherTasksNs = "other_tasks_ns",
    /// CPU time of kworker threads on the trial's CPUs, read like `other_tasks_ns`: the kernel's
    /// deferred work, for the network and for other subsystems.
    KworkerNs = "kworker_ns",
    /// CPU time of tcpcost itself, all its threads. CLOCK_PROCESS_CPUTIME_ID, without its eBPF
    /// programs, which run in the tasks and interrupts that they trace.
    SelfCpuNs = "self_cpu_ns",
    /// Run time of tcpcost's eBPF programs, the kernel's measurement (two clock reads a run)
    /// included. bpf_prog_info `run_time_ns`, if run-time statistics are on.
    SelfProgramsNs = "self_programs_ns",
    /// Runs of tcpcost's eBPF programs. bpf_prog_info `run_cnt`, if run-time statistics are on.
    SelfProgramRuns = "self_program_runs",
    /// Time in which tcpcost's eBPF programs paused to cost less. Above 0, their counts are
    /// estimates.
    SelfProgramsIdleNs = "self_programs_idle_ns",
    /// Run time of the trial's own processes, without interrupts and softirqs. eBPF on
    /// sched_switch, like all `exact` times; each ns of a CPU is in one of them.
    ExactTaskOwnNs = "exact_task_own_ns", "own tasks",
    /// Run time of the soaker's spinners: tasks of the trial's own processes at SCHED_IDLE. No
    /// cost: spinners take only idle time.
    ExactSoakerNs = "exact_soaker_ns",
    /// Run time of a wire with delay and loss: a process of the trial at SCHED_BATCH. No cost of
    /// either end.
    ExactWireNs = "exact_wire_ns",
    /// Run time of other tasks, including kernel threads that have no row of their own.
    ExactTaskOthersNs = "exact_task_others_ns", "tasks of others",
    /// Run time of ksoftirqd outside softirqs; the softirqs that it runs count by their vector.
    ExactKsoftirqdNs = "exact_ksoftirqd_ns",
    /// Run time of kworkers: the kernel's deferred work, for the network and for other subsystems.
    ExactKworkerNs = "exact_kworker_ns",
    /// Run time of the threads of threaded NAPI.
    ExactNapiNs = "exact_napi_ns",
    /// Time in hard interrupts: irq_handler_entry to irq_handler_exit, and x86's own vectors
    /// (timer, reschedule, function calls, irq_work).
    ExactHardirqNs = "exact_hardirq_ns", "hard interrupts",
    /// Time in softirq NET_RX, without the hard interrupts in it (like all softirq times): packets
    /// received, and data that an ACK lets TCP send.
    ExactSoftirqNetRxNs = "exact_softirq_net_rx_ns", "softirq NET_RX, of all sockets",
    /// Time in softirq NET_TX: deferred queueing disciplines, freed skbs.
    ExactSoftirqNetTxNs = "exact_softirq_net_tx_ns", "softirq NET_TX",
    /// Time in softirq TIMER, e.g. retransmission and delayed-ACK timers.
    ExactSoftirqTimerNs = "exact_softirq_timer_ns",
    /// Time in softirq HRTIMER, e.g. TCP's pacing.
    ExactSoftirqHrtimerNs = "exact_softirq_hrtimer_ns",
    /// Time in softirqs TASKLET and HI: TCP small queues, work queues in softirq context.
    ExactSoftirqTaskletNs = "exact_softirq_tasklet_ns", "softirq TASKLET",
    /// Time in softirq SCHED: the scheduler's load balancing.
    ExactSoftirqSchedNs = "exact_softirq_sched_ns",
    /// Time in softirq RCU.
    ExactSoftirqRcuNs = "exact_softirq_rcu_ns",
    /// Time in the softirqs that have no row of their own (BLOCK, IRQ_POLL).
    ExactSoftirqOthersNs = "exact_softirq_others_ns",
    /// Time that the CPU had nothing to run, without interrupts. Time that the hypervisor stole is
    /// in the context that it hit.
    ExactIdleNs = "exact_idle_ns",
    /// Runs of softirq NET_RX on the CPUs, for whatever sockets. eBPF at softirq_entry.
    ExactNetRxRuns = "exact_net_rx_runs", "runs of softirq NET_RX, of all sockets",
    /// Times that one of the trial's own tasks went to sleep until it was woken. eBPF at sched_switch;
    /// of a command, all its threads, as in `voluntary_switches`.
    ExactTaskOwnSleeps = "exact_task_own_sleeps", "sleeps of own tasks",
    /// Interrupts by which another CPU woke a task on these CPUs. eBPF at reschedule_exit, which
    /// only x86 has.
    ExactRescheduleIpis = "exact_reschedule_ipis", "reschedule IPIs",
    /// Interrupts by which another CPU had a function called on these CPUs, e.g. to begin NET_RX
    /// for packets that RPS or RFS steered. eBPF at call_function_exit and
    /// call_function_single_exit, which only x86 has.
    ExactCallIpis = "exact_call_ipis", "function-call IPIs",
    /// Interrupts of the CPUs' local timers in which the regular tick did not expire: other timers,
    /// and the end of idle. eBPF at local_timer_exit, which only x86 has; absent if the kernel
    /// hides its symbols.
    ExactExtraTimerInterrupts = "exact_extra_timer_interrupts", "timer interrupts beyond the tick",
    /// Time in softirqs for the sockets of the command that is measured: packets that they
    /// received, and packets that timers, pacing and queues sent for them. Part of the softirq
    /// times above, which cover all sockets.
    ExactOwnSoftirqNs = "exact_own_softirq_ns", "softirqs for its sockets",
    /// Time in the hard interrupts that raised the softirqs of `exact_own_softirq_ns`.
    ExactOwnHardirqNs = "exact_own_hardirq_ns", "hard interrupts for its sockets",
    /// Time in softirqs for the other ends of the command's connections, if these are on this host.
    ExactPeerSoftirqNs = "exact_peer_softirq_ns", "softirqs for the other ends on this host",
    /// Time in the hard interrupts that raised the softirqs of `exact_peer_softirq_ns`.
    ExactPeerHardirqNs = "exact_peer_hardirq_ns",
    /// Time in softirqs for all other sockets of this host.
    ExactNeighbourSoftirqNs = "exact_neighbour_softirq_ns", "softirqs for neighbours' sockets",
    /// Time in the hard interrupts that raised the softirqs of `exact_neighbour_softirq_ns`.
    ExactNeighbourHardirqNs = "exact_neighbour_hardirq_ns",
    /// Runs of softirq NET_RX for the sockets of the command that is measured. A run for several
    /// owners is the first one's.
    ExactOwnNetRxRuns = "exact_own_net_rx_runs", "runs of softirq NET_RX for its sockets",
    /// Reschedule IPIs that woke a thread of the command, or raised a run of `exact_own_net_rx_runs`.
    ExactOwnRescheduleIpis = "exact_own_reschedule_ipis", "reschedule IPIs for it",
    /// Function-call IPIs that woke a thread of the command, or raised a run of
    /// `exact_own_net_rx_runs`.
    ExactOwnCallIpis = "exact_own_call_ipis", "function-call IPIs for it",
    /// Timer interrupts beyond the tick that woke a thread of the command, or raised a softirq for
    /// its sockets.
    ExactOwnExtraTimerInterrupts = "exact_own_extra_timer_interrupts", "timer interrupts beyond the tick for it",
    /// Runs of softirq NET_RX for the other ends of the command's connections, if these are on this
    /// host.
    ExactPeerNetRxRuns = "exact_peer_net_rx_runs", "runs of NET_RX for the other ends on this host",
    /// Runs of softirq NET_RX for all other sockets of this host.
    ExactNeighbourNetRxRuns = "exact_neighbour_net_rx_runs", "runs of NET_RX for neighbours' sockets",
    /// Run time of the tasks of a process that has sockets, without interrupts and softirqs; in a trial,
    /// of a host's process. Meter `exact`, as in the three rows below; `watch` estimates the time that
    /// was not observed.
    HolderTaskNs = "holder_task_ns",
    /// User-mode part of `holder_task_ns`, by the tick: a few ticks may exceed the whole.
    HolderUserNs = "holder_user_ns",
    /// Time in softirqs for the sockets of a process, in whatever task they ran.
    HolderSoftirqNs = "holder_softirq_ns",
    /// Time in the hard interrupts that raised the softirqs of `holder_softirq_ns`.
    HolderHardirqNs = "holder_hardirq_ns",
    /// Runs of softirq NET_RX for the sockets of a process. A run for several owners is the first
    /// one's.
    HolderNetRxRuns = "holder_net_rx_runs",
    /// Times that a thread of the process went to sleep until it was woken.
    HolderSleeps = "holder_sleeps",
    /// Reschedule IPIs that woke a thread of the process, or raised a run of `holder_net_rx_runs`.
    HolderRescheduleIpis = "holder_reschedule_ipis",
    /// Function-call IPIs that woke a thread of the process, or raised a run of
    /// `holder_net_rx_runs`.
    HolderCallIpis = "holder_call_ipis",
    /// Timer interrupts beyond the tick that woke a thread of the process, or raised a softirq for
    /// its sockets.
    HolderExtraTimerInterrupts = "holder_extra_timer_interrupts",
    /// skbs with payload that TCP passed down, a super-segment counting as one, retransmissions
    /// included. eBPF at net_dev_queue in this namespace, like all `…skbs_sent` of the meter
    /// `segments`; IPv4 options and IPv6 extension headers are not parsed.
    DataSkbsSent = "data_skbs_sent",
    /// Payload bytes in the skbs of `data_skbs_sent`.
    DataSkbBytesSent = "data_skb_bytes_sent", "payload sent",
    /// Wire segments that the skbs of `data_skbs_sent` are or become.
    DataWireSegmentsSent = "data_wire_segments_sent",
    /// Sum of the squared payload sizes of `data_skbs_sent`, in squared bytes. Divided by
    /// `data_skb_bytes_sent`, it is the byte-weighted mean.
    DataSkbSquaredBytesSent = "data_skb_squared_bytes_sent",
    /// skbs of `data_skbs_sent` of more than one segment: those that a probe of the large-send path sees
    /// (Sun 2008), without the tails of one segment.
    LargeSkbsSent = "large_skbs_sent",
    /// Payload bytes in the skbs of `large_skbs_sent`.
    LargeSkbBytesSent = "large_skb_bytes_sent",
    /// Segments sent without payload, SYN, FIN or RST.
    PureAcksSent = "pure_acks_sent", "pure ACKs sent",
    /// Pure ACKs, sent by a socket of this namespace, that moved the right edge of the receive
    /// window beyond that of the connection's previous pure ACK: after a read by the application.
    /// Our own TCP counts them itself, against the edge of any earlier segment. Connections that
    /// share one of 4096 slots are counted neither in this row nor in the next.
    WindowAdvancingAcksSent = "window_advancing_acks_sent",
    /// Pure ACKs sent that did not move the right edge: they only acknowledged (Klemkow 2020: a
    /// receiver's first ACK, before the application has read).
    OnlyAcknowledgingAcksSent = "only_acknowledging_acks_sent",
    /// Part of `only_acknowledging_acks_sent`: pure ACKs that repeated the acknowledgement and the
    /// window of the one before (RFC 5681), including answers to keepalives and window probes.
    DuplicateAcksSent = "duplicate_acks_sent",
    /// skbs with payload received, after GRO. eBPF at netif_receive_skb, like all `…received` of
    /// the meter `segments`.
    DataSkbsReceived = "data_skbs_received",
    /// Payload bytes in the skbs of `data_skbs_received`.
    DataSkbBytesReceived = "data_skb_bytes_received", "payload received",
    /// Wire segments that the skbs of `data_skbs_received` consist of.
    DataWireSegmentsReceived = "data_wire_segments_received",
    /// Sum of the squared payload sizes of `data_skbs_received`, in squared bytes.
    DataSkbSquaredBytesReceived = "data_skb_squared_bytes_received",
    /// Segments received without payload, SYN, FIN or RST.
    PureAcksReceived = "pure_acks_received", "pure ACKs received",
    /// Runs of data skbs sent without another packet of the connection between them; connections
    /// that share one of 4096 slots cut each other's bursts. Meaningless on a loopback device,
    /// where each packet sent is received.
    DataBurstsSent = "data_bursts_sent",
    /// Runs of pure ACKs sent, defined like `data_bursts_sent`.
    AckBurstsSent = "ack_bursts_sent",
    /// Runs of data skbs received, defined like `data_bursts_sent`.
    DataBurstsReceived = "data_bursts_received",
    /// Runs of pure ACKs received, defined like `data_bursts_sent`.
    AckBurstsReceived = "ack_bursts_received",
    /// Data skbs smaller than an MSS that directly follow, in sequence and on the same CPU, an skb
    /// of full segments.
    TailSkbsSent = "tail_skbs_sent",
    /// Delayed-ACK stalls of data that this end sent: one segment outstanding, a pause, a single
    /// ACK, then more data at once. From a capture, as in `tcpcost trace`.
    DelayedAckStalls = "delayed_ack_stalls",
    /// Time of the delayed-ACK stalls.
    DelayedAckStallNs = "delayed_ack_stall_ns",
    /// skbs passed to a driver, after software segmentation, of all protocols. eBPF at
    /// net_dev_start_xmit.
    DeviceSkbsSent = "device_skbs_sent",
    /// Pieces of memory of the skbs of `device_skbs_sent`, the piece with the headers included:
    /// descriptors of a device with scatter-gather, a DMA each (Sun 2008).
    DeviceFragmentsSent = "device_fragments_sent",
    /// Data skbs sent with a payload below 128 bytes.
    SkbsSentBelow128 = "skbs_sent_below_128_bytes",
    /// Data skbs sent with a payload of 128 to 255 bytes.
    SkbsSentBelow256 = "skbs_sent_below_256_bytes",
    /// Data skbs sent with a payload of 256 to 511 bytes.
    SkbsSentBelow512 = "skbs_sent_below_512_bytes",
    /// Data skbs sent with a payload of 512 to 1023 bytes.
    SkbsSentBelow1024 = "skbs_sent_below_1024_bytes",
    /// Data skbs sent with a payload of 1024 to 2047 bytes.
    SkbsSentBelow2048 = "skbs_sent_below_2048_bytes",
    /// Data skbs sent with a payload of 2048 to 4095 bytes.
    SkbsSentBelow4096 = "skbs_sent_below_4096_bytes",
    /// Data skbs sent with a payload of 4096 to 8191 bytes.
    SkbsSentBelow8192 = "skbs_sent_below_8192_bytes",
    /// Data skbs sent with a payload of 8192 to 16383 bytes.
    SkbsSentBelow16384 = "skbs_sent_below_16384_bytes",
    /// Data skbs sent with a payload of 16384 to 32767 bytes.
    SkbsSentBelow32768 = "skbs_sent_below_32768_bytes",
    /// Data skbs sent with a payload of 32768 to 65535 bytes.
    SkbsSentBelow65536 = "skbs_sent_below_65536_bytes",
    /// Data skbs sent with a payload of 65536 bytes or more (BIG TCP).
    SkbsSentFrom65536 = "skbs_sent_from_65536_bytes",
    /// Data skbs sent from a task outside softirqs: in its system call, including the backlog that
    /// the call then processes.
    DrainedSystemCallSkbs = "drained_by_system_call_skbs",
    /// Payload bytes in the skbs of `drained_by_system_call_skbs`.
    DrainedSystemCallBytes = "drained_by_system_call_bytes",
    /// Data skbs sent from softirq NET_RX or threaded NAPI: an incoming ACK let TCP send.
    DrainedNetRxSkbs = "drained_by_net_rx_skbs",
    /// Payload bytes in the skbs of `drained_by_net_rx_skbs`.
    DrainedNetRxBytes = "drained_by_net_rx_bytes",
    /// Data skbs sent from softirq TASKLET or HI, or from a kworker: TCP small queues, work queues.
    DrainedTaskletSkbs = "drained_by_tasklet_skbs",
    /// Payload bytes in the skbs of `drained_by_tasklet_skbs`.
    DrainedTaskletBytes = "drained_by_tasklet_bytes",
    /// Data skbs sent from softirq TIMER or HRTIMER: timers and pacing.
    DrainedTimerSkbs = "drained_by_timer_skbs",
    /// Payload bytes in the skbs of `drained_by_timer_skbs`.
    DrainedTimerBytes = "drained_by_timer_bytes",
    /// Data skbs sent from other contexts.
    DrainedOthersSkbs = "drained_by_others_skbs",
    /// Payload bytes in the skbs of `drained_by_others_skbs`.
    DrainedOthersBytes = "drained_by_others_bytes",
    /// Pure ACKs that `ack_filter` passed at once.
    AckFilterPassedAcks = "ack_filter_passed_acks",
    /// Pure ACKs that `ack_filter` held: a later ACK that was passed covers them, or the flush sent
    /// them after all.
    AckFilterHeldAcks = "ack_filter_held_acks",
    /// Held ACKs that the flush sent, because no later ACK was passed for a millisecond or two.
    AckFilterFlushedAcks = "ack_filter_flushed_acks",
    /// Packets passed to a wire with delay and loss, in both directions, a super-segment counting
    /// as one.
    WirePackets = "wire_packets",
    /// Packets that a wire with delay and loss lost (`loss`).
    WireLostPackets = "wire_lost_packets",
    /// Packets that a wire with delay and loss dropped because its queue was full (`wire_queue`).
    WireOverflowedPackets = "wire_overflowed_packets",
    /// Packets that a wire with delay and loss kept back while later ones passed (`reorder`).
    WireReorderedPackets = "wire_reordered_packets",
    /// Packets that a wire with delay and loss delivered twice (`duplicate`).
    WireDuplicatedPackets = "wire_duplicated_packets",
    /// CPU time of the process of a wire with delay and loss.
    WireCpuNs = "wire_cpu_ns",
    /// Payload bytes that the application passed to TCP.
    PayloadBytesSent = "payload_bytes_sent",
    /// Payload bytes that the application took from TCP.
    PayloadBytesReceived = "payload_bytes_received",
    /// Payload bytes whose content was compared and was correct (`check`).
    PayloadBytesChecked = "payload_bytes_checked",
    /// Send calls of the workload, including calls that found no room (EAGAIN).
    SendCalls = "send_calls",
    /// Receive calls of the workload, including calls that found nothing (EAGAIN).
    ReceiveCalls = "receive_calls",
    /// Calls that found nothing to do (EAGAIN).
    WouldBlockCalls = "would_block_calls",
    /// Waits for readiness (epoll_pwait2).
    PollCalls = "poll_calls",
    /// Transactions completed: the whole response has arrived.
    Transactions = "transactions",
    /// Connections set up by `crr` transactions.
    ConnectionsOpened = "connections_opened",
    /// Connections of the host that were set up before the interval.
    ConnectionsSetUp = "connections_set_up",
    /// Time that a connecting host needed for set-up: from the first connect until all servers had
    /// answered the hello, of the worker that took longest.
    SetUpNs = "set_up_ns",
    /// Growth of the memory of the host's process during set-up (RSS), payload buffers of its
    /// sockets included.
    SetUpProcessBytes = "set_up_process_bytes",
    /// Growth of the machine's slab from before the host listened or connected until its
    /// connections were set up: of both ends if they are on one machine. /proc/meminfo `Slab`.
    SetUpSlabBytes = "set_up_slab_bytes",
    /// Memory of all TCP queues of the machine at the end of the interval. /proc/net/sockstat
    /// `mem`.
    TcpQueueBytes = "tcp_queue_bytes",
    /// Completed sends by reference: MSG_ZEROCOPY, IORING_OP_SEND_ZC.
    ZerocopyCompletions = "zerocopy_completions",
    /// Completed sends by reference whose data the kernel copied after all
    /// (SO_EE_CODE_ZEROCOPY_COPIED, IORING_NOTIF_USAGE_ZC_COPIED).
    ZerocopyCopied = "zerocopy_copied",
    /// Payload bytes received by mapping their pages (TCP_ZEROCOPY_RECEIVE).
    PayloadBytesMapped = "payload_bytes_mapped",
    /// Pages of the files that payload is sent from, counted after the interval.
    FilePages = "file_pages",
    /// Pages of `file_pages` that are in the page cache, by mincore(2).
    FilePagesCached = "file_pages_cached",
    /// IP packets sent by this namespace, forwarded packets included, a super-segment counting as
    /// one. IpOutTransmits + Ip6OutTransmits; before Linux 6.7 these are called IpOutRequests and
    /// Ip6OutRequests.
    IpPacketsSent = "ip_packets_sent",
    /// IP packets received by this namespace, after GRO. IpInReceives + Ip6InReceives.
    IpPacketsReceived = "ip_packets_received",
    /// Bytes of IP packets sent, IP headers included, a super-segment having one header.
    /// IpExtOutOctets + Ip6OutOctets.
    IpOctetsSent = "ip_octets_sent", "IP bytes sent",
    /// Bytes of IP packets received. IpExtInOctets + Ip6InOctets.
    IpOctetsReceived = "ip_octets_received", "IP bytes received",
    /// TCP segments sent as on the wire, pure ACKs included, without retransmissions, which are in
    /// `segments_retransmitted`. TcpOutSegs.
    SegmentsSent = "segments_sent", "segments sent",
    /// TCP segments sent with new data: no retransmissions, no pure ACKs. TcpExtTCPOrigDataSent.
    NewDataSegmentsSent = "new_data_segments_sent",
    /// TCP segments received, a GRO super-segment counting as one. TcpInSegs.
    SuperSegmentsReceived = "super_segments_received", "segments received, after GRO",
    /// Segments retransmitted. TcpRetransSegs.
    SegmentsRetransmitted = "segments_retransmitted", "segments retransmitted",
    /// Incoming super-segments merged while the reader held the socket. TcpExtTCPBacklogCoalesce.
    BacklogCoalesced = "backlog_coalesced",
    /// ACKs that the delayed-ACK timer sent. TcpExtDelayedACKs.
    DelayedAcksSent = "delayed_acks_sent", "delayed ACKs by the timer, ≥ 40 ms each",
    /// Incoming skbs with data that took TCP's fast path: in order, nothing new in the header.
    /// TcpExtTCPHPHits.
    HeaderPredictedData = "header_predicted_data",
    /// Incoming ACKs without data that took TCP's fast path. TcpExtTCPHPAcks.
    HeaderPredictedAcks = "header_predicted_acks",
    /// Incoming ACKs without data that did not take TCP's fast path. TcpExtTCPPureAcks.
    SlowPureAcks = "slow_pure_acks",
    /// ACKs that the receiver omitted while data came out of order (`tcp_comp_sack_nr`).
    /// TcpExtTCPAckCompressed.
    CompressedAcks = "compressed_acks",
    /// Writes whose small skb waited for one that was still in the device (`tcp_autocorking`).
    /// TcpExtTCPAutoCorking.
    Autocorked = "autocorked_writes",
    /// Incoming skbs that went to the out-of-order queue. TcpExtTCPOFOQueue.
    OutOfOrderQueued = "out_of_order_skbs",
    /// skbs that were copied together because the receive buffer was short. TcpExtTCPRcvCollapsed.
    ReceiveCollapsed = "receive_collapsed_skbs",
    /// Times that a receive queue exceeded its buffer and was collapsed or emptied.
    /// TcpExtPruneCalled.
    ReceivePruned = "receive_prunes",
    /// Duplicate SACKs received: the peer had received the bytes twice. TcpExtTCPDSACKRecv +
    /// TCPDSACKOfoRecv.
    DsacksReceived = "dsacks_received",
    /// Duplicate SACKs sent. TcpExtTCPDSACKOldSent + TCPDSACKOfoSent.
    DsacksSent = "dsacks_sent",
    /// Times that a receiver closed its window. TcpExtTCPToZeroWindowAdv.
    ZeroWindowsSent = "zero_windows_advertised",
    /// Retransmission timeouts that F-RTO found spurious. TcpExtTCPSpuriousRTOs.
    SpuriousTimeouts = "spurious_timeouts",
    /// Retransmission timeouts. TcpExtTCPTimeouts.
    Timeouts = "timeouts", "timeouts",
    /// Connections that this namespace began to open. TcpActiveOpens.
    ActiveOpens = "active_opens", "connections opened",
    /// Connections that peers opened to this namespace. TcpPassiveOpens.
    PassiveOpens = "passive_opens", "connections accepted",
    /// Connection requests dropped because a listen queue was full. TcpExtListenDrops.
    ListenDrops = "listen_drops", "requests dropped, full listen queue",
    /// Wire segments sent, summed over the trial's connections. tcp_info `tcpi_segs_out`.
    ConnSegmentsSent = "conn_segments_sent",
    /// Wire segments received, before GRO merged them, summed over the trial's connections.
    /// `tcpi_segs_in`.
    ConnSegmentsReceived = "conn_segments_received",
    /// Wire segments with payload sent. `tcpi_data_segs_out`.
    ConnDataSegmentsSent = "conn_data_segments_sent",
    /// Wire segments with payload received. `tcpi_data_segs_in`.
    ConnDataSegmentsReceived = "conn_data_segments_received",
    /// Payload bytes sent, retransmissions included. `tcpi_bytes_sent`.
    ConnBytesSent = "conn_bytes_sent",
    /// Payload bytes acknowledged by the peer. `tcpi_bytes_acked`.
    ConnBytesAcked = "conn_bytes_acked",
    /// Payload bytes received in order. `tcpi_bytes_received`.
    ConnBytesReceived = "conn_bytes_received",
    /// Segments retransmitted. `tcpi_total_retrans`.
    ConnSegmentsRetransmitted = "conn_segments_retransmitted",
    /// Packets received out of order. `tcpi_rcv_ooopack`.
    ConnOutOfOrderPackets = "conn_out_of_order_packets",
    /// Duplicate SACKs received. `tcpi_dsack_dups`.
    ConnDsacks = "conn_dsacks_received",
    /// Time with data outstanding, summed over the connections. `tcpi_busy_time`.
    ConnBusyNs = "conn_busy_ns",
    /// Part of `conn_busy_ns` in which the receiver's window was the limit. `tcpi_rwnd_limited`.
    ConnReceiveWindowLimitedNs = "conn_receive_window_limited_ns",
    /// Part of `conn_busy_ns` in which the send buffer was the limit. `tcpi_sndbuf_limited`.
    ConnSendBufferLimitedNs = "conn_send_buffer_limited_ns",
}

impl Quantity {
    /// Quantity with this name; `None` if there is none.
    pub fn named(name: &str) -> Option<Quantity> {
        let mut all = Quantity::ALL.iter().copied();
        all.find(|quantity| quantity.name() == name)
    }

    /// Contexts of the meter `exact`. Each ns of a CPU is in one of them, or in
    /// [`Quantity::ExactWireNs`], which belongs to neither end and which older records lack.
    pub const EXACT_CONTEXTS: &[Quantity] = &[
        Quantity::ExactTaskOwnNs,
        Quantity::ExactSoakerNs,
        Quantity::ExactTaskOthersNs,
        Quantity::ExactKsoftirqdNs,
        Quantity::ExactKworkerNs,
        Quantity::ExactNapiNs,
        Quantity::ExactHardirqNs,
        Quantity::ExactSoftirqNetRxNs,
        Quantity::ExactSoftirqNetTxNs,
        Quantity::ExactSoftirqTimerNs,
        Quantity::ExactSoftirqHrtimerNs,
        Quantity::ExactSoftirqTaskletNs,
        Quantity::ExactSoftirqSchedNs,
        Quantity::ExactSoftirqRcuNs,
        Quantity::ExactSoftirqOthersNs,
        Quantity::ExactIdleNs,
    ];

    /// Events that the meter `exact` counts on each CPU. A kernel may not show all.
    pub const EXACT_EVENTS: [Quantity; 5] = [
        Quantity::ExactNetRxRuns,
        Quantity::ExactTaskOwnSleeps,
        Quantity::ExactRescheduleIpis,
        Quantity::ExactCallIpis,
        Quantity::ExactExtraTimerInterrupts,
    ];

    /// Softirqs and hard interrupts by owner: the command, the other ends of its connections,
    /// neighbours. The rest of [`Quantity::EXACT_SOFTIRQS`] and [`Quantity::ExactHardirqNs`] has no
    /// socket and belongs to the host.
    pub const EXACT_OWNED: &[[Quantity; 2]] = &[
        [Quantity::ExactOwnSoftirqNs, Quantity::ExactOwnHardirqNs],
        [Quantity::ExactPeerSoftirqNs, Quantity::ExactPeerHardirqNs],
        [
            Quantity::ExactNeighbourSoftirqNs,
            Quantity::ExactNeighbourHardirqNs,
        ],
    ];

    /// Costs of a process with sockets.
    pub const HOLDER: [Quantity; 4] = [
        Quantity::HolderTaskNs,
        Quantity::HolderUserNs,
        Quantity::HolderSoftirqNs,
        Quantity::HolderHardirqNs,
    ];

    /// Events for a process with sockets; in a trial, for a host's process.
    pub const HOLDER_EVENTS: [Quantity; 5] = [
        Quantity::HolderNetRxRuns,
        Quantity::HolderSleeps,
        Quantity::HolderRescheduleIpis,
        Quantity::HolderCallIpis,
        Quantity::HolderExtraTimerInterrupts,
    ];

    /// Cost of a host's process where CPU time has owners: its tasks, softirqs and hard interrupts.
    pub const EXACT_OF_HOST: [Quantity; 3] = [
        Quantity::HolderTaskNs,
        Quantity::HolderSoftirqNs,
        Quantity::HolderHardirqNs,
    ];

    /// Contexts of tasks and kernel threads that cost, without spinners and idle.
    pub const EXACT_TASKS: &[Quantity] = &[
        Quantity::ExactTaskOwnNs,
        Quantity::ExactTaskOthersNs,
        Quantity::ExactKsoftirqdNs,
        Quantity::ExactKworkerNs,
        Quantity::ExactNapiNs,
    ];

    /// Contexts that cost nothing: a CPU would be idle without the soaker's spinner.
    pub const EXACT_IDLE: &[Quantity] = &[Quantity::ExactIdleNs, Quantity::ExactSoakerNs];

    /// Contexts that are softirqs.
    pub const EXACT_SOFTIRQS: &[Quantity] = &[
        Quantity::ExactSoftirqNetRxNs,
        Quantity::ExactSoftirqNetTxNs,
        Quantity::ExactSoftirqTimerNs,
        Quantity::ExactSoftirqHrtimerNs,
        Quantity::ExactSoftirqTaskletNs,
        Quantity::ExactSoftirqSchedNs,
        Quantity::ExactSoftirqRcuNs,
        Quantity::ExactSoftirqOthersNs,
    ];

    /// Softirqs other than NET_RX, and the kernel threads that do deferred work.
    pub const EXACT_DEFERRED: &[Quantity] = &[
        Quantity::ExactSoftirqNetTxNs,
        Quantity::ExactSoftirqTimerNs,
        Quantity::ExactSoftirqHrtimerNs,
        Quantity::ExactSoftirqTaskletNs,
        Quantity::ExactSoftirqSchedNs,
        Quantity::ExactSoftirqRcuNs,
        Quantity::ExactSoftirqOthersNs,
        Quantity::ExactKsoftirqdNs,
        Quantity::ExactKworkerNs,
        Quantity::ExactNapiNs,
    ];

    /// Modes of /proc/stat. Their sum is the time of the CPUs only roughly: idle time is measured, the others are sampled.
    pub const CPU_MODES: &[Quantity] = &[
        Quantity::CpuUserNs,
        Quantity::CpuNiceNs,
        Quantity::CpuSystemNs,
        Quantity::CpuIrqNs,
        Quantity::CpuSoftirqNs,
        Quantity::CpuGuestNs,
        Quantity::CpuIdleNs,
        Quantity::CpuIowaitNs,
        Quantity::CpuStealNs,
    ];

    /// Modes in which a CPU works.
    pub const CPU_BUSY: &[Quantity] = Quantity::CPU_MODES.split_at(6).0;

    /// Modes in which a CPU is idle. Waiting for a disk is idle (netperf counts it as busy).
    pub const CPU_IDLE: &[Quantity] = Quantity::CPU_MODES.split_at(6).1.split_at(2).0;
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_defined() {
        for (index, quantity) in Quantity::ALL.iter().enumerate() {
            assert!(quantity.definition().ends_with('.'), "{quantity}");
            assert!(
                Quantity::ALL[..index]
                    .iter()
                    .all(|other| other.name() != quantity.name())
            );
            let json = serde_json::to_string(quantity).unwrap();
            assert_eq!(json, format!("\"{quantity}\""));
        }
    }
}
