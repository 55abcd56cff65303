//! `tcpcost run`: every cell of a study, repetition by repetition, each trial on disk before the next.

mod bed;
mod directory;
mod distance_wait;
mod exact_instructions;
mod functions;
mod guests;
mod host;
mod last_words;
mod launcher;
mod nodes;
mod phases;
mod placement;
mod plan;
mod progress;
mod push;
mod reap;
mod trial;
mod warnings;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use tcpcost_report::Summary;
use tcpcost_signals::Interrupt;
use tcpcost_study::{
    Bed as Kind, Cell, CpuDistance, HostName, Machine, Outcome, Reach, Record, Study, Topology,
    Value, Warning, WarningCode,
};

use self::bed::Bed;
use self::distance_wait::DistanceWait;
use self::host::Held;
use self::nodes::{AskError, Events};
use self::plan::Plan;
use self::progress::Progress;
use self::trial::{Trial, TrialError};
use crate::cli;
use crate::exit::{Exit, usage};
use crate::net_config;
use crate::output;
use crate::slurm::{self, Allocation, Job};
use crate::uperf;
use tcpcost_host::lock::Hold;
use tcpcost_host::namespace;
use tcpcost_host::namespace::Way;

pub use self::directory::{Directory, Overrides, RECORDS, StoredRun};
pub use self::exact_instructions::ExactInstructions;
pub use self::functions::ByFunction;
pub use self::guests::Boots;
pub use self::launcher::Launchers;

/// Requests to stop, for a command that conducts several runs.
pub fn requests_to_stop() -> anyhow::Result<Interrupt> {
    Interrupt::watch(ENDS_AT_ONCE).context("wait for signals")
}

/// The first signal ends the run with a report of what is there; the second ends the agents, if they
/// do not end by themselves; the third leaves the report out.
const ENDS_AT_ONCE: u32 = 3;

/// Runs a study as the command line says.
pub fn run(args: &cli::RunArgs) -> anyhow::Result<Exit> {
    if let (Some(directory), true) = (&args.resume, args.dry_run) {
        let stored = StoredRun::load(directory)?;
        output::write(&plan::dry_run(&stored.study))?;
        return Ok(Exit::Ok);
    }
    let baseline = match &args.baseline {
        Some(directory) => Some(Baseline::load(directory)?),
        None => None,
    };
    let mut launchers = Launchers::new(&args.hosts)?;
    if args.slurm {
        if let Some(rank) = slurm::other_rank() {
            output::say!("tcpcost: the first process of the step runs the study: {rank}");
            return Ok(Exit::Ok);
        }
        launchers.job = Allocation::here()?;
        if launchers.job.is_none() {
            return submit(args);
        }
    }
    let (mut store, run) = match (&args.resume, args.share) {
        (Some(path), Some(share)) => Directory::open_share(path, share)?,
        (Some(path), None) => Directory::open(path)?,
        (None, _) => {
            let named = args
                .study
                .as_deref()
                .expect("clap asks for a study unless --resume is given");
            let (name, text, file) = uperf::find(named)?;
            let overrides = overrides(args, name)?;
            let study = overrides.apply(&text, &file)?;
            if args.dry_run {
                output::write(&plan::dry_run(&study))?;
                return Ok(Exit::Ok);
            }
            if args.exact_instructions {
                // Before there is a directory that nothing will be in.
                tcpcost_guest::Guest::check_host().map_err(guests::unavailable)?;
            }
            let path = args
                .out
                .clone()
                .unwrap_or_else(|| default_directory(&study.name));
            let store = Directory::create(&path, &text, &overrides)?;
            (store, StoredRun::new(study, text, overrides))
        }
    };
    let StoredRun {
        mut study,
        text,
        overrides,
        records,
        ..
    } = run;
    if launchers.job.is_none() && slurm::nodes(&study) != Some(0) {
        launchers.job = Allocation::here()?;
    }
    if let (true, Some(job)) = (study.awaits_nodes(), &launchers.job) {
        study = store.settle(job.host_names())?;
    }
    let asked = overrides.exact_instructions.as_ref();
    if let Some(kernel) = asked.and_then(ExactInstructions::kernel) {
        let boots = Boots::new(&study, &text, &overrides, kernel, args.at_once);
        let boots = boots.inspect_err(|_| {
            // Nothing will be in it.
            if args.resume.is_none() {
                Directory::discard(store.path());
            }
        })?;
        return conduct_in_guests(
            &mut store,
            &study,
            records,
            &boots,
            baseline.as_ref(),
            args.telling,
        );
    }
    if overrides.exact_instructions == Some(ExactInstructions::Here) {
        // Who booted this guest reports.
        let Conducted { ended, .. } = trials(&mut store, &study, records, launchers, true)?;
        return ended.map(|_| Exit::Ok);
    }
    conduct(
        &mut store,
        &study,
        records,
        launchers,
        baseline.as_ref(),
        args.telling,
    )
}

/// Makes the run's directory, and submits a job that goes on with it.
fn submit(args: &cli::RunArgs) -> anyhow::Result<Exit> {
    let (path, study) = match &args.resume {
        Some(path) => {
            let run = StoredRun::load(path)?;
            run.say();
            (path.clone(), run.study)
        }
        None => {
            let named = args.study.as_deref().expect("clap asks for one");
            let (name, text, file) = uperf::find(named)?;
            let overrides = overrides(args, name)?;
            let study = overrides.apply(&text, &file)?;
            let out = args.out.clone();
            let path = out.unwrap_or_else(|| default_directory(&study.name));
            if !args.dry_run {
                // Its lock is the job's to have.
                drop(Directory::create(&path, &text, &overrides)?);
            }
            (path, study)
        }
    };
    let absolute =
        std::path::absolute(&path).with_context(|| format!("find {}", path.display()))?;
    let program = std::env::current_exe().context("find this program")?;
    let job = Job {
        study: &study.name,
        directory: &absolute,
        program: &program,
        nodes: slurm::nodes(&study),
    };
    if args.dry_run {
        output::write(&job.script())?;
        return Ok(Exit::Ok);
    }
    let submitted = slurm::submit(&job.script(), &args.sbatch, &path);
    if submitted.is_err() && args.resume.is_none() {
        // No job will ever write there.
        Directory::discard(&absolute);
    }
    Ok(match submitted? {
        true => Exit::Ok,
        false => Exit::Failed,
    })
}

/// An earlier run that a run is held against.
pub struct Baseline(Summary);

impl Baseline {
    /// Reads a run's directory.
    pub fn load(directory: &Path) -> anyhow::Result<Baseline> {
        let run = StoredRun::load(directory)?;
        run.say();
        Ok(Baseline(Summary::new(&run.study, &run.records)))
    }

    /// Adds the verdicts to a summary.
    pub fn hold(&self, summary: &mut Summary) {
        let min_effect = summary.study.measure.min_effect;
        summary.hold_against(&self.0, min_effect);
    }
}

/// Does what is left of a study's trials, and reports.
pub fn conduct(
    store: &mut Directory,
    study: &Study,
    records: Vec<Record>,
    launchers: Launchers,
    baseline: Option<&Baseline>,
    telling: cli::Telling,
) -> anyhow::Result<Exit> {
    let Conducted { records, ended } = trials(store, study, records, launchers, telling.quiet)?;
    report(store, study, &records, ended, baseline, telling)
}

/// What came of a run's trials: all records there are, and whether it was interrupted, or what ended it.
struct Conducted {
    records: Vec<Record>,
    ended: anyhow::Result<bool>,
}

/// Does what is left of a study's trials.
fn trials(
    store: &mut Directory,
    study: &Study,
    records: Vec<Record>,
    launchers: Launchers,
    quiet: bool,
) -> anyhow::Result<Conducted> {
    // As who this is; in a user namespace it is somebody else. A failure is no reason not to run.
    if let Err(error) = host::put_back("a killed run") {
        output::say!("tcpcost: {error:#}");
    }
    // Before any thread exists: a process with threads cannot enter a user namespace.
    let access = Access::gain(study);
    let interrupt = Interrupt::watch(ENDS_AT_ONCE).context("wait for signals")?;
    let mut events = Events::new(interrupt);

    let mut progress = Progress::new(Plan::trials(study, &records), quiet);
    progress.say(&format!("records and report: {}", store.path().display()));
    for warning in &access.warnings {
        progress.say(&format!("tcpcost: {}", warning.text));
    }
    let mut runner = Runner {
        study,
        plan: Plan::default(),
        records,
        bed: None,
        held: None,
        machines: BTreeMap::new(),
        launchers,
        access: &access,
        distance_wait: DistanceWait::new(),
        is_without_bed: false,
        lost: BTreeMap::new(),
    };
    let ended = runner.all(store, &mut events, &mut progress);
    // Whatever ended it: agents are gone, the host is as it was, and what is there is reported.
    let ended = runner.leave_bed().and(ended);
    progress.finish();
    Ok(Conducted {
        records: runner.records,
        ended,
    })
}

/// Boots guests until a study's trials are done, and reports.
pub fn conduct_in_guests(
    store: &mut Directory,
    study: &Study,
    mut records: Vec<Record>,
    boots: &Boots<'_>,
    baseline: Option<&Baseline>,
    telling: cli::Telling,
) -> anyhow::Result<Exit> {
    let interrupt = Interrupt::watch(ENDS_AT_ONCE).context("wait for signals")?;
    let mut progress = Progress::new(Plan::trials(study, &records), telling.quiet);
    progress.say(&format!("records and report: {}", store.path().display()));
    let ended = boots.run(store, &mut records, &interrupt, &mut progress);
    progress.finish();
    let exit = report(store, study, &records, ended, baseline, telling)?;
    if let (true, Some(functions)) = (
        telling.details && telling.format.is_text(),
        ByFunction::load(store.path()),
    ) {
        let cells = study.cells.iter();
        let tables = cells.map(|cell| format!("\n{}", functions.table(&cell.name)));
        output::write(&tables.collect::<String>())?;
    }
    Ok(exit)
}

/// A study's text, and how its file is called in errors.
pub struct Source<'a> {
    /// The text.
    pub text: &'a str,
    /// Its name.
    pub file: &'a str,
}

/// Measures a study in guests, into a directory, in which an earlier run of the same goes on; `None` if it was interrupted.
pub fn in_guests(
    path: &Path,
    source: &Source<'_>,
    overrides: &Overrides,
    at_once: Option<usize>,
    interrupt: &Interrupt,
    quiet: bool,
) -> anyhow::Result<Option<Summary>> {
    let study = overrides.apply(source.text, source.file)?;
    let asked = overrides.exact_instructions.as_ref();
    let Some(kernel) = asked.and_then(ExactInstructions::kernel) else {
        anyhow::bail!("not asked for in guests");
    };
    let boots = Boots::new(&study, source.text, overrides, kernel, at_once)?;
    let (mut store, mut records) = if path.join(RECORDS).exists() {
        let (store, run) = Directory::open(path)?;
        if run.overrides.exact_instructions != overrides.exact_instructions || run.study != study {
            return Err(usage(format!(
                "{} holds a run of something else: choose another --out",
                path.display()
            )));
        }
        (store, run.records)
    } else {
        (Directory::create(path, source.text, overrides)?, Vec::new())
    };
    let mut progress = Progress::new(Plan::trials(&study, &records), quiet);
    progress.say(&format!("records: {}", path.display()));
    let interrupted = boots.run(&mut store, &mut records, interrupt, &mut progress);
    progress.finish();
    Ok((!interrupted?).then(|| Summary::new(&study, &records)))
}

/// Tells what came of a run; `ended` is whether it was interrupted, or what ended it.
fn report(
    store: &Directory,
    study: &Study,
    records: &[Record],
    ended: anyhow::Result<bool>,
    baseline: Option<&Baseline>,
    telling: cli::Telling,
) -> anyhow::Result<Exit> {
    let mut summary = Summary::new(study, records);
    if let Some(baseline) = baseline {
        baseline.hold(&mut summary);
    }
    let page = output::write_html(store.path(), &summary);
    let exit = output::exit(&summary);
    let printed = output::print(
        std::slice::from_ref(&summary),
        telling.format,
        telling.details,
    );
    let interrupted = ended?;
    if interrupted {
        output::say!(
            "tcpcost: interrupted; go on with: tcpcost run --resume {}",
            store.path().display()
        );
    }
    page.and(printed)?;
    output::say_what_is_missing(&summary);
    if !(telling.details || telling.quiet || !telling.format.is_text()) {
        let directory = store.path().display();
        output::say!(
            "all tables: tcpcost report --details {directory}; the page: {directory}/report.html"
        );
    }
    Ok(if interrupted { Exit::Interrupted } else { exit })
}

fn overrides(args: &cli::RunArgs, study: String) -> anyhow::Result<Overrides> {
    let hosts = args.net_config.as_deref().map(net_config::knobs);
    let mut set = hosts.transpose()?.unwrap_or_default();
    set.extend(pairs("--set", &args.set)?);
    Ok(Overrides {
        study,
        set,
        repetitions: args.repetitions,
        share: args.share,
        slurm: args.slurm,
        nodes: Vec::new(),
        duration: args.duration.clone(),
        seed: args.seed,
        meter_cost: args.meter_cost,
        capture: args.capture,
        quick: args.quick,
        compare: None,
        min_effect: percentage("--min-effect", args.min_effect)?,
        time_max: None,
        exact_instructions: args
            .exact_instructions
            .then(|| ExactInstructions::in_guests(args.kernel.clone(), args.vng)),
    })
}

/// `KNOB=VALUE`, each.
///
/// # Errors
/// No `=`.
pub fn pairs(flag: &str, texts: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    let pair = |text: &String| match text.split_once('=') {
        Some((knob, value)) => Ok((knob.trim().to_string(), value.trim().to_string())),
        None => Err(usage(format!(
            "{flag} {text}: expected KNOB=VALUE, e.g. write_size=4KiB"
        ))),
    };
    texts.iter().map(pair).collect()
}

/// An option in percent, over 1.
///
/// # Errors
/// Not from 0 to below 100.
pub fn percentage(flag: &str, percent: Option<f64>) -> anyhow::Result<Option<f64>> {
    match percent {
        Some(percent) if !(0.0..100.0).contains(&percent) => Err(usage(format!(
            "{flag} {percent}: expected a percentage from 0 to 100"
        ))),
        percent => Ok(percent.map(|percent| percent / 100.0)),
    }
}

/// Where a run's directory is made unless the command line says.
pub fn default_directory(study: &str) -> PathBuf {
    let now = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
    let parent = PathBuf::from("tcpcost-out");
    // A script's second run may begin within the same second.
    let mut names = std::iter::once(format!("{study}-{now}"))
        .chain((2..).map(|count| format!("{study}-{now}-{count}")));
    let free = names.find(|name| !parent.join(name).exists());
    parent.join(free.expect("numbers are endless"))
}

const IN_USER_NAMESPACE: &str = "not root: the namespaces are made inside a user namespace, where the kernel refuses to steer receive work, so CPU time is measured for both ends together only; run as root for it";

/// Which beds this user can have on this host.
struct Access {
    /// What `bed = "auto"` means, or why it is not `netns`.
    netns: Result<(), String>,
    /// What that costs the measurement, once, in words.
    warnings: Vec<Warning>,
}

impl Access {
    /// Finds out, entering a user namespace where that is the way. Only asks for what the study
    /// needs.
    fn gain(study: &Study) -> Access {
        let makes = |cell: &Cell| match cell.knobs.names_hosts() {
            // One of them is enough: a device is moved there.
            true => {
                let mut hosts = cell.knobs.named_hosts().into_iter();
                hosts.any(|host| cell.knobs.reach(host) == Some(Reach::Netns))
            }
            false => bed_word(cell) != "loopback",
        };
        let wanted = study.cells.iter().any(makes);
        if !wanted {
            return Access {
                netns: Err("not asked for".to_string()),
                warnings: Vec::new(),
            };
        }
        let gained = match namespace::can_make_namespaces() {
            Ok(Way::Privileged) => Ok(None),
            Ok(Way::UserNamespace) => match namespace::enter_user_namespace() {
                Ok(()) => Ok(Some(IN_USER_NAMESPACE.to_string())),
                Err(error) => Err(error.to_string()),
            },
            Err(reason) => Err(reason),
        };
        let warning = |text: String| Warning {
            code: WarningCode::Other,
            text,
        };
        match gained {
            Ok(text) => Access {
                netns: Ok(()),
                warnings: text.map(warning).into_iter().collect(),
            },
            Err(reason) => {
                let text = format!(
                    "network namespaces cannot be had ({reason}): cells with bed = \"auto\" run over loopback, where CPU time, offloads and routes cannot be separated by end"
                );
                Access {
                    netns: Err(reason),
                    warnings: vec![warning(text)],
                }
            }
        }
    }
}

fn bed_word(cell: &Cell) -> String {
    cell.knobs.word("bed").expect("the bed has a default")
}

/// The bed that a cell asks for by its knobs `bed` and `stack`; or the one it would be, and why it
/// cannot be had.
fn bed_of(cell: &Cell, netns: &Result<(), String>) -> Result<Kind, (Kind, String)> {
    let is_ours =
        |host| cell.knobs.value_at(host, "stack") == Some(Value::Word("user".to_string()));
    let word = bed_word(cell);
    if cell.knobs.names_hosts() {
        let kind = Kind::of_named(&cell.knobs).map_err(|reason| (Kind::Hosts, reason))?;
        return match word.as_str() {
            "auto" => Ok(kind),
            _ if word == kind.word() => Ok(kind),
            _ => Err((
                kind,
                format!("{word} has hosts of its own: leave [hosts] out"),
            )),
        };
    }
    if word == Kind::Hosts.word() {
        return Err((
            Kind::Hosts,
            "no hosts are named: [hosts] names them".to_string(),
        ));
    }
    let (kind, stacks) = match HostName::PAIR.map(is_ours) {
        [false, false] if word == "loopback" || (word == "auto" && netns.is_err()) => {
            (Kind::Loopback, "kernel at both ends")
        }
        [false, false] => (Kind::Netns, "kernel at both ends"),
        [true, true] => (Kind::Memory, "user at both ends"),
        _ => (Kind::Tap, "user at one end"),
    };
    if word != "auto" && word != kind.word() {
        return Err((kind, format!("{word} is no bed for stack = {stacks}")));
    }
    match (kind, netns) {
        (Kind::Netns | Kind::Tap, Err(reason)) => Err((kind, reason.clone())),
        _ => Ok(kind),
    }
}

struct Runner<'a> {
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
    /// Whether the last bed that was tried lost an agent before it was there.
    is_without_bed: bool,
    /// Hosts of rounds whose agents could not be started, and why: the others go on.
    lost: BTreeMap<HostName, String>,
}

impl Runner<'_> {
    /// Runs until the plan is done; true if it was interrupted before.
    fn all(
        &mut self,
        store: &mut Directory,
        events: &mut Events,
        progress: &mut Progress,
    ) -> anyhow::Result<bool> {
        let captures = store.captures();
        while let Some(next) = self.plan.next(self.study, &self.records) {
            if events.interrupt.is_set() {
                return Ok(true);
            }
            let cell = &self.study.cells[next.cell];
            progress.begin(&cell.name);
            if cell.captured.is_some() {
                std::fs::create_dir_all(&captures)
                    .with_context(|| format!("create {}", captures.display()))?;
            }
            let of = cell.captured.as_ref().unwrap_or(&cell.name);
            let place = self.study.cells.iter().position(|own| own.name == *of);
            let number = place.unwrap_or(next.cell) + 1;
            let left_out = self.lost.iter().map(|(host, reason)| Warning {
                code: WarningCode::Other,
                text: format!("{host} is left out: {reason}"),
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
                captures: &captures,
                repetition: next.repetition,
                attempt: next.attempt,
                warnings: &warnings,
            };
            let Some(record) = self.one(&trial, events, progress)? else {
                return Ok(true);
            };
            self.records.push(record);
            CpuDistance::mark_far(&mut self.records);
            let last = self.records.last().expect("just pushed");
            if let Err(error) = store.append(last) {
                // What is reported is what is on the disk.
                self.records.pop();
                return Err(error);
            }
            progress.end(self.study, last, Plan::trials(self.study, &self.records));
        }
        Ok(false)
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
            match Bed::make(kind, &topology, trial.cell, launchers, changes, events) {
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
        let waited = self
            .distance_wait
            .wait(bed, &topology, knobs, &self.records, events);
        let ran = match waited {
            Ok(()) => trial.run(bed, &topology, events),
            Err(error) => Err(trial.not_begun(bed, &topology, &error)),
        };
        match ran {
            Ok(record) => {
                // What failed may be the bed: a veth goes with the other end's dead agent.
                if matches!(record.outcome, Outcome::Failed { .. }) {
                    self.leave_bed()?;
                }
                Ok(Some(record))
            }
            Err(TrialError::Interrupted) => Ok(None),
            Err(TrialError::Bed(record)) => {
                self.leave_bed()?;
                Ok(Some(*record))
            }
        }
    }

    /// Ends the bed's agents and puts back what they did not, before anybody else has the host.
    fn leave_bed(&mut self) -> anyhow::Result<()> {
        self.bed = None;
        let held = self.held.take();
        held.map_or(Ok(()), |_held| host::put_back("a dead agent").map(drop))
    }

    /// Whether any cell changes settings of these hosts.
    fn changes_hosts(&self, topology: &Topology) -> bool {
        let hosts: Vec<HostName> = topology.names().collect();
        host::need(self.study.cells.iter(), &hosts) == Hold::Alone
    }

    /// Cells whose ends are on the host's own devices.
    fn on_loopback(&self) -> impl Iterator<Item = &Cell> {
        let netns = &self.access.netns;
        let cells = self.study.cells.iter();
        cells.filter(move |cell| matches!(bed_of(cell, netns), Ok(Kind::Loopback)))
    }
}
