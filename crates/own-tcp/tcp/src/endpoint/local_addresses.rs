//! Address filter of an endpoint: it answers only for its own addresses, and only to possible
//! hosts; other packets get no answer, not even a reset. A bridge floods frames, and a TUN receives
//! whatever is routed to it.

use std::net::IpAddr;

use super::Endpoint;
use crate::wire::FourTuple;

/// Own addresses, each with the prefix length of its network; empty: any address.
#[derive(Default)]
pub(super) struct LocalAddresses(Vec<(IpAddr, u8)>);

impl Endpoint {
    /// Sets the own addresses, each with the prefix length of its network, which identifies
    /// broadcast addresses (32 or 128 if not known). Packets to other addresses are dropped. By
    /// default the endpoint answers for any address, for devices that receive nothing else.
    pub fn set_addresses(&mut self, addresses: &[(IpAddr, u8)]) {
        self.local_addresses = LocalAddresses(addresses.to_vec());
    }
}

impl LocalAddresses {
    /// True if a packet between these two ends is possible and for us.
    pub(super) fn may_meet(&self, path: &FourTuple) -> bool {
        let (local, remote) = (path.local.ip(), path.remote.ip());
        let ours = self.is_ours(local);
        // RFC 1122 §3.2.1.3: addresses in 127/8 never appear outside a host, and our own address
        // never arrives as a source (the LAND attack of 1997).
        ours && local != remote
            && !self.has(remote)
            && path.remote.port() != 0
            && (!remote.is_loopback() || local.is_loopback())
            && self.is_unicast(local)
            && self.is_unicast(remote)
    }

    /// True if a packet to `local` is for us.
    pub(super) fn is_ours(&self, local: IpAddr) -> bool {
        self.0.is_empty() || self.has(local)
    }

    fn has(&self, address: IpAddr) -> bool {
        self.0.iter().any(|(own, _)| *own == address)
    }

    /// True if the address is neither multicast nor broadcast (RFC 9293 MUST-57, MUST-63).
    fn is_unicast(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V6(address) => !(address.is_multicast() || address.is_unspecified()),
            IpAddr::V4(address) => {
                let special =
                    address.is_multicast() || address.is_broadcast() || address.octets()[0] == 0;
                let broadcast = |(own, bits): &(IpAddr, u8)| match own {
                    IpAddr::V4(own) if *bits < 31 => {
                        let hosts = u32::MAX >> bits;
                        u32::from(address) & hosts == hosts
                            && (u32::from(address) ^ u32::from(*own)) & !hosts == 0
                    }
                    _ => false,
                };
                !special && !self.0.iter().any(broadcast)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_can_be_there_is_answered() {
        let own = LocalAddresses(vec![
            ("10.9.0.2".parse().unwrap(), 24),
            ("fd00::2".parse().unwrap(), 64),
        ]);
        let check = |local: &str, remote: &str| {
            own.may_meet(&FourTuple {
                local: local.parse().unwrap(),
                remote: remote.parse().unwrap(),
            })
        };
        assert!(check("10.9.0.2:80", "10.9.0.1:4000"));
        assert!(check("[fd00::2]:80", "[fd00::1]:4000"));
        for (local, remote) in [
            ("10.9.0.200:80", "10.9.0.1:4000"),
            ("10.9.0.2:80", "10.9.0.2:4000"),
            ("10.9.0.2:80", "127.0.0.1:4000"),
            ("10.9.0.2:80", "10.9.0.255:4000"),
            ("10.9.0.2:80", "255.255.255.255:4000"),
            ("10.9.0.2:80", "224.0.0.1:4000"),
            ("10.9.0.2:80", "0.0.0.0:4000"),
            ("10.9.0.2:80", "10.9.0.1:0"),
            ("[fd00::3]:80", "[fd00::1]:4000"),
            ("[fd00::2]:80", "[ff02::1]:4000"),
            ("[fd00::2]:80", "[::1]:4000"),
        ] {
            assert!(!check(local, remote), "{local} {remote}");
        }
    }

    #[test]
    fn without_addresses_of_its_own_it_answers_for_any() {
        let own = LocalAddresses::default();
        let path = FourTuple {
            local: "10.9.0.200:80".parse().unwrap(),
            remote: "10.9.0.1:4000".parse().unwrap(),
        };
        assert!(own.may_meet(&path));
        let land = FourTuple {
            remote: path.local,
            ..path
        };
        assert!(!own.may_meet(&land));
    }
}
