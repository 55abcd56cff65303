//! Threads in network namespaces of their own.

use std::net::Ipv4Addr;
use std::sync::mpsc;
use std::thread;

use tcpcost_host::{link, namespace};

use crate::can_make_namespaces;

/// Address of the client in [`with_bed`], on its device `c`.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 211, 0, 1);
/// Address of the server in [`with_bed`], on its device `s`.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 211, 0, 2);

/// Runs a closure on a separate thread in a new network namespace with `lo` up. Threads and
/// processes that the closure starts are in the namespace, too. `None` if namespaces are not
/// available: the test is skipped.
///
/// # Panics
/// If the closure does.
#[track_caller]
pub fn in_namespace<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    can_make_namespaces().then(|| {
        on_a_thread(|| {
            namespace::enter_new_network().unwrap();
            work()
        })
    })
}

/// Runs two closures at the same time, each in a namespace with its own /sys; a veth joins the
/// namespaces. `None` if namespaces are not available: the test is skipped.
///
/// # Panics
/// If a closure does.
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
            // A veth ends with either namespace, so this thread stays until the client has ended,
            // normally or by a panic.
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

/// Runs a closure on a separate thread, because `unshare` moves one thread alone. The thread has
/// the test's name, for messages.
pub(crate) fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let name = thread::current().name().unwrap_or("testbed").to_string();
    let result = thread::scope(|scope| {
        let thread = thread::Builder::new().name(name);
        thread.spawn_scoped(scope, work).unwrap().join()
    });
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Id of the calling thread, which rtnetlink accepts as a process id.
pub fn thread_id() -> u32 {
    rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned()
}
