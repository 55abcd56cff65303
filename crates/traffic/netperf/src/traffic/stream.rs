//! Traffic in one direction.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use super::{Counted, Live, Until, received, sent};
use crate::latency::Latency;

/// Sends the buffer again and again.
///
/// # Errors
/// The system's errors, except the end of the connection by the other side.
pub fn send(
    live: &Live,
    fd: BorrowedFd<'_>,
    buffer: &[u8],
    until: Until,
    mut latency: Option<&mut Latency>,
) -> io::Result<Counted> {
    let mut counted = Counted::default();
    while !until.is_done(counted.bytes_sent) && !live.is_over() {
        let part = until.bound(counted.bytes_sent, buffer.len());
        latency.iter_mut().for_each(|latency| latency.begin());
        let Some(bytes) = sent(fd, &buffer[..part])? else {
            break;
        };
        latency.iter_mut().for_each(|latency| latency.end());
        counted.bytes_sent += bytes as u64;
        counted.send_calls += 1;
    }
    Ok(counted)
}

/// Sends `size` bytes of the file again and again, from its start.
///
/// # Errors
/// See [`send`].
pub fn send_file(
    live: &Live,
    fd: BorrowedFd<'_>,
    file: &File,
    size: usize,
    until: Until,
    mut latency: Option<&mut Latency>,
) -> io::Result<Counted> {
    let mut counted = Counted::default();
    'file: while !until.is_done(counted.bytes_sent) && !live.is_over() {
        let part = until.bound(counted.bytes_sent, size);
        let mut offset = 0;
        latency.iter_mut().for_each(|latency| latency.begin());
        while (offset as usize) < part {
            let left = part - offset as usize;
            match rustix::fs::sendfile(fd, file, Some(&mut offset), left) {
                Ok(0) => return Err(io::Error::other("the file became shorter")),
                Ok(bytes) => {
                    counted.bytes_sent += bytes as u64;
                    counted.send_calls += 1;
                }
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => break 'file,
                Err(error) => return Err(error.into()),
            }
        }
        latency.iter_mut().for_each(|latency| latency.end());
    }
    Ok(counted)
}

/// Receives until the end of the stream, or until the number of bytes.
///
/// # Errors
/// The system's errors.
pub fn receive(
    live: &Live,
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    until: Until,
    mut latency: Option<&mut Latency>,
) -> io::Result<Counted> {
    let mut counted = Counted::default();
    while !until.is_done(counted.bytes_received) {
        latency.iter_mut().for_each(|latency| latency.begin());
        let Some(bytes) = received(fd, buffer)? else {
            break;
        };
        latency.iter_mut().for_each(|latency| latency.end());
        counted.bytes_received += bytes as u64;
        counted.receive_calls += 1;
        live.set_bytes(counted.bytes_received);
    }
    Ok(counted)
}

/// Waits until the other side has read everything and closes. Discards what it sends in between.
///
/// # Errors
/// The system's errors; the socket's timeout expires.
pub fn drain(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut rest = [0; 4096];
    while received(fd, &mut rest)?.is_some() {}
    Ok(())
}
