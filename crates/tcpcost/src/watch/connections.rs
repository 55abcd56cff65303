//! Who moved the bytes: growth by connection, by process, by cgroup.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use tcpcost_meter::MeterError;
use tcpcost_meter::bpf::connection_key;
use tcpcost_meter::sock_diag::{self, Connection};
use tcpcost_study::{Counts, Quantity};

use super::owners::{Owners, Process};
use crate::cli;

/// Which connections are looked at.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only those over IPv6 (`true`) or IPv4.
    pub ipv6: Option<bool>,
    /// Only those with one of these ports at either end.
    pub ports: Vec<u16>,
    /// Only those with one of these addresses at either end.
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

impl Wanted {
    /// Of the command line.
    pub fn new(args: &cli::Watch) -> Wanted {
        let rows = [
            (By::Connection, args.connections),
            (By::Process, args.processes),
            (By::Cgroup, args.cgroups),
        ];
        let rows = rows.into_iter().filter_map(|(by, rows)| {
            // More rows than fit into memory are all rows.
            Some((by, usize::try_from(rows?).unwrap_or(usize::MAX)))
        });
        let canonical = args.address.iter().map(IpAddr::to_canonical);
        Wanted {
            rows: rows.collect(),
            filter: Filter {
                ipv6: (args.ipv4 || args.ipv6).then_some(args.ipv6),
                ports: args.port.clone(),
                addresses: canonical.collect(),
            },
        }
    }
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
    pub cgroup: Option<String>,
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
            let path = owners.cgroup(id).map(str::to_string);
            path.unwrap_or_else(|| format!("id {id}"))
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
    pub cgroup: Option<String>,
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
            counts.extend(SKBS.iter().map(|&of| {
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
    let mut groups: HashMap<(Option<Process>, Option<String>), Row> = HashMap::new();
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
    fn count(&self, of: Quantity) -> Option<f64> {
        Some(*self.counts.get(&of)? as f64)
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

/// One figure of a row.
#[derive(Debug)]
pub struct RowFigure {
    /// The key in JSON.
    pub name: &'static str,
    /// The head of its column.
    pub head: &'static str,
    /// What people read: the value times this.
    pub scale: f64,
    /// Digits after the point, for people.
    pub decimals: usize,
    /// The growth; a rate is it per second.
    value: fn(&Row) -> Option<f64>,
    is_rate: bool,
}

impl RowFigure {
    /// The value, where it can be had.
    pub fn value(&self, row: &Row, duration_ns: u64) -> Option<f64> {
        let value = (self.value)(row)?;
        match self.is_rate {
            true => (duration_ns > 0).then(|| value * 1e9 / duration_ns as f64),
            false => Some(value),
        }
    }

    /// For people: `-` where it is absent.
    pub fn text(&self, row: &Row, duration_ns: u64) -> String {
        self.value(row, duration_ns).map_or_else(
            || "-".to_string(),
            |value| format!("{:.*}", self.decimals, value * self.scale),
        )
    }
}

const fn rate(
    name: &'static str,
    head: &'static str,
    scale: f64,
    decimals: usize,
    value: fn(&Row) -> Option<f64>,
) -> RowFigure {
    RowFigure {
        name,
        head,
        scale,
        decimals,
        value,
        is_rate: true,
    }
}

const fn quotient(
    name: &'static str,
    head: &'static str,
    value: fn(&Row) -> Option<f64>,
) -> RowFigure {
    RowFigure {
        name,
        head,
        scale: 1.0,
        decimals: 1,
        value,
        is_rate: false,
    }
}

/// Quotient of two counts of the meter `segments`.
fn of_skbs(row: &Row, over: Quantity, under: Quantity) -> Option<f64> {
    let under = row.count(under)?;
    (under > 0.0).then_some(row.count(over)? / under)
}

/// Segments with payload one way over segments without the other way; SYN and FIN are among these.
fn per_ack(row: &Row, data: Quantity, back: Quantity, back_data: Quantity) -> Option<f64> {
    let acks = row.count(back)? - row.count(back_data)?;
    (acks > 0.0).then_some(row.count(data)? / acks)
}

/// All of them, in the order of the columns.
pub const ROW_FIGURES: &[RowFigure] = &[
    rate("sent_bits_per_s", "out Gb/s", 1e-9, 3, |row| {
        Some(row.count(Quantity::ConnBytesAcked)? * 8.0)
    }),
    rate("received_bits_per_s", "in Gb/s", 1e-9, 3, |row| {
        Some(row.count(Quantity::ConnBytesReceived)? * 8.0)
    }),
    rate("sent_segments_per_s", "seg/s>", 1.0, 0, |row| {
        row.count(Quantity::ConnSegmentsSent)
    }),
    rate("received_segments_per_s", "seg/s<", 1.0, 0, |row| {
        row.count(Quantity::ConnSegmentsReceived)
    }),
    quotient("sent_segments_per_ack", "seg/ack>", |row| {
        per_ack(
            row,
            Quantity::ConnDataSegmentsSent,
            Quantity::ConnSegmentsReceived,
            Quantity::ConnDataSegmentsReceived,
        )
    }),
    quotient("received_segments_per_ack", "seg/ack<", |row| {
        per_ack(
            row,
            Quantity::ConnDataSegmentsReceived,
            Quantity::ConnSegmentsSent,
            Quantity::ConnDataSegmentsSent,
        )
    }),
    rate("retransmits_per_s", "retr/s", 1.0, 0, |row| {
        row.count(Quantity::ConnSegmentsRetransmitted)
    }),
    quotient("wire_segments_per_skb", "seg/skb", |row| {
        of_skbs(row, Quantity::DataWireSegmentsSent, Quantity::DataSkbsSent)
    }),
    RowFigure {
        decimals: 0,
        ..quotient("skb_bytes_mean", "skb B", |row| {
            of_skbs(row, Quantity::DataSkbBytesSent, Quantity::DataSkbsSent)
        })
    },
    RowFigure {
        scale: 100.0,
        ..quotient("tail_ratio", "tail%", |row| {
            of_skbs(row, Quantity::TailSkbsSent, Quantity::DataSkbsSent)
        })
    },
    quotient("data_burst_segments", "burst>", |row| {
        of_skbs(
            row,
            Quantity::DataWireSegmentsSent,
            Quantity::DataBurstsSent,
        )
    }),
    quotient("ack_burst_received", "acks<", |row| {
        of_skbs(row, Quantity::PureAcksReceived, Quantity::AckBurstsReceived)
    }),
];

/// Counts of the meter `segments` that figures are made of.
const SKBS: &[Quantity] = &[
    Quantity::DataSkbsSent,
    Quantity::DataSkbBytesSent,
    Quantity::DataWireSegmentsSent,
    Quantity::TailSkbsSent,
    Quantity::DataBurstsSent,
    Quantity::PureAcksReceived,
    Quantity::AckBurstsReceived,
];

#[cfg(test)]
mod tests {
    use super::super::testing::row;
    use super::*;

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
        let texts = ROW_FIGURES
            .iter()
            .map(|figure| figure.text(&row, 1_000_000_000));
        let texts: Vec<_> = texts.collect();
        let expected = [
            "1.000", "0.000", "20000", "2000", "10.0", "-", "3", "40.0", "250000", "10.0", "50.0",
            "1.6",
        ];
        assert_eq!(texts, expected);
        assert_eq!(ROW_FIGURES[0].value(&row, 0), None);
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
