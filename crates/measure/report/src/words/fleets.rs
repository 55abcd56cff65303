//! Sentences about a fleet.

use tcpcost_study::Figure;

use crate::derive::fleet::Fleet;
use crate::derive::number::{show, show_estimate};

/// Heading of the section.
pub(crate) fn title(cell: &str) -> String {
    format!("Hosts in rounds of pairs: {cell}")
}

/// Lines that describe a fleet: each outlier with its interval and explaining count, or a line that
/// there are none.
pub(crate) fn lines(fleet: &Fleet, min_effect: f64) -> Vec<String> {
    let percent = show(100.0 * min_effect);
    let mut lines = vec![format!(
        "{} hosts met in pairs, in {} rounds; all intervals of a figure hold at once with 95 % confidence.",
        fleet.hosts.len(),
        fleet.rounds
    )];
    for outlier in &fleet.outliers {
        let shown = |figure: Figure, value: f64| {
            let (unit, scale) = figure.shown_unit();
            format!("{} {unit}", show(value * scale))
        };
        let (unit, scale) = outlier.figure.shown_unit();
        let mut line = format!(
            "{}: {} {} {unit}, {:.2} times all hosts' {}",
            outlier.host,
            outlier.figure.words(),
            show_estimate(&outlier.estimate, scale),
            outlier.ratio(),
            shown(outlier.figure, outlier.median),
        );
        if let Some(because) = &outlier.because {
            line += &format!(
                "; {} {}, of all hosts {}",
                because.figure.words(),
                shown(because.figure, because.value),
                shown(because.figure, because.median)
            );
        }
        lines.push(line);
    }
    if fleet.outliers.is_empty() {
        let has_intervals = fleet
            .hosts
            .values()
            .any(|of| of.values().any(|one| one.lo.is_some()));
        lines.push(match has_intervals {
            true => format!("No host differs from all hosts' median by more than {percent} %."),
            false => "Too few rounds to distinguish hosts: there are no intervals.".to_string(),
        });
    }
    lines
}
