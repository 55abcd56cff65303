//! Data with the SYN (RFC 7413), for client and server. The endpoint keeps the cookies.

use std::time::Instant;

use super::timers::Timer;
use super::{Connection, State};
use crate::Chain;
use crate::wire::{FastOpen, Flags, Segment};

#[derive(Clone, Debug, Default)]
pub(super) struct FastOpening {
    /// Client: knowledge about the server.
    known: Option<Known>,
    /// Client: cookie from the SYN-ACK. Server: cookie to send with the SYN-ACK.
    cookie: Option<Box<FastOpen>>,
    /// True if all data of the SYN was accepted, by us (server) or by the peer (client).
    taken: bool,
    /// Server: the cookie was valid, so data may be sent before the handshake ends.
    early: bool,
    /// True if we are the server.
    answers: bool,
    /// Client: our last SYN had the option.
    asked: bool,
    /// Client: later SYNs have neither data nor option.
    plain: bool,
}

/// Knowledge about a server from an earlier connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Cookie of the server; or the form of request to use next if there is no cookie.
    pub cookie: FastOpen,
    /// MSS option of the server.
    pub mss: u32,
}

impl Connection {
    /// Makes the SYN request a cookie, or carry `known`'s cookie and the data written before it
    /// leaves.
    pub(crate) fn open_fast(&mut self, known: Option<Known>) {
        self.fast_open.get_or_insert_default().known = known;
    }

    /// Makes the SYN-ACK carry `cookie`.
    pub(crate) fn answer_fast(&mut self, cookie: Option<Box<FastOpen>>) {
        if cookie.is_some() {
            let state = self.fast_open.get_or_insert_default();
            (state.cookie, state.answers) = (cookie, true);
        }
    }

    /// Accepts the data of the peer's SYN and allows sending before the handshake ends.
    pub(crate) fn take_early(&mut self, syn: &mut Segment, now: Instant) {
        let state = self.fast_open.get_or_insert_default();
        state.taken = !syn.payload.is_empty();
        (state.early, state.answers) = (true, true);
        self.offer_window_unscaled();
        syn.seq += 1;
        syn.flags = syn.flags.without(Flags::SYN);
        let _ = self.process_text(syn, now);
    }

    /// True for a server in the handshake that may already send data.
    pub(super) fn is_early(&self) -> bool {
        self.state == State::SynReceived
            && self.fast_open.as_ref().is_some_and(|state| state.early)
            && self.snd.nxt.after(self.snd.iss)
    }

    /// True if our SYN left with data.
    pub(super) fn carries_data_with_syn(&self) -> bool {
        self.fast_open.is_some() && self.snd.nxt.after(self.snd.iss + 1)
    }

    /// Makes repetitions of the SYN leave without data and option.
    pub(super) fn send_plain_syn(&mut self) {
        if let Some(state) = &mut self.fast_open {
            state.plain = true;
        }
    }

    pub(super) fn has_early_data(&self) -> bool {
        self.fast_open.as_ref().is_some_and(|state| state.taken)
    }

    /// Returns the cookie and MSS of the server after the handshake, to be stored; `None` before
    /// and at a server. A cookie is returned once.
    pub(crate) fn take_cookie(&mut self) -> Option<Known> {
        let state = self.fast_open.as_mut()?;
        if state.answers || !self.state.is_synchronized() {
            return None;
        }
        let mss = self.snd.mss_peer;
        let cookie = match state.cookie.take() {
            Some(cookie) => *cookie,
            // The server ignored the request: use the experimental option next time.
            None if state.asked && state.known.is_none() => FastOpen::EXPERIMENTAL_REQUEST,
            None => FastOpen::REQUEST,
        };
        Some(Known { cookie, mss })
    }

    /// Returns option and payload of the SYN or SYN-ACK that leaves now.
    pub(super) fn fast_open_part(&mut self, now: Instant) -> (Option<Box<FastOpen>>, Chain) {
        let nothing = (None, Chain::new());
        let Some(state) = &mut self.fast_open else {
            return nothing;
        };
        if self.state == State::SynReceived {
            return (state.cookie.clone(), Chain::new());
        }
        // A repeated SYN is plain: the first may have been dropped because of the option.
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
            // A retransmission of the SYN's data has PSH, as in Linux.
            self.snd.queue.end_record(self.snd.nxt, true);
            self.recovery.scoreboard.on_sent(start, self.snd.nxt, now);
            self.counters.payload_bytes_sent += u64::from(bytes);
        }
        (option, payload)
    }

    /// Client: processes the Fast Open part of a SYN-ACK.
    pub(super) fn settle_fast_open(&mut self, segment: &mut Segment, now: Instant) {
        let Some(state) = &mut self.fast_open else {
            return;
        };
        // A cookie that was not requested is ignored.
        let trusts = self.config.fast_open.connect_without_cookie;
        let brought = segment.fast_open.clone().filter(|_| !trusts);
        state.cookie = brought.filter(|cookie| !cookie.is_request());
        let start = self.snd.una;
        if segment.ack.after(start) {
            state.taken = segment.ack == self.snd.nxt;
            // Counts no delivered segment: the data came with the SYN.
            self.recovery
                .scoreboard
                .on_acknowledged(segment.ack, |_| {});
            self.snd.una = segment.ack;
            self.snd.queue.acknowledge(segment.ack);
        }
        // Data that the server did not accept is sent again. That is no sign of congestion.
        self.recovery.scoreboard.mark_all_lost();
        if self.recovery.scoreboard.is_empty() {
            self.timers.stop(Timer::Retransmit);
        } else {
            self.timers.set(Timer::Retransmit, now + self.rtt.rto());
        }
        // The SYN-ACK of a server with Fast Open may carry data.
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

/// Room for options in the SYN's payload, because only the server's MSS is known.
pub(crate) const OPTION_BYTES_MAX: u32 = 40;
