//! CPU time and events of each process that has sockets (`holder.h`): of its tasks, and of softirqs and hard interrupts for its
//! sockets, by network namespace and port.
//!
//! Processes are found when they make a socket, and those that accept or were given theirs by a walk through the open files
//! of all processes, which takes 1 % of a CPU at most. Until then an accepted connection is its listener's.

#![allow(unsafe_code, reason = "memory that an eBPF program writes")]

use std::collections::HashSet;
use std::ptr;
use std::time::{Duration, Instant};

use memmap2::MmapMut;
use tcpcost_counts::{Counts, Printable, Quantity};

use super::events::{self, HOLDER_EVENTS};
use super::layout::exact::{ASKS, Holder as Place, Key, OWNERS};
use super::object::{Attached, Listing, Table};
use super::owned_rows::OwnedRows;
use crate::MeterError;
use crate::holder::{ByHolder, Holder, Port};

/// The places of holders, and how far each has been read.
pub(super) struct Holders {
    rows: OwnedRows,
    places: MmapMut,
    count: usize,
    keys: Table,
    files: Listing,
    next_walk: Instant,
    /// Totals of each place at the time when it was freed.
    bases: Vec<Counts>,
    /// Events that the programs see here.
    seen: u64,
    /// Places of processes that had ended when they were read last.
    ended: HashSet<usize>,
}

impl Holders {
    /// Maps the places of loaded programs, and walks the open files of all processes twice.
    ///
    /// # Errors
    /// The maps are not what this reader knows, or the kernel refuses to list files.
    pub(super) fn new(attached: &Attached, seen: u64) -> Result<Holders, MeterError> {
        let (places, count) = attached.array(PLACES, size_of::<Place>())?;
        let mut holders = Holders {
            rows: OwnedRows::new(attached, count)?,
            places,
            count,
            keys: attached.table(KEYS)?,
            files: attached.listing(FILES)?,
            next_walk: Instant::now(),
            bases: vec![Counts::new(); count],
            seen,
            ended: HashSet::new(),
        };
        holders.walk()?;
        // Listeners are known now: what they accepted before is told from what asks.
        holders.walk()?;
        Ok(holders)
    }

    /// Finds processes that have sockets, and gives them those that only they hold.
    fn walk(&mut self) -> Result<(), MeterError> {
        let began = Instant::now();
        let walked = self.files.run();
        self.next_walk = Instant::now() + began.elapsed() * WALK_SHARE + WALK_PERIOD;
        walked
    }

    /// Totals of all holders on these CPUs. What a process has that ended since the last time is told once more; then its
    /// places are free.
    pub(super) fn read(&mut self, cpus: &[usize]) -> ByHolder {
        if Instant::now() >= self.next_walk {
            // Without it new processes are found by their first socket alone.
            let _ = self.walk();
        }
        let mut all = ByHolder::new();
        let mut ended = HashSet::new();
        let mut told = Vec::new();
        for index in OWNERS..self.count {
            let place = self.place(index);
            if place.is_told == 1 {
                told.push((index, place));
                if place.has_ended == 1 {
                    ended.insert((place.tgid, place.start));
                }
            }
        }
        let mut now_ended = HashSet::new();
        for (index, place) in told {
            let totals = self.totals(index, cpus);
            if self.ended.contains(&index) {
                self.free(index, &place, totals);
                continue;
            }
            if ended.contains(&(place.tgid, place.start)) {
                now_ended.insert(index);
            }
            let base = &self.bases[index];
            let grown = totals.into_iter().map(|(of, total)| {
                let before = base.get(&of).unwrap_or(&0);
                (of, total.saturating_sub(*before))
            });
            all.insert(holder(&place), grown.collect());
        }
        self.ended = now_ended;
        all
    }

    fn place(&self, index: usize) -> Place {
        assert!(index < self.count, "counted when they were mapped");
        // SAFETY: `count` places were mapped; volatile since other CPUs write them, but not once they are told.
        unsafe { ptr::read_volatile(self.places.as_ptr().cast::<Place>().add(index)) }
    }

    /// [`Quantity::HOLDER`], and the events that are seen here.
    fn totals(&self, index: usize, cpus: &[usize]) -> Counts {
        let row = self.rows.sum(index, cpus);
        let ns = [
            row.task_ns(),
            row.user_ns(),
            row.softirq_ns(),
            row.hardirq_ns(),
        ];
        let times = Quantity::HOLDER.into_iter().zip(ns);
        times
            .chain(events::of(&row, self.seen, HOLDER_EVENTS))
            .collect()
    }

    /// Lets another holder have this place.
    fn free(&mut self, index: usize, place: &Place, totals: Counts) {
        let key = Key {
            start: place.start,
            tgid: place.tgid,
            netns: place.netns,
            port: place.port,
            unused: 0,
        };
        // SAFETY: a `Key` is words without a gap.
        let bytes =
            unsafe { std::slice::from_raw_parts((&raw const key).cast::<u8>(), size_of::<Key>()) };
        if self.keys.set(bytes, None).is_err() {
            return;
        }
        self.bases[index] = totals;
        let place = self.places.as_mut_ptr().cast::<Place>();
        // SAFETY: as above; the kernel's programs write a place only from when it is not taken.
        unsafe {
            let place = place.add(index);
            (&raw mut (*place).is_told).write_volatile(0);
            (&raw mut (*place).is_taken).write_volatile(0);
        }
    }
}

fn holder(place: &Place) -> Holder {
    let length = place.name.iter().position(|&byte| byte == 0);
    Holder {
        pid: place.tgid,
        start_ns: place.start,
        name: Printable::of_bytes(&place.name[..length.unwrap_or(place.name.len())]),
        cgroup: place.cgroup,
        netns: place.netns,
        port: port(place.port),
    }
}

fn port(word: u32) -> Option<Port> {
    let port = word as u16;
    match word {
        0 => None,
        word if word & ASKS as u32 != 0 => Some(Port::Asked(port)),
        _ => Some(Port::Served(port)),
    }
}

/// The maps of holder.h, and the program of owner_points.h that finds open sockets.
pub(super) const PLACES: &str = "owned_holder";
pub(super) const KEYS: &str = "owned_place";
const FILES: &str = "owned_files";
/// Places for holders: a process with sockets in one namespace with two ports has three. 192 KiB for each CPU.
pub(super) const PLACES_MAX: usize = 1024;
/// Time until the next walk, in times of the last one: walks take at most 0.5 % of a CPU.
const WALK_SHARE: u32 = 200;
/// And at least this, so that looks a moment apart do not walk each.
const WALK_PERIOD: Duration = Duration::from_millis(100);
