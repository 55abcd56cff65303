//! Reasons not to trust a run, in one line.

use crate::derive::cell::CellSummary;
use crate::derive::estimate::Estimate;
use crate::derive::number::{show, trials};
use crate::derive::warned::Warned;
use crate::summary::Summary;

/// States that the run was quiet, or lists the disturbances with their numbers of trials. Also states how
/// wide the intervals are. A run is quiet without a failed trial and without a warning about the machine.
pub(crate) fn trust(summary: &Summary) -> String {
    let measured: usize = summary.cells.iter().map(|cell| cell.trials.len()).sum();
    let marked: usize = summary.cells.iter().map(|cell| cell.n_marked).sum();
    if measured == 0 {
        return "No trial was measured.".to_string();
    }
    let failed: usize = summary.cells.iter().map(CellSummary::n_failed).sum();
    let warnings = summary.warnings();
    let of_machine = warnings
        .iter()
        .filter(|warned| warned.code.is_about_the_machine());
    let (marking, others): (Vec<&Warned>, Vec<&Warned>) =
        of_machine.partition(|warned| warned.code.marks());
    let list = |warnings: &[&Warned]| {
        let each = warnings.iter();
        each.map(|warned| format!("{} in {}", warned.code.label(), warned.count))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let mut disturbed = Vec::new();
    if marked > 0 {
        let why = list(&marking);
        disturbed.push(format!("{marked} of {measured} trials are marked ({why})"));
    }
    if !others.is_empty() {
        disturbed.push(format!("trials with warnings: {}", list(&others)));
    }
    if failed > 0 {
        disturbed.push(format!("{} failed", trials(failed)));
    }
    let mut line = match disturbed.is_empty() {
        true => "A quiet run: no trial has a warning about the machine".to_string(),
        false => format!("Not a quiet run: {}", disturbed.join("; ")),
    };
    let widths = summary
        .cells
        .iter()
        .filter_map(|cell| cell.main_estimate()?.half_width_ratio());
    if let Some(width) = Estimate::new(widths) {
        line += &format!(
            "; median half-width of the cells' intervals: \u{b1}{} %",
            show(width.median * 100.0)
        );
    }
    line += ".";
    match undecided(summary) {
        Some(undecided) => format!("{line} {undecided}"),
        None => line,
    }
}

/// Sentence such as `2 of 7 contrasts are undecided at ±5 points: about 60 repetitions would decide them, 5.0 times as many as now.`
fn undecided(summary: &Summary) -> Option<String> {
    // The decision of a comparison has this information already.
    let target = summary.study.measure.contrast_target?;
    let undecided: Vec<_> = summary.undecided().collect();
    let all = summary.main_contrasts.len();
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
            ": about {needed} repetitions would decide them, {:.1} times as many as now",
            needed as f64 / done.max(1) as f64
        )
    });
    Some(format!(
        "{} of {all} contrasts are undecided at \u{b1}{} points{more}.",
        undecided.len(),
        show(target * 100.0)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_study::{Outcome, Record, Study, Warning, WarningCode};

    #[test]
    fn a_run_is_quiet_without_a_failed_trial_and_a_warning_about_the_machine() {
        let study = Study::parse("s", "", "s.toml").unwrap();
        let text = r#"{"schema_version":2,"study":"s","cell":"s","knobs":{},"repetition":0,"attempt":0,
            "seed":1,"started":"","bed":"netns","interval_ns":1,"outcome":"measured","topology":{"hosts":[],
            "links":[],"traffic":[]}}"#;
        let quiet = Record::from_line(text).unwrap();
        let line = |record: Record| trust(&Summary::new(&study, &[quiet.clone(), record]));
        let with = |code| {
            let mut record = quiet.clone();
            record.repetition = 1;
            record.warnings = vec![Warning::new(code, "")];
            line(record)
        };
        let calm = "A quiet run: no trial has a warning about the machine.";
        assert_eq!(with(WarningCode::Other), calm);
        let disturbed =
            |label: &str| format!("Not a quiet run: trials with warnings: {label} in 1.");
        let steal = WarningCode::Steal;
        assert_eq!(with(steal), disturbed("time taken by the hypervisor"));
        assert_eq!(with(WarningCode::RateMissed), disturbed("rate missed"));
        let mut failed = quiet.clone();
        failed.repetition = 1;
        failed.outcome = Outcome::Failed {
            reason: "no".into(),
        };
        assert_eq!(line(failed), "Not a quiet run: 1 trial failed.");
    }
}
