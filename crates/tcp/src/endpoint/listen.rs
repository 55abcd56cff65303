//! Listeners: SYNs in, connections to accept out.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::fast_open::FastOpenVerdict;
use super::{Configs, ConnId, Endpoint, Slot, cookie};
use crate::connection::{Connection, State};
use crate::wire::{Flags, FourTuple, Segment};
use crate::{Config, SeqNum};

/// Waits for connections on a port.
pub(super) struct Listener {
    /// At this address of ours alone; none: at any.
    address: Option<IpAddr>,
    /// Most connections being opened, and most waiting for `accept`.
    pub backlog: usize,
    /// Connections in SYN-RECEIVED.
    pub half_open: usize,
    /// Of these, begun with data.
    pub fast_open: usize,
    /// Established and not yet accepted.
    pub pending: VecDeque<ConnId>,
    pub configs: Configs,
    /// Its port waits in the list of those the application should look at.
    pub notified: bool,
    /// When a cookie was last sent: an ACK can only be one for a while after that.
    cookies_sent: Option<Instant>,
}

impl Listener {
    pub(super) fn is_at(&self, local: IpAddr) -> bool {
        self.address.is_none_or(|address| address == local)
    }
}

/// Why a port cannot be listened on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenError {
    /// Somebody listens there already.
    InUse,
    /// Port 0 is none.
    BadPort,
}

impl std::fmt::Display for ListenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::InUse => "somebody listens on this port already",
            Self::BadPort => "port 0 cannot be listened on",
        })
    }
}

impl std::error::Error for ListenError {}

impl Endpoint {
    /// Takes connections to `port`, whatever the address. At most `backlog` of them are kept while
    /// they open (more get a SYN cookie) and at most `backlog` wait to be accepted (more SYNs are
    /// dropped; their senders try again).
    ///
    /// # Errors
    /// If the port cannot be had.
    pub fn listen(&mut self, port: u16, backlog: usize, config: Config) -> Result<(), ListenError> {
        self.listen_at(None, port, backlog, config)
    }

    /// The same at one of our addresses only: elsewhere the port is closed. A port has one listener.
    ///
    /// # Errors
    /// If the port cannot be had.
    pub fn listen_on(
        &mut self,
        local: SocketAddr,
        backlog: usize,
        config: Config,
    ) -> Result<(), ListenError> {
        self.listen_at(Some(local.ip()), local.port(), backlog, config)
    }

    fn listen_at(
        &mut self,
        address: Option<IpAddr>,
        port: u16,
        backlog: usize,
        config: Config,
    ) -> Result<(), ListenError> {
        if port == 0 {
            return Err(ListenError::BadPort);
        }
        if self.listeners.contains_key(&port) {
            return Err(ListenError::InUse);
        }
        self.answers_each |= config.answers_each();
        let listener = Listener {
            address,
            backlog: backlog.max(1),
            half_open: 0,
            fast_open: 0,
            pending: VecDeque::new(),
            configs: Configs::new(config, self.checksum),
            notified: false,
            cookies_sent: None,
        };
        self.listeners.insert(port, listener);
        Ok(())
    }

    /// Changes the choices of connections that a listener will have; those that it has stay as they
    /// are. `false` if nobody listens on this port.
    pub fn configure_listener(&mut self, port: u16, change: impl Fn(&mut Config)) -> bool {
        let Some(listener) = self.listeners.get_mut(&port) else {
            return false;
        };
        listener.configs.change(change);
        self.answers_each |= listener.configs.v4.answers_each();
        true
    }

    /// Listens no more; connections that nobody accepted are aborted.
    pub fn unlisten(&mut self, port: u16, now: Instant) {
        let Some(listener) = self.listeners.remove(&port) else {
            return;
        };
        for id in listener.pending {
            self.apply(id, Connection::abort);
            self.release(id, now);
        }
    }

    /// The next connection that is established on `port`.
    pub fn accept(&mut self, port: u16) -> Option<ConnId> {
        let listener = self.listeners.get_mut(&port)?;
        while let Some(id) = listener.pending.pop_front() {
            if self.table.get(id).is_some() {
                self.notify(id.index);
                return Some(id);
            }
        }
        None
    }

    /// A segment for no connection: RFC 9293 §3.10.7.2 if somebody listens, else §3.10.7.1.
    /// `above`: the sequence number an earlier connection of this path ended with.
    pub(super) fn on_segment_for_none(
        &mut self,
        path: FourTuple,
        key: u64,
        segment: &mut Segment,
        above: Option<SeqNum>,
        now: Instant,
    ) {
        if !self.local_addresses.may_meet(&path) {
            self.counters.dropped_foreign += 1;
            return;
        }
        let flags = segment.flags;
        // First, an RST is ignored.
        if flags.contains(Flags::RST) {
            return;
        }
        let listener = self.listeners.get_mut(&path.local.port());
        let Some(listener) = listener.filter(|listener| listener.is_at(path.local.ip())) else {
            self.counters.refused += 1;
            self.reset(&path, segment);
            return;
        };
        // Second, an ACK is refused, unless it answers a cookie.
        if flags.contains(Flags::ACK) {
            let recent = listener
                .cookies_sent
                .is_some_and(|sent| now - sent < COOKIE_LIFE);
            let full = listener.pending.len() >= listener.backlog;
            let clock = self.clock_for(&path);
            let syn = (recent && !flags.contains(Flags::SYN))
                .then(|| cookie::recover(&self.secret, &clock, &path, segment, now))
                .flatten();
            match syn {
                Some(_) if full => self.counters.dropped_backlog += 1,
                Some(syn) => self.open_from_cookie(path, key, &syn, segment, now),
                None => self.reset(&path, segment),
            }
            return;
        }
        // Third, a SYN begins a connection.
        if !flags.contains(Flags::SYN) || flags.contains(Flags::FIN) {
            self.counters.dropped_no_connection += 1;
            return;
        }
        if listener.pending.len() >= listener.backlog {
            self.counters.dropped_backlog += 1;
            return;
        }
        if listener.half_open >= listener.backlog {
            self.answer_with_cookie(path, segment, now);
            return;
        }
        let verdict = self.judge_fast_open(&path, segment);
        let (iss, clock) = (
            self.initial_sequence(&path, above, now),
            self.clock_for(&path),
        );
        let Some(listener) = self.listeners.get_mut(&path.local.port()) else {
            return;
        };
        listener.half_open += 1;
        let config = listener.configs.for_address(path.remote.ip());
        let mut connection =
            Connection::accept(config, self.pool.clone(), iss, clock, segment, now);
        let (early, cookie) = match verdict {
            FastOpenVerdict::Ordinary(cookie) => (false, cookie),
            FastOpenVerdict::Take(cookie) => (true, cookie),
        };
        connection.answer_fast(cookie);
        if early {
            listener.fast_open += 1;
            connection.take_early(segment, now);
        }
        let half_open = Some(path.local.port());
        let id = self.add(
            Slot {
                half_open,
                early,
                owned: early,
                ..Slot::new(connection, path)
            },
            key,
        );
        if early {
            self.hand_out(path.local.port(), id);
        }
    }

    /// It waits for `accept` from now on.
    fn hand_out(&mut self, port: u16, id: ConnId) {
        if let Some(listener) = self.listeners.get_mut(&port) {
            listener.pending.push_back(id);
            if !std::mem::replace(&mut listener.notified, true) {
                self.acceptable.push_back(port);
            }
        }
    }

    fn answer_with_cookie(&mut self, path: FourTuple, syn: &Segment, now: Instant) {
        let clock = self.clock_for(&path);
        let Some(listener) = self.listeners.get_mut(&path.local.port()) else {
            return;
        };
        listener.cookies_sent = Some(now);
        let config = listener.configs.for_address(path.remote.ip());
        let answer = cookie::answer(&self.secret, &clock, &config, &path, syn, now);
        self.counters.cookies_sent += 1;
        self.answer(&path, answer);
    }

    fn open_from_cookie(
        &mut self,
        path: FourTuple,
        key: u64,
        syn: &Segment,
        ack: &mut Segment,
        now: Instant,
    ) {
        let clock = self.clock_for(&path);
        let Some(listener) = self.listeners.get_mut(&path.local.port()) else {
            return;
        };
        let config = listener.configs.for_address(path.remote.ip());
        let mut connection =
            Connection::accept(config, self.pool.clone(), ack.ack - 1, clock, syn, now);
        connection.consider_syn_sent();
        self.counters.cookies_accepted += 1;
        listener.half_open += 1;
        let half_open = Some(path.local.port());
        let index = self
            .add(
                Slot {
                    half_open,
                    ..Slot::new(connection, path)
                },
                key,
            )
            .index;
        self.deliver(index, ack, now);
    }

    /// A connection has left SYN-RECEIVED: to `accept`, or to nowhere.
    pub(super) fn settle_half_open(&mut self, index: u32) {
        let id = self.table.id(index);
        let Some(slot) = self.table.at_mut(index) else {
            return;
        };
        let state = slot.connection.state();
        if state == State::SynReceived {
            return;
        }
        let Some(port) = slot.half_open.take() else {
            return;
        };
        let opened = state != State::Closed;
        let early = std::mem::replace(&mut slot.early, false);
        if !early {
            slot.owned = opened;
        }
        match self.listeners.get_mut(&port) {
            Some(listener) => {
                listener.half_open = listener.half_open.saturating_sub(1);
                listener.fast_open -= usize::from(early && listener.fast_open > 0);
                if opened && !early {
                    self.hand_out(port, id);
                }
            }
            None if early => {}
            None => {
                slot.owned = false;
                slot.connection.abort();
            }
        }
    }
}

/// Two turns of the cookies' minute.
const COOKIE_LIFE: Duration = Duration::from_secs(128);
