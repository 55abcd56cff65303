//! The kinds of findings, a row each (docs/dev/add-a-row.md says how to add one).

use super::Severity::{Failure, Slow, Usual};
use super::{Kind, ShareBase, count, megabits, seconds};
use crate::connection::{OwedKind, Sight};
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

/// Waits that are part of a recovery.
const RECOVERIES: &[Wait] = &[Wait::LossFast, Wait::LossTimeout, Wait::LossProbe];

/// Cause of what is unknown for want of half of the packets.
const ONE_SIDED: &str = "Cannot be told: only one direction was captured";

/// Findings about waits and failures.
pub(super) static WAITS: &[Kind] = &[
    Kind {
        id: "undelivered_data",
        severity: Failure,
        whole: ShareBase::Time,
        cause: |_| "Data never arrived",
        definition: "data that were not acknowledged, or a gap that ACKs report, until the capture ended or an end closed, for 1 s or longer; the recovery that failed belongs to it",
        remedy: "a black hole of the path MTU (ping -M do -s 1472; net.ipv4.tcp_mtu_probing, a tunnel's MTU, MSS clamping); a firewall that dropped the connection; a receiver that is gone",
        frames: |of| of.spots.of(&[Wait::Undelivered]),
        part: |of| of.waits.of(Wait::Undelivered) as f64,
        sentence: |of, _| {
            let those = of.owed(OwedKind::Delivery, "connection");
            let bytes = count(of.undelivered_bytes, "byte");
            format!(
                "{those} sent {bytes} that no ACK covers until the capture ended, or an end gave up"
            )
        },
    },
    Kind {
        id: "unanswered_requests",
        severity: Failure,
        whole: ShareBase::Time,
        cause: |_| "A server did not answer",
        definition: "a request without data after it until the capture ended or an end closed, for 1 s or longer (8 round trips on a long path), where the server answered before, or the connection had one message",
        remedy: "the server's application: what it waits for (a lock, a database, a full accept queue), whether it runs at all",
        frames: |of| of.spots.of(&[Wait::Unanswered]),
        part: |of| of.waits.of(Wait::Unanswered) as f64,
        sentence: |of, _| {
            let those = of.owed(OwedKind::Answer, "server");
            format!("{those} owed an answer until the capture ended, or the client gave up")
        },
    },
    Kind {
        id: "stopped_answers",
        severity: Failure,
        whole: ShareBase::Time,
        cause: |_| "An answer stopped half way",
        definition: "an answer whose last packet has no PSH, so that its server had more to send, and nothing after it for 1 s or longer until the capture ended",
        remedy: "the server's application or its CPU; what lies between server and capture",
        frames: |of| of.spots.of(&[Wait::Stopped]),
        part: |of| of.waits.of(Wait::Stopped) as f64,
        sentence: |of, _| {
            let those = of.owed(OwedKind::RestOfAnswer, "server");
            format!(
                "{those} owed the rest of an answer until the capture ended, or the client gave up"
            )
        },
    },
    Kind {
        id: "unanswered_fins",
        severity: Failure,
        whole: ShareBase::Time,
        cause: |_| "A close was not answered",
        definition: "one FIN, and no data or FIN of the other end for 1 s or longer until the capture ended",
        remedy: "the application that does not close what its peer has closed (CLOSE_WAIT in ss -tn); net.ipv4.tcp_fin_timeout",
        frames: |of| of.spots.of(&[Wait::FinUnanswered]),
        part: |of| of.waits.of(Wait::FinUnanswered) as f64,
        sentence: |of, _| {
            let those = of.owed(OwedKind::Fin, "end");
            format!("{those} owed a FIN until the capture ended")
        },
    },
    Kind {
        id: "loss",
        severity: Slow,
        whole: ShareBase::Time,
        cause: |of| {
            let are_cut = of.total.options_cut > 0;
            match are_cut || of.one_sided * 2 > of.connections as u64 {
                true => "Packets were lost or overtaken: what would tell is not in the capture",
                false => "Packets were lost",
            }
        },
        definition: "the waits `loss`; with 1 % of segments resent and more also the time with a window that losses keep small",
        remedy: "find what drops packets (tc -s qdisc, ethtool -S, ip -s link); TCP_RTO_MIN_US, net.ipv4.tcp_recovery, TCP_CONGESTION",
        frames: |of| of.spots.of(RECOVERIES),
        part: |of| {
            if of.total.is_unclear() {
                return 0.0;
            }
            of.recovering_ns() as f64 + of.kept_small_ns(of.lossy_ns) as f64
        },
        sentence: |of, _| {
            let total = &of.total;
            let mut text = format!(
                "recovering: {} after ACKs reported it, {} after a timeout, {} after a tail probe; ",
                of.waited(Wait::LossFast),
                of.waited(Wait::LossTimeout),
                of.waited(Wait::LossProbe),
            );
            text += &match total.retransmitted_packets {
                0 => format!(
                    "{} report gaps",
                    count(total.sack_segments + total.duplicate_acks, "ACK")
                ),
                packets => format!(
                    "{} sent again, {:.1} % of segments, {} of them needlessly",
                    count(packets, "packet"),
                    of.resent_ratio() * 100.0,
                    total
                        .retransmitted_after_ack
                        .max(total.retransmitted_needlessly)
                ),
            };
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
        id: "needless_retransmissions",
        severity: Slow,
        whole: ShareBase::Time,
        cause: |_| "Packets changed their order, and were taken for lost",
        definition: "recoveries of which most retransmissions proved needless: by a D-SACK (RFC 2883), by a timestamp (Eifel, RFC 3522), or since the original came later; with 1 % of segments resent and more also the time with a window that this keeps small",
        remedy: "find what sends packets of one connection over several ways (balance-rr bonding, several queues, per-packet multipath); net.ipv4.tcp_reordering, net.ipv4.tcp_max_reordering, net.ipv4.tcp_recovery",
        frames: |of| of.spots.of(&[Wait::Reordering]),
        part: |of| {
            of.waits
                .of(Wait::Reordering)
                .saturating_add(of.reordered_ns) as f64
        },
        sentence: |of, _| {
            let total = &of.total;
            let mut text = format!(
                "{} needlessly sent again",
                count(total.retransmitted_needlessly, "packet"),
            );
            text += &match total.reordered_positions_most {
                0 => ": the receiver reported duplicates, or echoes the originals".to_string(),
                positions => format!(
                    ": reordering of {}, {}",
                    count(positions, "position"),
                    seconds(total.reordered_most_ns)
                ),
            };
            text
        },
    },
    Kind {
        id: "syn_retransmissions",
        severity: Slow,
        whole: ShareBase::Time,
        cause: |_| "SYNs were lost, or accepted late",
        definition: "the wait `SYN sent again`",
        remedy: "find what drops SYNs: a full backlog (net.core.somaxconn, net.ipv4.tcp_max_syn_backlog), a firewall, the path",
        frames: |of| of.spots.of(&[Wait::SynTimeout]),
        part: |of| of.waits.of(Wait::SynTimeout) as f64,
        sentence: |of, _| {
            let those = count(of.handshakes.syns_retransmitted, "SYN");
            format!("{those} sent again")
        },
    },
    Kind {
        id: "server_application",
        severity: Slow,
        whole: ShareBase::Time,
        cause: |_| "The server's application took its time",
        definition: "the wait for the server's application",
        remedy: "the server's application and whatever it waits for; several requests in flight (study: request-response)",
        frames: |of| of.spots.of(&[Wait::ServerApplication]),
        part: |of| of.waits.of(Wait::ServerApplication) as f64,
        sentence: |_, _| "after a request had arrived, or an answer had begun".to_string(),
    },
    Kind {
        id: "client_application",
        severity: Slow,
        whole: ShareBase::Time,
        cause: |_| "The client's application took its time",
        definition: "the wait for the client's application",
        remedy: "the client's application: larger or sooner writes (study: write-size)",
        frames: |of| of.spots.of(&[Wait::ClientApplication]),
        part: |of| of.waits.of(Wait::ClientApplication) as f64,
        sentence: |_, _| "after it had connected, or a request had begun".to_string(),
    },
    Kind {
        id: "round_trips",
        severity: Usual,
        whole: ShareBase::Time,
        cause: |_| "Round trips",
        definition: "the wait for round trips",
        remedy: "fewer round trips: connections that stay open, TCP_FASTOPEN, more requests in flight (study: request-response); a nearer server",
        frames: |of| of.spots.of(&[Wait::Network]),
        part: |of| of.waits.of(Wait::Network) as f64,
        sentence: |_, _| "handshakes, requests and answers on their way".to_string(),
    },
    Kind {
        id: "delayed_ack_stalls",
        severity: Slow,
        whole: ShareBase::Time,
        cause: |_| "Delayed ACKs held the sender",
        definition: "the wait `delayed ACK`",
        remedy: "receiver: TCP_QUICKACK or ip route ... quickack 1; sender: TCP_NODELAY (nodelay), one write a message (cork)",
        frames: |of| of.spots.of(&[Wait::DelayedAck]),
        part: |of| of.waits.of(Wait::DelayedAck) as f64,
        sentence: |of, _| {
            let those = count(of.total.delayed_ack_stalls, "stall");
            format!("{those}: data waited for an ACK that a timer sent")
        },
    },
    Kind {
        id: "receiver_window",
        severity: Slow,
        whole: ShareBase::Time,
        cause: |_| "The receiver's window was full",
        definition: "the wait for the receiver's window",
        remedy: "receiver: a reader that reads sooner (read_size), SO_RCVBUF unset or larger, net.ipv4.tcp_rmem",
        frames: |of| of.spots.of(&[Wait::ReceiverWindow]),
        part: |of| of.waits.of(Wait::ReceiverWindow) as f64,
        sentence: |of, _| {
            let closed = count(of.total.window_closings, "time");
            format!("it closed {closed}")
        },
    },
    Kind {
        id: "queueing",
        severity: Usual,
        whole: ShareBase::Time,
        cause: |_| "Data waited in a queue of the path",
        definition: "`congestion_window`, `sender_or_path` and `paced` where the median round trip is twice the shortest and 10 ms more",
        remedy: "a shorter queue where the path is slowest (fq_codel, cake, a lower txqueuelen or tbf limit); TCP_CONGESTION bbr; a limit of what is unsent (TCP_NOTSENT_LOWAT) or of the rate (SO_MAX_PACING_RATE)",
        frames: |of| {
            of.spots
                .of(&[Wait::CongestionWindow, Wait::Unclear, Wait::Paced])
        },
        part: |of| of.queueing_ns as f64,
        sentence: |of, _| {
            format!(
                "at the path's rate, {} of payload, with round trips of {} instead of {}",
                megabits(of.queued_rate),
                seconds(of.queued_rtt_ns),
                seconds(of.queued_rtt_min_ns)
            )
        },
    },
    Kind {
        id: "congestion_window",
        severity: Usual,
        whole: ShareBase::Time,
        cause: |_| "The sender waited for ACKs of data in flight",
        definition: "the wait for the congestion window or the path's rate, less what other findings have of it",
        remedy: "initcwnd (ip route), TCP_CONGESTION, SO_SNDBUF, net.ipv4.tcp_wmem; on a short path the hosts' own speed (study: write-size)",
        // Time of these may be that of the others, once the whole connection is known.
        frames: |of| {
            of.spots
                .of(&[Wait::CongestionWindow])
                .or(of.spots.of(&[Wait::ReceiverWindow]))
        },
        part: |of| of.window_ns() as f64,
        sentence: |_, _| "its congestion window, its send buffer, or the path's rate".to_string(),
    },
    Kind {
        id: "paced",
        severity: Usual,
        whole: ShareBase::Time,
        cause: |_| "The sender kept its own pace",
        definition: "the wait `sender's own pace`, less what `queueing` has of it",
        remedy: "SO_MAX_PACING_RATE, fq, a congestion control that paces (bbr); the sender's CPU",
        frames: |of| of.spots.of(&[Wait::Paced]),
        part: |of| of.paced_ns() as f64,
        sentence: |of, _| {
            format!(
                "it had data and window and waited: pacing, or a queue or the CPU before the capture, which let {} of payload through",
                megabits(of.paced_rate)
            )
        },
    },
    Kind {
        id: "sender_held_up",
        severity: Slow,
        whole: ShareBase::Time,
        cause: |_| "The sender had no CPU",
        definition: "the wait `sender held up`",
        remedy: "the sender's CPU: what else runs there (/proc/pressure/cpu, the second number of /proc/PID/schedstat); a larger SO_SNDBUF",
        frames: |of| of.spots.of(&[Wait::HeldUp]),
        part: |of| of.waits.of(Wait::HeldUp) as f64,
        sentence: |_, _| {
            "it had data and window and sent nothing, for times that follow no rate".to_string()
        },
    },
    Kind {
        id: "sender_or_path",
        severity: Usual,
        whole: ShareBase::Time,
        cause: |of| match of.is_unclear_by_one_side() {
            true => ONE_SIDED,
            false => "Cannot be told here: the sender, its window, or the path",
        },
        definition: "the wait `unclear`, less what other findings have of it",
        remedy: "capture at the sender, both directions and the handshake",
        // Time of these may be that of the others, once the whole connection is known.
        frames: |of| {
            of.spots
                .of(&[Wait::Unclear])
                .or(of.spots.of(&[Wait::LossFast]))
        },
        part: |of| of.unclear_ns() as f64,
        sentence: |_, _| {
            "data were limited by a window, by pacing or by the path's rate".to_string()
        },
    },
    Kind {
        id: "path_or_application",
        severity: Usual,
        whole: ShareBase::Time,
        cause: |of| match of.is_unclear_by_one_side() {
            true => ONE_SIDED,
            false => "Cannot be told here: round trips, or an application",
        },
        definition: "time before answers of which the share of the path is unknown: all ACKs came with answers and the handshake is not in the capture, or one direction is not in it",
        remedy: "capture both directions, and the handshake",
        // Time of these may be that of the others, once the whole connection is known.
        frames: |of| {
            of.spots.of(&[Wait::UnclearAnswer]).or(of
                .spots
                .of(&[Wait::ClientApplication, Wait::ServerApplication]))
        },
        part: |of| of.waits.of(Wait::UnclearAnswer) as f64,
        sentence: |_, _| "the time before answers".to_string(),
    },
    Kind {
        id: "failed_handshakes",
        severity: Failure,
        whole: ShareBase::Connections,
        cause: |of| {
            let of = &of.handshakes;
            if of.refused > of.unanswered + of.half_open {
                "Connections were refused"
            } else {
                "Connections were not established"
            }
        },
        definition: "handshakes with a RST for an answer, without an answer, or with nothing after it, 1 s before the capture ended or earlier (`handshakes` has them by kind)",
        remedy: "is the server up and its port open (ss -ltn there); a firewall; a full backlog (net.core.somaxconn, net.ipv4.tcp_max_syn_backlog)",
        frames: |of| of.spots.at(Sight::Syn),
        part: |of| of.handshakes.failed() as f64,
        sentence: |of, names| {
            let most = of.failed_to.most();
            let whom = most.map_or(String::new(), |end| {
                format!(", most to {}", endpoint_name(end, names))
            });
            let handshakes = &of.handshakes;
            format!(
                "{} went nowhere{whom}: {} refused by RST, {} unanswered, {} half-open (answered, then nothing)",
                count(handshakes.failed(), "handshake"),
                handshakes.refused,
                handshakes.unanswered,
                handshakes.half_open
            )
        },
    },
    Kind {
        id: "resets",
        severity: Usual,
        whole: ShareBase::Connections,
        cause: |_| "Connections were reset",
        definition: "connections that a RST ended with data in flight or a request unanswered",
        remedy: "the application that closes without reading all, or is killed; a middlebox that forgets connections (keepalives)",
        frames: |of| of.spots.at(Sight::Reset),
        part: |of| of.cut_off as f64,
        sentence: |of, _| {
            let those = count(of.cut_off, "connection");
            format!("{those} ended by RST with data in flight or a request unanswered")
        },
    },
];

/// Findings about what costs the CPU more than necessary.
pub(super) static COSTS: &[Kind] = &[
    Kind {
        id: "pure_acks",
        severity: Slow,
        whole: ShareBase::Packets,
        cause: |_| "ACKs",
        definition: "pure ACKs beyond one for eight segments (what Solaris allows a neighbour)",
        remedy: "receiver: GRO (ethtool -K DEV gro on), TCP_DELACK_MAX_US; no TCP_QUICKACK (study: segmentation)",
        frames: |of| of.spots.at(Sight::PureAck),
        part: |of| of.covering_acks as f64 - of.covered_segments as f64 / SEGMENTS_PER_ACK,
        sentence: |of, _| {
            format!(
                "{}; one for every eight wire segments would be {}",
                count(of.total.pure_acks, "pure ACK"),
                (of.covered_segments as f64 / SEGMENTS_PER_ACK).round()
            )
        },
    },
    Kind {
        id: "tail_splits",
        severity: Slow,
        whole: ShareBase::Packets,
        cause: |_| "Short tails",
        definition: "tail splits",
        remedy: "a kernel since 3.14, MSG_MORE off (cork), or writes of whole segments (study: tso-split)",
        frames: |of| of.spots.at(Sight::TailSplit),
        part: |of| of.total.tail_splits as f64,
        sentence: |of, _| {
            let tails = count(of.total.tail_splits, "short tail");
            format!("{tails} split off the super-segment before")
        },
    },
    Kind {
        id: "no_super_segments",
        severity: Slow,
        whole: ShareBase::Packets,
        cause: |_| "No segmentation offload",
        definition: "full-sized packets that offload would join to 64 KiB",
        remedy: "ethtool -K DEV tso on gso on at the sender, gro on at the receiver (study: segmentation)",
        frames: |of| of.spots.at(Sight::FullSized),
        part: |of| of.joined,
        sentence: |_, _| {
            "full-sized packets of one wire segment each where this was captured".to_string()
        },
    },
    Kind {
        id: "small_packets",
        severity: Slow,
        whole: ShareBase::Packets,
        cause: |_| "Small packets",
        definition: "joinable packets",
        remedy: "larger writes (write_size, study: write-size), TCP_CORK or MSG_MORE (cork), no TCP_NODELAY",
        frames: |of| of.spots.at(Sight::Joinable),
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
        severity: Slow,
        whole: ShareBase::Packets,
        cause: |_| "Retransmissions",
        definition: "retransmitted packets, if their number is known",
        remedy: "find what drops packets; net.ipv4.tcp_recovery, TCP_CONGESTION",
        frames: |of| of.spots.at(Sight::Retransmission),
        part: |of| {
            if of.total.is_unclear() {
                0.0
            } else {
                of.total.retransmitted_packets as f64
            }
        },
        sentence: |of, _| {
            format!(
                "{} sent again",
                count(of.total.retransmitted_packets, "packet")
            )
        },
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
        RECOVERIES
            .iter()
            .fold(0, |sum, wait| self.waits.of(*wait).saturating_add(sum))
    }

    /// Returns `ns` if losses keep the window small: then that time belongs to the finding about
    /// losses. Otherwise returns 0.
    fn kept_small_ns(&self, ns: u64) -> u64 {
        if self.resent_ratio() >= LOSSY { ns } else { 0 }
    }

    /// Number of ends or connections that owed something when the capture ended.
    fn owed(&self, kind: OwedKind, noun: &str) -> String {
        count(self.owed[kind as usize], noun)
    }

    /// Returns the time of a wait without the times of queueing, of reordering and of losses.
    fn rest_ns(&self, wait: Wait, others_ns: u64, lossy_ns: u64) -> u64 {
        let rest_ns = self.waits.of(wait).saturating_sub(others_ns);
        rest_ns.saturating_sub(self.kept_small_ns(lossy_ns))
    }

    fn window_ns(&self) -> u64 {
        self.rest_ns(
            Wait::CongestionWindow,
            self.queueing_window_ns
                .saturating_add(self.reordered_window_ns),
            self.lossy_window_ns,
        )
    }

    fn unclear_ns(&self) -> u64 {
        self.rest_ns(
            Wait::Unclear,
            self.queueing_unclear_ns
                .saturating_add(self.reordered_unclear_ns),
            self.lossy_unclear_ns,
        )
    }

    fn paced_ns(&self) -> u64 {
        self.rest_ns(Wait::Paced, self.queueing_paced_ns, 0)
    }

    fn is_unclear_by_one_side(&self) -> bool {
        self.one_sided_ns
            > self
                .unclear_ns()
                .saturating_add(self.waits.of(Wait::UnclearAnswer))
                / 2
    }
}
