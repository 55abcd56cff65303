//! Impaired wire: delay, rate, queue, loss, bursts, reordering, duplicates and corruption, all from
//! a seed.
//!
//! Works in virtual and in real time: delayed packets are kept until `now` reaches their time. A
//! super-segment counts as one packet (lost whole, delayed whole), so studies of loss should send
//! ordinary segments.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::random::Random;
use crate::{Device, Frame, Offloads, Source};

/// Impairments of one direction. Probabilities are in 0..=1, per packet. The default changes
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Impairment {
    /// One-way delay.
    pub delay: Duration,
    /// Limit of additional delay, uniformly distributed. Does not reorder.
    pub jitter: Duration,
    /// Rate in bits per second; `None`: unlimited.
    pub rate_bits_per_s: Option<u64>,
    /// Limit of bytes that wait for the rate, beyond which packets are dropped; `None`: unlimited.
    pub queue_bytes: Option<usize>,
    /// Probability of a single loss.
    pub loss: f64,
    /// Probability that a burst of losses begins (Gilbert's model).
    pub burst: f64,
    /// Probability, within a burst, that the next packet is in it too.
    pub burst_goes_on: f64,
    /// Probability that a packet is held for `reorder_delay` while later ones pass.
    pub reorder: f64,
    /// Time for which a reordered packet is held.
    pub reorder_delay: Duration,
    /// Probability that a packet is sent twice.
    pub duplicate: f64,
    /// Probability that one bit of a packet is changed.
    pub corrupt: f64,
}

/// Counts of packets in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneCounters {
    /// Packets that entered.
    pub packets: u64,
    /// Packets lost singly or in bursts.
    pub lost: u64,
    /// Packets dropped because the queue was full.
    pub overflowed: u64,
    /// Packets held to be reordered.
    pub reordered: u64,
    /// Packets sent twice.
    pub duplicated: u64,
    /// Packets with a changed bit.
    pub corrupted: u64,
}

/// Counts of both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lanes {
    /// Packets sent through this end.
    pub sent: LaneCounters,
    /// Packets received at this end.
    pub received: LaneCounters,
}

/// Device behind an impaired wire.
pub struct Impaired<D, F> {
    inner: D,
    out: Lane<F>,
    arriving: Lane<F>,
    passing: VecDeque<F>,
}

impl<D: Device<F>, F: Frame> Impaired<D, F> {
    /// Wraps `inner`. `sent` and `received` are the impairments of the two directions as seen from
    /// this end.
    pub fn new(inner: D, sent: Impairment, received: Impairment, seed: u64) -> Self {
        let mut random = Random::new(seed);
        Self {
            inner,
            out: Lane::new(sent, random.next()),
            arriving: Lane::new(received, random.next()),
            passing: VecDeque::new(),
        }
    }

    /// Returns the counts so far.
    pub fn counters(&self) -> Lanes {
        Lanes {
            sent: self.out.counters,
            received: self.arriving.counters,
        }
    }

    /// Returns the wrapped device.
    pub fn inner(&self) -> &D {
        &self.inner
    }
}

impl<D: Device<F>, F: Frame> Device<F> for Impaired<D, F> {
    fn offloads(&self) -> Offloads {
        self.inner.offloads()
    }

    fn send(&mut self, frames: &mut VecDeque<F>, now: Instant) -> io::Result<()> {
        frames
            .drain(..)
            .for_each(|frame| self.out.enter(frame, now));
        while let Some(frame) = self.out.leave(now) {
            self.passing.push_back(frame);
        }
        self.inner.send(&mut self.passing, now)
    }

    fn receive(
        &mut self,
        source: &mut dyn Source<F>,
        frames: &mut VecDeque<F>,
        max: usize,
        now: Instant,
    ) -> io::Result<()> {
        let mut arrived = VecDeque::new();
        self.inner.receive(source, &mut arrived, max, now)?;
        arrived
            .into_iter()
            .for_each(|frame| self.arriving.enter(frame, now));
        for _ in 0..max {
            let Some(frame) = self.arriving.leave(now) else {
                break;
            };
            frames.push_back(frame);
        }
        Ok(())
    }

    fn next_event(&self) -> Option<Instant> {
        [
            self.out.next(),
            self.arriving.next(),
            self.inner.next_event(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn is_blocked(&self) -> bool {
        !self.passing.is_empty() || self.inner.is_blocked()
    }
}

pub(crate) struct Lane<F> {
    impairment: Impairment,
    random: Random,
    waiting: BinaryHeap<Reverse<Waiting<F>>>,
    order: u64,
    in_burst: bool,
    /// Time at which earlier packets have passed the rate limit.
    free_at: Option<Instant>,
    /// Departure time of the latest packet. No packet leaves earlier, so that only the chosen
    /// packets are reordered.
    latest: Option<Instant>,
    counters: LaneCounters,
}

struct Waiting<F> {
    at: Instant,
    order: u64,
    frame: F,
}

impl<F: Frame> Lane<F> {
    pub(crate) fn new(impairment: Impairment, seed: u64) -> Self {
        Self {
            impairment,
            random: Random::new(seed),
            waiting: BinaryHeap::new(),
            order: 0,
            in_burst: false,
            free_at: None,
            latest: None,
            counters: LaneCounters::default(),
        }
    }

    pub(crate) fn counters(&self) -> LaneCounters {
        self.counters
    }

    pub(crate) fn enter(&mut self, frame: F, now: Instant) {
        self.counters.packets += 1;
        if self.is_lost() {
            self.counters.lost += 1;
            return;
        }
        let Some(sent) = self.pass_rate(frame.len(), now) else {
            self.counters.overflowed += 1;
            return;
        };
        let what = self.impairment;
        let mut at = sent + what.delay + what.jitter.mul_f64(self.random.share());
        at = self.latest.map_or(at, |latest| at.max(latest));
        if self.random.happens(what.reorder) {
            self.counters.reordered += 1;
            at += what.reorder_delay;
        } else {
            self.latest = Some(at);
        }
        let frame = if self.random.happens(what.corrupt) {
            self.corrupted(&frame)
        } else {
            frame
        };
        if self.random.happens(what.duplicate) {
            self.counters.duplicated += 1;
            self.wait(at, frame.clone());
        }
        self.wait(at, frame);
    }

    fn wait(&mut self, at: Instant, frame: F) {
        self.order += 1;
        self.waiting.push(Reverse(Waiting {
            at,
            order: self.order,
            frame,
        }));
    }

    pub(crate) fn leave(&mut self, now: Instant) -> Option<F> {
        let due = self
            .waiting
            .peek()
            .is_some_and(|Reverse(first)| first.at <= now);
        due.then(|| self.waiting.pop())
            .flatten()
            .map(|Reverse(first)| first.frame)
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.waiting.peek().map(|Reverse(first)| first.at)
    }

    fn is_lost(&mut self) -> bool {
        let what = self.impairment;
        self.in_burst = self.random.happens(if self.in_burst {
            what.burst_goes_on
        } else {
            what.burst
        });
        self.in_burst || self.random.happens(what.loss)
    }

    /// Returns when the packet's last bit has left; `None` if the queue is full.
    fn pass_rate(&mut self, bytes: usize, now: Instant) -> Option<Instant> {
        let Some(rate) = self.impairment.rate_bits_per_s.filter(|rate| *rate > 0) else {
            return Some(now);
        };
        let begin = self.free_at.map_or(now, |free| free.max(now));
        let waiting_bytes = (begin - now).as_secs_f64() * rate as f64 / 8.0;
        if self
            .impairment
            .queue_bytes
            .is_some_and(|max| waiting_bytes > max as f64)
        {
            return None;
        }
        let end = begin + Duration::from_secs_f64(bytes as f64 * 8.0 / rate as f64);
        self.free_at = Some(end);
        Some(end)
    }

    /// Returns a copy with one random bit changed. Completes the checksum first, as a network card
    /// would.
    fn corrupted(&mut self, frame: &F) -> F {
        self.counters.corrupted += 1;
        let mut bytes: Vec<u8> = frame.runs().flatten().copied().collect();
        let mut offload = frame.offload();
        offload.complete(&mut bytes);
        offload.verified = false;
        if !bytes.is_empty() {
            let at = self.random.next() as usize % bytes.len();
            bytes[at] ^= 1 << (self.random.next() % 8);
        }
        F::from_bytes(bytes, offload)
    }
}

impl<F> PartialEq for Waiting<F> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<F> Eq for Waiting<F> {}

impl<F> PartialOrd for Waiting<F> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<F> Ord for Waiting<F> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Copied, memory};

    /// Sends `count` packets of 100 bytes, 1 ms apart. Returns arrival time in ms and number of
    /// each.
    fn check(impairment: Impairment, count: u32) -> Vec<(u64, u8)> {
        let (near, mut far) = memory::pair::<Copied>(10_000);
        let mut near = Impaired::new(near, impairment, Impairment::default(), 7);
        let start = Instant::now();
        let mut arrivals = Vec::new();
        for ms in 0..u64::from(count) + 1000 {
            let now = start + Duration::from_millis(ms);
            let mut out = VecDeque::new();
            if ms < u64::from(count) {
                out.push_back(Copied::from([ms as u8; 100].as_slice()));
            }
            near.send(&mut out, now).unwrap();
            let mut arrived = VecDeque::new();
            far.receive(&mut Copied::source(), &mut arrived, 100, now)
                .unwrap();
            arrivals.extend(arrived.into_iter().map(|frame| (ms, frame.bytes[0])));
        }
        arrivals
    }

    #[test]
    fn delay_and_rate_add_up() {
        let delay = Duration::from_millis(10);
        assert_eq!(
            check(
                Impairment {
                    delay,
                    ..Impairment::default()
                },
                3
            ),
            [(10, 0), (11, 1), (12, 2)]
        );
        // 100 bytes take 2 ms at 400 kbit/s.
        let rate_bits_per_s = Some(400_000);
        assert_eq!(
            check(
                Impairment {
                    rate_bits_per_s,
                    ..Impairment::default()
                },
                3
            ),
            [(2, 0), (4, 1), (6, 2)]
        );
    }

    #[test]
    fn a_full_queue_drops() {
        let impairment = Impairment {
            rate_bits_per_s: Some(80_000),
            queue_bytes: Some(250),
            ..Impairment::default()
        };
        let arrived: Vec<u8> = check(impairment, 20).into_iter().map(|(_, n)| n).collect();
        // 10 ms per packet, and room for three more.
        assert_eq!(arrived, [0, 1, 2, 5, 15]);
    }

    #[test]
    fn a_reordered_packet_is_passed_by_later_ones_and_only_those() {
        let impairment = Impairment {
            reorder: 0.1,
            reorder_delay: Duration::from_millis(5),
            ..Impairment::default()
        };
        let arrivals = check(impairment, 100);
        assert_eq!(arrivals.len(), 100);
        let late = arrivals
            .iter()
            .filter(|(at, n)| *at == u64::from(*n) + 5)
            .count();
        let prompt = arrivals
            .iter()
            .filter(|(at, n)| *at == u64::from(*n))
            .count();
        assert_eq!(late + prompt, 100);
        assert!((3..20).contains(&late), "{late}");
    }

    #[test]
    fn losses_and_duplicates_come_in_their_share_and_the_same_each_time() {
        let impairment = Impairment {
            loss: 0.1,
            duplicate: 0.1,
            ..Impairment::default()
        };
        let arrivals = check(impairment, 200);
        assert!((170..230).contains(&arrivals.len()), "{}", arrivals.len());
        assert_eq!(arrivals, check(impairment, 200));
        let burst = Impairment {
            burst: 0.02,
            burst_goes_on: 0.8,
            ..Impairment::default()
        };
        assert!((150..199).contains(&check(burst, 200).len()));
    }

    #[test]
    fn what_finds_no_room_behind_it_is_kept_and_said() {
        let (near, mut far) = memory::pair::<Copied>(1);
        let mut near = Impaired::new(near, Impairment::default(), Impairment::default(), 1);
        let now = Instant::now();
        let mut out = VecDeque::from([1, 2].map(|n| Copied::from([n; 9].as_slice())));
        near.send(&mut out, now).unwrap();
        assert!(out.is_empty() && near.is_blocked());
        let mut arrived = VecDeque::new();
        for _ in 0..2 {
            far.receive(&mut Copied::source(), &mut arrived, 9, now)
                .unwrap();
            near.send(&mut out, now).unwrap();
            assert!(!near.is_blocked());
        }
        assert_eq!(arrived.len(), 2);
    }

    #[test]
    fn a_damaged_packet_differs_in_one_bit() {
        let (near, mut far) = memory::pair::<Copied>(10);
        let mut near = Impaired::new(
            near,
            Impairment {
                corrupt: 1.0,
                ..Impairment::default()
            },
            Impairment::default(),
            3,
        );
        let now = Instant::now();
        near.send(&mut VecDeque::from([Copied::from([0; 50].as_slice())]), now)
            .unwrap();
        let mut arrived = VecDeque::new();
        far.receive(&mut Copied::source(), &mut arrived, 1, now)
            .unwrap();
        let ones: u32 = arrived[0].bytes.iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(ones, 1);
    }
}
