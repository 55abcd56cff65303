//! Sizes, orders of counts and structures that the programs and their readers share. `build.rs` makes `NAME.layout.h` of each
//! module here, which `NAME.bpf.c` includes; `NAME.rs` uses the module itself.

/// `const`: a `#define`. `counts`: an enum from 0 on, each with the quantity that it counts or `none`. `struct`: the
/// same in both languages, of words and arrays of words.
macro_rules! layout {
    (
        $(const $constant:ident = $value:literal;)*
        $(counts $counted:ident { $($index:ident = $quantity:ident,)+ })?
        $(struct $name:ident align($align:literal) { $($field:ident: $type:ident $([$length:ident])?,)+ })*
    ) => {
        $(#[allow(dead_code, reason = "some are the programs' alone")] pub const $constant: usize = $value;)*

        $(
            /// The counts' places.
            #[allow(dead_code, non_camel_case_types, clippy::upper_case_acronyms, reason = "as in C")]
            pub enum Place { $($index,)+ }

            /// Names of the quantities, in the order of the counts.
            pub const $counted: &[&str] = &[$(stringify!($quantity),)+];
        )?

        $(
            #[allow(dead_code, reason = "some fields are the programs' alone")]
            #[repr(C, align($align))]
            #[derive(Debug, Clone, Copy, PartialEq)]
            pub struct $name { $(pub $field: layout!(@type $type $($length)?),)+ }
        )*

        /// C header with the same definitions.
        #[allow(dead_code, reason = "build.rs writes it, readers do not")]
        pub const HEADER: &str = concat!(
            $("#define ", stringify!($constant), " ", stringify!($value), "\n",)*
            $("enum {\n", $("\t", stringify!($index), ",\n",)+ "};\n",)?
            $(
                "struct ", stringify!($name), " {\n",
                $("\t", stringify!($type), " ", stringify!($field), $("[", stringify!($length), "]",)? ";\n",)+
                "} __attribute__((aligned(", stringify!($align), ")));\n",
            )*
        );
    };
    (@type $type:ident) => { $type };
    (@type $type:ident $length:ident) => { [$type; $length] };
}

/// Layout of `exact`.
pub mod exact {
    layout! {
        // CPUs below this are known, as in libc's cpu_set_t.
        const MAX_CPUS = 1024;
        const CONTEXTS = 32;
        const OWN_PIDS = 8;
        // Owners of softirq time; 0 is nobody, so the host. From OWNERS on: holders of sockets, or threads.
        const OWNERS = 4;
        const COMMAND = 1;
        const PEER = 2;
        const NEIGHBOUR = 3;
        // Values of `owns`: 0 for no owners; a command, the other ends of its connections and its neighbours; each process with
        // sockets; threads that the reader names.
        const OF_COMMAND = 1;
        const OF_HOLDERS = 2;
        const OF_THREADS = 3;
        const SOFTIRQ_VECTORS = 10;
        // Totals of an owner, from HARDIRQ on. The last two: a holder's user time by the tick, and all time of its tasks.
        const OWNED_TOTALS = 20;
        const USER_NS = 18;
        const TASK_NS = 19;
        // A holder looks at so many places for one that is free.
        const PROBES = 16;
        // Added to the port of a socket that asks: the port is the other end's.
        const ASKS = 0x10000;
        // Ports of a process that are told apart. What has thousands has them for other ends that it connects to.
        const PORTS = 64;
        const COMM = 16;
        // An interrupt that ended less than 2 us before a softirq raised it.
        const RAISED_NS = 2000;
        // An interrupt that ended less than 20 us before a task began woke it: an idle CPU first sets its tick anew.
        const WOKEN_NS = 20000;
        // Packets that are forwarded, of a CPU.
        const TRANSITS = 32;
        // Sockets, or packets, that share what it takes to send for them.
        const QUEUED = 8;
        // Processes and sockets that a CPU remembers: powers of two.
        const RECENT_TASKS = 4;
        const RECENT_SOCKETS = 8;
        const RECENT_WORDS = 16;
        // 0 stands for no context, so that a stack of them can be a number. Softirqs are by vector. From NET_RX_RUNS on: events.
        counts COUNTED {
            NO_CONTEXT = none,
            IDLE = exact_idle_ns,
            OWN = exact_task_own_ns,
            OTHERS = exact_task_others_ns,
            KSOFTIRQD = exact_ksoftirqd_ns,
            KWORKER = exact_kworker_ns,
            NAPI = exact_napi_ns,
            HARDIRQ = exact_hardirq_ns,
            SOFTIRQ_HI = exact_softirq_tasklet_ns,
            SOFTIRQ_TIMER = exact_softirq_timer_ns,
            SOFTIRQ_NET_TX = exact_softirq_net_tx_ns,
            SOFTIRQ_NET_RX = exact_softirq_net_rx_ns,
            SOFTIRQ_BLOCK = exact_softirq_others_ns,
            SOFTIRQ_IRQ_POLL = exact_softirq_others_ns,
            SOFTIRQ_TASKLET = exact_softirq_tasklet_ns,
            SOFTIRQ_SCHED = exact_softirq_sched_ns,
            SOFTIRQ_HRTIMER = exact_softirq_hrtimer_ns,
            SOFTIRQ_RCU = exact_softirq_rcu_ns,
            SOAKER = exact_soaker_ns,
            WIRE = exact_wire_ns,
            NET_RX_RUNS = exact_net_rx_runs,
            SLEEPS = exact_task_own_sleeps,
            RESCHEDULE_IPIS = exact_reschedule_ipis,
            CALL_IPIS = exact_call_ipis,
            EXTRA_TIMERS = exact_extra_timer_interrupts,
        }
        // State of one CPU, which alone writes it while it is open. `sequence`: odd while it is written. `contexts`: a stack, one
        // byte each, the running one lowest. `not_followed`: processes that `followed` had no room for, counted also
        // while it is not open. From `pot` on: owner.h. `pot`: ns of this softirq that have no owner yet. `hard_ns`: of the
        // last hard interrupt; `hard_pot`: of the one that raised this softirq. `skb`: the packet in hand; `sender`: cookie
        // of the socket that sent it, where that is on this host; `segments`: of what is in hand, a list of GRO or not.
        // `holder`: of the task that runs, or 0; `utime`: its user time by the tick when it began to run. `queue`: owners that share the
        // pot, the first `queued` of them. `in_transit`: places of this CPU's packets that are forwarded. `events` of this softirq
        // have no owner yet: bit 0 is a run of NET_RX, the bits above are the place of the interrupt that raised it. `interrupt`: the
        // place of the last hard interrupt, or 0; `is_tick`: the one that runs is the tick's. What each packet needs is
        // in the first lines. From `tasks` on: recent.h.
        struct Cell align(64) {
            sequence: u32,
            is_open: u32,
            last_ns: u64,
            contexts: u64,
            pot: u64,
            hard_ns: u64,
            hard_pot: u64,
            skb: u64,
            sender: u64,
            owner: u32,
            last_owner: u32,
            events: u32,
            segments: u32,
            is_list: u32,
            holder: u32,
            queued: u32,
            in_transit: u32,
            tasks: u64 [RECENT_TASKS],
            totals: u64 [CONTEXTS],
            sockets: u64 [RECENT_WORDS],
            socket: u64,
            utime: u64,
            queue: u32 [QUEUED],
            not_followed: u64,
            pacer: u32,
            interrupt: u32,
            is_tick: u32,
            unused: u32,
        }
        // Changes of a map so far, by programs and by readers.
        struct Changes align(64) {
            count: u32,
        }
        // Events that the loaded programs see on this kernel: a bit for each place. Their reader sets it.
        struct Seen align(64) {
            events: u64,
        }
        // Totals of one owner on one CPU, by place from HARDIRQ on.
        struct Owned align(64) {
            totals: u64 [OWNED_TOTALS],
        }
        // Whose sockets: of which process (`start` parts it from others that had its number), in which network namespace,
        // with which port: their own if they listen or were accepted, with ASKS that of the other end, 0 if they have none.
        struct Key align(8) {
            start: u64,
            tgid: u32,
            netns: u32,
            port: u32,
            unused: u32,
        }
        // A place for these. `is_taken`: its reader frees it. `is_told`: all of it is written; `has_ended`: the process; `ports`:
        // of this process so far, told in its first place.
        struct Holder align(8) {
            start: u64,
            tgid: u32,
            netns: u32,
            port: u32,
            is_taken: u32,
            cgroup: u64,
            is_told: u32,
            has_ended: u32,
            ports: u32,
            unused: u32,
            name: u8 [COMM],
        }
    }
}

/// Layout of `socket_calls`.
pub mod calls {
    layout! {
        const MAX_CPUS = 1024;
        const COUNTS = 6;
        counts COUNTED {
            SENDS = socket_sends,
            BYTES_SENT = socket_bytes_sent,
            RECEIVES = socket_receives,
            BYTES_RECEIVED = socket_bytes_received,
            REFERENCE_SENDS = socket_reference_sends,
            REFERENCE_BYTES_SENT = socket_reference_bytes_sent,
        }
        struct Cell align(64) {
            counts: u64 [COUNTS],
        }
    }
}

/// Layout of `symbols`.
pub mod symbols {
    layout! {
        // Bytes of a name, with a 0 at the end.
        const NAME = 32;
        struct Asked align(8) {
            name: u8 [NAME],
            address: u64,
        }
    }
}

/// Layout of `segments`.
pub mod segments {
    layout! {
        // Softirqs of CPUs below this are known, as in libc's cpu_set_t.
        const MAX_CPUS = 1024;
        const COUNTS = 64;
        // Number of counts that are also kept by connection.
        const CONNECTION_COUNTS = 15;
        // Where a namespace is looked for: a hash table, a quarter full at most, and how far its number may be from its
        // own place.
        const PLACES = 256;
        const PROBES = 8;
        counts COUNTED {
            DATA_SKBS_SENT = data_skbs_sent,
            DATA_BYTES_SENT = data_skb_bytes_sent,
            DATA_SEGMENTS_SENT = data_wire_segments_sent,
            DATA_SQUARES_SENT = data_skb_squared_bytes_sent,
            PURE_ACKS_SENT = pure_acks_sent,
            DATA_SKBS_RECEIVED = data_skbs_received,
            DATA_BYTES_RECEIVED = data_skb_bytes_received,
            DATA_SEGMENTS_RECEIVED = data_wire_segments_received,
            DATA_SQUARES_RECEIVED = data_skb_squared_bytes_received,
            PURE_ACKS_RECEIVED = pure_acks_received,
            DATA_RUNS_SENT = data_bursts_sent,
            ACK_RUNS_SENT = ack_bursts_sent,
            DATA_RUNS_RECEIVED = data_bursts_received,
            ACK_RUNS_RECEIVED = ack_bursts_received,
            TAILS = tail_skbs_sent,
            DEVICE_SKBS = device_skbs_sent,
            DEVICE_FRAGMENTS = device_fragments_sent,
            BELOW_128 = skbs_sent_below_128_bytes,
            BELOW_256 = skbs_sent_below_256_bytes,
            BELOW_512 = skbs_sent_below_512_bytes,
            BELOW_1024 = skbs_sent_below_1024_bytes,
            BELOW_2048 = skbs_sent_below_2048_bytes,
            BELOW_4096 = skbs_sent_below_4096_bytes,
            BELOW_8192 = skbs_sent_below_8192_bytes,
            BELOW_16384 = skbs_sent_below_16384_bytes,
            BELOW_32768 = skbs_sent_below_32768_bytes,
            BELOW_65536 = skbs_sent_below_65536_bytes,
            FROM_65536 = skbs_sent_from_65536_bytes,
            SYSTEM_CALL_SKBS = drained_by_system_call_skbs,
            SYSTEM_CALL_BYTES = drained_by_system_call_bytes,
            NET_RX_SKBS = drained_by_net_rx_skbs,
            NET_RX_BYTES = drained_by_net_rx_bytes,
            TASKLET_SKBS = drained_by_tasklet_skbs,
            TASKLET_BYTES = drained_by_tasklet_bytes,
            TIMER_SKBS = drained_by_timer_skbs,
            TIMER_BYTES = drained_by_timer_bytes,
            OTHER_SKBS = drained_by_others_skbs,
            OTHER_BYTES = drained_by_others_bytes,
            WINDOW_ADVANCING_ACKS = window_advancing_acks_sent,
            ONLY_ACKNOWLEDGING_ACKS = only_acknowledging_acks_sent,
            DUPLICATE_ACKS = duplicate_acks_sent,
            LARGE_SKBS = large_skbs_sent,
            LARGE_BYTES = large_skb_bytes_sent,
        }
        // Counts of one namespace on one CPU. The last data skb handed down: of which socket, what comes next, and its MSS if
        // it was full.
        struct Cell align(64) {
            counts: u64 [COUNTS],
            socket: u64,
            next: u32,
            full_mss: u32,
        }
        // A namespace by its inode (0: none), whether it is counted, and which of the rows of cells is its own.
        struct Namespace align(4) {
            netns: u32,
            is_open: u32,
            row: u32,
        }
        // One CPU's words. `softirq`: the last softirq that did something, of those that send. `connections`: entries that
        // this CPU made in the table of connections.
        struct Cpu align(64) {
            softirq: u64,
            connections: u64,
        }
        // Set before loading. `cpus`: cells of a namespace.
        struct Targ align(4) {
            by_connection: u32,
            cpus: u32,
        }
    }
}

/// Layout of `ack_filter`.
pub mod ack_filter {
    layout! {
        const FLOWS = 4096;
        // Mark of what the flush sends: the flow is in the low bits.
        const FLUSH = 0x7acc0000;
        // Ethernet, IPv4, TCP and timestamps.
        const PACKET = 66;
        const ROOM = 80;
        const UNUSED = 12;
        struct Totals align(8) {
            passed: u64,
            held: u64,
            flushed: u64,
            next: u64,
            unused: u64 [UNUSED],
        }
        // owner: cookie of the socket. held_at_ns: when the oldest held ACK came; 0: none is held. seen: the highest
        // acknowledgement number that came here. left: the one that left last. edge: right edge of the window that
        // left with it. held_edge: and the one of the ACK held last. held: ACKs held since. version: odd while the
        // packet is written. length: of the packet, bytes. hole: whether the last to leave told of a hole: what fills
        // it leaves, too. 128 bytes in all; no gap, or clang takes it for initialised data.
        struct Flow align(8) {
            owner: u64,
            held_at_ns: u64,
            seen: u32,
            left: u32,
            edge: u32,
            held_edge: u32,
            held: u32,
            version: u32,
            length: u32,
            hole: u32,
            packet: u8 [ROOM],
        }
        struct Targ align(4) {
            acks: u32,
            segments: u32,
        }
    }
}

/// Layout of `profile`.
pub mod profile {
    layout! {
        // PERF_MAX_STACK_DEPTH.
        const FRAMES = 127;
        const COMM = 16;
        // The stacks by their hashes; 0: none.
        struct Key align(8) {
            kernel_stack: u64,
            user_stack: u64,
            tgid: u32,
            comm: u8 [COMM],
            unused: u32,
        }
        // Innermost first; 0 after the last.
        struct Stack align(8) {
            frames: u64 [FRAMES],
        }
    }
}
