//! Rows of the tables by layer and by function, as the text and the page share them.

use tcpcost_study::Figure;
use tcpcost_study::Scope;

use super::flame::samples;
use crate::cell::CellSummary;
use crate::compare::Group;
use crate::estimate::Estimate;
use crate::number::{show_estimate, show_percent_fine};
use crate::profile::{Cost, Profile};
use crate::scope::whose;
use crate::summary::Summary;
use crate::table::ABSENT;

/// A layer, or a function.
pub(crate) struct Row {
    pub(crate) name: String,
    /// Share of the samples in the function itself, or in the layer.
    pub(crate) own: String,
    /// Share of the samples in the function and its callees. Only for functions.
    pub(crate) inclusive: String,
    /// CPU ms per second.
    pub(crate) ms_per_s: String,
    /// CPU µs per KiB or per transaction.
    pub(crate) us_per_unit: String,
    /// Ratio of `us_per_unit` to the first cell's.
    pub(crate) ratio: String,
}

/// One end's tables.
pub(crate) struct Rows {
    /// `client`, `server`, `both ends`.
    pub(crate) whose: String,
    pub(crate) layers: Vec<Row>,
    pub(crate) functions: Vec<Row>,
}

/// A cell's tables; none without call chains.
pub(crate) fn rows(group: &Group<'_>, cell: &CellSummary) -> Vec<Rows> {
    let first = group.first_by_profile(cell);
    let of_profile = |profile: &Profile| {
        let before = first.and_then(|first| profile.of(&first.profiles));
        let layers = profile.layers.iter().map(|(layer, cost)| {
            let before = before.and_then(|before| before.layer(*layer));
            let (name, none) = (layer.name().to_string(), String::new());
            row(name, show_percent_fine(&cost.share), none, cost, before)
        });
        let functions = profile.functions.iter().map(|function| {
            let before = before.and_then(|before| before.function(&function.name));
            let cost = &function.inclusive;
            row(
                function.name.clone(),
                show_percent_fine(&function.exclusive.share),
                show_percent_fine(&cost.share),
                cost,
                before.map(|before| &before.inclusive),
            )
        });
        Rows {
            whose: whose(profile.scope),
            layers: layers.collect(),
            functions: functions.collect(),
        }
    };
    cell.profiles.iter().map(of_profile).collect()
}

fn row(name: String, own: String, inclusive: String, cost: &Cost, before: Option<&Cost>) -> Row {
    let shown = |estimate: Option<Estimate>, scale| {
        estimate.map_or(ABSENT.to_string(), |estimate| {
            show_estimate(&estimate, scale)
        })
    };
    Row {
        name,
        own,
        inclusive,
        ms_per_s: shown(cost.us_per_s, 1e-3),
        us_per_unit: shown(cost.us_per_unit, 1.0),
        ratio: shown(before.and_then(|before| cost.ratio(before)), 1.0),
    }
}

/// A published ratio of a function beside ours.
pub(crate) struct PublishedRatio<'a> {
    pub(crate) theirs: &'a str,
    pub(crate) function: &'a str,
    pub(crate) published: f64,
    /// Ours: the cell's cost with callees over the first cell's.
    pub(crate) ours: Option<Estimate>,
}

/// The study's published functions, and our ratios; none where it has none.
pub(crate) fn published(summary: &Summary) -> Vec<PublishedRatio<'_>> {
    let Some(published) = &summary.study.published_functions else {
        return Vec::new();
    };
    let cost_of = |cell: &CellSummary, name: &str| {
        let mut profiles = cell.profiles.iter();
        let profile = profiles.find(|profile| profile.scope == Scope::Host(published.host))?;
        Some(profile.function(name)?.inclusive.clone())
    };
    let ours = |name: &str| {
        let groups = summary.groups().into_iter();
        let mut pairs = groups.filter_map(|group| {
            let mut cells = group.cells.iter();
            Some((
                *cells.clone().next()?,
                *cells.find(|cell| cell.name == published.cell)?,
            ))
        });
        let (first, cell) = pairs.next()?;
        cost_of(cell, name)?.ratio(&cost_of(first, name)?)
    };
    let rows = published.ratios.iter();
    rows.map(|(theirs, function, ratio)| PublishedRatio {
        theirs,
        function,
        published: *ratio,
        ours: ours(function),
    })
    .collect()
}

/// A name for a column: those of Rust's functions may fill a screen.
pub(crate) fn shortened(name: &str) -> String {
    const LONGEST: usize = 32;
    match name.char_indices().nth(LONGEST) {
        Some(_) => name.chars().take(LONGEST - 1).chain(['…']).collect(),
        None => name.to_string(),
    }
}

/// The unit of a cell's costs.
pub(crate) fn unit(cell: &CellSummary) -> &'static str {
    if cell.has_transactions() {
        Figure::CpuUsPerTransaction.unit()
    } else {
        Figure::CpuUsPerKib.unit()
    }
}

/// Notes on the samples of each cell with call chains, and on how to read the tables.
pub(crate) fn notes<'a>(cells: impl Iterator<Item = &'a CellSummary>) -> Vec<String> {
    let mut lines: Vec<String> = cells
        .filter_map(|cell| Some(format!("{}: {}", cell.name, samples(cell)?)))
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
