//! `tcpcost run`: every cell of a study, repetition by repetition, each trial on disk before the next.

mod access;
mod baseline;
mod bed;
mod commands;
mod cpu_owners;
mod directory;
mod distance_wait;
mod exact_instructions;
mod functions;
mod guests;
mod hear;
mod host;
mod job;
mod last_words;
mod launcher;
mod needs;
mod nodes;
mod phases;
mod placement;
mod plan;
mod progress;
mod push;
mod reap;
mod runner;
mod several;
mod shell;
mod trial;
mod warnings;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context;
use tcpcost_report::{Summary, html};
use tcpcost_signals::Interrupt;
use tcpcost_study::{Record, Study};

use self::access::Access;
use self::job::Part;
use self::nodes::Events;
use self::plan::Plan;
use self::progress::Progress;
use self::runner::Runner;
use crate::cli;
use tcpcost_console::exit::{Exit, line, usage};
use tcpcost_console::format::Format;
use crate::hosts_file::Lab;
use tcpcost_console::output;
use crate::slurm::{self, Allocation};
use crate::uperf;

pub use self::baseline::{Baseline, directories, held};
pub use self::commands::Consent;
pub use self::directory::{Directory, Overrides, RECORDS, StoredRun};
pub use self::exact_instructions::ExactInstructions;
pub use self::functions::ByFunction;
pub use self::guests::Boots;
pub use self::launcher::Launchers;
pub use self::several::stored;

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
        let launchers = Launchers::new(&args.hosts)?;
        output::write(&dry_run(&stored.study, &stored.overrides, &launchers))?;
        return Ok(Exit::Ok);
    }
    let baseline = match &args.baseline {
        Some(directory) => Some(Baseline::load(std::slice::from_ref(directory))?),
        None => None,
    };
    if args.runs.is_some() || args.with.is_some() {
        return several::several(args);
    }
    let mut launchers = Launchers::new(&args.hosts)?;
    match job::part(args)? {
        Part::None(rank) => {
            output::say!("tcpcost: the first process of the step runs the study: {rank}");
            return Ok(Exit::Ok);
        }
        Part::Submit => return job::submit(args),
        Part::Run(allocation) => launchers.job = allocation,
    }
    let (mut store, run) = match (&args.resume, args.share) {
        (Some(path), share) => {
            let (store, run) = match share {
                Some(share) => Directory::open_share(path, share)?,
                None => Directory::open(path)?,
            };
            let checked = launchers.consent.check(&run.study, &run.overrides);
            checked.inspect_err(|_| store.made.discard())?;
            (store, run)
        }
        (None, _) => {
            let named = args
                .study
                .as_deref()
                .expect("clap asks for a study unless --resume is given");
            let (name, text, file) = uperf::find(named)?;
            let overrides = overrides(args, name)?;
            let study = overrides.apply(&text, &file)?;
            if args.dry_run {
                output::write(&dry_run(&study, &overrides, &launchers))?;
                return Ok(Exit::Ok);
            }
            launchers.consent = launchers.consent.with_typed(&overrides);
            launchers.consent.check(&study, &overrides)?;
            if args.guest.is_some() {
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
        launchers.consent.check(&study, &overrides)?;
        let boots = Boots::new(&study, &text, &overrides, kernel, args.jobs);
        // Nothing will be in it.
        let boots = boots.inspect_err(|_| store.made.discard())?;
        return conduct_in_guests(
            &mut store,
            &study,
            records,
            &boots,
            baseline.as_ref(),
            &args.telling,
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
        &args.telling,
    )
}

/// What `--dry-run` prints.
fn dry_run(study: &Study, overrides: &Overrides, launchers: &Launchers) -> String {
    let in_guests = overrides.exact_instructions.is_some();
    let mut text = plan::dry_run(study) + &needs::dry_run(study);
    if let Some(guests) = commands::of_guests(overrides) {
        text += &format!(
            "guests are booted by: {}\n",
            shell::for_a_shell(guests.split(' '))
        );
    }
    let commands = launchers.dry_run(study);
    if !commands.is_empty() {
        text += match in_guests {
            true => "commands that start agents, in guests:\n",
            false => "commands that start agents:\n",
        };
        text += &commands;
    }
    text
}

/// Does what is left of a study's trials, and reports.
pub fn conduct(
    store: &mut Directory,
    study: &Study,
    records: Vec<Record>,
    launchers: Launchers,
    baseline: Option<&Baseline>,
    telling: &cli::Telling,
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
    let since = Instant::now();
    launchers.consent.check(study, &Overrides::default())?;
    // As who this is; in a user namespace it is somebody else. A failure is no reason not to run.
    if let Err(error) = host::put_back("a killed run") {
        output::say!("tcpcost: {}", line(&error));
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
    let mut runner = Runner::new(study, records, since, launchers, &access);
    let ended = runner.all(store, &mut events, &mut progress);
    // Whatever ended it: agents are gone, the host is as it was, and what is there is reported.
    let ended = runner.leave_bed().and(ended);
    progress.finish();
    Ok(Conducted {
        records: runner.into_records(),
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
    telling: &cli::Telling,
) -> anyhow::Result<Exit> {
    let interrupt = Interrupt::watch(ENDS_AT_ONCE).context("wait for signals")?;
    let mut progress = Progress::new(Plan::trials(study, &records), telling.quiet);
    progress.say(&format!("records and report: {}", store.path().display()));
    let ended = boots.run(store, &mut records, &interrupt, &mut progress);
    progress.finish();
    let exit = report(store, study, &records, ended, baseline, telling)?;
    if let (true, Some(functions)) = (
        telling.output.has(Format::Details),
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
    consent: &Consent,
    at_once: Option<usize>,
    interrupt: &Interrupt,
    quiet: bool,
) -> anyhow::Result<Option<Summary>> {
    let study = overrides.apply(source.text, source.file)?;
    consent.check(&study, overrides)?;
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
    telling: &cli::Telling,
) -> anyhow::Result<Exit> {
    let mut summary = Summary::new(study, records);
    if let Some(baseline) = baseline {
        baseline.hold(&mut summary, &[]);
    }
    let consent = match commands::named(study, &Overrides::default()).is_empty() {
        true => "",
        false => " --allow-exec",
    };
    let page = store.replace(results::PAGE, &html(&summary));
    let exit = results::exit(&summary);
    let printed = results::print(std::slice::from_ref(&summary), &telling.output);
    let interrupted = ended?;
    if interrupted {
        output::say!(
            "tcpcost: interrupted; go on with: tcpcost run{consent} --resume {}",
            store.path().display()
        );
    }
    page.and(printed)?;
    results::say_what_is_missing(&summary);
    if let (Some(baseline), false) = (baseline, telling.quiet) {
        baseline.say_second_clock(&summary);
    }
    if telling.output.has(Format::Text) && !telling.quiet {
        let directory = store.path().display();
        output::say!(
            "all tables: tcpcost report --format details {directory}; the page: {directory}/report.html"
        );
    }
    Ok(if interrupted { Exit::Interrupted } else { exit })
}

fn overrides(args: &cli::RunArgs, study: String) -> anyhow::Result<Overrides> {
    let mut set = Lab::read(&args.hosts.lab)?.knobs;
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
        exact_instructions: args.guest.clone().map(ExactInstructions::InGuests),
    })
}

/// Another build of this program, of `tcpcost=PATH`; absolute, since a bed's agents may be elsewhere.
///
/// # Errors
/// It is none.
pub fn build(text: &str) -> anyhow::Result<PathBuf> {
    let wrong = |what: String| usage(format!("--with {text}: {what}"));
    let path = text
        .strip_prefix("tcpcost=")
        .ok_or_else(|| wrong("expected tcpcost=PATH".to_string()))?;
    let path = Path::new(path)
        .canonicalize()
        .map_err(|error| wrong(error.to_string()))?;
    if !path.is_file() {
        return Err(wrong("not a program".to_string()));
    }
    // Another program would end a bed's first agent with whatever it says of arguments that it does not know.
    let mut asks = Command::new(&path);
    let told = asks
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| wrong(error.to_string()))?;
    match String::from_utf8_lossy(&told.stdout).starts_with("tcpcost ") {
        true => Ok(path),
        false => Err(wrong("not a build of tcpcost".to_string())),
    }
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
