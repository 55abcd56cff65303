//! One of the two sockets of a connection, and its known state.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown, sockopt};

use crate::config::Config;

/// A socket that does not block. epoll reports each change of readiness once (EPOLLET), so
/// readiness is kept here until a call returns EAGAIN or less than asked for.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) socket: OwnedFd,
    pub(crate) is_tcp: bool,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// New bytes are not reported: there are bytes already, and the other side accepts none. Without this a relay woke up
    /// eight times for each MiB of a flow whose receiver was the limit.
    pub(crate) is_muted: bool,
    /// A short read does not prove that the queue is empty: the peer's end may be there already,
    /// which is not reported again, or urgent data, at whose mark a read ends.
    pub(crate) may_have_more: bool,
    /// The peer sent urgent data. splice(2) never passes its mark: splice(2) returns EAGAIN there,
    /// or 0 after the end has arrived (tcp_read_sock, net/ipv4/tcp.c).
    pub(crate) has_urgent: bool,
    /// Error of a call that showed that the peer is gone.
    pub(crate) gone: Option<ErrorKind>,
}

impl Side {
    pub(crate) fn new(socket: OwnedFd, is_tcp: bool) -> Side {
        Side {
            socket,
            is_tcp,
            readable: false,
            writable: false,
            is_muted: false,
            may_have_more: false,
            has_urgent: false,
            gone: None,
        }
    }

    /// Events to ask epoll for.
    pub(crate) fn interest(&self) -> EventFlags {
        let all =
            EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::PRI | EventFlags::ET;
        match self.is_muted {
            // New bytes wake up who waits for urgent ones, too (sock_def_readable, net/core/sock.c).
            true => all - EventFlags::IN - EventFlags::PRI,
            false => all,
        }
    }

    /// Notes the events that epoll reported. An error shows at the next call.
    pub(crate) fn on_event(&mut self, flags: EventFlags) {
        let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        self.readable |= broken || flags.intersects(EventFlags::IN | EventFlags::RDHUP);
        self.writable |= broken || flags.contains(EventFlags::OUT);
        self.may_have_more |= broken || flags.intersects(EventFlags::RDHUP | EventFlags::PRI);
        self.has_urgent |= flags.contains(EventFlags::PRI);
    }

    /// True if the peer reset the connection, or ended it with nothing left to read. Bytes that a
    /// peer sent before its end must still be delivered: the peer may wait for the answer.
    pub(crate) fn has_left(&self) -> bool {
        let mut byte = [0; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let is_broken = self.is_tcp && self.is_ready(PollFlags::ERR | PollFlags::HUP);
        is_broken || recv(&self.socket, &mut byte[..], flags).is_ok_and(|(_, seen)| seen == 0)
    }

    /// True if poll(2) reports one of `flags` now.
    pub(crate) fn is_ready(&self, flags: PollFlags) -> bool {
        let mut polled = [PollFd::new(&self.socket, flags)];
        poll(&mut polled, Some(&Timespec::default())).is_ok()
            && polled[0].revents().intersects(flags)
    }

    /// Sends a FIN: nothing more is sent to this side.
    pub(crate) fn finish(&self) {
        // An error means that the peer is gone, so there is nothing to finish.
        let _ = shutdown(&self.socket, Shutdown::Write);
    }

    /// Bytes in the send queue that the peer has not acknowledged. A unix socket has none: its
    /// peer's queue has them.
    pub(crate) fn unacknowledged(&self) -> usize {
        match self.is_tcp {
            true => outq(self.socket.as_fd()),
            false => 0,
        }
    }

    /// Bytes in the receive queue that were not read.
    pub(crate) fn unread(&self) -> usize {
        ioctl_fionread(&self.socket).map_or(0, |bytes| bytes as usize)
    }

    /// Closes with a RST. A unix socket has no reset: its peer sees an end.
    pub(crate) fn reset(self) {
        if self.is_tcp {
            let _ = sockopt::set_socket_linger(&self.socket, Some(std::time::Duration::ZERO));
        }
    }
}

/// Sets the options of a TCP socket. Connections inherit them from their listener (sk_clone_lock,
/// net/core/sock.c).
pub(crate) fn set_options(socket: &OwnedFd, config: &Config) -> Result<(), Errno> {
    if config.nodelay {
        sockopt::set_tcp_nodelay(socket, true)?;
    }
    if let Some(name) = &config.congestion_control {
        sockopt::set_tcp_congestion(socket, name)?;
    }
    if let Some(idle) = config.keepalive {
        sockopt::set_socket_keepalive(socket, true)?;
        // Whole seconds; after the first probe, a probe each tenth of that time.
        sockopt::set_tcp_keepidle(socket, idle)?;
        sockopt::set_tcp_keepintvl(socket, (idle / 10).max(std::time::Duration::from_secs(1)))?;
    }
    // An urgent byte stays in its place in the stream.
    sockopt::set_socket_oobinline(socket, true)
}

/// Sets buffer sizes. For TCP this must happen before the handshake, because they decide the window
/// scale.
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
