//! Differences between the conditions of two groups of runs, which make the runs hard to compare.

use std::collections::BTreeSet;

use tcpcost_study::Machine;

use crate::derive::cell::CellSummary;

/// Machines and cells of a group of runs.
pub(crate) struct MachinesAndCells<'a> {
    machines: Vec<&'a Machine>,
    cells: Vec<&'a CellSummary>,
}

impl<'a> MachinesAndCells<'a> {
    pub fn new(
        runs: impl Iterator<Item = (&'a Vec<Machine>, &'a Vec<CellSummary>)>,
    ) -> MachinesAndCells<'a> {
        let (machines, cells): (Vec<_>, Vec<_>) = runs.unzip();
        MachinesAndCells {
            machines: machines.into_iter().flatten().collect(),
            cells: cells.into_iter().flatten().collect(),
        }
    }

    /// Kernel versions of the machines.
    pub fn kernels(&self) -> BTreeSet<&'a str> {
        let machines = self.machines.iter();
        machines.map(|machine| machine.kernel.as_str()).collect()
    }
}

/// Differences in machines, kernels, versions and share of marked trials, a line for each.
pub(crate) fn differences(one: &MachinesAndCells<'_>, other: &MachinesAndCells<'_>) -> Vec<String> {
    let each = |runs: &MachinesAndCells<'_>, of: fn(&Machine) -> String| {
        let machines = runs.machines.iter();
        machines
            .map(|machine| of(machine))
            .collect::<BTreeSet<String>>()
    };
    let list = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(", ");
    type Of = fn(&Machine) -> String;
    let kinds: [(&str, Of); 3] = [
        ("machines", |machine| {
            format!("{} CPUs {}", machine.cpus, machine.cpu)
        }),
        ("kernels", |machine| machine.kernel.clone()),
        ("versions of tcpcost", |machine| machine.tcpcost.clone()),
    ];
    let mut lines: Vec<String> = kinds
        .into_iter()
        .filter_map(|(what, of)| {
            let (one, other) = (each(one, of), each(other, of));
            (one != other).then(|| format!("other {what}: {} and {}", list(&one), list(&other)))
        })
        .collect();
    let marked = |runs: &MachinesAndCells<'_>| {
        let all: usize = runs.cells.iter().map(|cell| cell.trials.len()).sum();
        let marked: usize = runs.cells.iter().map(|cell| cell.n_marked).sum();
        100 * marked / all.max(1)
    };
    let (one, other) = (marked(one), marked(other));
    if one.abs_diff(other) >= QUIET_DIFFERENCE {
        lines.push(format!(
            "a machine that was not equally quiet: {one} % and {other} % of the trials are marked by a warning"
        ));
    }
    lines
}

/// Difference in marked trials, in percentage points, from which it is reported. Smaller
/// differences can be chance.
const QUIET_DIFFERENCE: usize = 25;
