//! What tests on a real network need: threads that live in namespaces of their own.

use std::net::Ipv4Addr;
use std::sync::mpsc;
use std::thread;

use super::link;
use super::namespace::{self, Way};

/// The client's address in [`with_bed`], on its device `c`.
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 211, 0, 1);
/// The server's, on `s`.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 211, 0, 2);

/// Two namespaces joined by a veth: runs one closure in each, at the same time.
pub(crate) fn with_bed<C: Send + 'static, S: Send + 'static>(
    client: impl FnOnce() -> C + Send + 'static,
    server: impl FnOnce() -> S + Send + 'static,
) -> (C, S) {
    let (id_sender, id) = mpsc::channel();
    let (made_sender, made) = mpsc::channel();
    let (up_sender, up) = mpsc::channel();
    let (client_lives, client_ended) = mpsc::channel::<()>();
    let server = thread::spawn(move || {
        in_namespace(move || {
            id_sender.send(thread_id()).unwrap();
            made.recv().unwrap();
            link::add_address("s", SERVER, 30).unwrap();
            link::set_up("s").unwrap();
            up_sender.send(()).unwrap();
            let result = server();
            // A veth ends with either namespace: stay until the client has ended, however it does.
            let _ = client_ended.recv();
            result
        })
    });
    let client = in_namespace(move || {
        let _client_lives = client_lives;
        link::create_veth("c", "s", id.recv().unwrap()).unwrap();
        link::add_address("c", CLIENT, 30).unwrap();
        link::set_up("c").unwrap();
        made_sender.send(()).unwrap();
        up.recv().unwrap();
        client()
    });
    (client, server.join().unwrap())
}

/// Whether this process may make namespaces; says why not.
pub(crate) fn is_root() -> bool {
    let way = namespace::can_make_namespaces();
    if way != Ok(Way::Privileged) {
        println!("skipped: making network namespaces needs root here ({way:?})");
    }
    way == Ok(Way::Privileged)
}

/// Runs a test on a thread of its own in a fresh namespace: `unshare` moves one thread alone.
pub(crate) fn in_namespace<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::spawn(|| {
        namespace::enter_new().unwrap();
        test()
    });
    match thread.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// The calling thread's id, which rtnetlink takes for a process id.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    let id = unsafe { libc::gettid() };
    u32::try_from(id).unwrap()
}
