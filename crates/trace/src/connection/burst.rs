//! Packets of one kind and direction in a row.

use super::Connection;
use crate::watch::{BurstEvent, Watch};

/// The burst that goes on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Burst {
    from: usize,
    data: bool,
    packets: u64,
    wire_segments: u64,
}

/// What a packet is to bursts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    PureAck,
    /// SYN, FIN or RST without payload: it ends a burst and begins none.
    Other,
}

impl Connection {
    /// Whether data of this end now follow data of it directly.
    #[inline]
    pub(super) fn is_data_burst(&self, from: usize, silence_ns: u64) -> bool {
        let Burst {
            from: by,
            data,
            packets,
            ..
        } = self.burst;
        packets > 0 && data && by == from && silence_ns <= self.settings.burst_gap_ns
    }

    #[inline]
    pub(super) fn on_burst<W: Watch>(
        &mut self,
        from: usize,
        kind: Kind,
        wire_segments: u32,
        silence_ns: u64,
        watch: &mut W,
    ) {
        let data = kind == Kind::Data;
        let goes_on = self.burst.packets > 0
            && self.burst.from == from
            && self.burst.data == data
            && kind != Kind::Other
            && silence_ns <= self.settings.burst_gap_ns;
        if !goes_on {
            self.end_burst(watch);
            self.burst = Burst {
                from,
                data,
                packets: 0,
                wire_segments: 0,
            };
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
        } = std::mem::take(&mut self.burst);
        if packets > 0 {
            let direction = &mut self.directions[from];
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
