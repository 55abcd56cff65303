//! Our own TCP as a [`Stack`](crate::Stack): an endpoint of `tcpcost-tcp` over a device of
//! `tcpcost-link`, driven by calls of [`Stack::poll`].
//!
//! A stack has one thread, sleeps only in `poll`, and reads the clock once per batch. Idle
//! connections cost nothing: connections with something to do are on the endpoint's lists. To use
//! several CPUs, run several instances, each with a device or a queue of one
//! ([`UserStack::with_ports`]).
//!
//! Packets leave at the next `poll`, so everything that an application does between two polls
//! leaves together and an acknowledgement travels with the answer; only [`Stack::write`] sends at
//! once. While it is not polled the stack stands still: it neither acknowledges nor retransmits. A
//! separate thread for timers would need a lock around every call, which the measured path would
//! pay for, and would help little. One poll makes at most as many connections ready as a batch has
//! packets, 64, so between two polls lies the work of these: a few milliseconds. The peer's
//! shortest timeout is 200 ms (RFC 6298 asks for a second, Linux takes 200 ms), and a tail loss
//! probe that comes early costs one segment. An application that computes for longer calls `poll`
//! with a timeout of 0.
//!
//! SO_REUSEPORT and urgent data are not supported.

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

mod forward;
mod options;
mod payload;
mod policy;
mod sleep;
mod sockets;
mod wire;

use sockets::readiness;

pub use forward::{Forwarded, Stopped};
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
    /// Addresses of the stack, each with the length of its network's prefix.
    networks: Vec<(IpAddr, u8)>,
    config: Config,
    slabs: Slabs,
    arrived: VecDeque<Wire>,
    /// Packets that the device had no room for; sent first the next time.
    out: VecDeque<Wire>,
    /// Token of each connection, by its index; `None` before `accept` and after `close`.
    tokens: Vec<Option<(ConnId, u32)>>,
    listeners: Vec<Listening>,
    /// True while connections wait for `accept` without being reported.
    pauses_accepting: bool,
    ready: Vec<Ready>,
    completions: Completions,
    /// True if the device still took super-segments when it was last asked.
    segmentation: bool,
    next_port: u16,
    ports: Ports,
    busy_poll: Duration,
    /// Limit of packets of a turn; `Some` if they are answered before the application runs.
    batch: Option<usize>,
    /// Descriptor that also ends a sleep.
    wakes: Option<OwnedFd>,
    /// Time that the last batch read.
    now: Instant,
}

struct Listening {
    address: SocketAddr,
    token: u32,
    /// True if connections may wait for `accept`.
    pending: bool,
}

impl<D: Device<Wire>> UserStack<D> {
    /// Makes a stack with these addresses, whose connections have `config` with the changes that
    /// `options` ask for ([`config_for`]). Super-segments are cut just before they leave if the
    /// device does not take them.
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

    /// Makes a stack with all settings that a study can choose.
    ///
    /// # Errors
    /// See [`UserStack::new`].
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

    /// Limits an instance to these ports. Several instances with the same addresses, each with a
    /// queue of [`Tap::open_queues`](tcpcost_link::Tap::open_queues), need different ports.
    #[must_use]
    pub fn with_ports(mut self, ports: Ports) -> Self {
        self.ports = ports;
        self.endpoint.set_ports(ports);
        self
    }

    /// Sets the stack's addresses, each with the length of its network's prefix. The prefix decides
    /// which addresses are broadcast addresses, with which the stack does not communicate, and
    /// which of its own addresses a connect uses.
    #[must_use]
    pub fn with_networks(mut self, networks: &[(IpAddr, u8)]) -> Self {
        self.networks = networks.to_vec();
        self.endpoint.set_addresses(networks);
        self
    }

    /// Polls the idle device for `busy_poll` before the stack sleeps; default 0. A sleeper on a TAP
    /// is woken about 10 µs after its packet came, which is most of a lone request's time; this
    /// spends CPU instead.
    #[must_use]
    pub fn with_busy_poll(mut self, busy_poll: Duration) -> Self {
        self.busy_poll = busy_poll;
        self
    }

    /// Takes in up to `packets` (at least 1) at a time, and sends the answers to them before the
    /// application runs. Default: 64 at a time, and answers leave after the application has run. 1
    /// imitates a host that is interrupted for each packet, like those of 2005: an ACK leaves
    /// before the reader's answer, and data that an ACK releases leaves before the next ACK is
    /// processed.
    #[must_use]
    pub fn with_batch(mut self, packets: usize) -> Self {
        self.batch = Some(packets.max(1));
        self
    }

    /// Makes [`poll`](crate::Stack::poll) also end, with nothing ready, when this descriptor is
    /// readable and no packet waits: for an application that waits for other events, too. An epoll
    /// instance can stand for many descriptors.
    pub fn wake_by(&mut self, descriptor: OwnedFd) {
        self.wakes = Some(descriptor);
    }

    /// Pauses or resumes accepting. While paused, new connections wait in their listener's backlog
    /// and are not reported.
    pub fn pause_accepting(&mut self, pauses: bool) {
        self.pauses_accepting = pauses;
    }

    /// Settings of the stack, or, with a connection, those that the connection has now.
    pub fn settings(&self, connection: Option<&Connection>) -> UserSettings {
        UserSettings {
            config: connection.map_or(&self.config, Connection::config).clone(),
            busy_poll: self.busy_poll,
            batch: self.batch,
        }
    }

    /// Endpoint, so that a meter can read its counters.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Connection, so that a meter can read its counters. `None` once closed.
    pub fn connection(&self, conn: UserConn) -> Option<&Connection> {
        self.endpoint.connection(conn.0)
    }

    /// Addresses and ports of both ends of a connection. `None` once closed.
    pub fn path(&self, conn: UserConn) -> Option<FourTuple> {
        self.endpoint.path(conn.0)
    }

    /// Device under the stack.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Calls methods of a connection that [`Stack`](crate::Stack) does not have. The time passed is
    /// that of the last batch. `None` once closed.
    pub fn with<R>(
        &mut self,
        conn: UserConn,
        call: impl FnOnce(&mut Connection, Instant) -> R,
    ) -> Option<R> {
        let now = self.now;
        self.endpoint
            .apply(conn.0, |connection| call(connection, now))
    }

    /// Sends pending packets, without waiting and without receiving. `poll` does this, and so does
    /// dropping the stack, so that the peers of connections just closed learn of it.
    ///
    /// # Errors
    /// The device is broken.
    pub fn flush(&mut self) -> io::Result<()> {
        loop {
            let now = self.now;
            while self.out.len() < BATCH_PACKETS {
                self.out.push_back(Wire::default());
                let place = self.out.back_mut().map(|Wire(packet)| packet);
                if !place.is_some_and(|packet| self.endpoint.poll_packet_into(packet, now)) {
                    self.out.pop_back();
                    break;
                }
            }
            let full = self.out.len() >= BATCH_PACKETS;
            self.device.send(&mut self.out, now)?;
            if self.segmentation && !self.device.offloads().segmentation {
                // The device found out at run time that its kernel does not take them.
                self.segmentation = false;
                let checksum = self.device.offloads().checksum;
                self.endpoint.set_offloads(checksum, false);
            }
            if !full || !self.out.is_empty() {
                return Ok(());
            }
        }
    }

    /// Runs one batch: packets in, timers, readiness. True if there were packets.
    fn turn(&mut self) -> io::Result<bool> {
        let now = self.now;
        let most = self.batch.unwrap_or(BATCH_PACKETS);
        self.device
            .receive(&mut self.slabs, &mut self.arrived, most, now)?;
        let any = !self.arrived.is_empty();
        let packets = self.arrived.iter_mut().map(|Wire(packet)| packet);
        self.endpoint.on_packets(packets, now);
        self.arrived.clear();
        if any && self.batch.is_some() {
            self.flush()?;
        }
        if self.endpoint.next_timeout().is_some_and(|due| due <= now) {
            self.endpoint.on_timeout(now);
        }
        while let Some(port) = self.endpoint.poll_acceptable() {
            // A listener at another address of the port finds out at accept that none waits.
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

    /// Own address in the network of `remote`, or the first of its family.
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

    /// Free port for a listener. Connections use the dynamic ports of RFC 6335; listeners use
    /// registered ports from a range without well-known services.
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
        // An error means that the device is broken, so no peer can be reached.
        let _ = self.flush();
    }
}

/// Packets per call of the device: enough to share its cost, few enough to stay in the cache.
const BATCH_PACKETS: usize = 64;
/// Limit of events of one poll, like that of [`KernelStack`](crate::KernelStack).
const EVENTS: usize = 512;
/// First port for listeners that leave the choice to the stack.
const PORT_MIN: u16 = 20_000;
const PORTS: u16 = 20_000;
