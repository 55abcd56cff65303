//! Flame graphs: of a cell, and of what a cell costs more or less than another.
//!
//! Widths are CPU per KiB (or per transaction), not samples, so that two cells of any amount of work can be
//! held against each other and the two ends have the weight that they have in the table.

use std::collections::BTreeMap;

use inferno::flamegraph::{self, Options};

use crate::cell::CellSummary;
use crate::number::show;
use crate::scope::whose;

/// One cell's flame graph, an SVG; absent without call chains.
pub fn flame(cell: &CellSummary) -> Option<String> {
    let widths = Widths::of(cell)?;
    let lines = widths
        .lines
        .iter()
        .map(|(line, ps)| format!("{line} {ps:.0}"));
    let subtitle = format!("{}: {}", cell.name, told(cell));
    draw(
        "Where the CPU time went",
        &subtitle,
        widths.unit,
        lines.collect(),
    )
}

/// What `cell` costs more (red) and less (blue) than `first`, each function by itself; widths are the cell's,
/// so what only the first has is not to be seen: draw the two the other way round for that.
///
/// # Errors
/// One line: a cell without call chains, or two whose costs are of different things.
pub fn flame_difference(first: &CellSummary, cell: &CellSummary) -> Result<String, String> {
    let widths = |of: &CellSummary| {
        Widths::of(of).ok_or_else(|| {
            format!(
                "\"{}\" has no call chains: run it with the meter profile",
                of.name
            )
        })
    };
    let (before, after) = (widths(first)?, widths(cell)?);
    if before.unit != after.unit {
        return Err(format!(
            "\"{}\" is in {} and \"{}\" in {}: there is no difference of the two",
            first.name, before.unit, cell.name, after.unit
        ));
    }
    let mut both: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for (line, ps) in &before.lines {
        both.entry(line).or_default().0 = *ps;
    }
    for (line, ps) in &after.lines {
        both.entry(line).or_default().1 = *ps;
    }
    let lines = both
        .iter()
        .map(|(line, (before, after))| format!("{line} {before:.0} {after:.0}"));
    let subtitle = format!(
        "{} ({}) against {} ({})",
        cell.name,
        told(cell),
        first.name,
        told(first)
    );
    let title = "What costs itself more (red) and less (blue)";
    draw(title, &subtitle, after.unit, lines.collect())
        .ok_or_else(|| "the call chains cannot be drawn".to_string())
}

fn told(cell: &CellSummary) -> String {
    let samples: u64 = cell.profiles.iter().map(|profile| profile.samples).sum();
    let trials = if cell.n == 1 { "trial" } else { "trials" };
    format!("{samples} samples of {} {trials}", cell.n)
}

/// Chains with their cost, ps, each beginning with the end.
struct Widths {
    unit: &'static str,
    lines: BTreeMap<String, f64>,
}

impl Widths {
    fn of(cell: &CellSummary) -> Option<Widths> {
        // All ends by their cost, or all by samples.
        let costs: Option<Vec<f64>> = cell
            .profiles
            .iter()
            .map(|profile| {
                let layers = profile.layers.iter();
                let costs = layers.map(|(_, cost)| cost.us_per_unit.map(|us| us.median));
                costs.sum::<Option<f64>>()
            })
            .collect();
        let unit = match &costs {
            Some(_) if cell.has_transactions() => "ps of CPU per transaction",
            Some(_) => "ps of CPU per KiB",
            None => "samples",
        };
        let mut lines = BTreeMap::new();
        for (index, profile) in cell.profiles.iter().enumerate() {
            let ps_per_sample = costs
                .as_ref()
                .map_or(1.0, |costs| costs[index] * 1e6 / profile.samples as f64);
            let end = whose(profile.scope);
            for (line, &samples) in &profile.folded {
                lines.insert(format!("{end};{line}"), samples as f64 * ps_per_sample);
            }
        }
        (!lines.is_empty()).then_some(Widths { unit, lines })
    }
}

fn draw(title: &str, subtitle: &str, unit: &str, lines: Vec<String>) -> Option<String> {
    let mut options = Options::default();
    options.title = title.to_string();
    options.subtitle = Some(subtitle.to_string());
    options.count_name = unit.to_string();
    // The same records give the same picture.
    options.deterministic = true;
    // A width that follows the window's is negative in a part of a page that is still folded up.
    options.image_width = Some(1200);
    // Below a thousandth of the width there is nothing to see or to hit with a mouse.
    options.min_width = 0.1;
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg).ok()?;
    String::from_utf8(svg).ok()
}

/// What a flame graph brings into the page that it is in.
pub(crate) struct InlineTexts {
    pub(crate) script: String,
    pub(crate) style: String,
    /// The attribute `onload`.
    pub(crate) handler: &'static str,
}

/// The script and the style of every flame graph: they do not depend on its samples.
pub(crate) fn inline_texts() -> Option<InlineTexts> {
    let svg = draw("", "", "", vec!["a 1".to_string()])?;
    let within = |element: &str| {
        let (_, rest) = svg.split_once(&format!("<{element} "))?;
        let (_, rest) = rest.split_once('>')?;
        let (text, _) = rest.split_once(&format!("</{element}>"))?;
        Some(text.replace("<![CDATA[", "").replace("]]>", ""))
    };
    Some(InlineTexts {
        script: within("script")?,
        style: within("style")?,
        handler: "init(evt)",
    })
}

/// The samples behind a cell's tables, in words.
pub(crate) fn samples(cell: &CellSummary) -> Option<String> {
    let sampled = cell.profiles.iter().map(|profile| {
        let end = whose(profile.scope);
        let mut told = format!("{end} {} by {}", profile.samples, profile.source);
        let percent = |count: u64| show(count as f64 / profile.samples as f64 * 100.0);
        if profile.samples_unknown > 0 {
            told += &format!(
                " ({} % with a function unknown)",
                percent(profile.samples_unknown)
            );
        }
        if profile.samples_left_out > 0 {
            told += &format!(", {} of rare chains left out", profile.samples_left_out);
        }
        told
    });
    let told: Vec<String> = sampled.collect();
    (!told.is_empty()).then(|| format!("Samples: {}.", told.join("; ")))
}
