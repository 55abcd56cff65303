//! Figure with its scope, and the name by which studies and reports refer to it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tcpcost_counts::{Figure, FigureOf};

use tcpcost_knobs::HostName;

/// Scope of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// All hosts together.
    All,
    /// A host, or a set of hosts together.
    Host(HostName),
    /// A group of connections, on all hosts.
    Group(HostName),
}

impl Scope {
    /// True if a host is in the scope.
    pub fn holds(self, host: HostName) -> bool {
        match self {
            Scope::All => true,
            Scope::Host(name) => host == name || host.set() == Some(name),
            Scope::Group(_) => false,
        }
    }

    /// Name of the host, set or group. `None` for all hosts together.
    pub fn name(self) -> Option<HostName> {
        match self {
            Scope::All => None,
            Scope::Host(name) | Scope::Group(name) => Some(name),
        }
    }
}

/// Figure of one host, a set of hosts, a group of connections, or all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Derived {
    /// Figure.
    pub kind: Figure,
    /// Scope of the figure.
    pub scope: Scope,
}

impl Derived {
    /// Creates a figure of all hosts together.
    pub const fn total(kind: Figure) -> Derived {
        Derived {
            kind,
            scope: Scope::All,
        }
    }

    /// Creates a figure of a host, or of a set of hosts.
    pub const fn of(host: HostName, kind: Figure) -> Derived {
        Derived {
            kind,
            scope: Scope::Host(host),
        }
    }

    /// All figures of a bed of two hosts: each of both together, then of each host.
    pub fn of_pair() -> impl Iterator<Item = Derived> {
        let figures = Figure::ALL.iter().copied();
        let of_trials = figures.filter(|kind| kind.whose() <= FigureOf::Host);
        of_trials.flat_map(|kind| {
            let hosts = if kind.whose() == FigureOf::Host {
                &HostName::PAIR[..]
            } else {
                &[]
            };
            std::iter::once(Derived::total(kind))
                .chain(hosts.iter().map(move |&host| Derived::of(host, kind)))
        })
    }
}

impl fmt::Display for Derived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scope {
            Scope::Host(name) | Scope::Group(name) => write!(f, "{name}_{}", self.kind.name()),
            Scope::All => f.write_str(self.kind.name()),
        }
    }
}

/// Error for a text that is no name of a figure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DerivedError {
    /// Misspelt name, with the nearest one that exists.
    #[error("no such quantity; nearest is \"{0}\"")]
    Misspelt(String),
    /// Other text.
    #[error("no such quantity; see docs/quantities.md")]
    Unknown,
}

impl FromStr for Derived {
    type Err = DerivedError;

    /// Parses a name. The error names the nearest name that exists.
    fn from_str(name: &str) -> Result<Self, DerivedError> {
        let figure = |name: &str| Figure::ALL.iter().find(|kind| kind.name() == name).copied();
        if let Some(kind) = figure(name) {
            return Ok(Derived::total(kind));
        }
        if let Some((host, rest)) = name.split_once('_')
            && let (Ok(name), Some(kind)) = (host.parse::<HostName>(), figure(rest))
        {
            match kind.whose() {
                FigureOf::Host => return Ok(Derived::of(name, kind)),
                FigureOf::Group if !name.is_of_topology() => {
                    let scope = Scope::Group(name);
                    return Ok(Derived { kind, scope });
                }
                _ => {}
            }
        }
        let names: Vec<String> = Derived::of_pair()
            .map(|derived| derived.to_string())
            .collect();
        let near = tcpcost_knobs::nearest(name, names.iter().map(String::as_str));
        Err(match near {
            Some(near) => DerivedError::Misspelt(near.to_string()),
            None => DerivedError::Unknown,
        })
    }
}

impl Serialize for Derived {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Derived {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_a_misspelt_one_names_the_nearest() {
        for derived in Derived::of_pair() {
            assert_eq!(derived.to_string().parse(), Ok(derived));
        }
        let of_clients = Derived::of("clients".parse().unwrap(), Figure::CpuUsPerKib);
        assert_eq!("clients_cpu_us_per_kib".parse(), Ok(of_clients));
        let of_group = "bulk_goodput_bits_per_s".parse::<Derived>().unwrap();
        assert_eq!(of_group.scope, Scope::Group("bulk".parse().unwrap()));
        assert_eq!(of_group.to_string(), "bulk_goodput_bits_per_s");
        assert!(
            "client_goodput_bits_per_s".parse::<Derived>().is_err(),
            "of all hosts alone"
        );
        let error = "client_cpu_us_per_kb".parse::<Derived>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "no such quantity; nearest is \"client_cpu_us_per_kib\""
        );
    }
}
