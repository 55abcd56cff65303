//! Options with which a kernel was built, from its `.config`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::error::GuestError;

/// A kernel's options: name without `CONFIG_`, value. An option that is not set is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config(BTreeMap<String, String>);

/// Options that a guest cannot do without, and what they are for.
const NEEDED: [(&str, &str); 6] = [
    ("BLK_DEV_INITRD", "the program"),
    ("DEVTMPFS", "devices"),
    ("SERIAL_8250", "results"),
    ("NET_NS", "namespaces"),
    ("VETH", "links between namespaces"),
    ("BPF_SYSCALL", "the meter exact"),
];

/// Beginnings of options that change what TCP costs; a difference shows them first.
const COSTLY: [&str; 17] = [
    "BPF",
    "CC_OPTIMIZE",
    "DEBUG_",
    "FORTIFY",
    "HARDENED",
    "HZ",
    "INIT_ON",
    "KASAN",
    "LOCKDEP",
    "LTO",
    "MITIGATION",
    "NET",
    "PAGE_TABLE",
    "PREEMPT",
    "PROVE",
    "RETPOLINE",
    "SLUB",
];

impl Config {
    /// Reads a `.config`.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path) -> Result<Config, GuestError> {
        let text = fs::read_to_string(path).map_err(GuestError::file("read", path))?;
        Ok(Config::parse(&text))
    }

    fn parse(text: &str) -> Config {
        let set = text.lines().filter_map(|line| {
            let (name, value) = line.strip_prefix("CONFIG_")?.split_once('=')?;
            Some((name.to_string(), value.to_string()))
        });
        // The compiler, its version, and the name of the build are no choice of what the kernel does.
        let is_choice = |name: &str| {
            !["VERSION", "BUILD_SALT"]
                .iter()
                .any(|part| name.contains(part))
        };
        Config(set.filter(|(name, _)| is_choice(name)).collect())
    }

    /// Options that a guest needs and this kernel lacks, each with its use. A module counts only if the modules are there, too.
    pub fn lacks(&self, has_modules: bool) -> Vec<String> {
        let has = |name: &str| match self.0.get(name).map(String::as_str) {
            Some("y") => true,
            Some("m") => has_modules,
            _ => false,
        };
        let missing = NEEDED.iter().filter(|(name, _)| !has(name));
        missing
            .map(|(name, what)| format!("CONFIG_{name} ({what})"))
            .collect()
    }

    /// Options whose values differ from those of `before`, as `NAME=before → after`; those that change what TCP costs are first.
    pub fn difference(&self, before: &Config) -> Vec<String> {
        let names: BTreeSet<&String> = before.0.keys().chain(self.0.keys()).collect();
        let value = |of: &Config, name| of.0.get(name).map_or("n", String::as_str).to_string();
        let changed = names.into_iter().filter_map(|name| {
            let (from, to) = (value(before, name), value(self, name));
            (from != to).then(|| (name, format!("{name}={from} → {to}")))
        });
        let is_costly = |name: &str| COSTLY.iter().any(|start| name.starts_with(start));
        let (first, rest): (Vec<_>, Vec<_>) = changed.partition(|(name, _)| is_costly(name));
        first
            .into_iter()
            .chain(rest)
            .map(|(_, text)| text)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lacks_and_what_differs() {
        let one = "CONFIG_CC_VERSION_TEXT=\"gcc 12\"\nCONFIG_BLK_DEV_INITRD=y\nCONFIG_DEVTMPFS=y\nCONFIG_SERIAL_8250=y\nCONFIG_NET_NS=y\nCONFIG_VETH=m\n# CONFIG_KASAN is not set\nCONFIG_ATM=m\n";
        let other = one
            .replace("gcc 12", "gcc 14")
            .replace("# CONFIG_KASAN is not set", "CONFIG_KASAN=y")
            .replace("CONFIG_ATM=m\n", "");
        let (one, other) = (Config::parse(one), Config::parse(&other));
        assert_eq!(one.lacks(true), ["CONFIG_BPF_SYSCALL (the meter exact)"]);
        assert_eq!(one.lacks(false).len(), 2, "no module is there");
        assert_eq!(other.difference(&one), ["KASAN=n → y", "ATM=m → n"]);
        assert!(one.difference(&one).is_empty());
    }
}
