//! `tcpcost run --guest`: runs the study in guests whose clock counts instructions, with one boot for each repetition, and stores their
//! records as this run's.
//!
//! The command runs in the guest together with its agents. So its questions and waits use the same clock, and nothing crosses the serial
//! port during a measurement. This module boots the guests, and makes failed records for guests that fail.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::Context;
use tcpcost_console::exit::{Exit, Stop};
use tcpcost_guest::{Boot, Guest, GuestError, INSTRUCTIONS_PER_NS, Image, Kernel, Line, Machine};
use tcpcost_guest::{BootEnd, Plugin, Task};
use tcpcost_signals::Interrupt;
use tcpcost_study::{Outcome, Record, SCHEMA_VERSION, Study, Topology};

use super::directory::{Directory, OVERRIDES, Overrides, RECORDS, STUDY};
use super::exact_instructions::ExactInstructions;
use super::functions::{self, ByFunction, FUNCTIONS};
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

/// The boots of a run.
pub struct Boots<'a> {
    study: &'a Study,
    guest: Guest,
    files: Vec<(String, Vec<u8>)>,
    overrides: Overrides,
    /// Limit on the guests that run at the same time.
    at_once: usize,
    /// QEMU plugin that counts by function, or why there is none.
    plugin: Result<Plugin, String>,
}

/// Result of a boot.
struct Booted {
    number: u32,
    result: Result<Boot, GuestError>,
}

impl<'a> Boots<'a> {
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
    ) -> anyhow::Result<Boots<'a>> {
        let program = std::env::current_exe().context("find this program's file")?;
        let guest = Guest::check_host()
            .and_then(|()| Kernel::find(kernel))
            .and_then(|kernel| {
                let image = Image::make(&program, &kernel, MODULES)?;
                Guest::new(kernel, image)
            })
            .map_err(unavailable)?;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Boots {
            study,
            guest,
            files: vec![(STUDY.to_string(), text.as_bytes().to_vec())],
            overrides: overrides.clone(),
            at_once: at_once.unwrap_or(cpus).max(1),
            // Without a plugin instructions are counted by context only, and a line says so.
            plugin: Plugin::build().map_err(|error| error.to_string()),
        })
    }

    /// Boots guests until each repetition has its trials. Returns true if interrupted before.
    pub fn run(
        &self,
        store: &mut Directory,
        records: &mut Vec<Record>,
        interrupt: &Interrupt,
        progress: &mut Progress,
    ) -> anyhow::Result<bool> {
        let done: BTreeSet<u32> = records.iter().map(|record| record.repetition).collect();
        let wanted: Vec<u32> = (0..self.study.measure.repetitions)
            .filter(|number| !done.contains(number))
            .collect();
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let (sender, booted) = channel();
            for _ in 0..self.at_once.min(wanted.len()) {
                let (sender, next, wanted) = (sender.clone(), &next, &wanted);
                scope.spawn(move || {
                    while let Some(&number) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if interrupt.is_set() {
                            return;
                        }
                        let result = self.boot(number, &|| interrupt.is_set());
                        // An error means that the receiver has failed and needs no more boots.
                        if sender.send(Booted { number, result }).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            self.store(&booted, store, records, progress)
        })?;
        Ok(interrupt.is_set())
    }

    /// Stores the records of each boot as it ends.
    fn store(
        &self,
        booted: &Receiver<Booted>,
        store: &mut Directory,
        records: &mut Vec<Record>,
        progress: &mut Progress,
    ) -> anyhow::Result<()> {
        for Booted { number, result } in booted {
            let boot = result.map_err(unavailable)?;
            if boot.ended == BootEnd::Stopped {
                continue;
            }
            let trials = self.study.cells.len() as u64 * u64::from(self.study.measure.repetitions);
            let (found, no_functions) = self.records(number, &boot, store);
            if let (0, Some(reason)) = (number, no_functions) {
                progress.say(&format!(
                    "tcpcost: instructions are counted by context, but not by function, and copies are not separate: {reason}"
                ));
            }
            for record in found {
                progress.begin(&record.cell);
                store.append(&record)?;
                progress.end(self.study, &record, trials);
                records.push(record);
            }
        }
        Ok(())
    }

    /// Reads a boot's instructions by function and trial. Adds the instructions that moved memory to the records, and writes the functions of
    /// the first boot to a file.
    fn functions(
        &self,
        number: u32,
        boot: &Boot,
        trials: &mut [Record],
        store: &Directory,
    ) -> Result<(), String> {
        let plugin = self.plugin.as_ref().map_err(Clone::clone)?;
        if boot.symbols.is_empty() {
            return Err("the guest sent no symbols".to_string());
        }
        let spans = plugin.spans(number, &boot.symbols);
        let spans = spans.map_err(|error| error.to_string())?;
        functions::add_memory(trials, &spans)
            .ok_or("the numbers of trials and marked spans differ")?;
        if number > 0 {
            return Ok(());
        }
        let release = boot.release.as_deref().unwrap_or_default();
        let by_function = ByFunction::new(release, spans, trials);
        let text = serde_json::to_string(&by_function).map_err(|error| error.to_string())?;
        store
            .replace(FUNCTIONS, &text)
            .map_err(|error| format!("{error:#}"))
    }

    fn boot(&self, number: u32, stop: &dyn Fn() -> bool) -> Result<Boot, GuestError> {
        let seed = self.seed(number);
        let mut machine = Machine::new(u32::try_from(seed % (1 << 31)).expect("31 bits"));
        machine
            .kernel_options
            .push(format!("tcpcost.instructions_per_ns={INSTRUCTIONS_PER_NS}"));
        let overrides = Overrides {
            repetitions: Some(1),
            seed: Some(seed),
            exact_instructions: Some(ExactInstructions::Here),
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
            ..Task::default()
        };
        let mut task = task;
        if let Ok(plugin) = &self.plugin {
            machine.options.extend(plugin.options(number));
            task.wants_symbols = true;
        }
        self.guest.boot(&machine, &task, self.time_limit(), stop)
    }

    /// Seed of a boot: for the order of cells, the payload, and all random numbers of its kernel, which come from QEMU.
    fn seed(&self, number: u32) -> u64 {
        let of_run = self.study.measure.seed;
        of_run
            .wrapping_mul(1_000_003)
            .wrapping_add(u64::from(number) + 1)
            % (1 << 48)
    }

    /// Time limit of a boot. On an idle CPU the start takes 8 s and a cell some seconds; at load 30 on two CPUs three cells took more than
    /// 210 s.
    fn time_limit(&self) -> Duration {
        let cells = u32::try_from(self.study.cells.len()).unwrap_or(u32::MAX);
        Duration::from_secs(300) + Duration::from_secs(60) * cells
    }

    /// Converts the records of boot `number` into records of repetition `number`. A cell without a record gets a failed record with the
    /// reason. The second value says why there are no counts by function; `None` if there are.
    fn records(
        &self,
        number: u32,
        boot: &Boot,
        store: &Directory,
    ) -> (Vec<Record>, Option<String>) {
        let started = jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%S%.3fZ")
            .to_string();
        // The symbols come last, and without them the instructions that moved memory are unknown. Records of a boot that ended before would
        // lack these, so they are dropped.
        let is_whole = self.plugin.is_err() || matches!(boot.ended, BootEnd::Done(_));
        let lines = boot.lines.iter().filter(|_| is_whole).filter_map(record);
        let mut records: Vec<Record> = Vec::new();
        for record in lines {
            // The last of several attempts in one boot counts.
            records.retain(|other| other.cell != record.cell);
            let mut record = record;
            for machine in record.machines.values_mut() {
                // Values that differ between boots would make each boot look like another machine: the rate of the time-stamp counter is a
                // guess here, and the kernel's layout changes the size of memory by some pages.
                machine.tsc_hz = None;
                machine.memory_bytes = machine.memory_bytes.next_multiple_of(MEMORY_STEP);
            }
            records.push(Record {
                repetition: number,
                attempt: 0,
                // Each guest's clock starts at the same time, so it says nothing.
                started: started.clone(),
                ..record
            });
        }
        let no_functions = self.functions(number, boot, &mut records, store).err();
        let reason = boot.failure().unwrap_or_else(|| {
            let said = boot.lines.iter().rev().find_map(|line| match line {
                Line::Printed(text) if !text.is_empty() => Some(text.as_str()),
                _ => None,
            });
            format!(
                "the guest measured no trial of this cell{}",
                said.map_or(String::new(), |said| format!(
                    "; last line of its output: {said}"
                ))
            )
        });
        for cell in &self.study.cells {
            if !records.iter().any(|record| record.cell == cell.name) {
                records.push(Record {
                    schema_version: SCHEMA_VERSION,
                    study: self.study.name.clone(),
                    cell: cell.name.clone(),
                    knobs: cell.knobs.clone(),
                    repetition: number,
                    attempt: 0,
                    seed: self.seed(number),
                    started: started.clone(),
                    bed: String::new(),
                    captured: false,
                    interval_ns: 0,
                    took_ns: None,
                    work: self.study.measure.work,
                    outcome: Outcome::Failed {
                        reason: reason.clone(),
                    },
                    warnings: Vec::new(),
                    cpu_distances: Vec::new(),
                    topology: Topology::default(),
                    machines: [].into(),
                    hosts: [].into(),
                });
            }
        }
        (records, no_functions)
    }
}

/// Parses a line of a guest as a record. `None` if it is none.
fn record(line: &Line) -> Option<Record> {
    match line {
        Line::ResultsFile(file, line) if file == RECORDS => Record::from_line(line).ok(),
        _ => None,
    }
}

/// Adds the exit code to an error of a guest: 77 if this host lacks something that guests need.
pub fn unavailable(error: GuestError) -> anyhow::Error {
    let exit = match error {
        GuestError::Missing(_) => Exit::Unavailable,
        GuestError::NoKernel { .. } => Exit::Usage,
        _ => Exit::Failed,
    };
    anyhow::Error::new(Stop {
        exit,
        text: error.to_string(),
    })
}
