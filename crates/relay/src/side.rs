//! One of a connection's two sockets, and what is known of it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown, sockopt};

use crate::config::Config;

/// A socket that does not block. What the kernel says of it is told once at each change (EPOLLET), so what it said
/// is kept here until a call says otherwise.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) socket: OwnedFd,
    pub(crate) is_tcp: bool,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// A short read does not say that the queue is empty: its end may be there already, of which nothing else is told,
    /// or urgent data, at whose mark a read ends.
    pub(crate) may_have_more: bool,
    /// Its peer sent urgent data. splice(2) never passes the mark: it says EAGAIN there, or 0 once the end has come
    /// (tcp_read_sock, net/ipv4/tcp.c).
    pub(crate) has_urgent: bool,
    /// A call said that the other end is gone.
    pub(crate) gone: Option<Errno>,
}

impl Side {
    pub(crate) fn new(socket: OwnedFd, is_tcp: bool) -> Side {
        Side {
            socket,
            is_tcp,
            readable: false,
            writable: false,
            may_have_more: false,
            has_urgent: false,
            gone: None,
        }
    }

    /// What is asked of epoll.
    pub(crate) fn interest() -> EventFlags {
        EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::PRI | EventFlags::ET
    }

    /// What epoll told. Errors show at the next call.
    pub(crate) fn on_event(&mut self, flags: EventFlags) {
        let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        self.readable |= broken || flags.intersects(EventFlags::IN | EventFlags::RDHUP);
        self.writable |= broken || flags.contains(EventFlags::OUT);
        self.may_have_more |= broken || flags.intersects(EventFlags::RDHUP | EventFlags::PRI);
        self.has_urgent |= flags.contains(EventFlags::PRI);
    }

    /// Whether its peer broke off, or ended without having said anything that is not read yet. What a peer said before
    /// its end is still to be delivered: it may wait for the answer.
    pub(crate) fn has_left(&self) -> bool {
        let mut byte = [0; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let is_broken = self.is_tcp && self.is_ready(PollFlags::ERR | PollFlags::HUP);
        is_broken || recv(&self.socket, &mut byte[..], flags).is_ok_and(|(_, seen)| seen == 0)
    }

    /// Whether one of these is so now.
    pub(crate) fn is_ready(&self, flags: PollFlags) -> bool {
        let mut polled = [PollFd::new(&self.socket, flags)];
        poll(&mut polled, Some(&Timespec::default())).is_ok()
            && polled[0].revents().intersects(flags)
    }

    /// No more is sent there: a FIN.
    pub(crate) fn finish(&self) {
        // Of one that is gone nothing is to be finished.
        let _ = shutdown(&self.socket, Shutdown::Write);
    }

    /// Bytes that it was given and its peer has not acknowledged, or its reader not read.
    pub(crate) fn unacknowledged(&self) -> usize {
        outq(self.socket.as_fd())
    }

    /// Bytes that it sent and nobody has read.
    pub(crate) fn unread(&self) -> usize {
        ioctl_fionread(&self.socket).map_or(0, |bytes| bytes as usize)
    }

    /// Closes with a RST. A unix socket knows no such thing: its peer sees an end.
    pub(crate) fn reset(self) {
        if self.is_tcp {
            let _ = sockopt::set_socket_linger(&self.socket, Some(std::time::Duration::ZERO));
        }
    }
}

/// Options of a TCP socket. Set at a listener, those who come by it inherit them (sk_clone_lock, net/core/sock.c).
pub(crate) fn set_options(socket: &OwnedFd, config: &Config) -> Result<(), Errno> {
    if config.nodelay {
        sockopt::set_tcp_nodelay(socket, true)?;
    }
    if let Some(name) = &config.congestion_control {
        sockopt::set_tcp_congestion(socket, name)?;
    }
    if let Some(idle) = config.keepalive {
        sockopt::set_socket_keepalive(socket, true)?;
        // Whole seconds; a probe each tenth of it after that.
        sockopt::set_tcp_keepidle(socket, idle)?;
        sockopt::set_tcp_keepintvl(socket, (idle / 10).max(std::time::Duration::from_secs(1)))?;
    }
    // An urgent byte stays in its place in the stream.
    sockopt::set_socket_oobinline(socket, true)
}

/// Buffer sizes, which for TCP must be set before the handshake: they decide the window's scale.
pub(crate) fn set_buffers(socket: &OwnedFd, config: &Config) -> Result<(), Errno> {
    if let Some(bytes) = config.send_buffer {
        sockopt::set_socket_send_buffer_size(socket, bytes)?;
    }
    if let Some(bytes) = config.receive_buffer {
        sockopt::set_socket_recv_buffer_size(socket, bytes)?;
    }
    Ok(())
}

#[allow(unsafe_code, reason = "rustix has no SIOCOUTQ")]
fn outq(socket: BorrowedFd<'_>) -> usize {
    use std::os::fd::AsRawFd;
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (the same as TIOCOUTQ) writes one int.
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    match outcome {
        0 => usize::try_from(bytes).unwrap_or(0),
        _ => 0,
    }
}
