//! CPU time and events by owner (`owner.h`), as the programs of `exact` write them: a row for each CPU and owner.

#![allow(unsafe_code, reason = "memory that an eBPF program writes")]

use std::ptr;

use memmap2::MmapMut;

use super::layout::exact::{
    MAX_CPUS, OWNED_TOTALS, Owned, Place, SOFTIRQ_VECTORS, TASK_NS, USER_NS,
};
use super::object::Attached;
use crate::MeterError;

/// The rows of loaded programs.
pub(super) struct OwnedRows {
    rows: MmapMut,
    /// Number of rows of all CPUs together.
    room: usize,
    /// Number of rows of each CPU.
    owners: usize,
}

impl OwnedRows {
    /// Maps the rows of programs that were loaded with room for `owners`.
    ///
    /// # Errors
    /// The map's layout is not the one that this reader knows.
    pub(super) fn new(attached: &Attached, owners: usize) -> Result<OwnedRows, MeterError> {
        let (rows, room) = attached.array(OWNED, size_of::<Owned>())?;
        Ok(OwnedRows { rows, room, owners })
    }

    /// Number of CPUs that have rows.
    pub(super) fn cpus(&self) -> usize {
        (self.room / self.owners).min(MAX_CPUS)
    }

    /// Sum of an owner's rows on these CPUs.
    pub(super) fn sum(&self, owner: usize, cpus: &[usize]) -> Owned {
        let rows = self.rows.as_ptr().cast::<Owned>();
        let mut sum = Owned {
            totals: [0; OWNED_TOTALS],
        };
        for &cpu in cpus {
            let row = cpu * self.owners + owner;
            assert!(owner < self.owners && row < self.room, "owner {owner}");
            // SAFETY: `room` rows were mapped; volatile since another CPU writes them.
            let row = unsafe { ptr::read_volatile(rows.add(row)) };
            sum.totals
                .iter_mut()
                .zip(row.totals)
                .for_each(|(sum, total)| *sum += total);
        }
        sum
    }
}

impl Owned {
    /// Time in softirqs, ns.
    pub(super) fn softirq_ns(&self) -> u64 {
        self.totals[1..=SOFTIRQ_VECTORS].iter().sum()
    }

    /// Time in hard interrupts, ns.
    pub(super) fn hardirq_ns(&self) -> u64 {
        self.totals[0]
    }

    /// Run time of tasks, ns.
    pub(super) fn task_ns(&self) -> u64 {
        self.totals[TASK_NS]
    }

    /// User time of tasks by the tick, ns.
    pub(super) fn user_ns(&self) -> u64 {
        self.totals[USER_NS]
    }

    /// Number of events of a place of the cell's totals.
    pub(super) fn events(&self, place: usize) -> u64 {
        self.totals[place - Place::HARDIRQ as usize]
    }
}

/// Name of the map in owner.h.
pub(super) const OWNED: &str = "owned";

/// Limit on threads that are owners at the same time: 192 KiB of kernel memory for each CPU.
pub const THREADS_MAX: usize = 1024;
