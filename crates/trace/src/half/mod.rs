//! One direction of a connection: what one end sent, and how far the other acknowledged it.

mod acked;
mod acking;
mod data;

pub(crate) use self::acking::Acking;

use std::collections::VecDeque;

use serde::Serialize;

use crate::acks::AckCoverage;
use crate::histogram::Histogram;
use crate::mss::{Mss, MssSource};
use crate::rtt::Rtt;
use crate::segment::{Segment, flag};
use crate::sent::Sent;
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

/// What tells whether a packet was sent before another: the datagram's id, 0 for none, and TSval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp {
    pub(crate) ip_id: u16,
    pub(crate) timestamp: Option<u32>,
}

impl Stamp {
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
pub struct Half {
    /// Counts.
    pub sent: Sent,
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
    /// Options of its SYN; `None` if that was not captured whole.
    pub syn: Option<SynOptions>,
    /// Whether its SYN was captured.
    pub syn_seen: bool,
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
    window: u16,
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
    resent: [(u64, u64); 16],
    resent_next: usize,
    /// The last ACK of this end was a duplicate or told of a gap: the next one fills that.
    answers_disturbed: bool,
    /// The last number that no window offered; 0 for none.
    doubted: u64,
    recent: [u64; 8],
    recent_at: [u64; 8],
    recent_next: usize,
}

/// Entries of the queue of unacknowledged packets; beyond, the two oldest are taken together.
const OUTSTANDING_MOST: usize = 512;

/// Gaps that are remembered at a time.
const HOLES_MOST: usize = 16;

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
    pub(crate) oldest_at_ns: Option<u64>,
    pub(crate) newest_at_ns: Option<u64>,
}

impl Half {
    pub(crate) fn new() -> Half {
        Half {
            sent: Sent::default(),
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
            syn: None,
            syn_seen: false,
            fin_seen: false,
            reset: false,
            window_shift: None,
            nxt: 0,
            una: 0,
            base: 0,
            seen: false,
            allowed: 0,
            limit: Limit::Unknown,
            window: 0,
            window_most: 0,
            window_closed: false,
            outstanding: VecDeque::new(),
            holes: Vec::new(),
            last_data_full: false,
            small_end: 0,
            ran_out: false,
            small_run_bytes: 0,
            resent: [(0, 0); 16],
            resent_next: 0,
            answers_disturbed: false,
            doubted: 0,
            recent: [0; 8],
            recent_at: [0; 8],
            recent_next: 0,
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

    /// Bytes sent that are not acknowledged, SYN and FIN counting as one.
    #[inline]
    pub(crate) fn in_flight(&self) -> u64 {
        if self.una == 0 {
            0
        } else {
            self.nxt.saturating_sub(self.una)
        }
    }

    /// Whether the last packets held this one before. Two are the same if the datagram's id says
    /// so; without ids, if all else is equal within 0.5 ms (`ids` false) or, for a pure ACK, if this
    /// capture holds data twice as well.
    #[inline]
    pub(crate) fn is_copy(&mut self, segment: &Segment, suspicious: bool, at_ns: u64) -> bool {
        let timestamp = segment.options.timestamps.map_or(0, |(value, _)| value);
        let sack = segment.options.sack[0];
        let mut print = (u64::from(segment.seq.unwrap_or(0)) << 32 | u64::from(segment.ack))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        print ^= u64::from(segment.ip_id) << 48
            | u64::from(segment.window) << 32
            | u64::from(segment.payload) << 8
            | u64::from(segment.flags);
        print = print.rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
            ^ u64::from(timestamp)
            ^ u64::from(sack.1) << 32;
        if suspicious && let Some(at) = self.recent.iter().position(|recent| *recent == print) {
            let age = at_ns.saturating_sub(self.recent_at[at]);
            let twice = if segment.ip_id != 0 {
                age < COPY_WITH_ID_NS
            } else if segment.is_pure_ack() {
                self.sent.captured_twice > 0 && age < COPY_NS
            } else {
                age < COPY_NS
            };
            // Each packet has one copy.
            if twice {
                self.recent[at] = 0;
                return true;
            }
        }
        self.recent[self.recent_next] = print;
        self.recent_at[self.recent_next] = at_ns;
        self.recent_next = (self.recent_next + 1) % self.recent.len();
        false
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
        let short = !payload.is_multiple_of(mss);
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
        let changed = segment.window != self.window;
        self.window = segment.window;
        let closed = segment.window == 0 && !segment.any(flag::RST | flag::SYN);
        self.sent.zero_windows += u64::from(closed && !self.window_closed);
        self.window_closed = closed;
        changed
    }

    pub(crate) fn window_closed(&self) -> bool {
        self.window_closed
    }

    /// What keeps this end from sending now. `window_known`: whether `allowed` is to be trusted.
    #[inline]
    pub(crate) fn limit_now(&self, window_known: bool, window_closed: bool) -> Limit {
        let in_flight = self.in_flight();
        if window_closed {
            Limit::Receiver
        } else if self.sent.captured_packets == 0
            || self.una == 0
            || (in_flight > 0 && self.allowed == 0)
        {
            Limit::Unknown
        } else if in_flight == 0 {
            Limit::Application
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
            .any(|(start, end)| (*start..*end).contains(&left));
        self.sent.spurious_by_dsack += u64::from(again);
    }

    /// Whether one wire segment is outstanding, and no more.
    #[inline]
    pub(crate) fn has_one_segment_outstanding(&self) -> bool {
        self.outstanding.len() == 1 && self.outstanding[0].wire_segments == 1
    }
}

/// Without datagram ids only what follows within this time is a copy: sooner than any retransmission
/// (a tail loss probe waits 2 ms or more).
const COPY_NS: u64 = 500_000;

/// With ids: they repeat after 65,536 datagrams.
const COPY_WITH_ID_NS: u64 = 50_000_000;
