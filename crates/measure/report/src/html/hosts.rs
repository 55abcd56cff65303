//! Tables of hosts: those that a study names, and those that met in rounds.

use maud::{Markup, html};

use super::two_sizes;
use crate::fleet_prose;
use crate::host_table;
use crate::summary::Summary;

/// Outliers of each cell whose hosts met in rounds of pairs, and a table of all its hosts.
pub(super) fn fleets(summary: &Summary) -> Markup {
    html! {
        @for cell in &summary.cells {
            @if let Some(fleet) = &cell.fleet {
                h2 { (fleet_prose::title(&cell.name)) }
                ul.notes {
                    @for line in fleet_prose::lines(fleet, summary.study.measure.min_effect) { li { (line) } }
                }
                div.scroll { table {
                    thead { tr {
                        th scope="col" { "host" }
                        @for title in host_table::fleet_columns(fleet) { th scope="col" { (title) } }
                    } }
                    tbody { @for row in host_table::fleet_rows(fleet) { (table_row(&row)) } }
                } }
            }
        }
    }
}

/// Table of hosts for each cell, grouped by the meter of their CPU time; and the time between the
/// hosts' starts.
pub(super) fn hosts(summary: &Summary) -> Markup {
    let cells = || {
        summary
            .cells
            .iter()
            .filter(|cell| !cell.host_rows.is_empty())
    };
    html! {
        @if cells().next().is_some() {
            h2 { (host_table::TITLE) }
            @for cell in cells() {
                div.scroll { table {
                    caption { (cell.name) }
                    thead { tr {
                        @for title in host_table::COLUMNS { th scope="col" { (title) } }
                    } }
                    @for rows in cell.host_rows.chunk_by(|a, b| a.tier == b.tier) {
                        tbody {
                            tr { th.left scope="rowgroup" colspan=(host_table::COLUMNS.len()) { (rows[0].tier.label()) } }
                            @for row in rows { (table_row(&host_table::row(row))) }
                        }
                    }
                } }
            }
            ul.notes { @for line in cells().filter_map(host_table::skew) { li { (line) } } }
        }
    }
}

fn table_row(row: &[String]) -> Markup {
    html! {
        tr {
            th scope="row" { (row[0]) }
            @for shown in &row[1..] { td { (two_sizes(shown)) } }
        }
    }
}
