//! Transactions over one connection, or each over its own.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::{Counted, Live, Until, received, sent};
use crate::latency::Latency;

/// Sends requests, with one and `more_in_flight` more in flight.
///
/// # Errors
/// The system's errors, except the end of the connection by the other side.
pub fn request(
    live: &Live,
    fd: BorrowedFd<'_>,
    request: &[u8],
    response: &mut [u8],
    more_in_flight: u64,
    until: Until,
    mut latency: Option<&mut Latency>,
) -> io::Result<Counted> {
    let mut counted = Counted::default();
    let mut asked = 0;
    while !until.is_done(counted.transactions) && !live.is_over() {
        while asked - counted.transactions <= more_in_flight && !until.is_done(asked) {
            latency.iter_mut().for_each(|latency| latency.begin());
            if !send_all(fd, request, &mut counted)? {
                return Ok(counted);
            }
            asked += 1;
        }
        if !receive_all(fd, response, &mut counted)? {
            return Ok(counted);
        }
        latency.iter_mut().for_each(|latency| latency.end());
        counted.transactions += 1;
        live.set_transactions(counted.transactions);
    }
    Ok(counted)
}

/// Answers each request until the connection ends.
///
/// # Errors
/// The system's errors.
pub fn respond(
    fd: BorrowedFd<'_>,
    request: &mut [u8],
    response: &[u8],
    until: Until,
) -> io::Result<Counted> {
    let mut counted = Counted::default();
    while !until.is_done(counted.transactions) {
        if !receive_all(fd, request, &mut counted)? || !send_all(fd, response, &mut counted)? {
            break;
        }
        counted.transactions += 1;
    }
    Ok(counted)
}

/// Makes a connection for each transaction. `connect` returns one, or `None` if the time is over. `closing`
/// is called before each is closed.
///
/// # Errors
/// A connection cannot be made; the system's errors.
pub fn connect_each(
    live: &Live,
    connect: impl Fn() -> io::Result<Option<Arc<OwnedFd>>>,
    request: &[u8],
    response: &mut [u8],
    until: Until,
    mut latency: Option<&mut Latency>,
    mut closing: impl FnMut(BorrowedFd<'_>),
) -> io::Result<Counted> {
    let mut counted = Counted::default();
    while !until.is_done(counted.transactions) && !live.is_over() {
        latency.iter_mut().for_each(|latency| latency.begin());
        let Some(socket) = connect()? else { break };
        let fd = socket.as_fd();
        let is_whole =
            send_all(fd, request, &mut counted)? && receive_all(fd, response, &mut counted)?;
        // netserver closes first.
        if !is_whole || received(fd, &mut [0])?.is_some() {
            break;
        }
        latency.iter_mut().for_each(|latency| latency.end());
        counted.transactions += 1;
        live.set_transactions(counted.transactions);
        closing(fd);
    }
    Ok(counted)
}

/// Connects a socket. `None` if the time ends in between.
///
/// # Errors
/// The socket cannot be connected.
pub fn connect(live: &Live, socket: OwnedFd, to: SocketAddr) -> io::Result<Option<Arc<OwnedFd>>> {
    let socket = Arc::new(socket);
    live.watch(&socket);
    if live.is_over() {
        return Ok(None);
    }
    match rustix::net::connect(&*socket, &to) {
        Ok(()) => Ok(Some(socket)),
        Err(_) if live.is_over() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Accepts a connection for each transaction, until the listener is shut down, or a connection of our netperf
/// ends without a request. `is_known` selects peers, and `closing` is called before each connection is
/// closed.
///
/// # Errors
/// The system's errors.
pub fn accept_each(
    live: &Live,
    listener: BorrowedFd<'_>,
    is_known: impl Fn(SocketAddr) -> bool,
    request: &mut [u8],
    response: &[u8],
    until: Until,
    mut closing: impl FnMut(BorrowedFd<'_>),
) -> io::Result<Counted> {
    let mut counted = Counted::default();
    while !until.is_done(counted.transactions) && !live.is_over() {
        let Some(socket) = accept(listener, &is_known)? else {
            break;
        };
        let fd = socket.as_fd();
        let received_before = counted.bytes_received;
        let is_whole =
            receive_all(fd, request, &mut counted)? && send_all(fd, response, &mut counted)?;
        if is_whole {
            counted.transactions += 1;
        } else if counted.bytes_received == received_before {
            break;
        }
        closing(fd);
    }
    Ok(counted)
}

/// Accepts the next connection of a known peer. `None` once the listener is shut down.
fn accept(
    listener: BorrowedFd<'_>,
    is_known: &impl Fn(SocketAddr) -> bool,
) -> io::Result<Option<OwnedFd>> {
    loop {
        match accept_one(listener, is_known) {
            Ok(None) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(None),
            taken => return taken,
        }
    }
}

/// Accepts one connection. `None` if it is from an unknown peer, or ended before it was accepted.
///
/// # Errors
/// The system's errors: EINVAL once the listener is shut down, EAGAIN if it is non-blocking and has no
/// connection.
pub fn accept_one(
    listener: BorrowedFd<'_>,
    is_known: impl Fn(SocketAddr) -> bool,
) -> io::Result<Option<OwnedFd>> {
    match rustix::net::acceptfrom_with(listener, SocketFlags::CLOEXEC) {
        Ok((socket, from)) => {
            let from = from.and_then(|from| SocketAddr::try_from(from).ok());
            Ok(from.is_some_and(is_known).then_some(socket))
        }
        Err(Errno::INTR | Errno::CONNABORTED) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Sends all bytes. True if the connection took them all.
fn send_all(fd: BorrowedFd<'_>, bytes: &[u8], counted: &mut Counted) -> io::Result<bool> {
    let mut done = 0;
    while done < bytes.len() {
        let Some(part) = sent(fd, &bytes[done..])? else {
            return Ok(false);
        };
        done += part;
        counted.bytes_sent += part as u64;
        counted.send_calls += 1;
    }
    Ok(true)
}

/// Receives enough bytes to fill the buffer. True if they all came.
fn receive_all(fd: BorrowedFd<'_>, bytes: &mut [u8], counted: &mut Counted) -> io::Result<bool> {
    let mut done = 0;
    while done < bytes.len() {
        let Some(part) = received(fd, &mut bytes[done..])? else {
            return Ok(false);
        };
        done += part;
        counted.bytes_received += part as u64;
        counted.receive_calls += 1;
    }
    Ok(true)
}
