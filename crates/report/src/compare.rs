//! Cells against each other, and against published figures.

use tcpcost_study::{Derived, Series, Value};

use crate::cell::{CellSummary, Load};
use crate::contrast::Contrast;
use crate::estimate::Estimate;
use crate::summary::Summary;

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
    /// A cell's main quantity over the first cell's, trial by trial; absent for the first itself.
    pub fn ratio_to_first(&self, cell: &CellSummary) -> Option<Estimate> {
        let first = self.cells.first()?;
        if std::ptr::eq(*first, cell) {
            return None;
        }
        Some(Contrast::new(first, cell, self.main)?.ratio)
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
