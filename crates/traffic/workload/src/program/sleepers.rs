//! Connections whose program waits for a time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Wake-up times. Each connection is in it at most once, so that room for all connections suffices.
#[derive(Debug, Default)]
pub(crate) struct Sleepers(BinaryHeap<Reverse<(u64, u32)>>);

impl Sleepers {
    pub(crate) fn reserve(&mut self, connections: usize) {
        self.0.reserve(connections);
    }

    pub(crate) fn sleep(&mut self, index: u32, until_ns: u64) {
        self.0.push(Reverse((until_ns, index)));
    }

    /// Removes a connection whose wake-up time has come. `None` if there is none.
    pub(crate) fn wake(&mut self, now_ns: u64) -> Option<u32> {
        let Reverse((until_ns, index)) = *self.0.peek()?;
        (until_ns <= now_ns).then(|| {
            self.0.pop();
            index
        })
    }

    /// Earliest wake-up time.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.0.peek().map(|Reverse((until_ns, _))| *until_ns)
    }
}
