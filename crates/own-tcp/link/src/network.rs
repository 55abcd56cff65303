//! IP networks and destination addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// True if `address` is in the network given by an address and a prefix length.
pub fn contains((network, bits): (IpAddr, u8), address: IpAddr) -> bool {
    let same = |a: u128, b: u128, width: u8| {
        let host_bits = width.saturating_sub(bits);
        host_bits >= 128 || a >> host_bits == b >> host_bits
    };
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            same(u32::from(network).into(), u32::from(address).into(), 32)
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => same(network.into(), address.into(), 128),
        _ => false,
    }
}

/// Destination address of the IP packet that starts with these bytes; `None` if too short.
pub(crate) fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        6 => {
            let octets: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
            Some(Ipv6Addr::from(octets).into())
        }
        _ => {
            let octets: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
            Some(Ipv4Addr::from(octets).into())
        }
    }
}
