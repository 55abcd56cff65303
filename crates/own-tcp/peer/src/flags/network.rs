//! Addresses on the command line: only addresses that a host can have.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use tcpcost_console::exit::usage;

/// An address and the length of its network's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// Address of the host.
    pub address: IpAddr,
    /// Length of the prefix, bits.
    pub prefix: u8,
}

impl Network {
    /// Address and prefix length.
    pub fn pair(&self) -> (IpAddr, u8) {
        (self.address, self.prefix)
    }

    /// Reason why no host can have the address; `None` if a host can (RFC 1122 §3.2.1.3, RFC 4291 §2.5, §2.7).
    fn fault(&self) -> Option<&'static str> {
        let (address, prefix) = self.pair();
        if let Some(fault) = fault(address) {
            return Some(fault);
        }
        if let IpAddr::V4(address) = address
            && prefix < 31
        {
            let hosts = u32::MAX >> prefix;
            return match u32::from(address) & hosts {
                0 => Some("is the network's own address"),
                host if host == hosts => Some("is the network's broadcast address"),
                _ => None,
            };
        }
        None
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected an address with a prefix such as 10.9.0.2/24".to_string();
        let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let prefix: u8 = prefix.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        if prefix > most {
            return Err(wrong());
        }
        let network = Self { address, prefix };
        match network.fault() {
            None => Ok(network),
            Some(fault) => Err(format!("{address} {fault}")),
        }
    }
}

/// Reason why no host can have the address in any network; `None` if a host can.
fn fault(address: IpAddr) -> Option<&'static str> {
    if address.is_unspecified() {
        Some("is unspecified")
    } else if address.is_loopback() {
        Some("never leaves a host")
    } else if address.is_multicast() {
        Some("is a multicast address")
    } else if address == IpAddr::V4(Ipv4Addr::BROADCAST) {
        Some("is the broadcast address")
    } else {
        None
    }
}

/// Checks that `own` has at most one address of each family, and no address of `others`.
pub fn check(flag: &str, own: &[Network], others: &[Network]) -> anyhow::Result<()> {
    for (index, network) in own.iter().enumerate() {
        let same_family =
            |earlier: &&Network| earlier.address.is_ipv4() == network.address.is_ipv4();
        if let Some(earlier) = own[..index].iter().find(same_family) {
            return Err(usage(format!(
                "{flag} {} and {}: expected at most one of each family",
                network.address, earlier.address
            )));
        }
        if others.iter().any(|other| other.address == network.address) {
            return Err(usage(format!(
                "{flag} {} is --local, too: our TCP and the kernel need different addresses",
                network.address
            )));
        }
    }
    Ok(())
}

/// Checks that a connection can reach `remote`.
///
/// # Errors
/// The reason why not.
pub fn check_remote(flag: &str, remote: SocketAddr, own: &[Network]) -> anyhow::Result<()> {
    match fault_of_remote(&remote, own) {
        None => Ok(()),
        Some(why) => Err(usage(format!("{flag} {remote}: {why}"))),
    }
}

/// Reason why a connection cannot reach `remote`; `None` if it can.
pub fn fault_of_remote(remote: &SocketAddr, own: &[Network]) -> Option<String> {
    let address = remote.ip();
    let same_family = |own: &Network| own.address.is_ipv4() == address.is_ipv4();
    if remote.port() == 0 {
        return Some("port 0 cannot be connected to".to_string());
    }
    if let Some(fault) = fault(address) {
        return Some(format!("{address} {fault}"));
    }
    if own.iter().any(|own| own.address == address) {
        return Some("that is our own address".to_string());
    }
    if !own.iter().any(same_family) {
        return Some("needs a --local of the same family".to_string());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_is_an_address_that_a_host_can_have_and_a_prefix_that_fits_it() {
        for right in ["fd00::2/64", "10.0.0.1/31", "10.0.0.0/31", "10.0.0.255/32"] {
            assert!(right.parse::<Network>().is_ok(), "{right}");
        }
        for wrong in [
            "10.0.0.1",
            "10.0.0.1/33",
            "10.0.0/24",
            "fd00::1/129",
            "/",
            "0.0.0.0/24",
            "10.9.0.0/24",
            "10.9.0.255/24",
            "255.255.255.255/32",
            "127.0.0.1/8",
            "224.0.0.1/24",
            "::/64",
            "::1/128",
            "ff02::1/64",
        ] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn one_address_of_each_family_and_none_of_the_other_side() {
        let own = [network("10.9.0.2/24"), network("fd00::2/64")];
        assert!(check("--local", &own, &[]).is_ok());
        assert!(check("--local", &[own[0], network("10.9.0.3/24")], &[]).is_err());
        assert!(check("--host-address", &own[..1], &own).is_err());
    }

    #[test]
    fn whom_it_can_connect_to() {
        let own = [network("10.9.0.2/24")];
        let check = |remote: &str| fault_of_remote(&remote.parse().unwrap(), &own).is_none();
        assert!(check("10.9.0.1:80"));
        for wrong in [
            "10.9.0.1:0",
            "10.9.0.2:80",
            "255.255.255.255:80",
            "224.0.0.1:80",
            "127.0.0.1:80",
            "[fd00::1]:80",
        ] {
            assert!(!check(wrong), "{wrong}");
        }
    }
}
