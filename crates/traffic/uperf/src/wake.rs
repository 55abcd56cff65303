//! Wakes a thread that waits in a system call, as uperf does: by a signal whose handler does nothing. The call then fails with
//! EINTR. A timeout on each socket would cost a timer at each wait.

#![allow(unsafe_code, reason = "sigaction and pthread_kill")]

use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::sync::Once;
use std::thread::JoinHandle;

extern "C" fn nothing(_: libc::c_int) {}

/// Signal of uperf for the end of a duration.
const SIGNAL: libc::c_int = libc::SIGUSR2;

/// Sets the handler.
///
/// # Errors
/// The kernel refuses.
pub fn prepare() -> io::Result<()> {
    static ONCE: Once = Once::new();
    let mut done = 0;
    ONCE.call_once(|| {
        // SAFETY: the handler does nothing, so it is safe in any thread at any time. Without SA_RESTART calls fail with EINTR.
        done = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut())
        };
    });
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Interrupts the thread's system call, if it is in one.
pub fn wake<T>(thread: &JoinHandle<T>) {
    // SAFETY: a thread that was not joined has a valid id, also after its end.
    unsafe {
        libc::pthread_kill(thread.as_pthread_t(), SIGNAL);
    }
}
