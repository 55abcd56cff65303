//! Endpoint: many connections on one device. Packets in, packets out.

mod connect;
mod cookie;
mod fast_open;
mod forward;
mod fragments;
mod input;
mod listen;
mod local_addresses;
mod output;
mod secret;
mod table;
mod time_wait;
mod timers;

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::connection::{Clock, Connection, State};
use crate::wire::{Checksum, Cut, FourTuple, Packet};
use crate::{Config, Piece, Pool, SeqNum};

use fast_open::FastOpens;
use fragments::Fragments;
use listen::Listeners;
use local_addresses::LocalAddresses;
use secret::{Purpose, Secret};
use table::{NO_TIMER, Slot, Table};
use time_wait::TimeWaits;
use timers::Deadline;

pub use connect::ConnectError;
pub use forward::{Forwarded, Stopped};
pub use listen::ListenError;
pub use table::ConnId;

/// All connections of one stack instance. They are found by hash; their timers are in a heap, and
/// those with something to send are in a list. An idle connection costs only memory: half a KiB
/// after one or two seconds, until the next event.
///
/// The methods are of the same four kinds as [`Connection`]'s. After [`on_packet`](Self::on_packet)
/// (for all packets that the device had), [`on_timeout`](Self::on_timeout) and the application's
/// calls, call [`poll_packet`](Self::poll_packet) until it returns `None`, serve the connections
/// that [`poll_ready`](Self::poll_ready) returns, and wait as long as
/// [`next_timeout`](Self::next_timeout) allows.
pub struct Endpoint {
    configs: Configs,
    pool: Pool,
    secret: Secret,
    epoch: Instant,
    checksum: Checksum,
    /// True if the device does not cut super-segments, so that they are cut here.
    cut: bool,
    /// Super-segment that is being cut, and its connection.
    cutting: Option<(ConnId, Cut)>,
    /// Packets to send before those of the connections in `work`: immediate answers.
    parts: VecDeque<Packet>,
    /// True if a connection may have to answer each segment separately.
    answers_each: bool,
    table: Table,
    /// Index of the connection of the last packet. The next packet is probably for the same, which
    /// saves its hash.
    recent: u32,
    listeners: Listeners,
    time_waits: TimeWaits,
    timers: BinaryHeap<Reverse<Deadline>>,
    /// Connections that may have something to send.
    work: VecDeque<u32>,
    /// Units that the first connection in `work` has sent in this turn.
    turn: u32,
    ready: VecDeque<ConnId>,
    acceptable: VecDeque<u16>,
    /// Answers that belong to no connection; beyond a limit they are dropped.
    answers: VecDeque<Packet>,
    next_port: u16,
    ports: Ports,
    local_addresses: LocalAddresses,
    fast_opens: FastOpens,
    fragments: Fragments,
    /// Buffer of [`forward`](Self::forward), empty between calls.
    forwarding: Vec<Piece>,
    counters: EndpointCounters,
}

/// Local ports that an endpoint may use: all, or a share, if several endpoints have one address and
/// packets are steered to them by port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Number of endpoints that share the ports, at least 1. Default 1.
    pub every: u16,
    /// Number of this endpoint, below `every`: it uses the ports p with p % `every` = `offset`.
    /// Default 0.
    pub offset: u16,
}

impl Ports {
    /// True if the endpoint may use `port`.
    pub fn contain(self, port: u16) -> bool {
        port % self.every.max(1) == self.offset
    }
}

impl Default for Ports {
    fn default() -> Self {
        Self {
            every: 1,
            offset: 0,
        }
    }
}

/// Counters of an endpoint other than those of its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointCounters {
    /// Packets received from the device.
    pub packets_received: u64,
    /// Packets sent to the device.
    pub packets_sent: u64,
    /// Bytes in the packets sent, including IP headers.
    pub octets_sent: u64,
    /// Segments sent that carry only an acknowledgement.
    pub pure_acks_sent: u64,
    /// Part of `pure_acks_sent` that moved the right edge of the receive window; the others only
    /// acknowledged.
    pub window_advancing_acks_sent: u64,
    /// Packets dropped because they were neither IPv4 nor IPv6, or not TCP.
    pub dropped_protocol: u64,
    /// Packets dropped because they were shorter than their headers say, or invalid.
    pub dropped_malformed: u64,
    /// Packets dropped because of a wrong checksum.
    pub dropped_checksum: u64,
    /// Fragments dropped because they overlapped or their packet was not complete within a minute.
    pub dropped_fragment: u64,
    /// Packets reassembled from fragments.
    pub packets_reassembled: u64,
    /// Segments dropped because they were for a listener but not a SYN.
    pub dropped_no_connection: u64,
    /// Segments dropped because a listener's backlog was full.
    pub dropped_backlog: u64,
    /// Packets dropped because they were for a foreign address or from an impossible one.
    pub dropped_foreign: u64,
    /// Segments answered with a reset because no listener has the port.
    pub refused: u64,
    /// Answers not sent because too many were waiting.
    pub answers_suppressed: u64,
    /// SYN cookies sent.
    pub cookies_sent: u64,
    /// Connections opened from a SYN cookie.
    pub cookies_accepted: u64,
    /// ICMP "packet too big" errors received.
    pub too_big_received: u64,
    /// ICMP "unreachable" errors received.
    pub unreachable_received: u64,
}

impl Endpoint {
    /// Makes an endpoint whose connections use `config` and whose payload comes from `pool`.
    /// `secret` must be random and kept secret: initial sequence numbers, cookies and the
    /// connection table depend on it. `checksum` is [`Checksum::Partial`] if the device completes
    /// TCP checksums, else [`Checksum::Complete`].
    pub fn new(
        config: Config,
        pool: Pool,
        secret: [u8; 16],
        checksum: Checksum,
        now: Instant,
    ) -> Self {
        let config_answers_each = config.answers_each();
        Self {
            configs: Configs::new(config, checksum),
            pool,
            secret: Secret::new(secret),
            epoch: now,
            checksum,
            cut: false,
            cutting: None,
            parts: VecDeque::new(),
            answers_each: config_answers_each,
            table: Table::default(),
            recent: 0,
            listeners: Listeners::default(),
            time_waits: TimeWaits::default(),
            timers: BinaryHeap::new(),
            work: VecDeque::new(),
            turn: 0,
            ready: VecDeque::new(),
            acceptable: VecDeque::new(),
            answers: VecDeque::new(),
            next_port: 0,
            ports: Ports::default(),
            local_addresses: LocalAddresses::default(),
            fast_opens: FastOpens::default(),
            fragments: Fragments::default(),
            forwarding: Vec::new(),
            counters: EndpointCounters::default(),
        }
    }

    /// Sets what the device does: complete checksums, and cut super-segments. Call again when a
    /// device turns out not to support one of them; the endpoint then does it. Connections still
    /// make super-segments, which costs less.
    pub fn set_offloads(&mut self, checksum: bool, segmentation: bool) {
        self.checksum = if checksum {
            Checksum::Partial
        } else {
            Checksum::Complete
        };
        self.cut = !segmentation;
        let sum_on_write = !checksum;
        self.configure(|config| config.sum_on_write = sum_on_write);
    }

    /// Sets the local ports to choose from for connections without a local port.
    pub fn set_ports(&mut self, ports: Ports) {
        self.ports = ports;
    }

    /// Returns a connection that is ready: more data can be read, a third of its send buffer has
    /// become free, urgent data arrived, or its state changed. `None` if none is.
    pub fn poll_ready(&mut self) -> Option<ConnId> {
        while let Some(id) = self.ready.pop_front() {
            if !self.table.is_current(id) {
                continue;
            }
            if let Some(slot) = self.table.at_mut(id.index) {
                slot.notified = false;
                if slot.timer_ns == NO_TIMER {
                    // The connection may become dormant; its turn in `work` decides.
                    self.enqueue(id.index);
                }
                return Some(id);
            }
        }
        None
    }

    /// Returns a port with connections to [`accept`](Self::accept); call that until it returns
    /// `None`. `None` if no port has any.
    pub fn poll_acceptable(&mut self) -> Option<u16> {
        let port = self.acceptable.pop_front()?;
        for listener in self.listeners.of_port(port) {
            listener.notified = false;
        }
        Some(port)
    }

    /// Calls the application's methods of a connection ([`write`](Connection::write),
    /// [`read`](Connection::read), [`close`](Connection::close), …) and handles the consequences.
    /// `None` if the connection does not exist any more.
    pub fn apply<R>(&mut self, id: ConnId, call: impl FnOnce(&mut Connection) -> R) -> Option<R> {
        if !self.table.is_current(id) {
            return None;
        }
        let slot = self.table.at_mut(id.index)?;
        let result = call(&mut slot.connection);
        self.enqueue(id.index);
        Some(result)
    }

    /// Changes the settings of all present and future connections, for example when a property of
    /// the device turns out. Visits each connection.
    pub fn configure(&mut self, change: impl Fn(&mut Config)) {
        self.configs.change(&change);
        self.answers_each |= self.configs.v4.answers_each();
        for listener in self.listeners.all() {
            listener.configs.change(&change);
        }
        self.table.configure(change);
    }

    /// Returns a connection for reading; `None` if it does not exist any more. A dormant connection
    /// then takes its full memory until it has been active and idle again.
    pub fn connection(&self, id: ConnId) -> Option<&Connection> {
        self.table.get(id).map(|slot| &slot.connection)
    }

    /// Returns the addresses of both ends; `None` if the connection does not exist any more.
    pub fn path(&self, id: ConnId) -> Option<FourTuple> {
        self.table.get(id).map(|slot| slot.path.into())
    }

    /// Releases a connection that the application no longer needs. It is closed if it was open, its
    /// data is not read any more, and it is removed when it has ended.
    pub fn release(&mut self, id: ConnId, now: Instant) {
        if !self.table.is_current(id) {
            return;
        }
        let Some(slot) = self.table.at_mut(id.index) else {
            return;
        };
        slot.owned = false;
        slot.connection.close();
        slot.connection.abandon(now);
        self.enqueue(id.index);
    }

    /// Number of connections, without those released and in TIME-WAIT.
    pub fn connections(&self) -> usize {
        self.table.len()
    }

    /// Number of released connections in TIME-WAIT.
    pub fn time_waits(&self) -> usize {
        self.time_waits.len()
    }

    /// Totals since the endpoint was made.
    pub fn counters(&self) -> &EndpointCounters {
        &self.counters
    }

    /// Pool of payload slabs. Receive packets into slabs of this pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    fn add(&mut self, slot: Slot, key: u64) -> ConnId {
        let id = self.table.insert(slot, key);
        self.enqueue(id.index);
        id
    }

    /// Puts a connection on the list of those that may have something to send.
    fn enqueue(&mut self, index: u32) {
        if let Some(slot) = self.table.at_mut(index)
            && !std::mem::replace(&mut slot.queued, true)
        {
            self.work.push_back(index);
        }
    }

    /// Puts a connection on the list of those that are ready.
    fn notify(&mut self, index: u32) {
        let id = self.table.id(index);
        if let Some(slot) = self.table.at_mut(index)
            && !std::mem::replace(&mut slot.notified, true)
        {
            self.ready.push_back(id);
        }
    }

    /// Handles a connection that has nothing to send: removes it if it has ended and was released,
    /// else arms its timer.
    fn rest(&mut self, index: u32, now: Instant) {
        let Some(slot) = self.table.at_mut(index) else {
            return;
        };
        (slot.queued, slot.stirred) = (false, true);
        let (state, owned) = (slot.connection.state(), slot.owned);
        let path = FourTuple::from(slot.path);
        match state {
            State::Closed if !owned => {
                self.settle_half_open(index);
                self.table.remove(index, self.key(&path));
            }
            State::TimeWait if !owned => {
                let key = self.key(&path);
                if let Some(slot) = self.table.remove(index, key) {
                    self.time_waits.insert(key, slot.connection.time_wait(path));
                }
            }
            _ => self.arm(index, now),
        }
    }

    fn key(&self, path: &FourTuple) -> u64 {
        self.secret.hash(path, Purpose::Table, 0)
    }

    fn clock_for(&self, path: &FourTuple) -> Clock {
        Clock {
            epoch: self.epoch,
            offset: self.secret.timestamp_offset(path),
        }
    }

    fn initial_sequence(&self, path: &FourTuple, above: Option<SeqNum>, now: Instant) -> SeqNum {
        let iss = self
            .secret
            .initial_sequence(path, now.saturating_duration_since(self.epoch));
        match above {
            // RFC 9293 §3.6.1: beyond the sequence numbers of the earlier connection.
            Some(above) if iss.at_or_before(above) => above + 65_536,
            _ => iss,
        }
    }
}

impl Slot {
    fn new(connection: Connection, path: FourTuple) -> Self {
        Self {
            connection,
            path: (&path).into(),
            half_open: false,
            early: false,
            owned: false,
            queued: false,
            notified: false,
            timer_ns: NO_TIMER,
            stirred: true,
        }
    }
}

/// Settings for IPv4 and, with its longer header, for IPv6. Made once, shared by all connections.
#[derive(Clone)]
struct Configs {
    v4: Arc<Config>,
    v6: Arc<Config>,
}

impl Configs {
    fn new(mut config: Config, checksum: Checksum) -> Self {
        config.sum_on_write = checksum == Checksum::Complete;
        let v6 = Config {
            mss: config.mss.saturating_sub(20),
            ..config.clone()
        };
        Self {
            v4: Arc::new(config),
            v6: Arc::new(v6),
        }
    }

    fn change(&mut self, change: impl Fn(&mut Config)) {
        change(Arc::make_mut(&mut self.v4));
        change(Arc::make_mut(&mut self.v6));
    }

    fn for_address(&self, remote: IpAddr) -> Arc<Config> {
        Arc::clone(if remote.is_ipv4() { &self.v4 } else { &self.v6 })
    }
}
