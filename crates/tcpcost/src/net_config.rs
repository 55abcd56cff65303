//! `--net-config`: converts the two hosts of the kernel's tests of network drivers into knobs of a
//! study.
//!
//! The file has the format of tools/testing/selftests/drivers/net (README.rst): lines `NAME=VALUE`.
//! NETIF is the device under test, on this machine. LOCAL_V4 or LOCAL_V6 is its address; REMOTE_V4
//! or REMOTE_V6 is the address of the other end. REMOTE_TYPE is `ssh` or `netns`; REMOTE_ARGS is
//! the ssh destination or the namespace's name.

use std::collections::BTreeMap;
use std::path::Path;

use crate::exit::usage;

const NAMES: [&str; 7] = [
    "NETIF",
    "LOCAL_V4",
    "LOCAL_V6",
    "REMOTE_V4",
    "REMOTE_V6",
    "REMOTE_TYPE",
    "REMOTE_ARGS",
];

/// Returns the file's values as knobs: name and value. This machine is the client. IPv4 is used if
/// the file has both addresses of IPv4.
///
/// # Errors
/// The file cannot be read, a line is not `NAME=VALUE` with a known name (the error names the
/// line), or a value is missing or wrong.
pub fn knobs(path: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let wrong = |what: String| usage(format!("--net-config {}: {what}", path.display()));
    let text = crate::studies::read(path).map_err(|error| wrong(error.to_string()))?;
    read(&text).map_err(wrong)
}

fn read(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut values = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| format!("line {number}: expected NAME=VALUE"))?;
        let name = name.trim().trim_start_matches("export ").trim();
        if !NAMES.contains(&name) {
            let known = NAMES.join(", ");
            return Err(format!("line {number}: {name} is none of {known}"));
        }
        let value = value.trim().trim_matches(['"', '\'']);
        values.insert(name, value);
    }
    let value = |name: &str| {
        let value = values.get(name).copied().filter(|value| !value.is_empty());
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
    match text.chars().all(is_sound) && !text.starts_with('-') {
        true => Ok(text),
        false => Err(format!(
            "REMOTE_ARGS {text:?}: expected the name of a namespace"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
