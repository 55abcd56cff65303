//! Non-negative least squares, and the fit of prices on the logarithm of costs.

use nalgebra::{DMatrix, DVector};

/// Minimises |A x - b| for x >= 0 from the normal equations A'A and A'b, by the active set method of Lawson
/// and Hanson (Solving Least Squares Problems, 1974, chapter 23).
pub(crate) fn non_negative(gram: &DMatrix<f64>, rhs: &DVector<f64>) -> DVector<f64> {
    let n = rhs.len();
    let mut x = DVector::zeros(n);
    let mut free: Vec<usize> = Vec::new();
    let mut is_stuck = vec![false; n];
    let least = rhs.amax() * 1e-10;
    for _ in 0..10 * n {
        let slope = rhs - gram * &x;
        let bound = (0..n).filter(|at| !free.contains(at) && !is_stuck[*at]);
        let steepest = bound.max_by(|&one, &other| slope[one].total_cmp(&slope[other]));
        let Some(entering) = steepest.filter(|&at| slope[at] > least) else {
            break;
        };
        free.push(entering);
        while let Some(at) = descend(gram, rhs, &mut free, &mut x) {
            // A column that depends on those that are free already adds nothing.
            is_stuck[at] |= at == entering;
        }
        if !is_stuck[entering] {
            is_stuck.fill(false);
        }
    }
    x
}

/// Moves x to the least squares solution of the free columns, or towards it until an entry is 0. That entry
/// is bound again and returned.
fn descend(
    gram: &DMatrix<f64>,
    rhs: &DVector<f64>,
    free: &mut Vec<usize>,
    x: &mut DVector<f64>,
) -> Option<usize> {
    let of_free = DMatrix::from_fn(free.len(), free.len(), |row, column| {
        gram[(free[row], free[column])] * if row == column { 1.0 + 1e-10 } else { 1.0 }
    });
    let right = DVector::from_fn(free.len(), |row, _| rhs[free[row]]);
    let Some(cholesky) = of_free.cholesky() else {
        let last = free.pop()?;
        x[last] = 0.0;
        return Some(last);
    };
    let goal = cholesky.solve(&right);
    let steps = free.iter().zip(goal.iter()).enumerate();
    let blocked = steps
        .filter(|(_, (_, goal))| **goal <= 0.0)
        .map(|(place, (&at, goal))| (place, x[at] / (x[at] - goal)))
        .min_by(|one, other| one.1.total_cmp(&other.1));
    let step = blocked.map_or(1.0, |(_, step)| if step.is_finite() { step } else { 0.0 });
    for (&at, goal) in free.iter().zip(goal.iter()) {
        x[at] += step * (goal - x[at]);
    }
    let (place, _) = blocked?;
    let at = free.remove(place);
    x[at] = 0.0;
    Some(at)
}

/// Costs as sums of prices x counts.
#[derive(Debug, Clone)]
pub(crate) struct Costs {
    /// Counts, one row for each sample, one column for each cause.
    pub(crate) counts: DMatrix<f64>,
    /// Measured costs.
    pub(crate) measured: DVector<f64>,
    /// Weights of the samples.
    pub(crate) weights: DVector<f64>,
}

/// Relative error from which a sample's weight falls: soft-L1, as in SciPy's least_squares. Trials of one cell on a busy
/// host differ by 16 %, so only trials that stood still or were hit by a neighbour weigh less.
const SOFT: f64 = 0.45;

impl Costs {
    /// Prices that are not negative and minimise the soft-L1 loss of log(measured / predicted). The start is
    /// the non-negative least squares solution of relative errors, then Gauss-Newton.
    pub(crate) fn prices(&self, start: Option<&DVector<f64>>) -> DVector<f64> {
        // A column's largest share of a cost is about 1, so that all have one scale.
        let scales = DVector::from_iterator(
            self.counts.ncols(),
            self.counts.column_iter().map(|column| {
                let most = column.component_div(&self.measured).amax();
                if most > 0.0 { 1.0 / most } else { 0.0 }
            }),
        );
        let scaled = Costs {
            counts: DMatrix::from_fn(self.counts.nrows(), self.counts.ncols(), |row, column| {
                self.counts[(row, column)] * scales[column]
            }),
            ..self.clone()
        };
        let start = start.map(|prices| {
            prices.zip_map(
                &scales,
                |price, scale| if scale > 0.0 { price / scale } else { 0.0 },
            )
        });
        scaled.solve(start).component_mul(&scales)
    }

    fn solve(&self, start: Option<DVector<f64>>) -> DVector<f64> {
        let mut prices = start.unwrap_or_else(|| {
            let ones = DVector::repeat(self.measured.len(), 1.0);
            self.step(&self.measured, &ones, &self.weights)
        });
        let mut loss = self.loss(&prices);
        for _ in 0..STEPS {
            let predicted = self.predicted(&prices);
            let errors = self.errors(&predicted);
            // log(measured / (predicted + J d)) is about error - J d, and J prices = 1.
            let goals = errors.add_scalar(1.0);
            let weights = errors.zip_map(&self.weights, |error, weight| {
                weight / (1.0 + (error / SOFT).powi(2)).sqrt()
            });
            let goal = self.step(&predicted, &goals, &weights);
            let lengths = [1.0, 0.5, 0.25, 0.1, 0.03];
            let tried = lengths.iter().map(|&length| {
                let between = &prices + (&goal - &prices) * length;
                (self.loss(&between), between)
            });
            let Some((less, better)) = tried.into_iter().find(|(tried, _)| *tried < loss) else {
                break;
            };
            let is_done = loss - less < 1e-9 * loss;
            (loss, prices) = (less, better);
            if is_done {
                break;
            }
        }
        prices
    }

    /// Weighted non-negative least squares of goals on counts / scale.
    fn step(
        &self,
        scale: &DVector<f64>,
        goals: &DVector<f64>,
        weights: &DVector<f64>,
    ) -> DVector<f64> {
        let mut relative = self.counts.clone();
        for (row, (scale, weight)) in scale.iter().zip(weights.iter()).enumerate() {
            relative.row_mut(row).scale_mut(weight.sqrt() / scale);
        }
        let goals = goals.zip_map(weights, |goal, weight| goal * weight.sqrt());
        non_negative(&(relative.tr_mul(&relative)), &relative.tr_mul(&goals))
    }

    /// Costs by these prices, never quite 0.
    pub(crate) fn predicted(&self, prices: &DVector<f64>) -> DVector<f64> {
        let costs = &self.counts * prices;
        costs.zip_map(&self.measured, |cost, measured| cost.max(measured * 1e-6))
    }

    /// Logarithms of measured / predicted.
    pub(crate) fn errors(&self, predicted: &DVector<f64>) -> DVector<f64> {
        self.measured
            .zip_map(predicted, |measured, predicted| (measured / predicted).ln())
    }

    fn loss(&self, prices: &DVector<f64>) -> f64 {
        let errors = self.errors(&self.predicted(prices));
        let each = errors.zip_map(&self.weights, |error, weight| {
            weight * ((1.0 + (error / SOFT).powi(2)).sqrt() - 1.0)
        });
        each.sum()
    }
}

/// Limit of the Gauss-Newton steps; ten are the rule.
const STEPS: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_solution_that_would_be_negative_is_bound_at_zero() {
        // Least squares alone gives (2, -1).
        let a = DMatrix::from_row_slice(2, 2, &[1.0, 1.0, 1.0, 0.0]);
        let b = DVector::from_vec(vec![1.0, 2.0]);
        let x = non_negative(&a.tr_mul(&a), &a.tr_mul(&b));
        assert!((x[0] - 1.5).abs() < 1e-6 && x[1] == 0.0, "{x}");
        let b = DVector::from_vec(vec![5.0, 2.0]);
        let x = non_negative(&a.tr_mul(&a), &a.tr_mul(&b));
        assert!(
            (x[0] - 2.0).abs() < 1e-6 && (x[1] - 3.0).abs() < 1e-6,
            "{x}"
        );
    }

    #[test]
    fn a_column_that_occurs_twice_does_not_loop() {
        let a = DMatrix::from_row_slice(3, 2, &[1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
        let b = DVector::from_vec(vec![1.0, 2.0, 3.0]);
        let x = non_negative(&a.tr_mul(&a), &a.tr_mul(&b));
        assert!((x.sum() - 1.0).abs() < 1e-6, "{x}");
    }

    #[test]
    fn prices_are_found_in_spite_of_an_outlier() {
        let truth = [100.0, 0.1, 5_000.0];
        let counts = DMatrix::from_fn(60, 3, |row, column| {
            let size = [40.0, 60_000.0, 1.0][column];
            size * (1.0 + ((row * (column + 2)) % 5) as f64)
        });
        let mut measured = &counts * DVector::from_row_slice(&truth);
        measured[7] *= 3.0;
        let weights = DVector::repeat(60, 1.0);
        let costs = Costs {
            counts,
            measured,
            weights,
        };
        let prices = costs.prices(None);
        for (price, truth) in prices.iter().zip(truth) {
            assert!((price / truth - 1.0).abs() < 0.1, "{prices}");
        }
    }
}
