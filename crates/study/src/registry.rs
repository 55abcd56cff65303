//! What a knob is. Parsing, defaults and `docs/study-file.md` are made from the rows in `knobs.rs`.

use std::time::Duration;

use crate::knobs::SYSCTL;
use crate::reach::{Kernel, Need, Of, User, UserKnob};
use crate::units;
use crate::value::{Raw, Value};

pub use crate::knobs::KNOBS;

/// The table of a study file a knob belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// `[workload]`: what traffic.
    Workload,
    /// `[bed]`: over which path, with which offloads and sysctls.
    Bed,
}

/// What values a knob takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A whole number in this range.
    Count(u64, u64),
    /// A size in bytes in this range.
    Bytes(u64, u64),
    /// A rate in bits per second.
    BitRate,
    /// Events per second.
    EventRate,
    /// A span of time in this range, milliseconds.
    Time(u64, u64),
    /// On or off.
    Switch,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of CPU numbers.
    Cpus,
    /// Any text.
    Text,
}

/// One knob: its name, where it is set, what it takes and what it is when nobody sets it.
#[derive(Debug, Clone, Copy)]
pub struct Knob {
    /// The name in `[vary]`, `[[cells]]`, records and tables.
    pub name: &'static str,
    /// The key in its own table; differs from `name` only for `kind`.
    pub key: &'static str,
    /// The table.
    pub group: Group,
    /// What it belongs to, and how each TCP has it.
    pub of: Of,
    /// What it takes.
    pub kind: Kind,
    /// A word that is accepted beside `kind`, such as `"auto"`; also the way to say "untouched".
    pub or_word: Option<&'static str>,
    /// The default, as written in a study file.
    pub default: &'static str,
    /// Whether `client.NAME` and `server.NAME` set one end only.
    pub per_end: bool,
    /// What else must be so for it to be of use; all of these.
    pub needs: &'static [Need],
    /// One sentence: meaning, unit, why this default.
    pub doc: &'static str,
}

pub(crate) const fn workload(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Knob {
    Knob {
        name,
        key: name,
        group: Group::Workload,
        of: Of::Workload,
        kind,
        or_word: None,
        default,
        per_end: false,
        needs: &[],
        doc,
    }
}

pub(crate) const fn bed(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Knob {
    Knob {
        group: Group::Bed,
        of: Of::Host,
        ..workload(name, kind, default, doc)
    }
}

/// A knob of each end's device or route, untouched unless set.
pub(crate) const fn link(
    name: &'static str,
    kind: Kind,
    kernel: Kernel,
    doc: &'static str,
) -> Knob {
    Knob {
        of: Of::Link(kernel, User::No(KERNELS_DEVICE)),
        or_word: Some("leave"),
        per_end: true,
        ..bed(name, kind, "leave", doc)
    }
}

/// A policy of an end's TCP; `default` is its stack's own.
pub(crate) const fn tcp(
    name: &'static str,
    kind: Kind,
    kernel: Kernel,
    user: UserKnob,
    doc: &'static str,
) -> Knob {
    Knob {
        of: Of::Tcp(kernel, User::Has(user)),
        or_word: Some("default"),
        per_end: true,
        ..bed(name, kind, "default", doc)
    }
}

const KERNELS_DEVICE: &str =
    "offloads, routes, bottlenecks and sysctls are of a kernel's end alone: set them there";

/// The knob of this name without end prefix, or `None`. Sysctls give a row made for them.
pub fn find(name: &str) -> Option<Knob> {
    if let Some(sysctl) = name.strip_prefix("sysctl.") {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let sound =
            sysctl.starts_with("net.") && !sysctl.contains("..") && sysctl.chars().all(plain);
        return sound.then_some(SYSCTL);
    }
    KNOBS.iter().find(|knob| knob.name == name).copied()
}

impl Knob {
    /// The row with what it needs.
    pub(crate) const fn needs(self, needs: &'static [Need]) -> Knob {
        Knob { needs, ..self }
    }

    /// What this knob takes, in words for an error.
    pub fn expected(&self) -> String {
        let kind = match self.kind {
            Kind::Count(lo, hi) => format!("a whole number from {lo} to {hi}"),
            Kind::Bytes(lo, hi) => format!(
                "a size such as \"64KiB\" (B, KiB, MiB, GiB), {} to {}",
                units::show_bytes(lo),
                units::show_bytes(hi)
            ),
            Kind::BitRate => "a rate such as \"941Mbit\" (bit, kbit, Mbit, Gbit)".to_string(),
            Kind::EventRate => "a rate such as \"10000/s\"".to_string(),
            Kind::Time(lo, hi) => {
                format!("a time such as \"40ms\" (ns, us, ms, s), {lo}ms to {hi}ms")
            }
            Kind::Switch => "\"on\" or \"off\"".to_string(),
            Kind::Choice(words) => {
                format!(
                    "one of {}",
                    words
                        .iter()
                        .map(|w| format!("\"{w}\""))
                        .collect::<Vec<_>>()
                        .join(", ")
                )
            }
            Kind::Cpus => "a list of CPU numbers such as [0, 2]".to_string(),
            Kind::Text => "a text or a number".to_string(),
        };
        match self.or_word {
            Some(word) => format!("{kind}, or \"{word}\""),
            None => kind,
        }
    }

    /// What it needs, in words for a table.
    pub fn needs_text(&self) -> String {
        let texts: Vec<String> = self.needs.iter().map(Need::in_table).collect();
        texts.join("; ")
    }

    /// Reads a value. `None` where it is not one of this knob's; [`Knob::expected`] says what is.
    pub(crate) fn read(&self, raw: &Raw) -> Option<Value> {
        if let (Raw::Text(text), Some(word)) = (raw, self.or_word)
            && text == word
        {
            return Some(Value::Word(word.to_string()));
        }
        match (self.kind, raw) {
            (Kind::Count(lo, hi), Raw::Integer(n)) => {
                let n = u64::try_from(*n).ok()?;
                (lo..=hi).contains(&n).then_some(Value::Count(n))
            }
            (Kind::Bytes(lo, hi), Raw::Integer(_) | Raw::Text(_)) => {
                let bytes = match raw {
                    Raw::Integer(n) => u64::try_from(*n).ok()?,
                    Raw::Text(text) => units::bytes(text).ok()?,
                    _ => return None,
                };
                (lo..=hi).contains(&bytes).then_some(Value::Bytes(bytes))
            }
            (Kind::BitRate, Raw::Text(text)) => units::bits_per_s(text).ok().map(Value::BitsPerS),
            (Kind::EventRate, Raw::Text(text)) => units::per_s(text).ok().map(Value::PerS),
            (Kind::Time(lo, hi), Raw::Text(text)) => units::duration(text)
                .ok()
                .filter(|time| {
                    (Duration::from_millis(lo)..=Duration::from_millis(hi)).contains(time)
                })
                .map(Value::Time),
            (Kind::Switch, Raw::Boolean(on)) => Some(Value::Switch(*on)),
            (Kind::Switch, Raw::Text(text)) => match text.as_str() {
                "on" => Some(Value::Switch(true)),
                "off" => Some(Value::Switch(false)),
                _ => None,
            },
            (Kind::Choice(words), Raw::Text(text)) => words
                .contains(&text.as_str())
                .then(|| Value::Word(text.clone())),
            (Kind::Cpus, Raw::List(items)) if !items.is_empty() => items
                .iter()
                .map(|item| match item {
                    Raw::Integer(n) => usize::try_from(*n).ok(),
                    _ => None,
                })
                .collect::<Option<Vec<_>>>()
                .map(Value::Cpus),
            (Kind::Text, Raw::Integer(n)) => Some(Value::Word(n.to_string())),
            (Kind::Text, Raw::Text(text)) if !text.is_empty() && !text.contains(['\n', '\0']) => {
                Some(Value::Word(text.clone()))
            }
            _ => None,
        }
    }

    /// The value when no study sets it.
    pub fn default_value(&self) -> Value {
        let raw = self
            .default
            .parse()
            .map_or_else(|_| Raw::Text(self.default.to_string()), Raw::Integer);
        self.read(&raw)
            .expect("each row's default is a value of its own kind (a test reads them all)")
    }
}

/// The knobs as a Markdown table: `docs/study-file.md` carries it, and a test compares.
pub fn knob_table(group: Group) -> String {
    let of_ends = group == Group::Bed;
    let mut table = String::from("| key | takes | default | needs |");
    table += if of_ends {
        " each host | kernel's TCP | our TCP |"
    } else {
        ""
    };
    table += " meaning |\n|---|---|---|---|";
    table += if of_ends { "---|---|---|" } else { "" };
    table += "---|\n";
    for knob in KNOBS.iter().filter(|knob| knob.group == group) {
        let name = if knob.key == knob.name {
            format!("`{}`", knob.name)
        } else {
            format!("`{}` (in `[vary]`: `{}`)", knob.key, knob.name)
        };
        table += &format!(
            "| {name} | {} | `{}` | {} |",
            knob.expected(),
            knob.default,
            knob.needs_text()
        );
        if of_ends {
            let end = if knob.per_end { "yes" } else { "" };
            let (kernel, user) = match knob.of {
                Of::Link(kernel, user) | Of::Tcp(kernel, user) => {
                    (kernel.to_string(), user.to_string())
                }
                Of::Workload | Of::Host => (String::new(), String::new()),
            };
            table += &format!(" {end} | {kernel} | {user} |");
        }
        table += &format!(" {} |\n", knob.doc);
    }
    table
}

/// The knobs of an end's TCP, and how each TCP has them, as a Markdown table: `docs/policies.md`
/// carries it, and a test compares.
pub fn tcp_table() -> String {
    let mut table =
        String::from("| knob | needs | the kernel's TCP | meaning |\n|---|---|---|---|\n");
    for knob in KNOBS {
        let Of::Tcp(kernel, _) = knob.of else {
            continue;
        };
        table += &format!(
            "| `{}` | {} | {kernel} | {} |\n",
            knob.name,
            knob.needs_text(),
            knob.doc
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_of_its_knob_and_names_are_unique() {
        for (index, knob) in KNOBS.iter().enumerate() {
            let value = knob.default_value();
            assert!(!value.to_string().is_empty(), "{}", knob.name);
            assert!(
                KNOBS[..index].iter().all(|other| other.name != knob.name),
                "{} twice",
                knob.name
            );
        }
    }

    #[test]
    fn a_wrong_unit_is_not_a_value() {
        let write_size = find("write_size").unwrap();
        assert_eq!(
            write_size.read(&Raw::Text("64KiB".into())),
            Some(Value::Bytes(65536))
        );
        assert_eq!(write_size.read(&Raw::Text("64ms".into())), None);
        assert_eq!(write_size.read(&Raw::Integer(0)), None);
        assert_eq!(find("flows").unwrap().read(&Raw::Integer(30_001)), None);
        assert_eq!(
            find("tso").unwrap().read(&Raw::Text("leave".into())),
            Some(Value::Word("leave".into()))
        );
    }

    #[test]
    fn sysctls_of_the_network_are_knobs_and_paths_are_not() {
        assert!(find("sysctl.net.ipv4.tcp_autocorking").is_some());
        for wrong in ["sysctl.kernel.hostname", "sysctl.net/../x", "sysctl.net..x"] {
            assert!(find(wrong).is_none(), "{wrong}");
        }
    }
}
