//! Effects of socket calls: safe code, errors as errno. `Err(Again)` means that the call would
//! block.
//!
//! `opening.rs` makes connections, `moving.rs` reads and writes. `send_buffer.rs` decides how much
//! is accepted, `reports.rs` is the error queue, `ready.rs` and `epoll.rs` are readiness,
//! `options.rs` has the socket options.

mod epoll;
mod moving;
mod opening;
mod options;
mod ready;
mod reports;
mod send_buffer;

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use libc::{EBADF, EINVAL, ENOTCONN};
use tcpcost_tcp::wire::Unreachable;
use tcpcost_tcp::{Config, ConnId, Connection, Ended, SeqNum, State};

use crate::host::Host;
use crate::sysctl;
use epoll::Epoll;
use reports::Reports;
use send_buffer::{SendBuffer, View};

pub use reports::Report;

/// Reason why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The call would have to wait.
    Again,
    /// Error number of the kernel.
    Errno(i32),
}

type Result<T> = std::result::Result<T, Failure>;

use Failure::Errno;

/// Object of a descriptor.
enum Socket {
    /// A new socket, with its bound address.
    Fresh(Option<SocketAddr>),
    Listener(SocketAddr),
    Connection {
        id: ConnId,
        /// True if the connection's error was reported.
        reported: bool,
    },
    Epoll(Epoll),
    /// Either end of the pipe with this number.
    Pipe(usize),
}

struct Descriptor {
    socket: Socket,
    nonblocking: bool,
    config: Config,
    /// True if shut down for reading.
    deaf: bool,
    /// `Some` with TCP_FASTOPEN_CONNECT: the remote address, once it is known. The SYN waits for
    /// the first write.
    deferred: Option<Option<SocketAddr>>,
    buffer: SendBuffer,
    reports: Reports,
    /// TCP_INQ.
    tells_left: bool,
    /// RCV.NXT and state when they were last looked at.
    seen: Option<(SeqNum, State)>,
    _file: File,
}

/// Flags of a call that writes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Write {
    /// MSG_MORE.
    pub more: bool,
    /// MSG_EOR.
    pub ends_record: bool,
    /// True if the call has waited for room.
    pub waited: bool,
}

/// Descriptors and the host behind them.
pub struct Sockets {
    pub host: Host,
    descriptors: HashMap<i32, Descriptor>,
    /// True if a script has set TCP_FASTOPEN_KEY.
    own_keys: bool,
    pipes: Vec<VecDeque<u8>>,
}

impl Sockets {
    pub fn new() -> Self {
        Self {
            host: Host::new(sysctl::config()),
            descriptors: HashMap::new(),
            own_keys: false,
            pipes: Vec::new(),
        }
    }

    /// Handles an incoming packet.
    pub fn arrive(&mut self, bytes: &[u8]) {
        self.host.arrive(bytes);
        self.look();
    }

    /// Fires the next timer, if it is due by `until_us`. True if one fired.
    pub fn tick(&mut self, until_us: u64) -> bool {
        let fired = self.host.tick(until_us);
        if fired {
            self.look();
        }
        fired
    }

    /// Checks all connections, and wakes the epolls of those that changed.
    fn look(&mut self) {
        let mut all: Vec<i32> = self.descriptors.keys().copied().collect();
        all.sort_unstable();
        all.into_iter().for_each(|fd| self.look_at(fd));
    }

    fn look_at(&mut self, fd: i32) {
        let (now_us, wmem_max) = (self.host.now_us(), sysctl::send_buffer_max());
        let Some(view) = self.view(fd) else {
            return;
        };
        let Ok(id) = self.connection(fd) else {
            return;
        };
        let Some(connection) = self.host.endpoint.connection(id) else {
            return;
        };
        let (una, nxt, received) = connection.sequence();
        let state = connection.state();
        let segments = connection.cwnd() / view.mss.max(1);
        let window_is_full = connection.in_flight() >= connection.cwnd();
        let Some(descriptor) = self.descriptors.get_mut(&fd) else {
            return;
        };
        let mut news = descriptor.reports.advance(una, nxt, now_us);
        news |= descriptor.seen.replace((received, state)) != Some((received, state));
        let buffer = &mut descriptor.buffer;
        if buffer.full {
            if !window_is_full {
                buffer.expand(segments, view.mss, wmem_max);
            }
            if buffer.is_writable(&view) {
                (buffer.full, news) = (false, true);
            }
        }
        if news {
            self.wake(fd);
        }
    }

    /// Inputs for the send buffer's rule.
    fn view(&mut self, fd: i32) -> Option<View> {
        let id = self.connection(fd).ok()?;
        let connection = self.host.endpoint.connection(id)?;
        let info = connection.info(self.host.now());
        Some(View {
            queued: connection.unacknowledged() as u32,
            unsent: info.unsent_bytes,
            mss: info.mss,
            window_max: info.send_window_bytes_max,
            low_water: sysctl::unsent_low_water(),
        })
    }

    fn get(&mut self, fd: i32) -> Result<&mut Descriptor> {
        self.descriptors.get_mut(&fd).ok_or(Errno(EBADF))
    }

    fn connection(&mut self, fd: i32) -> Result<ConnId> {
        match self.get(fd)?.socket {
            Socket::Connection { id, .. } => Ok(id),
            _ => Err(Errno(ENOTCONN)),
        }
    }

    pub fn knows(&self, fd: i32) -> bool {
        self.descriptors.contains_key(&fd)
    }

    /// Adds a descriptor. A real descriptor of the process stands for it, so that packetdrill can
    /// close it.
    fn add(&mut self, socket: Socket, config: Config) -> i32 {
        let file = File::open("/dev/null").expect("every Linux has it");
        let fd = file.as_raw_fd();
        let descriptor = Descriptor {
            socket,
            nonblocking: false,
            config,
            deaf: false,
            deferred: None,
            buffer: SendBuffer::new(sysctl::send_buffer()),
            reports: Reports::default(),
            tells_left: false,
            seen: None,
            _file: file,
        };
        self.descriptors.insert(fd, descriptor);
        fd
    }

    fn apply<R>(&mut self, id: ConnId, call: impl FnOnce(&mut Connection) -> R) -> Result<R> {
        let result = self.host.endpoint.apply(id, call).ok_or(Errno(EBADF));
        self.host.settle();
        result
    }

    pub fn is_nonblocking(&mut self, fd: i32) -> bool {
        self.get(fd).is_ok_and(|descriptor| descriptor.nonblocking)
    }

    /// Remote address of a connection that waits for its first write.
    pub fn deferred(&mut self, fd: i32) -> Option<SocketAddr> {
        let descriptor = self.get(fd).ok()?;
        match descriptor.socket {
            Socket::Fresh(_) => descriptor.deferred?,
            _ => None,
        }
    }

    /// Error that ended a connection, when first asked for.
    fn error_once(&mut self, fd: i32) -> Option<i32> {
        let id = self.connection(fd).ok()?;
        let reason = self.host.endpoint.connection(id)?.ended()?;
        match &mut self.get(fd).ok()?.socket {
            Socket::Connection { reported, .. } if !*reported => *reported = true,
            _ => return None,
        }
        errno(reason)
    }

    pub fn shutdown(&mut self, fd: i32, how: i32) -> Result<i64> {
        let id = self.connection(fd)?;
        self.get(fd)?.deaf |= how != libc::SHUT_WR;
        if how != libc::SHUT_RD {
            self.apply(id, Connection::close)?;
        }
        Ok(0)
    }

    pub fn close(&mut self, fd: i32) -> Result<i64> {
        let now = self.host.now();
        match self.descriptors.remove(&fd).ok_or(Errno(EBADF))?.socket {
            Socket::Fresh(_) => {}
            Socket::Listener(address) => {
                self.own_keys = false;
                self.host.endpoint.unlisten(address.port(), now);
            }
            Socket::Connection { id, .. } => self.host.endpoint.release(id, now),
            Socket::Epoll(_) | Socket::Pipe(_) => {}
        }
        self.forget(fd);
        self.host.settle();
        Ok(0)
    }

    pub fn fcntl(&mut self, fd: i32, command: i32, argument: i32) -> Result<i64> {
        let descriptor = self.get(fd)?;
        match command {
            libc::F_GETFL if descriptor.nonblocking => Ok((libc::O_RDWR | libc::O_NONBLOCK).into()),
            libc::F_GETFL => Ok(libc::O_RDWR.into()),
            libc::F_SETFL => {
                descriptor.nonblocking = argument & libc::O_NONBLOCK != 0;
                Ok(0)
            }
            _ => Err(Errno(EINVAL)),
        }
    }

    /// Handles FIONREAD, SIOCOUTQ, SIOCOUTQNSD.
    pub fn ioctl(&mut self, fd: i32, request: u64) -> Result<i32> {
        let id = self.connection(fd)?;
        let connection = self.host.endpoint.connection(id).ok_or(Errno(EBADF))?;
        let info = connection.info(self.host.now());
        match request {
            libc::FIONREAD => Ok(connection.readable() as i32),
            libc::TIOCOUTQ => Ok(connection.unacknowledged() as i32),
            SIOCOUTQNSD => Ok(info.unsent_bytes as i32),
            _ => Err(Errno(EINVAL)),
        }
    }

    /// Sets TCP_FASTOPEN_KEY: one key or two.
    pub fn set_keys(&mut self, bytes: &[u8]) -> Result<i64> {
        let keys: Vec<[u8; 16]> = bytes
            .chunks_exact(16)
            .filter_map(|key| key.try_into().ok())
            .collect();
        if keys.is_empty() || !bytes.len().is_multiple_of(16) || keys.len() > 2 {
            return Err(Errno(EINVAL));
        }
        self.host.endpoint.set_fast_open_keys(&keys);
        self.own_keys = true;
        Ok(0)
    }
}

/// Linux's error number for an end.
fn errno(reason: Ended) -> Option<i32> {
    match reason {
        Ended::Reset => Some(libc::ECONNRESET),
        Ended::Refused => Some(libc::ECONNREFUSED),
        Ended::TimedOut => Some(libc::ETIMEDOUT),
        Ended::Aborted => None,
        // Like the kernel's `icmp_err_convert`.
        Ended::Unreachable(why) => Some(match why {
            Unreachable::Network => libc::ENETUNREACH,
            Unreachable::Host | Unreachable::Prohibited => libc::EHOSTUNREACH,
            Unreachable::Protocol => libc::ENOPROTOOPT,
            Unreachable::Port => libc::ECONNREFUSED,
        }),
    }
}

const SIOCOUTQNSD: u64 = 0x894b;
