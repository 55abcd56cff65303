//! The process with the programs. It loads them for the first thread, unloads them after the last thread, and ends after its last
//! client.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, listen, recv, send, socket_with,
};
use tcpcost_meter::MeterError;
use tcpcost_meter::bpf::{Thread, Threads};

use super::{Answer, Request, answer_to_bytes, path};
use crate::Failure;

/// Environment variable that makes a netserver this process.
pub(super) const ASKED: &str = "TCPCOST_NETPERF_METER";

/// True if this process was started to load the programs.
pub(crate) fn is_asked() -> bool {
    std::env::var_os(ASKED).is_some()
}

/// Answers clients until the last one closes its connection. The first client is at standard input.
///
/// # Errors
/// The socket cannot be made.
pub(crate) fn run() -> Result<u8, Failure> {
    let failed = |error: io::Error| Failure::usage(format!("netperf's meter: {error}"));
    // Ctrl-C of a terminal must end only the instance.
    let _ = rustix::process::setsid();
    let path = path("sock").map_err(|error| Failure::usage(error.to_string()))?;
    let listener = listener(&path).map_err(failed)?;
    let first = std::io::stdin().as_fd().try_clone_to_owned();
    let mut clients = vec![Client::new(first.map_err(failed)?)];
    let mut programs = Programs::default();
    while !clients.is_empty() {
        let mut ready = ready(&listener, &clients).map_err(failed)?.into_iter();
        clients.retain_mut(|client| {
            let stays = ready.next() != Some(true) || client.serve(&mut programs);
            if !stays {
                client.forget_all(&mut programs);
            }
            stays
        });
        // A client may have connected while the last one left.
        while let Ok(socket) = accept_with(&listener, SocketFlags::CLOEXEC) {
            clients.push(Client::new(socket));
        }
    }
    Ok(0)
}

/// Socket for further clients. The starter of this process holds the lock, and no process answers at the path, so the old file is
/// removed.
fn listener(path: &Path) -> io::Result<OwnedFd> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let (kind, flags) = (
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
    );
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Waits for an event. True for each client that has sent a request or closed its connection.
fn ready(listener: &OwnedFd, clients: &[Client]) -> io::Result<Vec<bool>> {
    let sockets = clients.iter().map(|client| &client.socket);
    let mut polled: Vec<PollFd<'_>> = [listener]
        .into_iter()
        .chain(sockets)
        .map(|socket| PollFd::new(socket, PollFlags::IN))
        .collect();
    match poll(&mut polled, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let clients = polled.iter().skip(1);
    Ok(clients.map(|client| !client.revents().is_empty()).collect())
}

/// The programs; loaded while a thread is measured.
#[derive(Default)]
struct Programs {
    loaded: Option<Threads>,
    threads: usize,
}

impl Programs {
    fn name(&mut self, tid: u32) -> Result<Thread, MeterError> {
        let loaded = match &mut self.loaded {
            Some(loaded) => loaded,
            empty => empty.insert(Threads::load(&tcpcost_host::cpus::online())?),
        };
        let named = loaded.name(tid);
        self.threads += usize::from(named.is_ok());
        self.rest();
        named
    }

    fn ns(&self, thread: &Thread) -> u64 {
        let loaded = self.loaded.as_ref();
        loaded.map_or(0, |loaded| loaded.ns(thread))
    }

    fn forget(&mut self, thread: &Thread) {
        if let Some(loaded) = &mut self.loaded {
            loaded.forget(thread);
        }
        self.threads -= 1;
        self.rest();
    }

    /// Unloads the programs if no thread is measured, because they cost time at every softirq.
    fn rest(&mut self) {
        if self.threads == 0 {
            self.loaded = None;
        }
    }
}

/// A connected instance and its measured threads.
struct Client {
    socket: OwnedFd,
    named: HashMap<u32, Thread>,
}

impl Client {
    fn new(socket: OwnedFd) -> Client {
        Client {
            socket,
            named: HashMap::new(),
        }
    }

    /// Answers one request. False if the client has closed its connection.
    fn serve(&mut self, programs: &mut Programs) -> bool {
        let mut bytes = [0; 16];
        let Ok((length @ 1.., _)) = recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) else {
            return false;
        };
        let Some(request) = Request::from_bytes(&bytes[..length]) else {
            return false;
        };
        let answer = answer_to_bytes(&self.answer(request, programs));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        send(&self.socket, &answer, flags).is_ok()
    }

    fn answer(&mut self, request: Request, programs: &mut Programs) -> Answer {
        let unknown = || io::Error::other("no such thread is measured");
        match request {
            Request::Hello => Ok(0),
            Request::Name(tid) => {
                if !self.has_thread(tid) || self.named.contains_key(&tid) {
                    let wrong = format!("{tid} is no thread of the client");
                    return Err(io::Error::other(wrong));
                }
                let named = programs.name(tid).map_err(io::Error::other)?;
                self.named.insert(tid, named);
                Ok(0)
            }
            Request::Read(tid) => {
                let thread = self.named.get(&tid).ok_or_else(unknown)?;
                Ok(programs.ns(thread))
            }
            Request::Forget(tid) => {
                let thread = self.named.remove(&tid).ok_or_else(unknown)?;
                programs.forget(&thread);
                Ok(0)
            }
        }
    }

    /// True if the client's process, as it was when it connected, has this thread.
    fn has_thread(&self, tid: u32) -> bool {
        let Ok(peer) = socket_peercred(&self.socket) else {
            return false;
        };
        let pid = peer.pid.as_raw_pid();
        Path::new(&format!("/proc/{pid}/task/{tid}")).exists()
    }

    fn forget_all(&mut self, programs: &mut Programs) {
        for (_, thread) in self.named.drain() {
            programs.forget(&thread);
        }
    }
}

/// Listen backlog: instances that wait for their first answer.
const BACKLOG: i32 = 1024;
