//! State and methods of one connection.

mod acceptability;
mod ack;
mod ack_rate;
mod acknowledge;
mod application;
mod checksums;
pub(crate) mod config;
mod congestion;
mod dormant;
mod fast_open;
mod forward;
mod handshake;
mod info;
mod invariants;
mod loss;
mod mtu_search;
mod reassembly;
mod records;
mod recovery;
mod recv_queue;
mod rtt;
mod segment_arrives;
mod segment_text;
mod segmentation;
mod send_queue;
mod sequence_space;
mod state;
mod time_wait;
mod timeouts;
mod timers;
mod transmit;
mod unreachable;
mod urgent;
mod window;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::wire::{Sum, Unreachable};
use crate::{Config, Counters, Pool, SeqNum};
use congestion::Congestion;

use acceptability::ChallengeLimit;
use ack::AckScheduler;
use ack_rate::AckRateState;
use fast_open::FastOpening;
use info::Chronograph;
use mtu_search::MtuSearch;
use recovery::Recovery;
use rtt::RttEstimator;
use sequence_space::{EcnState, ReceiveSpace, SendSpace};
use timers::Timers;

pub(crate) use time_wait::TimeWait;

pub use ack::{
    AckDecision, AckPolicy, AckRule, AckState, Arrival, LinuxAcks, OwnAckPolicy, OwnAcks, Read,
};
pub use application::{ReadError, WriteError};
pub(crate) use dormant::Dormant;
pub(crate) use fast_open::{Known, OPTION_BYTES_MAX};
pub use info::{Agreed, Info, Limits, LossState};
pub use mtu_search::MtuProbes;
pub use segmentation::{
    Nagle, OwnCut, OwnSegmentation, Pacing, Segmentation, SegmentationRules, SendView, TailRule,
};
pub use sequence_space::Clock;
pub use state::State;

/// A TCP connection without its addresses.
///
/// Its methods are of four kinds:
/// - events: [`on_segment`](Self::on_segment), [`on_timeout`](Self::on_timeout),
///   [`on_mtu`](Self::on_mtu);
/// - calls of the application: [`write`](Self::write), [`read`](Self::read), [`close`](Self::close)
///   and related methods;
/// - output: [`poll_segment`](Self::poll_segment), until it returns `None`;
/// - getters, named by nouns, change nothing.
///
/// After calls of the first two kinds call `poll_segment` until it returns `None`, then ask
/// [`next_timeout`](Self::next_timeout). Several segments may be passed in before polling; then one
/// acknowledgement answers all of them. `now` must never decrease.
#[derive(Debug)]
pub struct Connection {
    state: State,
    config: Arc<Config>,
    pool: Pool,
    snd: SendSpace,
    rcv: ReceiveSpace,
    /// True if both sides agreed on SACK.
    sack: bool,
    /// True if both sides agreed on timestamps.
    timestamps: bool,
    /// Value of the timestamp clock at its epoch, which is the epoch of `timers`.
    clock_offset: u32,
    ecn: EcnState,
    rtt: RttEstimator,
    timers: Timers,
    recovery: Recovery,
    congestion: Congestion,
    ack: AckScheduler,
    ack_rate: AckRateState,
    owed: Owed,
    /// True if the peer opened the connection.
    passive: bool,
    /// Consecutive timeouts without a new acknowledgement.
    retries: u8,
    /// Consecutive unanswered probes (keepalive or zero window).
    unanswered: u8,
    /// Arrival time of the peer's last segment, in ns since the epoch of `timers`.
    heard_ns: u64,
    challenge_limit: ChallengeLimit,
    ended: Option<Ended>,
    /// Last ICMP error, cleared when the peer is heard.
    soft_error: Option<Unreachable>,
    fast_open: Option<Box<FastOpening>>,
    mtu_search: Option<Box<MtuSearch>>,
    limits: Chronograph,
    counters: Counters,
}

/// Segments other than data that `poll_segment` must send.
#[derive(Debug, Default)]
struct Owed {
    /// SYN or SYN-ACK.
    syn: bool,
    /// Number of acknowledgements. More than one only if the peer does not use SACK and so counts
    /// duplicates.
    acks: u8,
    /// Sequence number of a reset, and true if the reset has the ACK flag.
    reset: Option<(SeqNum, bool)>,
    /// Segment with an old sequence number, which makes the peer answer with its current state.
    /// Used as zero-window probe and keepalive probe.
    probe: bool,
    /// A tail loss probe.
    tail_probe: bool,
}

/// Reason why a connection ended without both sides closing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The peer sent a reset.
    Reset,
    /// The peer answered our SYN with a reset.
    Refused,
    /// The peer did not answer before the retries or the time ran out.
    TimedOut,
    /// The application aborted the connection.
    Aborted,
    /// A router reported this error for our SYN; or the peer stopped answering and this was the
    /// last error reported.
    Unreachable(Unreachable),
}

impl Connection {
    /// State (RFC 9293 §3.3.2).
    pub fn state(&self) -> State {
        self.state
    }

    /// Reason of the end; `None` if the connection is open or both sides closed it.
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// The earliest time at which [`on_timeout`](Self::on_timeout) has work; `None` if no timer
    /// runs.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Earliest timeout in nanoseconds since the epoch of `timers`; `None` if no timer runs.
    pub(crate) fn next_timeout_ns(&self) -> Option<u64> {
        self.timers.next_ns()
    }

    /// Totals since the connection was opened.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Current settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Number of bytes that can be read.
    pub fn readable(&self) -> usize {
        self.rcv.queue.bytes() as usize
    }

    /// True if no more bytes can ever be read.
    pub fn is_finished(&self) -> bool {
        self.readable() == 0
            && (self.rcv.finished || self.rcv.discarded || self.state == State::Closed)
    }

    /// Number of bytes that can be written; 0 also if a write would fail.
    pub fn writable(&self) -> usize {
        if !self.state.may_write() || self.snd.closed {
            return 0;
        }
        self.config.send_buffer.saturating_sub(self.snd.queue.len()) as usize
    }

    /// Number of bytes written and not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.snd.queue.len() as usize
    }

    /// Sequence number after the last byte written.
    pub fn written(&self) -> SeqNum {
        self.snd.queue.end()
    }

    /// SND.UNA, SND.NXT and RCV.NXT.
    pub fn sequence(&self) -> (SeqNum, SeqNum, SeqNum) {
        (self.snd.una, self.snd.nxt, self.rcv.nxt)
    }

    /// Congestion window in bytes.
    pub fn cwnd(&self) -> u32 {
        self.congestion.cwnd()
    }

    /// Estimate of the bytes in the network.
    pub fn in_flight(&self) -> u32 {
        self.recovery.flight(self.snd.mss)
    }

    /// Payload bytes of a full-sized segment to the peer.
    pub fn mss(&self) -> u32 {
        self.snd.mss
    }

    /// Smoothed round-trip time; `None` before the first measurement.
    pub fn srtt(&self) -> Option<Duration> {
        self.rtt.srtt()
    }

    /// Retransmission timeout, including its doublings since the last acknowledgement.
    pub fn rto(&self) -> Duration {
        self.rtt.rto()
    }

    /// Checksum sum over written payload, `bytes` from `start`; `None` if it was not computed with
    /// the copy.
    pub(crate) fn sum_of(&self, start: SeqNum, bytes: usize) -> Option<Sum> {
        self.snd.queue.sum_of(start, bytes as u32)
    }

    fn heard_at(&self) -> Instant {
        self.timers.base() + Duration::from_nanos(self.heard_ns)
    }

    /// Time since the last segment from the peer.
    fn since_heard(&self, now: Instant) -> Duration {
        Duration::from_nanos(self.timers.ns(now).saturating_sub(self.heard_ns))
    }

    fn clock(&self) -> Clock {
        Clock {
            epoch: self.timers.base(),
            offset: self.clock_offset,
        }
    }

    /// Sets the state. The only function that does.
    fn become_state(&mut self, next: State) {
        debug_assert!(self.state.may_become(next), "{:?} to {next:?}", self.state);
        self.state = next;
    }

    /// Ends the connection for `reason`. Received data can still be read.
    fn end(&mut self, reason: Option<Ended>) {
        self.become_state(State::Closed);
        self.ended = self.ended.or(reason);
        self.timers.stop_all();
        self.owed = Owed::default();
        self.recovery = Recovery::new(self.snd.nxt);
        self.snd.queue = send_queue::SendQueue::new(self.snd.nxt);
        self.snd.una = self.snd.nxt;
    }

    /// Changes settings of a running connection. Acknowledgement, segmentation, timeouts and the
    /// send buffer take effect from now on. Settings used at the start (options, MSS, receive
    /// buffer, congestion control, keepalive on or off) keep their effect.
    pub fn configure(&mut self, change: impl FnOnce(&mut Config)) {
        change(Arc::make_mut(&mut self.config));
    }
}
