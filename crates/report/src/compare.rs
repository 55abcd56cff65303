//! Cells against each other, and against published figures.

use tcpcost_study::{Derived, Series, Value};

use crate::cell::{CellSummary, Load};
use crate::comparable::Incomparable;
use crate::contrast::Contrast;
use crate::estimate::Estimate;
use crate::number::show_estimate;
use crate::summary::Summary;
use crate::table::ABSENT;

/// Cells that can be held against each other: the same main quantity, all at a fixed rate or all
/// CPU-bound.
#[derive(Debug, Clone)]
pub struct Group<'a> {
    /// Their main quantity.
    pub main: Derived,
    /// Whether at a fixed rate.
    pub fixed_rate: bool,
    /// The cells, in the study's order.
    pub cells: Vec<&'a CellSummary>,
}

impl<'a> Group<'a> {
    /// The first cell; `None` for the first itself.
    fn first_before(&self, cell: &CellSummary) -> Option<&'a CellSummary> {
        let first = self.cells.first()?;
        (!std::ptr::eq(*first, cell)).then_some(first)
    }

    /// A cell's main quantity over the first cell's, trial by trial; absent for the first itself, and where both are not
    /// comparable.
    pub fn ratio_to_first(&self, cell: &CellSummary) -> Option<Estimate> {
        let first = self.first_before(cell)?;
        Some(Contrast::new(first, cell, self.main)?.ratio)
    }

    /// Why a cell has no ratio to the first; `None` if it has one, or no trials.
    pub fn incomparable(&self, cell: &CellSummary) -> Option<Incomparable> {
        let first = self.first_before(cell)?;
        Incomparable::of(first, cell, self.main).filter(|_| first.n > 0 && cell.n > 0)
    }

    /// The column of a table: the ratio to the first, or a dash, with the reason where there is one.
    pub(crate) fn shown_ratio(&self, cell: &CellSummary) -> String {
        match (self.ratio_to_first(cell), self.incomparable(cell)) {
            (Some(ratio), _) => show_estimate(&ratio, 1.0),
            (None, Some(reason)) => format!("{ABSENT} ({})", reason.in_short()),
            (None, None) => ABSENT.to_string(),
        }
    }

    /// The first cell, where the costs of another cell by layer and by function may be related to its costs.
    pub(crate) fn first_by_profile(&self, cell: &CellSummary) -> Option<&'a CellSummary> {
        let first = self.first_before(cell)?;
        Incomparable::by_profile(first, cell)
            .is_none()
            .then_some(first)
    }
}

/// One published figure beside ours.
#[derive(Debug, Clone)]
pub struct PublishedComparison<'a> {
    /// The curve it is of.
    pub series: &'a Series,
    /// The knob's value.
    pub value: &'a Value,
    /// The figure.
    pub figure: f64,
    /// A cell of ours with this value; absent where we have none.
    pub cell: Option<&'a CellSummary>,
    /// What our figure is: the published quantity, or both ends together where a bed cannot tell
    /// the ends apart.
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

    /// The published figures, each beside every cell of ours that it belongs to.
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
