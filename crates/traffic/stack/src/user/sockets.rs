//! Sockets of our TCP: [`Stack`] over an endpoint.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use tcpcost_knobs::{ReceiveWith, SendWith};
use tcpcost_link::Device;
use tcpcost_tcp::{ConnectError, Connection, ListenError, State};

use super::payload::{ended, read_result, write_error};
use super::{Listening, UserConn, UserListener, UserSink, UserSource, UserStack, Wire};
use crate::error::{StackError, call};
use crate::stack::{Completions, Content, Moved, Pages, Ready, Stack};

impl<D: Device<Wire>> Stack for UserStack<D> {
    type Listener = UserListener;
    type Conn = UserConn;
    type Source = UserSource;
    type Sink = UserSink;

    const STANDS_STILL: bool = true;

    fn listen(
        &mut self,
        local: SocketAddr,
        backlog: u32,
        token: u32,
    ) -> Result<UserListener, StackError> {
        let refused = |kind| call("listen")(io::Error::from(kind));
        let is_ours = |(own, _): &(IpAddr, u8)| *own == local.ip();
        if !local.ip().is_unspecified() && !self.networks.iter().any(is_ours) {
            return Err(refused(io::ErrorKind::AddrNotAvailable));
        }
        let port = match local.port() {
            0 => self
                .free_port()
                .ok_or_else(|| refused(io::ErrorKind::AddrInUse))?,
            // Packets to this port would go to another instance.
            port if !self.ports.contain(port) => {
                return Err(refused(io::ErrorKind::AddrNotAvailable));
            }
            port => port,
        };
        let backlog = usize::try_from(backlog).unwrap_or(usize::MAX);
        let address = SocketAddr::new(local.ip(), port);
        let config = self.config.clone();
        let listened = if local.ip().is_unspecified() {
            self.endpoint.listen(port, backlog, config)
        } else {
            self.endpoint.listen_on(address, backlog, config)
        };
        match listened {
            Ok(()) => {}
            Err(ListenError::InUse) => return Err(refused(io::ErrorKind::AddrInUse)),
            Err(ListenError::BadPort) => return Err(refused(io::ErrorKind::InvalidInput)),
        }
        self.listeners.push(Listening {
            address,
            token,
            pending: false,
        });
        Ok(UserListener(address))
    }

    fn local_addr(&self, listener: UserListener) -> Result<SocketAddr, StackError> {
        Ok(listener.0)
    }

    fn close_listener(&mut self, listener: UserListener) {
        self.listeners
            .retain(|listening| listening.address != listener.0);
        match listener.0.ip().is_unspecified() {
            true => self.endpoint.unlisten(listener.0.port(), self.now),
            false => self.endpoint.unlisten_on(listener.0, self.now),
        }
    }

    fn accept(&mut self, listener: UserListener, token: u32) -> io::Result<(UserConn, SocketAddr)> {
        let accepted = match listener.0.ip().is_unspecified() {
            true => self.endpoint.accept(listener.0.port()),
            false => self.endpoint.accept_on(listener.0),
        };
        let accepted = accepted.and_then(|id| Some((id, self.endpoint.path(id)?.remote)));
        let Some((id, remote)) = accepted else {
            let mut listeners = self.listeners.iter_mut();
            if let Some(listening) = listeners.find(|found| found.address == listener.0) {
                listening.pending = false;
            }
            return Err(io::ErrorKind::WouldBlock.into());
        };
        Ok((self.keep(id, token), remote))
    }

    fn connect(&mut self, remote: SocketAddr, token: u32) -> Result<UserConn, StackError> {
        let refused = |kind| call("connect")(io::Error::from(kind));
        let local = self
            .address_towards(remote.ip())
            .ok_or_else(|| refused(io::ErrorKind::AddrNotAvailable))?;
        let local = SocketAddr::new(local, 0);
        match self.endpoint.connect(local, remote, self.now) {
            Ok(id) => Ok(self.keep(id, token)),
            Err(ConnectError::NoPort) => Err(call(
                "connect (every local port is taken: more server ports)",
            )(io::Error::from(
                io::ErrorKind::AddrNotAvailable,
            ))),
            Err(ConnectError::InUse) => Err(refused(io::ErrorKind::AddrInUse)),
            Err(ConnectError::BadAddress) => Err(refused(io::ErrorKind::InvalidInput)),
        }
    }

    fn connected(&mut self, conn: UserConn) -> io::Result<()> {
        let connection = self
            .connection(conn)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        match (connection.ended(), connection.state()) {
            (Some(reason), _) => Err(ended(reason)),
            (None, State::SynSent | State::SynReceived) => Err(io::ErrorKind::WouldBlock.into()),
            (None, _) => Ok(()),
        }
    }

    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        self.ready.clear();
        self.now = Instant::now();
        // `None` also if the deadline is too distant to be an `Instant`.
        let deadline = timeout.and_then(|timeout| self.now.checked_add(timeout));
        let mut sleeps_at = self.now + self.busy_poll;
        self.flush()?;
        loop {
            let any = self.turn()?;
            if !self.ready.is_empty() {
                return Ok(self.ready.len());
            }
            // The packets made no difference to the application, but may have to be answered.
            self.flush()?;
            if deadline.is_some_and(|deadline| deadline <= self.now) {
                return Ok(0);
            }
            // A stack that received packets polls for more before it sleeps.
            if any {
                sleeps_at = self.now + self.busy_poll;
            } else if self.now >= sleeps_at {
                match self.sleep(deadline) {
                    Ok(false) => {}
                    Ok(true) => return Ok(0),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(0),
                    Err(error) => return Err(error),
                }
            }
            self.now = Instant::now();
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        UserStack::flush(self)
    }

    #[inline]
    fn ready(&self, index: usize) -> Ready {
        self.ready[index]
    }

    fn read(&mut self, conn: UserConn, buffer: &mut [u8]) -> io::Result<usize> {
        let now = self.now;
        read_result(self.apply(conn, |connection| connection.read(buffer, now))?)
    }

    fn write(&mut self, conn: UserConn, bytes: &[u8]) -> io::Result<usize> {
        match self.apply(conn, |connection| connection.write(bytes))? {
            Ok(0) if !bytes.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            Ok(written) => {
                // Bytes that are not payload are rare, and may be the last before a pause without
                // polls: a greeting that the peer waits for.
                self.flush()?;
                Ok(written)
            }
            Err(error) => Err(write_error(error)),
        }
    }

    fn source(
        &mut self,
        with: SendWith,
        content: &mut Content<'_>,
    ) -> Result<UserSource, StackError> {
        UserSource::new(with, content)
    }

    fn pages(&self, source: &UserSource) -> Option<Pages> {
        source.pages()
    }

    #[inline]
    fn send(
        &mut self,
        conn: UserConn,
        source: &mut UserSource,
        at: u64,
        len: usize,
        more: bool,
    ) -> io::Result<Moved> {
        let moved = self.apply(conn, |connection| source.send(connection, at, len, more))??;
        if source.has_completions() {
            // The source's memory is reference-counted, so no caller must wait until it is free.
            self.completions.sends += 1;
        }
        Ok(moved)
    }

    fn sink(&mut self, with: ReceiveWith, read_bytes: usize) -> Result<UserSink, StackError> {
        Ok(UserSink::new(with, read_bytes))
    }

    #[inline]
    fn receive(&mut self, conn: UserConn, sink: &mut UserSink) -> io::Result<Moved> {
        let now = self.now;
        self.apply(conn, |connection| sink.receive(connection, now))?
    }

    #[inline]
    fn received<'a>(&'a self, sink: &'a UserSink, bytes: usize) -> Option<&'a [u8]> {
        sink.received(bytes)
    }

    fn finish(&mut self, conn: UserConn) {
        self.endpoint.apply(conn.0, Connection::close);
    }

    fn cork(&mut self, conn: UserConn, on: bool) -> io::Result<()> {
        self.apply(conn, |connection| connection.cork(on))
    }

    fn reap(&mut self, conn: UserConn) -> io::Result<()> {
        match self.connection(conn).and_then(Connection::ended) {
            Some(reason) => Err(ended(reason)),
            None => Ok(()),
        }
    }

    fn completions(&self) -> Completions {
        self.completions
    }

    fn close(&mut self, conn: UserConn) {
        self.forget(conn.0);
        self.endpoint.release(conn.0, self.now);
    }

    fn abort(&mut self, conn: UserConn) {
        self.forget(conn.0);
        self.endpoint.apply(conn.0, Connection::abort);
        self.endpoint.release(conn.0, self.now);
    }
}

pub(super) fn readiness(connection: &Connection, token: u32) -> Ready {
    let state = connection.state();
    let over = state == State::Closed;
    Ready {
        token,
        readable: connection.readable() > 0 || connection.is_finished(),
        writable: over || (state != State::SynSent && connection.writable() > 0),
        peer_closed: matches!(
            state,
            State::CloseWait | State::Closing | State::LastAck | State::TimeWait | State::Closed
        ),
        error: connection.ended().is_some(),
    }
}

#[cfg(test)]
mod tests {
    use tcpcost_link::memory::{self, Memory};
    use tcpcost_tcp::{AckPolicy, Config};

    use super::*;
    use crate::stack::SocketOptions;

    fn stack(device: Memory<Wire>, addresses: [&str; 2]) -> UserStack<Memory<Wire>> {
        let addresses = addresses.map(|address| address.parse::<IpAddr>().unwrap());
        let options = SocketOptions::default();
        UserStack::new(device, &addresses, &Config::default(), &options).unwrap()
    }

    /// True if a connection to `to` is accepted by a listener at `listened`.
    fn connects(listened: &str, to: &str) -> bool {
        let (near, far) = memory::pair::<Wire>(64);
        let mut client = stack(near, ["10.0.0.1", "fd00::1"]);
        let mut server = stack(far, ["10.0.0.2", "fd00::2"]);
        server.listen(listened.parse().unwrap(), 5, 0).unwrap();
        let conn = client.connect(to.parse().unwrap(), 1).unwrap();
        loop {
            client.poll(Some(Duration::ZERO)).unwrap();
            server.poll(Some(Duration::ZERO)).unwrap();
            match client.connected(conn) {
                Ok(()) => return true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
                    return false;
                }
            }
        }
    }

    /// Flushes a stack, as a workload does before its thread reads meters.
    fn hand_over<S: Stack>(stack: &mut S) {
        stack.flush().unwrap();
    }

    #[test]
    fn the_acks_of_a_late_batch_leave_before_the_thread_does_something_else() {
        let (near, far) = memory::pair::<Wire>(256);
        let mut client = stack(near, ["10.0.0.1", "fd00::1"]);
        let mut server = stack(far, ["10.0.0.2", "fd00::2"]);
        for one in [&mut client, &mut server] {
            one.config.ack = AckPolicy::Exactly {
                segments: 16,
                delay_max: Duration::from_millis(499),
            };
        }
        let at = "10.0.0.2:80".parse().unwrap();
        let listener = server.listen(at, 5, 0).unwrap();
        let to = client.connect(at, 1).unwrap();
        let from = (0..100).find_map(|_| {
            client.poll(Some(Duration::ZERO)).unwrap();
            server.poll(Some(Duration::ZERO)).unwrap();
            server.accept(listener, 2).ok()
        });
        let from = from.expect("it was let in").0;
        client.poll(Some(Duration::ZERO)).unwrap();
        let mut buffer = vec![0; 1 << 20];
        let mut segments_max = 0;
        for _ in 0..20 {
            // The sender has two turns, then the receiver has one.
            client.poll(Some(Duration::ZERO)).unwrap();
            let _full = client.write(to, &[1; 100_000]);
            client.poll(Some(Duration::ZERO)).unwrap();
            server.poll(Some(Duration::ZERO)).unwrap();
            let before = server.connection(from).unwrap().counters().segments_sent;
            let _nothing = server.read(from, &mut buffer);
            hand_over(&mut server);
            let connection = server.connection(from).unwrap();
            let waiting = connection.info(server.now).ack.unacked_segments;
            // Less than a step; a partial segment counts, too.
            assert!(waiting < 20, "{waiting} segments wait for their ACKs");
            let acks = connection.counters().segments_sent - before;
            segments_max = segments_max.max(acks * 16);
        }
        assert!(segments_max >= 64, "no batch was large: {segments_max}");
    }

    #[test]
    fn two_listeners_have_a_port_each_at_its_address() {
        let (near, far) = memory::pair::<Wire>(64);
        let mut client = stack(near, ["10.0.0.1", "fd00::1"]);
        let mut server = stack(far, ["10.0.0.2", "fd00::2"]);
        let at = ["10.0.0.2:80", "[fd00::2]:80"].map(|at| at.parse::<SocketAddr>().unwrap());
        let listeners = [0, 1].map(|n| server.listen(at[n], 5, n as u32).unwrap());
        let error = server.listen(at[1], 5, 2).err().unwrap().to_string();
        assert!(error.contains("in use"), "{error}");
        client.connect(at[1], 0).unwrap();
        let mut accept = |server: &mut UserStack<_>, from: usize| {
            let taken = (0..100).find_map(|_| {
                client.poll(Some(Duration::ZERO)).unwrap();
                server.poll(Some(Duration::ZERO)).unwrap();
                assert!(
                    server.accept(listeners[1 - from], 9).is_err(),
                    "not its own"
                );
                server.accept(listeners[from], 9).ok()
            });
            let remote = taken.expect("it was let in").1;
            client.connect(at[0], 1).unwrap();
            remote.ip()
        };
        assert_eq!(accept(&mut server, 1), "fd00::1".parse::<IpAddr>().unwrap());
        // Closing one listener leaves the other's port open.
        server.close_listener(listeners[1]);
        assert_eq!(
            accept(&mut server, 0),
            "10.0.0.1".parse::<IpAddr>().unwrap()
        );
    }

    #[test]
    fn a_listener_is_at_the_address_it_was_given_or_at_all() {
        let (four, six) = ("10.0.0.2:80", "[fd00::2]:80");
        assert!(connects(four, four) && !connects(four, six));
        assert!(connects(six, six) && !connects(six, four));
        for any in ["0.0.0.0:80", "[::]:80"] {
            assert!(connects(any, four) && connects(any, six), "{any}");
        }
    }
}
