//! Counters of a network namespace: /proc/thread-self/net/snmp, snmp6 and netstat.
//!
//! The counters cover all connections in the namespace of the calling thread. A snapshot takes 60 µs on 2 CPUs
//! (examples/cost.rs). The kernel adds up its per-CPU counters for it, so the time grows with the number of
//! CPUs.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tcpcost_counts::{CountOwner, Counts, MeterName, Quantity, Snapshot};

use crate::{Meter, MeterError, snapshot_of};

/// The meter `netstat`: [`CountOwner::Namespace`].
#[derive(Debug)]
pub struct Netstat {
    folder: PathBuf,
}

impl Default for Netstat {
    /// Reads the calling thread's namespace.
    fn default() -> Netstat {
        Netstat::at(Path::new("/proc"))
    }
}

impl Netstat {
    /// Reads a folder with the layout of /proc.
    pub fn at(root: &Path) -> Netstat {
        let folder = root.join("thread-self/net");
        Netstat { folder }
    }

    /// Reads the namespace of a process.
    pub fn of_process(pid: u32) -> Netstat {
        let folder = PathBuf::from(format!("/proc/{pid}/net"));
        Netstat { folder }
    }

    fn read(&self, file: &str) -> Result<Option<String>, MeterError> {
        let path = self.folder.join(file);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            // A kernel without IPv6 has no snmp6, and a kernel may lack netstat.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(MeterError::Read { path, source }),
        }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }
}

impl Meter for Netstat {
    fn name(&self) -> MeterName {
        MeterName::Netstat
    }

    fn snapshot(&mut self) -> Result<Snapshot, MeterError> {
        let mut found = HashMap::new();
        let snmp = self.read("snmp")?.ok_or_else(|| MeterError::Read {
            path: self.path("snmp"),
            source: io::ErrorKind::NotFound.into(),
        })?;
        add_pairs(&snmp, &self.path("snmp"), &mut found)?;
        if let Some(netstat) = self.read("netstat")? {
            add_pairs(&netstat, &self.path("netstat"), &mut found)?;
        }
        if let Some(snmp6) = self.read("snmp6")? {
            add_lines(&snmp6, &self.path("snmp6"), &mut found)?;
        }
        let mut counts = Counts::new();
        for (quantity, names) in NAMES {
            // The part of IPv6 is missing without IPv6, but the first name must exist.
            if let Some(&first) = found.get(names[0]) {
                let rest = names[1..].iter().filter_map(|&name| found.get(name));
                let sum = rest.fold(first, |sum, part| sum.wrapping_add(*part));
                counts.entry(*quantity).or_insert(sum);
            }
        }
        Ok(snapshot_of(self.name(), CountOwner::Namespace, counts))
    }
}

/// Kernel names of each quantity, which are added up. If a quantity has two rows, the first one whose first
/// name exists counts.
const NAMES: &[(Quantity, &[&str])] = &[
    (
        Quantity::IpPacketsSent,
        &["IpOutTransmits", "Ip6OutTransmits"],
    ),
    // Before Linux 6.7, including forwarded packets.
    (
        Quantity::IpPacketsSent,
        &["IpOutRequests", "Ip6OutRequests"],
    ),
    (
        Quantity::IpPacketsReceived,
        &["IpInReceives", "Ip6InReceives"],
    ),
    (Quantity::IpOctetsSent, &["IpExtOutOctets", "Ip6OutOctets"]),
    (
        Quantity::IpOctetsReceived,
        &["IpExtInOctets", "Ip6InOctets"],
    ),
    (Quantity::SegmentsSent, &["TcpOutSegs"]),
    (Quantity::NewDataSegmentsSent, &["TcpExtTCPOrigDataSent"]),
    (Quantity::SuperSegmentsReceived, &["TcpInSegs"]),
    (Quantity::SegmentsRetransmitted, &["TcpRetransSegs"]),
    (Quantity::BacklogCoalesced, &["TcpExtTCPBacklogCoalesce"]),
    (Quantity::DelayedAcksSent, &["TcpExtDelayedACKs"]),
    (Quantity::HeaderPredictedData, &["TcpExtTCPHPHits"]),
    (Quantity::HeaderPredictedAcks, &["TcpExtTCPHPAcks"]),
    (Quantity::SlowPureAcks, &["TcpExtTCPPureAcks"]),
    (Quantity::CompressedAcks, &["TcpExtTCPAckCompressed"]),
    (Quantity::Autocorked, &["TcpExtTCPAutoCorking"]),
    (Quantity::OutOfOrderQueued, &["TcpExtTCPOFOQueue"]),
    (Quantity::ReceiveCollapsed, &["TcpExtTCPRcvCollapsed"]),
    (Quantity::ReceivePruned, &["TcpExtPruneCalled"]),
    (
        Quantity::DsacksReceived,
        &["TcpExtTCPDSACKRecv", "TcpExtTCPDSACKOfoRecv"],
    ),
    (
        Quantity::DsacksSent,
        &["TcpExtTCPDSACKOldSent", "TcpExtTCPDSACKOfoSent"],
    ),
    (Quantity::ZeroWindowsSent, &["TcpExtTCPToZeroWindowAdv"]),
    (Quantity::SpuriousTimeouts, &["TcpExtTCPSpuriousRTOs"]),
    (Quantity::Timeouts, &["TcpExtTCPTimeouts"]),
    (Quantity::ActiveOpens, &["TcpActiveOpens"]),
    (Quantity::PassiveOpens, &["TcpPassiveOpens"]),
    (Quantity::ListenDrops, &["TcpExtListenDrops"]),
];

/// The name in [`NAMES`] that consists of these two parts.
fn wanted(prefix: &str, name: &str) -> Option<&'static str> {
    let all = NAMES.iter().flat_map(|(_, names)| names.iter().copied());
    all.into_iter()
        .find(|wanted| wanted.strip_prefix(prefix) == Some(name))
}

/// Adds a line `Tcp: Name Name` and the line `Tcp: 1 2` below it.
fn add_pairs(
    text: &str,
    path: &Path,
    found: &mut HashMap<&'static str, u64>,
) -> Result<(), MeterError> {
    let mut lines = text.lines();
    while let Some(names) = lines.next() {
        let strange = |line| MeterError::format(path, "a line of names above one of values", line);
        let values = lines.next().ok_or_else(|| strange(names))?;
        let (prefix, names) = names.split_once(':').ok_or_else(|| strange(names))?;
        let values = values
            .strip_prefix(prefix)
            .and_then(|rest| rest.strip_prefix(':'))
            .ok_or_else(|| strange(values))?;
        let (mut names, mut values) = (
            names.split_ascii_whitespace(),
            values.split_ascii_whitespace(),
        );
        loop {
            let (name, value) = match (names.next(), values.next()) {
                (Some(name), Some(value)) => (name, value),
                (None, None) => break,
                (name, value) => return Err(strange(name.or(value).unwrap_or_default())),
            };
            if let Some(wanted) = wanted(prefix, name) {
                // Only wanted values are parsed, because some others are signed (TcpMaxConn -1).
                found.insert(wanted, value.parse().map_err(|_| strange(value))?);
            }
        }
    }
    Ok(())
}

/// Adds lines such as `Ip6InReceives    12`.
fn add_lines(
    text: &str,
    path: &Path,
    found: &mut HashMap<&'static str, u64>,
) -> Result<(), MeterError> {
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(wanted) = words.next().and_then(|name| wanted("", name)) else {
            continue;
        };
        let value = words.next().and_then(|value| value.parse().ok());
        let value = value.ok_or_else(|| MeterError::format(path, "a name and a value", line))?;
        found.insert(wanted, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    const SNMP: &str = "Ip: Forwarding InReceives OutRequests\nIp: 1 10 20\n\
                        Tcp: MaxConn InSegs OutSegs RetransSegs\nTcp: -1 5 90 2\n";
    const NETSTAT: &str = "TcpExt: DelayedACKs TCPTimeouts\nTcpExt: 3 4\n\
                           IpExt: InOctets OutOctets\nIpExt: 1000 2000\n";
    const SNMP6: &str = "Ip6InReceives                   \t1\nIp6OutRequests 2\nIp6OutOctets 300\n";

    fn read(snmp: &str, netstat: Option<&str>, snmp6: Option<&str>) -> Result<Counts, MeterError> {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("thread-self/net");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("snmp"), snmp).unwrap();
        for (file, text) in [("netstat", netstat), ("snmp6", snmp6)] {
            if let Some(text) = text {
                fs::write(folder.join(file), text).unwrap();
            }
        }
        let mut snapshot = Netstat::at(root.path()).snapshot()?;
        assert_eq!(snapshot.totals[0].whose, CountOwner::Namespace);
        Ok(snapshot.totals.remove(0).counts)
    }

    #[test]
    fn both_ip_versions_are_one_quantity() {
        let counts = read(SNMP, Some(NETSTAT), Some(SNMP6)).unwrap();
        assert_eq!(counts[&Quantity::IpPacketsSent], 22);
        assert_eq!(counts[&Quantity::IpPacketsReceived], 11);
        assert_eq!(counts[&Quantity::IpOctetsSent], 2300);
        assert_eq!(counts[&Quantity::IpOctetsReceived], 1000);
        assert_eq!(counts[&Quantity::SegmentsSent], 90);
        assert_eq!(counts[&Quantity::DelayedAcksSent], 3);
    }

    #[test]
    fn packets_sent_are_those_that_leave_where_the_kernel_tells_them() {
        let snmp = "Ip: InReceives OutRequests OutTransmits\nIp: 10 20 70\n";
        let snmp6 = "Ip6OutRequests 2\nIp6OutTransmits 5\n";
        let counts = read(snmp, None, Some(snmp6)).unwrap();
        assert_eq!(counts[&Quantity::IpPacketsSent], 75);
    }

    #[test]
    fn counters_and_files_that_a_kernel_lacks_are_absent() {
        let counts = read(SNMP, None, None).unwrap();
        assert_eq!(counts[&Quantity::IpPacketsSent], 20);
        for absent in [Quantity::IpOctetsSent, Quantity::BacklogCoalesced] {
            assert!(!counts.contains_key(&absent), "{absent}");
        }
    }

    #[test]
    fn a_torn_file_is_an_error() {
        for torn in [
            "Tcp: InSegs\n",
            "Tcp: InSegs OutSegs\nTcp: 1\n",
            "Tcp: InSegs\nIp: 1\n",
            "Tcp: InSegs\nTcp: many\n",
            "Tcp InSegs\nTcp 1\n",
        ] {
            assert!(read(torn, None, None).is_err(), "{torn:?}");
        }
        assert!(read(SNMP, None, Some("Ip6InReceives\n")).is_err());
        assert!(Netstat::at(Path::new("/nonesuch")).snapshot().is_err());
    }

    #[test]
    fn traffic_on_loopback_is_counted() {
        let mut meter = Netstat::default();
        let before = meter.snapshot().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 1000]).unwrap();
        server.read_exact(&mut [0; 1000]).unwrap();
        let growth = &meter.snapshot().unwrap().since(&before).unwrap()[0].counts;
        assert!(growth[&Quantity::IpOctetsSent] >= 1000, "{growth:?}");
        // SYN, SYN-ACK, ACK, data.
        assert!(growth[&Quantity::SegmentsSent] >= 4, "{growth:?}");
    }

    proptest! {
        #[test]
        fn no_content_panics(text in "[TcpIExt: InSegs0-9\n\\-é]{0,200}") {
            let _ = read(&text, Some(&text), Some(&text));
        }

        #[test]
        fn no_cut_panics(end in 0..SNMP.len()) {
            let _ = read(&SNMP[..end], Some(NETSTAT), None);
        }
    }
}
