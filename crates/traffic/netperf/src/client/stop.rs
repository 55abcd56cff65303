//! Handles a request to stop (Ctrl-C): it ends the test, and the results so far are printed, as in netperf.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::Shutdown;
use tcpcost_signals::{EXIT_CODE, Interrupt};

use crate::net::timers;
use crate::traffic::Live;

/// Limit on waiting, after a request to stop, for the end of the data connection and for netserver's results.
const PATIENCE: Duration = Duration::from_millis(800);

/// Ends the running test when this process is asked to stop.
pub(super) struct Stop {
    interrupt: Interrupt,
    running: Arc<Mutex<Running>>,
}

/// State that a request to stop acts on.
struct Running {
    control: OwnedFd,
    /// The last test that was started, and the direction in which its socket is shut down.
    test: Option<(Arc<Live>, Shutdown)>,
    limit: Option<timers::Timer>,
}

impl Stop {
    /// Handles requests to stop from now on. Before the first test, a request ends the process.
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

    /// Registers a test whose traffic begins. `how`: the direction in which its socket is shut down.
    pub(super) fn begin(&self, live: &Arc<Live>, how: Shutdown) {
        lock(&self.running).test = Some((Arc::clone(live), how));
        if self.is_asked() {
            live.end(Some(how));
        }
    }

    /// True if this process was asked to stop.
    pub(super) fn is_asked(&self) -> bool {
        self.interrupt.is_set()
    }

    /// Waits for `time`, or until this process is asked to stop.
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
