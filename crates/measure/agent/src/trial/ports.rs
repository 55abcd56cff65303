//! Warning that a host that closes its connections first is short of ports.

use std::path::Path;

use tcpcost_host::sysctl;
use tcpcost_study::{CloseBy, CountOwner, FlowGroup, MeterName, Operation, Quantity, Reading};

/// Share of the ports above which there is a warning if the kernel uses them again: a trial at its limit had 96 % of them in
/// TIME_WAIT by its mean rate. Others are at their limit once all ports are used.
const NEAR_LIMIT: f64 = 0.9;

/// Time for which Linux keeps a port in TIME_WAIT, s (TCP_TIMEWAIT_LEN).
const TIME_WAIT_S: f64 = 60.0;

/// A host's connections until the end of the interval.
pub(super) struct Opened {
    /// Number since the trial began, warm-up included.
    pub total: u64,
    /// Number each second of the interval.
    pub per_s: f64,
}

impl Opened {
    /// `total`, and the rate of the workload's reading. `None` if the workload opened none.
    pub(super) fn of(total: u64, readings: &[Reading]) -> Option<Opened> {
        let mut readings = readings.iter();
        let workload = readings.find(|reading| {
            reading.meter == MeterName::Workload && reading.whose == CountOwner::Workload
        })?;
        let opened = *workload.counts.get(&Quantity::ConnectionsOpened)?;
        let per_s = opened as f64 * 1e9 / workload.duration_ns.max(1) as f64;
        Some(Opened { total, per_s })
    }
}

/// Ports of a host that can connect.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ports {
    /// Number that connect(2) finds soon for one address and port: half of net.ipv4.ip_local_port_range. It tries ports of one
    /// parity first, and searches long for others (__inet_hash_connect).
    number: f64,
    /// Time until a port in TIME_WAIT is used again, s.
    wait_s: f64,
}

impl Ports {
    /// Reads them below `root` (/proc/sys) in this network namespace. `None` if they cannot be read.
    pub(super) fn read(root: &Path, is_loopback: bool) -> Option<Ports> {
        let read = |name: &str| sysctl::read(root, &format!("net.ipv4.{name}"));
        let range = read("ip_local_port_range").ok()?;
        let mut ends = range.split_whitespace().map(str::parse::<u32>);
        let (first, last) = (ends.next()?.ok()?, ends.next()?.ok()?);
        let reuse = read("tcp_tw_reuse").ok()?;
        let wait_s = match (reuse.as_str(), is_loopback) {
            // Kernels without this sysctl wait for a second.
            ("1", _) | ("2", true) => match read("tcp_tw_reuse_delay") {
                Ok(ms) => ms.parse::<f64>().ok()? / 1000.0,
                Err(_) => 1.0,
            },
            _ => TIME_WAIT_S,
        };
        Some(Ports {
            number: f64::from(last.saturating_sub(first) + 1) / 2.0,
            wait_s,
        })
    }

    /// Warning if most of these ports, for `targets` ports of servers, are in TIME_WAIT.
    pub(super) fn check(self, opened: &Opened, targets: usize) -> Option<String> {
        let ports = self.number * targets as f64;
        let waiting = f64::min(opened.total as f64, opened.per_s * self.wait_s);
        let (share, remedy) = match self.wait_s < TIME_WAIT_S {
            true => (NEAR_LIMIT, "lower net.ipv4.tcp_tw_reuse_delay"),
            false => (1.0, "set net.ipv4.tcp_tw_reuse = 1"),
        };
        (waiting > ports * share).then(|| {
            format!(
                "this host is short of ports: it closes its connections first, and about {waiting:.0} ports are in TIME_WAIT for {} s each, of {ports:.0} that connect(2) tries first; the search for others costs CPU time and limits the rate: let the other side close first (by = \"listener\"), widen net.ipv4.ip_local_port_range, or {remedy}",
                self.wait_s
            )
        })
    }
}

/// True if a program of these closes its connections on the side that opens them.
pub(super) fn closes_first(groups: &[FlowGroup]) -> bool {
    let by = CloseBy::Connector;
    let programs = groups
        .iter()
        .filter_map(|group| group.settings.program.as_ref());
    let mut operations = programs.flat_map(|program| program.all());
    operations.any(|operation| *operation == Operation::Close { by })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn ports(reuse: &str, delay_ms: Option<&str>, is_loopback: bool) -> Option<Ports> {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("net/ipv4");
        fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        write("ip_local_port_range", "20000\t65535\n");
        write("tcp_tw_reuse", reuse);
        if let Some(delay_ms) = delay_ms {
            write("tcp_tw_reuse_delay", delay_ms);
        }
        Ports::read(root.path(), is_loopback)
    }

    #[test]
    fn half_of_the_range_waits_as_long_as_the_kernel_says() {
        let wait_s = |reuse, delay_ms, is_loopback| {
            let ports = ports(reuse, delay_ms, is_loopback).unwrap();
            assert_eq!(ports.number, 22_768.0);
            ports.wait_s
        };
        assert_eq!(wait_s("1", None, false), 1.0);
        assert_eq!(wait_s("1", Some("250\n"), false), 0.25);
        assert_eq!(wait_s("2", Some("1000\n"), true), 1.0);
        assert_eq!(wait_s("2", Some("1000\n"), false), TIME_WAIT_S);
        assert_eq!(wait_s("0", Some("1000\n"), true), TIME_WAIT_S);
        assert_eq!(Ports::read(Path::new("/nowhere"), true), None);
    }

    #[test]
    fn ports_that_are_used_up_give_a_warning() {
        let warns = |reuse, total, per_s, targets| {
            let ports = ports(reuse, None, false).unwrap();
            ports.check(&Opened { total, per_s }, targets).is_some()
        };
        // Used again after a second: the rate counts, once enough were opened.
        assert!(warns("1", 60_000, 22_300.0, 1));
        assert!(!warns("1", 60_000, 20_000.0, 1));
        assert!(!warns("1", 12_000, 22_300.0, 1));
        assert!(!warns("1", 60_000, 22_300.0, 2), "two ports of servers");
        // Not used again: the number counts, however slow the connections became.
        assert!(warns("0", 23_000, 2_700.0, 1));
        assert!(!warns("0", 22_000, 22_000.0, 1));
    }
}
