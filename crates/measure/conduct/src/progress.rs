//! Progress of a run on standard error: a bar on a terminal, plain lines elsewhere. Nothing is drawn during a measurement.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tcpcost_console::output;
use tcpcost_counts::printable;
use tcpcost_report::derive;
use tcpcost_study::{Derived, Figure, Outcome, Record, Study};

/// Progress of a run.
pub struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    done: u64,
}

impl Progress {
    /// Starts the progress of `trials` trials. The number may grow.
    pub fn new(trials: u64, quiet: bool) -> Progress {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            // No steady tick, because a redraw within an interval would run on the CPUs under test.
            let bar = ProgressBar::with_draw_target(Some(trials), ProgressDrawTarget::stderr());
            let style = "{bar:30} {pos}/{len} trials, {eta} left  {wide_msg}";
            bar.set_style(
                ProgressStyle::with_template(style).expect("the template is constant and valid"),
            );
            bar
        });
        Progress {
            bar,
            quiet,
            done: 0,
        }
    }

    /// Shows that a trial begins.
    pub fn begin(&self, cell: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(printable(cell).into_owned());
            bar.tick();
        }
    }

    /// Shows the result of a trial, whose record is on disk.
    pub fn end(&mut self, study: &Study, record: &Record, trials: u64) {
        self.done += 1;
        match &self.bar {
            Some(bar) => {
                bar.set_length(trials.max(self.done));
                bar.inc(1);
            }
            None if self.quiet => {}
            None => output::say!(
                "[{}/{}] {}: {}",
                self.done,
                trials.max(self.done),
                record.cell,
                outcome(study, record)
            ),
        }
    }

    /// Prints a line that stays above the bar.
    pub fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(printable(line)),
            None => output::say!("{line}"),
        }
    }

    /// Removes the bar at the end of the run.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn outcome(study: &Study, record: &Record) -> String {
    match &record.outcome {
        Outcome::Failed { reason } => format!("failed: {reason}"),
        Outcome::Skipped { reason } => format!("skipped: {reason}"),
        Outcome::Measured if record.captured => {
            let captures = record
                .hosts
                .values()
                .filter_map(|host| host.capture.as_ref());
            let packets: u64 = captures.map(|capture| capture.packets).sum();
            format!("{packets} packets captured, at both ends together")
        }
        Outcome::Measured => {
            let derived = derive(record);
            let value = |kind| derived.get(&Derived::total(kind)).copied();
            let has_transactions = record.knobs.has_transactions();
            let transactions = value(Figure::TransactionsPerS).filter(|_| has_transactions);
            let work = match (transactions, value(Figure::Goodput)) {
                (Some(rate), _) => format!("{rate:.0} transactions/s"),
                (None, Some(rate)) => format!("{:.3} Gbit/s", rate / 1e9),
                // A clock that counts instructions has no rate per second.
                (None, None) if record.instructions_per_ns().is_some() => "done".to_string(),
                (None, None) => "no traffic".to_string(),
            };
            // The main quantity, chosen as in the report: the one that the study names, else the one of the meter that counts only
            // the trial's own work.
            let costs = &COSTS[if has_transactions { 0 } else { COSTS.len() / 2 }..];
            let asked = study.measure.quantity;
            let asked = asked.filter(|_| record.instructions_per_ns().is_none());
            let cost = asked
                .into_iter()
                .chain(costs.iter().copied().map(Derived::total))
                .find_map(|of| Some((of.kind, derived.get(&of)?)))
                .map_or(String::new(), |(kind, cost)| {
                    // `0.553 µs/KiB` is written as `0.553 µs of exact CPU per KiB`.
                    let unit = kind.unit().split('/').next().unwrap_or_default();
                    let words = kind.words();
                    match words.starts_with(unit) {
                        true => format!(", {cost:.3} {words}"),
                        false => format!(", {cost:.3} {unit} of {words}"),
                    }
                });
            let marked = if record.is_marked() { " (marked)" } else { "" };
            format!("{work}{cost}{marked}")
        }
    }
}

/// Costs that a line may show: the first half by transaction, for trials with transactions; the second half by KiB.
const COSTS: [Figure; 6] = [
    Figure::ExactUsPerTransaction,
    Figure::CpuUsPerTransaction,
    Figure::InstructionsPerTransaction,
    Figure::ExactUsPerKib,
    Figure::CpuUsPerKib,
    Figure::InstructionsPerKib,
];
