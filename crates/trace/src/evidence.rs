//! Evidence for findings: sums over connections.

use crate::connection::{Connection, ConnectionStart, Sight, Spots};
use crate::counts::DirectionCounts;
use crate::handshakes::{CommonestEndpoints, Handshakes};
use crate::waits::{Wait, Waits};

/// Default size of a super-segment, bytes: gso_max_size.
const SUPER_SEGMENT_BYTES: f64 = 65_536.0;

/// Delay above the shortest round trip from which data must have waited in a queue, if the round
/// trip is more than twice the shortest, too.
const QUEUED_NS: u64 = 10_000_000;

/// Sums over connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct Evidence {
    /// Number of connections.
    pub(crate) connections: usize,
    /// Counts of both ends.
    pub(crate) total: DirectionCounts,
    /// Waits of the connections that have times.
    pub(crate) waits: Waits,
    /// Packets that segmentation offload would save.
    pub(crate) joined: f64,
    /// Pure ACKs that cover payload, and the wire segments that they cover.
    pub(crate) covering_acks: u64,
    pub(crate) covered_segments: u64,
    pub(crate) handshakes: Handshakes,
    /// Destinations of failed handshakes.
    pub(crate) failed_to: CommonestEndpoints,
    /// Frames at which causes show.
    pub(crate) spots: Spots,
    /// Connections that began before the capture, and those of which the scale of a window is unknown.
    pub(crate) begun_before: u64,
    pub(crate) scale_unknown: u64,
    /// Things owed when the capture ended, by kind, and the bytes that were not delivered.
    pub(crate) owed: [u64; 4],
    pub(crate) undelivered_bytes: u64,
    /// Connections that a RST cut off, and connections that only sent keepalives.
    pub(crate) cut_off: u64,
    pub(crate) keepalive_only: u64,
    /// Time waited for the congestion window, for the pace, or for an unclear cause: in connections
    /// with queueing (`queueing_`), and in connections with losses (`lossy_`), ns.
    pub(crate) queueing_ns: u64,
    pub(crate) queueing_window_ns: u64,
    pub(crate) queueing_unclear_ns: u64,
    pub(crate) queueing_paced_ns: u64,
    pub(crate) lossy_ns: u64,
    pub(crate) lossy_window_ns: u64,
    pub(crate) lossy_unclear_ns: u64,
    /// Time waited for the congestion window, or for an unclear cause, in connections whose retransmissions proved needless, ns.
    pub(crate) reordered_ns: u64,
    pub(crate) reordered_window_ns: u64,
    pub(crate) reordered_unclear_ns: u64,
    /// Median and shortest round trip of the connection with the longest queueing time.
    pub(crate) queued_rtt_ns: u64,
    pub(crate) queued_rtt_min_ns: u64,
    /// Payload rate of the larger direction while not idle, bytes per second: of the connection
    /// with the longest queueing time, and of the connection that was paced longest.
    pub(crate) queued_rate: f64,
    pub(crate) paced_rate: f64,
    /// Connections of which only one direction was captured.
    pub(crate) one_sided: u64,
    /// Time with an unclear cause in connections of which only one direction was captured, ns.
    pub(crate) one_sided_ns: u64,
    queued_most_ns: u64,
    paced_most_ns: u64,
}

impl Evidence {
    pub(crate) fn add(&mut self, connection: &Connection) {
        self.connections += 1;
        self.total.add(&connection.total());
        let failed = self.handshakes.failed();
        self.handshakes.add(connection);
        if self.handshakes.failed() > failed {
            self.failed_to.add(connection.ends[1]);
            self.spots.add_sight(Sight::Syn, connection.spots());
        }
        if connection.is_cut_off() {
            self.cut_off += 1;
            self.spots.add_sight(Sight::Reset, connection.spots());
        }
        for sight in [
            Sight::Retransmission,
            Sight::TailSplit,
            Sight::Joinable,
            Sight::PureAck,
        ] {
            self.spots.add_sight(sight, connection.spots());
        }
        let is_older = connection.began() == ConnectionStart::BeforeCapture;
        self.begun_before += u64::from(is_older);
        self.one_sided += u64::from(connection.is_one_sided());
        self.scale_unknown += u64::from(connection.is_scale_unknown());
        if let Some(owed) = connection.owed() {
            self.owed[owed.kind as usize] += 1;
            self.undelivered_bytes = self.undelivered_bytes.saturating_add(owed.bytes);
        }
        let directions = &connection.directions;
        let carries = directions.iter().any(|of| of.sent.payload_bytes > 0);
        let keepalives = directions.iter().any(|of| of.sent.keepalives > 0);
        let other_data = directions
            .iter()
            .any(|of| of.sent.payload_bytes > of.sent.keepalives);
        self.keepalive_only += u64::from(keepalives && !(carries && other_data));
        if connection.duration_ns().is_some() {
            self.add_waits(connection);
        }
        for direction in directions {
            let least = (direction.sent.payload_bytes as f64 / SUPER_SEGMENT_BYTES).ceil();
            let full = direction
                .sent
                .captured_data_packets
                .saturating_sub(direction.sent.small_packets) as f64;
            let joined = (full - least).max(0.0);
            if direction.sent.super_segments == 0 && joined > 0.0 {
                self.joined += joined;
                self.spots.add_sight(Sight::FullSized, connection.spots());
            }
            self.covering_acks += direction.acks.wire_segments_per_pure_ack.n();
            self.covered_segments += direction.acks.wire_segments_per_pure_ack.sum();
        }
    }

    fn add_waits(&mut self, connection: &Connection) {
        let waits = connection.waits();
        self.waits.add_all(&waits);
        self.spots.add_waits(connection.spots());
        if connection.is_one_sided() {
            let ns = waits
                .of(Wait::Unclear)
                .saturating_add(waits.of(Wait::UnclearAnswer));
            self.one_sided_ns = self.one_sided_ns.saturating_add(ns);
        }
        let of = |wait| waits.of(wait);
        let (window, unclear, paced) = (
            of(Wait::CongestionWindow),
            of(Wait::Unclear),
            of(Wait::Paced),
        );
        let sum = |of: &mut u64, ns: u64| *of = of.saturating_add(ns);
        let total = connection.total();
        let needless = total.retransmitted_needlessly;
        let lost = total.retransmitted_wire_segments.saturating_sub(needless);
        let sent = total.data_wire_segments.max(1);
        if connection.is_one_sided() {
            // Without the ACKs nothing shows what losses did to the window.
        } else if of(Wait::Reordering) > 0 && needless > lost && needless * 100 >= sent {
            sum(&mut self.reordered_ns, window.saturating_add(unclear));
            sum(&mut self.reordered_window_ns, window);
            sum(&mut self.reordered_unclear_ns, unclear);
        } else if lost * 100 >= sent {
            sum(&mut self.lossy_ns, window.saturating_add(unclear));
            sum(&mut self.lossy_window_ns, window);
            sum(&mut self.lossy_unclear_ns, unclear);
        } else if let Some((rtt_ns, min_ns)) = connection
            .queued()
            .filter(|_| !connection.is_scale_unknown())
        {
            let queued_ns = window.saturating_add(unclear).saturating_add(paced);
            sum(&mut self.queueing_ns, queued_ns);
            sum(&mut self.queueing_window_ns, window);
            sum(&mut self.queueing_unclear_ns, unclear);
            sum(&mut self.queueing_paced_ns, paced);
            if queued_ns > self.queued_most_ns {
                self.queued_most_ns = queued_ns;
                (self.queued_rtt_ns, self.queued_rtt_min_ns) = (rtt_ns, min_ns);
                self.queued_rate = rate(connection, &waits);
            }
        } else if paced > self.paced_most_ns {
            self.paced_most_ns = paced;
            self.paced_rate = rate(connection, &waits);
        }
    }
}

/// Payload rate of the larger direction while the connection was not idle, bytes per second.
pub(crate) fn rate(connection: &Connection, waits: &Waits) -> f64 {
    let bytes = connection.directions.iter().map(|of| of.sent.payload_bytes);
    let busy_ns = waits.total_ns().saturating_sub(waits.of(Wait::Idle));
    bytes.max().unwrap_or(0) as f64 / (busy_ns.max(1) as f64 / 1e9)
}

impl Connection {
    /// Median and shortest round trip, ns. `None` unless the median is so much longer that data
    /// must have waited in a queue.
    fn queued(&self) -> Option<(u64, u64)> {
        let is_queued = |(median, min): &(u64, u64)| {
            *median > min.saturating_mul(2) && *median > min.saturating_add(QUEUED_NS)
        };
        self.round_trips().filter(is_queued)
    }
}
