//! Knobs of an end's TCP and its socket options.

use super::{GIB, NOT_EVERY, STREAMS};
use crate::ack_policies::{AckKind, counts_segments, has_limits};
use crate::choices::{TailSplit, WindowGrowth};
use crate::row::{
    AppliesTo, CheckedEnds, KernelSupport, Knob, Need, Required, UserKnob, UserSupport, ValueKind,
    is, is_not, link, requires, tcp,
};

const LINUX_LIKE: &[Need] =
    &[Need::any_of(&[is("ack_policy", &["linux-like"])]).at(CheckedEnds::User)];

const AVOIDANCE: &[Need] = &[Need::any_of(&[requires(
    "ack_policy",
    Required::Satisfies(has_limits),
)])];

const SUPER_SEGMENTS: Need = Need::any_of(&[is_not("super_segment", &["0B"])]);

/// Rows of TCP.
pub(super) const ROWS: &[Knob] = &[
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
        "window_restart",
        ValueKind::Choice(&["off", "idle", "each-send"]),
        KernelSupport::Unsupported("the kernel's is a sysctl, tcp_slow_start_after_idle, and has no restart with each send"),
        UserKnob::WindowRestart,
        "When a sender returns to the initial window: never; after an idle time longer than the retransmission timeout (RFC 5681; the default); with each send that finds all earlier data acknowledged.",
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
];
