//! Being asked to stop as a state: Ctrl-C, SIGTERM, a closed terminal (SIGHUP) and SIGQUIT.
//!
//! The signals are blocked in every thread and taken in by one that waits for them, so no system
//! call of a command is ever interrupted. What they leave is a number that stays: whoever waits asks
//! for it, or is woken by it. Nothing is consumed, so nobody can miss it.

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

/// What each of these asks for is the same.
const SIGNALS: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// Exit code of a command that was asked to stop: 128 + SIGINT, as a shell says it.
pub const EXIT_CODE: i32 = 130;

/// How often this process was asked to stop. Clones are of one state.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<State>);

#[derive(Default)]
struct State {
    times: Mutex<u32>,
    changed: Condvar,
    wakers: Mutex<Vec<Box<dyn Fn() + Send>>>,
    passing: Mutex<Passing>,
}

/// Signals for another process.
#[derive(Default)]
struct Passing {
    to: Option<OwnedFd>,
    /// The last one that came.
    last: Option<rustix::process::Signal>,
}

impl Passing {
    fn pass(&self) {
        if let (Some(to), Some(signal)) = (&self.to, self.last) {
            // It fails only if that process has ended.
            let _ = pidfd_send_signal(to, signal);
        }
    }
}

/// A signal that [`Interrupt::watch`] takes has come.
static ASKED: AtomicBool = AtomicBool::new(false);

/// True if this process was asked to stop by a signal that [`Interrupt::watch`] takes: for code that writes for every
/// command.
pub fn is_asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// True if the terminal of standard input, output or error has closed (the window is gone, the connection is lost).
///
/// SIGHUP says the same, but not to a process that ignores it (nohup) or that left the terminal's session.
pub fn is_terminal_closed() -> bool {
    let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
    let fds = [input.as_fd(), output.as_fd(), error.as_fd()];
    fds.into_iter().any(|fd| {
        let mut polled = [PollFd::new(&fd, PollFlags::empty())];
        let is_gone = poll(&mut polled, Some(&Timespec::default())).is_ok()
            && polled[0].revents().contains(PollFlags::HUP);
        // A pipe hangs up, too. A closed terminal is no terminal for isatty(3): its ioctl fails.
        is_gone
            && fstat(fd)
                .is_ok_and(|is| FileType::from_raw_mode(is.st_mode) == FileType::CharacterDevice)
    })
}

impl Interrupt {
    /// Takes the signals in from now on; the `last`th ends the process at once with [`EXIT_CODE`].
    ///
    /// To be called once, before any other thread is started. A signal that the process was started to
    /// ignore (SIGHUP under nohup) stays ignored, except SIGINT and SIGQUIT, which a shell makes every
    /// background job ignore.
    ///
    /// # Errors
    /// The thread cannot be started.
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
                    // The kernel sends those of a terminal to the other process, too.
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

    /// Counts one more; gives how many there are then.
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

    /// How often it was asked.
    pub fn times(&self) -> u32 {
        *lock(&self.0.times)
    }

    /// Whether it was asked at all.
    pub fn is_set(&self) -> bool {
        self.times() > 0
    }

    /// Waits until it was asked so often, at most this long; whether it was.
    pub fn wait(&self, times: u32, within: Duration) -> bool {
        let guard = lock(&self.0.times);
        let waited = self
            .0
            .changed
            .wait_timeout_while(guard, within, |now| *now < times);
        *waited.unwrap_or_else(PoisonError::into_inner).0 >= times
    }

    /// Waits for a child. A signal that a process has sent to this one, before or meanwhile, is sent on to the child.
    ///
    /// # Errors
    /// As [`Child::wait`].
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

    /// Calls this each time it is asked, and at once if it was: for those who wait for something else.
    pub fn on_each(&self, wake: impl Fn() + Send + 'static) {
        let mut wakers = lock(&self.0.wakers);
        if self.is_set() {
            wake();
        }
        wakers.push(Box::new(wake));
    }
}

/// Lets all of these signals pass: for a process that ends when the one that started it lets go of
/// its input. A signal of the terminal, or of a service manager, goes to both.
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

/// A program that is started so has no signals blocked: those that [`Interrupt::watch`] takes are blocked here, and
/// a new program has the mask of the thread that starts it.
#[allow(
    unsafe_code,
    reason = "what runs between fork and exec must be safe there; there is no other way to change the mask"
)]
pub fn unblocked(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec only pthread_sigmask is called, which is safe there (signal-safety(7)).
    unsafe {
        command.pre_exec(|| {
            SigSet::empty().thread_set_mask()?;
            Ok(())
        })
    }
}

/// A program that is started so ignores SIGINT: Ctrl-C goes to all processes of the terminal, and the one that starts this program
/// ends it by its input.
#[allow(
    unsafe_code,
    reason = "what runs between fork and exec must be safe there; there is no other way to ignore a signal"
)]
pub fn ignoring_interrupt(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec only signal(2) is called, which is safe there (signal-safety(7)) and installs no handler.
    unsafe {
        command.pre_exec(|| {
            nix::sys::signal::signal(Signal::SIGINT, nix::sys::signal::SigHandler::SigIgn)?;
            Ok(())
        })
    }
}

/// Signals that this process ignores, a bit each from SIGHUP on (/proc/PID/status, SigIgn).
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
