//! Section of the page: tables by layer and function, a flame graph for each cell, and the cost of
//! the meters.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, html};

use super::flame::flame;
use super::table::{Row, Rows, notes, published, rows, unit};
use crate::cell::CellSummary;
use crate::compare::Group;
use crate::number::{show, show_estimate};
use crate::summary::Summary;
use crate::table::ABSENT;

/// Profiles of every cell that has call chains; empty if no cell has any.
pub(crate) fn profiles(summary: &Summary) -> Markup {
    let sampled = |cell: &CellSummary| !cell.profiles.is_empty();
    html! {
        @if summary.cells.iter().any(sampled) {
            h2 { "Which layers and functions" }
            @for group in summary.groups() {
                @for cell in group.cells.iter().filter(|cell| sampled(cell)) {
                    (of_cell(&group, cell))
                }
            }
            ul.notes { @for note in notes(summary.cells.iter()) { li { (note) } } }
            (published_functions(summary))
        }
    }
}

fn published_functions(summary: &Summary) -> Markup {
    html! {
        @if let Some(of) = &summary.study.published_functions {
            div.scroll { table {
                caption { (of.source) ", and ours: " (of.cell) ", " (of.host) ", ratio to first" }
                thead { tr {
                    th scope="col" { "function" }
                    th scope="col" { "published" }
                    th scope="col" { "ours" }
                    th.left scope="col" { "our function" }
                } }
                tbody { @for row in published(summary) { tr {
                    th scope="row" { (row.theirs) }
                    td { (show(row.published)) }
                    td { (row.ours.map_or(ABSENT.to_string(), |ours| show_estimate(&ours, 1.0))) }
                    td.left { (row.function) }
                } } }
            } }
        }
    }
}

fn of_cell(group: &Group<'_>, cell: &CellSummary) -> Markup {
    let ends = rows(group, cell);
    let unit = unit(cell);
    html! {
        details {
            summary { (cell.name) }
            @for Rows { whose, layers, .. } in &ends {
                (table(&format!("Layers, {whose}"), layers, false, unit))
            }
            // The flame graph is a document of its own, so that its script and names do not mix
            // with this page's. The security policy of this page applies to it too.
            @if let Some(svg) = flame(cell) {
                iframe.flame loading="lazy" src={ "data:image/svg+xml;base64," (STANDARD.encode(svg)) }
                    title={ "Flame graph, " (cell.name) } {}
            }
            @for Rows { whose, functions, .. } in &ends {
                details {
                    summary { "Functions, " (whose) }
                    (table("Cost: with what they call", functions, true, unit))
                }
            }
        }
    }
}

fn table(caption: &str, rows: &[Row], of_functions: bool, unit: &str) -> Markup {
    let with_ratio = rows.iter().any(|row| row.ratio != ABSENT);
    html! {
        div.scroll { table {
            caption { (caption) }
            thead { tr {
                th scope="col" { }
                th scope="col" { "% of samples" @if of_functions { ", itself" } }
                @if of_functions { th scope="col" { "%, with what it calls" } }
                th scope="col" { "CPU ms/s" }
                th scope="col" { "CPU " (unit) }
                @if with_ratio { th scope="col" { "ratio to first" } }
            } }
            tbody { @for row in rows { tr {
                th scope="row" { (row.name) }
                td { (row.own) }
                @if of_functions { td { (row.inclusive) } }
                td { (row.ms_per_s) }
                td { (row.us_per_unit) }
                @if with_ratio { td { (row.ratio) } }
            } } }
        } }
    }
}

/// CPU cost of each meter, as a table; empty if the study did not ask for it.
pub(crate) fn meter_costs(summary: &Summary) -> Markup {
    html! {
        @if !summary.meter_costs.is_empty() {
            h2 { "Cost of the meters themselves" }
            div.scroll { table {
                caption { "CPU per unit of work with the meter over that without, trials of the same repetition" }
                thead { tr {
                    th scope="col" { "cell" }
                    th.left scope="col" { "meter" }
                    th scope="col" { "× without" }
                    th.left scope="col" { "by" }
                    th scope="col" { "n" }
                } }
                tbody { @for cost in &summary.meter_costs { tr {
                    th scope="row" { (cost.cell) }
                    td.left { (cost.meter_name()) }
                    td { (cost.ratio.map_or(ABSENT.to_string(), |ratio| show_estimate(&ratio, 1.0))) }
                    td.left { (cost.of.name()) }
                    td { (cost.ratio.map_or(0, |ratio| ratio.n)) }
                } } }
            } }
        }
    }
}
