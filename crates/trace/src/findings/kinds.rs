//! The kinds of findings, a row each (docs/dev/add-a-row.md says how to add one).

use super::{Kind, ShareBase, megabits, seconds};
use crate::evidence::Evidence;
use crate::segment::endpoint_name;
use crate::waits::Wait;

/// Wire segments that an ACK may well cover: the number that Solaris allows a receiver on the same
/// link (tcp_local_dacks_max). ACKs at this rate save seven eighths of their cost (3.6 µs of the
/// sender's CPU each, fitted to Jones 2005).
const SEGMENTS_PER_ACK: f64 = 8.0;

/// Least ratio of retransmitted segments at which losses are taken to keep the window small: with 1
/// % lost the mean window is about 12 segments (Mathis et al. 1997).
const LOSSY: f64 = 0.01;

/// Findings about waits and failures.
pub(super) static WAITS: &[Kind] = &[
    Kind {
        id: "loss",
        whole: ShareBase::Time,
        evidence: "the wait `loss`; with 1 % of segments resent and more also the time with a window that losses keep small",
        remedy: "find what drops packets (tc -s qdisc, ethtool -S, ip -s link); TCP_RTO_MIN_US, net.ipv4.tcp_recovery, TCP_CONGESTION",
        part: |of| {
            if of.total.retransmitted_packets == 0 || of.total.is_unclear() {
                return 0.0;
            }
            of.recovering_ns() as f64 + of.kept_small_ns(of.lossy_ns) as f64
        },
        sentence: |of, _| {
            let total = &of.total;
            let needless = total.retransmitted_after_ack.max(total.spurious_by_dsack);
            let mut text = format!(
                "{:.1} % of segments were retransmitted ({} packets, {needless} needlessly): {} recovering ({} after ACKs reported it, {} after a timeout, {} after a tail probe)",
                of.resent_ratio() * 100.0,
                total.retransmitted_packets,
                seconds(of.recovering_ns()),
                of.waited(Wait::LossFast),
                of.waited(Wait::LossTimeout),
                of.waited(Wait::LossProbe),
            );
            if of.resent_ratio() >= LOSSY {
                text += &format!(
                    "; {} more with the window that losses keep small",
                    seconds(of.lossy_ns)
                );
            }
            text
        },
    },
    Kind {
        id: "syn_retransmissions",
        whole: ShareBase::Time,
        evidence: "the wait `SYN retransmitted`",
        remedy: "find what drops SYNs: a full backlog (net.core.somaxconn, net.ipv4.tcp_max_syn_backlog), a firewall, the path",
        part: |of| of.waits.of(Wait::SynTimeout) as f64,
        sentence: |of, _| {
            format!(
                "{} SYNs were sent again, which took {}",
                of.handshakes.syns_retransmitted,
                of.waited(Wait::SynTimeout)
            )
        },
    },
    Kind {
        id: "server_application",
        whole: ShareBase::Time,
        evidence: "the wait for the server's application",
        remedy: "the server's application and whatever it waits for; several requests in flight (study: request-response)",
        part: |of| of.waits.of(Wait::ServerApplication) as f64,
        sentence: |of, _| {
            format!(
                "{} were spent waiting for the server's application: a request had arrived, or an answer had begun",
                of.waited(Wait::ServerApplication)
            )
        },
    },
    Kind {
        id: "client_application",
        whole: ShareBase::Time,
        evidence: "the wait for the client's application",
        remedy: "the client's application: larger or sooner writes (study: write-size)",
        part: |of| of.waits.of(Wait::ClientApplication) as f64,
        sentence: |of, _| {
            format!(
                "{} were spent waiting for the client's application, which had begun to send",
                of.waited(Wait::ClientApplication)
            )
        },
    },
    Kind {
        id: "round_trips",
        whole: ShareBase::Time,
        evidence: "the wait for round trips",
        remedy: "fewer round trips: connections that stay open, TCP_FASTOPEN, more requests in flight (study: request-response); a nearer server",
        part: |of| of.waits.of(Wait::Network) as f64,
        sentence: |of, _| {
            format!(
                "{} were spent waiting for round trips",
                of.waited(Wait::Network)
            )
        },
    },
    Kind {
        id: "delayed_ack_stalls",
        whole: ShareBase::Time,
        evidence: "the wait `delayed ACK`",
        remedy: "receiver: TCP_QUICKACK or ip route ... quickack 1; sender: TCP_NODELAY (nodelay), one write a message (cork)",
        part: |of| of.waits.of(Wait::DelayedAck) as f64,
        sentence: |of, _| {
            format!(
                "{} stalls waited {} for a delayed ACK",
                of.total.delayed_ack_stalls,
                of.waited(Wait::DelayedAck)
            )
        },
    },
    Kind {
        id: "receiver_window",
        whole: ShareBase::Time,
        evidence: "the wait for the receiver's window",
        remedy: "receiver: a reader that reads sooner (read_size), SO_RCVBUF unset or larger, net.ipv4.tcp_rmem",
        part: |of| of.waits.of(Wait::ReceiverWindow) as f64,
        sentence: |of, _| {
            format!(
                "the receiver's window was full for {}, closed {} times",
                of.waited(Wait::ReceiverWindow),
                of.total.window_closings
            )
        },
    },
    Kind {
        id: "queueing",
        whole: ShareBase::Time,
        evidence: "`congestion_window`, `sender_or_path` and `paced` where the median round trip is twice the shortest and 10 ms more",
        remedy: "a shorter queue where the path is slowest (fq_codel, cake, a lower txqueuelen or tbf limit); TCP_CONGESTION bbr; a limit of what is unsent (TCP_NOTSENT_LOWAT) or of the rate (SO_MAX_PACING_RATE)",
        part: |of| of.queueing_ns as f64,
        sentence: |of, _| {
            format!(
                "the path's rate, {} of payload: for {} data waited in a queue, which made round trips of {} out of {}",
                megabits(of.queued_rate),
                seconds(of.queueing_ns),
                seconds(of.queued_rtt_ns),
                seconds(of.queued_rtt_min_ns)
            )
        },
    },
    Kind {
        id: "congestion_window",
        whole: ShareBase::Time,
        evidence: "the wait for the congestion window or the path's rate, less what `queueing` and `loss` have of it",
        remedy: "initcwnd (ip route), TCP_CONGESTION, SO_SNDBUF, net.ipv4.tcp_wmem; on a short path the hosts' own speed (study: write-size)",
        part: |of| of.window_ns() as f64,
        sentence: |of, _| {
            format!(
                "the sender waited for ACKs of data in flight for {}: its congestion window, its send buffer, or the path's rate",
                seconds(of.window_ns())
            )
        },
    },
    Kind {
        id: "paced",
        whole: ShareBase::Time,
        evidence: "the wait `sender's own pace`, less what `queueing` has of it",
        remedy: "SO_MAX_PACING_RATE, fq, a congestion control that paces (bbr); the sender's CPU",
        part: |of| of.paced_ns() as f64,
        sentence: |of, _| {
            format!(
                "the sender waited for {} although it had data and window: pacing, or a queue or the CPU before the capture, which let {} of payload through",
                seconds(of.paced_ns()),
                megabits(of.paced_rate)
            )
        },
    },
    Kind {
        id: "sender_held_up",
        whole: ShareBase::Time,
        evidence: "the wait `sender held up`",
        remedy: "the sender's CPU: what else runs there (/proc/pressure/cpu, the second number of /proc/PID/schedstat); a larger SO_SNDBUF",
        part: |of| of.waits.of(Wait::HeldUp) as f64,
        sentence: |of, _| {
            format!(
                "for {} the sender had data and window and sent nothing, for times that follow no rate: its program, or its kernel, had no CPU",
                of.waited(Wait::HeldUp)
            )
        },
    },
    Kind {
        id: "sender_or_path",
        whole: ShareBase::Time,
        evidence: "the wait `unclear`, less what `queueing` and `loss` have of it, if most of it is in connections of which one direction was captured",
        remedy: "capture both directions: at an end, or at both links of a path that is not the same there and back",
        part: |of| {
            if of.is_unclear_by_one_side() {
                of.unclear_ns() as f64
            } else {
                0.0
            }
        },
        sentence: |of, _| {
            let unclear = of.unclear_ns();
            format!(
                "for {} it is unknown which end waited: for {} only one direction was captured",
                seconds(unclear),
                seconds(of.one_sided_ns.min(unclear))
            )
        },
    },
    Kind {
        id: "sender_or_path",
        whole: ShareBase::Time,
        evidence: "the same time, if most of it is in connections of which both directions were captured",
        remedy: "capture at the sender, handshake included: there it shows which",
        part: |of| {
            if of.is_unclear_by_one_side() {
                0.0
            } else {
                of.unclear_ns() as f64
            }
        },
        sentence: |of, _| {
            format!(
                "for {} data were limited by the sender's window, its pacing or the path's rate, which a capture at this place cannot distinguish",
                seconds(of.unclear_ns())
            )
        },
    },
    Kind {
        id: "failed_handshakes",
        whole: ShareBase::Connections,
        evidence: "handshakes without an answer, with a RST for an answer, or with nothing after it (`handshakes` has them by kind)",
        remedy: "is the server up and its port open (ss -ltn there); a firewall; a full backlog (net.core.somaxconn, net.ipv4.tcp_max_syn_backlog)",
        part: |of| of.handshakes.failed() as f64,
        sentence: |of, names| {
            let most = of.failed_to.most();
            let whom = most.map_or(String::new(), |end| {
                format!(", most to {}", endpoint_name(end, names))
            });
            let handshakes = &of.handshakes;
            format!(
                "{} handshakes went nowhere{whom}: {} unanswered, {} refused by RST, {} half-open (answered, then nothing)",
                handshakes.failed(),
                handshakes.unanswered,
                handshakes.refused,
                handshakes.half_open
            )
        },
    },
    Kind {
        id: "resets",
        whole: ShareBase::Connections,
        evidence: "connections that a RST ended with data in flight or a request unanswered",
        remedy: "the application that closes without reading all, or is killed; a middlebox that forgets connections (keepalives)",
        part: |of| of.cut_off as f64,
        sentence: |of, _| {
            format!(
                "{} connections were reset with data in flight or a request unanswered",
                of.cut_off
            )
        },
    },
];

/// Findings about what costs the CPU more than necessary.
pub(super) static COSTS: &[Kind] = &[
    Kind {
        id: "pure_acks",
        whole: ShareBase::Packets,
        evidence: "pure ACKs beyond one for eight segments (what Solaris allows a neighbour)",
        remedy: "receiver: GRO (ethtool -K DEV gro on), TCP_DELACK_MAX_US; no TCP_QUICKACK (study: segmentation)",
        part: |of| of.covering_acks as f64 - of.covered_segments as f64 / SEGMENTS_PER_ACK,
        sentence: |of, _| {
            format!(
                "{} pure ACKs; one for every eight wire segments would be {}",
                of.total.pure_acks,
                (of.covered_segments as f64 / SEGMENTS_PER_ACK).round()
            )
        },
    },
    Kind {
        id: "tail_splits",
        whole: ShareBase::Packets,
        evidence: "tail splits",
        remedy: "a kernel since 3.14, MSG_MORE off (cork), or writes of whole segments (study: tso-split)",
        part: |of| of.total.tail_splits as f64,
        sentence: |of, _| {
            format!(
                "{} short tails were split off the super-segment before them",
                of.total.tail_splits
            )
        },
    },
    Kind {
        id: "no_super_segments",
        whole: ShareBase::Packets,
        evidence: "full-sized packets that offload would join to 64 KiB",
        remedy: "ethtool -K DEV tso on gso on at the sender, gro on at the receiver (study: segmentation)",
        part: |of| of.joined,
        sentence: |_, _| {
            "full-sized packets of one wire segment each: no segmentation offload where this was captured".to_string()
        },
    },
    Kind {
        id: "small_packets",
        whole: ShareBase::Packets,
        evidence: "joinable packets",
        remedy: "larger writes (write_size, study: write-size), TCP_CORK or MSG_MORE (cork), no TCP_NODELAY",
        part: |of| of.total.joinable_packets as f64,
        sentence: |of, _| {
            format!(
                "{} of {} packets shorter than one MSS followed a short one at once and fit into it",
                of.total.joinable_packets, of.total.small_packets
            )
        },
    },
    Kind {
        id: "retransmissions",
        whole: ShareBase::Packets,
        evidence: "retransmitted packets, if their number is known",
        remedy: "find what drops packets; net.ipv4.tcp_recovery, TCP_CONGESTION",
        part: |of| {
            if of.total.is_unclear() {
                0.0
            } else {
                of.total.retransmitted_packets as f64
            }
        },
        sentence: |of, _| format!("{} packets were sent again", of.total.retransmitted_packets),
    },
];

/// Quantities that several rows use.
impl Evidence {
    fn waited(&self, wait: Wait) -> String {
        seconds(self.waits.of(wait))
    }

    fn resent_ratio(&self) -> f64 {
        let total = &self.total;
        total.retransmitted_wire_segments as f64 / total.data_wire_segments.max(1) as f64
    }

    fn recovering_ns(&self) -> u64 {
        let waits = [Wait::LossFast, Wait::LossTimeout, Wait::LossProbe];
        waits
            .iter()
            .fold(0, |sum, wait| self.waits.of(*wait).saturating_add(sum))
    }

    /// Returns `ns` if losses keep the window small: then that time belongs to the finding about
    /// losses. Otherwise returns 0.
    fn kept_small_ns(&self, ns: u64) -> u64 {
        if self.resent_ratio() >= LOSSY { ns } else { 0 }
    }

    /// Returns the time of a wait without the times of queueing and of losses.
    fn rest_ns(&self, wait: Wait, queueing_ns: u64, lossy_ns: u64) -> u64 {
        let rest_ns = self.waits.of(wait).saturating_sub(queueing_ns);
        rest_ns.saturating_sub(self.kept_small_ns(lossy_ns))
    }

    fn window_ns(&self) -> u64 {
        self.rest_ns(
            Wait::CongestionWindow,
            self.queueing_window_ns,
            self.lossy_window_ns,
        )
    }

    fn unclear_ns(&self) -> u64 {
        self.rest_ns(
            Wait::Unclear,
            self.queueing_unclear_ns,
            self.lossy_unclear_ns,
        )
    }

    fn paced_ns(&self) -> u64 {
        self.rest_ns(Wait::Paced, self.queueing_paced_ns, 0)
    }

    fn is_unclear_by_one_side(&self) -> bool {
        self.one_sided_ns > self.unclear_ns() / 2
    }
}
