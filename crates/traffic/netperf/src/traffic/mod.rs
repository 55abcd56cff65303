//! Traffic over sockets: one way, or request and response. Both ends use the same code.

mod datagrams;
mod live;
mod stream;
mod transactions;

use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

pub use datagrams::{
    Destination, ask_datagrams, end_datagrams, next_from, receive_datagrams, send_datagrams,
};
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
    /// Datagrams for which the kernel had no memory.
    pub failed_sends: u64,
}

impl Counted {
    /// Number of IP packets of these datagrams. `fragments`: number of packets of a datagram of so many bytes.
    pub fn packets(&self, fragments: impl Fn(usize) -> u64) -> u64 {
        let of = |bytes: u64, datagrams: u64| match bytes.checked_div(datagrams) {
            Some(mean) => datagrams * fragments(usize::try_from(mean).unwrap_or(usize::MAX)),
            None => 0,
        };
        of(self.bytes_sent, self.send_calls) + of(self.bytes_received, self.receive_calls)
    }
}

/// Counts and settings of our end.
#[derive(Debug, Clone, Default)]
pub struct Local {
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub send_calls: u64,
    pub receive_calls: u64,
    pub failed_sends: u64,
    /// Bytes, −1 if unknown.
    pub mss: i32,
    pub retransmits: i32,
    /// Buffer sizes as the kernel reports them, at the start and at the end.
    pub send_buffer: i32,
    pub send_buffer_end: i32,
    pub receive_buffer: i32,
    pub receive_buffer_end: i32,
    /// Bytes of a call.
    pub send_size: i32,
    pub receive_size: i32,
    pub congestion: String,
    /// Bytes sent but not acknowledged at the end of the time.
    pub unconfirmed: Option<u64>,
}

/// Condition for the end of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The clock ends the test.
    Time,
    /// This many bytes one way, or transactions, end the test.
    Units(u64),
}

impl Until {
    /// Converts a length of netperf: negative for units.
    pub fn of(length: i32) -> Until {
        match length {
            0.. => Until::Time,
            units => Until::Units(u64::from(units.unsigned_abs())),
        }
    }

    /// Number of units left, limited to `most`.
    fn bound(self, done: u64, most: usize) -> usize {
        match self {
            Until::Time => most,
            Until::Units(units) => {
                usize::try_from(units.saturating_sub(done)).map_or(most, |left| left.min(most))
            }
        }
    }

    /// True if `done` units are enough.
    pub fn is_done(self, done: u64) -> bool {
        matches!(self, Until::Units(units) if done >= units)
    }
}

/// Bytes to send, which cannot be compressed and are the same each time.
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

/// Sends once. `None` if the connection has ended.
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

/// Receives once. `None` if the connection has ended.
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
