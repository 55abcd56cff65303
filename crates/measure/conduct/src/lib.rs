//! Conducts studies: measures every cell, repetition by repetition. Each record is on disk before the next trial begins.
//!
//! [`run`] is the command `tcpcost run`. [`conduct`] and [`in_guests`] do the same for studies that another command makes.

#![forbid(unsafe_code)]

mod access;
mod args;
mod ask_error;
mod baseline;
mod bed;
mod commands;
mod cpu_owners;
mod cycles;
mod directory;
mod distance_wait;
mod events;
mod exact_instructions;
mod functions;
mod guests;
mod host;
mod hosts_file;
mod job;
mod launcher;
mod lines;
mod needs;
mod nodes;
mod overrides;
mod phases;
mod placement;
mod plan;
mod priced;
mod progress;
mod push;
mod reap;
pub mod results;
mod runner;
mod second_clock;
mod several;
mod shell;
mod slurm;
mod stderr_tail;
pub mod studies;
mod trial;
mod warnings;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};
use tcpcost_console::exit::{Exit, line, usage};
use tcpcost_console::format::Format;
use tcpcost_console::output;
use tcpcost_report::{Summary, html};
use tcpcost_signals::Interrupt;
use tcpcost_study::{Record, Study};

use self::access::Access;
use self::directory::RECORDS;
use self::events::Events;
use self::guests::Guests;
use self::job::Part;
use self::plan::Plan;
use self::progress::Progress;
use self::runner::Runner;
use self::slurm::Allocation;

pub use self::args::{HostArgs, RunArgs, Telling};
pub use self::baseline::{Baseline, directories, runs_at};
pub use self::commands::Consent;
pub use self::directory::{Directory, StoredRun};
pub use self::exact_instructions::ExactInstructions;
pub use self::functions::ByFunction;
pub use self::guests::unavailable;
pub use self::hosts_file::Lab;
pub use self::launcher::Launchers;
pub use self::overrides::Overrides;
pub use self::second_clock::{SNAPSHOTS, SecondClock};
pub use self::several::stored;

/// Watches for requests to stop, for a command that conducts several runs.
pub fn requests_to_stop() -> anyhow::Result<Interrupt> {
    Interrupt::watch(ENDS_AT_ONCE).context("wait for signals")
}

/// Number of signals that ends the process at once. The first signal ends the run with a report of the records so far; the
/// second kills agents that have not ended by themselves; the third ends the process without a report.
const ENDS_AT_ONCE: u32 = 3;

/// Runs a study as the command line says.
pub fn run(args: &RunArgs) -> anyhow::Result<Exit> {
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
    let Some((mut store, run)) = opened(args, &mut launchers)? else {
        return Ok(Exit::Ok);
    };
    let mut run = run;
    if launchers.job.is_none() && slurm::nodes(&run.study) != Some(0) {
        launchers.job = Allocation::here()?;
    }
    if let (true, Some(job)) = (run.study.awaits_nodes(), &launchers.job) {
        run.study = store.set_nodes(job.host_names())?;
    }
    let asked = run.overrides.exact_instructions.as_ref();
    if let Some(kernel) = asked.and_then(ExactInstructions::kernel) {
        launchers.consent.check(&run.study, &run.overrides)?;
        let guests = Guests::new(&run.study, &run.text, &run.overrides, kernel, args.jobs);
        // Without guests the directory stays empty.
        let guests = guests.inspect_err(|_| store.created.remove())?;
        return conduct_in_guests(
            &mut store,
            &run.study,
            run.records,
            &guests,
            baseline.as_ref(),
            &args.telling,
        );
    }
    let records = std::mem::take(&mut run.records);
    if asked == Some(&ExactInstructions::Here) {
        // The run that booted this guest makes the report.
        let Conducted { ended, .. } = trials(&mut store, &run.study, records, launchers, true)?;
        return ended.map(|_| Exit::Ok);
    }
    let quiet = args.telling.quiet;
    let done = trials(&mut store, &run.study, records, launchers, quiet)?;
    let (mut ended, interrupt) = (done.ended, done.interrupt);
    run.records = done.records;
    let mut summary = run.summary();
    if let Ok(false) = ended {
        let folder = store.path();
        let clock = &args.second_clock;
        let of_it = (folder, &run);
        ended = Ok(second_clock::add(
            of_it,
            &mut summary,
            clock,
            args.jobs,
            &interrupt,
            quiet,
        ));
    }
    report(&store, summary, ended, baseline.as_ref(), &args.telling)
}

/// The run to continue, or a new one in a directory of its own. `None` after a dry run.
fn opened(
    args: &RunArgs,
    launchers: &mut Launchers,
) -> anyhow::Result<Option<(Directory, StoredRun)>> {
    if let Some(path) = &args.resume {
        let (store, run) = match args.share {
            Some(share) => Directory::open_share(path, share)?,
            None => Directory::open(path)?,
        };
        let checked = launchers.consent.check(&run.study, &run.overrides);
        checked.inspect_err(|_| store.created.remove())?;
        return Ok(Some((store, run)));
    }
    let named = args
        .study
        .as_deref()
        .expect("clap asks for a study unless --resume is given");
    let (name, text, file) = studies::find(named)?;
    let overrides = overrides(args, name)?;
    let study = overrides.apply(&text, &file)?;
    if args.dry_run {
        output::write(&dry_run(&study, &overrides, launchers))?;
        return Ok(None);
    }
    let consent = std::mem::take(&mut launchers.consent);
    launchers.consent = consent.with_typed(&overrides);
    launchers.consent.check(&study, &overrides)?;
    args.second_clock.check()?;
    if args.guest.is_some() {
        // Checked first, so that no empty directory is left if guests are not available.
        tcpcost_guest::Guest::check_host().map_err(guests::unavailable)?;
    }
    let default = || default_directory(&study.name);
    let path = args.out.clone().unwrap_or_else(default);
    let store = Directory::create(&path, &text, &overrides)?;
    Ok(Some((store, StoredRun::new(study, text, overrides))))
}

/// Returns the output of `--dry-run`.
fn dry_run(study: &Study, overrides: &Overrides, launchers: &Launchers) -> String {
    let in_guests = overrides.exact_instructions.is_some();
    let mut text = plan::dry_run(study) + &needs::dry_run(study);
    if overrides.meters.is_some() {
        let names: Vec<&str> = study.measure.meters.iter().map(|one| one.name()).collect();
        text += &format!("meters: {}\n", names.join(", "));
    }
    for (command, does) in commands::guest_commands(overrides) {
        let command = shell::command_line(command.split(' '));
        text += &format!("guests {does}: {command}\n");
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

/// Runs the remaining trials of a study, and reports.
pub fn conduct(
    store: &mut Directory,
    study: &Study,
    records: Vec<Record>,
    launchers: Launchers,
    baseline: Option<&Baseline>,
    telling: &Telling,
) -> anyhow::Result<Exit> {
    let done = trials(store, study, records, launchers, telling.quiet)?;
    let summary = priced::summary(study, &done.records);
    report(store, summary, done.ended, baseline, telling)
}

/// Result of a run's trials.
struct Conducted {
    /// Earlier records and new ones.
    records: Vec<Record>,
    /// True if the run was interrupted, or the error that ended it early.
    ended: anyhow::Result<bool>,
    /// Requests to stop, for what follows the trials.
    interrupt: Interrupt,
}

/// Runs the remaining trials of a study.
fn trials(
    store: &mut Directory,
    study: &Study,
    records: Vec<Record>,
    launchers: Launchers,
    quiet: bool,
) -> anyhow::Result<Conducted> {
    let since = Instant::now();
    launchers.consent.check(study, &Overrides::default())?;
    // Before the process enters a user namespace, where it is another user. After a failure the run goes on all the same.
    if let Err(error) = host::restore("a killed run") {
        output::say!("tcpcost: {}", line(&error));
    }
    // Before any thread exists: a process with threads cannot enter a user namespace.
    let access = Access::gain(study);
    let interrupt = Interrupt::watch(ENDS_AT_ONCE).context("wait for signals")?;
    let mut events = Events::new(interrupt.clone());

    let mut progress = Progress::new(Plan::trials(study, &records), quiet);
    progress.say(&format!("records and report: {}", store.path().display()));
    for warning in &access.warnings {
        progress.say(&format!("tcpcost: {}", warning.text));
    }
    let mut runner = Runner::new(study, records, since, launchers, &access);
    let ended = runner.run(store, &mut events, &mut progress);
    // Also after an error: ends the agents and restores the host, so that the records so far can be reported.
    let ended = runner.leave_bed().and(ended);
    progress.finish();
    Ok(Conducted {
        records: runner.into_records(),
        ended,
        interrupt,
    })
}

/// Restores guests until a study's trials are done, and reports.
fn conduct_in_guests(
    store: &mut Directory,
    study: &Study,
    mut records: Vec<Record>,
    guests: &Guests<'_>,
    baseline: Option<&Baseline>,
    telling: &Telling,
) -> anyhow::Result<Exit> {
    let interrupt = Interrupt::watch(ENDS_AT_ONCE).context("wait for signals")?;
    let mut progress = Progress::new(Plan::trials(study, &records), telling.quiet);
    progress.say(&format!("records and report: {}", store.path().display()));
    let ended = guests.run(store, &mut records, &interrupt, &mut progress);
    progress.finish();
    let ended = without_remains(store, &records, ended)?;
    let summary = Summary::new(study, &records);
    let exit = report(store, summary, ended, baseline, telling)?;
    ByFunction::print(store.path(), study, &telling.output)?;
    Ok(exit)
}

/// Text of a study.
pub struct Source<'a> {
    /// Contents of the study file.
    pub text: &'a str,
    /// Name of the file in error messages.
    pub file: &'a str,
}

/// Measures a study in guests, and writes the records to the directory `path`. Continues a run of the same study that is there.
/// `None` if the run was interrupted.
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
        anyhow::bail!("this run does not ask for guests");
    };
    let guests = Guests::new(&study, source.text, overrides, kernel, at_once)?;
    let (mut store, mut records) = if path.join(RECORDS).exists() {
        let (store, run) = Directory::open(path)?;
        let guests = |of: &Overrides| {
            let guest = of.exact_instructions.clone();
            (guest, of.append.clone(), of.init.clone())
        };
        if guests(&run.overrides) != guests(overrides) || run.study != study {
            return Err(usage(format!(
                "{} holds a run of another study or with other options: choose another --out",
                path.display()
            )));
        }
        (store, run.records)
    } else {
        (Directory::create(path, source.text, overrides)?, Vec::new())
    };
    let mut progress = Progress::new(Plan::trials(&study, &records), quiet);
    progress.say(&format!("records: {}", path.display()));
    let ended = guests.run(&mut store, &mut records, interrupt, &mut progress);
    progress.finish();
    let interrupted = without_remains(&store, &records, ended)??;
    Ok((!interrupted).then(|| Summary::new(&study, &records)))
}

/// The end of a run in guests, unless it ended without any record: then its error, and its directory is as it was before.
fn without_remains(
    store: &Directory,
    records: &[Record],
    ended: anyhow::Result<bool>,
) -> anyhow::Result<anyhow::Result<bool>> {
    match ended {
        Err(error) if records.is_empty() => {
            store.created.remove();
            Err(error)
        }
        ended => Ok(ended),
    }
}

/// Measures a study into the new directory `path`, without a report. Returns the records; `None` if the run was interrupted.
///
/// # Errors
/// The study or its overrides are wrong, the directory holds another run, or the bed cannot be made.
pub fn measure(
    path: &Path,
    source: &Source<'_>,
    overrides: &Overrides,
    mut launchers: Launchers,
    quiet: bool,
) -> anyhow::Result<Option<Vec<Record>>> {
    let study = overrides.apply(source.text, source.file)?;
    let consent = std::mem::take(&mut launchers.consent);
    launchers.consent = consent.with_typed(overrides);
    let mut store = Directory::create(path, source.text, overrides)?;
    let done = trials(&mut store, &study, Vec::new(), launchers, quiet)?;
    let interrupted = done.ended?;
    Ok((!interrupted).then_some(done.records))
}

/// Writes and prints the report of a run. `ended`: true if the run was interrupted, or the error that ended it.
fn report(
    store: &Directory,
    mut summary: Summary,
    ended: anyhow::Result<bool>,
    baseline: Option<&Baseline>,
    telling: &Telling,
) -> anyhow::Result<Exit> {
    if let Some(baseline) = baseline {
        baseline.add_verdicts(&mut summary, &[]);
    }
    let consent = match commands::named(&summary.study, &Overrides::default()).is_empty() {
        true => "",
        false => " --allow-exec",
    };
    let page = store.replace(results::PAGE, &html(&summary));
    let exit = results::exit(&summary);
    let printed = results::print(std::slice::from_ref(&summary), &telling.output);
    let interrupted = ended?;
    if interrupted {
        output::say!(
            "tcpcost: interrupted; continue with: tcpcost run{consent} --resume {}",
            store.path().display()
        );
    }
    page.and(printed)?;
    results::say_what_is_missing(&summary);
    if let (Some(baseline), false) = (baseline, telling.quiet) {
        baseline.suggest_guests(&summary);
    }
    if telling.output.has(Format::Text) && !telling.quiet {
        let directory = store.path().display();
        output::say!(
            "all tables: tcpcost report --format details {directory}; the page: {directory}/report.html"
        );
    }
    Ok(if interrupted { Exit::Interrupted } else { exit })
}

fn overrides(args: &RunArgs, study: String) -> anyhow::Result<Overrides> {
    let mut set = Lab::read(&args.hosts.lab)?.knobs;
    set.extend(pairs("--set", &args.set)?);
    Ok(Overrides {
        cells: Vec::new(),
        study,
        set,
        repetitions: args.repetitions,
        share: args.share,
        slurm: args.slurm,
        nodes: Vec::new(),
        duration: args.duration.clone(),
        seed: args.seed,
        meters: args.meters.clone(),
        meter_cost: args.meter_cost,
        capture: args.capture,
        quick: args.quick,
        compare: None,
        min_effect: percentage("--min-effect", args.min_effect)?,
        time_max: None,
        exact_instructions: args.guest.clone().map(ExactInstructions::InGuests),
        append: args.append.clone(),
        init: args.init.clone(),
        caches: args.caches.map(|caches| caches.to_string()),
        without_second_clock: args.second_clock == SecondClock::Never,
    })
}

/// Path of another build of this program, from `tcpcost=PATH`. The path is absolute, because agents may run in another directory.
///
/// # Errors
/// `PATH` is not a build of tcpcost.
pub fn build(text: &str) -> anyhow::Result<PathBuf> {
    build_at(text).map_err(|error| usage(format!("--with {text}: {error}")))
}

fn build_at(text: &str) -> anyhow::Result<PathBuf> {
    let path = text.strip_prefix("tcpcost=");
    let path = Path::new(path.context("expected tcpcost=PATH")?).canonicalize()?;
    ensure!(path.is_file(), "not a program");
    // Asked now, because the agents of another program would fail later with an unclear message.
    let mut version = Command::new(&path);
    let printed = version.arg("--version").stdin(Stdio::null()).output()?;
    let is_build = String::from_utf8_lossy(&printed.stdout).starts_with("tcpcost ");
    ensure!(is_build, "not a build of tcpcost");
    Ok(path)
}

/// Splits each `KNOB=VALUE` of an option into knob and value.
///
/// # Errors
/// A text has no `=`.
pub fn pairs(flag: &str, texts: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    let pair = |text: &String| match text.split_once('=') {
        Some((knob, value)) => Ok((knob.trim().to_string(), value.trim().to_string())),
        None => Err(usage(format!(
            "{flag} {text}: expected KNOB=VALUE, e.g. write_size=4KiB"
        ))),
    };
    texts.iter().map(pair).collect()
}

/// Converts an option in percent to a fraction of 1.
///
/// # Errors
/// The percentage is below 0, or 100 or more.
pub fn percentage(flag: &str, percent: Option<f64>) -> anyhow::Result<Option<f64>> {
    match percent {
        Some(percent) if !(0.0..100.0).contains(&percent) => Err(usage(format!(
            "{flag} {percent}: expected a percentage from 0 to 100"
        ))),
        percent => Ok(percent.map(|percent| percent / 100.0)),
    }
}

/// Path of a run's new directory if the command line names none.
pub fn default_directory(study: &str) -> PathBuf {
    let now = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
    let parent = PathBuf::from("tcpcost-out");
    // Two runs of a script may begin within the same second.
    let mut names = std::iter::once(format!("{study}-{now}"))
        .chain((2..).map(|count| format!("{study}-{now}-{count}")));
    let free = names.find(|name| !parent.join(name).exists());
    parent.join(free.expect("numbers are endless"))
}
