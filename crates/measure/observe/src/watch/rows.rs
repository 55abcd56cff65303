//! Rows of a view: the traffic and the CPU time of a connection, or of all connections of a process, cgroup,
//! network namespace or port.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use tcpcost_counts::{Counts, Figure, MeterName, Printable, Quantity, Source};
use tcpcost_meter::holder::Port;

use crate::watch::column::{Column, column};
use crate::watch::owners::Process;

/// Kind of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum By {
    /// A row for each connection.
    Connection,
    /// Process that holds the socket.
    Process,
    /// Cgroup. A connection has the cgroup in which its socket was made, a process the one in which it made
    /// its first socket.
    Cgroup,
    /// Network namespace of the socket or process.
    Namespace,
    /// Port of the service, here or at the other end.
    Port,
}

impl ValueEnum for By {
    fn value_variants<'a>() -> &'a [By] {
        &[
            By::Connection,
            By::Process,
            By::Cgroup,
            By::Namespace,
            By::Port,
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let value = PossibleValue::new(self.one());
        Some(match self {
            By::Port => value.help(
                "The port of the service: the local port if this host listens on it, else the remote port",
            ),
            _ => value,
        })
    }
}

impl By {
    /// Name of one row of this kind, in metrics and as the value of `--by`.
    pub fn one(self) -> &'static str {
        match self {
            By::Connection => "connection",
            By::Process => "process",
            By::Cgroup => "cgroup",
            By::Namespace => "netns",
            By::Port => "port",
        }
    }

    /// Column by which the screen sorts at first: CPU time, or bytes sent.
    pub fn first_sort(self) -> usize {
        let mut columns = self.columns().iter();
        let by_cpu = |column: &Column| column.figures == [Figure::HolderCpuRatio];
        columns.position(by_cpu).unwrap_or(0)
    }

    /// Columns of rows of this kind.
    pub fn columns(self) -> &'static [Column] {
        match self {
            By::Connection => CONNECTION_COLUMNS,
            _ => OWNER_COLUMNS,
        }
    }

    /// Key in JSON.
    pub fn name(self) -> &'static str {
        match self {
            By::Connection => "connections",
            By::Process => "processes",
            By::Cgroup => "cgroups",
            By::Namespace => "namespaces",
            By::Port => "ports",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace {
    /// Inode of /proc/PID/ns/net.
    pub inode: u32,
    /// Name below /run/netns, if it has one.
    pub name: Option<Printable>,
}

/// Growth of one connection, of the CPU time of one process, or of all connections and processes of an owner.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row {
    /// Both ends. `None` if the row is not a connection.
    pub ends: Option<[SocketAddr; 2]>,
    pub process: Option<Process>,
    pub cgroup: Option<Printable>,
    pub namespace: Option<Namespace>,
    pub port: Option<Port>,
    /// Number of connections.
    pub connections: u64,
    pub counts: Counts,
    /// True for the host's CPU time that belongs to no process with sockets.
    pub is_host: bool,
    /// True, in the view of ports, for the sum of all rows without a port.
    pub is_without_port: bool,
}

/// The rows with the most CPU time, or with the most bytes if CPU time is unknown, largest first. The host's
/// row comes last and does not count to the limit.
pub fn top(rows: &[Row], by: By, most: usize) -> Vec<Row> {
    let (host, rows): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.is_host);
    let mut rows: Vec<Row> = match by {
        By::Connection => {
            let connections = rows.into_iter().filter(|row| row.ends.is_some());
            connections.cloned().collect()
        }
        by => grouped(&rows, by),
    };
    // Equal rows are sorted by label, so that they keep their places.
    rows.sort_by_cached_key(|row| (Reverse((row.cpu_ns(), row.bytes())), row.label()));
    rows.truncate(most);
    if by != By::Connection {
        rows.extend(host.into_iter().cloned());
    }
    rows
}

/// Owner that rows of one group share.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Process(Option<u32>),
    Cgroup(Option<Printable>),
    Namespace(Option<u32>),
    Port(Option<Port>),
}

/// Sums of the rows of each owner, separately for connections and for CPU time. A count that one of the rows
/// lacks is absent.
fn grouped(rows: &[&Row], by: By) -> Vec<Row> {
    let mut groups: HashMap<Key, [Option<Row>; 2]> = HashMap::new();
    for row in rows {
        let (key, owner) = match by {
            By::Process | By::Connection => (
                Key::Process(row.process.as_ref().map(|process| process.pid)),
                Row {
                    process: row.process.clone(),
                    ..Row::default()
                },
            ),
            By::Cgroup => (
                Key::Cgroup(row.cgroup.clone()),
                Row {
                    cgroup: row.cgroup.clone(),
                    ..Row::default()
                },
            ),
            By::Namespace => (
                Key::Namespace(row.namespace.as_ref().map(|of| of.inode)),
                Row {
                    namespace: row.namespace.clone(),
                    ..Row::default()
                },
            ),
            By::Port => (
                Key::Port(row.port),
                Row {
                    port: row.port,
                    is_without_port: row.port.is_none(),
                    ..Row::default()
                },
            ),
        };
        let [connections, costs] = groups.entry(key).or_default();
        let group = if row.ends.is_some() {
            connections
        } else {
            costs
        };
        add(group, owner, row);
    }
    let both = groups.into_values().filter_map(|[connections, costs]| {
        let (Some(mut row), costs) = (connections.clone().or(costs.clone()), costs) else {
            return None;
        };
        row.counts
            .extend(costs.into_iter().flat_map(|costs| costs.counts));
        // Tasks have no port.
        if row.port.is_some() {
            row.counts.remove(&Quantity::HolderTaskNs);
            row.counts.remove(&Quantity::HolderUserNs);
        }
        Some(row)
    });
    both.collect()
}

fn add(group: &mut Option<Row>, owner: Row, row: &Row) {
    let group = group.get_or_insert_with(|| Row {
        counts: row.counts.keys().map(|&of| (of, 0)).collect(),
        ..owner
    });
    group.connections += row.connections;
    group.counts.retain(|of, _| row.counts.contains_key(of));
    for (of, sum) in &mut group.counts {
        *sum = sum.saturating_add(row.counts[of]);
    }
}

impl Row {
    /// Growth over the interval, as a source of figures.
    pub fn over(&self, duration_ns: u64) -> Grown<'_> {
        Grown {
            counts: &self.counts,
            duration_ns,
        }
    }

    /// Value in a column.
    pub fn value(&self, column: &Column, duration_ns: u64) -> Option<f64> {
        column.value(&self.over(duration_ns), |_| true)
    }

    /// Text in a column.
    pub fn text(&self, column: &Column, duration_ns: u64) -> String {
        column.text(self.value(column, duration_ns))
    }

    /// Bytes acknowledged and received.
    pub fn bytes(&self) -> u64 {
        let of = |quantity| self.counts.get(&quantity).copied().unwrap_or(0);
        of(Quantity::ConnBytesAcked).saturating_add(of(Quantity::ConnBytesReceived))
    }

    /// CPU time of tasks, softirqs and hard interrupts.
    pub fn cpu_ns(&self) -> u64 {
        let of = |quantity| self.counts.get(&quantity).copied().unwrap_or(0);
        [
            Quantity::HolderTaskNs,
            Quantity::HolderSoftirqNs,
            Quantity::HolderHardirqNs,
        ]
        .map(of)
        .iter()
        .sum()
    }

    /// Name of the owner of this kind; a process is named without its id. `None` for an unknown owner, and for a
    /// connection.
    pub fn owner_by(&self, by: By) -> Option<String> {
        match by {
            By::Connection => None,
            By::Process => Some(self.process.as_ref()?.name.to_string()),
            By::Cgroup => Some(self.cgroup.as_ref()?.to_string()),
            By::Namespace => self.namespace.as_ref().map(|of| match &of.name {
                Some(name) => format!("{name} net:[{}]", of.inode),
                None => format!("net:[{}]", of.inode),
            }),
            By::Port => self.port.map(|port| match port {
                Port::Served(port) => format!("{port} here"),
                Port::Asked(port) => format!("{port} there"),
            }),
        }
    }

    /// Name of the row for people.
    pub fn label(&self) -> String {
        if self.is_host {
            return HOST.to_string();
        }
        if let Some([local, remote]) = &self.ends {
            let process = self.process.as_ref();
            let process = process.map(|of| format!(" {} {}", of.pid, of.name));
            return format!("{local} {remote}{}", process.unwrap_or_default());
        }
        let process = self.process.as_ref();
        let process = process.map(|of| format!("{} {}", of.pid, of.name));
        let others = [By::Cgroup, By::Namespace, By::Port];
        let mut others = others.into_iter().filter_map(|by| self.owner_by(by));
        let owner = process.or_else(|| others.next());
        let unknown = match self.is_without_port {
            true => "no port",
            false => "not known",
        };
        let owner = owner.unwrap_or_else(|| unknown.to_string());
        match self.connections {
            0 => owner,
            connections => format!("{owner} ({connections})"),
        }
    }
}

/// Kind and name of an owner.
pub type Owner = (By, String);

/// Owner of a row. Beyond [`OWNERS_MAX`] of a kind, one that is not known yet is one of the others.
pub fn place<T>(known: &BTreeMap<Owner, T>, by: By, row: &Row) -> Owner {
    let owner = row.owner_by(by).unwrap_or_else(|| UNKNOWN.to_string());
    let key = (by, owner);
    let of_kind = known.keys().filter(|(of, _)| *of == by).count();
    if known.contains_key(&key) || of_kind + 1 < OWNERS_MAX {
        return key;
    }
    (by, OTHERS.to_string())
}

/// Limit on the owners of each kind that have a name in metrics; the rest are one owner.
pub const OWNERS_MAX: usize = 200;
const OTHERS: &str = "others";
const UNKNOWN: &str = "not known";

/// Label of the host's row.
const HOST: &str = "the host: without a socket";

/// Growth of a row as a source: counts of TCP_INFO, of `segments`, and CPU time by `exact`.
pub struct Grown<'a> {
    counts: &'a Counts,
    duration_ns: u64,
}

impl Source for Grown<'_> {
    fn count(&self, by: MeterName, of: Quantity) -> Option<f64> {
        let is_theirs = matches!(
            by,
            MeterName::TcpInfo | MeterName::Segments | MeterName::Exact
        );
        let count = self.counts.get(&of).filter(|_| is_theirs)?;
        Some(*count as f64)
    }

    fn per_s(&self, by: MeterName, of: Quantity) -> Option<f64> {
        let count = self.count(by, of)?;
        (self.duration_ns > 0).then(|| count * 1e9 / self.duration_ns as f64)
    }

    fn time_ns(&self, _: MeterName) -> Option<f64> {
        Some(self.duration_ns as f64)
    }
}

/// Columns of connections.
pub const CONNECTION_COLUMNS: &[Column] = &[
    OUT,
    IN,
    SEGMENTS_SENT,
    SEGMENTS_RECEIVED,
    column(1, &[Figure::DataSegmentsPerPureAck]),
    column(1, &[Figure::DataSegmentsPerPureAckSent]),
    RETRANSMITS,
    column(1, &[Figure::WireSegmentsPerDataSkb]),
    column(0, &[Figure::SkbBytesMean]),
    column(1, &[Figure::TailRatio]),
    column(1, &[Figure::DataBurst]),
    column(1, &[Figure::AckBurst]),
];

/// Columns of owners: processes, cgroups, namespaces, ports.
pub const OWNER_COLUMNS: &[Column] = &[
    OUT,
    IN,
    column(3, &[Figure::HolderUsPerPayloadKib]),
    column(1, &[Figure::HolderCpuRatio]),
    column(1, &[Figure::HolderUserRatio]),
    column(1, &[Figure::HolderSystemRatio]),
    column(1, &[Figure::HolderSoftirqRatio]),
    column(1, &[Figure::HolderHardirqRatio]),
    SEGMENTS_SENT,
    SEGMENTS_RECEIVED,
    RETRANSMITS,
];

const OUT: Column = column(3, &[Figure::ConnAcked]);
const IN: Column = column(3, &[Figure::ConnReceived]);
const SEGMENTS_SENT: Column = column(0, &[Figure::ConnSegmentsSent]);
const SEGMENTS_RECEIVED: Column = column(0, &[Figure::ConnSegmentsReceived]);
const RETRANSMITS: Column = column(0, &[Figure::ConnRetransmitsPerS]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::testing::{cost, row};

    #[test]
    fn figures_of_a_connection_are_made_of_its_growth() {
        let row = row(9, "web", 125_000_000);
        let texts = CONNECTION_COLUMNS
            .iter()
            .map(|column| row.text(column, 1_000_000_000));
        let texts: Vec<_> = texts.collect();
        let expected = [
            "1.000", "0.000", "20000", "2000", "10.0", "-", "3", "40.0", "250000", "10.0", "50.0",
            "1.6",
        ];
        assert_eq!(texts, expected);
        assert_eq!(row.value(&CONNECTION_COLUMNS[0], 0), None);
    }

    #[test]
    fn the_most_bytes_come_first_and_owners_are_summed() {
        let rows = [row(1, "one", 10), row(2, "two", 60), row(1, "one", 70)];
        let bytes = |rows: Vec<Row>| rows.iter().map(Row::bytes).collect::<Vec<_>>();
        assert_eq!(bytes(top(&rows, By::Connection, 2)), [70, 60]);
        let processes = top(&rows, By::Process, 9);
        assert_eq!(processes[0].label(), "1 one (2)");
        assert_eq!(bytes(processes), [80, 60]);
        let cgroups = top(&rows, By::Cgroup, 9);
        assert_eq!(cgroups[0].label(), "/a (3)");
        assert_eq!(bytes(cgroups), [140]);
    }

    #[test]
    fn what_a_process_moved_and_what_it_cost_is_one_row() {
        let rows = [
            row(7, "web", 1 << 30),
            cost(7, "web", None),
            cost(7, "web", Some(Port::Served(80))),
        ];
        let shown = |by: By| {
            let top = top(&rows, by, 9).into_iter();
            let texts = top.map(|row| {
                let texts = OWNER_COLUMNS[..8].iter();
                let texts = texts.map(|column| row.text(column, 1_000_000_000));
                (row.label(), texts.collect::<Vec<_>>().join(" "))
            });
            texts.collect::<Vec<_>>()
        };
        // 0.7 s for a GiB.
        let whole = "8.590 0.000 0.668 70.0 10.0 20.0 30.0 10.0";
        assert_eq!(shown(By::Process), [("7 web (1)".into(), whole.into())]);
        assert_eq!(shown(By::Cgroup), [("/a (1)".into(), whole.into())]);
        // The tasks' time has no port, and the connection's port is a different one.
        let ports: [(String, String); 3] = [
            ("80 here", "- - - - - - 30.0 10.0"),
            ("no port", "- - - 30.0 10.0 20.0 0.0 0.0"),
            ("443 there (1)", "8.590 0.000 - - - - - -"),
        ]
        .map(|(label, texts)| (label.into(), texts.into()));
        assert_eq!(shown(By::Port), ports);
        assert_eq!(top(&rows, By::Connection, 9).len(), 1);
    }

    #[test]
    fn a_count_that_one_connection_lacks_is_absent_in_the_sum() {
        let mut rows = [row(1, "one", 10), row(1, "one", 60)];
        rows[0].counts.remove(&Quantity::ConnSegmentsSent);
        let sum = &top(&rows, By::Process, 1)[0];
        assert!(!sum.counts.contains_key(&Quantity::ConnSegmentsSent));
        assert_eq!(sum.bytes(), 70);
    }
}
