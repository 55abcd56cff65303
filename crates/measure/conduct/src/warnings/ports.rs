//! Warning about connections whose number the client's ports limit, not its CPU.

use std::collections::BTreeMap;

use tcpcost_study::{
    CloseBy, CountOwner, HostName, HostRecord, MeterName, Operation, Quantity, Record, StackKind,
    Warning, WarningCode,
};

/// Share of the ports' limit above which there is a warning. neper and our own load stand at 98 to 100 % of it.
const NEAR_LIMIT: f64 = 0.9;

/// Warning about a host that closes its connections first and opens nearly as many as its ports last for.
pub(super) fn ports_used_up(record: &Record) -> Option<Warning> {
    let closes_first = |operation: &Operation| {
        let by = CloseBy::Connector;
        *operation == Operation::Close { by }
    };
    let groups = record.knobs.groups().ok()?;
    let mut programs = groups
        .iter()
        .filter_map(|group| group.settings.program.as_ref());
    if !programs.any(|program| program.all().any(closes_first)) {
        return None;
    }
    // Each thread that listens has a port, and each of these takes every port of a client.
    let listening = record.hosts.values();
    let listening = listening.filter(|host| opened_per_s(host).is_none());
    let listening: usize = listening.map(|host| host.threads).sum();
    record.hosts.iter().find_map(|(&name, host)| {
        let topology = record.topology.host(name)?;
        if topology.stack == StackKind::User {
            return None;
        }
        let per_s = opened_per_s(host)?;
        let mut ports = host.ports.values();
        let one = ports.find_map(|port| reusable_per_s(&port.sysctls))?;
        let most = one * listening.max(1) as f64;
        (per_s > most * NEAR_LIMIT).then(|| warning(name, per_s, most))
    })
}

fn warning(host: HostName, per_s: f64, most: f64) -> Warning {
    let text = format!(
        "the {host} opened {per_s:.0} connections a second, and its ports last for {most:.0}: it closes first, so each port is in TIME_WAIT before it is used again; the number is the ports', not the CPUs': let the other side close (close by = \"listener\"), widen net.ipv4.ip_local_port_range, or lower net.ipv4.tcp_tw_reuse_delay"
    );
    Warning::new(WarningCode::Other, text).of(vec![host])
}

/// Connections that a host's workload opened each second. `None` if it opens none.
fn opened_per_s(host: &HostRecord) -> Option<f64> {
    let mut readings = host.readings.iter();
    let own = readings.find(|reading| {
        reading.meter == MeterName::Workload && reading.whose == CountOwner::Workload
    })?;
    let opened = *own.counts.get(&Quantity::ConnectionsOpened)?;
    (opened > 0).then(|| opened as f64 * 1e9 / own.duration_ns.max(1) as f64)
}

/// Connections a second to one port for which a host's ports last: half the range, since connect(2) tries ports of one parity
/// first (__inet_hash_connect) and searches through all where these are taken. `None` if TIME_WAIT ports are not used again:
/// connect fails then.
fn reusable_per_s(sysctls: &BTreeMap<String, String>) -> Option<f64> {
    if sysctls.get("net.ipv4.tcp_tw_reuse")? == "0" {
        return None;
    }
    let range = sysctls.get("net.ipv4.ip_local_port_range")?;
    let mut ends = range.split_whitespace().map(str::parse::<u32>);
    let (first, last) = (ends.next()?.ok()?, ends.next()?.ok()?);
    // Kernels without the sysctl (before 6.14) wait for a second.
    let delay = sysctls.get("net.ipv4.tcp_tw_reuse_delay");
    let delay_ms = delay.map_or(Some(1000.0), |delay| delay.parse().ok())?;
    Some(f64::from(last.saturating_sub(first) + 1) / 2.0 * 1000.0 / f64::max(delay_ms, 1.0))
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
    fn half_the_ports_last_for_as_long_as_none_is_used_again() {
        assert_eq!(reusable_per_s(&sysctls("1", None)), Some(22_768.0));
        assert_eq!(reusable_per_s(&sysctls("2", Some("1000"))), Some(22_768.0));
        assert_eq!(reusable_per_s(&sysctls("1", Some("1"))), Some(22_768_000.0));
        assert_eq!(reusable_per_s(&sysctls("0", None)), None);
        assert_eq!(reusable_per_s(&BTreeMap::new()), None);
    }

    #[test]
    fn a_client_that_closes_first_and_stands_at_the_limit_is_named() {
        let found = |by: &str, opened| {
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
                duration_ns: 1_000_000_000,
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
            ports_used_up(&record).map(|warning| warning.text)
        };
        let text = found("connector", 22_300).unwrap();
        let expected = "the client opened 22300 connections a second, and its ports last for 22768";
        assert!(text.starts_with(expected), "{text}");
        assert_eq!(found("connector", 20_000), None);
        assert_eq!(found("listener", 22_300), None);
    }
}
