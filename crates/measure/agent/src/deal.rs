//! Deals the connections of each group to threads.
//!
//! The shares of a group differ by at most one connection. If they are unequal, a different thread has the
//! larger share of each further group. So two groups of one connection have a thread each.

use std::net::SocketAddr;
use std::ops::Range;

/// Index of the share of `group` that `thread` has.
pub fn position(thread: usize, threads: usize, group: usize) -> usize {
    (thread + threads - group % threads) % threads
}

/// Indices of the connections in a share, out of `flows`.
pub fn share(flows: usize, threads: usize, position: usize) -> Range<usize> {
    position * flows / threads..(position + 1) * flows / threads
}

/// Reorders listening addresses from "by thread" to "by group". Input: a list for each thread, group after
/// group, with equally many ports for each group. Output: all addresses of group 0 by share, then those of
/// group 1, and so on.
pub fn by_group(by_thread: &[Vec<SocketAddr>], groups: usize) -> Vec<SocketAddr> {
    let threads = by_thread.len();
    let mut all = Vec::new();
    for group in 0..groups {
        for position in 0..threads {
            let own = &by_thread[(position + group) % threads];
            let ports = own.len() / groups;
            all.extend(&own[group * ports..(group + 1) * ports]);
        }
    }
    all
}

/// Addresses of one group, out of the output of [`by_group`].
pub fn of_group(all: &[SocketAddr], groups: usize, group: usize) -> &[SocketAddr] {
    let each = all.len() / groups;
    &all[group * each..(group + 1) * each]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_has_one_thread_and_addresses_follow() {
        for (threads, groups, flows) in [(1, 1, 7), (2, 2, 1), (3, 5, 100), (4, 2, 2)] {
            let mut all = vec![0; threads];
            for group in 0..groups {
                let mut seen = 0..0;
                for position in 0..threads {
                    let share = share(flows, threads, position);
                    assert_eq!(share.start, seen.end);
                    seen = share;
                }
                assert_eq!(seen.end, flows);
                for (thread, count) in all.iter_mut().enumerate() {
                    *count += share(flows, threads, position(thread, threads, group)).len();
                }
            }
            let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
            assert!(flows > 1 || most - least <= 1, "{all:?}");
        }
    }

    #[test]
    fn a_groups_addresses_are_in_a_row_by_share() {
        let address = |port: usize| SocketAddr::from(([127, 0, 0, 1], port as u16));
        // Thread t has port 100 t + 10 g + i for its i-th port of group g.
        let thread = |t: usize| {
            let of = move |g: usize| (0..2).map(move |i| address(100 * t + 10 * g + i));
            (0..3).flat_map(of).collect::<Vec<_>>()
        };
        let all = by_group(&[thread(0), thread(1)], 3);
        for group in 0..3 {
            for (at, own) in of_group(&all, 3, group).chunks(2).enumerate() {
                let thread = (0..2).find(|&t| position(t, 2, group) == at).unwrap();
                let first = 100 * thread + 10 * group;
                assert_eq!(own, [address(first), address(first + 1)]);
            }
        }
    }
}
