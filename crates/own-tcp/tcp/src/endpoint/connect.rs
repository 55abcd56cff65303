//! Opening of connections by the application.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use super::secret::Purpose;
use super::{Configs, ConnId, Endpoint, Slot};
use crate::Config;
use crate::connection::Connection;
use crate::wire::FourTuple;

/// Reason why a connection cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// A connection between these two ends exists, open or in TIME-WAIT.
    InUse,
    /// No local port is free.
    NoPort,
    /// The addresses are of different families, or the remote port is 0.
    BadAddress,
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::InUse => "these two ends have a connection already",
            Self::NoPort => "every local port is taken",
            Self::BadAddress => "addresses of one family and a port are needed",
        })
    }
}

impl std::error::Error for ConnectError {}

impl Endpoint {
    /// Opens a connection. A local port of 0 selects a free port.
    ///
    /// # Errors
    /// [`ConnectError`] if the two ends cannot have a new connection.
    pub fn connect(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        now: Instant,
    ) -> Result<ConnId, ConnectError> {
        let config = self.configs.for_address(remote.ip());
        self.connect_as(config, local, remote, now)
    }

    /// Opens a connection with settings of its own.
    ///
    /// # Errors
    /// [`ConnectError`] if the two ends cannot have a new connection.
    pub fn connect_with(
        &mut self,
        config: Config,
        local: SocketAddr,
        remote: SocketAddr,
        now: Instant,
    ) -> Result<ConnId, ConnectError> {
        self.answers_each |= config.answers_each();
        let config = Configs::new(config, self.checksum).for_address(remote.ip());
        self.connect_as(config, local, remote, now)
    }

    fn connect_as(
        &mut self,
        config: Arc<Config>,
        local: SocketAddr,
        remote: SocketAddr,
        now: Instant,
    ) -> Result<ConnId, ConnectError> {
        if local.is_ipv4() != remote.is_ipv4() || remote.port() == 0 {
            return Err(ConnectError::BadAddress);
        }
        let mut path = FourTuple { local, remote };
        if local.port() == 0 {
            path.local
                .set_port(self.free_port(&path).ok_or(ConnectError::NoPort)?);
        }
        let key = self.key(&path);
        if self.is_taken(key, &path) {
            return Err(ConnectError::InUse);
        }
        let (iss, clock) = (
            self.initial_sequence(&path, None, now),
            self.clock_for(&path),
        );
        let fast_open = config.fast_open;
        let mut connection = Connection::connect(config, self.pool.clone(), iss, clock, now);
        if fast_open.connect || fast_open.connect_without_cookie {
            connection.open_fast(self.known(path.remote.ip()));
        }
        Ok(self.add(
            Slot {
                owned: true,
                ..Slot::new(connection, path)
            },
            key,
        ))
    }

    /// Finds a free local port (RFC 6056 §3.3.3): starts at a hash of the destination and continues
    /// with a counter. `None` if no port is free.
    fn free_port(&mut self, path: &FourTuple) -> Option<u16> {
        let begin = self.secret.hash(path, Purpose::Port, 0) as u16;
        for _ in 0..=u16::MAX - PORT_MIN {
            self.next_port = self.next_port.wrapping_add(1);
            let port = PORT_MIN + begin.wrapping_add(self.next_port) % (u16::MAX - PORT_MIN + 1);
            let mut path = *path;
            path.local.set_port(port);
            if self.ports.contain(port) && !self.is_taken(self.key(&path), &path) {
                return Some(port);
            }
        }
        None
    }

    fn is_taken(&self, key: u64, path: &FourTuple) -> bool {
        self.table.find(key, path).is_some() || self.time_waits.contains(key, path)
    }
}

/// Lowest dynamic port (RFC 6335 §6).
const PORT_MIN: u16 = 49_152;
