//! Repeats a test until its mean is certain enough (`-i`, `-I`; netperf's `netlib.c`,
//! `calculate_confidence`).
//!
//! The interval is Student's t with n − 1 degrees of freedom around the mean. netperf rounds the quantiles of
//! a printed table, and the same rounded values are used here.

use crate::options::Confidence;

/// Figures of one repetition.
#[derive(Debug, Clone, Copy, Default)]
pub struct Measured {
    pub elapsed: f64,
    pub throughput: f64,
    pub local_cpu: Option<f64>,
    pub remote_cpu: Option<f64>,
    pub local_demand: Option<f64>,
    pub remote_demand: Option<f64>,
}

/// Repetitions so far.
#[derive(Debug)]
pub struct Repetitions {
    asked: Confidence,
    measured: Vec<Measured>,
}

/// Confidence of the results, in percent; −1 if it was not asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    pub level: u32,
    pub target: f64,
    pub iterations: u32,
    pub result: f64,
    pub local_cpu: f64,
    pub remote_cpu: f64,
    /// True if the confidence was asked for and not reached.
    pub is_missed: bool,
}

impl Repetitions {
    pub fn new(asked: Confidence) -> Repetitions {
        Repetitions {
            asked,
            measured: Vec::new(),
        }
    }

    /// True if another repetition is needed.
    pub fn goes_on(&self) -> bool {
        let done = self.measured.len() as u32;
        done < self.asked.least || (done < self.asked.most && !self.is_sure())
    }

    pub fn push(&mut self, measured: Measured) {
        self.measured.push(measured);
    }

    /// Means over the repetitions.
    pub fn mean(&self) -> Measured {
        Measured {
            elapsed: self.mean_of(|one| Some(one.elapsed)).unwrap_or(0.0),
            throughput: self.mean_of(|one| Some(one.throughput)).unwrap_or(0.0),
            local_cpu: self.mean_of(|one| one.local_cpu),
            remote_cpu: self.mean_of(|one| one.remote_cpu),
            local_demand: self.mean_of(|one| one.local_demand),
            remote_demand: self.mean_of(|one| one.remote_demand),
        }
    }

    pub fn figures(&self) -> Figures {
        let is_asked = self.asked.most > 1;
        let percent = |share: f64| if is_asked { 100.0 * share } else { -1.0 };
        Figures {
            level: self.asked.level,
            target: percent(self.asked.width),
            iterations: self.measured.len() as u32,
            result: percent(self.width(|one| Some(one.throughput))),
            local_cpu: percent(self.width(|one| one.local_cpu)),
            remote_cpu: percent(self.width(|one| one.remote_cpu)),
            is_missed: is_asked && !self.is_sure(),
        }
    }

    fn is_sure(&self) -> bool {
        let within = |width: f64| width < self.asked.width;
        self.measured.len() > 1
            && within(self.width(|one| Some(one.throughput)))
            && (self.asked.on_result_only
                || within(self.width(|one| one.local_cpu))
                    && within(self.width(|one| one.remote_cpu)))
    }

    /// Mean over the tests that have a value. `None` if no test has one.
    fn mean_of(&self, of: fn(&Measured) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.measured.iter().filter_map(of).collect();
        let sum: f64 = values.iter().sum();
        (!values.is_empty()).then(|| sum / values.len() as f64)
    }

    /// Width of the whole interval as a fraction of the mean; 0 if the value was not measured.
    fn width(&self, of: fn(&Measured) -> Option<f64>) -> f64 {
        let values: Vec<f64> = self.measured.iter().filter_map(of).collect();
        let (count, mean) = (values.len(), self.mean_of(of).unwrap_or(0.0));
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        if count < 2 || mean == 0.0 || squares == 0.0 {
            return 0.0;
        }
        let variance = squares / count as f64;
        let quantile = quantile(self.asked.level, count - 1);
        2.0 * quantile * (variance / (count as f64 - 1.0)).sqrt() / mean.abs()
    }
}

impl Figures {
    /// netperf's warning above results that are less certain than asked for.
    pub fn warning(&self) -> String {
        if !self.is_missed {
            return String::new();
        }
        format!(
            "!!! WARNING\n\
             !!! Desired confidence was not achieved within the specified iterations.\n\
             !!! This implies that there was variability in the test environment that\n\
             !!! must be investigated before going further.\n\
             !!! Confidence intervals: Throughput      : {:4.3}%\n\
             !!!                       Local CPU util  : {:4.3}%\n\
             !!!                       Remote CPU util : {:4.3}%\n\n",
            self.result, self.local_cpu, self.remote_cpu
        )
    }
}

/// Two-sided quantile of Student's t, by degrees of freedom from 1 on.
fn quantile(level: u32, freedom: usize) -> f64 {
    let table: &[f64; 30] = match level {
        95 => &[
            12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179,
            2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
            2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
        ],
        _ => &[
            63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055,
            3.012, 2.977, 2.947, 2.921, 2.898, 2.878, 2.861, 2.845, 2.831, 2.819, 2.807, 2.797,
            2.787, 2.779, 2.771, 2.763, 2.756, 2.750,
        ],
    };
    table[freedom.clamp(1, table.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(throughputs: &[f64], least: u32, most: u32) -> Repetitions {
        let asked = Confidence {
            level: 95,
            width: 0.05,
            least,
            most,
            on_result_only: false,
        };
        let mut repetitions = Repetitions::new(asked);
        for &throughput in throughputs {
            repetitions.push(Measured {
                throughput,
                ..Measured::default()
            });
        }
        repetitions
    }

    #[test]
    fn one_is_enough_where_nobody_asks() {
        assert!(of(&[], 1, 1).goes_on());
        assert!(!of(&[5.0], 1, 1).goes_on());
        assert_eq!(of(&[5.0], 1, 1).figures().result, -1.0);
    }

    #[test]
    fn it_goes_on_until_the_interval_is_narrow_or_the_most_is_reached() {
        assert!(of(&[100.0, 100.0], 3, 10).goes_on());
        assert!(!of(&[100.0, 100.0, 100.0], 3, 10).goes_on());
        assert!(of(&[100.0, 150.0, 100.0], 3, 10).goes_on());
        let missed = of(&[100.0, 150.0, 100.0], 3, 3);
        assert!(!missed.goes_on());
        assert!(missed.figures().is_missed);
        assert!(missed.figures().warning().starts_with("!!! WARNING"));
    }

    #[test]
    fn the_width_is_that_of_students_t() {
        // Mean 100 of two values 90 and 110, with the standard error 10 / sqrt(2): t = 12.706.
        let width = of(&[90.0, 110.0], 2, 2).figures().result;
        assert!((width - 2.0 * 12.706 * 10.0).abs() < 1e-9, "{width}");
    }
}
