//! Rows of hosts: the CPU time and segments of each host by its best meters, and the errors of its clock and
//! its start. For beds whose hosts the study names.

use std::collections::BTreeMap;

use tcpcost_study::{Derived, Figure, HostName, HostRecord, MeterName, Quantity};

use crate::derive::estimate::Estimate;

/// Meter of a host's CPU time, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// The meter `exact`: all time of CPUs that only this host uses.
    Exact,
    /// The meter `exact`: time by owner.
    Owner,
    /// The meter `proc`.
    Ticks,
    /// The meter `rusage`: only the host's threads, because the other time on its CPUs belongs to others or
    /// is unknown.
    Threads,
    /// No meter.
    None,
}

impl Tier {
    /// Text for people.
    pub fn label(self) -> &'static str {
        match self {
            Tier::Exact => "CPU by eBPF",
            Tier::Owner => "CPU by eBPF, by owner",
            Tier::Ticks => "CPU by /proc/stat",
            Tier::Threads => "CPU of its threads alone, by getrusage",
            Tier::None => "CPU not known",
        }
    }

    /// Name of the meter.
    pub fn meter(self) -> Option<MeterName> {
        match self {
            Tier::Exact | Tier::Owner => Some(MeterName::Exact),
            Tier::Ticks => Some(MeterName::Proc),
            Tier::Threads => Some(MeterName::Rusage),
            Tier::None => None,
        }
    }

    fn figures(self) -> &'static [Figure] {
        match self {
            Tier::Exact => &[Figure::ExactUsPerKib, Figure::ExactUsPerTransaction],
            Tier::Owner => &[Figure::OwnedUsPerKib, Figure::OwnedUsPerTransaction],
            Tier::Ticks => &[Figure::CpuUsPerKib, Figure::CpuUsPerTransaction],
            Tier::Threads => &[Figure::TaskUsPerKib],
            Tier::None => &[],
        }
    }
}

/// Row of a host. Values that were not measured are `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct HostRow {
    /// Name of the host.
    pub host: HostName,
    /// Meter of the host's CPU time.
    pub tier: Tier,
    /// CPU µs per KiB or per transaction, and the figure that it is.
    pub cost: Option<(Figure, Estimate)>,
    /// Segments sent per second, including retransmitted ones.
    pub segments_per_s: Option<f64>,
    /// Pure ACKs sent per second.
    pub acks_per_s: Option<f64>,
    /// Difference of its clock to the command's clock (positive if it is ahead), and the error of that, µs.
    pub clock_us: Option<(f64, f64)>,
    /// Delay between the ordered start and its start, µs.
    pub late_us: Option<f64>,
}

/// Records of a trial's hosts.
type Hosts = BTreeMap<HostName, Box<HostRecord>>;

/// Rows of trials, by tier, then by name.
pub(crate) fn rows(trials: &[&Hosts], estimates: &BTreeMap<Derived, Estimate>) -> Vec<HostRow> {
    let mut names: Vec<HostName> = trials
        .iter()
        .flat_map(|hosts| hosts.keys())
        .copied()
        .collect();
    names.sort_unstable();
    names.dedup();
    let row = |&host: &HostName| {
        let each = trials.iter();
        let found: Vec<&HostRecord> = each
            .filter_map(|hosts| Some(&**hosts.get(&host)?))
            .collect();
        let (tier, cost) = cost(host, estimates);
        let of = |what: &dyn Fn(&HostRecord) -> Option<f64>| {
            median(found.iter().filter_map(|&host| what(host)).collect())
        };
        let offset = of(&|host| Some(host.clock?.before.offset_ns as f64 / 1e3));
        let error = of(&|host| Some(host.clock?.before.error_ns as f64 / 1e3));
        HostRow {
            host,
            tier,
            cost,
            segments_per_s: of(&segments_per_s),
            acks_per_s: of(&acks_per_s),
            clock_us: offset.zip(error),
            late_us: of(&|host| Some(host.clock?.late_ns as f64 / 1e3)),
        }
    };
    let mut rows: Vec<HostRow> = names.iter().map(row).collect();
    rows.sort_by_key(|row| (row.tier, row.host));
    rows
}

/// Upper bound of the time between the starts of two hosts, µs, as the median of the trials. `None` if no
/// clock was asked. Between the question and the start, clocks drift by less than their errors.
pub(crate) fn skew_us(trials: &[&Hosts]) -> Option<f64> {
    let skew = |hosts: &&Hosts| {
        let clocks = hosts.values().filter_map(|host| host.clock);
        // Each host starts at the ordered time, plus its delay, within the error of its clock.
        let spans = clocks.map(|clock| {
            let (late, error) = (clock.late_ns as f64, clock.before.error_ns as f64);
            (late - error, late + error)
        });
        let (first, last) = spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
        Some((last - first) / 1e3)
    };
    median(trials.iter().filter_map(skew).collect())
}

fn cost(
    host: HostName,
    estimates: &BTreeMap<Derived, Estimate>,
) -> (Tier, Option<(Figure, Estimate)>) {
    let tiers = [Tier::Exact, Tier::Owner, Tier::Ticks, Tier::Threads];
    let found = tiers.into_iter().find_map(|tier| {
        let mut figures = tier.figures().iter();
        let cost = figures.find_map(|&figure| {
            let estimate = estimates.get(&Derived::of(host, figure))?;
            Some((figure, *estimate))
        })?;
        Some((tier, Some(cost)))
    });
    found.unwrap_or((Tier::None, None))
}

fn segments_per_s(host: &HostRecord) -> Option<f64> {
    let of = |quantity| per_s(host, MeterName::Netstat, quantity);
    Some(of(Quantity::SegmentsSent)? + of(Quantity::SegmentsRetransmitted).unwrap_or(0.0))
}

/// Pure ACKs sent per second: by eBPF if it counts them, else by TCP_INFO of the connections.
fn acks_per_s(host: &HostRecord) -> Option<f64> {
    let by_bpf = per_s(host, MeterName::Segments, Quantity::PureAcksSent);
    by_bpf.or_else(|| {
        let of = |quantity| per_s(host, MeterName::TcpInfo, quantity);
        Some(of(Quantity::ConnSegmentsSent)? - of(Quantity::ConnDataSegmentsSent)?)
    })
}

fn per_s(host: &HostRecord, meter: MeterName, quantity: Quantity) -> Option<f64> {
    host.readings.iter().find_map(|reading| {
        let count = reading.counts.get(&quantity)?;
        let is_it = reading.meter == meter && reading.duration_ns > 0;
        is_it.then(|| *count as f64 * 1e9 / reading.duration_ns as f64)
    })
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (below, above) = (
        values.get((values.len().max(1) - 1) / 2)?,
        values.get(values.len() / 2)?,
    );
    Some((below + above) / 2.0)
}

#[cfg(test)]
mod tests {
    use tcpcost_study::{ClockOffset, ClockOffsets};

    use super::*;

    fn host(offset_ns: i64, error_ns: u64, late_ns: u64) -> HostRecord {
        let clock = ClockOffset {
            offset_ns,
            error_ns,
        };
        HostRecord {
            clock: Some(ClockOffsets {
                before: clock,
                after: clock,
                late_ns,
            }),
            ..HostRecord::default()
        }
    }

    #[test]
    fn skew_is_the_delays_difference_and_both_errors() {
        let hosts = Hosts::from([
            (HostName::CLIENT, host(-4_000, 30_000, 5_000).into()),
            (HostName::SERVER, host(900, 10_000, 45_000).into()),
        ]);
        // 45 - 5 of delay, 30 and 10 of error.
        assert_eq!(skew_us(&[&hosts, &hosts]), Some(80.0));
        let rows = rows(&[&hosts], &BTreeMap::new());
        assert_eq!(rows[0].clock_us, Some((-4.0, 30.0)));
        assert_eq!(
            (rows[1].late_us, rows[1].segments_per_s),
            (Some(45.0), None)
        );
        assert_eq!(rows[0].tier, Tier::None);
    }

    #[test]
    fn a_middle_is_between_two() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0]), Some(3.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }
}
