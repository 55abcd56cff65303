//! Warning that a client's ports limit its connections, not the CPUs.

use std::collections::BTreeMap;

use tcpcost_study::{
    CloseBy, CountOwner, HostName, HostRecord, MeterName, Operation, Quantity, Reach, Record,
    StackKind, Warning, WarningCode,
};

/// Share of the most connections a second that the ports allow, above which there is a warning. neper reached 99.6 % of it, our
/// own load 96 %.
const NEAR_LIMIT: f64 = 0.9;

/// Warning about a host that closes its connections first and opens nearly as many a second as its ports allow.
pub(super) fn ports_limit(record: &Record) -> Option<Warning> {
    let closes_first = |operation: &Operation| {
        let by = CloseBy::Connector;
        *operation == Operation::Close { by }
    };
    let groups = record.knobs.groups().ok()?;
    // With several groups it is not known which one opened the connections.
    let [group] = &groups[..] else {
        return None;
    };
    if !group.settings.program.as_ref()?.all().any(closes_first) {
        return None;
    }
    // Each thread that listens has a port of its own, and a client can use each of its ports with each of them.
    let listening = record.hosts.values();
    let listening = listening.filter(|host| opened(host).is_none());
    let listening: usize = listening.map(|host| host.threads).sum();
    record.hosts.iter().find_map(|(&name, host)| {
        let topology = record.topology.host(name)?;
        if topology.stack == StackKind::User {
            return None;
        }
        let (opened, per_s) = opened(host)?;
        let mut devices = host.ports.values();
        let is_loopback = topology.reach == Reach::Local;
        let (ports, most_per_s) =
            devices.find_map(|device| reusable(&device.sysctls, is_loopback))?;
        let (ports, most_per_s) = (ports * listening as f64, most_per_s * listening as f64);
        // With fewer connections than ports none waited.
        (opened > ports && per_s > most_per_s * NEAR_LIMIT)
            .then(|| warning(name, per_s, most_per_s))
    })
}

fn warning(host: HostName, per_s: f64, most_per_s: f64) -> Warning {
    let text = format!(
        "the {host}'s ports limit this trial, not the CPUs: it opened {per_s:.0} connections a second and its ports allow about {most_per_s:.0}, because it closes first and each port is then in TIME_WAIT; let the other side close first (by = \"listener\"), widen net.ipv4.ip_local_port_range, or lower net.ipv4.tcp_tw_reuse_delay"
    );
    Warning::new(WarningCode::Other, text).of(vec![host])
}

/// Connections that a host's workload opened, in all and each second. `None` if it opens none.
fn opened(host: &HostRecord) -> Option<(f64, f64)> {
    let mut readings = host.readings.iter();
    let own = readings.find(|reading| {
        reading.meter == MeterName::Workload && reading.whose == CountOwner::Workload
    })?;
    let opened = *own.counts.get(&Quantity::ConnectionsOpened)? as f64;
    (opened > 0.0).then(|| (opened, opened * 1e9 / own.duration_ns.max(1) as f64))
}

/// Ports for connections to one address and port, and the most connections a second that they allow if each is used again after
/// its TIME_WAIT. Only half of the range counts: connect(2) tries ports of one parity first, and then searches so long that it
/// opens hardly more (__inet_hash_connect). `None` if the kernel uses no port again: connect then fails.
fn reusable(sysctls: &BTreeMap<String, String>, is_loopback: bool) -> Option<(f64, f64)> {
    match sysctls.get("net.ipv4.tcp_tw_reuse")?.as_str() {
        "1" => {}
        "2" if is_loopback => {}
        _ => return None,
    }
    let range = sysctls.get("net.ipv4.ip_local_port_range")?;
    let mut ends = range.split_whitespace().map(str::parse::<u32>);
    let (first, last) = (ends.next()?.ok()?, ends.next()?.ok()?);
    let ports = f64::from(last.saturating_sub(first) + 1) / 2.0;
    // Kernels without this sysctl wait for a second.
    let delay = sysctls.get("net.ipv4.tcp_tw_reuse_delay");
    let delay_ms = delay.map_or(Some(1000.0), |delay| delay.parse().ok())?;
    Some((ports, ports * 1000.0 / f64::max(delay_ms, 1.0)))
}

#[cfg(test)]
mod tests {
    use tcpcost_study::{Bed, Environment, Knobs, Reading, Topology, set_knob};

    use super::*;
    use crate::warnings::tests::record;

    fn sysctls(reuse: &str, delay: Option<&str>) -> BTreeMap<String, String> {
        let of = |name: &str, value: &str| (format!("net.ipv4.{name}"), value.to_string());
        [
            of("tcp_tw_reuse", reuse),
            of("ip_local_port_range", "20000 65535"),
        ]
        .into_iter()
        .chain(delay.map(|delay| of("tcp_tw_reuse_delay", delay)))
        .collect()
    }

    #[test]
    fn half_of_the_ports_are_used_again_after_their_delay() {
        let per_s = |reuse, delay, is_loopback| {
            reusable(&sysctls(reuse, delay), is_loopback).map(|(_, per_s)| per_s)
        };
        assert_eq!(per_s("1", None, false), Some(22_768.0));
        assert_eq!(per_s("2", Some("1000"), true), Some(22_768.0));
        assert_eq!(per_s("2", Some("1000"), false), None);
        assert_eq!(per_s("1", Some("1"), false), Some(22_768_000.0));
        assert_eq!(per_s("0", None, true), None);
        assert_eq!(reusable(&BTreeMap::new(), true), None);
    }

    #[test]
    fn a_client_that_closes_first_and_reaches_the_limit_is_named() {
        let found = |by: &str, opened, seconds: u64| {
            let mut knobs = Knobs::default();
            let program = r#"[{ connect = {} }, { send = "1B" }, { close = { by = "BY" } }]"#;
            set_knob(&mut knobs, "workload", "program").unwrap();
            set_knob(&mut knobs, "program", &program.replace("BY", by)).unwrap();
            let mut record = record(0);
            record.topology = Topology::of(Bed::Netns, &knobs).unwrap().into();
            record.knobs = knobs.into();
            let reading = Reading {
                meter: MeterName::Workload,
                whose: CountOwner::Workload,
                duration_ns: seconds * 1_000_000_000,
                counts: [(Quantity::ConnectionsOpened, opened)].into(),
            };
            let environment = Environment {
                sysctls: sysctls("1", None),
                ..Environment::default()
            };
            let client = HostRecord {
                readings: vec![reading],
                ports: BTreeMap::from([("eth0".to_string(), environment.into())]).into(),
                ..HostRecord::default()
            };
            record.hosts.insert(HostName::CLIENT, client.into());
            ports_limit(&record).map(|warning| warning.text)
        };
        let text = found("connector", 44_600, 2).unwrap();
        let expected = "the client's ports limit this trial, not the CPUs: it opened 22300 connections a second and its ports allow about 22768,";
        assert!(text.starts_with(expected), "{text}");
        assert_eq!(found("connector", 40_000, 2), None, "slower");
        assert_eq!(found("connector", 22_300, 1), None, "fewer than ports");
        assert_eq!(found("listener", 44_600, 2), None);
    }
}
