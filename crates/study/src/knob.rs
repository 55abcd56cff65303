//! The knobs of one cell: what is set, and for which end.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::registry::{KNOBS, Knob, find};
use crate::value::{Raw, Value};

/// One side of a bed. The client connects, the server listens; which of them sends is the workload's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// The end that connects.
    Client,
    /// The end that listens.
    Server,
}

impl End {
    /// Both, client first.
    pub const BOTH: [End; 2] = [End::Client, End::Server];

    /// `client` or `server`.
    pub fn name(self) -> &'static str {
        match self {
            End::Client => "client",
            End::Server => "server",
        }
    }

    /// The other one.
    pub fn peer(self) -> End {
        match self {
            End::Client => End::Server,
            End::Server => End::Client,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Splits `client.NAME` into its end and the rest.
pub(crate) fn split_end(name: &str) -> (Option<End>, &str) {
    for end in End::BOTH {
        if let Some(rest) = name
            .strip_prefix(end.name())
            .and_then(|rest| rest.strip_prefix('.'))
        {
            return (Some(end), rest);
        }
    }
    (None, name)
}

/// The row of a knob's full name, `client.`/`server.` allowed where the knob is one of each end.
pub(crate) fn find_full(name: &str) -> Option<Knob> {
    let (end, rest) = split_end(name);
    find(rest).filter(|knob| end.is_none() || knob.per_end)
}

/// The known name nearest to a misspelt one, if any is near enough to be meant.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 3)
        .min()
        .map(|(_, candidate)| candidate)
}

/// A name that is no knob, or a value that is not one of its knob's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {expected}")]
pub struct UnknownKnob {
    /// The name as given.
    pub name: String,
    /// What was expected there.
    pub expected: String,
}

/// What is set, by full name; what is not set has its default.
///
/// Per-end knobs may be set for both ends (`tso`) or one (`client.tso`), and the narrower wins.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Knobs(BTreeMap<String, Value>);

impl Knobs {
    /// Sets a knob from a value in the file's syntax.
    pub(crate) fn set_raw(&mut self, name: &str, raw: &Raw) -> Result<(), UnknownKnob> {
        let Some(knob) = find_full(name) else {
            let known = KNOBS.iter().map(|knob| knob.name);
            let hint = nearest(split_end(name).1, known)
                .map_or_else(String::new, |near| format!("; nearest is \"{near}\""));
            return Err(UnknownKnob {
                name: name.to_string(),
                expected: format!("no such knob{hint}"),
            });
        };
        let value = knob.read(raw).ok_or_else(|| UnknownKnob {
            name: name.to_string(),
            expected: format!("expected {}", knob.expected()),
        })?;
        self.0.insert(name.to_string(), value);
        Ok(())
    }

    /// Sets a knob from its text, as a command line gives it: `flows=8`, `write_size=64KiB`.
    ///
    /// # Errors
    /// An unknown name or a value that is not the knob's.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), UnknownKnob> {
        let raw = match (
            text.parse(),
            text.strip_prefix('[').and_then(|t| t.strip_suffix(']')),
        ) {
            (Ok(number), _) => Raw::Integer(number),
            (_, Some(list)) => Raw::List(
                list.split(',')
                    .map(|item| item.trim().parse().map_or(Raw::Other, Raw::Integer))
                    .collect(),
            ),
            _ => Raw::Text(text.to_string()),
        };
        self.set_raw(name, &raw)
    }

    /// What was set, in order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The value set under this full name; `None` where nobody set it.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// The value that holds: set, or the default. `None` for a name that is no knob and for a
    /// sysctl that is not set.
    pub fn value(&self, name: &str) -> Option<Value> {
        self.0.get(name).cloned().or_else(|| {
            let (_, rest) = split_end(name);
            if rest.starts_with("sysctl.") {
                None
            } else {
                Some(find(rest)?.default_value())
            }
        })
    }

    /// The value that holds at one end: `client.NAME` before `NAME` before the default.
    pub fn value_at(&self, end: End, name: &str) -> Option<Value> {
        self.0
            .get(&format!("{end}.{name}"))
            .cloned()
            .or_else(|| self.value(name))
    }

    /// A size, in bytes.
    pub fn bytes(&self, name: &str) -> Option<u64> {
        match self.value(name)? {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// A plain number.
    pub fn count(&self, name: &str) -> Option<u64> {
        match self.value(name)? {
            Value::Count(count) => Some(count),
            _ => None,
        }
    }

    /// A word.
    pub fn word(&self, name: &str) -> Option<String> {
        match self.value(name)? {
            Value::Word(word) => Some(word),
            _ => None,
        }
    }

    /// A switch.
    pub fn is_on(&self, name: &str) -> Option<bool> {
        match self.value(name)? {
            Value::Switch(on) => Some(on),
            _ => None,
        }
    }

    /// The sysctls that hold at one end: name without `sysctl.`, value.
    pub fn sysctls(&self, end: End) -> BTreeMap<String, String> {
        let mut sysctls = BTreeMap::new();
        // Both-ends first, so that the narrower name overwrites.
        for narrow in [false, true] {
            for (name, value) in &self.0 {
                let (at, rest) = split_end(name);
                if let Some(sysctl) = rest.strip_prefix("sysctl.")
                    && (if narrow {
                        at == Some(end)
                    } else {
                        at.is_none()
                    })
                {
                    sysctls.insert(sysctl.to_string(), value.to_string());
                }
            }
        }
        sysctls
    }

    /// Whether all of these are set as they are in `wanted`, defaults included.
    pub fn has(&self, wanted: &Knobs) -> bool {
        let mut wanted = wanted.iter();
        wanted.all(|(name, value)| self.value(name).as_ref() == Some(value))
    }

    /// These knobs with others set on top.
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
    /// `name=value` pairs, a space between.
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
            knobs.value_at(End::Client, "tso"),
            Some(Value::Switch(true))
        );
        assert_eq!(
            knobs.value_at(End::Server, "tso"),
            Some(Value::Switch(false))
        );
        assert_eq!(
            knobs.value_at(End::Server, "gro"),
            Some(Value::Word("leave".into()))
        );
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
            "flows is not a knob of one end"
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
        assert_eq!(knobs.sysctls(End::Client).len(), 1);
        assert!(knobs.sysctls(End::Server).is_empty());
    }
}
