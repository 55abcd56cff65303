//! Fit of prices on a study's samples, and their accuracy on cells that the fit does not see.

use nalgebra::{DMatrix, DVector};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use tcpcost_study::HostName;

use crate::causes::Cause;
use crate::linear::Costs;
use crate::prices::{Accuracy, Interval, Price, PriceList, Unpriced};
use crate::sample::Sample;

/// Prices with their accuracy.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// Prices, in the order of [`Cause::ALL`].
    pub prices: Vec<Price>,
    /// Causes without a price, each with a reason.
    pub unpriced: Vec<Unpriced>,
    /// Accuracy on the check cells.
    pub accuracy: Accuracy,
    /// Bootstrap: prices in the order of `prices`, ns.
    pub draws: Vec<Vec<f64>>,
    /// Errors by check cell and host.
    pub errors: Vec<CellError>,
}

/// Error of the prediction for one host of one cell.
#[derive(Debug, Clone, PartialEq)]
pub struct CellError {
    /// Name of the cell.
    pub cell: String,
    /// The host.
    pub host: HostName,
    /// Logarithm of measured / predicted, median of the trials.
    pub log_ratio: f64,
}

/// Error: samples that no prices can be fitted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    /// Too few cells were measured.
    #[error(
        "{fitted} cells to fit and {checked} check cells were measured: at least {FITTED_MIN} and {CHECKED_MIN} are needed"
    )]
    TooFew {
        /// Cells to fit.
        fitted: usize,
        /// Check cells.
        checked: usize,
    },
}

/// Least number of fitted cells.
pub const FITTED_MIN: usize = 8;
/// Least number of check cells.
pub const CHECKED_MIN: usize = 4;
/// Draws of the bootstrap: the ends of a 90 % interval are then the tenth from either end.
const DRAWS: usize = 200;
const SEED: u64 = 1;
/// Share of a cell's cost below which a cause is too rare to have a price.
const SHARE_MIN: f64 = 0.02;

/// Fits prices on the samples of `fitted` and checks them on those of `checked`.
///
/// # Errors
/// Too few cells have samples.
pub fn fit(fitted: &[Sample], checked: &[Sample]) -> Result<Fit, FitError> {
    let cells = |samples: &[Sample]| {
        let mut names: Vec<&str> = samples.iter().map(|sample| sample.cell.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names.len()
    };
    let (of_fit, of_check) = (cells(fitted), cells(checked));
    if of_fit < FITTED_MIN || of_check < CHECKED_MIN {
        return Err(FitError::TooFew {
            fitted: of_fit,
            checked: of_check,
        });
    }
    let (mut causes, mut unpriced) = counted(fitted);
    part_twins(fitted, &mut causes, &mut unpriced);
    loop {
        let design = Design::new(fitted, &causes);
        let prices = design.costs.prices(None);
        let errors = cell_errors(checked, &causes, &prices);
        let draws = design.bootstrap(&prices, &errors);
        let intervals: Vec<Interval> = (0..causes.len())
            .map(|at| interval_of(draws.iter().map(|draw| draw[at]).collect()))
            .collect();
        if let Some((at, reason)) = design.inseparable(&prices, &intervals, &draws) {
            let cause = causes.remove(at);
            unpriced.push(Unpriced { cause, reason });
            continue;
        }
        unpriced.sort_by_key(|unpriced| unpriced.cause);
        return Ok(Fit {
            prices: design.price_rows(&prices, &intervals),
            unpriced,
            accuracy: accuracy(&errors, of_check),
            draws: draws
                .iter()
                .map(|draw| draw.iter().copied().map(rounded).collect())
                .collect(),
            errors,
        });
    }
}

/// Causes that all samples have counts of and that occur, and the others with reasons.
fn counted(samples: &[Sample]) -> (Vec<Cause>, Vec<Unpriced>) {
    let (mut causes, mut unpriced) = (Vec::new(), Vec::new());
    for &cause in Cause::ALL {
        let counts: Option<Vec<f64>> = samples.iter().map(|one| one.counts.get(cause)).collect();
        let reason = match counts {
            None => "not counted by these meters",
            Some(counts) if counts.iter().all(|count| *count == 0.0) => "did not occur",
            Some(_) => {
                causes.push(cause);
                continue;
            }
        };
        unpriced.push(Unpriced {
            cause,
            reason: reason.to_string(),
        });
    }
    (causes, unpriced)
}

/// Removes causes whose counts go with those of another in all samples.
fn part_twins(samples: &[Sample], causes: &mut Vec<Cause>, unpriced: &mut Vec<Unpriced>) {
    let column = |cause: Cause| {
        let shares = samples.iter();
        shares.map(move |one| one.counts.get(cause).unwrap_or(0.0) / one.cpu_ns)
    };
    let product = |a: Cause, b: Cause| column(a).zip(column(b)).map(|(a, b)| a * b).sum::<f64>();
    let cosine = |a, b| product(a, b) / (product(a, a) * product(b, b)).sqrt();
    let mut at = 1;
    while at < causes.len() {
        let cause = causes[at];
        let earlier = causes[..at].iter().copied();
        match earlier
            .into_iter()
            .find(|&other| cosine(cause, other) > TWINS)
        {
            Some(other) => {
                causes.remove(at);
                unpriced.push(Unpriced {
                    cause,
                    reason: cannot_be_told(other),
                });
            }
            None => at += 1,
        }
    }
}

/// Cosine of two columns of counts from which they are one: what differs is a few percent, less than the noise.
const TWINS: f64 = 0.995;

fn cannot_be_told(from: Cause) -> String {
    format!(
        "cannot be told from {}, whose price includes it",
        from.label()
    )
}

/// Matrix of a fit.
struct Design<'a> {
    causes: &'a [Cause],
    costs: Costs,
    /// Number of the cell and host of each sample.
    groups: Vec<usize>,
}

impl<'a> Design<'a> {
    fn new(samples: &[Sample], causes: &'a [Cause]) -> Design<'a> {
        let mut keys: Vec<(&str, HostName)> = Vec::new();
        let groups: Vec<usize> = samples
            .iter()
            .map(|sample| {
                let key = (sample.cell.as_str(), sample.host);
                keys.iter()
                    .position(|known| *known == key)
                    .unwrap_or_else(|| {
                        keys.push(key);
                        keys.len() - 1
                    })
            })
            .collect();
        let size = |group: usize| groups.iter().filter(|other| **other == group).count();
        let weights = groups.iter().map(|&group| 1.0 / size(group) as f64);
        Design {
            causes,
            costs: Costs {
                weights: DVector::from_iterator(samples.len(), weights),
                ..costs(samples, causes)
            },
            groups,
        }
    }

    /// Prices of samples whose errors are drawn anew: the error of a cell from those of check cells, the
    /// error of a trial from those of its cell. Leaving out whole cells would lose causes that one cell has.
    fn bootstrap(&self, prices: &DVector<f64>, checks: &[CellError]) -> Vec<DVector<f64>> {
        let predicted = self.costs.predicted(prices);
        let errors = self.costs.errors(&predicted);
        let of_group = |group: usize| -> Vec<f64> {
            let each = self.groups.iter().zip(errors.iter());
            let of_it: Vec<f64> = each
                .filter(|(of, _)| **of == group)
                .map(|(_, error)| *error)
                .collect();
            let middle = median(of_it.clone());
            of_it.iter().map(|error| error - middle).collect()
        };
        let count = self.groups.iter().max().map_or(0, |last| last + 1);
        let of_trials: Vec<Vec<f64>> = (0..count).map(of_group).collect();
        let middle = median(checks.iter().map(|one| one.log_ratio).collect());
        let of_cells: Vec<f64> = checks.iter().map(|one| one.log_ratio - middle).collect();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let mut draw = |from: &[f64]| from[(random.next_u64() % from.len() as u64) as usize];
        let one = |_| {
            let shifts: Vec<f64> = (0..count).map(|_| draw(&of_cells)).collect();
            let measured = self
                .groups
                .iter()
                .zip(predicted.iter())
                .map(|(&group, cost)| cost * (shifts[group] + draw(&of_trials[group])).exp());
            let costs = Costs {
                measured: DVector::from_iterator(predicted.len(), measured),
                ..self.costs.clone()
            };
            costs.prices(Some(prices))
        };
        (0..DRAWS).map(one).collect()
    }

    /// Largest share of a sample's predicted cost for each cause.
    fn shares(&self, prices: &DVector<f64>) -> Vec<f64> {
        let predicted = self.costs.predicted(prices);
        let columns = self.costs.counts.column_iter().zip(prices.iter());
        columns
            .map(|(column, price)| (column * *price).component_div(&predicted).amax())
            .collect()
    }

    /// The cause whose price is least certain, if it is too uncertain to be told, with the reason.
    fn inseparable(
        &self,
        prices: &DVector<f64>,
        intervals: &[Interval],
        draws: &[DVector<f64>],
    ) -> Option<(usize, String)> {
        let shares = self.shares(prices);
        let certainty = |at: usize| intervals[at].low / intervals[at].high.max(f64::MIN_POSITIVE);
        let worst = (0..prices.len()).min_by(|&one, &other| {
            let rank = |at: usize| (certainty(at), shares[at]);
            let (one, other) = (rank(one), rank(other));
            one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1))
        })?;
        if shares[worst] < SHARE_MIN && certainty(worst) < CERTAINTY_MIN {
            let share = SHARE_MIN * 100.0;
            return Some((worst, format!("below {share:.0} % of every cell's cost")));
        }
        if certainty(worst) >= CERTAINTY_MIN {
            return None;
        }
        let of = |at: usize| draws.iter().map(|draw| draw[at]).collect::<Vec<f64>>();
        let others = (0..prices.len()).filter(|&at| at != worst);
        let together = others.min_by(|&one, &other| {
            let with = |at| correlation(&of(worst), &of(at));
            with(one).total_cmp(&with(other))
        })?;
        Some((worst, cannot_be_told(self.causes[together])))
    }

    fn price_rows(&self, prices: &DVector<f64>, intervals: &[Interval]) -> Vec<Price> {
        let shares = self.shares(prices);
        let rows = self.causes.iter().enumerate();
        rows.map(|(at, &cause)| {
            let counts = self.costs.counts.column(at);
            Price {
                cause,
                ns: rounded(prices[at]),
                interval: Interval {
                    low: rounded(intervals[at].low),
                    high: rounded(intervals[at].high),
                },
                largest_share: rounded(shares[at]),
                most_per_cpu_s: rounded(counts.component_div(&self.costs.measured).amax() * 1e9),
            }
        })
        .collect()
    }
}

/// Least quotient of the ends of a price's interval: a price that may be thirty times another is none.
const CERTAINTY_MIN: f64 = 0.03;

fn costs(samples: &[Sample], causes: &[Cause]) -> Costs {
    let count = |row: usize, column: usize| {
        let sample: &Sample = &samples[row];
        sample.counts.get(causes[column]).unwrap_or(0.0)
    };
    Costs {
        counts: DMatrix::from_fn(samples.len(), causes.len(), count),
        measured: DVector::from_iterator(samples.len(), samples.iter().map(|one| one.cpu_ns)),
        weights: DVector::repeat(samples.len(), 1.0),
    }
}

/// Errors of prices by cell and host.
fn cell_errors(samples: &[Sample], causes: &[Cause], prices: &DVector<f64>) -> Vec<CellError> {
    let costs = costs(samples, causes);
    let errors = costs.errors(&costs.predicted(prices));
    let mut by_cell: Vec<(CellError, Vec<f64>)> = Vec::new();
    for (sample, &error) in samples.iter().zip(errors.iter()) {
        let found = by_cell
            .iter_mut()
            .find(|(of, _)| of.cell == sample.cell && of.host == sample.host);
        match found {
            Some((_, errors)) => errors.push(error),
            None => {
                let (cell, host) = (sample.cell.clone(), sample.host);
                let log_ratio = 0.0;
                by_cell.push((
                    CellError {
                        cell,
                        host,
                        log_ratio,
                    },
                    vec![error],
                ));
            }
        }
    }
    let of = |(cell, errors)| CellError {
        log_ratio: median(errors),
        ..cell
    };
    by_cell.into_iter().map(of).collect()
}

/// Errors of a price list by cell and host.
pub(crate) fn errors_by(samples: &[Sample], list: &PriceList) -> Vec<CellError> {
    let causes: Vec<Cause> = list.prices.iter().map(|price| price.cause).collect();
    let prices = list.prices.iter().map(|price| price.ns);
    cell_errors(
        samples,
        &causes,
        &DVector::from_iterator(causes.len(), prices),
    )
}

/// Accuracy from errors of check cells. Both hosts of a cell err together, so the degrees of freedom are
/// those of the cells.
fn accuracy(errors: &[CellError], cells: usize) -> Accuracy {
    let squares = errors.iter().map(|one| one.log_ratio.powi(2)).sum::<f64>();
    let deviation = (squares / errors.len() as f64).sqrt();
    let half = student(cells as f64) * deviation * (1.0 + 1.0 / cells as f64).sqrt();
    let relative = |one: &CellError| one.log_ratio.exp_m1().abs();
    Accuracy {
        interval: Interval {
            low: rounded((-half).exp()),
            high: rounded(half.exp()),
        },
        median: rounded(median(errors.iter().map(relative).collect())),
        within_20: errors.iter().filter(|one| relative(one) <= 0.2).count(),
        predictions: errors.len(),
        cells,
    }
}

/// The value with six digits: more tell nothing, and these survive a file.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// Student's t at 95 %, one-sided, by the expansion of Cornish and Fisher: within 1 % from 4 degrees of
/// freedom on.
fn student(freedom: f64) -> f64 {
    let z: f64 = 1.644_853_6;
    let first = (z.powi(3) + z) / (4.0 * freedom);
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * freedom.powi(2));
    z + first + second
}

fn interval_of(mut values: Vec<f64>) -> Interval {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = share * (values.len().max(1) - 1) as f64;
        values.get(place.round() as usize).copied().unwrap_or(0.0)
    };
    Interval {
        low: at(0.05),
        high: at(0.95),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

fn correlation(one: &[f64], other: &[f64]) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (of_one, of_other) = (mean(one), mean(other));
    let sum = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
        let pairs = one.iter().zip(other);
        pairs.map(|(a, b)| f(a - of_one, b - of_other)).sum()
    };
    let spread = (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt();
    if spread > 0.0 {
        sum(&|a, b| a * b) / spread
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests;
