//! Socket options.

use libc::ENOPROTOOPT;
use tcpcost_tcp::{Config, Nagle};

use super::Failure::Errno;
use super::{Result, Socket, Sockets};
use crate::{info, sysctl};

impl Sockets {
    pub fn set_option(&mut self, fd: i32, level: i32, name: i32, value: i32) -> Result<i64> {
        let is_of_connections = match level {
            libc::SOL_SOCKET => {
                self.set_socket_option(fd, name, value)?;
                false
            }
            libc::IPPROTO_TCP => self.set_tcp_option(fd, name, value)?,
            libc::SOL_IP => self.set_ip_option(fd, name, value)?,
            _ => return Err(Errno(ENOPROTOOPT)),
        };
        if let (true, Ok(id)) = (is_of_connections, self.connection(fd)) {
            let chosen = self.get(fd)?.config.clone();
            let pushes = (level, name) == (libc::IPPROTO_TCP, libc::TCP_NODELAY) && value != 0;
            self.apply(id, |connection| {
                if pushes {
                    connection.push();
                }
                connection.configure(|config| {
                    config.segmentation.nagle = chosen.segmentation.nagle;
                    config.user_timeout = chosen.user_timeout;
                    config.syn_retries_max = chosen.syn_retries_max;
                    config.dscp = chosen.dscp;
                });
            })?;
        }
        Ok(0)
    }

    /// Sets an option of SOL_SOCKET.
    fn set_socket_option(&mut self, fd: i32, name: i32, value: i32) -> Result<()> {
        let descriptor = self.get(fd)?;
        match name {
            libc::SO_SNDBUF => {
                let bytes = (value.max(0) as u32 * 2).max(SEND_BUFFER_MIN);
                (descriptor.buffer.limit, descriptor.buffer.locked) = (bytes, true);
            }
            libc::SO_RCVBUF => {
                descriptor.config.receive_buffer = value.max(0) as u32;
                descriptor.config.receive_buffer_max = 0;
            }
            libc::SO_ZEROCOPY => descriptor.reports.zerocopy = value != 0,
            libc::SO_TIMESTAMPING => {
                let id = self.connection(fd)?;
                let una = self.apply(id, |connection| connection.sequence().0)?;
                self.get(fd)?.reports.stamp(value as u32, una);
            }
            // Without effect on the segments of a script.
            libc::SO_REUSEADDR | libc::SO_MARK | libc::SO_KEEPALIVE => {}
            _ => return Err(Errno(ENOPROTOOPT)),
        }
        Ok(())
    }

    /// Sets an option of IPPROTO_TCP. True if an open connection must have it, too.
    fn set_tcp_option(&mut self, fd: i32, name: i32, value: i32) -> Result<bool> {
        let descriptor = self.get(fd)?;
        let config = &mut descriptor.config;
        match name {
            libc::TCP_NODELAY => {
                config.segmentation.nagle = match value {
                    0 => Nagle::Minshall,
                    _ => Nagle::Off,
                };
                return Ok(true);
            }
            libc::TCP_USER_TIMEOUT => {
                let timeout = std::time::Duration::from_millis(value.max(0) as u64);
                config.user_timeout = (value > 0).then_some(timeout);
                return Ok(true);
            }
            libc::TCP_SYNCNT => {
                config.syn_retries_max = value as u8;
                return Ok(true);
            }
            libc::TCP_KEEPIDLE => {
                let keepalive = config.keepalive.get_or_insert_default();
                keepalive.idle = std::time::Duration::from_secs(value as u64);
            }
            libc::TCP_MAXSEG => self.configure(fd, |config| config.mss = value as u16)?,
            TCP_NOTSENT_LOWAT => descriptor.buffer.low_water = value as u32,
            TCP_INQ => descriptor.tells_left = value != 0,
            libc::TCP_CORK => {
                let id = self.connection(fd)?;
                self.apply(id, |connection| connection.cork(value != 0))?;
            }
            libc::TCP_FASTOPEN => {
                let max = match sysctl::fast_open().server {
                    true => value.max(0) as u16,
                    false => 0,
                };
                self.configure(fd, |config| config.fast_open.accept_max = max)?;
            }
            libc::TCP_FASTOPEN_CONNECT if !sysctl::fast_open().client => {
                return Err(Errno(libc::EOPNOTSUPP));
            }
            libc::TCP_FASTOPEN_CONNECT => descriptor.deferred = (value != 0).then_some(None),
            TCP_FASTOPEN_NO_COOKIE => config.fast_open.connect_without_cookie = value != 0,
            _ => return Err(Errno(ENOPROTOOPT)),
        }
        Ok(false)
    }

    /// Sets an option of SOL_IP. True if an open connection must have it, too.
    fn set_ip_option(&mut self, fd: i32, name: i32, value: i32) -> Result<bool> {
        let descriptor = self.get(fd)?;
        match name {
            // The two bits below the DSCP belong to TCP, for ECN.
            libc::IP_TOS => descriptor.config.dscp = (value as u8) >> 2,
            // Without effect on the segments of a script.
            libc::IP_MTU_DISCOVER | libc::IP_FREEBIND => return Ok(false),
            _ => return Err(Errno(ENOPROTOOPT)),
        }
        Ok(true)
    }

    /// Changes the configuration of a descriptor, and of its listener if it is one.
    fn configure(&mut self, fd: i32, change: impl Fn(&mut Config)) -> Result<()> {
        let descriptor = self.get(fd)?;
        change(&mut descriptor.config);
        if let Socket::Listener(address) = descriptor.socket {
            let endpoint = &mut self.host.endpoint;
            endpoint.configure_listener(address.port(), change);
        }
        Ok(())
    }

    /// Value of an option, as bytes.
    pub fn option(&mut self, fd: i32, level: i32, name: i32) -> Result<Vec<u8>> {
        let number = |value: i32| Ok(value.to_ne_bytes().to_vec());
        if (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR) {
            let error = self.error_once(fd).unwrap_or(0);
            return number(error);
        }
        let now = self.host.now();
        let descriptor = self.get(fd)?;
        let (config, buffer) = (descriptor.config.clone(), descriptor.buffer.clone());
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => number(buffer.limit as i32),
            (libc::IPPROTO_TCP, TCP_NOTSENT_LOWAT) => number(buffer.low_water as i32),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => {
                number((config.segmentation.nagle == Nagle::Off).into())
            }
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => match self.connection(fd) {
                Ok(id) => number(self.apply(id, |connection| connection.mss())? as i32),
                Err(_) if config.mss == crate::sysctl::config().mss => number(536),
                Err(_) => number(config.mss.into()),
            },
            (libc::IPPROTO_TCP, libc::TCP_INFO) => match self.connection(fd) {
                Ok(id) => self.apply(id, |connection| info::tcp_info(connection, now)),
                Err(_) => Ok(vec![0; info::BYTES]),
            },
            // Empty: our algorithms have none, and sk_buffs are not counted here.
            (libc::IPPROTO_TCP, libc::TCP_CC_INFO) => Ok(Vec::new()),
            (libc::SOL_SOCKET, libc::SO_MEMINFO) => Ok(vec![0; 36]),
            _ => Err(Errno(ENOPROTOOPT)),
        }
    }
}

/// Values of the kernel's headers.
const TCP_NOTSENT_LOWAT: i32 = 25;
const TCP_FASTOPEN_NO_COOKIE: i32 = 34;
const TCP_INQ: i32 = 36;
/// SOCK_MIN_SNDBUF.
const SEND_BUFFER_MIN: u32 = 4608;
