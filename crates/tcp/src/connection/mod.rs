//! One connection.

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
pub use mtu_search::{MtuProbes, MtuProbing};
pub use segmentation::{
    Nagle, OwnCut, OwnSegmentation, Pacing, Segmentation, SegmentationRules, SendView, TailRule,
};
pub use sequence_space::Clock;
pub use state::State;

/// A TCP connection without its addresses.
///
/// Its methods are of four kinds:
/// - something happened: [`on_segment`](Self::on_segment), [`on_timeout`](Self::on_timeout),
///   [`on_mtu`](Self::on_mtu);
/// - the application calls: [`write`](Self::write), [`read`](Self::read), [`close`](Self::close)
///   and their relatives;
/// - what there is to do: [`poll_segment`](Self::poll_segment), until it gives `None`;
/// - plain nouns look and change nothing.
///
/// After calls of the first two kinds drain `poll_segment`, then ask
/// [`next_timeout`](Self::next_timeout). Several segments may be taken in before polling: then one
/// acknowledgement answers them all. `now` must never go back.
#[derive(Debug)]
pub struct Connection {
    state: State,
    config: Arc<Config>,
    pool: Pool,
    snd: SendSpace,
    rcv: ReceiveSpace,
    /// Both sides understand SACK.
    sack: bool,
    /// Both sides use timestamps.
    timestamps: bool,
    /// Of the timestamp clock, whose epoch is the timers'.
    clock_offset: u32,
    ecn: EcnState,
    rtt: RttEstimator,
    timers: Timers,
    recovery: Recovery,
    congestion: Congestion,
    ack: AckScheduler,
    ack_rate: AckRateState,
    owed: Owed,
    /// The peer opened it.
    passive: bool,
    /// Timeouts in a row without new acknowledgement.
    retries: u8,
    /// Probes of an idle or closed window without any answer.
    unanswered: u8,
    /// When the peer was last heard, by the timers' clock.
    heard_ns: u64,
    challenge_limit: ChallengeLimit,
    ended: Option<Ended>,
    /// What routers say, and the peer has not disproved.
    soft_error: Option<Unreachable>,
    fast_open: Option<Box<FastOpening>>,
    mtu_search: Option<Box<MtuSearch>>,
    limits: Chronograph,
    counters: Counters,
}

/// What `poll_segment` has to send beside data.
#[derive(Debug, Default)]
struct Owed {
    /// SYN or SYN-ACK.
    syn: bool,
    /// Acknowledgements: more than one only to a peer that counts duplicates for want of SACK.
    acks: u8,
    /// A reset, with its sequence number; with the ACK flag unless it answers an ACK.
    reset: Option<(SeqNum, bool)>,
    /// An old sequence number that makes the peer say where it stands: for zero-window and
    /// keepalive probes.
    probe: bool,
    /// A tail loss probe.
    tail_probe: bool,
}

/// Why a connection ended other than by both sides closing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The peer reset it.
    Reset,
    /// The peer answered our SYN with a reset.
    Refused,
    /// The peer did not answer for too long.
    TimedOut,
    /// We aborted it.
    Aborted,
    /// The SYN did not get there; or the peer did not answer for too long, and this was said last of
    /// why.
    Unreachable(Unreachable),
}

impl Connection {
    /// State by RFC 9293 §3.3.2.
    pub fn state(&self) -> State {
        self.state
    }

    /// Why it ended, if it did not end by both sides closing.
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// The earliest time at which [`on_timeout`](Self::on_timeout) has something to do.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// The same in nanoseconds since the epoch of its clock.
    pub(crate) fn next_timeout_ns(&self) -> Option<u64> {
        self.timers.next_ns()
    }

    /// What it counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What was chosen for it.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes that can be read.
    pub fn readable(&self) -> usize {
        self.rcv.queue.bytes() as usize
    }

    /// Whether reading would say that nothing more will come.
    pub fn is_finished(&self) -> bool {
        self.readable() == 0
            && (self.rcv.finished || self.rcv.discarded || self.state == State::Closed)
    }

    /// Bytes that can be written; 0 also when writing would fail.
    pub fn writable(&self) -> usize {
        if !self.state.may_write() || self.snd.closed {
            return 0;
        }
        self.config.send_buffer.saturating_sub(self.snd.queue.len()) as usize
    }

    /// Bytes written that the peer has not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.snd.queue.len() as usize
    }

    /// Sequence number behind the last byte written.
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

    /// Bytes believed to be in the network.
    pub fn in_flight(&self) -> u32 {
        self.recovery.flight(self.snd.mss)
    }

    /// Payload bytes of a full segment to the peer.
    pub fn mss(&self) -> u32 {
        self.snd.mss
    }

    /// Smoothed round-trip time, once measured.
    pub fn srtt(&self) -> Option<Duration> {
        self.rtt.srtt()
    }

    /// Retransmission timeout, with its doublings while nothing is acknowledged.
    pub fn rto(&self) -> Duration {
        self.rtt.rto()
    }

    /// The checksum's sum over payload that was written, if it was taken in the same pass.
    pub(crate) fn sum_of(&self, start: SeqNum, bytes: usize) -> Option<Sum> {
        self.snd.queue.sum_of(start, bytes as u32)
    }

    fn heard_at(&self) -> Instant {
        self.timers.base() + Duration::from_nanos(self.heard_ns)
    }

    /// Time since the peer was last heard.
    fn since_heard(&self, now: Instant) -> Duration {
        Duration::from_nanos(self.timers.ns(now).saturating_sub(self.heard_ns))
    }

    fn clock(&self) -> Clock {
        Clock {
            epoch: self.timers.base(),
            offset: self.clock_offset,
        }
    }

    /// The only place that assigns the state.
    fn become_state(&mut self, next: State) {
        debug_assert!(self.state.may_become(next), "{:?} to {next:?}", self.state);
        self.state = next;
    }

    /// The end, for a reason; what the peer sent can still be read.
    fn end(&mut self, reason: Option<Ended>) {
        self.become_state(State::Closed);
        self.ended = self.ended.or(reason);
        self.timers.stop_all();
        self.owed = Owed::default();
        self.recovery = Recovery::new(self.snd.nxt);
        self.snd.queue = send_queue::SendQueue::new(self.snd.nxt);
        self.snd.una = self.snd.nxt;
    }

    /// Changes choices while it runs: acknowledgement, segmentation, timeouts and the send buffer
    /// take effect for what comes. What was agreed on or set up at the beginning (options, MSS,
    /// receive buffer, congestion control, whether there are keepalives) stays.
    pub fn configure(&mut self, change: impl FnOnce(&mut Config)) {
        change(Arc::make_mut(&mut self.config));
    }
}
