//! What a service manager hands over and is told (sd_listen_fds(3), sd_notify(3)): sockets, and that the relay is ready.

use std::env;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use rustix::io::{FdFlags, fcntl_setfd};

/// The sockets that were handed to this process, in the order of the unit; none if it was started otherwise. To be
/// called once, before threads are started: the descriptors are taken.
///
/// # Errors
/// LISTEN_FDS names descriptors that are not there.
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
        // SAFETY: the service manager opened it for us, and nobody else of this process knows of it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
        sockets.push(socket);
    }
    Ok(sockets)
}

/// Tells the service manager, if there is one: `READY=1`, `STOPPING=1`, `STATUS=…`.
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
        tracing::warn!("tell the service manager {state}: {error}");
    }
}

/// SD_LISTEN_FDS_START.
const FIRST: i32 = 3;
