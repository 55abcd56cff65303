//! What a standing meter costs: trials with it over trials of the same repetition without any.

use tcpcost_study::{Derived, DerivedKind, MeterTrial, Study};

use crate::cell::{CellSummary, Load};
use crate::estimate::Estimate;

/// What a meter costs a cell.
#[derive(Debug, Clone)]
pub struct MeterCost {
    /// The cell.
    pub cell: String,
    /// The meter, or `all` of the study's standing ones together.
    pub meter: String,
    /// What was compared: the rate of a CPU-bound cell, else CPU by `proc`; or the threads' CPU by `rusage`.
    pub of: DerivedKind,
    /// CPU per unit of work with the meter over that without; absent where it cannot be told.
    pub ratio: Option<Estimate>,
}

/// Of each cell, each of its standing meters and all together. `cells` are in the study's order, those
/// included that only tell what a meter costs.
pub(crate) fn meter_costs(study: &Study, cells: &[CellSummary]) -> Vec<MeterCost> {
    let trials_of = |of: &str, meter: Option<&str>| {
        let is_it = |trial: &MeterTrial| trial.cell == of && trial.meter.as_deref() == meter;
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
        let mut with: Vec<(&str, &CellSummary)> = standing
            .iter()
            .filter_map(|&meter| Some((meter, trials_of(&cell.name, Some(meter))?)))
            .collect();
        match standing[..] {
            [only] => with.push((only, summary)),
            _ => with.push(("all", summary)),
        }
        for (meter, with) in with {
            // Under spinners no CPU idles: /proc/stat reads 100 % busy.
            let spins = standing.contains(&"soak") && ["soak", "all"].contains(&meter);
            for of in compared(summary) {
                let ratio = ratio(of, with, without);
                let by_tick = ![rate(summary), DerivedKind::TaskUsPerKib].contains(&of);
                if ratio.is_some() || of != DerivedKind::TaskUsPerKib {
                    costs.push(MeterCost {
                        cell: cell.name.clone(),
                        meter: meter.to_string(),
                        of,
                        ratio: ratio.filter(|_| !(spins && by_tick)),
                    });
                }
            }
        }
    }
    costs
}

fn rate(cell: &CellSummary) -> DerivedKind {
    if cell.has_transactions() {
        DerivedKind::TransactionsPerS
    } else {
        DerivedKind::Goodput
    }
}

/// All CPU there is, and that of the workload's threads: less, but no work of others is in it.
fn compared(cell: &CellSummary) -> [DerivedKind; 2] {
    let all = match (&cell.load, cell.has_transactions()) {
        (Load::CpuBound, _) => rate(cell),
        (_, true) => DerivedKind::CpuUsPerTransaction,
        (_, false) => DerivedKind::CpuUsPerKib,
    };
    [all, DerivedKind::TaskUsPerKib]
}

/// CPU-bound, cost is time per unit of work, so rates are compared the other way round.
fn ratio(of: DerivedKind, with: &CellSummary, without: &CellSummary) -> Option<Estimate> {
    let by = |cell: &CellSummary| cell.by_repetition(Derived::both(of));
    if of == rate(with) {
        Estimate::ratio(&by(without), &by(with))
    } else {
        Estimate::ratio(&by(with), &by(without))
    }
}
