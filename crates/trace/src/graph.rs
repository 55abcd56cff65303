//! Data for the graphs of a connection over time: its points within bounds, its activity step by
//! step, and its events with their frames.

use serde::Serialize;

use crate::watch::{PacketEvent, StallEvent, Watch};

/// Limit of points kept. Beyond it every second point is dropped, and half as many are taken from
/// then on.
const MOST: usize = 4096;

/// Limits of stalls, events and steps kept.
const STALLS_MOST: usize = 200;
const EVENTS_MOST: usize = 200;
const STEPS_MOST: usize = 600;

/// [`Watch`] that keeps the data for graphs of some connections.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Graph {
    /// Data of each requested connection.
    pub connections: Vec<ConnectionGraph>,
}

/// Data of one connection: at most about 4096 points of each kind, spread evenly over it.
#[derive(Debug, Clone, Serialize)]
pub struct ConnectionGraph {
    /// Number of the connection, from 1.
    pub number: usize,
    /// Data and ACKs of each end, as byte offsets over time.
    pub curves: [Curves; 2],
    /// Stalls: the end that waited, then start and end, ns since the epoch. The first 200.
    pub stalls: Vec<(usize, u64, u64)>,
    /// Events: the first 200.
    pub events: Vec<Event>,
    /// Activity of both ends, step by step.
    pub steps: Steps,
}

/// Curves of one direction: what one end sent, and the other end's answers.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Curves {
    /// Ends of this end's data.
    pub data: Points,
    /// Ends of this end's retransmitted data.
    pub again: Points,
    /// ACKs of the other end.
    pub acked: Points,
    /// Right edge of the other end's window.
    pub edge: Points,
    /// Ends of the other end's SACK blocks.
    pub sacked: Points,
    /// Ends of the other end's D-SACK blocks.
    pub dsacked: Points,
    /// Bytes sent and not acknowledged.
    pub in_flight: Points,
    /// Window that the other end offered, bytes.
    pub window: Points,
    /// Round trips to the other end and back, µs.
    pub rtt_us: Points,
}

/// Event that may need attention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Time, ns since the epoch.
    pub at_ns: u64,
    /// Number of the packet in the capture: Wireshark's `frame.number`.
    pub frame: u64,
    /// End that sent the packet: 0 or 1.
    pub from: usize,
    /// Kind of the event.
    pub kind: EventKind,
}

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// Retransmission of payload.
    Retransmission,
    /// Report of a duplicate.
    Dsack,
    /// Window of 0.
    ZeroWindow,
    /// Delayed ACK that ended a stall.
    DelayedAck,
    /// RST.
    Reset,
}

/// Activity of both ends in steps of time: seconds, or longer steps so that there are at most 600.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Steps {
    /// Length of a step, ns.
    pub step_ns: u64,
    /// Steps from the first packet on.
    pub steps: Vec<Step>,
    #[serde(skip)]
    first_ns: u64,
}

/// One step of time; each array has a value for each end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Payload bytes sent, retransmissions included.
    pub sent_bytes: [u64; 2],
    /// Payload bytes of this end that the other end acknowledged for the first time: goodput.
    pub acked_bytes: [u64; 2],
    /// Retransmitted packets.
    pub again: [u64; 2],
    /// Maximum of bytes in flight.
    pub in_flight_most: [u64; 2],
    /// Smallest window that this end was offered, bytes. `None` if none was offered.
    pub window_least: [Option<u64>; 2],
    /// Longest round trip to the other end and back, µs.
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
            if let Some(window) = other.window_least[end] {
                self.narrower(end, window);
            }
        }
    }

    fn narrower(&mut self, end: usize, window: u64) {
        let least = &mut self.window_least[end];
        *least = Some(least.map_or(window, |least| least.min(window)));
    }
}

/// Points: time since the epoch, ns, and a value (byte offset, bytes or µs).
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

    /// Points in the order of time.
    pub fn points(&self) -> &[(u64, u64)] {
        &self.points
    }
}

impl Graph {
    /// Creates a watch of the connections with these numbers, counted from 1.
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

    /// Data of the connection with this number. `None` if it was not requested.
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
    fn wants(&self, _connection: usize) -> bool {
        !self.connections.is_empty()
    }

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

    #[test]
    fn a_window_of_0_is_the_least_and_no_window_is_none() {
        let mut steps = Steps::default();
        steps.at(0).narrower(0, 0);
        steps.at(0).narrower(0, 1000);
        steps.at(0).narrower(1, 1000);
        assert_eq!(steps.steps[0].window_least, [Some(0), Some(1000)]);
        // Steps that become one: the first of the second half has no window.
        for second in 0..=STEPS_MOST as u64 {
            steps.at(second * 1_000_000_000);
        }
        assert_eq!(steps.steps[0].window_least, [Some(0), Some(1000)]);
        assert_eq!(steps.steps[1].window_least, [None, None]);
    }
}
