//! The control connection of a session.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::net::timers;
use crate::protocol::Message;

/// Both addresses of the control connection.
pub struct Ends {
    pub local: SocketAddr,
    pub peer: SocketAddr,
}

impl Ends {
    /// Reads both addresses of a connection. `None` if it has ended already.
    pub fn of(stream: &TcpStream) -> Option<Ends> {
        Some(Ends {
            local: stream.local_addr().ok()?,
            peer: stream.peer_addr().ok()?,
        })
    }
}

/// Control connection during a test.
pub struct Control {
    stream: Arc<TcpStream>,
}

impl Control {
    /// Sets the options of an accepted connection.
    pub fn new(stream: Arc<TcpStream>) -> Control {
        let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
        let _ = stream.set_nodelay(true);
        Control { stream }
    }

    /// Receives a whole message within a time. `None` at the end or on any error.
    pub fn receive(&mut self, within: Duration) -> Option<Message> {
        let stream = Arc::clone(&self.stream);
        // A message may arrive byte by byte, so the limit is on the whole message, not on a call.
        let _timer = timers::at(Instant::now() + within, move || {
            let _ = stream.shutdown(Shutdown::Both);
            None
        });
        Message::receive(&mut &*self.stream).ok().flatten()
    }

    /// Socket for poll. Any event while a test runs means the end.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// True if the message was sent.
    pub fn send(&mut self, message: &Message) -> bool {
        message.send(&mut &*self.stream).is_ok()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
