//! State that packetdrill's two threads share, and waiting of calls that would block.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;

use crate::calls::{Failure, Sockets};

/// State that both threads share.
pub(super) struct Shim {
    shared: Mutex<Shared>,
    /// Signalled when something happened that a blocked call may wait for.
    happened: Condvar,
    /// Signalled when the blocked call has looked.
    looked: Condvar,
    script: ThreadId,
}

pub(super) struct Shared {
    pub(super) sockets: Sockets,
    /// Number of events so far.
    generation: u64,
    /// Generation that a blocked call has seen; `None` if no call is blocked.
    blocked: Option<u64>,
    /// Thread of a call that was blocked and has ended.
    pub(super) ended: Option<libc::pid_t>,
}

pub(super) static SHIM: OnceLock<Shim> = OnceLock::new();

thread_local! {
    /// Time at which the blocked call ended, µs.
    pub(super) static ENDED_US: Cell<Option<u64>> = const { Cell::new(None) };
}

impl Shim {
    pub(super) fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an event, and waits until the blocked call has seen it.
    pub(super) fn notify<'a>(
        &'a self,
        mut shared: MutexGuard<'a, Shared>,
    ) -> MutexGuard<'a, Shared> {
        shared.generation += 1;
        self.happened.notify_all();
        while shared.blocked.is_some_and(|seen| seen < shared.generation) {
            shared = self
                .looked
                .wait(shared)
                .unwrap_or_else(PoisonError::into_inner);
        }
        shared
    }

    /// Advances the time to `until_us`, timer by timer.
    pub(super) fn advance<'a>(
        &'a self,
        mut shared: MutexGuard<'a, Shared>,
        until_us: u64,
    ) -> MutexGuard<'a, Shared> {
        while shared.sockets.tick(until_us) {
            shared = self.notify(shared);
        }
        shared.sockets.host.pass(until_us);
        shared
    }

    /// Makes a call, and repeats it while it would block and may.
    pub(super) fn call<T>(
        &self,
        fd: c_int,
        call: impl FnMut(&mut Sockets) -> Result<T, Failure>,
    ) -> Result<T, c_int> {
        self.call_with(fd, 0, call)
    }

    /// Makes a call with flags; MSG_DONTWAIT prevents waiting.
    pub(super) fn call_with<T>(
        &self,
        fd: c_int,
        flags: c_int,
        mut call: impl FnMut(&mut Sockets) -> Result<T, Failure>,
    ) -> Result<T, c_int> {
        let mut shared = self.lock();
        let nonblocking = shared.sockets.is_nonblocking(fd)
            || self.is_script()
            || flags & libc::MSG_DONTWAIT != 0;
        loop {
            match call(&mut shared.sockets) {
                Err(Failure::Again) if nonblocking => return Err(libc::EAGAIN),
                Err(Failure::Again) => {
                    shared.blocked = Some(shared.generation);
                    self.looked.notify_all();
                    shared = self
                        .happened
                        .wait(shared)
                        .unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                Ok(value) => {
                    self.end(&mut shared);
                    return Ok(value);
                }
                Err(Failure::Errno(errno)) => {
                    self.end(&mut shared);
                    return Err(errno);
                }
            }
        }
    }

    fn end(&self, shared: &mut Shared) {
        shared.blocked = None;
        if !self.is_script() {
            ENDED_US.set(Some(shared.sockets.host.now_us()));
            // SAFETY: returns a number and reads no memory of ours.
            shared.ended = Some(unsafe { libc::gettid() });
        }
        self.looked.notify_all();
    }

    fn is_script(&self) -> bool {
        std::thread::current().id() == self.script
    }
}

pub(super) fn shim() -> &'static Shim {
    SHIM.get_or_init(|| Shim {
        shared: Mutex::new(Shared {
            sockets: Sockets::new(),
            generation: 0,
            blocked: None,
            ended: None,
        }),
        happened: Condvar::new(),
        looked: Condvar::new(),
        script: std::thread::current().id(),
    })
}

pub(super) fn finish<T: TryInto<R>, R: From<i8>>(result: Result<T, c_int>) -> R {
    match result {
        Ok(value) => value.try_into().unwrap_or_else(|_| R::from(-1)),
        Err(errno) => {
            // SAFETY: the calling thread's own errno.
            unsafe { *libc::__errno_location() = errno };
            R::from(-1)
        }
    }
}
