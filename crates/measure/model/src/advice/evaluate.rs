//! Advice from a situation: each rule is tested, priced if it has a change of counts, and ranked.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::advice::rule::{Class, Condition, RUNS, Rule, Test, Unknowns};
use crate::advice::rules::rules;
use crate::advice::situation::Situation;
use crate::causes::{Cause, Counts};
use crate::explain::{Explanation, explain};
use crate::prices::{Interval, PriceList};

/// Least saving that is claimed, and least upper bound that is worth trying.
pub const LEAST: f64 = 0.05;

/// Upper bound below which a rule has nothing to do with the work, so that nothing is said about it.
const NOTHING: f64 = 0.005;

/// A saving, as shares of the cost.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Saving {
    /// Estimate, 0 to 1.
    pub share: f64,
    /// Interval at 90 % confidence.
    pub interval: Interval,
}

/// A rule that applies here.
#[derive(Debug, Clone)]
pub struct Advice {
    /// The rule.
    pub rule: &'static Rule,
    /// Signals and settings that made it apply.
    pub evidence: Vec<String>,
    /// Saving; only of claims.
    pub saving: Option<Saving>,
    /// Upper bound of the saving: the cost of the causes that it can lower. `None` if they have no price.
    pub upper_bound: Option<f64>,
    /// Reason for no claim of a rule that may claim. Empty for claims and for class B.
    pub withheld: String,
}

/// A rule that is not worth it here.
#[derive(Debug, Clone)]
pub struct NotHere {
    /// The rule.
    pub rule: &'static Rule,
    /// Reason, with its number.
    pub reason: String,
    /// Upper bound of the saving; `None` if the causes have no price.
    pub upper_bound: Option<f64>,
}

/// Advice of all rules.
#[derive(Debug, Clone, Default)]
pub struct Advised {
    /// Claims, the largest saving first.
    pub claims: Vec<Advice>,
    /// Rules worth trying, without a number: the largest upper bound first, then those without.
    pub worth_trying: Vec<Advice>,
    /// Rules that are not worth it here.
    pub not_here: Vec<NotHere>,
    /// Cost by causes; `None` without prices.
    pub explanation: Option<Explanation>,
}

/// Tests all rules on a situation.
pub fn advise(of: &Situation<'_>) -> Advised {
    let cost = of
        .list()
        .map(|list| explain(list, &of.counts, of.measured_ns));
    let mut advised = Advised::default();
    for rule in rules() {
        match outcome(rule, of, cost.as_ref()) {
            Outcome::Claim(advice) => advised.claims.push(advice),
            Outcome::Try(advice) => advised.worth_trying.push(advice),
            Outcome::NotHere(not_here) => advised.not_here.push(not_here),
            Outcome::Silent => {}
        }
    }
    let share = |advice: &Advice| advice.saving.map_or(0.0, |saving| saving.share);
    advised
        .claims
        .sort_by(|one, other| share(other).total_cmp(&share(one)));
    keep_best(&mut advised);
    advised.worth_trying.sort_by(|one, other| {
        let bound = |advice: &Advice| advice.upper_bound.unwrap_or(0.0);
        bound(other).total_cmp(&bound(one))
    });
    let each = 1.0 / of.units.unwrap_or(1.0);
    advised.explanation = of.list().map(|list| {
        let measured_ns = of.measured_ns.map(|ns| ns * each);
        explain(list, &of.counts.scaled(each), measured_ns)
    });
    advised
}

/// Moves claims that have the same effect as a better one to those worth trying.
fn keep_best(advised: &mut Advised) {
    let mut kept: Vec<Advice> = Vec::new();
    for mut advice in std::mem::take(&mut advised.claims) {
        let better = kept
            .iter()
            .find(|best| best.rule.instead.contains(&advice.rule.id));
        match better {
            Some(best) => {
                advice.withheld = format!("instead of {}: it has the same effect", best.rule.id);
                advice.saving = None;
                advised.worth_trying.push(advice);
            }
            None => kept.push(advice),
        }
    }
    advised.claims = kept;
}

enum Outcome {
    Claim(Advice),
    Try(Advice),
    NotHere(NotHere),
    Silent,
}

fn outcome(rule: &'static Rule, of: &Situation<'_>, cost: Option<&Explanation>) -> Outcome {
    if rule
        .needs
        .kernel
        .is_some_and(|least| of.kernel.is_some_and(|has| has < least))
    {
        return Outcome::Silent;
    }
    let upper_bound = upper_bound(rule, of, cost);
    for condition in rule.not_when {
        if let Test::Holds(reason) = condition.test(of) {
            return Outcome::NotHere(NotHere {
                rule,
                reason,
                upper_bound,
            });
        }
    }
    let mut evidence = Vec::new();
    let mut applies = true;
    for condition in rule.when {
        match condition.test(of) {
            Test::Holds(text) => evidence.push(text),
            // The setting has the advised value already, or the host has no such setting.
            _ if condition.is_of_setting() => return Outcome::Silent,
            Test::Fails(_) | Test::Unknown => applies = false,
        }
    }
    let bound = upper_bound.filter(|bound| *bound < LEAST);
    if bound.is_some_and(|bound| bound < NOTHING) {
        return Outcome::Silent;
    }
    if let Some(bound) = bound {
        let reason = format!("it could save {} at most", percent(bound));
        return Outcome::NotHere(NotHere {
            rule,
            reason,
            upper_bound,
        });
    }
    if !applies {
        let Some(evidence) = by_packets(rule, of) else {
            return Outcome::Silent;
        };
        return Outcome::Try(Advice {
            rule,
            evidence,
            saving: None,
            upper_bound,
            withheld: "calls or prices are not known".to_string(),
        });
    }
    let mut advice = Advice {
        rule,
        evidence,
        saving: None,
        upper_bound,
        withheld: String::new(),
    };
    if rule.class == Class::C {
        return Outcome::Silent;
    }
    if rule.class == Class::A {
        match claim(rule, of, cost) {
            Ok(saving) => advice.saving = Some(saving),
            Err(why) => advice.withheld = why,
        }
    }
    match advice.saving {
        Some(_) => Outcome::Claim(advice),
        None => Outcome::Try(advice),
    }
}

/// Evidence by packets where another signal or a price is unknown; `None` if the packets do not suffice.
fn by_packets(rule: &Rule, of: &Situation<'_>) -> Option<Vec<String>> {
    let lacks = |condition: &Condition| condition.test(of) == Test::Unknown;
    if rule.by_packets.is_empty() || !rule.when.iter().any(lacks) {
        return None;
    }
    let holds = |condition: &Condition| match condition.test(of) {
        Test::Holds(text) => Some(text),
        _ => None,
    };
    rule.by_packets.iter().map(holds).collect()
}

/// Saving that may be claimed, or the reason for none.
fn claim(rule: &Rule, of: &Situation<'_>, cost: Option<&Explanation>) -> Result<Saving, String> {
    let list = of.prices.as_ref().map_err(String::clone)?;
    let cost = cost.ok_or("no cost")?;
    for condition in rule.claims_if {
        if let Test::Fails(text) = condition.test(of) {
            return Err(format!("its counts are not known at {text}"));
        }
    }
    let moved = rule.moved_causes();
    let is_priced =
        |cause: &&Cause| list.price(**cause).is_some() && of.counts.get(**cause).is_some();
    if !moved.iter().any(|cause| is_priced(&cause)) {
        return Err("what it changes has no price or no count here".to_string());
    }
    let outside = cost
        .terms
        .iter()
        .find(|term| term.is_outside && moved.contains(&term.cause) && term.share >= LEAST);
    if let Some(term) = outside {
        return Err(format!(
            "more {} than in any cell that the prices were measured on",
            term.cause.label()
        ));
    }
    let saving = saving(rule, list, of).ok_or("a count that it needs was not measured")?;
    if saving.share < LEAST {
        return Err(format!("the saving is below {}", percent(LEAST)));
    }
    if saving.interval.low <= 0.0 {
        return Err(format!(
            "its interval includes 0: {} to {}",
            percent(saving.interval.low),
            percent(saving.interval.high)
        ));
    }
    Ok(saving)
}

impl Rule {
    /// Causes that the change lowers.
    pub(super) fn moved_causes(&self) -> Vec<Cause> {
        self.change
            .iter()
            .flat_map(|change| change.causes())
            .collect()
    }
}

/// Number of draws of an interval.
const DRAWS: usize = 1000;

/// Part of a cell's error that differs before and after a change on one host: the machine's state is common to
/// both.
const ERROR_OF_CHANGE: f64 = 0.7;

/// Saving of a rule's change by prices, as a share of the measured cost, or of the priced cost if that is
/// larger or nothing was measured.
fn saving(rule: &Rule, list: &PriceList, of: &Situation<'_>) -> Option<Saving> {
    let prices: Vec<f64> = list.prices.iter().map(|price| price.ns).collect();
    let middle = Draw {
        prices: &prices,
        unknowns: Unknowns {
            follows: 0.5,
            between: 0.5,
        },
        errors: [0.0, 0.0],
        inseparable: 1.0,
    };
    let point = share(rule, list, of, &middle)?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let sd = ERROR_OF_CHANGE * log_sd(list.accuracy.interval);
    let mut shares = Vec::with_capacity(DRAWS);
    for _ in 0..DRAWS {
        let drawn = match list.draws.len() {
            0 => &prices,
            rows => &list.draws[(random.next_u64() % rows as u64) as usize],
        };
        let draw = Draw {
            prices: drawn,
            unknowns: Unknowns {
                follows: uniform(&mut random),
                between: uniform(&mut random),
            },
            errors: [sd * normal(&mut random), sd * normal(&mut random)],
            inseparable: 2.0 * uniform(&mut random),
        };
        shares.push(share(rule, list, of, &draw)?);
    }
    shares.sort_by(f64::total_cmp);
    let quantile = |at: f64| shares[((DRAWS - 1) as f64 * at).round() as usize];
    let mut saving = Saving {
        share: point,
        interval: Interval {
            low: quantile(0.05),
            high: quantile(0.95),
        },
    };
    if rule.is_cautious {
        saving.interval.high = point;
        saving.share = saving.interval.low;
    }
    Some(saving)
}

/// Seed of the draws, so that the same counts give the same advice.
const SEED: u64 = 1;

/// Numbers of one draw that are not known.
struct Draw<'a> {
    /// Prices, ns, in the order of the list.
    prices: &'a [f64],
    unknowns: Unknowns,
    /// Logarithmic errors before and after.
    errors: [f64; 2],
    /// Factor of the saving on causes that have no price of their own, between 0 and 2: only their sum with
    /// others is known.
    inseparable: f64,
}

/// Saving by one draw.
fn share(rule: &Rule, list: &PriceList, of: &Situation<'_>, draw: &Draw<'_>) -> Option<f64> {
    let priced = |counts: &Counts| -> f64 {
        let terms = list.prices.iter().zip(draw.prices);
        terms
            .filter_map(|(price, ns)| Some(ns * counts.get(price.cause)?))
            .sum()
    };
    let mut changed = of.counts.clone();
    for change in rule.change {
        change.apply(&mut changed, of, draw.unknowns)?;
    }
    let inseparable = list.inseparable_ns(&of.counts);
    let less = draw.inseparable * (inseparable - list.inseparable_ns(&changed));
    let before = (priced(&of.counts) + inseparable) * draw.errors[0].exp();
    let after = (priced(&changed) + inseparable - less) * draw.errors[1].exp();
    let whole = of
        .measured_ns
        .map_or(before, |measured| measured.max(before));
    (whole > 0.0).then(|| (before - after) / whole)
}

/// Standard deviation of the logarithm of a ratio whose 90 % interval this is.
fn log_sd(interval: Interval) -> f64 {
    let width = (interval.high / interval.low).ln();
    // 90 % of a normal distribution is within 1.645 standard deviations.
    if width.is_finite() {
        width / (2.0 * 1.645)
    } else {
        0.0
    }
}

fn uniform(random: &mut Xoshiro256PlusPlus) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// A normal number (Box and Muller 1958).
fn normal(random: &mut Xoshiro256PlusPlus) -> f64 {
    let radius = (-2.0 * (1.0 - uniform(random)).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(random)).cos()
}

/// Cost of the causes that a rule can lower, as a share of the whole cost: by the upper ends of prices, and twice
/// the part in sums where a cause has no price of its own. `None` if the rule names no causes, or one of
/// them was not counted or studied.
fn upper_bound(rule: &Rule, of: &Situation<'_>, cost: Option<&Explanation>) -> Option<f64> {
    let (list, cost) = (of.list()?, cost?);
    if rule.acts_on.is_empty() || cost.priced_ns <= 0.0 {
        return None;
    }
    let most = |cause: Cause| {
        let in_sums = list.unpriced.iter().find(|one| one.cause == cause);
        let in_sums = in_sums.map(|one| 2.0 * one.in_sums_ns);
        let high = list.price(cause).map(|price| price.interval.high);
        Some(high.or(in_sums)? * of.counts.get(cause)?)
    };
    let named: Option<f64> = rule.acts_on.iter().map(|&cause| most(cause)).sum();
    // Interrupts come with the runs, where a kernel shows them.
    let has_runs = rule.acts_on.contains(&Cause::NetRxRun);
    let others = RUNS
        .iter()
        .filter(|cause| has_runs && !rule.acts_on.contains(cause));
    let others: f64 = others.filter_map(|&cause| most(cause)).sum();
    let whole = of
        .measured_ns
        .map_or(cost.priced_ns, |measured| measured.max(cost.priced_ns));
    named.map(|named| ((named + others) / whole).min(1.0))
}

/// Share as a percentage: `40 %`, `0.4 %`.
pub(super) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent.abs() {
        size if size < 0.95 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}
