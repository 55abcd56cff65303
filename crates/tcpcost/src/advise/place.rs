//! Place of a workload's traffic: the port that it passes, its settings, and whether both ends are here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tcpcost_counts::{Counts, Quantity};
use tcpcost_host::namespace::NetworkOf;
use tcpcost_host::{environment, nic, route, rps};
use tcpcost_meter::sock_diag::{self, Connection};
use tcpcost_model::advice::Settings;

use crate::explain::TargetArgs;

/// Place of a workload's traffic.
#[derive(Debug, Default)]
pub struct Place {
    /// Settings of its port; empty if no connection was seen.
    pub settings: Settings,
    /// Device; empty if no connection was seen.
    pub device: String,
    /// Peer of the connection that moved most bytes; `None` if no connection was seen.
    pub peer: Option<IpAddr>,
    /// True if both ends of its connections are in the same namespace.
    pub has_both_ends: bool,
    /// Words before a command that must run in its namespace.
    pub within: String,
}

/// Sysctls that rules test, besides those of a record.
const ALSO: &[&str] = &["net.ipv4.tcp_pingpong_thresh"];

/// Files of /sys/class/net/DEV that rules test.
const FILES: &[&str] = &["gro_flush_timeout", "napi_defer_hard_irqs"];

/// Time between two looks at the connections.
const INTERVAL: Duration = Duration::from_millis(200);

/// Connections that a workload had, seen while it runs.
#[derive(Debug)]
pub struct Watcher {
    network: Option<NetworkOf>,
    within: String,
    pids: Vec<u32>,
    is_over: AtomicBool,
}

impl Watcher {
    /// Prepares to look at the connections of a target.
    pub fn new(target: &TargetArgs) -> Watcher {
        let (network, within) = namespace(target);
        Watcher {
            network,
            within,
            pids: target.of.pid.clone(),
            is_over: AtomicBool::new(false),
        }
    }

    /// Ends [`Watcher::watch`] after its next look.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Looks at the connections until [`Watcher::end`], and returns the place of those that moved most bytes.
    pub fn watch(&self) -> Place {
        let look = || match &self.network {
            Some(network) => network.within(|| self.look()).ok().flatten(),
            None => self.look(),
        };
        let mut most: Option<Seen> = None;
        loop {
            if let Some(seen) = look() {
                let is_more = most
                    .as_ref()
                    .is_none_or(|most| seen.connections >= most.connections);
                if is_more {
                    most = Some(seen);
                }
            }
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(INTERVAL);
        }
        let mut place = match (&most, &self.network) {
            (Some(seen), Some(network)) => network.within(|| port(seen, false)).unwrap_or_default(),
            (Some(seen), None) => port(seen, true),
            (None, _) => Place::default(),
        };
        place.within.clone_from(&self.within);
        place
    }

    /// Calls `work` in the target's namespace.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> anyhow::Result<T> {
        match &self.network {
            Some(network) => Ok(network.within(work)?),
            None => Ok(work()),
        }
    }

    /// True if the target is in another namespace than this process.
    pub fn is_elsewhere(&self) -> bool {
        self.network.is_some()
    }

    fn look(&self) -> Option<Seen> {
        let mut all = Vec::new();
        sock_diag::connections(|one| all.push(one)).ok()?;
        let ends: BTreeSet<(SocketAddr, SocketAddr)> =
            all.iter().map(|one| (one.local, one.remote)).collect();
        let own = inodes(&self.pids);
        let is_own = |one: &&Connection| own.is_empty() || own.contains(&one.inode);
        let bytes = |counts: &Counts| -> u64 {
            let of = [Quantity::ConnBytesAcked, Quantity::ConnBytesReceived];
            of.iter().filter_map(|of| counts.get(of)).sum()
        };
        let owned: Vec<&Connection> = all.iter().filter(is_own).collect();
        let largest = owned.iter().max_by_key(|one| bytes(&one.since(None)))?;
        Some(Seen {
            remote: largest.remote.ip(),
            has_both_ends: ends.contains(&(largest.remote, largest.local)),
            connections: owned.len(),
        })
    }
}

/// Connections of one look.
#[derive(Debug)]
struct Seen {
    /// Peer of the connection that moved most bytes.
    remote: IpAddr,
    has_both_ends: bool,
    connections: usize,
}

/// Inodes of the sockets that processes hold.
fn inodes(pids: &[u32]) -> BTreeSet<u32> {
    let files = pids.iter().flat_map(|pid| {
        fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
    });
    files
        .flatten()
        .filter_map(|file| {
            let target = fs::read_link(file.path()).ok()?;
            let target = target.to_string_lossy().into_owned();
            let inode = target.strip_prefix("socket:[")?.strip_suffix(']')?;
            inode.parse().ok()
        })
        .collect()
}

/// Settings of the port that leads to the seen peer. `has_sysfs`: /sys is of this namespace.
fn port(seen: &Seen, has_sysfs: bool) -> Place {
    let device = match route::describe(seen.remote) {
        Ok(words) => device_of(&words),
        Err(_) => String::new(),
    };
    let also: BTreeSet<String> = ALSO.iter().map(|name| (*name).to_string()).collect();
    let parsed = device.parse().ok();
    let read = parsed.and_then(|name| {
        let mut port = environment::of_port(&name, seen.remote, &also).ok()?;
        port.nic = Some(nic::read(rps::root(), &name));
        if !has_sysfs {
            // /sys shows the devices of another namespace.
            port.rps_cpus = None;
            port.threaded_napi = None;
        }
        Some(port)
    });
    let mut settings = read.as_ref().map(Settings::of).unwrap_or_default();
    if device == "lo" {
        settings.set("driver", "lo");
    }
    if has_sysfs {
        for (name, value) in files(&device) {
            settings.set(name, value);
        }
    }
    settings.set("connections", seen.connections);
    Place {
        settings,
        device,
        peer: Some(seen.remote),
        has_both_ends: seen.has_both_ends,
        within: String::new(),
    }
}

/// Device in the words of `ip route get`.
fn device_of(route: &str) -> String {
    let mut words = route.split(' ').skip_while(|word| *word != "dev");
    words.nth(1).unwrap_or_default().to_string()
}

/// Values of [`FILES`], and of the transmit queues.
fn files(device: &str) -> BTreeMap<&'static str, String> {
    let folder = rps::root().join("class/net").join(device);
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let mut found = BTreeMap::new();
    for name in FILES {
        if let Some(text) = read(name) {
            found.insert(*name, text.trim().to_string());
        }
    }
    let queues = fs::read_dir(folder.join("queues"))
        .into_iter()
        .flatten()
        .flatten();
    let sending = queues.filter(|queue| queue.file_name().to_string_lossy().starts_with("tx-"));
    let masks: Vec<Option<String>> = sending
        .map(|queue| fs::read_to_string(queue.path().join("xps_cpus")).ok())
        .collect();
    found.insert("tx_queues", masks.len().to_string());
    if let Some(masks) = masks.into_iter().collect::<Option<Vec<String>>>() {
        let is_off = |mask: &String| mask.trim().chars().all(|digit| "0,".contains(digit));
        let word = if masks.iter().all(is_off) {
            "off"
        } else {
            "on"
        };
        found.insert("xps", word.to_string());
    }
    found
}

/// Namespace of a target, and the words before a command that must run there. `None` for this namespace.
fn namespace(target: &TargetArgs) -> (Option<NetworkOf>, String) {
    if let Some(name) = &target.of.netns {
        let network = NetworkOf::named(name).ok();
        let within = format!("nsenter --net={} ", tcpcost_host::namespace::path(name));
        return (network, within);
    }
    let of_cgroup = target.of.cgroup.as_ref().and_then(|cgroup| {
        let text = fs::read_to_string(cgroup.join("cgroup.procs")).ok()?;
        text.lines().next()?.parse::<u32>().ok()
    });
    let Some(pid) = target.of.pid.first().copied().or(of_cgroup) else {
        return (None, String::new());
    };
    match NetworkOf::process(pid) {
        Ok(Some(network)) => (Some(network), format!("nsenter -t {pid} -n ")),
        _ => (None, String::new()),
    }
}

impl Place {
    /// Place of a command in a fresh namespace: loopback alone.
    pub fn loopback() -> Place {
        port_of_loopback()
    }
}

fn port_of_loopback() -> Place {
    let seen = Seen {
        remote: Ipv4Addr::LOCALHOST.into(),
        has_both_ends: true,
        connections: 0,
    };
    let mut place = port(&seen, false);
    place.device = "lo".to_string();
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_is_the_word_after_dev() {
        assert_eq!(device_of("10.9.0.2 dev tc0 src 10.9.0.1 quickack 1"), "tc0");
        assert_eq!(device_of("10.9.0.2 via 10.0.0.1 dev eth0"), "eth0");
        assert_eq!(device_of("unreachable 10.9.0.2"), "");
    }

    #[test]
    fn both_ends_of_a_loopback_connection_are_here() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_server, _) = listener.accept().unwrap();
        let watcher = Watcher {
            network: None,
            within: String::new(),
            pids: vec![std::process::id()],
            is_over: AtomicBool::new(true),
        };
        let place = watcher.watch();
        assert!(place.has_both_ends, "{place:?}");
        assert_eq!(place.device, "lo");
        assert_eq!(place.settings.get("driver"), Some("lo"));
        drop(client);
    }
}
