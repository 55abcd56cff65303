//! Comparison of two commands: pairs in random order, and the verdict.

use tcpcost_report::{Contrast, Decision, Estimate, pairs_needed};
use tcpcost_study::Shuffle;

use super::Measured;
use super::rows::{Row, Traffic, row};

/// Order of the runs: blocks of all commands, each in a random order, so that drift of the machine affects both equally.
pub struct Order {
    shuffle: Shuffle,
    commands: usize,
}

impl Order {
    pub fn new(seed: u64, commands: usize) -> Order {
        Order {
            shuffle: Shuffle::new(seed, 0),
            commands,
        }
    }

    /// Returns each command once, in a random order.
    pub fn next_block(&mut self) -> Vec<usize> {
        self.shuffle.order((0..self.commands).collect())
    }
}

/// Comparison of the second command with the first.
pub struct Verdict {
    /// Row that decides.
    pub of: &'static Row,
    /// Ratio of the second to the first, over the pairs.
    pub ratio: Estimate,
    pub decision: Decision,
    /// Least effect that matters, as a share.
    pub min_effect: f64,
    /// True if the runs ended as soon as the verdict was decided.
    pub stops_early: bool,
    /// About how many pairs a decision would need; `None` if it is decided or not known.
    pub pairs_needed: Option<usize>,
    /// Ratios of all other rows that both commands have.
    pub causes: Vec<(&'static Row, Estimate)>,
}

/// Rows that can decide, the best first: cost per unit of `--per`, else per KiB, else CPU time, else duration.
const DECIDING: &[&str] = &[
    "exact_cpu_us_per_transaction",
    PER_KIB,
    "exact_task_own_ns",
    "task_clock_ns",
    "command_cpu_ns",
    "elapsed_s",
];

const PER_KIB: &str = "command_exact_cpu_us_per_payload_kib";

impl Verdict {
    /// Compares two commands; `None` if no row of [`DECIDING`] has enough pairs.
    ///
    /// `stops_early`: the runs end as soon as the verdict is decided.
    pub fn of(
        one: &Measured,
        other: &Measured,
        min_effect: f64,
        stops_early: bool,
    ) -> Option<Verdict> {
        let paired = |row: &Row| paired(row, one, other, stops_early);
        let is_traffic = [one, other]
            .iter()
            .all(|each| Traffic::of(&each.runs) == Traffic::Own);
        let deciding = DECIDING.iter().filter(|key| is_traffic || **key != PER_KIB);
        let (of, ratio) = deciding.into_iter().find_map(|key| {
            let row = row(key);
            Some((row, paired(row)?))
        })?;
        let decision = Decision::of(&ratio, min_effect);
        let others = super::rows::ROWS.iter().filter(|row| row.key != of.key);
        let causes = others.filter_map(|row| Some((row, paired(row)?)));
        Some(Verdict {
            of,
            pairs_needed: (decision == Decision::Inconclusive)
                .then(|| pairs_needed(&ratio, min_effect))
                .flatten(),
            ratio,
            decision,
            min_effect,
            stops_early,
            causes: causes.collect(),
        })
    }
}

/// Ratio of the second command to the first in a row, over the pairs; `None` if no pair has a value.
fn paired(row: &Row, one: &Measured, other: &Measured, stops_early: bool) -> Option<Estimate> {
    let values = |measured: &Measured| -> Vec<(u32, f64)> {
        let runs = (0..).zip(&measured.runs);
        let values = runs.filter_map(|(pair, run)| Some((pair, row.value(run)?)));
        values.collect()
    };
    let contrast = Contrast::by_repetition(&values(one), &values(other), stops_early);
    Some(contrast?.ratio)
}

#[cfg(test)]
mod tests {
    use super::super::measure::Run;
    use super::*;
    use tcpcost_counts::Growth;

    #[test]
    fn blocks_have_each_command_once_and_both_orders_come_up() {
        let mut order = Order::new(1, 2);
        let blocks: Vec<Vec<usize>> = (0..100).map(|_| order.next_block()).collect();
        let first = blocks.iter().filter(|block| **block == [0, 1]).count();
        assert!(
            blocks
                .iter()
                .all(|block| block.contains(&0) && block.contains(&1))
        );
        assert!((30..=70).contains(&first), "{first}");
    }

    #[test]
    fn pairs_of_the_same_machine_state_cancel_it() {
        let measured = |factor: f64| Measured {
            command: Vec::new(),
            runs: [1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0, 5.0]
                .map(|state: f64| Run {
                    growth: Growth {
                        duration_ns: (state * factor * 1e9) as u64,
                        ..Growth::default()
                    },
                    ..Run::default()
                })
                .to_vec(),
        };
        let verdict = Verdict::of(&measured(1.0), &measured(0.9), 0.02, false).unwrap();
        assert_eq!(verdict.of.key, "elapsed_s");
        assert_eq!(verdict.decision, Decision::Improves);
        assert!((verdict.ratio.median - 0.9).abs() < 1e-9);
    }
}
