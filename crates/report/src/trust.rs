//! What speaks against trusting a run, in a line.

use crate::estimate::Estimate;
use crate::number::show;
use crate::summary::Summary;

/// Whether the run was quiet, else what marked its trials and how many; and how wide the intervals are.
pub(crate) fn trust(summary: &Summary) -> String {
    let measured: usize = summary.cells.iter().map(|cell| cell.trials.len()).sum();
    let marked: usize = summary.cells.iter().map(|cell| cell.n_marked).sum();
    let mut line = match (measured, marked) {
        (0, _) => return "No trial was measured.".to_string(),
        (_, 0) => "A quiet run: no trial is marked by a warning".to_string(),
        (all, marked) => {
            let why: Vec<String> = summary
                .warnings()
                .iter()
                .filter(|warned| warned.code.marks())
                .map(|warned| format!("{} in {}", warned.code.label(), warned.count))
                .collect();
            format!(
                "Not a quiet run: {marked} of {all} trials are marked ({})",
                why.join(", ")
            )
        }
    };
    let widths = summary
        .cells
        .iter()
        .filter_map(|cell| cell.main_estimate()?.half_width_ratio());
    if let Some(width) = Estimate::new(widths) {
        line += &format!(
            "; the cells' intervals are \u{b1}{} % wide in the median",
            show(width.median * 100.0)
        );
    }
    line += ".";
    match undecided(summary) {
        Some(undecided) => format!("{line} {undecided}"),
        None => line,
    }
}

/// `2 of 7 contrasts are not decided to ±5 points: about 60 repetitions would, for 12.`
fn undecided(summary: &Summary) -> Option<String> {
    // A comparison's verdict says so itself.
    let target = summary.study.measure.contrast_target?;
    let undecided: Vec<_> = summary.undecided().collect();
    let all = summary.headlines.len();
    let done = undecided
        .iter()
        .filter_map(|one| Some(one.contrast?.ratio.n))
        .max()?;
    let needed = undecided
        .iter()
        .filter_map(|one| one.repetitions_needed(&summary.study))
        .max();
    let more = needed.map_or(String::new(), |needed| {
        format!(
            ": about {needed} repetitions would, {:.1} times as many as now",
            needed as f64 / done.max(1) as f64
        )
    });
    Some(format!(
        "{} of {all} contrasts are not decided to \u{b1}{} points{more}.",
        undecided.len(),
        show(target * 100.0)
    ))
}
