//! The knobs that vary among some cells, and which of them move together.

use crate::cell::CellSummary;
use crate::summary::Summary;

/// Knobs with more than one value among the cells of a group.
///
/// Each value is looked up once: a study of hundreds of cells and dozens of knobs asks for each pair
/// of knobs and each curve again.
pub(crate) struct Levels<'a> {
    pub(crate) cells: &'a [&'a CellSummary],
    knobs: Vec<(&'a str, Vec<usize>)>,
}

impl<'a> Levels<'a> {
    /// Of these cells.
    pub(crate) fn new(summary: &'a Summary, cells: &'a [&'a CellSummary]) -> Levels<'a> {
        let knobs = summary.study.vary.iter().map(|knob| {
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

    /// Their names, in the study's order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.knobs.iter().map(|(name, _)| *name)
    }

    /// The knobs whose effects no cell tells from this one's, itself among them.
    pub(crate) fn together(&self, knob: &str) -> Vec<&'a str> {
        let of = self.of(knob);
        let same = self.knobs.iter().filter(|(_, levels)| Some(levels) == of);
        same.map(|(name, _)| *name).collect()
    }

    /// The other knobs that vary, as the name of the curve or block that each cell belongs to.
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
