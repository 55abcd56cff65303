//! What costs a capture's transfers most, and the knob that addresses it.
//!
//! Two kinds of share cannot be added: time that was lost, of the time that connections with data
//! lasted; and packets that need not be, of all captured packets, each of which passes the stack
//! once. Both are estimates: the capture does not hold CPU time.

use serde::Serialize;

use crate::connection::Connection;
use crate::sent::Sent;

/// One line that costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Its name for scripts.
    pub kind: &'static str,
    /// Its estimated share, 0 to 1.
    pub share_ratio: f64,
    /// Of what.
    pub share_of: &'static str,
    /// What was found.
    pub text: String,
    /// A study of it, a knob, or a socket option.
    pub knob: &'static str,
}

/// Shares below are not worth a line.
const LEAST: f64 = 0.01;

/// How many lines.
const LINES: usize = 3;

/// Wire segments that an ACK may well cover: what Solaris allows a receiver on the same link
/// (tcp_local_dacks_max). Of what ACKs cost (3.6 µs of the sender's CPU each, fitted to Jones 2005) this
/// saves seven eighths.
const SEGMENTS_PER_ACK: f64 = 8.0;

/// What segmentation offload joins by default: gso_max_size.
const SUPER_SEGMENT_BYTES: f64 = 65_536.0;

/// What the findings rest on: sums over connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grounds {
    /// How many connections.
    pub(crate) connections: usize,
    /// All that both ends sent.
    pub(crate) total: Sent,
    /// Of the direction that carries more data: the other one waits by its nature.
    main: Sent,
    /// How long connections with data lasted.
    time_ns: u64,
    /// Packets that segmentation offload would save.
    joined: f64,
    /// Pure ACKs that cover payload, and the wire segments that they cover.
    covering_acks: u64,
    covered_segments: u64,
}

impl Grounds {
    pub(crate) fn add(&mut self, connection: &Connection) {
        self.connections += 1;
        self.total.add(&connection.total());
        let [client, server] = &connection.halves;
        let more = if server.sent.payload_bytes > client.sent.payload_bytes {
            server
        } else {
            client
        };
        if more.sent.payload_bytes > 0 {
            self.main.add(&more.sent);
            let duration_ns = connection.duration_ns().unwrap_or(0);
            self.time_ns = self.time_ns.saturating_add(duration_ns);
        }
        for half in [client, server] {
            let least = (half.sent.payload_bytes as f64 / SUPER_SEGMENT_BYTES).ceil();
            let full = half
                .sent
                .captured_data_packets
                .saturating_sub(half.sent.small_packets) as f64;
            if half.sent.super_segments == 0 {
                self.joined += (full - least).max(0.0);
            }
            self.covering_acks += half.acks.wire_segments_per_pure_ack.n();
            self.covered_segments += half.acks.wire_segments_per_pure_ack.sum();
        }
    }

    /// The lines that cost most, the largest share first.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let Grounds {
            total: all,
            main,
            time_ns,
            joined,
            covering_acks,
            covered_segments,
            ..
        } = self;
        let (time_ns, joined) = (*time_ns, *joined);
        let (receivers_acks, covered_segments) = (*covering_acks, *covered_segments);
        // A stall has a line of its own.
        let window_limited_ns = main
            .window_limited_ns
            .saturating_sub(main.delayed_ack_stall_ns);
        let mut found = Vec::new();
        let mut add = |kind, part: f64, whole: u64, share_of, knob, text: String| {
            if whole > 0 && part / whole as f64 >= LEAST {
                let share_ratio = (part / whole as f64).min(1.0);
                found.push(Finding {
                    kind,
                    share_ratio,
                    share_of,
                    text,
                    knob,
                });
            }
        };
        let ms = |ns: u64| match ns {
            0..10_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
            _ => format!("{:.1} s", ns as f64 / 1e9),
        };
        let of_time = "the time of connections with data";
        add(
            "delayed_ack_stalls",
            all.delayed_ack_stall_ns as f64,
            time_ns,
            of_time,
            "receiver: TCP_QUICKACK or ip route ... quickack 1; sender: TCP_NODELAY (nodelay), one write a message (cork)",
            format!(
                "{} stalls waited {} for a delayed ACK",
                all.delayed_ack_stalls,
                ms(all.delayed_ack_stall_ns)
            ),
        );
        add(
            "receiver_limited",
            main.receiver_limited_ns as f64,
            time_ns,
            of_time,
            "receiver: SO_RCVBUF, net.ipv4.tcp_rmem, a reader that reads sooner (read_size)",
            format!(
                "the receiver's window was full for {}, closed {} times",
                ms(main.receiver_limited_ns),
                all.zero_windows
            ),
        );
        add(
            "silence_before_retransmission",
            all.silence_before_retransmission_ns as f64,
            time_ns,
            of_time,
            "TCP_RTO_MIN_US, net.ipv4.tcp_recovery; first find what drops packets",
            format!(
                "{} of silence ended in a retransmission",
                ms(all.silence_before_retransmission_ns)
            ),
        );
        add(
            "window_limited",
            window_limited_ns as f64,
            time_ns,
            of_time,
            "TCP_CONGESTION, SO_SNDBUF; on a short path the receiver's own speed (study: write-size)",
            format!(
                "the sender waited for ACKs with data in flight for {}",
                ms(window_limited_ns)
            ),
        );
        add(
            "application_limited",
            main.application_limited_ns as f64,
            time_ns,
            of_time,
            "the application: larger writes (study: write-size), more requests in flight (study: request-response)",
            format!(
                "the sender had nothing to send for {}, or a queue or pacing before the capture held it",
                ms(main.application_limited_ns)
            ),
        );
        let packets = all.captured_packets;
        let of_packets = "all captured packets";
        add(
            "pure_acks",
            receivers_acks as f64 - covered_segments as f64 / SEGMENTS_PER_ACK,
            packets,
            of_packets,
            "receiver: GRO (ethtool -K DEV gro on), TCP_DELACK_MAX_US; no TCP_QUICKACK (study: segmentation)",
            format!(
                "{} pure ACKs; one for every eight wire segments would be {}",
                all.pure_acks,
                (covered_segments as f64 / SEGMENTS_PER_ACK).round()
            ),
        );
        add(
            "tail_splits",
            all.tail_splits as f64,
            packets,
            of_packets,
            "a kernel since 3.14, MSG_MORE off (cork), or writes of whole segments (study: segmentation)",
            format!(
                "{} short tails were split off the super-segment before them",
                all.tail_splits
            ),
        );
        add("no_super_segments", joined, packets, of_packets,
        "ethtool -K DEV tso on gso on at the sender, gro on at the receiver (study: segmentation)",
        "full-sized packets of one wire segment each: no segmentation offload where this was captured".to_string());
        add(
            "small_packets",
            all.joinable_packets as f64,
            packets,
            of_packets,
            "larger writes (write_size, study: write-size), TCP_CORK or MSG_MORE (cork), no TCP_NODELAY",
            format!(
                "{} of {} packets shorter than one MSS followed a short one at once and fit into it",
                all.joinable_packets, all.small_packets
            ),
        );
        add(
            "retransmissions",
            all.retransmitted_packets as f64,
            packets,
            of_packets,
            "find what drops packets; net.ipv4.tcp_recovery, TCP_CONGESTION",
            format!(
                "{} packets were sent again, {} of them without need",
                all.retransmitted_packets,
                all.retransmitted_after_ack.max(all.spurious_by_dsack)
            ),
        );
        found.sort_by(|a, b| b.share_ratio.total_cmp(&a.share_ratio));
        found.truncate(LINES);
        found
    }
}
