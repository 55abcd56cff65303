//! Addresses on which a netserver listens.

use std::net::{IpAddr, SocketAddr, TcpListener};

use super::Asked;
use super::limits::BACKLOG;
use crate::Failure;
use crate::net::socket::{SocketOptions, data_socket};
use crate::options::Family;
use crate::remote::resolve;

/// Address, and true if the netserver can do without it.
pub type Place = (SocketAddr, bool);

/// Named addresses. Without any, loopback, including IPv6 if it exists.
pub fn places(asked: &Asked) -> Result<Vec<Place>, Failure> {
    let port = asked.port.unwrap_or(12865);
    if asked.is_for_ssh {
        let told = std::env::var("SSH_CONNECTION").unwrap_or_default();
        let address = told
            .split_whitespace()
            .nth(2)
            .and_then(|address| address.parse().ok());
        let address: IpAddr = address.ok_or_else(|| {
            Failure::usage("-s: SSH_CONNECTION has no address: not started by ssh")
        })?;
        return Ok(vec![(SocketAddr::new(address, port), false)]);
    }
    if asked.hosts.is_empty() {
        let v4 = (SocketAddr::from(([127, 0, 0, 1], port)), false);
        let v6 = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port));
        return Ok(match asked.family {
            Some(Family::V4) => vec![v4],
            Some(Family::V6) => vec![(v6, false)],
            None => vec![v4, (v6, true)],
        });
    }
    let mut places = Vec::new();
    for (host, family) in &asked.hosts {
        let addresses = resolve(host, port, family.or(asked.family))
            .map_err(|failure| Failure::usage(format!("-L {failure}")))?;
        places.extend(addresses.into_iter().map(|address| (address, false)));
    }
    places.dedup();
    Ok(places)
}

/// Listens at each address. If the system chooses the port, it is the same for all addresses.
pub fn bind(places: &[Place]) -> Result<Vec<TcpListener>, Failure> {
    let mut listeners: Vec<TcpListener> = Vec::new();
    for &(mut address, is_optional) in places {
        if let (0, Some(first)) = (address.port(), listeners.first()) {
            address.set_port(first.local_addr().map_or(0, |first| first.port()));
        }
        let socket = data_socket(address, &SocketOptions::default());
        let listening = socket.and_then(|socket| {
            rustix::net::listen(&socket, BACKLOG)?;
            Ok(TcpListener::from(socket))
        });
        match listening {
            Ok(listener) => listeners.push(listener),
            Err(_) if is_optional => {}
            Err(error) => return Err(Failure::usage(format!("listen at {address}: {error}"))),
        }
    }
    Ok(listeners)
}
