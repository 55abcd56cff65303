//! Checks of the kernel: version, configuration, BTF, accounting of CPU time.

use std::path::Path;

use super::Check;
use tcpcost_host::cpu_accounting::{cpu_accounting, nohz_full};
use tcpcost_host::machine;

/// Returns the kernel's configuration. `None` if it is not readable.
pub fn config(root: &Path) -> Option<String> {
    machine::kernel_config(root, &release(root)?)
}

fn release(root: &Path) -> Option<String> {
    let text = std::fs::read_to_string(root.join("proc/sys/kernel/osrelease")).ok()?;
    Some(text.trim().to_string())
}

pub fn version(root: &Path) -> Check {
    const NAME: &str = "kernel";
    let Some(release) = release(root) else {
        return Check::missing(
            NAME,
            "unknown: /proc/sys/kernel/osrelease cannot be read",
            "records do not name the kernel",
            "mount /proc",
        );
    };
    match major_minor(&release) {
        Some(version) if version < OLDEST => Check::degraded(
            NAME,
            format!("Linux {release}"),
            "older than any kernel that tcpcost was tested on: some counters and BPF types are missing",
            "use Linux 5.10 or newer",
        ),
        _ => Check::ok(NAME, format!("Linux {release}")),
    }
}

/// Oldest kernel that scripts/kernel-matrix tries.
const OLDEST: (u32, u32) = (5, 10);

fn major_minor(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|other: char| !other.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

pub fn configuration(config: Option<&str>) -> Check {
    const NAME: &str = "kernel_config";
    let Some(config) = config else {
        return Check::degraded(
            NAME,
            "neither /proc/config.gz nor /boot/config-RELEASE can be read",
            "the kernel's options are not known, and records do not say how it accounts CPU time",
            "install the kernel's config file, or gzip for /proc/config.gz",
        );
    };
    let lacking: Vec<String> = WANTED
        .iter()
        .filter(|(option, _)| !has(config, option))
        .map(|(option, purpose)| format!("{option} ({purpose})"))
        .collect();
    if lacking.is_empty() {
        let count = WANTED.len();
        return Check::ok(NAME, format!("all {count} options that matter are set"));
    }
    Check::degraded(
        NAME,
        format!("not set: {}", lacking.join(", ")),
        "the features in brackets are missing",
        "use a distribution's kernel, or build one with these options",
    )
}

/// True if an option is built in or a module.
pub fn has(config: &str, option: &str) -> bool {
    config.lines().any(|line| {
        line.strip_prefix(option)
            .is_some_and(|value| value == "=y" || value == "=m")
    })
}

/// Options and their purposes. Debian, Ubuntu, Fedora and RHEL set all of them.
const WANTED: &[(&str, &str)] = &[
    ("CONFIG_NET_NS", "netns beds"),
    ("CONFIG_USER_NS", "netns beds without root"),
    ("CONFIG_VETH", "netns beds"),
    ("CONFIG_RPS", "receive work on the receiver's CPU"),
    ("CONFIG_NET_SCH_TBF", "bottleneck"),
    ("CONFIG_BPF_SYSCALL", "meters by eBPF"),
    ("CONFIG_BPF_JIT", "meters by eBPF at a bearable cost"),
    ("CONFIG_DEBUG_INFO_BTF", "meters by eBPF"),
    ("CONFIG_PERF_EVENTS", "cycles and profiles"),
];

pub fn accounting(root: &Path, config: Option<&str>) -> Check {
    const NAME: &str = "cpu_accounting";
    let kind = config.map_or("unknown", |config| cpu_accounting(root, config));
    let measured = match nohz_full(root) {
        Some(cpus) => format!(" on all CPUs but {cpus} (nohz_full), where all modes are measured"),
        None => String::new(),
    };
    let (found, consequence, remedy) = match kind {
        "vtime" => return Check::ok(NAME, "vtime: all modes of /proc/stat are measured"),
        "irq-time" => (
            "irq and softirq are measured, a whole tick of the rest is charged to what it interrupts",
            "user and system of /proc/stat are wrong below full load; idle is measured",
            "use the meter exact",
        ),
        "tick" => (
            "a whole tick is charged to what it interrupts",
            "user, system and softirq of /proc/stat are wrong below full load, irq reads near 0; idle is measured",
            "use the meter exact",
        ),
        "periodic" => (
            "the tick never stops (nohz=off), and a whole one is charged to what it interrupts",
            "all of /proc/stat is wrong below full load, idle too: without the meter exact, CPU time was 0.96 to 1.8 times the exact one",
            "use the meter exact, or boot without nohz=off",
        ),
        _ => (
            "the kernel's configuration cannot be read, or names no method",
            "the accuracy of /proc/stat is not known",
            "make the kernel's configuration readable",
        ),
    };
    Check::degraded(
        NAME,
        format!("{kind}{measured}: {found}"),
        consequence,
        remedy,
    )
}

pub fn btf(root: &Path) -> Check {
    const NAME: &str = "btf";
    match std::fs::metadata(root.join("sys/kernel/btf/vmlinux")) {
        Ok(file) => Check::ok(
            NAME,
            format!("/sys/kernel/btf/vmlinux, {} KiB", file.len() / 1024),
        ),
        Err(_) => Check::missing(
            NAME,
            "no /sys/kernel/btf/vmlinux",
            "programs that read kernel structures cannot be loaded: no meters by eBPF",
            "use a kernel with CONFIG_DEBUG_INFO_BTF",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Verdict, fake_root};
    use super::*;

    fn verdict_of(release: &str) -> Verdict {
        let root = fake_root(&[("proc/sys/kernel/osrelease", release)]);
        version(root.path()).verdict
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(verdict_of("6.1.0-18-amd64\n"), Verdict::Ok);
        assert_eq!(verdict_of("5.10.0\n"), Verdict::Ok);
        assert_eq!(verdict_of("5.9.1\n"), Verdict::Degraded);
        assert_eq!(verdict_of("4.18.0-305.el8\n"), Verdict::Degraded);
    }

    #[test]
    fn an_option_that_is_a_module_is_there_and_one_that_is_a_prefix_is_not() {
        let config = "CONFIG_VETH=m\nCONFIG_NET_NSX=y\n# CONFIG_RPS is not set\n";
        assert!(has(config, "CONFIG_VETH"));
        assert!(!has(config, "CONFIG_NET_NS"));
        let check = configuration(Some(config));
        assert_eq!(check.verdict, Verdict::Degraded);
        assert!(check.found.contains("CONFIG_RPS (receive"), "{check:?}");
        assert!(!check.found.contains("CONFIG_VETH"), "{check:?}");
    }

    #[test]
    fn a_whole_configuration_is_ok_and_none_is_degraded() {
        let all: String = WANTED
            .iter()
            .map(|(name, _)| format!("{name}=y\n"))
            .collect();
        assert_eq!(configuration(Some(&all)).verdict, Verdict::Ok);
        assert_eq!(configuration(None).verdict, Verdict::Degraded);
    }

    #[test]
    fn ticks_are_degraded_against_measured_sums() {
        let root = fake_root(&[("sys/devices/system/cpu/nohz_full", "2-3\n")]);
        let of = |config| accounting(root.path(), config);
        let measured = of(Some("CONFIG_VIRT_CPU_ACCOUNTING_NATIVE=y\n"));
        assert_eq!(measured.verdict, Verdict::Ok);
        let tick = of(Some("CONFIG_VIRT_CPU_ACCOUNTING_GEN=y\n"));
        assert_eq!(tick.verdict, Verdict::Degraded);
        assert!(
            tick.found
                .starts_with("tick on all CPUs but 2-3 (nohz_full)")
        );
        assert_eq!(of(None).verdict, Verdict::Degraded);
    }

    #[test]
    fn the_configuration_is_found_by_the_release() {
        let root = fake_root(&[
            ("proc/sys/kernel/osrelease", "6.1.0\n"),
            ("boot/config-6.1.0", "CONFIG_VETH=y\n"),
        ]);
        assert!(has(&config(root.path()).unwrap(), "CONFIG_VETH"));
        assert_eq!(btf(root.path()).verdict, Verdict::Missing);
    }
}
