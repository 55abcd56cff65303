//! What a netserver gives to all of its clients together, and how long it waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Control connections at a time.
const CONNECTIONS: usize = 512;
/// Bytes of all buffers together.
const BUFFERS: usize = 1 << 30;
/// Bytes of one buffer, one request or one response.
pub const BUFFER: usize = 64 << 20;

/// For the first message to come whole: nothing connects and is silent, but netperf that waits for a password nobody types.
pub const FIRST_MESSAGE: Duration = Duration::from_secs(60);
/// For each further one: a repetition follows at once.
pub const NEXT_MESSAGE: Duration = Duration::from_secs(600);
/// For the data connection: netperf's `-s` waits between set-up and traffic.
pub const DATA_CONNECTION: Duration = Duration::from_secs(120);
/// Beyond the time of a test that the other side ends: what is in its send buffer may take that long.
pub const BEYOND: Duration = Duration::from_secs(60);
/// The same for transactions: the last connection of TCP_CRR is not told, and the original does not read the responses that are
/// on their way at the end. netperf's PAD_TIME.
pub const BEYOND_TRANSACTIONS: Duration = Duration::from_secs(4);
/// Without a byte, of tests that no clock ends.
pub const IDLE: Duration = Duration::from_secs(120);
/// Between an accept that failed and the next.
pub const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// Connections that wait to be taken.
pub const BACKLOG: i32 = 128;

/// What is in use.
#[derive(Debug, Default)]
pub struct Limits {
    connections: Arc<AtomicUsize>,
    buffers: Arc<AtomicUsize>,
}

/// A part of it; dropped, it is free again.
#[derive(Debug)]
pub struct Taken {
    from: Arc<AtomicUsize>,
    amount: usize,
}

impl Limits {
    /// Room for a control connection.
    pub fn connection(&self) -> Option<Taken> {
        take(&self.connections, 1, CONNECTIONS)
    }

    /// Room for so many bytes.
    pub fn buffers(&self, bytes: usize) -> Option<Taken> {
        take(&self.buffers, bytes, BUFFERS)
    }
}

fn take(from: &Arc<AtomicUsize>, amount: usize, most: usize) -> Option<Taken> {
    let enough = |used: usize| used.checked_add(amount).filter(|sum| *sum <= most);
    from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enough)
        .ok()?;
    Some(Taken {
        from: Arc::clone(from),
        amount,
    })
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.from.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_had_again() {
        let limits = Limits::default();
        let all = limits.buffers(BUFFERS).unwrap();
        assert!(limits.buffers(1).is_none());
        drop(all);
        assert!(limits.buffers(1).is_some());
        let connections: Vec<Taken> = (0..CONNECTIONS)
            .map(|_| limits.connection().unwrap())
            .collect();
        assert!(limits.connection().is_none());
        drop(connections);
        assert!(limits.connection().is_some());
    }
}
