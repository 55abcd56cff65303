//! The time-sequence graph of one connection: its points, kept within bounds.

use serde::Serialize;

use crate::watch::{PacketEvent, StallEvent, Watch};

/// Points that are kept; beyond, every second one goes and the pace halves.
const MOST: usize = 4096;

/// Stalls that are kept.
const STALLS_MOST: usize = 200;

/// A [`Watch`] that keeps what a graph of one connection shows: about 4096 points of each kind
/// at most, spread evenly over the connection.
#[derive(Debug, Clone, Serialize)]
pub struct Graph {
    #[serde(skip)]
    connection: usize,
    /// Data and ACKs of each end: places in the byte stream by time.
    pub curves: [Curves; 2],
    /// Stalls: who waited, from and until when, ns since the epoch.
    pub stalls: Vec<(usize, u64, u64)>,
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
    /// Of the connection with this number, counted from 1; 0 is none.
    pub fn of(number: usize) -> Graph {
        Graph {
            connection: number.wrapping_sub(1),
            curves: Default::default(),
            stalls: Vec::new(),
        }
    }
}

impl Watch for Graph {
    #[inline]
    fn on_packet(&mut self, connection: usize, packet: &PacketEvent) {
        if connection != self.connection {
            return;
        }
        let Some(at_ns) = packet.at_ns else { return };
        if packet.payload_bytes > 0 {
            let curves = &mut self.curves[packet.from];
            let end = packet.offset + u64::from(packet.payload_bytes);
            let points = if packet.retransmission {
                &mut curves.again
            } else {
                &mut curves.data
            };
            points.add(at_ns, end);
        }
        if let Some((_, place)) = packet.ack {
            self.curves[1 - packet.from].acked.add(at_ns, place);
        }
    }

    fn on_stall(&mut self, connection: usize, stall: &StallEvent) {
        if connection == self.connection && self.stalls.len() < STALLS_MOST {
            self.stalls
                .push((stall.from, stall.since_ns, stall.until_ns));
        }
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
}
