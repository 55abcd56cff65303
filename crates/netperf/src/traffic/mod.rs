//! Bytes through sockets: one way, or request and response; the same code at both ends.

mod live;
mod stream;
mod transactions;

use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

pub use live::Live;
pub use stream::{drain, receive, send, send_file};
pub use transactions::{accept_each, accept_one, connect, connect_each, request, respond};

/// Counts of an end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub send_calls: u64,
    pub receive_calls: u64,
    pub transactions: u64,
}

/// What our end saw.
#[derive(Debug, Clone, Default)]
pub struct Local {
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub send_calls: u64,
    pub receive_calls: u64,
    /// Bytes, −1 if unknown.
    pub mss: i32,
    pub retransmits: i32,
    /// As the kernel tells it, at first and at the end.
    pub send_buffer: i32,
    pub send_buffer_end: i32,
    pub receive_buffer: i32,
    pub receive_buffer_end: i32,
    /// Bytes of a call.
    pub send_size: i32,
    pub receive_size: i32,
    pub congestion: String,
    /// Sent and not acknowledged when the time was over.
    pub unconfirmed: Option<u64>,
}

/// When a test ends, if not by the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The clock.
    Time,
    /// So many bytes one way, or transactions.
    Units(u64),
}

impl Until {
    /// Of a length as netperf tells it: negative for units.
    pub fn of(length: i32) -> Until {
        match length {
            0.. => Until::Time,
            units => Until::Units(u64::from(units.unsigned_abs())),
        }
    }

    /// Of what is left at most so much.
    fn bound(self, done: u64, most: usize) -> usize {
        match self {
            Until::Time => most,
            Until::Units(units) => {
                usize::try_from(units.saturating_sub(done)).map_or(most, |left| left.min(most))
            }
        }
    }

    /// Whether so much is enough.
    pub fn is_done(self, done: u64) -> bool {
        matches!(self, Until::Units(units) if done >= units)
    }
}

/// Bytes to send: they cannot be compressed, and are the same each time.
pub fn filler(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        // Marsaglia's xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// A call's result: `None` where the connection has ended.
fn sent(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<Option<usize>> {
    loop {
        match rustix::net::send(fd, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => return Ok(Some(sent)),
            Err(Errno::INTR) => {}
            Err(Errno::PIPE | Errno::CONNRESET | Errno::SHUTDOWN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The same of what was received.
fn received(fd: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match rustix::net::recv(fd, &mut *bytes, RecvFlags::empty()) {
            Ok((0, _)) | Err(Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN) => return Ok(None),
            Ok((received, _)) => return Ok(Some(received)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests;
