//! ACK filter: of a receiver's pure ACKs only some leave its device.
//!
//! A program at the device's tc egress (clsact) holds the others back. Never held: SYN, FIN, RST, anything
//! with data, options other than timestamps (SACK), ECN's echo, URG, a number that was seen before
//! (duplicates, updates of the window), the ACK after one that told of a hole, the first segment of a
//! connection and all once an end has closed, IPv4 with options, IPv6; and an ACK of whose window
//! the peer knows less than half. So what is held is always covered by
//! something that leaves later, and TCP hears of no loss.
//!
//! Nothing comes later where the sender waits. The program keeps a copy of the ACK held last, and
//! whoever loads it sends that again in time: [`AckFilterProgram::overdue`] and [`Overdue::mark`]. If a later one has left
//! meanwhile, the program drops the copy.

#![allow(unsafe_code, reason = "memory that an eBPF program writes")]

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{Ordering, fence};
use std::{fmt, ptr};

use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcHook, TcHookBuilder};
use memmap2::MmapMut;
use tcpcost_counts::{CountOwner, Counts, MeterName, Quantity, Snapshot};

use super::layout::ack_filter::{FLOWS, FLUSH, Flow, PACKET, Totals};
use super::object::{failure, load, variables};
use crate::{MeterError, snapshot_of};

/// One pure ACK leaves for so many of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Every {
    /// ACKs.
    Acks(u32),
    /// Wire segments that they acknowledge.
    Segments(u32),
}

/// The program at the egress of one device of this thread's network namespace. Dropping it, in the
/// same namespace, takes it and the device's clsact away.
pub struct AckFilterProgram {
    device_index: i32,
    variables: MmapMut,
}

/// An ACK that was held too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overdue {
    flow: u32,
    frame: [u8; PACKET],
    length: usize,
}

impl Overdue {
    /// The Ethernet frame as TCP made it. Its TCP checksum may be unfinished.
    pub fn frame(&self) -> &[u8] {
        &self.frame[..self.length]
    }

    /// The mark (SO_MARK) by which the program knows what is sent again.
    pub fn mark(&self) -> u32 {
        FLUSH as u32 | self.flow
    }
}

impl AckFilterProgram {
    /// Loads the program and puts it at the egress of the device with this index, which must be the
    /// caller's own: a clsact that is there already goes with it. Segments are of the size that the
    /// receiver takes for the sender's MSS.
    ///
    /// # Errors
    /// [`MeterError::Unavailable`]: no privilege, no BTF, no clsact, or a kernel older than 5.12.
    pub fn attach(device_index: u32, every: Every) -> Result<AckFilterProgram, MeterError> {
        let object = load(METER, OBJECT, &targ(every))?;
        let variables = variables(METER, &object, size_of::<All>())?;
        let program = object.progs().next().expect("the object has one program");
        let device_index =
            i32::try_from(device_index).expect("the kernel's indices are positive ints");
        let mut hook = clsact(program.as_fd(), device_index);
        hook.create()
            .map_err(|error| failure(METER, "make clsact", &error))?;
        let filter = AckFilterProgram {
            device_index,
            variables,
        };
        hook.attach_point(TC_EGRESS)
            .attach()
            .map_err(|error| failure(METER, "attach", &error))?;
        Ok(filter)
    }

    /// Checks that the kernel loads the program; attaches nothing.
    ///
    /// # Errors
    /// [`MeterError::Unavailable`]: no privilege, no BTF, or a kernel older than 5.12.
    pub fn loads() -> Result<(), MeterError> {
        load(METER, OBJECT, &targ(Every::Acks(2))).map(drop)
    }

    fn all(&self) -> *const All {
        self.variables.as_ptr().cast()
    }

    /// ACKs held at `now_ns` (CLOCK_MONOTONIC) since `hold_ns` or longer, one of each connection.
    pub fn overdue(&self, now_ns: u64, hold_ns: u64) -> impl Iterator<Item = Overdue> {
        let all = self.all();
        // SAFETY: so many bytes were mapped, and a page is aligned for all; volatile since the programs
        // go on writing.
        let used = unsafe { ptr::read_volatile(&raw const (*all).totals.next) };
        let used = usize::try_from(used).map_or(FLOWS, |used| used.min(FLOWS));
        (0..used).filter_map(move |index| {
            // SAFETY: as above, and the index is below FLOWS.
            let flow = unsafe { &raw const (*all).flows[index] };
            // SAFETY: as above.
            let since_ns = unsafe { ptr::read_volatile(&raw const (*flow).held_at_ns) };
            if since_ns == 0 || now_ns.saturating_sub(since_ns) < hold_ns {
                return None;
            }
            copy(flow, u32::try_from(index).expect("FLOWS are few"))
        })
    }

    /// Counts of the filter so far ([`CountOwner::Namespace`]).
    pub fn snapshot(&self) -> Snapshot {
        let all = self.all();
        // SAFETY: as in `overdue`; a word of 64 bits is never torn.
        let (passed, held, flushed) = unsafe {
            (
                ptr::read_volatile(&raw const (*all).totals.passed),
                ptr::read_volatile(&raw const (*all).totals.held),
                ptr::read_volatile(&raw const (*all).totals.flushed),
            )
        };
        let counts = Counts::from([
            (Quantity::AckFilterPassedAcks, passed),
            (Quantity::AckFilterHeldAcks, held),
            (Quantity::AckFilterFlushedAcks, flushed),
        ]);
        snapshot_of(METER, CountOwner::Namespace, counts)
    }
}

/// The program's settings.
fn targ(every: Every) -> [u8; 8] {
    let (acks, segments) = match every {
        Every::Acks(acks) => (acks, 0),
        Every::Segments(segments) => (0, segments),
    };
    let mut targ = [0; 8];
    targ[..4].copy_from_slice(&acks.to_ne_bytes());
    targ[4..].copy_from_slice(&segments.to_ne_bytes());
    targ
}

/// The clsact of a device.
fn clsact(program: BorrowedFd<'_>, device_index: i32) -> TcHook {
    TcHookBuilder::new(program)
        .ifindex(device_index)
        .hook(TC_EGRESS | TC_INGRESS)
}

/// A flow's held packet, unless the program is about to write another.
fn copy(flow: *const Flow, index: u32) -> Option<Overdue> {
    // SAFETY: of every read here: `flow` is one of the mapped array; volatile since the programs go on
    // writing. `version` tells whether the bytes are of one packet.
    let (before, length, frame, after) = unsafe {
        let before = ptr::read_volatile(&raw const (*flow).version);
        fence(Ordering::Acquire);
        let length = ptr::read_volatile(&raw const (*flow).length);
        let frame = ptr::read_volatile((&raw const (*flow).packet).cast::<[u8; PACKET]>());
        fence(Ordering::Acquire);
        let after = ptr::read_volatile(&raw const (*flow).version);
        (before, length, frame, after)
    };
    let length = usize::try_from(length).ok()?;
    (before == after && before % 2 == 0 && length <= PACKET).then_some(Overdue {
        flow: index,
        frame,
        length,
    })
}

impl Drop for AckFilterProgram {
    fn drop(&mut self) {
        // It fails where the device is gone already, and the program with it. The descriptor is of no
        // meaning: clsact goes whatever is attached to it.
        let _ = clsact(std::io::stdin().as_fd(), self.device_index).destroy();
    }
}

impl fmt::Debug for AckFilterProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AckFilterProgram").finish_non_exhaustive()
    }
}

/// The meter's name in readings.
const METER: MeterName = MeterName::AckFilter;
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ack_filter.bpf.o"));

/// The variables of ack_filter.bpf.c.
#[repr(C)]
struct All {
    totals: Totals,
    flows: [Flow; FLOWS],
}
