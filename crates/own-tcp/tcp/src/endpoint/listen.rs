//! Listeners: receive SYNs and queue connections for `accept`.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::fast_open::FastOpenVerdict;
use super::{Configs, ConnId, Endpoint, Slot, cookie};
use crate::connection::{Connection, State};
use crate::wire::{Flags, FourTuple, Segment};
use crate::{Config, SeqNum};

/// Listener on a port.
pub(super) struct Listener {
    /// Local address; `None` accepts connections to any address.
    address: Option<IpAddr>,
    /// Limit of connections in the handshake, and of connections waiting for `accept`.
    pub backlog: usize,
    /// Connections in SYN-RECEIVED.
    pub half_open: usize,
    /// Half-open connections that began with data (Fast Open).
    pub fast_open: usize,
    /// Connections waiting for `accept`.
    pub pending: VecDeque<ConnId>,
    pub configs: Configs,
    /// True if the port is in the list of ports with new connections.
    pub notified: bool,
    /// Time at which a cookie was last sent. Only for a while after that an ACK can return a
    /// cookie.
    cookies_sent: Option<Instant>,
}

impl Listener {
    fn is_at(&self, local: IpAddr) -> bool {
        self.address.is_none_or(|address| address == local)
    }
}

/// Listeners of an endpoint. A port has one listener for any address, or listeners at different
/// addresses.
#[derive(Default)]
pub(super) struct Listeners {
    ports: HashMap<u16, Vec<Listener>>,
}

impl Listeners {
    /// Returns the listener that accepts connections to `local`; `None` if there is none.
    pub(super) fn at(&self, local: SocketAddr) -> Option<&Listener> {
        let listeners = self.ports.get(&local.port())?;
        listeners.iter().find(|listener| listener.is_at(local.ip()))
    }

    /// Returns the same listener as [`at`](Self::at), for changes.
    pub(super) fn at_mut(&mut self, local: SocketAddr) -> Option<&mut Listener> {
        let listeners = self.ports.get_mut(&local.port())?;
        (listeners.iter_mut()).find(|listener| listener.is_at(local.ip()))
    }

    /// Listeners of a port, in the order in which they were added.
    pub(super) fn of_port(&mut self, port: u16) -> &mut [Listener] {
        self.ports.get_mut(&port).map_or(&mut [], Vec::as_mut_slice)
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Listener> {
        self.ports.values_mut().flatten()
    }

    /// Removes and returns the listeners of `port` for which `ends` is true.
    fn remove(&mut self, port: u16, ends: impl Fn(&Listener) -> bool) -> Vec<Listener> {
        let Some(listeners) = self.ports.get_mut(&port) else {
            return Vec::new();
        };
        let removed = listeners
            .extract_if(.., |listener| ends(listener))
            .collect();
        if listeners.is_empty() {
            self.ports.remove(&port);
        }
        removed
    }
}

/// Reason why a port cannot be listened on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenError {
    /// Another listener has this port and address.
    InUse,
    /// Port 0 was given.
    BadPort,
}

impl std::fmt::Display for ListenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::InUse => "this port already has a listener",
            Self::BadPort => "port 0 cannot be listened on",
        })
    }
}

impl std::error::Error for ListenError {}

impl Endpoint {
    /// Accepts connections to `port` at any address. At most `backlog` connections may be in the
    /// handshake (further SYNs get a SYN cookie), and at most `backlog` wait for `accept` (further
    /// SYNs are dropped; their senders retry).
    ///
    /// # Errors
    /// [`ListenError`] if the port is 0 or has a listener already.
    pub fn listen(&mut self, port: u16, backlog: usize, config: Config) -> Result<(), ListenError> {
        self.listen_at(None, port, backlog, config)
    }

    /// Accepts connections to one local address and port. At other addresses the port is closed or
    /// has other listeners. `backlog` as in [`listen`](Self::listen).
    ///
    /// # Errors
    /// [`ListenError`] if the port is 0, or if a listener for this address or, as in Linux, for any
    /// address exists.
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
        let meets = |other: &Listener| {
            address.is_none() || other.address.is_none() || other.address == address
        };
        if self.listeners.of_port(port).iter().any(meets) {
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
        let listeners = self.listeners.ports.entry(port).or_default();
        listeners.push(listener);
        Ok(())
    }

    /// Changes the settings of future connections of a port's listeners. Existing connections keep
    /// theirs.
    pub fn configure_listener(&mut self, port: u16, change: impl Fn(&mut Config)) {
        for listener in self.listeners.of_port(port) {
            listener.configs.change(&change);
            self.answers_each |= listener.configs.v4.answers_each();
        }
    }

    /// Removes all listeners of `port`. Connections that were not accepted are aborted.
    pub fn unlisten(&mut self, port: u16, now: Instant) {
        self.unlisten_if(port, |_| true, now);
    }

    /// Removes the listener that [`listen_on`](Self::listen_on) added at this address. Connections
    /// that were not accepted are aborted.
    pub fn unlisten_on(&mut self, local: SocketAddr, now: Instant) {
        let is_it = |listener: &Listener| listener.address == Some(local.ip());
        self.unlisten_if(local.port(), is_it, now);
    }

    fn unlisten_if(&mut self, port: u16, ends: impl Fn(&Listener) -> bool, now: Instant) {
        let removed = self.listeners.remove(port, ends);
        for id in removed.into_iter().flat_map(|listener| listener.pending) {
            self.apply(id, Connection::abort);
            self.release(id, now);
        }
    }

    /// Returns the next established connection on `port`, at any address; `None` if none waits.
    pub fn accept(&mut self, port: u16) -> Option<ConnId> {
        let listeners = self.listeners.of_port(port).iter_mut();
        let id = listeners.into_iter().find_map(|listener| {
            let is_there = |id: &ConnId| self.table.get(*id).is_some();
            std::iter::from_fn(|| listener.pending.pop_front()).find(is_there)
        })?;
        self.notify(id.index);
        Some(id)
    }

    /// Returns the next established connection of the listener at `local`; `None` if none waits.
    pub fn accept_on(&mut self, local: SocketAddr) -> Option<ConnId> {
        let listener = self.listeners.at_mut(local)?;
        let is_there = |id: &ConnId| self.table.get(*id).is_some();
        let id = std::iter::from_fn(|| listener.pending.pop_front()).find(is_there)?;
        self.notify(id.index);
        Some(id)
    }

    /// Processes a segment without a connection: RFC 9293 §3.10.7.2 if the port has a listener,
    /// else §3.10.7.1. `above`: the last sequence number of an earlier connection with this path.
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
        let Some(listener) = self.listeners.at(path.local) else {
            self.counters.refused += 1;
            self.reset(&path, segment);
            return;
        };
        // Second, an ACK gets a reset, unless it returns a cookie.
        if flags.contains(Flags::ACK) {
            self.on_ack_for_none(path, key, segment, now);
            return;
        }
        // Third, a SYN begins a connection.
        if !flags.contains(Flags::SYN) || flags.contains(Flags::FIN) {
            self.counters.dropped_no_connection += 1;
        } else if listener.pending.len() >= listener.backlog {
            self.counters.dropped_backlog += 1;
        } else if listener.half_open >= listener.backlog {
            self.answer_with_cookie(path, segment, now);
        } else {
            self.open_from_syn(path, key, segment, above, now);
        }
    }

    /// Processes an ACK without a connection, at a port with a listener.
    fn on_ack_for_none(&mut self, path: FourTuple, key: u64, segment: &mut Segment, now: Instant) {
        let Some(listener) = self.listeners.at(path.local) else {
            return;
        };
        let recent = listener
            .cookies_sent
            .is_some_and(|sent| now - sent < COOKIE_LIFE);
        let full = listener.pending.len() >= listener.backlog;
        let clock = self.clock_for(&path);
        let syn = (recent && !segment.flags.contains(Flags::SYN))
            .then(|| cookie::recover(&self.secret, &clock, &path, segment, now))
            .flatten();
        match syn {
            Some(_) if full => self.counters.dropped_backlog += 1,
            Some(syn) => self.open_from_cookie(path, key, &syn, segment, now),
            None => self.reset(&path, segment),
        }
    }

    /// Opens a connection in SYN-RECEIVED, with the data of the SYN if Fast Open allows it.
    fn open_from_syn(
        &mut self,
        path: FourTuple,
        key: u64,
        syn: &mut Segment,
        above: Option<SeqNum>,
        now: Instant,
    ) {
        let (early, cookie) = match self.judge_fast_open(&path, syn) {
            FastOpenVerdict::Ordinary(cookie) => (false, cookie),
            FastOpenVerdict::Take(cookie) => (true, cookie),
        };
        let iss = self.initial_sequence(&path, above, now);
        let clock = self.clock_for(&path);
        let Some(listener) = self.listeners.at_mut(path.local) else {
            return;
        };
        listener.half_open += 1;
        let config = listener.configs.for_address(path.remote.ip());
        let mut connection = Connection::accept(config, self.pool.clone(), iss, clock, syn, now);
        connection.answer_fast(cookie);
        if early {
            listener.fast_open += 1;
            connection.take_early(syn, now);
        }
        let id = self.add(
            Slot {
                half_open: true,
                early,
                owned: early,
                ..Slot::new(connection, path)
            },
            key,
        );
        if early {
            self.hand_out(path.local, id);
        }
    }

    /// Queues a connection for `accept`.
    fn hand_out(&mut self, local: SocketAddr, id: ConnId) {
        if let Some(listener) = self.listeners.at_mut(local) {
            listener.pending.push_back(id);
            if !std::mem::replace(&mut listener.notified, true) {
                self.acceptable.push_back(local.port());
            }
        }
    }

    fn answer_with_cookie(&mut self, path: FourTuple, syn: &Segment, now: Instant) {
        let clock = self.clock_for(&path);
        let Some(listener) = self.listeners.at_mut(path.local) else {
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
        let Some(listener) = self.listeners.at_mut(path.local) else {
            return;
        };
        let config = listener.configs.for_address(path.remote.ip());
        let mut connection =
            Connection::accept(config, self.pool.clone(), ack.ack - 1, clock, syn, now);
        connection.consider_syn_sent();
        self.counters.cookies_accepted += 1;
        listener.half_open += 1;
        let index = self
            .add(
                Slot {
                    half_open: true,
                    ..Slot::new(connection, path)
                },
                key,
            )
            .index;
        self.deliver(index, ack, now);
    }

    /// Handles the end of SYN-RECEIVED: queues the connection for `accept`, or aborts it if the
    /// listener has gone.
    pub(super) fn settle_half_open(&mut self, index: u32) {
        let id = self.table.id(index);
        let Some(slot) = self.table.at_mut(index) else {
            return;
        };
        let state = slot.connection.state();
        if state == State::SynReceived {
            return;
        }
        if !std::mem::take(&mut slot.half_open) {
            return;
        }
        let local = FourTuple::from(slot.path).local;
        let opened = state != State::Closed;
        let early = std::mem::replace(&mut slot.early, false);
        if !early {
            slot.owned = opened;
        }
        match self.listeners.at_mut(local) {
            Some(listener) => {
                listener.half_open = listener.half_open.saturating_sub(1);
                listener.fast_open -= usize::from(early && listener.fast_open > 0);
                if opened && !early {
                    self.hand_out(local, id);
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

/// Life of a cookie: two periods of 64 s.
const COOKIE_LIFE: Duration = Duration::from_secs(128);
