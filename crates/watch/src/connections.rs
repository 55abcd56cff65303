//! Who moved the bytes: growth by connection, by process, by cgroup.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use tcpcost_counts::{Counts, Figure, MeterName, Printable, Quantity, Source};
use tcpcost_meter::MeterError;
use tcpcost_meter::bpf::connection_key;
use tcpcost_meter::sock_diag::{self, Connection};

use crate::column::{Column, column};
use crate::owners::{Owners, Process};

/// Which connections are looked at.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only those over IPv6 (`true`) or IPv4.
    pub ipv6: Option<bool>,
    /// Only those with one of these ports at either end.
    pub ports: Vec<u16>,
    /// Only those with one of these addresses at either end, IPv4 ones as such ([`IpAddr::to_canonical`]).
    pub addresses: Vec<IpAddr>,
}

impl Filter {
    fn passes(&self, ends: [SocketAddr; 2]) -> bool {
        let one = |of: &dyn Fn(SocketAddr) -> bool| ends.into_iter().any(of);
        self.ipv6.is_none_or(|ipv6| ipv6 == ends[0].is_ipv6())
            && (self.ports.is_empty() || one(&|end| self.ports.contains(&end.port())))
            && (self.addresses.is_empty() || one(&|end| self.addresses.contains(&end.ip())))
    }
}

/// What was asked for.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Rows of each view.
    pub rows: BTreeMap<By, usize>,
    /// Of which connections.
    pub filter: Filter,
}

/// What rows are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum By {
    /// One connection each.
    Connection,
    /// The process that holds the socket.
    Process,
    /// The cgroup that the socket was made in.
    Cgroup,
}

impl By {
    /// Its key in JSON.
    pub fn name(self) -> &'static str {
        match self {
            By::Connection => "connections",
            By::Process => "processes",
            By::Cgroup => "cgroups",
        }
    }
}

/// A connection with its owners.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Addresses and totals.
    pub connection: Connection,
    /// Who holds it, where that was asked for and may be seen.
    pub process: Option<Process>,
    /// Path of its cgroup, where that was asked for; its id where it has no path here.
    pub cgroup: Option<Printable>,
}

/// All connections of this namespace that pass the filter, by cookie.
pub fn look(wanted: &Wanted, owners: &mut Owners) -> Result<HashMap<u64, Seen>, MeterError> {
    let mut all = sock_diag::connections()?;
    all.retain(|one| wanted.filter.passes([one.local, one.remote]));
    let with_processes =
        wanted.rows.contains_key(&By::Process) || wanted.rows.contains_key(&By::Connection);
    if with_processes {
        let inodes: Vec<u32> = all.iter().map(|one| one.inode).collect();
        owners.learn_processes(&inodes);
    }
    let with_cgroups = wanted.rows.contains_key(&By::Cgroup);
    let seen = all.into_iter().map(|connection| {
        let process = owners.process(connection.inode).cloned();
        let cgroup = connection.cgroup.filter(|_| with_cgroups).map(|id| {
            let path = owners.cgroup(id).cloned();
            path.unwrap_or_else(|| format!("id {id}").into())
        });
        let seen = Seen {
            connection,
            process,
            cgroup,
        };
        (seen.connection.cookie, seen)
    });
    Ok(seen.collect())
}

/// What the meter `segments` saw of each connection, by [`connection_key`].
pub type Skbs = HashMap<u64, Counts>;

/// Growth of one connection, or of all of one owner.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Both ends, of a connection.
    pub ends: Option<[SocketAddr; 2]>,
    /// The process.
    pub process: Option<Process>,
    /// The cgroup.
    pub cgroup: Option<Printable>,
    /// Connections in it.
    pub connections: u64,
    /// Growth.
    pub counts: Counts,
}

/// Growth of each connection, with its skbs before and after where they can be had; those on which nothing
/// happened are left out.
pub fn growth(
    before: &HashMap<u64, Seen>,
    after: &HashMap<u64, Seen>,
    skbs: Option<(&Skbs, &Skbs)>,
) -> Vec<Row> {
    let of_skbs = of_skbs();
    let rows = after.iter().map(|(cookie, seen)| {
        let earlier = before.get(cookie).map(|seen| &seen.connection);
        let mut counts = seen.connection.since(earlier);
        if let Some((before, after)) = skbs {
            let key = connection_key(seen.connection.local, seen.connection.remote);
            let total = |all: &Skbs, of| {
                // None seen yet, or forgotten since.
                let counts = all.get(&key)?;
                counts.get(&of).copied()
            };
            counts.extend(of_skbs.iter().map(|&of| {
                let before = total(before, of).unwrap_or(0);
                let after = total(after, of).unwrap_or(0);
                (of, after.saturating_sub(before))
            }));
        }
        Row {
            ends: Some([seen.connection.local, seen.connection.remote]),
            process: seen.process.clone(),
            cgroup: seen.cgroup.clone(),
            connections: 1,
            counts,
        }
    });
    rows.filter(|row| row.counts.values().any(|&count| count > 0))
        .collect()
}

/// The rows that moved the most bytes, most first.
pub fn top(rows: &[Row], by: By, most: usize) -> Vec<Row> {
    let mut rows = match by {
        By::Connection => rows.to_vec(),
        By::Process => grouped(rows, |row| Row {
            process: row.process.clone(),
            ..empty()
        }),
        By::Cgroup => grouped(rows, |row| Row {
            cgroup: row.cgroup.clone(),
            ..empty()
        }),
    };
    // Ends decide between equals, so that rows do not change places for nothing.
    rows.sort_by_cached_key(|row| {
        let bytes = row.bytes();
        (
            std::cmp::Reverse(bytes),
            row.ends,
            row.process.clone(),
            row.cgroup.clone(),
        )
    });
    rows.truncate(most);
    rows
}

fn empty() -> Row {
    Row {
        ends: None,
        process: None,
        cgroup: None,
        connections: 0,
        counts: Counts::new(),
    }
}

/// Sums of the rows of each owner. A count that one of them lacks is absent.
fn grouped(rows: &[Row], owner: impl Fn(&Row) -> Row) -> Vec<Row> {
    let mut groups: HashMap<(Option<Process>, Option<Printable>), Row> = HashMap::new();
    for row in rows {
        let owner = owner(row);
        let group = groups
            .entry((owner.process.clone(), owner.cgroup.clone()))
            .or_insert(Row {
                counts: row.counts.keys().map(|&of| (of, 0)).collect(),
                ..owner
            });
        group.connections += 1;
        group.counts.retain(|of, _| row.counts.contains_key(of));
        for (of, sum) in &mut group.counts {
            *sum = sum.saturating_add(row.counts[of]);
        }
    }
    groups.into_values().collect()
}

impl Row {
    /// Its growth over the interval, as a source of figures.
    pub fn over(&self, duration_ns: u64) -> Grown<'_> {
        Grown {
            counts: &self.counts,
            duration_ns,
        }
    }

    /// What a column shows of it.
    pub fn value(&self, column: &Column, duration_ns: u64) -> Option<f64> {
        column.value(&self.over(duration_ns), |_| true)
    }

    /// The same for people.
    pub fn text(&self, column: &Column, duration_ns: u64) -> String {
        column.text(self.value(column, duration_ns))
    }

    /// Bytes acknowledged and received.
    pub fn bytes(&self) -> u64 {
        let of = |quantity| self.counts.get(&quantity).copied().unwrap_or(0);
        of(Quantity::ConnBytesAcked).saturating_add(of(Quantity::ConnBytesReceived))
    }

    /// Who it is, for people.
    pub fn label(&self) -> String {
        let process = |process: &Process| format!("{} {}", process.pid, process.name);
        match (&self.ends, &self.process, &self.cgroup) {
            (Some([local, remote]), Some(owner), _) => {
                format!("{local} {remote} {}", process(owner))
            }
            (Some([local, remote]), None, _) => format!("{local} {remote}"),
            (None, Some(owner), _) => format!("{} ({})", process(owner), self.connections),
            (None, None, Some(cgroup)) => format!("{cgroup} ({})", self.connections),
            (None, None, None) => format!("not known ({})", self.connections),
        }
    }
}

/// Counts of connections: their own, and what `segments` saw of them.
pub struct Grown<'a> {
    counts: &'a Counts,
    duration_ns: u64,
}

impl Source for Grown<'_> {
    fn count(&self, by: MeterName, of: Quantity) -> Option<f64> {
        let is_theirs = matches!(by, MeterName::TcpInfo | MeterName::Segments);
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

/// All columns, in their order.
pub const ROW_COLUMNS: &[Column] = &[
    column("out Gb/s", 1e-9, 3, &[Figure::ConnAcked]),
    column("in Gb/s", 1e-9, 3, &[Figure::ConnReceived]),
    column("seg/s>", 1.0, 0, &[Figure::ConnSegmentsSent]),
    column("seg/s<", 1.0, 0, &[Figure::ConnSegmentsReceived]),
    column("seg/ack>", 1.0, 1, &[Figure::DataSegmentsPerPureAck]),
    column("seg/ack<", 1.0, 1, &[Figure::DataSegmentsPerPureAckSent]),
    column("retr/s", 1.0, 0, &[Figure::ConnRetransmitsPerS]),
    column("seg/skb", 1.0, 1, &[Figure::WireSegmentsPerDataSkb]),
    column("skb B", 1.0, 0, &[Figure::SkbBytesMean]),
    column("tail%", 100.0, 1, &[Figure::TailRatio]),
    column("burst>", 1.0, 1, &[Figure::DataBurst]),
    column("acks<", 1.0, 1, &[Figure::AckBurst]),
];

/// Counts of the meter `segments` that these are made of.
fn of_skbs() -> BTreeSet<Quantity> {
    let figures = ROW_COLUMNS.iter().flat_map(|column| column.figures);
    let counts = figures.flat_map(|figure| figure.counts());
    let of_segments = counts.filter(|(by, _)| *by == MeterName::Segments);
    of_segments.map(|(_, of)| of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::row;

    fn passes(filter: Filter, local: &str, remote: &str) -> bool {
        filter.passes([local.parse().unwrap(), remote.parse().unwrap()])
    }

    #[test]
    fn filters_look_at_both_ends() {
        let port = |port| Filter {
            ports: vec![port],
            ..Filter::default()
        };
        assert!(passes(port(443), "10.0.0.1:443", "10.0.0.2:9"));
        assert!(passes(port(443), "10.0.0.1:9", "10.0.0.2:443"));
        assert!(!passes(port(443), "10.0.0.1:9", "10.0.0.2:44"));
        let address = |address: &str| Filter {
            addresses: vec![address.parse().unwrap()],
            ..Filter::default()
        };
        assert!(passes(address("10.0.0.2"), "10.0.0.1:9", "10.0.0.2:44"));
        assert!(!passes(address("10.0.0.3"), "10.0.0.1:9", "10.0.0.2:44"));
        let six = Filter {
            ipv6: Some(true),
            ..Filter::default()
        };
        assert!(passes(six.clone(), "[::1]:9", "[::1]:44"));
        assert!(!passes(six, "10.0.0.1:9", "10.0.0.2:44"));
        assert!(passes(Filter::default(), "10.0.0.1:9", "10.0.0.2:44"));
    }

    #[test]
    fn figures_of_a_connection_are_made_of_its_growth() {
        let row = row(9, "web", 125_000_000);
        let texts = ROW_COLUMNS
            .iter()
            .map(|column| row.text(column, 1_000_000_000));
        let texts: Vec<_> = texts.collect();
        let expected = [
            "1.000", "0.000", "20000", "2000", "10.0", "-", "3", "40.0", "250000", "10.0", "50.0",
            "1.6",
        ];
        assert_eq!(texts, expected);
        assert_eq!(row.value(&ROW_COLUMNS[0], 0), None);
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
    fn a_count_that_one_connection_lacks_is_absent_in_the_sum() {
        let mut rows = [row(1, "one", 10), row(1, "one", 60)];
        rows[0].counts.remove(&Quantity::ConnSegmentsSent);
        let sum = &top(&rows, By::Process, 1)[0];
        assert!(!sum.counts.contains_key(&Quantity::ConnSegmentsSent));
        assert_eq!(sum.bytes(), 70);
    }
}
