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
    /// Errors by cell and host, of all cells.
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

/// Fits prices on the samples of `fitted` and `checked`. The accuracy is that of each check cell by prices that were fitted without
/// it; `fitted` are cells that alone have a cause, so that they cannot be left out.
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
    let all: Vec<Sample> = fitted.iter().chain(checked).cloned().collect();
    let (mut causes, mut unpriced) = counted(&all);
    part_twins(&all, &mut causes, &mut unpriced);
    let design = Design::new(&all, &causes);
    let prices = design.costs.prices(None);
    let of_cells = cell_errors(&all, &causes, &prices);
    let spread = spread(&of_cells, &prices);
    let draws = design.bootstrap(&prices, &of_cells, spread);
    let rows = design.price_rows(&prices, &draws);
    let is_told = |row: &Price| row.interval.low >= CERTAINTY_MIN * row.interval.high;
    let mut told = Vec::new();
    for (at, row) in rows.into_iter().enumerate() {
        if is_told(&row) {
            told.push((at, row));
            continue;
        }
        unpriced.push(Unpriced {
            cause: row.cause,
            reason: design.reason(at, &row, &draws),
            in_sums_ns: row.ns,
        });
    }
    unpriced.sort_by_key(|unpriced| unpriced.cause);
    let of_draw = |draw: &DVector<f64>| told.iter().map(|(at, _)| rounded(draw[*at])).collect();
    let draws = draws.iter().map(of_draw).collect();
    Ok(Fit {
        accuracy: accuracy(&left_out(fitted, checked, &causes), spread, of_check),
        prices: told.into_iter().map(|(_, row)| row).collect(),
        unpriced,
        draws,
        errors: of_cells,
    })
}

/// Errors of the check cells, each by prices that are fitted on all other cells.
fn left_out(fitted: &[Sample], checked: &[Sample], causes: &[Cause]) -> Vec<CellError> {
    let mut cells: Vec<&str> = checked.iter().map(|sample| sample.cell.as_str()).collect();
    cells.sort_unstable();
    cells.dedup();
    let errors = |cell: &&str| {
        let (out, others): (Vec<Sample>, Vec<Sample>) =
            checked.iter().cloned().partition(|one| one.cell == *cell);
        let others: Vec<Sample> = fitted.iter().cloned().chain(others).collect();
        let prices = Design::new(&others, causes).costs.prices(None);
        cell_errors(&out, causes, &prices)
    };
    cells.iter().flat_map(errors).collect()
}

/// Standard deviation of the errors of cells that the fit did not see, from those that it saw: by the
/// median, because single cells err far more than others, with the degrees of freedom that prices took, and
/// with the errors of these prices (the mean leverage).
fn spread(errors: &[CellError], prices: &DVector<f64>) -> f64 {
    let count = errors.len() as f64;
    let taken = prices.iter().filter(|price| **price > 0.0).count() as f64;
    let middle = median(errors.iter().map(|one| one.log_ratio.abs()).collect());
    // Half of a normal distribution lies within 0.6745 standard deviations.
    middle / 0.674_5 * (count / (count - taken).max(1.0) * (1.0 + taken / count)).sqrt()
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
            in_sums_ns: 0.0,
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
                    in_sums_ns: 0.0,
                });
            }
            None => at += 1,
        }
    }
}

/// Cosine of two columns of counts from which they are one: what differs is a few percent, less than the noise.
const TWINS: f64 = 0.995;

fn cannot_be_told(from: Cause) -> String {
    format!("cannot be told from {}", from.label())
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

    /// Prices of samples whose errors are drawn anew: the error of a cell from those of all cells, which are
    /// widened to the spread of cells that no fit saw, the error of a trial from those of its cell. Leaving
    /// out whole cells would lose causes that one cell has.
    fn bootstrap(
        &self,
        prices: &DVector<f64>,
        errors: &[CellError],
        spread: f64,
    ) -> Vec<DVector<f64>> {
        let predicted = self.costs.predicted(prices);
        let of_samples = self.costs.errors(&predicted);
        let of_group = |group: usize| -> Vec<f64> {
            let each = self.groups.iter().zip(of_samples.iter());
            let of_it: Vec<f64> = each
                .filter(|(of, _)| **of == group)
                .map(|(_, error)| *error)
                .collect();
            let middle = median(of_it.clone());
            of_it.iter().map(|error| error - middle).collect()
        };
        let count = self.groups.iter().max().map_or(0, |last| last + 1);
        let of_trials: Vec<Vec<f64>> = (0..count).map(of_group).collect();
        let square = errors.iter().map(|one| one.log_ratio.powi(2)).sum::<f64>();
        let deviation = (square / errors.len() as f64).sqrt();
        // Without errors there is nothing to widen.
        let wider = if deviation > 0.0 {
            (spread / deviation).max(1.0)
        } else {
            1.0
        };
        let of_cells: Vec<f64> = errors.iter().map(|one| one.log_ratio * wider).collect();
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

    /// Reason why a price is too uncertain to be told.
    fn reason(&self, at: usize, row: &Price, draws: &[DVector<f64>]) -> String {
        let counts = self.costs.counts.column(at);
        let most = counts.component_div(&self.costs.measured).amax() * row.interval.high;
        if most < SHARE_MIN {
            return format!("below {:.0} % of every cell's cost", SHARE_MIN * 100.0);
        }
        let of = |at: usize| draws.iter().map(|draw| draw[at]).collect::<Vec<f64>>();
        let others = (0..self.causes.len()).filter(|&other| other != at);
        let together = others.min_by(|&one, &other| {
            let with = |other| correlation(&of(at), &of(other));
            with(one).total_cmp(&with(other))
        });
        together.map_or_else(String::new, |other| cannot_be_told(self.causes[other]))
    }

    fn price_rows(&self, prices: &DVector<f64>, draws: &[DVector<f64>]) -> Vec<Price> {
        let shares = self.shares(prices);
        let rows = self.causes.iter().enumerate();
        rows.map(|(at, &cause)| {
            let counts = self.costs.counts.column(at);
            let interval = interval_of(draws.iter().map(|draw| draw[at]).collect());
            Price {
                cause,
                ns: rounded(prices[at]),
                interval: Interval {
                    low: rounded(interval.low),
                    high: rounded(interval.high),
                },
                largest_share: rounded(shares[at]),
                most_per_cpu_s: rounded(counts.component_div(&self.costs.measured).amax() * 1e9),
            }
        })
        .collect()
    }
}

/// Least quotient of the ends of a price's interval: a price that may as well be a tenth is none.
const CERTAINTY_MIN: f64 = 0.1;

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

/// Accuracy by the errors of check cells that were left out, and by the spread of all cells.
fn accuracy(errors: &[CellError], spread: f64, cells: usize) -> Accuracy {
    let half = NORMAL_95 * spread;
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

/// Standard deviations below which 95 % of a normal distribution lie.
const NORMAL_95: f64 = 1.645;

/// The value with six digits: more tell nothing, and these survive a file.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    format!("{value:.5e}").parse().unwrap_or(value)
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
