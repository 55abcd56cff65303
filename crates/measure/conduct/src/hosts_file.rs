//! `--hosts FILE` and `--hosts NAME=VALUE`: settings of a lab, which are no part of a study.
//!
//! The file has the format of tools/testing/selftests/drivers/net (README.rst): lines `NAME=VALUE`.
//! Names in capitals are those of the kernel's tests of network drivers. NETIF is the device under
//! test, on this machine. LOCAL_V4 or LOCAL_V6 is its address; REMOTE_V4 or REMOTE_V6 is the
//! address of the other end. REMOTE_TYPE is `ssh` or `netns`; REMOTE_ARGS is the ssh destination or
//! the namespace's name.

use std::collections::BTreeMap;
use std::path::Path;

use tcpcost_console::exit::usage;

use super::studies;

/// How the machines of a lab are reached.
#[derive(Debug, Default)]
pub struct Lab {
    /// ssh and its options; `None` is ssh in batch mode.
    pub ssh: Option<String>,
    /// Command that starts tcpcost on the hosts, e.g. by sudo; `None`: the default for how a host is
    /// reached.
    pub program: Option<String>,
    /// True if this program is copied to the hosts.
    pub push: bool,
    /// Limit on the time that a host may be silent.
    pub silence_max: Option<String>,
    /// Knobs of the two hosts of the kernel's driver tests: name and value.
    pub knobs: Vec<(String, String)>,
}

/// Names of tcpcost.
const OWN_NAMES: [&str; 4] = ["ssh", "program", "push", "silence_max"];
/// Names of the kernel's driver tests.
const KERNEL_NAMES: [&str; 7] = [
    "NETIF",
    "LOCAL_V4",
    "LOCAL_V6",
    "REMOTE_V4",
    "REMOTE_V6",
    "REMOTE_TYPE",
    "REMOTE_ARGS",
];

impl Lab {
    /// Reads the words of `--hosts`: files, or settings like their lines. A later word overrides an earlier one.
    ///
    /// # Errors
    /// A file cannot be read; a line or word is not `NAME=VALUE` with a known name; a value is
    /// missing or wrong.
    pub fn read(words: &[String]) -> anyhow::Result<Lab> {
        let mut values = BTreeMap::new();
        for word in words {
            let wrong = |what: String| usage(format!("--hosts {word}: {what}"));
            if let Some((name, value)) = word
                .split_once('=')
                .filter(|(name, _)| OWN_NAMES.contains(name))
            {
                values.insert(name.to_string(), value.to_string());
                continue;
            }
            let text = studies::read(Path::new(word)).map_err(|error| {
                wrong(format!(
                    "{error}; expected a file, or one of {} with =VALUE",
                    OWN_NAMES.join(", ")
                ))
            })?;
            add(&text, &mut values).map_err(wrong)?;
        }
        Lab::of(&values).map_err(|what| usage(format!("--hosts: {what}")))
    }

    fn of(values: &BTreeMap<String, String>) -> Result<Lab, String> {
        let own = |name: &str| values.get(name).cloned();
        let push = match own("push").as_deref() {
            None | Some("off") => false,
            Some("on") => true,
            Some(other) => return Err(format!("push={other}: expected on or off")),
        };
        let has_ends = values
            .keys()
            .any(|name| KERNEL_NAMES.contains(&name.as_str()));
        Ok(Lab {
            ssh: own("ssh"),
            program: own("program"),
            push,
            silence_max: own("silence_max"),
            knobs: if has_ends { knobs(values)? } else { Vec::new() },
        })
    }
}

/// Adds the lines of a file.
fn add(text: &str, values: &mut BTreeMap<String, String>) -> Result<(), String> {
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| format!("line {number}: expected NAME=VALUE"))?;
        let name = name.trim().trim_start_matches("export ").trim();
        if !KERNEL_NAMES.contains(&name) && !OWN_NAMES.contains(&name) {
            let known = [&OWN_NAMES[..], &KERNEL_NAMES].concat().join(", ");
            return Err(format!("line {number}: {name} is none of {known}"));
        }
        let value = value.trim().trim_matches(['"', '\'']);
        values.insert(name.to_string(), value.to_string());
    }
    Ok(())
}

/// Returns the two hosts of the kernel's driver tests as knobs. This machine is the client. IPv4 is
/// used if both addresses of IPv4 are there.
fn knobs(values: &BTreeMap<String, String>) -> Result<Vec<(String, String)>, String> {
    let value = |name: &str| {
        let value = values
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty());
        value.ok_or_else(|| format!("{name} is missing"))
    };
    let (ip, local, remote) = match (value("LOCAL_V4"), value("REMOTE_V4")) {
        (Ok(local), Ok(remote)) => ("v4", local, remote),
        _ => ("v6", value("LOCAL_V6")?, value("REMOTE_V6")?),
    };
    let reach = match value("REMOTE_TYPE")? {
        "ssh" => format!("ssh:{}", value("REMOTE_ARGS")?),
        "netns" => format!("exec:ip netns exec {}", one_name(value("REMOTE_ARGS")?)?),
        other => return Err(format!("REMOTE_TYPE {other}: expected ssh or netns")),
    };
    // A prefix length after the address is allowed, and ignored.
    let address = |text: &str| text.split('/').next().unwrap_or_default().to_string();
    let knobs = [
        ("ip", ip.to_string()),
        ("client.reach", "local".to_string()),
        ("client.device", value("NETIF")?.to_string()),
        ("client.address", address(local)),
        ("server.reach", reach),
        ("server.address", address(remote)),
    ];
    Ok(knobs
        .map(|(name, value)| (name.to_string(), value))
        .to_vec())
}

/// Returns `text` if it can be the name of a namespace. Further words would be run as a program,
/// and the file may belong to another user.
fn one_name(text: &str) -> Result<&str, String> {
    let is_sound = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
    if text.chars().all(is_sound) && !text.starts_with('-') {
        Ok(text)
    } else {
        Err(format!(
            "REMOTE_ARGS {text:?}: expected the name of a namespace"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, String)>, String> {
        let mut values = BTreeMap::new();
        add(text, &mut values)?;
        Lab::of(&values).map(|lab| lab.knobs)
    }

    #[test]
    fn words_and_files_say_how_hosts_are_reached() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lab");
        std::fs::write(&path, "# ours\nssh = \"ssh -F lab.conf\"\npush = on\n").unwrap();
        let file = path.display().to_string();
        let lab = Lab::read(&[file, "push=off".to_string(), "silence_max=5s".to_string()]).unwrap();
        assert_eq!(lab.ssh.as_deref(), Some("ssh -F lab.conf"));
        assert_eq!((lab.push, lab.silence_max.as_deref()), (false, Some("5s")));
        assert!(lab.program.is_none() && lab.knobs.is_empty());
        for wrong in ["push=yes", "sshd=x", "nowhere"] {
            assert!(Lab::read(&[wrong.to_string()]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn both_kinds_of_the_other_end_are_hosts() {
        let common = "# two machines\nNETIF=eth1\nLOCAL_V4=192.0.2.1\nREMOTE_V4=\"192.0.2.2\"\n";
        let reach = |rest: &str| read(&format!("{common}{rest}")).unwrap()[4].1.clone();
        assert_eq!(
            reach("REMOTE_TYPE=ssh\nREMOTE_ARGS=root@beta\n"),
            "ssh:root@beta"
        );
        assert_eq!(
            reach("REMOTE_TYPE=netns\nREMOTE_ARGS=peer\n"),
            "exec:ip netns exec peer"
        );
        let v6 = "NETIF=eth1\nLOCAL_V6=2001:db8::1\nREMOTE_V6=2001:db8::2\nREMOTE_TYPE=ssh\nREMOTE_ARGS=b\n";
        let knobs = read(v6).unwrap();
        assert_eq!(knobs[0], ("ip".to_string(), "v6".to_string()));
        assert_eq!(knobs[3].1, "2001:db8::1");
    }

    #[test]
    fn what_is_wrong_is_told_by_its_line_or_its_name() {
        for (text, expected) in [
            ("NETIF\n", "line 1: expected NAME=VALUE"),
            ("\nNETFI=eth0\n", "line 2: NETFI is none of"),
            ("NETIF=eth0\n", "LOCAL_V6 is missing"),
            (
                "LOCAL_V4=1.1.1.1\nREMOTE_V4=1.1.1.2\nREMOTE_TYPE=netns\nREMOTE_ARGS=peer /tmp/x\n",
                "REMOTE_ARGS \"peer /tmp/x\": expected the name",
            ),
            (
                "LOCAL_V4=1.1.1.1\nREMOTE_V4=1.1.1.2\nREMOTE_TYPE=rsh\n",
                "REMOTE_TYPE rsh",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
