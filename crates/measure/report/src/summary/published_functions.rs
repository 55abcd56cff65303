//! Published ratios of functions next to ours.

use tcpcost_study::{FunctionRatio, Scope, Study};

use crate::derive::cell::CellSummary;
use crate::derive::estimate::Estimate;
use crate::derive::number::{precise, show_estimate};
use crate::judge::held::Held;

/// A published ratio of a function beside ours.
pub(crate) struct PublishedRatio<'a> {
    /// Names and published figure.
    pub(crate) of: &'a FunctionRatio,
    /// Ours: the cell's cost with callees over the first cell's.
    pub(crate) ours: Option<Estimate>,
}

impl PublishedRatio<'_> {
    /// Id of the statement that it tests, with the result; `None` without a statement.
    pub(crate) fn tests(&self) -> Option<(&str, Held)> {
        let (id, at_least, at_most) = self.of.tests.as_ref()?;
        Some((id, Held::within(self.ours.as_ref(), *at_most, *at_least)))
    }

    /// The ratio as a sentence.
    pub(crate) fn sentence(&self) -> String {
        let FunctionRatio {
            theirs,
            ours,
            published,
            ..
        } = self.of;
        let theirs = format!("({theirs} {} as published)", precise(*published, 2));
        match &self.ours {
            Some(found) => format!(
                "{ours} costs {} times as much {theirs}.",
                show_estimate(found, 1.0)
            ),
            None => format!("{ours} was not seen {theirs}."),
        }
    }
}

/// The study's published functions, and our ratios; none where it has none.
pub(crate) fn ratios<'a>(study: &'a Study, cells: &[CellSummary]) -> Vec<PublishedRatio<'a>> {
    let Some(published) = &study.published_functions else {
        return Vec::new();
    };
    let cost_of = |cell: &CellSummary, name: &str| {
        let mut profiles = cell.profiles.iter();
        let profile = profiles.find(|profile| profile.scope == Scope::Host(published.host))?;
        Some(profile.function(name)?.inclusive.clone())
    };
    let ours = |name: &str| {
        let named = |name: &str| cells.iter().find(|cell| cell.name == name);
        let first = match &published.first {
            Some(first) => named(first)?,
            None => cells.first()?,
        };
        cost_of(named(&published.cell)?, name)?.ratio(&cost_of(first, name)?)
    };
    let rows = published.ratios.iter();
    rows.map(|of| PublishedRatio {
        of,
        ours: ours(&of.ours),
    })
    .collect()
}
