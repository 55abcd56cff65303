//! Choice of an upstream for a connection. An upstream that refuses is avoided for a while, as long
//! as another is available.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::address::Address;
use crate::config::Balance;

/// All upstreams, shared by the workers.
#[derive(Debug)]
pub(crate) struct Upstreams {
    all: Vec<Upstream>,
    balance: Balance,
    retry_after: Duration,
    next: AtomicUsize,
    started: Instant,
}

#[derive(Debug)]
struct Upstream {
    address: Address,
    connections: AtomicUsize,
    /// Time until which the upstream is avoided, ms after the start; 0: not avoided.
    left_out_until: AtomicU64,
}

impl Upstreams {
    pub(crate) fn new(addresses: &[Address], balance: Balance, retry_after: Duration) -> Self {
        let upstream = |address: &Address| Upstream {
            address: address.clone(),
            connections: AtomicUsize::new(0),
            left_out_until: AtomicU64::new(0),
        };
        Self {
            all: addresses.iter().map(upstream).collect(),
            balance,
            retry_after,
            next: AtomicUsize::new(0),
            started: Instant::now(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn address(&self, index: usize) -> &Address {
        &self.all[index].address
    }

    /// Chooses the next upstream that was not tried yet. If all others are avoided, returns an
    /// avoided one, which may accept again. `None` if all were tried.
    pub(crate) fn choose(&self, tried: &[usize], now: Instant) -> Option<usize> {
        let now_ms = self.ms(now);
        let first = match self.balance {
            Balance::RoundRobin if tried.is_empty() => self.next.fetch_add(1, Ordering::Relaxed),
            // A second attempt for one connection does not count as a turn.
            Balance::RoundRobin => tried[tried.len() - 1] + 1,
            Balance::LeastConnections => 0,
        };
        let count = self.all.len();
        let in_order = (0..count).map(|index| (first + index) % count);
        let candidates = in_order.filter(|index| !tried.contains(index));
        candidates.min_by_key(|&index| {
            let upstream = &self.all[index];
            let until = upstream.left_out_until.load(Ordering::Relaxed);
            let load = match self.balance {
                Balance::RoundRobin => 0,
                Balance::LeastConnections => upstream.connections.load(Ordering::Relaxed),
            };
            // Avoided upstreams come last, by the end of their time. Of equals, the first in order.
            let left_out = if until > now_ms { until } else { 0 };
            (left_out, load)
        })
    }

    /// Counts a connection, or an attempt, to an upstream.
    pub(crate) fn begin(&self, index: usize) {
        self.all[index].connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts a connection that has ended, or an attempt that failed.
    pub(crate) fn end(&self, index: usize) {
        self.all[index].connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes a refusal. True if the upstream was not avoided at that time.
    pub(crate) fn leave_out(&self, index: usize, now: Instant) -> bool {
        let until = self.ms(now + self.retry_after).max(1);
        let former = self.all[index]
            .left_out_until
            .swap(until, Ordering::Relaxed);
        former <= self.ms(now)
    }

    /// Notes that an upstream accepted. True if it had been avoided.
    pub(crate) fn take_back(&self, index: usize) -> bool {
        let until = &self.all[index].left_out_until;
        // Loaded before it is swapped, so that the cache line stays shared among workers.
        until.load(Ordering::Relaxed) != 0 && until.swap(0, Ordering::Relaxed) != 0
    }

    fn ms(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.started).as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three(balance: Balance) -> Upstreams {
        let addresses: Vec<Address> = (1..=3)
            .map(|port| Address::Tcp(([127, 0, 0, 1], port).into()))
            .collect();
        Upstreams::new(&addresses, balance, Duration::from_secs(10))
    }

    #[test]
    fn each_has_its_turn() {
        let upstreams = three(Balance::RoundRobin);
        let now = Instant::now();
        let chosen: Vec<_> = (0..4)
            .map(|_| upstreams.choose(&[], now).unwrap())
            .collect();
        assert_eq!(chosen, [0, 1, 2, 0]);
    }

    #[test]
    fn the_one_with_the_fewest_is_next() {
        let upstreams = three(Balance::LeastConnections);
        let now = Instant::now();
        for expected in [0, 1, 2, 0] {
            let index = upstreams.choose(&[], now).unwrap();
            assert_eq!(index, expected);
            upstreams.begin(index);
        }
        upstreams.end(2);
        assert_eq!(upstreams.choose(&[], now), Some(2));
    }

    #[test]
    fn one_that_refuses_is_left_out_for_a_while() {
        for balance in [Balance::RoundRobin, Balance::LeastConnections] {
            let upstreams = three(balance);
            let now = Instant::now();
            let first = upstreams.choose(&[], now).unwrap();
            assert!(upstreams.leave_out(first, now), "it is news");
            assert!(!upstreams.leave_out(first, now), "it was told");
            let second = upstreams.choose(&[first], now).unwrap();
            assert_ne!(second, first);
            for _ in 0..6 {
                assert_ne!(upstreams.choose(&[], now), Some(first));
            }
            let later = now + Duration::from_secs(11);
            assert!((0..3).any(|_| upstreams.choose(&[], later) == Some(first)));
            assert!(upstreams.take_back(first));
            assert!(!upstreams.take_back(first));
        }
    }

    #[test]
    fn if_all_are_left_out_each_is_tried_all_the_same() {
        let upstreams = three(Balance::RoundRobin);
        let now = Instant::now();
        let mut tried = Vec::new();
        while let Some(index) = upstreams.choose(&tried, now) {
            upstreams.leave_out(index, now);
            tried.push(index);
        }
        tried.sort_unstable();
        assert_eq!(tried, [0, 1, 2]);
        assert!(upstreams.choose(&[], now).is_some());
    }
}
