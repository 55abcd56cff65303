//! What a standing meter costs: trials with it over trials of the same repetition without any.

use tcpcost_study::{Derived, Figure, MeterName, MeterTrial, Study};

use crate::cell::{CellSummary, Load};
use crate::contrast::Contrast;
use crate::estimate::Estimate;

/// What a meter costs a cell.
#[derive(Debug, Clone)]
pub struct MeterCost {
    /// The cell.
    pub cell: String,
    /// The meter; `None` is all of the study's standing ones together.
    pub meter: Option<MeterName>,
    /// What was compared: the rate of a CPU-bound cell, else CPU by `proc`; or the threads' CPU by `rusage`.
    pub of: Figure,
    /// CPU per unit of work with the meter over that without; absent where it cannot be told.
    pub ratio: Option<Estimate>,
}

impl MeterCost {
    /// The meter's name, or `all`.
    pub fn meter_name(&self) -> &'static str {
        self.meter.map_or("all", MeterName::name)
    }
}

/// Of each cell, each of its standing meters and all together. `cells` are in the study's order, those
/// included that only tell what a meter costs.
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
            // Under spinners no CPU idles: /proc/stat reads 100 % busy.
            let spins = standing.contains(&MeterName::Soak)
                && meter.is_none_or(|meter| meter == MeterName::Soak);
            for of in compared(summary) {
                let ratio = ratio(of, with, without);
                let by_tick = ![rate(summary), Figure::TaskUsPerKib].contains(&of);
                if ratio.is_some() || of != Figure::TaskUsPerKib {
                    costs.push(MeterCost {
                        cell: cell.name.clone(),
                        meter,
                        of,
                        ratio: ratio.filter(|_| !(spins && by_tick)),
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

/// All CPU there is, and that of the workload's threads: less, but no work of others is in it.
fn compared(cell: &CellSummary) -> [Figure; 2] {
    let all = match (&cell.load, cell.has_transactions()) {
        (Load::CpuBound, _) => rate(cell),
        (_, true) => Figure::CpuUsPerTransaction,
        (_, false) => Figure::CpuUsPerKib,
    };
    [all, Figure::TaskUsPerKib]
}

/// CPU-bound, cost is time per unit of work, so rates are compared the other way round.
fn ratio(of: Figure, with: &CellSummary, without: &CellSummary) -> Option<Estimate> {
    let (from, to) = match of == rate(with) {
        true => (with, without),
        false => (without, with),
    };
    Some(Contrast::new(from, to, Derived::total(of))?.ratio)
}
