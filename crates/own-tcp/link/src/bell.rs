//! Wake-up of a thread that sleeps on a descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// An eventfd(2) that is readable from [`ring`](Bell::ring) to [`hear`](Bell::hear).
///
/// A thread that is woken calls `hear` first and then looks for work. A thread that has work for it
/// makes the work visible first and then calls `ring`. In this order no work is overlooked.
#[derive(Debug)]
pub struct Bell {
    event: OwnedFd,
    /// True if rung and not yet heard. Then neither a further ring nor the wait for the first needs
    /// a system call.
    rung: AtomicBool,
}

impl Bell {
    /// Creates a bell that was not rung.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn new() -> io::Result<Bell> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let rung = AtomicBool::new(false);
        Ok(Bell { event, rung })
    }

    /// Makes the descriptor readable.
    pub fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // Cannot fail: the counter is 0.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Makes the descriptor unreadable. A ring during the call may be lost; its work is visible
    /// after the call.
    pub fn hear(&self) {
        // The read fails if another thread has set `rung` and not yet written.
        if self.is_rung() && rustix::io::read(&self.event, &mut [0; 8]).is_ok() {
            // A swap, because a store would not make the work of a lost ring visible.
            self.rung.swap(false, Ordering::AcqRel);
        }
    }

    /// True if the bell was rung and not yet heard.
    pub fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Acquire)
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_readable(bell: &Bell, seconds: i64) -> bool {
        let limit = Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&limit)).unwrap() == 1
    }

    #[test]
    fn a_bell_is_readable_from_the_first_ring_until_it_is_heard() {
        let bell = Bell::new().unwrap();
        bell.hear();
        assert!(!is_readable(&bell, 0));
        bell.ring();
        bell.ring();
        assert!(is_readable(&bell, 0));
        bell.hear();
        assert!(!is_readable(&bell, 0) && !bell.is_rung());
        bell.ring();
        assert!(is_readable(&bell, 0));
    }

    #[test]
    fn no_work_is_overlooked_when_rings_and_hearing_overlap() {
        const WORK: u64 = 20_000;
        let (bell, given) = (Bell::new().unwrap(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..WORK {
                    given.fetch_add(1, Ordering::Release);
                    bell.ring();
                }
            });
            while given.load(Ordering::Relaxed) < WORK {
                assert!(is_readable(&bell, 60), "a ring was lost");
                bell.hear();
            }
        });
    }
}
