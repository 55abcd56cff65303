//! The trials of a run one after the other, each on disk before the next, and the bed that they share as long as it serves.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tcpcost_host::lock::LockKind;
use tcpcost_report::Distances;
use tcpcost_study::{
    Bed as Kind, Cell, HostName, Machine, Outcome, Record, Study, Topology, Warning, WarningCode,
};

use super::access::{Access, bed_of};
use super::bed::Bed;
use super::directory::Directory;
use super::distance_wait::DistanceWait;
use super::host::{self, Held};
use super::launcher::Launchers;
use super::nodes::{AskError, Events};
use super::plan::Plan;
use super::progress::Progress;
use super::trial::{Trial, TrialError};

/// A run's trials, and what they share.
pub struct Runner<'a> {
    study: &'a Study,
    plan: Plan,
    records: Vec<Record>,
    bed: Option<Bed>,
    /// The host's settings, while the bed is on its devices.
    held: Option<Held>,
    /// The machines, as the first bed found them.
    machines: BTreeMap<String, Machine>,
    launchers: Launchers,
    access: &'a Access,
    distance_wait: DistanceWait,
    distances: Distances,
    /// The end of the last trial; before the first the run's start.
    since: Instant,
    /// Whether a host of the last bed was given up for its silence.
    was_silent: bool,
    /// Whether the last bed that was tried lost an agent before it was there.
    is_without_bed: bool,
    /// Hosts of rounds whose agents could not be started, and why: the others go on.
    lost: BTreeMap<HostName, String>,
    /// Of the last trial: the host that could not connect, and the one that it did not reach.
    unreached: Option<[HostName; 2]>,
    /// Why no other trial would do better.
    hopeless: Option<String>,
}

impl<'a> Runner<'a> {
    /// Of a study, with the records that there are. `since` is the run's start.
    pub fn new(
        study: &'a Study,
        records: Vec<Record>,
        since: Instant,
        launchers: Launchers,
        access: &'a Access,
    ) -> Runner<'a> {
        Runner {
            study,
            plan: Plan::default(),
            records,
            bed: None,
            held: None,
            machines: BTreeMap::new(),
            launchers,
            access,
            distance_wait: DistanceWait::new(),
            distances: Distances::default(),
            since,
            was_silent: false,
            is_without_bed: false,
            lost: BTreeMap::new(),
            unreached: None,
            hopeless: None,
        }
    }

    /// All records there are then.
    pub fn into_records(self) -> Vec<Record> {
        self.records
    }

    /// Runs until the plan is done; true if it was interrupted before.
    pub fn all(
        &mut self,
        store: &mut Directory,
        events: &mut Events,
        progress: &mut Progress,
    ) -> anyhow::Result<bool> {
        let mut captures = None;
        while let Some(next) = self.plan.next(self.study, &self.records) {
            if events.interrupt.is_set() {
                return Ok(true);
            }
            let cell = &self.study.cells[next.cell];
            progress.begin(&cell.name);
            if cell.captured.is_some() && captures.is_none() {
                captures = Some(store.captures()?);
            }
            let of = cell.captured.as_ref().unwrap_or(&cell.name);
            let place = self.study.cells.iter().position(|own| own.name == *of);
            let number = place.unwrap_or(next.cell) + 1;
            let left_out = self.lost.iter().map(|(host, reason)| {
                Warning::new(WarningCode::Other, format!("{host} is left out: {reason}"))
            });
            let warnings: Vec<Warning> = self
                .access
                .warnings
                .iter()
                .cloned()
                .chain(left_out)
                .collect();
            let trial = Trial {
                study: self.study,
                cell,
                number,
                captures: captures.as_ref(),
                repetition: next.repetition,
                attempt: next.attempt,
                warnings: &warnings,
            };
            let Some(mut record) = self.one(&trial, events, progress)? else {
                return Ok(true);
            };
            record.took_ns = self.took_ns(&record);
            self.records.push(record);
            self.distances.mark(&mut self.records);
            let last = self.records.last().expect("just pushed");
            if let Err(error) = store.append(last) {
                // What is reported is what is on the disk.
                self.records.pop();
                return Err(error);
            }
            progress.end(self.study, last, Plan::trials(self.study, &self.records));
            if let Some(reason) = self.hopeless.take() {
                anyhow::bail!("two trials in a row failed so, no other was tried: {reason}");
            }
        }
        Ok(false)
    }

    /// The time since the last trial, which becomes the last; `None` where the clock counts instructions.
    fn took_ns(&mut self, record: &Record) -> Option<u64> {
        let now = Instant::now();
        let took = now - std::mem::replace(&mut self.since, now);
        let took_ns = u64::try_from(took.as_nanos()).ok();
        took_ns.filter(|_| record.instructions_per_ns().is_none())
    }

    /// One trial's record; `None` if interrupted.
    fn one(
        &mut self,
        trial: &Trial<'_>,
        events: &mut Events,
        progress: &Progress,
    ) -> anyhow::Result<Option<Record>> {
        let knobs = &trial.cell.knobs;
        let skipped = |kind, topology: &Topology, reason: String| {
            let mut record = trial.record(kind, topology, BTreeMap::new());
            record.outcome = Outcome::Skipped { reason };
            Ok(Some(record))
        };
        let kind = match bed_of(trial.cell, &self.access.netns) {
            Ok(kind) => kind,
            Err((kind, reason)) => {
                return skipped(kind, &Topology::default(), format!("bed: {reason}"));
            }
        };
        let mut topology = match Topology::in_repetition(kind, knobs, trial.repetition) {
            Ok(topology) => topology,
            Err(reason) => return skipped(kind, &Topology::default(), reason),
        };
        self.launchers.place(&mut topology)?;
        if !self.lost.is_empty() {
            topology = topology.without(|host| self.lost.contains_key(&host));
            if topology.traffic.is_empty() {
                let lost: Vec<String> = self.lost.keys().map(HostName::to_string).collect();
                let reason = format!(
                    "hosts: nobody is left to talk in this round without {}",
                    lost.join(", ")
                );
                return skipped(kind, &topology, reason);
            }
        }
        let serves = |bed: &Bed| bed.serves(kind, &topology, trial.cell);
        if !self.bed.as_ref().is_some_and(serves) {
            self.leave_bed()?; // The old one is gone before the new one is made.
            if kind == Kind::Loopback {
                let need = host::need(self.on_loopback(), &HostName::PAIR);
                match host::hold(need, &events.interrupt, progress)? {
                    Some(held) => self.held = Some(held),
                    None => return Ok(None),
                }
            }
            let changes = kind == Kind::Hosts && self.changes_hosts(&topology);
            let launchers = &self.launchers;
            // One that was stopped holds its settings until it goes on: it is given as long once more.
            let held_max = match self.was_silent {
                true => launchers.silence_max.max(ENDING_MAX),
                false => ENDING_MAX,
            };
            let made = Bed::make(
                kind, &topology, trial.cell, launchers, changes, held_max, events,
            );
            match made {
                Ok(mut bed) => {
                    // What is measured of a machine (its time-stamp counter's rate) is measured
                    // once: a run that goes from bed to bed is still of one machine.
                    for (id, machine) in &mut bed.machines {
                        *machine = self
                            .machines
                            .entry(id.clone())
                            .or_insert(machine.clone())
                            .clone();
                    }
                    self.bed = Some(bed);
                    self.was_silent = false;
                    self.is_without_bed = false;
                }
                Err(AskError::Interrupted) => return Ok(None),
                Err(AskError::Unsupported { knob, reason }) => {
                    return skipped(kind, &topology, format!("{knob}: {reason}"));
                }
                // A node of many that is dead is found, and the others are still to be compared.
                Err(AskError::Gone(host, reason) | AskError::Unfit(host, reason))
                    if knobs.go_round() && topology.hosts.len() > 2 =>
                {
                    self.leave_bed()?;
                    let mut record = trial.record(kind, &topology, BTreeMap::new());
                    let reason = format!("{host} agent: {reason}");
                    progress.say(&format!(
                        "tcpcost: {host} is left out from now on: {reason}"
                    ));
                    record.outcome = Outcome::Failed {
                        reason: format!("make the {} bed: {reason}", kind.word()),
                    };
                    self.lost.insert(host.half_of().unwrap_or(host), reason);
                    return Ok(Some(record));
                }
                // Somebody killed an agent, say. The trial is tried again, but no third bed after two that
                // could not be made: what stops those stops all.
                Err(error @ AskError::Gone(..)) if !self.is_without_bed => {
                    self.is_without_bed = true;
                    self.leave_bed()?;
                    let mut record = trial.record(kind, &topology, BTreeMap::new());
                    let reason = format!("make the {} bed: {error}", kind.word());
                    record.outcome = Outcome::Failed { reason };
                    return Ok(Some(record));
                }
                Err(error) => anyhow::bail!("make the {} bed: {error}", kind.word()),
            }
        }
        let bed = self.bed.as_mut().expect("just made");
        let topology = bed.with_ports(topology.without_resting(knobs));
        let spent = Plan::spent(self.study, &self.records) + self.since.elapsed();
        let left = self.study.measure.time_max;
        let left = left.map(|limit| limit.saturating_sub(spent));
        let waited = self
            .distance_wait
            .wait(bed, &topology, knobs, &self.records, left, events);
        bed.nodes.bound(Plan::trial_limit(
            self.study,
            trial.cell,
            &self.records,
            self.since.elapsed(),
        ));
        let ran = match waited {
            Ok(()) => trial.run(bed, &topology, events),
            Err(error) => Err(trial.not_begun(bed, &topology, &error)),
        };
        match ran {
            Ok(record) => {
                self.unreached = None;
                // What failed may be the bed: a veth goes with the other end's dead agent. Too little work is no fault of it.
                if matches!(record.outcome, Outcome::Failed { .. }) && !record.is_incomplete() {
                    self.leave_bed()?;
                }
                Ok(Some(record))
            }
            Err(TrialError::Interrupted) => Ok(None),
            Err(TrialError::Unreached(record, pair)) => {
                self.leave_bed()?;
                if self.unreached.replace(pair) == Some(pair) {
                    self.give_up(&record, pair[1], progress);
                }
                Ok(Some(*record))
            }
            Err(TrialError::Bed(record)) => {
                self.leave_bed()?;
                Ok(Some(*record))
            }
        }
    }

    /// After two trials that failed because `host` was not reached. A host of many is left out; else no other trial would do better.
    fn give_up(&mut self, record: &Record, host: HostName, progress: &Progress) {
        let Outcome::Failed { reason } = &record.outcome else {
            return;
        };
        if record.knobs.go_round() && record.topology.hosts.len() > 2 {
            progress.say(&format!(
                "tcpcost: {host} is left out from now on: {reason}"
            ));
            let host = host.half_of().unwrap_or(host);
            self.lost.insert(host, reason.clone());
        } else {
            self.hopeless = Some(reason.clone());
        }
    }

    /// Ends the bed's agents and puts back what they did not, before anybody else has the host.
    pub fn leave_bed(&mut self) -> anyhow::Result<()> {
        let bed = self.bed.take();
        self.was_silent |= bed.is_some_and(|bed| bed.nodes.has_given_up());
        let held = self.held.take();
        held.map_or(Ok(()), |_held| host::put_back("a dead agent").map(drop))
    }

    /// Whether any cell changes settings of these hosts.
    fn changes_hosts(&self, topology: &Topology) -> bool {
        let hosts: Vec<HostName> = topology.names().collect();
        host::need(self.study.cells.iter(), &hosts) == LockKind::Exclusive
    }

    /// Cells whose ends are on the host's own devices.
    fn on_loopback(&self) -> impl Iterator<Item = &Cell> {
        let netns = &self.access.netns;
        let cells = self.study.cells.iter();
        cells.filter(move |cell| matches!(bed_of(cell, netns), Ok(Kind::Loopback)))
    }
}

/// An agent that puts back, since its command was killed a moment ago, takes milliseconds.
const ENDING_MAX: Duration = Duration::from_secs(5);
