//! One direction of a connection: the data that one end sent, and how far the other end
//! acknowledged them.

mod acked;
mod acking;
mod copies;
mod data;
mod learned;
mod scale;
mod tails;

pub(crate) use self::acking::{Acking, is_dsack};

use std::collections::VecDeque;

use serde::Serialize;

use self::copies::{ACKS_SEEN_MOST, Copies};
use self::learned::LEARNED_MOST;
pub(crate) use self::learned::Learned;
use self::scale::Scale;
pub(crate) use self::tails::Short;
use crate::acks::AckCoverage;
use crate::counts::DirectionCounts;
use crate::histogram::Histogram;
use crate::mss::{Mss, MssSource, OVERSIZED_ENOUGH, Oversized};
use crate::rtt::Rtt;
use crate::segment::{Segment, flag};
use crate::sequence::{extend, first};

/// Limit that keeps an end from sending.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Limit {
    #[default]
    Unknown,
    Application,
    Window,
    Receiver,
}

/// Captured packet that is not acknowledged.
#[derive(Debug, Clone, Copy)]
struct Outstanding {
    start: u64,
    end: u64,
    at_ns: u64,
    wire_segments: u32,
    stamp: Stamp,
    /// True if the packet gives no RTT sample: sent twice, or merged of several packets.
    vague: bool,
}

/// Gap in the captured data.
#[derive(Debug, Clone, Copy)]
struct Hole {
    start: u64,
    end: u64,
    at_ns: u64,
    /// Stamp of the packet after the gap.
    stamp: Stamp,
    /// Packets with data that had passed when the gap opened.
    packets: u64,
}

/// Fields that decide whether a packet was sent before another or is the same: IP id (0 for none),
/// hop limit and TSval.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stamp {
    pub(crate) ip_id: u16,
    pub(crate) hop_limit: u8,
    pub(crate) timestamp: Option<u32>,
}

impl Stamp {
    #[inline]
    pub(crate) fn of(segment: &Segment) -> Stamp {
        Stamp {
            ip_id: segment.ip_id,
            hop_limit: segment.hop_limit,
            timestamp: segment.options.timestamps.map(|(value, _)| value),
        }
    }

    /// True if this packet was sent after the other. `None` if neither field decides. Linux counts
    /// IP ids up within a connection; if ids are random, timestamps usually decide first.
    fn is_after(self, other: Stamp) -> Option<bool> {
        let ticks = self
            .timestamp
            .zip(other.timestamp)
            .map(|(a, b)| a.wrapping_sub(b).cast_signed());
        match ticks {
            Some(ticks) if ticks != 0 => Some(ticks > 0),
            _ if self.ip_id != 0 && other.ip_id != 0 => {
                Some(self.ip_id.wrapping_sub(other.ip_id).cast_signed() > 0)
            }
            _ => None,
        }
    }
}

/// Options of a SYN.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SynOptions {
    /// Maximum segment size, bytes. `None` without the option.
    pub mss: Option<u16>,
    /// Window scale, as a shift. `None` without the option.
    pub window_scale: Option<u8>,
    /// True if SACK is permitted.
    pub sack_permitted: bool,
    /// True if the SYN has timestamps.
    pub timestamps: bool,
    /// True if ECN is requested or accepted.
    pub ecn: bool,
}

/// One direction of a connection.
#[derive(Debug, Clone)]
pub struct Direction {
    /// Counts of what this end sent.
    pub sent: DirectionCounts,
    /// Coverage of this end's ACKs.
    pub acks: AckCoverage,
    /// RTT from the point of capture to the other end and back.
    pub rtt: Rtt,
    /// Payload bytes of each captured packet.
    pub packet_bytes: Histogram,
    /// Wire segments of each captured packet with payload.
    pub wire_segments_per_packet: Histogram,
    /// Wire segments of each burst of this end's data. A packet of another kind or direction, or a
    /// pause, ends a burst.
    pub data_burst_wire_segments: Histogram,
    /// Pure ACKs of each burst of this end's pure ACKs.
    pub ack_burst: Histogram,
    /// Payload bytes of a full-sized wire segment of this end.
    pub mss: Mss,
    oversized: Oversized,
    /// Options of this end's SYN. `None` if it was not captured whole.
    pub syn: Option<SynOptions>,
    /// True if this end's SYN was captured.
    pub syn_seen: bool,
    /// Retransmissions of this end's SYN.
    pub syns_retransmitted: u64,
    /// True if this end's FIN was captured.
    pub fin_seen: bool,
    /// True if this end sent a RST.
    pub reset: bool,
    /// Window scale of this end's window field, as a shift. `None` if neither the handshake nor what
    /// passed shows it.
    pub(crate) window_shift: Option<u8>,
    scale: Scale,
    /// Next sequence number to send, lowest unacknowledged one, and first one. 0 while unknown.
    pub(crate) nxt: u64,
    pub(crate) una: u64,
    pub(crate) base: u64,
    /// True if a sequence number of this end was seen. Until then nothing is missing.
    seen: bool,
    /// Right edge of the other end's window.
    pub(crate) allowed: u64,
    pub(crate) limit: Limit,
    /// Window field of this end's last segment.
    window: Option<u16>,
    /// Largest window that this end offered, bytes.
    window_most: u32,
    /// Smallest window field of this end since the other end's last data.
    window_least: u16,
    window_closed: bool,
    outstanding: VecDeque<Outstanding>,
    holes: Vec<Hole>,
    last_data_full: bool,
    small_end: u64,
    ran_out: bool,
    /// Payload bytes of the current run of small packets, without a pause or another packet in
    /// between.
    small_run_bytes: u64,
    /// Last retransmissions.
    resent: VecDeque<Resent>,
    /// True if the last ACK of this end was a duplicate or reported a gap: the next one covers that
    /// gap.
    answers_disturbed: bool,
    /// Last sequence number that no window offered. 0 for none.
    doubted: u64,
    pub(crate) copies: Copies,
    /// Fingerprints of ACKs without ids, if every packet was captured twice.
    acks_seen: VecDeque<u64>,
    /// Data that the other end acknowledged before the capture held them; the newest last.
    early: VecDeque<Early>,
    /// ACKs that this end received, with their times, if the capture is away from this end.
    learned: VecDeque<Learned>,
    newest: Learned,
    /// Time when an ACK last covered new data, but not all in flight.
    pub(crate) part_acked_ns: u64,
    /// Time of the last packet that came late, ns. 0 for none.
    late_ns: u64,
    /// True if something just proved that this end sent a packet again needlessly.
    pub(crate) is_needless: bool,
    /// Lowest unacknowledged number before an ACK that shows progress of data that are not in the capture. 0 for none.
    pub(crate) unseen_from: u64,
    /// Time when an ACK last reported a gap in what this end sent.
    pub(crate) told_of_gap_ns: u64,
    /// Last window that was offered to this end, bytes.
    pub(crate) offered: u64,
    /// Payload bytes that this end sent before any of them was acknowledged, and whether that phase
    /// is over.
    pub(crate) initial_bytes: u64,
    initial_over: bool,
}

/// Sequence numbers that were sent again.
#[derive(Debug, Clone, Copy)]
struct Resent {
    start: u64,
    end: u64,
    stamp: Stamp,
    /// Stamp of the packet that opened the gap, if the retransmission filled one. The original was
    /// sent before that packet.
    before: Option<Stamp>,
    /// Time when the gap opened, and the packets with data that had passed then.
    opened: Option<(u64, u64)>,
    /// True if it proved needless.
    is_needless: bool,
}

/// Bytes acknowledged beyond the highest number seen: the capture missed them, or holds the ACK
/// before the data.
#[derive(Debug, Clone, Copy, Default)]
struct Early {
    start: u64,
    end: u64,
    at_ns: u64,
    /// Timestamp that the ACK echoed.
    echo: Option<u32>,
}

/// Limit of the queue of unacknowledged packets. Beyond it the two oldest are merged.
const OUTSTANDING_MOST: usize = 512;

/// Limit of retransmissions remembered, for recognising their copies and for DSACK.
const RESENT_MOST: usize = 64;

/// Limit of gaps followed at a time. A peer can open or split a gap with every packet.
const HOLES_MOST: usize = 64;

/// Limit of remembered bytes ranges that were acknowledged before the capture held them: more than
/// a super-segment of 64 KiB needs.
const EARLY_MOST: usize = 64;

/// Limit of lateness if no stamp decides. A packet that fills a gap within this time, or within the
/// smallest RTT if that is longer, came late; after it, it is a retransmission (Wireshark's rule).
const LATE_NS: u64 = 3_000_000;

/// Distance below which two doubtful numbers belong to the same stream. Two damaged numbers are
/// rarely this near: a flipped bit changes less only in the lower half of the number, and there
/// usually stays within a window.
const NEAR_BYTES: u64 = 1 << 20;

/// Kind of a packet with data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    New,
    /// New data that were captured after their ACK.
    Behind,
    Late,
    Retransmitted,
    Keepalive,
    /// Data with sequence numbers that no window offered.
    Doubtful,
}

/// Data that an ACK covers for the first time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Coverage {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Payload bytes.
    pub(crate) bytes: u64,
    pub(crate) wire_segments: u64,
    pub(crate) full_segments: u64,
    pub(crate) packets: u64,
    pub(crate) on_boundary: bool,
    /// True if the SYN is covered.
    pub(crate) of_syn: bool,
    /// Time since the newest covered packet that was sent once, ns. `None` if there is none.
    pub(crate) rtt_ns: Option<u64>,
    pub(crate) oldest_at_ns: Option<u64>,
    pub(crate) newest_at_ns: Option<u64>,
}

impl Direction {
    pub(crate) fn new() -> Direction {
        Direction {
            sent: DirectionCounts::default(),
            acks: AckCoverage::default(),
            rtt: Rtt::default(),
            packet_bytes: Histogram::default(),
            wire_segments_per_packet: Histogram::default(),
            data_burst_wire_segments: Histogram::default(),
            ack_burst: Histogram::default(),
            mss: Mss {
                bytes: 1460,
                source: MssSource::Assumed,
            },
            oversized: Oversized::default(),
            syn: None,
            syn_seen: false,
            syns_retransmitted: 0,
            fin_seen: false,
            reset: false,
            window_shift: None,
            scale: Scale::default(),
            nxt: 0,
            una: 0,
            base: 0,
            seen: false,
            allowed: 0,
            limit: Limit::Unknown,
            window: None,
            window_most: 0,
            window_least: u16::MAX,
            window_closed: false,
            outstanding: VecDeque::new(),
            holes: Vec::new(),
            last_data_full: false,
            small_end: 0,
            ran_out: false,
            small_run_bytes: 0,
            resent: VecDeque::new(),
            answers_disturbed: false,
            doubted: 0,
            copies: Copies::default(),
            acks_seen: VecDeque::new(),
            early: VecDeque::new(),
            learned: VecDeque::new(),
            newest: Learned::default(),
            part_acked_ns: 0,
            late_ns: 0,
            is_needless: false,
            unseen_from: 0,
            told_of_gap_ns: 0,
            offered: 0,
            initial_bytes: 0,
            initial_over: false,
        }
    }

    /// Sequence number in 64 bits. Older text formats omit it in pure ACKs: then it is the next.
    #[inline]
    pub(crate) fn sequence(&mut self, number: Option<u32>) -> u64 {
        match number {
            Some(number) if self.seen => extend(self.nxt, number),
            Some(number) => {
                let number = if self.nxt == 0 {
                    first(number)
                } else {
                    extend(self.nxt, number)
                };
                self.seen = true;
                self.nxt = number;
                self.base = number;
                // Bytes acknowledged so far were sent before the capture.
                self.una = if self.una == 0 {
                    0
                } else {
                    self.una.min(number)
                };
                number
            }
            None => self.nxt,
        }
    }

    /// Converts a sequence number of this direction into an offset in its byte stream.
    pub(crate) fn place_of(&self, number: u32) -> u64 {
        extend(self.nxt, number).saturating_sub(self.base)
    }

    /// Bytes sent and not acknowledged. SYN and FIN count as one each.
    #[inline]
    pub(crate) fn in_flight(&self) -> u64 {
        if self.una == 0 {
            0
        } else {
            self.nxt.saturating_sub(self.una)
        }
    }

    /// True if this packet has nothing new, so that it may be a second capture.
    #[inline]
    pub(crate) fn brings_nothing_new(&self, seq: u64, length: u64, ack: u64, acked: u64) -> bool {
        if length > 0 {
            seq < self.nxt
        } else {
            ack <= acked
        }
    }

    /// Handles a window that this end announced. True if it changed.
    #[inline]
    pub(crate) fn on_window(&mut self, segment: &Segment) -> bool {
        let changed = self.window.is_some_and(|window| window != segment.window);
        self.window = Some(segment.window);
        self.window_least = self.window_least.min(segment.window);
        if segment.window == 0 || self.window_closed {
            self.on_closed_window(segment);
        }
        changed
    }

    #[cold]
    fn on_closed_window(&mut self, segment: &Segment) {
        let closed = segment.window == 0 && !segment.any(flag::RST | flag::SYN);
        self.sent.zero_windows += u64::from(closed && !segment.any(flag::FIN));
        self.sent.window_closings += u64::from(closed && !self.window_closed);
        self.window_closed = closed;
    }

    /// Handles a packet longer than the MSS, without PSH. If several packets of one size show that
    /// this size is the MSS, the few before are counted again.
    pub(crate) fn on_oversized(&mut self, payload: u32) {
        if self.mss.source == MssSource::Given {
            return;
        }
        let old = self.mss.bytes;
        let Some(mss) = self.oversized.on_packet(payload, old) else {
            return;
        };
        self.mss = mss;
        let before = u64::from(OVERSIZED_ENOUGH) - 1;
        let too_many = before * u64::from(payload.div_ceil(old) - 1);
        let sent = &mut self.sent;
        sent.wire_segments = sent.wire_segments.saturating_sub(too_many);
        sent.data_wire_segments = sent.data_wire_segments.saturating_sub(too_many);
        sent.super_segments = sent.super_segments.saturating_sub(before);
        self.wire_segments_per_packet
            .move_values(u64::from(payload.div_ceil(old)), 1, before);
        let those = self.outstanding.iter_mut().rev();
        for other in those.filter(|other| other.end - other.start == u64::from(payload)) {
            other.wire_segments = 1;
        }
    }

    /// Largest window that this end offered, bytes.
    pub(crate) fn window_most(&self) -> u32 {
        self.window_most
    }

    /// Charges `ns` of time to the limit in force.
    #[inline]
    pub(crate) fn pass(&mut self, ns: u64) {
        let counted = match self.limit {
            Limit::Unknown => &mut self.sent.limit_unknown_ns,
            Limit::Application => &mut self.sent.application_limited_ns,
            Limit::Window => &mut self.sent.window_limited_ns,
            Limit::Receiver => &mut self.sent.receiver_limited_ns,
        };
        *counted += ns;
        if self.window_closed {
            self.sent.zero_window_ns += ns;
        }
    }

    /// Begins anew to look for the smallest window.
    #[inline]
    pub(crate) fn forget_least_window(&mut self) {
        self.window_least = u16::MAX;
    }

    pub(crate) fn window_closed(&self) -> bool {
        self.window_closed
    }

    /// Limit that keeps this end from sending now. `window_known`: true if the scale of the other
    /// end's window is known, so that `allowed` is right.
    #[inline]
    pub(crate) fn limit_now(&self, window_known: bool, window_closed: bool) -> Limit {
        if window_closed {
            Limit::Receiver
        } else if self.una == 0 || self.sent.captured_packets == 0 {
            Limit::Unknown
        } else if self.nxt <= self.una {
            Limit::Application
        } else if self.allowed == 0 {
            Limit::Unknown
        } else if window_known && self.nxt + u64::from(self.mss.bytes) > self.allowed {
            Limit::Receiver
        } else if self.ran_out || self.fin_seen {
            Limit::Application
        } else if window_known {
            Limit::Window
        } else {
            Limit::Unknown
        }
    }

    /// True if a number beyond all seen numbers is impossible, because no window offered it: a
    /// damaged header, as checksums are not verified. If the next number is as far ahead, the
    /// capture missed the window that offered it, and the result is false.
    #[cold]
    pub(crate) fn is_doubtful(&mut self, number: u64) -> bool {
        let most = self.allowed + u64::from(self.mss.bytes);
        let is_beyond =
            self.seen && self.window_shift.is_some() && self.allowed > 0 && number > most;
        let before = std::mem::replace(&mut self.doubted, if is_beyond { number } else { 0 });
        is_beyond && (before == 0 || number.abs_diff(before) > NEAR_BYTES)
    }

    /// True if no sequence number of this end was seen: the capture holds the other direction alone, so far.
    #[inline]
    pub(crate) fn is_unseen(&self) -> bool {
        !self.seen
    }

    /// True if the last ACK of the other end showed something rare.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.is_needless || self.unseen_from > 0
    }

    /// Data that the other end's ACKs show not to have come: since when, and the bytes. `None` if it has all, or only FIN is
    /// missing. A gap that was never filled counts though nothing is outstanding here.
    pub(crate) fn undelivered(&self) -> Option<(u64, u64)> {
        let control = u64::from(self.fin_seen) + u64::from(self.syn_seen && self.una == self.base);
        let bytes = self.in_flight().saturating_sub(control);
        let oldest_ns = self.outstanding.front().map(|oldest| oldest.at_ns);
        let gap_ns = self.holes.first().map(|hole| hole.at_ns);
        let at_ns = [oldest_ns, gap_ns].into_iter().flatten().min()?;
        (bytes > 0).then(|| (at_ns.max(self.newest.at_ns), bytes))
    }

    /// True if the capture misses data before the highest number.
    #[inline]
    pub(crate) fn has_gap(&self) -> bool {
        !self.holes.is_empty()
    }

    /// Handles a DSACK: the other end received the byte at `left` twice. If this end did not send
    /// it again, the network duplicated it.
    #[cold]
    pub(crate) fn on_dsack(&mut self, left: u32) {
        let left = extend(self.nxt, left);
        self.sent.dsacks += 1;
        let mut again = self.resent.iter_mut();
        let again = again.find(|resent| (resent.start..resent.end).contains(&left));
        let is_known = again.as_ref().is_some_and(|resent| resent.is_needless);
        let again = again.map(|resent| resent.is_needless = true).is_some();
        self.sent.spurious_by_dsack += u64::from(again);
        // A DSACK alone tells of data that the capture does not hold.
        self.is_needless |= again && !is_known || self.is_unseen();
        self.sent.retransmitted_needlessly += u64::from(again && !is_known);
    }

    /// True if every list is within its limit. The cost of a packet is bounded by these limits,
    /// whatever came before it.
    pub(crate) fn is_bounded(&self) -> bool {
        self.outstanding.len() <= OUTSTANDING_MOST
            && self.holes.len() <= HOLES_MOST
            && self.early.len() <= EARLY_MOST
            && self.resent.len() <= RESENT_MOST
            && self.learned.len() <= LEARNED_MOST
            && self.acks_seen.len() <= ACKS_SEEN_MOST
    }

    /// True if exactly one wire segment is outstanding.
    #[inline]
    pub(crate) fn has_one_segment_outstanding(&self) -> bool {
        self.outstanding.len() == 1 && self.outstanding[0].wire_segments == 1
    }
}
