//! What is left of a connection that has nothing to do: less than a third of its memory, and nothing on the heap
//! that an empty queue keeps.
//!
//! Everything that a peer or an application could tell comes back as it was. What is forgotten is
//! what a second of silence makes worthless: the limit on challenges, and signs that a repair which is
//! long over was for nothing. A connection that has learned of reordering, or whose ACK policy keeps
//! a memory, stays as it is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::acceptability::ChallengeLimit;
use super::ack::AckScheduler;
use super::info::Chronograph;
use super::recovery::Phase;
use super::send_queue::SendQueue;
use super::sequence_space::{EcnState, ReceiveSpace, SendSpace};
use super::timers::{Timer, Timers};
use super::{
    AckRateState, Congestion, Connection, FastOpening, MtuSearch, Owed, Recovery, RttEstimator,
    State,
};
use crate::counters::Tally;
use crate::wire::Unreachable;
use crate::{Config, Pool, SeqNum};

/// An `Option<Instant>` in half its memory: nanoseconds since another one.
#[derive(Clone, Copy, Debug)]
struct Moment(u64);

impl Moment {
    const NONE: Self = Self(u64::MAX);

    fn new(instant: Option<Instant>, base: Instant) -> Self {
        instant.map_or(Self::NONE, |instant| {
            let since = instant.saturating_duration_since(base);
            // 584 years fit.
            Self(since.as_nanos().min(u128::from(u64::MAX - 1)) as u64)
        })
    }

    fn instant(self, base: Instant) -> Option<Instant> {
        (self.0 != Self::NONE.0).then(|| base + Duration::from_nanos(self.0))
    }
}

/// An established connection without anything in flight, written or unread.
#[derive(Debug)]
pub(crate) struct Dormant {
    config: Arc<Config>,
    pool: Pool,
    base: Instant,
    last_sent: Moment,
    keepalive: Moment,
    rtt: RttEstimator,
    congestion: Congestion,
    /// The sums of [`Chronograph`], and the counters.
    counts: Tally<3>,
    fast_open: Option<Box<FastOpening>>,
    mtu_search: Option<Box<MtuSearch>>,
    heard_ns: u64,
    data_ns: u64,
    tuning_ns: u64,
    tuning_bytes: u32,
    clock_offset: u32,
    ack_rate: AckRateState,
    flight_at_send: u32,
    iss: SeqNum,
    snd_nxt: SeqNum,
    snd_wnd: u32,
    wl1: SeqNum,
    wl2: SeqNum,
    snd_wnd_max: u32,
    mss: u32,
    mss_peer: u32,
    mss_path: u32,
    irs: SeqNum,
    rcv_nxt: SeqNum,
    edge: SeqNum,
    acked_window: u32,
    buffer: u32,
    full_segment: u32,
    ts_recent: u32,
    snd_shift: u8,
    rcv_shift: u8,
    requested: u8,
    unanswered: u8,
    ecn: EcnState,
    soft_error: Option<Unreachable>,
    sack: bool,
    timestamps: bool,
    passive: bool,
    cork: bool,
}

impl Connection {
    /// Whether nothing is going on.
    pub(crate) fn may_rest(&self) -> bool {
        let (snd, rcv, owed) = (&self.snd, &self.rcv, &self.owed);
        self.state == State::Established
            && snd.queue_is_quiet()
            && !(snd.closed || snd.more || snd.flush || snd.wanted || snd.urgent)
            && rcv.queue.is_quiet()
            && rcv.acked == rcv.nxt
            && !(rcv.fin.is_some() || rcv.finished || rcv.abandoned || rcv.discarded || rcv.urgent)
            && rcv.duplicate.is_none()
            && !(owed.syn || owed.acks > 0 || owed.reset.is_some() || owed.probe || owed.tail_probe)
            && self.retries == 0
            && self.ended.is_none()
            && matches!(self.recovery.phase, Phase::Open)
            && self.recovery.rack.has_nothing_learned()
            && self.ack.has_no_memory()
            && self.limits.is_idle()
            && self.timers.only(Timer::KeepAlive)
    }

    /// What is left of one that [may rest](Self::may_rest).
    pub(crate) fn rest(self) -> Dormant {
        let (snd, rcv) = (self.snd, self.rcv);
        let base = self.timers.base();
        Dormant {
            base,
            keepalive: Moment::new(self.timers.next(), base),
            config: self.config,
            pool: self.pool,
            last_sent: Moment::new(self.recovery.last_sent, base),
            rtt: self.rtt,
            congestion: self.congestion,
            counts: Tally::of(&self.counters, self.limits.sums_ns()),
            fast_open: self.fast_open,
            mtu_search: self.mtu_search,
            heard_ns: self.heard_ns,
            data_ns: rcv.data_ns,
            tuning_ns: rcv.tuning_ns,
            tuning_bytes: rcv.tuning_bytes,
            clock_offset: self.clock_offset,
            ack_rate: self.ack_rate,
            flight_at_send: self.recovery.flight_at_send,
            iss: snd.iss,
            snd_nxt: snd.nxt,
            snd_wnd: snd.wnd,
            wl1: snd.wl1,
            wl2: snd.wl2,
            snd_wnd_max: snd.wnd_max,
            mss: snd.mss,
            mss_peer: snd.mss_peer,
            mss_path: snd.mss_path,
            irs: rcv.irs,
            rcv_nxt: rcv.nxt,
            edge: rcv.edge,
            acked_window: rcv.acked_window,
            buffer: rcv.buffer,
            full_segment: rcv.full_segment,
            ts_recent: rcv.ts_recent,
            snd_shift: snd.shift,
            rcv_shift: rcv.shift,
            requested: self.ack.requested(),
            unanswered: self.unanswered,
            ecn: self.ecn,
            soft_error: self.soft_error,
            sack: self.sack,
            timestamps: self.timestamps,
            passive: self.passive,
            cork: snd.cork,
        }
    }
}

impl Dormant {
    /// As [`Connection::configure`].
    pub(crate) fn configure(&mut self, change: impl FnOnce(&mut Config)) {
        change(Arc::make_mut(&mut self.config));
    }

    /// When it has something to do, if nothing happens before.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.keepalive.instant(self.base)
    }

    /// It as it was.
    pub(crate) fn wake(&self) -> Connection {
        let snd = SendSpace {
            iss: self.iss,
            una: self.snd_nxt,
            nxt: self.snd_nxt,
            wnd: self.snd_wnd,
            wl1: self.wl1,
            wl2: self.wl2,
            wnd_max: self.snd_wnd_max,
            shift: self.snd_shift,
            mss: self.mss,
            mss_peer: self.mss_peer,
            mss_path: self.mss_path,
            small_end: self.snd_nxt,
            queue: SendQueue::new(self.snd_nxt),
            closed: false,
            fin_sent: false,
            more: false,
            more_over: false,
            cork: self.cork,
            wanted: false,
            flush: false,
            up: self.snd_nxt,
            urgent: false,
            pace_late_ns: 0,
        };
        let rcv = ReceiveSpace {
            irs: self.irs,
            nxt: self.rcv_nxt,
            edge: self.edge,
            acked: self.rcv_nxt,
            acked_window: self.acked_window,
            shift: self.rcv_shift,
            full_segment: self.full_segment,
            ts_recent: self.ts_recent,
            data_ns: self.data_ns,
            tuning_bytes: self.tuning_bytes,
            tuning_ns: self.tuning_ns,
            ..ReceiveSpace::new(self.buffer)
        };
        let (counters, sums_ns) = self.counts.told();
        let mut timers = Timers::new(self.base);
        if let Some(due) = self.next_timeout() {
            timers.set(Timer::KeepAlive, due);
        }
        Connection {
            state: State::Established,
            snd,
            rcv,
            sack: self.sack,
            timestamps: self.timestamps,
            clock_offset: self.clock_offset,
            ecn: self.ecn,
            rtt: self.rtt.clone(),
            timers,
            recovery: Recovery {
                last_sent: self.last_sent.instant(self.base),
                flight_at_send: self.flight_at_send,
                ..Recovery::new(self.snd_nxt)
            },
            congestion: self.congestion.clone(),
            ack: AckScheduler::asked_for(self.requested),
            ack_rate: self.ack_rate,
            owed: Owed::default(),
            passive: self.passive,
            retries: 0,
            unanswered: self.unanswered,
            heard_ns: self.heard_ns,
            challenge_limit: ChallengeLimit::new(self.clock_offset),
            ended: None,
            soft_error: self.soft_error,
            fast_open: self.fast_open.clone(),
            mtu_search: self.mtu_search.clone(),
            limits: Chronograph::with_sums_ns(sums_ns),
            counters,
            config: Arc::clone(&self.config),
            pool: self.pool.clone(),
        }
    }
}
