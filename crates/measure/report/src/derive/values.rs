//! Figures of one record: the record is a source of counts, and the formulas are those of the figures
//! (`counts`).
//!
//! A figure that lacks an input is absent, never 0. No value here is an average over trials.

use std::collections::{BTreeMap, BTreeSet};

use tcpcost_counts::{
    Figure, FigureOf, Keyed, MeterName, MeterSubject, Quantity, Reading, SocketBuffer, Source,
};
use tcpcost_study::{
    CountOwner, Derived, HostName, HostRecord, Knobs, Reach, Record, Scope, Side, Value,
};

use crate::derive::cpu_ownership::has_own_cpus;
use crate::derive::cpu_time::CpuTime;
use crate::derive::response::ResponseTimes;
use crate::derive::scope::scopes;

/// Figures of one trial.
pub type Values = Keyed<Derived, f64>;

/// Every figure that this record has the counts for: of all hosts, of each set of hosts and of each host.
/// Empty for a trial that was not measured. A captured trial has only the figures of its capture, because
/// capturing costs CPU, too.
///
/// CPU time of all CPUs of a host is a figure of the host if no other host uses its CPUs and its receive work
/// runs there (`cpu_ownership.rs`). CPU time by owner is a figure of each host that has it. A count of a
/// namespace belongs to the hosts that are alone in it. On loopback all hosts are in one namespace, which
/// counts once.
pub fn derive(record: &Record) -> Values {
    derive_by(record, |scope| has_own_cpus(record, scope))
}

/// [`derive`] with a given test of whether the hosts of a scope have their own CPUs.
pub(crate) fn derive_by(record: &Record, has_own_cpus: impl Fn(Scope) -> bool) -> Values {
    if !record.is_measured() {
        return Values::default();
    }
    let mut values = Vec::new();
    let trial = Trial::new(record);
    let hosts = record.hosts.keys().copied().collect();
    for scope in scopes(&hosts) {
        let part = ScopeCounts::new(&trial, scope, has_own_cpus(scope));
        for &kind in Figure::ALL {
            let is_of = match kind.whose() {
                FigureOf::Host => true,
                FigureOf::Trial | FigureOf::Group => scope == Scope::All,
                _ => false,
            };
            // A clock that counts instructions shows no time.
            let is_told = is_of && !(kind.is_time() && part.instructions_per_ns().is_some());
            if let Some(value) = kind.value(&part).filter(|_| is_told) {
                values.push((Derived { kind, scope }, value));
            }
        }
    }
    for group in record.knobs.group_names() {
        let scope = Scope::Group(group);
        let part = GroupCounts::new(&trial, group);
        let of_groups = Figure::ALL
            .iter()
            .filter(|kind| kind.whose() == FigureOf::Group);
        for &kind in of_groups {
            let is_told = !(kind.is_time() && record.instructions_per_ns().is_some());
            if let Some(value) = kind.value(&part).filter(|_| is_told) {
                values.push((Derived { kind, scope }, value));
            }
        }
    }
    values.into_iter().collect()
}

/// CPU time of all hosts per unit of work, by the best meter of a measured trial.
pub(crate) fn cost(record: &Record) -> Option<(Figure, f64)> {
    if !record.is_measured() || record.captured {
        return None;
    }
    let trial = Trial::new(record);
    let part = ScopeCounts::new(&trial, Scope::All, has_own_cpus(record, Scope::All));
    let figures = match record.knobs.has_transactions() {
        true => [Figure::ExactUsPerTransaction, Figure::CpuUsPerTransaction],
        false => [Figure::ExactUsPerKib, Figure::CpuUsPerKib],
    };
    let found = figures
        .into_iter()
        .filter_map(|kind| Some((kind, kind.value(&part)?)));
    found
        .into_iter()
        .find(|(_, cost)| cost.is_finite() && *cost > 0.0)
}

/// A measured record.
struct Trial<'a> {
    record: &'a Record,
    response_times: Option<ResponseTimes>,
    /// Side of each host. Stored, as are `namespaces` and `senders`, because each figure of maybe hundreds of
    /// hosts needs it.
    sides: BTreeMap<HostName, Option<Side>>,
    namespaces: BTreeMap<HostName, Namespace<'a>>,
    senders: Vec<Side>,
}

/// Machine and host. Without a host for hosts in the command's own namespace, which they share.
type Namespace<'a> = (&'a str, Option<HostName>);

impl<'a> Trial<'a> {
    fn new(record: &'a Record) -> Self {
        // A capture slows responses, too.
        let hosts = record.hosts.values().filter(|_| !record.captured);
        let histograms = hosts.filter_map(|host| host.response_time_hdr.as_deref());
        let hosts = record.hosts.keys();
        let sides = hosts.map(|&name| (name, record.topology.side(name)));
        let topology = record.topology.hosts.iter();
        let reaches: BTreeMap<HostName, &Reach> =
            topology.map(|host| (host.name, &host.reach)).collect();
        let hosts = record.hosts.iter();
        let namespaces = hosts.map(|(&name, host)| {
            let reach = reaches.get(&name).copied();
            (name, namespace(name, host, reach))
        });
        let senders = Side::BOTH.into_iter();
        Trial {
            record,
            response_times: ResponseTimes::of(histograms),
            sides: sides.collect(),
            namespaces: namespaces.collect(),
            senders: senders
                .filter(|&side| record.knobs.sends_from(side))
                .collect(),
        }
    }

    fn hosts(&self) -> impl Iterator<Item = (HostName, &'a HostRecord)> {
        self.record
            .hosts
            .iter()
            .map(|(&name, host)| (name, &**host))
    }

    /// Hosts of one side that have a record.
    fn of_side(&self, side: Side) -> impl Iterator<Item = (HostName, &'a HostRecord)> {
        self.hosts()
            .filter(move |(name, _)| self.sides.get(name) == Some(&Some(side)))
    }

    /// The workers' readings of the work done. Transactions are counted by the side that connects, payload by
    /// the receivers. Every host that the workload sends to must have counted.
    fn work(&self, of: Quantity) -> Option<Vec<&'a Reading>> {
        if self.record.captured {
            return None;
        }
        let by = |host| reading(host, MeterName::Workload, of);
        if of == Quantity::Transactions {
            let counted = self.of_side(Side::Connects).map(|(_, host)| by(host));
            return counted
                .collect::<Option<Vec<_>>>()
                .filter(|counted| !counted.is_empty());
        }
        let mut readings = Vec::new();
        for side in Side::BOTH {
            for (_, host) in self.of_side(side) {
                match by(host) {
                    Some(reading) => readings.push(reading),
                    None if self.senders.contains(&side.peer()) => return None,
                    None => {}
                }
            }
        }
        // A host without a record has counted nothing.
        let wanted = self.record.topology.hosts.len();
        let is_whole = self.record.hosts.len() == wanted;
        // Without a sender there is nothing to count.
        (is_whole && !readings.is_empty()).then_some(readings)
    }
}

fn namespace<'a>(name: HostName, host: &'a HostRecord, reach: Option<&Reach>) -> Namespace<'a> {
    match reach {
        Some(Reach::Local) => (&host.machine, None),
        Some(Reach::Netns) => (&host.machine, Some(name)),
        // Both halves of a named host are in its namespace.
        _ => (&host.machine, Some(name.half_of().unwrap_or(name))),
    }
}

/// Hosts of a trial as a source of counts.
struct ScopeCounts<'a> {
    trial: &'a Trial<'a>,
    scope: Scope,
    /// Hosts in the scope.
    hosts: Vec<(HostName, &'a HostRecord)>,
    /// One of these hosts for each of their namespaces. `None` if another host is in one of them.
    by_namespace: Option<Vec<&'a HostRecord>>,
    /// CPU time by each meter of CPUs. None if they also work for hosts outside the scope. Stored, because
    /// most figures need one.
    cpu_times: BTreeMap<MeterName, CpuTime<'a>>,
}

impl<'a> ScopeCounts<'a> {
    fn new(trial: &'a Trial<'a>, scope: Scope, has_own_cpus: bool) -> Self {
        let (hosts, others): (Vec<_>, Vec<_>) =
            trial.hosts().partition(|(name, _)| scope.holds(*name));
        let of = |(name, _): &(HostName, _)| trial.namespaces[name];
        let mut inside: BTreeSet<Namespace<'_>> = BTreeSet::new();
        let first = hosts.iter().filter(|host| inside.insert(of(host)));
        let first = first.map(|(_, host)| *host).collect();
        let has_own_namespaces = !others.iter().any(|other| inside.contains(&of(other)));
        let record = trial.record;
        let is_whole = record.hosts.len() == record.topology.hosts.len();
        let of_cpus = MeterName::ALL
            .iter()
            .filter(|by| by.subject() == MeterSubject::Cpus && has_own_cpus && !record.captured);
        let cpu_times = of_cpus.filter_map(|&by| {
            let hosts = hosts.iter().map(|(_, host)| *host).collect();
            Some((by, CpuTime::new(by, hosts, is_whole)?))
        });
        ScopeCounts {
            trial,
            scope,
            by_namespace: has_own_namespaces.then_some(first),
            cpu_times: cpu_times.collect(),
            hosts,
        }
    }

    fn hosts(&self) -> impl Iterator<Item = (HostName, &'a HostRecord)> {
        self.hosts.iter().copied()
    }

    /// The host of a scope with one host. `None` for several hosts and for captured trials.
    fn only_host(&self) -> Option<(HostName, &'a HostRecord)> {
        let mut hosts = self.hosts();
        let only = hosts.next()?;
        // A capture slows the host, so automatic tuning gives other values.
        (hosts.next().is_none() && !self.trial.record.captured).then_some(only)
    }

    /// Hosts that own the counts of a meter, each owner once. `None` if a count is shared with hosts outside
    /// the scope.
    fn owners(&self, by: MeterName) -> Option<Vec<&'a HostRecord>> {
        let trial = self.trial;
        match by.subject() {
            MeterSubject::Namespace => self.by_namespace.clone(),
            // All hosts read the same clock.
            MeterSubject::Host => Some(self.hosts().map(|(_, host)| host).take(1).collect()),
            MeterSubject::Worker | MeterSubject::Connections => {
                let topology = &trial.record.topology;
                let ends = self
                    .hosts()
                    .filter(|(name, _)| topology.side(*name).is_some());
                Some(ends.map(|(_, host)| host).collect())
            }
            _ => Some(self.hosts().map(|(_, host)| host).collect()),
        }
    }

    /// Readings with a count of a meter, and the number of readings that are expected.
    fn readings(&self, by: MeterName, of: Quantity) -> Option<(Vec<&'a Reading>, usize)> {
        // A capture costs CPU, so a captured trial has no other figures.
        if self.trial.record.captured != (by == MeterName::Trace) {
            return None;
        }
        let owners = self.owners(by).filter(|owners| !owners.is_empty())?;
        let expected = owners.len();
        let found = owners.into_iter().filter_map(|host| match by {
            // Counts of a host of our own TCP replace those of a namespace.
            MeterName::Netstat => reading(host, by, of)
                .or_else(|| reading(host, MeterName::Tcp, of))
                .or_else(|| reading(host, MeterName::TcpInfo, of)),
            // eBPF sees no packet of our own TCP, and counts 0.
            MeterName::Segments => {
                reading(host, MeterName::Tcp, of).or_else(|| reading(host, by, of))
            }
            _ => reading(host, by, of),
        });
        Some((found.collect(), expected))
    }
}

/// A group of the trial's connections as a source of counts of its workload. CPU time exists only by host.
struct GroupCounts<'a> {
    trial: &'a Trial<'a>,
    whose: CountOwner,
    response_times: Option<ResponseTimes>,
}

impl<'a> GroupCounts<'a> {
    fn new(trial: &'a Trial<'a>, group: HostName) -> Self {
        let hosts = trial.hosts().filter(|_| !trial.record.captured);
        let histograms = hosts.filter_map(|(_, host)| host.response_time_hdr_by_group.get(&group));
        GroupCounts {
            trial,
            whose: CountOwner::Group(group.to_string()),
            response_times: ResponseTimes::of(histograms.map(String::as_str)),
        }
    }

    /// Readings of the group with a count. Transactions are counted by the side that connects, payload by the
    /// receiver.
    fn readings(&self, of: Quantity) -> Option<Vec<&'a Reading>> {
        if self.trial.record.captured {
            return None;
        }
        let hosts = self.trial.hosts();
        let readings = hosts.flat_map(|(_, host)| &host.readings);
        let is_its =
            |reading: &&Reading| reading.whose == self.whose && reading.counts.contains_key(&of);
        let its: Vec<&Reading> = readings.filter(is_its).collect();
        let wanted = self.trial.record.topology.hosts.len();
        (self.trial.record.hosts.len() == wanted && !its.is_empty()).then_some(its)
    }
}

impl Source for GroupCounts<'_> {
    fn count(&self, _: MeterName, _: Quantity) -> Option<f64> {
        None
    }

    fn per_s(&self, _: MeterName, _: Quantity) -> Option<f64> {
        None
    }

    fn time_ns(&self, _: MeterName) -> Option<f64> {
        None
    }

    fn work(&self, of: Quantity) -> Option<f64> {
        let readings = self.readings(of)?;
        let counts = readings.iter().map(|reading| reading.counts[&of] as f64);
        Some(counts.sum())
    }

    fn work_per_s(&self, of: Quantity) -> Option<f64> {
        let readings = self.readings(of)?;
        let rates = readings
            .iter()
            .map(|reading| reading.per_s(reading.meter, of));
        rates.sum()
    }

    fn response_us(&self, percentile: f64) -> Option<f64> {
        self.response_times.as_ref()?.us(percentile)
    }
}

/// The host's reading with a count. Skips readings of groups, which are parts of the workload's.
fn reading(host: &HostRecord, by: MeterName, of: Quantity) -> Option<&Reading> {
    let mut readings = host.readings.iter();
    readings.find(|reading| {
        let is_part = matches!(reading.whose, CountOwner::Group(_));
        reading.meter == by && !is_part && reading.counts.contains_key(&of)
    })
}

impl Source for ScopeCounts<'_> {
    fn count(&self, by: MeterName, of: Quantity) -> Option<f64> {
        let is_of_process =
            Quantity::EXACT_OF_HOST.contains(&of) || Quantity::HOLDER_EVENTS.contains(&of);
        if by.subject() == MeterSubject::Cpus && !is_of_process {
            return self.cpu_times.get(&by)?.sum(of);
        }
        let (readings, expected) = self.readings(by, of)?;
        let counts = readings.iter().map(|reading| reading.counts[&of] as f64);
        (readings.len() == expected).then(|| counts.sum())
    }

    fn count_of_some(&self, by: MeterName, of: Quantity) -> Option<f64> {
        let (readings, _) = self.readings(by, of)?;
        let counts = readings.iter().map(|reading| reading.counts[&of] as f64);
        counts.reduce(|sum, count| sum + count)
    }

    fn per_s(&self, by: MeterName, of: Quantity) -> Option<f64> {
        let (readings, expected) = self.readings(by, of)?;
        let rates = readings
            .iter()
            .map(|reading| reading.per_s(reading.meter, of));
        let sum = rates.sum::<Option<f64>>()?;
        (readings.len() == expected).then_some(sum)
    }

    fn time_ns(&self, by: MeterName) -> Option<f64> {
        if by.subject() == MeterSubject::Cpus {
            return Some(self.cpu_times.get(&by)?.available_ns);
        }
        let readings = self.hosts().flat_map(|(_, host)| &host.readings);
        let of_meter = readings.filter(|reading| reading.meter == by);
        let interval_ns = of_meter.map(|reading| reading.duration_ns).max()? as f64;
        let record = self.trial.record;
        let flows = record.knobs.flows() as f64;
        // Each pair of hosts that talk has `flows` connections.
        let is_of =
            |one: &&tcpcost_study::Traffic| self.scope.holds(one.on) || self.scope.holds(one.to);
        let times = || record.topology.traffic.iter().filter(is_of).count() as f64;
        match by.subject() {
            MeterSubject::Connections => Some(interval_ns * flows * times()),
            _ => Some(interval_ns),
        }
    }

    fn cpus(&self, by: MeterName) -> Option<f64> {
        Some(self.cpu_times.get(&by)?.count)
    }

    fn instructions_per_ns(&self) -> Option<f64> {
        self.trial.record.instructions_per_ns()
    }

    fn work(&self, of: Quantity) -> Option<f64> {
        let readings = self.trial.work(of)?;
        Some(
            readings
                .iter()
                .map(|reading| reading.counts[&of] as f64)
                .sum(),
        )
    }

    fn work_per_s(&self, of: Quantity) -> Option<f64> {
        let readings = self.trial.work(of)?;
        let rates = readings
            .iter()
            .map(|reading| reading.per_s(reading.meter, of));
        rates.sum()
    }

    fn response_us(&self, percentile: f64) -> Option<f64> {
        self.trial.response_times.as_ref()?.us(percentile)
    }

    fn ack_limit_top(&self) -> Option<f64> {
        let (_, host) = self.only_host()?;
        Some(host.series.as_ref()?.ack_limit_top()? as f64)
    }

    fn ack_limit_falls(&self) -> Option<(f64, f64)> {
        let (_, host) = self.only_host()?;
        let (falls, ends) = host.series.as_ref()?.falls()?;
        Some((falls as f64, ends as f64))
    }

    fn buffer_bytes(&self, of: SocketBuffer) -> Option<f64> {
        let (_, host) = self.only_host()?;
        let sizes = host.buffers?.after;
        Some(match of {
            SocketBuffer::Send => sizes.send_bytes as f64,
            SocketBuffer::Receive => sizes.receive_bytes as f64,
        })
    }

    fn buffer_asked_bytes(&self, of: SocketBuffer) -> Option<f64> {
        let (name, _) = self.only_host()?;
        asked_buffer(&self.trial.record.knobs, name, of).map(|bytes| bytes as f64)
    }

    fn owns_namespaces(&self) -> bool {
        let mut hosts = self.trial.record.topology.hosts.iter();
        hosts.all(|host| matches!(host.reach, Reach::Netns | Reach::Memory))
    }
}

/// Buffer size that a study asks for at a host, bytes. `None` if it is left to the stack.
pub(crate) fn asked_buffer(knobs: &Knobs, host: HostName, of: SocketBuffer) -> Option<u64> {
    let name = match of {
        SocketBuffer::Send => "send_buffer",
        SocketBuffer::Receive => "receive_buffer",
    };
    knobs.value_at(host, name).as_ref().and_then(Value::whole)
}

#[cfg(test)]
mod tests;
