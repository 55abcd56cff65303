//! TAP and TUN interfaces: a wire to the kernel's network stack.
//!
//! Every packet has a virtio-net header, so that super-segments and partial checksums cross in both
//! directions. Ethernet headers, ARP and neighbour discovery are handled here; the user sees IP
//! packets. The `unsafe` code of the crate is in this module, around system calls.

mod neighbours;
mod steering;
mod virtio;
mod wire;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::{Device, Filled, Frame, Offload, Offloads, Source};
use neighbours::{ETHERNET_BYTES, Ethernet};
use virtio::HEADER_BYTES;

pub use wire::TapWire;

/// Protocol layer that an interface carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// TAP: Ethernet frames.
    Ethernet,
    /// TUN: IP packets.
    Ip,
}

/// Network interface of this machine whose wire ends in this process.
pub struct Tap {
    file: File,
    name: String,
    ethernet: Option<Ethernet>,
    offloads: Offloads,
    counters: TapCounters,
}

/// Counts of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapCounters {
    /// Packets written.
    pub sent: u64,
    /// Packets read.
    pub received: u64,
    /// Packets that the kernel refused, because the interface is down or the header is invalid for
    /// it.
    pub refused: u64,
    /// ARP requests and neighbour solicitations answered.
    pub neighbours_answered: u64,
    /// Packets dropped because no host answered for their destination.
    pub neighbours_unresolved: u64,
    /// Frames dropped because they were for another host, since a bridge floods frames.
    pub foreign: u64,
}

/// Reason why an interface cannot be opened.
#[derive(Debug)]
pub struct TapError {
    /// Step that failed: opening the device file, or the name of a system call on it.
    pub tried: &'static str,
    /// Error of the system.
    pub inner: io::Error,
}

impl TapError {
    /// Returns what the user can do about it, if the error tells the cause.
    pub fn remedy(&self) -> Option<&'static str> {
        match (self.tried, self.inner.raw_os_error()?) {
            // Without the module the file may exist, if udev or systemd made it.
            (virtio::OPEN, libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
                Some("run `modprobe tun`, or give a container `--device /dev/net/tun`")
            }
            // The device cgroup of a container answers so, too.
            (virtio::OPEN, libc::EACCES | libc::EPERM) => {
                Some("let this user read and write it, or give a container `--device /dev/net/tun`")
            }
            (_, libc::EACCES | libc::EPERM) => {
                Some("needs CAP_NET_ADMIN, or an interface that was made for this user")
            }
            _ => None,
        }
    }
}

impl std::fmt::Display for TapError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.tried, self.inner)?;
        match self.remedy() {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

// No source: the message has it, and a chain of reasons would say it twice.
impl std::error::Error for TapError {}

impl Tap {
    /// Opens interface `name`, creating it if it does not exist ("tap%d" lets the kernel number
    /// it). Unless it was made persistent, it is removed when the value is dropped. The caller must
    /// bring it up and set addresses. Without an offload, the kernel does that work before it
    /// passes packets on, and expects the same of us.
    ///
    /// # Errors
    /// [`TapError`] with the step that failed.
    pub fn open(name: &str, layer: Layer, offloads: Offloads) -> Result<Self, TapError> {
        Self::open_queue(name, layer, offloads, false)
    }

    /// Opens an interface with `count` queues, one value each, for users on several CPUs. Queue n
    /// receives packets to ports p with p % `count` = n; every queue may send. A count of 1 is the
    /// same as [`open`](Self::open).
    ///
    /// # Errors
    /// [`TapError`] with the step that failed. Possible causes: more than 256 queues, or a kernel
    /// that refuses the eBPF program that assigns packets to queues (needs CAP_BPF if
    /// `kernel.unprivileged_bpf_disabled` is set).
    pub fn open_queues(
        name: &str,
        layer: Layer,
        offloads: Offloads,
        count: usize,
    ) -> Result<Vec<Self>, TapError> {
        let first = Self::open_queue(name, layer, offloads, count > 1)?;
        let mut queues = vec![first];
        while queues.len() < count {
            let next = Self::open_queue(&queues[0].name, layer, offloads, true)?;
            queues.push(next);
        }
        if count > 1 {
            steering::by_port(&queues[0].file, layer)?;
        }
        Ok(queues)
    }

    /// Opens the device file that all interfaces need, and closes it. This needs no privilege.
    ///
    /// # Errors
    /// [`TapError`] if the file cannot be opened.
    pub fn check_device() -> Result<(), TapError> {
        virtio::open().map(drop)
    }

    fn open_queue(
        name: &str,
        layer: Layer,
        offloads: Offloads,
        several: bool,
    ) -> Result<Self, TapError> {
        let file = virtio::open()?;
        let name = virtio::attach(&file, name, layer, several)?;
        virtio::set_offloads(&file, offloads)?;
        let ethernet = match layer {
            Layer::Ethernet => Some(Ethernet::new(virtio::hardware_address(&file)?)),
            Layer::Ip => None,
        };
        Ok(Self {
            file,
            name,
            ethernet,
            offloads,
            counters: TapCounters::default(),
        })
    }

    /// Returns the same interface for another user after this one. Its counters start at 0.
    ///
    /// # Errors
    /// Fails if no descriptor is free.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            file: self.file.try_clone()?,
            name: self.name.clone(),
            ethernet: self.ethernet.clone(),
            offloads: self.offloads,
            counters: TapCounters::default(),
        })
    }

    /// Name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the counts so far.
    pub fn counters(&self) -> TapCounters {
        let ethernet = self.ethernet.as_ref();
        TapCounters {
            neighbours_answered: ethernet.map_or(0, |ethernet| ethernet.answered),
            neighbours_unresolved: ethernet.map_or(0, |ethernet| ethernet.unresolved),
            foreign: ethernet.map_or(0, |ethernet| ethernet.foreign),
            ..self.counters
        }
    }

    /// Answers for `address` in ARP and neighbour discovery. No effect on a TUN.
    pub fn answer_for(&mut self, address: IpAddr) {
        if let Some(ethernet) = &mut self.ethernet {
            ethernet.addresses.push(address);
        }
    }

    /// Resolves hosts of this network by ARP or neighbour discovery instead of sending their
    /// packets to the kernel, for an interface in a bridge. `address` is any address of the
    /// network, `bits` its prefix length. No effect on a TUN.
    pub fn resolve_in(&mut self, address: IpAddr, bits: u8) {
        if let Some(ethernet) = &mut self.ethernet {
            ethernet.networks.push((address, bits));
        }
    }

    /// Sleeps until a packet can be read or `timeout` has passed. `None` sleeps without limit. A
    /// signal ends the sleep early.
    ///
    /// # Errors
    /// Fails if poll(2) fails.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<()> {
        // A timeout too large for a timespec counts as no limit.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(
            &mut [PollFd::new(&self.file, PollFlags::IN)],
            timeout.as_ref(),
        ) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a packet, or keeps it until its neighbour is known.
    fn write<F: Frame>(&mut self, frame: &F, offload: &Offload, now: Instant) -> io::Result<usize> {
        let link_bytes = if self.ethernet.is_some() {
            ETHERNET_BYTES as u16
        } else {
            0
        };
        let virtio = virtio::encode(offload, link_bytes);
        let ethernet = match &mut self.ethernet {
            None => None,
            Some(ethernet) => {
                let head = frame.runs().next().unwrap_or_default();
                let header = ethernet.header_for(head, now);
                if header.is_none() {
                    let packet: Vec<u8> = frame.runs().flatten().copied().collect();
                    ethernet.keep(&virtio, &packet);
                    return Ok(packet.len());
                }
                header
            }
        };
        let link = ethernet.as_ref().map_or(&[][..], |header| &header[..]);
        let mut slices = [io::IoSlice::new(&[]); RUNS_MAX + 2];
        slices[0] = io::IoSlice::new(&virtio);
        slices[1] = io::IoSlice::new(link);
        let mut count = 2;
        for run in frame.runs() {
            if count == slices.len() {
                // More runs than a segment normally has: copy them together.
                let bytes: Vec<u8> = [&virtio[..], link]
                    .into_iter()
                    .chain(frame.runs())
                    .flatten()
                    .copied()
                    .collect();
                return (&self.file).write(&bytes);
            }
            slices[count] = io::IoSlice::new(run);
            count += 1;
        }
        (&self.file).write_vectored(&slices[..count])
    }

    /// Repeats requests for neighbours that packets wait for.
    fn tend_neighbours(&mut self, now: Instant) {
        if let Some(ethernet) = &mut self.ethernet {
            ethernet.on_time(now);
        }
    }

    /// Sends our requests and answers, and packets that waited for a neighbour.
    fn send_own(&mut self) {
        let Some(ethernet) = &mut self.ethernet else {
            return;
        };
        while let Some(frame) = ethernet.out.front() {
            match (&self.file).write(frame) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Other errors count as loss on the wire: neighbours ask again, and TCP
                // retransmits.
                _ => ethernet.out.pop_front(),
            };
        }
    }
}

impl<F: Frame> Device<F> for Tap {
    fn offloads(&self) -> Offloads {
        self.offloads
    }

    fn send(&mut self, frames: &mut VecDeque<F>, now: Instant) -> io::Result<()> {
        self.tend_neighbours(now);
        while let Some(frame) = frames.front() {
            let mut offload = frame.offload();
            let written = if offload.partial.is_some() && !self.offloads.checksum {
                let mut bytes: Vec<u8> = frame.runs().flatten().copied().collect();
                offload.complete(&mut bytes);
                self.write(&F::from_bytes(bytes, offload), &offload, now)
            } else {
                self.write(frame, &offload, now)
            };
            match written {
                Ok(_) => self.counters.sent += 1,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.counters.refused += 1;
                    match error.raw_os_error() {
                        // The kernel refuses super-segments: stop sending them. The user queries
                        // the offloads again and sends ordinary segments.
                        Some(libc::EINVAL) if offload.segmentation.is_some() => {
                            self.offloads.segmentation = false
                        }
                        // The interface is down or memory is short: counts as loss.
                        Some(libc::EINVAL | libc::EIO | libc::ENOBUFS | libc::ENOMEM) => {}
                        _ => return Err(error),
                    }
                }
            }
            frames.pop_front();
        }
        self.send_own();
        Ok(())
    }

    fn receive(
        &mut self,
        source: &mut dyn Source<F>,
        frames: &mut VecDeque<F>,
        max: usize,
        now: Instant,
    ) -> io::Result<()> {
        for _ in 0..max {
            let Self { file, ethernet, .. } = self;
            let frame = source.fill(&mut |buffer| read(file, ethernet.as_mut(), buffer, now));
            match frame {
                Ok(frame) if !frame.is_empty() => {
                    self.counters.received += 1;
                    frames.push_back(frame);
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.send_own();
        Ok(())
    }

    fn next_event(&self) -> Option<Instant> {
        self.ethernet.as_ref()?.next_event()
    }

    fn is_blocked(&self) -> bool {
        let ethernet = self.ethernet.as_ref();
        ethernet.is_some_and(|ethernet| !ethernet.out.is_empty())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

/// Reads one packet into `buffer`. Returns 0 bytes if the packet was about neighbours or not for
/// us.
fn read(
    file: &File,
    ethernet: Option<&mut Ethernet>,
    buffer: &mut [u8],
    now: Instant,
) -> io::Result<Filled> {
    let mut virtio = [0; HEADER_BYTES];
    let mut link = [0; ETHERNET_BYTES];
    let link_bytes = if ethernet.is_some() {
        ETHERNET_BYTES
    } else {
        0
    };
    let read = {
        let mut slices = [
            io::IoSliceMut::new(&mut virtio),
            io::IoSliceMut::new(&mut link[..link_bytes]),
            io::IoSliceMut::new(buffer),
        ];
        (&*file).read_vectored(&mut slices)?
    };
    let offload = virtio::decode(&virtio, link_bytes as u16);
    let mut bytes = read.saturating_sub(HEADER_BYTES + link_bytes);
    if let Some(ethernet) = ethernet
        && (!ethernet.is_for_us(&link)
            || ethernet.on_frame(&link, &buffer[..bytes], now)
            || !ethernet.is_ip_for_us(&link))
    {
        bytes = 0;
    }
    Ok(Filled { bytes, offload })
}

impl AsRawFd for Tap {
    fn as_raw_fd(&self) -> i32 {
        self.file.as_raw_fd()
    }
}

/// Limit of runs in one write. A super-segment has headers and two slabs; one written in small
/// pieces has a few more.
const RUNS_MAX: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_was_tried_and_what_to_do() {
        let error = |tried, error| {
            let inner = io::Error::from_raw_os_error(error);
            TapError { tried, inner }.to_string()
        };
        let open = |number| error(virtio::OPEN, number);
        let call = |number| error("TUNSETIFF", number);
        for (said, begins, ends) in [
            (
                open(libc::ENOENT),
                "open /dev/net/tun: No such file",
                "; run `modprobe tun`, or give a container `--device /dev/net/tun`",
            ),
            (
                open(libc::ENODEV),
                "open /dev/net/tun: No such device",
                "`--device /dev/net/tun`",
            ),
            (
                open(libc::EPERM),
                "open /dev/net/tun: Operation not permitted",
                "`--device /dev/net/tun`",
            ),
            (
                open(libc::EMFILE),
                "open /dev/net/tun: Too many open files",
                "(os error 24)",
            ),
            (
                call(libc::EPERM),
                "TUNSETIFF: Operation not permitted",
                "made for this user",
            ),
            (
                call(libc::EBUSY),
                "TUNSETIFF: Device or resource busy",
                "(os error 16)",
            ),
        ] {
            assert!(said.starts_with(begins) && said.ends_with(ends), "{said}");
        }
        assert!(!open(libc::EPERM).contains("CAP_NET_ADMIN"));
    }
}
