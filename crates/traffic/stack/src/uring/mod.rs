//! The kernel's TCP by io_uring: a ring for a thread, in place of epoll and of a system call for
//! each send and receive.
//!
//! Accept and receive are multishot: one operation for each listener and connection. Received bytes
//! come in provided buffers. Sends are gathered and submitted together by the call that waits, one
//! io_uring_enter(2) for each turn of the thread's loop. If a send finds no room for all its bytes,
//! the kernel continues it; until then its connection takes no more.
//!
//! Bytes that a send has taken count as sent, like bytes in a send buffer. Close lets the send end
//! first. The kernel considers bytes in a buffer as read, so a close with unread bytes is not the
//! reset that it is with the other stacks.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use memmap2::Mmap;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, SocketType};

use crate::error::{StackError, call};
use crate::kernel::options::Prepared;
use crate::kernel::slab::Slab;
use crate::ring::{Piece, Ring, RingCompletion, accepted};
use crate::stack::{Moved, Ready, SocketOptions};

mod stack;

/// Kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Accepts connections of a listener (multishot).
    Accept,
    Connect,
    /// Receives bytes of a connection (multishot).
    Receive,
    /// Completes once when a connection is readable.
    Poll,
    /// Sends as much as there is room for; a complete send has no completion.
    Send,
    /// Sends the rest of a [`Kind::Send`], waiting for room.
    SendRest,
    Cancel,
}

impl Kind {
    /// Token of the operation of a connection or listener.
    #[inline]
    fn token(self, index: u32) -> u64 {
        u64::from(index) << 8 | self as u64
    }

    /// Cancels the operation of a connection or listener.
    fn cancel(self, ring: &mut Ring, index: u32) {
        ring.cancel(self.token(index), Kind::Cancel.token(index));
    }
}

fn kind_and_index(token: u64) -> (Kind, u32) {
    const KINDS: [Kind; 7] = [
        Kind::Accept,
        Kind::Connect,
        Kind::Receive,
        Kind::Poll,
        Kind::Send,
        Kind::SendRest,
        Kind::Cancel,
    ];
    (KINDS[(token & 0xff) as usize], (token >> 8) as u32)
}

/// A connection of a [`RingStack`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingConn(u32);

/// A listener of a [`RingStack`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingListener(u32);

/// Payload that a [`RingStack`] sends; its content never changes once made.
#[derive(Debug)]
pub struct RingSource(Arc<Mmap>);

/// Destination of payload that a [`RingStack`] receives: the ring's buffers, or its own buffer if
/// the ring had none free.
#[derive(Debug)]
pub struct RingSink {
    own: Vec<u8>,
    last: Place,
}

/// Place of received bytes.
#[derive(Debug, Clone, Copy)]
enum Place {
    Own,
    Ring { buffer: u16, from: usize },
}

/// A connection. Its descriptor is closed once none of its operations is in flight, so that no
/// entry of the ring refers to another file with the same number.
#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    token: u32,
    /// Buffers with received bytes, oldest and newest; those between are linked in [`Buffers`].
    oldest: Option<u16>,
    newest: u16,
    /// Bytes of the oldest buffer that were taken.
    taken: u32,
    receiving: Option<Kind>,
    sending: Sending,
    connecting: bool,
    /// True if the peer has closed its direction.
    has_ended: bool,
    /// Error that was not reported yet.
    error: Option<Errno>,
    /// True if a FIN must follow the current send.
    finishes: bool,
    closing: bool,
}

#[derive(Debug, Clone, Copy)]
enum Sending {
    No,
    /// Gathered, not submitted; `has_more`: the caller has more to send.
    Queued {
        piece: Piece,
        has_more: bool,
    },
    /// The kernel continues it when there is room.
    Rest(Piece),
}

/// A listener.
#[derive(Debug)]
struct Listening {
    fd: OwnedFd,
    token: u32,
    came: VecDeque<OwnedFd>,
    error: Option<Errno>,
    accepting: bool,
    closing: bool,
}

/// Number of bytes in each buffer, and the next buffer of its connection.
#[derive(Debug)]
struct Buffers {
    bytes: Vec<u32>,
    next: Vec<Option<u16>>,
}

/// The kernel's TCP by io_uring, for one thread: the first that polls, connects, or pushes more
/// operations than the ring has entries.
#[derive(Debug)]
pub struct RingStack {
    ring: Ring,
    sockets: Slab<Socket>,
    listeners: Slab<Listening>,
    /// Indices that listeners have or had.
    listening: Vec<u32>,
    buffers: Buffers,
    /// Buffer that the next receive returns to the ring.
    last: Option<u16>,
    /// Connections with a gathered send.
    queued: Vec<u32>,
    /// True if the next poll must not wait, because a gathered send must be submitted.
    hurries: bool,
    ready: Vec<Ready>,
    /// Readiness that the next poll reports.
    untold: Vec<Ready>,
    completions: Vec<RingCompletion>,
    options: Prepared,
    /// Receives for which the ring had no buffer.
    reads: u64,
}

/// Reason why io_uring is not available on this host; `None` if it is.
pub fn uring_refusal() -> Option<String> {
    let StackError::Call { what, error } = Ring::new(1, 4096).err()? else {
        return None;
    };
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    Some(match disabled.as_deref().map(str::trim_end) {
        Ok(level @ ("1" | "2")) if error.kind() == io::ErrorKind::PermissionDenied => {
            format!("{what}: {error} (sysctl kernel.io_uring_disabled is {level})")
        }
        _ => format!("{what}: {error} (Linux 6.1 and newer, where seccomp allows it)"),
    })
}

impl RingStack {
    /// Makes a stack whose sockets have these options, for about `connections` connections, with
    /// receives of up to `read_bytes`.
    ///
    /// # Errors
    /// An option that the kernel refuses; no io_uring.
    pub fn new(
        options: &SocketOptions,
        connections: usize,
        read_bytes: usize,
    ) -> Result<RingStack, StackError> {
        let count = connections
            .clamp(BUFFERS_MIN, BUFFERS_MAX)
            .next_power_of_two();
        // A mapping larger than memory would fail, so large receives have few buffers.
        let count = count.min((BUFFER_BYTES_MAX / read_bytes.max(1)).max(2));
        let count = 1 << count.ilog2();
        Ok(RingStack {
            ring: Ring::new(count as u16, read_bytes)?,
            sockets: Slab::new(),
            listeners: Slab::new(),
            listening: Vec::new(),
            buffers: Buffers {
                bytes: vec![0; count],
                next: vec![None; count],
            },
            last: None,
            queued: Vec::with_capacity(connections),
            hurries: false,
            ready: Vec::with_capacity(2 * connections),
            untold: Vec::with_capacity(2 * connections),
            completions: Vec::with_capacity(2 * connections),
            options: Prepared::new(options)?,
            reads: 0,
        })
    }

    /// Socket of a connection, so that a meter can read its TCP_INFO. `None` once closed.
    pub fn fd(&self, conn: RingConn) -> Option<BorrowedFd<'_>> {
        let socket = self.sockets.get(conn.0).filter(|socket| !socket.closing)?;
        Some(socket.fd.as_fd())
    }

    /// Makes a blocking socket. The ring never blocks in it, but with a non-blocking socket it
    /// would not wait for room.
    fn new_socket(&self, remote: &SocketAddr) -> Result<OwnedFd, StackError> {
        let family = rustix::net::SocketAddrAny::from(*remote).address_family();
        let protocol = self.options.protocol();
        let fd =
            rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, protocol)
                .map_err(call("socket"))?;
        self.options.apply(&fd)?;
        Ok(fd)
    }

    fn keep(&mut self, fd: OwnedFd, token: u32) -> u32 {
        self.sockets.insert(Socket {
            fd,
            token,
            oldest: None,
            newest: 0,
            taken: 0,
            receiving: None,
            sending: Sending::No,
            connecting: false,
            has_ended: false,
            error: None,
            finishes: false,
            closing: false,
        })
    }

    fn socket(&mut self, conn: RingConn) -> io::Result<&mut Socket> {
        Ok(self.sockets.get_mut(conn.0).ok_or(Errno::BADF)?)
    }

    /// Asks for bytes: into the ring's buffers, or, if none is free, for a readiness report.
    fn ask(&mut self, index: u32) {
        let Some(socket) = self.sockets.get_mut(index) else {
            return;
        };
        let kind = match self.ring.free() > 0 {
            true => Kind::Receive,
            false => Kind::Poll,
        };
        socket.receiving = Some(kind);
        match kind {
            Kind::Receive => self.ring.receive_all(&socket.fd, kind.token(index)),
            _ => self.ring.poll(&socket.fd, kind.token(index)),
        }
    }

    /// Takes up to `most` received bytes of a connection from the ring's buffers. `None`: there are
    /// none, and no receive is in flight, so the caller may read the socket itself.
    fn take(&mut self, conn: RingConn, most: usize) -> io::Result<Option<(Place, Moved)>> {
        if let Some(last) = self.last.take() {
            self.ring.give_back(last);
        }
        let socket = self.sockets.get_mut(conn.0).ok_or(Errno::BADF)?;
        let Some(buffer) = socket.oldest else {
            if let Some(error) = socket.error.take() {
                // The connection has nothing more to report.
                socket.has_ended = true;
                return Err(error.into());
            }
            if socket.has_ended {
                let end = Moved {
                    bytes: 0,
                    again: false,
                };
                return Ok(Some((Place::Own, end)));
            }
            return match socket.receiving {
                Some(_) => Err(io::ErrorKind::WouldBlock.into()),
                None => Ok(None),
            };
        };
        let from = socket.taken as usize;
        let there = self.buffers.bytes[usize::from(buffer)] as usize - from;
        let bytes = there.min(most);
        if bytes == there {
            socket.oldest = self.buffers.next[usize::from(buffer)];
            socket.taken = 0;
            self.last = Some(buffer);
        } else {
            socket.taken += bytes as u32;
        }
        let has_news = socket.has_ended || socket.error.is_some();
        let moved = Moved {
            bytes,
            again: socket.oldest.is_some() || socket.receiving.is_none() || has_news,
        };
        Ok(Some((Place::Ring { buffer, from }, moved)))
    }

    /// Reads the socket itself, if the ring had no buffer for it.
    fn take_itself(&mut self, conn: RingConn, into: &mut [u8]) -> io::Result<usize> {
        self.reads += 1;
        let socket = self.socket(conn)?;
        match rustix::net::recv(&socket.fd, into, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => {
                socket.has_ended = true;
                Ok(0)
            }
            Ok((_, bytes)) => Ok(bytes),
            Err(Errno::AGAIN) => {
                self.ask(conn.0);
                Err(io::ErrorKind::WouldBlock.into())
            }
            Err(error) => {
                socket.has_ended = true;
                Err(error.into())
            }
        }
    }

    /// Submits gathered operations and handles completions.
    fn enter(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let mut completions = std::mem::take(&mut self.completions);
        completions.clear();
        let entered = self.ring.enter(timeout, &mut completions);
        for completion in &completions {
            self.on_completion(*completion);
        }
        self.completions = completions;
        if entered? {
            self.after_sends();
        }
        Ok(())
    }

    /// Ends the gathered sends without a completion, which were complete.
    fn after_sends(&mut self) {
        self.hurries = false;
        let mut queued = std::mem::take(&mut self.queued);
        for index in queued.drain(..) {
            let Some(socket) = self.sockets.get_mut(index) else {
                continue;
            };
            if let Sending::Queued { has_more, .. } = socket.sending {
                socket.sending = Sending::No;
                if has_more {
                    self.tell(index, |ready| ready.writable = true);
                }
                self.after_send(index);
            }
        }
        self.queued = queued;
    }

    /// Handles the end of a connection's send: sends the FIN, or closes, if one of them waits.
    fn after_send(&mut self, index: u32) {
        let Some(socket) = self.sockets.get_mut(index) else {
            return;
        };
        if std::mem::take(&mut socket.finishes) {
            // An error means that the connection has ended, which receiving reports.
            let _ = rustix::net::shutdown(&socket.fd, rustix::net::Shutdown::Write);
        }
        self.settle(index);
    }

    fn tell(&mut self, index: u32, what: impl FnOnce(&mut Ready)) {
        let Some(socket) = self.sockets.get(index).filter(|socket| !socket.closing) else {
            return;
        };
        let mut ready = Ready {
            token: socket.token,
            readable: false,
            writable: false,
            peer_closed: false,
            error: false,
        };
        what(&mut ready);
        self.untold.push(ready);
    }

    fn on_completion(&mut self, completion: RingCompletion) {
        let (kind, index) = kind_and_index(completion.token);
        match kind {
            Kind::Accept => self.on_accept(index, completion),
            Kind::Connect => self.on_connect(index, completion.result),
            Kind::Receive => self.on_receive(index, completion),
            Kind::Poll => {
                if let Some(socket) = self.sockets.get_mut(index) {
                    socket.receiving = None;
                }
                self.tell(index, |ready| ready.readable = true);
                self.settle(index);
            }
            Kind::Send | Kind::SendRest => self.on_send(index, completion.result),
            Kind::Cancel => {}
        }
    }

    fn on_accept(&mut self, index: u32, completion: RingCompletion) {
        let came = accepted(completion.result);
        let Some(listening) = self.listeners.get_mut(index) else {
            return;
        };
        listening.accepting = completion.goes_on;
        match came {
            Ok(fd) => listening.came.push_back(fd),
            Err(libc::ECANCELED) => {}
            Err(error) => listening.error = Some(Errno::from_raw_os_error(error)),
        }
        if listening.closing && !listening.accepting {
            self.listeners.remove(index);
        }
    }

    fn on_connect(&mut self, index: u32, result: i32) {
        let Some(socket) = self.sockets.get_mut(index) else {
            return;
        };
        socket.connecting = false;
        if socket.closing {
            return self.settle(index);
        }
        match result {
            0 => {
                self.ask(index);
                self.tell(index, |ready| ready.writable = true);
            }
            error => self.fail(index, error),
        }
    }

    fn fail(&mut self, index: u32, error: i32) {
        if let Some(socket) = self.sockets.get_mut(index) {
            socket.error = Some(Errno::from_raw_os_error(-error));
        }
        self.tell(index, |ready| {
            (ready.readable, ready.writable, ready.error) = (true, true, true);
        });
    }

    fn on_receive(&mut self, index: u32, completion: RingCompletion) {
        let Some(socket) = self.sockets.get_mut(index) else {
            if let Some(buffer) = completion.buffer {
                self.ring.give_back(buffer);
            }
            return;
        };
        if !completion.goes_on {
            socket.receiving = None;
        }
        let bytes = u32::try_from(completion.result).unwrap_or(0);
        match completion.buffer {
            Some(buffer) if bytes > 0 && !socket.closing => {
                self.buffers.bytes[usize::from(buffer)] = bytes;
                self.buffers.next[usize::from(buffer)] = None;
                match socket.oldest {
                    None => socket.oldest = Some(buffer),
                    Some(_) => self.buffers.next[usize::from(socket.newest)] = Some(buffer),
                }
                socket.newest = buffer;
            }
            Some(buffer) => self.ring.give_back(buffer),
            None => {}
        }
        if socket.closing {
            return self.settle(index);
        }
        match completion.result {
            0 => {
                socket.has_ended = true;
                self.tell(index, |ready| {
                    (ready.readable, ready.peer_closed) = (true, true);
                });
            }
            // Bytes; or no buffer, or a signal: then the receive reads the socket itself and asks
            // again.
            1.. => self.tell(index, |ready| ready.readable = true),
            error if matches!(-error, libc::ENOBUFS | libc::EINTR | libc::EAGAIN) => {
                self.tell(index, |ready| ready.readable = true);
            }
            error => self.fail(index, error),
        }
    }

    fn on_send(&mut self, index: u32, result: i32) {
        let Some(socket) = self.sockets.get_mut(index) else {
            return;
        };
        let (Sending::Queued { piece, .. } | Sending::Rest(piece)) = socket.sending else {
            return;
        };
        let taken = u32::try_from(result).unwrap_or(0);
        let has_failed = result < 0 && !matches!(-result, libc::EAGAIN | libc::EINTR);
        match piece.after(taken) {
            Some(rest) if !has_failed => {
                socket.sending = Sending::Rest(rest);
                let token = Kind::SendRest.token(index);
                self.ring.send_rest(&socket.fd, rest, token);
            }
            _ => {
                socket.sending = Sending::No;
                if has_failed {
                    self.fail(index, result);
                } else {
                    self.tell(index, |ready| ready.writable = true);
                }
                self.after_send(index);
            }
        }
    }

    fn end(&mut self, conn: RingConn, is_abort: bool) {
        let Some(socket) = self.sockets.get_mut(conn.0) else {
            return;
        };
        let mut came = socket.oldest.take();
        socket.closing = true;
        if let Some(kind) = socket.receiving {
            kind.cancel(&mut self.ring, conn.0);
        }
        if socket.connecting {
            Kind::Connect.cancel(&mut self.ring, conn.0);
        }
        match socket.sending {
            Sending::Rest(_) if is_abort => Kind::SendRest.cancel(&mut self.ring, conn.0),
            // Otherwise a peer that waits for the FIN would wait until the next event.
            Sending::Queued { .. } => self.hurries = true,
            _ => {}
        }
        while let Some(buffer) = came {
            came = self.buffers.next[usize::from(buffer)];
            self.ring.give_back(buffer);
        }
        self.settle(conn.0);
    }

    /// Removes a closing connection that has no operation in flight.
    fn settle(&mut self, index: u32) {
        let is_over = self.sockets.get(index).is_some_and(|socket| {
            let is_sending = !matches!(socket.sending, Sending::No);
            socket.closing && socket.receiving.is_none() && !is_sending && !socket.connecting
        });
        if is_over {
            self.sockets.remove(index);
        }
    }

    /// Restarts accepting on listeners whose multishot accept has ended.
    fn look_at_listeners(&mut self) {
        for &index in &self.listening {
            let Some(listening) = self.listeners.get_mut(index) else {
                continue;
            };
            if !listening.accepting && !listening.closing && listening.error.is_none() {
                listening.accepting = true;
                self.ring.accept(&listening.fd, Kind::Accept.token(index));
            }
        }
    }

    fn has_arrivals(&self) -> bool {
        let mut listening = self
            .listening
            .iter()
            .filter_map(|&index| self.listeners.get(index));
        listening.any(Listening::has_arrivals)
    }
}

impl Listening {
    fn has_arrivals(&self) -> bool {
        !self.closing && (!self.came.is_empty() || self.error.is_some())
    }
}

/// Least number of buffers. A connection has at least one even if there are few connections, so
/// that bytes that come while one buffer is read find the next. So few buffers stay in the cache: 1
/// MiB at 64 KiB each.
const BUFFERS_MIN: usize = 16;
/// Largest number of buffers. If more connections have bytes at a time, the others are read without
/// a buffer.
const BUFFERS_MAX: usize = 4096;
/// Limit of memory for buffers: 256 MiB, touched as it is used.
const BUFFER_BYTES_MAX: usize = 256 << 20;
