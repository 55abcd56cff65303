//! Traffic of UDP: datagrams one way, or a request and its response. An empty datagram is the end, as
//! in netperf.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::{Counted, Live, Until};
use crate::latency::Latency;

/// The other end of a socket. `None` if the socket is connected to it.
pub type Destination = Option<SocketAddr>;

/// Empty datagrams that announce the end, because any of them may be lost (netperf's number).
const ENDS: u32 = 3;

/// Sends the buffer again and again.
///
/// # Errors
/// The system's errors, except that there was no memory for a datagram: it counts as a failed send.
pub fn send_datagrams(
    live: &Live,
    fd: BorrowedFd<'_>,
    to: Destination,
    buffer: &[u8],
    until: Until,
    mut latency: Option<&mut Latency>,
) -> io::Result<Counted> {
    let mut counted = Counted::default();
    while !until.is_done(counted.bytes_sent) && !live.is_over() {
        let part = until.bound(counted.bytes_sent, buffer.len());
        latency.iter_mut().for_each(|latency| latency.begin());
        sent(fd, to, &buffer[..part], &mut counted)?;
        latency.iter_mut().for_each(|latency| latency.end());
        live.set_bytes(counted.bytes_sent);
    }
    Ok(counted)
}

/// Sends requests, with one and `more_in_flight` more in flight. After the socket's timeout, requests in
/// flight count as lost.
///
/// # Errors
/// The system's errors.
#[allow(
    clippy::too_many_arguments,
    reason = "as traffic::request, and the destination"
)]
pub fn ask_datagrams(
    live: &Live,
    fd: BorrowedFd<'_>,
    to: Destination,
    request: &[u8],
    response: &mut [u8],
    more_in_flight: u64,
    until: Until,
    mut latency: Option<&mut Latency>,
) -> io::Result<Counted> {
    let mut counted = Counted::default();
    let mut in_flight = 0;
    let is_known = |from: SocketAddr| to.is_none_or(|to| to.port() == from.port());
    while !until.is_done(counted.transactions) && !live.is_over() {
        while in_flight <= more_in_flight && !until.is_done(counted.transactions + in_flight) {
            latency.iter_mut().for_each(|latency| latency.begin());
            if sent(fd, to, request, &mut counted)? {
                in_flight += 1;
                continue;
            }
            latency.iter_mut().for_each(|latency| latency.cancel());
            if in_flight > 0 || live.is_over() {
                break;
            }
        }
        match received(fd, response, is_known, &mut counted) {
            Ok(Some(_)) => {
                in_flight = in_flight.saturating_sub(1);
                latency.iter_mut().for_each(|latency| latency.end());
                counted.transactions += 1;
                live.set_transactions(counted.transactions);
            }
            Ok(None) => break,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                in_flight = 0;
                latency.iter_mut().for_each(|latency| latency.forget());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(counted)
}

/// Receives datagrams until an empty one, and answers each if there is a response. `is_known` selects
/// peers, and answers go to `to`, or to where the request came from.
///
/// # Errors
/// The system's errors.
pub fn receive_datagrams(
    fd: BorrowedFd<'_>,
    is_known: impl Fn(SocketAddr) -> bool,
    buffer: &mut [u8],
    response: Option<&[u8]>,
    is_connected: bool,
) -> io::Result<Counted> {
    let mut counted = Counted::default();
    while let Some(from) = received(fd, buffer, &is_known, &mut counted)? {
        if let Some(response) = response {
            let to = (!is_connected).then_some(from);
            sent(fd, to, response, &mut counted)?;
            counted.transactions += 1;
        }
    }
    Ok(counted)
}

/// Sends the empty datagrams of the end. They cannot be confirmed, so errors have no effect.
pub fn end_datagrams(fd: BorrowedFd<'_>, to: Destination) {
    for _ in 0..ENDS {
        let _ = send(fd, to, &[]);
    }
}

/// Address from which the next datagram came, which stays in the socket. `None` if it was of an unknown
/// peer; that one is discarded.
///
/// # Errors
/// The system's errors; there is none.
pub fn next_from(
    fd: BorrowedFd<'_>,
    is_known: impl Fn(SocketAddr) -> bool,
) -> io::Result<Option<SocketAddr>> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let (_, _, from) = rustix::net::recvfrom(fd, &mut [0; 1], flags)?;
    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
    if let Some(from) = from.filter(|from| is_known(*from)) {
        return Ok(Some(from));
    }
    let _ = rustix::net::recv(fd, &mut [0; 1], RecvFlags::DONTWAIT);
    Ok(None)
}

fn send(fd: BorrowedFd<'_>, to: Destination, bytes: &[u8]) -> rustix::io::Result<usize> {
    match to {
        Some(to) => rustix::net::sendto(fd, bytes, SendFlags::NOSIGNAL, &to),
        None => rustix::net::send(fd, bytes, SendFlags::NOSIGNAL),
    }
}

/// Sends a datagram. False if there was no memory for it.
fn sent(
    fd: BorrowedFd<'_>,
    to: Destination,
    bytes: &[u8],
    counted: &mut Counted,
) -> io::Result<bool> {
    loop {
        match send(fd, to, bytes) {
            Ok(sent) => {
                counted.bytes_sent += sent as u64;
                counted.send_calls += 1;
                return Ok(true);
            }
            Err(Errno::INTR) => {}
            Err(Errno::NOBUFS | Errno::NOMEM) => {
                counted.failed_sends += 1;
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives a datagram of a known peer and returns its address. `None` at the end: an empty datagram, or
/// the socket was shut down.
fn received(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    is_known: impl Fn(SocketAddr) -> bool,
    counted: &mut Counted,
) -> io::Result<Option<SocketAddr>> {
    loop {
        match rustix::net::recvfrom(fd, &mut *buffer, RecvFlags::empty()) {
            Ok((bytes, _, from)) => {
                // A socket that was shut down gives no address.
                let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                let Some(from) = from else { return Ok(None) };
                if !is_known(from) {
                    continue;
                }
                if bytes == 0 {
                    return Ok(None);
                }
                counted.bytes_received += bytes as u64;
                counted.receive_calls += 1;
                return Ok(Some(from));
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
