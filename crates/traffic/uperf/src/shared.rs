//! State that the threads of an end share: where each is, what it moved, and when it may go on.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970, the clock of uperf's output.
pub fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

/// Shared state of all threads of an end.
#[derive(Debug)]
pub struct Shared {
    state: Mutex<State>,
    /// A thread came to a barrier, or ended.
    arrived: Condvar,
    /// Threads may leave a barrier.
    released: Condvar,
    pub counters: Vec<Counter>,
}

#[derive(Debug, Default)]
struct State {
    /// Threads that came to each transaction.
    at: Vec<usize>,
    /// Number of transactions that have begun.
    begun: usize,
    ended: usize,
    errors: Vec<String>,
    is_aborted: bool,
}

/// Counts of a thread. Only it writes the first two.
#[derive(Debug, Default)]
pub struct Counter {
    pub bytes: AtomicU64,
    pub operations: AtomicU64,
    /// Number of the transaction that it is in, from 1; 0 between two.
    pub within: AtomicU32,
    /// Transactions up to this number, from 1, are over.
    pub over: AtomicU32,
}

impl Counter {
    /// True if the transaction of this number, from 1, is over.
    pub fn is_over(&self, number: u32) -> bool {
        self.over.load(Ordering::Relaxed) >= number
    }

    pub fn add(&self, bytes: u64, operations: u64) {
        let add = |to: &AtomicU64, more: u64| {
            to.store(to.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        };
        add(&self.bytes, bytes);
        add(&self.operations, operations);
    }
}

impl Shared {
    pub fn new(threads: usize, transactions: usize) -> Shared {
        Shared {
            state: Mutex::new(State {
                at: vec![0; transactions],
                ..State::default()
            }),
            arrived: Condvar::new(),
            released: Condvar::new(),
            counters: (0..threads).map(|_| Counter::default()).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a transaction begins. False if the run is aborted.
    pub fn wait(&self, transaction: usize) -> bool {
        let mut state = self.lock();
        state.at[transaction] += 1;
        self.arrived.notify_all();
        while state.begun <= transaction && !state.is_aborted {
            let waited = self.released.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        !state.is_aborted
    }

    /// Lets the threads of a transaction go on.
    pub fn begin(&self, transaction: usize) {
        self.lock().begun = transaction + 1;
        self.released.notify_all();
    }

    /// Notes that a thread has ended, and its error.
    pub fn end(&self, error: Option<String>) {
        let mut state = self.lock();
        state.ended += 1;
        state.errors.extend(error);
        self.arrived.notify_all();
    }

    /// Lets all threads end where they are.
    pub fn abort(&self) {
        self.lock().is_aborted = true;
        for counter in &self.counters {
            counter.over.store(u32::MAX, Ordering::Relaxed);
        }
        self.released.notify_all();
    }

    /// Waits until `until`, or until so many threads are at the transaction or any has failed. Returns true if they are.
    pub fn wait_for(&self, transaction: usize, threads: usize, until: Instant) -> bool {
        self.wait_while(until, |state| {
            state.at[transaction] < threads && state.errors.is_empty()
        })
        .at[transaction]
            >= threads
    }

    /// Waits until `until`, or until all threads have ended or any has failed. Returns true if all have ended.
    pub fn wait_for_end(&self, until: Instant) -> bool {
        let threads = self.counters.len();
        self.wait_while(until, |state| {
            state.ended < threads && state.errors.is_empty()
        })
        .ended
            >= threads
    }

    fn wait_while(&self, until: Instant, waits: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if !waits(&state) || left == Duration::ZERO {
                return state;
            }
            let waited = self.arrived.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Errors of threads, in their order.
    pub fn errors(&self) -> Vec<String> {
        self.lock().errors.clone()
    }

    /// Bytes and operations of all threads so far.
    pub fn total(&self) -> (u64, u64) {
        let sum = |of: fn(&Counter) -> &AtomicU64| {
            let counts = self
                .counters
                .iter()
                .map(|counter| of(counter).load(Ordering::Relaxed));
            counts.sum()
        };
        (
            sum(|counter| &counter.bytes),
            sum(|counter| &counter.operations),
        )
    }
}
