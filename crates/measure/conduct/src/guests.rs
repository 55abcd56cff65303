//! `tcpcost run --guest`: runs each trial of a study in a restored guest whose clock counts instructions, and stores the records as
//! this run's.
//!
//! A repetition is a snapshot: a guest that was booted with one seed. Each of its cells is a restore of that snapshot, so cells are
//! compared within one layout of the kernel, and repetitions differ by it.
//!
//! The command runs in the guest together with its agents. So its questions and waits use the same clock, and nothing crosses the serial
//! port during a measurement. This module restores the guests, and makes failed records for guests that fail.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::Context;
use tcpcost_console::exit::{Exit, Stop, usage};
use tcpcost_console::output;
use tcpcost_guest::{Boot, BootEnd, Caches, Guest, GuestError, INSTRUCTIONS_PER_NS, Image};
use tcpcost_guest::{Kernel, Limit, Line, Machine, Plugin, Setup};
use tcpcost_guest::{Snapshot, Snapshots, Span, Task};
use tcpcost_signals::Interrupt;
use tcpcost_study::{
    Cell, Outcome, Reading, Record, SCHEMA_VERSION, Shared, Study, Topology, Warning, WarningCode,
};

use super::directory::{Directory, OVERRIDES, RECORDS, STUDY};
use super::exact_instructions::ExactInstructions;
use super::functions::{self, ByFunction, FUNCTIONS};
use super::overrides::Overrides;
use super::progress::Progress;

/// Unit to which the memory of a guest is rounded up in records.
const MEMORY_STEP: u64 = 16 << 20;

/// Kernel modules that beds and knobs need, unless they are built in.
const MODULES: &[&str] = &[
    "veth",
    "tun",
    "sch_fq",
    "sch_tbf",
    "sch_netem",
    "sch_ingress",
    "cls_bpf",
    "act_bpf",
    "tcp_bbr",
    "tcp_dctcp",
    "tls",
];

/// The guests of a run.
pub struct Guests<'a> {
    study: &'a Study,
    guest: Guest,
    files: Vec<(String, Vec<u8>)>,
    overrides: Overrides,
    /// Limit on the guests that run at the same time.
    at_once: usize,
    /// QEMU plugin that counts by function, or why there is none.
    plugin: Result<Plugin, GuestError>,
    snapshots: Snapshots,
}

/// A trial to do.
#[derive(Debug, Clone, Copy)]
struct Job<'a> {
    cell: &'a Cell,
    repetition: u32,
    /// True if it is restored twice, and must give the same counts twice.
    is_checked: bool,
}

/// Result of a trial.
struct Trial {
    record: Record,
    /// The kernel's release, and instructions by function, if they were counted.
    functions: Option<(String, Span)>,
    /// Reason why there are no instructions by function.
    no_functions: Option<String>,
}

/// Snapshot of a repetition, made when it is first wanted.
type OfRepetition = OnceLock<Result<Snapshot, GuestError>>;

/// Number of restores of which one is a check.
const CHECKED: usize = 20;

/// Limit of a trial. The guest ends an interval after a minute of its own time, which takes 300 to 600 s of CPU.
const LIMIT: Limit = Limit {
    cpu: Duration::from_secs(1200),
    wall: Duration::from_secs(4 * 3600),
};

impl<'a> Guests<'a> {
    /// Makes the image of a guest, with this kernel and this program.
    ///
    /// # Errors
    /// This host has no QEMU (exit code 77), there is no such kernel, or the program cannot be packed.
    pub fn new(
        study: &'a Study,
        text: &str,
        overrides: &Overrides,
        kernel: Option<&Path>,
        at_once: Option<usize>,
    ) -> anyhow::Result<Guests<'a>> {
        let program = std::env::current_exe().context("find this program's file")?;
        let made = Guest::check_host()
            .and_then(|()| Kernel::find(kernel))
            .and_then(|kernel| {
                let setup = Setup::parse(&overrides.init)?;
                let image = Image::make(&program, &kernel, MODULES, &setup)?;
                Ok((Guest::new(kernel, image)?, Snapshots::open()?))
            });
        let (guest, snapshots) = made.map_err(unavailable)?;
        let kernel = guest.kernel();
        match kernel
            .config()
            .map(|config| config.lacks(kernel.modules.is_some()))
        {
            Some(lacks) if !lacks.is_empty() => {
                output::say!("tcpcost: {}: lacks {}", kernel.named, lacks.join(", "));
            }
            None if kernel.modules.is_none() => output::say!(
                "tcpcost: {}: has no modules and no .config: what a study needs (veth) must be built in",
                kernel.named
            ),
            _ => {}
        }
        let caches: Option<Caches> = match &overrides.caches {
            Some(text) => Some(
                text.parse()
                    .map_err(|error| usage(format!("--caches {text}: {error}")))?,
            ),
            None => None,
        };
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Guests {
            study,
            guest,
            files: vec![(STUDY.to_string(), text.as_bytes().to_vec())],
            overrides: overrides.clone(),
            at_once: at_once.unwrap_or(cpus).max(1),
            // Without a plugin instructions are counted by context only, and a line says so.
            plugin: Plugin::build(caches),
            snapshots,
        })
    }

    /// Restores guests until each repetition has its trials. Returns true if interrupted before.
    pub fn run(
        &self,
        store: &mut Directory,
        records: &mut Vec<Record>,
        interrupt: &Interrupt,
        progress: &mut Progress,
    ) -> anyhow::Result<bool> {
        let jobs = self.jobs(records);
        let next = AtomicUsize::new(0);
        let repetitions = self.study.measure.repetitions as usize;
        let snapshots: Vec<OfRepetition> = (0..repetitions).map(|_| OnceLock::new()).collect();
        std::thread::scope(|scope| {
            let (sender, done) = channel();
            for thread in 0..self.at_once.min(jobs.len()) {
                let (sender, next, jobs, snapshots) = (sender.clone(), &next, &jobs, &snapshots);
                scope.spawn(move || {
                    while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let stop = || interrupt.is_set();
                        let result = self.trial(*job, thread, snapshots, &stop);
                        // An error means that the receiver has failed and needs no more trials.
                        if stop() || sender.send(result).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            self.store(&done, store, records, progress)
        })?;
        Ok(interrupt.is_set())
    }

    /// Trials that no record has, cell by cell, so that snapshots are made at the same time.
    fn jobs(&self, records: &[Record]) -> Vec<Job<'a>> {
        let done: BTreeSet<(&str, u32)> = records
            .iter()
            .map(|record| (record.cell.as_str(), record.repetition))
            .collect();
        let cells = self.study.cells.iter();
        let all = cells.flat_map(|cell| {
            let repetitions = 0..self.study.measure.repetitions;
            repetitions.map(move |repetition| (cell, repetition))
        });
        let wanted = all.filter(|(cell, number)| !done.contains(&(cell.name.as_str(), *number)));
        let numbered = wanted.enumerate();
        numbered
            .map(|(at, (cell, repetition))| Job {
                cell,
                repetition,
                is_checked: at % CHECKED == 0,
            })
            .collect()
    }

    /// Stores the record of each trial as it ends.
    fn store(
        &self,
        done: &Receiver<Result<Trial, GuestError>>,
        store: &mut Directory,
        records: &mut Vec<Record>,
        progress: &mut Progress,
    ) -> anyhow::Result<()> {
        let trials = self.study.cells.len() as u64 * u64::from(self.study.measure.repetitions);
        let mut by_function = ByFunction::load(store.path()).unwrap_or_default();
        let mut is_told = false;
        for result in done {
            let trial = result.map_err(unavailable)?;
            if let (Some(reason), false) = (&trial.no_functions, is_told) {
                is_told = true;
                progress.say(&format!(
                    "tcpcost: instructions are counted by context, but not by function, and copies are not separate: {reason}"
                ));
            }
            let record = trial.record;
            progress.begin(&record.cell);
            store.append(&record)?;
            progress.end(self.study, &record, trials);
            if let Some((release, functions)) = trial.functions {
                by_function.add(&release, functions, &record);
            }
            records.push(record);
        }
        by_function.caches.clone_from(&self.overrides.caches);
        if by_function.is_empty() {
            return Ok(());
        }
        store.replace(FUNCTIONS, &serde_json::to_string(&by_function)?)
    }

    /// Restores a guest for one trial. A trial that fails is tried once more with the same seed.
    fn trial(
        &self,
        job: Job,
        thread: usize,
        snapshots: &[OfRepetition],
        stop: &dyn Fn() -> bool,
    ) -> Result<Trial, GuestError> {
        let of_it = &snapshots[job.repetition as usize];
        let snapshot = match of_it.get_or_init(|| self.snapshot(job.repetition, stop)) {
            Ok(snapshot) => snapshot,
            Err(GuestError::DidNotComeUp(reason)) => {
                return Err(GuestError::DidNotComeUp(reason.clone()));
            }
            Err(error) => return Err(GuestError::NotSaved(error.to_string())),
        };
        let first = self.restore(job, thread, snapshot, stop)?;
        let has_failed = matches!(first.record.outcome, Outcome::Failed { .. });
        let is_checked = job.is_checked && first.record.is_measured();
        if stop() || !(has_failed || is_checked) {
            return Ok(first);
        }
        let again = self.restore(job, thread, snapshot, stop)?;
        if stop() || has_failed {
            return Ok(again);
        }
        // A second guest that failed says nothing of the first.
        if !again.record.is_measured() || counts(&first) == counts(&again) {
            return Ok(first);
        }
        // One restore in some hundred counted otherwise: the clock of QEMU 7.2 is not wholly free of the host's.
        let third = self.restore(job, thread, snapshot, stop)?;
        let numbers = [&first, &again, &third].map(all);
        match [first, again].into_iter().find(|one| counts(one) == counts(&third)) {
            Some(mut agreed) => {
                let text = format!(
                    "of three guests restored with one seed one counted otherwise and is left out: {} instructions",
                    listed(&numbers)
                );
                let warning = Warning::new(WarningCode::Other, text);
                agreed.record.warnings.push(warning);
                Ok(agreed)
            }
            None => Ok(self.failed(
                job,
                format!(
                    "three guests restored with one seed counted {} instructions: remove the snapshots with `tcpcost kernels --clean`, and run again (snapshot {})",
                    listed(&numbers),
                    snapshot.key()
                ),
            )),
        }
    }

    fn snapshot(&self, repetition: u32, stop: &dyn Fn() -> bool) -> Result<Snapshot, GuestError> {
        let seed = self.seed(repetition) % (1 << 31);
        let mut machine = Machine::new(u32::try_from(seed).expect("31 bits"));
        machine
            .kernel_options
            .push(format!("tcpcost.instructions_per_ns={INSTRUCTIONS_PER_NS}"));
        // Last, so that they take precedence.
        machine.kernel_options.extend(self.overrides.append.clone());
        self.snapshots.get(&self.guest, &machine, stop)
    }

    fn restore(
        &self,
        job: Job,
        thread: usize,
        snapshot: &Snapshot,
        stop: &dyn Fn() -> bool,
    ) -> Result<Trial, GuestError> {
        let overrides = Overrides {
            repetitions: Some(1),
            seed: Some(self.seed(job.repetition)),
            cells: vec![job.cell.name.clone()],
            exact_instructions: Some(ExactInstructions::Here),
            // The plugin's, outside the guest: another task would give other counts.
            caches: None,
            ..self.overrides.clone()
        };
        let overrides = serde_json::to_vec(&overrides).expect("overrides have only text keys");
        let mut files = self.files.clone();
        files.push((OVERRIDES.to_string(), overrides));
        files.push((RECORDS.to_string(), Vec::new()));
        let task = Task {
            // The guest gets --allow-exec, because the study's commands were checked before.
            arguments: ["run", "--quiet", "--allow-exec", "--resume", Task::FOLDER]
                .map(String::from)
                .to_vec(),
            files,
            results: vec![RECORDS.to_string()],
            // The bed `loopback` uses the host's, which is down when a kernel starts.
            addresses: vec![("lo".to_string(), Ipv4Addr::LOCALHOST, 8)],
            ..Task::default()
        };
        let options = self
            .plugin
            .as_ref()
            .map(|plugin| plugin.options(thread, &snapshot.symbols));
        let options = options.map_or(Vec::new(), |options| options.to_vec());
        let seed = self.seed(job.repetition);
        let boot = snapshot.restore(&self.guest, seed, &task, &options, LIMIT, stop)?;
        let Some(mut record) = self.record(job, &boot) else {
            return Ok(self.failed(job, why_no_record(&boot)));
        };
        let functions = self.functions(thread, snapshot, &mut record);
        let (functions, no_functions) = match functions {
            Ok(functions) => (functions, None),
            Err(error) => (None, Some(error.to_string())),
        };
        Ok(Trial {
            functions: functions.map(|functions| (snapshot.release.clone(), functions)),
            no_functions,
            record,
        })
    }

    /// Record of a trial, converted to one of this run. `None` if the guest sent none, or was ended: its counts by function are then
    /// missing, too.
    fn record(&self, job: Job, boot: &Boot) -> Option<Record> {
        if !matches!(boot.ended, BootEnd::Done(_)) {
            return None;
        }
        // The last of several attempts counts.
        let mut record = boot.lines.iter().rev().find_map(record)?;
        for machine in record.machines.values_mut() {
            // Values that differ between snapshots would make each look like another machine: the rate of the time-stamp counter is a
            // guess here, and the kernel's layout changes the size of memory by some pages.
            machine.tsc_hz = None;
            machine.memory_bytes = machine.memory_bytes.next_multiple_of(MEMORY_STEP);
        }
        Some(Record {
            repetition: job.repetition,
            attempt: 0,
            // Each guest's clock starts at the same time, so it says nothing.
            started: now(),
            ..record
        })
    }

    /// Reads the instructions by function that the plugin counted, and adds their sums to the record. `None` if nothing was measured.
    fn functions(
        &self,
        thread: usize,
        snapshot: &Snapshot,
        record: &mut Record,
    ) -> Result<Option<Span>, GuestError> {
        let plugin = self
            .plugin
            .as_ref()
            .map_err(|error| GuestError::Missing(error.to_string()))?;
        let mut spans = plugin.spans(thread, &snapshot.symbols)?;
        if !record.is_measured() {
            return Ok(None);
        }
        // The last of several attempts counts.
        let span = spans.pop().ok_or_else(|| {
            GuestError::Missing("the plugin saw no mark of the trial's interval".to_string())
        })?;
        functions::add_sums(record, &span);
        Ok(Some(span))
    }

    /// Seed of a repetition: for its snapshot, the payload, and all random numbers of its kernel.
    fn seed(&self, repetition: u32) -> u64 {
        let of_run = self.study.measure.seed;
        of_run
            .wrapping_mul(1_000_003)
            .wrapping_add(u64::from(repetition) + 1)
            % (1 << 48)
    }

    /// Failed trial with this reason.
    fn failed(&self, job: Job, reason: String) -> Trial {
        let record = Record {
            schema_version: SCHEMA_VERSION,
            study: self.study.name.clone(),
            cell: job.cell.name.clone(),
            knobs: job.cell.knobs.clone().into(),
            repetition: job.repetition,
            attempt: 0,
            seed: self.seed(job.repetition),
            started: now(),
            bed: String::new(),
            captured: false,
            interval_ns: 0,
            took_ns: None,
            work: self.study.measure.work,
            outcome: Outcome::Failed { reason },
            warnings: Vec::new(),
            cpu_distances: Vec::new(),
            topology: Topology::default().into(),
            machines: Shared::default(),
            hosts: [].into(),
        };
        Trial {
            record,
            functions: None,
            no_functions: None,
        }
    }
}

/// All counts of a trial, which two restores with one seed must have in common.
fn counts(trial: &Trial) -> (Option<&Span>, Vec<&Reading>) {
    let functions = trial.functions.as_ref().map(|(_, functions)| functions);
    let hosts = trial.record.hosts.values();
    (functions, hosts.flat_map(|host| &host.readings).collect())
}

/// Number of instructions that the emulator counted in a trial.
fn all(trial: &Trial) -> u64 {
    let functions = trial.functions.iter();
    functions
        .flat_map(|(_, span)| span.functions.values())
        .sum()
}

/// Text such as `10, 10 and 11`.
fn listed([first, second, third]: &[u64; 3]) -> String {
    format!("{first}, {second} and {third}")
}

/// Reason why a guest that ended has no record of the trial.
fn why_no_record(boot: &Boot) -> String {
    boot.failure().unwrap_or_else(|| {
        let said = boot.lines.iter().rev().find_map(|line| match line {
            Line::Printed(text) if !text.is_empty() => Some(text.as_str()),
            _ => None,
        });
        let said = said.map_or(String::new(), |said| {
            format!("; last line of its output: {said}")
        });
        format!("the guest measured no trial of this cell{said}")
    })
}

/// Time as in records.
fn now() -> String {
    let now = jiff::Timestamp::now();
    now.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// Parses a line of a guest as a record. `None` if it is none.
fn record(line: &Line) -> Option<Record> {
    match line {
        Line::ResultsFile(file, line) if file == RECORDS => Record::from_line(line).ok(),
        _ => None,
    }
}

/// Adds the exit code to an error of a guest: 77 if this host lacks something that guests need. An error with exit code 1 stays what
/// it is.
pub fn unavailable(error: GuestError) -> anyhow::Error {
    let exit = match error {
        GuestError::Missing(_) => Exit::Unavailable,
        GuestError::NoKernel { .. } => Exit::Usage,
        other => return other.into(),
    };
    anyhow::Error::new(Stop {
        exit,
        text: error.to_string(),
    })
}
