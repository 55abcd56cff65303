//! The protocol of a service manager (sd_listen_fds(3), sd_notify(3)): sockets that it passes, and
//! notice that the relay is ready.

use std::env;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use rustix::io::{FdFlags, fcntl_setfd};

/// Sockets that the service manager passed to this process, in the order of the unit. Empty if none
/// were passed. Call this once, before threads are started: the caller becomes the owner of the
/// descriptors.
///
/// # Errors
/// LISTEN_FDS names a descriptor that is not open.
#[allow(unsafe_code, reason = "descriptors come by number")]
pub fn listen_fds() -> io::Result<Vec<OwnedFd>> {
    let number = |name| env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Ok(Vec::new());
    }
    let count = number("LISTEN_FDS").unwrap_or(0) as i32;
    let mut sockets = Vec::new();
    for fd in FIRST..FIRST.saturating_add(count) {
        // SAFETY: fcntl reads no memory; a number without a file is an error.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the service manager opened the descriptor for this process, and no other code of
        // the process uses it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
        sockets.push(socket);
    }
    Ok(sockets)
}

/// Sends a state to the service manager, if there is one: `READY=1`, `STOPPING=1`, `STATUS=…`.
pub fn notify(state: &str) {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;
    let Some(path) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let told = UnixDatagram::unbound().and_then(|socket| {
        let path = path.to_string_lossy();
        let address = match path.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name.as_bytes())?,
            None => SocketAddr::from_pathname(path.as_ref())?,
        };
        socket.send_to_addr(state.as_bytes(), &address)
    });
    if let Err(error) = told {
        tracing::warn!("notify the service manager of {state}: {error}");
    }
}

/// SD_LISTEN_FDS_START.
const FIRST: i32 = 3;
