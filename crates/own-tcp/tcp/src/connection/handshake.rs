//! Opening of a connection, from either side or from both at once (RFC 9293 §3.5, §3.10.7.2,
//! §3.10.7.3).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::acceptability::ChallengeLimit;
use super::congestion::Congestion;
use super::sequence_space::{EcnState, MSS_DEFAULT, ReceiveSpace, SendSpace};
use super::timers::{Timer, Timers};
use super::{Clock, Connection, Ended, Owed, Recovery, RttEstimator, State};
use crate::wire::{AckRate, Flags, Options, Segment, Timestamps};
use crate::{Config, Counters, Pool, SeqNum};

impl Connection {
    /// Opens a connection: the first poll returns its SYN. `iss` must be hard to guess (RFC 9293
    /// §3.4.1).
    pub fn connect(
        config: Arc<Config>,
        pool: Pool,
        iss: SeqNum,
        clock: Clock,
        now: Instant,
    ) -> Self {
        let ecn = config.ecn;
        let mut connection = Self::new(config, pool, iss, clock, now);
        connection.ecn.on = ecn;
        connection.owed.syn = true;
        connection
    }

    /// Answers `syn`: the first poll returns the SYN-ACK.
    pub fn accept(
        config: Arc<Config>,
        pool: Pool,
        iss: SeqNum,
        clock: Clock,
        syn: &Segment,
        now: Instant,
    ) -> Self {
        let mut connection = Self::new(config, pool, iss, clock, now);
        connection.passive = true;
        // RFC 3168 §6.1.1: an ECN-setup SYN has both ECE and CWR.
        connection.ecn.on = connection.config.ecn && syn.flags.contains(Flags::ECE | Flags::CWR);
        connection.take_peer_syn(syn, now);
        connection.count_received(syn);
        connection.become_state(State::SynReceived);
        connection.owed.syn = true;
        connection
    }

    /// Notes that the SYN-ACK was sent already, as a SYN cookie.
    pub(crate) fn consider_syn_sent(&mut self) {
        self.owed.syn = false;
        self.snd.nxt = self.snd.iss + 1;
        self.offer_window();
    }

    fn new(config: Arc<Config>, pool: Pool, iss: SeqNum, clock: Clock, now: Instant) -> Self {
        let mss = u32::from(config.mss.max(MSS_MIN));
        let data = iss + 1;
        let snd = SendSpace::new(iss, data, mss);
        let mut rcv = ReceiveSpace::new(config.receive_buffer.max(MSS_MIN.into()));
        if config.window_scaling {
            rcv.shift = config.window_shift();
        }
        Self {
            state: State::SynSent,
            snd,
            rcv,
            sack: config.sack,
            timestamps: config.timestamps,
            clock_offset: clock.offset,
            ecn: EcnState::default(),
            rtt: RttEstimator::new(config.rto_min, config.rto_max),
            timers: Timers::new(clock.epoch),
            recovery: Recovery::new(data),
            congestion: Congestion::new(&config, mss),
            ack: super::AckScheduler::default(),
            ack_rate: super::AckRateState::default(),
            owed: Owed::default(),
            passive: false,
            retries: 0,
            unanswered: 0,
            heard_ns: 0,
            challenge_limit: ChallengeLimit::new(clock.at(now)),
            ended: None,
            soft_error: None,
            fast_open: None,
            mtu_search: None,
            limits: super::Chronograph::new(),
            counters: Counters::default(),
            config,
            pool,
        }
    }

    /// Follows the steps of RFC 9293 §3.10.7.3.
    pub(super) fn on_segment_in_syn_sent(&mut self, segment: &mut Segment, now: Instant) {
        let flags = segment.flags;
        // First, check the ACK bit.
        let of_this = segment.ack.after(self.snd.iss) && segment.ack.at_or_before(self.snd.nxt);
        let acceptable = of_this && self.is_echo_possible(segment, now);
        if flags.contains(Flags::ACK) && !acceptable {
            self.counters.dropped_bad_ack += 1;
            if !flags.contains(Flags::RST) {
                self.owed.reset = Some((segment.ack, false));
                if !of_this && self.retries == 0 {
                    self.timers.advance(Timer::Retransmit, now + SYN_AGAIN);
                }
            }
            return;
        }
        // Second, check the RST bit.
        if flags.contains(Flags::RST) {
            if flags.contains(Flags::ACK) {
                self.end(Some(Ended::Refused));
            }
            return;
        }
        // Fourth, check the SYN bit; fifth, drop the segment if it has neither SYN nor RST.
        if !flags.contains(Flags::SYN) {
            self.counters.dropped_bad_ack += 1;
            return;
        }
        self.take_peer_syn(segment, now);
        if !flags.contains(Flags::ACK) {
            // Simultaneous open: answer with a SYN-ACK with the same ISS.
            self.ecn.on = false;
            self.become_state(State::SynReceived);
            self.owed.syn = true;
            return;
        }
        // RFC 3168 §6.1.1: an ECN-setup SYN-ACK has ECE only.
        self.ecn.on &= flags.contains(Flags::ECE) && !flags.contains(Flags::CWR);
        self.establish(segment, now);
        self.owe_ack();
        self.settle_fast_open(segment, now);
        if self.unsent() > 0 {
            let window = self.rcv.acked_window;
            self.ack.on_opened_by_writer(&self.config.ack, window, now);
        }
    }

    /// True if the SYN-ACK's timestamp echo, if any, can be a value that we sent, as Linux checks
    /// it. False for an echo from before this connection.
    fn is_echo_possible(&self, segment: &Segment, now: Instant) -> bool {
        let stamps = (segment.options.timestamps).filter(|stamps| stamps.echo != 0);
        let age = now.saturating_duration_since(self.timers.base());
        match stamps.filter(|_| self.timestamps && segment.flags.contains(Flags::SYN)) {
            Some(stamps) => (self.clock().since(now, stamps.echo))
                .is_some_and(|since| since <= age + Duration::from_millis(1)),
            None => true,
        }
    }

    /// Takes IRS and the options of the peer's SYN.
    fn take_peer_syn(&mut self, syn: &Segment, now: Instant) {
        self.rcv.irs = syn.seq;
        self.rcv.nxt = syn.seq + 1;
        self.rcv.edge = self.rcv.nxt;
        self.rcv.acked = self.rcv.nxt;
        self.heard_ns = self.timers.ns(now);
        let options = &syn.options;
        match options.window_scale {
            Some(shift) if self.config.window_scaling => self.snd.shift = shift,
            _ => self.rcv.shift = 0,
        }
        self.sack &= options.sack_permitted;
        self.timestamps &= options.timestamps.is_some();
        self.ack_rate.agreed = self.offers_ack_rate() && options.ack_rate.is_some();
        if let Some(timestamps) = options.timestamps {
            self.rcv.ts_recent = timestamps.value;
        }
        self.snd.mss_peer = u32::from(options.mss.unwrap_or(MSS_DEFAULT).max(MSS_MIN));
        self.begin_mtu_search(now);
        self.set_mss();
        // The window of a SYN is not scaled (RFC 7323 §2.2).
        self.snd.wnd = u32::from(syn.window);
        self.snd.wnd_max = self.snd.wnd;
        self.snd.wl1 = syn.seq;
        self.snd.wl2 = self.snd.iss;
    }

    /// Enters ESTABLISHED: `segment` acknowledges our SYN.
    pub(super) fn establish(&mut self, segment: &Segment, now: Instant) {
        self.snd.una = self.snd.iss + 1;
        self.counters.segments_delivered += 1;
        if let Some(sent) = self.recovery.last_sent
            && self.retries == 0
        {
            self.rtt.on_sample(now.saturating_duration_since(sent));
        }
        if self.retries > 0 {
            // RFC 6928 §2: after a lost SYN the window is one segment.
            self.congestion.set_cwnd(self.snd.mss);
        }
        self.retries = 0;
        self.rtt.on_progress();
        if self.recovery.scoreboard.is_empty() {
            self.timers.stop(Timer::Retransmit);
        }
        let shift = if segment.flags.contains(Flags::SYN) {
            0
        } else {
            self.snd.shift
        };
        self.snd.wnd = u32::from(segment.window) << shift;
        self.snd.wnd_max = self.snd.wnd_max.max(self.snd.wnd);
        self.snd.wl1 = segment.seq;
        self.snd.wl2 = segment.ack;
        self.owed.syn = false;
        self.rcv.data_ns = self.timers.ns(now);
        self.become_state(State::Established);
        if let Some(keepalive) = self.config.keepalive {
            self.timers.set(Timer::KeepAlive, now + keepalive.idle);
        }
        if self.snd.closed {
            self.become_state(State::FinWait1);
        }
    }

    /// Returns the SYN or SYN-ACK if one must be sent.
    pub(super) fn next_syn(&mut self, now: Instant) -> Option<Segment> {
        if !std::mem::take(&mut self.owed.syn) {
            return None;
        }
        self.snd.nxt = self.snd.nxt.max(self.snd.iss + 1);
        self.recovery.last_sent.get_or_insert(now);
        self.timers.start(Timer::Retransmit, now + self.rtt.rto());
        let answer = self.state == State::SynReceived;
        let mut flags = Flags::SYN.with(Flags::ACK, answer);
        flags = flags
            .with(Flags::ECE, self.ecn.on)
            .with(Flags::CWR, self.ecn.on && !answer);
        let options = self.syn_options(answer, now);
        let window = self.offer_window_unscaled();
        self.counters.segments_retransmitted += u64::from(self.retries > 0);
        self.count_sent(1, 0);
        let ack = self.rcv.nxt;
        self.rcv.acked = ack;
        // This ACK covers data that came with the peer's SYN.
        self.owed.acks = 0;
        self.ack.on_sent(false, true, now);
        self.timers.stop(Timer::Ack);
        let (fast_open, payload) = self.fast_open_part(now);
        Some(Segment {
            seq: self.snd.iss,
            ack,
            flags,
            window,
            options,
            payload,
            dscp: self.config.dscp,
            fast_open,
            ..Segment::default()
        })
    }

    fn syn_options(&self, answer: bool, now: Instant) -> Options {
        let echo = if answer { self.rcv.ts_recent } else { 0 };
        let scaling =
            self.config.window_scaling && (!answer || self.rcv.shift > 0 || self.snd.shift > 0);
        let ack_rate = if answer {
            self.ack_rate.agreed
        } else {
            self.offers_ack_rate()
        };
        Options {
            mss: Some(self.config.mss.min(self.mss_to_offer())),
            ack_rate: ack_rate.then_some(AckRate::ANNOUNCED),
            window_scale: scaling.then_some(self.rcv.shift),
            sack_permitted: self.sack,
            timestamps: self.timestamps.then(|| Timestamps {
                value: self.clock().at(now),
                echo,
            }),
            ..Options::default()
        }
    }

    /// MSS to announce: a path MTU that routers reported for our SYN probably holds in the other
    /// direction too.
    fn mss_to_offer(&self) -> u16 {
        u16::try_from(self.snd.mss_path).unwrap_or(u16::MAX)
    }

    /// Sets the payload of a full-sized segment: the smaller of the peer's MSS and the path's, less
    /// the options in every segment (RFC 6691).
    pub(super) fn set_mss(&mut self) {
        let options = self.option_bytes();
        let limit = self.segment_bytes_limit();
        self.snd.mss = limit.saturating_sub(options).max(u32::from(MSS_MIN) / 2);
        self.congestion
            .on_mss(&self.config, self.snd.mss, !self.state.is_synchronized());
    }

    /// Bytes of the options in every segment.
    pub(super) fn option_bytes(&self) -> u32 {
        if self.timestamps { 12 } else { 0 }
    }
}

/// Smallest accepted MSS. A smaller one would cause unlimited work per byte.
const MSS_MIN: u16 = 64;

/// Time until the second SYN if an earlier connection of the same ends answered the first, for example
/// from TIME-WAIT: our RST ends that connection first. Linux waits for TCP_TIMEOUT_MIN
/// (`tcp_rcv_synsent_state_process`).
const SYN_AGAIN: Duration = Duration::from_millis(2);
