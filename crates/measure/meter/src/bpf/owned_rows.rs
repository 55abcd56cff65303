//! CPU time by owner (`owner.h`), as the programs of `exact` write it: a row for each CPU and owner.

#![allow(unsafe_code, reason = "memory that an eBPF program writes")]

use std::ptr;

use memmap2::MmapMut;

use super::layout::exact::{MAX_CPUS, OWNED_CONTEXTS, Owned};
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

    /// Sum of an owner's rows on these CPUs, ns by context.
    pub(super) fn sum(&self, owner: usize, cpus: &[usize]) -> Owned {
        let rows = self.rows.as_ptr().cast::<Owned>();
        let mut sum = Owned {
            ns: [0; OWNED_CONTEXTS],
        };
        for &cpu in cpus {
            let row = cpu * self.owners + owner;
            assert!(owner < self.owners && row < self.room, "owner {owner}");
            // SAFETY: `room` rows were mapped; volatile since another CPU writes them.
            let row = unsafe { ptr::read_volatile(rows.add(row)) };
            sum.ns
                .iter_mut()
                .zip(row.ns)
                .for_each(|(sum, ns)| *sum += ns);
        }
        sum
    }
}

/// Name of the map in owner.h.
pub(super) const OWNED: &str = "owned";

/// Limit on threads that are owners at the same time: 128 KiB of kernel memory for each CPU.
pub const THREADS_MAX: usize = 1024;
