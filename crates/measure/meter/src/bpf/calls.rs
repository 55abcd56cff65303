//! Sends and receives on internet sockets of the processes that a [`super::Follower`] follows. Sends by reference (sendfile,
//! splice) are counted since Linux 6.5, and absent before.
//!
//! The kernel's socket tracepoints see every system call that sends or receives, read and write and io_uring's among
//! them, and cost nothing to calls that are of no socket.

#![allow(unsafe_code, reason = "memory that an eBPF program writes")]

use std::fmt;
use std::ptr;

use tcpcost_counts::{CountOwner, Counts, MeterName, Quantity, Snapshot};

use super::layout::calls::{COUNTED, COUNTS, Cell, MAX_CPUS, Place};
use super::object::{self, Attached, Table};
use crate::{Meter, MeterError, Needs, snapshot_of};

/// The meter `socket_calls`: [`CountOwner::Threads`].
pub(super) struct Calls {
    attached: Attached,
    /// Number of counts that this kernel shows.
    known: usize,
}

impl Calls {
    /// Counts from now on.
    ///
    /// # Errors
    /// [`MeterError::Unavailable`]: no privilege, no BTF, or a kernel older than 6.3.
    pub(super) fn load(followed: &Table) -> Result<Calls, MeterError> {
        let length = MAX_CPUS * size_of::<Cell>();
        let attached = Attached::sharing(METER, OBJECT, followed, length)?;
        if attached.is_idle() {
            return Err(MeterError::Unavailable {
                meter: METER,
                tried: "count sends and receives".to_string(),
                source: None,
                needs: Some(Needs::Kernel(
                    "Linux 6.3 or newer, with the tracepoints sock_send_length and sock_recv_length",
                )),
            });
        }
        // Before Linux 6.5 sends by reference pass no tracepoint.
        let known = match object::kernel_has_function("splice_to_socket") {
            true => COUNTS,
            false => Place::REFERENCE_SENDS as usize,
        };
        Ok(Calls { attached, known })
    }
}

impl Meter for Calls {
    fn name(&self) -> MeterName {
        METER
    }

    fn snapshot(&mut self) -> Result<Snapshot, MeterError> {
        let cells = self.attached.variables().cast::<Cell>();
        let mut counts = Counts::new();
        for cpu in 0..MAX_CPUS {
            // SAFETY: so many cells were mapped, and a page is aligned for all; volatile since other CPUs write them, each
            // word in one piece.
            let cell = unsafe { ptr::read_volatile(cells.add(cpu)) };
            for (name, count) in COUNTED.iter().zip(cell.counts).take(self.known) {
                let quantity = Quantity::named(name).expect("the layout names quantities");
                *counts.entry(quantity).or_insert(0) += count;
            }
        }
        Ok(snapshot_of(METER, CountOwner::Threads, counts))
    }

    fn misses(&self) -> Option<String> {
        (self.known < COUNTS).then(|| {
            format!("{METER}: sends by reference are not counted: they need Linux 6.5 or newer")
        })
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").finish_non_exhaustive()
    }
}

const METER: MeterName = MeterName::SocketCalls;
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/calls.bpf.o"));
const _: () = assert!(COUNTED.len() == COUNTS);
