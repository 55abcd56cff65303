//! What a socket call does: safe code, errors as errno. `Err(Again)` says that it would block.
//!
//! `send_buffer.rs` says how much is taken, `reports.rs` what the error queue tells, `ready.rs` and
//! `epoll.rs` what a descriptor is ready for, `options.rs` has the socket options.

mod epoll;
mod options;
mod ready;
mod reports;
mod send_buffer;

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use libc::{EADDRINUSE, EBADF, EINVAL, EISCONN, ENOTCONN, EPIPE};
use tcpcost_tcp::wire::Unreachable;
use tcpcost_tcp::{Config, ConnId, Connection, Ended, ReadError, SeqNum, State, WriteError};

use crate::host::Host;
use crate::{device, sysctl};
use epoll::Epoll;
use reports::Reports;
use send_buffer::{SendBuffer, View};

pub use reports::Report;

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
    Epoll(Epoll),
    /// Either end of a pipe, by number.
    Pipe(usize),
}

struct Descriptor {
    socket: Socket,
    nonblocking: bool,
    config: Config,
    /// Shut down for reading.
    deaf: bool,
    /// TCP_FASTOPEN_CONNECT: and where to, once that is known; the SYN waits for the first write.
    deferred: Option<Option<SocketAddr>>,
    buffer: SendBuffer,
    reports: Reports,
    /// TCP_INQ.
    tells_left: bool,
    /// RCV.NXT and state when it was last looked at.
    seen: Option<(SeqNum, State)>,
    _file: File,
}

/// Of a call that writes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Write {
    /// MSG_MORE.
    pub more: bool,
    /// MSG_EOR.
    pub ends_record: bool,
    /// It has waited for room.
    pub waited: bool,
}

/// Descriptors and the host behind them.
pub struct Sockets {
    pub host: Host,
    descriptors: HashMap<i32, Descriptor>,
    /// A script has set TCP_FASTOPEN_KEY.
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

    /// A packet comes in.
    pub fn arrive(&mut self, bytes: &[u8]) {
        self.host.arrive(bytes);
        self.look();
    }

    /// The next timer, if it is due by `until_us`: lets it fire.
    pub fn tick(&mut self, until_us: u64) -> bool {
        let fired = self.host.tick(until_us);
        if fired {
            self.look();
        }
        fired
    }

    /// What may have changed for whoever waits.
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

    /// What its send buffer depends on.
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

    /// Where a connection that waits for its first write goes.
    pub fn deferred(&mut self, fd: i32) -> Option<SocketAddr> {
        let descriptor = self.get(fd).ok()?;
        match descriptor.socket {
            Socket::Fresh(_) => descriptor.deferred?,
            _ => None,
        }
    }

    pub fn socket(&mut self) -> i32 {
        self.host.endpoint.set_offloads(false, device::cuts());
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
        let (buffer, zerocopy) = (descriptor.buffer.inherited(), descriptor.reports.zerocopy);
        let id = self.host.endpoint.accept(address.port()).ok_or(Again)?;
        let remote = self
            .host
            .endpoint
            .path(id)
            .map_or(address, |path| path.remote);
        let reported = false;
        let fd = self.add(Socket::Connection { id, reported }, config);
        let descriptor = self.get(fd)?;
        (descriptor.buffer, descriptor.reports.zerocopy) = (buffer, zerocopy);
        self.open_buffer(fd);
        Ok((fd, remote))
    }

    /// As the kernel's `tcp_init_buffer_space`.
    fn open_buffer(&mut self, fd: i32) {
        let max = sysctl::send_buffer_max();
        if let (Some(view), Ok(descriptor)) = (self.view(fd), self.get(fd)) {
            descriptor.buffer.expand(10, view.mss, max);
        }
        self.look_at(fd);
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
                Ok(_) => self.write(fd, data, Write::default()),
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

    /// With `peek` it stays to be read (MSG_PEEK).
    pub fn read(&mut self, fd: i32, to: &mut [u8], peek: bool) -> Result<i64> {
        if self.deferred(fd).is_some() {
            return Err(Again);
        }
        let (id, now) = (self.connection(fd)?, self.host.now());
        let read = self.apply(id, |connection| match peek {
            true => connection.peek(to),
            false => connection.read(to, now),
        })?;
        match read {
            Ok(bytes) => Ok(bytes as i64),
            Err(ReadError::Finished) => Ok(0),
            Err(ReadError::Empty) if self.get(fd)?.deaf => Ok(0),
            Err(ReadError::Empty) => Err(Again),
            Err(ReadError::Ended(_)) => {
                self.error_once(fd).map_or(Ok(0), |errno| Err(Errno(errno)))
            }
        }
    }

    /// What TCP_INQ tells after a read, if that was asked for; one byte more than there is says that
    /// the peer has closed.
    pub fn left(&mut self, fd: i32) -> Option<i32> {
        let id = self.connection(fd).ok()?;
        if !self.get(fd).ok()?.tells_left {
            return None;
        }
        let connection = self.host.endpoint.connection(id)?;
        let finished = i32::from(connection.is_finished());
        Some((connection.readable() as i32).max(finished))
    }

    /// Unit by unit, as long as there is room; how much was taken.
    pub fn write(&mut self, fd: i32, bytes: &[u8], how: Write) -> Result<i64> {
        if matches!(self.get(fd)?.socket, Socket::Fresh(_)) {
            return Err(Errno(EPIPE));
        }
        let id = self.connection(fd)?;
        let state = self.host.endpoint.connection(id).map(Connection::state);
        if state == Some(State::SynSent) || (how.waited && self.get(fd)?.buffer.full) {
            return Err(Again);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let view = self.view(fd).ok_or(Errno(EBADF))?;
            let buffer = &mut self.get(fd)?.buffer;
            let Some(share) = buffer.take(rest.len() as u32, &view) else {
                break;
            };
            let (now, later) = rest.split_at(share.bytes as usize);
            let is_last = later.is_empty();
            let more = if is_last { how.more } else { !share.pushed };
            if !more {
                buffer.on_pushed();
            }
            let ends = is_last && how.ends_record;
            if ends {
                buffer.end_record();
            }
            self.put(fd, now, share.bytes, more, share.fills || ends)?;
            rest = later;
        }
        if rest.is_empty() && !bytes.is_empty() {
            return Ok(bytes.len() as i64);
        }
        // What does not fit is wanted all the same; what did waits for nothing but room.
        self.put(fd, rest, 0, how.more, false)?;
        let descriptor = self.get(fd)?;
        descriptor.buffer.full |= !rest.is_empty();
        descriptor.buffer.on_pushed();
        match bytes.len() - rest.len() {
            0 if !bytes.is_empty() => Err(Again),
            taken => Ok(taken as i64),
        }
    }

    /// Writes what there is room for by the send buffer's rule, which is not the TCP's own.
    fn put(&mut self, fd: i32, bytes: &[u8], room: u32, more: bool, ends: bool) -> Result<()> {
        let id = self.connection(fd)?;
        let written = self.apply(id, |connection| {
            let room = connection.unacknowledged() as u32 + room;
            connection.configure(|config| config.send_buffer = room);
            let written = connection.write_more(bytes, more)?;
            if ends {
                connection.end_record();
            }
            Ok(written)
        })?;
        match written {
            Ok(_) => Ok(()),
            Err(WriteError::Closed) => Err(Errno(EPIPE)),
            Err(WriteError::Ended(_)) => Err(Errno(self.error_once(fd).unwrap_or(EPIPE))),
        }
    }

    /// A call has written something.
    pub fn on_written(&mut self, fd: i32, zerocopy: bool) {
        let Ok(id) = self.connection(fd) else {
            return;
        };
        let written = self.host.endpoint.connection(id).map(Connection::written);
        if let (Some(end), Ok(descriptor)) = (written, self.get(fd)) {
            descriptor.reports.on_written(end, zerocopy);
            self.look_at(fd);
        }
    }

    /// The next message of the error queue, and whether it is of IPv4.
    pub fn report(&mut self, fd: i32) -> Result<(Report, bool)> {
        let is_v4 = match self.connection(fd) {
            Ok(id) => (self.host.endpoint.path(id)).is_none_or(|path| path.remote.is_ipv4()),
            Err(_) => true,
        };
        let report = self.get(fd)?.reports.next().ok_or(Again)?;
        Ok((report, is_v4))
    }

    pub fn pipe(&mut self) -> [i32; 2] {
        self.pipes.push(VecDeque::new());
        let number = self.pipes.len() - 1;
        [(); 2].map(|()| self.add(Socket::Pipe(number), sysctl::config()))
    }

    /// From a connection to a pipe, up to urgent data, which is not in its stream; or the other way.
    pub fn splice(&mut self, from: i32, to: i32, bytes: usize) -> Result<i64> {
        match (&self.get(from)?.socket, bytes) {
            (Socket::Pipe(number), _) => {
                let number = *number;
                let taken: Vec<u8> = self.pipes[number].iter().take(bytes).copied().collect();
                let written = self.write(to, &taken, Write::default())?;
                self.pipes[number].drain(..written as usize);
                Ok(written)
            }
            _ => {
                let Socket::Pipe(number) = self.get(to)?.socket else {
                    return Err(Errno(EINVAL));
                };
                let id = self.connection(from)?;
                let connection = self.host.endpoint.connection(id).ok_or(Errno(EBADF))?;
                let bytes = match connection.urgent() {
                    0 => bytes,
                    urgent => bytes.min(urgent as usize - 1),
                };
                let mut buffer = vec![0; bytes];
                let read = self.read(from, &mut buffer, false)?;
                self.pipes[number].extend(&buffer[..read as usize]);
                Ok(read)
            }
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
}

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
