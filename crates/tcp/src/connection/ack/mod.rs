//! When to acknowledge: a policy is data, the scheduler applies it; each policy has a file.
//!
//! Asked at three places (a segment arrived in order, the application read, the timer fired) and
//! told at a fourth (something was sent: every segment carries the acknowledgement). What must be
//! acknowledged at once whatever the policy (gaps, duplicates, FIN, probes, changed congestion
//! marks; RFC 5681 §4.2) never gets here to be decided: those steps owe the acknowledgement
//! themselves and only tell the scheduler, so that it reaches as far as it can.

mod avoidance;
mod compress;
mod delayed;
mod every;
mod linux_like;
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

/// When an acknowledgement of data in order leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckPolicy {
    /// At least every second full-sized segment, counted in bytes, else after `delay_max`
    /// (RFC 9293 §3.8.6.3, SHLD-18, SHLD-19; MUST-40: under 500 ms).
    Delayed {
        /// Longest wait for a second segment.
        delay_max: Duration,
    },
    /// As Linux: at once while it is in quick-ACK mode; else when more than one segment has come
    /// and the reader keeps up; else after a timeout that adapts to how often segments come. Behind
    /// a gap it compresses. Both by [`Config::linux_acks`](crate::Config::linux_acks).
    LinuxLike {
        /// Longest wait: `TCP_DELACK_MAX`, 200 ms there.
        delay_max: Duration,
    },
    /// Every `segments` wire segments, however many arrive at once, else after `delay_max`. Never
    /// leaves more than half the window unacknowledged: a sender without window could not send the
    /// segment that is waited for.
    Every {
        /// Wire segments per acknowledgement, from 1.
        segments: u32,
        /// Longest wait for the last of them.
        delay_max: Duration,
    },
    /// One for each `segments` full-sized segments, counted in bytes, also when they arrive
    /// together: a super-segment then gets several, as its parts would have. For studies that need
    /// a certain number of ACKs at any speed. Else as `Every`.
    Exactly {
        /// Full-sized segments per acknowledgement, from 1.
        segments: u32,
        /// Longest wait for the last of them.
        delay_max: Duration,
    },
    /// ACK avoidance of Mentat's TCP (HP-UX, Solaris, illumos): a limit that grows by one with
    /// each acknowledgement it causes, as the sender's window does in slow start, and falls back
    /// when the delay is over first. As those, for which each segment arrived by itself, it
    /// acknowledges within what arrives together.
    Avoidance {
        /// Limit of a new connection, in segments: 1 reproduces HP-UX of 2005, illumos has 0.
        limit_initial: u32,
        /// The limit never exceeds this: 22 on HP-UX; 8 (neighbours) or 2 in illumos.
        limit_max: u32,
        /// Longest wait: 50 ms for neighbours, 100 ms through a router in illumos.
        delay_max: Duration,
    },
    /// None of its own for data in order: the read that opens the window acknowledges (Klemkow
    /// 2020). OpenBSD took the unguarded form back, so here `segments`, half the window and
    /// `delay_max` bound what a slow reader leaves unacknowledged.
    OnRead {
        /// Wire segments after which a reader is not waited for, from 1.
        segments: u32,
        /// Longest wait for a reader.
        delay_max: Duration,
    },
    /// As the sender asks by the TCP ACK Rate Request option (draft-ietf-tcpm-ack-rate-request),
    /// and as `Delayed` while it has not. For what this end sends, it asks the peer for one
    /// acknowledgement per `segments`. Without effect unless both ends have it.
    Requested {
        /// Full-sized segments per acknowledgement to ask for, 1..=127.
        segments: u32,
        /// Longest wait for the last of them.
        delay_max: Duration,
    },
    /// One from another crate. Only it costs a virtual call.
    Own(OwnAckPolicy),
}

impl AckPolicy {
    /// Longest wait for the segment that makes an acknowledgement due.
    pub(super) fn delay_max(&self) -> Duration {
        match *self {
            Self::Delayed { delay_max }
            | Self::LinuxLike { delay_max }
            | Self::Every { delay_max, .. }
            | Self::Exactly { delay_max, .. }
            | Self::Avoidance { delay_max, .. }
            | Self::OnRead { delay_max, .. }
            | Self::Requested { delay_max, .. } => delay_max.min(DELAY_MAX),
            Self::Own(_) => DELAY_MAX,
        }
    }

    /// Whether a deadline is the policy's to bring forward; else the oldest segment's stands.
    pub(super) fn moves_deadline(&self) -> bool {
        matches!(self, Self::LinuxLike { .. } | Self::Own(_))
    }

    /// Whether it looks at the round-trip time.
    pub(super) fn wants_rtt(&self) -> bool {
        matches!(self, Self::LinuxLike { .. } | Self::Own(_))
    }
}

/// What to do about an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckDecision {
    /// Send it with the next poll.
    Now,
    /// Send it at this time, or earlier if so decided before, unless another segment carries it.
    By(Instant),
    /// Leave things as they are.
    Nothing,
}

/// A segment arrived in order: what a policy may look at. Sizes are bytes of payload.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Wire segments it stands for. Not units: receive offload would change the meaning of a count.
    pub wire_segments: u32,
    /// Payload it brought.
    pub bytes: u32,
    /// Payload of one of its wire segments, the last one apart.
    pub segment_bytes: u32,
    /// It has the PSH flag.
    pub push: bool,
    /// Payload of a full-sized segment of this peer, by what was seen.
    pub full_segment_bytes: u32,
    /// Bytes received in order since the last acknowledgement left, these included.
    pub unacked_bytes: u32,
    /// Window the peer knew when the last acknowledgement left.
    pub window_bytes: u32,
    /// Window we could announce now.
    pub window_new: u32,
    /// Smoothed round-trip time, for the policies that look: it is kept in other units.
    pub srtt: Option<Duration>,
    /// The time.
    pub now: Instant,
}

impl Arrival {
    /// More would leave the sender without window for the segment that is waited for.
    pub fn is_half_the_window(&self) -> bool {
        self.unacked_bytes >= self.window_bytes / 2
    }
}

/// The application read: what a policy may look at. Sizes are bytes.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// Bytes received in order since the last acknowledgement left.
    pub unacked_bytes: u32,
    /// Nothing is left to read.
    pub drained: bool,
    /// Window the peer knows.
    pub window_known: u32,
    /// Window we would announce now.
    pub window_new: u32,
    /// Size of the receive buffer.
    pub buffer: u32,
    /// A full-sized segment.
    pub full_segment_bytes: u32,
}

impl Read {
    /// Whether the window has opened enough to tell: from nothing, by a segment; else when it
    /// doubles, and then only if the peer knows of less than half the buffer (as Linux). This is
    /// also the receiver's silly-window avoidance (RFC 9293 §3.8.6.2.2).
    pub fn has_opened(&self) -> bool {
        let segment = self.full_segment_bytes.min(self.buffer / 2);
        if self.window_known < segment {
            self.window_new >= segment
        } else {
            2 * u64::from(self.window_known) <= u64::from(self.buffer)
                && u64::from(self.window_new) >= 2 * u64::from(self.window_known)
        }
    }

    /// From nothing, or as good as nothing, to a segment: no policy may wait with that.
    pub fn has_reopened(&self) -> bool {
        self.window_known < self.full_segment_bytes.min(self.buffer / 2) && self.has_opened()
    }
}

/// How a segment was not acceptable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unacceptable {
    /// It brought data that was here, or that was too old.
    OldData,
    /// It brought data for which there is no room: a probe.
    BeyondWindow,
    /// It brought none.
    Other,
}

impl Memory {
    /// Cold, so that its caller, which every segment passes, stays small.
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

/// Where the acknowledging end of a connection stands: what has arrived since the last acknowledgement,
/// and what its policy has learned. What a policy does not know is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckState {
    /// Wire segments in order since the last acknowledgement left.
    pub unacked_segments: u32,
    /// Segments after which `avoidance` acknowledges now.
    pub limit: Option<u32>,
    /// The most that its limit grows to.
    pub limit_max: Option<u32>,
    /// Acknowledgements that `linux-like` sends at once before it delays any.
    pub quick: Option<u8>,
    /// `linux-like` takes the connection for one that goes to and fro.
    pub pingpong: Option<bool>,
    /// Its adaptive delay.
    pub delay: Option<Duration>,
    /// Full-sized segments per acknowledgement that the peer asked for.
    pub requested: Option<u8>,
}

/// Applies an [`AckPolicy`].
#[derive(Debug, Default)]
pub(super) struct AckScheduler {
    unacked_segments: u32,
    /// What the peer asked for: full-sized segments per acknowledgement; 0: nothing.
    requested: u8,
    /// Something of what has arrived must be acknowledged at once, so all of it is: no step of a
    /// policy ends before.
    whole: bool,
    /// Only under the policies that need it; apart because most connections do not.
    memory: Option<Box<Memory>>,
}

/// What a policy knows beside the counts.
#[derive(Debug, Default)]
struct Memory {
    linux_like: Option<LinuxLike>,
    avoidance: Option<Avoidance>,
    own: Option<Own>,
}

impl AckScheduler {
    /// One that knows nothing but what the peer asked for.
    pub(super) fn asked_for(requested: u8) -> Self {
        Self {
            requested,
            ..Self::default()
        }
    }

    pub(super) fn requested(&self) -> u8 {
        self.requested
    }

    /// Whether [`asked_for`](Self::asked_for) would be the same, once all is acknowledged.
    pub(super) fn has_no_memory(&self) -> bool {
        self.memory.is_none()
    }

    /// What there is to see.
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

    /// The delay is over. Whether it was that of an acknowledgement that waited for more to come.
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

    /// A segment came behind a gap or filled a part of one: all but Linux acknowledge it at once
    /// (RFC 5681 §4.2).
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

    /// An acknowledgement is owed whatever the policy.
    pub(super) fn on_mandatory(&mut self) {
        self.whole = true;
    }

    /// A segment came that was of no use.
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

    /// The peer took our SYN, and data wait to leave.
    pub(super) fn on_opened_by_writer(&mut self, policy: &AckPolicy, window: u32, now: Instant) {
        if let AckPolicy::LinuxLike { .. } = policy {
            self.linux_like().on_opened_by_writer(window, now);
        }
    }

    /// The path is congested: the sender has to hear soon.
    pub(super) fn on_congestion_mark(&mut self, policy: &AckPolicy, window: u32) {
        if let AckPolicy::LinuxLike { .. } = policy {
            self.linux_like()
                .enter_quick_mode(linux_like::QUICK_ECN, window);
        }
    }

    /// The peer asks for an acknowledgement per so many full-sized segments.
    pub(super) fn on_request(&mut self, segments: u8) {
        self.requested = segments;
    }

    /// Whether all that has arrived is to be acknowledged at once.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// A segment left and carried the acknowledgement; `scheduled`: there was something to
    /// acknowledge. Whether SACK blocks had been waiting, which a segment with data does not carry.
    #[inline]
    pub(super) fn on_sent(&mut self, data: bool, scheduled: bool, now: Instant) -> bool {
        self.unacked_segments = 0;
        self.whole = false;
        match &mut self.memory {
            None => false,
            Some(memory) => memory.on_sent(data, scheduled, now),
        }
    }

    /// Bytes that the next acknowledgement advances by at most. `None` if it may cover all that has arrived.
    pub(super) fn step_bytes(&self, policy: &AckPolicy, full_segment_bytes: u32) -> Option<u32> {
        let segments = match *policy {
            AckPolicy::Exactly { segments, .. } => segments,
            AckPolicy::Avoidance { .. } => self.memory.as_deref()?.avoidance.as_ref()?.step()?,
            AckPolicy::LinuxLike { .. } | AckPolicy::Own(_) => return None,
            _ => self.segments_wanted(policy).max(DISTANCE_MAX),
        };
        Some(segments.max(1).saturating_mul(full_segment_bytes))
    }

    /// Full-sized segments in order that make an acknowledgement due, of a policy that counts.
    fn segments_wanted(&self, policy: &AckPolicy) -> u32 {
        match *policy {
            AckPolicy::Every { segments, .. }
            | AckPolicy::Exactly { segments, .. }
            | AckPolicy::OnRead { segments, .. } => segments.max(1),
            AckPolicy::Requested { .. } if self.requested > 0 => self.requested.into(),
            _ => 2,
        }
    }

    /// A step was acknowledged and `bytes_left` more have arrived: whether they are due, too.
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
            // The read that was to acknowledge has been made.
            AckPolicy::OnRead { .. } => bytes_left > 0,
            _ => {
                let wanted = self.segments_wanted(policy).saturating_mul(full);
                bytes_left >= wanted.min((window_bytes / 2).max(1))
            }
        }
    }

    /// Another policy's rule knows nothing of this one's.
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

/// Full-sized segments that one acknowledgement covers at most, where more have arrived in order together, unless the
/// policy counts to more. 45 are a super-segment, which a Linux receiver with receive offload acknowledges at once. BBR, CUBIC
/// and Reno bear it; from 64 on a sender with a smaller window waits for the receiver's delay (docs/policies.md has the figures).
const DISTANCE_MAX: u32 = 45;
/// RFC 9293 MUST-40.
const DELAY_MAX: Duration = Duration::from_millis(499);
