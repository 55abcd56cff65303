//! What an endpoint answers for: its own addresses, to hosts that can be, and nothing else, not even
//! with a reset. A bridge floods, and a TUN is given whatever is routed to it.

use std::net::IpAddr;

use super::Endpoint;
use crate::wire::FourTuple;

/// Its own addresses, each with the length of its network's prefix; empty: any.
#[derive(Default)]
pub(super) struct LocalAddresses(Vec<(IpAddr, u8)>);

impl Endpoint {
    /// From now on answers for these addresses only, each with the length of its network's prefix
    /// (32 or 128 where it is not known), which tells the broadcast addresses. By default it answers
    /// for any address, for users whose device brings nothing else.
    pub fn set_addresses(&mut self, addresses: &[(IpAddr, u8)]) {
        self.local_addresses = LocalAddresses(addresses.to_vec());
    }
}

impl LocalAddresses {
    /// Whether somebody at `remote` may have anything to do with us at `local`.
    pub(super) fn may_meet(&self, path: &FourTuple) -> bool {
        let (local, remote) = (path.local.ip(), path.remote.ip());
        let ours = self.is_ours(local);
        // RFC 1122 §3.2.1.3: 127/8 never leaves a host, nor does our own address come from outside
        // (the LAND attack of 1997).
        ours && local != remote
            && !self.has(remote)
            && path.remote.port() != 0
            && (!remote.is_loopback() || local.is_loopback())
            && self.is_unicast(local)
            && self.is_unicast(remote)
    }

    /// Whether a packet to it is for us.
    pub(super) fn is_ours(&self, local: IpAddr) -> bool {
        self.0.is_empty() || self.has(local)
    }

    fn has(&self, address: IpAddr) -> bool {
        self.0.iter().any(|(own, _)| *own == address)
    }

    /// RFC 9293 MUST-57, MUST-63: neither a group nor everybody on a network.
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
