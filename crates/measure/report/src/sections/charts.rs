//! Data of the page's charts. Every choice is made here; the script only draws.

use std::collections::BTreeSet;

use serde::Serialize;
use tcpcost_study::{Derived, Figure, Scope, Value};

use crate::derive::cell::CellSummary;
use crate::derive::estimate::Estimate;
use crate::derive::levels::Levels;
use crate::derive::scope::{scopes, whose};
use crate::summary::Summary;
use crate::summary::groups::Group;
use crate::words::labels;

/// Ratio of largest to smallest value above which an axis is logarithmic.
const LOG_FROM: f64 = 20.0;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Chart {
    pub(crate) title: String,
    /// Explanation under the chart, beyond what the axes say.
    #[serde(skip)]
    pub(crate) note: String,
    /// `line` (against a number), `rows` (against a word) or `split` (parts of CPU time).
    pub(crate) form: &'static str,
    /// True if the chart is shown among the details: one host, or the parts of CPU time.
    #[serde(skip)]
    pub(crate) is_detail: bool,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// Names of the curves, blocks or parts, in order.
    pub(crate) series: Vec<String>,
    pub(crate) points: Vec<Point>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Axis {
    pub(crate) label: String,
    pub(crate) log: bool,
    /// Position and text of each tick; empty if the script chooses.
    pub(crate) ticks: Vec<(f64, String)>,
}

/// Median with its interval and trials; in a `split`, one part of a bar.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Point {
    /// Index into `series`.
    pub(crate) series: usize,
    /// Position on a numeric axis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<f64>,
    /// Value of the knob, or the row's name, as text.
    pub(crate) name: String,
    pub(crate) median: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lo: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hi: Option<f64>,
    /// Values of the trials that the estimate uses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) trials: Vec<f64>,
    /// Values of marked trials that the estimate does not use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) aside: Vec<f64>,
    /// True if this is a published figure.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) published: bool,
}

/// Charts of a summary, in the order of the page.
pub(crate) fn charts(summary: &Summary) -> Vec<Chart> {
    let mut charts = Vec::new();
    let groups = summary.groups();
    // Groups differ by rate, so a chart against a rate merges them; these charts come last.
    let mut across: Vec<Group<'_>> = Vec::new();
    for group in &groups {
        match across.iter_mut().find(|seen| seen.main == group.main) {
            Some(seen) => seen.cells.extend(&group.cells),
            None => across.push(group.clone()),
        }
    }
    let all: Vec<&CellSummary> = summary.cells.iter().collect();
    let varying = Levels::new(&summary.study.vary, &all);
    for is_rate in [false, true] {
        let groups = if is_rate { &across } else { &groups };
        let levels: Vec<Levels<'_>> = groups
            .iter()
            .map(|group| Levels::new(&summary.study.vary, &group.cells))
            .collect();
        let of_rates = |knob: &&str| knob.ends_with("rate") || knob.ends_with("bottleneck");
        for (group, levels) in groups.iter().zip(&levels) {
            let before = charts.len();
            for knob in varying.names().filter(|knob| of_rates(knob) == is_rate) {
                let load = match (is_rate, group.fixed_rate) {
                    (true, _) => "",
                    (false, true) => ", at a fixed rate",
                    (false, false) => ", CPU-bound",
                };
                let others = scopes(&summary.hosts_of_cells())
                    .into_iter()
                    .map(|scope| Derived {
                        kind: group.main.kind,
                        scope,
                    })
                    .filter(|of| *of != group.main);
                for of in std::iter::once(group.main).chain(others) {
                    let chart = against(knob, levels, of, load);
                    charts.extend(chart.map(|chart| Chart {
                        is_detail: of != group.main,
                        ..chart
                    }));
                }
            }
            if charts.len() == before && !is_rate {
                charts.extend(by_name(group));
            }
        }
    }
    charts.extend(split(summary));
    charts
}

pub(crate) fn point(
    cell: &CellSummary,
    of: Derived,
    value: &Value,
    series: usize,
) -> Option<Point> {
    let (_, scale) = of.kind.shown_unit();
    let Estimate { median, lo, hi, .. } = *cell.estimates.get(&of)?;
    let values = |used: bool| {
        let trials = cell.trials.iter().filter(|trial| trial.used == used);
        trials
            .filter_map(|trial| Some(trial.values.get(&of)? * scale))
            .collect()
    };
    Some(Point {
        series,
        at: value.number(),
        name: value.to_string(),
        median: median * scale,
        lo: lo.map(|lo| lo * scale),
        hi: hi.map(|hi| hi * scale),
        trials: values(true),
        aside: values(false),
        published: false,
    })
}

/// Chart with a row for each cell, for cells that no knob orders. `None` for a single cell.
fn by_name(group: &Group<'_>) -> Option<Chart> {
    let load = match group.fixed_rate {
        true => "at a fixed rate",
        false => "CPU-bound",
    };
    let named = |cell: &&CellSummary| {
        let point = point(cell, group.main, &Value::Word(cell.name.clone()), 0)?;
        Some(Point { at: None, ..point })
    };
    let points: Vec<Point> = group.cells.iter().filter_map(named).collect();
    let title = format!("{}, {load}", labels::heading(group.main));
    (points.len() > 1)
        .then(|| chart(title, "", group.main, vec![String::new()], points))
        .flatten()
}

/// Chart of a quantity against a knob, with the other knobs equal within a curve.
///
/// `None` unless a curve has two points, or three if no cell's name contains the knob: such names
/// say more than a knob that only two cells share. Knobs that change together share the chart of
/// the first.
fn against(knob: &str, levels: &Levels<'_>, of: Derived, load: &str) -> Option<Chart> {
    let together = levels.together(knob);
    if together.first() != Some(&knob) {
        return None;
    }
    let mut curves: Vec<(String, Vec<&CellSummary>)> = Vec::new();
    for (&cell, name) in levels.cells.iter().zip(levels.others(knob)) {
        match curves.iter_mut().find(|(seen, _)| *seen == name) {
            Some((_, cells)) => cells.push(cell),
            None => curves.push((name, vec![cell])),
        }
    }
    let is_named = |cell: &&CellSummary| !cell.name.contains(&format!("{knob}="));
    let least = if levels.cells.iter().all(is_named) {
        3
    } else {
        2
    };
    for (name, cells) in &mut curves {
        *name = curve_name(cells[0], &together, std::mem::take(name));
    }
    let mut series = Vec::new();
    let mut points = Vec::new();
    for (name, cells) in curves {
        let of_curve: Vec<Point> = cells
            .iter()
            .filter_map(|cell| point(cell, of, &cell.knobs.value(knob)?, series.len()))
            .collect();
        if of_curve.len() >= least {
            series.push(name);
            points.extend(of_curve);
        }
    }
    let title = format!(
        "{} against {}{load}",
        labels::heading(of),
        together.join(" and ")
    );
    chart(title, knob, of, series, points)
}

/// Name of a curve: the first cell's name without the words about `knobs`, else `others`.
pub(crate) fn curve_name(cell: &CellSummary, knobs: &[&str], others: String) -> String {
    match others.is_empty() {
        true => others,
        false => name_without(cell, knobs).unwrap_or(others),
    }
}

/// Name of the cell without the words that set `knobs`. `None` if no word is left.
fn name_without(cell: &CellSummary, knobs: &[&str]) -> Option<String> {
    let is_told = |word: &str| {
        let mut knobs = knobs.iter();
        knobs.any(|knob| {
            word.strip_prefix(knob)
                .is_some_and(|rest| rest.starts_with('='))
        })
    };
    let words: Vec<&str> = cell.name.split(' ').filter(|word| !is_told(word)).collect();
    let name = words.join(" ");
    let name = name.trim_end_matches(',').trim();
    (!name.is_empty()).then(|| name.to_string())
}

/// Chart of these points: a line if the knob is a number, rows if it is a word. `None` without
/// points.
pub(crate) fn chart(
    title: String,
    knob: &str,
    of: Derived,
    mut series: Vec<String>,
    mut points: Vec<Point>,
) -> Option<Chart> {
    if points.is_empty() {
        return None;
    }
    let (unit, _) = of.kind.shown_unit();
    let numeric = points.iter().all(|point| point.at.is_some());
    let mut ticks: Vec<(f64, String)> = Vec::new();
    for point in points.iter().filter(|_| numeric) {
        if let Some(at) = point.at
            && !ticks.iter().any(|(seen, _)| *seen == at)
        {
            ticks.push((at, point.name.clone()));
        }
    }
    ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
    let heights = points.iter().flat_map(|point| {
        [Some(point.median), point.lo, point.hi]
            .into_iter()
            .flatten()
    });
    let value = Axis {
        label: unit.to_string(),
        log: spans(heights),
        ticks: Vec::new(),
    };
    let place = Axis {
        label: knob.to_string(),
        log: spans(ticks.iter().map(|(at, _)| *at)),
        ticks,
    };
    let (form, x, y) = if numeric {
        ("line", place, value)
    } else {
        one_row_each(&mut series, &mut points);
        drop_common_end(&mut points);
        ("rows", value, place)
    };
    Some(Chart {
        title,
        note: String::new(),
        form,
        is_detail: false,
        x,
        y,
        series,
        points,
    })
}

/// Removes the words that all rows' names end with, since they distinguish no row.
fn drop_common_end(points: &mut [Point]) {
    let names: BTreeSet<String> = points.iter().map(|point| point.name.clone()).collect();
    let common = (1..)
        .take_while(|count| {
            let ends: BTreeSet<Vec<&str>> = names
                .iter()
                .map(|name| name.rsplit(' ').take(*count).collect())
                .collect();
            let is_more = names.iter().all(|name| name.split(' ').count() > *count);
            names.len() > 1 && ends.len() == 1 && is_more
        })
        .count();
    for point in points.iter_mut().filter(|_| common > 0) {
        let words: Vec<&str> = point.name.split(' ').collect();
        point.name = words[..words.len() - common].join(" ");
    }
}

/// Merges blocks into one if at least half of their rows (a row for each value of the knob) would
/// be empty. The merged block has only the rows with points.
fn one_row_each(series: &mut Vec<String>, points: &mut [Point]) {
    let names: BTreeSet<&str> = points.iter().map(|point| point.name.as_str()).collect();
    if series.len() * names.len() < 2 * points.len() {
        return;
    }
    for point in points {
        let of = &series[point.series];
        let between = if of.is_empty() { "" } else { ": " };
        point.name = format!("{of}{between}{}", point.name);
        point.series = 0;
    }
    *series = vec![String::new()];
}

/// True if the values are positive and span more than [`LOG_FROM`].
fn spans(values: impl Iterator<Item = f64>) -> bool {
    let (lo, hi) = values.fold((f64::INFINITY, 0.0f64), |(lo, hi), value| {
        (lo.min(value), hi.max(value))
    });
    lo > 0.0 && hi / lo > LOG_FROM
}

/// Parts of a CPU's time, in the order of the bars.
pub(crate) const PARTS: [Figure; 6] = [
    Figure::UserRatio,
    Figure::SystemRatio,
    Figure::SoftirqRatio,
    Figure::IrqRatio,
    Figure::StealRatio,
    Figure::IdleRatio,
];

/// CPU time by cell: a chart for each host, or one for all hosts if the bed cannot tell them apart.
fn split(summary: &Summary) -> Vec<Chart> {
    scopes(&summary.hosts_of_cells())
        .into_iter()
        .filter_map(|scope| {
            let mut points = Vec::new();
            for cell in &summary.cells {
                let has = |host| {
                    let of = Derived::of(host, Figure::UserRatio);
                    cell.estimates.contains_key(&of)
                };
                if scope == Scope::All && cell.hosts().into_iter().any(has) {
                    continue;
                }
                points.extend(PARTS.iter().enumerate().filter_map(|(series, &kind)| {
                    let estimate = cell.estimates.get(&Derived { kind, scope })?;
                    Some(Point {
                        series,
                        at: None,
                        name: cell.name.clone(),
                        median: estimate.median * 100.0,
                        lo: estimate.lo.map(|lo| lo * 100.0),
                        hi: estimate.hi.map(|hi| hi * 100.0),
                        trials: Vec::new(),
                        aside: Vec::new(),
                        published: false,
                    })
                }));
            }
            let whose = whose(scope);
            (!points.is_empty()).then(|| {
                Chart {
            title: format!("CPU time, {whose}"),
            note: "Medians of each part, so a bar need not end at 100 %; time that no tick saw is \
                       in none."
                .to_string(),
            form: "split",
            is_detail: true,
            x: Axis {
                label: "% of the CPUs' time".to_string(),
                ..Axis::default()
            },
            y: Axis::default(),
            series: PARTS.iter().map(|part| part.heading().to_string()).collect(),
            points,
        }
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_would_be_half_empty_become_one() {
        let merged = |places: &[(usize, &str)]| {
            let mut series = vec!["a".to_string(), "b".to_string()];
            let point = |&(series, name): &(usize, &str)| Point {
                series,
                at: None,
                name: name.to_string(),
                median: 1.0,
                lo: None,
                hi: None,
                trials: Vec::new(),
                aside: Vec::new(),
                published: false,
            };
            let mut points: Vec<Point> = places.iter().map(point).collect();
            one_row_each(&mut series, &mut points);
            let names: Vec<String> = points.into_iter().map(|point| point.name).collect();
            (series.len(), names.join(", "))
        };
        assert_eq!(merged(&[(0, "x"), (1, "y")]), (1, "a: x, b: y".to_string()));
        assert_eq!(
            merged(&[(0, "x"), (1, "x"), (1, "y")]),
            (2, "x, x, y".to_string())
        );
    }

    #[test]
    fn a_wide_span_of_positive_values_is_logarithmic() {
        assert!(spans([1.0, 21.0].into_iter()));
        assert!(!spans([1.0, 20.0].into_iter()));
        assert!(!spans([0.0, 100.0].into_iter()), "0 has no logarithm");
        assert!(!spans(std::iter::empty()));
    }
}
