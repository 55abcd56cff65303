//! Chart of a receiver's ACK limit over time: how `avoidance` learns its sender's window and falls back.

use tcpcost_study::{ConnectionSeries, HostName};

use super::charts::{Axis, Chart, Point};
use crate::derive::cell::CellSummary;
use crate::summary::Summary;

/// Limit on curves: more cannot be distinguished.
const CURVES: usize = 6;
/// Limit on the points of a curve. A longer series is thinned out evenly.
const POINTS: usize = 150;
/// Number of ticks on the axis of time.
const TICKS: u64 = 6;

/// Chart of the limits of up to six cells, those with falling limits first. `None` if no series has limits.
pub(crate) fn series_chart(summary: &Summary) -> Option<Chart> {
    let mut curves: Vec<(&CellSummary, HostName, &ConnectionSeries)> = Vec::new();
    for cell in &summary.cells {
        let limited = cell.series.iter();
        let limited = limited.filter(|(_, series)| !series.ack_limit.is_empty());
        curves.extend(limited.map(|(&host, series)| (cell, host, series)));
    }
    // Curves that never fall all look the same.
    let falls = |series: &ConnectionSeries| series.falls().is_some_and(|(falls, _)| falls > 0);
    curves.sort_by_key(|(_, _, series)| !falls(series));
    let all = curves.len();
    curves.truncate(CURVES);
    let end_ns = curves
        .iter()
        .filter_map(|(_, _, one)| one.at_ns.last())
        .max();
    let end_ns = *end_ns?;
    let series = curves.iter().map(|(_, _, series)| *series);
    let points = series
        .enumerate()
        .flat_map(|(index, one)| points(index, one));
    let tick = |number: u64| {
        let ms = end_ns as f64 / 1e6 * number as f64 / (TICKS - 1) as f64;
        (ms, format!("{ms:.0}"))
    };
    let left_out = match all - curves.len() {
        0 => String::new(),
        more => format!(" {more} more cells have one each in the records."),
    };
    Some(Chart {
        title: "The limit of an avoiding receiver over time".to_string(),
        note: format!(
            "One connection of one trial each, sampled over time: the limit rises by one with each ACK that it causes, and falls when the timer fires with data waiting.{left_out}"
        ),
        form: "line",
        is_detail: false,
        x: Axis {
            label: "ms".to_string(),
            log: false,
            ticks: (0..TICKS).map(tick).collect(),
        },
        y: Axis {
            label: "segments per ACK".to_string(),
            ..Axis::default()
        },
        series: curves
            .iter()
            .map(|(cell, host, _)| format!("{}, {host}", cell.name))
            .collect(),
        points: points.collect(),
    })
}

/// Points of a curve.
fn points(index: usize, series: &ConnectionSeries) -> Vec<Point> {
    let step = series.at_ns.len().div_ceil(POINTS).max(1);
    let limits = series.at_ns.iter().zip(&series.ack_limit).step_by(step);
    let point = |(&at_ns, &limit): (&u64, &u64)| {
        let ms = at_ns as f64 / 1e6;
        Point {
            series: index,
            at: Some(ms),
            name: format!("{ms:.1} ms"),
            median: limit as f64,
            lo: None,
            hi: None,
            trials: Vec::new(),
            aside: Vec::new(),
            published: false,
        }
    };
    limits.map(point).collect()
}
