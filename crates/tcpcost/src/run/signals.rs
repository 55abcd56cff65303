//! Ctrl-C and SIGTERM as events: a thread waits for them, no handler interrupts anything.

use std::sync::mpsc::Sender;

use super::ends::Event;

/// Blocks both signals in this thread and all that it starts later, and turns them into events.
/// A second one ends the process at once: agents see their input end and clean up by themselves.
pub fn watch(sender: Sender<Event>) {
    // SAFETY: `set` is initialised by sigemptyset before it is used; both signals may be blocked.
    let set = unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGINT);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        set
    };
    std::thread::spawn(move || {
        for count in 0.. {
            let mut signal = 0;
            // SAFETY: `set` is initialised, `signal` is valid to write.
            unsafe { libc::sigwait(&set, &mut signal) };
            if count > 0 || sender.send(Event::Interrupted).is_err() {
                std::process::exit(crate::exit::Exit::Interrupted as i32);
            }
        }
    });
}
