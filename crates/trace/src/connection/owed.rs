//! Exchanges that were not finished when the capture ended: they are not idle, an end owes something.

use serde::Serialize;

use super::Connection;
use crate::waits::Wait;

/// Something that one end owed the other when the capture ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Owed {
    /// Kind of what was owed.
    pub kind: OwedKind,
    /// End that owed it, 0 for the client. Of data that were not delivered: the end that sent them.
    pub by: usize,
    /// Bytes that were not delivered; 0 for other kinds.
    pub bytes: u64,
    /// Time since then, ns.
    pub ns: u64,
}

/// Kind of what was owed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OwedKind {
    /// The server owed an answer.
    Answer,
    /// The server owed the rest of an answer.
    RestOfAnswer,
    /// The path, or the receiver, owed the delivery of data.
    Delivery,
    /// An end owed a FIN: the other had closed.
    Fin,
}

impl OwedKind {
    /// Wait to which the time is charged.
    fn wait(self) -> Wait {
        match self {
            OwedKind::Answer => Wait::Unanswered,
            OwedKind::RestOfAnswer => Wait::Stopped,
            OwedKind::Delivery => Wait::Undelivered,
            OwedKind::Fin => Wait::FinUnanswered,
        }
    }
}

/// Time from which something is owed, ns: RFC 6298's first timeout. A shorter silence is that of any server.
pub(super) const LEAST_NS: u64 = 1_000_000_000;

/// Round trips after which something is owed, on a path where these take longer.
const ROUND_TRIPS: u64 = 8;

/// Size up to which a first message that nothing answered is taken for a request, bytes. More is an upload, which needs no answer.
const REQUEST_MOST: u64 = 65_536;

impl Connection {
    /// Returns what was owed when the capture ended. `None` if all exchanges were finished, or the capture ended soon after.
    pub fn owed(&self) -> Option<Owed> {
        self.owed
    }

    /// Charges the rest at the end of the capture: what is owed; else the way of the last ACK, then silence.
    pub(super) fn end_span(&mut self) {
        let is_open = self.reset_by.is_none() && !self.directions.iter().all(|of| of.fin_seen);
        let owed = self.find_owed(self.until_ns).filter(|_| is_open);
        self.owed = self.owed.or(owed);
        if let Some(owed) = owed {
            self.end_span_owed(owed);
            return;
        }
        let span_ns = self.span_ns();
        let ways = [0, 1].map(|end| self.way_to(end).unwrap_or(0));
        let in_flight = self.directions.iter().any(|of| of.in_flight() > 0);
        let network_ns = span_ns.min(ways[0].saturating_add(ways[1]));
        let rest = match (in_flight, self.time.last) {
            _ if self.is_shut() => Wait::ReceiverWindow,
            (true, Some(last)) => last,
            _ => Wait::Idle,
        };
        let network_ns = if self.time.begun { network_ns } else { 0 };
        self.spend(Wait::Network, network_ns);
        self.spend(rest, span_ns - network_ns);
        self.time
            .spots
            .note(rest, self.time.frame, span_ns - network_ns);
        self.time.since_ns = self.now_ns;
    }

    /// Charges the last span with what is owed. The connection lasts until the capture ends.
    fn end_span_owed(&mut self, owed: Owed) {
        self.pass_time(self.until_ns.max(self.now_ns));
        self.last_ns = Some(self.now_ns);
        let wait = owed.kind.wait();
        self.give_up_recovery(owed.kind);
        let span_ns = self.span_ns();
        self.spend(wait, span_ns);
        self.time.spots.note(wait, self.time.frame, owed.ns);
        self.time.since_ns = self.now_ns;
    }

    /// True if an end probes a closed window: it has more to send.
    fn is_shut(&self) -> bool {
        [0, 1].into_iter().any(|end| {
            let here = &self.directions[end];
            self.directions[1 - end].window_closed() && here.sent.keepalives > 0
        })
    }

    /// Finds what was owed when an end gave up: its FIN or RST ends the last span. The connection then owes it for good.
    pub(super) fn give_up(&mut self, by: usize) -> Option<Wait> {
        let owed = self.find_owed(self.now_ns)?;
        let is_of_other = match owed.kind {
            OwedKind::Answer | OwedKind::Delivery => true,
            OwedKind::RestOfAnswer => by == 0,
            OwedKind::Fin => false,
        };
        if !is_of_other {
            return None;
        }
        self.owed = Some(owed);
        self.give_up_recovery(owed.kind);
        Some(owed.kind.wait())
    }

    /// Notes that a client reset the connection instead of waiting longer for an answer.
    pub(super) fn owe_answer(&mut self, ns: u64) {
        self.owed = (ns >= LEAST_NS).then_some(Owed {
            kind: OwedKind::Answer,
            by: 1,
            bytes: 0,
            ns,
        });
    }

    /// Charges a recovery of which nothing came.
    fn give_up_recovery(&mut self, kind: OwedKind) {
        if kind == OwedKind::Delivery
            && let Some(episode) = self.time.episode.take()
        {
            self.time.waits.add(kind.wait(), episode.otherwise_ns());
        }
    }

    fn find_owed(&self, until_ns: u64) -> Option<Owed> {
        let is_window = self.directions.iter().any(|of| of.window_closed());
        let is_half = self
            .directions
            .iter()
            .any(|of| of.sent.captured_packets == 0);
        if !self.clock || !self.time.begun || is_half || is_window {
            return None;
        }
        let round_trip_ns = self.round_trips().map_or(0, |(_, min)| min);
        let least_ns = LEAST_NS.max(round_trip_ns.saturating_mul(ROUND_TRIPS));
        let since = |at_ns: u64| until_ns.saturating_sub(at_ns);
        let owed = |kind, by, bytes, ns| {
            (ns >= least_ns).then_some(Owed {
                kind,
                by,
                bytes,
                ns,
            })
        };
        for end in [0, 1] {
            if let Some((at_ns, bytes)) = self.directions[end].undelivered() {
                return owed(OwedKind::Delivery, end, bytes, since(at_ns));
            }
        }
        let silent_ns = since(self.time.since_ns);
        match self.time.from {
            _ if !self.spoke[1] => None,
            _ if self.time.ended_by_fin => {
                let first = self.first_fin?;
                owed(OwedKind::Fin, 1 - first, 0, silent_ns)
            }
            0 if self.is_request() => owed(OwedKind::Answer, 1, 0, silent_ns),
            1 if !self.time.pushed[1] && !self.time.was_syn => {
                owed(OwedKind::RestOfAnswer, 1, 0, silent_ns)
            }
            _ => None,
        }
    }

    /// True if the client's last data were a request: it was answered before, or it sent one message and nothing else.
    fn is_request(&self) -> bool {
        let [client, server] = &self.directions;
        let is_first = client.syn_seen && client.sent.payload_bytes <= REQUEST_MOST;
        let is_answered = server.sent.payload_bytes > server.sent.keepalives;
        let has_data = client.sent.payload_bytes > client.sent.keepalives;
        has_data && !self.time.was_syn && !self.time.is_one_way && (is_answered || is_first)
    }
}
