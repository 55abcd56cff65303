//! The kernel's TCP: non-blocking sockets and one epoll.
//!
//! Readiness comes from epoll for every kind of source, because it has the fewest parts, so CPU can
//! be attributed exactly. Interrupted calls are not retried in the data path: a non-blocking call
//! that found work does not sleep, so no signal can interrupt it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{SocketFlags, SocketType, sockopt};
use tcpcost_knobs::{ReceiveWith, SendWith};

use crate::blocking::{BlockingConnector, BlockingListener, BlockingSocket};
use crate::error::{StackError, call};
use crate::stack::{Completions, Content, Moved, Pages, Ready, SocketOptions, Stack};

pub(crate) mod acks;
mod epoll;
pub(crate) mod options;
mod sink;
pub(crate) mod slab;
pub(crate) mod source;
pub(crate) mod tls;
mod zerocopy;

use epoll::Epoll;
use options::Prepared;
use slab::Slab;

pub use sink::KernelSink;
pub use source::KernelSource;

/// A connection of a [`KernelStack`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelConn(u32);

/// A listener of a [`KernelStack`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelListener(u32);

/// State of a connection: 12 bytes.
#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    /// Number of MSG_ZEROCOPY ids used and completed, modulo 2^32 as the kernel counts them.
    zerocopy_sent: u32,
    zerocopy_completed: u32,
}

/// The kernel's TCP, for one thread.
#[derive(Debug)]
pub struct KernelStack {
    epoll: Epoll,
    sockets: Slab<Socket>,
    listeners: Slab<OwnedFd>,
    options: Prepared,
    completions: Completions,
}

impl KernelStack {
    /// Makes a stack whose sockets have these options. The options are tried on a socket at once,
    /// so that a wrong one is an error here and not at the thousandth connection.
    ///
    /// # Errors
    /// An option that the kernel refuses; no epoll.
    pub fn new(options: &SocketOptions) -> Result<KernelStack, StackError> {
        Ok(KernelStack {
            epoll: Epoll::new().map_err(call("epoll_create1"))?,
            sockets: Slab::new(),
            listeners: Slab::new(),
            options: Prepared::new(options)?,
            completions: Completions::default(),
        })
    }

    /// Socket of a connection, so that a meter can read its TCP_INFO. `None` once closed.
    pub fn fd(&self, conn: KernelConn) -> Option<BorrowedFd<'_>> {
        self.sockets.get(conn.0).map(|socket| socket.fd.as_fd())
    }

    fn socket(&mut self, conn: KernelConn) -> io::Result<&mut Socket> {
        self.sockets
            .get_mut(conn.0)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    fn new_socket(&self, remote: &SocketAddr) -> Result<OwnedFd, StackError> {
        let family = rustix::net::SocketAddrAny::from(*remote).address_family();
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let protocol = self.options.protocol();
        let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, protocol)
            .map_err(call("socket"))?;
        self.options.apply(&fd)?;
        Ok(fd)
    }

    fn keep(&mut self, fd: OwnedFd) -> KernelConn {
        KernelConn(self.sockets.insert(Socket {
            fd,
            zerocopy_sent: 0,
            zerocopy_completed: 0,
        }))
    }
}

impl Stack for KernelStack {
    type Listener = KernelListener;
    type Conn = KernelConn;
    type Source = KernelSource;
    type Sink = KernelSink;

    const STANDS_STILL: bool = false;

    fn listen(
        &mut self,
        local: SocketAddr,
        backlog: u32,
        token: u32,
    ) -> Result<KernelListener, StackError> {
        // Accepted sockets inherit the listener's options, so accept needs no setsockopt.
        let ports = self.options.listen_ports();
        let fd = options::listen(local, backlog, ports, |local| self.new_socket(local))?;
        self.epoll
            .add_listener(fd.as_fd(), token)
            .map_err(call("epoll_ctl"))?;
        Ok(KernelListener(self.listeners.insert(fd)))
    }

    fn local_addr(&self, listener: KernelListener) -> Result<SocketAddr, StackError> {
        let fd = self
            .listeners
            .get(listener.0)
            .ok_or(rustix::io::Errno::BADF)
            .map_err(call("getsockname"))?;
        rustix::net::getsockname(fd)
            .and_then(SocketAddr::try_from)
            .map_err(call("getsockname"))
    }

    fn close_listener(&mut self, listener: KernelListener) {
        self.listeners.remove(listener.0);
    }

    fn accept(
        &mut self,
        listener: KernelListener,
        token: u32,
    ) -> io::Result<(KernelConn, SocketAddr)> {
        let listening = self
            .listeners
            .get(listener.0)
            .ok_or(rustix::io::Errno::BADF)?;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (fd, peer) = rustix::net::acceptfrom_with(listening, flags)?;
        let peer = peer.ok_or(rustix::io::Errno::NOTCONN)?;
        let peer = SocketAddr::try_from(peer)?;
        self.epoll.add_connection(fd.as_fd(), token)?;
        Ok((self.keep(fd), peer))
    }

    fn connect(&mut self, remote: SocketAddr, token: u32) -> Result<KernelConn, StackError> {
        let fd = self.new_socket(&remote)?;
        match rustix::net::connect(&fd, &remote) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error @ rustix::io::Errno::ADDRNOTAVAIL) => {
                return Err(call(
                    "connect (every local port is taken: add server ports, or widen net.ipv4.ip_local_port_range)",
                )(error));
            }
            Err(error) => return Err(call("connect")(error)),
        }
        // After connect, because epoll would report an unconnected socket as hung up at once.
        self.epoll
            .add_connection(fd.as_fd(), token)
            .map_err(call("epoll_ctl"))?;
        Ok(self.keep(fd))
    }

    fn connected(&mut self, conn: KernelConn) -> io::Result<()> {
        let socket = self.socket(conn)?;
        sockopt::socket_error(&socket.fd)??;
        Ok(())
    }

    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        self.epoll.wait(timeout)
    }

    fn flush(&mut self) -> io::Result<()> {
        // Each call has submitted its bytes.
        Ok(())
    }

    fn stop_telling(&mut self, conn: KernelConn) {
        // Otherwise the kernel would notify an unused epoll of each packet.
        if let Some(socket) = self.sockets.get(conn.0) {
            let _ = self.epoll.remove(socket.fd.as_fd());
        }
    }

    #[inline(always)]
    fn ready(&self, index: usize) -> Ready {
        self.epoll.ready(index)
    }

    fn read(&mut self, conn: KernelConn, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.socket(conn)?.fd, buffer)?)
    }

    fn write(&mut self, conn: KernelConn, bytes: &[u8]) -> io::Result<usize> {
        let flags = rustix::net::SendFlags::NOSIGNAL;
        Ok(rustix::net::send(&self.socket(conn)?.fd, bytes, flags)?)
    }

    fn source(
        &mut self,
        with: SendWith,
        content: &mut Content<'_>,
    ) -> Result<KernelSource, StackError> {
        KernelSource::new(with, content)
    }

    fn pages(&self, source: &KernelSource) -> Option<Pages> {
        source.pages()
    }

    #[inline(always)]
    fn send(
        &mut self,
        conn: KernelConn,
        source: &mut KernelSource,
        at: u64,
        len: usize,
        more: bool,
    ) -> io::Result<Moved> {
        let socket = self
            .sockets
            .get_mut(conn.0)
            .ok_or(rustix::io::Errno::BADF)?;
        source.send(socket, &mut self.completions, at, len, more)
    }

    fn sink(&mut self, with: ReceiveWith, read_bytes: usize) -> Result<KernelSink, StackError> {
        KernelSink::new(with, read_bytes)
    }

    #[inline(always)]
    fn receive(&mut self, conn: KernelConn, sink: &mut KernelSink) -> io::Result<Moved> {
        let socket = self.sockets.get(conn.0).ok_or(rustix::io::Errno::BADF)?;
        sink.receive(socket.fd.as_fd(), &mut self.completions)
    }

    #[inline(always)]
    fn received<'a>(&'a self, sink: &'a KernelSink, bytes: usize) -> Option<&'a [u8]> {
        sink.received(bytes)
    }

    fn finish(&mut self, conn: KernelConn) {
        if let Ok(socket) = self.socket(conn) {
            // An error means that the connection has ended, which reading reports.
            let _ = rustix::net::shutdown(&socket.fd, rustix::net::Shutdown::Write);
        }
    }

    fn cork(&mut self, conn: KernelConn, on: bool) -> io::Result<()> {
        Ok(sockopt::set_tcp_cork(&self.socket(conn)?.fd, on)?)
    }

    fn reap(&mut self, conn: KernelConn) -> io::Result<()> {
        let socket = self
            .sockets
            .get_mut(conn.0)
            .ok_or(rustix::io::Errno::BADF)?;
        if zerocopy::reap(socket, &mut self.completions)? == 0 {
            sockopt::socket_error(&socket.fd)??;
        }
        Ok(())
    }

    fn completions(&self) -> Completions {
        self.completions
    }

    fn blocking(&mut self, conn: KernelConn) -> io::Result<BlockingSocket> {
        let own = self.socket(conn)?.fd.try_clone()?;
        // Otherwise the kernel would notify an unused epoll of each packet.
        self.epoll.remove(
            self.sockets
                .get(conn.0)
                .ok_or(rustix::io::Errno::BADF)?
                .fd
                .as_fd(),
        )?;
        BlockingSocket::new(own)
    }

    fn blocking_listener(&mut self, listener: KernelListener) -> io::Result<BlockingListener> {
        let listening = self
            .listeners
            .get(listener.0)
            .ok_or(rustix::io::Errno::BADF)?;
        let own = listening.try_clone()?;
        // The first of several threads has removed it.
        let _ = self.epoll.remove(listening.as_fd());
        BlockingListener::new(own)
    }

    fn blocking_connector(&self) -> io::Result<BlockingConnector> {
        let options = self.options.clone();
        Ok(BlockingConnector::new(move |fd| options.apply(fd)))
    }

    fn close(&mut self, conn: KernelConn) {
        self.sockets.remove(conn.0);
    }

    fn abort(&mut self, conn: KernelConn) {
        if let Some(socket) = self.sockets.remove(conn.0) {
            // After a failure the close is an ordinary one.
            let _ = sockopt::set_socket_linger(&socket.fd, Some(Duration::ZERO));
        }
    }
}
