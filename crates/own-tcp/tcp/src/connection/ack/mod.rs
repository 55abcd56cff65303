//! Acknowledgement: an [`AckPolicy`] is data, the scheduler applies it. Each policy has a file.
//!
//! The scheduler decides on three events: a segment arrived in order, the application read, the
//! timer fired. A fourth call, `on_sent`, notes that a segment left, since every segment carries
//! the acknowledgement. Acknowledgements that are mandatory under any policy (gaps, duplicates,
//! FIN, probes, congestion marks; RFC 5681 §4.2) are not decided here: those steps owe the
//! acknowledgement themselves and only notify the scheduler, so that the ACK covers all data.

mod avoidance;
mod compress;
mod delayed;
mod every;
mod linux_like;
mod on_push;
mod on_read;
mod own;
mod requested;

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use avoidance::Avoidance;
use linux_like::LinuxLike;
use own::Own;

pub(super) use compress::Gap;
pub use compress::LinuxAcks;
pub use own::{AckRule, OwnAckPolicy, OwnAcks};

/// Rule for acknowledging data that arrived in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckPolicy {
    /// At least every second full-sized segment, counted in bytes, else after `delay_max` (RFC 9293
    /// §3.8.6.3, SHLD-18, SHLD-19; MUST-40: below 500 ms).
    Delayed {
        /// Longest wait for a second segment.
        delay_max: Duration,
    },
    /// Linux's rule: at once in quick-ACK mode; else when more than one segment arrived and the
    /// application reads fast enough; else after a delay that adapts to the time between segments.
    /// After a gap ACKs are compressed. Details: [`Config::linux_acks`](crate::Config::linux_acks).
    LinuxLike {
        /// Longest wait. Linux has `TCP_DELACK_MAX`, 200 ms.
        delay_max: Duration,
    },
    /// Every `segments` wire segments, however many arrive together, else after `delay_max`. At
    /// most half the window stays unacknowledged, because a sender without window could not send
    /// the segment that completes the count.
    Every {
        /// Wire segments per acknowledgement, at least 1.
        segments: u32,
        /// Longest wait for the last of the segments.
        delay_max: Duration,
    },
    /// One ACK for each `segments` full-sized segments, counted in bytes, also inside a
    /// super-segment, which then gets several ACKs. For studies that need a fixed ratio of ACKs at
    /// any speed. Otherwise like `Every`.
    Exactly {
        /// Full-sized segments per acknowledgement, at least 1.
        segments: u32,
        /// Longest wait for the last of the segments.
        delay_max: Duration,
    },
    /// ACK avoidance of Mentat's TCP (HP-UX, Solaris, illumos). The limit grows by one with each
    /// ACK that it causes, as the sender's window does in slow start, and falls back when the delay
    /// expires first. Segments that arrive together get the ACKs that they would get if each had
    /// arrived alone.
    Avoidance {
        /// Initial limit in segments: 1 as in HP-UX of 2005, 0 as in illumos.
        limit_initial: u32,
        /// Maximum of the limit: 22 in HP-UX; 8 (neighbours) or 2 in illumos.
        limit_max: u32,
        /// Longest wait. illumos: 50 ms for neighbours, 100 ms through a router.
        delay_max: Duration,
    },
    /// The read that opens the window acknowledges (Klemkow 2020). OpenBSD reverted the version
    /// without limits, so here `segments`, half the window and `delay_max` limit what a slow reader
    /// leaves unacknowledged.
    OnRead {
        /// Wire segments after which an ACK does not wait for a read, at least 1.
        segments: u32,
        /// Longest wait for a read.
        delay_max: Duration,
    },
    /// Like `Delayed`, and at once for a segment with PSH, the sender's sign that it has no more for
    /// now: OpenBSD's and NetBSD's `tcp_ack_on_push`.
    OnPush {
        /// Longest wait for a second segment.
        delay_max: Duration,
    },
    /// The rate that the sender requests by the TCP ACK Rate Request option
    /// (draft-ietf-tcpm-ack-rate-request); like `Delayed` until a request arrives. For data of this
    /// end, requests one ACK per `segments` from the peer. Behaves like `Delayed` unless both ends
    /// use it.
    Requested {
        /// Full-sized segments per acknowledgement to request, 1..=127.
        segments: u32,
        /// Longest wait for the last of the segments.
        delay_max: Duration,
    },
    /// Policy of another crate. Each decision is a virtual call.
    Own(OwnAckPolicy),
}

impl AckPolicy {
    /// Longest wait for the segment that makes an acknowledgement due; at most 499 ms.
    pub(super) fn delay_max(&self) -> Duration {
        match *self {
            Self::Delayed { delay_max }
            | Self::LinuxLike { delay_max }
            | Self::Every { delay_max, .. }
            | Self::Exactly { delay_max, .. }
            | Self::Avoidance { delay_max, .. }
            | Self::OnRead { delay_max, .. }
            | Self::OnPush { delay_max }
            | Self::Requested { delay_max, .. } => delay_max.min(DELAY_MAX),
            Self::Own(_) => DELAY_MAX,
        }
    }

    /// True if the policy may move a running deadline. Otherwise the deadline set by the oldest
    /// segment does not change.
    pub(super) fn moves_deadline(&self) -> bool {
        matches!(self, Self::LinuxLike { .. } | Self::Own(_))
    }

    /// True if the policy reads the round-trip time.
    pub(super) fn wants_rtt(&self) -> bool {
        matches!(self, Self::LinuxLike { .. } | Self::Own(_))
    }
}

/// Decision about an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckDecision {
    /// Send it with the next poll.
    Now,
    /// Send it at this time, or at an earlier time decided before, unless another segment carries
    /// it first.
    By(Instant),
    /// Change nothing.
    Nothing,
}

/// Inputs of a policy when a segment arrives in order. Sizes are bytes of payload.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Number of wire segments in the unit. Not units, because receive offload would change what a
    /// count means.
    pub wire_segments: u32,
    /// Payload of the unit.
    pub bytes: u32,
    /// Payload of each wire segment in the unit except the last.
    pub segment_bytes: u32,
    /// True if the segment has the PSH flag.
    pub push: bool,
    /// Payload of a full-sized segment of this peer, estimated from segments seen.
    pub full_segment_bytes: u32,
    /// Bytes received in order since the last acknowledgement left, including `bytes`.
    pub unacked_bytes: u32,
    /// Window that the peer knew when the last acknowledgement left.
    pub window_bytes: u32,
    /// Window that we could announce now.
    pub window_new: u32,
    /// Smoothed round-trip time; `None` if not measured, or if the policy does not read it.
    pub srtt: Option<Duration>,
    /// Time of arrival.
    pub now: Instant,
}

impl Arrival {
    /// True if at least half the window is unacknowledged. With more, the sender might lack window
    /// for the segment that is waited for.
    pub fn is_half_the_window(&self) -> bool {
        self.unacked_bytes >= self.window_bytes / 2
    }
}

/// Inputs of a policy when the application reads. Sizes are bytes.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// Bytes received in order since the last acknowledgement left.
    pub unacked_bytes: u32,
    /// True if no data is left to read.
    pub drained: bool,
    /// Window that the peer knows.
    pub window_known: u32,
    /// Window that we would announce now.
    pub window_new: u32,
    /// Size of the receive buffer.
    pub buffer: u32,
    /// Payload of a full-sized segment of this peer.
    pub full_segment_bytes: u32,
}

impl Read {
    /// True if the window has opened enough to be announced. From less than a segment (or half the
    /// buffer, if smaller): when it reaches a segment. Else: when it doubles, and only if the peer
    /// knows of at most half the buffer (as in Linux). This is also the receiver's silly-window
    /// avoidance (RFC 9293 §3.8.6.2.2).
    pub fn has_opened(&self) -> bool {
        let segment = self.full_segment_bytes.min(self.buffer / 2);
        if self.window_known < segment {
            self.window_new >= segment
        } else {
            2 * u64::from(self.window_known) <= u64::from(self.buffer)
                && u64::from(self.window_new) >= 2 * u64::from(self.window_known)
        }
    }

    /// True if the window has opened from less than a segment to a segment. Every policy announces
    /// that at once.
    pub fn has_reopened(&self) -> bool {
        self.window_known < self.full_segment_bytes.min(self.buffer / 2) && self.has_opened()
    }
}

/// Kind of an unacceptable segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unacceptable {
    /// Segment with data that was received before.
    OldData,
    /// Segment with data for which there is no room: a window probe.
    BeyondWindow,
    /// Segment without data.
    Other,
}

impl Memory {
    /// Marked cold, so that its caller, which runs for every segment, stays small.
    #[cold]
    fn on_sent(&mut self, data: bool, scheduled: bool, now: Instant) -> bool {
        if let Some(avoidance) = &mut self.avoidance {
            avoidance.on_sent();
        }
        if let Some(own) = &mut self.own {
            own.on_sent();
        }
        self.linux_like
            .as_mut()
            .is_some_and(|linux_like| linux_like.on_sent(data, scheduled, now))
    }
}

/// State of the acknowledging side: what arrived since the last acknowledgement, and what the
/// policy has learned. Fields that the policy does not use are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckState {
    /// Wire segments received in order since the last acknowledgement left.
    pub unacked_segments: u32,
    /// `avoidance`: segments after which it acknowledges.
    pub limit: Option<u32>,
    /// `avoidance`: maximum of `limit`.
    pub limit_max: Option<u32>,
    /// `linux-like`: remaining acknowledgements that are sent at once.
    pub quick: Option<u8>,
    /// `linux-like`: true if the connection alternates requests and responses.
    pub pingpong: Option<bool>,
    /// `linux-like`: adaptive delay.
    pub delay: Option<Duration>,
    /// Full-sized segments per acknowledgement that the peer requested; `None` if no request
    /// arrived.
    pub requested: Option<u8>,
}

/// Applies an [`AckPolicy`].
#[derive(Debug, Default)]
pub(super) struct AckScheduler {
    unacked_segments: u32,
    /// Full-sized segments per acknowledgement that the peer requested; 0: no request.
    requested: u8,
    /// True if the next acknowledgements must cover all data: the policy's steps do not end before
    /// that.
    whole: bool,
    /// State of the policies that have one. Boxed, because most connections have none.
    memory: Option<Box<Memory>>,
}

/// State of a policy other than the counts.
#[derive(Debug, Default)]
struct Memory {
    linux_like: Option<LinuxLike>,
    avoidance: Option<Avoidance>,
    own: Option<Own>,
}

impl AckScheduler {
    /// Makes a scheduler whose only state is the peer's request.
    pub(super) fn asked_for(requested: u8) -> Self {
        Self {
            requested,
            ..Self::default()
        }
    }

    pub(super) fn requested(&self) -> u8 {
        self.requested
    }

    /// True if [`asked_for`](Self::asked_for) restores this scheduler, once all data is
    /// acknowledged.
    pub(super) fn has_no_memory(&self) -> bool {
        self.memory.is_none()
    }

    pub(super) fn state(&self) -> AckState {
        let memory = self.memory.as_deref();
        let linux = memory.and_then(|memory| memory.linux_like.as_ref());
        let limits = memory.and_then(|memory| Some(memory.avoidance.as_ref()?.limits()));
        AckState {
            unacked_segments: self.unacked_segments,
            limit: limits.map(|(limit, _)| limit),
            limit_max: limits.map(|(_, max)| max),
            quick: linux.map(LinuxLike::quick),
            pingpong: linux.map(|linux| linux.pingpong),
            delay: linux.map(LinuxLike::delay_adapted),
            requested: (self.requested > 0).then_some(self.requested),
        }
    }

    pub(super) fn on_segment(&mut self, policy: &AckPolicy, arrival: &Arrival) -> AckDecision {
        self.unacked_segments = self.unacked_segments.saturating_add(arrival.wire_segments);
        let due = match *policy {
            AckPolicy::Delayed { .. } => delayed::is_due(arrival),
            AckPolicy::Every { segments, .. } => {
                every::is_due(segments, self.unacked_segments, arrival)
            }
            AckPolicy::Exactly { segments, .. } => every::is_due_exactly(segments, arrival),
            AckPolicy::OnRead { segments, .. } => {
                every::is_due(segments, self.unacked_segments, arrival)
            }
            AckPolicy::OnPush { .. } => {
                // PSH is at the end of a super-segment, so an ACK of a part would not reach it.
                self.whole |= arrival.push;
                on_push::is_due(arrival)
            }
            AckPolicy::Requested { .. } => requested::is_due(self.requested, arrival),
            AckPolicy::Own(policy) => return self.own(policy).on_segment(arrival),
            AckPolicy::LinuxLike { .. } => {
                let delay_max = policy.delay_max();
                return self.linux_like().on_segment(arrival, delay_max);
            }
            AckPolicy::Avoidance {
                limit_initial,
                limit_max,
                ..
            } => {
                let count = self.unacked_segments;
                match self
                    .avoidance(limit_initial, limit_max)
                    .on_segment(count, arrival)
                {
                    avoidance::Due::No => false,
                    avoidance::Due::ByLimit => true,
                    avoidance::Due::ByLength => {
                        self.whole = true;
                        true
                    }
                }
            }
        };
        if due {
            AckDecision::Now
        } else {
            AckDecision::By(arrival.now + policy.delay_max())
        }
    }

    pub(super) fn on_read(&mut self, policy: &AckPolicy, read: &Read) -> AckDecision {
        let due = match *policy {
            AckPolicy::LinuxLike { .. } => self.linux_like().is_due_on_read(read),
            AckPolicy::OnRead { .. } => on_read::is_due(read),
            AckPolicy::Own(policy) => return self.own(policy).on_read(read),
            AckPolicy::Avoidance {
                limit_initial,
                limit_max,
                ..
            } => self
                .avoidance(limit_initial, limit_max)
                .is_due_on_read(read),
            _ => read.has_opened(),
        };
        if due {
            AckDecision::Now
        } else {
            AckDecision::Nothing
        }
    }

    /// Called when the delay expired. True if a delayed acknowledgement was due.
    pub(super) fn on_timer(
        &mut self,
        policy: &AckPolicy,
        unacked_bytes: u32,
        full_segment: u32,
        now: Instant,
    ) -> bool {
        match *policy {
            AckPolicy::LinuxLike { .. } => return self.linux_like().on_timer(now),
            AckPolicy::Own(policy) => self.own(policy).on_timer(),
            AckPolicy::Avoidance {
                limit_initial,
                limit_max,
                ..
            } => {
                self.whole = true;
                if unacked_bytes > full_segment {
                    self.avoidance(limit_initial, limit_max).on_timer();
                }
            }
            _ => {}
        }
        true
    }

    /// Decides about a segment after a gap or one that fills a part of it. All policies but
    /// `LinuxLike` acknowledge at once (RFC 5681 §4.2).
    pub(super) fn on_gap(
        &mut self,
        policy: &AckPolicy,
        settings: &LinuxAcks,
        gap: &Gap,
    ) -> AckDecision {
        if let AckPolicy::LinuxLike { .. } = policy {
            return self.linux_like().on_gap(gap, settings);
        }
        self.on_mandatory();
        AckDecision::Now
    }

    /// Called when an acknowledgement is mandatory under any policy.
    pub(super) fn on_mandatory(&mut self) {
        self.whole = true;
    }

    pub(super) fn on_unacceptable(
        &mut self,
        policy: &AckPolicy,
        unacceptable: Unacceptable,
        window: u32,
    ) {
        match *policy {
            AckPolicy::LinuxLike { .. } if unacceptable != Unacceptable::Other => self
                .linux_like()
                .enter_quick_mode(linux_like::QUICK_MAX, window),
            AckPolicy::Avoidance {
                limit_initial,
                limit_max,
                ..
            } if unacceptable != Unacceptable::BeyondWindow => {
                let any = self.unacked_segments > 0;
                self.avoidance(limit_initial, limit_max)
                    .on_unacceptable(any);
            }
            _ => {}
        }
    }

    /// Called when the peer acknowledged our SYN and data waits to be sent.
    pub(super) fn on_opened_by_writer(&mut self, policy: &AckPolicy, window: u32, now: Instant) {
        if let AckPolicy::LinuxLike { .. } = policy {
            self.linux_like().on_opened_by_writer(window, now);
        }
    }

    /// Called for a congestion mark, which the sender must learn soon.
    pub(super) fn on_congestion_mark(&mut self, policy: &AckPolicy, window: u32) {
        if let AckPolicy::LinuxLike { .. } = policy {
            self.linux_like()
                .enter_quick_mode(linux_like::QUICK_ECN, window);
        }
    }

    /// Sets the peer's request of one acknowledgement per `segments` full-sized segments.
    pub(super) fn on_request(&mut self, segments: u8) {
        self.requested = segments;
    }

    /// True if all data that has arrived must be acknowledged at once.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Called when a segment with the acknowledgement was sent. `scheduled` is true if there was
    /// something to acknowledge. True if omitted SACK blocks must still be sent, which a segment
    /// with data does not carry.
    #[inline]
    pub(super) fn on_sent(&mut self, data: bool, scheduled: bool, now: Instant) -> bool {
        self.unacked_segments = 0;
        self.whole = false;
        match &mut self.memory {
            None => false,
            Some(memory) => memory.on_sent(data, scheduled, now),
        }
    }

    /// Limit of bytes by which the next acknowledgement advances. `None` if it may cover all data.
    pub(super) fn step_bytes(&self, policy: &AckPolicy, full_segment_bytes: u32) -> Option<u32> {
        let segments = match *policy {
            AckPolicy::Exactly { segments, .. } => segments,
            AckPolicy::Avoidance { .. } => self.memory.as_deref()?.avoidance.as_ref()?.step()?,
            AckPolicy::LinuxLike { .. } | AckPolicy::Own(_) => return None,
            _ => self.segments_wanted(policy).max(DISTANCE_MAX),
        };
        Some(segments.max(1).saturating_mul(full_segment_bytes))
    }

    /// Full-sized segments in order that make an acknowledgement due, for policies that count.
    fn segments_wanted(&self, policy: &AckPolicy) -> u32 {
        match *policy {
            AckPolicy::Every { segments, .. }
            | AckPolicy::Exactly { segments, .. }
            | AckPolicy::OnRead { segments, .. } => segments.max(1),
            AckPolicy::Requested { .. } if self.requested > 0 => self.requested.into(),
            _ => 2,
        }
    }

    /// Called after an acknowledgement of a step. True if the `bytes_left` are due too.
    pub(super) fn on_step(
        &mut self,
        policy: &AckPolicy,
        bytes_left: u32,
        window_bytes: u32,
        full_segment_bytes: u32,
    ) -> bool {
        let full = full_segment_bytes.max(1);
        self.unacked_segments = bytes_left.div_ceil(full);
        let segments_left = self.unacked_segments;
        match *policy {
            AckPolicy::Avoidance {
                limit_initial,
                limit_max,
                ..
            } => self
                .avoidance(limit_initial, limit_max)
                .is_due(segments_left, window_bytes / full),
            // The read that causes the acknowledgement has happened.
            AckPolicy::OnRead { .. } => bytes_left > 0,
            _ => {
                let wanted = self.segments_wanted(policy).saturating_mul(full);
                bytes_left >= wanted.min((window_bytes / 2).max(1))
            }
        }
    }

    /// Returns the rule of `policy`, a new one if the policy changed.
    #[cold]
    fn own(&mut self, policy: OwnAckPolicy) -> &mut Own {
        let own = &mut self.memory.get_or_insert_default().own;
        if own.as_ref().is_some_and(|own| own.policy != policy) {
            *own = None;
        }
        own.get_or_insert_with(|| Own::new(policy))
    }

    fn linux_like(&mut self) -> &mut LinuxLike {
        let memory = self.memory.get_or_insert_default();
        memory.linux_like.get_or_insert_default()
    }

    fn avoidance(&mut self, limit_initial: u32, limit_max: u32) -> &mut Avoidance {
        let memory = self.memory.get_or_insert_default();
        memory
            .avoidance
            .get_or_insert_with(|| Avoidance::new(limit_initial, limit_max))
    }
}

/// Limit of full-sized segments that one acknowledgement covers when more arrived in order
/// together, unless the policy counts to more. 45 make up a super-segment, which a Linux receiver
/// with receive offload acknowledges at once. BBR, CUBIC and Reno tolerate it. From 64 on, a sender
/// with a smaller window waits for the receiver's delay (figures: bench/studies.md).
const DISTANCE_MAX: u32 = 45;
/// RFC 9293 MUST-40: below 500 ms.
const DELAY_MAX: Duration = Duration::from_millis(499);
