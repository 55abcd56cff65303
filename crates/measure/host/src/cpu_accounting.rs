//! How the kernel sums the CPU time that /proc/stat shows (kernel/sched/cputime.c, kernel/time/tick-sched.c).

use std::fs;
use std::path::Path;

use crate::cpus;

/// Method by which the kernel sums CPU time, on all CPUs but those of [`nohz_full`].
///
/// - `vtime`: all modes are measured.
/// - `irq-time`: irq and softirq are measured; user and system are what the ticks met.
/// - `tick`: all modes but idle are what the ticks met. Idle time is measured.
/// - `periodic`: the tick never stops, so idle time, too, is what the ticks met.
/// - `unknown`: the configuration names no method.
///
/// `root`: where /proc is. `config`: the kernel's configuration.
pub fn cpu_accounting(root: &Path, config: &str) -> &'static str {
    let is_on = |option: &str| {
        let mut lines = config.lines();
        lines.any(|line| line.strip_prefix(option) == Some("=y"))
    };
    // GEN alone, which distributions set, measures only on the CPUs of nohz_full=.
    let generic = is_on("CONFIG_VIRT_CPU_ACCOUNTING_GEN");
    let everywhere = [
        "CONFIG_CONTEXT_TRACKING_USER_FORCE",
        "CONFIG_CONTEXT_TRACKING_FORCE",
    ];
    if is_on("CONFIG_VIRT_CPU_ACCOUNTING_NATIVE")
        || generic && everywhere.iter().any(|option| is_on(option))
    {
        "vtime"
    } else if is_on("CONFIG_HZ_PERIODIC") || is_tick_kept(root) {
        "periodic"
    } else if is_on("CONFIG_IRQ_TIME_ACCOUNTING") {
        "irq-time"
    } else if generic || is_on("CONFIG_TICK_CPU_ACCOUNTING") {
        "tick"
    } else {
        "unknown"
    }
}

/// CPUs on which all modes are measured, as the kernel lists them (`2-7`): those of `nohz_full=`. `None` if there are none.
pub fn nohz_full(root: &Path) -> Option<String> {
    let list = fs::read_to_string(root.join("sys/devices/system/cpu/nohz_full")).ok()?;
    let list = list.trim();
    // Without nohz_full= the file holds `(null)` or nothing.
    let cpus = cpus::from_list(list)?;
    (!cpus.is_empty()).then(|| list.to_string())
}

/// True if the kernel was booted with `nohz=off`, in one of the spellings that it takes (lib/kstrtox.c, kstrtobool).
fn is_tick_kept(root: &Path) -> bool {
    let line = fs::read_to_string(root.join("proc/cmdline")).unwrap_or_default();
    let mut values = line
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("nohz="));
    let is_false = |value: &str| {
        let value = value.to_ascii_lowercase();
        value.starts_with(['n', 'f', '0']) || value.starts_with("of")
    };
    // The kernel takes the last one.
    values.next_back().is_some_and(is_false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_cmdline(line: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/cmdline"), line).unwrap();
        root
    }

    #[test]
    fn the_method_is_in_the_kernels_configuration() {
        let root = with_cmdline("quiet\n");
        let of = |config: &str| cpu_accounting(root.path(), config);
        assert_eq!(of("CONFIG_TICK_CPU_ACCOUNTING=y\n"), "tick");
        let both = "CONFIG_TICK_CPU_ACCOUNTING=y\nCONFIG_IRQ_TIME_ACCOUNTING=y\n";
        assert_eq!(of(both), "irq-time");
        assert_eq!(of("CONFIG_VIRT_CPU_ACCOUNTING_NATIVE=y"), "vtime");
        assert_eq!(
            of("CONFIG_HZ_PERIODIC=y\nCONFIG_TICK_CPU_ACCOUNTING=y"),
            "periodic"
        );
        assert_eq!(of("# CONFIG_TICK_CPU_ACCOUNTING is not set"), "unknown");
    }

    #[test]
    fn distributions_kernels_measure_only_on_the_cpus_of_nohz_full() {
        let root = with_cmdline("quiet\n");
        let debian = "CONFIG_VIRT_CPU_ACCOUNTING_GEN=y\nCONFIG_NO_HZ_FULL=y\n# CONFIG_CONTEXT_TRACKING_USER_FORCE is not set\n";
        assert_eq!(cpu_accounting(root.path(), debian), "tick");
        let forced = "CONFIG_VIRT_CPU_ACCOUNTING_GEN=y\nCONFIG_CONTEXT_TRACKING_FORCE=y\n";
        assert_eq!(cpu_accounting(root.path(), forced), "vtime");

        assert_eq!(nohz_full(root.path()), None);
        let folder = root.path().join("sys/devices/system/cpu");
        fs::create_dir_all(&folder).unwrap();
        for (text, list) in [("(null)\n", None), ("\n", None), ("1-2\n", Some("1-2"))] {
            fs::write(folder.join("nohz_full"), text).unwrap();
            assert_eq!(nohz_full(root.path()).as_deref(), list, "{text:?}");
        }
    }

    #[test]
    fn a_tick_that_never_stops_is_in_the_command_line() {
        for (line, method) in [
            ("nohz=off", "periodic"),
            ("quiet nohz=0", "periodic"),
            ("nohz=n", "periodic"),
            ("nohz=off nohz=on", "tick"),
            ("nohz_full=1-2", "tick"),
            ("nohz=", "tick"),
        ] {
            let root = with_cmdline(line);
            let found = cpu_accounting(root.path(), "CONFIG_TICK_CPU_ACCOUNTING=y");
            assert_eq!(found, method, "{line}");
        }
    }
}
