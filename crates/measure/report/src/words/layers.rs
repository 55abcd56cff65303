//! Sentences about the layers that cause a difference between two cells with call chains.

use crate::derive::cell::CellSummary;
use crate::derive::estimate::Estimate;
use crate::derive::number::show_estimate;
use crate::derive::profile::{Layer, Profile};
use crate::derive::scope::whose;
use crate::summary::Summary;

/// Limit on the layers in a sentence.
const TOLD: usize = 3;

/// A sentence for each host of two cells whose call chains were compared: the two cells of a study, or the
/// first cell and the one with published functions.
pub(crate) fn sentences(summary: &Summary) -> Vec<String> {
    let published = summary.study.published_functions.as_ref();
    let mut sentences = Vec::new();
    for group in summary.groups() {
        let named = |name: &str| group.cells.iter().find(|cell| cell.name == name);
        let first = published.and_then(|published| published.first.as_deref());
        let Some(first) = first.map_or(group.cells.first(), named) else {
            continue;
        };
        let other = match published {
            Some(published) => named(&published.cell),
            None if group.cells.len() == 2 => group.cells.last(),
            None => None,
        };
        let Some(other) = other.filter(|other| group.first_by_profile(other).is_some()) else {
            continue;
        };
        for profile in &other.profiles {
            if let Some(before) = profile.of(&first.profiles) {
                sentences.push(sentence((first, before), (other, profile)));
            }
        }
    }
    sentences
}

/// Sentence such as `4000 connections instead of 100, client: TCP input and ACK grew most, by 0.31 [0.28,
/// 0.35] µs per KiB (to 4.1 [3.8, 4.4] times); then driver, by 0.12 [0.10, 0.13] (to 2.9 [2.7, 3.3] times).`
fn sentence(first: (&CellSummary, &Profile), other: (&CellSummary, &Profile)) -> String {
    let mut grown: Vec<(Layer, Estimate, Option<Estimate>)> = Vec::new();
    for (layer, cost) in &other.1.layers {
        let before = first.1.layer(*layer);
        let growth = before.and_then(|before| cost.growth(before));
        if let Some(growth) = growth.filter(|growth| growth.lo.is_some_and(|lo| lo > 0.0)) {
            grown.push((*layer, growth, before.and_then(|before| cost.ratio(before))));
        }
    }
    grown.sort_by(|(_, a, _), (_, b, _)| b.median.total_cmp(&a.median));
    let subject = format!(
        "{} instead of {}, {}",
        other.0.name,
        first.0.name,
        whose(other.1.scope)
    );
    if grown.is_empty() {
        return format!("{subject}: no layer is established to cost more.");
    }
    let told: Vec<String> = grown
        .iter()
        .take(TOLD)
        .enumerate()
        .map(|(place, (layer, growth, ratio))| {
            let by = show_estimate(growth, 1.0);
            let (order, unit) = match place {
                0 => ("", format!(" {}", other.0.cost_unit())),
                _ => ("then ", String::new()),
            };
            let most = if place == 0 { " grew most" } else { "" };
            let times = ratio.map_or(String::new(), |ratio| {
                format!(" (to {} times)", show_estimate(&ratio, 1.0))
            });
            format!("{order}{}{most}, by {by}{unit}{times}", layer.name())
        })
        .collect();
    format!("{subject}: {}.", told.join("; "))
}
