//! One trial: make both ends ready, connect, run, read, close; and what came of it as a record.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tcpcost_meter::core_to_core::round_trip_ns;
use tcpcost_stack::limits::TcpLimits;
use tcpcost_study::{
    Capture, Cell, CoreToCore, DeviceSettings, End, Environment, HostEnvironment, Knobs, Outcome,
    Record, SCHEMA_VERSION, Study, Value, Warning, WarningCode, WorkloadSettings,
};

use super::bed::{Bed, BedKind};
use super::captured::read_capture;
use super::directory::CAPTURES;
use super::ends::{Events, Halt};
use super::warnings;
use crate::host::topology::Topology;
use crate::protocol::{
    Answer, Ask, Capturing, Measured, Prepare, Sampling, Span, Stopped, clock_ns,
};

/// Time for the order to run to reach both agents, also on a busy host; traffic starts with it.
const HEAD_START_NS: u64 = 5_000_000;
/// Traffic goes on this long after the second snapshot.
const TAIL_NS: u64 = 10_000_000;

/// Which trial.
pub struct Trial<'a> {
    /// Of which study.
    pub study: &'a Study,
    /// Which cell.
    pub cell: &'a Cell,
    /// The cell's number in the study, from 1; of a captured trial that of the cell it is of.
    pub number: usize,
    /// Where captures go.
    pub captures: &'a Path,
    /// Repetition, from 0.
    pub repetition: u32,
    /// Try, from 0.
    pub attempt: u32,
    /// What is true of the whole run and belongs in each record.
    pub notes: &'a [Warning],
}

/// What went wrong beyond the trial.
pub enum Broken {
    /// Ctrl-C: no record.
    Interrupted,
    /// The bed is unusable; the record says why.
    Bed(Box<Record>),
}

/// Both ends, by name.
type Both<T> = BTreeMap<End, T>;

/// What the traffic showed.
struct Found {
    ends: Both<Measured>,
    core_to_core: Option<CoreToCore>,
    /// Where the server listened.
    ports: Vec<u16>,
}

impl Trial<'_> {
    /// Runs it. Failures and skips are records too.
    pub fn run(&self, bed: &mut Bed, events: &Events) -> Result<Record, Broken> {
        let mut record = self.record(bed.kind, bed.host.clone());
        match self.measure(bed, events) {
            Ok((found, mut cautions)) => {
                record.core_to_core = found.core_to_core;
                let mut others = BTreeMap::new();
                for (end, measured) in found.ends {
                    for news in measured.cautions.into_iter().map(caution) {
                        // Most are of the host: both ends say the same.
                        if !cautions.contains(&news) {
                            cautions.push(news);
                        }
                    }
                    others.insert(end, measured.others);
                    record.ends.insert(end, measured.record);
                }
                if let Some(client) = record.ends.get(&End::Client) {
                    let shown = &client.environment.sysctls;
                    record
                        .host
                        .sysctls
                        .retain(|name, _| !shown.contains_key(name));
                }
                record.warnings = cautions;
                // Of a captured trial nothing is told that another's load would change.
                if !record.captured {
                    record.warnings.extend(warnings::judge(
                        &record,
                        self.study.measure.others_max,
                        &others,
                    ));
                }
                record.warnings.extend_from_slice(self.notes);
            }
            Err(Halt::Interrupted) => return Err(Broken::Interrupted),
            Err(Halt::Unsupported { knob, reason }) => {
                record.outcome = Outcome::Skipped {
                    reason: format!("{knob}: {reason}"),
                };
            }
            Err(halt @ Halt::Failed(..)) => {
                record.outcome = Outcome::Failed {
                    reason: halt.to_string(),
                };
            }
            Err(halt @ Halt::Gone(..)) => {
                record.outcome = Outcome::Failed {
                    reason: halt.to_string(),
                };
                return Err(Broken::Bed(Box::new(record)));
            }
        }
        Ok(record)
    }

    /// The record before anything is known.
    pub fn record(&self, bed: BedKind, host: HostEnvironment) -> Record {
        Record {
            schema_version: SCHEMA_VERSION,
            study: self.study.name.clone(),
            cell: self.cell.name.clone(),
            knobs: self.cell.knobs.clone(),
            repetition: self.repetition,
            attempt: self.attempt,
            seed: self.study.measure.seed,
            started: jiff::Timestamp::now()
                .strftime("%Y-%m-%dT%H:%M:%S%.3fZ")
                .to_string(),
            bed: bed.name().to_string(),
            captured: self.cell.captured.is_some(),
            interval_ns: nanos(self.study.times(self.cell).1),
            outcome: Outcome::Measured,
            warnings: Vec::new(),
            core_to_core: None,
            host,
            ends: BTreeMap::new(),
        }
    }

    fn measure(&self, bed: &mut Bed, events: &Events) -> Result<(Found, Vec<Warning>), Halt> {
        let mut cautions = Vec::new();
        cautions.extend(self.check_memory()?);
        let environments = self.prepare(bed, events, &mut cautions)?;
        let outcome = self.traffic(bed, events, environments);
        // Also after a failure, so that the next trial starts clean. An interrupt ends the bed anyway.
        if matches!(outcome, Err(Halt::Interrupted | Halt::Gone(..))) {
            return outcome.map(|found| (found, cautions));
        }
        let finished = bed.ends.call_both(events, |_| Ask::Finish)?;
        let mut found = outcome?;
        for (end, answer) in End::BOTH.into_iter().zip(finished) {
            let Answer::Finished { capture } = answer else {
                return Err(nonsense(end, &answer));
            };
            if let (Some(stopped), Some(measured)) = (capture, found.ends.get_mut(&end)) {
                self.keep(end, stopped, measured, &found.ports)
                    .map_err(|error| Halt::Failed(end, format!("capture: {error:#}")))?;
            }
        }
        Ok((found, cautions))
    }

    /// Puts what an end's capture says into its record.
    fn keep(
        &self,
        end: End,
        stopped: Stopped,
        measured: &mut Measured,
        ports: &[u16],
    ) -> anyhow::Result<()> {
        let kind = WorkloadSettings::from_knobs(&self.cell.knobs)?.kind;
        let snapshots = measured.snapshots;
        let file = self.captures.join(self.file(end));
        if let Some(lost @ 1..) = stopped.dropped {
            let text = format!(
                "capture of the {end}'s {}: {lost} packets had no room; what they carried is in no count",
                stopped.place
            );
            measured.cautions.push(text);
        }
        let read = read_capture(&file, end, kind, ports.to_vec(), &snapshots)?;
        measured.record.readings.extend(read.readings);
        measured.record.capture = Some(Capture {
            file: format!("{CAPTURES}/{}", self.file(end)),
            place: stopped.place,
            snap_len: self.study.measure.capture.snap_len,
            packets: stopped.packets,
            dropped: stopped.dropped,
            snapshots,
            tcp_info: measured.tcp_info,
            opening: read.opening,
        });
        Ok(())
    }

    /// Name of an end's capture: cell, repetition, end.
    fn file(&self, end: End) -> String {
        format!("{:02}-{}-{end}.pcapng", self.number, self.repetition)
    }

    /// What an end is to capture.
    fn capturing(&self, end: End) -> Option<Capturing> {
        let of = self.cell.captured.as_ref()?;
        let (study, repetition) = (&self.study.name, self.repetition);
        Some(Capturing {
            file: self.captures.join(self.file(end)),
            snap_len: self.study.measure.capture.snap_len,
            comment: format!(
                "tcpcost: study {study}, cell \"{of}\", repetition {repetition}, {end}"
            ),
        })
    }

    /// Whether the memory of this host's TCP can hold the connections: both ends are here.
    fn check_memory(&self) -> Result<Option<Warning>, Halt> {
        let settings = WorkloadSettings::from_knobs(&self.cell.knobs)
            .map_err(|error| Halt::Failed(End::Client, error.to_string()))?;
        // A queue at the sender and one at the receiver, in each direction that carries payload.
        let directions = End::BOTH
            .iter()
            .filter(|&&end| settings.kind.sends(end))
            .count() as u64;
        let checked =
            TcpLimits::read(Path::new("/proc")).check_memory(settings.flows, 2 * directions);
        let caution = checked.map_err(|error| Halt::Failed(End::Client, error.to_string()))?;
        Ok(caution.map(|text| Warning {
            code: WarningCode::Other,
            text,
        }))
    }

    fn prepare(
        &self,
        bed: &mut Bed,
        events: &Events,
        cautions: &mut Vec<Warning>,
    ) -> Result<Both<Environment>, Halt> {
        let knobs = &self.cell.knobs;
        if bed.kind == BedKind::Loopback {
            one_device(knobs)?;
        }
        let (client_cpus, server_cpus) = place(knobs)?;
        let [client_pid, server_pid] = bed.ends.pids();
        let token = token();
        let meters = self.study.meters(self.cell);
        let sampling = |end: End| {
            let mut cpus = client_cpus.clone();
            if end == End::Server {
                cpus.clone_from(&server_cpus);
                cpus.retain(|cpu| !client_cpus.contains(cpu));
            }
            let wanted = meters.iter().any(|meter| meter == "profile") && !cpus.is_empty();
            let hz = self.study.measure.profile_hz;
            wanted.then_some(Sampling { hz, cpus })
        };
        let all_shared = server_cpus.iter().all(|cpu| client_cpus.contains(cpu));
        // Of CPUs that both ends share the client counts for both: a second copy would cost twice.
        let is_read = |end: End, meter: &str| {
            let of_cpus = matches!(meter, "exact" | "perf");
            !(end == End::Server && all_shared && of_cpus)
        };
        let prepare = |bed: &Bed, end: End| Prepare {
            end,
            knobs: knobs.clone(),
            cpus: if end == End::Client {
                client_cpus.clone()
            } else {
                server_cpus.clone()
            },
            instances: match bed.kind {
                BedKind::Tap(ours, queues) if ours == end => queues,
                BedKind::Memory => instances(knobs, &End::BOTH),
                _ => 0,
            },
            device: bed.device(end).to_string(),
            address: bed.address(end),
            peer: bed.address(end.peer()),
            owned: bed.kind.owns(end),
            changes_device: bed.kind.owns(end)
                || (bed.kind == BedKind::Loopback && end == End::Client),
            steering: bed.kind.owns(end)
                && knobs.is_on("steering").expect("a switch has a default"),
            meters: meters
                .iter()
                .filter(|meter| is_read(end, meter))
                .cloned()
                .collect(),
            sampling: sampling(end),
            capture: self.capturing(end),
            own_pids: vec![std::process::id(), client_pid, server_pid],
            token: token.clone(),
            seed: self.study.measure.seed,
        };
        let mut environments = BTreeMap::new();
        // One after the other: on loopback the server reads what the client has set.
        for end in End::BOTH {
            let ask = Ask::Prepare(Box::new(prepare(bed, end)));
            let answer = bed.ends.call(events, end, &ask)?;
            let Answer::Prepared {
                environment,
                cautions: more,
            } = answer
            else {
                return Err(nonsense(end, &answer));
            };
            environments.insert(end, *environment);
            cautions.extend(more.into_iter().map(caution));
        }
        Ok(environments)
    }

    fn shares_cpus(&self) -> Result<bool, Halt> {
        let (client, server) = place(&self.cell.knobs)?;
        Ok(client.iter().any(|cpu| server.contains(cpu)))
    }

    fn traffic(
        &self,
        bed: &mut Bed,
        events: &Events,
        mut environments: Both<Environment>,
    ) -> Result<Found, Halt> {
        let answer = bed.ends.call(events, End::Server, &Ask::Listen)?;
        let Answer::Listening { addresses } = answer else {
            return Err(nonsense(End::Server, &answer));
        };
        let ports = addresses.iter().map(|address| address.port()).collect();
        let connected = bed
            .ends
            .call(events, End::Client, &Ask::Connect { targets: addresses })?;
        let accepted = bed.ends.call(events, End::Server, &Ask::Accepted)?;
        for (end, answer) in End::BOTH.into_iter().zip([connected, accepted]) {
            let Answer::Connected {
                congestion_control,
                mss,
                ..
            } = answer
            else {
                return Err(nonsense(end, &answer));
            };
            let environment = environments.get_mut(&end).expect("both ends were prepared");
            environment.congestion_control = congestion_control;
            environment.mss = mss;
        }

        let meters = self.study.meters(self.cell);
        let wants_soak = meters.iter().any(|meter| meter == "soak");
        if wants_soak {
            // On CPUs that both ends share there is one spinner, the client's.
            let soaking: &[End] = if self.shares_cpus()? {
                &[End::Client]
            } else {
                &End::BOTH
            };
            for &end in soaking {
                bed.ends.ask(end, &Ask::Soak)?;
            }
            for &end in soaking {
                bed.ends.answer(events, end)?;
            }
        }
        let cpus = two_cpus(&self.cell.knobs);
        // A CPU that is not free has no distance now: missing, and no reason not to run.
        let distance = |cpus| round_trip_ns(cpus).ok().flatten();
        let before_ns = cpus.and_then(distance);
        let span = span(self.study.times(self.cell), clock_ns());
        let answers = bed.ends.call_both(events, |_| Ask::Run(span))?;
        let core_to_core = cpus.map(|cpus| CoreToCore {
            cpus,
            before_ns,
            after_ns: distance(cpus),
        });
        let mut ends = BTreeMap::new();
        for (end, answer) in End::BOTH.into_iter().zip(answers) {
            let Answer::Measured(mut measured) = answer else {
                return Err(nonsense(end, &answer));
            };
            measured.record.environment =
                environments.remove(&end).expect("both ends were prepared");
            ends.insert(end, *measured);
        }
        Ok(Found {
            ends,
            core_to_core,
            ports,
        })
    }
}

/// On loopback both ends are the host's `lo`: it cannot be two things at once.
fn one_device(knobs: &Knobs) -> Result<(), Halt> {
    if DeviceSettings::from_knobs(knobs, End::Client)
        == DeviceSettings::from_knobs(knobs, End::Server)
    {
        return Ok(());
    }
    let named = |name: &&str| name.starts_with("client.") || name.starts_with("server.");
    let knob = knobs
        .iter()
        .map(|(name, _)| name)
        .find(named)
        .unwrap_or("bed")
        .to_string();
    let reason = "of the netns bed alone: on loopback both ends are one device".to_string();
    Err(Halt::Unsupported { knob, reason })
}

/// CPUs of client and server.
fn place(knobs: &Knobs) -> Result<(Vec<usize>, Vec<usize>), Halt> {
    let unsupported = |reason: String| Halt::Unsupported {
        knob: "placement".to_string(),
        reason,
    };
    let given = |name: &str| match knobs.value(name) {
        Some(Value::Cpus(cpus)) => Some(cpus),
        _ => None,
    };
    let topology =
        Topology::read(Path::new("/sys")).map_err(|error| unsupported(error.to_string()))?;
    let placement = knobs.word("placement").expect("a choice has a default");
    let (client, server) = (given("client_cpus"), given("server_cpus"));
    topology
        .place(&placement, client.as_deref(), server.as_deref())
        .map_err(unsupported)
}

/// The first CPU of each end, where the ends do not share CPUs.
pub fn two_cpus(knobs: &Knobs) -> Option<[usize; 2]> {
    let (client, server) = place(knobs).ok()?;
    let apart = !client.iter().any(|cpu| server.contains(cpu));
    apart.then_some([client[0], server[0]])
}

/// How many instances of our own TCP each of these ends has: one for each CPU unless the study
/// says. In memory each has a partner, so the end with fewer CPUs decides.
pub fn instances(knobs: &Knobs, ours: &[End]) -> usize {
    // What is wrong with the knobs is said, with its reason, when the trial is prepared.
    let (Ok(settings), Ok((client, server))) = (WorkloadSettings::from_knobs(knobs), place(knobs))
    else {
        return 1;
    };
    let cpus = ours.iter().map(|&end| match end {
        End::Client => client.len(),
        End::Server => server.len(),
    });
    let threads = settings.threads.or(cpus.min()).unwrap_or(1);
    threads.min(settings.flows).max(1)
}

fn caution(text: String) -> Warning {
    let code = WarningCode::Other;
    Warning { code, text }
}

fn nonsense(end: End, answer: &Answer) -> Halt {
    Halt::Gone(end, format!("answered out of turn: {answer:?}"))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("a study's times are far below 584 years")
}

fn span((warm_up, duration): (Duration, Duration), now_ns: u64) -> Span {
    let from_ns = now_ns + HEAD_START_NS + nanos(warm_up);
    let to_ns = from_ns + nanos(duration);
    Span {
        from_ns,
        to_ns,
        stop_ns: to_ns + TAIL_NS,
    }
}

/// 128 random bits, in hex.
fn token() -> String {
    let mut bytes = [0u8; 16];
    // SAFETY: the buffer is valid for its 16 bytes, which getrandom fills or leaves.
    let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    assert_eq!(
        filled, 16,
        "getrandom of 16 bytes never fails once the kernel is up (random(7))"
    );
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
