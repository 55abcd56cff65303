//! Timers on one thread for the whole process: ends of tests and interim results.
//!
//! netperf uses a signal, which interrupts the current call. Here the end of a test shuts its socket down.
//! That ends the call, too, and does not disturb the other threads of a netserver.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// Action of a timer. Returns the time when it is due again.
type Job = Box<dyn FnMut() -> Option<Instant> + Send>;

#[derive(Default)]
struct Timers {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Jobs by time, and by number if two are due at once.
    due: BTreeMap<(Instant, u64), Job>,
    next: u64,
    running: Option<u64>,
    cancelled: bool,
}

/// A scheduled job. Dropping it cancels the job, or waits until it has finished.
pub struct Timer {
    timers: Arc<Timers>,
    number: u64,
}

/// Runs `job` at `time`, and again at each time that it returns.
pub fn at(time: Instant, job: impl FnMut() -> Option<Instant> + Send + 'static) -> Timer {
    static TIMERS: OnceLock<Arc<Timers>> = OnceLock::new();
    let timers = TIMERS.get_or_init(|| {
        let timers = Arc::<Timers>::default();
        let of_thread = Arc::clone(&timers);
        std::thread::Builder::new()
            .name("timers".to_string())
            .stack_size(STACK_BYTES)
            .spawn(move || of_thread.run())
            .expect("a process has room for one more thread");
        timers
    });
    let number = {
        let mut state = timers.lock();
        let number = state.next;
        state.next += 1;
        state.due.insert((time, number), Box::new(job));
        number
    };
    timers.changed.notify_all();
    Timer {
        timers: Arc::clone(timers),
        number,
    }
}

/// Stack size of the thread: a job at most prints a line.
const STACK_BYTES: usize = 256 << 10;

impl Timers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            let first = state.due.first_key_value().map(|(key, _)| key.0);
            match first {
                None => {
                    state = self
                        .changed
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner)
                }
                Some(due) if due > now => {
                    let waited = self.changed.wait_timeout(state, due - now);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                Some(_) => {
                    let ((_, number), mut job) = state.due.pop_first().expect("it was there");
                    (state.running, state.cancelled) = (Some(number), false);
                    drop(state);
                    let again = job();
                    state = self.lock();
                    state.running = None;
                    if let (Some(again), false) = (again, state.cancelled) {
                        state.due.insert((again, number), job);
                    }
                    self.changed.notify_all();
                }
            }
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let mut state = self.timers.lock();
        state.due.retain(|(_, number), _| *number != self.number);
        while state.running == Some(self.number) {
            state.cancelled = true;
            state = self
                .timers
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn jobs_are_done_in_their_order_and_again() {
        let (sender, done) = channel();
        let other = sender.clone();
        let begin = Instant::now();
        let mut times = 0;
        let _first = at(begin + Duration::from_millis(1), move || {
            times += 1;
            sender.send(times).unwrap();
            (times < 2).then(|| begin + Duration::from_millis(2))
        });
        let _last = at(begin + Duration::from_millis(3), move || {
            other.send(3).unwrap();
            None
        });
        let got: Vec<i32> = (0..3)
            .map(|_| done.recv_timeout(Duration::from_secs(60)).unwrap())
            .collect();
        assert_eq!(got, [1, 2, 3]);
        assert!(begin.elapsed() >= Duration::from_millis(3));
    }

    #[test]
    fn one_that_is_dropped_is_not_done() {
        let (sender, done) = channel::<()>();
        let timer = at(Instant::now() + Duration::from_secs(3600), move || {
            sender.send(()).unwrap();
            None
        });
        drop(timer);
        // The job has been dropped, and the sender with it.
        assert!(done.recv().is_err());
    }
}
