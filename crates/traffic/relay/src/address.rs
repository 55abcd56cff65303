//! Addresses to listen on and to connect to: TCP over IPv4 and IPv6, and unix sockets.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::str::FromStr;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, bind, connect, ipproto,
    socket_with,
};

/// Address of a stream socket.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP address and port.
    Tcp(SocketAddr),
    /// Path of a unix socket.
    Unix(PathBuf),
    /// Name of an abstract unix socket (unix(7)), without the leading zero byte.
    Abstract(Vec<u8>),
}

/// Reason why a text is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The form is unknown.
    #[error("{0:?} is not an address such as 127.0.0.1:80, [::1]:80, NAME:80 or unix:/PATH")]
    Form(String),
    /// The name has no address.
    #[error("{name:?} has no address ({cause})")]
    Name {
        /// Text that was given.
        name: String,
        /// Error of the resolver.
        cause: String,
    },
}

impl FromStr for Address {
    type Err = AddressError;

    /// Parses `unix:/PATH`, `/PATH`, `unix:@NAME`, `IP:PORT`, or `NAME:PORT`; a name's first
    /// address is used.
    fn from_str(text: &str) -> Result<Address, AddressError> {
        let path = text.strip_prefix("unix:");
        if let Some(name) = path.and_then(|path| path.strip_prefix('@')) {
            return Ok(Address::Abstract(name.as_bytes().to_vec()));
        }
        if let Some(path) = path.or_else(|| text.starts_with('/').then_some(text)) {
            return match path.is_empty() {
                true => Err(AddressError::Form(text.to_string())),
                false => Ok(Address::Unix(path.into())),
            };
        }
        if let Ok(address) = text.parse() {
            return Ok(Address::Tcp(address));
        }
        let has_port = text
            .rsplit_once(':')
            .is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok());
        if !has_port {
            return Err(AddressError::Form(text.to_string()));
        }
        let failed = |cause: String| AddressError::Name {
            name: text.to_string(),
            cause,
        };
        let mut addresses = text
            .to_socket_addrs()
            .map_err(|error| failed(error.to_string()))?;
        let first = addresses.next();
        Ok(Address::Tcp(
            first.ok_or_else(|| failed("none".to_string()))?,
        ))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Abstract(name) => write!(f, "unix:@{}", String::from_utf8_lossy(name)),
        }
    }
}

impl Address {
    /// True for TCP, so that options of TCP apply.
    pub fn is_tcp(&self) -> bool {
        matches!(self, Address::Tcp(_))
    }

    /// Makes a non-blocking socket of the address's family.
    pub(crate) fn socket(&self) -> Result<OwnedFd, Errno> {
        let (family, protocol) = match self {
            Address::Tcp(SocketAddr::V4(_)) => (AddressFamily::INET, Some(ipproto::TCP)),
            Address::Tcp(SocketAddr::V6(_)) => (AddressFamily::INET6, Some(ipproto::TCP)),
            Address::Unix(_) | Address::Abstract(_) => (AddressFamily::UNIX, None),
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        socket_with(family, SocketType::STREAM, flags, protocol)
    }

    fn any(&self) -> Result<SocketAddrAny, Errno> {
        Ok(match self {
            Address::Tcp(address) => (*address).into(),
            Address::Unix(path) => SocketAddrUnix::new(path)?.into(),
            Address::Abstract(name) => SocketAddrUnix::new_abstract_name(name)?.into(),
        })
    }

    pub(crate) fn bind(&self, socket: &OwnedFd) -> Result<(), Errno> {
        bind(socket, &self.any()?)
    }

    pub(crate) fn connect(&self, socket: &OwnedFd) -> Result<(), Errno> {
        connect(socket, &self.any()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_alike() {
        for text in [
            "127.0.0.1:80",
            "[::1]:8080",
            "unix:/run/x.sock",
            "unix:@name",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        let path: Address = "/run/x.sock".parse().unwrap();
        assert_eq!(path.to_string(), "unix:/run/x.sock");
        assert!(matches!(
            "localhost:80".parse(),
            Ok(Address::Tcp(address)) if address.port() == 80
        ));
    }

    #[test]
    fn what_is_no_address_is_told_from_a_name_without_one() {
        for text in [
            "",
            "80",
            "localhost",
            "1.2.3.4",
            ":80",
            "a:b",
            "a:65536",
            "unix:",
        ] {
            assert!(
                matches!(text.parse::<Address>(), Err(AddressError::Form(_))),
                "{text}"
            );
        }
        assert!(matches!(
            "no-such-host.invalid:80".parse::<Address>(),
            Err(AddressError::Name { .. })
        ));
    }
}
