//! Several devices as one: each packet leaves by the device whose network contains its destination.
//!
//! This is enough for a host with an interface on each side, such as a relay. Not here: a routing
//! table. A packet for none of the networks leaves by the first device, as by a default route.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;

use crate::network::{self, destination};
use crate::{Device, Frame, Offloads, Source};

/// Devices, each with its network.
#[derive(Debug)]
pub struct Routed<D, F> {
    ports: Vec<(D, (IpAddr, u8))>,
    /// Epoll descriptor, readable while one of the devices is; `None` if a device has no
    /// descriptor.
    descriptor: Option<OwnedFd>,
    /// Consecutive packets for one device; empty between calls.
    run: VecDeque<F>,
    /// Index of the device that receives first.
    turn: usize,
    /// Time to retry packets that had no room, because an epoll instance does not report when there
    /// is room.
    again_at: Option<Instant>,
}

impl<D: Device<F>, F: Frame> Routed<D, F> {
    /// Combines devices, at least one. Each has an address of its network and the network's prefix
    /// length.
    ///
    /// # Errors
    /// Fails if no descriptor is left for waiting on all devices.
    ///
    /// # Panics
    /// Panics without a device.
    pub fn new(ports: Vec<(D, (IpAddr, u8))>) -> io::Result<Self> {
        assert!(!ports.is_empty(), "a host has an interface");
        let mut descriptor = None;
        if ports
            .iter()
            .all(|(device, _)| device.descriptor().is_some())
        {
            let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let each = ports.iter().filter_map(|(device, _)| device.descriptor());
            for one in each {
                let data = epoll::EventData::new_u64(0);
                epoll::add(&all, one, data, epoll::EventFlags::IN)?;
            }
            descriptor = Some(all);
        }
        Ok(Self {
            ports,
            descriptor,
            run: VecDeque::new(),
            turn: 0,
            again_at: None,
        })
    }

    /// Iterates over the devices.
    pub fn devices(&self) -> impl Iterator<Item = &D> {
        self.ports.iter().map(|(device, _)| device)
    }

    fn port_for(&self, frame: &F) -> usize {
        let to = frame.runs().next().and_then(destination);
        let is_its =
            |(_, own): &(D, (IpAddr, u8))| to.is_some_and(|to| network::contains(*own, to));
        self.ports.iter().position(is_its).unwrap_or(0)
    }
}

impl<D: Device<F>, F: Frame> Device<F> for Routed<D, F> {
    /// Returns the offloads that all devices have.
    fn offloads(&self) -> Offloads {
        let all = self.ports.iter().map(|(device, _)| device.offloads());
        all.fold(Offloads::ALL, |all, one| Offloads {
            checksum: all.checksum && one.checksum,
            segmentation: all.segmentation && one.segmentation,
        })
    }

    /// Sends in order, so a packet that waits for its device delays those after it. Nothing is kept
    /// here.
    fn send(&mut self, frames: &mut VecDeque<F>, now: Instant) -> io::Result<()> {
        self.again_at = None;
        for (device, _) in &mut self.ports {
            // Lets each device do its own work.
            device.send(&mut self.run, now)?;
        }
        while let Some(first) = frames.front() {
            let at = self.port_for(first);
            while frames
                .front()
                .is_some_and(|frame| self.port_for(frame) == at)
            {
                self.run.extend(frames.pop_front());
            }
            self.ports[at].0.send(&mut self.run, now)?;
            if !self.run.is_empty() {
                while let Some(frame) = self.run.pop_back() {
                    frames.push_front(frame);
                }
                self.again_at = Some(now + AGAIN);
                return Ok(());
            }
        }
        Ok(())
    }

    fn receive(
        &mut self,
        source: &mut dyn Source<F>,
        frames: &mut VecDeque<F>,
        max: usize,
        now: Instant,
    ) -> io::Result<()> {
        let most = frames.len() + max;
        let count = self.ports.len();
        for offset in 0..count {
            let at = (self.turn + offset) % count;
            let left = most.saturating_sub(frames.len());
            self.ports[at].0.receive(source, frames, left, now)?;
        }
        self.turn = (self.turn + 1) % count;
        Ok(())
    }

    fn next_event(&self) -> Option<Instant> {
        let own = self
            .ports
            .iter()
            .filter_map(|(device, _)| device.next_event());
        own.chain(self.again_at).min()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().map(AsFd::as_fd)
    }

    fn is_blocked(&self) -> bool {
        self.ports.iter().any(|(device, _)| device.is_blocked())
    }
}

/// Time between retries. It rarely matters, because a TAP's socket buffer holds 2 GiB.
const AGAIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use crate::{Copied, memory};

    use super::*;

    /// IPv4 header to 10.0.`network`.1, followed by a number.
    fn packet(network: u8, number: u8) -> Copied {
        let mut bytes = vec![0x45; 16];
        bytes.extend([10, 0, network, 1, number]);
        Copied::from(bytes.as_slice())
    }

    fn numbers(far: &mut memory::Memory<Copied>) -> Vec<u8> {
        let mut frames = VecDeque::new();
        far.receive(&mut Copied::source(), &mut frames, 100, Instant::now())
            .unwrap();
        let last = |frame: &Copied| *frame.runs().last().unwrap().last().unwrap();
        frames.iter().map(last).collect()
    }

    fn routed(
        room: usize,
    ) -> (
        Routed<memory::Memory<Copied>, Copied>,
        [memory::Memory<Copied>; 2],
    ) {
        let ((a, a_far), (b, b_far)) = (memory::pair(room), memory::pair(room));
        let network = |number| (IpAddr::from([10, 0, number, 2]), 24);
        let routed = Routed::new(vec![(a, network(0)), (b, network(1))]).unwrap();
        (routed, [a_far, b_far])
    }

    #[test]
    fn each_packet_leaves_by_the_device_of_its_network_and_others_by_the_first() {
        let (mut routed, [mut a, mut b]) = routed(10);
        let networks = [0, 1, 1, 7, 0, 1];
        let mut frames: VecDeque<_> = (0..6).map(|n| packet(networks[n as usize], n)).collect();
        routed.send(&mut frames, Instant::now()).unwrap();
        assert!(frames.is_empty());
        assert_eq!(
            (numbers(&mut a), numbers(&mut b)),
            (vec![0, 3, 4], vec![1, 2, 5])
        );
    }

    #[test]
    fn what_has_no_room_stays_in_order_and_is_tried_again() {
        let (mut routed, [mut a, mut b]) = routed(1);
        let networks = [1, 0, 0, 1];
        let mut frames: VecDeque<_> = (0..4).map(|n| packet(networks[n as usize], n)).collect();
        routed.send(&mut frames, Instant::now()).unwrap();
        assert_eq!(frames.len(), 2);
        assert!(Device::<Copied>::next_event(&routed).is_some());
        assert_eq!((numbers(&mut a), numbers(&mut b)), (vec![1], vec![0]));
        routed.send(&mut frames, Instant::now()).unwrap();
        assert_eq!((numbers(&mut a), numbers(&mut b)), (vec![2], vec![3]));
        assert!(Device::<Copied>::next_event(&routed).is_none());
    }

    #[test]
    fn all_devices_are_heard() {
        let (mut routed, [mut a, mut b]) = routed(4);
        let now = Instant::now();
        for (far, first) in [(&mut a, 0), (&mut b, 2)] {
            let mut frames: VecDeque<_> = (first..first + 2).map(|n| packet(9, n)).collect();
            far.send(&mut frames, now).unwrap();
        }
        let (mut heard, mut frames) = (0, VecDeque::new());
        while heard < 4 {
            let mut source = Copied::source();
            routed.receive(&mut source, &mut frames, 1, now).unwrap();
            assert_eq!(frames.len(), 1, "no more than asked for");
            heard += frames.drain(..).count();
        }
    }
}
