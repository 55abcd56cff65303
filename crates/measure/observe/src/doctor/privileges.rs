//! Checks of the privileges of this process.

use std::path::Path;

use super::Check;
use tcpcost_host::error::remedy;
use tcpcost_host::is_in_hosts_user_namespace;
use tcpcost_host::namespace::{self, NamespaceMethod};
use tcpcost_host::privileges::{CapabilitySet, names};

/// Capabilities that a command needs, and when.
#[derive(Debug)]
pub struct CommandNeed {
    /// Name of the command, or names with commas between.
    pub command: &'static str,
    /// Option or feature that needs the capabilities; empty: always.
    pub when: &'static str,
    /// Capabilities of which the command needs each.
    pub capabilities: CapabilitySet,
}

pub fn capabilities(root: &Path) -> Check {
    const NAME: &str = "capabilities";
    let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let effective = read("proc/self/status").and_then(|status| effective(&status));
    let Some(effective) = effective else {
        return Check::degraded(
            NAME,
            "unknown: /proc/self/status has no CapEff",
            "the permissions of this process are found by trying",
            "mount /proc",
        );
    };
    let has = |bit: u32| effective >> bit & 1 == 1;
    let lacking: Vec<&str> = CAPABILITIES
        .iter()
        .filter(|(bit, _)| !(has(*bit) || SPLIT_OFF.contains(bit) && has(SYS_ADMIN)))
        .map(|(_, name)| *name)
        .collect();
    if !lacking.is_empty() {
        return Check::degraded(
            NAME,
            format!("without {}", lacking.join(", ")),
            "counters, getrusage and loopback go without; meters by eBPF and whole-CPU events do not, \
             and netns beds are made in a user namespace, without steering receive work",
            remedy(),
        );
    }
    if !is_in_hosts_user_namespace(root) {
        return Check::degraded(
            NAME,
            "all, but only inside a user namespace",
            "the kernel refuses BPF, whole-CPU events and steering receive work there",
            "run it as root of the host",
        );
    }
    Check::ok(NAME, "all that are needed")
}

/// Checks that this process has the capabilities of each command that gives up all others.
pub fn commands(root: &Path, commands: &[CommandNeed]) -> Check {
    const NAME: &str = "command_capabilities";
    let status = std::fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    let held = CapabilitySet::from_bits_retain(effective(&status).unwrap_or(0));
    let row = |need: &CommandNeed, capabilities: CapabilitySet| {
        let when = match need.when.split(':').next() {
            Some("") | None => String::new(),
            Some(when) => format!(" ({when})"),
        };
        format!("{}{when}: {}", need.command, names(capabilities))
    };
    let (has, lacks): (Vec<&CommandNeed>, Vec<&CommandNeed>) = commands
        .iter()
        .partition(|need| held.contains(need.capabilities));
    if lacks.is_empty() && !is_in_hosts_user_namespace(root) {
        return Check::degraded(
            NAME,
            "all, but only inside a user namespace",
            "commands that look at the host by eBPF or events see less",
            "run it as root of the host",
        );
    }
    if lacks.is_empty() {
        let rows = has.iter().map(|need| row(need, need.capabilities));
        return Check::ok(NAME, rows.collect::<Vec<_>>().join("; "));
    }
    let rows = lacks
        .iter()
        .map(|need| row(need, need.capabilities.difference(held)));
    Check::degraded(
        NAME,
        format!("without {}", rows.collect::<Vec<_>>().join("; ")),
        "these commands see or do less",
        "give them the capabilities named, and no others (docs/hosts.md)",
    )
}

/// Returns the mask of CapEff.
fn effective(status: &str) -> Option<u64> {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

const SYS_ADMIN: u32 = 21;
/// CAP_PERFMON and CAP_BPF. CAP_SYS_ADMIN includes both (capabilities(7)).
const SPLIT_OFF: [u32; 2] = [38, 39];

/// Bit and name (linux/capability.h).
const CAPABILITIES: &[(u32, &str)] = &[
    (12, "CAP_NET_ADMIN"),
    (SYS_ADMIN, "CAP_SYS_ADMIN"),
    (38, "CAP_PERFMON"),
    (39, "CAP_BPF"),
];

pub fn namespaces() -> Check {
    const NAME: &str = "namespaces";
    match namespace::can_make_namespaces() {
        Ok(NamespaceMethod::Privileged) => Check::ok(NAME, "network namespaces can be made"),
        Ok(NamespaceMethod::UserNamespace) => Check::degraded(
            NAME,
            "network namespaces can be made inside a user namespace",
            "the kernel refuses to steer receive work there: the sender's CPU pays for the receiver",
            remedy(),
        ),
        Err(why) => Check::missing(
            NAME,
            why.to_string(),
            "netns beds cannot be made, only loopback",
            format!("{}, or use bed.kind = \"loopback\"", remedy()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Verdict, fake_root};
    use super::*;

    const HOST: &str = "         0          0 4294967295\n";

    fn with(mask: &str, map: &str) -> Check {
        let status = format!("Name:\tx\nCapEff:\t{mask}\n");
        let root = fake_root(&[("proc/self/status", &status), ("proc/self/uid_map", map)]);
        capabilities(root.path())
    }

    #[test]
    fn roots_mask_is_ok_on_the_host_alone() {
        assert_eq!(with("000001ffffffffff", HOST).verdict, Verdict::Ok);
        let inside = with("000001ffffffffff", "0 1000 1\n");
        assert_eq!(inside.verdict, Verdict::Degraded);
        assert!(inside.found.contains("user namespace"));
    }

    #[test]
    fn what_is_lacking_is_named() {
        let check = with("0000000000000000", HOST);
        assert!(check.found.contains("CAP_NET_ADMIN") && check.found.contains("CAP_BPF"));
        // CAP_SYS_ADMIN and CAP_NET_ADMIN: a kernel before 5.8 has no CAP_PERFMON and CAP_BPF.
        assert_eq!(with("0000000000201000", HOST).verdict, Verdict::Ok);
        assert_eq!(with("not hex", HOST).verdict, Verdict::Degraded);
    }

    #[test]
    fn a_command_that_lacks_a_capability_is_named_with_it() {
        let need = |command, when, capabilities| CommandNeed {
            command,
            when,
            capabilities,
        };
        let (bpf, perfmon) = (CapabilitySet::BPF, CapabilitySet::PERFMON);
        let needs = [
            need("watch", "", bpf | perfmon),
            need("trace", "-i", CapabilitySet::NET_RAW),
            need("peer", "", CapabilitySet::NET_ADMIN | bpf),
        ];
        // CAP_BPF and CAP_PERFMON only.
        let status = "CapEff:\t000000c000000000\n";
        let check = commands(fake_root(&[("proc/self/status", status)]).path(), &needs);
        assert_eq!(check.verdict, Verdict::Degraded);
        // The capability that is missing, and no other.
        assert_eq!(
            check.found,
            "without trace (-i): CAP_NET_RAW; peer: CAP_NET_ADMIN"
        );
        let all = ("proc/self/status", "CapEff:\t000001ffffffffff\n");
        let rootless = ("proc/self/uid_map", "0 100000 65536\n");
        let check = commands(fake_root(&[all, rootless]).path(), &needs);
        assert_eq!(check.verdict, Verdict::Degraded);
        let check = commands(
            fake_root(&[all, ("proc/self/uid_map", HOST)]).path(),
            &needs,
        );
        assert_eq!(check.verdict, Verdict::Ok);
        assert!(
            check.found.starts_with("watch: CAP_PERFMON, CAP_BPF; "),
            "{check:?}"
        );
    }

    #[test]
    fn namespaces_are_what_trying_says() {
        let verdict = namespaces().verdict;
        let expected = match namespace::can_make_namespaces() {
            Ok(NamespaceMethod::Privileged) => Verdict::Ok,
            Ok(NamespaceMethod::UserNamespace) => Verdict::Degraded,
            Err(_) => Verdict::Missing,
        };
        assert_eq!(verdict, expected);
    }
}
