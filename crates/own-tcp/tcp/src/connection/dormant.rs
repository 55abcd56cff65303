//! Compact form of an idle connection: less than a third of the memory, and no heap memory for
//! empty queues.
//!
//! Everything visible to the peer or the application is restored. Two things are lost because they
//! do not matter after a second of silence: the count of the challenge limit, and evidence that a
//! past repair was spurious. A connection that saw reordering, or whose ACK policy has a memory, is
//! not compacted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::acceptability::ChallengeLimit;
use super::ack::AckScheduler;
use super::info::Chronograph;
use super::recovery::Phase;
use super::sequence_space::{EcnState, ReceiveSpace, SendSpace};
use super::timers::{Timer, Timers};
use super::{
    AckRateState, Congestion, Connection, FastOpening, MtuSearch, Owed, Recovery, RttEstimator,
    State,
};
use crate::counters::Tally;
use crate::wire::Unreachable;
use crate::{Config, Pool, SeqNum};

/// Compact `Option<Instant>`, half the size: nanoseconds since a base instant.
#[derive(Clone, Copy, Debug)]
struct Moment(u64);

impl Moment {
    const NONE: Self = Self(u64::MAX);

    fn new(instant: Option<Instant>, base: Instant) -> Self {
        instant.map_or(Self::NONE, |instant| {
            let since = instant.saturating_duration_since(base);
            // The largest value is 584 years.
            Self(since.as_nanos().min(u128::from(u64::MAX - 1)) as u64)
        })
    }

    fn instant(self, base: Instant) -> Option<Instant> {
        (self.0 != Self::NONE.0).then(|| base + Duration::from_nanos(self.0))
    }
}

/// An established connection with nothing in flight, unsent or unread.
#[derive(Debug)]
pub(crate) struct Dormant {
    config: Arc<Config>,
    pool: Pool,
    base: Instant,
    last_sent: Moment,
    keepalive: Moment,
    rtt: RttEstimator,
    congestion: Congestion,
    /// Sums of [`Chronograph`] and the counters.
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
    /// True if the connection is idle and can become [`Dormant`].
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

    /// Converts a connection that [may rest](Self::may_rest).
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
    /// Changes settings as [`Connection::configure`] does.
    pub(crate) fn configure(&mut self, change: impl FnOnce(&mut Config)) {
        change(Arc::make_mut(&mut self.config));
    }

    /// Time of the next keepalive probe; `None` if there is none.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.keepalive.instant(self.base)
    }

    fn send_space(&self) -> SendSpace {
        SendSpace {
            iss: self.iss,
            wnd: self.snd_wnd,
            wl1: self.wl1,
            wl2: self.wl2,
            wnd_max: self.snd_wnd_max,
            shift: self.snd_shift,
            mss_peer: self.mss_peer,
            mss_path: self.mss_path,
            cork: self.cork,
            ..SendSpace::new(self.snd_nxt, self.snd_nxt, self.mss)
        }
    }

    fn receive_space(&self) -> ReceiveSpace {
        ReceiveSpace {
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
        }
    }

    /// Restores the connection.
    pub(crate) fn wake(&self) -> Connection {
        let (counters, sums_ns) = self.counts.told();
        let mut timers = Timers::new(self.base);
        if let Some(due) = self.next_timeout() {
            timers.set(Timer::KeepAlive, due);
        }
        Connection {
            state: State::Established,
            snd: self.send_space(),
            rcv: self.receive_space(),
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
