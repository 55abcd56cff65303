//! What the tests of this folder need: threads that live in namespaces of their own.

use super::namespace::{self, Way};

/// Whether this process may make namespaces; says why not.
pub(super) fn is_root() -> bool {
    let way = namespace::can_make_namespaces();
    if way != Ok(Way::Privileged) {
        println!("skipped: making network namespaces needs root here ({way:?})");
    }
    way == Ok(Way::Privileged)
}

/// Runs a test on a thread of its own in a fresh namespace: `unshare` moves one thread alone.
pub(super) fn in_namespace<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(|| {
        namespace::enter_new().unwrap();
        test()
    });
    match thread.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// The calling thread's id, which rtnetlink takes for a process id.
pub(super) fn thread_id() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    let id = unsafe { libc::gettid() };
    u32::try_from(id).unwrap()
}
