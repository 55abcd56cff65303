//! What a socket call does: safe code, errors as errno. `Err(Again)` says that it would block.

use std::collections::HashMap;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use libc::{EADDRINUSE, EBADF, EINVAL, EISCONN, ENOPROTOOPT, ENOTCONN, EPIPE};
use tcpcost_tcp::wire::Unreachable;
use tcpcost_tcp::{Config, ConnId, Connection, Ended, Nagle, ReadError, State, WriteError};

use crate::host::Host;
use crate::{info, sysctl};

/// Why a call did not do what it was to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It would have to wait.
    Again,
    /// So the kernel calls it.
    Errno(i32),
}

type Result<T> = std::result::Result<T, Failure>;

use Failure::{Again, Errno};

/// What a descriptor stands for.
enum Socket {
    /// Nothing yet.
    Fresh(Option<SocketAddr>),
    Listener(SocketAddr),
    Connection {
        id: ConnId,
        /// An error that was reported once.
        reported: bool,
    },
}

struct Descriptor {
    socket: Socket,
    nonblocking: bool,
    config: Config,
    /// Shut down for reading.
    deaf: bool,
    /// TCP_FASTOPEN_CONNECT: and where to, once that is known; the SYN waits for the first write.
    deferred: Option<Option<SocketAddr>>,
    _file: File,
}

/// Descriptors and the host behind them.
pub struct Sockets {
    pub host: Host,
    descriptors: HashMap<i32, Descriptor>,
    /// A script has set TCP_FASTOPEN_KEY.
    own_keys: bool,
}

impl Sockets {
    pub fn new() -> Self {
        Self {
            host: Host::new(sysctl::config()),
            descriptors: HashMap::new(),
            own_keys: false,
        }
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

    /// A descriptor of the process's stands for it, so that packetdrill can close what is left.
    fn add(&mut self, socket: Socket, config: Config) -> i32 {
        let file = File::open("/dev/null").expect("every Linux has it");
        let fd = file.as_raw_fd();
        let descriptor = Descriptor {
            socket,
            nonblocking: false,
            config,
            deaf: false,
            deferred: None,
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

    /// Where a connection that waits for its first write goes.
    pub fn deferred(&mut self, fd: i32) -> Option<SocketAddr> {
        let descriptor = self.get(fd).ok()?;
        match descriptor.socket {
            Socket::Fresh(_) => descriptor.deferred?,
            _ => None,
        }
    }

    pub fn socket(&mut self) -> i32 {
        self.add(Socket::Fresh(None), sysctl::config())
    }

    pub fn bind(&mut self, fd: i32, address: SocketAddr) -> Result<i64> {
        self.get(fd)?.socket = Socket::Fresh(Some(address));
        Ok(0)
    }

    pub fn listen(&mut self, fd: i32, backlog: i32) -> Result<i64> {
        let descriptor = self.get(fd)?;
        let Socket::Fresh(Some(address)) = descriptor.socket else {
            return Err(Errno(EINVAL));
        };
        let mut config = descriptor.config.clone();
        descriptor.socket = Socket::Listener(address);
        let fast_open = sysctl::fast_open();
        config.fast_open.accept_without_cookie = fast_open.server_without_cookie;
        if fast_open.server && fast_open.every_listener && config.fast_open.accept_max == 0 {
            config.fast_open.accept_max = backlog.max(0) as u16;
        }
        if !fast_open.server {
            config.fast_open.accept_max = 0;
        }
        if !self.own_keys {
            let keys = sysctl::fast_open_keys();
            self.host.endpoint.set_fast_open_keys(&keys);
        }
        // A server agrees to ECN unless it is switched off.
        config.ecn = config.ecn || sysctl::agrees_to_ecn();
        let backlog = backlog.max(0) as usize + 1;
        let listened = self.host.endpoint.listen(address.port(), backlog, config);
        listened.map(|()| 0).map_err(|_| Errno(EADDRINUSE))
    }

    /// The new descriptor, and who is at the other end.
    pub fn accept(&mut self, fd: i32) -> Result<(i32, SocketAddr)> {
        let descriptor = self.get(fd)?;
        let Socket::Listener(address) = descriptor.socket else {
            return Err(Errno(EINVAL));
        };
        let config = descriptor.config.clone();
        let id = self.host.endpoint.accept(address.port()).ok_or(Again)?;
        let remote = self
            .host
            .endpoint
            .path(id)
            .map_or(address, |path| path.remote);
        let reported = false;
        Ok((
            self.add(Socket::Connection { id, reported }, config),
            remote,
        ))
    }

    /// As [`connect`](Self::connect), with data for the SYN; how much of it is on its way. A caller that
    /// `waits` has the rest written, too.
    pub fn connect_with_data(
        &mut self,
        fd: i32,
        remote: SocketAddr,
        data: &[u8],
        waits: bool,
    ) -> Result<i64> {
        let (settings, descriptor) = (sysctl::fast_open(), self.get(fd)?);
        if !settings.client {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        if !matches!(descriptor.socket, Socket::Fresh(_)) {
            return match self.connected(fd) {
                Ok(_) => self.write(fd, data, false),
                Err(Again) => Err(Errno(libc::EALREADY)),
                Err(failure) => Err(failure),
            };
        }
        let choice = &mut descriptor.config.fast_open;
        choice.connect = true;
        choice.connect_without_cookie |= settings.client_without_cookie;
        let own = u32::from(descriptor.config.mss).saturating_sub(40);
        let trusts = descriptor.config.fast_open.connect_without_cookie;
        let room = self.host.endpoint.syn_payload_max(remote.ip());
        let room = room.or(trusts.then_some(own)).unwrap_or(0);
        self.open(fd, remote)?;
        let id = self.connection(fd)?;
        let fits = match waits {
            true => data.len(),
            false => data.len().min(room.min(own) as usize),
        };
        let written = self.apply(id, |connection| connection.write(&data[..fits]))?;
        match written {
            Ok(0) => Err(Again),
            Ok(written) => Ok(written as i64),
            Err(_) => Err(Errno(EPIPE)),
        }
    }

    /// Begins to connect; [`connected`](Self::connected) says how it went on.
    pub fn connect(&mut self, fd: i32, remote: SocketAddr) -> Result<i64> {
        let descriptor = self.get(fd)?;
        if !matches!(descriptor.socket, Socket::Fresh(_)) {
            return match self.connected(fd) {
                Ok(_) => Err(Errno(EISCONN)),
                Err(Again) => Err(Errno(libc::EALREADY)),
                other => other,
            };
        }
        if matches!(descriptor.deferred, Some(Some(_))) {
            return Err(Errno(EISCONN));
        }
        if descriptor.deferred.is_some() {
            let known = self.host.endpoint.syn_payload_max(remote.ip());
            let trusts = sysctl::fast_open().client_without_cookie;
            let descriptor = self.get(fd)?;
            descriptor.config.fast_open.connect = true;
            if known.is_some() || trusts {
                descriptor.deferred = Some(Some(remote));
                return Ok(0);
            }
        }
        self.open(fd, remote)?;
        self.host.settle();
        Err(Again)
    }

    fn open(&mut self, fd: i32, remote: SocketAddr) -> Result<()> {
        let descriptor = self.get(fd)?;
        let local = match descriptor.socket {
            Socket::Fresh(local) => local.unwrap_or_else(|| local_address(remote)),
            _ => return Err(Errno(EISCONN)),
        };
        let (config, now) = (descriptor.config.clone(), self.host.now());
        let opened = self.host.endpoint.connect_with(config, local, remote, now);
        let id = opened.map_err(|_| Errno(EINVAL))?;
        let reported = false;
        self.get(fd)?.socket = Socket::Connection { id, reported };
        Ok(())
    }

    pub fn connected(&mut self, fd: i32) -> Result<i64> {
        let id = self.connection(fd)?;
        let connection = self.host.endpoint.connection(id).ok_or(Errno(EBADF))?;
        match (connection.ended(), connection.state()) {
            (Some(_), _) => Err(self.error_once(fd).map_or(Errno(EISCONN), Errno)),
            (None, State::SynSent | State::SynReceived) => Err(Again),
            _ => Ok(0),
        }
    }

    /// The error a connection ended with, the first time.
    fn error_once(&mut self, fd: i32) -> Option<i32> {
        let id = self.connection(fd).ok()?;
        let reason = self.host.endpoint.connection(id)?.ended()?;
        match &mut self.get(fd).ok()?.socket {
            Socket::Connection { reported, .. } if !*reported => *reported = true,
            _ => return None,
        }
        errno(reason)
    }

    pub fn read(&mut self, fd: i32, to: &mut [u8]) -> Result<i64> {
        let (id, now) = (self.connection(fd)?, self.host.now());
        match self.apply(id, |connection| connection.read(to, now))? {
            Ok(bytes) => Ok(bytes as i64),
            Err(ReadError::Finished) => Ok(0),
            Err(ReadError::Empty) if self.get(fd)?.deaf => Ok(0),
            Err(ReadError::Empty) => Err(Again),
            Err(ReadError::Ended(_)) => {
                self.error_once(fd).map_or(Ok(0), |errno| Err(Errno(errno)))
            }
        }
    }

    pub fn write(&mut self, fd: i32, bytes: &[u8], more: bool) -> Result<i64> {
        let id = self.connection(fd)?;
        let state = self.host.endpoint.connection(id).map(Connection::state);
        if state == Some(State::SynSent) {
            return Err(Again);
        }
        match self.apply(id, |connection| connection.write_more(bytes, more))? {
            Ok(0) if !bytes.is_empty() => Err(Again),
            Ok(written) => Ok(written as i64),
            Err(WriteError::Closed) => Err(Errno(EPIPE)),
            Err(WriteError::Ended(_)) => Err(Errno(self.error_once(fd).unwrap_or(EPIPE))),
        }
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
        }
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

    /// FIONREAD, SIOCOUTQ, SIOCOUTQNSD.
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

    /// TCP_FASTOPEN_KEY: one key or two.
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

    pub fn set_option(&mut self, fd: i32, level: i32, name: i32, value: i32) -> Result<i64> {
        let descriptor = self.get(fd)?;
        let config = &mut descriptor.config;
        match (level, name) {
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => {
                config.segmentation.nagle = if value != 0 {
                    Nagle::Off
                } else {
                    Nagle::Minshall
                };
            }
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => config.send_buffer = value.max(0) as u32 * 2,
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => {
                config.receive_buffer = value.max(0) as u32;
                config.receive_buffer_max = 0;
            }
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => {
                let timeout = std::time::Duration::from_millis(value.max(0) as u64);
                config.user_timeout = (value > 0).then_some(timeout);
            }
            (libc::IPPROTO_TCP, libc::TCP_SYNCNT) => config.syn_retries_max = value as u8,
            (libc::IPPROTO_TCP, libc::TCP_CORK) => {
                let id = self.connection(fd)?;
                self.apply(id, |connection| connection.cork(value != 0))?;
                return Ok(0);
            }
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => {
                let keepalive = config.keepalive.get_or_insert_default();
                keepalive.idle = std::time::Duration::from_secs(value as u64);
            }
            (libc::IPPROTO_TCP, libc::TCP_FASTOPEN) => {
                let max = if sysctl::fast_open().server {
                    value.max(0) as u16
                } else {
                    0
                };
                config.fast_open.accept_max = max;
                if let Socket::Listener(address) = descriptor.socket {
                    let change = |config: &mut Config| config.fast_open.accept_max = max;
                    self.host
                        .endpoint
                        .configure_listener(address.port(), change);
                }
                return Ok(0);
            }
            (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT) => {
                if !sysctl::fast_open().client {
                    return Err(Errno(libc::EOPNOTSUPP));
                }
                descriptor.deferred = (value != 0).then_some(None);
                return Ok(0);
            }
            (libc::IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE) => {
                config.fast_open.connect_without_cookie = value != 0;
            }
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {
                config.mss = value as u16;
                if let Socket::Listener(address) = descriptor.socket {
                    let change = |config: &mut Config| config.mss = value as u16;
                    let endpoint = &mut self.host.endpoint;
                    endpoint.configure_listener(address.port(), change);
                    return Ok(0);
                }
            }
            // The two bits below it are TCP's, for ECN.
            (libc::SOL_IP, libc::IP_TOS) => config.dscp = (value as u8) >> 2,
            // What does not show in the segments of a script.
            (libc::SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_MARK | libc::SO_KEEPALIVE)
            | (libc::SOL_IP, libc::IP_MTU_DISCOVER | libc::IP_FREEBIND) => return Ok(0),
            _ => return Err(Errno(ENOPROTOOPT)),
        }
        let chosen = config.clone();
        if let Ok(id) = self.connection(fd) {
            let pushes = (level, name) == (libc::IPPROTO_TCP, libc::TCP_NODELAY) && value != 0;
            self.apply(id, |connection| {
                if pushes {
                    connection.push();
                }
                connection.configure(|config| {
                    config.segmentation.nagle = chosen.segmentation.nagle;
                    config.send_buffer = chosen.send_buffer;
                    config.user_timeout = chosen.user_timeout;
                    config.syn_retries_max = chosen.syn_retries_max;
                    config.dscp = chosen.dscp;
                });
            })?;
        }
        Ok(0)
    }

    /// The bytes of the answer.
    pub fn option(&mut self, fd: i32, level: i32, name: i32) -> Result<Vec<u8>> {
        let number = |value: i32| Ok(value.to_ne_bytes().to_vec());
        if (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR) {
            let error = self.error_once(fd).unwrap_or(0);
            return number(error);
        }
        let now = self.host.now();
        let descriptor = self.get(fd)?;
        let config = descriptor.config.clone();
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => number(config.send_buffer as i32),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => {
                number((config.segmentation.nagle == Nagle::Off).into())
            }
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => match self.connection(fd) {
                Ok(id) => number(self.apply(id, |connection| connection.mss())? as i32),
                Err(_) if config.mss == 1460 => number(536),
                Err(_) => number(config.mss.into()),
            },
            (libc::IPPROTO_TCP, libc::TCP_INFO) => match self.connection(fd) {
                Ok(id) => self.apply(id, |connection| info::tcp_info(connection, now)),
                Err(_) => Ok(vec![0; info::BYTES]),
            },
            // No algorithm of ours has any, and nothing here counts sk_buffs.
            (libc::IPPROTO_TCP, libc::TCP_CC_INFO) => Ok(Vec::new()),
            (libc::SOL_SOCKET, libc::SO_MEMINFO) => Ok(vec![0; 36]),
            _ => Err(Errno(ENOPROTOOPT)),
        }
    }

    /// Which of `events` are there.
    pub fn poll(&mut self, fd: i32, events: i16) -> i16 {
        let Ok(descriptor) = self.get(fd) else {
            return libc::POLLNVAL;
        };
        match descriptor.socket {
            Socket::Fresh(_) if matches!(descriptor.deferred, Some(Some(_))) => {
                libc::POLLOUT & events
            }
            Socket::Fresh(_) => libc::POLLOUT | libc::POLLHUP,
            Socket::Listener(_) => 0,
            Socket::Connection { id, .. } => {
                let Some(connection) = self.host.endpoint.connection(id) else {
                    return libc::POLLNVAL;
                };
                let mut found = 0;
                let finished = connection.is_finished();
                if connection.readable() > 0 || finished {
                    found |= libc::POLLIN;
                }
                if matches!(
                    connection.state(),
                    State::CloseWait | State::Closing | State::LastAck | State::TimeWait
                ) {
                    found |= libc::POLLRDHUP;
                }
                if connection.writable() > 0 && connection.state() != State::SynSent {
                    found |= libc::POLLOUT;
                }
                if connection.ended().is_some() {
                    found |= libc::POLLERR | libc::POLLOUT | libc::POLLIN;
                }
                if connection.state() == State::Closed {
                    found |= libc::POLLHUP;
                }
                found & (events | libc::POLLERR | libc::POLLHUP)
            }
        }
    }
}

const TCP_FASTOPEN_NO_COOKIE: i32 = 34;

/// Linux's word for an end.
fn errno(reason: Ended) -> Option<i32> {
    match reason {
        Ended::Reset => Some(libc::ECONNRESET),
        Ended::Refused => Some(libc::ECONNREFUSED),
        Ended::TimedOut => Some(libc::ETIMEDOUT),
        Ended::Aborted => None,
        // As the kernel's `icmp_err_convert`.
        Ended::Unreachable(why) => Some(match why {
            Unreachable::Network => libc::ENETUNREACH,
            Unreachable::Host | Unreachable::Prohibited => libc::EHOSTUNREACH,
            Unreachable::Protocol => libc::ENOPROTOOPT,
            Unreachable::Port => libc::ECONNREFUSED,
        }),
    }
}

/// Ours where no bind chose: those of packetdrill's run_all.py.
fn local_address(remote: SocketAddr) -> SocketAddr {
    if remote.is_ipv4() {
        SocketAddr::from(([192, 168, 0, 1], 0))
    } else {
        SocketAddr::from(([0xfd3d, 0x0a0b, 0x17d6, 0, 0, 0, 0, 1], 0))
    }
}

const SIOCOUTQNSD: u64 = 0x894b;
