//! What the meter `exact` makes of CPU time, and how far the other methods are from it.

use tcpcost_study::{DerivedKind, End, Quantity};

use super::{BUSY, Kinds, Trial, ratio};

/// Softirqs but NET_RX, and the kernel threads that do deferred work.
const DEFERRED: [Quantity; 10] = [
    Quantity::ExactSoftirqNetTxNs,
    Quantity::ExactSoftirqTimerNs,
    Quantity::ExactSoftirqHrtimerNs,
    Quantity::ExactSoftirqTaskletNs,
    Quantity::ExactSoftirqSchedNs,
    Quantity::ExactSoftirqRcuNs,
    Quantity::ExactSoftirqOthersNs,
    Quantity::ExactKsoftirqdNs,
    Quantity::ExactKworkerNs,
    Quantity::ExactNapiNs,
];

impl Trial<'_> {
    pub(super) fn exact(&self, scope: Option<End>) -> Kinds {
        use DerivedKind as D;
        let Some(cpus) = self.cpu_time("exact", scope) else {
            return Vec::new();
        };
        let all_ns = cpus.sum(Quantity::EXACT_CONTEXTS);
        let idle_ns = cpus.sum(&[Quantity::ExactIdleNs]);
        let others_ns = cpus.sum(&[Quantity::ExactTaskOthersNs]);
        let less = |a: Option<f64>, b: Option<f64>| Some(a? - b?);
        let busy_ns = less(all_ns, idle_ns);
        let cost_ns = less(busy_ns, others_ns);
        let share = |ns: Option<f64>| ratio(ns?, cpus.available_ns);
        let to_exact = |ns: Option<f64>, exact: Option<f64>| ratio(ns?, exact?);
        let cost_per = |of: Option<f64>| ratio(cost_ns? / 1e3, of?);
        // Meters have intervals of their own that differ by microseconds: shares compare, not times.
        let proc_busy = self
            .cpu_time("proc", scope)
            .and_then(|proc| ratio(proc.sum(&BUSY)?, proc.available_ns));
        vec![
            (
                D::ExactUsPerKib,
                cost_per(self.delivered().map(|(bytes, _)| bytes / 1024.0)),
            ),
            (
                D::ExactUsPerTransaction,
                cost_per(self.transactions().map(|(count, _)| count)),
            ),
            (
                D::ExactOwnRatio,
                share(cpus.sum(&[Quantity::ExactTaskOwnNs])),
            ),
            (
                D::ExactNetRxRatio,
                share(cpus.sum(&[Quantity::ExactSoftirqNetRxNs])),
            ),
            (D::ExactDeferredRatio, share(cpus.sum(&DEFERRED))),
            (
                D::ExactHardirqRatio,
                share(cpus.sum(&[Quantity::ExactHardirqNs])),
            ),
            (D::ExactOthersRatio, share(others_ns)),
            (D::ExactIdleRatio, share(idle_ns)),
            (D::ProcToExact, to_exact(proc_busy, share(busy_ns))),
            (D::RusageToExact, to_exact(self.tasks_ns(scope), cost_ns)),
        ]
    }
}
