//! Tables of estimated cycles by function, of a run with `--caches`: where caches go cold, which instructions do not show.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use tcpcost_report::difference_of_means;

use super::functions::{ByFunction, OfTrial, SHOWN};

/// Smallest difference of a whole cell that is one: the model's constants are not this host's (docs/kernels.md).
const VERDICT_LEAST: f64 = 0.05;

/// Estimates of a trial, per KiB or transaction.
#[derive(Debug, Clone, Copy)]
struct Estimate {
    cycles: f64,
    instructions: f64,
    /// Lines from the second level, the last level and memory.
    lines: [f64; 3],
}

/// Estimates of a function, or of all, in each trial.
fn estimates(trials: &[OfTrial], function: Option<&str>) -> Vec<Estimate> {
    let of = |trial: &OfTrial| {
        let mut sum = Estimate {
            cycles: 0.0,
            instructions: 0.0,
            lines: [0.0; 3],
        };
        let mut add = |name: &str, instructions: f64| {
            let misses = trial.misses.get(name).cloned().unwrap_or_default();
            sum.cycles += misses.cycles(instructions);
            sum.instructions += instructions;
            let lines = misses.lines();
            (0..3).for_each(|level| sum.lines[level] += lines[level]);
        };
        match function {
            Some(name) => add(name, trial.functions.get(name).copied().unwrap_or(0.0)),
            None => trial
                .functions
                .iter()
                .for_each(|(name, count)| add(name, *count)),
        }
        sum
    };
    trials.iter().map(of).collect()
}

fn mean(estimates: &[Estimate], of: impl Fn(&Estimate) -> f64) -> f64 {
    estimates.iter().map(of).sum::<f64>() / estimates.len() as f64
}

impl ByFunction {
    /// Estimates of all cells, each with its unit of work: first how each differs from the first cell with the same unit, then the functions
    /// that do, then those with most cycles. Empty if no caches were modelled.
    pub fn cycles<'a>(&self, cells: impl Iterator<Item = (&'a str, &'a str)>) -> String {
        let Some(caches) = &self.caches else {
            return String::new();
        };
        let mut text = String::from("\nCycles by function, estimated and not measured\n");
        let mut tables = String::new();
        let mut firsts: BTreeMap<&str, (&str, &[OfTrial])> = BTreeMap::new();
        for (cell, unit) in cells {
            let Some(trials) = self.cells.get(cell) else {
                continue;
            };
            match firsts.get(unit) {
                None => {
                    firsts.insert(unit, (cell, &trials[..]));
                }
                Some(first) => {
                    let Some((sentence, rows)) = against((cell, trials), *first) else {
                        continue;
                    };
                    let _ = writeln!(text, "{sentence}");
                    let _ = write!(
                        tables,
                        "\n{cell} against {}, per {unit}\n{HEAD}\n{rows}",
                        first.0
                    );
                }
            }
            let of_cell = table(trials);
            let n = trials.len();
            let _ = write!(tables, "\n{cell}, per {unit} (n={n})\n{HEAD}\n{of_cell}");
        }
        let _ = writeln!(
            text,
            "Linux {}; caches {caches}. L2, last, memory: lines that this\nlevel served (docs/kernels.md).",
            self.kernel
        );
        text + &tables
    }
}

/// Names of the functions of some trials.
fn names<'a>(trials: impl Iterator<Item = &'a OfTrial>) -> BTreeSet<&'a str> {
    trials
        .flat_map(|trial| trial.functions.keys())
        .map(String::as_str)
        .collect()
}

/// Rows of all functions together, and of those with most cycles.
fn table(trials: &[OfTrial]) -> String {
    let mut text = String::new();
    let mut rows: Vec<(Vec<Estimate>, &str)> = names(trials.iter())
        .into_iter()
        .map(|name| (estimates(trials, Some(name)), name))
        .collect();
    rows.sort_by(|a, b| mean(&b.0, |one| one.cycles).total_cmp(&mean(&a.0, |one| one.cycles)));
    rows.truncate(SHOWN);
    rows.insert(0, (estimates(trials, None), "all"));
    for (of, name) in rows {
        let [l2, last, memory] = [0, 1, 2].map(|level| mean(&of, |one| one.lines[level]));
        let (cycles, instructions) = (
            mean(&of, |one| one.cycles),
            mean(&of, |one| one.instructions),
        );
        let _ = writeln!(
            text,
            "{cycles:>12.1} {instructions:>13.1} {l2:>8.2} {last:>8.2} {memory:>8.2}  {name}"
        );
    }
    text
}

const HEAD: &str = "      cycles  instructions       L2     last   memory";

/// Sentence of how a cell differs from the first, and rows of the functions that differ most. `None` without trials.
fn against(
    (cell, after): (&str, &[OfTrial]),
    (first, before): (&str, &[OfTrial]),
) -> Option<(String, String)> {
    let change = |function: Option<&str>, of: fn(&Estimate) -> f64| {
        let values = |trials| {
            estimates(trials, function)
                .iter()
                .map(of)
                .collect::<Vec<f64>>()
        };
        difference_of_means(&values(before), &values(after))
    };
    let whole = |of: fn(&Estimate) -> f64| {
        let from = mean(&estimates(before, None), of);
        change(None, of).map(|(by, half)| (by / from, half.map(|half| half / from)))
    };
    let (cycles, half) = whole(|one| one.cycles)?;
    let (instructions, _) = whole(|one| one.instructions)?;
    let is_decided = half.is_some_and(|half| cycles.abs() - half >= VERDICT_LEAST);
    let half = half.map_or(String::new(), |half| format!(" ± {:.1}", half * 100.0));
    let verdict = match is_decided {
        true => "",
        false => "; below 5 % the model decides nothing",
    };
    let sentence = format!(
        "{cell} against {first}: {:+.1} %{half} estimated cycles, {:+.1} % instructions{verdict}",
        cycles * 100.0,
        instructions * 100.0
    );
    let mut text = String::new();
    let mut rows: Vec<(f64, &str)> = names(before.iter().chain(after))
        .into_iter()
        .filter_map(|name| Some((change(Some(name), |one| one.cycles)?.0, name)))
        .collect();
    rows.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
    for (cycles, name) in rows.into_iter().take(SHOWN) {
        let by = |of: fn(&Estimate) -> f64| change(Some(name), of).map_or(0.0, |(by, _)| by);
        let _ = writeln!(
            text,
            "{cycles:>+12.1} {:>+13.1} {:>+8.2} {:>+8.2} {:>+8.2}  {name}",
            by(|one| one.instructions),
            by(|one| one.lines[0]),
            by(|one| one.lines[1]),
            by(|one| one.lines[2]),
        );
    }
    Some((sentence, text))
}

#[cfg(test)]
mod tests {
    use tcpcost_guest::Misses;

    use super::*;

    fn trial(of_poll: f64) -> OfTrial {
        let misses = Misses {
            touched: [of_poll, 0.0, 0.0],
            ..Misses::default()
        };
        OfTrial {
            repetition: 0,
            functions: [("tcp_poll", 100.0), ("tcp_ack", 900.0)]
                .map(|(name, count)| (name.to_string(), count))
                .into(),
            misses: [("tcp_poll".to_string(), misses)].into(),
        }
    }

    #[test]
    fn a_function_whose_lines_went_cold_leads_though_its_instructions_are_the_same() {
        let cells = [("1", vec![trial(0.0); 3]), ("1000", vec![trial(10.0); 3])];
        let by_function = ByFunction {
            kernel: "6.1".into(),
            caches: Some("32K/8,32K/8,1M/8,32M/16".into()),
            cells: cells
                .map(|(name, trials)| (name.to_string(), trials))
                .into(),
        };
        let units = || ["1", "1000"].map(|cell| (cell, "transaction")).into_iter();
        let text = by_function.cycles(units());
        let of_all = "       640.0        1000.0    10.00     0.00     0.00  all\n";
        assert!(text.contains(of_all), "{text}");
        let change = "1000 against 1: +28.0 % ± 0.0 estimated cycles, +0.0 % instructions\n";
        assert!(text.contains(change), "{text}");
        let of_poll = "      +140.0          +0.0   +10.00    +0.00    +0.00  tcp_poll\n";
        assert!(text.contains(of_poll), "{text}");
        // A KiB is not compared with a transaction.
        let other = [("1", "transaction"), ("1000", "KiB")].into_iter();
        assert!(!by_function.cycles(other).contains("against"));
        let small = ByFunction {
            cells: [
                ("1".to_string(), vec![trial(0.0); 3]),
                ("1000".to_string(), vec![trial(1.0); 3]),
            ]
            .into(),
            ..by_function.clone()
        };
        let text = small.cycles(units());
        assert!(text.contains("+2.8 % ± 0.0 estimated cycles, +0.0 % instructions; below 5 % the model decides nothing"), "{text}");
        let without = ByFunction {
            caches: None,
            ..by_function
        };
        assert_eq!(without.cycles(units()), "");
    }
}
