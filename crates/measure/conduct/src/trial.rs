//! One trial: prepare the hosts, connect, run, read, close, and make the record.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use rustix::rand::GetRandomFlags;
use tcpcost_agent::protocol::{
    Answer, Ask, CaptureRequest, Measured, Prepare, Sampling, Span, TestedPort, clock_ns,
};
use tcpcost_host::folder::Folder;
use tcpcost_study::units::nanos;
use tcpcost_study::{Bed as Kind, DeviceOwner, DeviceSettings};
use tcpcost_study::{
    Cell, ClockOffset, ClockOffsets, CpuDistance, HostName, KnobError, Knobs, LinkKind, Machine,
    MeterName, Outcome, Reach, Record, SCHEMA_VERSION, Shared, Side, StackKind, Study, Topology,
    Warning, WarningCode,
};

use super::ask_error::{AskError, out_of_turn};
use super::bed::Bed;
use super::cpu_owners::cpu_owners;
use super::directory::CAPTURES;
use super::events::Events;
use super::needs;
use super::phases::{self, ByHost, OwnCpus, Ports, clock_offset, connect, distances};
use super::placement::Placement;
use super::warnings;

/// Delay of the start, so that the order to run reaches all agents of a busy machine before traffic starts.
const HEAD_START_NS: u64 = 5_000_000;
/// Time for which traffic continues after the second snapshot.
const TAIL_NS: u64 = 10_000_000;

/// A trial to run.
pub struct Trial<'a> {
    /// Study of the trial.
    pub study: &'a Study,
    /// Cell that is measured.
    pub cell: &'a Cell,
    /// Number of the cell in the study, from 1. A captured trial has the number of its original cell.
    pub number: usize,
    /// Folder of the captures.
    pub captures: Option<&'a Folder>,
    /// Number of the repetition, from 0.
    pub repetition: u32,
    /// Number of the attempt, from 0.
    pub attempt: u32,
    /// Warnings about the whole run, which each record has.
    pub warnings: &'a [Warning],
}

/// Error that concerns more than the trial.
pub enum TrialError {
    /// Ctrl-C: no record.
    Interrupted,
    /// The bed is unusable; the record says why.
    Bed(Box<Record>),
    /// The first of these hosts could not connect to the second; the record says why.
    Unreached(Box<Record>, [HostName; 2]),
}

/// Measurements of a trial.
struct TrialFindings {
    hosts: ByHost<Measured>,
    distances: Vec<CpuDistance>,
}

impl Trial<'_> {
    /// Runs the trial over these hosts and links. A failure or skip gives a record, too.
    pub fn run(
        &self,
        bed: &mut Bed,
        topology: &Topology,
        events: &Events,
    ) -> Result<Record, TrialError> {
        let mut record = self.record(bed.kind, topology, bed.machines.clone());
        match self.measure(bed, topology, events) {
            Ok((found, mut warnings)) => {
                record.cpu_distances = found.distances;
                warnings.extend(warnings::stopped(&found.hosts));
                let mut others = BTreeMap::new();
                for (host, measured) in found.hosts {
                    for more in measured.warnings.into_iter().map(warning) {
                        // Most warnings are about the machine, and all its hosts give them.
                        if !warnings.contains(&more) {
                            warnings.push(more);
                        }
                    }
                    others.insert(host, measured.others);
                    record.hosts.insert(host, Box::new(measured.record));
                }
                remove_duplicate_sysctls(&mut record);
                record.warnings = warnings;
                // A captured trial gets no warnings that depend on the load of other tasks.
                if !record.captured {
                    record.warnings.extend(warnings::judge(
                        &record,
                        self.study.measure.others_max,
                        &others,
                    ));
                    if self.study.asks_for_rate(&self.cell.knobs) {
                        let missed = record.warnings.iter_mut();
                        let missed = missed.filter(|one| one.code == WarningCode::RateMissed);
                        // Without an extent no rate is too low.
                        missed.for_each(|one| one.extent = None);
                    }
                }
                record.warnings.extend_from_slice(self.warnings);
                record.fail_if_incomplete();
            }
            Err(AskError::Interrupted) => return Err(TrialError::Interrupted),
            Err(AskError::Unsupported(error)) => {
                let reason = error.to_string();
                record.outcome = Outcome::Skipped { reason };
            }
            Err(error @ AskError::Unreached { on, to, .. }) => {
                record.outcome = Outcome::Failed {
                    reason: error.to_string(),
                };
                return Err(TrialError::Unreached(Box::new(record), [on, to]));
            }
            Err(error @ AskError::Failed(..)) => {
                record.outcome = Outcome::Failed {
                    reason: error.to_string(),
                };
            }
            Err(error @ (AskError::Gone(..) | AskError::Unfit(..))) => {
                record.outcome = Outcome::Failed {
                    reason: error.to_string(),
                };
                return Err(TrialError::Bed(Box::new(record)));
            }
        }
        Ok(record)
    }

    /// Record of a trial that could not begin because of `error`. The bed cannot be used again, because answers may be lost.
    pub fn not_begun(&self, bed: &Bed, topology: &Topology, error: &AskError) -> TrialError {
        if matches!(error, AskError::Interrupted) {
            return TrialError::Interrupted;
        }
        let mut record = self.record(bed.kind, topology, bed.machines.clone());
        record.outcome = Outcome::Failed {
            reason: error.to_string(),
        };
        TrialError::Bed(Box::new(record))
    }

    /// Record without measurements.
    pub fn record(
        &self,
        bed: Kind,
        topology: &Topology,
        machines: BTreeMap<String, Machine>,
    ) -> Record {
        Record {
            schema_version: SCHEMA_VERSION,
            study: self.study.name.clone(),
            cell: self.cell.name.clone(),
            knobs: self.cell.knobs.clone().into(),
            repetition: self.repetition,
            attempt: self.attempt,
            seed: self.study.measure.seed,
            started: jiff::Timestamp::now()
                .strftime("%Y-%m-%dT%H:%M:%S%.3fZ")
                .to_string(),
            bed: bed.word().to_string(),
            captured: self.cell.captured.is_some(),
            interval_ns: nanos(self.study.times(self.cell).1),
            took_ns: None,
            work: self.study.measure.work,
            outcome: Outcome::Measured,
            warnings: Vec::new(),
            cpu_distances: Vec::new(),
            topology: topology.clone().into(),
            machines: shared(machines),
            hosts: BTreeMap::new(),
        }
    }

    fn measure(
        &self,
        bed: &mut Bed,
        topology: &Topology,
        events: &Events,
    ) -> Result<(TrialFindings, Vec<Warning>), AskError> {
        let mut warnings = Vec::new();
        let placed = bed.place(topology, &self.cell.knobs)?;
        if let Some(cpu) = bed.only_cpu(&placed, &self.cell.knobs) {
            let text = format!(
                "both ends share CPU {cpu}, the only one for this process: CPU time is measured for both together, and bytes are still in its cache when the other end reads them, unlike between two machines; allow a second CPU"
            );
            warnings.push(Warning::new(WarningCode::Other, text));
        }
        let ports = self.prepare(bed, topology, &placed, events, &mut warnings)?;
        let outcome = self.traffic(bed, topology, &placed, events, ports);
        // These errors end the bed, so its hosts need not finish. After `Unreached` the listening host would wait half a minute for
        // connections.
        if matches!(
            outcome,
            Err(AskError::Interrupted | AskError::Gone(..) | AskError::Unreached { .. })
        ) {
            return outcome.map(|found| (found, warnings));
        }
        // Hosts finish after another failure, too, so that the next trial starts clean.
        let hosts: Vec<HostName> = topology.names().collect();
        let finished = bed.nodes.call_all(events, &hosts, |_| Ask::Finish)?;
        let mut found = outcome?;
        for (host, answer) in finished {
            let Answer::Finished { captured } = answer else {
                return Err(out_of_turn(host, &answer));
            };
            if let (Some(captured), Some(measured)) = (captured, found.hosts.get_mut(&host)) {
                let mut capture = captured.capture;
                if let Some(lost @ 1..) = capture.dropped {
                    measured.warnings.push(format!(
                        "capture of the {host}'s {}: {lost} packets found no room in the buffer, so no count includes them",
                        capture.place
                    ));
                }
                capture.file = format!("{CAPTURES}/{}", self.file(host));
                measured.record.readings.extend(captured.readings);
                measured.record.capture = Some(capture.into());
            }
        }
        Ok((found, warnings))
    }

    /// File name of a host's capture: cell, repetition, host.
    fn file(&self, host: HostName) -> String {
        format!("{:02}-{}-{host}.pcapng", self.number, self.repetition)
    }

    /// Capture that a host must make. `None` if the trial is not captured, or the host is no end of connections or has several devices.
    fn capturing(&self, topology: &Topology, host: HostName) -> Option<CaptureRequest> {
        let cell = self.cell.captured.as_ref()?;
        let is_own = topology.host(host).is_none_or(|host| host.reach.is_own());
        // On this machine the open folder is used, because its path may lead elsewhere by now. Another machine uses its own folder of that path.
        let folder = match is_own {
            true => self.captures?.proc_path(),
            false => self.captures?.path().to_path_buf(),
        };
        let has_one = tested_ports(topology, host).len() == 1 && topology.side(host).is_some();
        let (study, repetition) = (&self.study.name, self.repetition);
        has_one.then(|| CaptureRequest {
            file: folder.join(self.file(host)),
            snap_len: self.study.measure.capture.snap_len,
            comment: format!(
                "tcpcost: study {study}, cell \"{cell}\", repetition {repetition}, {host}"
            ),
        })
    }

    /// Prepares the hosts one after the other, because on loopback the second reads the settings of the first.
    fn prepare(
        &self,
        bed: &mut Bed,
        topology: &Topology,
        placed: &Placement,
        events: &Events,
        warnings: &mut Vec<Warning>,
    ) -> Result<ByHost<Ports>, AskError> {
        let knobs = &self.cell.knobs;
        one_device(topology, knobs)?;
        let token = token();
        let links = topology.links.iter();
        let addresses = links.flat_map(|link| [link.a.address, link.b.address]);
        let addresses: Vec<IpAddr> = addresses.collect();
        let meters = self.study.meters(self.cell);
        let own_cpus = OwnCpus::new(bed, topology, placed);
        let cpu_owners = cpu_owners(bed, topology, placed, knobs);
        let mut ports = ByHost::new();
        for (index, host) in topology.hosts.iter().enumerate() {
            let name = host.name;
            let machine = bed.nodes.hello(name).machine.clone();
            let mates = bed.nodes.on_machine(&machine);
            let own_pids = mates.iter().map(|&mate| bed.nodes.hello(mate).pid);
            let sampled = own_cpus.own(name);
            let sampling = meters.contains(&MeterName::Profile) && !sampled.is_empty();
            let of_kernel = mates
                .iter()
                .find(|&&mate| stack(topology, mate) == StackKind::Kernel);
            let is_first = of_kernel == Some(&name);
            let prepare = Prepare {
                host: name,
                side: topology.side(name),
                times: topology.times(name).max(1),
                knobs: knobs.clone(),
                cpus: placed[&name].clone(),
                instances: match host.stack {
                    StackKind::User => bed.instances(topology, knobs),
                    StackKind::Kernel => 0,
                },
                ports: tested_ports(topology, name),
                owner: bed.owner(name),
                changes_device: match bed.owner(name) {
                    DeviceOwner::Bed => bed.owns(name),
                    DeviceOwner::Loopback => host.reach == Reach::Local && index == 0,
                    // If a machine is two hosts, the listening one changes the device.
                    DeviceOwner::Host => name.half_of().is_none(),
                },
                held: is_first.then(|| filled_queues(topology, &mates, knobs)),
                needs: (mates.first() == Some(&name)).then(|| {
                    let cpus = |host| placed.get(&host).map_or(1, Vec::len);
                    let instances = bed.instances(topology, knobs);
                    needs::of_machine(topology, knobs, &mates, cpus, instances)
                }),
                netem: bed.by_netem(),
                steering: bed.steers(name, knobs),
                meters: meters
                    .iter()
                    .copied()
                    .filter(|meter| match meter {
                        MeterName::Netstat => !bed.disturbs_other(name),
                        MeterName::Exact => !sampled.is_empty() || cpu_owners.contains_key(&name),
                        // If several hosts share CPUs, the first host's meters count for all: when two hundred hosts
                        // read all tasks of their machine at the start, traffic began seconds late.
                        MeterName::Perf | MeterName::Others => !sampled.is_empty(),
                        _ => true,
                    })
                    .collect(),
                by_connection: self.study.measure.by_connection,
                series_ns: self.series().map(nanos),
                sampling: sampling.then_some(Sampling {
                    hz: self.study.measure.profile_hz,
                    cpus: sampled,
                }),
                capture: self.capturing(topology, name),
                own_pids: own_pids
                    .chain(bed.wires.iter().copied())
                    .chain([std::process::id()])
                    .collect(),
                cpu_owner: cpu_owners.get(&name).copied(),
                mates: u32::try_from(mates.len()).expect("there are at most some hundred hosts"),
                addresses: addresses.clone(),
                token: token.clone(),
                // Different seeds, so that hosts start at different times within the first period of a rate.
                seed: self.study.measure.seed.wrapping_add((index as u64) << 32),
            };
            let ask = Ask::Prepare(Box::new(prepare));
            let answer = bed.nodes.call(events, name, &ask)?;
            let Answer::Prepared {
                ports: read,
                warnings: more,
            } = answer
            else {
                return Err(out_of_turn(name, &answer));
            };
            ports.insert(name, read);
            warnings.extend(more.into_iter().map(warning));
        }
        Ok(ports)
    }

    /// Time between samples of a series. It is longer than the study says in a long interval.
    fn series(&self) -> Option<Duration> {
        let asked = self.study.measure.series?;
        Some(asked.max(self.study.measure.duration / SAMPLES_MAX))
    }

    /// Connects the hosts, orders all to run at once, and collects their measurements.
    fn traffic(
        &self,
        bed: &mut Bed,
        topology: &Topology,
        placed: &Placement,
        events: &Events,
        mut ports: ByHost<Ports>,
    ) -> Result<TrialFindings, AskError> {
        let groups = self.cell.knobs.group_names().len().max(1);
        connect(bed, topology, events, groups, &mut ports)?;
        let own_cpus = OwnCpus::new(bed, topology, placed);
        let meters = self.study.meters(self.cell);
        if meters.contains(&MeterName::Soak) {
            // Hosts that share CPUs have one spinner, that of the first host.
            let soaking: Vec<HostName> = topology
                .names()
                .filter(|&host| own_cpus.has_all(host))
                .collect();
            bed.nodes.call_all(events, &soaking, |_| Ask::Soak)?;
        }
        let mut distances = distances(bed, topology, placed, events)?;
        let hosts: Vec<HostName> = topology.names().collect();
        let work = self.work(topology)?;
        let mut before = ByHost::new();
        for &host in &hosts {
            before.insert(host, clock_offset(bed, host, events)?);
        }
        let span = span(self.study.times(self.cell), head_start_ns(&before));
        bed.nodes.run_takes = Duration::from_nanos(span.stop_ns);
        let now_ns = clock_ns();
        let answers = bed.nodes.call_all(events, &hosts, |host| {
            // Converted to the agent's clock.
            let now_ns = now_ns.wrapping_add_signed(before[&host].offset_ns);
            Ask::Run(Span {
                from_ns: now_ns + span.from_ns,
                to_ns: now_ns + span.to_ns,
                stop_ns: now_ns + span.stop_ns,
                work_bytes: work.get(&host).copied(),
            })
        })?;
        for distance in &mut distances {
            distance.after_ns = phases::ask_distance(bed, distance.cpus, events)?;
        }
        let mut after = ByHost::new();
        if bed.kind == Kind::Hosts {
            for &host in &hosts {
                after.insert(host, clock_offset(bed, host, events)?);
            }
        }
        let mut found = ByHost::new();
        for (host, answer) in answers {
            let Answer::Measured(mut measured) = answer else {
                return Err(out_of_turn(host, &answer));
            };
            measured.record.machine = bed.nodes.hello(host).machine.clone();
            measured.record.ports = shared(ports.remove(&host).expect("every host was prepared"));
            if let Some(&after) = after.get(&host) {
                measured.record.clock = Some(ClockOffsets {
                    before: before[&host],
                    after,
                    late_ns: measured.late_ns,
                });
                in_time(host, &measured, span)?;
            }
            found.insert(host, *measured);
        }
        Ok(TrialFindings {
            hosts: found,
            distances,
        })
    }
}

impl Trial<'_> {
    /// Bytes that end each host's interval, if the study asks for work instead of time.
    fn work(&self, topology: &Topology) -> Result<ByHost<u64>, KnobError> {
        let Some(work) = self.study.measure.work else {
            return Ok(ByHost::new());
        };
        let mut bytes = ByHost::new();
        for host in topology.names() {
            if topology.side(host).is_none() {
                let reason = "a host in the middle has no fixed amount of work, only a duration";
                return Err(KnobError::new("topology", reason));
            }
            let of_host = work.bytes_of_host(&self.cell.knobs, topology.times(host));
            bytes.insert(host, of_host?);
        }
        Ok(bytes)
    }
}

/// Devices of a host, each once. A named host has one device for all its links.
fn tested_ports(topology: &Topology, name: HostName) -> Vec<TestedPort> {
    let mut ports: Vec<TestedPort> = Vec::new();
    for (link, port, far) in topology.ports(name) {
        if !ports.iter().any(|known| known.device == port.device) {
            ports.push(TestedPort {
                device: port.device.clone(),
                address: port.address,
                prefix: link.prefix(),
                peer: peer(topology, name).unwrap_or(far.address),
            });
        }
    }
    ports
}

/// Address of the host at the other end of a host's connections. `None` if there are several such hosts.
fn peer(topology: &Topology, host: HostName) -> Option<std::net::IpAddr> {
    let mut traffic = topology.traffic.iter();
    let mut talks = traffic.by_ref().filter_map(|traffic| {
        if traffic.on == host {
            Some(traffic.to)
        } else {
            (traffic.to == host).then_some(traffic.on)
        }
    });
    match (talks.next(), talks.next()) {
        (Some(far), None) => topology.address_of(far, host),
        _ => None,
    }
}

/// Number of connections on a machine, and of filled queues of each. In each direction with payload the sender has one queue and the
/// receiver has one; only those on this machine count.
fn filled_queues(topology: &Topology, mates: &[HostName], knobs: &Knobs) -> (usize, u64) {
    let directions = Side::BOTH
        .iter()
        .filter(|&&side| knobs.sends_from(side))
        .count() as u64;
    let here = |host: HostName| u64::from(mates.contains(&host));
    let traffic = topology.traffic.iter();
    let sides: Vec<u64> = traffic
        .map(|traffic| here(traffic.on) + here(traffic.to))
        .collect();
    let flows = usize::try_from(knobs.flows()).expect("some hundred groups of 30,000 at most");
    let connections = sides.iter().filter(|&&sides| sides > 0).count() * flows;
    let sides = sides.into_iter().max().unwrap_or(0);
    (connections, sides * directions)
}

/// Removes sysctls from a machine's description if the ports of its hosts have them.
fn remove_duplicate_sysctls(record: &mut Record) {
    for host in record.hosts.values() {
        if let Some(machine) = record.machines.get_mut(&host.machine) {
            let shown = |name: &String| {
                host.ports
                    .values()
                    .any(|port| port.sysctls.contains_key(name))
            };
            machine.sysctls.retain(|name, _| !shown(name));
        }
    }
}

/// Refuses different device settings on loopback, where all hosts have the same device.
fn one_device(topology: &Topology, knobs: &Knobs) -> Result<(), KnobError> {
    let is_loopback = topology
        .links
        .iter()
        .any(|link| link.kind == LinkKind::Loopback);
    let settings = |host| DeviceSettings::from_knobs(knobs, host);
    let mut names = topology.names();
    let first = names.next().map(settings);
    if !is_loopback || names.all(|host| Some(settings(host)) == first) {
        return Ok(());
    }
    let knob = knobs.named().map(|(_, knob)| knob).next().unwrap_or("bed");
    let reason = "needs the netns bed: on loopback both ends have the same device";
    Err(KnobError::new(knob, reason))
}

fn stack(topology: &Topology, host: HostName) -> StackKind {
    let host = topology.host(host);
    host.map_or(StackKind::Kernel, |host| host.stack)
}

fn warning(text: String) -> Warning {
    Warning::new(WarningCode::Other, text)
}

/// Refuses a measurement whose snapshots are off by more than half of the interval, because the host was stopped or had no CPU.
fn in_time(host: HostName, measured: &Measured, span: Span) -> Result<(), AskError> {
    let asked_ns = span.to_ns - span.from_ns;
    let off_ns = measured.late_ns.max(measured.took_ns.abs_diff(asked_ns));
    if off_ns <= (asked_ns / 2).max(OFF_LEAST_NS) {
        return Ok(());
    }
    let ms = |ns: u64| ns / 1_000_000;
    let reason = format!(
        "its meters were read {} ms late and {} ms apart instead of {} ms: the host was stopped, or had no CPU",
        ms(measured.late_ns),
        ms(measured.took_ns),
        ms(asked_ns)
    );
    Err(AskError::Failed(host, reason))
}

/// Deviation that is always tolerated. With many more threads than CPUs, a worker waits some hundred milliseconds for a CPU.
const OFF_LEAST_NS: u64 = 1_000_000_000;

/// Delay of the start, so that the order to run reaches all hosts: the longest round trip, and time for writing each order.
fn head_start_ns(clocks: &ByHost<ClockOffset>) -> u64 {
    let farthest = clocks.values().map(|clock| 2 * clock.error_ns).max();
    HEAD_START_NS + 2 * farthest.unwrap_or(0) + clocks.len() as u64 * ORDER_NS
}

/// Time to write a line to a pipe and wake its reader.
const ORDER_NS: u64 = 50_000;

/// Times of a trial, from the order to run.
fn span((warm_up, duration): (Duration, Duration), head_start_ns: u64) -> Span {
    let from_ns = head_start_ns + nanos(warm_up);
    let to_ns = from_ns + nanos(duration);
    Span {
        from_ns,
        to_ns,
        stop_ns: to_ns + TAIL_NS,
        work_bytes: None,
    }
}

/// Limit on the samples of a series: an answer has some 4 MiB then.
const SAMPLES_MAX: u32 = 50_000;

/// Random token of 128 bits, in hexadecimal.
fn token() -> String {
    let mut bytes = [0u8; 16];
    let filled = rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty());
    assert_eq!(
        filled,
        Ok(16),
        "getrandom of 16 bytes never fails once the kernel is up (random(7))"
    );
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
/// A map as a record has it.
fn shared<T>(values: BTreeMap<String, T>) -> Shared<BTreeMap<String, Shared<T>>> {
    let each = values.into_iter();
    let each = each.map(|(name, value)| (name, value.into()));
    BTreeMap::from_iter(each).into()
}
