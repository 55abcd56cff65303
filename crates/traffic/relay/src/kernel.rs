//! TCP of the kernel: epoll, and a ring of io_uring if that moves the bytes.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags, acceptfrom_with, getsockname, send, sockopt};
use tcpcost_knobs::RelayMode;
use tcpcost_link::Bell;
use tcpcost_stack::RingCompletion;

use crate::address::Address;
use crate::config::Config;
use crate::counters::{Direction, Ending, WorkerCounters};
use crate::listener::Listener;
use crate::mover::{Flow, Mover};
use crate::proxy::{self, Ends};
use crate::side::{self, Side};
use crate::worker::{CLIENT, ConnectError, Connection, Net, Phase, Progress, SERVER, Step, Worker};

mod exchange;
mod header;
mod uring;

use uring::{Closing, Event, RingFlow, Uring};

/// The kernel's TCP for one worker.
pub(crate) struct Kernel {
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    mover: Mover,
    /// Ring, if io_uring moves bytes.
    uring: Option<Uring>,
}

/// State of the two flows of a connection, each indexed by [`Direction`].
pub(crate) struct Flows {
    moved: [Flow; 2],
    ring: [RingFlow; 2],
}

impl Kernel {
    pub(crate) fn new(
        listeners: Vec<Listener>,
        bell: &Bell,
        config: &Config,
    ) -> io::Result<Kernel> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, bell, EventData::new_u64(BELL), EventFlags::IN)?;
        let mut uring = match config.mode {
            RelayMode::IoUring => Some(Uring::new(config)?),
            _ => None,
        };
        if let Some(uring) = &mut uring {
            uring.poll(&epoll);
        }
        Ok(Kernel {
            epoll,
            listeners,
            mover: Mover::new(config, Instant::now()),
            uring,
        })
    }

    /// Adds a side to epoll.
    pub(crate) fn watch(&self, side: &Side, index: usize, which: usize) -> Result<(), Errno> {
        let data = EventData::new_u64((index << 1 | which) as u64);
        epoll::add(&self.epoll, side.socket.as_fd(), data, side.interest())
    }

    /// Changes whether new bytes of a side are reported. Bytes that are there when they are to be reported again are reported at once
    /// (ep_modify, fs/eventpoll.c).
    fn mute(&self, side: &mut Side, index: usize, which: usize, is_muted: bool) {
        side.is_muted = is_muted;
        let data = EventData::new_u64((index << 1 | which) as u64);
        if epoll::modify(&self.epoll, side.socket.as_fd(), data, side.interest()).is_err() {
            side.is_muted = !is_muted;
        }
    }

    /// Sends the PROXY header to the upstream, if one is configured.
    fn send_header(connection: &Connection<Kernel>, config: &Config) -> Result<(), Ending> {
        let (Some(version), Some(server)) = (config.proxy_out, &connection.server) else {
            return Ok(());
        };
        let ends = connection.counters.source().zip(connection.destination);
        let ends = ends.map(|(source, destination)| Ends {
            source,
            destination,
        });
        let header = proxy::header(version, ends);
        // A new socket has room for so few bytes.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match send(&server.socket, &header, flags) {
            Ok(sent) if sent == header.len() => Ok(()),
            _ => Err(Ending::ServerLost),
        }
    }
}

#[cfg(test)]
impl Kernel {
    /// Operations of the ring so far.
    pub(crate) fn operations(&self) -> u64 {
        self.uring
            .as_ref()
            .map_or(0, |uring| uring.ring.operations())
    }
}

impl Worker<Kernel> {
    fn read_clock(&mut self) {
        self.now = Instant::now();
        self.net.mover.now = self.now;
    }

    fn wait_for_events(
        &mut self,
        timeout: Option<Duration>,
        events: &mut Vec<epoll::Event>,
    ) -> io::Result<usize> {
        events.clear();
        events.reserve(EVENTS);
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        match epoll::wait(&self.net.epoll, spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.read_clock();
        for event in &*events {
            let flags = event.flags;
            match event.data.u64() {
                BELL => self.shared.bells[self.index].hear(),
                token if token >= LISTENERS => {
                    self.accept((token - LISTENERS) as usize);
                }
                token => self.on_event(token, flags),
            }
        }
        Ok(events.len())
    }

    fn on_event(&mut self, token: u64, flags: EventFlags) {
        let index = (token >> 1) as usize;
        let Some(Some(connection)) = self.connections.get_mut(index) else {
            return;
        };
        let which = (token & 1) as usize;
        let (side, other) = match (which, &mut connection.client, &mut connection.server) {
            (CLIENT, client, server) => (client, server.as_mut()),
            (_, client, Some(server)) => (server, Some(client)),
            _ => return,
        };
        let is_blocked = side.readable && other.is_some_and(|other| !other.writable);
        side.on_event(flags);
        let is_needless = is_blocked && flags.contains(EventFlags::IN) && !side.may_have_more;
        if is_needless && matches!(connection.phase, Phase::Open) {
            self.net.mute(side, index, which, true);
        }
        self.serve(index);
    }

    /// Waits for completions of the ring, which moves the bytes. All other events come by epoll,
    /// whose descriptor the ring polls, too.
    fn wait_for_ring(
        &mut self,
        timeout: Option<Duration>,
        events: &mut Vec<epoll::Event>,
    ) -> io::Result<usize> {
        let Some(uring) = &mut self.net.uring else {
            return Ok(0);
        };
        let completions = uring.wait(timeout)?;
        self.read_clock();
        let mut count = 0;
        for &completion in &completions {
            let uring = self.net.uring.as_mut();
            match uring.and_then(|uring| uring.event(completion)) {
                None => {}
                Some(Event::Readable) => {
                    count += self.wait_for_events(Some(Duration::ZERO), events)?;
                    if let Some(uring) = &mut self.net.uring {
                        uring.poll(&self.net.epoll);
                    }
                }
                Some(Event::Direction(index, direction, completion)) => {
                    self.on_completion(index, direction, completion);
                }
                Some(Event::Closed(index, closing)) => {
                    let Closing {
                        client,
                        server,
                        ending,
                        ..
                    } = closing;
                    self.close(index, client, server, ending);
                }
            }
        }
        if let Some(uring) = &mut self.net.uring {
            uring.reuse(completions);
            // Only flows for which a buffer is free. Asking for all starved flows at each turn was
            // 48 failed operations for each that received.
            for (index, direction) in uring.fed() {
                if let Some(Some(connection)) = self.connections.get_mut(index) {
                    uring.ask(index, direction, connection, false);
                }
            }
        }
        Ok(count)
    }

    fn on_completion(&mut self, index: usize, direction: Direction, completion: RingCompletion) {
        let (Some(Some(connection)), Some(uring)) =
            (self.connections.get_mut(index), &mut self.net.uring)
        else {
            return;
        };
        if completion.result > 0 {
            connection.since = self.now;
        }
        if let Step::Over(ending) =
            uring.advance(index, direction, completion, connection, &self.counters)
        {
            self.end(index, ending);
        }
    }
}

impl Net for Kernel {
    type Side = Side;
    type Flows = Flows;
    type Events = Vec<epoll::Event>;

    fn wait(
        worker: &mut Worker<Kernel>,
        timeout: Option<Duration>,
        events: &mut Vec<epoll::Event>,
    ) -> io::Result<usize> {
        match worker.net.uring.is_some() {
            true => worker.wait_for_ring(timeout, events),
            false => worker.wait_for_events(timeout, events),
        }
    }

    fn has_work(&self) -> bool {
        self.uring.as_ref().is_some_and(Uring::can_feed)
    }

    fn listeners(&self) -> usize {
        self.listeners.len()
    }

    fn close_listeners(&mut self) {
        self.listeners.clear();
    }

    fn set_accepting(&mut self, accepts: bool) -> io::Result<()> {
        for (index, listener) in self.listeners.iter().enumerate() {
            let data = EventData::new_u64(LISTENERS + index as u64);
            // EXCLUSIVE: of the workers that share a listener one is woken.
            let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
            match accepts {
                true => epoll::add(&self.epoll, listener, data, flags)?,
                false => drop(epoll::delete(&self.epoll, listener)),
            }
        }
        Ok(())
    }

    fn accept(&mut self, listener: usize, index: usize) -> io::Result<(Side, Option<SocketAddr>)> {
        let listener = &self.listeners[listener];
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (socket, source) = acceptfrom_with(listener, flags)?;
        let source = source.and_then(|source| SocketAddr::try_from(source).ok());
        let side = Side::new(socket, listener.is_tcp());
        self.watch(&side, index, CLIENT)?;
        Ok((side, source))
    }

    fn connect(
        &mut self,
        to: &Address,
        index: usize,
        config: &Config,
    ) -> Result<Side, ConnectError> {
        let socket = to.socket().and_then(|socket| {
            if to.is_tcp() {
                side::set_options(&socket, config)?;
            }
            side::set_buffers(&socket, config)?;
            Ok(socket)
        });
        let socket = socket.map_err(|_| ConnectError::NoResources)?;
        let outcome = to.connect(&socket);
        let mut side = Side::new(socket, to.is_tcp());
        match outcome {
            Ok(()) => side.writable = true,
            Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(ConnectError::Refused(error.into())),
        }
        let watched = self.watch(&side, index, SERVER);
        watched.map_err(|_| ConnectError::NoResources)?;
        Ok(side)
    }

    fn progress(&mut self, connection: &Connection<Kernel>) -> Progress {
        let Some(server) = &connection.server else {
            return Progress::Waits;
        };
        if !server.writable && !server.readable {
            let client = &connection.client;
            let has_left = client.may_have_more && client.has_left();
            // An answer that arrived already is reported by the next event.
            return match has_left && !server.is_ready(PollFlags::OUT) {
                true => Progress::ClientLeft,
                false => Progress::Waits,
            };
        }
        match sockopt::socket_error(&server.socket) {
            Ok(Ok(())) => Progress::Connected,
            Ok(Err(error)) | Err(error) => Progress::Refused(error.into()),
        }
    }

    fn open(
        &mut self,
        index: usize,
        connection: &mut Connection<Kernel>,
        config: &Config,
    ) -> Result<(), Ending> {
        Kernel::send_header(connection, config)?;
        if let Some(server) = &mut connection.server {
            server.writable = true;
        }
        if let Some(uring) = &mut self.uring {
            let server = connection.server.as_ref().map(|server| &server.socket);
            for socket in server.into_iter().chain([&connection.client.socket]) {
                let _ = epoll::delete(&self.epoll, socket);
            }
            uring.begin(index, connection);
            return Ok(());
        }
        connection.client.writable = true;
        Ok(())
    }

    fn exchange(
        &mut self,
        index: usize,
        connection: &mut Connection<Kernel>,
        counters: &WorkerCounters,
        _: Instant,
    ) -> Step {
        if self.uring.is_some() {
            return Step::Wait;
        }
        let step = connection.exchange(&mut self.mover, counters);
        let sides = [
            (CLIENT, Some(&mut connection.client)),
            (SERVER, connection.server.as_mut()),
        ];
        for (which, side) in sides {
            if let Some(side) = side.filter(|side| side.is_muted && !side.readable) {
                self.mute(side, index, which, false);
            }
        }
        step
    }

    fn read_header(worker: &mut Worker<Kernel>, index: usize, left: Option<usize>) {
        match left {
            None => worker.parse_header(index),
            Some(left) => worker.pass_over_header(index, left),
        }
    }

    fn flows(&self) -> Flows {
        Flows {
            moved: [self.mover.flow(), self.mover.flow()],
            ring: Default::default(),
        }
    }

    fn local_addr(side: &Side) -> Option<SocketAddr> {
        let local = getsockname(&side.socket).ok()?;
        SocketAddr::try_from(local).ok()
    }

    fn gone(side: &Side) -> Option<ErrorKind> {
        side.gone
    }

    fn unread(&self, side: &Side) -> usize {
        side.unread()
    }

    fn unacknowledged(&self, side: &Side) -> usize {
        side.unacknowledged()
    }

    fn abandon(&mut self, connection: &mut Connection<Kernel>) {
        let flows = connection.flows.moved.iter_mut();
        for (flow, moved) in flows.zip(&connection.counters.moved) {
            self.mover.abandon(flow, moved);
        }
    }

    fn release(
        &mut self,
        index: usize,
        connection: Box<Connection<Kernel>>,
        ending: Ending,
    ) -> Option<Box<Connection<Kernel>>> {
        match &mut self.uring {
            Some(uring) => uring.close(index, connection, ending),
            None => Some(connection),
        }
    }

    fn close(&mut self, _: Side) {} // Dropping the side closes it.

    fn reset(&mut self, side: Side) {
        side.reset();
    }

    fn publish(&self, counters: &WorkerCounters) {
        counters.pipes.set(self.mover.pipes.there() as u64);
    }
}

const BELL: u64 = u64::MAX;
/// First token of listeners; tokens of connections are below.
const LISTENERS: u64 = 1 << 48;
/// Limit of events that one call of epoll_wait returns.
const EVENTS: usize = 256;
