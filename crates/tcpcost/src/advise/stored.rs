//! Situations of stored runs and of captures.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use tcpcost_conduct::StoredRun;
use tcpcost_console::exit::unread;
use tcpcost_counts::{Counts, Growth, MeterName, Quantity, Source};
use tcpcost_model::advice::{Settings, Situation, release};
use tcpcost_model::{Cause, HostCounts, PriceList, Sample};
use tcpcost_study::Record;
use tcpcost_trace::{Analysis, Settings as TraceSettings, counts_at, read};

/// Trials of one cell: counts of all hosts together.
pub struct Cell<'a> {
    /// Name of the cell.
    pub name: String,
    hosts: Vec<HostCounts<'a>>,
    records: Vec<&'a Record>,
    cpu_ns: f64,
    counts: tcpcost_model::Counts,
}

impl Source for Cell<'_> {
    /// Sum over the hosts that have the count: a host that only receives has no sending calls.
    fn count(&self, by: MeterName, of: Quantity) -> Option<f64> {
        let counts = self.hosts.iter().filter_map(|host| host.count(by, of));
        counts.reduce(|sum, count| sum + count)
    }

    fn per_s(&self, by: MeterName, of: Quantity) -> Option<f64> {
        Some(self.count(by, of)? * 1e9 / self.time_ns(by)?)
    }

    /// Time of the trials, once for each host.
    fn time_ns(&self, by: MeterName) -> Option<f64> {
        self.hosts.iter().map(|host| host.time_ns(by)).sum()
    }

    fn work(&self, of: Quantity) -> Option<f64> {
        if of != Quantity::Transactions || !self.records[0].knobs.has_transactions() {
            return None;
        }
        self.count(MeterName::Workload, of)
    }
}

/// Cells of a run, in the order of the records. Cells without CPU time by eBPF are omitted.
pub fn cells(run: &StoredRun) -> Vec<Cell<'_>> {
    let mut cells: Vec<Cell<'_>> = Vec::new();
    for record in &run.records {
        let samples = Sample::all(record);
        let hosts: Vec<HostCounts<'_>> = samples
            .iter()
            .filter_map(|sample| HostCounts::new(record.hosts.get(&sample.host)?))
            .collect();
        if hosts.is_empty() {
            continue;
        }
        let at = cells.iter().position(|cell| cell.name == record.cell);
        let at = at.unwrap_or_else(|| {
            cells.push(Cell {
                name: record.cell.clone(),
                hosts: Vec::new(),
                records: Vec::new(),
                cpu_ns: 0.0,
                counts: tcpcost_model::Counts::default(),
            });
            cells.len() - 1
        });
        let cell = &mut cells[at];
        cell.hosts.extend(hosts);
        cell.records.push(record);
        for sample in &samples {
            cell.cpu_ns += sample.cpu_ns;
            for &cause in Cause::ALL {
                if let Some(count) = sample.counts.get(cause) {
                    let sum = cell.counts.get(cause).unwrap_or(0.0);
                    cell.counts.set(cause, sum + count);
                }
            }
        }
    }
    cells
}

impl Cell<'_> {
    /// Situation of the cell: both ends of its connections, with the settings of the first host's port.
    pub fn situation<'b>(&'b self, prices: Result<&'b PriceList, String>) -> Situation<'b> {
        let record = self.records[0];
        let machine = record.machines.values().next();
        let prices = prices.and_then(|list| match machine {
            Some(machine) if list.place.is(machine) => Ok(list),
            _ => Err("the prices are of another host or kernel than the run".to_string()),
        });
        let time_ns = self.time_ns(MeterName::Exact).unwrap_or(0.0);
        let hosts = record.hosts.len().max(1) as f64;
        let mut situation = Situation::of(self, time_ns / hosts);
        situation.counts = self.counts.clone();
        situation.measured_ns = Some(self.cpu_ns);
        situation.units = self.work(Quantity::Transactions);
        situation.has_both_ends = record.hosts.len() == record.topology.hosts.len();
        let port = record
            .hosts
            .values()
            .find_map(|host| host.ports.values().next());
        situation.settings = port.map(|port| Settings::of(port)).unwrap_or_default();
        situation.kernel = machine.and_then(|machine| release(&machine.kernel));
        situation.prices = prices;
        situation
    }
}

/// Counts of a capture: of the servers' ends of its connections. A capture has packets alone: no calls, no CPU
/// time.
///
/// # Errors
/// The file cannot be read, or holds no TCP connection with payload.
pub fn capture(path: &Path) -> anyhow::Result<Growth> {
    let file = File::open(path).map_err(|error| unread(path, &error))?;
    let mut analysis = Analysis::new(TraceSettings::default());
    let (_, outcome) = read(file, &mut analysis);
    outcome.with_context(|| format!("read {}", path.display()))?;
    let (connections, ()) = analysis.finish();
    let (mut segments, mut netstat) = (Counts::new(), Counts::new());
    let add = |counts: &mut Counts, quantity, count: u64| {
        *counts.entry(quantity).or_default() += count;
    };
    for connection in connections.iter() {
        for (quantity, count) in counts_at(connection, SERVER) {
            add(&mut segments, quantity, count);
        }
        let own = &connection.directions[SERVER].sent;
        let opens = u64::from(connection.handshake_ns.is_some());
        add(&mut netstat, Quantity::PassiveOpens, opens);
        add(&mut netstat, Quantity::ActiveOpens, 0);
        add(&mut netstat, Quantity::ZeroWindowsSent, own.zero_windows);
    }
    ensure!(
        segments.contains_key(&Quantity::DataSkbsSent),
        "{}: no TCP connection with payload of its server: nothing to advise",
        path.display()
    );
    Ok(Growth {
        counts: [
            (MeterName::Segments, segments),
            (MeterName::Netstat, netstat),
        ]
        .into(),
        ..Growth::default()
    })
}

/// Index of the server's end of a connection.
const SERVER: usize = 1;

/// Files that are runs, and files that are captures.
pub fn parted(files: &[PathBuf]) -> anyhow::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (folders, captures): (Vec<PathBuf>, Vec<PathBuf>) =
        files.iter().cloned().partition(|path| path.is_dir());
    Ok((tcpcost_conduct::directories(&folders)?, captures))
}
