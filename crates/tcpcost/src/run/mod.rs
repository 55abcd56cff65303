//! `tcpcost run`: every cell of a study, repetition by repetition, each trial on disk before the next.

mod apart;
mod bed;
mod captured;
mod directory;
mod ends;
mod plan;
mod progress;
mod signals;
mod trial;
mod warnings;

use std::path::PathBuf;

use anyhow::Context;
use tcpcost_report::Summary;
use tcpcost_study::{
    Cell, CoreToCore, End, HostEnvironment, Outcome, Record, Study, Value, Warning, WarningCode,
};

use self::apart::Patience;
use self::bed::{Bed, BedKind};
use self::directory::{Directory, Overrides};
use self::ends::Events;
use self::plan::Plan;
use self::progress::Progress;
use self::trial::{Broken, Trial};
use crate::cli;
use crate::exit::{Exit, usage};
use crate::host::namespace::Way;
use crate::host::{journal, namespace};
use crate::output;
use crate::studies;

pub use self::directory::Run as StoredRun;

/// Runs a study as the command line says.
pub fn run(args: &cli::Run) -> anyhow::Result<Exit> {
    if let (Some(directory), true) = (&args.resume, args.dry_run) {
        let stored = StoredRun::load(directory)?;
        print!("{}", plan::dry_run(&stored.study));
        return Ok(Exit::Ok);
    }
    let mut store;
    let study;
    let records;
    // Before any thread exists: a process with threads cannot enter a user namespace.
    let access;
    if let Some(path) = &args.resume {
        (store, study, records) = Directory::open(path)?;
        access = Access::gain(&study);
    } else {
        let named = args
            .study
            .as_deref()
            .expect("clap asks for a study unless --resume is given");
        let (name, text, file) = studies::find(named)?;
        let overrides = overrides(args, name)?;
        study = overrides.apply(&text, &file)?;
        if args.dry_run {
            print!("{}", plan::dry_run(&study));
            return Ok(Exit::Ok);
        }
        access = Access::gain(&study);
        let path = args
            .out
            .clone()
            .unwrap_or_else(|| default_directory(&study.name));
        store = Directory::create(&path, &text, &overrides)?;
        records = Vec::new();
    }
    let mut events = Events::new();
    signals::watch(events.sender());
    put_back_earlier();

    let mut progress = Progress::new(Plan::trials(&study, &records), args.quiet);
    progress.say(&format!("records and report: {}", store.path().display()));
    for note in &access.notes {
        progress.say(&format!("tcpcost: {}", note.text));
    }
    let mut runner = Runner {
        study: &study,
        records,
        bed: None,
        host: None,
        access: &access,
        patience: Patience::new(),
    };
    let interrupted = runner.all(&mut store, &mut events, &mut progress)?;
    progress.finish();

    let records = std::mem::take(&mut runner.records);
    drop(runner);
    let summary = Summary::new(&study, &records);
    output::write_html(store.path(), &summary)?;
    let exit = output::exit(&summary);
    output::print(&[summary], args.format)?;
    if interrupted {
        eprintln!(
            "tcpcost: interrupted; go on with: tcpcost run --resume {}",
            store.path().display()
        );
        return Ok(Exit::Interrupted);
    }
    Ok(exit)
}

/// Puts back what a killed run left changed. A failure is said and no reason not to run.
fn put_back_earlier() {
    // Without a place for a journal there never was one.
    let Ok(folder) = journal::folder() else {
        return;
    };
    match journal::restore(&folder) {
        Ok(restored) => {
            for line in restored.put_back {
                eprintln!("tcpcost: put back what a killed run had changed: {line}");
            }
            for line in restored.failed {
                eprintln!("tcpcost: what a killed run had changed could not be put back: {line}");
            }
        }
        Err(error) => eprintln!("tcpcost: look for changes of killed runs: {error}"),
    }
}

fn overrides(args: &cli::Run, study: String) -> anyhow::Result<Overrides> {
    let set = args
        .set
        .iter()
        .map(|pair| match pair.split_once('=') {
            Some((knob, value)) => Ok((knob.trim().to_string(), value.trim().to_string())),
            None => Err(usage(format!(
                "--set {pair}: expected KNOB=VALUE, e.g. write_size=4KiB"
            ))),
        })
        .collect::<anyhow::Result<_>>()?;
    Ok(Overrides {
        study,
        set,
        repetitions: args.repetitions,
        duration: args.duration.clone(),
        seed: args.seed,
        meter_cost: args.meter_cost,
        capture: args.capture,
        quick: args.quick,
    })
}

fn default_directory(study: &str) -> PathBuf {
    let now = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
    PathBuf::from("tcpcost-out").join(format!("{study}-{now}"))
}

const IN_USER_NAMESPACE: &str = "not root: the namespaces are made inside a user namespace, where the kernel refuses to steer receive work, so CPU per end is not measured, only both together; run as root for it";

/// Which beds this user can have on this host.
struct Access {
    /// What `bed = "auto"` means, or why it is not `netns`.
    netns: Result<(), String>,
    /// What that costs the measurement, once, in words.
    notes: Vec<Warning>,
}

impl Access {
    /// Finds out, entering a user namespace where that is the way. Only asks for what the study
    /// needs.
    fn gain(study: &Study) -> Access {
        let wanted = study.cells.iter().any(|cell| bed_word(cell) != "loopback");
        if !wanted {
            return Access {
                netns: Err("not asked for".to_string()),
                notes: Vec::new(),
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
        let note = |text: String| Warning {
            code: WarningCode::Other,
            text,
        };
        match gained {
            Ok(text) => Access {
                netns: Ok(()),
                notes: text.map(note).into_iter().collect(),
            },
            Err(reason) => {
                let text = format!(
                    "network namespaces cannot be had ({reason}): cells with bed = \"auto\" run over loopback, where CPU per end, offloads and routes cannot be told apart"
                );
                Access {
                    netns: Err(reason),
                    notes: vec![note(text)],
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
fn bed_of(cell: &Cell, netns: &Result<(), String>) -> Result<BedKind, (BedKind, String)> {
    let is_ours = |end| cell.knobs.value_at(end, "stack") == Some(Value::Word("user".to_string()));
    let word = bed_word(cell);
    let (kind, stacks) = match (is_ours(End::Client), is_ours(End::Server)) {
        (false, false) if word == "loopback" || (word == "auto" && netns.is_err()) => {
            (BedKind::Loopback, "kernel at both ends")
        }
        (false, false) => (BedKind::Netns, "kernel at both ends"),
        (true, true) => (BedKind::Memory, "user at both ends"),
        (true, false) => (tap(cell, End::Client), "user at one end"),
        (false, true) => (tap(cell, End::Server), "user at one end"),
    };
    if word != "auto" && word != kind.name() {
        return Err((kind, format!("{word} is no bed for stack = {stacks}")));
    }
    match (kind, netns) {
        (BedKind::Tap(_, 257..), _) => Err((kind, "a TAP has at most 256 queues".to_string())),
        (BedKind::Netns | BedKind::Tap(..), Err(reason)) => Err((kind, reason.clone())),
        _ => Ok(kind),
    }
}

fn tap(cell: &Cell, ours: End) -> BedKind {
    BedKind::Tap(ours, trial::instances(&cell.knobs, &[ours]))
}

struct Runner<'a> {
    study: &'a Study,
    records: Vec<Record>,
    bed: Option<Bed>,
    /// The machine, as the first bed found it.
    host: Option<HostEnvironment>,
    access: &'a Access,
    patience: Patience,
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
        while let Some(next) = Plan::next(self.study, &self.records) {
            if events.interrupted() {
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
            let trial = Trial {
                study: self.study,
                cell,
                number,
                captures: &captures,
                repetition: next.repetition,
                attempt: next.attempt,
                notes: &self.access.notes,
            };
            let Some(record) = self.one(&trial, events)? else {
                return Ok(true);
            };
            self.records.push(record);
            CoreToCore::mark_apart(&mut self.records);
            let last = self.records.last().expect("just pushed");
            store.append(last)?;
            progress.end(last, Plan::trials(self.study, &self.records));
        }
        Ok(false)
    }

    /// One trial's record; `None` if interrupted.
    fn one(&mut self, trial: &Trial<'_>, events: &mut Events) -> anyhow::Result<Option<Record>> {
        let kind = match bed_of(trial.cell, &self.access.netns) {
            Ok(kind) => kind,
            Err((kind, reason)) => {
                let mut record = trial.record(kind, HostEnvironment::default());
                record.outcome = Outcome::Skipped {
                    reason: format!("bed: {reason}"),
                };
                return Ok(Some(record));
            }
        };
        if self.bed.as_ref().is_none_or(|bed| bed.kind != kind) {
            self.bed = None; // The old one is gone before the new one is made.
            match Bed::make(kind, events) {
                Ok(mut bed) => {
                    // What is measured of the machine (its time-stamp counter's rate) is measured
                    // once: a run that goes from bed to bed is still of one machine.
                    bed.host = self.host.get_or_insert(bed.host).clone();
                    self.bed = Some(bed);
                }
                Err(ends::Halt::Interrupted) => return Ok(None),
                Err(halt) => anyhow::bail!("make the {} bed: {halt}", kind.name()),
            }
        }
        self.patience.wait(&trial.cell.knobs, &self.records, events);
        let bed = self.bed.as_mut().expect("just made");
        match trial.run(bed, events) {
            Ok(record) => {
                // What failed may be the bed: a veth goes with the other end's dead agent.
                if matches!(record.outcome, Outcome::Failed { .. }) {
                    self.bed = None;
                }
                Ok(Some(record))
            }
            Err(Broken::Interrupted) => Ok(None),
            Err(Broken::Bed(record)) => {
                self.bed = None;
                Ok(Some(*record))
            }
        }
    }
}
