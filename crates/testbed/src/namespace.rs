//! Threads that live in network namespaces of their own.

use std::net::Ipv4Addr;
use std::sync::mpsc;
use std::thread;

use tcpcost_host::{link, namespace};

use crate::can_make_namespaces;

/// The client's address in [`with_bed`], on its device `c`.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 211, 0, 1);
/// The server's, on `s`.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 211, 0, 2);

/// Runs a closure on a thread of its own in a fresh network namespace with `lo` up; what it starts
/// is there, too. `None` where that cannot be had: the test is skipped.
///
/// # Panics
/// As the closure does.
#[track_caller]
pub fn in_namespace<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    can_make_namespaces().then(|| {
        on_a_thread(|| {
            namespace::enter_new_network().unwrap();
            work()
        })
    })
}

/// Two namespaces joined by a veth, each with its own /sys: runs one closure in each, at the same
/// time. `None` where that cannot be had: the test is skipped.
///
/// # Panics
/// As the closures do.
#[track_caller]
pub fn with_bed<C: Send, S: Send>(
    client: impl FnOnce() -> C + Send,
    server: impl FnOnce() -> S + Send,
) -> Option<(C, S)> {
    can_make_namespaces().then(|| bed(client, server))
}

fn bed<C: Send, S: Send>(
    client: impl FnOnce() -> C + Send,
    server: impl FnOnce() -> S + Send,
) -> (C, S) {
    let (id_sender, id) = mpsc::channel();
    let (made_sender, made) = mpsc::channel();
    let (up_sender, up) = mpsc::channel();
    let (client_lives, client_ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            namespace::enter_new().unwrap();
            id_sender.send(thread_id()).unwrap();
            made.recv().unwrap();
            link::add_address("s", SERVER, 30).unwrap();
            link::set_up("s").unwrap();
            up_sender.send(()).unwrap();
            let result = server();
            // A veth ends with either namespace: stay until the client has ended, however it does.
            let _ = client_ended.recv();
            result
        });
        let client = on_a_thread(move || {
            let _client_lives = client_lives;
            namespace::enter_new().unwrap();
            link::create_veth("c", "s", id.recv().unwrap()).unwrap();
            link::add_address("c", CLIENT, 30).unwrap();
            link::set_up("c").unwrap();
            made_sender.send(()).unwrap();
            up.recv().unwrap();
            client()
        });
        let server = server.join();
        (
            client,
            server.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        )
    })
}

/// `unshare` moves one thread alone. It has the test's name, for what is said of it.
pub(crate) fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let name = thread::current().name().unwrap_or("testbed").to_string();
    let result = thread::scope(|scope| {
        let thread = thread::Builder::new().name(name);
        thread.spawn_scoped(scope, work).unwrap().join()
    });
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The calling thread's id, which rtnetlink takes for a process id.
pub fn thread_id() -> u32 {
    rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned()
}
