//! Knobs of the program: its calls, its connections.

use super::{OF_PROGRAM, requests, stream};
use crate::advice::rule::{By, Change, Class, Condition, Needs, RUNS, Rule, Size};
use crate::advice::signal::Signal;
use crate::causes::Cause;

const KIB: f64 = 1024.0;

/// Size of the packets after a change to writes of 32 KiB: TCP puts more or less than one write into a packet.
const LARGE: Size = Size::Between(0.6 * 32.0 * KIB, 1.5 * 32.0 * KIB);
/// Size of the packets of a corked sender, which depends on when its queue is pushed.
const CORKED: Size = Size::MagnitudeBetween(4.0 * KIB, 64.0 * KIB);

/// Connections that are kept: the packets of a new one do not follow the size of writes, and its window is small at first.
/// Claimed without this, a saving of 43 % of nginx's CPU was measured as +29 %.
pub(super) const KEPT: &[Condition] = &[Condition::Below(Signal::OpensPerExchange, 0.1)];

/// Rules, in the order of the documentation.
pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "keep-connections",
        title: "Keep connections for several requests",
        class: Class::A,
        when: &[Condition::Above(Signal::OpensPerExchange, 0.1)],
        acts_on: &[
            Cause::Connection,
            Cause::NetRxRun,
            Cause::AckReceived,
            Cause::AckSent,
            Cause::ReceiveCall,
        ],
        change: &[
            Change::Count(
                &[Cause::AckReceived, Cause::AckSent],
                By::LessPer(Cause::Connection, 2.0, 3.0),
            ),
            Change::Count(
                &[Cause::ReceiveCall],
                By::LessPer(Cause::Connection, 1.0, 1.0),
            ),
            Change::Count(RUNS, By::Factor(0.25, 0.65)),
            Change::Count(&[Cause::Connection], By::Factor(0.0, 0.0)),
        ],
        saves_more: true,
        limits: "each client must ask for more than one thing; the program's own work to accept and close has no price, so the saving may be more",
        claim: "−62 % [−64, −59] of nginx's CPU with files of 24 KB, by pairs; −82 % [−83, −80] of both ends of 2 KiB responses",
        source: "measured with tcpcost's studies on 2 virtual CPUs, Linux 6.18",
        study: stream!("--set flows=4 --a workload=crr --b workload=rr"),
        act: "keepalive of the server and its clients on (nginx: keepalive_timeout 60s; HAProxy: option http-keep-alive), reload",
        undo: "the former value, reload",
        costs: "memory of each idle connection (not measured)",
        ..OF_PROGRAM
    },
    Rule {
        id: "larger-writes",
        title: "Write more bytes with each call",
        class: Class::A,
        when: &[
            Condition::Below(Signal::BytesPerSend, 16.0 * KIB),
            Condition::Above(Signal::SendsPerReceive, 1.5),
        ],
        by_packets: &[
            Condition::Below(Signal::SkbBytes, 1400.0),
            Condition::Above(Signal::SkbsPerExchange, 2.0),
        ],
        claims_if: KEPT,
        acts_on: &[
            Cause::SendCall,
            Cause::SkbSent,
            Cause::AckReceived,
            Cause::NetRxRun,
        ],
        change: &[
            Change::Count(
                &[Cause::SendCall],
                By::ToSize(Signal::BytesPerSend, Size::Bytes(32.0 * KIB)),
            ),
            Change::Packets(LARGE),
        ],
        saves_more: true,
        limits: "nothing if the program has no more to say at once; with a new connection for each response the packets of the handshake stay, and the window is small at first",
        claim: "−91 % [−94, −89] of both ends from 512 B to 32 KiB; −30 % [−48, −14] of nginx from 4 to 32 KiB",
        source: "measured with tcpcost's studies on 2 virtual CPUs, Linux 6.18",
        study: stream!("--a write_size=4KiB --b write_size=32KiB"),
        act: "writes of 32 KiB, or all parts of a message by one writev (nginx: output_buffers 2 32k)",
        undo: "the former size",
        costs: "the first byte of a response leaves later; memory of the buffer",
        instead: &["cork"],
        ..OF_PROGRAM
    },
    Rule {
        id: "cork",
        title: "Cork small writes that follow each other (MSG_MORE, TCP_CORK)",
        class: Class::A,
        when: &[
            Condition::Below(Signal::BytesPerSend, 1448.0),
            Condition::Below(Signal::SkbBytes, 2.0 * KIB),
            Condition::Above(Signal::SendsPerReceive, 1.5),
        ],
        claims_if: KEPT,
        acts_on: &[Cause::SkbSent, Cause::AckReceived, Cause::NetRxRun],
        change: &[Change::Packets(CORKED)],
        is_cautious: true,
        limits: "a sender that never uncorks waits for up to 200 ms; the last write must uncork; MSG_MORE needs no second call",
        claim: "10,000 packets over loopback: 4.08 s with TCP_NODELAY, 0.67 s with TCP_CORK (time); −40 % [−48, −23] of both ends' CPU with writes of 700 B",
        source: "Red Hat Enterprise Linux for Real Time 10, chapter 11.3.2; tcpcost's studies on 2 virtual CPUs, Linux 6.18",
        study: stream!(
            "--set write_size=700B --set sysctl.net.ipv4.tcp_autocorking=0 --a nodelay=on --b cork=on"
        ),
        act: "send with MSG_MORE but for the last part, or setsockopt TCP_CORK 1 before and 0 after",
        undo: "send without MSG_MORE; setsockopt TCP_CORK 0",
        costs: "the first byte leaves later",
        instead: &["larger-writes"],
        ..OF_PROGRAM
    },
    Rule {
        id: "larger-reads",
        title: "Read more bytes with each call",
        class: Class::A,
        when: &[
            Condition::Below(Signal::BytesPerReceive, 4.0 * KIB),
            Condition::Above(Signal::ReceivesPerSkb, 1.5),
            Condition::Above(Signal::SkbBytesReceived, 4.0 * KIB),
        ],
        acts_on: &[Cause::ReceiveCall],
        change: &[Change::Count(
            &[Cause::ReceiveCall],
            By::ToSize(
                Signal::BytesPerReceive,
                Size::Between(20.0 * KIB, 64.0 * KIB),
            ),
        )],
        limits: "a buffer above 64 to 128 KiB leaves the L2 cache",
        claim: "−34 % [−58, −19] of both ends from 2 to 64 KiB",
        source: "measured with tcpcost's studies on 2 virtual CPUs, Linux 6.18",
        study: stream!("--a read_size=2KiB --b read_size=64KiB"),
        act: "a read buffer of 64 KiB (the program's option)",
        undo: "the former size",
        costs: "memory of the buffer",
        ..OF_PROGRAM
    },
    Rule {
        id: "pipeline",
        title: "Send several requests before the first response (pipelining)",
        class: Class::A,
        when: &[
            Condition::Above(Signal::ReceivesPerExchange, 0.7),
            // A request and a response, where both ends are counted.
            Condition::Below(Signal::SkbsPerExchange, 2.5),
            Condition::Below(Signal::OpensPerExchange, 0.1),
        ],
        acts_on: &[
            Cause::Sleep,
            Cause::NetRxRun,
            Cause::SkbSent,
            Cause::SkbReceived,
        ],
        change: &[
            Change::Count(&[Cause::Sleep], By::Magnitude(0.125, 0.536)),
            Change::Count(
                &[Cause::SkbSent, Cause::SkbReceived],
                By::Magnitude(0.19, 1.0),
            ),
            Change::Count(RUNS, By::Magnitude(0.19, 1.0)),
        ],
        saves_more: true,
        limits: "order, head-of-line blocking; the client must be able to; a server that reads and answers several requests at once saves calls, too",
        claim: "−60 % [−69, −49] of both ends with 8 requests in flight instead of 1",
        source: "measured with tcpcost's studies on 2 virtual CPUs, Linux 6.18",
        study: requests!(
            "--set flows=2 --set request_size=100B --set response_size=400B --a in_flight=1 --b in_flight=8"
        ),
        act: "8 requests in flight on each connection (redis-cli --pipe, redis-benchmark -P 8, HTTP/2)",
        undo: "1 in flight",
        costs: "a slow response delays those after it",
        ..OF_PROGRAM
    },
    Rule {
        id: "sendfile",
        title: "Send files by sendfile or splice",
        when: &[
            Condition::Share(&[Cause::ByteCopiedIn], 0.05),
            Condition::Above(Signal::SendsPerReceive, 1.5),
        ],
        not_when: &[Condition::Below(Signal::BytesPerExchange, 128.0 * KIB)],
        acts_on: &[Cause::ByteCopiedIn],
        limits: "small files: a header needs a call and a packet of its own (+42 % [+29, +56] at 24 KB); TLS without kTLS",
        claim: "−24 % [−40, −17] of both ends at 128 KiB; +42 % [+29, +56] of nginx at 24 KB",
        source: "measured with tcpcost's studies on 2 virtual CPUs, Linux 6.18",
        study: stream!("--set write_size=128KiB --a send_with=read+send --b send_with=sendfile"),
        act: "sendfile (nginx: sendfile on)",
        undo: "read and write (nginx: sendfile off)",
        costs: "the file must not change while it is sent",
        ..OF_PROGRAM
    },
    Rule {
        id: "zerocopy",
        title: "Send large writes by MSG_ZEROCOPY",
        needs: Needs {
            kernel: Some((4, 14)),
            device: "a device that leads to another machine",
            who: "the program",
        },
        when: &[
            Condition::Above(Signal::BytesPerSend, 10_000.0),
            Condition::IsNot("driver", VIRTUAL),
            Condition::Share(&[Cause::ByteCopiedIn], 0.05),
        ],
        not_when: &[Condition::Is("driver", VIRTUAL)],
        acts_on: &[Cause::ByteCopiedIn],
        limits: "over loopback and veth the kernel copies after all; completions cost a call",
        claim: "up to 70 % of a process's cycles, 20 % of a system's at best; \"generally only effective at writes over around 10 KB\"",
        source: "kernel commit f214f915e7db; Documentation/networking/msg_zerocopy.rst",
        study: stream!("--a send_with=send --b send_with=zerocopy"),
        act: "setsockopt SO_ZEROCOPY 1, send with MSG_ZEROCOPY, read completions",
        undo: "send without MSG_ZEROCOPY",
        costs: "memory stays pinned until the ACK; a buffer must not change before its completion",
        ..OF_PROGRAM
    },
    Rule {
        id: "zerocopy-receive",
        title: "Receive by mapping pages (TCP_ZEROCOPY_RECEIVE)",
        needs: Needs {
            kernel: Some((4, 18)),
            device: "a device that splits headers from payload",
            who: "the program",
        },
        when: &[
            Condition::Above(Signal::BytesPerReceive, 512.0 * KIB),
            Condition::IsNot("driver", VIRTUAL),
            Condition::Over("mtu", 4095.0),
        ],
        not_when: &[Condition::Is("driver", VIRTUAL)],
        acts_on: &[Cause::ByteCopiedOut],
        limits: "payload in whole pages, reads of 512 KiB and more",
        claim: "202 to 251 µs per MB without, 88 to 110 with it (the thread's CPU alone)",
        source: "kernel tools/testing/selftests/net/tcp_mmap.c",
        study: stream!("--a receive_with=read --b receive_with=zerocopy"),
        act: "mmap the socket, getsockopt TCP_ZEROCOPY_RECEIVE",
        undo: "read",
        costs: "page tables change for each read",
        ..OF_PROGRAM
    },
    Rule {
        id: "rcvlowat",
        title: "Wake the reader less often (SO_RCVLOWAT)",
        when: &[
            Condition::Above(Signal::SleepsPerMib, 10.0),
            Condition::Below(Signal::ReceivesPerSkb, 2.5),
            Condition::Above(Signal::SkbBytesReceived, 1000.0),
            Condition::Below(Signal::SendsPerReceive, 0.1),
        ],
        acts_on: &[Cause::Sleep, Cause::ReceiveCall],
        limits: "streams alone: a message that is smaller waits for ever",
        claim: "fewer wake-ups; no figure for CPU",
        source: "socket(7), SO_RCVLOWAT",
        study: stream!("--a rcvlowat=1B --b rcvlowat=64KiB"),
        act: "setsockopt SO_RCVLOWAT 65536",
        undo: "setsockopt SO_RCVLOWAT 1",
        costs: "data wait until there are that many",
        ..OF_PROGRAM
    },
    Rule {
        id: "send-buffer",
        title: "Larger send buffer",
        when: &[Condition::Above(Signal::SendBufferLimited, 0.05)],
        acts_on: &[Cause::Sleep],
        limits: "nothing where the receiver or the path is the limit",
        claim: "no figure for CPU",
        source: "tcp(7), tcp_wmem",
        study: stream!("--a send_buffer=64KiB --b send_buffer=1MiB"),
        act: "leave SO_SNDBUF unset, and raise the third number of net.ipv4.tcp_wmem",
        undo: "the former numbers",
        costs: "memory of each connection; queued data wait longer",
        ..OF_PROGRAM
    },
    Rule {
        id: "receive-buffer",
        title: "Larger receive buffer",
        when: &[Condition::Above(Signal::ZeroWindows, 1.0)],
        acts_on: &[Cause::Sleep, Cause::AckSent],
        limits: "nothing where the reader is too slow",
        claim: "no figure for CPU",
        source: "tcp(7), tcp_rmem",
        study: stream!("--a receive_buffer=64KiB --b receive_buffer=1MiB"),
        act: "leave SO_RCVBUF unset, and raise the third number of net.ipv4.tcp_rmem",
        undo: "the former numbers",
        costs: "memory of each connection",
        ..OF_PROGRAM
    },
    Rule {
        id: "io-uring",
        title: "Submit several operations by one call (io_uring)",
        needs: Needs {
            kernel: Some((6, 1)),
            device: "",
            who: "the program",
        },
        when: &[
            Condition::Share(&[Cause::SendCall, Cause::ReceiveCall], 0.25),
            Condition::Over("connections", 8.0),
        ],
        acts_on: &[Cause::SendCall, Cause::ReceiveCall, Cause::Sleep],
        limits: "the program must be rewritten; it has no price",
        claim: "−34 % [−44, −25] of both ends with 32 connections",
        source: "measured with tcpcost's studies on 2 virtual CPUs, Linux 6.18",
        study: requests!("--set flows=32 --a io=epoll --b io=io-uring"),
        act: "a build of the program with io_uring",
        undo: "the build with epoll",
        costs: "io_uring is closed in many containers",
        ..OF_PROGRAM
    },
    Rule {
        id: "fewer-connections",
        title: "Fewer connections for the same work",
        when: &[
            Condition::Over("connections", 50.0),
            Condition::Below(Signal::OpensPerExchange, 0.1),
        ],
        limits: "fairness; head-of-line blocking",
        claim: "−16 % [−34, +1] of both ends from 200 to 4 streams: not established",
        source: "measured with tcpcost's studies on 2 virtual CPUs, Linux 6.18",
        study: stream!("--a flows=200 --b flows=4"),
        act: "a smaller pool of connections",
        undo: "the former size",
        costs: "requests may wait for a connection",
        ..OF_PROGRAM
    },
];

/// Devices that lead to no other machine. Loopback has no driver.
pub(super) const VIRTUAL: &[&str] = &["veth", "lo"];
