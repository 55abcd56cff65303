//! Times of each transaction, or of each call of a stream (`-j`, and the selectors P50_LATENCY and so on).

use std::collections::VecDeque;
use std::time::Instant;

use hdrhistogram::Histogram;

/// Recorded times, and the starts of transactions in progress.
#[derive(Debug)]
pub struct Latency {
    times: Histogram<u64>,
    begun: VecDeque<Instant>,
    buckets: Buckets,
}

/// netperf's histogram: ten equal parts of each power of ten of microseconds (netperf's `hist.h`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Buckets {
    /// Rows from 1 µs to 10 s.
    pub rows: [[u64; 10]; 8],
    /// Times of 100 s and more.
    pub longer: u64,
}

impl Buckets {
    fn record(&mut self, ns: u64) {
        let mut rest = ns / 1000;
        for row in &mut self.rows {
            if rest < 10 {
                // Below 10, so it is an index.
                row[rest as usize] += 1;
                return;
            }
            rest /= 10;
        }
        self.longer += 1;
    }

    /// Number of times in the rows, as netperf's total.
    pub fn total(&self) -> u64 {
        self.rows.iter().flatten().sum::<u64>() + self.longer
    }
}

/// Summary in microseconds; −1 if nothing was timed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    pub min_us: i64,
    pub max_us: i64,
    pub p50_us: i64,
    pub p90_us: i64,
    pub p99_us: i64,
    pub mean_us: f64,
    pub stddev_us: f64,
}

/// Precision of three digits: 0.1 %.
const DIGITS: u8 = 3;
/// Limit of a recorded time, one day. Longer times count as this.
const LONGEST_NS: u64 = 86_400_000_000_000;

impl Default for Latency {
    fn default() -> Latency {
        Latency {
            times: Histogram::new_with_bounds(1, LONGEST_NS, DIGITS)
                .expect("the bounds are in order"),
            begun: VecDeque::new(),
            buckets: Buckets::default(),
        }
    }
}

impl Latency {
    /// Notes the start of a transaction or call.
    pub fn begin(&mut self) {
        self.begun.push_back(Instant::now());
    }

    /// Notes the end of the oldest transaction or call in progress.
    pub fn end(&mut self) {
        if let Some(begun) = self.begun.pop_front() {
            self.record(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// Forgets the start of the newest transaction in progress, which did not begin.
    pub fn cancel(&mut self) {
        self.begun.pop_back();
    }

    /// Forgets all transactions in progress.
    pub fn forget(&mut self) {
        self.begun.clear();
    }

    fn record(&mut self, ns: u64) {
        self.times.saturating_record(ns);
        self.buckets.record(ns);
    }

    /// Histogram of all recorded times.
    pub fn buckets(&self) -> &Buckets {
        &self.buckets
    }

    pub fn summary(&self) -> Summary {
        let us = |ns: u64| (ns / 1000).cast_signed();
        let quantile = |q| us(self.times.value_at_quantile(q));
        Summary {
            min_us: us(self.times.min()),
            max_us: us(self.times.max()),
            p50_us: quantile(0.5),
            p90_us: quantile(0.9),
            p99_us: quantile(0.99),
            mean_us: self.times.mean() / 1e3,
            stddev_us: self.times.stdev() / 1e3,
        }
    }
}

impl Summary {
    /// Summary if times were not asked for.
    pub const NONE: Summary = Summary {
        min_us: -1,
        max_us: -1,
        p50_us: -1,
        p90_us: -1,
        p99_us: -1,
        mean_us: -1.0,
        stddev_us: -1.0,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_the_histogram_is_a_power_of_ten_of_microseconds() {
        let mut latency = Latency::default();
        let us = [0, 9, 10, 19, 99, 100, 999, 1000, 99_999_999, 100_000_000];
        us.iter().for_each(|us| latency.record(us * 1000 + 999));
        let buckets = latency.buckets();
        assert_eq!(buckets.rows[0], [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(buckets.rows[1], [0, 2, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(buckets.rows[2], [0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(buckets.rows[3][1], 1);
        assert_eq!(buckets.rows[7][9], 1);
        assert_eq!((buckets.longer, buckets.total()), (1, 10));
    }

    #[test]
    fn what_began_first_ends_first() {
        let mut latency = Latency::default();
        latency.begin();
        latency.begin();
        latency.end();
        assert_eq!(latency.begun.len(), 1);
        latency.end();
        latency.end();
        let summary = latency.summary();
        assert_eq!(latency.times.len(), 2);
        assert!(summary.min_us <= summary.p50_us && summary.p50_us <= summary.max_us);
    }

    #[test]
    fn times_are_told_in_microseconds_and_to_three_digits() {
        let mut latency = Latency::default();
        (1..=100).for_each(|ms| latency.record(ms * 1_000_000));
        let summary = latency.summary();
        let near = |told: i64, us: i64| (told - us).abs() <= us / 500;
        assert!(
            near(summary.min_us, 1000) && near(summary.max_us, 100_000),
            "{summary:?}"
        );
        assert!(
            near(summary.p50_us, 50_000) && near(summary.p99_us, 99_000),
            "{summary:?}"
        );
        assert!((summary.mean_us - 50_500.0).abs() < 60.0, "{summary:?}");
    }
}
