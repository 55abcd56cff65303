//! Comparisons of cells with each other, and with published figures.

use tcpcost_study::{Derived, Series, Value};

use crate::derive::cell::{CellSummary, Load};
use crate::derive::contrast::Contrast;
use crate::derive::estimate::Estimate;
use crate::derive::number::ABSENT;
use crate::derive::number::show_estimate;
use crate::judge::comparable::Incomparable;
use crate::summary::Summary;

/// Cells that can be compared: they have the same main quantity, and are all at a fixed rate or all
/// CPU-bound.
#[derive(Debug, Clone)]
pub struct Group<'a> {
    /// Main quantity of the cells.
    pub main: Derived,
    /// True if the cells have a fixed rate.
    pub fixed_rate: bool,
    /// The cells, in the study's order.
    pub cells: Vec<&'a CellSummary>,
}

impl<'a> Group<'a> {
    /// The first cell of the group. `None` if `cell` is the first cell.
    fn first_before(&self, cell: &CellSummary) -> Option<&'a CellSummary> {
        let first = self.cells.first()?;
        (!std::ptr::eq(*first, cell)).then_some(first)
    }

    /// Ratio of a cell's main quantity to the first cell's, trial by trial. `None` for the first cell, and
    /// for cells that are not comparable.
    pub fn ratio_to_first(&self, cell: &CellSummary) -> Option<Estimate> {
        let first = self.first_before(cell)?;
        Some(Contrast::new(first, cell, self.main)?.ratio)
    }

    /// Reason why a cell has no ratio to the first cell. `None` if it has a ratio, or no trials.
    pub fn incomparable(&self, cell: &CellSummary) -> Option<Incomparable> {
        let first = self.first_before(cell)?;
        Incomparable::of(first, cell, self.main).filter(|_| first.n > 0 && cell.n > 0)
    }

    /// Text in a table's column: the ratio to the first cell, or a dash, with the reason if there is one.
    pub(crate) fn shown_ratio(&self, cell: &CellSummary) -> String {
        match (self.ratio_to_first(cell), self.incomparable(cell)) {
            (Some(ratio), _) => show_estimate(&ratio, 1.0),
            (None, Some(reason)) => format!("{ABSENT} ({})", reason.in_short()),
            (None, None) => ABSENT.to_string(),
        }
    }

    /// The first cell, if the costs of `cell` by layer and by function may be compared with its costs.
    pub(crate) fn first_by_profile(&self, cell: &CellSummary) -> Option<&'a CellSummary> {
        let first = self.first_before(cell)?;
        Incomparable::by_profile(first, cell)
            .is_none()
            .then_some(first)
    }
}

/// A published figure next to ours.
#[derive(Debug, Clone)]
pub struct PublishedComparison<'a> {
    /// Published curve that the figure belongs to.
    pub series: &'a Series,
    /// Value of the knob.
    pub value: &'a Value,
    /// Published figure.
    pub figure: f64,
    /// Our cell with this value; `None` if there is none.
    pub cell: Option<&'a CellSummary>,
    /// Quantity of our figure: the published quantity, or that of both ends together if a bed cannot
    /// distinguish the ends.
    pub of: Derived,
    /// Our figure.
    pub ours: Option<&'a Estimate>,
}

impl Summary {
    /// The cells in groups that can be compared, in the study's order.
    pub fn groups(&self) -> Vec<Group<'_>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for cell in &self.cells {
            let fixed_rate = cell.load != Load::CpuBound;
            let group = groups
                .iter_mut()
                .find(|group| group.main == cell.main && group.fixed_rate == fixed_rate);
            match group {
                Some(group) => group.cells.push(cell),
                None => groups.push(Group {
                    main: cell.main,
                    fixed_rate,
                    cells: vec![cell],
                }),
            }
        }
        groups
    }

    /// The published figures, each paired with every cell of ours that has its settings.
    pub fn published(&self) -> Vec<PublishedComparison<'_>> {
        let Some(published) = &self.study.published else {
            return Vec::new();
        };
        let mut rows = Vec::new();
        for series in &published.series {
            for (value, figure) in &series.points {
                let before = rows.len();
                for cell in &self.cells {
                    if cell.knobs.has(&series.matching)
                        && cell.knobs.value(&published.knob).as_ref() == Some(value)
                    {
                        let of = cell.has_or_both(published.quantity);
                        rows.push(PublishedComparison {
                            series,
                            value,
                            figure: *figure,
                            cell: Some(cell),
                            of,
                            ours: cell.estimates.get(&of),
                        });
                    }
                }
                if rows.len() == before {
                    rows.push(PublishedComparison {
                        series,
                        value,
                        figure: *figure,
                        cell: None,
                        of: published.quantity,
                        ours: None,
                    });
                }
            }
        }
        rows
    }
}
