//! Second clock: repeats in instructions what time leaves undecided. The guests' trials are a run in a folder of the run's directory.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use tcpcost_console::exit::{line, usage};
use tcpcost_console::output;
use tcpcost_guest::{Guest, GuestError, Kernel};
use tcpcost_report::Summary;
use tcpcost_signals::Interrupt;

use super::commands::{self, Consent};
use super::directory::{INSTRUCTIONS, StoredRun};
use super::exact_instructions::ExactInstructions;
use super::guests::unavailable;
use super::overrides::Overrides;
use super::plan::Plan;
use super::{Source, in_guests};

/// Value of `--second-clock`: which findings of a study are counted in instructions, too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SecondClock {
    /// Where QEMU and the running kernel's image can be had, except in a quick run.
    #[default]
    Auto,
    /// Not at all.
    Never,
    /// For all findings, also those that time decides.
    Always,
    /// In guests of this kernel.
    Kernel(PathBuf),
}

impl FromStr for SecondClock {
    type Err = Infallible;

    fn from_str(word: &str) -> Result<SecondClock, Infallible> {
        Ok(match word {
            "auto" => SecondClock::Auto,
            "never" => SecondClock::Never,
            "always" => SecondClock::Always,
            kernel => SecondClock::Kernel(kernel.into()),
        })
    }
}

impl SecondClock {
    /// Checks before the first trial that guests can be had, if the command line asks for them.
    ///
    /// # Errors
    /// QEMU or the kernel is missing.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        match self {
            SecondClock::Auto | SecondClock::Never => Ok(()),
            SecondClock::Always | SecondClock::Kernel(_) => {
                self.kernel().map(drop).map_err(|error| match error {
                    GuestError::NoKernel { .. } => usage(format!(
                        "--second-clock: expected auto, never, always or a kernel: {error}"
                    )),
                    other => unavailable(other),
                })
            }
        }
    }

    fn kernel(&self) -> Result<Kernel, GuestError> {
        Guest::check_host()?;
        Kernel::find(self.path())
    }

    fn path(&self) -> Option<&Path> {
        match self {
            SecondClock::Kernel(path) => Some(path),
            _ => None,
        }
    }

    /// Cells to repeat; none if the second clock is not used.
    fn cells(&self, run: &StoredRun, summary: &Summary) -> Vec<String> {
        let is_here = || run.study.cells.iter().all(|cell| !cell.knobs.names_hosts());
        let is_wanted = match self {
            SecondClock::Never => false,
            SecondClock::Auto => {
                let of_run = &run.overrides;
                // Counts of an earlier run in guests of a named kernel stand.
                let is_continued = run.instructions.as_ref().is_none_or(|earlier| {
                    let guests = &earlier.overrides.exact_instructions;
                    *guests == Some(ExactInstructions::InGuests(None))
                });
                let may = !of_run.quick && !of_run.without_second_clock && is_continued;
                may && self.kernel().is_ok()
            }
            SecondClock::Always | SecondClock::Kernel(_) => true,
        };
        // A guest has neither the study's hosts nor its programs.
        let can_be_had = commands::named(&run.study, &run.overrides).is_empty() && is_here();
        if !(is_wanted && can_be_had && run.overrides.share.is_none()) {
            return Vec::new();
        }
        summary
            .cells_for_second_clock(*self == SecondClock::Always)
            .into_iter()
            .collect()
    }
}

/// Default number of snapshots of a kernel: three tell 0.04 % of a transaction.
pub const SNAPSHOTS: u32 = 3;
/// CPU time of a boot and of a trial (Linux 6.12, AMD Zen 3), for the price that is printed before the first guest.
const BOOT: Duration = Duration::from_secs(15);
const TRIAL: Duration = Duration::from_secs(6);

/// Counts in guests what time leaves undecided in a run, and adds it to the run's summary. Continues guests' trials that are in the
/// folder already. Prints a failure in one line and goes on, because the results in time stand. Returns true if interrupted.
pub(crate) fn add(
    (folder, run): (&Path, &StoredRun),
    summary: &mut Summary,
    asked: &SecondClock,
    jobs: Option<usize>,
    interrupt: &Interrupt,
    quiet: bool,
) -> bool {
    let cells = asked.cells(run, summary);
    let say = |text: &str| {
        if !quiet {
            output::say!("tcpcost: {text}");
        }
    };
    let is_typed = matches!(asked, SecondClock::Always | SecondClock::Kernel(_));
    if cells.is_empty() {
        if is_typed {
            say(
                "the second clock has nothing to add: time decides all, or the cells cannot run in guests",
            );
        }
        return false;
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let at_once = u32::try_from(jobs.unwrap_or(cpus)).unwrap_or(u32::MAX);
    let price = price(cells.len(), at_once);
    let amount = format!(
        "{} cells, {SNAPSHOTS} guests each, about {} s",
        cells.len(),
        price.as_secs()
    );
    if !is_typed && !is_in_time(run, price) {
        say(&format!(
            "time does not decide all; instructions may, beyond the time limit ({amount}): tcpcost run --resume {} --second-clock always",
            folder.display()
        ));
        return false;
    }
    let why = match is_typed {
        true => "instructions are counted in guests",
        false => {
            "time does not decide all, so instructions are counted in guests (unless --second-clock never)"
        }
    };
    say(&format!("{why}: {amount}"));
    match counted(folder, run, asked, cells, (jobs, interrupt, quiet)) {
        Ok(Some(of_guests)) => summary.add_instructions(&of_guests),
        Ok(None) => return true,
        Err(error) => output::say!("tcpcost: the second clock: {}", line(&error)),
    }
    false
}

/// Time that the guests of this number of cells take.
fn price(cells: usize, at_once: u32) -> Duration {
    let trials = u32::try_from(cells)
        .unwrap_or(u32::MAX)
        .saturating_mul(SNAPSHOTS);
    let cpu = BOOT * SNAPSHOTS + TRIAL.saturating_mul(trials);
    cpu / at_once.max(1)
}

fn is_in_time(run: &StoredRun, price: Duration) -> bool {
    let limit = run.study.measure.time_max;
    limit.is_none_or(|limit| Plan::spent(&run.study, &run.records) + price <= limit)
}

/// Summary of the study in instructions. `None` if interrupted.
fn counted(
    folder: &Path,
    run: &StoredRun,
    asked: &SecondClock,
    cells: Vec<String>,
    (jobs, interrupt, quiet): (Option<usize>, &Interrupt, bool),
) -> anyhow::Result<Option<Summary>> {
    // An interrupted run had the cells that were undecided then.
    let earlier = run.instructions.as_ref();
    let cells = earlier.map_or(cells, |earlier| earlier.overrides.cells.clone());
    let overrides = in_instructions(&run.overrides, asked, cells);
    let source = Source {
        text: &run.text,
        file: &folder.to_string_lossy(),
    };
    let consent = Consent::new(false).with_typed(&overrides);
    let path = folder.join(INSTRUCTIONS);
    let ran = in_guests(&path, &source, &overrides, &consent, jobs, interrupt, quiet)?;
    if ran.is_none() {
        return Ok(None);
    }
    Ok(Some(StoredRun::load(&path)?.of_all_cells()))
}

/// Overrides of the run in guests.
fn in_instructions(of: &Overrides, asked: &SecondClock, cells: Vec<String>) -> Overrides {
    let kernel = asked.path().map(Path::to_path_buf);
    Overrides {
        cells,
        repetitions: Some(SNAPSHOTS),
        duration: None,
        time_max: None,
        capture: None,
        meter_cost: false,
        exact_instructions: Some(ExactInstructions::InGuests(kernel)),
        ..of.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_study::Study;

    fn stored(text: &str, overrides: Overrides) -> StoredRun {
        let study = Study::parse("s", text, "s.toml").unwrap();
        StoredRun::new(study, text.to_string(), overrides)
    }

    #[test]
    fn a_word_or_a_kernel() {
        let of = |word: &str| word.parse::<SecondClock>().unwrap();
        assert_eq!(of("auto"), SecondClock::default());
        assert_eq!(of("never"), SecondClock::Never);
        assert_eq!(of("always"), SecondClock::Always);
        assert_eq!(of("./never"), SecondClock::Kernel("./never".into()));
    }

    #[test]
    fn the_price_counts_in_the_time_limit() {
        assert_eq!(price(4, 1), Duration::from_secs(45 + 72));
        assert_eq!(price(4, 2), price(4, 1) / 2);
        let mut run = stored("", Overrides::default());
        assert!(is_in_time(&run, price(100, 1)));
        run.study.measure.time_max = Some(Duration::from_secs(60));
        assert!(is_in_time(&run, Duration::from_secs(60)));
        assert!(!is_in_time(&run, price(4, 1)));
    }

    #[test]
    fn quick_runs_shares_and_other_hosts_are_left_to_time() {
        let cells = |text: &str, overrides: Overrides, clock: SecondClock| {
            let run = stored(text, overrides);
            clock.cells(&run, &run.summary()).len()
        };
        let vary = "[vary]\nwrite_size = [\"1KiB\", \"64KiB\"]\n[[conclusion]]\ntext = \"t\"\nknob = \"write_size\"\n\
                    from = \"1KiB\"\nto = [\"64KiB\"]\nexpects = \"less\"\nstatement = \"s\"\n[[statement]]\nid = \"s\"\nsource = \"x\"\ntext = \"t\"\n";
        let always = || SecondClock::Always;
        assert_eq!(cells(vary, Overrides::default(), always()), 2);
        assert_eq!(cells(vary, Overrides::default(), SecondClock::Never), 0);
        let quick = Overrides {
            quick: true,
            ..Overrides::default()
        };
        assert_eq!(cells(vary, quick, SecondClock::Auto), 0);
        let never = Overrides {
            without_second_clock: true,
            ..Overrides::default()
        };
        assert_eq!(cells(vary, never, SecondClock::Auto), 0);
        let share = Overrides {
            share: Some("0/2".parse().unwrap()),
            ..Overrides::default()
        };
        assert_eq!(cells(vary, share, always()), 0);
        let lab = format!(
            "[hosts]\nclient = {{ reach = \"ssh:x\" }}\nserver = {{ reach = \"ssh:y\" }}\n{vary}"
        );
        assert_eq!(cells(&lab, Overrides::default(), always()), 0);
    }
}
