//! Hosts that met each other in pairs, in rounds: which of them are slow or dear, and by which count they differ.
//!
//! What a pair did is derived as a trial of two hosts would be, since the rounds' pairs run beside each other. A host's value
//! is the median over its rounds, each with another partner: so a slow host is slow in all its rounds, and its partners in
//! one. It is an outlier where the interval of its median does not hold the median of all hosts, at a confidence that all
//! hosts together have, and where it differs by what the study says matters (`min_effect`).

use std::collections::{BTreeMap, BTreeSet};

use tcpcost_study::{Derived, Figure, HostName, Record, Scope, Topology, Traffic};

use crate::cpu_ownership::has_own_cpus;
use crate::derive::{Values, derive_by};
use crate::estimate::{CONFIDENCE, Estimate};

/// What rounds tell of hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct Fleet {
    /// Rounds that were measured.
    pub rounds: usize,
    /// What each host is judged by, over its rounds, with intervals that hold for all hosts together.
    pub hosts: BTreeMap<HostName, BTreeMap<Figure, Estimate>>,
    /// The median of the hosts' medians.
    pub medians: BTreeMap<Figure, f64>,
    /// Hosts that differ, the farthest first.
    pub outliers: Vec<Outlier>,
}

/// A host that differs from the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlier {
    /// Which.
    pub host: HostName,
    /// In what.
    pub figure: Figure,
    /// Its median and interval.
    pub estimate: Estimate,
    /// The median of all hosts.
    pub median: f64,
    /// The count by which it differs most, beside that of all hosts; absent where none does.
    pub because: Option<Because>,
}

/// A count of a host beside that of all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Because {
    /// Which.
    pub figure: Figure,
    /// The host's median.
    pub value: f64,
    /// The median of all hosts.
    pub median: f64,
}

impl Outlier {
    /// Its median over that of all hosts.
    pub fn ratio(&self) -> f64 {
        self.estimate.median / self.median
    }
}

/// What hosts are judged by: the pair's as both have it, then a host's own.
const JUDGED: [Figure; 7] = [
    Figure::Goodput,
    Figure::TransactionsPerS,
    Figure::ResponseP50,
    Figure::ExactUsPerKib,
    Figure::CpuUsPerKib,
    Figure::ExactUsPerTransaction,
    Figure::CpuUsPerTransaction,
];

/// Counts that may say why.
const COUNTS: [Figure; 20] = [
    Figure::RetransmitRatio,
    Figure::OutOfOrderPerMib,
    Figure::DuplicateAcksPerMib,
    Figure::DsacksPerMib,
    Figure::CollapsedPerMib,
    Figure::AcksPerKib,
    Figure::BytesPerAck,
    Figure::SegmentsPerSkb,
    Figure::OctetsPerDatagram,
    Figure::DelayedAcksPerS,
    Figure::SwitchesPerMib,
    Figure::SwitchesPerTransaction,
    Figure::PacketsPerTransaction,
    Figure::FaultsPerMib,
    Figure::MigrationsPerS,
    Figure::InstructionsPerKib,
    Figure::CacheMissesPerKib,
    Figure::OthersRatio,
    Figure::StealRatio,
    Figure::BytesPerReceive,
];

/// Fewer have no median that one of them does not make.
const HOSTS_LEAST: usize = 3;

impl Fleet {
    /// Of measured records of one cell; `None` where fewer than three hosts took part.
    pub fn of(records: &[&Record], min_effect: f64) -> Option<Fleet> {
        let mut values: BTreeMap<HostName, BTreeMap<Figure, Vec<f64>>> = BTreeMap::new();
        let measured = records.iter().filter(|record| record.is_measured());
        let mut rounds = 0;
        for record in measured {
            rounds += 1;
            for traffic in &record.topology.traffic {
                let found = derive_pair(record, *traffic);
                for host in [traffic.on, traffic.to] {
                    let of_host = values.entry(host).or_default();
                    for figure in JUDGED.into_iter().chain(COUNTS) {
                        if let Some(value) = value_of(&found, figure, host) {
                            of_host.entry(figure).or_default().push(value);
                        }
                    }
                }
            }
        }
        if values.len() < HOSTS_LEAST {
            return None;
        }
        // Each of so many intervals misses its median by chance: all hold at once with the confidence of one.
        let confidence = 1.0 - (1.0 - CONFIDENCE) / values.len() as f64;
        let estimates = |of: &BTreeMap<Figure, Vec<f64>>| {
            let each = of.iter().filter_map(|(&figure, values)| {
                Some((figure, Estimate::at(values.iter().copied(), confidence)?))
            });
            each.collect()
        };
        let all: BTreeMap<HostName, BTreeMap<Figure, Estimate>> = values
            .iter()
            .map(|(&host, of)| (host, estimates(of)))
            .collect();
        let figures: BTreeSet<Figure> = all.values().flat_map(BTreeMap::keys).copied().collect();
        let median = |&figure: &Figure| {
            let medians = all.values().filter_map(|of| Some(of.get(&figure)?.median));
            Some((figure, Estimate::new(medians)?.median))
        };
        let medians: BTreeMap<Figure, f64> = figures.iter().filter_map(median).collect();
        let differs = |estimate: &Estimate, median: f64| {
            let (Some(lo), Some(hi)) = (estimate.lo, estimate.hi) else {
                return false;
            };
            let is_beyond = lo > median || hi < median;
            is_beyond && (estimate.median - median).abs() > min_effect * median.abs()
        };
        let mut outliers = Vec::new();
        for (&host, of) in &all {
            for figure in JUDGED {
                let (Some(estimate), Some(&median)) = (of.get(&figure), medians.get(&figure))
                else {
                    continue;
                };
                if differs(estimate, median) {
                    let counts = COUNTS.iter().filter_map(|figure| {
                        let (estimate, &median) = (of.get(figure)?, medians.get(figure)?);
                        differs(estimate, median).then_some(Because {
                            figure: *figure,
                            value: estimate.median,
                            median,
                        })
                    });
                    let spread = |because: &Because| spread(&all, because.figure, because.median);
                    let far = |because: &Because| {
                        (because.value - because.median).abs() / spread(because)
                    };
                    outliers.push(Outlier {
                        host,
                        figure,
                        estimate: *estimate,
                        median,
                        because: counts.max_by(|one, other| far(one).total_cmp(&far(other))),
                    });
                }
            }
        }
        let far = |outlier: &Outlier| outlier.ratio().ln().abs();
        outliers.sort_by(|one, other| far(other).total_cmp(&far(one)));
        let judged = |mut of: BTreeMap<Figure, Estimate>| {
            of.retain(|figure, _| JUDGED.contains(figure));
            of
        };
        let mut medians = medians;
        medians.retain(|figure, _| JUDGED.contains(figure));
        Some(Fleet {
            rounds,
            hosts: all
                .into_iter()
                .map(|(host, of)| (host, judged(of)))
                .collect(),
            medians,
            outliers,
        })
    }
}

/// How far hosts are from the median of all: the median of their distances, a hundredth of the median at least. So a count
/// that varies anyway explains less than one that all others agree on.
fn spread(
    all: &BTreeMap<HostName, BTreeMap<Figure, Estimate>>,
    figure: Figure,
    median: f64,
) -> f64 {
    let of = all.values().filter_map(|of| of.get(&figure));
    let distances = of.map(|estimate| (estimate.median - median).abs());
    let distance = Estimate::new(distances).map_or(0.0, |estimate| estimate.median);
    distance.max(0.01 * median.abs()).max(f64::MIN_POSITIVE)
}

/// A host's figure, or that of the pair that it is in.
fn value_of(values: &Values, kind: Figure, host: HostName) -> Option<f64> {
    let of = |scope| values.get(&Derived { kind, scope }).copied();
    of(Scope::Of(host)).or_else(|| {
        let is_of_pair = matches!(
            kind,
            Figure::Goodput | Figure::TransactionsPerS | Figure::ResponseP50
        );
        of(Scope::All).filter(|_| is_of_pair)
    })
}

/// What two hosts of a trial did, as if they had been alone in it. Whether their CPUs were their own only the whole tells.
fn derive_pair(record: &Record, pair: Traffic) -> Values {
    let is_in = |host: HostName| host == pair.on || host == pair.to;
    let of_pair = |topology: &Topology| Topology {
        hosts: topology
            .hosts
            .iter()
            .filter(|host| is_in(host.name))
            .cloned()
            .collect(),
        traffic: vec![pair],
        ..Topology::default()
    };
    let hosts = record.hosts.iter().filter(|(host, _)| is_in(**host));
    let own = Record {
        schema_version: record.schema_version,
        study: String::new(),
        cell: String::new(),
        knobs: record.knobs.clone(),
        repetition: record.repetition,
        attempt: record.attempt,
        seed: record.seed,
        started: String::new(),
        bed: String::new(),
        captured: record.captured,
        interval_ns: record.interval_ns,
        took_ns: record.took_ns,
        work: record.work,
        outcome: record.outcome.clone(),
        warnings: Vec::new(),
        cpu_distances: Vec::new(),
        topology: of_pair(&record.topology),
        machines: BTreeMap::new(),
        hosts: hosts.map(|(&host, found)| (host, found.clone())).collect(),
    };
    derive_by(&own, |scope| {
        scope != Scope::All && has_own_cpus(record, scope)
    })
}

#[cfg(test)]
mod tests;
