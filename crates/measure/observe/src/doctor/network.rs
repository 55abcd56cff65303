//! Checks of TCP itself: loopback, devices of the default route, congestion control, memory, open
//! files.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use super::Check;
use tcpcost_host::{ethtool, sysctl};

pub fn loopback() -> Check {
    const NAME: &str = "tcp_loopback";
    match echo() {
        Ok(()) => Check::ok(NAME, "a connection over 127.0.0.1 carries data"),
        Err(error) => Check::missing(
            NAME,
            format!("a connection over 127.0.0.1: {error}"),
            "nothing can be measured",
            "ip link set lo up, and let no firewall block it",
        ),
    }
}

fn echo() -> io::Result<()> {
    // Limit for a firewall that drops the packets.
    const LONG: Duration = Duration::from_secs(2);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect_timeout(&listener.local_addr()?, LONG)?;
    let (mut server, _) = listener.accept()?;
    client.write_all(b"x")?;
    server.set_read_timeout(Some(LONG))?;
    server.read_exact(&mut [0])
}

/// Checks the offloads of each device of a default route.
pub fn offloads(root: &Path) -> Check {
    let read = |file: &str| std::fs::read_to_string(root.join("proc/net").join(file));
    let devices = default_devices(
        &read("route").unwrap_or_default(),
        &read("ipv6_route").unwrap_or_default(),
    );
    let each: Vec<(String, BTreeMap<&str, bool>)> = devices
        .into_iter()
        .map(|device| {
            let state = ethtool::OFFLOADS
                .iter()
                .filter_map(|&name| Some((name, ethtool::read(&device, name).ok()?)))
                .collect();
            (device, state)
        })
        .collect();
    offloads_of(&each)
}

fn offloads_of(each: &[(String, BTreeMap<&str, bool>)]) -> Check {
    const NAME: &str = "offloads";
    if each.is_empty() {
        return Check::ok(NAME, "no default route, so no device to check");
    }
    let words = |state: &BTreeMap<&str, bool>, on: bool| {
        let names: Vec<&str> = state
            .iter()
            .filter_map(|(name, is)| (*is == on).then_some(*name))
            .collect();
        names.join(", ")
    };
    let found: Vec<String> = each
        .iter()
        .map(
            |(device, state)| match (words(state, true), words(state, false)) {
                (on, off) if on.is_empty() && off.is_empty() => format!("{device}: unknown"),
                (on, off) if off.is_empty() => format!("{device}: {on} on"),
                (on, off) if on.is_empty() => format!("{device}: {off} off"),
                (on, off) => format!("{device}: {on} on, {off} off"),
            },
        )
        .collect();
    let found = found.join("; ");
    let is_whole = |(_, state): &(String, BTreeMap<&str, bool>)| {
        state.len() == ethtool::OFFLOADS.len() && state.values().all(|on| *on)
    };
    if each.iter().all(is_whole) {
        return Check::ok(NAME, found);
    }
    Check::degraded(
        NAME,
        found,
        "TCP over this device costs more CPU than necessary; loopback and netns beds do not use it",
        "ethtool -K DEVICE tso on gso on gro on, where the driver has them",
    )
}

/// Returns the devices of the default routes in /proc/net/route and /proc/net/ipv6_route.
fn default_devices(route: &str, ipv6_route: &str) -> BTreeSet<String> {
    let v4 = route.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_default = fields.get(1) == Some(&"00000000") && fields.get(7) == Some(&"00000000");
        is_default.then(|| fields[0].to_string())
    });
    let v6 = ipv6_route.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let destination = fields.first()?;
        let is_default =
            destination.bytes().all(|digit| digit == b'0') && fields.get(1) == Some(&"00");
        // Column 9 is the device. The kernel keeps an unreachable default route on lo.
        is_default.then(|| fields.get(9).map(ToString::to_string))?
    });
    v4.chain(v6).filter(|device| device != "lo").collect()
}

pub fn congestion_control(root: &Path) -> Check {
    const NAME: &str = "congestion_control";
    let read = |name: &str| sysctl::read(&root.join("proc/sys"), name).ok();
    let Some(default) = read("net.ipv4.tcp_congestion_control") else {
        return Check::degraded(
            NAME,
            "unknown",
            "it is not known whether the host's default paces",
            "mount /proc",
        );
    };
    let available = read("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
    let found = format!("{default}; available: {available}");
    // Only BBR paces by itself; fq paces if the application sets a rate.
    if default.starts_with("bbr") {
        return Check::degraded(
            NAME,
            found,
            "it paces, so programs that take the default are measured with its timers",
            "sysctl net.ipv4.tcp_congestion_control=cubic (studies set reno by themselves)",
        );
    }
    Check::ok(NAME, found)
}

pub fn tcp_mem(root: &Path) -> Check {
    const NAME: &str = "tcp_mem";
    let text = sysctl::read(&root.join("proc/sys"), "net.ipv4.tcp_mem").ok();
    // The kernel shows it in its first network namespace alone.
    if text.is_none() && root.join("proc/sys/net/ipv4/tcp_wmem").exists() {
        return Check::ok(NAME, "the host's: this network namespace does not show it");
    }
    let pages: Option<Vec<u64>> = text.as_deref().and_then(|text| {
        text.split_whitespace()
            .map(|word| word.parse().ok())
            .collect()
    });
    let Some(&[_, pressure, high]) = pages.as_deref() else {
        return Check::degraded(
            NAME,
            "not three numbers",
            "the number of connections that fit is not known",
            "mount /proc",
        );
    };
    let mib = |pages: u64| pages.saturating_mul(rustix::param::page_size() as u64) >> 20;
    let found = format!(
        "pressure at {} MiB, at most {} MiB",
        mib(pressure),
        mib(high)
    );
    if mib(pressure) < PRESSURE_MIN_MIB {
        return Check::degraded(
            NAME,
            found,
            "thousands of connections run into memory pressure, which shrinks their windows",
            "raise net.ipv4.tcp_mem, or give the host more memory",
        );
    }
    Check::ok(NAME, found)
}

/// Memory for 4000 connections with 64 KiB in flight each.
const PRESSURE_MIN_MIB: u64 = 250;

pub fn open_files() -> Check {
    let limit = getrlimit(Resource::Nofile);
    let number = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    open_files_of(number(limit.current), number(limit.maximum))
}

fn open_files_of(soft: u64, hard: u64) -> Check {
    const NAME: &str = "open_files";
    let found = format!("{soft}, can be raised to {hard}");
    if hard < OPEN_FILES_MIN {
        return Check::degraded(
            NAME,
            found,
            format!(
                "trials of more than some {} connections fail, unless run as root",
                hard / 2
            ),
            "raise the hard limit: ulimit -Hn, LimitNOFILE= in a systemd unit",
        );
    }
    Check::ok(NAME, found)
}

/// Descriptors for both ends of 4000 connections in one process, and some more.
const OPEN_FILES_MIN: u64 = 8192;

#[cfg(test)]
mod tests {
    use super::super::{Verdict, fake_root};
    use super::*;

    #[test]
    fn devices_are_those_of_default_routes() {
        let route = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
                     eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\n\
                     eth1\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\n";
        let zeros = "0".repeat(32);
        let ipv6 = format!(
            "{zeros} 00 {zeros} 00 {zeros} 00000400 1 0 00450003 wlan0\n\
             {zeros} 00 {zeros} 00 {zeros} ffffffff 1 0 00200200       lo\n\
             fe80{} 40 {zeros} 00 {zeros} 00000100 1 0 00000001 eth2\n",
            "0".repeat(28)
        );
        let devices = default_devices(route, &ipv6);
        assert_eq!(devices, ["eth0", "wlan0"].map(String::from).into());
        assert!(default_devices("", "x").is_empty());
    }

    #[test]
    fn an_offload_that_is_off_or_absent_is_degraded() {
        let all = |on| ethtool::OFFLOADS.iter().map(|&name| (name, on)).collect();
        let check = offloads_of(&[("eth0".into(), all(true))]);
        assert_eq!(check.verdict, Verdict::Ok);
        let mut some: BTreeMap<&str, bool> = all(true);
        some.insert("tso", false);
        let check = offloads_of(&[("eth0".into(), some)]);
        assert_eq!(check.verdict, Verdict::Degraded);
        assert!(check.found.ends_with("tso off"), "{check:?}");
        let untold = offloads_of(&[("eth0".into(), BTreeMap::new())]);
        assert_eq!(
            (untold.verdict, untold.found.as_str()),
            (Verdict::Degraded, "eth0: unknown")
        );
        assert_eq!(offloads_of(&[]).verdict, Verdict::Ok);
    }

    #[test]
    fn a_default_that_paces_is_degraded() {
        let with = |name: &str| {
            let path = "proc/sys/net/ipv4/tcp_congestion_control";
            congestion_control(fake_root(&[(path, name)]).path())
        };
        assert_eq!(with("bbr\n").verdict, Verdict::Degraded);
        assert_eq!(with("cubic\n").verdict, Verdict::Ok);
    }

    #[test]
    fn memory_is_in_pages() {
        let with = |text: &str| tcp_mem(fake_root(&[("proc/sys/net/ipv4/tcp_mem", text)]).path());
        assert_eq!(with("100\t200\t300\n").verdict, Verdict::Degraded);
        assert_eq!(with("1000000\t2000000\t3000000\n").verdict, Verdict::Ok);
        assert_eq!(with("1\t2\n").found, "not three numbers");
        let of_namespace = fake_root(&[("proc/sys/net/ipv4/tcp_wmem", "1 2 3")]);
        assert_eq!(tcp_mem(of_namespace.path()).verdict, Verdict::Ok);
        assert_eq!(tcp_mem(fake_root(&[]).path()).verdict, Verdict::Degraded);
    }

    #[test]
    fn few_descriptors_are_degraded() {
        assert_eq!(open_files_of(1024, 4096).verdict, Verdict::Degraded);
        assert_eq!(open_files_of(1024, 1 << 20).verdict, Verdict::Ok);
    }

    #[test]
    fn loopback_carries_data_here() {
        assert_eq!(loopback().verdict, Verdict::Ok);
    }
}
