//! Knobs that a study may set, one row each.

use crate::ack_policies::{AckKind, counts_segments, has_limits};
use crate::choices::{
    Carrier, Cork, FileSpread, ReceiveWith, Segmentation, SendWith, TailSplit, WaitsBy,
    WindowGrowth, WorkloadKind,
};
use crate::kernel_name::SysctlName;
use crate::pattern::Pattern;
use crate::program::{Operation, Program};
use crate::relay_mode::KNOB_WORDS;
use crate::row::{
    AppliesTo, CheckedEnds, KernelSupport, Knob, KnobCondition, Need, Required, UserKnob,
    UserSupport, ValueKind, bed, is, is_not, link, requires, tcp, wire, workload,
};
use crate::value::Value;

/// Row of a sysctl. Sysctls have none in [`KNOBS`], because only the kernel has a list of them.
pub(crate) const SYSCTL: Knob = Knob {
    or_word: None,
    default: "",
    ..link(
        "sysctl",
        ValueKind::Text,
        KernelSupport::AnySysctl,
        "A sysctl of the end.",
    )
};

/// Need of knobs that apply only to named hosts.
const NAMED: &[Need] =
    &[Need::any_of(&[requires("reach", Required::Set)]).because("[hosts] names hosts")];
const TRANSACTIONS: Need = Need::any_of(&[is("workload", &["rr", "crr", "program"])]);
const REQUESTS: Need = Need::any_of(&[is("workload", &["rr", "crr"])])
    .because("a stream has no requests, and its bytes per call are write_size (in [workload] the key is kind)");
const STREAMS: Need = Need::any_of(&[is("workload", &["stream", "maerts", "bidirectional"])]);
/// Ways to send for which epoll reports when the kernel no longer needs the lent memory.
const COMPLETED: &[&str] = &["zerocopy", "mmap+zerocopy", "uring-send-zc"];
/// Ways to send from files: `SendWith::is_from_files`.
const FROM_FILES: &[&str] = &[
    "read+write",
    "read+send",
    "mmap+send",
    "mmap+zerocopy",
    "sendfile",
    "sendfile-memfd",
    "splice",
    "uring-splice",
];
/// Values of `io` that have their own calls.
const OWN_CALLS: &[&str] = &["io-uring", "blocking-threads"];
const ONE_CALL: &str =
    "its threads send by send and receive by read: leave send_with and receive_with out";
const LINUX_LIKE: &[Need] =
    &[Need::any_of(&[is("ack_policy", &["linux-like"])]).at(CheckedEnds::User)];
const AVOIDANCE: &[Need] = &[Need::any_of(&[requires(
    "ack_policy",
    Required::Satisfies(has_limits),
)])];
const SUPER_SEGMENTS: Need = Need::any_of(&[is_not("super_segment", &["0B"])]);
const NOT_EVERY: KnobCondition = is_not("ack_policy", &["every"]);
const REGIME: &[Need] = &[
    Need::any_of(&[is_not("segmentation", &["software-gso", "tso"])])
        .because("these values set tso and gso"),
];

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Rows of all knobs, in the order of the documentation. Sysctls (`sysctl.NAME`) are knobs, too,
/// but have no rows: only the kernel has a list of them.
pub const KNOBS: &[Knob] = &[
    Knob {
        key: "kind",
        ..workload(
            "workload",
            ValueKind::Choice(WorkloadKind::WORDS),
            "stream",
            "The traffic: `stream` (client sends), `maerts` (server sends), `bidirectional`, `rr` (request/response on standing connections), `crr` (connect, request, response, close), `program` (what `program` says).",
        )
        .needs(&[Need::any_of(&[requires("program", Required::Set)]).when(&["program"])])
        .of_group()
    },
    Knob {
        or_word: Some("none"),
        ..workload(
            "program",
            ValueKind::Program,
            "none",
            "Operations that each connection repeats, from the view of the side that connects, or, if they begin with `accept`, of the side that listens (docs/study-file.md); the other side does the mirror image.",
        )
        .needs(&[Need::any_of(&[is("workload", &["program"])])])
        .of_group()
    },
    Knob {
        or_word: Some("all"),
        ..workload(
            "on",
            ValueKind::Text,
            "all",
            "The host, or the set of hosts, that opens the connections: one of those that connect in the topology.",
        )
        .of_group()
    },
    Knob {
        or_word: Some("all"),
        ..workload(
            "to",
            ValueKind::Text,
            "all",
            "The host that they go to: the one that listens in the topology.",
        )
        .of_group()
    },
    workload(
        "flows",
        ValueKind::Count(1, 30_000),
        "1",
        "Connections of each host that opens some, distributed round-robin over the client's threads. For `crr` and programs that connect, connections at a time.",
    )
    .of_group(),
    workload(
        "threads",
        ValueKind::Count(0, 1024),
        "0",
        "Worker threads per end, each with its own epoll, or with an instance of our own TCP (a queue of the TAP each; in memory both ends have as many); 0 is one for each CPU of the end.",
    )
    .needs(&[Need::any_of(&[requires("flows", Required::AtLeast)])]),
    workload(
        "io",
        ValueKind::Choice(WaitsBy::WORDS),
        "epoll",
        "How a thread waits: `epoll`, one thread of `threads` for many connections; `blocking-threads`, a thread for each connection (of `crr`, for each at a time), which waits in send(2), recv(2) and accept(2), as in netperf and uperf. Its context switches are those of the program measured. `io-uring`, one thread of `threads` for many connections, with a ring in place of epoll: accept and receive are asked for once (multishot), bytes come in provided buffers, and the sends of a turn are handed over by the one io_uring_enter(2) that waits. `visits`, one thread of `threads` that asks nobody which connection is ready, but tries send(2) and recv(2) of each in turn, and never sleeps, as programs do that poll: with many connections most tries find nothing.",
    )
    .needs(&[
        Need::any_of(&[]).at(CheckedEnds::User).when(&["io-uring"]).because("our TCP makes no system calls for its connections"),
        Need::any_of(&[]).at(CheckedEnds::User).when(&["blocking-threads"]).because("our TCP has a thread an instance, which polls it"),
        Need::any_of(&[is("threads", &["0"])]).when(&["blocking-threads"]).because("it has a thread for each connection"),
        Need::any_of(&[]).at(CheckedEnds::User).when(&["visits"]).because("our TCP has no calls that find nothing: the thread is its stack"),
        Need::any_of(&[is("workload", &["stream", "maerts", "bidirectional", "rr"])]).when(&["visits"]).because("connections stay open"),
        Need::any_of(&[is_not("placement", &["same-cpu"])]).when(&["visits"]).because("the other end needs a CPU"),
        Need::any_of(&[is_not("send_with", COMPLETED)]).when(&["visits"]).because("epoll reports when lent buffers are free"),
        Need::strict(OWN_CALLS, &[is("send_with", &["send"])]).because(ONE_CALL),
        Need::strict(OWN_CALLS, &[is("receive_with", &["read"])]).because(ONE_CALL),
        Need::strict(OWN_CALLS, &[requires("program", Required::ValueSatisfies(has_no_calls, "without with"))]),
        Need::strict(&["io-uring"], &[is_not("cork", &["on"])])
            .because("sends are handed over later than TCP_CORK would be set and cleared: use cork = \"msg-more\""),
        Need::strict(&["blocking-threads"], &[is("cork", &["off"])]).because("threads do not cork"),
        Need::strict(&["blocking-threads"], &[is_not("workload", &["bidirectional"])])
            .because("a thread cannot send and receive at a time: use rr, or two groups"),
        Need::strict(&["blocking-threads"], &[is("in_flight", &["1"])]).because("threads wait for each response"),
        Need::strict(&["blocking-threads"], &[is_not("workload", &["maerts"]), requires("rate", Required::Unset)])
            .because("the side that connects keeps the rate"),
    ]),
    workload(
        "write_size",
        ValueKind::Bytes(1, 64 * MIB),
        "64KiB",
        "Bytes handed to the kernel per call. A shorter message is one call; a longer one is cut.",
    )
    .of_group(),
    workload(
        "read_size",
        ValueKind::Bytes(1, 64 * MIB),
        "64KiB",
        "Size of the reader's buffer. 64 KiB because it stays in the L2 cache: 128 KiB reads tripled a receiver's CPU on one machine.",
    )
    .of_group(),
    workload(
        "request_size",
        ValueKind::Bytes(1, 64 * MIB),
        "1B",
        "Bytes of a request (`rr`, `crr`).",
    )
    .needs(&[REQUESTS])
    .of_group(),
    workload(
        "response_size",
        ValueKind::Bytes(1, 64 * MIB),
        "1B",
        "Bytes of a response (`rr`, `crr`).",
    )
    .needs(&[REQUESTS])
    .of_group(),
    workload(
        "in_flight",
        ValueKind::Count(1, 1024),
        "1",
        "Requests outstanding per connection (`rr`).",
    )
    .needs(&[Need::any_of(&[is("workload", &["rr"])])])
    .of_group(),
    Knob {
        or_word: Some("unlimited"),
        needs: &[STREAMS.because("for rr, crr and programs set transaction_rate = \"10000/s\"")],
        ..workload(
            "rate",
            ValueKind::BitRate,
            "unlimited",
            "Payload per second over all flows and in each sending direction (`stream`, `maerts`, `bidirectional`): equal work, so that CPU can be compared. `unlimited` is CPU-bound.",
        )
        .of_group()
    },
    Knob {
        or_word: Some("unlimited"),
        needs: &[TRANSACTIONS.because("for a stream set rate = \"941Mbit\"")],
        ..workload(
            "transaction_rate",
            ValueKind::EventRate,
            "unlimited",
            "Transactions per second over all flows (`rr`, `crr`; rounds of a program). Response times then count from the time a request was due, so a stall is not hidden.",
        )
        .of_group()
    },
    workload(
        "send_with",
        ValueKind::Choice(SendWith::WORDS),
        "send",
        "The call that sends payload. From memory: `write`, `send`, `zerocopy` (MSG_ZEROCOPY), `uring-send`, `uring-send-zc` (a registered buffer). From files: `read+write` and `read+send` through a buffer, `mmap+send`, `mmap+zerocopy`, `sendfile` from a file on disk or from a memfd, `splice` and `uring-splice` through a pipe. Whether the kernel copied after all what it was lent is reported.",
    )
    .needs(&[
            Need::any_of(&[]).at(CheckedEnds::UserSender).when(&["write"]).because(
                "our TCP sends by \"write\" as by \"send\"",
            ),
            Need::any_of(&[]).at(CheckedEnds::UserSender).when(&["read+write"]).because(
                "our TCP sends by it as by \"read+send\"",
            ),
            Need::any_of(&[]).at(CheckedEnds::UserSender).when(&["sendfile-memfd", "splice", "mmap+zerocopy"]).because(
                "our TCP sends by it as by \"sendfile\", out of a mapped file",
            ),
            Need::any_of(&[]).at(CheckedEnds::UserSender).when(&["uring-send", "uring-send-zc", "uring-splice"]).because(
                "io_uring is the kernel's",
            ),
        ])
    .of_group(),
    workload(
        "receive_with",
        ValueKind::Choice(ReceiveWith::WORDS),
        "read",
        "The call that takes payload: `read`, `recv-trunc` (MSG_TRUNC: nothing is copied), `splice` (to /dev/null through a pipe), `zerocopy` (TCP_ZEROCOPY_RECEIVE: whole pages are mapped, the rest is read; the share is reported; with `rcvlowat` of many pages more is mapped).",
    )
    .needs(&[
            Need::any_of(&[]).at(CheckedEnds::UserReceiver).when(&["zerocopy"]).because(
                "our TCP lends memory by \"splice\"",
            ),
        ])
    .of_group(),
    workload(
        "file_size",
        ValueKind::Bytes(4096, GIB),
        "16MiB",
        "Size of the file, or of each of `files`, that is sent over and over; 16 MiB is more than an L2 cache and less than most last-level ones. The files are in the page cache; file_cached_ratio tells.",
    )
    .needs(&[Need::any_of(&[is("send_with", FROM_FILES)])])
    .of_group(),
    workload(
        "files",
        ValueKind::Count(1, 4096),
        "1",
        "Files that are sent one after the other over a connection, each of `file_size`; no call crosses a file's end (Morton 2001 sent 63 of 350 KB).",
    )
    .needs(&[
        Need::any_of(&[is("send_with", FROM_FILES)]),
        Need::any_of(&[is_not("workload", &["crr"])]).because("each connection begins with the file's head"),
    ])
    .of_group(),
    workload(
        "file_sizes",
        ValueKind::Choice(FileSpread::WORDS),
        "equal",
        "Sizes of `files`: all `file_size`, or mixed with that mean: seven in turn have an eighth, a quarter, a half, 7/8, 5/4, 7/4 and 9/4 of it.",
    )
    .needs(&[
        Need::any_of(&[is("send_with", FROM_FILES)]),
        Need::any_of(&[is_not("files", &["1"])]).when(&["mixed"]),
    ])
    .of_group(),
    workload(
        "cork",
        ValueKind::Choice(Cork::WORDS),
        "off",
        "`on`: TCP_CORK around each message (for a stream: all along). `msg-more`: MSG_MORE on every call but a message's last (for a stream: on every call).",
    )
    .needs(&[Need::any_of(&[is_not("send_with", &["write", "read+write", "sendfile", "sendfile-memfd"])])
            .when(&["msg-more"])
            .because("these calls take no MSG_MORE; use send_with = \"send\", or cork = \"on\"")])
    .of_group(),
    workload(
        "nodelay",
        ValueKind::Switch,
        "off",
        "TCP_NODELAY; off is the kernel's default, so Nagle's rule holds.",
    ),
    Knob {
        or_word: Some("auto"),
        ..workload(
            "send_buffer",
            ValueKind::Bytes(2048, GIB),
            "auto",
            "SO_SNDBUF as asked for (the kernel doubles it); `auto` leaves the kernel's tuning on.",
        )
    },
    Knob {
        or_word: Some("auto"),
        ..workload(
            "receive_buffer",
            ValueKind::Bytes(2048, GIB),
            "auto",
            "SO_RCVBUF as asked for (the kernel doubles it); `auto` leaves the kernel's tuning on.",
        )
    },
    workload(
        "protocol",
        ValueKind::Choice(&["tcp", "mptcp"]),
        "tcp",
        "`mptcp`: Multipath TCP (RFC 8684) of the kernel, one subflow unless the host has more endpoints.",
    ),
    workload(
        "congestion_control",
        ValueKind::Text,
        "reno",
        "TCP_CONGESTION. `reno` is in every kernel, open to every user, and does not pace; bbr paces and so measures its timers.",
    ),
    workload(
        "check",
        ValueKind::Switch,
        "off",
        "Compare every payload byte on arrival with what was sent; costs the receiver a pass over the data, so off where cost is measured.",
    )
    .needs(&[Need::any_of(&[is("receive_with", &["read"])])
            .when(&["on"])
            .because("it compares what was read"),
        Need::strict(&["on"], &[requires("program", Required::ValueSatisfies(only_reads, "that receives by read"))])
            .because("it compares what was read")])
    .of_group(),
    workload(
        "placement",
        ValueKind::Choice(&["two-cpus", "same-cpu", "smt-sibling", "cpu-each", "one-thread"]),
        "two-cpus",
        "Placement of a machine's hosts if `cpus` is not set: those that connect on one CPU (core) and those that listen on another, all on one, on two threads of one core, or each host on a CPU of its own. A host in the middle has a CPU of its own where there is one to spare, else that of those who connect. `one-thread`: the two ends take turns in one thread of one process, so that no thread is woken, and no scheduler decides how much one end does before the other has its turn; of two hosts with one kind of TCP on one machine.",
    )
    .needs(&[
        Need::any_of(&[is("threads", &["0", "1"])]).when(&["one-thread"]),
        Need::any_of(&[is("io", &["epoll", "visits"])]).when(&["one-thread"]).because("a thread that has two ends must not wait for one of them"),
    ]),
    Knob {
        key: "kind",
        ..bed(
            "bed",
            ValueKind::Choice(&["auto", "netns", "loopback", "tap", "memory", "hosts"]),
            "auto",
            "`netns`: two network namespaces joined by a veth pair, receive work steered to each end's CPUs, so that CPU accounting is per host. `loopback`: this host's own. `tap`: our TCP at one end, the kernel's at the other, a TAP between their namespaces. `memory`: our TCP at both ends, in one process. `hosts`: devices of the hosts that `[hosts]` names, as they are. `auto`: `hosts` where hosts are named, else what `stack` asks for; for the kernel's at both ends `netns` where it can be had.",
        )
    },
    bed(
        "topology",
        ValueKind::Choice(&["pair", "star", "chain"]),
        "pair",
        "The hosts of `netns`: `pair` (`client` and `server`), `star` (`client1` to `clientN`, together `clients`, each with a link of its own to `server` and each with the workload), `chain` (`client`, `relay`, `server`; the one in the middle forwards).",
    ),
    bed("clients", ValueKind::Count(1, 200), "3", "Clients of a `star`.")
        .needs(&[Need::any_of(&[is("topology", &["star"])])]),
    bed(
        "relay_mode",
        ValueKind::Choice(&KNOB_WORDS),
        "forward",
        "What the host in the middle of a `chain` does: `forward` packets, or end the client's connections and make its own to the server, as `tcpcost relay --mode` does by the same word (docs/live.md); `user`: by our own TCP, over a TAP to each side, with the knobs of our TCP as those of `relay` (`relay.ack_policy`).",
    )
    .needs(&[Need::any_of(&[is("topology", &["chain"])])]),
    bed("ip", ValueKind::Choice(&["v4", "v6"]), "v4", "IPv4 or IPv6."),
    Knob {
        or_word: Some("bed"),
        per_end: true,
        ..bed(
            "reach",
            ValueKind::Reach,
            "bed",
            "How a host's agent is started, of a host that `[hosts]` names (docs/hosts.md): by the command itself, where it is (`local`) or in a network namespace of its own (`netns`), which `device` is moved to; by the user's ssh; behind the words of a command, such as `kubectl exec -i POD --`; joined to one that runs already, by the words of a command such as `kubectl attach -i -q POD`; on the node of this name of a Slurm allocation.",
        )
    },
    Knob {
        or_word: Some("auto"),
        per_end: true,
        ..bed(
            "device",
            ValueKind::Device,
            "auto",
            "The device of a host that `[hosts]` names; `auto` is the one with `address`, else the only one that is up, else that of the default route.",
        )
        .needs(NAMED)
    },
    Knob {
        or_word: Some("auto"),
        per_end: true,
        ..bed(
            "address",
            ValueKind::Address,
            "auto",
            "The address by which the others reach the host: one that `device` has; `auto` is its first global one of `ip`. Data connections are listened for there and nowhere else.",
        )
        .needs(NAMED)
    },
    Knob {
        or_word: Some("auto"),
        per_end: true,
        ..bed(
            "data_ports",
            ValueKind::Ports,
            "auto",
            "Ports at which the host listens for data connections, those that its firewall must let through: one for each thread and group of connections, and one more for each 20,000 connections of a group; `auto` leaves the choice to the kernel (`net.ipv4.ip_local_port_range`).",
        )
        .needs(NAMED)
    },
    bed(
        "pattern",
        ValueKind::Choice(Pattern::WORDS),
        "auto",
        "Pattern of connections among the hosts in `[hosts]`, in the order of their names and numbers: `pairs` (a client and a server each; of hosts with other names the first and the second, the third and the fourth), `many-to-one` (to the only server; else to the first), `one-to-many` (from the only client; else from the first), `all-to-all`, `ring`. Of the last two each host that is neither client nor server takes part twice, as `NAME`, which connects, and as `in-NAME`, which listens. `auto`: what the numbers of clients and servers leave, else `pairs`.",
    )
    .needs(NAMED),
    Knob {
        or_word: Some("auto"),
        per_end: true,
        ..bed(
            "cpus",
            ValueKind::Cpus,
            "auto",
            "CPUs of the host's threads; `auto` follows `placement`. `client_cpus` and `server_cpus` are old names of `client.cpus` and `server.cpus`.",
        )
    },
    Knob {
        per_end: true,
        ..bed(
            "stack",
            ValueKind::Choice(&["kernel", "user"]),
            "kernel",
            "TCP of an end: the kernel's, or our own in user space, one thread for each end. The host in the middle of a `chain` has ours by `relay_mode`.",
        )
    },
    Knob {
        applies_to: AppliesTo::Link(KernelSupport::Device("device"), UserSupport::Supported(UserKnob::Mtu)),
        ..link(
            "mtu",
            ValueKind::Bytes(576, 65535),
            KernelSupport::Device("device"),
            "MTU of the device in bytes; veth starts at 1500, loopback at 65536. Of our TCP, the MTU less 40 is its MSS.",
        )
    },
    link(
        "segmentation",
        ValueKind::Choice(Segmentation::WORDS),
        KernelSupport::Device("device"),
        "Place of segmentation: `per-mss` (gso_max_segs 1: one skb per MSS through TCP's output path, as in 2005), `software-gso` (tso off, gso on: TCP builds super-segments, the kernel cuts them before the device), `tso` (the device gets super-segments).",
    ),
    link(
        "tso",
        ValueKind::Switch,
        KernelSupport::Device("ethtool"),
        "TCP segmentation offload (ethtool tso).",
    )
    .needs(REGIME),
    link(
        "gso",
        ValueKind::Switch,
        KernelSupport::Device("ethtool"),
        "Generic segmentation offload (ethtool gso).",
    )
    .needs(REGIME),
    link(
        "gro",
        ValueKind::Switch,
        KernelSupport::Device("ethtool"),
        "Generic receive offload (ethtool gro). veth starts with it off.",
    )
    .needs(&[Need::any_of(&[NOT_EVERY])
        .at(CheckedEnds::Kernel)
        .when(&["on"])
        .because("the kernel's \"every\" needs it off")]),
    link(
        "sg",
        ValueKind::Switch,
        KernelSupport::Device("ethtool"),
        "Scatter-gather (ethtool sg); off also takes tso away, as the kernel has it.",
    ),
    link(
        "tx_checksum",
        ValueKind::Switch,
        KernelSupport::Device("ethtool"),
        "Transmit checksum offload (ethtool tx-checksumming); off also takes sg and tso away.",
    ),
    link(
        "gso_max_segs",
        ValueKind::Count(1, 65535),
        KernelSupport::Device("device"),
        "Most segments in one super-segment (ip link gso_max_segs).",
    )
    .needs(&[Need::any_of(&[is_not("segmentation", &["per-mss"])]).because("that is gso_max_segs 1")]),
    link(
        "gso_max_size",
        ValueKind::Bytes(1500, 524_280),
        KernelSupport::Device("device"),
        "Most bytes in one super-segment, IPv4's limit included (ip link gso_max_size, gso_ipv4_max_size).",
    ),
    link(
        "gro_max_size",
        ValueKind::Bytes(1500, 524_280),
        KernelSupport::Device("device"),
        "Most bytes that GRO merges, IPv4's limit included (ip link gro_max_size, gro_ipv4_max_size); more than 64 KiB, with `gso_max_size`, is BIG TCP.",
    ),
    link(
        "rx_ring",
        ValueKind::Count(1, 65535),
        KernelSupport::RealDevice("ethtool"),
        "Descriptors of each receive ring of a device that has rings (ethtool -g), as many as the driver takes.",
    ),
    link(
        "tx_ring",
        ValueKind::Count(1, 65535),
        KernelSupport::RealDevice("ethtool"),
        "Descriptors of each transmit ring (ethtool -g).",
    ),
    link(
        "rx_usecs",
        ValueKind::Count(0, 1_000_000),
        KernelSupport::RealDevice("ethtool"),
        "Time for which a device keeps a receive interrupt back, µs (ethtool -c); of a driver that adapts it, after `adaptive_rx = 0`.",
    ),
    link(
        "rx_frames",
        ValueKind::Count(0, 1_000_000),
        KernelSupport::RealDevice("ethtool"),
        "Packets received for which it keeps one back at most (ethtool -c).",
    ),
    link(
        "tx_usecs",
        ValueKind::Count(0, 1_000_000),
        KernelSupport::RealDevice("ethtool"),
        "Time for which a device keeps a transmit interrupt back, µs (ethtool -c).",
    ),
    link(
        "adaptive_rx",
        ValueKind::Count(0, 1),
        KernelSupport::RealDevice("ethtool"),
        "Adaptive moderation (ethtool -c): 1 if the driver chooses `rx_usecs`, else 0.",
    ),
    link(
        "channels",
        ValueKind::Count(1, 4096),
        KernelSupport::RealDevice("ethtool"),
        "Queues of the device that take interrupts of their own, so many of each way (ethtool -L): combined ones where it has such.",
    ),
    link(
        "rss_queues",
        ValueKind::Count(1, 4096),
        KernelSupport::RealDevice("ethtool"),
        "Receive queues among which the device spreads flows by their hash, from the first (ethtool -X equal).",
    ),
    link(
        "irq_cpus",
        ValueKind::Cpus,
        KernelSupport::RealDevice("proc"),
        "CPUs on which the device's interrupts arrive, each on one of them in turn (/proc/irq/NUMBER/smp_affinity_list). irqbalance moves them again.",
    ),
    link(
        "threaded_napi",
        ValueKind::Switch,
        KernelSupport::RealDevice("sysfs"),
        "Receive work of the device in kernel threads of its own instead of softirqs (/sys/class/net/DEVICE/threaded).",
    )
    .needs(&[Need::any_of(&[is("steering", &["off"])]).because("steering moves the same work")]),
    link(
        "qdisc",
        ValueKind::Choice(&["pfifo_fast", "pfifo", "bfifo", "fq", "fq_codel", "cake", "sfq"]),
        KernelSupport::OwnDevice("netlink"),
        "The queueing discipline at the root of what the end sends, with its defaults; a veth has none.",
    )
    .needs(&[Need::any_of(&[requires("bottleneck", Required::Unset)]).because("a bottleneck is a tbf")]),
    Knob {
        or_word: Some("none"),
        default: "none",
        ..link(
            "bottleneck",
            ValueKind::BitRate,
            KernelSupport::OwnDevice("tbf"),
            "Rate of a token bucket (tbf) on what the end sends; counts Ethernet frames.",
        )
    },
    Knob {
        or_word: None,
        default: "1MiB",
        ..link(
            "bottleneck_queue",
            ValueKind::Bytes(1500, GIB),
            KernelSupport::OwnDevice("tbf"),
            "Bytes that may wait in the bottleneck's queue.",
        )
    }
    .needs(&[Need::any_of(&[requires("bottleneck", Required::Set)])]),
    wire(
        "delay",
        ValueKind::Time(0, 10_000),
        "0ms",
        "Time that what the end sends is on the wire.",
    ),
    wire(
        "jitter",
        ValueKind::Time(0, 10_000),
        "0ms",
        "At most so much more than `delay`, evenly spread; nothing overtakes.",
    ),
    wire(
        "loss",
        ValueKind::Share,
        "0%",
        "Share of the end's packets that the wire loses, each independently.",
    ),
    Knob {
        or_word: Some("none"),
        ..wire(
            "reorder",
            ValueKind::Share,
            "none",
            "Share of the packets that are kept back by `reorder_delay`, while later ones pass.",
        )
    },
    wire(
        "reorder_delay",
        ValueKind::Time(0, 10_000),
        "1ms",
        "How long these are kept back.",
    )
    .needs(&[Need::any_of(&[requires("reorder", Required::Set)])]),
    wire(
        "duplicate",
        ValueKind::Share,
        "0%",
        "Share of the packets that arrive twice.",
    ),
    Knob {
        or_word: Some("unlimited"),
        ..wire(
            "wire_rate",
            ValueKind::BitRate,
            "unlimited",
            "Rate of the wire, Ethernet frames; the qdisc's is `bottleneck`.",
        )
    },
    wire(
        "wire_queue",
        ValueKind::Bytes(1500, GIB),
        "1MiB",
        "Bytes that may wait for `wire_rate`; more is dropped.",
    )
    .needs(&[Need::any_of(&[requires("wire_rate", Required::Set)])]),
    Knob {
        or_word: Some("auto"),
        per_end: false,
        ..wire(
            "carrier",
            ValueKind::Choice(Carrier::WORDS),
            "auto",
            "Implementation of the wire if a knob of the wire is set (`delay` to `wire_queue`): `own`, a wire of tcpcost's (a process between two namespaces, in front of the device of our TCP), or `netem` of the kernel, between two namespaces. `auto`: netem where the kernel has it and what is set means the same there (delay; loss and duplicates of `per-mss` segments), else our own. The record says which.",
        )
    }
    .needs(&[Need::any_of(&[])
        .at(CheckedEnds::User)
        .when(&["netem"])
        .because("netem is between two ends of the kernel's TCP")]),
    link(
        "quickack",
        ValueKind::Switch,
        KernelSupport::OwnDevice("route"),
        "`quickack 1` on the route: the end acknowledges every segment at once.",
    )
    .needs(&[Need::any_of(&[NOT_EVERY])
        .at(CheckedEnds::Kernel)
        .when(&["off"])
        .because("the kernel's \"every\" is made of quickack")]),
    link(
        "ack_filter",
        ValueKind::Count(1, 64),
        KernelSupport::OwnDevice("eBPF"),
        "Ratio of the ACK filter: only every n-th pure ACK of the kernel's TCP leaves the device (eBPF at tc egress; docs/acks-and-segments.md says which ACKs are never held, and when a held one is sent after all). With `quickack = \"on\"`, `gro = \"off\"` and the peer's `segmentation = \"per-mss\"` that is n segments per ACK.",
    )
    .needs(&[Need::any_of(&[NOT_EVERY])
        .at(CheckedEnds::Kernel)
        .because("the kernel's \"every\" has its own filter")]),
    Knob {
        applies_to: AppliesTo::Tcp(
            KernelSupport::SocketOption("SO_RCVLOWAT"),
            UserSupport::Unsupported("our TCP does not have it"),
        ),
        ..link(
            "rcvlowat",
            ValueKind::Bytes(1, GIB),
            KernelSupport::SocketOption("SO_RCVLOWAT"),
            "The kernel wakes the reader only when so much can be read. Of streams alone: the rest of a message would never be read.",
        )
    }
    .needs(&[STREAMS]),
    Knob {
        applies_to: AppliesTo::Tcp(
            KernelSupport::SocketOption("TCP_ULP"),
            UserSupport::Unsupported("our TCP has no TLS"),
        ),
        ..link(
            "ktls",
            ValueKind::Switch,
            KernelSupport::SocketOption("TCP_ULP"),
            "Kernel TLS by AES-128-GCM with one fixed key at both ends, in software: what sealing costs on each path. One end alone is not understood by the other. For no secrets.",
        )
    },
    Knob {
        applies_to: AppliesTo::Tcp(
            KernelSupport::SocketOption("TCP_NOTSENT_LOWAT"),
            UserSupport::Unsupported("our TCP does not have it"),
        ),
        ..link(
            "notsent_lowat",
            ValueKind::Bytes(1, GIB),
            KernelSupport::SocketOption("TCP_NOTSENT_LOWAT"),
            "The kernel calls a socket writable only while fewer bytes of it wait to be sent: less memory, and what is written is sent sooner.",
        )
    },
    Knob {
        applies_to: AppliesTo::Tcp(
            KernelSupport::SocketOption("SO_MAX_PACING_RATE"),
            UserSupport::Unsupported("ours is `pacing_rate`"),
        ),
        ..link(
            "max_pacing_rate",
            ValueKind::BitRate,
            KernelSupport::SocketOption("SO_MAX_PACING_RATE"),
            "The kernel sends a connection's packets no faster, headers included: by a timer of TCP's own, or by the qdisc fq where there is one.",
        )
    },
    Knob {
        applies_to: AppliesTo::Tcp(
            KernelSupport::Sysctl("net.ipv4.tcp_ecn", |place| place),
            UserSupport::Unsupported("our TCP has no ECN"),
        ),
        ..link(
            "ecn",
            // The numbers 0, 1, 2 and 3, in the order of the words.
            ValueKind::Choice(&["off", "on", "passive", "accecn"]),
            KernelSupport::Sysctl("net.ipv4.tcp_ecn", |place| place),
            "Explicit congestion notification (RFC 3168): `on` asks for it, `passive`, Linux's default, agrees to it, `accecn` is RFC 9768's, of kernels that have it.",
        )
    },
    tcp(
        "ack_policy",
        ValueKind::Choice(AckKind::WORDS),
        KernelSupport::AckPolicies,
        UserKnob::AckPolicy,
        "When an end acknowledges: docs/acks-and-segments.md has each. Our own default is `delayed`; the kernel's is `linux-like`.",
    ),
    tcp(
        "ack_segments",
        ValueKind::Count(1, 64),
        KernelSupport::OwnDevice("of `every`: eBPF"),
        UserKnob::AckSegments,
        "Wire segments per ACK of `every` and `exactly` (2), where the limit of `avoidance` ends (22), the most that `on-read` leaves unacknowledged (64), what `requested` asks its peer for (8). Never more than half the window.",
    )
    .needs(&[
        Need::any_of(&[requires("ack_policy", Required::Satisfies(counts_segments))]),
        Need::any_of(&[
            requires("ack_limit_max", Required::Unset),
            is_not("ack_policy", &["avoidance"]),
        ]),
    ]),
    tcp(
        "ack_delay",
        ValueKind::Time(1, 499),
        KernelSupport::SocketOption("TCP_DELACK_MAX_US"),
        UserKnob::AckDelay,
        "Longest wait of an ACK; 40ms, for `linux-like` 200ms, for `avoidance` 50ms.",
    )
    .needs(&[
        Need::any_of(&[NOT_EVERY])
            .at(CheckedEnds::Kernel)
            .because("the kernel's \"every\" delays none"),
        Need::any_of(&[is_not("quickack", &["on"])])
            .at(CheckedEnds::Kernel)
            .because("quickack delays none"),
    ]),
    tcp(
        "ack_limit_initial",
        ValueKind::Count(0, 64),
        KernelSupport::Unsupported("the kernel's TCP has no policy \"avoidance\""),
        UserKnob::AckLimitInitial,
        "Where the limit of `avoidance` begins: 1 as on HP-UX in 2005, 0 as in illumos.",
    )
    .needs(AVOIDANCE),
    tcp(
        "ack_limit_max",
        ValueKind::Count(1, 64),
        KernelSupport::Unsupported("the kernel's TCP has no policy \"avoidance\""),
        UserKnob::AckLimitMax,
        "Where the limit of `avoidance` ends: 22 as on HP-UX; illumos has 8 for neighbours, 2 through a router.",
    )
    .needs(AVOIDANCE),
    tcp(
        "comp_sack_nr",
        ValueKind::Count(0, 255),
        KernelSupport::Sysctl("net.ipv4.tcp_comp_sack_nr", |acks| acks),
        UserKnob::CompSackNr,
        "Limit on ACKs after a gap that are omitted in a row, 44; 0 omits none.",
    )
    .needs(LINUX_LIKE),
    tcp(
        "comp_sack_delay_us",
        ValueKind::Count(0, 499_000),
        KernelSupport::Sysctl("net.ipv4.tcp_comp_sack_delay_ns", |us| us * 1000),
        UserKnob::CompSackDelay,
        "Longest wait in microseconds of the first ACK that is omitted after a gap, 1000; 5 % of the round trip if that is less.",
    )
    .needs(LINUX_LIKE),
    tcp(
        "backlog_ack_defer",
        ValueKind::Switch,
        KernelSupport::Sysctl("net.ipv4.tcp_backlog_ack_defer", |on| on),
        UserKnob::BacklogAckDefer,
        "One ACK for all segments that arrived during the application's turn, on; off: one for each, as in Linux before 6.7.",
    )
    .needs(LINUX_LIKE),
    tcp(
        "segmentation_rules",
        ValueKind::Choice(&["plain", "linux"]),
        KernelSupport::Fixed("linux", "the kernel's TCP has its own rules"),
        UserKnob::SegmentationRules,
        "How our TCP sizes super-segments: `plain` fills the windows and sets PSH where the queue ends; `linux`, as Linux 6.18, takes half the congestion window and a millisecond of the rate at most, sets PSH on each super-segment, and has `tso_win_divisor` 3 unless that is set.",
    ),
    tcp(
        "tail_split",
        ValueKind::Choice(TailSplit::WORDS),
        KernelSupport::Fixed(
            "keep",
            "the kernel's is fixed; `gso_max_segs = 2` does the same to messages of three segments",
        ),
        UserKnob::TailSplit,
        "`split`: a partial segment behind full ones leaves by itself, Nagle's rule is not asked about it, and only what is shorter than a segment is remembered as small (Linux before 3.14). `keep`: it leaves with them unless Nagle's rule holds it, and is remembered (Dumazet 2013; the default of both stacks).",
    ),
    tcp(
        "tso_win_divisor",
        ValueKind::Count(0, 64),
        KernelSupport::Sysctl("net.ipv4.tcp_tso_win_divisor", |divisor| divisor),
        UserKnob::TsoWinDivisor,
        "A sender waits until this fraction of its window is free before it sends less than a whole super-segment (0: more than three segments), as long as an ACK is due within a millisecond and half a round trip. Linux: 3; ours does not wait unless set.",
    ),
    tcp(
        "super_segment",
        ValueKind::Bytes(0, 65_535),
        KernelSupport::Unsupported("the kernel's is `gso_max_size`"),
        UserKnob::SuperSegment,
        "Most payload that our TCP hands to its device at once, 65160B; 0 for ordinary segments, as over a device without segmentation offload.",
    ),
    tcp(
        "tso_min_segs",
        ValueKind::Count(1, 45),
        KernelSupport::Sysctl("net.ipv4.tcp_min_tso_segs", |segments| segments),
        UserKnob::TsoMinSegs,
        "Smallest super-segment under pacing, which makes super-segments a millisecond of the rate; 2 segments.",
    )
    .needs(&[
        Need::any_of(&[is("pacing", &["timer"])]).at(CheckedEnds::User),
        SUPER_SEGMENTS.at(CheckedEnds::User),
    ]),
    tcp(
        "whole_super_segments",
        ValueKind::Switch,
        KernelSupport::Fixed("off", "the kernel's TCP has sent partial ones since 2.6.12"),
        UserKnob::WholeSuperSegments,
        "`on`: super-segments leave whole or not at all, are at most the congestion window over `tso_win_divisor` (8) and half the window, and less counts as small for Nagle: Linux of 2005.",
    )
    .needs(&[SUPER_SEGMENTS.at(CheckedEnds::User).when(&["on"])]),
    tcp(
        "pacing",
        ValueKind::Choice(&["off", "timer"]),
        KernelSupport::Fixed("off", "the kernel's TCP paces by its congestion control (bbr) or by the qdisc fq"),
        UserKnob::Pacing,
        "`timer`: each super-segment leaves when the one before has had its time at the rate: `pacing_rate`, or the window over the round-trip time, times 1.2 (2 in slow start), as Linux.",
    )
    .needs(&[Need::any_of(&[is_not("congestion_control", &["bbr"])])
        .at(CheckedEnds::Kernel)
        .because("bbr paces")]),
    tcp(
        "pacing_rate",
        ValueKind::BitRate,
        KernelSupport::Unsupported("the kernel's TCP paces by its congestion control (bbr) or by the qdisc fq"),
        UserKnob::PacingRate,
        "Payload rate of pacing.",
    )
    .needs(&[Need::any_of(&[is("pacing", &["timer"])])]),
    tcp(
        "initial_window",
        ValueKind::Count(1, 64),
        KernelSupport::Unsupported("the kernel's is of the route (initcwnd), which is not set here"),
        UserKnob::InitialWindow,
        "Congestion window of a new connection in segments; 10 (RFC 6928).",
    ),
    tcp(
        "window_growth",
        ValueKind::Choice(WindowGrowth::WORDS),
        KernelSupport::Fixed("bytes", "the kernel's TCP counts what is acknowledged"),
        UserKnob::WindowGrowth,
        "Growth of the congestion window: by the bytes that an ACK covers (RFC 3465), or by one segment for each ACK that found the window full (Linux of 2005; with `congestion_control = \"reno\"`).",
    ),
    tcp(
        "tail_loss_probe",
        ValueKind::Switch,
        // The value 3: a probe after two round trips, Linux's default.
        KernelSupport::Sysctl("net.ipv4.tcp_early_retrans", |on| 3 * on),
        UserKnob::TailLossProbe,
        "Tail loss probe: a sender probes when the last segments of a flight stay unacknowledged (RFC 8985; both stacks do, Linux before 3.10 did not): after two round trips, 2 ms at least, also when the peer is only kept off its CPU.",
    ),
    tcp(
        "mtu_probing",
        ValueKind::Choice(&["off", "black-hole", "always"]),
        // The numbers 0, 1 and 2, in the order of the words.
        KernelSupport::Sysctl("net.ipv4.tcp_mtu_probing", |place| place),
        UserKnob::MtuProbing,
        "Path MTU probing: a sender finds by probes how large segments the path carries (RFC 4821), for paths with routers that do not report it: once timeouts in a row look like a black hole, or from the beginning with 1024 bytes; `off`, also in Linux.",
    ),
    tcp(
        "hystart",
        ValueKind::Switch,
        KernelSupport::Unsupported("the kernel's is a HyStart of its own and a parameter of the module tcp_cubic, for the whole machine"),
        UserKnob::HyStart,
        "HyStart++ (RFC 9406): the first slow start ends when the round-trip time grows instead of at the first loss; `off`.",
    ),
    tcp(
        "dscp",
        ValueKind::Count(0, 63),
        KernelSupport::SocketOption("IP_TOS"),
        UserKnob::Dscp,
        "Differentiated services code point of what an end sends once its connection is up (RFC 2474), e.g. 46; 0.",
    ),
    tcp(
        "busy_poll_us",
        ValueKind::Count(0, 1_000_000),
        KernelSupport::SocketOption("SO_BUSY_POLL"),
        UserKnob::BusyPoll,
        "Microseconds that our TCP, or the kernel where its driver can, polls its idle device before it sleeps; 0. Saves a lone request the wake-up and costs CPU, which is counted.",
    ),
    tcp(
        "receive_batch",
        ValueKind::Count(1, 64),
        KernelSupport::Unsupported("the kernel's is of NAPI and of GRO"),
        UserKnob::ReceiveBatch,
        "Packets that our TCP takes in at a time and answers before the application's turn; by default 64, and after it. 1 is a host of 2005, interrupted for each packet: no ACK waits for the answer, and what an ACK releases leaves before the next one is looked at.",
    ),
    Knob {
        or_word: None,
        default: "on",
        per_end: false,
        ..link(
            "steering",
            ValueKind::Switch,
            KernelSupport::RealDevice("RPS"),
            "Steer each end's receive work to that end's CPUs (RPS). Off, a veth's receiver runs on the sender's CPU.",
        )
    },
];

/// True if a value is no program, or a program that does not set the calls by which it sends and
/// receives.
fn has_no_calls(value: &Value) -> bool {
    let mut operations = value.program().into_iter().flat_map(Program::all);
    !operations.any(|operation| {
        matches!(
            operation,
            Operation::Send { with: Some(_), .. } | Operation::Receive { with: Some(_), .. }
        )
    })
}

/// True if a value is no program, or a program that receives by no call but read.
fn only_reads(value: &Value) -> bool {
    let mut operations = value.program().into_iter().flat_map(Program::all);
    !operations.any(|operation| {
        matches!(operation, Operation::Receive { with: Some(with), .. } if *with != ReceiveWith::Read)
    })
}

/// Row of the knob of this name, without the host before it. `None` if there is no such knob. All
/// sysctls share one row.
pub fn find(name: &str) -> Option<Knob> {
    if let Some(sysctl) = name.strip_prefix("sysctl.") {
        return sysctl.parse::<SysctlName>().is_ok().then_some(SYSCTL);
    }
    KNOBS.iter().find(|knob| knob.name == name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::Raw;

    #[test]
    fn every_default_is_a_value_of_its_knob_and_names_are_unique() {
        for (index, knob) in KNOBS.iter().enumerate() {
            let value = knob.default_value();
            assert!(!value.to_string().is_empty(), "{}", knob.name);
            assert!(
                KNOBS[..index].iter().all(|other| other.name != knob.name),
                "{} twice",
                knob.name
            );
        }
    }

    #[test]
    fn a_wrong_unit_is_not_a_value() {
        let write_size = find("write_size").unwrap();
        assert_eq!(
            write_size.read(&Raw::Text("64KiB".into())),
            Some(Value::Bytes(65536))
        );
        assert_eq!(write_size.read(&Raw::Text("64ms".into())), None);
        assert_eq!(write_size.read(&Raw::Integer(0)), None);
        assert_eq!(find("flows").unwrap().read(&Raw::Integer(30_001)), None);
        assert_eq!(
            find("tso").unwrap().read(&Raw::Text("leave".into())),
            Some(Value::Word("leave".into()))
        );
    }

    #[test]
    fn sysctls_of_the_network_are_knobs_and_paths_are_not() {
        assert!(find("sysctl.net.ipv4.tcp_autocorking").is_some());
        for wrong in ["sysctl.kernel.hostname", "sysctl.net/../x", "sysctl.net..x"] {
            assert!(find(wrong).is_none(), "{wrong}");
        }
    }
}
