//! State of a host's port, read just before a trial.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use tcpcost_counts::Environment;
use tcpcost_knobs::{DeviceName, Segmentation};

use crate::error::SystemError;
use crate::{ethtool, link, qdisc, queues, route, rps, sysctl};

/// Reads a device, the route to `peer`, and the sysctls of [`SYSCTLS`] and of `also` (those that
/// the trial set). The caller adds congestion control and MSS, which belong to connections. Values
/// that the kernel does not have are absent.
///
/// # Errors
/// The error of reading the device or the route.
pub fn of_port(
    device: &DeviceName,
    peer: IpAddr,
    also: &BTreeSet<String>,
) -> Result<Environment, SystemError> {
    let link = link::read(device)?;
    let offloads: BTreeMap<String, bool> = ethtool::OFFLOADS
        .iter()
        .filter_map(|&name| Some((name.to_string(), ethtool::read(device, name).ok()?)))
        .collect();
    Ok(Environment {
        device: device.to_string(),
        mtu: link.mtu.into(),
        segmentation: regime(link.gso_max_segs, &offloads).word().to_string(),
        offloads,
        gso_max_segs: link.gso_max_segs.into(),
        // The limit that applies to IPv4.
        gso_max_size: link.gso_ipv4_max_size.unwrap_or(link.gso_max_size).into(),
        gro_max_size: match link.gro_ipv4_max_size.unwrap_or(link.gro_max_size) {
            0 => None,
            bytes => Some(bytes.into()),
        },
        threaded_napi: rps::read_threaded(rps::root(), device).ok(),
        qdisc: qdisc::describe(device)?,
        route: route::describe(peer)?,
        rps_cpus: rps::read(rps::root(), device)
            .ok()
            .map(|cpus| queues::to_mask(&cpus)),
        queues: queues::describe(rps::root(), device),
        carrier: None,
        nic: None,
        sysctls: sysctls(sysctl::root(), also),
        congestion_control: None,
        mss: None,
        connection: BTreeMap::new(),
    })
}

/// Segmentation regime that results from a device's state.
fn regime(gso_max_segs: u32, offloads: &BTreeMap<String, bool>) -> Segmentation {
    if gso_max_segs == 1 {
        Segmentation::PerMss
    } else if offloads.get("tso") == Some(&true) {
        Segmentation::Tso
    } else {
        // Since Linux 4.17 TCP builds super-segments whether gso is on or off.
        Segmentation::SoftwareGso
    }
}

/// Values of the sysctls of [`SYSCTLS`] and `also` that exist below `root` (/proc/sys). Some, such
/// as tcp_mem and netdev_budget, exist only in the host's namespace: read them before entering
/// another one.
pub fn sysctls(root: &Path, also: &BTreeSet<String>) -> BTreeMap<String, String> {
    let names = SYSCTLS
        .iter()
        .copied()
        .chain(also.iter().map(String::as_str));
    names
        .filter_map(|name| Some((name.to_string(), sysctl::read(root, name).ok()?)))
        .collect()
}

/// Sysctls that affect the cost of TCP.
pub const SYSCTLS: &[&str] = &[
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.dev_weight",
    "net.core.gro_normal_batch",
    "net.core.high_order_alloc_disable",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.rps_sock_flow_entries",
    "net.core.skb_defer_max",
    "net.core.somaxconn",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_adv_win_scale",
    "net.ipv4.tcp_autocorking",
    "net.ipv4.tcp_backlog_ack_defer",
    "net.ipv4.tcp_comp_sack_delay_ns",
    "net.ipv4.tcp_comp_sack_nr",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_early_retrans",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_min_tso_segs",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_pacing_ca_ratio",
    "net.ipv4.tcp_pacing_ss_ratio",
    "net.ipv4.tcp_recovery",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_shrink_window",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_tso_rtt_log",
    "net.ipv4.tcp_tso_win_divisor",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_tw_reuse_delay",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_regime_is_derived_from_what_was_read() {
        let with_tso = |on| BTreeMap::from([("tso".to_string(), on)]);
        assert_eq!(regime(1, &with_tso(true)), Segmentation::PerMss);
        assert_eq!(regime(65535, &with_tso(true)), Segmentation::Tso);
        assert_eq!(regime(65535, &with_tso(false)), Segmentation::SoftwareGso);
    }

    #[test]
    fn sysctls_that_the_kernel_lacks_are_absent() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("net/ipv4");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("tcp_sack"), "1\n").unwrap();
        std::fs::write(folder.join("tcp_own"), "a\tb\n").unwrap();
        let also = BTreeSet::from(["net.ipv4.tcp_own".to_string()]);
        let found = sysctls(root.path(), &also);
        let expected = [("net.ipv4.tcp_own", "a b"), ("net.ipv4.tcp_sack", "1")];
        let expected = expected.map(|(name, value)| (name.to_string(), value.to_string()));
        assert_eq!(found, BTreeMap::from(expected));
    }

    #[test]
    fn loopback_can_be_read_without_privileges() {
        let found = of_port(
            &"lo".parse().unwrap(),
            IpAddr::from([127, 0, 0, 1]),
            &BTreeSet::new(),
        )
        .unwrap();
        assert!(found.mtu > 0 && found.gso_max_size > 0, "{found:?}");
        assert!(found.route.contains("dev lo"), "{}", found.route);
        assert!(!found.qdisc.is_empty());
    }
}
