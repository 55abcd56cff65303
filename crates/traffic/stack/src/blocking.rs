//! The kernel's TCP as blocking sockets, for a thread per connection: each call waits in the
//! kernel, without polls.
//!
//! A call waits for at most [`WAIT`], so that a thread sees that it must stop. Then it returns
//! `WouldBlock`, like a call of a non-blocking socket.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::error::{StackError, call};

/// Value of SO_RCVTIMEO and SO_SNDTIMEO.
const WAIT: Duration = Duration::from_millis(100);

/// A connection with a thread of its own.
#[derive(Debug)]
pub struct BlockingSocket(OwnedFd);

/// A listener that several threads may accept from.
#[derive(Debug)]
pub struct BlockingListener(OwnedFd);

/// Makes connections.
#[derive(Clone)]
pub struct BlockingConnector(Arc<SetOptions>);

/// Sets the options of a new socket.
type SetOptions = dyn Fn(&OwnedFd) -> Result<(), StackError> + Send + Sync;

impl std::fmt::Debug for BlockingConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BlockingConnector")
    }
}

impl BlockingSocket {
    /// Converts the descriptor of a connection.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<BlockingSocket> {
        let_wait(&fd)?;
        rustix::io::ioctl_fionbio(&fd, false)?;
        Ok(BlockingSocket(fd))
    }

    /// Calls send(2).
    ///
    /// # Errors
    /// `WouldBlock` after 100 ms; the connection's error.
    #[inline]
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    /// Calls recv(2); 0 is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` after 100 ms; the connection's error.
    #[inline]
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (bytes, _) = rustix::net::recv(&self.0, buffer, RecvFlags::empty())?;
        Ok(bytes)
    }

    /// Closes by a reset.
    pub fn abort(self) {
        // After a failure the close is an ordinary one.
        let _ = rustix::net::sockopt::set_socket_linger(&self.0, Some(Duration::ZERO));
    }
}

impl BlockingListener {
    pub(crate) fn new(fd: OwnedFd) -> io::Result<BlockingListener> {
        // Connections inherit the listener's timeouts.
        let_wait(&fd)?;
        rustix::io::ioctl_fionbio(&fd, false)?;
        Ok(BlockingListener(fd))
    }

    /// Calls accept(2).
    ///
    /// # Errors
    /// `WouldBlock` after 100 ms; errors of connections that have gone.
    pub fn accept(&self) -> io::Result<(BlockingSocket, SocketAddr)> {
        let (fd, peer) = rustix::net::acceptfrom_with(&self.0, SocketFlags::CLOEXEC)?;
        let peer = peer.ok_or(rustix::io::Errno::NOTCONN)?;
        Ok((BlockingSocket(fd), SocketAddr::try_from(peer)?))
    }
}

impl BlockingConnector {
    pub(crate) fn new(
        set: impl Fn(&OwnedFd) -> Result<(), StackError> + Send + Sync + 'static,
    ) -> BlockingConnector {
        BlockingConnector(Arc::new(set))
    }

    /// Calls socket(2), setsockopt(2), connect(2).
    ///
    /// # Errors
    /// Errors of these calls.
    pub fn connect(&self, remote: SocketAddr) -> Result<BlockingSocket, StackError> {
        let family = rustix::net::SocketAddrAny::from(remote).address_family();
        let flags = SocketFlags::CLOEXEC;
        let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)
            .map_err(call("socket"))?;
        (self.0)(&fd)?;
        // SO_SNDTIMEO is not set: a connect that takes longer has not failed, and a blocked send
        // ends when the peer ends.
        set_socket_timeout(&fd, Timeout::Recv, Some(WAIT))
            .map_err(call("setsockopt SO_RCVTIMEO"))?;
        rustix::net::connect(&fd, &remote).map_err(call("connect"))?;
        Ok(BlockingSocket(fd))
    }
}

fn let_wait(fd: &OwnedFd) -> io::Result<()> {
    for timeout in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(fd, timeout, Some(WAIT))?;
    }
    Ok(())
}
