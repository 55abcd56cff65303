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
    line + "."
}
