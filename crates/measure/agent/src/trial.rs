//! One host through one trial: knobs, workers, snapshots, and the host's record.

mod ports;
mod sizes;
mod times;
mod turn;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tcpcost_meter::Meter;
use tcpcost_meter::memory::{MemoryUse, give_back_freed};
use tcpcost_meter::other_tasks::OtherTasks;
use tcpcost_stack::limits;
use tcpcost_study::{
    Brackets, ByConnection, Carrier, CountOwner, DeviceOwner, DeviceSettings, Environment,
    FlowGroup, HostName, HostRecord, KnobError, MeterName, Quantity, Reading, Side, Snapshot,
    WaitsBy, WireSettings,
};

use self::ports::{Opened, Ports, closes_first};
use self::sizes::{files, flows, threads};
use self::times::{operations, response_times, response_times_by_group};
pub use self::turn::open_journal;
use self::turn::{check_limits, filter_acks, turn, until_carried};
use crate::ack_filter::AckFilter;
use crate::backend::{self, Backend, OpenConnections};
use crate::capture::Capture;
use crate::captured::read_capture;
use crate::deal;
use crate::lane::{LaneCounts, LaneMeter, LaneSettings};
use crate::protocol::{Answer, CaptureResult, Measured, Prepare, Span, clock_ns, realtime_ns};
use crate::readings::{self, warning};
use crate::relays::Relays;
use crate::soak::Soak;
use crate::wire::Wire;
use crate::worker::{EndHandover, Listening, Role, WorkerConfig, WorkerReadings, WorkerThread};
use crate::{PrepareError, failed, policy, space};
use tcpcost_host::cpu_quota::CpuQuota;
use tcpcost_host::environment;
use tcpcost_host::journal::Journal;
use tcpcost_host::{netem, nic, sysctl};

/// Limit on set-up time, plus a millisecond for each connection. Hosts connect one after the other, and
/// 30,000 connections take some seconds on a slow host.
const SET_UP_MAX: Duration = Duration::from_secs(30);

/// A prepared host, the state of its ports as read back, and warnings, one line each.
type Prepared = (HostTrial, BTreeMap<String, Environment>, Vec<String>);

/// One host, from `prepare` to `finish`.
pub struct HostTrial {
    prepare: Prepare,
    backend: Backend,
    /// Groups of connections, with this host's settings.
    groups: Vec<FlowGroup>,
    workers: Vec<WorkerThread>,
    soak: Option<Soak>,
    /// Ports of the connections: the ports that this host listens on or connects to.
    ports: Vec<u16>,
    /// Times when the meters were read, and when TCP_INFO was read.
    brackets: Option<(Brackets, Option<Brackets>)>,
    /// Dropped with the trial, after its workers.
    filters: Vec<AckFilter>,
    capture: Option<Capture>,
    /// Set for a host that relays.
    relays: Option<Relays>,
    /// Set for the host where a wire begins.
    wire: Option<Wire>,
    /// Set for a host that takes turns with another.
    handover: Option<EndHandover>,
    /// The wires in front of the instances of our TCP.
    lanes: Vec<(LaneSettings, Arc<LaneCounts>)>,
    /// Meters that are unavailable, one line each.
    warnings: Vec<String>,
    /// Reading of the set-up, once the connections are up.
    set_up: Option<Reading>,
}

impl HostTrial {
    /// Sets the knobs and reads them back.
    pub fn prepare(
        prepare: Prepare,
        backend: Backend,
        wire: Option<(HostName, Wire)>,
        handover: Option<EndHandover>,
        journal: &mut Option<Journal>,
    ) -> Result<Prepared, PrepareError> {
        let groups = prepare.knobs.groups_at(prepare.host, prepare.times);
        let groups = groups.map_err(failed)?;
        policy::check(&prepare, &groups)?;
        if let Some(needs) = &prepare.needs {
            space::check(needs, &prepare.knobs)?;
        }
        let device = DeviceSettings::from_knobs(&prepare.knobs, prepare.host);
        // Removes what an earlier trial left in the handover, before the other host uses it: the host
        // that connects is prepared first.
        if let (Some(handover), Some(Side::Connects)) = (&handover, prepare.side) {
            handover.clear();
        }
        if let Some(journal) = journal {
            journal.put_back().map_err(failed)?;
        }
        if prepare.changes_device {
            turn(&prepare, &device, journal)?;
        }
        until_carried(&prepare)?;
        set_wires(&prepare, wire.as_ref())?;
        let filters = match device.ack_filter {
            Some(rule) => filter_acks(&prepare, rule)?,
            None => Vec::new(),
        };
        let (mut ports, warnings) = if backend.is_kernel() {
            let ports = read_ports(&prepare, &device)?;
            // Two ends in one thread share a file table.
            let ends = if handover.is_some() { 2 } else { 1 };
            let files = ends * files(&groups);
            let mut warnings = check_limits(files, prepare.side, threads(&groups, &prepare))?;
            warnings.extend(far_from_nics(&prepare, &ports));
            (ports, warnings)
        } else {
            let ports = backend::prepare(&backend, &prepare, &device)?;
            (ports, Vec::new())
        };
        if WireSettings::are_set(&prepare.knobs) {
            let carrier = match prepare.netem {
                true => Carrier::Netem,
                false => Carrier::Own,
            };
            for port in ports.values_mut() {
                port.carrier = Some(carrier.word().to_string());
            }
        }
        let capture = prepare
            .capture
            .as_ref()
            .map(|asked| Capture::start(&prepare, asked, backend.is_kernel()))
            .transpose()
            .map_err(|error| KnobError::new("capture", format!("{error:#}")))?;
        let has_both = matches!(backend, Backend::Tap(_));
        let lane = match backend.is_kernel() {
            true => None,
            false => LaneSettings::new(&prepare.knobs, prepare.host, has_both, prepare.seed),
        };
        let lanes = lane.iter().flat_map(|&lane| {
            let instances = 0..prepare.instances;
            instances.map(move |_| (lane, Arc::default()))
        });
        Ok((
            HostTrial {
                lanes: lanes.collect(),
                prepare,
                backend,
                groups,
                workers: Vec::new(),
                soak: None,
                ports: Vec::new(),
                brackets: None,
                filters,
                capture,
                relays: None,
                wire: wire.map(|(_, wire)| wire),
                handover,
                warnings: Vec::new(),
                set_up: None,
            },
            ports,
            warnings,
        ))
    }

    /// Starts workers that listen. Returns their addresses, and the eBPF programs that other hosts of this
    /// machine may share.
    pub fn listen(&mut self) -> Result<Listening, PrepareError> {
        let threads = self.threads();
        let each = self.groups.iter();
        let each = each.map(|group| group.settings.connections() / group.times.max(1));
        let flows_each = each.max().unwrap_or(0);
        let ports = limits::ports_for(flows_each).div_ceil(threads);
        for index in 0..threads {
            let role = Role::Listen {
                address: self.listens_on(),
                ports,
            };
            self.start(index, role, BTreeMap::new())?;
        }
        let mut all = Listening::default();
        let mut by_worker = Vec::new();
        for worker in &self.workers {
            let listening = worker.listening().map_err(PrepareError::because)?;
            by_worker.push(listening.addresses);
            all.loaded.extend(listening.loaded);
        }
        all.addresses = deal::by_group(&by_worker, self.groups.len());
        self.ports = all.addresses.iter().map(SocketAddr::port).collect();
        self.set_up();
        Ok(all)
    }

    /// Address to listen on: the only port's address, or any.
    fn listens_on(&self) -> IpAddr {
        match self.prepare.ports.as_slice() {
            [port] => port.address,
            ports if ports.iter().any(|port| port.address.is_ipv6()) => {
                Ipv6Addr::UNSPECIFIED.into()
            }
            _ => Ipv4Addr::UNSPECIFIED.into(),
        }
    }

    /// Refuses a target that is not a host of the trial, also if the command sent it.
    fn check_targets(&self, targets: &[SocketAddr]) -> Result<(), PrepareError> {
        let known = &self.prepare.addresses;
        match targets.iter().find(|target| !known.contains(&target.ip())) {
            None => Ok(()),
            Some(target) => Err(PrepareError::Failed(format!(
                "refuses to connect to {target}: not a host of this trial"
            ))),
        }
    }

    pub fn connect(
        &mut self,
        targets: &[SocketAddr],
        loaded: &BTreeMap<MeterName, String>,
    ) -> Result<(), PrepareError> {
        self.check_targets(targets)?;
        self.ports = targets.iter().map(SocketAddr::port).collect();
        for index in 0..self.threads() {
            self.start(
                index,
                Role::Connect {
                    targets: targets.to_vec(),
                },
                loaded.clone(),
            )?;
        }
        self.set_up();
        Ok(())
    }

    /// Starts a relay for each of `targets`. Returns the relays' addresses in the same order.
    pub fn relay(&mut self, targets: &[SocketAddr]) -> Result<Vec<SocketAddr>, PrepareError> {
        self.check_targets(targets)?;
        let address = match self.listens_on() {
            // The wildcard address, which any host of the bed can reach.
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let relays = Relays::start(&self.prepare, &self.groups, &self.backend, address, targets)?;
        let addresses = relays.addresses();
        self.relays = Some(relays);
        Ok(addresses)
    }

    /// Starts a worker that only reads the meters.
    pub fn observe(&mut self, loaded: &BTreeMap<MeterName, String>) -> Result<(), PrepareError> {
        self.start(0, Role::Observe, loaded.clone())?;
        self.set_up();
        Ok(())
    }

    /// Ends the workers. If the trial is captured, ends the capture and reads it.
    pub fn finish(mut self) -> anyhow::Result<Option<CaptureResult>> {
        let (capture, asked) = (self.capture.take(), self.prepare.capture.clone());
        let (side, brackets) = (self.prepare.side, self.brackets);
        let kind = self.prepare.knobs.workload_kind();
        let ports = std::mem::take(&mut self.ports);
        drop(self);
        let stopped = capture.map(Capture::stop).transpose()?;
        let (Some(stopped), Some(asked), Some(side), Some((snapshots, tcp_info))) =
            (stopped, asked, side, brackets)
        else {
            return Ok(None);
        };
        let read = read_capture(&asked, side, kind, ports, &snapshots)?;
        Ok(Some(CaptureResult {
            capture: tcpcost_study::Capture {
                file: asked.file.to_string_lossy().into_owned(),
                place: stopped.place,
                snap_len: asked.snap_len,
                packets: stopped.packets,
                dropped: stopped.dropped,
                snapshots,
                tcp_info,
                opening: read.opening,
            },
            readings: read.readings,
        }))
    }

    fn threads(&self) -> usize {
        if self.backend.is_kernel() {
            threads(&self.groups, &self.prepare)
        } else {
            self.prepare.instances
        }
    }

    fn start(
        &mut self,
        index: usize,
        role: Role,
        loaded: BTreeMap<MeterName, String>,
    ) -> Result<(), PrepareError> {
        if index == 0 {
            give_back_freed();
        }
        let config = WorkerConfig {
            index,
            threads: self.threads(),
            backend: self.backend.clone(),
            lane: self.lanes.get(index).cloned(),
            capture: self.capture.as_ref().and_then(Capture::wire),
            meters: match index {
                0 => {
                    let filters = AckFilter::meter(&self.filters).into_iter();
                    let relays = self.relays.as_ref().and_then(Relays::meter);
                    let wire = self.wire.iter().map(|wire| Box::new(wire.clone()) as _);
                    let lanes = self.lanes.iter().map(|(_, counts)| Arc::clone(counts));
                    let lanes: Vec<_> = lanes.collect();
                    let lanes = (!lanes.is_empty()).then(|| Box::new(LaneMeter(lanes)) as _);
                    filters.chain(relays).chain(wire).chain(lanes).collect()
                }
                _ => Vec::new(),
            },
            loaded,
            handover: self.handover.clone(),
        };
        let worker = WorkerThread::start(config, &self.prepare, &self.groups, role);
        self.workers.push(worker.map_err(failed)?);
        Ok(())
    }

    fn set_up(&mut self) {
        let connections = u32::try_from(flows(&self.groups)).unwrap_or(u32::MAX);
        let deadline = Instant::now() + SET_UP_MAX + Duration::from_millis(1) * connections;
        self.workers
            .iter_mut()
            .for_each(|worker| worker.set_up(deadline));
    }

    /// Waits until all connections are up.
    pub fn connected(&mut self) -> Result<Answer, PrepareError> {
        let mut all = OpenConnections::default();
        let mut failures = Vec::new();
        for worker in &self.workers {
            match worker.ready() {
                Ok(ready) => {
                    all.connections += ready.connections;
                    if all.memory == MemoryUse::default() {
                        all.memory = ready.memory;
                    }
                    all.set_up_ns = all.set_up_ns.max(ready.set_up_ns);
                    all.mss = all.mss.or(ready.mss);
                    all.congestion_control = all.congestion_control.or(ready.congestion_control);
                    if all.knobs.is_empty() {
                        all.knobs = ready.knobs;
                    }
                }
                Err(error) => failures.push(error),
            }
        }
        if let Some(error) = failures.first() {
            return Err(PrepareError::because(error));
        }
        self.set_up = self.set_up_reading(&all);
        let OpenConnections {
            connections,
            congestion_control,
            mss,
            knobs,
            ..
        } = all;
        Ok(Answer::Connected {
            connections,
            congestion_control,
            mss,
            connection: knobs,
        })
    }

    /// Reading of the set-up: its duration and memory. `None` without connections.
    fn set_up_reading(&self, ready: &OpenConnections) -> Option<Reading> {
        let memory = MemoryUse::read(Path::new("/proc")).since(ready.memory);
        let connects = self.prepare.side == Some(Side::Connects);
        let counts = [
            (Quantity::ConnectionsSetUp, Some(ready.connections as u64)),
            // A host that listens waits for the others first.
            (Quantity::SetUpNs, connects.then_some(ready.set_up_ns)),
            (Quantity::SetUpProcessBytes, memory.process_bytes),
            (Quantity::SetUpSlabBytes, memory.slab_bytes),
        ];
        (ready.connections > 0).then(|| Reading {
            meter: MeterName::SetUp,
            whose: CountOwner::Workload,
            duration_ns: ready.set_up_ns,
            counts: counts
                .into_iter()
                .filter_map(|(quantity, count)| Some((quantity, count?)))
                .collect(),
        })
    }

    /// Starts the soaker and calibrates it. Both ends must be idle. If it is unavailable, the trial goes on
    /// with a warning.
    pub fn soak(&mut self) {
        match Soak::start(&self.prepare.cpus) {
            Ok(soak) => self.soak = Some(soak),
            Err(error) => self.warnings.push(warning(&error)),
        }
    }

    /// Runs traffic over the span and reads the meters at its two instants. `quota`: of this process.
    pub fn run(&mut self, span: Span, quota: Option<&CpuQuota>) -> Result<Measured, PrepareError> {
        let periods = quota.map(CpuQuota::periods);
        // The workers note the times of their readings by the clock that stamps captured packets.
        let realtime_ahead_ns = realtime_ns().wrapping_sub(clock_ns());
        // Reading every task takes milliseconds, so it is done outside the span. Its duration is longer by
        // that time.
        let wants_other_tasks = self.prepare.meters.contains(&MeterName::Others);
        let mut others =
            wants_other_tasks.then(|| OtherTasks::new(&self.prepare.cpus, &self.prepare.own_pids));
        let before = others
            .as_mut()
            .map(|others| others.snapshot())
            .transpose()
            .map_err(failed)?;

        let span = Span {
            work_bytes: span
                .work_bytes
                .map(|bytes| bytes.div_ceil(self.workers.len().max(1) as u64)),
            ..span
        };
        self.workers.iter_mut().for_each(|worker| worker.run(span));
        let soaked = self
            .soak
            .as_mut()
            .map(|soak| soak.measure(span))
            .transpose()?;
        self.soak = None; // The spinners end.
        let found: Vec<_> = self.workers.iter().map(WorkerThread::found).collect();
        let found: anyhow::Result<Vec<WorkerReadings>> = found.into_iter().collect();
        let mut found = found.map_err(PrepareError::because)?;

        let mut readings = readings::sum(found.iter().map(|found| &found.readings[..]));
        if let Some(mut set_up) = self.set_up.take() {
            let tcp_bytes = found.iter().filter_map(|found| found.tcp_bytes).max();
            if let Some(bytes) = tcp_bytes {
                set_up.counts.insert(Quantity::TcpQueueBytes, bytes);
            }
            readings.push(set_up);
        }
        if let Some((soaked, warning)) = soaked {
            readings.extend(soaked);
            self.warnings.extend(warning);
        }
        self.warnings.extend(self.check_ports(&found, &readings));
        let mut busiest = Vec::new();
        if let (Some(others), Some(before)) = (&mut others, before) {
            let after: Snapshot = others.snapshot().map_err(failed)?;
            readings.extend(after.since(&before).map_err(failed)?);
            busiest = busiest_of(others);
        }
        let of_workers = found.iter().flat_map(|found| found.warnings.clone());
        let warnings = std::mem::take(&mut self.warnings)
            .into_iter()
            .chain(of_workers)
            .collect();
        let around = |of: fn(&WorkerReadings) -> Option<Brackets>| {
            found.iter().filter_map(of).reduce(Brackets::around)
        };
        let snapshots = around(|found| Some(found.snapshots));
        let tcp_info = around(|found| found.tcp_info);
        let profile = found.iter_mut().find_map(|found| found.profile.take());
        let series = found.iter_mut().find_map(|found| found.series.take());
        let buffers = found.iter().find_map(|found| found.buffers);
        let by_connection = by_connection(&mut found);
        let snapshots = snapshots.ok_or_else(|| PrepareError::because("no workers"))?;
        self.brackets = Some((snapshots, tcp_info));
        let told_ns = span.from_ns.wrapping_add(realtime_ahead_ns);
        let late_ns = snapshots.first_begin_ns.saturating_sub(told_ns);
        let took_ns = snapshots
            .second_begin_ns
            .saturating_sub(snapshots.first_begin_ns);
        let strangers = found.iter().map(|found| found.strangers).sum();
        let threads = self.data_threads();
        let record = HostRecord {
            cpus: self.prepare.cpus.clone(),
            threads,
            readings,
            response_time_hdr_by_group: response_times_by_group(&self.groups, &mut found)?,
            operations: operations(&self.groups, &found)?,
            response_time_hdr: response_times(
                found.into_iter().filter_map(|found| found.response_times),
            )
            .map_err(failed)?,
            profile: profile.map(Box::new),
            by_connection,
            buffers,
            series: series.map(Box::new),
            strangers,
            ..HostRecord::default()
        };
        Ok(Measured {
            record,
            others: busiest,
            warnings,
            stopped: quota
                .zip(periods)
                .and_then(|(quota, before)| quota.stopped_since(&before)),
            late_ns,
            took_ns,
        })
    }

    /// Warning if a host that closes its connections first is short of ports.
    fn check_ports(&self, found: &[WorkerReadings], readings: &[Reading]) -> Option<String> {
        if !self.backend.is_kernel() || !closes_first(&self.groups) {
            return None;
        }
        let total = found.iter().map(|found| found.connections_opened).sum();
        let opened = Opened::of(total, readings)?;
        let is_loopback = self.prepare.addresses.iter().all(IpAddr::is_loopback);
        Ports::read(sysctl::root(), is_loopback)?.check(&opened, self.ports.len())
    }

    /// Number of threads that move this host's data.
    fn data_threads(&self) -> usize {
        match self.prepare.side {
            Some(_) if self.groups[0].settings.io == WaitsBy::BlockingThreads => {
                flows(&self.groups)
            }
            Some(_) => self.workers.len(),
            None => 0,
        }
    }
}

/// Other tasks that used most CPU time, with their share of a CPU. A process that began or ended in
/// between, such as a compiler, is not among these.
fn busiest_of(others: &OtherTasks) -> Vec<String> {
    let percent = |ratio: f64| (ratio * 100.0).round();
    let top = others.top().into_iter();
    top.map(|task| format!("{} {} %", task.name, percent(task.ratio)))
        .collect()
}

/// Growth of the counts by connection. `None` if no worker read them.
fn by_connection(found: &mut [WorkerReadings]) -> Option<ByConnection> {
    let mut all = found.iter_mut();
    let [before, after] = all.find_map(|found| found.by_connection.take())?;
    let keys = found.iter().flat_map(|found| found.keys.iter().copied());
    let duration_ns = after.at_ns.saturating_sub(before.at_ns);
    ByConnection::between(&before.totals, &after.totals, keys, duration_ns)
}

/// Sets delay and loss of the ports: by netem, or of our wire to the other host.
fn set_wires(prepare: &Prepare, wire: Option<&(HostName, Wire)>) -> Result<(), PrepareError> {
    if prepare.netem {
        let settings = WireSettings::of(&prepare.knobs, prepare.host);
        for port in &prepare.ports {
            netem::set(&port.device, settings.into()).map_err(failed)?;
        }
    }
    let Some((peer, wire)) = wire else {
        return Ok(());
    };
    let ends = [prepare.host, *peer];
    let settings = ends.map(|host| WireSettings::of(&prepare.knobs, host));
    // A seed by host: each of several wires loses different packets.
    let name = prepare.host.to_string();
    let seed = name.bytes().fold(prepare.seed, |seed, byte| {
        seed.wrapping_mul(31).wrapping_add(byte.into())
    });
    wire.set(settings, seed).map_err(failed)
}

/// Warnings of CPUs that are not near the host's NICs.
fn far_from_nics(prepare: &Prepare, ports: &BTreeMap<String, Environment>) -> Vec<String> {
    let far = |(device, port): (&String, &Environment)| {
        let nic = port.nic.as_ref()?;
        let words = nic::far_from(Path::new("/sys"), device, nic, &prepare.cpus)?;
        Some(format!("{}: {words} with {0}.cpus", prepare.host))
    };
    ports.iter().filter_map(far).collect()
}

/// Reads back the state of the kernel's ports, by device.
fn read_ports(
    prepare: &Prepare,
    device: &DeviceSettings,
) -> Result<BTreeMap<String, Environment>, PrepareError> {
    let sysctls = device.sysctls.keys().cloned().collect();
    let mut ports = BTreeMap::new();
    for port in &prepare.ports {
        let name = &port.device().map_err(failed)?;
        let mut read = environment::of_port(name, port.peer, &sysctls).map_err(failed)?;
        let is_shown = device.values.keys().any(|knob| nic::shows(knob));
        if prepare.owner == DeviceOwner::Host || is_shown {
            read.nic = Some(nic::read(Path::new("/sys"), name));
        }
        ports.insert(port.device.clone(), read);
    }
    Ok(ports)
}
