//! Bytes that a socket accepts of a write: Linux's rule (`tcp_sendmsg_locked`), by units.
//!
//! Written bytes fill units of as many whole segments as one packet may hold (`size_goal`). The
//! limit is checked only where a unit begins, so the last unit may exceed it. A unit is a record to
//! the TCP: no segment holds bytes of two units.

/// SO_SNDBUF, TCP_NOTSENT_LOWAT, and the fill of the last unit.
#[derive(Clone, Debug)]
pub struct SendBuffer {
    /// `sk_sndbuf`, bytes.
    pub limit: u32,
    /// True if the application has set the limit, so that it does not grow.
    pub locked: bool,
    /// TCP_NOTSENT_LOWAT, bytes; 0: the sysctl's value.
    pub low_water: u32,
    /// SOCK_NOSPACE: a call had no room, and is woken when a third is free.
    pub full: bool,
    /// Bytes in the last unit.
    unit: Unit,
    /// Bytes written since the last request for PSH.
    unpushed: u32,
}

#[derive(Clone, Copy, Debug)]
enum Unit {
    Open(u32),
    /// Nothing more is added (MSG_EOR).
    Ended,
}

/// Inputs for the rule, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Written and not acknowledged.
    pub queued: u32,
    /// Written and never sent.
    pub unsent: u32,
    pub mss: u32,
    /// Largest window that the peer offered.
    pub window_max: u32,
    /// Sysctl `tcp_notsent_lowat`.
    pub low_water: u32,
}

impl View {
    /// Size of a unit: `tcp_bound_to_half_wnd`, in whole segments.
    fn unit(&self) -> u32 {
        let half = if self.window_max > 536 {
            self.window_max / 2
        } else {
            self.window_max
        };
        let mss = self.mss.max(1);
        UNIT_BYTES_MAX.min(half) / mss.max(1) * mss
    }

    fn unit_min_one(&self) -> u32 {
        self.unit().max(self.mss.max(1))
    }

    /// `sk_wmem_queued`: a unit costs more than its payload.
    fn cost(&self) -> u32 {
        self.queued + self.queued.div_ceil(self.unit_min_one()) * UNIT_COST
    }
}

/// A piece of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub bytes: u32,
    /// True if the piece fills the unit.
    pub fills: bool,
    /// True if PSH is due although more follows: half the window was written without PSH
    /// (`forced_push`).
    pub pushed: bool,
}

impl SendBuffer {
    pub fn new(limit: u32) -> Self {
        Self {
            limit,
            locked: false,
            low_water: 0,
            full: false,
            unit: Unit::Open(0),
            unpushed: 0,
        }
    }

    /// Send buffer of an accepted connection.
    pub fn inherited(&self) -> Self {
        Self {
            full: false,
            unit: Unit::Open(0),
            unpushed: 0,
            ..self.clone()
        }
    }

    /// Bytes of `bytes` that the next unit takes; `None` if there is no room for another unit.
    pub fn take(&mut self, bytes: u32, view: &View) -> Option<Share> {
        let goal = view.unit_min_one();
        let filled = match self.unit {
            Unit::Open(filled) if view.unsent > 0 => filled.min(view.unsent),
            Unit::Open(_) => goal,
            Unit::Ended => goal,
        };
        let (filled, room) = if filled < goal {
            (filled, goal - filled)
        } else if view.cost() < self.limit && view.unsent < self.low_water(view) {
            (0, goal)
        } else {
            return None;
        };
        let bytes = bytes.min(room);
        self.unit = Unit::Open(filled + bytes);
        self.unpushed = self.unpushed.saturating_add(bytes);
        Some(Share {
            bytes,
            fills: bytes == room,
            pushed: self.unpushed > view.window_max / 2,
        })
    }

    pub fn on_pushed(&mut self) {
        self.unpushed = 0;
    }

    pub fn end_record(&mut self) {
        self.unit = Unit::Ended;
    }

    /// `sk_stream_is_writeable`: a third is free, and few bytes are unsent.
    pub fn is_writable(&self, view: &View) -> bool {
        let cost = view.cost();
        let unsent = view.unsent.saturating_mul(2);
        self.limit.saturating_sub(cost) >= cost / 2 && unsent < self.low_water(view)
    }

    fn low_water(&self, view: &View) -> u32 {
        match self.low_water {
            0 => view.low_water,
            bytes => bytes,
        }
    }

    /// `tcp_sndbuf_expand`: room for two windows of `segments`, at Linux's size of a segment in
    /// memory.
    pub fn expand(&mut self, segments: u32, mss: u32, max: u32) {
        if self.locked {
            return;
        }
        let one = (mss + SEGMENT_COST).next_power_of_two() + 256;
        let wanted = 2 * one * segments.max(10);
        self.limit = self.limit.max(wanted.min(max));
    }
}

/// 65,536 less the room for headers.
const UNIT_BYTES_MAX: u32 = 65_215;
/// A `struct sk_buff` with its shared info and room for headers.
const UNIT_COST: u32 = 1280;
/// MAX_TCP_HEADER and a `struct skb_shared_info`.
const SEGMENT_COST: u32 = 640;

#[cfg(test)]
mod tests {
    use super::*;

    fn view(queued: u32, unsent: u32) -> View {
        View {
            queued,
            unsent,
            mss: 1000,
            window_max: 32_792,
            low_water: u32::MAX,
        }
    }

    #[test]
    fn the_last_unit_goes_beyond_the_limit() {
        let mut buffer = SendBuffer::new(50_000);
        let mut written = 0;
        // Ten segments are sent when the first unit is full.
        let mut sent = 0;
        while let Some(share) = buffer.take(59_000 - written, &view(written, written - sent)) {
            written += share.bytes;
            sent = written.min(10_000);
        }
        assert_eq!(written, 58_000);
    }

    #[test]
    fn what_waits_to_be_sent_is_a_limit_of_its_own() {
        let mut buffer = SendBuffer::new(1 << 20);
        buffer.low_water = 4000;
        let (mut written, mut sent) = (0, 0);
        while let Some(share) = buffer.take(59_000 - written, &view(written, written - sent)) {
            written += share.bytes;
            sent = written.min(10_000);
        }
        assert_eq!(written, 26_000);
        assert!(!buffer.is_writable(&view(26_000, 2000)));
        assert!(buffer.is_writable(&view(26_000, 1999)));
    }

    #[test]
    fn nothing_is_added_to_a_record() {
        let mut buffer = SendBuffer::new(1 << 20);
        assert_eq!(
            buffer.take(400, &view(0, 0)).map(|share| share.bytes),
            Some(400)
        );
        buffer.end_record();
        let next = buffer.take(20_000, &view(400, 400));
        assert_eq!(
            next.map(|share| (share.bytes, share.fills)),
            Some((16_000, true))
        );
    }

    #[test]
    fn it_grows_with_the_window_unless_it_was_set() {
        let mut buffer = SendBuffer::new(50_000);
        buffer.expand(20, 1000, 4 << 20);
        assert_eq!(buffer.limit, 2 * 20 * 2304);
        let mut set = SendBuffer::new(50_000);
        set.locked = true;
        set.expand(20, 1000, 4 << 20);
        assert_eq!(set.limit, 50_000);
    }
}
