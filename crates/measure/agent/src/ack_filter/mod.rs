//! ACK filter at a kernel's end, with a flush thread that sends an ACK which was held too long.
//!
//! The program (`meter::bpf::ack_filter`) cannot send. So a thread looks once a millisecond for ACKs that
//! have been held for one, and sends them by a packet socket. The program lets them pass if no later ACK has
//! left. So a held ACK leaves within two milliseconds, plus the time that the thread waits for its CPU. That
//! is less than the sender's tail loss probe (2 round trips + 2 ticks, 8 ms at HZ 250), and far less than its
//! retransmission timeout (200 ms). If the thread gets no CPU for that long, the probe or the timeout still
//! draws a duplicate ACK, which is never held.

#![allow(unsafe_code, reason = "a packet socket's address has no safe wrapper")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::anyhow;
use nix::sys::socket::{setsockopt, sockopt};
use rustix::net::{self, AddressFamily, SendFlags, SocketFlags, SocketType};
use tcpcost_meter::bpf::ack_filter::{AckFilterProgram, Every, Overdue};
use tcpcost_meter::{Meter, MeterError};
use tcpcost_study::{AckFilterRule, MeterName, Snapshot};
use tcpcost_tcp::wire::Sum;

use crate::protocol::clock_ns;
use tcpcost_host::error::remedy;
use tcpcost_host::link;

/// Shortest time that an ACK is held, and the interval of the flush: 1000 wake-ups a second cost about 0.3 %
/// of a CPU.
const HOLD: Duration = Duration::from_millis(1);

/// The program at a device of this namespace, and its flush thread. Dropping the filter, in the same
/// namespace, removes both.
pub struct AckFilter {
    program: Arc<AckFilterProgram>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl AckFilter {
    /// Begins to filter what leaves `device`, which must be a device of our own. `start` runs first on the
    /// flush thread; if it fails, the reason is printed and the flush goes on.
    ///
    /// # Errors
    /// The step that failed and why, in one line.
    pub fn start(
        device: &str,
        rule: AckFilterRule,
        start: impl FnOnce() -> Result<(), MeterError> + Send + 'static,
    ) -> anyhow::Result<AckFilter> {
        let index = link::read(device)?.index;
        let socket = packet_socket(index).map_err(|error| anyhow!("packet socket: {error}"))?;
        let program = AckFilterProgram::attach(index, every(rule)).map_err(|error| {
            // Only a cause: the skip names the knob, which needs the program.
            anyhow!("{}: leave it out, or {}", error.cause(), remedy())
        })?;
        let program = Arc::new(program);
        let stop = Arc::new(AtomicBool::new(false));
        let (held, stopped) = (Arc::clone(&program), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("ack-flush".to_string())
            .spawn(move || {
                if let Err(error) = start() {
                    crate::complain(&format!("flush of held ACKs: {error}"));
                }
                let hold_ns = u64::try_from(HOLD.as_nanos()).expect("a millisecond");
                while !stopped.load(Ordering::Relaxed) {
                    std::thread::sleep(HOLD);
                    for overdue in held.overdue(clock_ns(), hold_ns) {
                        // A frame that cannot be sent now is tried again a millisecond later.
                        let _ = send(&socket, &overdue);
                    }
                }
            })
            .map_err(|error| anyhow!("start the flush: {error}"))?;
        Ok(AckFilter {
            program,
            stop,
            thread: Some(thread),
        })
    }

    /// A meter of the filters' counts, added up. `None` without a filter.
    pub fn meter(filters: &[AckFilter]) -> Option<Box<dyn Meter + Send>> {
        let programs = filters.iter().map(|filter| Arc::clone(&filter.program));
        let programs: Vec<_> = programs.collect();
        (!programs.is_empty()).then(|| Box::new(Counted(programs)) as _)
    }
}

impl Drop for AckFilter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // A panic has been printed already.
        }
    }
}

/// The meter: counts of the filters of all devices of a host, added up.
struct Counted(Vec<Arc<AckFilterProgram>>);

impl Meter for Counted {
    fn name(&self) -> MeterName {
        MeterName::AckFilter
    }

    fn snapshot(&mut self) -> Result<Snapshot, MeterError> {
        let mut all = self.0.iter().map(|program| program.snapshot());
        let mut first = all.next().expect("a meter of one filter at least");
        for more in all.flat_map(|snapshot| snapshot.totals) {
            let counts = &mut first.totals[0].counts;
            for (quantity, count) in more.counts {
                *counts.entry(quantity).or_insert(0) += count;
            }
        }
        Ok(first)
    }
}

/// Opens a socket that sends whole frames out of a device and receives none.
fn packet_socket(index: u32) -> io::Result<OwnedFd> {
    let index = i32::try_from(index).map_err(io::Error::other)?;
    // Protocol 0 receives nothing.
    let flags = SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    // SAFETY: all zeros is a sockaddr_ll, the kernel reads it within its length, and it outlives the call.
    let bound = unsafe {
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as libc::c_ushort;
        address.sll_ifindex = index;
        let length = size_of_val(&address) as libc::socklen_t;
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length)
    };
    if bound < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket)
}

fn send(socket: &OwnedFd, overdue: &Overdue) -> io::Result<()> {
    let frame = finished(overdue.frame());
    setsockopt(socket, sockopt::Mark, &overdue.mark())?;
    net::send(socket, &frame, SendFlags::DONTWAIT)?;
    Ok(())
}

/// Fills in the TCP checksum, which TCP left to the device. The frame is Ethernet, IPv4 without options, TCP:
/// the only kind that is held.
fn finished(frame: &[u8]) -> Vec<u8> {
    const IP: usize = 14;
    const TCP: usize = 34;
    const CHECKSUM: usize = TCP + 16;
    let mut frame = frame.to_vec();
    if frame.len() < TCP + 20 {
        return frame; // No frame that was held.
    }
    frame[CHECKSUM..CHECKSUM + 2].fill(0);
    let length = u16::try_from(frame.len() - TCP).expect("a header of at most 60 bytes");
    let sum = Sum::new()
        .add_bytes(&frame[IP + 12..IP + 20])
        .add_word(libc::IPPROTO_TCP as u16)
        .add_word(length)
        .add_bytes(&frame[TCP..]);
    frame[CHECKSUM..CHECKSUM + 2].copy_from_slice(&(!sum.partial()).to_be_bytes());
    frame
}

/// Converts a study's rule into the program's type.
fn every(rule: AckFilterRule) -> Every {
    match rule {
        AckFilterRule::Acks(acks) => Every::Acks(acks),
        AckFilterRule::Segments(segments) => Every::Segments(segments),
    }
}

#[cfg(test)]
mod tests;
