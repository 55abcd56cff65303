//! Connection of an instance to the process with the programs.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recv, send,
    socket_with, socketpair,
};
use tcpcost_host::lock::open_file;
use tcpcost_host::privileges::may_meter;

use super::process::ASKED;
use super::{ANSWER_MAX, Answer, Request, answer_from_bytes, path};
use crate::started::own_program;

/// Connection of this process, made before the process changes its user. `None` if the process has no privilege for eBPF.
static CONNECTION: OnceLock<Option<io::Result<Mutex<Connection>>>> = OnceLock::new();

/// A connection; `None` after an answer failed.
struct Connection(Option<OwnedFd>);

/// Connects this process to the process with the programs, and starts that process if none answers. Does nothing without the
/// privilege for eBPF.
pub(crate) fn connect() {
    CONNECTION.get_or_init(|| {
        let made = may_meter().then(joined_or_started)?;
        Some(made.map(|socket| Mutex::new(Connection(Some(socket)))))
    });
}

fn joined_or_started() -> io::Result<OwnedFd> {
    // Makes sure that the folder is this user's.
    let lock = open_file(&path("lock")?).map_err(io::Error::other)?;
    let socket = path("sock")?;
    joined(&socket).or_else(|_| {
        flock(&lock, FlockOperation::LockExclusive)?;
        // Another instance may have started it meanwhile.
        joined(&socket).or_else(|_| started())
    })
}

fn joined(path: &Path) -> io::Result<OwnedFd> {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    greeted(socket)
}

/// Starts the process with the programs; its standard input is the connection.
fn started() -> io::Result<OwnedFd> {
    let failed = |error: io::Error| {
        io::Error::other(format!("start the process with the eBPF programs: {error}"))
    };
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let pair = socketpair(AddressFamily::UNIX, kind, flags, None);
    let (ours, its) = pair.map_err(|error| failed(error.into()))?;
    Command::new(own_program().map_err(io::Error::other)?)
        .arg0("tcpcost")
        .arg("netserver")
        .env(ASKED, "1")
        .current_dir("/")
        .stdin(Stdio::from(its))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    greeted(ours)
}

fn greeted(socket: OwnedFd) -> io::Result<OwnedFd> {
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    ask_at(socket.as_fd(), Request::Hello)??;
    Ok(socket)
}

fn ask_at(socket: impl AsFd, request: Request) -> io::Result<Answer> {
    send(&socket, &request.to_bytes(), SendFlags::NOSIGNAL)?;
    let mut answer = [0; ANSWER_MAX];
    match recv(&socket, &mut answer, RecvFlags::empty())? {
        (0, _) => Err(io::ErrorKind::ConnectionReset.into()),
        (length, _) => Ok(answer_from_bytes(&answer[..length])),
    }
}

impl Connection {
    fn ask(&mut self, request: Request) -> Answer {
        let ended = || io::Error::other("the process with the eBPF programs has ended");
        let socket = self.0.as_ref().ok_or_else(ended)?;
        ask_at(socket, request).unwrap_or_else(|error| {
            // A late answer would be read as the answer to the next request.
            self.0 = None;
            Err(io::Error::other(format!(
                "the process with the eBPF programs: {error}"
            )))
        })
    }
}

/// A thread of this process that is measured.
#[derive(Debug)]
pub(crate) struct Named {
    tid: u32,
}

impl Named {
    /// Measures the calling thread from now on. `None` if this process has no privilege for eBPF, or did not [`connect`].
    pub(crate) fn this_thread() -> Option<io::Result<Named>> {
        CONNECTION.get()?.as_ref()?;
        let tid = rustix::thread::gettid().as_raw_pid().cast_unsigned();
        let named = ask(Request::Name(tid)).map(|_| Named { tid });
        sleep();
        Some(named)
    }

    /// CPU time of the thread so far, ns.
    ///
    /// # Errors
    /// The process with the programs is gone.
    pub(crate) fn ns(&self) -> io::Result<u64> {
        sleep();
        ask(Request::Read(self.tid))
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = ask(Request::Forget(self.tid));
    }
}

fn ask(request: Request) -> Answer {
    match CONNECTION.get() {
        Some(Some(Ok(connection))) => {
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            connection.ask(request)
        }
        Some(Some(Err(why))) => Err(io::Error::other(why.to_string())),
        _ => Err(io::Error::other("not connected")),
    }
}

/// Sleeps once, because the programs charge a thread's time and look up its owner when the CPU switches tasks.
fn sleep() {
    std::thread::sleep(Duration::from_micros(1));
}

/// Limit on the wait for an answer. The first answer includes the load of the programs, some 100 ms.
const PATIENCE: Duration = Duration::from_secs(20);
