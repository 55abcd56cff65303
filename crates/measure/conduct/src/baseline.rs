//! Earlier runs that a run is compared with, from a run's directory or a folder of runs.

use std::path::{Path, PathBuf};

use tcpcost_console::exit::usage;
use tcpcost_console::output;
use tcpcost_guest::Guest;
use tcpcost_report::{Basis, Decision, Earlier, Summary};
use tcpcost_study::Bed;

use super::directory::{RECORDS, STUDY, StoredRun};
use super::overrides::Overrides;
use super::shell::quoted;
use super::studies;

/// Earlier runs that a run is compared with.
pub struct Baseline {
    runs: Vec<Summary>,
    /// Study of the newest run, as an argument of `tcpcost run`.
    study: String,
    overrides: Overrides,
    directory: PathBuf,
}

impl Baseline {
    /// Reads the runs of these directories, each of which is a run's directory or a folder of runs.
    pub fn load(paths: &[PathBuf]) -> anyhow::Result<Baseline> {
        let mut runs = Vec::new();
        let (mut study, mut overrides) = (String::new(), Overrides::default());
        for path in directories(paths)? {
            let run = StoredRun::load(&path)?;
            run.print_oddities();
            study = match studies::built_in(&run.overrides.study) {
                Some(text) if text == run.text => run.overrides.study.clone(),
                _ => quoted(&path.join(STUDY).to_string_lossy()),
            };
            runs.push(run.summary());
            overrides = run.overrides;
        }
        Ok(Baseline {
            runs,
            study,
            overrides,
            directory: paths.first().cloned().unwrap_or_default(),
        })
    }

    /// Adds the verdicts to a summary. `beside`: other runs after the change.
    pub fn add_verdicts(&self, summary: &mut Summary, beside: &[Summary]) {
        // A folder may also have runs of other studies.
        let has_same_cell = |run: &&Summary| {
            let mut cells = run.cells.iter();
            cells.any(|cell| {
                let mut own = summary.cells.iter();
                own.any(|own| own.name == cell.name && own.knobs == cell.knobs)
            })
        };
        let same_study = |runs: &[Summary]| {
            runs.iter()
                .filter(has_same_cell)
                .cloned()
                .collect::<Vec<_>>()
        };
        let (runs, beside) = (same_study(&self.runs), same_study(beside));
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

    /// Options that repeat the overrides of the newest run, for `tcpcost run` or else for `tcpcost compare`.
    fn flags(&self, for_run: bool) -> String {
        let Overrides {
            set,
            repetitions,
            duration,
            meters,
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
        if let (Some(repetitions), true) = (repetitions, for_run) {
            flags += &format!(" --repetitions {repetitions}");
        }
        if let (Some(meters), true) = (meters, for_run) {
            flags += &format!(" --meters {}", quoted(meters));
        }
        if *quick && for_run {
            flags += " --quick";
        }
        flags
    }

    /// If the stored runs have no verdict, suggests counting instructions in guests, where this host can.
    pub fn suggest_guests(&self, summary: &Summary) {
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
                 tcpcost run {}{} --guest, before and after; to compare two kernels: tcpcost kernels OLD NEW (docs/kernels.md)",
                self.study,
                self.flags(true)
            );
        }
    }
}

/// Directories of the runs at these paths, each of which is a run's directory or a folder of runs. Runs of a folder are sorted by
/// name.
///
/// # Errors
/// A path is neither a run nor a folder of runs, or a run is named twice.
pub fn directories(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in paths {
        let found = runs_at(path)?;
        if found.is_empty() {
            // The error of `load` says what is missing.
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

/// The run at this path, or the runs in this folder. Empty if there are none.
pub fn runs_at(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
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
