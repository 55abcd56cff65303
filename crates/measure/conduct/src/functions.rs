//! Instructions by kernel function, of a run with `--guest`: a file next to its records.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tcpcost_console::format::{Format, Formats, Output};
use tcpcost_console::output;
use tcpcost_counts::printable_json;
use tcpcost_guest::{Misses, Span, USER, moves_memory};
use tcpcost_host::folder::Folder;
use tcpcost_report::difference_of_means;
use tcpcost_study::{Cell, CountOwner, MeterName, Quantity, Reading, Record, Study};

/// Name of the file in a run's directory.
pub const FUNCTIONS: &str = "functions.json";

/// Limit on the file's size. A kernel has some 50,000 functions; each trial has those that ran, some 1000 with some 40 bytes each.
const BYTES_MAX: u64 = 256 << 20;

/// Instructions by function in the trials of a run, per KiB or per transaction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ByFunction {
    /// The kernel's release.
    pub kernel: String,
    /// Caches that were modelled: their sizes and ways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caches: Option<String>,
    /// Trials by cell.
    pub cells: BTreeMap<String, Vec<OfTrial>>,
}

/// Instructions of a trial by function.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OfTrial {
    /// Repetition, which is a snapshot.
    pub repetition: u32,
    /// Instructions by function.
    pub functions: BTreeMap<String, f64>,
    /// Misses by function, if caches were modelled.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub misses: BTreeMap<String, Misses>,
}

impl ByFunction {
    /// Adds the counts of a trial's span, divided by its work.
    pub fn add(&mut self, kernel: &str, span: Span, record: &Record) {
        let Some(units) = units(record) else { return };
        self.kernel = kernel.to_string();
        let each = span.functions.into_iter();
        let functions = each.map(|(name, count)| (name, count as f64 / units));
        let misses = span.misses.into_iter();
        let misses = misses.map(|(name, misses)| (name, misses.per(units)));
        let trials = self.cells.entry(record.cell.clone()).or_default();
        trials.push(OfTrial {
            repetition: record.repetition,
            functions: functions.collect(),
            misses: misses.collect(),
        });
    }

    /// True if no trial was counted.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Reads the file in a run's directory. `None` if there is none that can be read.
    pub fn load(directory: &Path) -> Option<ByFunction> {
        let folder = Folder::open(directory).ok()?;
        let text = String::from_utf8(folder.read(FUNCTIONS, BYTES_MAX).ok()?).ok()?;
        serde_json::from_str(&printable_json(&text)).ok()
    }

    /// Prints the tables of a run in this directory, if its format is text: those of instructions with `--format details`, those of
    /// estimated cycles if caches were modelled.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn print<F: Formats>(
        directory: &Path,
        study: &Study,
        output: &Output<F>,
    ) -> anyhow::Result<()> {
        let by_function = ByFunction::load(directory).unwrap_or_default();
        let cells = || study.cells.iter().map(|cell| &cell.name[..]);
        if output.has(Format::Details) {
            let tables = cells().map(|cell| format!("\n{}", by_function.table(cell)));
            output::write(&tables.collect::<String>())?;
        }
        if output.is_text() {
            let unit = |cell: &Cell| match cell.knobs.has_transactions() {
                true => "transaction",
                false => "KiB",
            };
            let cells = study.cells.iter().map(|cell| (&cell.name[..], unit(cell)));
            output::write(&by_function.cycles(cells))?;
        }
        Ok(())
    }

    /// Table of a cell: one row for all functions that move memory, one for the others, then the functions with most instructions.
    pub fn table(&self, cell: &str) -> String {
        let Some(trials) = self.cells.get(cell) else {
            return String::new();
        };
        let mut text = format!(
            "{cell}, by function, Linux {} (n={})\n",
            self.kernel,
            trials.len()
        );
        let mut row = |of: Row| {
            let values = of.values(trials);
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let _ = writeln!(text, "{mean:>12.1}  {}", of.words());
            mean
        };
        row(Row::Memory);
        row(Row::Rest);
        let mut shown: Vec<(f64, &str)> = names(trials)
            .map(|name| (Row::Function(name).values(trials).iter().sum(), name))
            .collect();
        shown.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (_, name) in shown.into_iter().take(SHOWN) {
            row(Row::Function(name));
        }
        text
    }

    /// Table of the differences of a cell from the same cell on the kernel `before`, with intervals at 95 %. Functions that differ most
    /// are first.
    pub fn difference(&self, before: &ByFunction, cell: &str) -> String {
        let (Some(now), Some(earlier)) = (self.cells.get(cell), before.cells.get(cell)) else {
            return String::new();
        };
        let mut text = format!(
            "{cell}: {} against {}, by function (n={}, {})\n",
            self.kernel,
            before.kernel,
            earlier.len(),
            now.len()
        );
        let change = |of: Row| difference_of_means(&of.values(earlier), &of.values(now));
        let known: BTreeSet<&str> = names(earlier).chain(names(now)).collect();
        let known = known.into_iter();
        let mut changes: Vec<(f64, Row)> = known
            .filter_map(|name| Some((change(Row::Function(name))?.0, Row::Function(name))))
            .collect();
        changes.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
        let shown = changes.into_iter().map(|(_, row)| row).take(SHOWN);
        for row in [Row::Memory, Row::Rest].into_iter().chain(shown) {
            let Some((by, half)) = change(row) else {
                continue;
            };
            let half = half.map_or("      ".to_string(), |half| format!("± {half:<4.1}"));
            let mean =
                |trials: &[OfTrial]| row.values(trials).iter().sum::<f64>() / trials.len() as f64;
            let (from, to) = (mean(earlier), mean(now));
            let percent = match row {
                Row::Rest => format!(", {:+.2} %", (to / from - 1.0) * 100.0),
                _ => String::new(),
            };
            let _ = writeln!(
                text,
                "{by:>+12.1} {half} {} ({from:.1} to {to:.1}{percent})",
                row.words()
            );
        }
        text
    }
}

/// A row of a table.
#[derive(Debug, Clone, Copy)]
enum Row<'a> {
    /// All functions that move memory.
    Memory,
    /// All others.
    Rest,
    /// One function.
    Function(&'a str),
}

impl<'a> Row<'a> {
    fn words(self) -> &'a str {
        match self {
            Row::Memory => "copy, clear and set memory",
            Row::Rest => "all the rest",
            Row::Function(name) => name,
        }
    }

    /// Its instructions in each trial.
    fn values(self, trials: &[OfTrial]) -> Vec<f64> {
        let of = |trial: &OfTrial| match self {
            Row::Function(name) => trial.functions.get(name).copied().unwrap_or(0.0),
            Row::Memory | Row::Rest => {
                let wanted = matches!(self, Row::Memory);
                let functions = trial.functions.iter();
                let of_row = functions.filter(|(name, _)| moves_memory(name) == wanted);
                of_row.map(|(_, count)| count).sum()
            }
        };
        trials.iter().map(of).collect()
    }
}

/// Functions of some trials that do not move memory; a name may come more than once.
fn names(trials: &[OfTrial]) -> impl Iterator<Item = &str> {
    let all = trials.iter().flat_map(|trial| trial.functions.keys());
    all.map(String::as_str)
        .filter(|name| !moves_memory(name))
        .collect::<BTreeSet<_>>()
        .into_iter()
}

/// Adds to the record of a trial how many instructions its marked span had, how many of them moved memory, and how many were in each
/// context. `None` if the record
/// has no host.
pub fn add_sums(record: &mut Record, span: &Span) -> Option<()> {
    let functions = &span.functions;
    let moving = functions.iter().filter(|(name, _)| moves_memory(name));
    let of_memory: u64 = moving.map(|(_, count)| *count).sum();
    // All hosts share one CPU, so the first host has its count.
    let first = record.hosts.values_mut().next()?;
    let cpu = *first.cpus.first()?;
    let exact = first
        .readings
        .iter()
        .find(|one| one.meter == MeterName::Exact);
    let duration_ns = exact.map_or(0, |reading| reading.duration_ns);
    let of_user = functions.get(USER).copied().unwrap_or(0);
    let contexts = span.contexts.into_iter().flat_map(|contexts| {
        [
            (Quantity::TaskInstructions, contexts.task),
            (Quantity::NetRxInstructions, contexts.net_rx),
            (Quantity::DeferredInstructions, contexts.deferred),
            (Quantity::HardirqInstructions, contexts.hardirq),
        ]
    });
    let sums = [
        (Quantity::Instructions, functions.values().sum()),
        (Quantity::MemoryInstructions, of_memory),
        (Quantity::UserInstructions, of_user),
    ];
    first.readings.push(Reading {
        meter: MeterName::Emulator,
        whose: CountOwner::Cpu(cpu),
        duration_ns,
        counts: sums.into_iter().chain(contexts).collect(),
    });
    Some(())
}

/// Functions in a table.
pub const SHOWN: usize = 10;

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

    fn by_function(kernel: &str, trials: &[&[(&str, f64)]]) -> ByFunction {
        let trials = trials
            .iter()
            .zip(0..)
            .map(|(functions, repetition)| OfTrial {
                repetition,
                functions: functions
                    .iter()
                    .map(|(name, count)| (name.to_string(), *count))
                    .collect(),
                misses: BTreeMap::new(),
            });
        ByFunction {
            kernel: kernel.into(),
            caches: None,
            cells: [("rr".to_string(), trials.collect())].into(),
        }
    }

    #[test]
    fn the_largest_difference_is_first_with_its_interval_and_memory_has_its_own_row() {
        let before: &[(&str, f64)] = &[
            ("memset_orig", 40.0),
            ("tcp_ack", 100.0),
            ("tcp_rcv_established", 50.0),
        ];
        let after = |noise: f64| {
            [
                ("memset_orig", 88.0),
                ("tcp_ack", 101.0 + noise),
                ("fib_table_lookup", 30.0),
            ]
        };
        let after = [after(-1.0), after(0.0), after(1.0)];
        let before = by_function("6.1", &[before; 3]);
        let after = by_function("6.12", &[&after[0], &after[1], &after[2]]);
        let text = after.difference(&before, "rr");
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines[0], "rr: 6.12 against 6.1, by function (n=3, 3)");
        assert_eq!(
            lines[1],
            "+48.0 ± 0.0  copy, clear and set memory (40.0 to 88.0)"
        );
        assert_eq!(
            lines[2],
            "-19.0 ± 1.6  all the rest (150.0 to 131.0, -12.67 %)"
        );
        assert_eq!(lines[3], "-50.0 ± 0.0  tcp_rcv_established (50.0 to 0.0)");
        assert_eq!(lines[4], "+30.0 ± 0.0  fib_table_lookup (0.0 to 30.0)");
        assert_eq!(lines[5], "+1.0 ± 1.6  tcp_ack (100.0 to 101.0)");
        assert_eq!(after.difference(&before, "crr"), "");
        assert!(
            after.table("rr").contains("101.0  tcp_ack"),
            "{}",
            after.table("rr")
        );
    }
}
