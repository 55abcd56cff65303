//! Knobs of the kernel's TCP: congestion control, ACKs, sysctls, routes.

use super::{WORTH_TRYING, requests, stream};
use crate::advice::rule::{Condition, Needs, Rule, Verify};
use crate::advice::signal::Signal;
use crate::causes::Cause;

const fn since(major: u32, minor: u32) -> Needs {
    Needs {
        kernel: Some((major, minor)),
        device: "",
        who: "root",
    }
}

/// Rules, in the order of the documentation.
pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "bbr-without-fq",
        title: "Qdisc fq for BBR, or cubic on short paths",
        when: &[
            Condition::Is("congestion_control", &["bbr"]),
            Condition::IsNot("qdisc", &["fq", "mq"]),
        ],
        acts_on: &[Cause::TimerInterrupt],
        limits: "keep BBR on long and lossy paths; without fq TCP paces by a timer for each connection",
        claim: "in a guest about 20 Gbit/s with bbr, about 40 with cubic: \"bbr will consume more cpu\" (throughput)",
        source: "kata-containers/packaging#1067",
        study: stream!("--set congestion_control=bbr --a qdisc=pfifo --b qdisc=fq"),
        act: "tc qdisc replace dev DEV root fq",
        undo: "tc qdisc del dev DEV root",
        set: &[("qdisc", "fq")],
        costs: "fq itself; queues of other traffic change",
        ..WORTH_TRYING
    },
    Rule {
        id: "busy-read-off",
        title: "No busy polling where latency is not the goal",
        when: &[Condition::Over("net.core.busy_read", 0.0)],
        limits: "latency rises",
        claim: "\"will increase power usage\"; set by tuned's profiles network-latency and hpc-compute",
        source: "kernel Documentation/admin-guide/sysctl/net.rst; redhat-performance/tuned",
        study: requests!("--a busy_poll_us=50 --b busy_poll_us=0"),
        act: "sysctl -w net.core.busy_read=0 net.core.busy_poll=0",
        undo: "sysctl -w net.core.busy_read=50 net.core.busy_poll=50",
        costs: "latency of a sleep and wake-up",
        ..WORTH_TRYING
    },
    Rule {
        id: "quickack-off",
        title: "No quickack on the route",
        when: &[Condition::Is("quickack", &["on"])],
        acts_on: &[Cause::AckSent, Cause::AckReceived],
        limits: "a sender that waits for each ACK becomes slower",
        claim: "each segment is acknowledged at once; ACKs are why tcp_backlog_ack_defer exists; no figure for the route's flag",
        source: "kernel commit 133c4c0d3717; ip-route(8)",
        study: stream!("--a server.quickack=on --b server.quickack=off"),
        act: "ip route change ROUTE quickack 0",
        undo: "ip route change ROUTE quickack 1",
        set: &[("quickack", "off")],
        costs: "nothing known for bulk transfers",
        ..WORTH_TRYING
    },
    Rule {
        id: "ack-ratio",
        title: "Fewer ACKs from the other end",
        when: &[
            Condition::Above(Signal::AcksPerEightSegments, 2.0),
            Condition::Share(&[Cause::AckReceived, Cause::AckSent], 0.1),
        ],
        by_packets: &[Condition::Above(Signal::AcksPerEightSegments, 2.0)],
        acts_on: &[Cause::AckReceived, Cause::AckSent],
        limits: "loss recovery and growth of the window need ACKs; the filter has a cost of its own; the price of an ACK is uncertain",
        claim: "0 % [−18, +25] of both ends with an ACK for 16 segments instead of 2: not established",
        source: "measured with tcpcost's studies on 2 virtual CPUs, Linux 6.18; docs/acks-and-segments.md",
        study: stream!(
            "--set segmentation=per-mss --a server.ack_filter=2 --b server.ack_filter=16"
        ),
        act: "at the other end: a route without quickack, GRO on, or an ACK filter (cake ack-filter)",
        undo: "the former setting",
        costs: "slower recovery after a loss",
        verify: Verify::Loads,
        ..WORTH_TRYING
    },
    Rule {
        id: "autocorking-on",
        title: "Autocorking on",
        when: &[Condition::Is("net.ipv4.tcp_autocorking", &["0"])],
        acts_on: &[Cause::SkbSent, Cause::AckReceived],
        limits: "nothing over loopback or an idle link: it joins small writes only while a packet of the connection is in a queue",
        claim: "fewer small packets; the default is on",
        source: "kernel commit f54b311142a9",
        study: stream!(
            "--set write_size=700B --a sysctl.net.ipv4.tcp_autocorking=0 --b sysctl.net.ipv4.tcp_autocorking=1"
        ),
        act: "sysctl -w net.ipv4.tcp_autocorking=1",
        undo: "sysctl -w net.ipv4.tcp_autocorking=0",
        set: &[("sysctl.net.ipv4.tcp_autocorking", "1")],
        costs: "a small write may wait for a queue",
        ..WORTH_TRYING
    },
    Rule {
        id: "backlog-ack-defer-on",
        title: "One ACK for the whole backlog",
        needs: since(6, 7),
        when: &[Condition::Is("net.ipv4.tcp_backlog_ack_defer", &["0"])],
        acts_on: &[Cause::AckSent],
        limits: "receivers whose program reads while packets arrive",
        claim: "one flow at 200 Gbit: 100 to 120 Gbit/s, and fewer ACKs (throughput); the default is on",
        source: "kernel commit 133c4c0d3717",
        study: stream!("--a backlog_ack_defer=off --b backlog_ack_defer=on"),
        act: "sysctl -w net.ipv4.tcp_backlog_ack_defer=1",
        undo: "sysctl -w net.ipv4.tcp_backlog_ack_defer=0",
        set: &[("sysctl.net.ipv4.tcp_backlog_ack_defer", "1")],
        costs: "nothing known",
        ..WORTH_TRYING
    },
    Rule {
        id: "tso-rtt-log",
        title: "Larger packets on short paths (tcp_tso_rtt_log)",
        needs: since(5, 18),
        when: &[Condition::Is("net.ipv4.tcp_tso_rtt_log", &["0"])],
        acts_on: &[Cause::SkbSent],
        limits: "paced connections (BBR, fq with a rate) and many flows on a short path",
        claim: "600 paced flows in a rack: before, 4 segments a packet and 65.9 s of CPU in 20 s; the default is 9",
        source: "kernel commit 65466904b015",
        study: stream!(
            "--set congestion_control=bbr --a sysctl.net.ipv4.tcp_tso_rtt_log=0 --b sysctl.net.ipv4.tcp_tso_rtt_log=9"
        ),
        act: "sysctl -w net.ipv4.tcp_tso_rtt_log=9",
        undo: "sysctl -w net.ipv4.tcp_tso_rtt_log=0",
        set: &[("sysctl.net.ipv4.tcp_tso_rtt_log", "9")],
        costs: "bursts on the wire",
        ..WORTH_TRYING
    },
    Rule {
        id: "min-tso-segs",
        title: "At least two segments a packet (tcp_min_tso_segs)",
        when: &[Condition::Under("net.ipv4.tcp_min_tso_segs", 2.0)],
        acts_on: &[Cause::SkbSent],
        limits: "paced connections",
        claim: "no figure; the default is 2",
        source: "kernel Documentation/networking/ip-sysctl.rst",
        study: stream!(
            "--set congestion_control=bbr --a sysctl.net.ipv4.tcp_min_tso_segs=1 --b sysctl.net.ipv4.tcp_min_tso_segs=2"
        ),
        act: "sysctl -w net.ipv4.tcp_min_tso_segs=2",
        undo: "sysctl -w net.ipv4.tcp_min_tso_segs=1",
        set: &[("sysctl.net.ipv4.tcp_min_tso_segs", "2")],
        costs: "nothing known",
        ..WORTH_TRYING
    },
    Rule {
        id: "pingpong-thresh",
        title: "No ACK of its own before each response (tcp_pingpong_thresh)",
        needs: since(6, 7),
        when: &[
            Condition::Over("net.ipv4.tcp_pingpong_thresh", 1.0),
            Condition::Above(Signal::AcksPerExchange, 0.1),
        ],
        acts_on: &[Cause::AckSent],
        limits: "servers that answer soon; \"SQL DB may prefer a higher\" value",
        claim: "no figure; the default is 1",
        source: "kernel commit 562b1fd (stable 4ec8a98b3dc3); Documentation/networking/ip-sysctl.rst",
        study: requests!(
            "--a sysctl.net.ipv4.tcp_pingpong_thresh=3 --b sysctl.net.ipv4.tcp_pingpong_thresh=1"
        ),
        act: "sysctl -w net.ipv4.tcp_pingpong_thresh=1",
        undo: "sysctl -w net.ipv4.tcp_pingpong_thresh=3",
        set: &[("sysctl.net.ipv4.tcp_pingpong_thresh", "1")],
        costs: "a sender may wait up to 40 ms for the ACK of a request without response",
        ..WORTH_TRYING
    },
    Rule {
        id: "compressed-sacks",
        title: "Compress SACKs while packets are out of order",
        needs: since(4, 18),
        when: &[
            Condition::Is("net.ipv4.tcp_comp_sack_nr", &["0"]),
            Condition::Above(Signal::OutOfOrder, 10.0),
        ],
        acts_on: &[Cause::AckSent],
        limits: "paths that lose or reorder packets",
        claim: "\"reduce system overhead\"; no figure; the default is 44",
        source: "kernel commits 6d82aa242092, a70437cc09a1",
        study: stream!("--set loss=1% --a comp_sack_nr=0 --b comp_sack_nr=44"),
        act: "sysctl -w net.ipv4.tcp_comp_sack_nr=44",
        undo: "sysctl -w net.ipv4.tcp_comp_sack_nr=0",
        set: &[("sysctl.net.ipv4.tcp_comp_sack_nr", "44")],
        costs: "nothing known",
        ..WORTH_TRYING
    },
];
