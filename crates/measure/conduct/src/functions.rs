//! Instructions by kernel function, of a run with `--guest`: a file next to its records.
//!
//! The file has the first boot only, because functions above a thousandth of the total differ by only a hundredth of a percent
//! between boots.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tcpcost_counts::printable_json;
use tcpcost_guest::{Functions, moves_memory};
use tcpcost_host::folder::Folder;
use tcpcost_study::{CountOwner, MeterName, Quantity, Reading, Record};

/// Name of the file in a run's directory.
pub const FUNCTIONS: &str = "functions.json";

/// Limit on the file's size. A kernel has some 50,000 functions; each cell has those that ran, with some 50 bytes each.
const BYTES_MAX: u64 = 64 << 20;

/// Instructions by function in the trials of one boot, per KiB or per transaction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ByFunction {
    /// The kernel's release.
    pub kernel: String,
    /// Instructions by cell and function.
    pub cells: BTreeMap<String, BTreeMap<String, f64>>,
}

impl ByFunction {
    /// Divides the counts of a boot's spans by the work of its measured trials. `spans` are in the order of the measured trials.
    pub fn new(kernel: &str, spans: Vec<Functions>, trials: &[Record]) -> ByFunction {
        let measured = trials.iter().filter(|record| record.is_measured());
        let cells = measured.zip(spans).filter_map(|(record, span)| {
            let units = units(record)?;
            let each = span.into_iter();
            let each = each.map(|(name, count)| (name, count as f64 / units));
            Some((record.cell.clone(), each.collect()))
        });
        ByFunction {
            kernel: kernel.to_string(),
            cells: cells.collect(),
        }
    }

    /// Reads the file in a run's directory. `None` if there is none that can be read.
    pub fn load(directory: &Path) -> Option<ByFunction> {
        let folder = Folder::open(directory).ok()?;
        let text = String::from_utf8(folder.read(FUNCTIONS, BYTES_MAX).ok()?).ok()?;
        serde_json::from_str(&printable_json(&text)).ok()
    }

    /// Table of a cell: one row for all functions that move memory, one for the others, then the functions with most instructions.
    pub fn table(&self, cell: &str) -> String {
        let Some(functions) = self.cells.get(cell) else {
            return String::new();
        };
        let total: f64 = functions.values().sum();
        let moved: f64 = moving(functions).map(|(_, count)| count).sum();
        let mut text = format!("{cell}, by function, Linux {}\n", self.kernel);
        let _ = writeln!(text, "{moved:>12.1}  copy, clear and set memory");
        let _ = writeln!(text, "{:>12.1}  all the rest", total - moved);
        let mut rest: Vec<_> = functions
            .iter()
            .filter(|(name, _)| !moves_memory(name))
            .collect();
        rest.sort_by(|a, b| b.1.total_cmp(a.1));
        for (name, count) in rest.into_iter().take(SHOWN) {
            let _ = writeln!(text, "{count:>12.1}  {name}");
        }
        text
    }

    /// Table of the differences of a cell from the same cell on the kernel `before`. Functions that differ most are first.
    pub fn difference(&self, before: &ByFunction, cell: &str) -> String {
        let (Some(now), Some(earlier)) = (self.cells.get(cell), before.cells.get(cell)) else {
            return String::new();
        };
        let sum = |functions: &BTreeMap<String, f64>| {
            let moved: f64 = moving(functions).map(|(_, count)| count).sum();
            [moved, functions.values().sum::<f64>() - moved]
        };
        let ([moved_before, rest_before], [moved, rest]) = (sum(earlier), sum(now));
        let mut text = format!(
            "{cell}: {} against {}, by function\n",
            self.kernel, before.kernel
        );
        let _ = writeln!(
            text,
            "{:>+12.1}  copy, clear and set memory ({moved_before:.1} to {moved:.1})",
            moved - moved_before
        );
        let _ = writeln!(
            text,
            "{:>+12.1}  all the rest ({rest_before:.1} to {rest:.1}, {:+.2} %)",
            rest - rest_before,
            (rest / rest_before - 1.0) * 100.0
        );
        let names: BTreeSet<&String> = earlier.keys().chain(now.keys()).collect();
        let count = |functions: &BTreeMap<String, f64>, name: &String| {
            functions.get(name).copied().unwrap_or(0.0)
        };
        let mut changes: Vec<(f64, &String)> = names
            .into_iter()
            .filter(|name| !moves_memory(name))
            .map(|name| (count(now, name) - count(earlier, name), name))
            .collect();
        changes.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
        for (change, name) in changes.into_iter().take(SHOWN) {
            let _ = writeln!(
                text,
                "{change:>+12.1}  {name} ({:.1} to {:.1})",
                count(earlier, name),
                count(now, name)
            );
        }
        text
    }
}

/// Adds the instructions that moved memory to the records of a boot's trials. `spans` are in the order of the measured trials.
/// `None` if their numbers differ.
pub fn add_memory(trials: &mut [Record], spans: &[Functions]) -> Option<()> {
    let mut measured: Vec<&mut Record> =
        trials.iter_mut().filter(|one| one.is_measured()).collect();
    if measured.len() != spans.len() {
        return None;
    }
    for (record, span) in measured.iter_mut().zip(spans) {
        let moving = span.iter().filter(|(name, _)| moves_memory(name));
        let count: u64 = moving.map(|(_, count)| *count).sum();
        // All hosts share one CPU, so the first host has its count.
        let first = record.hosts.values_mut().next()?;
        let cpu = *first.cpus.first()?;
        let exact = first
            .readings
            .iter()
            .find(|one| one.meter == MeterName::Exact);
        let duration_ns = exact.map_or(0, |reading| reading.duration_ns);
        first.readings.push(Reading {
            meter: MeterName::Emulator,
            whose: CountOwner::Cpu(cpu),
            duration_ns,
            counts: [(Quantity::MemoryInstructions, count)].into(),
        });
    }
    Some(())
}

/// Functions in a table.
const SHOWN: usize = 10;

fn moving(functions: &BTreeMap<String, f64>) -> impl Iterator<Item = (&String, f64)> {
    let moving = functions.iter().filter(|(name, _)| moves_memory(name));
    moving.map(|(name, count)| (name, *count))
}

/// Work of a trial: received KiB, or transactions. `None` if there was none.
fn units(record: &Record) -> Option<f64> {
    let has_transactions = record.knobs.has_transactions();
    let quantity = match has_transactions {
        true => Quantity::Transactions,
        false => Quantity::PayloadBytesReceived,
    };
    let hosts = record.hosts.values();
    let counts: Vec<u64> = hosts
        .filter_map(|host| host.growth(MeterName::Workload, &CountOwner::Workload, quantity))
        .collect();
    let sum = counts.iter().sum::<u64>() as f64;
    let units = if has_transactions { sum } else { sum / 1024.0 };
    (units > 0.0).then_some(units)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_function(kernel: &str, functions: &[(&str, f64)]) -> ByFunction {
        let functions = functions
            .iter()
            .map(|(name, count)| (name.to_string(), *count));
        ByFunction {
            kernel: kernel.into(),
            cells: [("rr".to_string(), functions.collect())].into(),
        }
    }

    #[test]
    fn the_largest_difference_is_first_and_memory_has_its_own_row() {
        let before = by_function(
            "6.1",
            &[
                ("memset_orig", 40.0),
                ("tcp_ack", 100.0),
                ("tcp_rcv_established", 50.0),
            ],
        );
        let after = by_function(
            "6.12",
            &[
                ("memset_orig", 88.0),
                ("tcp_ack", 101.0),
                ("fib_table_lookup", 30.0),
            ],
        );
        let text = after.difference(&before, "rr");
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines[1], "+48.0  copy, clear and set memory (40.0 to 88.0)");
        assert_eq!(lines[2], "-19.0  all the rest (150.0 to 131.0, -12.67 %)");
        assert_eq!(lines[3], "-50.0  tcp_rcv_established (50.0 to 0.0)");
        assert_eq!(lines[4], "+30.0  fib_table_lookup (0.0 to 30.0)");
        assert_eq!(after.difference(&before, "crr"), "");
    }
}
