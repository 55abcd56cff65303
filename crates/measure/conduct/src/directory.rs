//! A run's directory: the study, its overrides, the records with one line each, and the report.
//!
//! If several runs share a study's repetitions, each has a directory of its own in the folder `shares` of the study's directory.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tcpcost_console::exit::usage;
use tcpcost_console::output;
use tcpcost_report::{Distances, Summary};
use tcpcost_study::{HostName, Record, RecordError, Share, Study};

use super::overrides::Overrides;
use super::priced;
use super::studies::STUDY_BYTES_MAX;
use tcpcost_counts::printable_json;
use tcpcost_host::folder::{Folder, file_mode, folder_mode, remove_folder};
use tcpcost_host::lock::holders;

/// A run's directory, open for more records.
pub struct Directory {
    folder: Arc<Folder>,
    records: File,
    /// Lock on the directory while it is open, so that no other run writes here.
    _lock: File,
    /// Folder and files that this run created.
    pub created: CreatedFiles,
}

/// Folder and files that a run created.
#[derive(Default)]
pub struct CreatedFiles {
    folder: Option<Arc<Folder>>,
    is_folder_new: bool,
    files: Vec<&'static str>,
}

impl CreatedFiles {
    /// Creates a file with this text. Keeps an existing file with the same text.
    fn add(&mut self, folder: &Folder, name: &'static str, text: &str) -> anyhow::Result<()> {
        let path = folder.path().join(name);
        let tried = || format!("create {}", path.display());
        match folder.create(name, file_mode()) {
            Ok(mut file) => {
                self.files.push(name);
                file.write_all(text.as_bytes()).with_context(tried)
            }
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(error).with_context(tried)
            }
            Err(_)
                if folder
                    .read(name, TEXT_BYTES_MAX)
                    .is_ok_and(|there| there == text.as_bytes()) =>
            {
                Ok(())
            }
            Err(_) => Err(usage(format!(
                "{} exists already and differs from what this run would write: choose another --out",
                path.display()
            ))),
        }
    }

    /// Removes the files and the folder of a run that did not begin.
    pub fn remove(&self) {
        let Some(folder) = &self.folder else {
            return;
        };
        for name in &self.files {
            let _ = folder.remove(name);
        }
        if self.is_folder_new {
            let _ = remove_folder(folder.path());
        }
    }
}

/// File with the study as it was read.
pub const STUDY: &str = "study.toml";
/// File with the overrides.
pub const OVERRIDES: &str = "run.json";
/// File with the records, a line each.
pub const RECORDS: &str = "records.jsonl";
/// Folder of the shares' directories.
const SHARES: &str = "shares";
/// Folder of the run in guests that counts instructions of what time left undecided.
pub const INSTRUCTIONS: &str = "instructions";
/// Folder of the captures.
pub const CAPTURES: &str = "captures";

/// Size limit of a study and of `run.json`.
const TEXT_BYTES_MAX: u64 = STUDY_BYTES_MAX;
/// Size limit of a records file. A record of two hosts has some 10 KiB, a record of a hundred hosts some 500 KiB.
const RECORDS_BYTES_MAX: u64 = 1 << 30;
/// Size limit of a record.
const RECORD_BYTES_MAX: u64 = 64 << 20;
/// Limit on the ignored lines of a records file that have a message each.
const ODDITIES_MAX: usize = 10;

impl Directory {
    /// Makes a run's directory. Refuses a directory that already holds records or another study.
    pub fn create(
        path: &Path,
        study_text: &str,
        overrides: &Overrides,
    ) -> anyhow::Result<Directory> {
        let folder = Folder::make(path, folder_mode());
        let (folder, is_new) = folder.with_context(|| format!("create {}", path.display()))?;
        Directory::begin(folder, is_new, study_text, overrides)
    }

    /// Begins a run in a folder.
    fn begin(
        folder: Folder,
        is_new: bool,
        study_text: &str,
        overrides: &Overrides,
    ) -> anyhow::Result<Directory> {
        let path = folder.path().display().to_string();
        let tried = || format!("create {path}");
        let lock = lock(&folder)?;
        if folder.has(RECORDS) {
            return Err(usage(format!(
                "{path} already holds records: choose another --out, or continue with --resume {path}"
            )));
        }
        let mut created = CreatedFiles {
            is_folder_new: is_new,
            ..CreatedFiles::default()
        };
        created.add(&folder, STUDY, study_text)?;
        let changes = serde_json::to_string_pretty(overrides)? + "\n";
        created.add(&folder, OVERRIDES, &changes)?;
        let records = folder.create(RECORDS, file_mode()).with_context(tried)?;
        created.files.push(RECORDS);
        // Directory entries must survive a crash, too: without them the first record is lost.
        lock.sync_all().with_context(tried)?;
        let folder = Arc::new(folder);
        created.folder = Some(Arc::clone(&folder));
        Ok(Directory {
            folder,
            records,
            _lock: lock,
            created,
        })
    }

    /// Opens the directory of an earlier run to continue it. Removes a last line without an end, which a crash left: its trial is repeated.
    pub fn open(path: &Path) -> anyhow::Result<(Directory, StoredRun)> {
        let folder = Folder::own(path).map_err(|error| not_of_a_run(path, &error))?;
        Directory::resume(folder)
    }

    /// Continues the run in a folder.
    fn resume(folder: Folder) -> anyhow::Result<(Directory, StoredRun)> {
        // Locked first, so that no other run adds records after they are read.
        let lock = lock(&folder)?;
        let run = StoredRun::read(&folder)?;
        run.print_oddities();
        let tried = || format!("open {}", folder.path().join(RECORDS).display());
        let records = folder.append(RECORDS).with_context(tried)?;
        records.set_len(run.sound_bytes).with_context(tried)?;
        Ok((
            Directory {
                folder: Arc::new(folder),
                records,
                _lock: lock,
                created: CreatedFiles::default(),
            },
            run,
        ))
    }

    /// Opens the directory of a share, to begin or continue its run: a folder within the study's directory.
    pub fn open_share(path: &Path, share: Share) -> anyhow::Result<(Directory, StoredRun)> {
        let whole = Folder::own(path).map_err(|error| not_of_a_run(path, &error))?;
        let text = read_text(&whole, STUDY)?;
        let overrides = Overrides {
            share: Some(share),
            ..read_overrides(&whole)?
        };
        let study = overrides.apply(&text, &path.join(STUDY).to_string_lossy())?;
        let number = share.number().to_string();
        let tried = || {
            let own = path.join(SHARES).join(&number);
            format!("create {}", own.display())
        };
        let begin = || whole.make_folder(SHARES)?.0.make_folder(&number);
        let (own, is_new) = begin().with_context(tried)?;
        if own.has(RECORDS) {
            let begun = read_overrides(&own)?.share;
            if begun != Some(share) {
                let begun =
                    begun.map_or("a whole run".to_string(), |share| format!("share {share}"));
                let own = own.path().display();
                return Err(usage(format!(
                    "--share {share}: {own} was started as {begun}"
                )));
            }
            return Directory::resume(own);
        }
        let store = Directory::begin(own, is_new, &text, &overrides)?;
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
                    // Removes a partial line. If that fails, the next run removes it.
                    .inspect_err(|_| drop(self.records.set_len(whole)))
            })
            .with_context(|| format!("append to {}", self.path().join(RECORDS).display()))
    }

    /// Stores the nodes of a job as the hosts of a study that asks for all nodes. Returns the study with these hosts.
    pub fn set_nodes(&self, nodes: Vec<HostName>) -> anyhow::Result<Study> {
        let overrides = Overrides {
            nodes,
            ..read_overrides(&self.folder)?
        };
        let file = self.path().join(STUDY);
        let text = read_text(&self.folder, STUDY)?;
        let study = overrides.apply(&text, &file.to_string_lossy())?;
        let text = serde_json::to_string_pretty(&overrides)? + "\n";
        self.replace(OVERRIDES, &text)?;
        Ok(study)
    }

    /// Replaces a file atomically.
    pub fn replace(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let tried = || format!("write {}", self.path().join(name).display());
        self.folder
            .replace(name, text.as_bytes())
            .with_context(tried)
    }

    /// Opens the folder of the captures, and makes it if it is missing.
    pub fn captures(&self) -> anyhow::Result<Folder> {
        let tried = || format!("create {}", self.path().join(CAPTURES).display());
        let (folder, _) = self.folder.make_folder(CAPTURES).with_context(tried)?;
        Ok(folder)
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Locks a run's directory as long as the returned file is open, because two writers would run each trial twice.
fn lock(folder: &Folder) -> anyhow::Result<File> {
    let path = folder.path().display();
    let handle = folder.handle().with_context(|| format!("open {path}"))?;
    match flock(&handle, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(handle),
        Err(Errno::WOULDBLOCK) => Err(usage(format!(
            "{path} is being written by {}: wait for its end, or choose another directory",
            holders(&handle)
        ))),
        Err(error) => Err(error).with_context(|| format!("lock {path}")),
    }
}

fn not_of_a_run(path: &Path, error: &io::Error) -> anyhow::Error {
    usage(format!(
        "read {}: {error} (expected the directory of a run)",
        path.display()
    ))
}

fn read_text(folder: &Folder, name: &str) -> anyhow::Result<String> {
    let read = folder.read(name, TEXT_BYTES_MAX);
    let text = read.and_then(|bytes| {
        String::from_utf8(bytes)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"))
    });
    text.map_err(|error| not_of_a_run(&folder.path().join(name), &error))
}

fn read_overrides(folder: &Folder) -> anyhow::Result<Overrides> {
    let file = folder.path().join(OVERRIDES);
    let text = read_text(folder, OVERRIDES)?;
    serde_json::from_str(&printable_json(&text)).with_context(|| format!("read {}", file.display()))
}

/// Directories of the shares that hold records, in the order of their numbers.
fn shares(folder: &Folder) -> io::Result<Vec<Folder>> {
    let shares = match folder.folder(SHARES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let names = shares.names()?;
    let numbers = names.iter().filter_map(|name| name.to_str()?.parse().ok());
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    let mut folders = Vec::new();
    for number in numbers {
        folders.push(shares.folder(&number.to_string())?);
    }
    folders.retain(|folder| folder.has(RECORDS));
    Ok(folders)
}

/// A run as it is on disk.
pub struct StoredRun {
    /// Study with its overrides.
    pub study: Study,
    /// Text of the study's file.
    pub text: String,
    /// Changes that the command line made.
    pub overrides: Overrides,
    /// Records of the run and of its shares, in order, each trial once.
    pub records: Vec<Record>,
    /// Run of the same study in guests, for what time left undecided.
    pub instructions: Option<Box<StoredRun>>,
    /// Messages about records that were ignored, a line each.
    pub oddities: Vec<String>,
    /// Bytes of the records file up to the end of the last whole line.
    sound_bytes: u64,
}

impl StoredRun {
    /// Makes a run without records.
    pub fn new(study: Study, text: String, overrides: Overrides) -> StoredRun {
        StoredRun {
            study,
            text,
            overrides,
            records: Vec::new(),
            instructions: None,
            oddities: Vec::new(),
            sound_bytes: 0,
        }
    }

    /// Reads a run's directory.
    pub fn load(path: &Path) -> anyhow::Result<StoredRun> {
        StoredRun::read(&StoredRun::folder(path)?)
    }

    /// Opens a run's directory to read it.
    pub fn folder(path: &Path) -> anyhow::Result<Folder> {
        Folder::open(path).map_err(|error| not_of_a_run(path, &error))
    }

    /// Reads the run in a folder.
    pub fn read(folder: &Folder) -> anyhow::Result<StoredRun> {
        let text = read_text(folder, STUDY)?;
        let overrides = read_overrides(folder)?;
        let study_file = folder.path().join(STUDY);
        let study = overrides.apply(&text, &study_file.to_string_lossy())?;
        let mut run = StoredRun::new(study, text, overrides);
        let mut known = HashSet::new();
        run.sound_bytes = run.add(folder, &mut known)?;
        let shares = shares(folder).map_err(|error| not_of_a_run(folder.path(), &error))?;
        for share in &shares {
            run.add(share, &mut known)?;
        }
        // Again, because later trials may show that an earlier one had distant CPUs.
        Distances::default().mark(&mut run.records);
        if let Ok(folder) = folder.folder(INSTRUCTIONS)
            && folder.has(RECORDS)
        {
            run.instructions = Some(Box::new(StoredRun::read(&folder)?));
        }
        Ok(run)
    }

    /// Summary of the run, with what the second clock says.
    pub fn summary(&self) -> Summary {
        let mut summary = priced::summary(&self.study, &self.records);
        if let Some(run) = &self.instructions {
            summary.add_instructions(&run.of_all_cells());
        }
        summary
    }

    /// Summary of all cells of the study. Cells that [`Overrides::cells`] left out have no trials, and findings compare the same
    /// groups of cells as in the study.
    pub(crate) fn of_all_cells(&self) -> Summary {
        let all = Overrides {
            cells: Vec::new(),
            ..self.overrides.clone()
        };
        let study = all.apply(&self.text, STUDY);
        Summary::new(study.as_ref().unwrap_or(&self.study), &self.records)
    }

    /// Adds the records of a folder, without trials that are known already. Returns the bytes up to the end of the last whole line.
    fn add(
        &mut self,
        folder: &Folder,
        known: &mut HashSet<(String, u32, u32)>,
    ) -> anyhow::Result<u64> {
        let path = folder.path().join(RECORDS);
        let file = path.display();
        let failed = |error: &io::Error| not_of_a_run(&path, error);
        let opened = folder.open_file(RECORDS).map_err(|error| failed(&error))?;
        let bytes = opened.metadata().map_err(|error| failed(&error))?.len();
        let too_long =
            |what: String, bytes: u64| usage(format!("{what}: longer than {} MiB", bytes >> 20));
        if bytes > RECORDS_BYTES_MAX {
            return Err(too_long(format!("read {file}"), RECORDS_BYTES_MAX));
        }
        let mut lines = BufReader::new(opened);
        let mut line = Vec::new();
        let (mut taken, mut duplicates, mut lost) = (0, 0, 0);
        let mut sound_bytes = 0;
        for number in 1.. {
            line.clear();
            let mut one = (&mut lines).take(RECORD_BYTES_MAX + 1);
            let length = one.read_until(b'\n', &mut line);
            let length = length.map_err(|error| failed(&error))? as u64;
            if length > RECORD_BYTES_MAX {
                return Err(too_long(format!("{file}:{number}"), RECORD_BYTES_MAX));
            }
            let is_whole = line.ends_with(b"\n");
            // A line that a crash cut may not be UTF-8.
            match Record::from_line(String::from_utf8_lossy(&line).trim_end()) {
                _ if length == 0 => break,
                Ok(record) if is_whole => {
                    let trial = (record.cell.clone(), record.repetition, record.attempt);
                    if known.insert(trial) {
                        self.records.push(record);
                        taken += 1;
                    } else {
                        duplicates += 1;
                    }
                }
                // A line without an end, from a crash. It is always the last one, because each line is synced before the next.
                Ok(_) | Err(RecordError::Syntax(_)) if !is_whole => break,
                Err(error @ RecordError::Syntax(_)) => {
                    lost += 1;
                    if lost <= ODDITIES_MAX {
                        self.oddities.push(format!(
                            "{file}:{number}: {error}: ignored, so its trial is lost; --resume repeats it"
                        ));
                    }
                }
                Err(error) => bail!("{file}:{number}: {error}"),
                Ok(_) => unreachable!("a whole line that parses was taken above"),
            }
            sound_bytes += length;
        }
        if lost > ODDITIES_MAX {
            let more = lost - ODDITIES_MAX;
            self.oddities
                .push(format!("{file}: {more} more lines are ignored"));
        }
        if duplicates > 0 {
            self.oddities.push(format!(
                "{file}: {duplicates} of its {} records are duplicates, which are ignored",
                duplicates + taken
            ));
        }
        Ok(sound_bytes)
    }

    /// Prints the messages about ignored records.
    pub fn print_oddities(&self) {
        for oddity in &self.oddities {
            output::say!("tcpcost: {oddity}");
        }
    }
}
