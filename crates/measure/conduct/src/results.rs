//! Results of runs: the formats, and the exit code.

use std::io::{self, IsTerminal};

use tcpcost_console::exit::Exit;
use tcpcost_console::format::{Format, Formats, Output};
use tcpcost_console::output::{put, say};
use tcpcost_counts::TextForm;
use tcpcost_report::{
    CellSummary, Decision, Summary, TextStyle, Verdict, bmf, csv, github_benchmark, json, junit,
    ktap, markdown, nipa, openmetrics, text,
};
use tcpcost_study::ThresholdOf;

/// Name of the HTML page in a run's directory.
pub const PAGE: &str = "report.html";

/// Prints results, and writes results with a file. Several runs become several tables, one JSON
/// list, or CSV with one header line.
pub fn print<C: Formats>(summaries: &[Summary], output: &Output<C>) -> anyhow::Result<()> {
    for (format, file) in output.each() {
        let form = match format {
            Format::Json | Format::Nipa | Format::Bmf | Format::GithubBenchmark => TextForm::Json,
            _ => TextForm::Lines,
        };
        let rendered = rendered(summaries, format, file.is_some());
        put(&rendered, form, file)?;
    }
    Ok(())
}

fn rendered(summaries: &[Summary], format: Format, is_file: bool) -> String {
    match format {
        Format::Json => match summaries {
            [one] => json(one) + "\n",
            many => {
                let documents: Vec<String> = many.iter().map(json).collect();
                format!("[{}]\n", documents.join(",\n"))
            }
        },
        Format::Markdown => markdown(summaries),
        Format::Ktap => ktap(summaries),
        Format::Junit => junit(summaries),
        Format::Nipa => nipa(summaries),
        Format::Bmf => bmf(summaries),
        Format::GithubBenchmark => github_benchmark(summaries),
        Format::Openmetrics => openmetrics(summaries),
        Format::Csv => {
            let tables = summaries.iter().map(csv).enumerate();
            let rows = tables.map(|(index, csv)| match csv.split_once('\n') {
                Some((_, rows)) if index > 0 => rows.to_string(),
                _ => csv,
            });
            rows.collect()
        }
        _ => {
            let default = TextStyle::default().width;
            let style = TextStyle {
                details: format == Format::Details,
                colour: !is_file
                    && std::io::stdout().is_terminal()
                    && std::env::var_os("NO_COLOR").is_none(),
                width: if is_file { default } else { width() },
            };
            let texts = summaries.iter().map(|one| text(one, style));
            texts.collect::<Vec<_>>().join("\n")
        }
    }
}

/// Returns the columns of the terminal, at most as many as a file gets.
fn width() -> usize {
    let most = TextStyle::default().width;
    rustix::termios::tcgetwinsize(io::stdout())
        .map(|size| usize::from(size.ws_col))
        .ok()
        .filter(|columns| *columns > 0)
        .map_or(most, |columns| columns.min(most))
}

/// Prints the first reason why trials failed or were skipped, if no cell of the run has a measured
/// trial.
pub(crate) fn say_what_is_missing(summary: &Summary) {
    if summary.cells.iter().all(|cell| cell.n == 0) {
        let mut cells = summary.cells.iter();
        if let Some(reason) =
            cells.find_map(|cell| cell.failed.keys().chain(cell.skipped.keys()).next())
        {
            say!("tcpcost: no trial was measured: {reason}");
        }
    }
}

/// Returns the exit code for the results of a run.
pub fn exit(summary: &Summary) -> Exit {
    let verdicts = summary.judged.iter().map(|judged| match judged.verdict {
        Verdict::Met => Exit::Ok,
        Verdict::Inconclusive => Exit::Inconclusive,
        Verdict::Missed => Exit::Missed,
    });
    let decisions = summary
        .comparisons
        .iter()
        .map(|one| exit_of(one.final_decision()));
    // A threshold on the change decides instead of the comparisons' own decisions.
    let mut thresholds = summary.study.thresholds.iter();
    let is_limited = thresholds.any(|threshold| threshold.of == ThresholdOf::Baseline);
    let told: Vec<Exit> = verdicts.chain(decisions.filter(|_| !is_limited)).collect();
    let without_numbers = || summary.cells.iter().filter(|cell| cell.n == 0);
    if summary.cells.iter().any(CellSummary::has_failed) {
        Exit::Failed
    } else if without_numbers().count() == summary.cells.len() {
        Exit::Unavailable
    } else if told.contains(&Exit::Missed) {
        Exit::Missed
    } else if told.contains(&Exit::Inconclusive) || summary.is_unconverged() {
        Exit::Inconclusive
    } else {
        Exit::Ok
    }
}

/// Returns the exit code for a decision.
pub fn exit_of(decision: Decision) -> Exit {
    match decision {
        Decision::Improves | Decision::Equivalent => Exit::Ok,
        Decision::Inconclusive => Exit::Inconclusive,
        Decision::Regresses => Exit::Missed,
    }
}
