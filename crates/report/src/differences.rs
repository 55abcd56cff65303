//! What makes two runs hard to hold against each other.

use std::collections::BTreeSet;

use tcpcost_study::Machine;

use crate::cell::CellSummary;

/// A run's machines and cells.
pub(crate) type MachinesAndCells<'a> = (&'a [Machine], &'a [CellSummary]);

/// What makes two runs hard to hold against each other, a line each.
pub(crate) fn differences(one: MachinesAndCells<'_>, other: MachinesAndCells<'_>) -> Vec<String> {
    let each = |(machines, _): MachinesAndCells<'_>, of: fn(&Machine) -> String| {
        machines.iter().map(of).collect::<BTreeSet<String>>()
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
    let marked = |(_, cells): MachinesAndCells<'_>| {
        let all: usize = cells.iter().map(|cell| cell.trials.len()).sum();
        let marked: usize = cells.iter().map(|cell| cell.n_marked).sum();
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

/// Percentage points of marked trials; fewer are chance.
const QUIET_DIFFERENCE: usize = 25;
