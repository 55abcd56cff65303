//! The chart of published figures beside ours.

use tcpcost_study::{Published, Series};

use super::charts::{Chart, Point, chart, curve_name, point};
use crate::derive::cell::CellSummary;
use crate::derive::estimate::Estimate;
use crate::derive::levels::Levels;
use crate::summary::Summary;
use crate::words::labels;

/// Scales that differ by more than this are not drawn on one axis: each curve is divided by its
/// first point.
const NORMALISE_FROM: f64 = 3.0;

/// The published curves beside ours.
pub(crate) fn published_chart(summary: &Summary) -> Option<Chart> {
    let published = summary.study.published.as_ref()?;
    let knob = &published.knob;
    let (unit, scale) = published.quantity.kind.shown_unit();
    let (mut series, mut points) = theirs(published, scale);
    let cells: Vec<&CellSummary> = summary.cells.iter().collect();
    let mut curves: Vec<(String, usize)> = Vec::new();
    let mut of = None;
    let levels = Levels::new(&summary.study.vary, &cells);
    let together = levels.together(knob);
    for (&cell, name) in cells.iter().zip(levels.others(knob)) {
        let here = cell.has_or_both(published.quantity);
        let known = curves.iter().find(|(seen, _)| *seen == name);
        let index = known.map_or(series.len(), |(_, index)| *index);
        let value = cell.knobs.value(knob);
        let Some(point) = value.and_then(|value| point(cell, here, &value, index)) else {
            continue;
        };
        of.get_or_insert(here);
        points.push(point);
        if index == series.len() {
            let own = curve_name(cell, &together, name.clone());
            let between = if own.is_empty() { "" } else { ": " };
            series.push(format!("ours{between}{own}"));
            curves.push((name, index));
        }
    }
    // Nothing of ours, nothing to show beside.
    let of = of?;
    let distance = distance(&points);
    let title = format!("{}: published and ours", labels::heading(of));
    let mut note = format!("Published: {}.", published.source);
    if distance > NORMALISE_FROM {
        normalise(&mut points, series.len());
        note += &format!(
            " The scales are {} times apart, so every curve is divided by its first point: compare \
             shapes, not heights.",
            crate::derive::number::show(distance)
        );
    }
    let mut chart = chart(title, knob, of, series, points)?;
    let value = if chart.form == "line" {
        &mut chart.y
    } else {
        &mut chart.x
    };
    value.label = if distance > NORMALISE_FROM {
        "relative to the curve's first point".to_string()
    } else {
        unit.to_string()
    };
    chart.note = note;
    Some(chart)
}

/// Names and points of the published curves.
fn theirs(published: &Published, scale: f64) -> (Vec<String>, Vec<Point>) {
    let name = |one: &Series| match one.name.is_empty() {
        true => published.source.clone(),
        false => one.name.clone(),
    };
    let curves = published.series.iter().enumerate();
    let points = curves.flat_map(|(series, one)| {
        one.points.iter().map(move |(value, figure)| Point {
            series,
            at: value.number(),
            name: value.to_string(),
            median: figure * scale,
            lo: None,
            hi: None,
            trials: Vec::new(),
            aside: Vec::new(),
            published: true,
        })
    });
    (
        published.series.iter().map(name).collect(),
        points.collect(),
    )
}

/// Factor between the heights of the published points and of ours, at the places that both have.
fn distance(points: &[Point]) -> f64 {
    let ours = points.iter().filter(|point| !point.published);
    let distances = ours.filter_map(|our| {
        let theirs = points
            .iter()
            .find(|their| their.published && their.name == our.name)?;
        (our.median > 0.0 && theirs.median > 0.0).then(|| (our.median / theirs.median).ln())
    });
    Estimate::new(distances).map_or(1.0, |ratio| ratio.median.abs().exp())
}

/// Divides each curve by its first point: at the first place that all curves have, else at its own.
fn normalise(points: &mut [Point], curves: usize) {
    let has = |curve: usize, name: &str| {
        let mut of_curve = points.iter().filter(|point| point.series == curve);
        of_curve
            .find(|point| point.name == name)
            .map(|point| point.median)
    };
    let common = points
        .iter()
        .map(|point| point.name.clone())
        .find(|name| (0..curves).all(|curve| has(curve, name).is_some_and(|median| median > 0.0)));
    let firsts: Vec<Option<f64>> = (0..curves)
        .map(|curve| match &common {
            Some(name) => has(curve, name),
            None => points
                .iter()
                .find(|point| point.series == curve)
                .map(|point| point.median),
        })
        .collect();
    for point in points {
        let Some(first) = firsts[point.series].filter(|first| *first > 0.0) else {
            continue;
        };
        point.median /= first;
        for value in [&mut point.lo, &mut point.hi].into_iter().flatten() {
            *value /= first;
        }
        for value in point.trials.iter_mut().chain(&mut point.aside) {
            *value /= first;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(curves: &[&[(&str, f64)]]) -> Vec<Point> {
        let of_curve = |(series, points): (usize, &&[(&str, f64)])| {
            points
                .iter()
                .map(|(name, median)| Point {
                    series,
                    at: None,
                    name: (*name).to_string(),
                    median: *median,
                    lo: Some(median / 2.0),
                    hi: None,
                    trials: vec![*median],
                    aside: Vec::new(),
                    published: false,
                })
                .collect::<Vec<_>>()
        };
        curves.iter().enumerate().flat_map(of_curve).collect()
    }

    #[test]
    fn curves_are_divided_by_their_value_at_the_first_common_place() {
        let mut points = points(&[
            &[("1", 50.0), ("4", 10.0), ("8", 20.0)],
            &[("4", 3.0), ("8", 9.0)],
        ]);
        normalise(&mut points, 2);
        let medians: Vec<f64> = points.iter().map(|point| point.median).collect();
        assert_eq!(medians, [5.0, 1.0, 2.0, 1.0, 3.0]);
        assert_eq!((points[4].lo, points[4].trials[0]), (Some(1.5), 3.0));
    }

    #[test]
    fn curves_without_a_common_place_start_at_one() {
        let mut points = points(&[&[("1", 50.0), ("4", 10.0)], &[("8", 9.0)]]);
        normalise(&mut points, 2);
        let medians: Vec<f64> = points.iter().map(|point| point.median).collect();
        assert_eq!(medians, [1.0, 0.2, 1.0]);
    }
}
