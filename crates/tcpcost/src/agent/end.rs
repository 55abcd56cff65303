//! One end through one trial: knobs, workers, snapshots, and the record of what it found.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tcpcost_meter::Meter;
use tcpcost_meter::affinity::pin;
use tcpcost_meter::others::Others;
use tcpcost_stack::limits::{self, TcpLimits};
use tcpcost_study::{
    AckThinning, Brackets, DeviceSettings, End, EndRecord, Environment, Snapshot, WorkloadSettings,
};

use tcpcost_workload::CONNECTS_OUTSTANDING;

use super::capture::Capture;
use super::ground::{self, Ground};
use super::readings;
use super::soak::Soak;
use super::thinning::Thinning;
use super::worker::{Duty, Found, Place, Ready, WorkerThread};
use super::{Refusal, failed, policy};
use crate::host::apply::{ApplyError, apply, steer};
use crate::host::environment;
use crate::host::journal::Journal;
use crate::protocol::{Answer, Measured, Prepare, Span};

/// Connections are set up within this, or the trial fails: 30,000 take some seconds on a slow host.
const SET_UP_MAX: Duration = Duration::from_secs(30);

/// Files beside the connections: epoll, listeners, pipes, meters, standard streams.
const FILES_BESIDE: usize = 64;

/// One end, from `prepare` to `finish`.
pub struct AgentEnd {
    prepare: Prepare,
    ground: Ground,
    settings: WorkloadSettings,
    workers: Vec<WorkerThread>,
    soak: Option<Soak>,
    /// Ends with the trial, after its workers.
    thinning: Option<Thinning>,
    capture: Option<Capture>,
    /// Meters that could not be had, one line each.
    cautions: Vec<String>,
}

impl AgentEnd {
    /// Turns the knobs and reads them back.
    pub fn prepare(
        prepare: Prepare,
        ground: Ground,
        journal: &mut Option<Journal>,
    ) -> Result<(AgentEnd, Environment, Vec<String>), Refusal> {
        let settings = WorkloadSettings::from_knobs(&prepare.knobs).map_err(failed)?;
        let device = DeviceSettings::from_knobs(&prepare.knobs, prepare.end);
        if ground.is_kernel() {
            policy::check_kernel(&prepare)?;
        }
        if let Some(journal) = journal {
            journal.put_back().map_err(failed)?;
        }
        if prepare.changes_device {
            turn(&prepare, &device, journal)?;
        }
        // On a device that is not ours it has been refused above.
        let thinning = device
            .ack_thinning
            .filter(|_| prepare.owned)
            .map(|thinning| thin(&prepare, thinning))
            .transpose()?;
        let (environment, cautions) = if ground.is_kernel() {
            let sysctls = device.sysctls.keys().cloned().collect();
            let environment =
                environment::end(&prepare.device, prepare.peer, &sysctls).map_err(failed)?;
            let cautions = check_limits(&settings, prepare.end, threads(&settings, &prepare))?;
            (environment, cautions)
        } else {
            (ground::prepare(&ground, &prepare, &device)?, Vec::new())
        };
        let capture = prepare
            .capture
            .as_ref()
            .map(|asked| Capture::start(&prepare, asked, ground.is_kernel()))
            .transpose()
            .map_err(|error| Refusal::Unsupported {
                knob: "capture".to_string(),
                reason: format!("{error:#}"),
            })?;
        Ok((
            AgentEnd {
                prepare,
                ground,
                settings,
                workers: Vec::new(),
                soak: None,
                thinning,
                capture,
                cautions: Vec::new(),
            },
            environment,
            cautions,
        ))
    }

    /// Starts the server's workers; gives their addresses.
    pub fn listen(&mut self) -> Result<Vec<SocketAddr>, Refusal> {
        let threads = self.threads();
        let ports = limits::ports_for(self.settings.flows).div_ceil(threads);
        for index in 0..threads {
            let duty = Duty::Listen {
                address: self.prepare.address,
                ports,
            };
            self.start(index, duty)?;
        }
        let mut addresses = Vec::new();
        for worker in &self.workers {
            addresses.extend(worker.listening().map_err(Refusal::Failed)?);
        }
        self.set_up()?;
        Ok(addresses)
    }

    /// Starts the client's workers.
    pub fn connect(&mut self, targets: &[SocketAddr]) -> Result<(), Refusal> {
        for index in 0..self.threads() {
            self.start(
                index,
                Duty::Connect {
                    targets: targets.to_vec(),
                },
            )?;
        }
        self.set_up()
    }

    /// Ends the workers; the capture goes on.
    pub fn finish(mut self) -> Option<Capture> {
        self.capture.take()
    }

    fn threads(&self) -> usize {
        if self.ground.is_kernel() {
            threads(&self.settings, &self.prepare)
        } else {
            self.prepare.instances
        }
    }

    fn start(&mut self, index: usize, duty: Duty) -> Result<(), Refusal> {
        let place = Place {
            index,
            threads: self.threads(),
            ground: self.ground.clone(),
            capture: self.capture.as_ref().and_then(Capture::wire),
            meters: self
                .thinning
                .iter()
                .filter(|_| index == 0)
                .map(Thinning::meter)
                .collect(),
        };
        let worker = WorkerThread::start(place, &self.prepare, &self.settings, duty);
        self.workers.push(worker.map_err(failed)?);
        Ok(())
    }

    fn set_up(&mut self) -> Result<(), Refusal> {
        let deadline = Instant::now() + SET_UP_MAX;
        self.workers
            .iter_mut()
            .for_each(|worker| worker.set_up(deadline));
        Ok(())
    }

    /// Waits until all connections are up.
    pub fn connected(&mut self) -> Result<Answer, Refusal> {
        let mut all = Ready::default();
        let mut failures = Vec::new();
        for worker in &self.workers {
            match worker.ready() {
                Ok(ready) => {
                    all.connections += ready.connections;
                    all.mss = all.mss.or(ready.mss);
                    all.congestion_control = all.congestion_control.or(ready.congestion_control);
                }
                Err(reason) => failures.push(reason),
            }
        }
        if let Some(reason) = failures.into_iter().next() {
            return Err(Refusal::Failed(reason));
        }
        let Ready {
            connections,
            congestion_control,
            mss,
        } = all;
        Ok(Answer::Connected {
            connections,
            congestion_control,
            mss,
        })
    }

    /// Starts the soaker and calibrates it, while both ends are idle. One that cannot be had is a
    /// caution: the trial goes on without.
    pub fn soak(&mut self) {
        match Soak::start(&self.prepare.cpus) {
            Ok(soak) => self.soak = Some(soak),
            Err(error) => self.cautions.push(error.to_string()),
        }
    }

    /// Runs traffic over the span and reads the meters at its two instants.
    pub fn run(&mut self, span: Span) -> Result<Measured, Refusal> {
        // Reading every task takes milliseconds: it is done outside the span, and its own duration
        // is that much longer.
        let wants_others = self.prepare.meters.iter().any(|meter| meter == "others");
        let mut others =
            wants_others.then(|| Others::new(&self.prepare.cpus, &self.prepare.own_pids));
        let before = others
            .as_mut()
            .map(|others| others.snapshot())
            .transpose()
            .map_err(failed)?;

        self.workers.iter_mut().for_each(|worker| worker.run(span));
        let soaked = self
            .soak
            .as_mut()
            .map(|soak| soak.measure(span))
            .transpose()?;
        self.soak = None; // The spinners end.
        let found: Vec<Result<Found, String>> =
            self.workers.iter().map(WorkerThread::found).collect();
        let mut found = found
            .into_iter()
            .collect::<Result<Vec<_>, _>>()
            .map_err(Refusal::Failed)?;

        let mut readings = readings::sum(found.iter().map(|found| &found.readings[..]));
        if let Some((soaked, caution)) = soaked {
            readings.extend(soaked);
            self.cautions.extend(caution);
        }
        let mut busiest = Vec::new();
        if let (Some(others), Some(before)) = (&mut others, before) {
            let after: Snapshot = others.snapshot().map_err(failed)?;
            readings.extend(after.since(&before).map_err(failed)?);
            let percent = |ratio: f64| (ratio * 100.0).round();
            // A process that began or ended meanwhile, a compiler's say, is not among them.
            busiest = others
                .top()
                .into_iter()
                .map(|task| format!("{} {} %", task.name, percent(task.ratio)))
                .collect();
        }
        let of_workers = found.iter().flat_map(|found| found.cautions.clone());
        let cautions = std::mem::take(&mut self.cautions)
            .into_iter()
            .chain(of_workers)
            .collect();
        let around = |of: fn(&Found) -> Option<Brackets>| {
            found.iter().filter_map(of).reduce(Brackets::around)
        };
        let snapshots = around(|found| Some(found.snapshots));
        let tcp_info = around(|found| found.tcp_info);
        let profile = found.iter_mut().find_map(|found| found.profile.take());
        let record = EndRecord {
            cpus: self.prepare.cpus.clone(),
            threads: self.workers.len(),
            environment: Environment::default(),
            readings,
            response_time_hdr: response_times(found).map_err(failed)?,
            profile,
            capture: None,
        };
        Ok(Measured {
            record,
            others: busiest,
            cautions,
            snapshots: snapshots.ok_or_else(|| Refusal::Failed("no workers".to_string()))?,
            tcp_info,
        })
    }
}

/// One for each CPU unless the study says; never more than there are connections.
fn threads(settings: &WorkloadSettings, prepare: &Prepare) -> usize {
    settings
        .threads
        .unwrap_or(prepare.cpus.len())
        .min(settings.flows)
}

/// All workers' response times as one histogram, encoded; `None` where there are none.
fn response_times(found: Vec<Found>) -> anyhow::Result<Option<String>> {
    let mut all: Option<Histogram<u64>> = None;
    for histogram in found.into_iter().filter_map(|found| found.response_times) {
        match &mut all {
            Some(all) => all.add(histogram)?,
            None => all = Some(histogram),
        }
    }
    all.filter(|all| !all.is_empty())
        .map(|all| readings::encode(&all))
        .transpose()
}

/// Begins to thin the end's ACKs. The flush has the end's own CPUs.
fn thin(prepare: &Prepare, thinning: AckThinning) -> Result<Thinning, Refusal> {
    let cpu = prepare.cpus[0];
    Thinning::start(&prepare.device, thinning, move || {
        pin(cpu).map_err(|error| error.to_string())
    })
    .map_err(|reason| Refusal::Unsupported {
        knob: format!("{}.ack_thin", prepare.end),
        reason,
    })
}

fn turn(
    prepare: &Prepare,
    device: &DeviceSettings,
    journal: &mut Option<Journal>,
) -> Result<(), Refusal> {
    let untouched = DeviceSettings {
        bottleneck_queue_bytes: device.bottleneck_queue_bytes,
        ..DeviceSettings::default()
    };
    if !prepare.owned && *device == untouched {
        return Ok(()); // No journal for a host that is not changed, so no place to write is needed.
    }
    let journal = match journal {
        Some(journal) => journal,
        None => journal.insert(open(prepare.owned)?),
    };
    let refused = |error| match error {
        ApplyError::Unsupported { knob, reason } => Refusal::Unsupported { knob, reason },
        ApplyError::System(error) => failed(error),
    };
    if prepare.owned && prepare.steering {
        match steer(&prepare.cpus, &prepare.device, true, journal) {
            // Not asked for in so many words: go on without. rps_cpus in the record tells, and the
            // report then gives no CPU per end.
            Err(ApplyError::Unsupported { .. }) if prepare.knobs.get("steering").is_none() => {}
            other => other.map_err(refused)?,
        }
    }
    apply(
        device,
        &prepare.device,
        prepare.peer,
        prepare.owned,
        journal,
    )
    .map_err(refused)
}

/// A journal on disk for the host's own settings; for a namespace that ends with this process one in
/// memory will do.
fn open(owned: bool) -> Result<Journal, Refusal> {
    if owned {
        return Ok(Journal::in_memory());
    }
    let folder = crate::host::journal::folder().map_err(Refusal::Failed)?;
    Journal::open(&folder).map_err(failed)
}

/// Raises the limit of open files to what the trial needs, and says what the queues of a listener
/// in this namespace are short of. The host's TCP memory is the command's to check: a namespace does
/// not show it.
fn check_limits(
    settings: &WorkloadSettings,
    end: End,
    threads: usize,
) -> Result<Vec<String>, Refusal> {
    // Each worker has a file table of its own.
    limits::raise_open_files(settings.flows.div_ceil(threads) + FILES_BESIDE).map_err(failed)?;
    if end == End::Client {
        return Ok(Vec::new());
    }
    let outstanding = settings.flows.min(CONNECTS_OUTSTANDING * threads);
    Ok(TcpLimits::read(Path::new("/proc"))
        .check_backlog(outstanding)
        .into_iter()
        .collect())
}
