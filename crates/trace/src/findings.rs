//! Findings about the connections of a capture, each with the knob that addresses it: what they
//! waited for most, what failed, and what costs the CPU more than necessary.
//!
//! Shares of time are shares of the time in which an end waited: idle connections do not count.
//! Shares of packets are shares of all captured packets, each of which passes the stack once. The
//! two cannot be added, so they are two lists. Both are estimates: a capture does not hold CPU
//! time.

use serde::Serialize;

use crate::evidence::Evidence;
use crate::read::Names;
use crate::segment::endpoint_name;
use crate::waits::Wait;

/// Finding: one cost, with its share.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Name for scripts.
    pub kind: &'static str,
    /// Estimated share of `share_of`, 0 to 1.
    pub share_ratio: f64,
    /// Quantity that the share refers to: time, packets or connections.
    pub share_of: &'static str,
    /// Description of the finding.
    pub text: String,
    /// Remedy: a study, a knob, or a socket option.
    pub knob: &'static str,
}

/// Least share that is reported.
const LEAST: f64 = 0.01;

/// Limit of findings in a list.
const LINES: usize = 4;

/// Wire segments that an ACK may well cover: the number that Solaris allows a receiver on the same
/// link (tcp_local_dacks_max). ACKs at this rate save seven eighths of their cost (3.6 µs of the
/// sender's CPU each, fitted to Jones 2005).
const SEGMENTS_PER_ACK: f64 = 8.0;

/// Least ratio of retransmitted segments at which losses are taken to keep the window small: with 1
/// % lost the mean window is about 12 segments (Mathis et al. 1997).
const LOSSY: f64 = 0.01;

const OF_TIME: &str = "the time in which connections were not idle";
const OF_PACKETS: &str = "all captured packets";

/// Findings of one list: the largest share first.
#[derive(Default)]
struct List(Vec<Finding>);

impl List {
    fn add(
        &mut self,
        (kind, share_of): (&'static str, &'static str),
        part: f64,
        whole: f64,
        knob: &'static str,
        text: String,
    ) {
        if whole > 0.0 && part / whole >= LEAST {
            self.0.push(Finding {
                kind,
                share_ratio: (part / whole).min(1.0),
                share_of,
                text,
                knob,
            });
        }
    }

    fn sorted(mut self) -> Vec<Finding> {
        self.0
            .sort_by(|a, b| b.share_ratio.total_cmp(&a.share_ratio));
        self.0.truncate(LINES);
        self.0
    }
}

fn seconds(ns: u64) -> String {
    match ns {
        0..10_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

fn megabits(bytes_per_s: f64) -> String {
    format!("{:.1} Mbit/s", bytes_per_s * 8.0 / 1e6)
}

impl Evidence {
    /// Findings about waits and failures, the largest share first.
    pub(crate) fn findings(&self, names: &Names) -> Vec<Finding> {
        let mut list = List::default();
        self.losses(&mut list);
        self.others(&mut list);
        self.failures(&mut list, names);
        list.sorted()
    }

    fn waited_ns(&self) -> f64 {
        self.waits
            .total_ns()
            .saturating_sub(self.waits.of(Wait::Idle)) as f64
    }

    fn resent_ratio(&self) -> f64 {
        let total = &self.total;
        total.retransmitted_wire_segments as f64 / total.data_wire_segments.max(1) as f64
    }

    fn losses(&self, list: &mut List) {
        let whole = self.waited_ns();
        let of = |wait| self.waits.of(wait);
        let (fast, timeout, probe) = (
            of(Wait::LossFast),
            of(Wait::LossTimeout),
            of(Wait::LossProbe),
        );
        let recovering = fast.saturating_add(timeout).saturating_add(probe);
        let resent = self.resent_ratio();
        let (by_window, because) = if resent >= LOSSY {
            let ns = self.lossy_ns;
            (
                ns,
                format!(
                    "; {} more with the window that losses keep small",
                    seconds(ns)
                ),
            )
        } else {
            (0, String::new())
        };
        let total = &self.total;
        if total.retransmitted_packets > 0 && !total.is_unclear() {
            let needless = total.retransmitted_after_ack.max(total.spurious_by_dsack);
            list.add(
                ("loss", OF_TIME),
                recovering as f64 + by_window as f64,
                whole,
                "find what drops packets (tc -s qdisc, ethtool -S, ip -s link); TCP_RTO_MIN_US, net.ipv4.tcp_recovery, TCP_CONGESTION",
                format!(
                    "{:.1} % of segments were retransmitted ({} packets, {needless} needlessly): {} recovering ({} after ACKs reported it, {} after a timeout, {} after a tail probe){because}",
                    resent * 100.0,
                    total.retransmitted_packets,
                    seconds(recovering),
                    seconds(fast),
                    seconds(timeout),
                    seconds(probe),
                ),
            );
        }
        list.add(
            ("syn_retransmissions", OF_TIME),
            of(Wait::SynTimeout) as f64,
            whole,
            "find what drops SYNs: a full backlog (net.core.somaxconn, net.ipv4.tcp_max_syn_backlog), a firewall, the path",
            format!(
                "{} SYNs were sent again, which took {}",
                self.handshakes.syns_retransmitted,
                seconds(of(Wait::SynTimeout))
            ),
        );
    }

    fn others(&self, list: &mut List) {
        let whole = self.waited_ns();
        let of = |wait| self.waits.of(wait);
        let total = &self.total;
        let mut add =
            |kind, ns: u64, knob, text| list.add((kind, OF_TIME), ns as f64, whole, knob, text);
        let server = of(Wait::ServerApplication);
        add(
            "server_application",
            server,
            "the server's application and whatever it waits for; several requests in flight (study: request-response)",
            format!(
                "{} were spent waiting for the server's application: a request had arrived, or an answer had begun",
                seconds(server)
            ),
        );
        let client = of(Wait::ClientApplication);
        add(
            "client_application",
            client,
            "the client's application: larger or sooner writes (study: write-size)",
            format!(
                "{} were spent waiting for the client's application, which had begun to send",
                seconds(client)
            ),
        );
        let network = of(Wait::Network);
        add(
            "round_trips",
            network,
            "fewer round trips: connections that stay open, TCP_FASTOPEN, more requests in flight (study: request-response); a nearer server",
            format!("{} were spent waiting for round trips", seconds(network)),
        );
        let stalled = of(Wait::DelayedAck);
        add(
            "delayed_ack_stalls",
            stalled,
            "receiver: TCP_QUICKACK or ip route ... quickack 1; sender: TCP_NODELAY (nodelay), one write a message (cork)",
            format!(
                "{} stalls waited {} for a delayed ACK",
                total.delayed_ack_stalls,
                seconds(stalled)
            ),
        );
        let receiver = of(Wait::ReceiverWindow);
        add(
            "receiver_window",
            receiver,
            "receiver: a reader that reads sooner (read_size), SO_RCVBUF unset or larger, net.ipv4.tcp_rmem",
            format!(
                "the receiver's window was full for {}, closed {} times",
                seconds(receiver),
                total.window_closings
            ),
        );
        // If losses keep the window small, that time is in the finding about losses.
        let lossy_ns = if self.resent_ratio() >= LOSSY {
            self.lossy_ns
        } else {
            0
        };
        let queue = self.queueing_ns;
        let less = |wait, queueing: u64, lossy: u64| {
            let rest_ns = of(wait).saturating_sub(queueing);
            rest_ns.saturating_sub(lossy.min(lossy_ns))
        };
        let window = less(
            Wait::CongestionWindow,
            self.queueing_window_ns,
            self.lossy_window_ns,
        );
        let unclear = less(
            Wait::Unclear,
            self.queueing_unclear_ns,
            self.lossy_unclear_ns,
        );
        let paced = of(Wait::Paced).saturating_sub(self.queueing_paced_ns);
        add(
            "queueing",
            queue,
            "a shorter queue where the path is slowest (fq_codel, cake, a lower txqueuelen or tbf limit); TCP_CONGESTION bbr; a limit of what is unsent (TCP_NOTSENT_LOWAT) or of the rate (SO_MAX_PACING_RATE)",
            format!(
                "the path's rate, {} of payload: for {} data waited in a queue, which made round trips of {} out of {}",
                megabits(self.queued_rate),
                seconds(queue),
                seconds(self.queued_rtt_ns),
                seconds(self.queued_rtt_min_ns)
            ),
        );
        add(
            "congestion_window",
            window,
            "initcwnd (ip route), TCP_CONGESTION, SO_SNDBUF, net.ipv4.tcp_wmem; on a short path the hosts' own speed (study: write-size)",
            format!(
                "the sender waited for ACKs of data in flight for {}: its congestion window, its send buffer, or the path's rate",
                seconds(window)
            ),
        );
        add(
            "paced",
            paced,
            "SO_MAX_PACING_RATE, fq, a congestion control that paces (bbr); the sender's CPU",
            format!(
                "the sender waited for {} although it had data and window: pacing, or a queue or the CPU before the capture, which let {} of payload through",
                seconds(paced),
                megabits(self.paced_rate)
            ),
        );
        let held_up = of(Wait::HeldUp);
        add(
            "sender_held_up",
            held_up,
            "the sender's CPU: what else runs there (/proc/pressure/cpu, the second number of /proc/PID/schedstat); a larger SO_SNDBUF",
            format!(
                "for {} the sender had data and window and sent nothing, for times that follow no rate: its program, or its kernel, had no CPU",
                seconds(held_up)
            ),
        );
        let (knob, text) = if self.one_sided_ns > unclear / 2 {
            (
                "capture both directions: at an end, or at both links of a path that is not the same there and back",
                format!(
                    "for {} it is not known who waited: of {} only one direction was captured",
                    seconds(unclear),
                    seconds(self.one_sided_ns.min(unclear))
                ),
            )
        } else {
            (
                "capture at the sender, handshake included: there it shows which",
                format!(
                    "for {} data were limited by the sender's window, its pacing or the path's rate, which a capture at this place cannot distinguish",
                    seconds(unclear)
                ),
            )
        };
        add("sender_or_path", unclear, knob, text);
    }

    fn failures(&self, list: &mut List, names: &Names) {
        let begun = self.connections as f64;
        let handshakes = &self.handshakes;
        let failed = handshakes.failed();
        let most = self.failed_to.most();
        let whom = most.map_or(String::new(), |end| {
            format!(", most to {}", endpoint_name(end, names))
        });
        list.add(
            ("failed_handshakes", "all connections"),
            failed as f64,
            begun,
            "is the server up and its port open (ss -ltn there); a firewall; a full backlog (net.core.somaxconn, net.ipv4.tcp_max_syn_backlog)",
            format!(
                "{failed} handshakes went nowhere{whom}: {} unanswered, {} refused by RST, {} half-open (answered, then nothing)",
                handshakes.unanswered, handshakes.refused, handshakes.half_open
            ),
        );
        list.add(
            ("resets", "all connections"),
            self.cut_off as f64,
            begun,
            "the application that closes without reading all, or is killed; a middlebox that forgets connections (keepalives)",
            format!(
                "{} connections were reset with data in flight or a request unanswered",
                self.cut_off
            ),
        );
    }

    /// Remarks that are no findings: nothing waited for them, but a reader should know them.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let all = self.waits.total_ns();
        let idle = self.waits.of(Wait::Idle);
        if all > 0 && idle > all / 2 {
            notes.push(format!(
                "connections were idle for {:.0} % of their time",
                idle as f64 / all as f64 * 100.0
            ));
        }
        if self.keepalive_only > 0 {
            notes.push(format!(
                "{} connections carried nothing but keepalives",
                self.keepalive_only
            ));
        }
        if self.total.is_unclear() {
            notes.push(format!(
                "{} packets were retransmitted or captured twice: nothing in them tells which, so the number of retransmissions is unknown",
                self.total.repeats_unclear
            ));
        }
        notes
    }

    /// Findings about what costs the CPU more than necessary, the largest share of packets first.
    pub(crate) fn costs(&self) -> Vec<Finding> {
        let all = &self.total;
        let packets = all.captured_packets as f64;
        let mut list = List::default();
        let mut add =
            |kind, part, knob, text| list.add((kind, OF_PACKETS), part, packets, knob, text);
        let at_eight = self.covered_segments as f64 / SEGMENTS_PER_ACK;
        add(
            "pure_acks",
            self.covering_acks as f64 - at_eight,
            "receiver: GRO (ethtool -K DEV gro on), TCP_DELACK_MAX_US; no TCP_QUICKACK (study: segmentation)",
            format!(
                "{} pure ACKs; one for every eight wire segments would be {}",
                all.pure_acks,
                at_eight.round()
            ),
        );
        add(
            "tail_splits",
            all.tail_splits as f64,
            "a kernel since 3.14, MSG_MORE off (cork), or writes of whole segments (study: segmentation)",
            format!(
                "{} short tails were split off the super-segment before them",
                all.tail_splits
            ),
        );
        add(
            "no_super_segments",
            self.joined,
            "ethtool -K DEV tso on gso on at the sender, gro on at the receiver (study: segmentation)",
            "full-sized packets of one wire segment each: no segmentation offload where this was captured".to_string(),
        );
        add(
            "small_packets",
            all.joinable_packets as f64,
            "larger writes (write_size, study: write-size), TCP_CORK or MSG_MORE (cork), no TCP_NODELAY",
            format!(
                "{} of {} packets shorter than one MSS followed a short one at once and fit into it",
                all.joinable_packets, all.small_packets
            ),
        );
        let resent = if all.is_unclear() {
            0
        } else {
            all.retransmitted_packets
        };
        add(
            "retransmissions",
            resent as f64,
            "find what drops packets; net.ipv4.tcp_recovery, TCP_CONGESTION",
            format!("{resent} packets were sent again"),
        );
        list.sorted()
    }
}
