//! Knobs of the traffic, and where it runs.

use super::{GIB, MIB, STREAMS};
use crate::choices::{Cork, FileSpread, ReceiveWith, SendWith, WaitsBy, WorkloadKind};
use crate::program::{Operation, Program};
use crate::row::{CheckedEnds, Knob, Need, Required, ValueKind, is, is_not, requires, workload};
use crate::value::Value;

const TRANSACTIONS: Need = Need::any_of(&[is("workload", &["rr", "crr", "program"])]);

const REQUESTS: Need = Need::any_of(&[is("workload", &["rr", "crr"])])
    .because("a stream has no requests, and its bytes per call are write_size (in [workload] the key is kind)");

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

/// Rows of the workload.
pub(super) const ROWS: &[Knob] = &[
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
        ValueKind::Choice(&["auto", "two-cpus", "same-cpu", "smt-sibling", "cpu-each", "one-thread"]),
        "auto",
        "Placement of a machine's hosts if `cpus` is not set. `two-cpus`: those that connect on one CPU and those that listen on another core, the nearest one (shared cache, then the same socket); `same-cpu`: all on one; `auto`: `two-cpus`, or `same-cpu` where this process may use one CPU only; `smt-sibling`: on two threads of one core; `cpu-each`: each host on a CPU of its own. A host in the middle has a CPU of its own where there is one to spare, else that of those who connect. `one-thread`: the two ends take turns in one thread of one process, so that no thread is woken, and no scheduler decides how much one end does before the other has its turn; of two hosts with one kind of TCP on one machine.",
    )
    .needs(&[
        Need::any_of(&[is("threads", &["0", "1"])]).when(&["one-thread"]),
        Need::any_of(&[is("io", &["epoll", "visits"])]).when(&["one-thread"]).because("a thread that has two ends must not wait for one of them"),
    ]),
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
