//! Sockets, and opening of connections.

use std::net::SocketAddr;

use libc::{EADDRINUSE, EBADF, EINVAL, EISCONN, EPIPE};
use tcpcost_tcp::State;

use super::Failure::{Again, Errno};
use super::{Result, Socket, Sockets, Write};
use crate::{device, sysctl};

impl Sockets {
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

    /// Accepts a connection. Returns the new descriptor and the remote address.
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

    /// Sizes the send buffer like the kernel's `tcp_init_buffer_space`.
    fn open_buffer(&mut self, fd: i32) {
        let max = sysctl::send_buffer_max();
        if let (Some(view), Ok(descriptor)) = (self.view(fd), self.get(fd)) {
            descriptor.buffer.expand(10, view.mss, max);
        }
        self.look_at(fd);
    }

    /// Connects like [`connect`](Self::connect), with data for the SYN. Returns the bytes sent.
    /// With `waits` the other bytes are written, too.
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

    /// Begins to connect; [`connected`](Self::connected) returns the progress.
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
}

/// Local address without bind: that of packetdrill's run_all.py.
fn local_address(remote: SocketAddr) -> SocketAddr {
    if remote.is_ipv4() {
        SocketAddr::from(([192, 168, 0, 1], 0))
    } else {
        SocketAddr::from(([0xfd3d, 0x0a0b, 0x17d6, 0, 0, 0, 0, 1], 0))
    }
}
