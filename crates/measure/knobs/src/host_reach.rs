//! Way to start and reach a host's agent: the program by which it is started, if any.
//!
//! With every program the agent is the same, and talks over its standard input and output. The
//! program (OpenSSH, a scheduler, a container runtime) authenticates, places and ends it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Way to start a host's agent.
///
/// In a study file: `local`, `netns`, `ssh:HOST`, `exec:COMMAND…`, `attach:COMMAND…`, `slurm` or
/// `slurm:NODE`. In a record: `here` and `namespace` for the first two, `memory` for hosts of one
/// process, else the same text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// Started in the command's own network namespace.
    Local,
    /// Started in a network namespace of its own, on the command's machine.
    Netns,
    /// Started in one process with the other hosts of this kind, on the command's machine.
    Memory,
    /// Started by the user's ssh at this destination: a host of its configuration, or `user@host`.
    Ssh(String),
    /// Started by this program and its arguments, such as `kubectl exec -i POD --`: at least one
    /// word.
    Exec(Vec<String>),
    /// Already running, started and restarted by another program. This program and its arguments,
    /// such as `kubectl attach -i -q POD`, connect to its standard input and output: at least one
    /// word.
    Attach(Vec<String>),
    /// Started on a node that Slurm has allocated: this one, or any that is left.
    Slurm(Option<String>),
}

/// Error for a text that is no [`Reach`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {}", Reach::EXPECTED)]
pub struct ReachError;

impl Reach {
    /// Texts that a study file may contain.
    pub const EXPECTED: &'static str = "\"local\", \"netns\", \"ssh:HOST\", \"exec:COMMAND…\", \"attach:COMMAND…\", \"slurm\" or \"slurm:NODE\"";

    /// True if the agent is a process of the command's own machine, started by the command itself.
    pub fn is_own(&self) -> bool {
        matches!(self, Reach::Local | Reach::Netns | Reach::Memory)
    }
}

impl FromStr for Reach {
    type Err = ReachError;

    fn from_str(text: &str) -> Result<Reach, ReachError> {
        match text.split_once(':') {
            Some(("ssh", destination)) => {
                // ssh would take a user or a host that begins with "-" for an option. A
                // ProxyCommand or `Match exec` of its configuration passes both to a shell
                // (CVE-2023-51385).
                let is_sound = |c: char| {
                    !c.is_whitespace() && !c.is_control() && !"'`\"$\\;&<>|(){}!*?~#".contains(c)
                };
                let mut parts = destination.split('@');
                let sound = parts.all(|part| !part.is_empty() && !part.starts_with('-'));
                match sound && destination.chars().all(is_sound) {
                    true => Ok(Reach::Ssh(destination.to_string())),
                    false => Err(ReachError),
                }
            }
            Some((kind @ ("exec" | "attach"), command)) => {
                let words: Vec<String> = command.split_whitespace().map(String::from).collect();
                match (words.is_empty(), kind) {
                    (true, _) => Err(ReachError),
                    (false, "exec") => Ok(Reach::Exec(words)),
                    (false, _) => Ok(Reach::Attach(words)),
                }
            }
            Some(("slurm", node)) => {
                // Refuses a list of nodes, and an option of srun.
                let is_sound = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
                match node.chars().all(is_sound) && !node.is_empty() && !node.starts_with('-') {
                    true => Ok(Reach::Slurm(Some(node.to_string()))),
                    false => Err(ReachError),
                }
            }
            Some(_) => Err(ReachError),
            None => match text {
                "local" | "here" => Ok(Reach::Local),
                "netns" | "namespace" => Ok(Reach::Netns),
                "memory" => Ok(Reach::Memory),
                "slurm" => Ok(Reach::Slurm(None)),
                _ => Err(ReachError),
            },
        }
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reach::Local => f.write_str("local"),
            Reach::Netns => f.write_str("netns"),
            Reach::Memory => f.write_str("memory"),
            Reach::Ssh(destination) => write!(f, "ssh:{destination}"),
            Reach::Exec(words) => write!(f, "exec:{}", words.join(" ")),
            Reach::Attach(words) => write!(f, "attach:{}", words.join(" ")),
            Reach::Slurm(None) => f.write_str("slurm"),
            Reach::Slurm(Some(node)) => write!(f, "slurm:{node}"),
        }
    }
}

impl Serialize for Reach {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            // Words of records older than the other variants.
            Reach::Local => serializer.serialize_str("here"),
            Reach::Netns => serializer.serialize_str("namespace"),
            other => serializer.collect_str(other),
        }
    }
}

impl<'de> Deserialize<'de> for Reach {
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
    fn a_reach_is_read_back_from_its_text_and_from_a_record() {
        let exec = "exec:kubectl exec -i tcpcost-0 --";
        for text in [
            "local",
            "netns",
            "ssh:alpha",
            "ssh:me@10.0.0.2",
            exec,
            "attach:kubectl attach -i -q svc/tcpcost-0",
            "slurm",
            "slurm:cn-03.a",
        ] {
            let reach: Reach = text.parse().unwrap();
            assert_eq!(reach.to_string(), text);
            let json = serde_json::to_string(&reach).unwrap();
            assert_eq!(serde_json::from_str::<Reach>(&json).unwrap(), reach);
        }
        assert_eq!(serde_json::to_string(&Reach::Local).unwrap(), "\"here\"");
    }

    #[test]
    fn what_ssh_would_take_for_an_option_is_no_destination() {
        let bad = [
            "",
            "ssh",
            "ssh:",
            "ssh:-oProxyCommand=x",
            "ssh:a b",
            "ssh:a@-oProxyCommand=x",
            "ssh:@a",
            "ssh:`x`",
            "ssh:$(x)",
            "ssh:a;x",
            "ssh:a|x@b",
            "exec:",
            "exec: ",
            "attach:",
            "alpha",
            "http:a",
        ];
        for text in bad {
            assert_eq!(text.parse::<Reach>(), Err(ReachError), "{text:?}");
        }
    }
}
