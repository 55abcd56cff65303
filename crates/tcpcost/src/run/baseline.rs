//! Earlier runs that a run is compared with: a run's directory, or a folder of runs.

use std::path::{Path, PathBuf};

use tcpcost_guest::Guest;
use tcpcost_report::{Basis, Decision, Earlier, Summary};
use tcpcost_study::Bed;

use super::directory::{Overrides, RECORDS, STUDY, StoredRun};
use super::shell::quoted;
use tcpcost_console::exit::usage;
use tcpcost_console::output;
use crate::studies;

/// Earlier runs that a run is compared with.
pub struct Baseline {
    runs: Vec<Summary>,
    /// The newest of them, as a command line takes it up again.
    study: String,
    overrides: Overrides,
    directory: PathBuf,
}

impl Baseline {
    /// Reads the runs of these directories, each a run's or a folder of runs.
    pub fn load(paths: &[PathBuf]) -> anyhow::Result<Baseline> {
        let mut runs = Vec::new();
        let (mut study, mut overrides) = (String::new(), Overrides::default());
        for path in directories(paths)? {
            let run = StoredRun::load(&path)?;
            run.say();
            study = match studies::built_in(&run.overrides.study) {
                Some(text) if text == run.text => run.overrides.study.clone(),
                _ => quoted(&path.join(STUDY).to_string_lossy()),
            };
            overrides = run.overrides;
            runs.push(Summary::new(&run.study, &run.records));
        }
        Ok(Baseline {
            runs,
            study,
            overrides,
            directory: paths.first().cloned().unwrap_or_default(),
        })
    }

    /// Adds the verdicts to a summary; `beside` are other runs after the change.
    pub fn hold(&self, summary: &mut Summary, beside: &[Summary]) {
        // A folder of runs may have other studies, too.
        let is_of_it = |run: &&Summary| {
            let mut cells = run.cells.iter();
            cells.any(|cell| {
                let mut own = summary.cells.iter();
                own.any(|own| own.name == cell.name && own.knobs == cell.knobs)
            })
        };
        let of_it = |runs: &[Summary]| runs.iter().filter(is_of_it).cloned().collect::<Vec<_>>();
        let (runs, beside) = (of_it(&self.runs), of_it(beside));
        if runs.is_empty() {
            return;
        }
        summary.hold_against(&Earlier {
            runs: &runs,
            beside: &beside,
            min_effect: summary.study.measure.min_effect,
            study: &self.study,
            for_compare: &self.flags(false),
            for_run: &self.flags(true),
            directory: &quoted(&self.directory.to_string_lossy()),
        });
    }

    /// What the command line changed of the study, as `compare` or `run` takes it.
    fn flags(&self, of_run: bool) -> String {
        let Overrides {
            set,
            repetitions,
            duration,
            quick,
            ..
        } = &self.overrides;
        let set = set
            .iter()
            .map(|(knob, value)| format!(" --set {}", quoted(&format!("{knob}={value}"))));
        let mut flags: String = set.collect();
        if let Some(duration) = duration {
            flags += &format!(" --duration {}", quoted(duration));
        }
        if let (Some(repetitions), true) = (repetitions, of_run) {
            flags += &format!(" --repetitions {repetitions}");
        }
        if *quick && of_run {
            flags += " --quick";
        }
        flags
    }

    /// Names the clock that a busy machine does not disturb, where stored runs have no verdict and this host has it.
    pub fn say_second_clock(&self, summary: &Summary) {
        let is_open = summary.comparisons.iter().any(|one| {
            matches!(one.basis, Basis::Runs(_)) && one.final_decision() == Decision::Inconclusive
        });
        let fits = !summary
            .beds
            .iter()
            .any(|bed| Bed::from_word(bed) == Some(Bed::Hosts));
        if is_open && fits && Guest::check_host().is_ok() {
            output::say!(
                "tcpcost: this host can count instructions in guests, which no other task disturbs: \
                 tcpcost run {}{} --guest, before and after; of two kernels: tcpcost kernels OLD NEW (docs/netdev.md)",
                self.study,
                self.flags(true)
            );
        }
    }
}

/// The directories of the runs that these are, or hold, each once, in the order in which their names sort within a folder.
///
/// # Errors
/// One is neither a run nor a folder of runs, or is named twice.
pub fn directories(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in paths {
        let found = held(path)?;
        if found.is_empty() {
            // Its error says what is missing.
            StoredRun::load(path)?;
        }
        all.extend(found);
    }
    let mut known = std::collections::HashSet::new();
    for path in &all {
        if !known.insert(path.canonicalize()?) {
            return Err(usage(format!(
                "{}: this run is named twice",
                path.display()
            )));
        }
    }
    Ok(all)
}

/// The run at this path, or those in this folder; empty if there are none.
pub fn held(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if path.join(RECORDS).exists() {
        return Ok(vec![path.to_path_buf()]);
    }
    let Ok(folder) = StoredRun::folder(path) else {
        return Ok(Vec::new());
    };
    let mut found: Vec<PathBuf> = folder
        .names()?
        .into_iter()
        .map(|name| path.join(name))
        .collect();
    found.retain(|path| path.join(RECORDS).exists());
    found.sort();
    Ok(found)
}
