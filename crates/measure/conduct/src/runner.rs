//! Runs the trials of a run one after the other. Each record is on disk before the next trial, and trials share a bed as long as it fits.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tcpcost_host::lock::LockKind;
use tcpcost_report::Distances;
use tcpcost_study::{
    Bed as Kind, Cell, HostName, Machine, Outcome, Record, Study, Topology, Warning, WarningCode,
};

use super::access::{Access, bed_of};
use super::ask_error::AskError;
use super::bed::Bed;
use super::directory::Directory;
use super::distance_wait::DistanceWait;
use super::events::Events;
use super::host::{self, SettingsLock};
use super::launcher::Launchers;
use super::plan::Plan;
use super::progress::Progress;
use super::trial::{Trial, TrialError};

/// State that the trials of a run share.
pub struct Runner<'a> {
    study: &'a Study,
    plan: Plan,
    records: Vec<Record>,
    bed: Option<Bed>,
    /// Lock on the host's settings, while the bed uses the host's own devices.
    settings_lock: Option<SettingsLock>,
    /// Descriptions of the machines, as the first bed found them.
    machines: BTreeMap<String, Machine>,
    launchers: Launchers,
    access: &'a Access,
    distance_wait: DistanceWait,
    distances: Distances,
    /// End of the last trial, or the run's start before the first one.
    since: Instant,
    /// True if a host of the last bed was given up because of its silence.
    was_silent: bool,
    /// True if an agent ended while the last bed was made.
    bed_failed: bool,
    /// Hosts that are left out of further rounds, with the reason.
    lost: BTreeMap<HostName, String>,
    /// The host that could not connect in the last trial, and the host that it did not reach.
    unreached: Option<[HostName; 2]>,
    /// Reason why every other trial would fail, too.
    hopeless: Option<String>,
}

impl<'a> Runner<'a> {
    /// Makes the runner of a study that has `records` already. `since`: the run's start.
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
            settings_lock: None,
            machines: BTreeMap::new(),
            launchers,
            access,
            distance_wait: DistanceWait::new(),
            distances: Distances::default(),
            since,
            was_silent: false,
            bed_failed: false,
            lost: BTreeMap::new(),
            unreached: None,
            hopeless: None,
        }
    }

    /// Returns all records.
    pub fn into_records(self) -> Vec<Record> {
        self.records
    }

    /// Runs trials until the plan is done. Returns true if interrupted before.
    pub fn run(
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
            let name = cell.captured.as_ref().unwrap_or(&cell.name);
            let place = self.study.cells.iter().position(|own| own.name == *name);
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
            let Some(mut record) = self.run_trial(&trial, events, progress)? else {
                return Ok(true);
            };
            record.took_ns = self.took_ns(&record);
            self.records.push(record);
            self.distances.mark(&mut self.records);
            let last = self.records.last().expect("just pushed");
            if let Err(error) = store.append(last) {
                // The report must match the records on disk.
                self.records.pop();
                return Err(error);
            }
            progress.end(self.study, last, Plan::trials(self.study, &self.records));
            if let Some(reason) = self.hopeless.take() {
                anyhow::bail!(
                    "two trials in a row failed for the same reason, so the run ends: {reason}"
                );
            }
        }
        Ok(false)
    }

    /// Time since the end of the previous trial; this trial's end is now. `None` if the clock counts instructions.
    fn took_ns(&mut self, record: &Record) -> Option<u64> {
        let now = Instant::now();
        let took = now - std::mem::replace(&mut self.since, now);
        let took_ns = u64::try_from(took.as_nanos()).ok();
        took_ns.filter(|_| record.instructions_per_ns().is_none())
    }

    /// Runs a trial and returns its record. `None` if interrupted.
    fn run_trial(
        &mut self,
        trial: &Trial<'_>,
        events: &mut Events,
        progress: &Progress,
    ) -> anyhow::Result<Option<Record>> {
        let (kind, topology) = match self.topology(trial)? {
            Ok(found) => found,
            Err(skipped) => return Ok(Some(*skipped)),
        };
        let serves = |bed: &Bed| bed.serves(kind, &topology, trial.cell);
        if !self.bed.as_ref().is_some_and(serves) {
            self.leave_bed()?; // Before the new bed is made.
            if kind == Kind::Loopback {
                let needed = host::lock_needed(self.on_loopback(), &HostName::PAIR);
                match host::hold(needed, &events.interrupt, progress)? {
                    Some(lock) => self.settings_lock = Some(lock),
                    None => return Ok(None),
                }
            }
            if let Err(error) = self.make_bed(trial, kind, &topology, events) {
                return self.without_bed(trial, kind, &topology, error, progress);
            }
        }
        self.drive(trial, topology, events, progress)
    }

    /// Kind of bed and topology of a trial, without hosts that are lost; or the record of a trial that is skipped.
    fn topology(
        &mut self,
        trial: &Trial<'_>,
    ) -> anyhow::Result<Result<(Kind, Topology), Box<Record>>> {
        let skipped = |kind, topology: &Topology, reason| {
            Ok(Err(Box::new(skipped(trial, kind, topology, reason))))
        };
        let none = Topology::default();
        let kind = match bed_of(trial.cell, self.access.no_netns.as_deref()) {
            Ok(kind) => kind,
            Err((kind, reason)) => return skipped(kind, &none, format!("bed: {reason}")),
        };
        let knobs = &trial.cell.knobs;
        let mut topology = match Topology::in_repetition(kind, knobs, trial.repetition) {
            Ok(topology) => topology,
            Err(error) => return skipped(kind, &none, error.to_string()),
        };
        self.launchers.place(&mut topology)?;
        if !self.lost.is_empty() {
            topology = topology.without(|host| self.lost.contains_key(&host));
            if topology.traffic.is_empty() {
                let lost: Vec<String> = self.lost.keys().map(HostName::to_string).collect();
                let reason = format!(
                    "hosts: without {} this round has no two hosts to connect",
                    lost.join(", ")
                );
                return skipped(kind, &topology, reason);
            }
        }
        Ok(Ok((kind, topology)))
    }

    /// Makes the bed of a trial.
    fn make_bed(
        &mut self,
        trial: &Trial<'_>,
        kind: Kind,
        topology: &Topology,
        events: &mut Events,
    ) -> Result<(), AskError> {
        let changes = kind == Kind::Hosts && self.changes_hosts(topology);
        let launchers = &self.launchers;
        // An agent that was stopped holds its settings until it continues, so it gets the same time once more.
        let held_max = if self.was_silent {
            launchers.silence_max.max(ENDING_MAX)
        } else {
            ENDING_MAX
        };
        let mut bed = Bed::make(
            kind, topology, trial.cell, launchers, changes, held_max, events,
        )?;
        // A machine's measured values (the rate of its time-stamp counter) are those of the first bed, so that all beds of a
        // run show the same machine.
        for (id, machine) in &mut bed.machines {
            let first = self.machines.entry(id.clone());
            *machine = first.or_insert(machine.clone()).clone();
        }
        self.bed = Some(bed);
        self.was_silent = false;
        self.bed_failed = false;
        Ok(())
    }

    /// Record of a trial whose bed could not be made. `None` if interrupted.
    ///
    /// # Errors
    /// The run cannot continue.
    fn without_bed(
        &mut self,
        trial: &Trial<'_>,
        kind: Kind,
        topology: &Topology,
        error: AskError,
        progress: &Progress,
    ) -> anyhow::Result<Option<Record>> {
        let failed = |reason: String| {
            let mut record = trial.record(kind, topology, BTreeMap::new());
            let reason = format!("make the {} bed: {reason}", kind.word());
            record.outcome = Outcome::Failed { reason };
            Ok(Some(record))
        };
        match error {
            AskError::Interrupted => Ok(None),
            AskError::Unsupported(error) => {
                Ok(Some(skipped(trial, kind, topology, error.to_string())))
            }
            // If one of many nodes is dead, the run continues with the others.
            AskError::Gone(host, reason) | AskError::Unfit(host, reason)
                if trial.cell.knobs.go_round() && topology.hosts.len() > 2 =>
            {
                self.leave_bed()?;
                let reason = format!("{host} agent: {reason}");
                progress.say(&format!(
                    "tcpcost: {host} is left out from now on: {reason}"
                ));
                let record = failed(reason.clone());
                self.lost.insert(host.half_of().unwrap_or(host), reason);
                record
            }
            // The agent may have been killed, so the trial is tried again. After two beds in a row that could not be made, the run ends,
            // because a third would fail, too.
            error @ AskError::Gone(..) if !self.bed_failed => {
                self.bed_failed = true;
                self.leave_bed()?;
                failed(error.to_string())
            }
            error => anyhow::bail!("make the {} bed: {error}", kind.word()),
        }
    }

    /// Runs the trial on the bed that is there, once its CPUs are near each other. `None` if interrupted.
    fn drive(
        &mut self,
        trial: &Trial<'_>,
        topology: Topology,
        events: &mut Events,
        progress: &Progress,
    ) -> anyhow::Result<Option<Record>> {
        let knobs = &trial.cell.knobs;
        let bed = self.bed.as_mut().expect("just made");
        let topology = bed.with_ports(topology.without_resting(knobs));
        let spent = Plan::spent(self.study, &self.records) + self.since.elapsed();
        let left = self.study.measure.time_max;
        let left = left.map(|limit| limit.saturating_sub(spent));
        let waited = self
            .distance_wait
            .wait(bed, &topology, knobs, &self.records, left, events);
        bed.nodes.limit_trial(Plan::trial_limit(
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
                // The bed itself may have failed: a veth disappears with the agent of the other end. Too little work does not mean that.
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

    /// Gives up `host` after two trials that could not reach it: leaves it out if it is one of many, or else ends the run.
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

    /// Ends the bed's agents. Restores what they left changed, before the lock on the settings is released.
    pub fn leave_bed(&mut self) -> anyhow::Result<()> {
        let bed = self.bed.take();
        self.was_silent |= bed.is_some_and(|bed| bed.nodes.has_given_up());
        let lock = self.settings_lock.take();
        lock.map_or(Ok(()), |_lock| host::restore("a dead agent").map(drop))
    }

    /// True if a cell changes settings of these hosts.
    fn changes_hosts(&self, topology: &Topology) -> bool {
        let hosts: Vec<HostName> = topology.names().collect();
        host::lock_needed(self.study.cells.iter(), &hosts) == LockKind::Exclusive
    }

    /// Cells with the loopback bed, which uses the host's own device.
    fn on_loopback(&self) -> impl Iterator<Item = &Cell> {
        let no_netns = self.access.no_netns.as_deref();
        let cells = self.study.cells.iter();
        cells.filter(move |cell| matches!(bed_of(cell, no_netns), Ok(Kind::Loopback)))
    }
}

/// Limit on the wait for settings that another run holds. An agent whose command was just killed restores its settings within milliseconds.
const ENDING_MAX: Duration = Duration::from_secs(5);

/// Record of a trial that cannot run here.
fn skipped(trial: &Trial<'_>, kind: Kind, topology: &Topology, reason: String) -> Record {
    let mut record = trial.record(kind, topology, BTreeMap::new());
    record.outcome = Outcome::Skipped { reason };
    record
}
