//! Requests to stop as a state: Ctrl-C, SIGTERM, a closed terminal (SIGHUP) and SIGQUIT.
//!
//! The signals are blocked in every thread and read by one thread, so no system call of a command
//! is ever interrupted. Each signal increments a count that stays: code that waits asks for it, or
//! is woken by it. Nothing is consumed, so no waiter can miss a signal.

#![deny(unsafe_code)]

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{self, Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

/// Signals that ask this process to stop.
const SIGNALS: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// Exit code of a command that was asked to stop: 128 + SIGINT, as in a shell.
pub const EXIT_CODE: i32 = 130;

/// Count of requests to stop. Clones share one count.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<State>);

#[derive(Default)]
struct State {
    times: Mutex<u32>,
    changed: Condvar,
    wakers: Mutex<Vec<Box<dyn Fn() + Send>>>,
    passing: Mutex<Passing>,
}

/// Process to which signals are forwarded.
#[derive(Default)]
struct Passing {
    to: Option<OwnedFd>,
    /// Last signal to forward.
    last: Option<rustix::process::Signal>,
}

impl Passing {
    fn pass(&self) {
        if let (Some(to), Some(signal)) = (&self.to, self.last) {
            // An error means that the process has ended.
            let _ = pidfd_send_signal(to, signal);
        }
    }
}

/// True once a signal that [`Interrupt::watch`] handles has come.
static ASKED: AtomicBool = AtomicBool::new(false);

/// True if this process was asked to stop by a signal that [`Interrupt::watch`] handles; for code
/// that all commands use to print.
pub fn is_asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// True if the terminal of standard input, output or error has closed (the window is gone, the
/// connection is lost).
///
/// SIGHUP reports the same, but not to a process that ignores it (nohup) or that left the
/// terminal's session.
pub fn is_terminal_closed() -> bool {
    let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
    let fds = [input.as_fd(), output.as_fd(), error.as_fd()];
    fds.into_iter().any(|fd| {
        let mut polled = [PollFd::new(&fd, PollFlags::empty())];
        let is_gone = poll(&mut polled, Some(&Timespec::default())).is_ok()
            && polled[0].revents().contains(PollFlags::HUP);
        // A closed pipe has HUP, too. isatty(3) does not recognize a closed terminal: its ioctl
        // fails.
        is_gone
            && fstat(fd)
                .is_ok_and(|is| FileType::from_raw_mode(is.st_mode) == FileType::CharacterDevice)
    })
}

impl Interrupt {
    /// Handles the signals from now on; signal number `last` ends the process at once with
    /// [`EXIT_CODE`].
    ///
    /// Call this once, before any other thread is started. A signal that the process was started to
    /// ignore (SIGHUP under nohup) stays ignored, except SIGINT and SIGQUIT, which a shell makes
    /// every background job ignore.
    ///
    /// # Errors
    /// The thread cannot be started, or the signals cannot be blocked or read.
    pub fn watch(last: u32) -> io::Result<Interrupt> {
        let ignored = ignored();
        let mut set = SigSet::empty();
        for signal in SIGNALS {
            let is_ignored = ignored & (1 << (signal as u32 - 1)) != 0;
            let of_background = matches!(signal, Signal::SIGINT | Signal::SIGQUIT);
            if !is_ignored || of_background {
                set.add(signal);
            }
        }
        set.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)?;
        let interrupt = Interrupt::default();
        let state = interrupt.clone();
        thread::Builder::new()
            .name("signals".to_string())
            .spawn(move || {
                while let Ok(Some(signal)) = signals.read_signal() {
                    ASKED.store(true, Ordering::Relaxed);
                    // The kernel sends a terminal's signals to the other process, too; only others
                    // are forwarded.
                    if signal.ssi_code <= 0 {
                        let mut passing = lock(&state.0.passing);
                        let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
                        passing.last = rustix::process::Signal::from_named_raw(number);
                        passing.pass();
                    }
                    if state.raise() >= last {
                        process::exit(EXIT_CODE);
                    }
                }
            })?;
        Ok(interrupt)
    }

    /// Counts a request; returns the count.
    pub fn raise(&self) -> u32 {
        let times = {
            let mut times = lock(&self.0.times);
            *times += 1;
            *times
        };
        self.0.changed.notify_all();
        lock(&self.0.wakers).iter().for_each(|wake| wake());
        times
    }

    /// Number of requests to stop.
    pub fn times(&self) -> u32 {
        *lock(&self.0.times)
    }

    /// True if there was a request to stop.
    pub fn is_set(&self) -> bool {
        self.times() > 0
    }

    /// Waits for request number `times`, at most for `within`. True if it came.
    pub fn wait(&self, times: u32, within: Duration) -> bool {
        let guard = lock(&self.0.times);
        let waited = self
            .0
            .changed
            .wait_timeout_while(guard, within, |now| *now < times);
        *waited.unwrap_or_else(PoisonError::into_inner).0 >= times
    }

    /// Waits for a child. A signal that a process has sent to this one, before or meanwhile, is
    /// forwarded to the child.
    ///
    /// # Errors
    /// See [`Child::wait`].
    pub fn wait_for(&self, child: &mut Child) -> io::Result<process::ExitStatus> {
        let opened = pidfd_open(Pid::from_child(child), PidfdFlags::empty());
        {
            let mut passing = lock(&self.0.passing);
            passing.to = opened.ok();
            passing.pass();
        }
        let status = child.wait();
        lock(&self.0.passing).to = None;
        status
    }

    /// Calls `wake` at each request, and at once if there was one: for code that waits for other
    /// events, too.
    pub fn on_each(&self, wake: impl Fn() + Send + 'static) {
        let mut wakers = lock(&self.0.wakers);
        if self.is_set() {
            wake();
        }
        wakers.push(Box::new(wake));
    }
}

/// Ignores these signals: for a process that ends when its parent closes its input. A signal from
/// the terminal, or from a service manager, goes to both processes.
#[allow(
    unsafe_code,
    reason = "signal(2) takes handlers, too; here it takes none"
)]
pub fn leave_to_parent() {
    for signal in SIGNALS {
        // SAFETY: ignoring a signal installs no handler.
        let former =
            unsafe { nix::sys::signal::signal(signal, nix::sys::signal::SigHandler::SigIgn) };
        former.expect("these four can be ignored by every process");
    }
}

/// Makes a program start without blocked signals. [`Interrupt::watch`] blocks signals in this
/// process, and a new program inherits the mask of the thread that starts it.
#[allow(
    unsafe_code,
    reason = "what runs between fork and exec must be safe there; there is no other way to change the mask"
)]
pub fn unblocked(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec only pthread_sigmask is called, which is safe there
    // (signal-safety(7)).
    unsafe {
        command.pre_exec(|| {
            SigSet::empty().thread_set_mask()?;
            Ok(())
        })
    }
}

/// Makes a program start with SIGINT ignored. Ctrl-C goes to all processes of the terminal, and the
/// parent ends this program by closing its input.
#[allow(
    unsafe_code,
    reason = "what runs between fork and exec must be safe there; there is no other way to ignore a signal"
)]
pub fn ignoring_interrupt(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec only signal(2) is called, which is safe there
    // (signal-safety(7)) and installs no handler.
    unsafe {
        command.pre_exec(|| {
            nix::sys::signal::signal(Signal::SIGINT, nix::sys::signal::SigHandler::SigIgn)?;
            Ok(())
        })
    }
}

/// Signals that this process ignores; SIGHUP is bit 0 (/proc/PID/status, SigIgn).
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn whoever_asks_learns_of_it_however_often_it_is_asked() {
        let interrupt = Interrupt::default();
        assert!(!interrupt.is_set());
        assert!(!interrupt.wait(1, Duration::ZERO));
        assert_eq!(interrupt.raise(), 1);
        for _ in 0..2 {
            assert!(interrupt.is_set());
            assert!(interrupt.wait(1, Duration::ZERO));
        }
        assert!(!interrupt.wait(2, Duration::ZERO), "once is not twice");
    }

    #[test]
    fn those_who_wait_for_something_else_are_woken_also_if_it_was_before() {
        let interrupt = Interrupt::default();
        let (sender, receiver) = channel();
        let early = sender.clone();
        interrupt.on_each(move || early.send("early").unwrap());
        interrupt.raise();
        interrupt.on_each(move || sender.send("late").unwrap());
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), ["early", "late"]);
        interrupt.raise();
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), ["early", "late"]);
    }

    #[test]
    fn a_waiter_is_woken_by_the_request() {
        let interrupt = Interrupt::default();
        let asked = interrupt.clone();
        let waiter = thread::spawn(move || asked.wait(2, Duration::MAX));
        interrupt.raise();
        interrupt.raise();
        assert!(waiter.join().unwrap());
    }
}
