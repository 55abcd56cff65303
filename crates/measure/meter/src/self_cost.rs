//! Cost of measuring: CPU time of this process.

use rustix::time::ClockId;
use tcpcost_counts::{CountOwner, Counts, MeterName, Quantity, Snapshot};

use crate::{Meter, MeterError, clock, snapshot_of};

/// The meter `self`: [`CountOwner::Tcpcost`].
#[derive(Debug, Default)]
pub struct SelfCost;

impl Meter for SelfCost {
    fn name(&self) -> MeterName {
        MeterName::SelfCost
    }

    fn snapshot(&mut self) -> Result<Snapshot, MeterError> {
        let cpu_ns = clock::now_ns(ClockId::ProcessCPUTime);
        let counts = Counts::from([(Quantity::SelfCpuNs, cpu_ns)]);
        Ok(snapshot_of(self.name(), CountOwner::Tcpcost, counts))
    }
}

/// CPU time of the calling thread, ns.
pub fn thread_cpu_ns() -> u64 {
    clock::now_ns(ClockId::ThreadCPUTime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_work_is_counted() {
        let mut meter = SelfCost;
        let before = meter.snapshot().unwrap();
        std::hint::black_box((0..1_000_000_u64).fold(0, |sum, n| sum ^ std::hint::black_box(n)));
        let after = meter.snapshot().unwrap();
        let readings = after.since(&before).unwrap();
        let cpu_ns = readings[0].counts[&Quantity::SelfCpuNs];
        assert!(cpu_ns > 0);
    }
}
