//! CPU time by layer and by function.

use super::model::{Cell, Column, Level, Section, Table};
use super::numbers::estimate;
use crate::derive::cell::CellSummary;
use crate::derive::number::{show, show_percent_fine};
use crate::derive::profile::{Cost, Profile};
use crate::derive::scope::whose;
use crate::summary::Summary;
use crate::summary::groups::Group;

/// Number of functions of a cell in the text, those with the largest share of their own. The page has all.
const FUNCTIONS: usize = 8;

/// Limit on the characters of a function's name in the text: those of Rust may fill a screen.
const NAME_MAX: usize = 32;

/// Tables and flame graph of each cell with call chains, then notes.
pub(super) fn profiles(summary: &Summary) -> Vec<Section<'_>> {
    let mut all = Vec::new();
    for group in summary.groups() {
        for &cell in group.cells.iter().filter(|cell| !cell.profiles.is_empty()) {
            let heading = format!("CPU time by layer and by function, {}", cell.name);
            let mut section = Section::new(Level::Details, heading).folded();
            section.tables = tables(&group, cell);
            section.flame = Some(cell);
            all.push(section);
        }
    }
    all.push(Section::new(Level::Details, "").notes(notes(&summary.cells)));
    all
}

/// A table for each end, or for both together.
fn tables(group: &Group<'_>, cell: &CellSummary) -> Vec<Table> {
    let first = group.first_by_profile(cell);
    let of_end = |profile: &Profile| {
        let before = first.and_then(|first| profile.of(&first.profiles));
        let mut table = Table::new([
            Column::name(whose(profile.scope)),
            Column::number("% of samples"),
            Column::number("with callees"),
            Column::number("CPU ms/s"),
            Column::number(cell.cost_unit()),
            Column::number("ratio to first"),
        ]);
        table.name_max = NAME_MAX;
        table.heading("layers");
        for (layer, cost) in &profile.layers {
            let before = before.and_then(|before| before.layer(*layer));
            let own = [show_percent_fine(&cost.share), String::new()];
            table.row(row(layer.name(), own, cost, before));
        }
        table.heading("functions, cost with callees");
        for (place, function) in profile.functions.iter().enumerate() {
            let before = before.and_then(|before| before.function(&function.name));
            let cost = &function.inclusive;
            let shares = [&function.exclusive.share, &cost.share].map(show_percent_fine);
            let level = match place < FUNCTIONS {
                true => Level::Details,
                false => Level::Page,
            };
            let before = before.map(|before| &before.inclusive);
            table.row_at(level, row(&function.name, shares, cost, before));
        }
        table
    };
    cell.profiles.iter().map(of_end).collect()
}

fn row(name: &str, shares: [String; 2], cost: &Cost, before: Option<&Cost>) -> Vec<Cell> {
    let [own, with_callees] = shares;
    let ratio = before.and_then(|before| cost.ratio(before));
    vec![
        name.into(),
        own.into(),
        with_callees.into(),
        estimate(cost.us_per_s.as_ref(), 1e-3).into(),
        estimate(cost.us_per_unit.as_ref(), 1.0).into(),
        estimate(ratio.as_ref(), 1.0).into(),
    ]
}

/// Notes on the samples of each cell with call chains, and on how to read the tables.
fn notes(cells: &[CellSummary]) -> Vec<String> {
    let sampled = cells.iter().filter(|cell| !cell.profiles.is_empty());
    let mut lines: Vec<String> = sampled
        .map(|cell| {
            let of_ends: Vec<String> = cell.profiles.iter().map(samples).collect();
            format!("{}: Samples: {}.", cell.name, of_ends.join("; "))
        })
        .collect();
    if !lines.is_empty() {
        lines.push(
            "Shares are of the samples of the trial's own work: softirqs and interrupts are separate, \
             idle time and tasks of others are omitted. Costs are these shares of the CPU time above."
                .to_string(),
        );
    }
    lines
}

/// Number of samples of an end, and what took them.
fn samples(profile: &Profile) -> String {
    let end = whose(profile.scope);
    let mut text = format!("{end} {} by {}", profile.samples, profile.source);
    if profile.samples_unknown > 0 {
        let percent = profile.samples_unknown as f64 / profile.samples as f64 * 100.0;
        text += &format!(" ({} % with a function unknown)", show(percent));
    }
    if profile.samples_left_out > 0 {
        text += &format!(", {} in rare chains omitted", profile.samples_left_out);
    }
    text
}
