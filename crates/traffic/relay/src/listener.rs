//! Listening sockets: made here, or passed by a service manager or a test.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, getsockname, listen, sockopt};

use crate::address::Address;
use crate::config::Config;
use crate::side;

/// A bound socket that listens and does not block. Clones share it.
#[derive(Debug, Clone)]
pub struct Listener {
    socket: Arc<Socket>,
    is_tcp: bool,
}

#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    /// File that binding a unix socket made; removed with the socket.
    file: Option<SocketFile>,
}

/// File of a unix socket that this process bound.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode: another file may have the same path by the time that this one is removed.
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// Makes a listener of a socket that is bound already. Calls listen(2) if the socket does not
    /// listen yet.
    ///
    /// # Errors
    /// The socket is no stream socket.
    pub fn from_socket(socket: OwnedFd) -> io::Result<Listener> {
        let family = sockopt::socket_domain(&socket)?;
        if !sockopt::socket_acceptconn(&socket)? {
            listen(&socket, BACKLOG)?;
        }
        fcntl_setfl(&socket, fcntl_getfl(&socket)? | OFlags::NONBLOCK)?;
        Ok(Listener {
            socket: Arc::new(Socket {
                fd: socket,
                file: None,
            }),
            is_tcp: family != AddressFamily::UNIX,
        })
    }

    pub(crate) fn is_tcp(&self) -> bool {
        self.is_tcp
    }

    /// Sets the options that accepted connections inherit.
    pub(crate) fn set_options(&self, config: &Config) -> io::Result<()> {
        if self.is_tcp {
            side::set_options(&self.socket.fd, config)?;
        }
        Ok(side::set_buffers(&self.socket.fd, config)?)
    }

    /// Local address. `None` for a unix socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        SocketAddr::try_from(getsockname(&self.socket.fd).ok()?).ok()
    }

    /// True if a connection to `to` reaches this listener: `to` is the listener's address, or a local
    /// address (`is_own`) with the port of a listener at the wildcard address.
    pub fn takes(&self, to: &Address, is_own: impl Fn(IpAddr) -> bool) -> bool {
        let local = || getsockname(&self.socket.fd).and_then(SocketAddrUnix::try_from);
        let file = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino()));
        match to {
            Address::Tcp(to) => self.takes_tcp(*to, is_own),
            Address::Unix(path) => local().is_ok_and(|local| {
                let own = local
                    .path_bytes()
                    .map(|own| Path::new(OsStr::from_bytes(own)));
                own.is_some_and(|own| matches!((file(own), file(path)), (Ok(a), Ok(b)) if a == b))
            }),
            Address::Abstract(name) => {
                local().is_ok_and(|local| local.abstract_name() == Some(name))
            }
        }
    }

    fn takes_tcp(&self, to: SocketAddr, is_own: impl Fn(IpAddr) -> bool) -> bool {
        let Some(local) = self.local_addr().filter(|one| one.port() == to.port()) else {
            return false;
        };
        // Connecting to the wildcard address means connecting to this host (connect(2) of Linux).
        let to = match to.ip().to_canonical() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        let has_family = match local.ip() {
            IpAddr::V4(_) => to.is_ipv4(),
            IpAddr::V6(_) => to.is_ipv6() || sockopt::ipv6_v6only(&self.socket.fd) == Ok(false),
        };
        match local.ip().to_canonical() {
            ip if ip.is_unspecified() => has_family && is_own(to),
            ip => ip == to,
        }
    }
}

impl fmt::Display for Listener {
    /// Writes the bound address, with the port that the kernel chose.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.local_addr(), &self.socket.file) {
            (Some(address), _) => write!(f, "{address}"),
            (None, Some(file)) => write!(f, "unix:{}", file.path.display()),
            (None, None) => write!(f, "a unix socket"),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.fd.as_fd()
    }
}

/// Binds `addresses` for a number of workers. For TCP each worker gets a socket of its own, among
/// which the kernel distributes connections (SO_REUSEPORT). The workers share the socket of a unix
/// address.
///
/// # Errors
/// The address, and the error: in use, not an address of this host, or not permitted.
pub fn bind(
    addresses: &[Address],
    workers: usize,
    config: &Config,
) -> Result<Vec<Vec<Listener>>, (Address, io::Error)> {
    let mut all = vec![Vec::new(); workers];
    for address in addresses {
        let failed = |error: io::Error| (address.clone(), error);
        if !address.is_tcp() {
            let one = bind_unix(address, config).map_err(failed)?;
            all.iter_mut().for_each(|own| own.push(one.clone()));
            continue;
        }
        let mut address = address.clone();
        if workers > 1 {
            // With SO_REUSEPORT alone another process of the same user could silently share the
            // port.
            let probe = bind_tcp(&address, false, config).map_err(failed)?;
            address = Address::Tcp(probe.local_addr().expect("it is a TCP socket"));
        }
        for own in &mut all {
            own.push(bind_tcp(&address, workers > 1, config).map_err(failed)?);
        }
    }
    Ok(all)
}

fn bind_tcp(address: &Address, is_shared: bool, config: &Config) -> io::Result<Listener> {
    let socket = address.socket()?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if is_shared {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    side::set_buffers(&socket, config)?;
    address.bind(&socket)?;
    Listener::from_socket(socket)
}

fn bind_unix(address: &Address, config: &Config) -> io::Result<Listener> {
    let socket = address.socket()?;
    side::set_buffers(&socket, config)?;
    let Address::Unix(path) = address else {
        address.bind(&socket)?;
        return Listener::from_socket(socket);
    };
    match address.bind(&socket) {
        Err(Errno::ADDRINUSE) => {
            remove_abandoned(address, path)?;
            address.bind(&socket)?;
        }
        outcome => outcome?,
    }
    let made = fs::symlink_metadata(path)?;
    let mut listener = Listener::from_socket(socket)?;
    let socket = Arc::get_mut(&mut listener.socket).expect("it was just made");
    socket.file = Some(SocketFile {
        path: path.clone(),
        identity: (made.dev(), made.ino()),
    });
    Ok(listener)
}

/// Removes a unix socket that no process listens on, as a killed process leaves it.
///
/// # Errors
/// The file is no socket (a regular file, a symbolic link), or a process listens on it. The file
/// stays.
fn remove_abandoned(address: &Address, path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        let text = "a file that is no socket is there, and stays: name another path, or remove it";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    match address.connect(&address.socket()?) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        _ => Err(Errno::ADDRINUSE.into()),
    }
}

/// Backlog; the kernel reduces it to net.core.somaxconn.
const BACKLOG: i32 = 65_535;
