//! Addresses of this network namespace, and the choice of the device and address by which a host is
//! reached.

use std::net::IpAddr;

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::error::SystemError;
use crate::netlink::ask;
use crate::{link, route};

/// Address of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceAddress {
    /// Name of the device.
    pub device: String,
    /// IPv4 or IPv6 address.
    pub address: IpAddr,
    /// Length of the network's prefix, bits.
    pub prefix: u8,
    /// True if the address is valid beyond the link and the host.
    pub is_global: bool,
}

/// Error of [`find`]: nothing fits. The last field lists the addresses that exist.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// Addresses that cannot be read.
    #[error(transparent)]
    System(#[from] SystemError),
    /// Device, or `no device`, and the address that it does not have.
    #[error("{0} has not the address {1}; {2}")]
    NoSuchAddress(String, IpAddr, String),
    /// Device without an address.
    #[error("{0} has no address; {1}")]
    NoAddress(String, String),
    /// Several devices, or none.
    #[error("which device is meant is not clear: name it with device = \"…\"; {0}")]
    Unclear(String),
}

/// Reads all addresses of this network namespace, of IPv4 or of IPv6.
///
/// # Errors
/// The kernel's error.
pub fn all(is_v6: bool) -> Result<Vec<DeviceAddress>, SystemError> {
    let mut message = AddressMessage::default();
    message.header.family = match is_v6 {
        false => AddressFamily::Inet,
        true => AddressFamily::Inet6,
    };
    let tried = "read the addresses of this host";
    let answers = ask(tried, RouteNetlinkMessage::GetAddress(message), NLM_F_DUMP)?;
    let mut found = Vec::new();
    for answer in answers {
        let RouteNetlinkMessage::NewAddress(message) = answer else {
            continue;
        };
        let attributes = message.attributes.iter();
        // On a point-to-point link IFA_ADDRESS is the other end's address.
        let own = |attribute: &AddressAttribute| match attribute {
            AddressAttribute::Local(address) => Some((0, *address)),
            AddressAttribute::Address(address) => Some((1, *address)),
            _ => None,
        };
        let Some((_, address)) = attributes.filter_map(own).min_by_key(|(rank, _)| *rank) else {
            continue;
        };
        found.push(DeviceAddress {
            device: route::device_name(message.header.index),
            address,
            prefix: message.header.prefix_len,
            is_global: message.header.scope == AddressScope::Universe,
        });
    }
    Ok(found)
}

/// Finds the address if a device, an address, both or neither is named.
///
/// # Errors
/// No address fits, or the choice is not clear.
pub fn find(
    device: Option<&str>,
    address: Option<IpAddr>,
    is_v6: bool,
) -> Result<DeviceAddress, AddressError> {
    let all = all(is_v6)?;
    let is_up = |device: &str| link::read(device).is_ok_and(|link| link.up);
    choose(&all, device, address, is_up, || {
        let beyond: IpAddr = match is_v6 {
            // Documentation addresses (RFC 5737, RFC 3849): only the default route leads to them.
            false => [192, 0, 2, 1].into(),
            true => [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(),
        };
        let words = route::describe(beyond).ok()?;
        let mut words = words.split_whitespace().skip_while(|word| *word != "dev");
        words.nth(1).map(String::from)
    })
}

fn choose(
    all: &[DeviceAddress],
    device: Option<&str>,
    address: Option<IpAddr>,
    is_up: impl Fn(&str) -> bool,
    default: impl FnOnce() -> Option<String>,
) -> Result<DeviceAddress, AddressError> {
    let there = || {
        let each = all
            .iter()
            .map(|one| format!("{} {}", one.device, one.address));
        let each: Vec<String> = each.collect();
        match each.is_empty() {
            true => "there is no address".to_string(),
            false => format!("there are {}", each.join(", ")),
        }
    };
    if let Some(address) = address {
        let is_meant = |one: &&DeviceAddress| {
            one.address == address && device.is_none_or(|device| one.device == device)
        };
        let found = all.iter().find(is_meant).cloned();
        let of = device.unwrap_or("no device").to_string();
        return found.ok_or_else(|| AddressError::NoSuchAddress(of, address, there()));
    }
    let first_of = |device: &str| {
        let mut of_device = all.iter().filter(|one| one.device == device);
        let global = of_device.clone().find(|one| one.is_global);
        global.or_else(|| of_device.next()).cloned()
    };
    if let Some(device) = device {
        let none = || AddressError::NoAddress(device.to_string(), there());
        return first_of(device).ok_or_else(none);
    }
    let mut usable: Vec<&str> = all
        .iter()
        .filter(|one| one.is_global && one.device != "lo")
        .map(|one| one.device.as_str())
        .collect();
    usable.dedup();
    usable.retain(|device| is_up(device));
    let device = match usable.as_slice() {
        [only] => Some((*only).to_string()),
        _ => default(),
    };
    let found = device.and_then(|device| first_of(&device));
    found.ok_or_else(|| AddressError::Unclear(there()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(device: &str, address: &str, is_global: bool) -> DeviceAddress {
        DeviceAddress {
            device: device.to_string(),
            address: address.parse().unwrap(),
            prefix: 24,
            is_global,
        }
    }

    #[test]
    fn a_device_is_found_by_its_name_its_address_or_as_the_only_one() {
        let all = [
            address("lo", "127.0.0.1", false),
            address("eth0", "192.0.2.7", true),
            address("eth0", "192.0.2.8", true),
            address("eth1", "198.51.100.1", true),
        ];
        let find = |all: &[DeviceAddress],
                    device,
                    at: Option<&str>,
                    up: &[&str],
                    default: Option<&str>| {
            let at = at.map(|at| at.parse().unwrap());
            let found = choose(
                all,
                device,
                at,
                |one| up.contains(&one),
                || default.map(String::from),
            );
            found
                .map(|found| format!("{} {}", found.device, found.address))
                .map_err(|error| error.to_string())
        };
        let both = &["eth0", "eth1"][..];
        let found = |text: &str| Ok(text.to_string());
        assert_eq!(
            find(&all, Some("eth1"), None, both, None),
            found("eth1 198.51.100.1")
        );
        assert_eq!(
            find(&all, None, Some("192.0.2.8"), both, None),
            found("eth0 192.0.2.8")
        );
        assert_eq!(
            find(&all, None, None, &["eth1"], None),
            found("eth1 198.51.100.1")
        );
        assert_eq!(
            find(&all, None, None, both, Some("eth0")),
            found("eth0 192.0.2.7")
        );
        assert_eq!(
            find(&all, Some("lo"), None, both, None),
            found("lo 127.0.0.1")
        );
        for (device, at) in [
            (Some("eth2"), None),
            (Some("eth1"), Some("192.0.2.8")),
            (None, None),
        ] {
            let error = find(&all, device, at, both, None).unwrap_err();
            assert!(error.contains("eth1 198.51.100.1"), "{error}");
        }
        assert!(
            find(&[], None, None, both, None)
                .unwrap_err()
                .contains("no address")
        );
    }

    #[test]
    fn this_namespace_has_the_loopbacks_address_where_that_is_up() {
        if !link::read("lo").unwrap().up {
            return; // A sandbox without a network has no address to find.
        }
        let found = find(Some("lo"), None, false).unwrap();
        assert_eq!(found.address, IpAddr::from([127, 0, 0, 1]));
    }
}
