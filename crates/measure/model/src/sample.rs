//! Samples of a study: CPU time and counts of each host of a trial.

use tcpcost_counts::{CountOwner, MeterName, Quantity, Reading, Source, exact_cost_ns};
use tcpcost_study::{HostName, HostRecord, Record};

use crate::causes::{Cause, Counts};
use crate::prices::PriceList;

/// CPU time and counts of one host in one trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Name of the cell.
    pub cell: String,
    /// The host.
    pub host: HostName,
    /// CPU time of the meter `exact`, ns.
    pub cpu_ns: f64,
    /// Counts in the same interval.
    pub counts: Counts,
}

impl Sample {
    /// Samples of a trial: of each host whose CPU time is known. None of a trial that was not measured, or
    /// that moved nearly nothing.
    pub fn all(record: &Record) -> Vec<Sample> {
        if !record.is_measured() || record.captured {
            return Vec::new();
        }
        let hosts = record.hosts.iter();
        hosts
            .filter_map(|(&name, host)| {
                let counts = counts(record, name, host)?;
                let skbs = [Cause::SkbSent, Cause::SkbReceived].map(|cause| counts.get(cause));
                let skbs: f64 = skbs.into_iter().flatten().sum();
                let from = HostCounts::new(host)?;
                let holder = Quantity::EXACT_OF_HOST.iter();
                let holder: Option<f64> = holder.map(|&of| from.count(MeterName::Exact, of)).sum();
                let cpu_ns = holder.or_else(|| exact_cost_ns(&from))?;
                (skbs >= SKBS_MIN && cpu_ns > 0.0).then(|| Sample {
                    cell: record.cell.clone(),
                    host: name,
                    cpu_ns,
                    counts,
                })
            })
            .collect()
    }
}

/// Least skbs of a sample: a trial with fewer stood still.
const SKBS_MIN: f64 = 50.0;

/// Work of one host in all trials of a cell, per unit of work.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// Name of the cell.
    pub cell: String,
    /// The host.
    pub host: HostName,
    /// Unit of work: `response`, or `KiB` of payload delivered.
    pub unit: &'static str,
    /// Units in the trials.
    pub units: f64,
    /// CPU time per unit, ns.
    pub cpu_ns: f64,
    /// Counts per unit.
    pub counts: Counts,
}

impl Work {
    /// Work of each host of each cell, in the order of the records. A quarter of the trials at either end,
    /// by measured over priced cost, is omitted. Marked trials count, because CPU time is without other tasks.
    pub fn all<'a>(records: impl IntoIterator<Item = &'a Record>, list: &PriceList) -> Vec<Work> {
        let mut cells: Vec<(&'a str, HostName, Vec<Part>)> = Vec::new();
        for record in records {
            let (unit, Some(units)) = units(record) else {
                continue;
            };
            for sample in Sample::all(record) {
                let ratio = sample.cpu_ns / list.cost_ns(&sample.counts);
                let part = Part {
                    unit,
                    units,
                    ratio,
                    cpu_ns: sample.cpu_ns,
                    counts: sample.counts,
                };
                let found = cells
                    .iter_mut()
                    .find(|(cell, host, _)| *cell == record.cell && *host == sample.host);
                match found {
                    Some((_, _, parts)) => parts.push(part),
                    None => cells.push((&record.cell, sample.host, vec![part])),
                }
            }
        }
        let work = |(cell, host, parts): (&str, HostName, Vec<Part>)| {
            let middle = middle_half(parts);
            let units: f64 = middle.iter().map(|part| part.units).sum();
            let mut counts = Counts::default();
            for &cause in Cause::ALL {
                let sum: Option<f64> = middle.iter().map(|part| part.counts.get(cause)).sum();
                if let Some(sum) = sum {
                    counts.set(cause, sum / units);
                }
            }
            Work {
                cell: cell.to_string(),
                host,
                unit: middle[0].unit,
                units,
                cpu_ns: middle.iter().map(|part| part.cpu_ns).sum::<f64>() / units,
                counts,
            }
        };
        cells.into_iter().map(work).collect()
    }
}

/// One trial's part of [`Work`].
struct Part {
    unit: &'static str,
    units: f64,
    /// Measured over priced cost.
    ratio: f64,
    cpu_ns: f64,
    counts: Counts,
}

fn middle_half(mut parts: Vec<Part>) -> Vec<Part> {
    parts.sort_by(|one, other| one.ratio.total_cmp(&other.ratio));
    let end = parts.len() / 4;
    parts.drain(parts.len() - end..);
    parts.drain(..end);
    parts
}

/// Unit of a trial's work, and number of units; `None` if nothing was done or counted.
fn units(record: &Record) -> (&'static str, Option<f64>) {
    let (unit, of, size) = if record.knobs.has_transactions() {
        ("response", Quantity::Transactions, 1.0)
    } else {
        ("KiB", Quantity::PayloadBytesReceived, 1024.0)
    };
    let hosts = record.hosts.values();
    let hosts = hosts.map(|host| &**host);
    let count = |host: &HostRecord| host.growth(MeterName::Workload, &CountOwner::Workload, of);
    let units = hosts.filter_map(count).sum::<u64>() as f64 / size;
    (unit, (units > 0.0).then_some(units))
}

/// Ways to send by reference, and to receive without a copy.
const REFERENCES: [&str; 7] = [
    "sendfile",
    "sendfile-memfd",
    "splice",
    "zerocopy",
    "mmap+zerocopy",
    "uring-send-zc",
    "uring-splice",
];
const TAKEN_WITHOUT_COPY: [&str; 3] = ["recv-trunc", "splice", "zerocopy"];

/// Counts of a host of a trial, in the interval of its CPU time. `None` without the meter `exact`.
pub fn counts(record: &Record, name: HostName, host: &HostRecord) -> Option<Counts> {
    let from = HostCounts::new(host)?;
    let mut counts = Counts::of(&from);
    let is_by = |knob: &str, ways: &[&str]| {
        let way = record.knobs.value_at(name, knob);
        way.is_some_and(|way| ways.contains(&way.to_string().as_str()))
    };
    if let Some(sent) = counts.get(Cause::ByteCopiedIn) {
        let is_by_reference = is_by("send_with", &REFERENCES);
        let (copied, referenced) = if is_by_reference {
            (0.0, sent)
        } else {
            (sent, 0.0)
        };
        counts.set(Cause::ByteCopiedIn, copied);
        counts.set(Cause::ByteReferenced, referenced);
    }
    if is_by("receive_with", &TAKEN_WITHOUT_COPY) {
        counts.set(Cause::ByteCopiedOut, 0.0);
    }
    // A host's IPIs are sent by the other hosts of its machine.
    let others = record
        .hosts
        .iter()
        .filter(|(other, of)| **other != name && of.machine == host.machine);
    let received: Vec<Option<f64>> = others
        .map(|(_, other)| Cause::IpiReceived.count(&HostCounts::new(other)?))
        .collect();
    match received.iter().copied().sum::<Option<f64>>() {
        Some(sent) if !received.is_empty() => counts.set(Cause::IpiSent, sent),
        _ => {}
    }
    Some(counts)
}

/// Counts of a host, scaled to the interval of its CPU time: meters are read some microseconds to
/// milliseconds apart.
pub struct HostCounts<'a> {
    host: &'a HostRecord,
    exact_ns: f64,
}

impl<'a> HostCounts<'a> {
    /// Counts of a host; `None` without the meter `exact`.
    pub fn new(host: &'a HostRecord) -> Option<HostCounts<'a>> {
        let mut readings = host.readings.iter();
        let exact = readings.find(|reading| reading.meter == MeterName::Exact)?;
        Some(HostCounts {
            host,
            exact_ns: exact.duration_ns as f64,
        })
    }

    fn reading(&self, by: MeterName, of: Quantity) -> Option<&Reading> {
        let mut readings = self.host.readings.iter();
        readings.find(|reading| {
            let is_part = matches!(reading.whose, CountOwner::Group(_) | CountOwner::Cpu(_));
            reading.meter == by && !is_part && reading.counts.contains_key(&of)
        })
    }
}

impl Source for HostCounts<'_> {
    fn count(&self, by: MeterName, of: Quantity) -> Option<f64> {
        let Some(reading) = self.reading(by, of) else {
            // A workload counts its own calls: a host that only receives has none that send.
            let mut readings = self.host.readings.iter();
            let counts_itself = readings.any(|reading| reading.whose == CountOwner::Workload);
            return (by == MeterName::Workload && counts_itself).then_some(0.0);
        };
        let count = reading.counts[&of] as f64;
        let scale = match reading.duration_ns {
            0 => 1.0,
            _ if by == MeterName::Exact => 1.0,
            ns => self.exact_ns / ns as f64,
        };
        Some(count * scale)
    }

    fn per_s(&self, by: MeterName, of: Quantity) -> Option<f64> {
        self.reading(by, of)?.per_s(by, of)
    }

    fn time_ns(&self, _: MeterName) -> Option<f64> {
        Some(self.exact_ns)
    }
}
