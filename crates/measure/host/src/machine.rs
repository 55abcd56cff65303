//! Properties of the machine that do not change from trial to trial.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use tcpcost_counts::Machine;

use crate::cpu_accounting::cpu_accounting;
use crate::cpus::Cpus;
use crate::error::read_trimmed;
use crate::place::is_in_hosts_user_namespace;

/// Reads the properties of the machine. A value that cannot be read is empty, `unknown` or absent,
/// never invented. `tsc_hz` and `sysctls` are left for the caller.
pub fn host() -> Machine {
    let mut host = from_root(Path::new("/"));
    host.machine = std::env::consts::ARCH.to_string();
    host.tcpcost = version();
    host.privileged = is_privileged();
    if host.hypervisor.as_deref() == Some(UNNAMED) {
        host.hypervisor = hypervisor_signature().or(host.hypervisor);
    }
    if let Ok(topology) = Cpus::read(Path::new("/sys")) {
        host.cpus = host.cpus.max(topology.cpus.len());
    }
    host
}

/// This program's version, with the profile that it was built by if that is not a release's (`make run`), so that
/// records of both are seen to differ.
fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match option_env!("TCPCOST_PROFILE") {
        Some(profile) => format!("{version} ({profile})"),
        None => version.to_string(),
    }
}

/// Boot id of the kernel, which identifies the machine until it reboots. `unknown` if it cannot be
/// read.
pub fn boot_id() -> String {
    read_trimmed(Path::new("/proc/sys/kernel/random/boot_id")).unwrap_or_else(|_| "unknown".into())
}

/// Name of a hypervisor that the files do not name.
const UNNAMED: &str = "a hypervisor";

/// Hypervisors by what they write into CPUID leaf 0x4000_0000.
#[cfg(target_arch = "x86_64")]
const SIGNATURES: [(&str, &str); 6] = [
    ("KVMKVMKVM", "KVM"),
    ("Microsoft Hv", "Hyper-V"),
    ("VMwareVMware", "VMware"),
    ("XenVMMXenVMM", "Xen"),
    ("TCGTCGTCGTCG", "QEMU without KVM"),
    ("bhyve bhyve ", "bhyve"),
];

/// Name of the hypervisor by its signature in CPUID leaf 0x4000_0000, 12 bytes. A signature that is not
/// known is its own name.
#[cfg(target_arch = "x86_64")]
#[allow(
    unsafe_code,
    unused_unsafe,
    reason = "unsafe until Rust 1.88, and safe in newer releases"
)]
fn hypervisor_signature() -> Option<String> {
    // SAFETY: every x86-64 CPU has CPUID; a leaf that it does not have reads as another one.
    let leaf = unsafe { std::arch::x86_64::__cpuid(0x4000_0000) };
    let bytes = [leaf.ebx, leaf.ecx, leaf.edx]
        .map(u32::to_le_bytes)
        .concat();
    let name = String::from_utf8(bytes).ok()?;
    let name = name.trim_end_matches('\0');
    let printable = !name.is_empty() && name.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    let known = SIGNATURES.iter().find(|(signature, _)| *signature == name);
    printable.then(|| known.map_or(name, |(_, known)| known).to_string())
}

/// Always `None`: other architectures have no such call.
#[cfg(not(target_arch = "x86_64"))]
fn hypervisor_signature() -> Option<String> {
    None
}

fn from_root(root: &Path) -> Machine {
    let read = |path: &str| read_trimmed(&root.join(path)).ok();
    let cpuinfo = read("proc/cpuinfo").unwrap_or_default();
    let release = read("proc/sys/kernel/osrelease").unwrap_or_default();
    let version = read("proc/sys/kernel/version").unwrap_or_default();
    Machine {
        kernel: format!("{release} {version}").trim().to_string(),
        machine: String::new(),
        cpu: cpu_model(&cpuinfo),
        cpus: cpuinfo
            .lines()
            .filter(|line| field(line, "processor").is_some())
            .count(),
        smt: read("sys/devices/system/cpu/smt/active").map(|active| active == "1"),
        memory_bytes: read("proc/meminfo").map_or(0, |text| memory_bytes(&text)),
        hypervisor: hypervisor(&cpuinfo, &read),
        governor: governor(root),
        clocksource: read("sys/devices/system/clocksource/clocksource0/current_clocksource")
            .unwrap_or_else(|| "unknown".into()),
        instructions_per_ns: read("proc/cmdline").and_then(|line| instructions_per_ns(&line)),
        tsc_hz: None,
        cpu_accounting: kernel_config(root, &release)
            .map_or("unknown", |config| cpu_accounting(root, &config))
            .into(),
        cmdline: read("proc/cmdline").map_or_else(String::new, |line| options(&line)),
        sysctls: BTreeMap::new(),
        tcpcost: String::new(),
        privileged: false,
    }
}

/// Rate that the starter of the machine gave, if its clock counts instructions: the machine itself
/// cannot tell.
fn instructions_per_ns(line: &str) -> Option<u64> {
    let mut words = line.split_whitespace();
    words.find_map(|word| {
        word.strip_prefix("tcpcost.instructions_per_ns=")?
            .parse()
            .ok()
    })
}

/// Options of the kernel's command line that affect CPU cost. All other options are omitted.
fn options(line: &str) -> String {
    let of_kernel = line.split_whitespace().take_while(|word| *word != "--");
    let told = of_kernel.filter(|word| {
        let name = word.split('=').next().unwrap_or_default();
        OPTIONS.contains(&name)
    });
    told.collect::<Vec<_>>().join(" ")
}

/// Names of those options (Documentation/admin-guide/kernel-parameters.txt): mitigations, isolated
/// CPUs, idle states, clocks, preemption, huge pages, IOMMU.
const OPTIONS: [&str; 38] = [
    "mitigations",
    "spectre_v1",
    "nospectre_v1",
    "spectre_v2",
    "nospectre_v2",
    "spectre_v2_user",
    "spec_store_bypass_disable",
    "pti",
    "nopti",
    "l1tf",
    "mds",
    "tsx",
    "tsx_async_abort",
    "mmio_stale_data",
    "retbleed",
    "srbds",
    "gather_data_sampling",
    "spec_rstack_overflow",
    "kvm.nx_huge_pages",
    "nosmt",
    "maxcpus",
    "isolcpus",
    "nohz",
    "nohz_full",
    "rcu_nocbs",
    "irqaffinity",
    "threadirqs",
    "preempt",
    "idle",
    "processor.max_cstate",
    "intel_idle.max_cstate",
    "intel_pstate",
    "amd_pstate",
    "clocksource",
    "tsc",
    "transparent_hugepage",
    "iommu",
    "intel_iommu",
];

/// Value of a `name : value` line. `None` if the name differs.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (found, value) = line.split_once(':')?;
    (found.trim() == name).then_some(value.trim())
}

/// Model of the CPU: x86's `model name`. arm64 has only numbers, which are named if known.
fn cpu_model(cpuinfo: &str) -> String {
    let first = |name: &str| cpuinfo.lines().find_map(|line| field(line, name));
    // Other architectures' names for the model; s390 and riscv have none of arm64's fields.
    for name in ["model name", "cpu model", "uarch", "cpu"] {
        if let Some(model) = first(name) {
            return model.to_string();
        }
    }
    let (Some(implementer), Some(part)) = (first("CPU implementer"), first("CPU part")) else {
        return "unknown".into();
    };
    let known = ARM_PARTS
        .iter()
        .find(|(i, p, _)| (*i, *p) == (implementer, part));
    match known {
        Some((_, _, name)) => (*name).to_string(),
        None => format!("arm64 implementer {implementer} part {part}"),
    }
}

fn memory_bytes(meminfo: &str) -> u64 {
    let total = meminfo.lines().find_map(|line| field(line, "MemTotal"));
    total
        .and_then(|text| text.strip_suffix("kB")?.trim().parse::<u64>().ok())
        .and_then(|kib| kib.checked_mul(1024))
        .unwrap_or(0)
}

fn hypervisor(cpuinfo: &str, read: &impl Fn(&str) -> Option<String>) -> Option<String> {
    if let Some(kind) = read("sys/hypervisor/type") {
        return Some(kind);
    }
    let vendor = read("sys/class/dmi/id/sys_vendor").unwrap_or_default();
    let product = read("sys/class/dmi/id/product_name").unwrap_or_default();
    let board = format!("{vendor} {product}").trim().to_string();
    let flags = cpuinfo.lines().find_map(|line| field(line, "flags"));
    let flagged = flags.is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    let named = [
        "QEMU",
        "KVM",
        "VMware",
        "Virtual",
        "Xen",
        "Amazon EC2",
        "Google Compute",
    ];
    if flagged || named.iter().any(|name| board.contains(name)) {
        // The CPU's flag shows a hypervisor, but not which.
        return Some(if board.is_empty() {
            UNNAMED.into()
        } else {
            board
        });
    }
    None
}

/// Frequency governors in use, each once. `None` if there are none.
pub fn governor(root: &Path) -> Option<String> {
    let folder = root.join("sys/devices/system/cpu/cpufreq");
    let mut governors: Vec<String> = fs::read_dir(folder)
        .ok()?
        .filter_map(|policy| read_trimmed(&policy.ok()?.path().join("scaling_governor")).ok())
        .collect();
    governors.sort();
    governors.dedup();
    (!governors.is_empty()).then(|| governors.join(", "))
}

/// Kernel configuration: /proc/config.gz (through gzip(1), which every distribution has) or
/// /boot/config-RELEASE. `None` if neither can be read.
pub fn kernel_config(root: &Path, release: &str) -> Option<String> {
    let packed = root.join("proc/config.gz");
    if packed.exists()
        && let Ok(output) = Command::new("gzip").arg("-dc").arg(packed).output()
        && output.status.success()
    {
        return Some(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    fs::read_to_string(root.join(format!("boot/config-{release}"))).ok()
}

/// True for root in the host's own user namespace.
fn is_privileged() -> bool {
    rustix::process::geteuid().is_root() && is_in_hosts_user_namespace(Path::new("/"))
}

/// MIDR implementer, part and name of common server cores.
const ARM_PARTS: &[(&str, &str, &str)] = &[
    ("0x41", "0xd03", "ARM Cortex-A53"),
    ("0x41", "0xd07", "ARM Cortex-A57"),
    ("0x41", "0xd08", "ARM Cortex-A72"),
    ("0x41", "0xd0b", "ARM Cortex-A76"),
    ("0x41", "0xd0c", "ARM Neoverse N1"),
    ("0x41", "0xd40", "ARM Neoverse V1"),
    ("0x41", "0xd49", "ARM Neoverse N2"),
    ("0x41", "0xd4f", "ARM Neoverse V2"),
    ("0x48", "0xd01", "HiSilicon Kunpeng 920"),
    ("0xc0", "0xac3", "Ampere-1"),
    ("0xc0", "0xac4", "Ampere-1a"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_kernels_command_line_only_what_moves_cost_is_told() {
        let line = "BOOT_IMAGE=/vmlinuz root=/dev/sda1 mitigations=off token=secret idle=poll quiet -- mitigations=auto";
        assert_eq!(options(line), "mitigations=off idle=poll");
        assert_eq!(options(""), "");
    }

    #[test]
    fn an_arm64_cpu_has_a_name() {
        let known = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(cpu_model(known), "ARM Neoverse N1");
        let unknown = known.replace("0xd0c", "0xfff");
        assert_eq!(cpu_model(&unknown), "arm64 implementer 0x41 part 0xfff");
        assert_eq!(cpu_model(""), "unknown");
    }

    #[test]
    fn a_fake_host_is_read_and_an_empty_one_is_unknown() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(
            "proc/cpuinfo",
            "processor : 0\nmodel name : X\nflags : a hypervisor\nprocessor : 1\n",
        );
        put("proc/meminfo", "MemTotal:        2048 kB\n");
        put("proc/sys/kernel/osrelease", "6.1.0\n");
        put("boot/config-6.1.0", "CONFIG_TICK_CPU_ACCOUNTING=y\n");
        put(
            "sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
            "schedutil\n",
        );
        put("sys/devices/system/cpu/smt/active", "0\n");
        let host = from_root(root.path());
        assert_eq!((host.cpu.as_str(), host.cpus), ("X", 2));
        assert_eq!((host.memory_bytes, host.smt), (2 << 20, Some(false)));
        assert_eq!(host.cpu_accounting, "tick");
        assert_eq!(host.governor.as_deref(), Some("schedutil"));
        assert_eq!(host.hypervisor.as_deref(), Some(UNNAMED));

        let empty = from_root(Path::new("/nonesuch"));
        assert_eq!(
            (empty.cpu.as_str(), empty.cpu_accounting.as_str()),
            ("unknown", "unknown")
        );
        assert_eq!(
            (empty.smt, empty.governor, empty.hypervisor),
            (None, None, None)
        );
    }
}
