//! Merges times of a trial's workers: response times, also by group, and times of each operation of a
//! program.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use tcpcost_study::{FlowGroup, HostName, OperationRecord};
use tcpcost_workload::OperationFound;

use crate::readings;
use crate::worker::WorkerReadings;
use crate::{PrepareError, failed};

/// Response times of each group that has a name.
pub(super) fn response_times_by_group(
    groups: &[FlowGroup],
    found: &mut [WorkerReadings],
) -> Result<BTreeMap<HostName, String>, PrepareError> {
    let mut by_group = BTreeMap::new();
    for (index, group) in groups.iter().enumerate() {
        let Some(name) = group.name else {
            continue;
        };
        let taken = found.iter_mut();
        let taken = taken.filter_map(|found| found.group_response_times.get_mut(index)?.take());
        if let Some(text) = response_times(taken).map_err(failed)? {
            by_group.insert(name, text);
        }
    }
    Ok(by_group)
}

/// Times of each operation of each program, merged over all workers.
pub(super) fn operations(
    groups: &[FlowGroup],
    found: &[WorkerReadings],
) -> Result<Vec<OperationRecord>, PrepareError> {
    let mut records = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        let Some(program) = &group.settings.program else {
            continue;
        };
        for (number, (place, operation)) in program.timed().into_iter().enumerate() {
            let of_worker =
                |found: &WorkerReadings| found.operations.get(index)?.get(number).cloned();
            let each: Vec<OperationFound> = found.iter().filter_map(of_worker).collect();
            // The side that mirrors a program records no times.
            if each.is_empty() {
                continue;
            }
            let (count, failed) = each.iter().fold((0, 0), |(count, failed), one| {
                (count + one.times.len(), failed + one.failed)
            });
            let times = each.into_iter().map(|one| one.times);
            records.push(OperationRecord {
                group: group.name,
                place,
                operation: operation.label(),
                count,
                failed,
                time_hdr: response_times(times).map_err(super::failed)?,
            });
        }
    }
    Ok(records)
}

/// Merges response times into one histogram and encodes it. `None` if there are none.
pub(super) fn response_times(
    found: impl Iterator<Item = Histogram<u64>>,
) -> anyhow::Result<Option<String>> {
    let mut all: Option<Histogram<u64>> = None;
    for histogram in found {
        match &mut all {
            Some(all) => all.add(histogram)?,
            None => all = Some(histogram),
        }
    }
    all.filter(|all| !all.is_empty())
        .map(|all| readings::encode(&all))
        .transpose()
}
