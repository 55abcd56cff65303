//! Memory, disk and other needs of a study's trials, for `--dry-run` and for the agents, which check them.

use tcpcost_study::units::about_bytes;
use tcpcost_study::{HostName, Knobs, Needs, StackKind, Study, Topology, WorkloadSettings};

use super::access::bed_of;

/// Needs of these hosts, which are on one machine. `cpus`: number of CPUs of a host; `instances`: instances of our TCP. Contradictory
/// knobs need nothing, because their trial is refused.
pub fn of_machine(
    topology: &Topology,
    knobs: &Knobs,
    hosts: &[HostName],
    cpus: impl Fn(HostName) -> usize,
    instances: usize,
) -> Needs {
    let asked = WorkloadSettings::from_knobs(knobs).ok();
    let asked = asked.and_then(|settings| settings.threads);
    let each = hosts.iter().filter_map(|&name| {
        let host = topology.host(name)?;
        let threads = match host.stack {
            StackKind::User => instances,
            StackKind::Kernel => asked.unwrap_or_else(|| cpus(name)),
        };
        let times = topology.times(name).max(1);
        Needs::of(knobs, name, topology.side(name), times, threads).ok()
    });
    each.fold(Needs::default(), |sum, needs| sum.and(&needs))
}

/// One line about the cell that needs most, as far as known without the hosts. Without the knob `threads` a host counts as having one
/// thread for each of its listed CPUs, or one.
pub fn dry_run(study: &Study) -> String {
    let of_cell = |cell: &tcpcost_study::Cell| {
        let bed = bed_of(cell, &Ok(())).ok()?;
        let topology = Topology::of(bed, &cell.knobs).ok()?;
        let cpus = |name: HostName| {
            let cpus = topology.host(name).and_then(|host| host.cpus.as_ref());
            cpus.map_or(1, Vec::len)
        };
        let threads = WorkloadSettings::from_knobs(&cell.knobs).ok()?.threads;
        let hosts: Vec<HostName> = topology.names().collect();
        let instances =
            threads.unwrap_or_else(|| hosts.iter().map(|&host| cpus(host)).max().unwrap_or(1));
        Some(of_machine(&topology, &cell.knobs, &hosts, cpus, instances))
    };
    let needs = study
        .cells
        .iter()
        .map(|cell| of_cell(cell).unwrap_or_default());
    let most = (1..)
        .zip(needs)
        .max_by_key(|(_, needs)| (needs.disk_bytes, needs.memory_bytes));
    let Some((number, needs)) = most else {
        return String::new();
    };
    let disk = match needs.disk_bytes {
        0 => String::new(),
        bytes => format!("{} on disk (TMPDIR) and ", about_bytes(bytes)),
    };
    let memory = about_bytes(needs.memory_bytes);
    format!("needs up to {disk}{memory} of memory for buffers, all hosts together: cell {number}\n")
}
