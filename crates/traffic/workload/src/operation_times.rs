//! Durations and failures of each operation of a program.

use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;

use crate::histogram::{SharedHistogram, operation_times};

/// Times of each timed operation, in the order of the program.
#[derive(Debug)]
pub(crate) struct OperationTimes(Vec<One>);

#[derive(Debug)]
struct One {
    times: SharedHistogram,
    failed: AtomicU64,
}

/// Times and failures of an operation in an interval.
#[derive(Debug, Clone)]
pub struct OperationFound {
    /// Durations, ns, 2 significant digits.
    pub times: Histogram<u64>,
    /// Failures after which the program continued.
    pub failed: u64,
}

impl OperationTimes {
    pub(crate) fn new(operations: u16) -> OperationTimes {
        let one = |_| One {
            times: SharedHistogram::new(STEPS_LOG2),
            failed: AtomicU64::new(0),
        };
        OperationTimes((0..operations).map(one).collect())
    }

    #[inline]
    pub(crate) fn record(&self, operation: u16, time_ns: u64) {
        self.0[usize::from(operation)].times.record(time_ns);
    }

    pub(crate) fn fail(&self, operation: Option<u16>) {
        if let Some(operation) = operation {
            let one = &self.0[usize::from(operation)];
            one.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Times recorded since the last call.
    pub(crate) fn take(&self) -> Vec<OperationFound> {
        let each = self.0.iter();
        each.map(|one| OperationFound {
            times: one.times.take(operation_times()),
            failed: one.failed.swap(0, Ordering::Relaxed),
        })
        .collect()
    }
}

/// Precision: a hundredth, because a program may have a thousand operations, with 37 KiB each.
const STEPS_LOG2: u32 = 7;
