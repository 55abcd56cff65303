//! Which trials of two cells are a pair: of the same repetition, so that they ran next to each other in a random order, on a
//! machine in the same state.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use tcpcost_study::Derived;

use crate::cell::{CellSummary, TrialValues};
use crate::comparable::Incomparable;
use crate::contrast::Contrast;

impl Contrast {
    /// `to` over `from`; absent without a repetition that both have, and where the cells are not comparable.
    pub fn new(from: &CellSummary, to: &CellSummary, of: Derived) -> Option<Contrast> {
        if Incomparable::of(from, to, of).is_some() {
            return None;
        }
        let pairs = pairs(from, to, of).into_values();
        Contrast::of_pairs(pairs, from.stops_early)
    }

    /// How many times as much the second pair of cells differs as the first: the ratio of their ratios, of the same repetition.
    pub fn of_contrasts(
        first: [&CellSummary; 2],
        second: [&CellSummary; 2],
        of: Derived,
    ) -> Option<Contrast> {
        let refuses = |[from, to]: [&CellSummary; 2]| Incomparable::of(from, to, of).is_some();
        if refuses(first) || refuses(second) {
            return None;
        }
        let ratios = |[from, to]: [&CellSummary; 2]| {
            let pairs = pairs(from, to, of).into_iter();
            let held = pairs.filter(|(_, (from, _))| *from != 0.0);
            held.map(|(repetition, (from, to))| (repetition, to / from))
                .collect::<Vec<_>>()
        };
        Contrast::by_repetition(&ratios(first), &ratios(second), first[0].stops_early)
    }
}

/// A quantity of both cells, a pair for each repetition that both have. Pairs whose trials met the machine in
/// unlike states (one with its CPUs far from each other, say) stand aside, unless they are the most: then a
/// state that always comes with a cell is the cell's.
fn pairs(from: &CellSummary, to: &CellSummary, of: Derived) -> BTreeMap<u32, (f64, f64)> {
    let (mut like, mut unlike) = (BTreeMap::new(), BTreeMap::new());
    let repetitions: BTreeSet<u32> = trials(from).map(|trial| trial.repetition).collect();
    for repetition in repetitions {
        let values = |cell: &CellSummary| -> Vec<(BTreeSet<_>, f64)> {
            let of_it = trials(cell).filter(|trial| trial.repetition == repetition);
            of_it
                .filter_map(|trial| Some((trial.state.clone(), *trial.values.get(&of)?)))
                .collect()
        };
        let (froms, tos) = (values(from), values(to));
        // Quiet ones first; of tries in one state the last.
        let both = froms
            .iter()
            .flat_map(|from| tos.iter().map(move |to| (from, to)))
            .filter(|((from, _), (to, _))| from == to)
            .max_by_key(|((state, _), _)| Reverse(state.len()));
        match both {
            Some(((_, from), (_, to))) => {
                like.insert(repetition, (*from, *to));
            }
            None => unlike.extend(
                froms
                    .last()
                    .zip(tos.last())
                    .map(|(from, to)| (repetition, (from.1, to.1))),
            ),
        }
    }
    if unlike.len() > like.len() {
        like.extend(unlike);
    }
    like
}

/// All of them, marked or not, whatever else the cell's own estimates are made of.
fn trials(cell: &CellSummary) -> impl Iterator<Item = &TrialValues> {
    cell.trials.iter().chain(&cell.captured_trials)
}
