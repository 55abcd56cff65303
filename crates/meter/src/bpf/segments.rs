//! What TCP builds, how large it is, what sends it, and what comes in, of one network namespace.
//!
//! Programs at net_dev_queue see skbs as TCP built them, at net_dev_start_xmit after software segmentation
//! and at netif_receive_skb after GRO. A packet that passes stacked devices (VLAN, bond, tunnel) of one
//! namespace is seen at each.
//!
//! A packet sent costs some 55 ns of CPU, one received 30, a softirq 15 (examples/bpf_cost.rs).

use std::collections::HashMap;
use std::os::linux::fs::MetadataExt;
use std::{fmt, fs, ptr};

use tcpcost_study::{Counts, Quantity, Snapshot, Whose};

use super::Pausable;
use super::object::Attached;
use crate::{Meter, MeterError, snapshot_of};

/// The meter `segments`: of the network namespace of the thread that loads it ([`Whose::Namespace`]).
pub struct Segments {
    attached: Attached,
    cpus: usize,
}

impl Segments {
    /// Loads the programs.
    ///
    /// # Errors
    /// [`MeterError::Load`]: no privilege, no BTF, or a kernel older than 5.11.
    pub fn load() -> Result<Segments, MeterError> {
        Segments::new(false)
    }

    /// Loads programs that count by connection, too: of the 16,384 that were seen last.
    ///
    /// # Errors
    /// As [`Segments::load`].
    pub fn load_by_connection() -> Result<Segments, MeterError> {
        Segments::new(true)
    }

    fn new(by_connection: bool) -> Result<Segments, MeterError> {
        let path = "/proc/thread-self/ns/net";
        let netns = fs::metadata(path).map_err(|source| MeterError::Read {
            path: path.into(),
            source,
        })?;
        // The kernel's own number has 32 bits, as in the programs.
        let netns = u32::try_from(netns.st_ino()).unwrap_or(u32::MAX);
        let targ = [netns, u32::from(by_connection)].map(u32::to_ne_bytes);
        let without_map: &[&str] = match by_connection {
            true => &[],
            false => &["connections"],
        };
        let attached = Attached::new(
            METER,
            OBJECT,
            targ.as_flattened(),
            without_map,
            MAX_CPUS * size_of::<Cell>(),
        )?;
        let possible = libbpf_rs::num_possible_cpus();
        let cpus = possible.map_or(MAX_CPUS, |cpus| cpus.min(MAX_CPUS));
        Ok(Segments { attached, cpus })
    }
}

impl Meter for Segments {
    fn name(&self) -> &'static str {
        METER
    }

    fn snapshot(&mut self) -> Result<Snapshot, MeterError> {
        let mut counts: Counts = QUANTITIES.iter().map(|&quantity| (quantity, 0)).collect();
        let cells = self.attached.variables().cast::<Cell>();
        for cpu in 0..self.cpus {
            for (index, quantity) in QUANTITIES.iter().enumerate() {
                // SAFETY: so many cells were mapped, and a page is aligned for all;
                // volatile since its CPU goes on counting. A word of 64 bits is never torn.
                let count =
                    unsafe { ptr::read_volatile(&raw const (*cells.add(cpu)).counts[index]) };
                *counts.entry(*quantity).or_default() += count;
            }
        }
        Ok(snapshot_of(METER, Whose::Namespace, counts))
    }
}

impl Pausable for Segments {
    fn pause(&mut self) {
        self.attached.detach(|_| true);
    }

    fn resume(&mut self) -> Result<(), MeterError> {
        self.attached.attach()
    }

    fn by_connection(&mut self) -> HashMap<u64, Counts> {
        let all = self.attached.entries("connections");
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

impl fmt::Debug for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segments").finish_non_exhaustive()
    }
}

const METER: &str = "segments";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/segments.bpf.o"));
/// As in core.h.
const MAX_CPUS: usize = 1024;

/// `struct cell` of segments.bpf.c.
#[repr(C, align(64))]
struct Cell {
    counts: [u64; 64],
    /// What only the programs use.
    _state: [u64; 3],
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
