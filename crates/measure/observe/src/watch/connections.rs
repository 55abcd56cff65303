//! Connections of this network namespace, with their owners and the bytes that they moved.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use tcpcost_counts::{Counts, MeterName, Printable, Quantity};
use tcpcost_meter::MeterError;
use tcpcost_meter::bpf::connection_key;
use tcpcost_meter::holder::Port;
use tcpcost_meter::sock_diag::{self, Connection};

use crate::watch::owners::{Owners, Process};
use crate::watch::rows::{By, CONNECTION_COLUMNS, Namespace, Row};

/// Selects connections.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only connections over IPv6 (`true`) or IPv4 (`false`).
    pub ipv6: Option<bool>,
    /// Only connections with one of these ports at either end.
    pub ports: Vec<u16>,
    /// Only connections with one of these addresses at either end. IPv4-mapped addresses must be in IPv4 form
    /// ([`IpAddr::to_canonical`]).
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

/// Views that the user asked for.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Kinds of rows, with the limit on the number of rows of each kind.
    pub rows: BTreeMap<By, usize>,
    /// Connections that are counted.
    pub filter: Filter,
}

impl Wanted {
    /// True if the CPU time of processes is asked for.
    pub fn has_costs(&self) -> bool {
        self.rows.keys().any(|&by| by != By::Connection)
    }
}

/// A connection with its owners.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Addresses and totals.
    pub connection: Connection,
    /// Process that holds the socket. `None` if it was not asked for or is not visible.
    pub process: Option<Process>,
    /// Path of its cgroup, or its id if it has no path here. `None` if it was not asked for.
    pub cgroup: Option<Printable>,
    /// Port of the service.
    pub port: Port,
}

/// Reads all connections of this namespace that pass the filter, by cookie.
pub fn look(wanted: &Wanted, owners: &mut Owners) -> Result<HashMap<u64, Seen>, MeterError> {
    let mut all = sock_diag::connections()?;
    all.retain(|one| wanted.filter.passes([one.local, one.remote]));
    let with_processes =
        wanted.rows.contains_key(&By::Process) || wanted.rows.contains_key(&By::Connection);
    let listened = match wanted.rows.contains_key(&By::Port) {
        true => sock_diag::listened()?,
        false => BTreeSet::new(),
    };
    if with_processes {
        let inodes: Vec<u32> = all.iter().map(|one| one.inode).collect();
        owners.learn_processes(&inodes);
    }
    let with_cgroups = wanted.rows.contains_key(&By::Cgroup);
    let seen = all.into_iter().map(|connection| {
        let process = owners.process(connection.inode).cloned();
        let cgroup = connection.cgroup.filter(|_| with_cgroups).map(|id| {
            let path = owners.cgroup(id).cloned();
            path.unwrap_or_else(|| cgroup_id(id))
        });
        let port = match listened.contains(&connection.local.port()) {
            true => Port::Served(connection.local.port()),
            false => Port::Asked(connection.remote.port()),
        };
        let seen = Seen {
            connection,
            process,
            cgroup,
            port,
        };
        (seen.connection.cookie, seen)
    });
    Ok(seen.collect())
}

/// Name of a cgroup that has no path here.
pub fn cgroup_id(id: u64) -> Printable {
    format!("id {id}").into()
}

/// Counts of the meter `segments` by connection, with the key of [`connection_key`].
pub type Skbs = HashMap<u64, Counts>;

/// Growth of each connection, with the growth of its skbs if they are counted. Connections without growth are
/// omitted.
pub fn growth(
    before: &HashMap<u64, Seen>,
    after: &HashMap<u64, Seen>,
    skbs: Option<(&Skbs, &Skbs)>,
    here: Option<&Namespace>,
) -> Vec<Row> {
    let of_skbs = of_skbs();
    let rows = after.iter().filter_map(|(cookie, seen)| {
        let earlier = before.get(cookie).map(|seen| &seen.connection);
        let key = connection_key(seen.connection.local, seen.connection.remote);
        // Most connections are idle, and need no tree of counts. An skb may be counted in the interval after that of its bytes.
        if earlier.is_some_and(|earlier| seen.connection.is_idle_since(earlier))
            && skbs.is_none_or(|(before, after)| before.get(&key) == after.get(&key))
        {
            return None;
        }
        let mut counts = seen.connection.since(earlier);
        if let Some((before, after)) = skbs {
            let total = |all: &Skbs, of| {
                // Not seen yet, or no longer in the map.
                let counts = all.get(&key)?;
                counts.get(&of).copied()
            };
            counts.extend(of_skbs.iter().map(|&of| {
                let before = total(before, of).unwrap_or(0);
                let after = total(after, of).unwrap_or(0);
                (of, after.saturating_sub(before))
            }));
        }
        Some(Row {
            ends: Some([seen.connection.local, seen.connection.remote]),
            process: seen.process.clone(),
            cgroup: seen.cgroup.clone(),
            namespace: here.cloned(),
            port: Some(seen.port),
            connections: 1,
            counts,
            is_host: false,
            is_without_port: false,
        })
    });
    rows.filter(|row| row.counts.values().any(|&count| count > 0))
        .collect()
}

/// Counts of the meter `segments` that the columns of connections and the prices of owners need.
fn of_skbs() -> BTreeSet<Quantity> {
    let figures = CONNECTION_COLUMNS.iter().flat_map(|column| column.figures);
    let counts = figures.flat_map(|figure| figure.counts());
    let of_segments = counts.filter(|(by, _)| *by == MeterName::Segments);
    of_segments.map(|(_, of)| of).chain(PRICED).collect()
}

/// Counts that causes with a price are made of (docs/prices.md).
const PRICED: [Quantity; 6] = [
    Quantity::DataSkbsSent,
    Quantity::DataSkbBytesSent,
    Quantity::PureAcksSent,
    Quantity::DataSkbsReceived,
    Quantity::DataSkbBytesReceived,
    Quantity::PureAcksReceived,
];

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn passes(filter: Filter, local: &str, remote: &str) -> bool {
        filter.passes([local.parse().unwrap(), remote.parse().unwrap()])
    }

    #[test]
    fn a_connection_without_growth_has_a_row_only_if_its_skbs_grew() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let local = client.local_addr().unwrap();
        let look = || {
            let mut all = sock_diag::connections().unwrap().into_iter();
            let connection = all.find(|one| one.local == local).unwrap();
            let seen = Seen {
                connection,
                process: None,
                cgroup: None,
                port: Port::Asked(local.port()),
            };
            HashMap::from([(seen.connection.cookie, seen)])
        };
        let before = look();
        assert_eq!(growth(&before, &before, None, None), []);
        let key = connection_key(local, client.peer_addr().unwrap());
        let skbs = |sent| Skbs::from([(key, Counts::from([(Quantity::DataSkbsSent, sent)]))]);
        let (earlier, later) = (skbs(1), skbs(3));
        assert_eq!(growth(&before, &before, Some((&later, &later)), None), []);
        let rows = growth(&before, &before, Some((&earlier, &later)), None);
        assert_eq!(rows[0].counts[&Quantity::DataSkbsSent], 2);
        client.write_all(&[1]).unwrap();
        server.read_exact(&mut [0]).unwrap();
        let rows = growth(&before, &look(), None, None);
        assert_eq!(rows[0].counts[&Quantity::ConnDataSegmentsSent], 1);
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
}
