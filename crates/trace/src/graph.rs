//! What a page and a text show of a connection over time: its points, kept within bounds, what it did
//! second by second, and its events with their frames.

use serde::Serialize;

use crate::watch::{PacketEvent, StallEvent, Watch};

/// Points that are kept; beyond, every second one goes and the pace halves.
const MOST: usize = 4096;

/// Stalls, events and steps of time that are kept.
const STALLS_MOST: usize = 200;
const EVENTS_MOST: usize = 200;
const STEPS_MOST: usize = 600;

/// A [`Watch`] that keeps what graphs of some connections show.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Graph {
    /// One for each connection that was asked for.
    pub connections: Vec<ConnectionGraph>,
}

/// One connection: about 4096 points of each kind at most, spread evenly over it.
#[derive(Debug, Clone, Serialize)]
pub struct ConnectionGraph {
    /// Its number, from 1 on.
    pub number: usize,
    /// Data and ACKs of each end: places in the byte stream by time.
    pub curves: [Curves; 2],
    /// Stalls: who waited, from and until when, ns since the epoch.
    pub stalls: Vec<(usize, u64, u64)>,
    /// What happened: the first 200.
    pub events: Vec<Event>,
    /// What it did, step by step.
    pub steps: Steps,
}

/// What one end sent.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Curves {
    /// Where its data ended.
    pub data: Points,
    /// Of these, data sent again.
    pub again: Points,
    /// Where the other end's ACKs stood.
    pub acked: Points,
    /// How far the other end's window reached.
    pub edge: Points,
    /// Where the other end's SACK blocks ended.
    pub sacked: Points,
    /// Where its D-SACK blocks ended.
    pub dsacked: Points,
    /// Bytes that were not acknowledged.
    pub in_flight: Points,
    /// The window that this end was offered, bytes.
    pub window: Points,
    /// Round trips to the other end and back, µs.
    pub rtt_us: Points,
}

/// Something worth a look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// When, ns since the epoch.
    pub at_ns: u64,
    /// The number of its packet in the capture: Wireshark's `frame.number`.
    pub frame: u64,
    /// Whose, 0 or 1.
    pub from: usize,
    /// What.
    pub kind: EventKind,
}

/// What an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// Payload was sent again.
    Retransmission,
    /// A duplicate was reported.
    Dsack,
    /// The window was closed.
    ZeroWindow,
    /// An ACK that was delayed came.
    DelayedAck,
    /// The connection was reset.
    Reset,
}

/// What both ends did in steps of time: seconds, or as many as keep within 600 steps.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Steps {
    /// How long a step is, ns.
    pub step_ns: u64,
    /// The steps from the first packet on.
    pub steps: Vec<Step>,
    #[serde(skip)]
    first_ns: u64,
}

/// One step; by end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Payload bytes sent, what was sent again included.
    pub sent_bytes: [u64; 2],
    /// Payload bytes acknowledged by the other end for the first time: goodput.
    pub acked_bytes: [u64; 2],
    /// Packets sent again.
    pub again: [u64; 2],
    /// Most bytes in flight.
    pub in_flight_most: [u64; 2],
    /// The narrowest window that this end was offered; 0 with none.
    pub window_least: [u64; 2],
    /// The longest round trip to the other end and back, µs.
    pub rtt_us_most: [u64; 2],
}

impl Steps {
    fn at(&mut self, at_ns: u64) -> &mut Step {
        if self.steps.is_empty() {
            (self.first_ns, self.step_ns) = (at_ns, 1_000_000_000);
        }
        let after_ns = at_ns.saturating_sub(self.first_ns);
        while after_ns / self.step_ns >= STEPS_MOST as u64 {
            self.step_ns = self.step_ns.saturating_mul(2);
            let pairs = self.steps.chunks(2).map(|pair| {
                let mut both = pair[0];
                if let Some(second) = pair.get(1) {
                    both.add(second);
                }
                both
            });
            self.steps = pairs.collect();
        }
        let place = (after_ns / self.step_ns) as usize;
        if place >= self.steps.len() {
            self.steps.resize(place + 1, Step::default());
        }
        &mut self.steps[place]
    }
}

impl Step {
    fn add(&mut self, other: &Step) {
        for end in [0, 1] {
            self.sent_bytes[end] += other.sent_bytes[end];
            self.acked_bytes[end] += other.acked_bytes[end];
            self.again[end] += other.again[end];
            self.in_flight_most[end] = self.in_flight_most[end].max(other.in_flight_most[end]);
            self.rtt_us_most[end] = self.rtt_us_most[end].max(other.rtt_us_most[end]);
            self.narrower(end, other.window_least[end]);
        }
    }

    fn narrower(&mut self, end: usize, window: u64) {
        let least = &mut self.window_least[end];
        *least = match (*least, window) {
            (0, window) => window,
            (least, 0) => least,
            (least, window) => least.min(window),
        };
    }
}

/// Points of time since the epoch, ns, and place, bytes.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(transparent)]
pub struct Points {
    points: Vec<(u64, u64)>,
    #[serde(skip)]
    stride: u32,
    #[serde(skip)]
    passed: u32,
}

impl Points {
    fn add(&mut self, at_ns: u64, place: u64) {
        self.passed += 1;
        if self.passed < self.stride {
            return;
        }
        self.passed = 0;
        self.points.push((at_ns, place));
        if self.points.len() == MOST {
            let mut keep = false;
            self.points.retain(|_| {
                keep = !keep;
                keep
            });
            self.stride = self.stride.max(1) * 2;
        }
    }

    /// The points.
    pub fn points(&self) -> &[(u64, u64)] {
        &self.points
    }
}

impl Graph {
    /// Of the connections with these numbers, counted from 1.
    pub fn of(numbers: &[usize]) -> Graph {
        let one = |number: &usize| ConnectionGraph {
            number: *number,
            curves: Default::default(),
            stalls: Vec::new(),
            events: Vec::new(),
            steps: Steps::default(),
        };
        Graph {
            connections: numbers.iter().map(one).collect(),
        }
    }

    /// That of this connection, if it was asked for.
    pub fn of_connection(&self, number: usize) -> Option<&ConnectionGraph> {
        self.connections.iter().find(|of| of.number == number)
    }

    #[inline]
    fn find(&mut self, connection: usize) -> Option<&mut ConnectionGraph> {
        self.connections
            .iter_mut()
            .find(|of| of.number == connection + 1)
    }
}

impl ConnectionGraph {
    fn on_packet(&mut self, packet: &PacketEvent) {
        let Some(at_ns) = packet.at_ns else { return };
        let (from, to) = (packet.from, 1 - packet.from);
        let payload = u64::from(packet.payload_bytes);
        let step = self.steps.at(at_ns);
        step.sent_bytes[from] += payload;
        step.again[from] += u64::from(packet.retransmission);
        step.in_flight_most[from] = step.in_flight_most[from].max(packet.in_flight_bytes);
        let own = &mut self.curves[from];
        if payload > 0 {
            let points = if packet.retransmission {
                &mut own.again
            } else {
                &mut own.data
            };
            points.add(at_ns, packet.offset + payload);
            own.in_flight.add(at_ns, packet.in_flight_bytes);
        }
        if let Some((_, place)) = packet.ack {
            let others = &mut self.curves[to];
            others.acked.add(at_ns, place);
            step.acked_bytes[to] += packet.newly_acked_bytes;
            if let Some(window) = packet.window_bytes {
                others.edge.add(at_ns, place + window);
                others.window.add(at_ns, window);
                step.narrower(to, window);
            }
            if let Some(rtt_ns) = packet.rtt_ns {
                others.rtt_us.add(at_ns, rtt_ns / 1000);
                step.rtt_us_most[to] = step.rtt_us_most[to].max(rtt_ns / 1000);
            }
            if let Some(end) = packet.sacked {
                let points = if packet.dsack {
                    &mut others.dsacked
                } else {
                    &mut others.sacked
                };
                points.add(at_ns, end);
            }
        }
        let kinds = [
            (packet.retransmission, EventKind::Retransmission),
            (packet.dsack, EventKind::Dsack),
            (packet.window_bytes == Some(0), EventKind::ZeroWindow),
            (packet.reset, EventKind::Reset),
        ];
        for (_, kind) in kinds.into_iter().filter(|(is, _)| *is) {
            self.event(at_ns, packet.frame, from, kind);
        }
    }

    fn event(&mut self, at_ns: u64, frame: u64, from: usize, kind: EventKind) {
        if self.events.len() < EVENTS_MOST {
            self.events.push(Event {
                at_ns,
                frame,
                from,
                kind,
            });
        }
    }
}

impl Watch for Graph {
    #[inline]
    fn on_packet(&mut self, connection: usize, packet: &PacketEvent) {
        if let Some(of) = self.find(connection) {
            of.on_packet(packet);
        }
    }

    fn on_stall(&mut self, connection: usize, stall: &StallEvent) {
        let Some(of) = self.find(connection) else {
            return;
        };
        if of.stalls.len() < STALLS_MOST {
            of.stalls.push((stall.from, stall.since_ns, stall.until_ns));
        }
        of.event(
            stall.until_ns,
            stall.frame,
            1 - stall.from,
            EventKind::DelayedAck,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_stay_within_bounds_and_span_the_whole() {
        let mut points = Points::default();
        for at in 0..100_000 {
            points.add(at, at);
        }
        assert!(points.points().len() < MOST);
        assert!(points.points().last().is_some_and(|last| last.0 > 99_000));
        assert_eq!(points.points()[0], (0, 0));
    }

    #[test]
    fn steps_grow_longer_and_lose_nothing() {
        let mut steps = Steps::default();
        for second in 0..3000u64 {
            steps.at(5 + second * 1_000_000_000).sent_bytes[0] += 1;
        }
        assert!(steps.steps.len() <= STEPS_MOST);
        assert_eq!(steps.step_ns, 8_000_000_000);
        let sum: u64 = steps.steps.iter().map(|step| step.sent_bytes[0]).sum();
        assert_eq!(sum, 3000);
    }
}
