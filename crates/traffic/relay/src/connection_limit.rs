//! Limit of connections over all workers. A worker that found the limit reached is woken when a
//! place is free.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Counter of open connections, with a limit.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    open: AtomicUsize,
    most: usize,
    /// True if a worker waits for a place.
    waited_for: AtomicBool,
}

impl ConnectionLimit {
    pub(crate) fn new(most: usize) -> ConnectionLimit {
        ConnectionLimit {
            open: AtomicUsize::new(0),
            most,
            waited_for: AtomicBool::new(false),
        }
    }

    /// Takes a place. False if none is free.
    pub(crate) fn enter(&self) -> bool {
        let more = |open| (open < self.most).then_some(open + 1);
        self.open
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
            .is_ok()
    }

    /// Frees a place. True if a worker waits for it.
    pub(crate) fn leave(&self) -> bool {
        self.open.fetch_sub(1, Ordering::SeqCst);
        self.waited_for.swap(false, Ordering::SeqCst)
    }

    /// Notes that a worker waits, so that the next [`ConnectionLimit::leave`] returns true. Returns true if a
    /// place is free after all.
    pub(crate) fn wait(&self) -> bool {
        self.waited_for.store(true, Ordering::SeqCst);
        self.has_room()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.open.load(Ordering::SeqCst) < self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_waits_at_the_limit_is_woken_once() {
        let limit = ConnectionLimit::new(2);
        assert!(limit.enter() && limit.enter());
        assert!(!limit.enter());
        assert!(!limit.wait());
        assert!(limit.leave(), "somebody waits");
        assert!(limit.has_room());
        assert!(!limit.leave(), "nobody does any more");
    }
}
