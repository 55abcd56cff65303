//! Our own TCP as a [`Stack`](crate::Stack): an endpoint of `tcpcost-tcp` over a device of `tcpcost-link`, driven
//! by whoever calls [`Stack::poll`].
//!
//! One thread, no sleep but in `poll`, one reading of the clock per batch. Idle connections cost
//! nothing: what has something to do is on the endpoint's lists. Several instances, each with a
//! device or a queue of one ([`UserStack::with_ports`]), are how several CPUs are used.
//!
//! Packets leave at the next `poll`, so whatever an application does between two of them leaves
//! together and an acknowledgement travels with the answer; only [`Stack::write`] sends at once.
//! While nobody polls, the stack stands still: it neither acknowledges nor retransmits. A thread of
//! its own for timers would need a lock around every call, which the measured path would pay for,
//! and would buy little: one poll makes at most as many connections ready as a batch has packets,
//! 64, so between two polls lies the work of these, milliseconds at the most, where the peer's
//! shortest timeout is 200 ms (RFC 6298 asks for a second, Linux takes 200 ms) and a tail loss probe
//! that comes early costs one segment. Who computes for longer calls `poll` with no time to wait.
//! Not here: SO_REUSEPORT; urgent data.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use tcpcost_link::{Device, network};
use tcpcost_tcp::wire::{Checksum, FourTuple};
use tcpcost_tcp::{Config, ConnId, Connection, Endpoint, Pool, Ports};

use crate::error::{StackError, call};
use crate::stack::{Completions, Ready, SocketOptions};

mod options;
mod payload;
mod policy;
mod sleep;
mod sockets;
mod wire;

use sockets::readiness;

pub use options::config_for;
pub use payload::{UserSink, UserSource};
pub use policy::UserSettings;
pub use wire::{Slabs, Wire};

/// A connection of a [`UserStack`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserConn(ConnId);

/// A listener of a [`UserStack`]: its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserListener(SocketAddr);

/// Our TCP over a device, for one thread.
pub struct UserStack<D: Device<Wire>> {
    endpoint: Endpoint,
    device: D,
    /// Its addresses, each with the length of its network's prefix.
    networks: Vec<(IpAddr, u8)>,
    config: Config,
    slabs: Slabs,
    arrived: VecDeque<Wire>,
    /// What the device had no room for goes first the next time.
    out: VecDeque<Wire>,
    /// The token of each connection, by its index; none before `accept` and after `close`.
    tokens: Vec<Option<(ConnId, u32)>>,
    listeners: Vec<Listening>,
    /// Connections wait for `accept` without a word.
    pauses_accepting: bool,
    ready: Vec<Ready>,
    completions: Completions,
    /// Whether the device still took super-segments when it was last asked.
    segmentation: bool,
    next_port: u16,
    ports: Ports,
    busy_poll: Duration,
    /// Packets of a turn where they are answered before the application's.
    batch: Option<usize>,
    /// Ends a sleep, too.
    wakes: Option<OwnedFd>,
    /// The clock, as the last batch read it.
    now: Instant,
}

struct Listening {
    address: SocketAddr,
    token: u32,
    /// Connections may wait for `accept`.
    pending: bool,
}

impl<D: Device<Wire>> UserStack<D> {
    /// A stack with these addresses whose connections are of `config`, changed as `options` ask
    /// ([`config_for`]). Super-segments are cut just before they leave if the device does not take them.
    ///
    /// # Errors
    /// An option that this stack does not have; no random numbers.
    pub fn new(
        device: D,
        addresses: &[IpAddr],
        config: &Config,
        options: &SocketOptions,
    ) -> Result<Self, StackError> {
        let offloads = device.offloads();
        let config = config_for(config, options)?;
        let checksum = if offloads.checksum {
            Checksum::Partial
        } else {
            Checksum::Complete
        };
        let mut secret = [0; 16];
        let filled = rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())
            .map_err(call("getrandom"))?;
        debug_assert_eq!(filled, secret.len(), "short only above 256 bytes");
        let (pool, now) = (Pool::default(), Instant::now());
        let mut endpoint = Endpoint::new(config.clone(), pool.clone(), secret, checksum, now);
        endpoint.set_offloads(offloads.checksum, offloads.segmentation);
        let alone = |address: &IpAddr| (*address, if address.is_ipv4() { 32 } else { 128 });
        let networks: Vec<_> = addresses.iter().map(alone).collect();
        endpoint.set_addresses(&networks);
        Ok(Self {
            endpoint,
            device,
            networks,
            config,
            slabs: Slabs(pool),
            arrived: VecDeque::new(),
            out: VecDeque::new(),
            tokens: Vec::new(),
            listeners: Vec::new(),
            pauses_accepting: false,
            ready: Vec::with_capacity(EVENTS),
            completions: Completions::default(),
            segmentation: offloads.segmentation,
            next_port: 0,
            ports: Ports::default(),
            busy_poll: Duration::ZERO,
            batch: None,
            wakes: None,
            now,
        })
    }

    /// The same with all that a study can choose.
    ///
    /// # Errors
    /// As [`UserStack::new`].
    pub fn with_settings(
        device: D,
        addresses: &[IpAddr],
        settings: &UserSettings,
        options: &SocketOptions,
    ) -> Result<Self, StackError> {
        let stack = Self::new(device, addresses, &settings.config, options)?
            .with_busy_poll(settings.busy_poll);
        Ok(match settings.batch {
            Some(packets) => stack.with_batch(packets),
            None => stack,
        })
    }

    /// One of several instances with the same addresses, each with a queue of
    /// [`Tap::open_queues`](tcpcost_link::Tap::open_queues): uses these ports only.
    #[must_use]
    pub fn with_ports(mut self, ports: Ports) -> Self {
        self.ports = ports;
        self.endpoint.set_ports(ports);
        self
    }

    /// Its addresses once more, each with the length of its network's prefix, which tells the
    /// broadcast addresses, to and from which it has nothing to say, and the address that it connects from.
    #[must_use]
    pub fn with_networks(mut self, networks: &[(IpAddr, u8)]) -> Self {
        self.networks = networks.to_vec();
        self.endpoint.set_addresses(networks);
        self
    }

    /// Polls the idle device for so long before it sleeps; default not at all.
    /// A sleeper on a TAP is woken some 10 µs after its packet came, which is most of a lone
    /// request's time; this spends CPU instead.
    #[must_use]
    pub fn with_busy_poll(mut self, busy_poll: Duration) -> Self {
        self.busy_poll = busy_poll;
        self
    }

    /// Takes in so many packets at a time, and sends what they call for before the application has its
    /// turn; by default 64, and after it. 1 is a host that is interrupted for each packet, as those of
    /// 2005 were: an ACK leaves before the reader's answer, and what an ACK releases before the next ACK
    /// is looked at. At least 1.
    #[must_use]
    pub fn with_batch(mut self, packets: usize) -> Self {
        self.batch = Some(packets.max(1));
        self
    }

    /// From now on [`poll`](crate::Stack::poll) also ends, with nothing ready, while this descriptor is
    /// readable and no packet waits: for an application that has more to wait for. An epoll instance
    /// stands for many.
    pub fn wake_by(&mut self, descriptor: OwnedFd) {
        self.wakes = Some(descriptor);
    }

    /// From now on, or no more, connections that come in wait in their listener's backlog and nothing is told of them.
    pub fn pause_accepting(&mut self, pauses: bool) {
        self.pauses_accepting = pauses;
    }

    /// What it and its connections were made with; with one of them, as that one is now.
    pub fn settings(&self, connection: Option<&Connection>) -> UserSettings {
        UserSettings {
            config: connection.map_or(&self.config, Connection::config).clone(),
            busy_poll: self.busy_poll,
            batch: self.batch,
        }
    }

    /// The endpoint, so that a meter can read its counters.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// A connection, so that a meter can read its counters. `None` once closed.
    pub fn connection(&self, conn: UserConn) -> Option<&Connection> {
        self.endpoint.connection(conn.0)
    }

    /// The two ends of a connection. `None` once closed.
    pub fn path(&self, conn: UserConn) -> Option<FourTuple> {
        self.endpoint.path(conn.0)
    }

    /// What is under it.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Calls the methods of a connection itself, which can more than a [`Stack`](crate::Stack) asks for; the time
    /// is that of the last batch. `None` once closed.
    pub fn with<R>(
        &mut self,
        conn: UserConn,
        call: impl FnOnce(&mut Connection, Instant) -> R,
    ) -> Option<R> {
        let now = self.now;
        self.endpoint
            .apply(conn.0, |connection| call(connection, now))
    }

    /// Sends what there is to send, without waiting and without taking anything in. `poll` does
    /// it, and so does dropping the stack, so that the peers of connections just closed hear of it.
    ///
    /// # Errors
    /// Only of a broken device.
    pub fn flush(&mut self) -> io::Result<()> {
        loop {
            let room = BATCH_PACKETS.saturating_sub(self.out.len());
            let endpoint = &mut self.endpoint;
            let now = self.now;
            self.out
                .extend(std::iter::from_fn(|| endpoint.poll_packet(now).map(Wire)).take(room));
            let full = self.out.len() >= BATCH_PACKETS;
            self.device.send(&mut self.out, now)?;
            if self.segmentation && !self.device.offloads().segmentation {
                // It found out at run time that its kernel does not take them.
                self.segmentation = false;
                let checksum = self.device.offloads().checksum;
                self.endpoint.set_offloads(checksum, false);
            }
            if !full || !self.out.is_empty() {
                return Ok(());
            }
        }
    }

    /// One batch: packets in, timers, what became ready. Says whether there were packets.
    fn turn(&mut self) -> io::Result<bool> {
        let now = self.now;
        let most = self.batch.unwrap_or(BATCH_PACKETS);
        self.device
            .receive(&mut self.slabs, &mut self.arrived, most, now)?;
        let any = !self.arrived.is_empty();
        let packets = self.arrived.drain(..).map(|Wire(packet)| packet);
        self.endpoint.on_packets(packets, now);
        if any && self.batch.is_some() {
            self.flush()?;
        }
        if self.endpoint.next_timeout().is_some_and(|due| due <= now) {
            self.endpoint.on_timeout(now);
        }
        while let Some(port) = self.endpoint.poll_acceptable() {
            // Who has none finds out when it accepts.
            let of_port = |listening: &&mut Listening| listening.address.port() == port;
            for listening in self.listeners.iter_mut().filter(of_port) {
                listening.pending = true;
            }
        }
        let told = !self.pauses_accepting;
        let waiting = self
            .listeners
            .iter()
            .filter(|listening| told && listening.pending);
        self.ready.extend(waiting.map(|listening| Ready {
            token: listening.token,
            readable: true,
            writable: false,
            peer_closed: false,
            error: false,
        }));
        while self.ready.len() < EVENTS
            && let Some(id) = self.endpoint.poll_ready()
        {
            let token = self.tokens.get(id.index()).copied().flatten();
            if let Some((known, token)) = token
                && known == id
                && let Some(connection) = self.endpoint.connection(id)
            {
                self.ready.push(readiness(connection, token));
            }
        }
        Ok(any)
    }

    /// The own address in the network of another, or the first of its family.
    fn address_towards(&self, remote: IpAddr) -> Option<IpAddr> {
        let mut all = self.networks.iter();
        let near = all.clone().find(|own| network::contains(**own, remote));
        let own = near.or_else(|| all.find(|(own, _)| own.is_ipv4() == remote.is_ipv4()));
        own.map(|(own, _)| *own)
    }

    fn keep(&mut self, id: ConnId, token: u32) -> UserConn {
        let index = id.index();
        if index >= self.tokens.len() {
            self.tokens.resize(index + 1, None);
        }
        self.tokens[index] = Some((id, token));
        UserConn(id)
    }

    fn forget(&mut self, id: ConnId) {
        if let Some(place) = self.tokens.get_mut(id.index())
            && place.is_some_and(|(known, _)| known == id)
        {
            *place = None;
        }
    }

    fn apply<R>(
        &mut self,
        conn: UserConn,
        call: impl FnOnce(&mut Connection) -> R,
    ) -> io::Result<R> {
        self.endpoint
            .apply(conn.0, call)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    /// Dynamic ports of RFC 6335 are for connections; this takes registered ones from where
    /// nothing well known is.
    fn free_port(&mut self) -> Option<u16> {
        (0..PORTS).find_map(|_| {
            let port = PORT_MIN + self.next_port % PORTS;
            self.next_port = self.next_port.wrapping_add(1);
            let is_its = |listening: &Listening| listening.address.port() == port;
            (self.ports.contain(port) && !self.listeners.iter().any(is_its)).then_some(port)
        })
    }
}

impl<D: Device<Wire>> Drop for UserStack<D> {
    fn drop(&mut self) {
        // A broken device has nobody at its other end to hear it.
        let _ = self.flush();
    }
}

/// Packets per call of the device: enough to share its cost, few enough to stay in the cache.
const BATCH_PACKETS: usize = 64;
/// Events of one poll, as of [`KernelStack`](crate::KernelStack).
const EVENTS: usize = 512;
/// Ports for listeners that leave the choice to the stack.
const PORT_MIN: u16 = 20_000;
const PORTS: u16 = 20_000;
