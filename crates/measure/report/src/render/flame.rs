//! Flame graphs: of one cell, and of the difference in cost between two cells.
//!
//! Widths are CPU per KiB (or per transaction), not samples. So two cells that did different
//! amounts of work can be compared, and each end has the same weight as in the table.

use std::collections::BTreeMap;

use inferno::flamegraph::{self, Options};

use crate::derive::cell::CellSummary;
use crate::derive::number::trials;
use crate::derive::scope::whose;

/// Flame graph of one cell, as SVG. `None` if the cell has no call chains.
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

/// Error for two cells whose flame graphs cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlameError {
    /// Name of a cell that has none.
    #[error("\"{0}\" has no call chains: run it with the meter profile")]
    NoCallChains(String),
    /// Names of the two cells, and their units.
    #[error(
        "\"{}\" is in {} and \"{}\" in {}: there is no difference of the two",
        .0[0], .1[0], .0[1], .1[1]
    )]
    Units([String; 2], [&'static str; 2]),
    /// Call chains of which no graph can be made.
    #[error("the call chains cannot be drawn")]
    NotDrawn,
}

/// Flame graph of what each function of `cell` itself costs more (red) or less (blue) than in
/// `first`, as SVG.
///
/// Widths are those of `cell`, so a function that only `first` has is not visible. Swap the two
/// cells to see it.
///
/// # Errors
/// A cell has no call chains, or the costs of the two cells have different units.
pub fn flame_difference(first: &CellSummary, cell: &CellSummary) -> Result<String, FlameError> {
    let widths =
        |of: &CellSummary| Widths::of(of).ok_or_else(|| FlameError::NoCallChains(of.name.clone()));
    let (before, after) = (widths(first)?, widths(cell)?);
    if before.unit != after.unit {
        let names = [first, cell].map(|cell| cell.name.clone());
        return Err(FlameError::Units(names, [before.unit, after.unit]));
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
    let title = "Own cost of functions: more (red), less (blue)";
    draw(title, &subtitle, after.unit, lines.collect()).ok_or(FlameError::NotDrawn)
}

fn told(cell: &CellSummary) -> String {
    let samples: u64 = cell.profiles.iter().map(|profile| profile.samples).sum();
    format!("{samples} samples of {}", trials(cell.n))
}

/// Cost of each call chain of a cell. A key is a folded chain with the host's name in front.
struct Widths {
    unit: &'static str,
    lines: BTreeMap<String, f64>,
}

impl Widths {
    fn of(cell: &CellSummary) -> Option<Widths> {
        // Costs are used only if every end has them; otherwise all ends count samples.
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
    // Same records, same picture.
    options.deterministic = true;
    // In a collapsed part of a page, a width that follows the window would be negative.
    options.image_width = Some(1200);
    // Frames below a thousandth of the width are too small to see or to click.
    options.min_width = 0.1;
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg).ok()?;
    String::from_utf8(svg).ok()
}

/// Script and style that a page needs to show a flame graph inline.
pub(crate) struct InlineTexts {
    pub(crate) script: String,
    pub(crate) style: String,
    /// Value of the attribute `onload`.
    pub(crate) handler: &'static str,
}

/// Script and style of a flame graph. They are the same for all samples.
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
