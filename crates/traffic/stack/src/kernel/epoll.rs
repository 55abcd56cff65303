//! One epoll with nanosecond timeouts.
//!
//! rustix rounds a timeout up to milliseconds unless the whole program is built for Linux 5.11. A
//! schedule at 10,000 transactions per second needs better, so the system calls are made here.

#![allow(unsafe_code, reason = "epoll_pwait2 into a buffer that is kept")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll;

use crate::stack::Ready;

/// Limit of events of one wait. With 512 ready connections a wait costs about 1 ns per transaction;
/// with more the list would outgrow the L1 cache (6 KiB).
const EVENTS: usize = 512;

pub(super) struct Epoll {
    fd: OwnedFd,
    events: Box<[libc::epoll_event; EVENTS]>,
    /// Cleared by the first ENOSYS: kernels before 5.11 have milliseconds only.
    has_pwait2: bool,
}

impl std::fmt::Debug for Epoll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Epoll").field(&self.fd).finish()
    }
}

impl Epoll {
    pub(super) fn new() -> io::Result<Epoll> {
        Ok(Epoll {
            fd: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            events: Box::new([libc::epoll_event { events: 0, u64: 0 }; EVENTS]),
            has_pwait2: true,
        })
    }

    /// Watches both directions permanently: an edge costs nothing until the kernel has a reason, so
    /// no connection needs epoll_ctl in the data path.
    pub(super) fn add_connection(&self, fd: BorrowedFd<'_>, token: u32) -> rustix::io::Result<()> {
        use epoll::EventFlags as F;
        self.add(fd, token, F::IN | F::OUT | F::RDHUP | F::ET)
    }

    /// Watches a listener, level-triggered, so that a worker may accept a few and come back.
    pub(super) fn add_listener(&self, fd: BorrowedFd<'_>, token: u32) -> rustix::io::Result<()> {
        self.add(fd, token, epoll::EventFlags::IN)
    }

    /// Stops watching.
    pub(super) fn remove(&self, fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
        epoll::delete(&self.fd, fd)
    }

    fn add(
        &self,
        fd: BorrowedFd<'_>,
        token: u32,
        flags: epoll::EventFlags,
    ) -> rustix::io::Result<()> {
        epoll::add(
            &self.fd,
            fd,
            epoll::EventData::new_u64(u64::from(token)),
            flags,
        )
    }

    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let count = match timeout {
            Some(Duration::ZERO) => self.wait_ms(0),
            None => self.wait_ms(-1),
            Some(timeout) if self.has_pwait2 => match self.wait_ns(timeout) {
                Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
                    self.has_pwait2 = false;
                    self.wait_ms(round_up_ms(timeout))
                }
                result => result,
            },
            Some(timeout) => self.wait_ms(round_up_ms(timeout)),
        };
        match count {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            result => result,
        }
    }

    fn wait_ns(&mut self, timeout: Duration) -> io::Result<usize> {
        let timeout = libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // SAFETY: the fd is open, `events` has room for EVENTS entries, the timespec lives through
        // the call, and a null mask leaves the signal mask alone (its size is then ignored).
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd.as_raw_fd(),
                self.events.as_mut_ptr(),
                EVENTS,
                &raw const timeout,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    fn wait_ms(&mut self, timeout_ms: i32) -> io::Result<usize> {
        // SAFETY: the fd is open and `events` has room for EVENTS entries.
        let count = unsafe {
            libc::epoll_wait(
                self.fd.as_raw_fd(),
                self.events.as_mut_ptr(),
                EVENTS as i32,
                timeout_ms,
            )
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    #[inline]
    pub(super) fn ready(&self, index: usize) -> Ready {
        let event = self.events[index];
        let has = |flags: i32| event.events & flags as u32 != 0;
        Ready {
            token: event.u64 as u32,
            readable: has(libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR),
            writable: has(libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR),
            peer_closed: has(libc::EPOLLRDHUP | libc::EPOLLHUP),
            error: has(libc::EPOLLERR),
        }
    }
}

/// Rounds up, so that a schedule is late by less than a millisecond and does not spin for that
/// time.
fn round_up_ms(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_pwait2_a_wait_still_ends() {
        let mut epoll = Epoll::new().unwrap();
        epoll.has_pwait2 = false;
        assert_eq!(epoll.wait(Some(Duration::from_nanos(1))).unwrap(), 0);
        assert_eq!(round_up_ms(Duration::from_nanos(1_000_001)), 2);
    }
}
