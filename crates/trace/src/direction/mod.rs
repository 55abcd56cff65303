//! One direction of a connection: what one end sent, and how far the other acknowledged it.

mod acked;
mod acking;
mod copies;
mod data;
mod learned;

pub(crate) use self::acking::{Acking, is_dsack};

use std::collections::VecDeque;

use serde::Serialize;

use self::copies::{ACKS_SEEN_MOST, Copies};
use self::learned::LEARNED_MOST;
pub(crate) use self::learned::Learned;
use crate::acks::AckCoverage;
use crate::counts::DirectionCounts;
use crate::histogram::Histogram;
use crate::mss::{Mss, MssSource, OVERSIZED_ENOUGH, Oversized};
use crate::rtt::Rtt;
use crate::segment::{Segment, flag};
use crate::sequence::{extend, first};

/// What keeps an end from sending.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Limit {
    #[default]
    Unknown,
    Application,
    Window,
    Receiver,
}

/// A captured packet that is not acknowledged.
#[derive(Debug, Clone, Copy)]
struct Outstanding {
    start: u64,
    end: u64,
    at_ns: u64,
    wire_segments: u32,
    stamp: Stamp,
    /// Sent twice, or several packets taken together: no RTT sample.
    vague: bool,
}

/// A gap in what was captured.
#[derive(Debug, Clone, Copy)]
struct Hole {
    start: u64,
    end: u64,
    at_ns: u64,
    /// Of the packet behind it.
    stamp: Stamp,
}

/// What tells whether a packet was sent before another, or is the same: the datagram's id, 0 for none,
/// and TSval; and how far it had come.
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

    /// Whether this one was sent after the other; `None` if neither stamp tells. Ids count on within
    /// a connection of Linux; where they are drawn at random timestamps usually tell first.
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
    /// Maximum segment size.
    pub mss: Option<u16>,
    /// Window scale.
    pub window_scale: Option<u8>,
    /// SACK permitted.
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: bool,
    /// ECN asked for or agreed to.
    pub ecn: bool,
}

/// One direction.
#[derive(Debug, Clone)]
pub struct Direction {
    /// Counts.
    pub sent: DirectionCounts,
    /// What this end's ACKs cover of the other's data.
    pub acks: AckCoverage,
    /// RTT from the point of capture to the other end and back.
    pub rtt: Rtt,
    /// Payload bytes of captured packets.
    pub packet_bytes: Histogram,
    /// Wire segments of captured packets with payload.
    pub wire_segments_per_packet: Histogram,
    /// Wire segments of this end's data in a row: until another kind or direction, or a pause.
    pub data_burst_wire_segments: Histogram,
    /// Pure ACKs of this end in a row.
    pub ack_burst: Histogram,
    /// Payload of a full-sized wire segment of this end.
    pub mss: Mss,
    oversized: Oversized,
    /// Options of its SYN; `None` if that was not captured whole.
    pub syn: Option<SynOptions>,
    /// Whether its SYN was captured.
    pub syn_seen: bool,
    /// How often its SYN was sent again.
    pub syns_retransmitted: u64,
    /// Whether its FIN was captured.
    pub fin_seen: bool,
    /// Whether it sent a RST.
    pub reset: bool,
    /// Shift of its window field; `None` if the handshake does not tell.
    pub(crate) window_shift: Option<u8>,
    /// Highest sequence number sent, and highest that the other acknowledged; 0 while unknown.
    pub(crate) nxt: u64,
    pub(crate) una: u64,
    pub(crate) base: u64,
    /// Whether a sequence number of this end was seen; until then nothing is missing.
    seen: bool,
    /// Highest sequence number that the other end's window allows.
    pub(crate) allowed: u64,
    pub(crate) limit: Limit,
    /// As it stood in its last segment.
    window: Option<u16>,
    /// The widest window that it offered, bytes.
    window_most: u32,
    window_closed: bool,
    outstanding: VecDeque<Outstanding>,
    holes: Vec<Hole>,
    last_data_full: bool,
    small_end: u64,
    ran_out: bool,
    /// Payload of the small packets that followed each other without a pause or another packet.
    small_run_bytes: u64,
    /// What was sent again last.
    resent: VecDeque<Resent>,
    /// The last ACK of this end was a duplicate or told of a gap: the next one fills that.
    answers_disturbed: bool,
    /// The last number that no window offered; 0 for none.
    doubted: u64,
    pub(crate) copies: Copies,
    /// What ACKs without ids said, where every packet was captured twice.
    acks_seen: VecDeque<u64>,
    /// What the other end acknowledged before the capture held it, the newest last.
    early: VecDeque<Early>,
    /// What this end was told by ACKs, and when, where the capture is away from it.
    learned: VecDeque<Learned>,
    newest: Learned,
    /// When an ACK last covered something new, but not all that was in flight.
    pub(crate) part_acked_ns: u64,
    /// When an ACK last told of a gap in what this end sent.
    pub(crate) told_of_gap_ns: u64,
    /// The window that it was last offered, bytes.
    pub(crate) offered: u64,
    /// Payload that it sent before any of it was acknowledged, and whether that is over.
    pub(crate) initial_bytes: u64,
    initial_over: bool,
}

/// Numbers that were sent again.
#[derive(Debug, Clone, Copy)]
struct Resent {
    start: u64,
    end: u64,
    stamp: Stamp,
    /// Where it filled a gap: the stamp of what opened that. The original is of before.
    before: Option<Stamp>,
}

/// What was acknowledged behind the highest number seen: the capture missed it, or holds the ACK
/// before the data.
#[derive(Debug, Clone, Copy, Default)]
struct Early {
    start: u64,
    end: u64,
    at_ns: u64,
    /// The timestamp that the ACK echoed.
    echo: Option<u32>,
}

/// Entries of the queue of unacknowledged packets; beyond, the two oldest are taken together.
const OUTSTANDING_MOST: usize = 512;

/// Retransmissions that are remembered: for their copies, and for what DSACK tells of them.
const RESENT_MOST: usize = 64;

/// Gaps that are followed at a time. A peer can open or split one with every packet.
const HOLES_MOST: usize = 64;

/// ACKs before their data that are remembered: those of a super-segment of 64 KiB, and more.
const EARLY_MOST: usize = 64;

/// Where no stamp tells: a packet that fills a gap within this time, or within the smallest RTT if
/// that is more, came late; after it, it is a retransmission (Wireshark's rule).
const LATE_NS: u64 = 3_000_000;

/// Two numbers this near to each other are of the same stream, not two damaged ones: a flipped bit is
/// within that of the truth only in the lower half, and there mostly within a window.
const NEAR_BYTES: u64 = 1 << 20;

/// What data were to the direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    New,
    /// Captured behind its ACK: new all the same.
    Behind,
    Late,
    Retransmitted,
    Keepalive,
    /// No window offered its numbers.
    Doubtful,
}

/// What an ACK covered for the first time.
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
    /// Whether the SYN is in it.
    pub(crate) of_syn: bool,
    /// From the newest packet that it covers, if that was sent once.
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
            nxt: 0,
            una: 0,
            base: 0,
            seen: false,
            allowed: 0,
            limit: Limit::Unknown,
            window: None,
            window_most: 0,
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
            told_of_gap_ns: 0,
            offered: 0,
            initial_bytes: 0,
            initial_over: false,
        }
    }

    /// The sequence number in 64 bits. Older texts leave it out of pure ACKs: then it is the next.
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
                // What was acknowledged so far was sent before the capture.
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

    /// A number of this direction as a place in its byte stream.
    pub(crate) fn place_of(&self, number: u32) -> u64 {
        extend(self.nxt, number).saturating_sub(self.base)
    }

    /// Bytes sent that are not acknowledged, SYN and FIN counting as one.
    #[inline]
    pub(crate) fn in_flight(&self) -> u64 {
        if self.una == 0 {
            0
        } else {
            self.nxt.saturating_sub(self.una)
        }
    }

    /// Whether this might be a packet seen before: it brings nothing new.
    #[inline]
    pub(crate) fn brings_nothing_new(&self, seq: u64, length: u64, ack: u64, acked: u64) -> bool {
        if length > 0 {
            seq < self.nxt
        } else {
            ack <= acked
        }
    }

    /// A packet with payload, for the detector of sub-MSS tails; tells whether it is one.
    ///
    /// A packet of whole segments, directly followed by a contiguous shorter one with PSH, while no
    /// other small one was unacknowledged (which Nagle's and Minshall's rules would wait for), in a
    /// direction that has super-segments: without them every tail is a packet of its own.
    #[inline]
    pub(crate) fn on_tail(&mut self, seq: u64, payload: u32, push: bool, directly: bool) -> bool {
        let mss = self.mss.bytes;
        let small_unacked = self.small_end > self.una;
        let tail = payload < mss
            && push
            && directly
            && self.last_data_full
            && seq == self.nxt
            && self.sent.super_segments > 0
            && !small_unacked;
        let short = payload != mss && !payload.is_multiple_of(mss);
        self.last_data_full = !short && !push;
        if short {
            self.small_end = seq + u64::from(payload);
        }
        self.ran_out = short && push;
        self.sent.tail_splits += u64::from(tail);
        if payload < mss && !tail {
            self.sent.small_packets += 1;
            let before = if directly && seq == self.nxt {
                self.small_run_bytes
            } else {
                0
            };
            let after = before + u64::from(payload);
            let mss = u64::from(mss);
            // Their bytes need no packet more than those before.
            let saved = before > 0 && after.div_ceil(mss) == before.div_ceil(mss);
            self.sent.joinable_packets += u64::from(saved);
            self.small_run_bytes = after;
        } else {
            self.small_run_bytes = 0;
        }
        tail
    }

    /// This end announced a window; tells whether it changed.
    #[inline]
    pub(crate) fn on_window(&mut self, segment: &Segment) -> bool {
        let changed = self.window.is_some_and(|window| window != segment.window);
        self.window = Some(segment.window);
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

    /// A packet of more than one MSS, without PSH. Where several of one size show that the MSS is that, the
    /// few before them are counted again.
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

    /// The widest window that it offered, bytes.
    pub(crate) fn window_most(&self) -> u32 {
        self.window_most
    }

    /// Time passed under the limit that held.
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

    pub(crate) fn window_closed(&self) -> bool {
        self.window_closed
    }

    /// What keeps this end from sending now. `window_known`: whether `allowed` is to be trusted.
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

    /// Whether a number beyond all that was seen cannot be, since no window offered it: a damaged
    /// header, whose checksum is not looked at. Where the next one is as far ahead, the capture
    /// missed what offered it.
    #[cold]
    pub(crate) fn is_doubtful(&mut self, number: u64) -> bool {
        let most = self.allowed + u64::from(self.mss.bytes);
        let is_beyond =
            self.seen && self.window_shift.is_some() && self.allowed > 0 && number > most;
        let before = std::mem::replace(&mut self.doubted, if is_beyond { number } else { 0 });
        is_beyond && (before == 0 || number.abs_diff(before) > NEAR_BYTES)
    }

    /// Whether the capture misses something behind the last ACK.
    #[inline]
    pub(crate) fn has_gap(&self) -> bool {
        !self.holes.is_empty()
    }

    /// The other end got what begins here twice. Where this end did not send it again, the network
    /// doubled it.
    #[cold]
    pub(crate) fn on_dsack(&mut self, left: u32) {
        let left = extend(self.nxt, left);
        self.sent.dsacks += 1;
        let again = self
            .resent
            .iter()
            .any(|resent| (resent.start..resent.end).contains(&left));
        self.sent.spurious_by_dsack += u64::from(again);
    }

    /// True if every list is within its limit: a packet costs no more than that, whatever came before it.
    pub(crate) fn is_bounded(&self) -> bool {
        self.outstanding.len() <= OUTSTANDING_MOST
            && self.holes.len() <= HOLES_MOST
            && self.early.len() <= EARLY_MOST
            && self.resent.len() <= RESENT_MOST
            && self.learned.len() <= LEARNED_MOST
            && self.acks_seen.len() <= ACKS_SEEN_MOST
    }

    /// Whether one wire segment is outstanding, and no more.
    #[inline]
    pub(crate) fn has_one_segment_outstanding(&self) -> bool {
        self.outstanding.len() == 1 && self.outstanding[0].wire_segments == 1
    }
}
