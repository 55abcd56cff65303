//! Many connections behind one device: packets in, packets out.

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

/// All connections of one stack instance, found by hash, with their timers in a heap and those
/// that have something to do in a list: an idle connection costs nothing but its memory, and after a
/// second or two half a kibibyte of that, until something happens to it.
///
/// Its methods are of the four kinds of [`Connection`]'s. After [`on_packet`](Self::on_packet) (of
/// as many as the device had), [`on_timeout`](Self::on_timeout) and the application's calls, drain
/// [`poll_packet`](Self::poll_packet), look at what [`poll_ready`](Self::poll_ready) names, and
/// ask [`next_timeout`](Self::next_timeout) how long to wait.
pub struct Endpoint {
    configs: Configs,
    pool: Pool,
    secret: Secret,
    epoch: Instant,
    checksum: Checksum,
    /// The device does not cut super-segments: they are cut here.
    cut: bool,
    /// The one that is being cut, and whose it is.
    cutting: Option<(ConnId, Cut)>,
    /// What connections answer before their turn.
    parts: VecDeque<Packet>,
    /// Some connection may have to answer each segment by itself.
    answers_each: bool,
    table: Table,
    /// Where the last packet's connection is: the next is likely to be for the same, which spares
    /// its hash.
    recent: u32,
    listeners: Listeners,
    time_waits: TimeWaits,
    timers: BinaryHeap<Reverse<Deadline>>,
    /// Connections that may have something to send.
    work: VecDeque<u32>,
    /// Units the first of them has sent in this turn.
    turn: u32,
    ready: VecDeque<ConnId>,
    acceptable: VecDeque<u16>,
    /// Answers that belong to no connection; bounded, the rest is dropped.
    answers: VecDeque<Packet>,
    next_port: u16,
    ports: Ports,
    local_addresses: LocalAddresses,
    fast_opens: FastOpens,
    fragments: Fragments,
    /// On their way from one connection to another; empty but for its memory.
    forwarding: Vec<Piece>,
    counters: EndpointCounters,
}

/// Which local ports an endpoint may use: all, or its share where several endpoints have one address
/// and packets are steered to them by port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Number of endpoints, from 1. Default 1.
    pub every: u16,
    /// Which of them this is, below `every`: it has the ports p with p % `every` = `offset`.
    pub offset: u16,
}

impl Ports {
    /// Whether it may use this one.
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

/// What an endpoint counts beside its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointCounters {
    /// Packets given to it.
    pub packets_received: u64,
    /// Packets it gave out.
    pub packets_sent: u64,
    /// Bytes of them, IP headers included.
    pub octets_sent: u64,
    /// Segments sent that carry nothing but an acknowledgement.
    pub pure_acks_sent: u64,
    /// Of these, those that moved the right edge of the receive window; the others only acknowledged.
    pub window_advancing_acks_sent: u64,
    /// Dropped: neither IPv4 nor IPv6, or no TCP.
    pub dropped_protocol: u64,
    /// Dropped: shorter than its headers say, or impossible.
    pub dropped_malformed: u64,
    /// Dropped: a wrong checksum.
    pub dropped_checksum: u64,
    /// Dropped: fragments whose packet did not become whole within a minute, or that overlap.
    pub dropped_fragment: u64,
    /// Packets made of fragments.
    pub packets_reassembled: u64,
    /// Dropped: for a listener, but no SYN.
    pub dropped_no_connection: u64,
    /// Dropped: a listener's backlog was full.
    pub dropped_backlog: u64,
    /// Dropped: for an address that is not its own, or from one that cannot be.
    pub dropped_foreign: u64,
    /// Answered with a reset because nobody listened.
    pub refused: u64,
    /// Answers not sent because too many were waiting.
    pub answers_suppressed: u64,
    /// SYN cookies sent.
    pub cookies_sent: u64,
    /// Connections opened from a SYN cookie.
    pub cookies_accepted: u64,
    /// "Packet too big" messages received.
    pub too_big_received: u64,
    /// Messages received that say that a segment did not get there.
    pub unreachable_received: u64,
}

impl Endpoint {
    /// An endpoint for connections of `config`, with payload from `pool`. `secret` must be random
    /// and kept: initial sequence numbers, cookies and the connection table depend on it.
    /// `checksum`: [`Checksum::Partial`] if the device completes TCP checksums, else
    /// [`Checksum::Complete`].
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

    /// What the device does of what was hoped for: complete checksums, cut super-segments. To be
    /// called again when a device finds out that it cannot. What it does not do is done here; the
    /// connections keep working in super-segments, which costs them less.
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

    /// From now on takes only these for connections that leave the choice of a port to it.
    pub fn set_ports(&mut self, ports: Ports) {
        self.ports = ports;
    }

    /// A connection that the application should look at: there is more to read, a third of its
    /// send buffer is free where it was not, or it changed its state.
    pub fn poll_ready(&mut self) -> Option<ConnId> {
        while let Some(id) = self.ready.pop_front() {
            if !self.table.is_current(id) {
                continue;
            }
            if let Some(slot) = self.table.at_mut(id.index) {
                slot.notified = false;
                if slot.timer_ns == NO_TIMER {
                    // It may rest from now on; whether it does is seen when it is its turn.
                    self.enqueue(id.index);
                }
                return Some(id);
            }
        }
        None
    }

    /// A port on which [`accept`](Self::accept) has something; call it until it has no more.
    pub fn poll_acceptable(&mut self) -> Option<u16> {
        let port = self.acceptable.pop_front()?;
        for listener in self.listeners.of_port(port) {
            listener.notified = false;
        }
        Some(port)
    }

    /// Calls the application's methods of a connection ([`write`](Connection::write),
    /// [`read`](Connection::read), [`close`](Connection::close), …) and sees to what they cause.
    /// `None` if there is no such connection any more.
    pub fn apply<R>(&mut self, id: ConnId, call: impl FnOnce(&mut Connection) -> R) -> Option<R> {
        if !self.table.is_current(id) {
            return None;
        }
        let slot = self.table.at_mut(id.index)?;
        let result = call(&mut slot.connection);
        self.enqueue(id.index);
        Some(result)
    }

    /// Changes the choices of every connection that there is and of those to come: for what turns
    /// out about a device. Looks at each connection.
    pub fn configure(&mut self, change: impl Fn(&mut Config)) {
        self.configs.change(&change);
        self.answers_each |= self.configs.v4.answers_each();
        for listener in self.listeners.all() {
            listener.configs.change(&change);
        }
        self.table.configure(change);
    }

    /// Looks at a connection. One that has been idle for a while has its whole memory again from then on
    /// until it has done something and has been idle anew.
    pub fn connection(&self, id: ConnId) -> Option<&Connection> {
        self.table.get(id).map(|slot| &slot.connection)
    }

    /// The two ends of a connection.
    pub fn path(&self, id: ConnId) -> Option<FourTuple> {
        self.table.get(id).map(|slot| slot.path.into())
    }

    /// The application has done with a connection: it is closed if it was not, read no more, and
    /// forgotten when it has ended.
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

    /// Connections it keeps, those in TIME-WAIT that were released not counted.
    pub fn connections(&self) -> usize {
        self.table.len()
    }

    /// Released connections in TIME-WAIT.
    pub fn time_waits(&self) -> usize {
        self.time_waits.len()
    }

    /// What it counted.
    pub fn counters(&self) -> &EndpointCounters {
        &self.counters
    }

    /// Where its payload comes from: read packets into slabs of this.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    fn add(&mut self, slot: Slot, key: u64) -> ConnId {
        let id = self.table.insert(slot, key);
        self.enqueue(id.index);
        id
    }

    /// It may have something to send.
    fn enqueue(&mut self, index: u32) {
        if let Some(slot) = self.table.at_mut(index)
            && !std::mem::replace(&mut slot.queued, true)
        {
            self.work.push_back(index);
        }
    }

    /// The application should look at it.
    fn notify(&mut self, index: u32) {
        let id = self.table.id(index);
        if let Some(slot) = self.table.at_mut(index)
            && !std::mem::replace(&mut slot.notified, true)
        {
            self.ready.push_back(id);
        }
    }

    /// It has nothing to send for now.
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
            // RFC 9293 §3.6.1: beyond what the earlier connection used.
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

/// The choices for IPv4 and, with its longer header, for IPv6: made once, shared by all.
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
