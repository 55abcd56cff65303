//! Price list of a host: CPU ns of each cause, with its accuracy, as a JSON file.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use tcpcost_counts::{Machine, printable_json};
use tcpcost_study::Record;

use crate::causes::{Cause, Counts};

/// Version of the file's fields. It is raised when the meaning of a field changes or a field is removed.
pub const SCHEMA_VERSION: u32 = 1;

/// Lower and upper end.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Price of a cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// The cause.
    pub cause: Cause,
    /// CPU time of one unit, ns.
    pub ns: f64,
    /// Interval of `ns`, at 90 % confidence.
    pub interval: Interval,
    /// Largest share of a studied cell's cost that the cause had, 0 to 1.
    pub largest_share: f64,
    /// Highest count per second of CPU time in a studied cell. Beyond it a price is a guess.
    pub most_per_cpu_s: f64,
}

/// A cause that has no price of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unpriced {
    /// The cause.
    pub cause: Cause,
    /// Reason, in a few words.
    pub reason: String,
    /// Its part in sums, ns a unit: no price, because only its sum with that of other causes is known. 0 if
    /// there is none.
    #[serde(default)]
    pub in_sums_ns: f64,
}

/// Error of predictions for work that the fit did not see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Accuracy {
    /// Measured over predicted cost, at 90 % confidence: 0.9 and 1.15 mean 10 % less to 15 % more.
    pub interval: Interval,
    /// Median of the absolute relative errors.
    pub median: f64,
    /// Number of predictions within 20 %.
    pub within_20: usize,
    /// Number of predictions: one for each check cell and host.
    pub predictions: usize,
    /// Number of check cells.
    pub cells: usize,
}

/// Host, kernel and device that prices belong to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Host name (uname -n).
    pub host: String,
    /// Kernel release and version (uname -r, -v).
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// Number of CPUs online.
    pub cpus: usize,
    /// Device that carried the traffic: `veth`, or a driver's name.
    pub device: String,
}

impl Place {
    /// Place of prices that a machine measures with a device of this driver.
    pub fn of(host: &str, machine: &Machine, device: &str) -> Place {
        Place {
            host: host.to_string(),
            kernel: machine.kernel.clone(),
            cpu: machine.cpu.clone(),
            cpus: machine.cpus,
            device: device.to_string(),
        }
    }

    /// True if the machine is of this kernel and has these CPUs.
    pub fn is_of(&self, machine: &Machine) -> bool {
        self.kernel == machine.kernel && self.cpu == machine.cpu && self.cpus == machine.cpus
    }

    /// True if prices of this place are those of the machine: the same kernel on the same CPUs.
    pub fn is(&self, machine: &Machine) -> bool {
        self.kernel == machine.kernel && self.cpu == machine.cpu && self.cpus == machine.cpus
    }
}

/// Price list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PriceList {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Version of tcpcost that measured.
    pub tcpcost: String,
    /// Host, kernel and device.
    pub place: Place,
    /// Time of the measurement, s since 1970.
    pub measured_unix_s: u64,
    /// Number of cells that were fitted, check cells included.
    pub cells: usize,
    /// Prices, in the order of [`Cause::ALL`].
    pub prices: Vec<Price>,
    /// Causes without a price.
    pub unpriced: Vec<Unpriced>,
    /// Accuracy on check cells.
    pub accuracy: Accuracy,
    /// Bootstrap: prices in the order of `prices`, ns, one row for each draw. They show how errors of
    /// prices go together.
    pub draws: Vec<Vec<f64>>,
    /// CPU ns per unit of work of the reference cells, by cell and host, for the check of drift.
    #[serde(default)]
    pub references: Vec<Reference>,
}

/// Cost of a reference cell when the list was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// Name of the cell.
    pub cell: String,
    /// Host of the cell.
    pub host: String,
    /// Measured over predicted cost.
    pub ratio: f64,
}

/// Error of reading or writing a price list.
#[derive(Debug, thiserror::Error)]
pub enum PriceListError {
    /// No list for this host, kernel and device.
    #[error("no prices of this host ({0} does not exist): run tcpcost model first")]
    Missing(PathBuf),
    /// No folder for lists.
    #[error("no folder for prices: neither XDG_STATE_HOME nor HOME is set")]
    NoFolder,
    /// The file cannot be read or written.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file is not a price list.
    #[error("{}: not a price list of this version ({reason}): run tcpcost model again", .path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
}

/// Most bytes of a list that are read.
const BYTES_MAX: u64 = 8 << 20;

impl PriceList {
    /// Price of a cause; `None` if it has none.
    pub fn price(&self, cause: Cause) -> Option<&Price> {
        self.prices.iter().find(|price| price.cause == cause)
    }

    /// Cost of counts by these prices, ns. Causes that were not counted add nothing.
    pub fn cost_ns(&self, counts: &Counts) -> f64 {
        let terms = self.prices.iter();
        let priced: f64 = terms
            .filter_map(|price| Some(price.ns * counts.get(price.cause)?))
            .sum();
        priced + self.inseparable_ns(counts)
    }

    /// Part of a cost that belongs to causes without a price of their own, ns.
    pub fn inseparable_ns(&self, counts: &Counts) -> f64 {
        let terms = self.unpriced.iter();
        terms
            .filter_map(|one| Some(one.in_sums_ns * counts.get(one.cause)?))
            .sum()
    }

    /// Cost of counts by each draw of the bootstrap, ns.
    pub fn drawn_costs_ns(&self, counts: &Counts) -> Vec<f64> {
        let inseparable_ns = self.inseparable_ns(counts);
        let of_draw = |draw: &Vec<f64>| {
            let terms = self.prices.iter().zip(draw);
            let priced: f64 = terms
                .filter_map(|(price, ns)| Some(ns * counts.get(price.cause)?))
                .sum();
            priced + inseparable_ns
        };
        self.draws.iter().map(of_draw).collect()
    }
}

/// Path of the list of a place: `$XDG_STATE_HOME/tcpcost/prices/HOST-KERNEL-DEVICE.json`, else below
/// `~/.local/state`.
///
/// # Errors
/// [`PriceListError::NoFolder`].
pub fn path(place: &Place) -> Result<PathBuf, PriceListError> {
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = named("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.or_else(|| Some(PathBuf::from(named("HOME")?).join(".local/state")));
    let folder = state
        .ok_or(PriceListError::NoFolder)?
        .join("tcpcost/prices");
    let release = place.kernel.split(' ').next().unwrap_or_default();
    let name = format!("{}-{release}-{}", place.host, place.device);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
    let name = name.replace(|c| !is_plain(c), "_");
    Ok(folder.join(name + ".json"))
}

/// Driver of beds of namespaces.
pub const VETH: &str = "veth";

/// Driver of the device that carried the traffic of records.
pub fn device(records: &[Record]) -> &str {
    let hosts = records.iter().flat_map(|record| record.hosts.values());
    let mut ports = hosts.flat_map(|host| host.ports.values());
    let driver = ports.find_map(|port| Some(port.nic.as_ref()?.driver.as_str()));
    driver.unwrap_or(VETH)
}

/// Name of this host, which is part of a list's file name.
pub fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_string()
}

/// Reads the price list of this host, whose machine is given, for a device's driver.
///
/// # Errors
/// There is none, it cannot be read, or it is of another version.
pub fn kept(machine: &Machine, device: &str) -> Result<PriceList, PriceListError> {
    read(&path(&Place::of(&host_name(), machine, device))?)
}

/// Reads a price list.
///
/// # Errors
/// There is none, it cannot be read, or it is of another version.
pub fn read(path: &Path) -> Result<PriceList, PriceListError> {
    use io::Read;
    let file = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => PriceListError::Missing(path.to_path_buf()),
        _ => PriceListError::File {
            path: path.to_path_buf(),
            source,
        },
    };
    let mut text = String::new();
    let opened = fs::File::open(path).map_err(file)?;
    opened
        .take(BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(file)?;
    let syntax = |reason: String| PriceListError::Syntax {
        path: path.to_path_buf(),
        reason,
    };
    let list: PriceList =
        serde_json::from_str(&printable_json(&text)).map_err(|error| syntax(error.to_string()))?;
    if list.schema_version != SCHEMA_VERSION {
        return Err(syntax(format!("schema_version {}", list.schema_version)));
    }
    Ok(list)
}

/// Writes a price list as a whole: a reader sees the old list or the new one.
///
/// # Errors
/// A folder or the file cannot be written.
pub fn write(list: &PriceList, path: &Path) -> Result<(), PriceListError> {
    let file = |source| PriceListError::File {
        path: path.to_path_buf(),
        source,
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(file)?;
    }
    let text = serde_json::to_string(list).map_err(|error| file(error.into()))?;
    let new = path.with_extension("new");
    fs::write(&new, text + "\n").map_err(file)?;
    fs::rename(&new, path).map_err(file)
}
