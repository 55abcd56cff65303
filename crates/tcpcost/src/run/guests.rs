//! `tcpcost run --guest`: the whole run happens inside guests whose clock counts instructions, one boot for each
//! repetition, and their records become this run's.
//!
//! The command runs in the guest, not only its agents: what it asks them (their clocks, their CPUs) and what it waits for is then
//! counted by the same clock, and nothing crosses the serial port while anything is measured. Here is only what boots, how
//! often, and what a guest that fails becomes.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::Context;
use tcpcost_guest::{Boot, Guest, GuestError, INSTRUCTIONS_PER_NS, Image, Kernel, Line, Machine};
use tcpcost_guest::{BootEnd, Plugin, Task};
use tcpcost_signals::Interrupt;
use tcpcost_study::{Outcome, Record, SCHEMA_VERSION, Study, Topology};

use super::directory::{Directory, OVERRIDES, Overrides, RECORDS, STUDY};
use super::exact_instructions::ExactInstructions;
use super::functions::{self, ByFunction, FUNCTIONS};
use super::progress::Progress;
use crate::exit::{Exit, Stop};

/// Memory of a guest in records is a multiple of this.
const MEMORY_STEP: u64 = 16 << 20;

/// Modules that beds and knobs need, as far as a kernel does not have them built in.
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
    /// Boots at the same time.
    at_once: usize,
    /// Tells functions apart; why there is none.
    plugin: Result<Plugin, String>,
}

/// What a boot gave.
struct Booted {
    number: u32,
    result: Result<Boot, GuestError>,
}

impl<'a> Boots<'a> {
    /// Makes a guest of a kernel, with this very program.
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
            // Without it contexts tell where instructions went, as a line says.
            plugin: Plugin::build().map_err(|error| error.to_string()),
        })
    }

    /// Boots until each repetition has its trials; true if it was interrupted before.
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
                        // Whoever takes them in may have failed; then nobody wants more.
                        if sender.send(Booted { number, result }).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            self.take(&booted, store, records, progress)
        })?;
        Ok(interrupt.is_set())
    }

    fn take(
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
            let (found, untold) = self.records(number, &boot, store);
            if let (0, Some(reason)) = (number, untold) {
                progress.say(&format!(
                    "tcpcost: instructions are told by context alone, copies among them, and not by function: {reason}"
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

    /// Where a boot's instructions were, trial by trial: what moved memory into their records, and the first boot's functions into
    /// a file.
    fn functions(
        &self,
        number: u32,
        boot: &Boot,
        trials: &mut [Record],
        store: &Directory,
    ) -> Result<(), String> {
        let plugin = self.plugin.as_ref().map_err(Clone::clone)?;
        if boot.symbols.is_empty() {
            return Err("the guest told no symbols".to_string());
        }
        let spans = plugin.spans(number, &boot.symbols);
        let spans = spans.map_err(|error| error.to_string())?;
        functions::add_memory(trials, &spans).ok_or("trials and marked spans are not as many")?;
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
            // What the study runs was let run before a guest was made.
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
        self.guest.boot(&machine, &task, self.most(), stop)
    }

    /// Each boot draws its own order of cells, its payload, and by QEMU's all that its kernel takes for chance.
    fn seed(&self, number: u32) -> u64 {
        let of_run = self.study.measure.seed;
        of_run
            .wrapping_mul(1_000_003)
            .wrapping_add(u64::from(number) + 1)
            % (1 << 48)
    }

    /// What a boot may take: coming up takes 8 s and a cell some seconds on an idle CPU. At load 30 on two CPUs three cells took more than
    /// 210 s.
    fn most(&self) -> Duration {
        let cells = u32::try_from(self.study.cells.len()).unwrap_or(u32::MAX);
        Duration::from_secs(300) + Duration::from_secs(60) * cells
    }

    /// A boot's records as this run's, in which it is a repetition; of cells that it has none of, why. Beside them why functions are
    /// not told, if they are not.
    fn records(
        &self,
        number: u32,
        boot: &Boot,
        store: &Directory,
    ) -> (Vec<Record>, Option<String>) {
        let started = jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%S%.3fZ")
            .to_string();
        // What moved memory is known when the symbols have come, which is last: a record without it would be of another sum.
        let is_whole = self.plugin.is_err() || matches!(boot.ended, BootEnd::Done(_));
        let lines = boot.lines.iter().filter(|_| is_whole).filter_map(record);
        let mut records: Vec<Record> = Vec::new();
        for record in lines {
            // Of several tries in one boot the last.
            records.retain(|other| other.cell != record.cell);
            let mut record = record;
            for machine in record.machines.values_mut() {
                // By what each boot finds anew the same machine would seem another: of a clock that counts instructions a guess,
                // and memory but for what the kernel takes for itself, some pages more or less by its layout.
                machine.tsc_hz = None;
                machine.memory_bytes = machine.memory_bytes.next_multiple_of(MEMORY_STEP);
            }
            records.push(Record {
                repetition: number,
                attempt: 0,
                // The guest's clock began in the same moment at each boot.
                started: started.clone(),
                ..record
            });
        }
        let untold = self.functions(number, boot, &mut records, store).err();
        let reason = boot.failure().unwrap_or_else(|| {
            let said = boot.lines.iter().rev().find_map(|line| match line {
                Line::Printed(text) if !text.is_empty() => Some(text.as_str()),
                _ => None,
            });
            format!(
                "the guest measured no trial of this cell{}",
                said.map_or(String::new(), |said| format!("; its program said: {said}"))
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
        (records, untold)
    }
}

/// A record that a guest told.
fn record(line: &Line) -> Option<Record> {
    match line {
        Line::ResultsFile(file, line) if file == RECORDS => Record::from_line(line).ok(),
        _ => None,
    }
}

/// A host that lacks something cannot run guests: exit code 77.
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
