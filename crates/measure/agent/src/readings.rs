//! The meters of one end, and the sum of several threads' readings.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2Serializer};
use tcpcost_counts::readings_between;
use tcpcost_host::error::remedy;
use tcpcost_meter::{MeterError, Missing, Needs, Observer, Owners, Scope, opener};
use tcpcost_study::{MeterName, Reading, Snapshot, WentBackwards};

use crate::protocol::{CpuOwner, Prepare};

/// Result of [`meters`].
#[derive(Default)]
pub struct Meters {
    pub observer: Observer,
    /// Handles of the eBPF programs that were loaded for them, by meter.
    pub loaded: BTreeMap<MeterName, String>,
    /// Meters that are unavailable, one line each.
    pub warnings: Vec<String>,
}

/// Opens the meters that count for a whole end. Each worker reads `rusage` and `tcp_info` itself, and
/// `others` is read outside the interval. `netstat` is omitted for our own TCP, whose segments it does not
/// count. An unavailable meter becomes a warning. Programs that the other end has `loaded` are shared. Counts
/// by connection have room for `flows` connections.
pub fn meters(
    prepare: &Prepare,
    is_kernel: bool,
    flows: usize,
    loaded: BTreeMap<MeterName, String>,
) -> Meters {
    let mut found = Meters::default();
    let scope = Scope {
        cpus: prepare.cpus.clone(),
        own_pids: prepare.own_pids.clone(),
        connections: prepare.by_connection.then(|| connections(flows)),
        namespaces: prepare.mates,
        loaded,
        follows: None,
        owners: owners(prepare, flows),
        ..Scope::default()
    };
    for &name in &prepare.meters {
        if name == MeterName::Netstat && !is_kernel {
            continue;
        }
        let Some(open) = opener(name) else { continue };
        let opened = found.observer.open(name, &scope, open);
        let handle = opened.and_then(|meter| meter.handle());
        found.loaded.extend(handle.map(|handle| (name, handle)));
    }
    let missing = found.observer.missing.iter();
    let warnings = missing.map(|missing| match missing {
        Missing::Meter(error) => warning(error),
        Missing::Owners(error) => format!("no CPU time by owner: {error}"),
        Missing::Part(line) => line.clone(),
    });
    found.warnings = warnings.collect();
    found
}

/// Owners of CPU time for `exact`: this host if its CPUs also work for other hosts.
fn owners(prepare: &Prepare, flows: usize) -> Owners {
    // Room for both ends of each connection, and as many sockets that are closing.
    let sockets = connections(flows);
    prepare
        .cpu_owner
        .map_or(Owners::None, |CpuOwner { index, count }| Owners::Hosts {
            index,
            count,
            sockets: sockets.saturating_mul(count),
        })
}

/// Warning for the author of the study about an unavailable meter, with the reason.
pub fn warning(error: &MeterError) -> String {
    match error {
        MeterError::Unavailable { meter, needs, .. } => {
            let also = match needs {
                Some(Needs::Capabilities(_)) => format!("{}, or ", remedy()),
                _ => String::new(),
            };
            format!("{error}: {also}drop \"{meter}\" from meters")
        }
        _ => error.to_string(),
    }
}

/// Number of map entries for these flows: both ends may be in one map, and half of it should stay free.
fn connections(flows: usize) -> u32 {
    u32::try_from(flows.saturating_mul(4)).unwrap_or(u32::MAX)
}

/// Growth of each meter that both lists have.
pub fn since(before: &[Snapshot], after: &[Snapshot]) -> Result<Vec<Reading>, WentBackwards> {
    let mut readings = Vec::new();
    for meter in readings_between(before, after) {
        readings.extend(meter?);
    }
    Ok(readings)
}

/// Adds up readings of several threads by meter and owner. Their durations belong to one interval and differ
/// by microseconds; the longest is kept.
pub fn sum<'a>(threads: impl Iterator<Item = &'a [Reading]>) -> Vec<Reading> {
    let mut sums = BTreeMap::new();
    for reading in threads.flatten() {
        let sum = match sums.entry((reading.meter, reading.whose.clone())) {
            Entry::Occupied(sum) => sum.into_mut(),
            Entry::Vacant(first) => {
                first.insert(reading.clone());
                continue;
            }
        };
        sum.duration_ns = sum.duration_ns.max(reading.duration_ns);
        for (&quantity, &count) in &reading.counts {
            let before = sum.counts.get(&quantity).copied().unwrap_or(0);
            sum.counts.insert(quantity, before + count);
        }
    }
    sums.into_values().collect()
}

/// Encodes a histogram as text: HdrHistogram V2, base64.
pub fn encode(histogram: &Histogram<u64>) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(histogram, &mut bytes)?;
    Ok(STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_study::{CountOwner, Quantity};

    #[test]
    fn threads_add_up_by_meter_and_owner() {
        let reading = |meter, duration_ns, count| Reading {
            meter,
            whose: CountOwner::Threads,
            duration_ns,
            counts: [(Quantity::TaskUserNs, count)].into(),
        };
        let (first, second) = (
            [reading(MeterName::Rusage, 10, 3)],
            [
                reading(MeterName::Rusage, 12, 4),
                reading(MeterName::Proc, 1, 1),
            ],
        );
        let sum = sum([&first[..], &second[..]].into_iter());
        assert_eq!(
            sum,
            [
                reading(MeterName::Proc, 1, 1),
                reading(MeterName::Rusage, 12, 7)
            ]
        );
    }

    #[test]
    fn a_warning_says_what_to_do_in_a_study() {
        let refused = |needs| {
            warning(&MeterError::Unavailable {
                meter: MeterName::Exact,
                tried: "load".to_string(),
                source: Some(std::io::Error::from_raw_os_error(libc::EPERM)),
                needs,
            })
        };
        assert_eq!(
            refused(Some(Needs::Capabilities("CAP_BPF and CAP_PERFMON"))),
            format!(
                "meter exact: load: Operation not permitted (needs CAP_BPF and CAP_PERFMON): {}, or drop \"exact\" from meters",
                remedy()
            )
        );
        assert_eq!(
            refused(None),
            "meter exact: load: Operation not permitted: drop \"exact\" from meters"
        );
    }
}
