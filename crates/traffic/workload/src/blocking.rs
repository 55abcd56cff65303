//! A thread for each connection, with blocking calls (`io = "blocking-threads"`): what uperf,
//! netperf and programs with a process for each connection do. Each thread executes the
//! instructions of its program (`program/code.rs`); `stream`, `rr` and `crr` are converted to
//! programs.
//!
//! Threads send by send(2) from memory and receive by recv(2) into memory of their own; no other
//! calls are supported.

mod counts;
mod thread;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::error::WorkloadError;
use crate::histogram::response_times;
use crate::operation_times::OperationFound;
use crate::tally::Tally;

use counts::ThreadCounts;
use thread::Thread;
pub(crate) use thread::{OfGroup, Strand, Stream, Way};

/// Function that each thread calls first, with the thread's number: it pins the thread to a CPU.
pub type OnStart = Arc<dyn Fn(usize) + Send + Sync>;

/// Longest sleep of the worker, so that `stop` is seen.
const SLEEP: Duration = Duration::from_millis(100);

/// Stack size of a thread: it holds few frames and no buffers.
const STACK_BYTES: usize = 128 << 10;

/// Threads of a worker; dropping it stops them.
pub(crate) struct Threads {
    shared: Arc<Shared>,
    /// Handles of the threads. A thread returns its connections, which stay open until its handle
    /// is joined.
    handles: Vec<JoinHandle<Strand>>,
    /// Counts of each thread, by group.
    counts: Vec<Vec<Arc<ThreadCounts>>>,
    groups: Vec<Arc<OfGroup>>,
}

/// State shared by the threads and their worker.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) stop: AtomicBool,
    failure: Mutex<Option<WorkloadError>>,
    failed: Condvar,
    /// True once traffic has begun.
    begun: Mutex<bool>,
    begins: Condvar,
}

impl Shared {
    /// Keeps the first failure and stops all threads.
    pub(crate) fn fail(&self, error: WorkloadError) {
        if self.stop.swap(true, Ordering::Relaxed) {
            return;
        }
        *self.failure() = Some(error);
        self.failed.notify_all();
    }

    /// Waits for the traffic to begin. Threads that ran as soon as they were made would leave no
    /// CPU to make the others.
    fn wait_to_begin(&self) {
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.begins.wait_while(begun, |begun| !*begun);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn begin(&self) {
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.begins.notify_all();
    }

    fn failure(&self) -> std::sync::MutexGuard<'_, Option<WorkloadError>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Threads {
    /// Makes an empty set of threads for these groups.
    pub(crate) fn new(groups: Vec<Arc<OfGroup>>) -> Threads {
        Threads {
            shared: Arc::new(Shared::default()),
            handles: Vec::new(),
            counts: groups.iter().map(|_| Vec::new()).collect(),
            groups,
        }
    }

    /// Starts the thread of a flow of a group.
    pub(crate) fn start(
        &mut self,
        group: usize,
        strand: Strand,
        way: Way,
        on_start: &OnStart,
    ) -> std::io::Result<()> {
        let counts = Arc::new(ThreadCounts::default());
        self.counts[group].push(Arc::clone(&counts));
        let (shared, group) = (Arc::clone(&self.shared), Arc::clone(&self.groups[group]));
        let (place, on_start) = (self.handles.len(), Arc::clone(on_start));
        let handle = std::thread::Builder::new()
            .name("connection".to_string())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                on_start(place);
                shared.wait_to_begin();
                Thread::new(shared, group, counts, strand, way).run()
            })?;
        self.handles.push(handle);
        Ok(())
    }

    /// Lets all threads begin.
    pub(crate) fn begin(&self) {
        self.shared.begin();
    }

    /// Asks all threads to end, which each does at its next call. Their connections stay open.
    pub(crate) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.begin();
    }

    /// Sleeps until the deadline while the threads work.
    pub(crate) fn run_until(
        &self,
        deadline: Instant,
        stop: &AtomicBool,
    ) -> Result<(), WorkloadError> {
        let mut failure = self.shared.failure();
        loop {
            // Both sides end at the same time: a failure seen after the deadline is a result of the
            // end.
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if let Some(error) = failure.take() {
                return Err(error);
            }
            let waited = self.shared.failed.wait_timeout(failure, left.min(SLEEP));
            (failure, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sum of the counts of a group's threads.
    pub(crate) fn tally(&self, group: usize) -> Tally {
        let mut sum = Tally::default();
        for counts in &self.counts[group] {
            counts.add_to(&mut sum);
        }
        sum
    }

    /// Response times of a group since the last call.
    pub(crate) fn take_responses(&self, group: usize) -> Option<Histogram<u64>> {
        let responses = self.groups[group].responses.as_ref()?;
        Some(responses.take(response_times()))
    }

    /// Durations of a group's operations since the last call.
    pub(crate) fn take_operations(&self, group: usize) -> Vec<OperationFound> {
        self.groups[group].operations.take()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
        for handle in self.handles.drain(..) {
            // A panic has been printed already.
            let _ = handle.join();
        }
    }
}
