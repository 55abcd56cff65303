//! A published table next to our results, row by row.

use serde::Serialize;
use tcpcost_study::{PublishedTable, Value};

use crate::derive::cell::CellSummary;
use crate::derive::estimate::Estimate;
use crate::summary::Summary;

/// A row of a published table.
#[derive(Debug, Serialize)]
pub(crate) struct Row<'a> {
    /// Setting, one value for each knob of the table.
    pub(crate) setting: &'a [Value],
    /// Published figures, one for each column.
    pub(crate) published: &'a [f64],
    /// Our cells of that setting.
    pub(crate) ours: Vec<Ours<'a>>,
}

/// One of our cells.
#[derive(Debug, Serialize)]
pub(crate) struct Ours<'a> {
    /// Name of the cell.
    pub(crate) cell: &'a str,
    /// Our estimates, one for each column.
    pub(crate) figures: Vec<Option<&'a Estimate>>,
}

/// The study's published table, with our cells of each row's setting. A quick run lacks some cells.
pub(crate) fn rows(summary: &Summary) -> Option<(&PublishedTable, Vec<Row<'_>>)> {
    let table = summary.study.published_table.as_ref()?;
    let is_of = |cell: &CellSummary, setting: &[Value]| {
        let mut knobs = table.knobs.iter().zip(setting);
        cell.knobs.has(&table.matching)
            && knobs.all(|(knob, value)| cell.knobs.value(knob).as_ref() == Some(value))
    };
    let rows = table.rows.iter().map(|(setting, published)| {
        let cells = summary.cells.iter().filter(|cell| is_of(cell, setting));
        let ours = cells.map(|cell| Ours {
            cell: &cell.name,
            figures: table
                .columns
                .iter()
                .map(|(_, of)| cell.estimates.get(&cell.has_or_both(*of)))
                .collect(),
        });
        Row {
            setting,
            published,
            ours: ours.collect(),
        }
    });
    Some((table, rows.collect()))
}

/// The published table for the JSON document.
#[derive(Serialize)]
pub(crate) struct TableJson<'a> {
    source: &'a str,
    knobs: &'a [String],
    columns: Vec<ColumnJson<'a>>,
    rows: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct ColumnJson<'a> {
    heading: &'a str,
    quantity: String,
}

pub(crate) fn json(summary: &Summary) -> Option<TableJson<'_>> {
    let (table, rows) = rows(summary)?;
    let columns = table.columns.iter().map(|(heading, quantity)| ColumnJson {
        heading,
        quantity: quantity.to_string(),
    });
    Some(TableJson {
        source: &table.source,
        knobs: &table.knobs,
        columns: columns.collect(),
        rows,
    })
}
