//! Shares and costs by layer and by function, from the call chains of a cell's trials.
//!
//! A share is a fraction of the samples of the trial's own work, without idle time and tasks of others. A
//! cost is that share of the trial's CPU time by its best meter, so the table adds up to the main figure. The
//! sampler itself takes too few samples to measure the total.

mod context;
mod layer;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use tcpcost_study::{Derived, Figure, HostRecord, Record, Scope};

use self::context::part;
pub use self::layer::Layer;
use crate::derive::contrast::Contrast;
use crate::derive::cpu_ownership::separable_scopes;
use crate::derive::estimate::Estimate;
use crate::derive::values::Values;

/// CPU time of a host by layer and function, or of several hosts that cannot be distinguished.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Hosts of the profile.
    pub scope: Scope,
    /// Source of the samples: `cycles` or `cpu-clock`; several names if trials differ.
    pub source: String,
    /// Number of samples of the trial's own work, over all trials.
    pub samples: u64,
    /// Number of these samples with a function without a name: its callees are known, but not its callers.
    pub samples_unknown: u64,
    /// Number of samples that the records omit.
    pub samples_left_out: u64,
    /// Cost by layer, in the order of [`Layer`]. Each sample belongs to one layer; layers without samples are
    /// omitted.
    pub layers: Vec<(Layer, Cost)>,
    /// Cost by function, the largest exclusive share first. Functions on the chains of at least [`SHARE_MIN`]
    /// of the samples, and those with a published ratio in the study.
    pub functions: Vec<Function>,
    /// Samples by chain, with frames joined by semicolons, context first.
    pub(crate) folded: BTreeMap<String, u64>,
}

/// Cost of a function.
#[derive(Debug, Clone)]
pub struct Function {
    /// Name of the function.
    pub name: String,
    /// Cost of the function and its callees, without interrupts and softirqs.
    pub inclusive: Cost,
    /// Cost of the function itself.
    pub exclusive: Cost,
}

/// A share of the samples, and the CPU time that it stands for.
#[derive(Debug, Clone)]
pub struct Cost {
    /// Fraction of the samples of the trial's own work, 0 to 1.
    pub share: Estimate,
    /// CPU µs per second of the interval; `None` without a meter of CPU time.
    pub us_per_s: Option<Estimate>,
    /// CPU µs per KiB or per transaction; `None` without a meter of CPU time.
    pub us_per_unit: Option<Estimate>,
    /// CPU µs per KiB or per transaction, by repetition.
    by_repetition: Vec<(u32, f64)>,
}

impl Cost {
    /// Ratio to another cost per KiB or per transaction, trial by trial.
    pub fn ratio(&self, first: &Cost) -> Option<Estimate> {
        let contrast = Contrast::by_repetition(&first.by_repetition, &self.by_repetition, false);
        Some(contrast?.ratio)
    }

    /// Difference to another cost, µs per KiB or per transaction, trial by trial.
    pub fn growth(&self, first: &Cost) -> Option<Estimate> {
        let pairs = self.by_repetition.iter().filter_map(|(repetition, us)| {
            let mut of_first = first.by_repetition.iter();
            let (_, before) = of_first.find(|(other, _)| other == repetition)?;
            Some(us - before)
        });
        Estimate::new(pairs)
    }
}

/// Share of the samples below which a function has no row: of some hundred samples it has one or two.
pub const SHARE_MIN: f64 = 0.01;

impl Profile {
    /// Profile of the same hosts in another cell's list.
    pub(crate) fn of<'a>(&self, profiles: &'a [Profile]) -> Option<&'a Profile> {
        profiles.iter().find(|other| other.scope == self.scope)
    }

    /// Cost of a layer.
    pub fn layer(&self, layer: Layer) -> Option<&Cost> {
        let found = self.layers.iter().find(|(of, _)| *of == layer);
        found.map(|(_, cost)| cost)
    }

    /// Cost of a function.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.name == name)
    }
}

/// Profiles by host, or set of hosts, if the bed can distinguish them, else one of all hosts. Empty without
/// call chains. Functions in `named` always have a row.
pub(crate) fn profiles(
    trials: &[(&Record, &Values)],
    has_transactions: bool,
    named: &[&str],
) -> Vec<Profile> {
    let mut by_trial: Vec<Vec<Scope>> = trials
        .iter()
        .map(|(record, _)| separable_scopes(record))
        .collect();
    by_trial.dedup();
    let scopes = match by_trial.as_slice() {
        [scopes] => scopes.clone(),
        _ => vec![Scope::All],
    };
    scopes
        .into_iter()
        .filter_map(|scope| profile(trials, scope, has_transactions, named))
        .collect()
}

fn profile(
    trials: &[(&Record, &Values)],
    scope: Scope,
    has_transactions: bool,
    named: &[&str],
) -> Option<Profile> {
    let sampled: Vec<Sampled<'_>> = trials
        .iter()
        .filter_map(|(record, values)| {
            let hosts = record.hosts.iter().filter(|(host, _)| scope.holds(**host));
            let samples = Samples::of(hosts.map(|(_, found)| &**found));
            (samples.all > 0).then(|| Sampled {
                repetition: record.repetition,
                samples,
                work: work(values, scope, has_transactions),
            })
        })
        .collect();
    if sampled.is_empty() {
        return None;
    }
    let mut all = Samples::default();
    sampled.iter().for_each(|one| all.add(&one.samples));
    let layers = all.layers.keys().filter_map(|layer| {
        let of = |samples: &Samples<'_>| samples.layers.get(layer).copied().unwrap_or(0);
        Some((*layer, cost(&sampled, of)?))
    });
    let functions = all.frequent(named).into_iter().filter_map(|name| {
        let of = |samples: &Samples<'_>| samples.functions.get(name).copied().unwrap_or_default();
        Some(Function {
            name: name.to_string(),
            inclusive: cost(&sampled, |samples| of(samples).inclusive)?,
            exclusive: cost(&sampled, |samples| of(samples).exclusive)?,
        })
    });
    let mut sources = all.sources.clone();
    sources.sort_unstable();
    Some(Profile {
        scope,
        source: sources.join(" and "),
        samples: all.all,
        samples_unknown: all.unknown,
        samples_left_out: all.left_out,
        layers: layers.collect(),
        functions: functions.collect(),
        folded: all.folded,
    })
}

/// A trial with samples.
struct Sampled<'a> {
    repetition: u32,
    samples: Samples<'a>,
    /// CPU µs per unit of work, and units per second. `None` if the trial lacks one of them.
    work: Option<(f64, f64)>,
}

/// Cost of the samples that `of` counts. A trial without such a sample counts as 0, because that was measured.
fn cost(sampled: &[Sampled<'_>], of: impl Fn(&Samples<'_>) -> u64) -> Option<Cost> {
    let share = |one: &Sampled<'_>| of(&one.samples) as f64 / one.samples.all as f64;
    let known = || {
        let trials = sampled.iter();
        trials.filter_map(|one| Some((one.repetition, share(one), one.work?)))
    };
    let us_per_unit = || known().map(|(repetition, share, (us, _))| (repetition, share * us));
    Some(Cost {
        share: Estimate::new(sampled.iter().map(share))?,
        us_per_s: Estimate::new(known().map(|(_, share, (us, per_s))| share * us * per_s)),
        us_per_unit: Estimate::new(us_per_unit().map(|(_, us)| us)),
        by_repetition: us_per_unit().collect(),
    })
}

/// CPU µs per KiB or transaction by the best meter of the trial, and KiB or transactions per second.
fn work(values: &Values, scope: Scope, has_transactions: bool) -> Option<(f64, f64)> {
    let get = |kind| values.get(&Derived { kind, scope }).copied();
    let total = |kind| values.get(&Derived::total(kind)).copied();
    if has_transactions {
        let us = get(Figure::ExactUsPerTransaction).or(get(Figure::CpuUsPerTransaction));
        Some((us?, total(Figure::TransactionsPerS)?))
    } else {
        let us = get(Figure::ExactUsPerKib).or(get(Figure::CpuUsPerKib));
        Some((us?, total(Figure::Goodput)? / 8.0 / 1024.0))
    }
}

/// Samples of one function.
#[derive(Clone, Copy, Default)]
struct FunctionSamples {
    inclusive: u64,
    exclusive: u64,
}

/// Samples of one trial's own work, by layer, function and chain.
#[derive(Default)]
struct Samples<'a> {
    all: u64,
    unknown: u64,
    left_out: u64,
    sources: Vec<&'a str>,
    layers: BTreeMap<Layer, u64>,
    functions: HashMap<&'a str, FunctionSamples>,
    folded: BTreeMap<String, u64>,
}

impl<'a> Samples<'a> {
    fn of(ends: impl Iterator<Item = &'a HostRecord>) -> Samples<'a> {
        let mut samples = Samples::default();
        for chains in ends.filter_map(|end| end.profile.as_ref()) {
            samples.source(&chains.source);
            samples.left_out += chains.samples_left_out;
            for chain in &chains.chains {
                let Some(part) = part(chains, chain) else {
                    continue;
                };
                let names: Vec<&str> = part
                    .user
                    .iter()
                    .chain(part.kernel)
                    .map(|&place| chains.name(place))
                    .collect();
                let count = chain.samples;
                samples.all += count;
                if names.contains(&tcpcost_study::UNKNOWN) {
                    samples.unknown += count;
                }
                let kernel = &names[part.user.len()..];
                *samples
                    .layers
                    .entry(layer::layer(kernel.iter().rev().copied()))
                    .or_default() += count;
                for (depth, name) in names.iter().enumerate() {
                    let function = samples.functions.entry(name).or_default();
                    // A recursive function is counted once.
                    if !names[..depth].contains(name) {
                        function.inclusive += count;
                    }
                    if depth + 1 == names.len() {
                        function.exclusive += count;
                    }
                }
                // The name of a task or a function may contain any character.
                let mut line = part.context.replace([';', '\n'], "_");
                for name in names {
                    line.push(';');
                    line.push_str(&name.replace(';', "_"));
                }
                *samples.folded.entry(line).or_default() += count;
            }
        }
        samples
    }

    /// Functions with a share of at least [`SHARE_MIN`], and those in `named`; the most frequent first.
    fn frequent(&self, named: &[&str]) -> Vec<&'a str> {
        let least = SHARE_MIN * self.all as f64;
        let frequent = self
            .functions
            .iter()
            .filter(|(name, samples)| samples.inclusive as f64 >= least || named.contains(name));
        let mut frequent: Vec<(&str, &FunctionSamples)> =
            frequent.map(|(&name, samples)| (name, samples)).collect();
        frequent.sort_by_key(|(name, samples)| {
            (Reverse((samples.exclusive, samples.inclusive)), *name)
        });
        frequent.into_iter().map(|(name, _)| name).collect()
    }

    fn source(&mut self, source: &'a str) {
        if !self.sources.contains(&source) {
            self.sources.push(source);
        }
    }

    fn add(&mut self, other: &Samples<'a>) {
        self.all += other.all;
        self.unknown += other.unknown;
        self.left_out += other.left_out;
        other.sources.iter().for_each(|source| self.source(source));
        for (layer, count) in &other.layers {
            *self.layers.entry(*layer).or_default() += count;
        }
        for (name, count) in &other.functions {
            let sum = self.functions.entry(name).or_default();
            sum.inclusive += count.inclusive;
            sum.exclusive += count.exclusive;
        }
        for (line, count) in &other.folded {
            *self.folded.entry(line.clone()).or_default() += count;
        }
    }
}
