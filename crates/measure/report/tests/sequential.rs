//! Simulates runs that stop when their verdict is reached, with heavy tails, drift, a machine with two
//! states, and a look after every pair. Checks how often the interval is wrong, how often two equal sides get
//! a verdict, and how many pairs an effect needs.

use tcpcost_report::{Contrast, Decision};
use tcpcost_testbed::Random;

/// Costs of successive trials: a level that drifts by a tenth in 50 trials, times 2.5 while the CPUs are
/// distant (which changes every eight trials), times noise of about 3 %. The right tail of the noise is that
/// of a Pareto law with exponent 2, which has no variance.
struct Machine {
    random: Random,
    trial: u32,
    is_far: bool,
}

impl Machine {
    fn new(seed: u64) -> Machine {
        Machine {
            random: Random::new(seed),
            trial: 0,
            is_far: false,
        }
    }

    fn trial(&mut self, cost: f64) -> f64 {
        self.trial += 1;
        if self.random.uniform() < 1.0 / 8.0 {
            self.is_far = !self.is_far;
        }
        let drift = 1.0 + 0.002 * f64::from(self.trial);
        let state = if self.is_far { 2.5 } else { 1.0 };
        let noise = 0.97 + 0.03 / self.random.uniform().sqrt();
        cost * drift * state * noise
    }

    /// Runs both sides once, in a random order.
    fn pair(&mut self, effect: f64) -> (f64, f64) {
        if self.random.uniform() < 0.5 {
            let from = self.trial(1.0);
            (from, self.trial(effect))
        } else {
            let to = self.trial(effect);
            (self.trial(1.0), to)
        }
    }
}

struct Ended {
    decision: Decision,
    /// True if the interval at the stop contains the effect.
    holds: bool,
    pairs: usize,
}

/// Runs until there is a verdict, at most `pairs` pairs.
fn compare(seed: u64, effect: f64, min_effect: f64, pairs: usize) -> Ended {
    let mut machine = Machine::new(seed);
    let mut seen = Vec::new();
    loop {
        seen.push(machine.pair(effect));
        let ratio = Contrast::of_pairs(seen.iter().copied(), true)
            .unwrap()
            .ratio;
        let decision = Decision::of(&ratio, min_effect);
        if decision != Decision::Inconclusive || seen.len() == pairs {
            let holds = ratio.lo.zip(ratio.hi);
            return Ended {
                decision,
                holds: holds.is_none_or(|(lo, hi)| (lo..=hi).contains(&effect)),
                pairs: seen.len(),
            };
        }
    }
}

const GAMES: u64 = 1000;

fn share(games: &[Ended], is: impl Fn(&Ended) -> bool) -> f64 {
    games.iter().filter(|game| is(game)).count() as f64 / games.len() as f64
}

fn games(effect: f64, min_effect: f64, pairs: usize) -> Vec<Ended> {
    (0..GAMES)
        .map(|seed| compare(seed, effect, min_effect, pairs))
        .collect()
}

#[test]
fn two_equal_things_are_told_apart_in_at_most_5_of_100_comparisons() {
    let games = games(1.0, 0.0, 200);
    let wrong = share(&games, |game| {
        matches!(game.decision, Decision::Improves | Decision::Regresses)
    });
    println!("false verdicts: {wrong}");
    // The standard error at 0.05 is 0.007.
    assert!(wrong <= 0.065, "{wrong}");
    assert!(wrong > 0.0, "a method that is never wrong finds nothing");
}

#[test]
fn the_interval_at_the_stop_holds_the_effect_whatever_it_is() {
    for effect in [0.5, 0.9, 0.97, 1.0, 1.03, 1.3, 3.0] {
        let games = games(effect, 0.01, 100);
        let holds = share(&games, |game| game.holds);
        println!("{effect}: {holds}");
        assert!(holds >= 0.935, "{effect}: {holds}");
    }
}

#[test]
fn effects_are_found_the_sooner_the_larger_they_are() {
    let mut before = 0.0;
    for (effect, pairs, least) in [(0.90, 40, 0.99), (0.97, 100, 0.90), (0.99, 600, 0.60)] {
        let games: Vec<Ended> = games(effect, 0.0, pairs).into_iter().take(300).collect();
        let found = share(&games, |game| game.decision == Decision::Improves);
        let wrong = share(&games, |game| game.decision == Decision::Regresses);
        let mut taken: Vec<usize> = games.iter().map(|game| game.pairs).collect();
        taken.sort_unstable();
        let median = taken[taken.len() / 2] as f64;
        println!("{effect}: found in {found} within {pairs} pairs, median {median}, wrong {wrong}");
        assert!(found >= least, "{effect}: {found}");
        assert!(wrong <= 0.01, "{effect}: {wrong}");
        assert!(median > before, "{effect}: {median} pairs");
        before = median;
    }
}

/// Shows the error rate of a comparison that looks after every pair with an interval made for one look.
#[test]
fn an_interval_for_one_look_is_wrong_far_more_often_when_one_looks_and_stops() {
    let mut wrong = 0;
    for seed in 0..GAMES {
        let mut machine = Machine::new(seed);
        let mut seen = Vec::new();
        wrong += usize::from((0..100).any(|_| {
            seen.push(machine.pair(1.0));
            let ratio = Contrast::of_pairs(seen.iter().copied(), false)
                .unwrap()
                .ratio;
            matches!(
                Decision::of(&ratio, 0.0),
                Decision::Improves | Decision::Regresses
            )
        }));
    }
    let wrong = wrong as f64 / GAMES as f64;
    println!("with an interval for one look: {wrong}");
    assert!(wrong > 0.15, "{wrong}");
}
