//! `--forward`: ports of this host that lead to our TCP.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use tcpcost_console::exit::usage;

use super::network::{self, Network};

/// An address of this host, and the destination of the applications that connect to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    /// Address at which the kernel's TCP listens.
    pub local: SocketAddr,
    /// HOST:PORT as it was given; a name is resolved once, at the start.
    pub remote: String,
}

impl FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected LOCAL:PORT=HOST:PORT, e.g. 127.0.0.1:8080=10.9.0.1:80".to_string();
        let (local, remote) = text.split_once('=').ok_or_else(wrong)?;
        let local = match local.parse() {
            Ok(port) => SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            Err(_) => local.parse().map_err(|_| wrong())?,
        };
        let (host, port) = remote.rsplit_once(':').ok_or_else(wrong)?;
        if host.is_empty() || !port.parse().is_ok_and(|port: u16| port > 0) {
            return Err(wrong());
        }
        Ok(Self {
            local,
            remote: remote.to_string(),
        })
    }
}

impl Forward {
    /// Address of the destination, in a family of `own`.
    ///
    /// # Errors
    /// The name has no address, or no address can be reached from `own`.
    pub fn resolve(&self, own: &[Network]) -> anyhow::Result<SocketAddr> {
        let name = &self.remote;
        let found: Vec<SocketAddr> = name
            .to_socket_addrs()
            .map_err(|error| usage(format!("--forward {name}: {error}")))?
            .collect();
        let fits = |address: &&SocketAddr| network::fault_of_remote(address, own).is_none();
        match (found.iter().find(fits), found.first()) {
            (Some(address), _) => Ok(*address),
            (None, Some(address)) => {
                network::check_remote("--forward", *address, own).map(|()| *address)
            }
            (None, None) => Err(usage(format!("--forward {name}: no address"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forward_has_two_ends() {
        let parse = |text: &str| text.parse::<Forward>();
        let one = parse("8080=10.9.0.1:80").unwrap();
        assert_eq!(one.local, "127.0.0.1:8080".parse().unwrap());
        assert_eq!(
            parse("[::1]:80=[fd00::1]:80").unwrap().remote,
            "[fd00::1]:80"
        );
        for wrong in [
            "8080", "8080=", "8080=x", "8080=:80", "8080=x:0", "=x:80", "x=y:80",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
