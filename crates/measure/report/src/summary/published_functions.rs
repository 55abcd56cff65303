//! Published ratios of functions next to ours.

use tcpcost_study::Scope;

use crate::derive::cell::CellSummary;
use crate::derive::estimate::Estimate;
use crate::summary::Summary;

/// A published ratio of a function beside ours.
pub(crate) struct PublishedRatio<'a> {
    pub(crate) theirs: &'a str,
    pub(crate) function: &'a str,
    pub(crate) published: f64,
    /// Ours: the cell's cost with callees over the first cell's.
    pub(crate) ours: Option<Estimate>,
}

/// The study's published functions, and our ratios; none where it has none.
pub(crate) fn ratios(summary: &Summary) -> Vec<PublishedRatio<'_>> {
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
