//! Knobs that vary among some cells, and which of them always change together.

use crate::derive::cell::CellSummary;

/// Knobs with more than one value among the cells of a group.
///
/// Each value is looked up once, because a study of hundreds of cells and dozens of knobs asks for each pair
/// of knobs and for each curve again.
pub(crate) struct Levels<'a> {
    pub(crate) cells: &'a [&'a CellSummary],
    knobs: Vec<(&'a str, Vec<usize>)>,
}

impl<'a> Levels<'a> {
    /// Finds the knobs among `vary` that vary among `cells`.
    pub(crate) fn new(vary: &'a [String], cells: &'a [&'a CellSummary]) -> Levels<'a> {
        let knobs = vary.iter().map(|knob| {
            let values: Vec<_> = cells.iter().map(|cell| cell.knobs.value(knob)).collect();
            let first = |value| values.iter().position(|other| other == value);
            let levels = values.iter().map(|value| first(value).unwrap_or_default());
            (knob.as_str(), levels.collect())
        });
        let varies = |(_, levels): &(&str, Vec<usize>)| levels.iter().any(|level| *level != 0);
        Levels {
            cells,
            knobs: knobs.filter(varies).collect(),
        }
    }

    /// Names of the knobs, in the study's order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.knobs.iter().map(|(name, _)| *name)
    }

    /// Knobs that always change together with `knob`, including `knob`: no cell distinguishes their effects.
    pub(crate) fn together(&self, knob: &str) -> Vec<&'a str> {
        let of = self.of(knob);
        let same = self.knobs.iter().filter(|(_, levels)| Some(levels) == of);
        same.map(|(name, _)| *name).collect()
    }

    /// Values of the other knobs that vary, as the name of each cell's curve or block.
    pub(crate) fn others(&self, knob: &str) -> Vec<String> {
        let together = self.together(knob);
        let others: Vec<&str> = self
            .names()
            .filter(|name| !together.contains(name))
            .collect();
        let name = |cell: &&CellSummary| {
            let words = others
                .iter()
                .filter_map(|other| Some(format!("{other}={}", cell.knobs.value(other)?)));
            words.collect::<Vec<_>>().join(", ")
        };
        self.cells.iter().map(name).collect()
    }

    fn of(&self, knob: &str) -> Option<&Vec<usize>> {
        let row = self.knobs.iter().find(|(name, _)| *name == knob);
        row.map(|(_, levels)| levels)
    }
}
