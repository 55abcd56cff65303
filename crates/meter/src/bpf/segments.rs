//! What TCP builds, how large it is, what sends it, and what comes in, of one network namespace.
//!
//! Two ends of a trial on one host have two namespaces, and one copy of the programs: the second end enters its own
//! into what the first has loaded, and reads the counts of that one.
//!
//! Programs at net_dev_queue see skbs as TCP built them, at net_dev_start_xmit after software segmentation
//! and at netif_receive_skb after GRO. A packet that passes stacked devices (VLAN, bond, tunnel) of one
//! namespace is seen at each.
//!
//! A packet sent costs some 60 ns of CPU (two programs), one received 30: of each program's run 18 are the kernel's way to it
//! and back (examples/bpf_cost.rs). By connection it is some 20 more a packet.

use std::collections::HashMap;
use std::os::linux::fs::MetadataExt;
use std::{fmt, fs, ptr};

use tcpcost_study::{Counts, Quantity, Snapshot, Whose};

use super::object::Attached;
use super::{Pausable, Rest, Scope};
use crate::{Meter, MeterError, snapshot_of};

/// The meter `segments`: of the network namespace of the thread that loads it ([`Whose::Namespace`]).
pub struct Segments {
    attached: Attached,
    /// Our namespace, and which of those of these programs it is.
    netns: u32,
    index: usize,
    cpus: usize,
}

impl Segments {
    /// Loads the programs, or takes part in those that another process of this host has, where it may.
    ///
    /// # Errors
    /// [`MeterError::Load`]: no privilege, no BTF, or a kernel older than 5.11.
    pub fn load(scope: &Scope) -> Result<Segments, MeterError> {
        let path = "/proc/thread-self/ns/net";
        let netns = fs::metadata(path).map_err(|source| MeterError::Read {
            path: path.into(),
            source,
        })?;
        // The kernel's own number has 32 bits, as in the programs.
        let netns = u32::try_from(netns.st_ino()).unwrap_or(u32::MAX);
        let shared = scope.loaded.get(METER).and_then(|handle| {
            let attached = Attached::of(METER, handle, size_of::<All>()).ok()?;
            Segments::counting(attached, netns).ok()
        });
        if let Some(shared) = shared {
            return Ok(shared);
        }
        let targ = u32::from(scope.connections.is_some()).to_ne_bytes();
        let free = possible_cpus().saturating_mul(FREE_PER_CPU);
        let room = scope
            .connections
            .map(|most| most.saturating_add(free as u32));
        let attached = Attached::new(METER, OBJECT, &targ, room, size_of::<All>())?;
        Segments::counting(attached, netns)
    }

    /// Enters a namespace, if it is not there yet.
    fn counting(attached: Attached, netns: u32) -> Result<Segments, MeterError> {
        let all = attached.variables().cast::<All>();
        // SAFETY: so much was mapped, and a page is aligned for all; volatile since the programs read it. No other
        // process writes it now: a trial's ends load one after the other.
        let index = (0..NAMESPACES).find(|&index| unsafe {
            let place = &raw mut (*all).netns[index];
            let is_ours = [0, netns].contains(&place.read_volatile());
            if is_ours {
                place.write_volatile(netns);
            }
            is_ours
        });
        let cpus = possible_cpus();
        let index = index.ok_or_else(|| MeterError::Load {
            meter: METER,
            reason: "its programs count for two other namespaces already".to_string(),
        })?;
        Ok(Segments {
            attached,
            netns,
            index,
            cpus,
        })
    }
}

impl Segments {
    /// Has the programs count for this namespace in place of ours; 0: for none.
    fn enter(&self, netns: u32) {
        let all = self.attached.variables().cast::<All>();
        // SAFETY: so much was mapped, and a page is aligned for all; volatile since the programs read it.
        unsafe { (&raw mut (*all).netns[self.index]).write_volatile(netns) };
    }
}

impl Meter for Segments {
    fn name(&self) -> &'static str {
        METER
    }

    fn snapshot(&mut self) -> Result<Snapshot, MeterError> {
        let mut counts: Counts = QUANTITIES.iter().map(|&quantity| (quantity, 0)).collect();
        let all = self.attached.variables().cast::<All>();
        for cpu in 0..self.cpus {
            for (index, quantity) in QUANTITIES.iter().enumerate() {
                // SAFETY: so many cells were mapped, and a page is aligned for all;
                // volatile since its CPU goes on counting. A word of 64 bits is never torn.
                let count = unsafe {
                    ptr::read_volatile(&raw const (*all).cells[self.index][cpu].counts[index])
                };
                *counts.entry(*quantity).or_default() += count;
            }
        }
        Ok(snapshot_of(METER, Whose::Namespace, counts))
    }

    fn by_connection(&mut self) -> HashMap<u64, Counts> {
        let all = self.attached.entries();
        let counts = |value: Vec<u8>| {
            let (words, _) = value.as_chunks();
            let words = words.iter().map(|word| u64::from_ne_bytes(*word));
            QUANTITIES.iter().copied().zip(words).collect()
        };
        all.filter_map(|(key, value)| {
            let key = key.as_slice().try_into().ok()?;
            Some((u64::from_ne_bytes(key), counts(value)))
        })
        .collect()
    }
}

impl Pausable for Segments {
    fn pause(&mut self, rest: Rest) {
        match rest {
            Rest::Attached => self.enter(0),
            Rest::Detached => self.attached.detach(|name| HOT.contains(&name)),
        }
    }

    fn resume(&mut self) -> Result<(), MeterError> {
        self.enter(self.netns);
        self.attached.attach()
    }

    fn handle(&self) -> Option<String> {
        self.attached.handle()
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

const METER: &str = "segments";
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
/// As in core.h.
const MAX_CPUS: usize = 1024;
/// As in segments.bpf.c.
const NAMESPACES: usize = 2;

/// `struct cell` of segments.bpf.c.
#[repr(C, align(64))]
struct Cell {
    counts: [u64; 64],
    /// What only the programs use.
    _state: [u64; 2],
}

/// The start of `struct all` of segments.bpf.c.
#[repr(C, align(64))]
struct All {
    netns: [u32; 16],
    cells: [[Cell; MAX_CPUS]; NAMESPACES],
}

/// In the order of the counts of segments.bpf.c.
const QUANTITIES: &[Quantity] = &[
    Quantity::DataSkbsSent,
    Quantity::DataSkbBytesSent,
    Quantity::DataWireSegmentsSent,
    Quantity::DataSkbSquaredBytesSent,
    Quantity::PureAcksSent,
    Quantity::DataSkbsReceived,
    Quantity::DataSkbBytesReceived,
    Quantity::DataWireSegmentsReceived,
    Quantity::DataSkbSquaredBytesReceived,
    Quantity::PureAcksReceived,
    Quantity::DataBurstsSent,
    Quantity::AckBurstsSent,
    Quantity::DataBurstsReceived,
    Quantity::AckBurstsReceived,
    Quantity::TailSkbsSent,
    Quantity::DeviceSkbsSent,
    Quantity::SkbsSentBelow128,
    Quantity::SkbsSentBelow256,
    Quantity::SkbsSentBelow512,
    Quantity::SkbsSentBelow1024,
    Quantity::SkbsSentBelow2048,
    Quantity::SkbsSentBelow4096,
    Quantity::SkbsSentBelow8192,
    Quantity::SkbsSentBelow16384,
    Quantity::SkbsSentBelow32768,
    Quantity::SkbsSentBelow65536,
    Quantity::SkbsSentFrom65536,
    Quantity::DrainedSystemCallSkbs,
    Quantity::DrainedSystemCallBytes,
    Quantity::DrainedNetRxSkbs,
    Quantity::DrainedNetRxBytes,
    Quantity::DrainedTaskletSkbs,
    Quantity::DrainedTaskletBytes,
    Quantity::DrainedTimerSkbs,
    Quantity::DrainedTimerBytes,
    Quantity::DrainedOthersSkbs,
    Quantity::DrainedOthersBytes,
];
