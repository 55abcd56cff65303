//! Comparison of hosts that met in pairs, round by round: hosts that are slow or cost more, and the
//! count that may explain it.
//!
//! Each pair is derived like a trial of two hosts, because the pairs of a round run at the same
//! time. A host's value is the median over its rounds, each with another partner. So a slow host is
//! slow in all its rounds, and its partners only in one. A host is an outlier if two things hold.
//! The interval of its median does not contain the median of all hosts, at a confidence for all
//! hosts together. And the difference is larger than the study's `min_effect`.

use std::collections::{BTreeMap, BTreeSet};

use tcpcost_study::{Derived, Figure, HostName, Record, Scope, Shared, Topology, Traffic};

use crate::derive::cpu_ownership::has_own_cpus;
use crate::derive::estimate::{CONFIDENCE, Estimate};
use crate::derive::values::{Values, derive_by};

/// Results of rounds of pairs.
#[derive(Debug, Clone, PartialEq)]
pub struct Fleet {
    /// Number of measured rounds.
    pub rounds: usize,
    /// Figures by which each host is judged, over its rounds. All intervals of a figure hold
    /// together with 95 % confidence.
    pub hosts: BTreeMap<HostName, BTreeMap<Figure, Estimate>>,
    /// Median of the hosts' medians.
    pub medians: BTreeMap<Figure, f64>,
    /// Outliers, the one that differs most first.
    pub outliers: Vec<Outlier>,
}

/// A host that differs from the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlier {
    /// Name of the host.
    pub host: HostName,
    /// Figure in which the host differs.
    pub figure: Figure,
    /// Median and interval of the host.
    pub estimate: Estimate,
    /// Median of all hosts.
    pub median: f64,
    /// Count in which the host differs most from the others. `None` if it differs in none.
    pub because: Option<Because>,
}

/// Count of a host and of all hosts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Because {
    /// Count that differs.
    pub figure: Figure,
    /// Median of the host.
    pub value: f64,
    /// Median of all hosts.
    pub median: f64,
}

impl Outlier {
    /// Median of the host over the median of all hosts.
    pub fn ratio(&self) -> f64 {
        self.estimate.median / self.median
    }
}

/// Figures by which hosts are judged: goodput, transactions and response time of the pair, and the
/// CPU cost of the host.
const JUDGED: [Figure; 7] = [
    Figure::Goodput,
    Figure::TransactionsPerS,
    Figure::ResponseP50,
    Figure::ExactUsPerKib,
    Figure::CpuUsPerKib,
    Figure::ExactUsPerTransaction,
    Figure::CpuUsPerTransaction,
];

/// Counts that may explain a difference.
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

/// Smallest number of hosts. With fewer, one host can determine the median.
const HOSTS_LEAST: usize = 3;

impl Fleet {
    /// Fleet from the measured records of one cell. `None` if fewer than three hosts took part.
    pub fn of(records: &[&Record], min_effect: f64) -> Option<Fleet> {
        let measured = records.iter().filter(|record| record.is_measured());
        let measured: Vec<&Record> = measured.copied().collect();
        let mut hosts = estimates(&measured)?;
        let figures: BTreeSet<Figure> = hosts.values().flat_map(BTreeMap::keys).copied().collect();
        let median = |&figure: &Figure| {
            let medians = hosts
                .values()
                .filter_map(|of| Some(of.get(&figure)?.median));
            Some((figure, Estimate::new(medians)?.median))
        };
        let mut medians: BTreeMap<Figure, f64> = figures.iter().filter_map(median).collect();
        let outliers = outliers(&hosts, &medians, min_effect);
        for of in hosts.values_mut() {
            of.retain(|figure, _| JUDGED.contains(figure));
        }
        medians.retain(|figure, _| JUDGED.contains(figure));
        Some(Fleet {
            rounds: measured.len(),
            hosts,
            medians,
            outliers,
        })
    }
}

/// Estimates of each host.
type ByHost = BTreeMap<HostName, BTreeMap<Figure, Estimate>>;

/// Estimates of the hosts, whose intervals all hold together with [`CONFIDENCE`]. `None` for fewer than three hosts.
fn estimates(measured: &[&Record]) -> Option<ByHost> {
    let mut values: BTreeMap<HostName, BTreeMap<Figure, Vec<f64>>> = BTreeMap::new();
    for record in measured {
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
    // Each of these intervals can miss its median by chance.
    let confidence = 1.0 - (1.0 - CONFIDENCE) / values.len() as f64;
    let of_host = |of: BTreeMap<Figure, Vec<f64>>| {
        let each = of.into_iter();
        each.filter_map(|(figure, values)| Some((figure, Estimate::at(values, confidence)?)))
            .collect()
    };
    let hosts = values.into_iter();
    Some(hosts.map(|(host, of)| (host, of_host(of))).collect())
}

/// Hosts that differ from the median of all hosts, the most distant first.
fn outliers(hosts: &ByHost, medians: &BTreeMap<Figure, f64>, min_effect: f64) -> Vec<Outlier> {
    let differs = |estimate: &Estimate, median: f64| {
        let interval = estimate.lo.zip(estimate.hi);
        let is_beyond = interval.is_some_and(|(lo, hi)| lo > median || hi < median);
        is_beyond && (estimate.median - median).abs() > min_effect * median.abs()
    };
    let differing = |of: &BTreeMap<Figure, Estimate>, figure: Figure| {
        let (estimate, &median) = (of.get(&figure)?, medians.get(&figure)?);
        differs(estimate, median).then_some((*estimate, median))
    };
    let distance = |because: &Because| {
        let spread = spread(hosts, because.figure, because.median);
        (because.value - because.median).abs() / spread
    };
    let mut outliers = Vec::new();
    for (&host, of) in hosts {
        for figure in JUDGED {
            let Some((estimate, median)) = differing(of, figure) else {
                continue;
            };
            let counts = COUNTS.iter().filter_map(|&figure| {
                let (estimate, median) = differing(of, figure)?;
                let value = estimate.median;
                Some(Because {
                    figure,
                    value,
                    median,
                })
            });
            outliers.push(Outlier {
                host,
                figure,
                estimate,
                median,
                because: counts.max_by(|one, other| distance(one).total_cmp(&distance(other))),
            });
        }
    }
    let far = |outlier: &Outlier| outlier.ratio().ln().abs();
    outliers.sort_by(|one, other| far(other).total_cmp(&far(one)));
    outliers
}

/// Median distance of the hosts from the median of all, but at least 1 % of that median. A count
/// that varies among all hosts thus explains less than one in which the others agree.
fn spread(hosts: &ByHost, figure: Figure, median: f64) -> f64 {
    let of = hosts.values().filter_map(|of| of.get(&figure));
    let distances = of.map(|estimate| (estimate.median - median).abs());
    let distance = Estimate::new(distances).map_or(0.0, |estimate| estimate.median);
    distance.max(0.01 * median.abs()).max(f64::MIN_POSITIVE)
}

/// Figure of the host, or that of its pair for goodput, transactions and response time.
fn value_of(values: &Values, kind: Figure, host: HostName) -> Option<f64> {
    let of = |scope| values.get(&Derived { kind, scope }).copied();
    of(Scope::Host(host)).or_else(|| {
        let is_of_pair = matches!(
            kind,
            Figure::Goodput | Figure::TransactionsPerS | Figure::ResponseP50
        );
        of(Scope::All).filter(|_| is_of_pair)
    })
}

/// Values of two hosts of a trial, as if they were alone in it. The check that their CPUs were used
/// by no other process needs the whole record.
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
        topology: of_pair(&record.topology).into(),
        machines: Shared::default(),
        hosts: hosts.map(|(&host, found)| (host, found.clone())).collect(),
    };
    derive_by(&own, |scope| {
        scope != Scope::All && has_own_cpus(record, scope)
    })
}

#[cfg(test)]
mod tests;
