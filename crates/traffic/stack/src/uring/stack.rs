//! [`Stack`] by io_uring.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendFlags, sockopt};
use tcpcost_knobs::{ReceiveWith, SendWith};

use super::{
    Kind, Listening, Place, RingConn, RingListener, RingSink, RingSource, RingStack, Sending,
};
use crate::error::{StackError, call};
use crate::kernel::options;
use crate::kernel::source::memory;
use crate::ring::Ring;
use crate::stack::{Completions, Content, Moved, Pages, Ready, Stack};

impl Stack for RingStack {
    type Listener = RingListener;
    type Conn = RingConn;
    type Source = RingSource;
    type Sink = RingSink;

    const STANDS_STILL: bool = false;

    fn listen(
        &mut self,
        local: SocketAddr,
        backlog: u32,
        token: u32,
    ) -> Result<RingListener, StackError> {
        let ports = self.options.listen_ports();
        let fd = options::listen(local, backlog, ports, |local| self.new_socket(local))?;
        let index = self.listeners.insert(Listening {
            fd,
            token,
            came: VecDeque::new(),
            error: None,
            accepting: false,
            closing: false,
        });
        if !self.listening.contains(&index) {
            self.listening.push(index);
        }
        Ok(RingListener(index))
    }

    fn local_addr(&self, listener: RingListener) -> Result<SocketAddr, StackError> {
        let listening = self
            .listeners
            .get(listener.0)
            .ok_or(Errno::BADF)
            .map_err(call("getsockname"))?;
        rustix::net::getsockname(&listening.fd)
            .and_then(SocketAddr::try_from)
            .map_err(call("getsockname"))
    }

    fn close_listener(&mut self, listener: RingListener) {
        let Some(listening) = self.listeners.get_mut(listener.0) else {
            return;
        };
        if listening.accepting {
            listening.closing = true;
            listening.came.clear();
            Kind::Accept.cancel(&mut self.ring, listener.0);
        } else {
            self.listeners.remove(listener.0);
        }
    }

    fn accept(&mut self, listener: RingListener, token: u32) -> io::Result<(RingConn, SocketAddr)> {
        let listening = self.listeners.get_mut(listener.0).ok_or(Errno::BADF)?;
        let Some(fd) = listening.came.pop_front() else {
            let error = listening.error.take().unwrap_or(Errno::AGAIN);
            return Err(error.into());
        };
        // A multishot accept, which many connections share, does not report the peer's address.
        let peer = rustix::net::getpeername(&fd).map_err(|_| Errno::CONNABORTED)?;
        let peer = peer.ok_or(Errno::CONNABORTED)?;
        let peer = SocketAddr::try_from(peer)?;
        let index = self.keep(fd, token);
        self.ask(index);
        self.tell(index, |ready| ready.writable = true);
        Ok((RingConn(index), peer))
    }

    fn connect(&mut self, remote: SocketAddr, token: u32) -> Result<RingConn, StackError> {
        let fd = self.new_socket(&remote)?;
        let index = self.keep(fd, token);
        if let Some(socket) = self.sockets.get_mut(index) {
            socket.connecting = true;
            let token = Kind::Connect.token(index);
            self.ring.connect(&socket.fd, &remote, token);
        }
        Ok(RingConn(index))
    }

    fn connected(&mut self, conn: RingConn) -> io::Result<()> {
        match self.socket(conn)?.error.take() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        self.look_at_listeners();
        let is_urgent = self.hurries || !self.untold.is_empty() || self.has_arrivals();
        self.enter(match is_urgent {
            true => Some(Duration::ZERO),
            false => timeout,
        })?;
        self.ready.clear();
        std::mem::swap(&mut self.ready, &mut self.untold);
        for &index in &self.listening {
            if let Some(listening) = self.listeners.get(index).filter(|one| one.has_arrivals()) {
                self.ready.push(Ready {
                    token: listening.token,
                    readable: true,
                    writable: false,
                    peer_closed: false,
                    error: false,
                });
            }
        }
        Ok(self.ready.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.enter(Some(Duration::ZERO))?;
        match self.ring.is_submitted() {
            true => Ok(()),
            // Rests of sends that found no room.
            false => self.enter(Some(Duration::ZERO)),
        }
    }

    #[inline(always)]
    fn ready(&self, index: usize) -> Ready {
        self.ready[index]
    }

    fn read(&mut self, conn: RingConn, buffer: &mut [u8]) -> io::Result<usize> {
        match self.take(conn, buffer.len())? {
            Some((
                Place::Ring {
                    buffer: from,
                    from: at,
                },
                moved,
            )) => {
                let bytes = self.ring.bytes(from, at..at + moved.bytes);
                buffer[..moved.bytes].copy_from_slice(bytes);
                Ok(moved.bytes)
            }
            Some((Place::Own, moved)) => Ok(moved.bytes),
            None => self.take_itself(conn, buffer),
        }
    }

    fn write(&mut self, conn: RingConn, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        Ok(rustix::net::send(&self.socket(conn)?.fd, bytes, flags)?)
    }

    fn source(
        &mut self,
        with: SendWith,
        content: &mut Content<'_>,
    ) -> Result<RingSource, StackError> {
        if with != SendWith::Send {
            return Err(StackError::Unsupported {
                option: "send_with",
                reason: format!("a ring sends by send, not by {}", with.word()),
            });
        }
        let source = Arc::new(memory(content)?);
        self.ring.keep(&source);
        Ok(RingSource(source))
    }

    fn pages(&self, _: &RingSource) -> Option<Pages> {
        None
    }

    #[inline(always)]
    fn send(
        &mut self,
        conn: RingConn,
        source: &mut RingSource,
        at: u64,
        len: usize,
        more: bool,
    ) -> io::Result<Moved> {
        let socket = self.sockets.get_mut(conn.0).ok_or(Errno::BADF)?;
        if let Some(error) = socket.error.take() {
            socket.has_ended = true;
            return Err(error.into());
        }
        match &mut socket.sending {
            Sending::No => {}
            Sending::Queued { has_more, .. } => {
                *has_more = true;
                self.hurries = true;
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            Sending::Rest(_) => return Err(io::ErrorKind::ResourceBusy.into()),
        }
        let piece = Ring::piece(&source.0, at, len, more)?;
        socket.sending = Sending::Queued {
            piece,
            has_more: false,
        };
        let token = Kind::Send.token(conn.0);
        self.ring.send(&socket.fd, piece, token);
        self.queued.push(conn.0);
        // Another send may follow after this one is submitted; a caller that has one gets
        // `ResourceBusy`, which notes that.
        Ok(Moved {
            bytes: len,
            again: true,
        })
    }

    fn sink(&mut self, with: ReceiveWith, read_bytes: usize) -> Result<RingSink, StackError> {
        if with != ReceiveWith::Read {
            return Err(StackError::Unsupported {
                option: "receive_with",
                reason: format!("a ring receives into its buffers, not by {}", with.word()),
            });
        }
        Ok(RingSink {
            own: vec![0; read_bytes],
            last: Place::Own,
        })
    }

    #[inline(always)]
    fn receive(&mut self, conn: RingConn, sink: &mut RingSink) -> io::Result<Moved> {
        match self.take(conn, sink.own.len())? {
            Some((place, moved)) => {
                sink.last = place;
                Ok(moved)
            }
            None => {
                sink.last = Place::Own;
                let bytes = self.take_itself(conn, &mut sink.own)?;
                Ok(Moved {
                    bytes,
                    again: bytes > 0,
                })
            }
        }
    }

    #[inline(always)]
    fn received<'a>(&'a self, sink: &'a RingSink, bytes: usize) -> Option<&'a [u8]> {
        match sink.last {
            Place::Own => sink.own.get(..bytes),
            Place::Ring { buffer, from } => Some(self.ring.bytes(buffer, from..from + bytes)),
        }
    }

    fn finish(&mut self, conn: RingConn) {
        let Ok(socket) = self.socket(conn) else {
            return;
        };
        socket.finishes = true;
        match socket.sending {
            Sending::No => self.after_send(conn.0),
            Sending::Queued { .. } => self.hurries = true,
            Sending::Rest(_) => {}
        }
    }

    /// Not supported: bytes that TCP_CORK would hold or release may not be submitted yet.
    fn cork(&mut self, _: RingConn, _: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn reap(&mut self, conn: RingConn) -> io::Result<()> {
        self.connected(conn)
    }

    fn completions(&self) -> Completions {
        Completions {
            ring_calls: Some(self.ring.calls() + self.reads),
            ..Completions::default()
        }
    }

    fn close(&mut self, conn: RingConn) {
        self.end(conn, false);
    }

    fn abort(&mut self, conn: RingConn) {
        if let Ok(socket) = self.socket(conn) {
            // After a failure the close is an ordinary one.
            let _ = sockopt::set_socket_linger(&socket.fd, Some(Duration::ZERO));
        }
        self.end(conn, true);
    }
}
