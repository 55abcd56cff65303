//! A request to stop (Ctrl-C) ends the test, and what was measured so far is printed, as netperf does.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::Shutdown;
use tcpcost_signals::{EXIT_CODE, Interrupt};

use crate::net::timers;
use crate::options::Direction;
use crate::traffic::Live;

/// Limit for the ends of the data connection and of the test at netserver, after a request to stop.
const PATIENCE: Duration = Duration::from_millis(800);

/// Ends the test that runs when this process is asked to stop.
pub(super) struct Stop {
    interrupt: Interrupt,
    running: Arc<Mutex<Running>>,
}

/// What a request to stop ends.
struct Running {
    control: OwnedFd,
    /// The last test that was started, and what ends its traffic.
    test: Option<(Arc<Live>, Shutdown)>,
    limit: Option<timers::Timer>,
}

impl Stop {
    /// From now on a request to stop is heeded: before the first test it ends the process.
    pub(super) fn new(interrupt: Interrupt, control: OwnedFd) -> Stop {
        let running = Arc::new(Mutex::new(Running {
            control,
            test: None,
            limit: None,
        }));
        let asked = Arc::clone(&running);
        interrupt.on_each(move || lock(&asked).stop());
        Stop { interrupt, running }
    }

    /// The traffic of a test begins.
    pub(super) fn begin(&self, live: &Arc<Live>, direction: Direction) {
        let how = match direction {
            // The sender would go on to the end of its time.
            Direction::Receive => Shutdown::Both,
            Direction::Send | Direction::Both => Shutdown::Write,
        };
        lock(&self.running).test = Some((Arc::clone(live), how));
        if self.is_asked() {
            live.end(Some(how));
        }
    }

    /// True if this process was asked to stop.
    pub(super) fn is_asked(&self) -> bool {
        self.interrupt.is_set()
    }

    /// Waits so long, or until this process is asked to stop.
    pub(super) fn wait(&self, time: Duration) {
        self.interrupt.wait(1, time);
    }
}

impl Running {
    fn stop(&mut self) {
        let Some((live, how)) = &self.test else {
            std::process::exit(EXIT_CODE);
        };
        if !live.is_over() {
            live.end(Some(*how));
        }
        let (live, control) = (Arc::clone(live), self.control.try_clone());
        self.limit = Some(timers::at(Instant::now() + PATIENCE, move || {
            live.shut(Shutdown::Both);
            if let Ok(control) = &control {
                let _ = rustix::net::shutdown(control, Shutdown::Both);
            }
            None
        }));
    }
}

fn lock(running: &Mutex<Running>) -> MutexGuard<'_, Running> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}
