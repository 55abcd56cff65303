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
    /// Of this connection; `None` where it has ended already.
    pub fn of(stream: &TcpStream) -> Option<Ends> {
        Some(Ends {
            local: stream.local_addr().ok()?,
            peer: stream.peer_addr().ok()?,
        })
    }
}

/// The connection, as the test sees it.
pub struct Control {
    stream: Arc<TcpStream>,
}

impl Control {
    /// Of a connection that was taken.
    pub fn new(stream: Arc<TcpStream>) -> Control {
        let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
        let _ = stream.set_nodelay(true);
        Control { stream }
    }

    /// A whole message, in this time; `None` at the end, however that came.
    pub fn receive(&mut self, within: Duration) -> Option<Message> {
        let stream = Arc::clone(&self.stream);
        // A message may come byte by byte, so the time is not of a call.
        let _timer = timers::at(Instant::now() + within, move || {
            let _ = stream.shutdown(Shutdown::Both);
            None
        });
        Message::receive(&mut &*self.stream).ok().flatten()
    }

    /// To be polled: what comes while a test runs is an end.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Whether it could be sent.
    pub fn send(&mut self, message: &Message) -> bool {
        message.send(&mut &*self.stream).is_ok()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
