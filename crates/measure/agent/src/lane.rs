//! The wire with delay and loss where one end is our own TCP: the same impairments, in the thread of that
//! TCP.
//!
//! Between two namespaces a separate process carries the packets (`wire.rs`), so its CPU time belongs to
//! neither end. A TAP and a pair in memory already have our TCP at one end, so packets wait in front of its
//! device. The cost, a push and a pop of a heap for each packet, belongs to that end.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tcpcost_link::{Device, Impaired, LaneCounters, Offloads, Source};
use tcpcost_meter::{Meter, MeterError};
use tcpcost_stack::Wire;
use tcpcost_study::{
    CountOwner, Counts, HostName, Knobs, MeterName, Quantity, Snapshot, Totals, WireSettings,
};

use crate::protocol::clock_ns;
use crate::wire::impairment;

/// Impairments of the packets that our TCP sends, and of the packets that arrive at it.
#[derive(Debug, Clone, Copy)]
pub struct LaneSettings {
    sent: WireSettings,
    received: WireSettings,
    has_both: bool,
    seed: u64,
}

impl LaneSettings {
    /// Settings of a host of our TCP. `None` if the study sets no wire. With `has_both` the other end is the
    /// kernel's, so this end impairs both directions. In memory each end impairs what it sends.
    pub fn new(knobs: &Knobs, host: HostName, has_both: bool, seed: u64) -> Option<LaneSettings> {
        let peer = HostName::PAIR.into_iter().find(|other| *other != host)?;
        WireSettings::are_set(knobs).then(|| LaneSettings {
            sent: WireSettings::of(knobs, host),
            received: match has_both {
                true => WireSettings::of(knobs, peer),
                false => WireSettings::default(),
            },
            has_both,
            seed,
        })
    }

    /// Puts the wire in front of `device`. Instance `index` has its own seed, so it loses other packets than
    /// the other instances.
    pub fn over<D: Device<Wire> + Send + 'static>(
        &self,
        device: D,
        index: usize,
        counts: Arc<LaneCounts>,
    ) -> Box<dyn Device<Wire> + Send> {
        let seed = self.seed.wrapping_add((index as u64) << 16);
        let [sent, received] = [self.sent, self.received].map(impairment);
        Box::new(Lane {
            inner: Impaired::new(device, sent, received, seed),
            is_by_packet: self.sent.is_by_packet(),
            has_both: self.has_both,
            counts,
        })
    }
}

/// Totals of one instance's wire, both directions, for the worker that reads the host's meters.
#[derive(Debug, Default)]
pub struct LaneCounts([AtomicU64; 5]);

impl LaneCounts {
    fn set(&self, lanes: [LaneCounters; 2]) {
        let of = |count: fn(&LaneCounters) -> u64| lanes.iter().map(count).sum();
        let now: [u64; 5] = [
            of(|lane| lane.packets),
            of(|lane| lane.lost),
            of(|lane| lane.overflowed),
            of(|lane| lane.reordered),
            of(|lane| lane.duplicated),
        ];
        for (total, now) in self.0.iter().zip(now) {
            total.store(now, Ordering::Relaxed);
        }
    }
}

/// Quantities of [`LaneCounts`], in its order.
const COUNTED: [Quantity; 5] = [
    Quantity::WirePackets,
    Quantity::WireLostPackets,
    Quantity::WireOverflowedPackets,
    Quantity::WireReorderedPackets,
    Quantity::WireDuplicatedPackets,
];

/// The meter `wire` of a host of our TCP, added up over its instances. It has no CPU time of its own.
#[derive(Debug)]
pub struct LaneMeter(pub Vec<Arc<LaneCounts>>);

impl Meter for LaneMeter {
    fn name(&self) -> MeterName {
        MeterName::Wire
    }

    fn snapshot(&mut self) -> Result<Snapshot, MeterError> {
        let total = |at: usize| {
            let each = self.0.iter();
            each.map(|counts| counts.0[at].load(Ordering::Relaxed))
                .sum()
        };
        let counts: Counts = COUNTED
            .iter()
            .enumerate()
            .map(|(at, &quantity)| (quantity, total(at)))
            .collect();
        Ok(Snapshot {
            meter: MeterName::Wire,
            at_ns: clock_ns(),
            totals: vec![Totals {
                whose: CountOwner::Namespace,
                counts,
            }],
        })
    }
}

/// A device of our TCP with a wire in front of it.
struct Lane<D> {
    inner: Impaired<D, Wire>,
    /// If set, our TCP cuts its super-segments before the wire, so that one packet is lost and not
    /// forty-five.
    is_by_packet: bool,
    /// If not set, arriving packets were counted at the other end's wire.
    has_both: bool,
    counts: Arc<LaneCounts>,
}

impl<D: Device<Wire>> Lane<D> {
    fn count(&self) {
        let lanes = self.inner.counters();
        let received = match self.has_both {
            true => lanes.received,
            false => LaneCounters::default(),
        };
        self.counts.set([lanes.sent, received]);
    }
}

impl<D: Device<Wire>> Device<Wire> for Lane<D> {
    fn offloads(&self) -> Offloads {
        let offloads = self.inner.offloads();
        Offloads {
            segmentation: offloads.segmentation && !self.is_by_packet,
            ..offloads
        }
    }

    fn send(&mut self, frames: &mut VecDeque<Wire>, now: Instant) -> io::Result<()> {
        let sent = self.inner.send(frames, now);
        self.count();
        sent
    }

    fn receive(
        &mut self,
        source: &mut dyn Source<Wire>,
        frames: &mut VecDeque<Wire>,
        max: usize,
        now: Instant,
    ) -> io::Result<()> {
        let received = self.inner.receive(source, frames, max, now);
        self.count();
        received
    }

    fn next_event(&self) -> Option<Instant> {
        self.inner.next_event()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn is_blocked(&self) -> bool {
        self.inner.is_blocked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_link::Frame;

    fn settings(text: &[(&str, &str)], has_both: bool) -> Option<LaneSettings> {
        let mut knobs = Knobs::default();
        for (name, value) in text {
            knobs.set(name, value).unwrap();
        }
        LaneSettings::new(&knobs, HostName::SERVER, has_both, 7)
    }

    #[test]
    fn each_end_in_memory_sees_to_what_it_sends_and_over_a_tap_ours_to_both() {
        let set = [("client.delay", "20ms"), ("server.delay", "5ms")];
        let delays = |has_both| {
            let settings = settings(&set, has_both).unwrap();
            [settings.sent.delay, settings.received.delay].map(|delay| delay.as_millis())
        };
        assert_eq!(delays(true), [5, 20]);
        assert_eq!(delays(false), [5, 0]);
        assert!(settings(&[("mtu", "1500B")], true).is_none());
    }

    #[test]
    fn what_the_wire_does_is_counted_and_a_lossy_one_takes_no_super_segments() {
        let (near, far) = tcpcost_link::memory::pair::<Wire>(16);
        drop(far);
        let counts = Arc::new(LaneCounts::default());
        let all_lost = settings(&[("server.loss", "50%")], false).unwrap();
        let mut lossy = all_lost.over(near.clone(), 0, Arc::clone(&counts));
        assert!(!lossy.offloads().segmentation);
        let delayed = settings(&[("delay", "1ms")], false).unwrap();
        let delayed = delayed.over(near, 0, Arc::default());
        assert!(delayed.offloads().segmentation);
        let packet = || Wire::from_bytes(vec![0; 40], tcpcost_link::Offload::default());
        let mut packets: VecDeque<Wire> = (0..1000).map(|_| packet()).collect();
        lossy.send(&mut packets, Instant::now()).unwrap();
        let mut meter = LaneMeter(vec![Arc::clone(&counts), counts]);
        let counts = meter.snapshot().unwrap().totals.remove(0).counts;
        assert_eq!(counts[&Quantity::WirePackets], 2000, "of both instances");
        let lost = counts[&Quantity::WireLostPackets];
        assert!((800..1200).contains(&lost), "{lost}");
    }
}
