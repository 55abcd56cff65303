//! A run's directory: the study, its overrides, one record a line, the report.
//!
//! Runs that share a study's repetitions each have one of their own, in the folder `shares` of the study's.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tcpcost_study::{
    CpuDistance, HostName, Reach, Record, RecordError, Share, Sides, Study, UnknownKnob,
    repetitions, units,
};

use super::exact_instructions::ExactInstructions;
use crate::exit::usage;
use crate::output;
use tcpcost_counts::printable_json;
use tcpcost_host::lock::holders;

/// What the command line changed of the study.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Overrides {
    /// The study's name.
    pub study: String,
    /// `--set`, in order: knob, value.
    #[serde(default)]
    pub set: Vec<(String, String)>,
    /// `--repetitions`.
    #[serde(default)]
    pub repetitions: Option<u32>,
    /// `--share`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// Whether the study's hosts, which it does not name, are nodes of a job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub slurm: bool,
    /// The job's nodes as hosts, of a study that has them all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<HostName>,
    /// `--duration`.
    #[serde(default)]
    pub duration: Option<String>,
    /// `--seed`.
    #[serde(default)]
    pub seed: Option<u64>,
    /// `--meter-cost`.
    #[serde(default)]
    pub meter_cost: bool,
    /// `--capture`.
    #[serde(default)]
    pub capture: Option<u32>,
    /// `--quick`.
    #[serde(default)]
    pub quick: bool,
    /// What `tcpcost compare` compares.
    #[serde(default)]
    pub compare: Option<Sides>,
    /// `--min-effect`, over the first of two.
    #[serde(default)]
    pub min_effect: Option<f64>,
    /// `--time`.
    #[serde(default)]
    pub time_max: Option<String>,
    /// `--exact-instructions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact_instructions: Option<ExactInstructions>,
}

impl Overrides {
    /// The study of a text with these changes made.
    pub fn apply(&self, text: &str, file: &str) -> anyhow::Result<Study> {
        let mut study = Study::parse(&self.study, text, file).map_err(|e| usage(e.to_string()))?;
        let wrong = |error: UnknownKnob| usage(error.to_string());
        if self.slurm && !study.cells.iter().any(|cell| cell.knobs.names_hosts()) {
            study.reach_hosts(&Reach::Slurm(None)).map_err(wrong)?;
        }
        if !self.nodes.is_empty() {
            study.expand_nodes(&self.nodes).map_err(wrong)?;
        }
        study
            .set(&self.set)
            .map_err(|error| usage(format!("--set {error}")))?;
        // Before what is said in so many words.
        if self.quick {
            study.make_quick();
        }
        if let Some(sides) = &self.compare {
            study.compare(sides).map_err(usage)?;
        }
        if let Some(min_effect) = self.min_effect {
            study.measure.min_effect = min_effect;
        }
        if let Some(text) = &self.time_max {
            let time = units::duration(text)
                .map_err(|error| usage(format!("--time {text}: expected {error}")))?;
            study.measure.time_max = time;
        }
        if let Some(repetitions) = self.repetitions {
            if repetitions == 0 {
                return Err(usage("--repetitions: expected a whole number from 1"));
            }
            let converging = study.measure.target.is_some() || study.stops_early();
            study.measure.repetitions = repetitions;
            study.measure.repetitions_max = if converging {
                study.measure.repetitions_max.max(repetitions)
            } else {
                repetitions
            };
        }
        if self.repetitions.is_none() && study.cells.iter().any(|cell| cell.knobs.go_round()) {
            let hosts = study.only_hosts().map_err(usage)?;
            let least =
                u32::try_from(repetitions(hosts.len())).expect("hosts are some thousand at most");
            let measure = &mut study.measure;
            measure.repetitions = measure.repetitions.max(least);
            measure.repetitions_max = measure.repetitions_max.max(measure.repetitions);
        }
        if let Some(share) = self.share {
            let measure = &mut study.measure;
            if share.count(measure.repetitions) == 0 {
                return Err(usage(format!(
                    "--share {share}: there are {} repetitions, of which it has none (--repetitions)",
                    measure.repetitions
                )));
            }
            measure.share = share;
            // By its own records alone it could not tell when all are decided.
            measure.repetitions_max = measure.repetitions;
        }
        if let Some(text) = &self.duration {
            let wrong =
                |e: &dyn std::fmt::Display| usage(format!("--duration {text}: expected {e}"));
            study.measure.duration = units::duration(text).map_err(|e| wrong(&e))?;
            if study.measure.duration.is_zero() {
                return Err(wrong(&"more than 0"));
            }
        }
        if let Some(seed) = self.seed {
            study.measure.seed = seed;
        }
        if self.meter_cost {
            study.ask_meter_cost();
        }
        if let Some(trials) = self.capture {
            study.measure.capture.trials = trials;
            study.ask_captures();
        }
        if self.exact_instructions.is_some() {
            ExactInstructions::apply(&mut study);
        }
        Ok(study)
    }
}

/// A run's directory, open for more records.
pub struct Directory {
    path: PathBuf,
    records: File,
    /// Nobody else writes as long as it is open.
    _owned: File,
    /// What was not there before.
    pub made: Made,
}

/// What a run put where nothing was.
#[derive(Default)]
pub struct Made {
    /// Each after those that it contains.
    paths: Vec<PathBuf>,
}

impl Made {
    /// Makes a file of this text. One that is there already is kept, if that is its text.
    fn file(&mut self, path: PathBuf, text: &str) -> anyhow::Result<()> {
        let tried = || format!("create {}", path.display());
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                self.paths.insert(0, path.clone());
                file.write_all(text.as_bytes()).with_context(tried)
            }
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(error).with_context(tried)
            }
            Err(_) if fs::read(&path).is_ok_and(|there| there == text.as_bytes()) => Ok(()),
            Err(_) => Err(usage(format!(
                "{} is there already, and not what this run would write: choose another --out",
                path.display()
            ))),
        }
    }

    /// Takes it away again, of a run that never began.
    pub fn discard(&self) {
        for path in &self.paths {
            let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
        }
    }
}

/// The study as it was read.
pub const STUDY: &str = "study.toml";
/// What the command line changed of it.
pub const OVERRIDES: &str = "run.json";
/// Its records, a line each.
pub const RECORDS: &str = "records.jsonl";
/// Folder of the shares' directories.
const SHARES: &str = "shares";
/// Folder of the captures.
pub const CAPTURES: &str = "captures";

impl Directory {
    /// Makes a new one; refuses one that already holds records, or another study.
    pub fn create(
        path: &Path,
        study_text: &str,
        overrides: &Overrides,
    ) -> anyhow::Result<Directory> {
        let tried = || format!("create {}", path.display());
        let mut made = Made::default();
        if !path.exists() {
            made.paths.push(path.to_path_buf());
        }
        fs::create_dir_all(path).with_context(tried)?;
        let owned = own(path)?;
        let records = path.join(RECORDS);
        if records.exists() {
            return Err(usage(format!(
                "{} already holds records: choose another --out, or go on with --resume {}",
                path.display(),
                path.display()
            )));
        }
        made.file(path.join(STUDY), study_text)?;
        let changes = serde_json::to_string_pretty(overrides)? + "\n";
        made.file(path.join(OVERRIDES), &changes)?;
        made.paths.insert(0, records.clone());
        let records = OpenOptions::new()
            .append(true)
            .create_new(true)
            .open(&records)
            .with_context(tried)?;
        // The directory entries too must survive a crash, or the first record has no name.
        owned.sync_all().with_context(tried)?;
        Ok(Directory {
            path: path.to_path_buf(),
            records,
            _owned: owned,
            made,
        })
    }

    /// Opens an earlier one to go on. A last line that a crash cut short is taken off: its trial
    /// was not done.
    pub fn open(path: &Path) -> anyhow::Result<(Directory, StoredRun)> {
        // Before it is read, so that nobody adds to it afterwards.
        let owned = own(path)?;
        let run = StoredRun::load(path)?;
        run.say();
        let file = path.join(RECORDS);
        let tried = || format!("open {}", file.display());
        let records = OpenOptions::new()
            .append(true)
            .open(&file)
            .with_context(tried)?;
        records.set_len(run.sound_bytes).with_context(tried)?;
        Ok((
            Directory {
                path: path.to_path_buf(),
                records,
                _owned: owned,
                made: Made::default(),
            },
            run,
        ))
    }

    /// Opens the directory of a share, to begin or to go on: a folder of its own within that of the study.
    pub fn open_share(path: &Path, share: Share) -> anyhow::Result<(Directory, StoredRun)> {
        let own = path.join(SHARES).join(share.number().to_string());
        if own.join(RECORDS).exists() {
            let begun = read_overrides(&own)?.share;
            if begun != Some(share) {
                let begun = begun.map_or("a whole".to_string(), |share| share.to_string());
                let own = own.display();
                return Err(usage(format!(
                    "--share {share}: {own} was begun as {begun}"
                )));
            }
            return Directory::open(&own);
        }
        let text = read_text(&path.join(STUDY))?;
        let overrides = Overrides {
            share: Some(share),
            ..read_overrides(path)?
        };
        let study = overrides.apply(&text, &path.join(STUDY).to_string_lossy())?;
        let store = Directory::create(&own, &text, &overrides)?;
        Ok((store, StoredRun::new(study, text, overrides)))
    }

    /// Appends a record and waits until it is on the disk.
    pub fn append(&mut self, record: &Record) -> anyhow::Result<()> {
        let mut line = record.to_line();
        line.push('\n');
        let whole = self.records.metadata().map(|metadata| metadata.len());
        whole
            .and_then(|whole| {
                self.records
                    .write_all(line.as_bytes())
                    .and_then(|()| self.records.sync_data())
                    // Half a line is of no use; if it cannot be taken off now, the next run does it.
                    .inspect_err(|_| drop(self.records.set_len(whole)))
            })
            .with_context(|| format!("append to {}", self.path.join(RECORDS).display()))
    }

    /// Has these hosts for a study that has every node of a job, from now on.
    pub fn settle(&self, nodes: Vec<HostName>) -> anyhow::Result<Study> {
        let overrides = Overrides {
            nodes,
            ..read_overrides(&self.path)?
        };
        let file = self.path.join(STUDY);
        let study = overrides.apply(&read_text(&file)?, &file.to_string_lossy())?;
        let text = serde_json::to_string_pretty(&overrides)? + "\n";
        output::write_file(&self.path.join(OVERRIDES), &text)?;
        Ok(study)
    }

    /// Where captures go.
    pub fn captures(&self) -> PathBuf {
        self.path.join(CAPTURES)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Locks a run's directory for as long as what this gives is open: two writers would do each trial
/// twice.
fn own(path: &Path) -> anyhow::Result<File> {
    let directory = File::open(path).map_err(|error| not_of_a_run(path, &error))?;
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(directory),
        Err(Errno::WOULDBLOCK) => Err(usage(format!(
            "{} is being written by {}: wait for its end, or choose another directory",
            path.display(),
            holders(&directory)
        ))),
        Err(error) => Err(error).with_context(|| format!("lock {}", path.display())),
    }
}

fn not_of_a_run(path: &Path, error: &io::Error) -> anyhow::Error {
    usage(format!(
        "read {}: {error} (expected the directory of a run)",
        path.display()
    ))
}

fn read_text(file: &Path) -> anyhow::Result<String> {
    fs::read_to_string(file).map_err(|error| not_of_a_run(file, &error))
}

fn read_overrides(path: &Path) -> anyhow::Result<Overrides> {
    let file = path.join(OVERRIDES);
    let text = read_text(&file)?;
    serde_json::from_str(&printable_json(&text)).with_context(|| format!("read {}", file.display()))
}

/// The records files of a directory's shares, in their order.
fn shares(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path.join(SHARES)).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let mut numbers: Vec<u32> = names.collect();
    numbers.sort_unstable();
    let file = |number: u32| path.join(SHARES).join(number.to_string()).join(RECORDS);
    let files = numbers.into_iter().map(file);
    files.filter(|file| file.exists()).collect()
}

/// A run as it lies on disk.
pub struct StoredRun {
    /// The study, overrides applied.
    pub study: Study,
    /// Its file's text.
    pub text: String,
    /// What was changed of it.
    pub overrides: Overrides,
    /// Its records and those of its shares, in order, each trial once.
    pub records: Vec<Record>,
    /// What was passed over, a line each.
    pub oddities: Vec<String>,
    /// Bytes of the records file up to the end of the last whole line.
    sound_bytes: u64,
}

impl StoredRun {
    /// Without a record yet.
    pub fn new(study: Study, text: String, overrides: Overrides) -> StoredRun {
        StoredRun {
            study,
            text,
            overrides,
            records: Vec::new(),
            oddities: Vec::new(),
            sound_bytes: 0,
        }
    }

    /// Reads a run's directory.
    pub fn load(path: &Path) -> anyhow::Result<StoredRun> {
        let study_file = path.join(STUDY);
        let text = read_text(&study_file)?;
        let overrides = read_overrides(path)?;
        let study = overrides.apply(&text, &study_file.to_string_lossy())?;
        let mut run = StoredRun::new(study, text, overrides);
        let mut known = HashSet::new();
        run.sound_bytes = run.add(&path.join(RECORDS), &mut known)?;
        for file in shares(path) {
            run.add(&file, &mut known)?;
        }
        // Also by trials that came after them.
        CpuDistance::mark_far(&mut run.records);
        Ok(run)
    }

    /// Adds a file's records of trials that are not known yet; gives the bytes up to the end of its last whole line.
    fn add(&mut self, file: &Path, known: &mut HashSet<(String, u32, u32)>) -> anyhow::Result<u64> {
        // A torn line need not be text.
        let bytes = fs::read(file).map_err(|error| not_of_a_run(file, &error))?;
        let (mut taken, mut twice) = (0, 0);
        let mut sound_bytes = 0;
        for (index, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
            let whole = line.ends_with(b"\n");
            match Record::from_line(String::from_utf8_lossy(line).trim_end()) {
                Ok(record) if whole => {
                    let trial = (record.cell.clone(), record.repetition, record.attempt);
                    if known.insert(trial) {
                        self.records.push(record);
                        taken += 1;
                    } else {
                        twice += 1;
                    }
                }
                // Cut short by a crash: only ever the last line, since each is synced before the next.
                Ok(_) | Err(RecordError::Syntax(_)) if !whole => break,
                Err(error @ RecordError::Syntax(_)) => self.oddities.push(format!(
                    "{}:{}: {error}: passed over, its trial is lost; --resume does it again",
                    file.display(),
                    index + 1
                )),
                Err(error) => bail!("{}:{}: {error}", file.display(), index + 1),
                Ok(_) => unreachable!("a whole line that parses was taken above"),
            }
            sound_bytes += line.len() as u64;
        }
        if twice > 0 {
            self.oddities.push(format!(
                "{}: {twice} of its {} records are duplicates, which are ignored",
                file.display(),
                twice + taken
            ));
        }
        Ok(sound_bytes)
    }

    /// Says what was passed over.
    pub fn say(&self) {
        for oddity in &self.oddities {
            output::say!("tcpcost: {oddity}");
        }
    }
}
