//! Names of hosts and of sets of hosts.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Name of a host of a bed, such as `client`, `relay` or `client3`, or of a set of hosts, such as
/// `clients`. It is a small letter, then small letters, digits and `-`, at most 12 in all, so that
/// a device name (15 in Linux) can be made from it.
///
/// Names are ordered by the part before their number, then by the number: `client2` before
/// `client10`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HostName {
    bytes: [u8; HostName::MAX],
}

/// Error for a text that is no name of a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no name of a host: a small letter, then small letters, digits and \"-\", at most {} in all",
    HostName::MAX
)]
pub struct HostNameError;

impl HostName {
    /// Limit of a name, bytes.
    pub const MAX: usize = 12;
    /// Host that connects.
    pub const CLIENT: HostName = HostName::literal("client");
    /// Host that listens.
    pub const SERVER: HostName = HostName::literal("server");
    /// Host in the middle.
    pub const RELAY: HostName = HostName::literal("relay");
    /// Client and server: the hosts of a bed of two.
    pub const PAIR: [HostName; 2] = [HostName::CLIENT, HostName::SERVER];

    const fn literal(text: &str) -> HostName {
        let mut bytes = [0; HostName::MAX];
        let mut at = 0;
        while at < text.len() {
            bytes[at] = text.as_bytes()[at];
            at += 1;
        }
        HostName { bytes }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        let len = self.bytes.iter().position(|&byte| byte == 0);
        let bytes = &self.bytes[..len.unwrap_or(HostName::MAX)];
        std::str::from_utf8(bytes).expect("names are ASCII")
    }

    /// Appends a number to this name: `client` and 3 make `client3`.
    ///
    /// # Errors
    /// The name would be too long.
    pub fn numbered(self, number: usize) -> Result<HostName, HostNameError> {
        format!("{self}{number}").parse()
    }

    /// Set that a numbered host belongs to: `clients` for `client3`. `None` for a name without
    /// number.
    pub fn set(self) -> Option<HostName> {
        let (stem, number) = self.split();
        if number.is_empty() {
            return None;
        }
        format!("{stem}s").parse().ok()
    }

    /// True if a topology gives this name to hosts or to a set of them, so that nothing else may
    /// have it.
    pub fn is_of_topology(self) -> bool {
        let (stem, number) = self.split();
        let hosts = [HostName::CLIENT, HostName::SERVER, HostName::RELAY];
        hosts.iter().any(|host| {
            let host = host.as_str();
            host == stem || (number.is_empty() && stem.strip_suffix('s') == Some(host))
        })
    }

    /// True if it is this name, or this name with a number.
    pub fn is_one_of(self, host: HostName) -> bool {
        self.split().0 == host.as_str()
    }

    /// Splits into the part before the number, and the number.
    fn split(&self) -> (&str, &str) {
        let name = self.as_str();
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        name.split_at(stem.len())
    }
}

impl Ord for HostName {
    fn cmp(&self, other: &HostName) -> Ordering {
        let ((stem, number), (other_stem, other_number)) = (self.split(), other.split());
        let by_number = number.len().cmp(&other_number.len());
        stem.cmp(other_stem)
            .then(by_number)
            .then(number.cmp(other_number))
    }
}

impl PartialOrd for HostName {
    fn partial_cmp(&self, other: &HostName) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<HostName, HostNameError> {
        let sound = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let begins = text.starts_with(|c: char| c.is_ascii_lowercase());
        if !begins || text.len() > HostName::MAX || !text.chars().all(sound) {
            return Err(HostNameError);
        }
        Ok(HostName::literal(text))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for HostName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for HostName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = |error| serde::de::Error::custom(format!("{text:?}: {error}"));
        text.parse().map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_texts_that_a_device_can_be_called_after() {
        for good in ["client", "relay", "client30000", "a", "db-2"] {
            assert_eq!(good.parse::<HostName>().unwrap().as_str(), good);
        }
        for bad in ["", "Client", "2", "a.b", "a_b", "client300000x", "-"] {
            assert_eq!(bad.parse::<HostName>(), Err(HostNameError), "{bad}");
        }
    }

    #[test]
    fn numbered_hosts_are_in_order_and_in_a_set() {
        let mut names: Vec<HostName> = ["server", "client10", "client2", "client", "relay"]
            .map(|name| name.parse().unwrap())
            .to_vec();
        names.sort_unstable();
        let names: Vec<&str> = names.iter().map(HostName::as_str).collect();
        assert_eq!(names, ["client", "client2", "client10", "relay", "server"]);
        let clients = HostName::CLIENT.numbered(3).unwrap().set();
        assert_eq!(clients, Some("clients".parse().unwrap()));
        assert_eq!(HostName::CLIENT.set(), None);
    }
}
