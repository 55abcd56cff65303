//! Bursts: successive packets of one kind and direction.

use super::{Connection, sides};
use crate::watch::{BurstEvent, Watch};

/// Current burst.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Burst {
    from: usize,
    pub(super) data: bool,
    packets: u64,
    wire_segments: u64,
}

/// Kind of a packet for bursts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    PureAck,
    /// SYN, FIN or RST without payload: ends a burst and begins none.
    Other,
}

impl Connection {
    /// True if a packet that end `from` sends now follows its last packet within the burst gap.
    #[inline]
    pub(super) fn follows(&self, from: usize, silence_ns: u64) -> bool {
        self.burst.from == from && silence_ns <= self.settings.burst_gap_ns
    }

    /// Counts a packet of this kind. `follows` is the result of [`Connection::follows`] before the
    /// packet.
    #[inline]
    pub(super) fn on_burst<W: Watch>(
        &mut self,
        from: usize,
        kind: Kind,
        wire_segments: u32,
        follows: bool,
        watch: &mut W,
    ) {
        let data = kind == Kind::Data;
        // An empty burst can change direction and kind without an event.
        if !follows || self.burst.data != data || kind == Kind::Other {
            self.end_burst(watch);
            self.burst.from = from;
            self.burst.data = data;
        }
        if kind != Kind::Other {
            self.burst.packets += 1;
            self.burst.wire_segments += u64::from(wire_segments.max(1));
        }
    }

    #[inline(always)]
    pub(super) fn end_burst<W: Watch>(&mut self, watch: &mut W) {
        let Burst {
            from,
            data,
            packets,
            wire_segments,
        } = self.burst;
        (self.burst.packets, self.burst.wire_segments) = (0, 0);
        if packets > 0 {
            let (direction, _) = sides(&mut self.directions, from);
            if data {
                direction.data_burst_wire_segments.add(wire_segments);
            } else {
                direction.ack_burst.add(packets);
            }
            watch.on_burst(
                self.place,
                &BurstEvent {
                    from,
                    data,
                    packets,
                    wire_segments,
                },
            );
        }
    }
}
