//! Cost of a standing meter: trials with it, compared with trials of the same repetition without any meter.

use tcpcost_study::{Derived, Figure, MeterName, MeterTrial, Study};

use crate::derive::cell::{CellSummary, Load};
use crate::derive::contrast::Contrast;
use crate::derive::estimate::Estimate;

/// Cost of a meter in a cell.
#[derive(Debug, Clone)]
pub struct MeterCost {
    /// Name of the cell.
    pub cell: String,
    /// The meter; `None` for all of the study's standing meters together.
    pub meter: Option<MeterName>,
    /// Figure that was compared: the rate of a CPU-bound cell, else CPU time by `proc`; or the threads' CPU
    /// time by `rusage`.
    pub of: Figure,
    /// Ratio of CPU time per unit of work, with the meter over without; `None` if it is unknown.
    pub ratio: Option<Estimate>,
}

impl MeterCost {
    /// The meter's name, or `all`.
    pub fn meter_name(&self) -> &'static str {
        self.meter.map_or("all", MeterName::name)
    }
}

/// Costs for each cell: of each of its standing meters, and of all together. `cells` are in the study's
/// order, including those that only measure the cost of a meter.
pub(crate) fn meter_costs(study: &Study, cells: &[CellSummary]) -> Vec<MeterCost> {
    let trials_of = |of: &str, meter: Option<MeterName>| {
        let is_it = |trial: &MeterTrial| trial.cell == of && trial.meter == meter;
        let place = study
            .cells
            .iter()
            .position(|cell| cell.meter_trial.as_ref().is_some_and(is_it));
        cells.get(place?)
    };
    let standing = study.standing_meters();
    let mut costs = Vec::new();
    for (cell, summary) in study.cells.iter().zip(cells) {
        let Some(without) = trials_of(&cell.name, None) else {
            continue;
        };
        let mut with: Vec<(Option<MeterName>, &CellSummary)> = standing
            .iter()
            .filter_map(|&meter| Some((Some(meter), trials_of(&cell.name, Some(meter))?)))
            .collect();
        match standing[..] {
            [only] => with.push((Some(only), summary)),
            _ => with.push((None, summary)),
        }
        for (meter, with) in with {
            // With spinners no CPU is idle: /proc/stat shows 100 % busy.
            let spins = standing.contains(&MeterName::Soak)
                && meter.is_none_or(|meter| meter == MeterName::Soak);
            for of in compared(summary) {
                let ratio = ratio(of, with, without);
                let by_proc = ![rate(summary), Figure::TaskUsPerKib].contains(&of);
                if ratio.is_some() || of != Figure::TaskUsPerKib {
                    costs.push(MeterCost {
                        cell: cell.name.clone(),
                        meter,
                        of,
                        ratio: ratio.filter(|_| !(spins && by_proc)),
                    });
                }
            }
        }
    }
    costs
}

fn rate(cell: &CellSummary) -> Figure {
    if cell.has_transactions() {
        Figure::TransactionsPerS
    } else {
        Figure::Goodput
    }
}

/// Figures that are compared: all CPU time, and the CPU time of the workload's threads. The latter is less,
/// but free of other programs' work.
fn compared(cell: &CellSummary) -> [Figure; 2] {
    let all = match (&cell.load, cell.has_transactions()) {
        (Load::CpuBound, _) => rate(cell),
        (_, true) => Figure::CpuUsPerTransaction,
        (_, false) => Figure::CpuUsPerKib,
    };
    [all, Figure::TaskUsPerKib]
}

/// Ratio of the cost. The cost of a CPU-bound cell is time per unit of work, so its rates are compared the
/// other way round.
fn ratio(of: Figure, with: &CellSummary, without: &CellSummary) -> Option<Estimate> {
    let (from, to) = match of == rate(with) {
        true => (with, without),
        false => (without, with),
    };
    Some(Contrast::new(from, to, Derived::total(of))?.ratio)
}
