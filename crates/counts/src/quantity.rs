//! Quantities: counts with one definition each, shared by every meter and every file.
//!
//! Counts only grow; a quotient of counts is a [`crate::Figure`]. `docs/quantities.md` is generated
//! from this file. A changed meaning is a breaking change of the records.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! quantities {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
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
            pub fn name(self) -> &'static str {
                match self { $(Quantity::$variant => $name,)+ }
            }

            /// Definition, as in the documentation.
            pub fn definition(self) -> &'static str {
                match self { $(Quantity::$variant => concat!($($doc,)+).trim_ascii(),)+ }
            }
        }
    };
}

quantities! {
    /// CPU time in user mode, guests and nice excluded. /proc/stat `user` - `guest`; sampled by the tick.
    CpuUserNs = "cpu_user_ns",
    /// CPU time in user mode of niced tasks, guests excluded. /proc/stat `nice` - `guest_nice`.
    CpuNiceNs = "cpu_nice_ns",
    /// CPU time in the kernel on a task's behalf. /proc/stat `system`; on a kernel with tick accounting a softirq that runs inside a system call may be counted here.
    CpuSystemNs = "cpu_system_ns",
    /// CPU time in hard interrupts. /proc/stat `irq`; near zero without IRQ_TIME_ACCOUNTING.
    CpuIrqNs = "cpu_irq_ns",
    /// CPU time in softirqs. /proc/stat `softirq`.
    CpuSoftirqNs = "cpu_softirq_ns",
    /// CPU time idle. /proc/stat `idle`.
    CpuIdleNs = "cpu_idle_ns",
    /// CPU time idle while some task waited for a disk. /proc/stat `iowait`; idle, not busy.
    CpuIowaitNs = "cpu_iowait_ns",
    /// Time that the hypervisor gave to others. /proc/stat `steal`; not busy.
    CpuStealNs = "cpu_steal_ns",
    /// CPU time that ran guests of this host. /proc/stat `guest` + `guest_nice`.
    CpuGuestNs = "cpu_guest_ns",
    /// User CPU time of the workload's own threads. getrusage(RUSAGE_THREAD) `ru_utime`.
    TaskUserNs = "task_user_ns",
    /// Kernel CPU time of the workload's own threads. `ru_stime`: it misses softirqs that ran on idle, on ksoftirqd or on others, and holds those that interrupted these threads.
    TaskSystemNs = "task_system_ns",
    /// Time of an end's turns in the thread that it shares with the other (`placement = "one-thread"`), with the interrupts and softirqs that hit them. Meter `workload`.
    TurnsNs = "turns_ns",
    /// Times that the workload's threads gave up the CPU to wait. `ru_nvcsw`.
    VoluntarySwitches = "voluntary_switches",
    /// Times that the workload's threads were preempted. `ru_nivcsw`.
    InvoluntarySwitches = "involuntary_switches",
    /// CPU time of a command and of all that it starts, interrupts that hit them included. PERF_COUNT_SW_TASK_CLOCK, inherited.
    TaskClockNs = "task_clock_ns",
    /// Switches away from its threads. PERF_COUNT_SW_CONTEXT_SWITCHES.
    ContextSwitches = "context_switches",
    /// Times that its threads, or the workload's, were moved to another CPU. PERF_COUNT_SW_CPU_MIGRATIONS; of the workload's `se.nr_migrations` of /proc/thread-self/sched, absent with a thread for each connection (`io`).
    CpuMigrations = "cpu_migrations",
    /// Page faults of its threads, minor and major. PERF_COUNT_SW_PAGE_FAULTS.
    PageFaults = "page_faults",
    /// Page faults of the workload's threads, or of the whole host, that needed no disk: memory touched for the first time, among others. `ru_minflt`; /proc/vmstat `pgfault` - `pgmajfault`.
    MinorFaults = "minor_page_faults",
    /// Page faults that waited for a disk. `ru_majflt`; /proc/vmstat `pgmajfault`.
    MajorFaults = "major_page_faults",
    /// System calls of its threads that send: sendto, sendmsg, sendmmsg (not write, which is of files, too). Tracepoints of system calls, inherited.
    SendSystemCalls = "send_system_calls",
    /// System calls of its threads that receive: recvfrom, recvmsg, recvmmsg (not read).
    ReceiveSystemCalls = "receive_system_calls",
    /// System calls of its threads that move pages without copying: sendfile, splice.
    SendfileSystemCalls = "sendfile_system_calls",
    /// Its calls of connect.
    ConnectSystemCalls = "connect_system_calls",
    /// Its calls of accept and accept4.
    AcceptSystemCalls = "accept_system_calls",
    /// Its waits for readiness: epoll_wait and its kin, poll, select.
    PollSystemCalls = "poll_system_calls",
    /// Its calls of io_uring_enter, each of which may stand for many sends and receives; of a workload with `io = "io-uring"` by its own count.
    IoUringSystemCalls = "io_uring_enter_system_calls",
    /// Sends on internet sockets, by any system call: write, sendfile and io_uring are among them, and calls that sent nothing. eBPF at sock_send_length.
    SocketSends = "socket_sends",
    /// Bytes that these took.
    SocketBytesSent = "socket_bytes_sent",
    /// Receives on internet sockets, by any system call but splice: read is among them, and calls that found nothing. eBPF at sock_recv_length.
    SocketReceives = "socket_receives",
    /// Bytes that these gave.
    SocketBytesReceived = "socket_bytes_received",
    /// Cycles of the time-stamp counter (x86-64 TSC, arm64 CNTVCT): a clock at a constant rate, not core cycles.
    TscCycles = "tsc_cycles",
    /// Core cycles in user and kernel mode of all that ran, interrupts included. perf_event_open PERF_COUNT_HW_CPU_CYCLES; absent where there is no PMU. The time that the counter looked elsewhere is scaled up.
    CoreCycles = "core_cycles",
    /// Instructions retired, as `core_cycles`. PERF_COUNT_HW_INSTRUCTIONS.
    Instructions = "instructions",
    /// Accesses that missed the last-level cache, as `core_cycles`; what exactly is the CPU model's own. PERF_COUNT_HW_CACHE_MISSES.
    CacheMisses = "cache_misses",
    /// Branches that were predicted wrong, as `core_cycles`. PERF_COUNT_HW_BRANCH_MISSES.
    BranchMisses = "branch_misses",
    /// Instructions in functions that copy, clear or set memory, eight bytes each at most: other CPUs need fewer or more. Meter `emulator`.
    MemoryInstructions = "memory_instructions",
    /// Time that the events of `core_cycles`, `instructions`, `cache_misses` and `branch_misses` were to be counted, summed over events. PERF_FORMAT_TOTAL_TIME_ENABLED.
    PmuEnabledNs = "pmu_enabled_ns",
    /// Of it, time in which the PMU did count them; where it is less, events took turns and the counts are scaled up. PERF_FORMAT_TOTAL_TIME_RUNNING.
    PmuRunningNs = "pmu_running_ns",
    /// Work that the soaker's spinners did: units of a fixed amount of it, comparable only between spinners of one start.
    SoakWorkUnits = "soak_work_units",
    /// Work that they would have done in the same time on an idle CPU, steal taken out: the idle rate, mean of the calibrations before and after, times the time. 1 - `soak_work_units` / `soak_idle_work_units` is the load.
    SoakIdleWorkUnits = "soak_idle_work_units",
    /// CPU time of the spinners themselves, interrupts that fell into it included. The clock of CPU time of each thread.
    SoakTaskNs = "soak_task_ns",
    /// CPU time of all tasks that are not the trial's, on the trial's CPUs; ksoftirqd, napi and kworker threads, which carry the network's own work, are not in it. /proc/PID/stat, by the CPU where each thread ran last, in steps of 10 ms; a thread that ended between the snapshots is in it up to the earlier one.
    OtherTasksNs = "other_tasks_ns",
    /// CPU time of kworker threads on the trial's CPUs, read as `other_tasks_ns` is: the kernel's deferred work, the network's and the rest.
    KworkerNs = "kworker_ns",
    /// CPU time of tcpcost itself, all its threads. CLOCK_PROCESS_CPUTIME_ID; its eBPF programs run in what they interrupt and are not in it.
    SelfCpuNs = "self_cpu_ns",
    /// Time that tcpcost's eBPF programs ran, the kernel's measuring of it (two clock reads a run) included. bpf_prog_info `run_time_ns`, where run-time statistics are on.
    SelfProgramsNs = "self_programs_ns",
    /// Runs of tcpcost's eBPF programs. bpf_prog_info `run_cnt`, where run-time statistics are on.
    SelfProgramRuns = "self_program_runs",
    /// Time in which tcpcost's eBPF programs were idle to cost less: above 0, what they count is estimated.
    SelfProgramsIdleNs = "self_programs_idle_ns",
    /// Time that the trial's own processes ran, interrupts and softirqs taken out. eBPF on sched_switch, as all `exact` times are; each ns of a CPU is in one of them.
    ExactTaskOwnNs = "exact_task_own_ns",
    /// Time that the soaker's spinners ran: tasks of the trial's own processes at SCHED_IDLE. No cost, they only take what is left.
    ExactSoakerNs = "exact_soaker_ns",
    /// Time that a wire with delay and loss took: a process of the trial's own at SCHED_BATCH. No cost of either end.
    ExactWireNs = "exact_wire_ns",
    /// Time that tasks of others ran, kernel threads without a row of their own included.
    ExactTaskOthersNs = "exact_task_others_ns",
    /// Time that ksoftirqd ran outside of softirqs; the softirqs that it runs are by their vector.
    ExactKsoftirqdNs = "exact_ksoftirqd_ns",
    /// Time that kworkers ran: the kernel's deferred work, the network's and the rest.
    ExactKworkerNs = "exact_kworker_ns",
    /// Time that threads of threaded NAPI ran.
    ExactNapiNs = "exact_napi_ns",
    /// Time in hard interrupts: irq_handler_entry to irq_handler_exit, and x86's own vectors (timer, reschedule, function calls, irq_work).
    ExactHardirqNs = "exact_hardirq_ns",
    /// Time in softirq NET_RX, hard interrupts in it taken out, as in all of these: packets received, and what an ACK lets TCP send.
    ExactSoftirqNetRxNs = "exact_softirq_net_rx_ns",
    /// Time in softirq NET_TX: queueing disciplines that were deferred, skbs freed.
    ExactSoftirqNetTxNs = "exact_softirq_net_tx_ns",
    /// Time in softirq TIMER: retransmission and delayed-ACK timers among others.
    ExactSoftirqTimerNs = "exact_softirq_timer_ns",
    /// Time in softirq HRTIMER: TCP's pacing among others.
    ExactSoftirqHrtimerNs = "exact_softirq_hrtimer_ns",
    /// Time in softirqs TASKLET and HI: TCP small queues, work queues in softirq context.
    ExactSoftirqTaskletNs = "exact_softirq_tasklet_ns",
    /// Time in softirq SCHED: the scheduler's load balancing.
    ExactSoftirqSchedNs = "exact_softirq_sched_ns",
    /// Time in softirq RCU.
    ExactSoftirqRcuNs = "exact_softirq_rcu_ns",
    /// Time in the softirqs without a row of their own (BLOCK, IRQ_POLL).
    ExactSoftirqOthersNs = "exact_softirq_others_ns",
    /// Time that the CPU had nothing to run, interrupts taken out. What the hypervisor stole is in the context that it hit.
    ExactIdleNs = "exact_idle_ns",
    /// Time in softirqs for the sockets of the command that is measured: packets that they received, and what timers, pacing and queues sent for them. A part of the softirqs' time above, which is of all sockets.
    ExactOwnSoftirqNs = "exact_own_softirq_ns",
    /// Time in the hard interrupts that raised these softirqs.
    ExactOwnHardirqNs = "exact_own_hardirq_ns",
    /// Time in softirqs for the other ends of the command's connections, where these are on this host.
    ExactPeerSoftirqNs = "exact_peer_softirq_ns",
    /// Time in the hard interrupts that raised these softirqs.
    ExactPeerHardirqNs = "exact_peer_hardirq_ns",
    /// Time in softirqs for all other sockets of this host.
    ExactNeighbourSoftirqNs = "exact_neighbour_softirq_ns",
    /// Time in the hard interrupts that raised these softirqs.
    ExactNeighbourHardirqNs = "exact_neighbour_hardirq_ns",
    /// Time of the tasks of a process that has sockets, interrupts and softirqs taken out. Meter `exact`, as the three rows below; time that was not observed is estimated.
    HolderTaskNs = "holder_task_ns",
    /// What of it was in user mode, by the tick: it may be more than all of it where that is a few ticks.
    HolderUserNs = "holder_user_ns",
    /// Time in softirqs for its sockets, wherever they ran.
    HolderSoftirqNs = "holder_softirq_ns",
    /// Time in the hard interrupts that raised these softirqs.
    HolderHardirqNs = "holder_hardirq_ns",
    /// skbs with payload that TCP handed down, a super-segment being one, retransmissions included. eBPF at net_dev_queue in this namespace, as all `…skbs_sent` of the meter `segments`; IPv4 options and IPv6 extension headers are not looked into.
    DataSkbsSent = "data_skbs_sent",
    /// Payload bytes in them.
    DataSkbBytesSent = "data_skb_bytes_sent",
    /// Wire segments that they are or become.
    DataWireSegmentsSent = "data_wire_segments_sent",
    /// Sum of the squares of their payloads, in squared bytes: divided by `data_skb_bytes_sent` it is the byte-weighted mean.
    DataSkbSquaredBytesSent = "data_skb_squared_bytes_sent",
    /// Segments sent that have no payload and no SYN, FIN or RST.
    PureAcksSent = "pure_acks_sent",
    /// Pure ACKs sent, by a socket of this namespace, that moved the right edge of the receive window beyond that of the connection's pure ACK before: what a reader's read opens. Our own TCP counts them itself, against the edge of any segment before. Connections that share one of 4096 places are counted in neither this row nor the next.
    WindowAdvancingAcksSent = "window_advancing_acks_sent",
    /// Pure ACKs sent that did not: they only acknowledged (Klemkow 2020: a receiver's first ACK, before the reader has read).
    OnlyAcknowledgingAcksSent = "only_acknowledging_acks_sent",
    /// Of these, pure ACKs that repeated the acknowledgement and the window of the one before (RFC 5681), keepalives' and window probes' answers among them.
    DuplicateAcksSent = "duplicate_acks_sent",
    /// skbs with payload that came in, after GRO. eBPF at netif_receive_skb, as all `…received` of the meter `segments`.
    DataSkbsReceived = "data_skbs_received",
    /// Payload bytes in them.
    DataSkbBytesReceived = "data_skb_bytes_received",
    /// Wire segments that they are made of.
    DataWireSegmentsReceived = "data_wire_segments_received",
    /// Sum of the squares of their payloads, in squared bytes.
    DataSkbSquaredBytesReceived = "data_skb_squared_bytes_received",
    /// Segments received that have no payload and no SYN, FIN or RST.
    PureAcksReceived = "pure_acks_received",
    /// Runs of data skbs sent with no other packet of the connection between; connections that share one of 4096 places cut each other's bursts. Means nothing on a loopback device, where what is sent is received.
    DataBurstsSent = "data_bursts_sent",
    /// Runs of pure ACKs sent, as `data_bursts_sent`.
    AckBurstsSent = "ack_bursts_sent",
    /// Runs of data skbs received, as `data_bursts_sent`.
    DataBurstsReceived = "data_bursts_received",
    /// Runs of pure ACKs received, as `data_bursts_sent`.
    AckBurstsReceived = "ack_bursts_received",
    /// Data skbs of less than an MSS right behind, in sequence and on the same CPU, an skb of full segments.
    TailSkbsSent = "tail_skbs_sent",
    /// Delayed-ACK stalls of what this end sent: one segment outstanding, a pause, a lone ACK, then more at once. From a capture, as in `tcpcost trace`.
    DelayedAckStalls = "delayed_ack_stalls",
    /// Time that these took.
    DelayedAckStallNs = "delayed_ack_stall_ns",
    /// skbs that a driver was given, after software segmentation, of all protocols. eBPF at net_dev_start_xmit.
    DeviceSkbsSent = "device_skbs_sent",
    /// Pieces of memory that they consist of, the one with the headers included: descriptors of a device with scatter-gather, a DMA each (Sun 2008).
    DeviceFragmentsSent = "device_fragments_sent",
    /// Data skbs sent with a payload below 128 bytes.
    SkbsSentBelow128 = "skbs_sent_below_128_bytes",
    /// Of 128 bytes and more, below 256.
    SkbsSentBelow256 = "skbs_sent_below_256_bytes",
    /// Of 256 bytes and more, below 512.
    SkbsSentBelow512 = "skbs_sent_below_512_bytes",
    /// Of 512 bytes and more, below 1024.
    SkbsSentBelow1024 = "skbs_sent_below_1024_bytes",
    /// Of 1024 bytes and more, below 2048.
    SkbsSentBelow2048 = "skbs_sent_below_2048_bytes",
    /// Of 2048 bytes and more, below 4096.
    SkbsSentBelow4096 = "skbs_sent_below_4096_bytes",
    /// Of 4096 bytes and more, below 8192.
    SkbsSentBelow8192 = "skbs_sent_below_8192_bytes",
    /// Of 8192 bytes and more, below 16384.
    SkbsSentBelow16384 = "skbs_sent_below_16384_bytes",
    /// Of 16384 bytes and more, below 32768.
    SkbsSentBelow32768 = "skbs_sent_below_32768_bytes",
    /// Of 32768 bytes and more, below 65536.
    SkbsSentBelow65536 = "skbs_sent_below_65536_bytes",
    /// Of 65536 bytes and more (BIG TCP).
    SkbsSentFrom65536 = "skbs_sent_from_65536_bytes",
    /// Data skbs sent from a task outside of softirqs: its system call, the backlog that it then works off included.
    DrainedSystemCallSkbs = "drained_by_system_call_skbs",
    /// Payload bytes in them.
    DrainedSystemCallBytes = "drained_by_system_call_bytes",
    /// Data skbs sent from softirq NET_RX or threaded NAPI: an ACK that came in let TCP send.
    DrainedNetRxSkbs = "drained_by_net_rx_skbs",
    /// Payload bytes in them.
    DrainedNetRxBytes = "drained_by_net_rx_bytes",
    /// Data skbs sent from softirq TASKLET or HI, or from a kworker: TCP small queues, work queues.
    DrainedTaskletSkbs = "drained_by_tasklet_skbs",
    /// Payload bytes in them.
    DrainedTaskletBytes = "drained_by_tasklet_bytes",
    /// Data skbs sent from softirq TIMER or HRTIMER: timers and pacing.
    DrainedTimerSkbs = "drained_by_timer_skbs",
    /// Payload bytes in them.
    DrainedTimerBytes = "drained_by_timer_bytes",
    /// Data skbs sent from elsewhere.
    DrainedOthersSkbs = "drained_by_others_skbs",
    /// Payload bytes in them.
    DrainedOthersBytes = "drained_by_others_bytes",
    /// Pure ACKs that `ack_filter` let leave when they came.
    AckFilterPassedAcks = "ack_filter_passed_acks",
    /// Pure ACKs that `ack_filter` held: a later one that left covers them, or the flush sent them after all.
    AckFilterHeldAcks = "ack_filter_held_acks",
    /// Of these, ACKs that the flush sent, since nothing had left for a millisecond or two.
    AckFilterFlushedAcks = "ack_filter_flushed_acks",
    /// Packets that a wire with delay and loss was given, both ways, a super-segment being one.
    WirePackets = "wire_packets",
    /// Of these, packets that it lost (`loss`).
    WireLostPackets = "wire_lost_packets",
    /// Packets that found its queue full (`wire_queue`).
    WireOverflowedPackets = "wire_overflowed_packets",
    /// Packets that it kept back while later ones passed (`reorder`).
    WireReorderedPackets = "wire_reordered_packets",
    /// Packets that it delivered twice (`duplicate`).
    WireDuplicatedPackets = "wire_duplicated_packets",
    /// CPU time of the wire's own process.
    WireCpuNs = "wire_cpu_ns",
    /// Payload bytes that the application handed to TCP.
    PayloadBytesSent = "payload_bytes_sent",
    /// Payload bytes that the application took from TCP.
    PayloadBytesReceived = "payload_bytes_received",
    /// Payload bytes whose content was compared and was right (`check`).
    PayloadBytesChecked = "payload_bytes_checked",
    /// Calls that sent payload.
    SendCalls = "send_calls",
    /// Calls that took payload.
    ReceiveCalls = "receive_calls",
    /// Calls that found nothing to do (EAGAIN).
    WouldBlockCalls = "would_block_calls",
    /// Waits for readiness (epoll_pwait2).
    PollCalls = "poll_calls",
    /// Transactions completed: the whole response is in.
    Transactions = "transactions",
    /// Connections set up by `crr` transactions.
    ConnectionsOpened = "connections_opened",
    /// Connections that were set up before the interval, those of the host.
    ConnectionsSetUp = "connections_set_up",
    /// Time that it took a host that connects: from the first connect until all were greeted back, of the worker that took longest.
    SetUpNs = "set_up_ns",
    /// Growth of the memory of the host's process meanwhile, its sockets' buffers for payload included (RSS).
    SetUpProcessBytes = "set_up_process_bytes",
    /// Growth of the machine's slab from before the host listened or connected until its connections were up: of both ends where they are on one machine. /proc/meminfo `Slab`.
    SetUpSlabBytes = "set_up_slab_bytes",
    /// Memory of all TCP queues of the machine at the end of the interval. /proc/net/sockstat `mem`.
    TcpQueueBytes = "tcp_queue_bytes",
    /// Sends by reference that completed: MSG_ZEROCOPY, IORING_OP_SEND_ZC.
    ZerocopyCompletions = "zerocopy_completions",
    /// Of these, sends whose data the kernel copied after all (SO_EE_CODE_ZEROCOPY_COPIED, IORING_NOTIF_USAGE_ZC_COPIED).
    ZerocopyCopied = "zerocopy_copied",
    /// Payload bytes received by mapping their pages (TCP_ZEROCOPY_RECEIVE).
    PayloadBytesMapped = "payload_bytes_mapped",
    /// Pages of the files that payload is sent from, once for each snapshot.
    FilePages = "file_pages",
    /// Of these, pages in the page cache, by mincore(2).
    FilePagesCached = "file_pages_cached",
    /// IP packets that left this namespace, forwarded ones included, super-segments counting as one. IpOutTransmits + Ip6OutTransmits; before Linux 6.7 these are called IpOutRequests and Ip6OutRequests.
    IpPacketsSent = "ip_packets_sent",
    /// IP packets taken in by this namespace, after GRO. IpInReceives + Ip6InReceives.
    IpPacketsReceived = "ip_packets_received",
    /// Octets of IP packets sent, IP headers included, a super-segment having one header. IpExtOutOctets + Ip6OutOctets.
    IpOctetsSent = "ip_octets_sent",
    /// Octets of IP packets received. IpExtInOctets + Ip6InOctets.
    IpOctetsReceived = "ip_octets_received",
    /// TCP segments sent as on the wire, pure ACKs included; retransmissions are not in it but in `segments_retransmitted`. TcpOutSegs.
    SegmentsSent = "segments_sent",
    /// Of these, segments with new data: no retransmissions, no pure ACKs. TcpExtTCPOrigDataSent.
    NewDataSegmentsSent = "new_data_segments_sent",
    /// TCP segments received, a GRO super-segment counting as one. TcpInSegs.
    SuperSegmentsReceived = "super_segments_received",
    /// Segments retransmitted. TcpRetransSegs.
    SegmentsRetransmitted = "segments_retransmitted",
    /// Incoming super-segments merged while the reader held the socket. TcpExtTCPBacklogCoalesce.
    BacklogCoalesced = "backlog_coalesced",
    /// ACKs that the delayed-ACK timer sent. TcpExtDelayedACKs.
    DelayedAcksSent = "delayed_acks_sent",
    /// Incoming skbs with data that took TCP's fast path: in order, nothing new in the header. TcpExtTCPHPHits.
    HeaderPredictedData = "header_predicted_data",
    /// Incoming ACKs without data that took it. TcpExtTCPHPAcks.
    HeaderPredictedAcks = "header_predicted_acks",
    /// Incoming ACKs without data that did not. TcpExtTCPPureAcks.
    SlowPureAcks = "slow_pure_acks",
    /// ACKs that the receiver left out while data came out of order (`tcp_comp_sack_nr`). TcpExtTCPAckCompressed.
    CompressedAcks = "compressed_acks",
    /// Writes whose small skb waited for one that was still in the device (`tcp_autocorking`). TcpExtTCPAutoCorking.
    Autocorked = "autocorked_writes",
    /// Incoming skbs that went to the out-of-order queue. TcpExtTCPOFOQueue.
    OutOfOrderQueued = "out_of_order_skbs",
    /// skbs that were copied together for want of receive buffer. TcpExtTCPRcvCollapsed.
    ReceiveCollapsed = "receive_collapsed_skbs",
    /// Times that a receive queue was over its buffer and was collapsed or emptied. TcpExtPruneCalled.
    ReceivePruned = "receive_prunes",
    /// Duplicate SACKs received: the peer had the bytes twice. TcpExtTCPDSACKRecv + TCPDSACKOfoRecv.
    DsacksReceived = "dsacks_received",
    /// Duplicate SACKs sent. TcpExtTCPDSACKOldSent + TCPDSACKOfoSent.
    DsacksSent = "dsacks_sent",
    /// Times that a receiver closed its window. TcpExtTCPToZeroWindowAdv.
    ZeroWindowsSent = "zero_windows_advertised",
    /// Retransmission timeouts that F-RTO found needless. TcpExtTCPSpuriousRTOs.
    SpuriousTimeouts = "spurious_timeouts",
    /// Retransmission timeouts. TcpExtTCPTimeouts.
    Timeouts = "timeouts",
    /// Connections that this namespace asked for. TcpActiveOpens.
    ActiveOpens = "active_opens",
    /// Connections that it was asked for. TcpPassiveOpens.
    PassiveOpens = "passive_opens",
    /// Connection requests dropped because a listen queue was full. TcpExtListenDrops.
    ListenDrops = "listen_drops",
    /// Wire segments sent, summed over the trial's connections. tcp_info `tcpi_segs_out`.
    ConnSegmentsSent = "conn_segments_sent",
    /// Wire segments received, summed over the trial's connections, GRO undone. `tcpi_segs_in`.
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
    /// Time with data outstanding, summed. `tcpi_busy_time`.
    ConnBusyNs = "conn_busy_ns",
    /// Of it, time limited by the receiver's window. `tcpi_rwnd_limited`.
    ConnReceiveWindowLimitedNs = "conn_receive_window_limited_ns",
    /// Of it, time limited by the send buffer. `tcpi_sndbuf_limited`.
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

    /// Modes of /proc/stat: each ns of a CPU is in one of them.
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

    /// Modes in which a CPU does not work: idle, iowait, steal.
    pub const CPU_NOT_BUSY: &[Quantity] = Quantity::CPU_MODES.split_at(6).1;
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
