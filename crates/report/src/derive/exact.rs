//! What the meters `exact`, `soak` and `perf` make of CPU time, and how far methods are apart.

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
        let idle_ns = cpus.sum(&[Quantity::ExactIdleNs, Quantity::ExactSoakerNs]);
        let own_ns = cpus.sum(&[Quantity::ExactTaskOwnNs]);
        let others_ns = cpus.sum(&[Quantity::ExactTaskOthersNs]);
        let less = |a: Option<f64>, b: Option<f64>| Some(a? - b?);
        // What a spinner takes would be idle without it.
        let busy_ns = less(all_ns, idle_ns);
        let cost_ns = less(busy_ns, others_ns);
        let share = |ns: Option<f64>| ratio(ns?, cpus.available_ns);
        let to_exact = |ns: Option<f64>, exact: Option<f64>| ratio(ns?, exact?);
        let cost_per = |of: Option<f64>| ratio(cost_ns? / 1e3, of?);
        // Meters have intervals of their own that differ by microseconds: shares compare, not times.
        let proc_busy = self
            .cpu_time("proc", scope)
            .and_then(|proc| ratio(proc.sum(&BUSY)? - self.soaker_ns(scope), proc.available_ns));
        let soak = self.soak_load(scope);
        vec![
            (
                D::ExactUsPerKib,
                cost_per(self.delivered().map(|(bytes, _)| bytes / 1024.0)),
            ),
            (
                D::ExactUsPerTransaction,
                cost_per(self.transactions().map(|(count, _)| count)),
            ),
            (D::ExactOwnRatio, share(own_ns)),
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
            (D::SoakToExact, to_exact(soak, share(busy_ns))),
        ]
    }

    /// The soaker's load: the share of its idle work that is missing.
    fn soak_load(&self, scope: Option<End>) -> Option<f64> {
        let soak = self.cpu_time("soak", scope)?;
        let work = soak.sum(&[Quantity::SoakWorkUnits])?;
        Some(1.0 - ratio(work, soak.sum(&[Quantity::SoakIdleWorkUnits])?)?)
    }

    /// What the PMU and the soaker tell.
    pub(super) fn counters(&self, scope: Option<End>) -> Kinds {
        use DerivedKind as D;
        let mut kinds = vec![(D::SoakLoadRatio, self.soak_load(scope))];
        // A spinner's cycles cannot be told from the rest.
        let quiet = self.soaker_ns(scope) == 0.0;
        if let Some(pmu) = self.cpu_time("perf", scope).filter(|_| quiet) {
            let of = |quantity| pmu.sum(&[quantity]);
            let kib = self.delivered().map(|(bytes, _)| bytes / 1024.0);
            let transactions = self.transactions().map(|(count, _)| count);
            let per = |a: Option<f64>, b: Option<f64>| ratio(a?, b?);
            kinds.extend([
                (D::CoreCyclesPerKib, per(of(Quantity::CoreCycles), kib)),
                (
                    D::CoreCyclesPerTransaction,
                    per(of(Quantity::CoreCycles), transactions),
                ),
                (
                    D::InstructionsPerCycle,
                    per(of(Quantity::Instructions), of(Quantity::CoreCycles)),
                ),
                (D::CacheMissesPerKib, per(of(Quantity::CacheMisses), kib)),
            ]);
        }
        kinds
    }
}
