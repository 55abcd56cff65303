//! Knobs of one cell: the values that are set, and the hosts that they are set for.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::host_name::HostName;
use crate::host_reach::Reach;
use crate::knob_error::KnobError;
use crate::knobs::{KNOBS, find};
use crate::nearest::nearest;
use crate::pattern::{Arranged, Pattern};
use crate::raw::Raw;
use crate::row::Knob;
use crate::side::Side;
use crate::synonyms::synonym;
use crate::value::Value;

/// Splits `client.NAME` into its host, set of hosts or group of connections, and the rest.
pub fn split_host(name: &str) -> (Option<HostName>, &str) {
    let split = name.split_once('.').filter(|(host, _)| *host != "sysctl");
    match split.map(|(host, rest)| (host.parse(), rest)) {
        Some((Ok(host), rest)) => (Some(host), rest),
        _ => (None, name),
    }
}

/// Row of a knob by its full name. A host may precede the name if each host has the knob.
pub fn find_full(name: &str) -> Option<Knob> {
    let (host, rest) = split_host(new_name(name));
    let is_of =
        |knob: &Knob, name: HostName| knob.per_end || (knob.per_group && !name.is_of_topology());
    find(rest).filter(|knob| host.is_none_or(|name| is_of(knob, name)))
}

/// Old names of knobs, in records and study files, with the new names.
const OLD_NAMES: [(&str, &str); 2] = [
    ("client_cpus", "client.cpus"),
    ("server_cpus", "server.cpus"),
];

/// New name of a knob.
pub fn new_name(name: &str) -> &str {
    let old = OLD_NAMES.iter().find(|(old, _)| *old == name);
    old.map_or(name, |(_, new)| new)
}

/// Host for which a knob of this name sets the way to reach it. `None` for any other knob.
fn reached(name: &str) -> Option<HostName> {
    let (host, rest) = split_host(name);
    host.filter(|_| rest == "reach")
}

/// Suggestion for a name that is no knob: the synonym's knob, else the nearest name.
pub fn instead<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let name = split_host(name).1;
    match synonym(name) {
        Some(here) => Some(format!("use {here}")),
        None => nearest(name, known).map(|near| format!("nearest is \"{near}\"")),
    }
}

fn number_or_text(text: &str) -> Raw {
    text.parse()
        .map_or_else(|_| Raw::Text(text.to_string()), Raw::Integer)
}

/// Knobs that are set, by full name; the others have their defaults.
///
/// A host's knobs may be set for all hosts (`tso`), for a set (`clients.tso`) or for one
/// (`client3.tso`); the narrower name wins.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Knobs(BTreeMap<String, Value>);

impl Knobs {
    /// Sets a knob from a value in the file's syntax.
    pub fn set_raw(&mut self, name: &str, raw: &Raw) -> Result<(), KnobError> {
        let name = new_name(name);
        let Some(knob) = find_full(name) else {
            let known = KNOBS.iter().map(|knob| knob.name);
            let instead = instead(name, known);
            let hint = instead
                .as_deref()
                .unwrap_or("`tcpcost study knobs` lists them");
            return Err(KnobError::new(name, format!("no such knob; {hint}")));
        };
        let value = knob.read(raw);
        let value = value.ok_or_else(|| KnobError::new(name, knob.refusal(name, raw)))?;
        self.0.insert(name.to_string(), value);
        Ok(())
    }

    /// Sets a knob from text, as on a command line: `flows=8`, `write_size=64KiB`, `cpus=[0,1]`.
    /// Not a program: its text is of a study file.
    ///
    /// # Errors
    /// An unknown name, or a value that the knob does not accept.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), KnobError> {
        let raw = match (
            text.parse(),
            text.strip_prefix('[').and_then(|t| t.strip_suffix(']')),
        ) {
            (Ok(number), _) => Raw::Integer(number),
            (_, Some(list)) => Raw::List(
                list.split(',')
                    .map(|item| number_or_text(item.trim()))
                    .collect(),
            ),
            _ => Raw::Text(text.to_string()),
        };
        self.set_raw(name, &raw)
    }

    /// Sets a knob of this full name to a value from another set of knobs.
    pub fn insert(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_string(), value);
    }

    /// Removes a knob.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Knobs that are set, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Value that is set under this full name. `None` if it is not set.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Value that applies: the one set, or the default. `None` for a name that is no knob, and for
    /// a sysctl that is not set.
    pub fn value(&self, name: &str) -> Option<Value> {
        self.0.get(name).cloned().or_else(|| {
            let (_, rest) = split_host(name);
            if rest.starts_with("sysctl.") {
                None
            } else {
                Some(find(rest)?.default_value())
            }
        })
    }

    /// Value that applies at one host: `client3.NAME`, else `clients.NAME`, else `NAME`, else the
    /// default.
    pub fn value_at(&self, host: HostName, name: &str) -> Option<Value> {
        match self.name_for(host, name) {
            Some(set) => self.0.get(&set).cloned(),
            None => self.value(name),
        }
    }

    /// Names by which knobs are set for a host and not for all hosts, the narrowest first.
    pub fn narrow(host: HostName) -> Vec<HostName> {
        // The listening half of a machine has the machine's settings.
        let half = host.half_of();
        let narrow = [Some(host), host.set(), half, half.and_then(HostName::set)];
        narrow.into_iter().flatten().collect()
    }

    /// Narrowest name by which a knob is set for a host. `None` if it is not set.
    pub fn name_for(&self, host: HostName, name: &str) -> Option<String> {
        let mut names = Knobs::narrow(host)
            .into_iter()
            .map(|of| format!("{of}.{name}"))
            .chain([name.to_string()]);
        names.find(|name| self.0.contains_key(name))
    }

    /// Way to reach a named host. `None` if it is not set.
    pub fn reach(&self, host: HostName) -> Option<Reach> {
        match self.value_at(host, "reach")? {
            Value::Word(word) => word.parse().ok(),
            _ => None,
        }
    }

    /// Hosts of these knobs, in the order in which the phases of a trial go through them.
    pub fn host_names(&self) -> Vec<HostName> {
        if self.names_hosts() {
            // An error of the pattern is reported where the topology is made.
            let arranged = self.arranged().map(|arranged| arranged.hosts);
            return arranged.unwrap_or_else(|_| self.named_hosts());
        }
        let word = self.word("topology").expect("a choice has a default");
        match word.as_str() {
            "star" => {
                let client = |number| {
                    let number =
                        usize::try_from(number).expect("the registry's range fits 32 bits");
                    let name = HostName::CLIENT.numbered(number);
                    name.expect("the registry's range leaves room for the number")
                };
                let clients = self.count("clients").expect("a count has a default");
                (1..=clients)
                    .map(client)
                    .chain([HostName::SERVER])
                    .collect()
            }
            "chain" => vec![HostName::CLIENT, HostName::RELAY, HostName::SERVER],
            _ => HostName::PAIR.to_vec(),
        }
    }

    /// True if hosts are named, each with a way to reach it.
    pub fn names_hosts(&self) -> bool {
        self.0.keys().any(|name| reached(name).is_some())
    }

    /// Named hosts, sorted.
    pub fn named_hosts(&self) -> Vec<HostName> {
        let mut hosts: Vec<HostName> = self.0.keys().filter_map(|name| reached(name)).collect();
        hosts.sort_unstable();
        hosts
    }

    /// Arrangement of the named hosts by the pattern.
    ///
    /// # Errors
    /// The pattern does not allow this number of hosts.
    pub fn arranged(&self) -> Result<Arranged, KnobError> {
        let word = self.word("pattern").expect("a choice has a default");
        let pattern = Pattern::from_word(&word).expect("the row has the words");
        Arranged::new(pattern, &self.named_hosts())
    }

    /// True if each repetition pairs the hosts differently.
    pub fn go_round(&self) -> bool {
        self.word("pattern").as_deref() == Some(Pattern::Rounds.word())
    }

    /// Arrangement of the named hosts in a repetition.
    ///
    /// # Errors
    /// Those of [`Knobs::arranged`].
    pub fn arranged_in(&self, repetition: u32) -> Result<Arranged, KnobError> {
        match self.go_round() {
            true => Ok(Arranged::in_round(&self.named_hosts(), repetition as usize)),
            false => self.arranged(),
        }
    }

    /// Replaces the two hosts `first` by `hosts`, each with the settings of the first.
    pub fn expand_hosts(&mut self, first: [HostName; 2], hosts: &[HostName]) {
        let prefix = format!("{}.", first[0]);
        let of_first = self.0.iter().filter_map(|(name, value)| {
            let knob = name.strip_prefix(&prefix)?;
            Some((knob.to_string(), value.clone()))
        });
        let settings: Vec<(String, Value)> = of_first.collect();
        self.0.retain(|name, _| {
            let host = split_host(name).0;
            !host.is_some_and(|host| first.contains(&host))
        });
        for host in hosts {
            for (knob, value) in &settings {
                self.insert(&format!("{host}.{knob}"), value.clone());
            }
        }
    }

    /// Names the existing hosts, each reached in this way, in place of a bed and topology of the
    /// command.
    pub fn reach_hosts(&mut self, reach: &Reach) {
        for host in self.host_names() {
            self.insert(&format!("{host}.reach"), Value::Word(reach.to_string()));
        }
        for knob in ["topology", "clients", "bed"] {
            self.remove(knob);
        }
    }

    /// Side of a host. `None` for a host that forwards.
    pub fn side(&self, host: HostName) -> Option<Side> {
        if self.names_hosts() {
            return self.arranged().ok()?.side(host);
        }
        match host {
            HostName::RELAY => None,
            HostName::SERVER => Some(Side::Listens),
            _ => Some(Side::Connects),
        }
    }

    /// Hosts and sets of hosts that a knob is set for by name, with the knob's full name.
    pub fn named(&self) -> impl Iterator<Item = (HostName, &str)> {
        let names = self.0.keys();
        names.filter_map(|name| {
            let (host, rest) = split_host(name);
            let is_of_host = !find(rest).is_some_and(|knob| knob.per_group);
            Some((host?, name.as_str())).filter(|_| is_of_host)
        })
    }

    /// Value of a size, bytes. `None` if the knob has another kind of value.
    pub fn bytes(&self, name: &str) -> Option<u64> {
        match self.value(name)? {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Value of a plain number. `None` if the knob has another kind of value.
    pub fn count(&self, name: &str) -> Option<u64> {
        match self.value(name)? {
            Value::Count(count) => Some(count),
            _ => None,
        }
    }

    /// Value of a word. `None` if the knob has another kind of value.
    pub fn word(&self, name: &str) -> Option<String> {
        match self.value(name)? {
            Value::Word(word) => Some(word),
            _ => None,
        }
    }

    /// Value of a switch. `None` if the knob has another kind of value.
    pub fn is_on(&self, name: &str) -> Option<bool> {
        match self.value(name)? {
            Value::Switch(on) => Some(on),
            _ => None,
        }
    }

    /// Sysctls that apply at one host: names without `sysctl.`, and values.
    pub fn sysctls(&self, host: HostName) -> BTreeMap<String, String> {
        let mut sysctls = BTreeMap::new();
        // The widest name first, so that a narrower one overwrites it.
        let half = host.half_of();
        for of in [
            None,
            half.and_then(HostName::set),
            half,
            host.set(),
            Some(host),
        ] {
            for (name, value) in &self.0 {
                let (at, rest) = split_host(name);
                let is_wide = of.is_none() && at.is_none();
                if let Some(sysctl) = rest.strip_prefix("sysctl.")
                    && (is_wide || (of.is_some() && at == of))
                {
                    sysctls.insert(sysctl.to_string(), value.to_string());
                }
            }
        }
        sysctls
    }

    /// True if all knobs of `wanted` have the values that they have there, defaults included.
    pub fn has(&self, wanted: &Knobs) -> bool {
        // If there are groups, each has its own values.
        let has_groups = !self.group_names().is_empty();
        let is_of_groups = |name: &str| find(name).is_some_and(|knob| knob.per_group);
        let mut wanted = wanted.iter();
        wanted.all(|(name, value)| match has_groups && is_of_groups(name) {
            true => self.get(name) == Some(value),
            false => self.value(name).as_ref() == Some(value),
        })
    }

    /// Returns these knobs with others set on top.
    pub fn with(&self, others: &Knobs) -> Knobs {
        let mut all = self.clone();
        all.0.extend(
            others
                .0
                .iter()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        all
    }
}

impl fmt::Display for Knobs {
    /// Formats as `name=value` pairs, separated by a space.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name}={value}", if index == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Knobs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let map = BTreeMap::<String, serde_json::Value>::deserialize(deserializer)?;
        let mut knobs = Knobs::default();
        for (name, value) in &map {
            knobs
                .set_raw(name, &Raw::from(value))
                .map_err(serde::de::Error::custom)?;
        }
        Ok(knobs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knobs(pairs: &[(&str, &str)]) -> Knobs {
        let mut knobs = Knobs::default();
        for (name, text) in pairs {
            knobs.set(name, text).unwrap();
        }
        knobs
    }

    #[test]
    fn the_narrower_name_wins_and_defaults_hold_elsewhere() {
        let knobs = knobs(&[("tso", "on"), ("server.tso", "off")]);
        assert_eq!(
            knobs.value_at(HostName::CLIENT, "tso"),
            Some(Value::Switch(true))
        );
        assert_eq!(
            knobs.value_at(HostName::SERVER, "tso"),
            Some(Value::Switch(false))
        );
        assert_eq!(
            knobs.value_at(HostName::SERVER, "gro"),
            Some(Value::Word("leave".into()))
        );
    }

    #[test]
    fn a_host_is_before_its_set_and_a_set_before_all() {
        let knobs = knobs(&[
            ("mtu", "1500B"),
            ("clients.mtu", "2000B"),
            ("client2.mtu", "3000B"),
            ("sysctl.net.ipv4.tcp_sack", "0"),
            ("clients.sysctl.net.ipv4.tcp_sack", "1"),
        ]);
        let mtu = |host: &str| {
            knobs
                .value_at(host.parse().unwrap(), "mtu")
                .unwrap()
                .to_string()
        };
        assert_eq!(
            ["client1", "client2", "server"].map(mtu),
            ["2000B", "3000B", "1500B"]
        );
        let sack = |host: &str| knobs.sysctls(host.parse().unwrap())["net.ipv4.tcp_sack"].clone();
        assert_eq!(["client1", "server"].map(sack), ["1", "0"]);
    }

    #[test]
    fn a_misspelt_knob_names_the_nearest() {
        let error = Knobs::default().set("write_sise", "64KiB").unwrap_err();
        assert_eq!(
            error.to_string(),
            "write_sise: no such knob; nearest is \"write_size\""
        );
        let error = Knobs::default().set("client.flows", "2").unwrap_err();
        assert!(
            error.to_string().contains("no such knob"),
            "flows is not a knob of one host"
        );
    }

    #[test]
    fn a_record_gives_back_the_knobs_it_was_made_from() {
        let knobs = knobs(&[
            ("flows", "200"),
            ("write_size", "64KiB"),
            ("rate", "941Mbit"),
            ("transaction_rate", "10000/s"),
            ("nodelay", "on"),
            ("client_cpus", "[0,2]"),
            ("client.sysctl.net.ipv4.tcp_rmem", "4096 131072 33554432"),
        ]);
        let json = serde_json::to_string(&knobs).unwrap();
        assert_eq!(serde_json::from_str::<Knobs>(&json).unwrap(), knobs);
        assert_eq!(knobs.sysctls(HostName::CLIENT).len(), 1);
        assert!(knobs.sysctls(HostName::SERVER).is_empty());
    }
}
