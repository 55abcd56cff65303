//! Rounds in which every host meets every other once, like players of a tournament: the circle
//! method (R. Lucas, *Récréations mathématiques* 2, 1883; the tables of I. Berger). All pairs of a
//! round run at once, and no host is in two.

/// Number of rounds for `hosts` hosts: one less than hosts, or as many as hosts if the number is
/// odd. 0 for fewer than two.
pub fn rounds(hosts: usize) -> usize {
    match hosts {
        0 | 1 => 0,
        even if even % 2 == 0 => even - 1,
        odd => odd,
    }
}

/// Number of repetitions in which every host meets every other equally often, and is in at least
/// `MET_LEAST` rounds.
pub fn repetitions(hosts: usize) -> usize {
    match rounds(hosts) {
        0 => 0,
        lap => lap * MET_LEAST.div_ceil(hosts - 1),
    }
}

/// Least number of rounds of each host. With fewer there is no interval that holds for a hundred
/// hosts at once.
const MET_LEAST: usize = 12;

/// Pairs of a round, by the hosts' indexes from 0: the host that connects, and the host that it
/// connects to. If the number of hosts is odd, one host rests, in each round another. Over all
/// rounds every host connects as often as it listens, or once more or less. After the last round
/// the first comes again, with the roles in each pair swapped.
pub fn round(hosts: usize, number: usize) -> Vec<(usize, usize)> {
    let all = rounds(hosts);
    if all == 0 {
        return Vec::new();
    }
    let (lap, number) = (number / all, number % all);
    // On a circle of an odd number of places, the two hosts at equal distances on either side of
    // this round's place meet. The host at that place meets the host in the middle, if there is
    // one.
    let pairs = (1..=all / 2).map(|far| ((number + far) % all, (number + all - far) % all));
    let turned = pairs.map(|(ahead, behind)| {
        // Each host connects to the half of the others that follow it on the circle.
        let distance = (behind + all - ahead) % all;
        if distance <= all / 2 {
            (ahead, behind)
        } else {
            (behind, ahead)
        }
    });
    let middle = hosts.is_multiple_of(2).then_some(match number % 2 {
        0 => (number, hosts - 1),
        _ => (hosts - 1, number),
    });
    let back = |(on, to)| if lap % 2 == 0 { (on, to) } else { (to, on) };
    middle.into_iter().chain(turned).map(back).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn four_hosts_meet_in_three_rounds_and_five_in_five() {
        assert_eq!(round(4, 0), [(0, 3), (1, 2)]);
        assert_eq!(round(4, 1), [(3, 1), (2, 0)]);
        assert_eq!(round(4, 2), [(2, 3), (0, 1)]);
        assert_eq!(round(4, 3), [(3, 0), (2, 1)]);
        assert_eq!((rounds(5), round(5, 0).len()), (5, 2));
        assert_eq!((rounds(2), round(2, 0)), (1, vec![(0, 1)]));
        for none in [0, 1] {
            assert_eq!((rounds(none), round(none, 3)), (0, vec![]));
        }
        assert_eq!(
            [2, 4, 5, 13, 16, 300].map(repetitions),
            [12, 12, 15, 13, 15, 299]
        );
    }

    proptest! {
        #[test]
        fn every_two_hosts_meet_once_and_no_host_is_in_two_pairs_of_a_round(hosts in 2_usize..400) {
            let mut met = BTreeSet::new();
            let mut connects = vec![0_usize; hosts];
            for number in 0..rounds(hosts) {
                let pairs = round(hosts, number);
                prop_assert_eq!(pairs.len(), hosts / 2);
                let mut there = BTreeSet::new();
                for (on, to) in pairs {
                    prop_assert!(on < hosts && to < hosts);
                    prop_assert!(there.insert(on) && there.insert(to), "{on} or {to} twice in {number}");
                    prop_assert!(met.insert((on.min(to), on.max(to))), "{on} and {to} again");
                    connects[on] += 1;
                }
            }
            prop_assert_eq!(met.len(), hosts * (hosts - 1) / 2);
            for count in connects {
                let listens = hosts - 1 - count;
                prop_assert!(count.abs_diff(listens) <= 1, "connects {count}, listens {listens}");
            }
        }

        #[test]
        fn the_next_lap_is_the_same_the_other_way_round(hosts in 2_usize..60, number in 0_usize..200) {
            let (now, later) = (round(hosts, number), round(hosts, number + rounds(hosts)));
            let turned: Vec<_> = now.into_iter().map(|(on, to)| (to, on)).collect();
            prop_assert_eq!(turned, later);
        }
    }
}
