//! Data with the SYN (RFC 7413), at either end; cookies are the endpoint's.

use std::time::Instant;

use super::timers::Timer;
use super::{Connection, State};
use crate::Chain;
use crate::wire::{FastOpen, Flags, Segment};

/// Where a connection stands that begins so, or may.
#[derive(Clone, Debug, Default)]
pub(super) struct FastOpening {
    /// What is known of the server, at a client.
    known: Option<Known>,
    /// What the SYN-ACK brought, at a client; what it is to bring, at a server.
    cookie: Option<Box<FastOpen>>,
    /// All data of the SYN was taken: by us at a server, by the peer at a client.
    taken: bool,
    /// The cookie was right, so that the server need not wait for the end of the handshake.
    early: bool,
    /// We are the server.
    answers: bool,
    /// Our SYN had the option, and was not lost.
    asked: bool,
    /// From now on our SYN is as any.
    plain: bool,
}

/// What was learned of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Its cookie; or, while there is none, how to ask for one the next time.
    pub cookie: FastOpen,
    /// Its MSS option.
    pub mss: u32,
}

impl Connection {
    /// The SYN asks for a cookie, or has one and carries what is written before it leaves.
    pub(crate) fn open_fast(&mut self, known: Option<Known>) {
        self.fast_open.get_or_insert_default().known = known;
    }

    /// The SYN-ACK brings a cookie.
    pub(crate) fn answer_fast(&mut self, cookie: Option<Box<FastOpen>>) {
        if cookie.is_some() {
            let state = self.fast_open.get_or_insert_default();
            (state.cookie, state.answers) = (cookie, true);
        }
    }

    /// The data of the peer's SYN is taken, and ours may follow before the handshake is over.
    pub(crate) fn take_early(&mut self, syn: &mut Segment, now: Instant) {
        let state = self.fast_open.get_or_insert_default();
        state.taken = !syn.payload.is_empty();
        (state.early, state.answers) = (true, true);
        self.offer_window_unscaled();
        syn.seq += 1;
        syn.flags = syn.flags.without(Flags::SYN);
        let _ = self.process_text(syn, now);
    }

    /// A server whose handshake is not over, and that may send all the same.
    pub(super) fn is_early(&self) -> bool {
        self.state == State::SynReceived
            && self.fast_open.as_ref().is_some_and(|state| state.early)
            && self.snd.nxt.after(self.snd.iss)
    }

    /// Our SYN left with data.
    pub(super) fn carries_data_with_syn(&self) -> bool {
        self.fast_open.is_some() && self.snd.nxt.after(self.snd.iss + 1)
    }

    /// If it leaves again, then without data and option.
    pub(super) fn send_plain_syn(&mut self) {
        if let Some(state) = &mut self.fast_open {
            state.plain = true;
        }
    }

    pub(super) fn has_early_data(&self) -> bool {
        self.fast_open.as_ref().is_some_and(|state| state.taken)
    }

    /// What the SYN-ACK brought, once.
    pub(crate) fn take_cookie(&mut self) -> Option<Known> {
        let state = self.fast_open.as_mut()?;
        if state.answers || !self.state.is_synchronized() {
            return None;
        }
        let mss = self.snd.mss_peer;
        let cookie = match state.cookie.take() {
            Some(cookie) => *cookie,
            // Not answered: the next one asks in the other form.
            None if state.asked && state.known.is_none() => FastOpen::EXPERIMENTAL_REQUEST,
            None => FastOpen::REQUEST,
        };
        Some(Known { cookie, mss })
    }

    /// Option and payload of the SYN or SYN-ACK that leaves.
    pub(super) fn fast_open_part(&mut self, now: Instant) -> (Option<Box<FastOpen>>, Chain) {
        let nothing = (None, Chain::new());
        let Some(state) = &mut self.fast_open else {
            return nothing;
        };
        if self.state == State::SynReceived {
            return (state.cookie.clone(), Chain::new());
        }
        // A SYN that was lost may have been so for what was unusual about it.
        state.asked = self.retries == 0 && !state.plain;
        if !state.asked {
            return nothing;
        }
        let known = state.known;
        let trusts = self.config.fast_open.connect_without_cookie;
        let request = known.map_or(FastOpen::REQUEST, |known| known.cookie);
        if request.is_request() && !trusts {
            return (Some(Box::new(request)), Chain::new());
        }
        let option = known
            .filter(|_| !trusts)
            .map(|known| Box::new(known.cookie));
        let mss = known.map_or(self.snd.mss_path, |known| known.mss.min(self.snd.mss_path));
        let start = self.snd.iss + 1;
        let payload = self
            .snd
            .queue
            .chain(start, mss.saturating_sub(OPTION_BYTES_MAX));
        let bytes = payload.len() as u32;
        if bytes > 0 {
            self.snd.nxt = start + bytes;
            // As Linux: if it has to leave again, its segment has PSH.
            self.snd.queue.end_record(self.snd.nxt, true);
            self.recovery.scoreboard.on_sent(start, self.snd.nxt, now);
            self.counters.payload_bytes_sent += u64::from(bytes);
        }
        (option, payload)
    }

    /// The SYN-ACK of a connection that may have begun with data.
    pub(super) fn settle_fast_open(&mut self, segment: &mut Segment, now: Instant) {
        let Some(state) = &mut self.fast_open else {
            return;
        };
        // One that was not asked for is not kept.
        let trusts = self.config.fast_open.connect_without_cookie;
        let brought = segment.fast_open.clone().filter(|_| !trusts);
        state.cookie = brought.filter(|cookie| !cookie.is_request());
        let start = self.snd.una;
        if segment.ack.after(start) {
            state.taken = segment.ack == self.snd.nxt;
            // No segment more: they came with the SYN.
            self.recovery
                .scoreboard
                .on_acknowledged(segment.ack, |_| {});
            self.snd.una = segment.ack;
            self.snd.queue.acknowledge(segment.ack);
        }
        // What the server left is sent again as if it had never been: no sign of congestion.
        self.recovery.scoreboard.mark_all_lost();
        if self.recovery.scoreboard.is_empty() {
            self.timers.stop(Timer::Retransmit);
        } else {
            self.timers.set(Timer::Retransmit, now + self.rtt.rto());
        }
        // A server that takes data with a SYN may answer with its SYN-ACK.
        if !segment.payload.is_empty() || segment.flags.contains(Flags::FIN) {
            segment.seq += 1;
            segment.flags = segment.flags.without(Flags::SYN);
            self.offer_window();
            self.note_fin(segment);
            if self.process_text(segment, now).is_continue() {
                self.process_fin(now);
            }
        }
    }
}

/// Room that is left for options in a segment whose MSS alone is known.
pub(crate) const OPTION_BYTES_MAX: u32 = 40;
