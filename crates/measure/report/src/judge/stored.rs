//! Compares stored runs. The unit is the run, and a cell is compared with the other cells of its study.
//!
//! A machine's speed has a level that is common to all cells and lasts for minutes: it made 83 % of the
//! variance between runs of one study over 40 minutes. Trials of one run share that level, so more trials do
//! not reduce its effect. Two runs that did not run in turn have two levels. Other cells of the same run have
//! the same level, so a comparison with them removes it. docs/method.md has the rules ("Stored runs"),
//! docs/dev/decisions.md the measured error and power.

use tcpcost_study::Derived;

use crate::derive::cell::{CellSummary, LeastSpread};
use crate::derive::contrast::Contrast;
use crate::derive::estimate::{CONFIDENCE, Estimate};
use crate::derive::student::{mean, ratio_of_means, squares, t_quantile, t_tails};

/// Degrees of freedom with which the mean variance of all cells enters the variance of one cell, because a
/// few runs alone estimate it too badly. Limma's moderated t (Smyth 2004) has as many for few replicates.
const PRIOR_FREEDOM: usize = 4;
/// How unequally cells react to the common level, as a fraction of it: measured 0.15 and 0.30 in two parts of
/// 52 runs. Without it, 38 % of the verdicts on equal cells were false if the level had changed between the
/// groups.
const LEVEL_INEQUALITY: f64 = 0.25;
/// Fewest cells for runs that did not alternate. A change is compared with the spread of the other cells'
/// changes, and fewer cells do not show it.
const CELLS_LEAST: usize = 5;
/// Change of the level, as a logarithm, beyond which cells of runs that did not alternate are not compared.
/// Four spinners on two CPUs raise the cost of one flow's transactions tenfold, but that of a stream only by
/// a third. Up to 9 % of such comparisons gave a false verdict on equal cells.
const LEVEL_MAX: f64 = 0.5;
/// Fewest runs of both groups together, unless there is one run of each.
const RUNS_LEAST: usize = 4;
/// Fewest runs of each group, in turn, for a verdict on a change that is common to all cells.
const IN_TURN_LEAST: usize = 3;
/// Change for which the necessary number of runs is stated.
pub(crate) const EFFECT_NAMED: f64 = 0.2;
/// Largest number of runs that is suggested.
pub(crate) const RUNS_NAMED_MAX: usize = 100;
/// Standard normal quantile of 80 % power.
const POWER_80: f64 = 0.84;

/// Cells of one run, and the start of its first trial.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunCells<'a> {
    /// The cells.
    pub cells: &'a [CellSummary],
    /// Time in RFC 3339.
    pub started: Option<&'a str>,
}

/// Runs before a change and after it.
#[derive(Debug, Clone)]
pub(crate) struct StoredRuns<'a> {
    /// Runs before the change.
    pub before: Vec<RunCells<'a>>,
    /// Runs after the change.
    pub after: Vec<RunCells<'a>>,
}

/// A change as the logarithm of a ratio, with its standard error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Shift {
    /// Logarithm of the ratio.
    pub log: f64,
    /// Standard errors with their degrees of freedom. The change must be significant by each of them. Without
    /// any, its error is unknown.
    errors: [Option<(f64, usize)>; 2],
    /// Standard deviation of one run's logarithm.
    deviation: f64,
    /// Number of runs of the smaller group.
    runs: usize,
}

impl Shift {
    /// Ratio with its interval.
    pub fn contrast(&self) -> Contrast {
        let half = self.half_width();
        let at = |by: f64| half.map(|half| (self.log + by * half).exp());
        Contrast {
            ratio: Estimate {
                median: self.log.exp(),
                lo: at(-1.0),
                hi: at(1.0),
                n: self.runs,
            },
        }
    }

    /// Half-width of the logarithm's interval: a smaller change cannot be seen.
    pub fn half_width(&self) -> Option<f64> {
        let each = self.errors.iter().flatten();
        let halves = each.map(|(error, freedom)| t_quantile(1.0 - CONFIDENCE, *freedom) * error);
        halves.reduce(f64::max)
    }

    /// Probability of a change at least as far from `ratio`, in either direction, if `ratio` is the true one.
    pub fn p_value(&self, ratio: f64) -> f64 {
        let far = (self.log - ratio.ln()).abs();
        let each = self.errors.iter().flatten().filter(|_| far > 0.0);
        let tails = each.map(|(error, freedom)| t_tails(far / error, *freedom));
        tails.reduce(f64::max).unwrap_or(1.0)
    }

    /// True if its error is known.
    pub fn has_error(&self) -> bool {
        self.errors.iter().any(Option::is_some)
    }

    /// Estimated number of runs before and after, in turn, that find a change of [`EFFECT_NAMED`] in four of
    /// five cases.
    pub fn runs_needed(&self) -> Option<usize> {
        self.has_error().then_some(())?;
        let effect = EFFECT_NAMED.ln_1p();
        let enough = |runs: &usize| {
            let t = t_quantile(1.0 - CONFIDENCE, 2 * runs - 2 + PRIOR_FREEDOM);
            effect >= (t + POWER_80) * self.deviation * (2.0 / *runs as f64).sqrt()
        };
        (IN_TURN_LEAST..=RUNS_NAMED_MAX)
            .find(enough)
            .or(Some(RUNS_NAMED_MAX + 1))
    }
}

/// Logarithms of the costs of a group of runs: a row for each run, a column for each cell.
struct Logs {
    rows: Vec<Vec<f64>>,
    /// Variance of a logarithm among the trials of a run, as the mean over the runs, by cell.
    within: Vec<f64>,
}

impl Logs {
    /// Mean over the runs, by cell.
    fn means(&self) -> Vec<f64> {
        let cells = self.within.len();
        let of = |cell: usize| mean(self.rows.iter().map(|row| row[cell]));
        (0..cells).map(of).collect()
    }

    /// Subtracts from each value the mean of the other cells of its run.
    fn against_others(self) -> Logs {
        let cells = self.within.len() as f64;
        let less = |row: &Vec<f64>| {
            let sum: f64 = row.iter().sum();
            row.iter()
                .map(|log| log - (sum - log) / (cells - 1.0))
                .collect()
        };
        Logs {
            rows: self.rows.iter().map(less).collect(),
            within: self.within,
        }
    }

    /// Sum of squares around the means, by cell.
    fn squares(&self) -> Vec<f64> {
        let means = self.means().into_iter().enumerate();
        means
            .map(|(cell, mean)| self.rows.iter().map(|row| (row[cell] - mean).powi(2)).sum())
            .collect()
    }
}

impl<'a> StoredRuns<'a> {
    /// Number of runs in the smaller and in the larger group.
    fn sizes(&self) -> (usize, usize) {
        let (k, m) = (self.before.len(), self.after.len());
        (k.min(m), k.max(m))
    }

    /// True if runs before and after the change alternate, at least three of each. Then a change of the
    /// machine affects both groups equally.
    pub fn alternate(&self) -> bool {
        let of = |runs: &[RunCells<'_>], is_after: bool| -> Option<Vec<(jiff::Timestamp, bool)>> {
            let times = runs.iter().map(|run| run.started?.parse().ok());
            times.map(|time| Some((time?, is_after))).collect()
        };
        let Some((mut all, after)) = of(&self.before, false).zip(of(&self.after, true)) else {
            return false;
        };
        all.extend(after);
        all.sort();
        self.sizes().0 >= IN_TURN_LEAST && all.windows(2).all(|two| two[0].1 != two[1].1)
    }

    /// The cell of a run with the same name and knobs.
    fn same<'c>(run: &RunCells<'c>, cell: &CellSummary) -> Option<&'c CellSummary> {
        let mut cells = run.cells.iter();
        cells.find(|other| other.name == cell.name && other.knobs == cell.knobs)
    }

    /// The cell in the newest of the earlier runs that has it.
    pub fn earlier(&self, cell: &CellSummary) -> Option<&'a CellSummary> {
        let mut runs = self.before.iter().rev();
        runs.find_map(|run| Self::same(run, cell))
    }

    /// Ratio over guests whose clock counts instructions: each trial is of a snapshot of its own.
    pub fn of_guests(&self, cell: &CellSummary, of: Derived) -> Option<Contrast> {
        let values = |runs: &[RunCells<'_>]| -> Vec<f64> {
            let cells = runs.iter().filter_map(|run| Self::same(run, cell));
            cells.flat_map(|own| own.used_values(of)).collect()
        };
        let least = LeastSpread::of(&cell.knobs).between;
        let ratio = ratio_of_means(&values(&self.before), &values(&self.after), least)?;
        Some(Contrast { ratio })
    }

    /// Cells that have a value in every run. `of` gives the quantity of a cell.
    fn common_cells(&self, of: impl Fn(&CellSummary) -> Derived) -> Vec<&'a CellSummary> {
        let cells = self.after[0].cells.iter();
        let has = |cell: &&CellSummary| {
            let mut runs = self.before.iter().chain(&self.after);
            runs.all(|run| Self::same(run, cell).is_some_and(|own| !logs(own, of(cell)).is_empty()))
        };
        cells.filter(has).collect()
    }

    fn logs(
        runs: &[RunCells<'_>],
        cells: &[&CellSummary],
        of: impl Fn(&CellSummary) -> Derived,
    ) -> Logs {
        let trials: Vec<Vec<Vec<f64>>> = runs
            .iter()
            .map(|run| {
                let own = cells.iter().map(|cell| Self::same(run, cell));
                own.zip(cells)
                    .map(|(own, cell)| own.map_or(Vec::new(), |own| logs(own, of(cell))))
                    .collect()
            })
            .collect();
        let within = |cell: usize| {
            mean(trials.iter().map(|run| {
                let logs = &run[cell];
                let n = logs.len() as f64;
                if n < 2.0 {
                    0.0
                } else {
                    squares(logs) / (n - 1.0) / n
                }
            }))
        };
        Logs {
            rows: trials
                .iter()
                .map(|run| run.iter().map(|logs| mean(logs.iter().copied())).collect())
                .collect(),
            within: (0..cells.len()).map(within).collect(),
        }
    }

    /// Quantity by which a cell is compared: the main quantity of most runs, if every run has values of it.
    /// Runs can have different main quantities, for example if another process used the meter during one of
    /// them.
    pub fn main(&self, cell: &CellSummary) -> Derived {
        let own = || {
            self.before
                .iter()
                .chain(&self.after)
                .filter_map(|run| Self::same(run, cell))
        };
        let count = |of: Derived| own().filter(|own| own.main == of).count();
        let held = own().filter(|one| own().all(|own| !logs(own, one.main).is_empty()));
        let most = held.max_by_key(|one| count(one.main));
        most.map_or(cell.main, |own| own.main)
    }

    /// Logarithms of all cells that every run has, and the index of `cell` among them.
    fn groups(
        &self,
        cell: &CellSummary,
        of: impl Fn(&CellSummary) -> Derived + Copy,
    ) -> Option<(Logs, Logs, usize)> {
        let cells = self.common_cells(of);
        let at = cells.iter().position(|other| std::ptr::eq(*other, cell))?;
        let logs = |runs| Self::logs(runs, &cells, of);
        Some((logs(&self.before), logs(&self.after), at))
    }

    /// Change of the cell's quantity relative to the other cells of its study. `cell` belongs to the first
    /// run after the change. `None` if not every run has the cell. Has no error if there are too few cells or
    /// runs.
    pub fn against_others(&self, cell: &CellSummary, of: Derived) -> Option<Shift> {
        // Main quantities are compared with main quantities, each in its own unit. Another quantity is
        // compared with the same quantity of all cells that have it.
        let is_main = of == self.main(cell);
        let each = |other: &CellSummary| if is_main { self.main(other) } else { of };
        let (before, after, at) = self.groups(cell, each)?;
        let level = mean(after.means()) - mean(before.means());
        if self.alternate() {
            let shift = match after.within.len() {
                1 => moderated(&before, &after, 0.0, at),
                _ => moderated(&before.against_others(), &after.against_others(), level, at),
            };
            return Some(shift);
        }
        let by_spread = by_spread(&before, &after, at);
        if after.within.len() < CELLS_LEAST || is_too_far(&before, &after) {
            return Some(Shift {
                errors: [None, None],
                ..by_spread
            });
        }
        if self.sizes() == (1, 1) {
            return Some(by_spread);
        }
        let by_runs = self.of_groups(&before.against_others(), &after.against_others(), level, at);
        let both = [by_runs.errors[0], by_spread.errors[0]];
        Some(Shift {
            errors: if by_runs.has_error() {
                both
            } else {
                [None, None]
            },
            ..by_runs
        })
    }

    /// True if runs that did not alternate have levels that are too different for cells to be compared.
    pub fn are_too_unlike(&self) -> bool {
        let each = |cell: &CellSummary| self.main(cell);
        let cells = self.common_cells(each);
        let logs = |runs| Self::logs(runs, &cells, each);
        !cells.is_empty()
            && !self.alternate()
            && is_too_far(&logs(&self.before), &logs(&self.after))
    }

    /// Change of a quantity that does not depend on the machine's level, such as a count.
    pub fn by_itself(&self, cell: &CellSummary, of: Derived) -> Option<Shift> {
        let (before, after, at) = self.groups(cell, |_| of)?;
        Some(self.of_groups(&before, &after, 0.0, at))
    }

    fn of_groups(&self, before: &Logs, after: &Logs, level: f64, at: usize) -> Shift {
        let shift = moderated(before, after, level, at);
        let is_enough = self.before.len() + self.after.len() >= RUNS_LEAST;
        Shift {
            errors: shift.errors.map(|error| error.filter(|_| is_enough)),
            ..shift
        }
    }

    /// Change of all cells together. It has an error if the runs alternate.
    pub fn common(&self) -> Option<Shift> {
        let each = |cell: &CellSummary| self.main(cell);
        let cells = self.common_cells(each);
        if cells.is_empty() {
            return None;
        }
        let level = |runs| {
            let logs = Self::logs(runs, &cells, each);
            Logs {
                rows: logs
                    .rows
                    .iter()
                    .map(|row| vec![mean(row.iter().copied())])
                    .collect(),
                // Variance of a mean of independent cells.
                within: vec![mean(logs.within.iter().copied()) / cells.len() as f64],
            }
        };
        let (before, after) = (level(&self.before), level(&self.after));
        let freedom = (self.before.len() + self.after.len()).saturating_sub(2);
        let squares = before.squares()[0] + after.squares()[0];
        let variance = (squares / freedom.max(1) as f64).max(before.within[0]);
        Some(Shift {
            log: after.means()[0] - before.means()[0],
            errors: [
                self.alternate().then(|| (self.error(variance), freedom)),
                None,
            ],
            deviation: variance.sqrt(),
            runs: self.sizes().0,
        })
    }

    /// Number of cells that every run has.
    pub fn n_cells(&self) -> usize {
        self.common_cells(|cell| self.main(cell)).len()
    }

    /// Standard error of the difference of the groups' means.
    fn error(&self, variance: f64) -> f64 {
        (variance * (1.0 / self.before.len() as f64 + 1.0 / self.after.len() as f64)).sqrt()
    }
}

/// True if the median change of the cells is beyond [`LEVEL_MAX`]. The change of one cell alone does not
/// affect it.
fn is_too_far(before: &Logs, after: &Logs) -> bool {
    let each = after.means().into_iter().zip(before.means());
    let median = Estimate::new(each.map(|(after, before)| after - before));
    median.is_some_and(|level| level.median.abs() > LEVEL_MAX)
}

/// A cell's change relative to the mean change of the others, with the error from their spread.
fn by_spread(before: &Logs, after: &Logs, at: usize) -> Shift {
    let each = after.means().into_iter().zip(before.means());
    let changes: Vec<f64> = each.map(|(after, before)| after - before).collect();
    let mut others = changes.clone();
    others.remove(at);
    let n = others.len() as f64;
    let (k, m) = (before.rows.len() as f64, after.rows.len() as f64);
    let within = before.within[at] / k + after.within[at] / m;
    let freedom = others.len().saturating_sub(1).max(1);
    let variance = (squares(&others) / freedom as f64).max(within);
    Shift {
        log: changes[at] - mean(others),
        errors: [Some(((variance * (1.0 + 1.0 / n)).sqrt(), freedom)), None],
        deviation: (variance / 2.0).sqrt(),
        runs: before.rows.len().min(after.rows.len()),
    }
}

/// A cell's change with moderated errors: its variance includes that of all cells, and the error includes a
/// part of the common change.
fn moderated(before: &Logs, after: &Logs, level: f64, at: usize) -> Shift {
    let (k, m) = (before.rows.len() as f64, after.rows.len() as f64);
    let freedom = before.rows.len() + after.rows.len() - 2;
    let own = |(one, other): (f64, f64)| (one + other) / freedom.max(1) as f64;
    let variances: Vec<f64> = before
        .squares()
        .into_iter()
        .zip(after.squares())
        .map(own)
        .collect();
    let prior = mean(variances.iter().copied()) * PRIOR_FREEDOM as f64;
    let all = freedom + PRIOR_FREEDOM;
    let variance = (prior + variances[at] * freedom as f64) / all as f64;
    let within = (before.within[at] * k + after.within[at] * m) / (k + m);
    let variance = variance.max(within);
    let square = variance * (1.0 / k + 1.0 / m) + (LEVEL_INEQUALITY * level).powi(2);
    Shift {
        log: after.means()[at] - before.means()[at],
        errors: [Some((square.sqrt(), all)), None],
        deviation: variance.sqrt(),
        runs: before.rows.len().min(after.rows.len()),
    }
}

/// Logarithms of a quantity, from the last try of each repetition, marked or not: a disturbance of the
/// machine affects all cells of a run. Empty unless all values are above zero.
fn logs(cell: &CellSummary, of: Derived) -> Vec<f64> {
    let mut last = std::collections::BTreeMap::new();
    for trial in &cell.trials {
        if let Some(value) = trial.values.get(&of) {
            last.insert(trial.repetition, value.ln());
        }
    }
    let logs: Vec<f64> = last.into_values().collect();
    if logs.iter().all(|log| log.is_finite()) {
        logs
    } else {
        Vec::new()
    }
}

/// True for the probabilities that are significant together with 95 % confidence (Holm 1979).
pub(crate) fn holm(values: &[f64]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut stand = vec![false; values.len()];
    for (rank, at) in order.iter().enumerate() {
        if values[*at] > (1.0 - CONFIDENCE) / (values.len() - rank) as f64 {
            break;
        }
        stand[*at] = true;
    }
    stand
}

#[cfg(test)]
mod tests;
