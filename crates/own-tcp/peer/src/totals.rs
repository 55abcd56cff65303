//! Totals that the peer prints each second and at the end.

use std::time::Duration;

use serde::Serialize;
use tcpcost_link::Lanes;
use tcpcost_tcp::{Counters, EndpointCounters};

/// Totals since the start. A field that counts a quantity has its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Time since the start.
    pub elapsed_ns: u64,
    /// Connections that are open.
    pub connections: u64,
    /// Connections since the start, open ones included.
    pub connections_opened: u64,
    pub payload_bytes_sent: u64,
    pub payload_bytes_received: u64,
    /// Bytes that sink:check found wrong.
    pub wrong_bytes: u64,
    pub segments_sent: u64,
    pub super_segments_sent: u64,
    pub segments_received: u64,
    pub super_segments_received: u64,
    pub pure_acks_sent: u64,
    pub pure_acks_received: u64,
    pub segments_retransmitted: u64,
    pub timeouts: u64,
    pub out_of_order_received: u64,
    /// Packets dropped because of their content: all reasons but `foreign`.
    pub packets_dropped: u64,
    /// Dropped packets by reason.
    pub dropped: Dropped,
    /// Packets that the impaired wire lost, both ways.
    pub packets_lost_on_the_wire: u64,
}

/// Why packets were dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Dropped {
    pub checksum: u64,
    pub malformed: u64,
    pub fragment: u64,
    pub protocol: u64,
    pub no_connection: u64,
    pub backlog: u64,
    /// Packets to other hosts, or from addresses that no host can have.
    pub foreign: u64,
}

impl Dropped {
    /// Counts with the names of their reasons.
    fn each(&mut self) -> [(&'static str, &mut u64); 7] {
        [
            ("checksum", &mut self.checksum),
            ("malformed", &mut self.malformed),
            ("fragment", &mut self.fragment),
            ("protocol", &mut self.protocol),
            ("no connection", &mut self.no_connection),
            ("backlog", &mut self.backlog),
            ("foreign", &mut self.foreign),
        ]
    }

    fn join(&mut self, mut other: Dropped) {
        for ((_, sum), (_, count)) in self.each().into_iter().zip(other.each()) {
            *sum += *count;
        }
    }

    /// Reasons whose count is not 0, in parentheses.
    fn text(mut self) -> String {
        let reasons = self.each().into_iter().filter(|(_, count)| **count > 0);
        let reasons: Vec<String> = reasons
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        if reasons.is_empty() {
            String::new()
        } else {
            format!(" ({})", reasons.join(", "))
        }
    }
}

impl Totals {
    /// Adds the counters of a connection. Payload sent excludes retransmissions.
    pub fn add(&mut self, counters: &Counters) {
        self.payload_bytes_sent +=
            counters.payload_bytes_sent - counters.payload_bytes_retransmitted;
        self.payload_bytes_received += counters.payload_bytes_received;
        self.segments_sent += counters.segments_sent;
        self.super_segments_sent += counters.super_segments_sent;
        self.segments_received += counters.segments_received;
        self.super_segments_received += counters.super_segments_received;
        self.pure_acks_sent += counters.pure_acks_sent;
        self.pure_acks_received += counters.pure_acks_received;
        self.segments_retransmitted += counters.segments_retransmitted;
        self.timeouts += u64::from(counters.timeouts);
        self.out_of_order_received += u64::from(counters.out_of_order_received);
    }

    /// Adds the totals of another instance.
    pub fn join(&mut self, other: &Totals) {
        let Totals {
            elapsed_ns,
            connections,
            connections_opened,
            payload_bytes_sent,
            payload_bytes_received,
            wrong_bytes,
            segments_sent,
            super_segments_sent,
            segments_received,
            super_segments_received,
            pure_acks_sent,
            pure_acks_received,
            segments_retransmitted,
            timeouts,
            out_of_order_received,
            packets_dropped,
            dropped,
            packets_lost_on_the_wire,
        } = *other;
        self.dropped.join(dropped);
        self.elapsed_ns = self.elapsed_ns.max(elapsed_ns);
        self.connections += connections;
        self.connections_opened += connections_opened;
        self.payload_bytes_sent += payload_bytes_sent;
        self.payload_bytes_received += payload_bytes_received;
        self.wrong_bytes += wrong_bytes;
        self.segments_sent += segments_sent;
        self.super_segments_sent += super_segments_sent;
        self.segments_received += segments_received;
        self.super_segments_received += super_segments_received;
        self.pure_acks_sent += pure_acks_sent;
        self.pure_acks_received += pure_acks_received;
        self.segments_retransmitted += segments_retransmitted;
        self.timeouts += timeouts;
        self.out_of_order_received += out_of_order_received;
        self.packets_dropped += packets_dropped;
        self.packets_lost_on_the_wire += packets_lost_on_the_wire;
    }

    /// Sets the counts of the endpoint and of the wire.
    pub fn set_endpoint(&mut self, endpoint: &EndpointCounters, lanes: &Lanes) {
        self.dropped = Dropped {
            checksum: endpoint.dropped_checksum,
            malformed: endpoint.dropped_malformed,
            fragment: endpoint.dropped_fragment,
            protocol: endpoint.dropped_protocol,
            no_connection: endpoint.dropped_no_connection,
            backlog: endpoint.dropped_backlog,
            foreign: endpoint.dropped_foreign,
        };
        // Packets for other hosts were not dropped because of their content.
        let own = Dropped {
            foreign: 0,
            ..self.dropped
        }
        .each()
        .into_iter()
        .map(|(_, count)| *count)
        .sum();
        self.packets_dropped = own;
        let lost = |lane: &tcpcost_link::LaneCounters| lane.lost + lane.overflowed;
        self.packets_lost_on_the_wire = lost(&lanes.sent) + lost(&lanes.received);
    }

    /// One line for people. Rates are over the time since `before`.
    pub fn line(&self, before: &Totals) -> String {
        let elapsed = Duration::from_nanos(self.elapsed_ns);
        let seconds = (self.elapsed_ns - before.elapsed_ns) as f64 / 1e9;
        let rate = |now: u64, then: u64| {
            if seconds > 0.0 {
                now.saturating_sub(then) as f64 * 8.0 / seconds / 1e6
            } else {
                0.0
            }
        };
        format!(
            "{:7.1} s  {} of {} connections  sent {:.1} Mbit/s ({} B)  received {:.1} Mbit/s ({} B)  \
             segments {}/{}  pure ACKs {}/{}  retransmitted {}  timeouts {}  lost {}  dropped {}{}{}",
            elapsed.as_secs_f64(),
            self.connections,
            self.connections_opened,
            rate(self.payload_bytes_sent, before.payload_bytes_sent),
            self.payload_bytes_sent,
            rate(self.payload_bytes_received, before.payload_bytes_received),
            self.payload_bytes_received,
            self.segments_sent,
            self.segments_received,
            self.pure_acks_sent,
            self.pure_acks_received,
            self.segments_retransmitted,
            self.timeouts,
            self.packets_lost_on_the_wire,
            self.packets_dropped,
            self.dropped.text(),
            match self.wrong_bytes {
                0 => String::new(),
                wrong => format!("  WRONG {wrong} B"),
            },
        )
    }
}
