//! Segments of one network namespace: those that TCP builds, their sizes and senders, and those that arrive.
//!
//! The hosts of a trial that are on one machine have a namespace each, and one copy of the programs: whoever comes later
//! enters its own into what the first has loaded, and reads the counts of that one.
//!
//! Programs at net_dev_queue see skbs as TCP built them, at net_dev_start_xmit after software segmentation
//! and at netif_receive_skb after GRO. A packet that passes stacked devices (VLAN, bond, tunnel) of one
//! namespace is seen at each.
//!
//! A packet sent costs some 60 ns of CPU (two programs), one received 30: of each program's run 18 are the kernel's way to it
//! and back (examples/bpf_cost.rs). By connection it is some 20 more a packet.

#![allow(unsafe_code, reason = "memory that an eBPF program writes")]

use std::collections::HashMap;
use std::os::linux::fs::MetadataExt;
use std::sync::LazyLock;
use std::{fmt, fs, ptr};

use memmap2::MmapMut;
use tcpcost_counts::{CountOwner, Counts, MeterName, Quantity, Snapshot};

use super::layout::segments::{
    CONNECTION_COUNTS, COUNTED, Cell, Cpu, MAX_CPUS, Namespace, PLACES, PROBES,
};
use super::object::{Attached, Room};
use super::{Idle, Pausable};
use crate::{Meter, MeterError, Scope, snapshot_of};

/// The meter `segments`: of the network namespace of the thread that loads it ([`CountOwner::Namespace`]).
pub struct Segments {
    attached: Attached,
    /// Our namespace's place in the programs' table.
    place: usize,
    /// The cells of all namespaces, and where ours begin.
    cells: MmapMut,
    first: usize,
    cpus: usize,
    /// Entries by connection that gave way to others, as of the last look at them; and those that were told.
    evicted: u64,
    told: u64,
}

impl Segments {
    /// Loads the programs, or takes part in those that another process of this host has, where it may.
    ///
    /// # Errors
    /// [`MeterError::Unavailable`]: no privilege, no BTF, or a kernel older than 5.10.
    pub fn load(scope: &Scope) -> Result<Segments, MeterError> {
        let path = "/proc/thread-self/ns/net";
        let netns = fs::metadata(path).map_err(|source| MeterError::Read {
            path: path.into(),
            source,
        })?;
        // The kernel's own number has 32 bits, as in the programs.
        let netns = u32::try_from(netns.st_ino()).unwrap_or(u32::MAX);
        let shared = scope.loaded.get(&METER).and_then(|handle| {
            let attached = Attached::of(METER, handle, size_of::<Table>()).ok()?;
            Segments::counting(attached, netns).ok()
        });
        if let Some(shared) = shared {
            return Ok(shared);
        }
        let cpus = possible_cpus();
        let targ = [scope.connections.is_some().into(), cpus as u32].map(u32::to_ne_bytes);
        let free = cpus.saturating_mul(FREE_PER_CPU) as u32;
        let namespaces = scope.namespaces.clamp(1, NAMESPACES_MAX);
        let rooms = [
            Room {
                map: CONNECTIONS,
                entries: scope.connections.map(|most| most.saturating_add(free)),
            },
            Room {
                map: CELLS,
                entries: Some(namespaces * cpus as u32),
            },
        ];
        let length = size_of::<Table>();
        let attached = Attached::new(METER, OBJECT, targ.as_flattened(), &rooms, length)?;
        Segments::counting(attached, netns)
    }

    /// Enters a namespace, if it is not there yet.
    fn counting(attached: Attached, netns: u32) -> Result<Segments, MeterError> {
        let cpus = possible_cpus();
        let (cells, room) = attached.array(CELLS, size_of::<Cell>())?;
        let table = attached.variables().cast::<Namespace>();
        // SAFETY: so many places were mapped, and a page is aligned for all; volatile since the programs read them. No
        // other process writes them now: the hosts of a trial load one after the other.
        let read = |place: usize| unsafe { table.add(place).read_volatile() };
        let known = (0..PLACES).filter(|&place| read(place).netns != 0);
        let (known, room) = (known.count(), room / cpus);
        let full = || {
            let why = format!("its programs count for {room} other namespaces already");
            MeterError::refused(METER, why)
        };
        // Search order of the programs.
        let mut probes = (0..PROBES).map(|probe| (netns as usize + probe) % PLACES);
        let is_ours = |place: &usize| [0, netns].contains(&read(*place).netns);
        let place = probes.find(is_ours).ok_or_else(full)?;
        let row = match read(place) {
            Namespace { netns: 0, .. } if known == room => return Err(full()),
            Namespace { netns: 0, .. } => known,
            // That of who was here before.
            Namespace { row, .. } => row as usize,
        };
        let entry = Namespace {
            netns,
            is_open: 1,
            row: row as u32,
        };
        // SAFETY: as above.
        unsafe { table.add(place).write_volatile(entry) };
        Ok(Segments {
            attached,
            place,
            cells,
            first: row * cpus,
            cpus,
            evicted: 0,
            told: 0,
        })
    }
}

impl Segments {
    /// Entries that were made by connection.
    fn begun(&self) -> u64 {
        let table = self.attached.variables().cast::<Table>();
        // SAFETY: the variables begin with it, and a page is aligned for all; volatile since the programs write it, a word
        // in one piece.
        let of =
            |cpu: usize| unsafe { (&raw const (*table).cpus[cpu].connections).read_volatile() };
        (0..MAX_CPUS).map(of).sum()
    }

    /// Sets whether the programs count for our namespace.
    fn set_open(&self, is_open: bool) {
        let table = self.attached.variables().cast::<Namespace>();
        // SAFETY: so many places were mapped, and a page is aligned for all; volatile since the programs read them.
        unsafe { (&raw mut (*table.add(self.place)).is_open).write_volatile(is_open.into()) };
    }
}

impl Meter for Segments {
    fn name(&self) -> MeterName {
        METER
    }

    fn handle(&self) -> Option<String> {
        self.attached.handle()
    }

    fn snapshot(&mut self) -> Result<Snapshot, MeterError> {
        let mut counts: Counts = QUANTITIES.iter().map(|&quantity| (quantity, 0)).collect();
        let cells = self.cells.as_ptr().cast::<Cell>();
        for cpu in 0..self.cpus {
            for (index, quantity) in QUANTITIES.iter().enumerate() {
                // SAFETY: so many cells were mapped, and a page is aligned for all;
                // volatile since its CPU goes on counting. A word of 64 bits is never torn.
                let count = unsafe {
                    ptr::read_volatile(&raw const (*cells.add(self.first + cpu)).counts[index])
                };
                *counts.entry(*quantity).or_default() += count;
            }
        }
        Ok(snapshot_of(METER, CountOwner::Namespace, counts))
    }

    fn by_connection(&mut self) -> HashMap<u64, Counts> {
        // Before the entries: one that is made meanwhile is then not taken for one that gave way.
        let begun = self.begun();
        let all = self.attached.entries(CONNECTIONS);
        let counts = |value: Vec<u8>| {
            let (words, _) = value.as_chunks();
            let words = words.iter().map(|word| u64::from_ne_bytes(*word));
            let kept = QUANTITIES[..CONNECTION_COUNTS].iter();
            kept.copied().zip(words).collect()
        };
        let kept: HashMap<u64, Counts> = all
            .filter_map(|(key, value)| {
                let key = key.as_slice().try_into().ok()?;
                Some((u64::from_ne_bytes(key), counts(value)))
            })
            .collect();
        self.evicted = self.evicted.max(begun.saturating_sub(kept.len() as u64));
        kept
    }

    fn overflow(&mut self) -> Option<String> {
        let more = self.evicted - std::mem::replace(&mut self.told, self.evicted);
        (more > 0).then(|| {
            format!(
                "{METER}: {more} ends of connections gave way to others in the table of their skbs: rows of connections may lack some"
            )
        })
    }
}

impl Pausable for Segments {
    fn pause(&mut self, idle: Idle) {
        match idle {
            Idle::Attached => self.set_open(false),
            Idle::Detached => self.attached.detach(|name| HOT.contains(&name)),
        }
    }

    fn resume(&mut self) -> Result<(), MeterError> {
        self.set_open(true);
        self.attached.attach()
    }
}

impl fmt::Debug for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segments").finish_non_exhaustive()
    }
}

/// CPUs that there may be, of those that are known.
fn possible_cpus() -> usize {
    libbpf_rs::num_possible_cpus().map_or(MAX_CPUS, |cpus| cpus.min(MAX_CPUS))
}

const METER: MeterName = MeterName::Segments;
/// Programs that run often.
const HOT: &[&str] = &[
    "net_dev_queue",
    "net_dev_start_xmit",
    "netif_receive_skb",
    "instead_of_tasklet_entry",
];
/// Entries of an LRU map that a CPU may hold back as free: LOCAL_FREE_TARGET of kernel/bpf/bpf_lru_list.c, twice.
const FREE_PER_CPU: usize = 256;
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/segments.bpf.o"));
/// Namespaces that one copy of the programs can count for: a quarter of the places.
const NAMESPACES_MAX: u32 = PLACES as u32 / 4;
/// Maps of segments.bpf.c.
const CONNECTIONS: &str = "connections";
const CELLS: &str = "cells";

/// The variables of the programs begin with it.
#[repr(C)]
struct Table {
    places: [Namespace; PLACES],
    cpus: [Cpu; MAX_CPUS],
}

/// In the order of the counts.
static QUANTITIES: LazyLock<Vec<Quantity>> = LazyLock::new(|| {
    COUNTED
        .iter()
        .filter_map(|name| Quantity::named(name))
        .collect()
});

#[cfg(test)]
mod tests {
    use super::super::layout::segments::COUNTS;
    use super::*;

    #[test]
    fn every_count_is_a_quantity() {
        assert_eq!(QUANTITIES.len(), COUNTED.len());
        assert!(COUNTED.len() <= COUNTS);
    }
}
