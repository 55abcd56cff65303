//! Pairs the trials of two cells: trials of the same repetition, which ran next to each other in a random
//! order, with the machine in the same state.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use tcpcost_study::Derived;

use crate::derive::cell::{CellSummary, LeastSpread, TrialValues};
use crate::derive::contrast::{Contrast, common};
use crate::judge::comparable::Incomparable;

impl Contrast {
    /// Ratio of `to` to `from`. `None` without a common repetition, and for cells that are not comparable.
    pub fn new(from: &CellSummary, to: &CellSummary, of: Derived) -> Option<Contrast> {
        if Incomparable::of(from, to, of).is_some() {
            return None;
        }
        let pairs = pairs(from, to, of).into_values();
        match least_of_restores(from, to) {
            Some(least) => Contrast::of_restores(pairs, least),
            None => Contrast::of_pairs(pairs, from.stops_early),
        }
    }

    /// Ratio of the second pair's ratio to the first pair's, from trials of the same repetition.
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
        let (ours, theirs) = (ratios(first), ratios(second));
        match least_of_restores(first[0], second[0]) {
            Some(least) => Contrast::of_restores(common(&ours, &theirs), least),
            None => Contrast::by_repetition(&ours, &theirs, first[0].stops_early),
        }
    }
}

/// Least spread of a ratio of two cells that count instructions: the same repetition is the same snapshot and
/// seed. `None` if time was measured.
fn least_of_restores(from: &CellSummary, to: &CellSummary) -> Option<f64> {
    let both = from.counts_instructions && to.counts_instructions;
    let least = |cell: &CellSummary| LeastSpread::of(&cell.knobs).inside;
    both.then(|| least(from).max(least(to)))
}

/// Values of a quantity in both cells, for each repetition that both have. Pairs whose trials had the machine
/// in different states, for example with distant CPUs, are omitted. If these are the majority, they are used:
/// a state that always comes with a cell is a property of the cell.
fn pairs(from: &CellSummary, to: &CellSummary, of: Derived) -> BTreeMap<u32, (f64, f64)> {
    let (mut like, mut unlike) = (BTreeMap::new(), BTreeMap::new());
    let values = |cell| {
        let mut by_repetition: BTreeMap<u32, Vec<(&BTreeSet<_>, f64)>> = BTreeMap::new();
        for trial in trials(cell) {
            let values = by_repetition.entry(trial.repetition).or_default();
            values.extend(trial.values.get(&of).map(|&value| (&trial.state, value)));
        }
        by_repetition
    };
    let to = values(to);
    for (repetition, froms) in values(from) {
        let Some(tos) = to.get(&repetition) else {
            continue;
        };
        // Quiet states are preferred. Of several tries in one state, the last one counts.
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

/// All trials, marked or not, also those that the cell's own estimates omit.
fn trials(cell: &CellSummary) -> impl Iterator<Item = &TrialValues> {
    cell.trials.iter().chain(&cell.captured_trials)
}
