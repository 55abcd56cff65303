//! Counts of a thread, which other threads may read at any time.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::tally::Tally;

/// Counts that one thread writes, in cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct ThreadCounts {
    pub(super) bytes_sent: Count,
    pub(super) bytes_received: Count,
    pub(super) bytes_checked: Count,
    pub(super) send_calls: Count,
    pub(super) receive_calls: Count,
    pub(super) would_block_calls: Count,
    pub(super) transactions: Count,
    pub(super) connections_opened: Count,
}

/// A total with one writer.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// Adds without an atomic read-modify-write, because there is one writer.
    #[inline]
    pub(super) fn add(&self, more: u64) {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before + more, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl ThreadCounts {
    pub(super) fn add_to(&self, sum: &mut Tally) {
        sum.bytes_sent += self.bytes_sent.get();
        sum.bytes_received += self.bytes_received.get();
        sum.bytes_checked += self.bytes_checked.get();
        sum.send_calls += self.send_calls.get();
        sum.receive_calls += self.receive_calls.get();
        sum.would_block_calls += self.would_block_calls.get();
        sum.transactions += self.transactions.get();
        sum.connections_opened += self.connections_opened.get();
    }
}
