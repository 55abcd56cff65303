//! `tcpcost model`: measures what TCP's work costs on this host, cause by cause, and keeps the price list.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Args;
use tcpcost_conduct::{
    self as conduct, HostArgs, Lab, Launchers, Overrides, Source, StoredRun, studies,
};
use tcpcost_console::exit::{Exit, Stop, usage};
use tcpcost_console::format::{Format, Output, TextOrJson};
use tcpcost_console::output;
use tcpcost_model::prices::{self, SCHEMA_VERSION, VETH};
use tcpcost_model::{Place, PriceList, Reference, Sample};
use tcpcost_study::{HostName, Machine, Record};

/// Study that prices are fitted on.
const STUDY: &str = "prices";
/// Beginning of the names of cells that are not fitted.
const CHECK: &str = "check: ";

/// `tcpcost model`.
#[derive(Debug, Args)]
pub struct ModelArgs {
    /// Fit again on stored runs of the study "prices", instead of measuring.
    #[arg(value_name = "DIR")]
    pub runs: Vec<PathBuf>,
    /// Measure only the check cells for 5 s, and say how far the kept prices are off now. Exits with 3 if they are off by more than their accuracy.
    #[arg(long, conflicts_with = "runs")]
    pub check: bool,
    /// Measure the prices of a real device, between this machine and another (docs/hosts.md): a file like the kernel's net.config, or one of its lines, NETIF=eth1, LOCAL_V4=…, REMOTE_V4=…, REMOTE_TYPE=ssh and REMOTE_ARGS=HOST. It takes the device for 90 s; may be repeated.
    #[arg(long, value_name = "FILE|NAME=VALUE", conflicts_with_all = ["runs", "check"])]
    pub hosts: Vec<String>,
    /// Directory for the records [default: tcpcost-out/prices-TIME].
    #[arg(long, value_name = "DIR", conflicts_with_all = ["runs", "check"])]
    pub out: Option<PathBuf>,
    /// True for no progress on standard error; `--quiet` of all commands.
    #[arg(skip)]
    pub quiet: bool,
    /// Formats of the results.
    #[command(flatten)]
    pub output: Output<TextOrJson>,
}

/// Runs `tcpcost model`.
pub fn model(args: &ModelArgs) -> anyhow::Result<Exit> {
    if args.check {
        return check(args);
    }
    let records = if args.runs.is_empty() {
        let path = args.out.clone();
        let path = path.unwrap_or_else(|| conduct::default_directory(STUDY));
        let hosts = HostArgs {
            lab: args.hosts.clone(),
            ..HostArgs::default()
        };
        let lab = Lab::read(&hosts.lab)?;
        if !hosts.lab.is_empty() && lab.knobs.is_empty() {
            return Err(usage(
                "--hosts: prices need two hosts: NETIF, LOCAL_V4, REMOTE_V4, REMOTE_TYPE and REMOTE_ARGS",
            ));
        }
        let bed = (!lab.knobs.is_empty()).then(|| ("bed".to_string(), "hosts".to_string()));
        let overrides = Overrides {
            study: STUDY.to_string(),
            set: bed.into_iter().chain(lab.knobs).collect(),
            ..Overrides::default()
        };
        match measured(&path, &overrides, Launchers::new(&hosts)?, args.quiet)? {
            Some(records) => records,
            None => return Ok(Exit::Interrupted),
        }
    } else {
        stored(&args.runs)?
    };
    let list = list(&records)?;
    let path = prices::path(&list.place)?;
    // Prices of stored runs may be of another host or of a former kernel: they have another file.
    prices::write(&list, &path)?;
    print(&args.output, &list)?;
    if args.output.is_text() {
        output::say!("tcpcost: prices: {}", path.display());
    }
    Ok(Exit::Ok)
}

fn print(output: &Output<TextOrJson>, list: &PriceList) -> anyhow::Result<()> {
    for (format, _) in output.each() {
        match format {
            Format::Json => output::write_json(&(serde_json::to_string(list)? + "\n"))?,
            _ => output::write(&list.text())?,
        };
    }
    Ok(())
}

/// Measures the study "prices"; `None` if interrupted.
fn measured(
    path: &Path,
    overrides: &Overrides,
    launchers: Launchers,
    quiet: bool,
) -> anyhow::Result<Option<Vec<Record>>> {
    let text = studies::built_in(STUDY).expect("the study is built in");
    let source = Source { text, file: STUDY };
    conduct::measure(path, &source, overrides, launchers, quiet)
}

fn stored(paths: &[PathBuf]) -> anyhow::Result<Vec<Record>> {
    let mut records = Vec::new();
    for path in conduct::directories(paths)? {
        let run = StoredRun::load(&path)?;
        if run.overrides.study != STUDY {
            return Err(usage(format!(
                "{}: a run of the study {}: prices are fitted on runs of {STUDY}",
                path.display(),
                run.overrides.study
            )));
        }
        records.extend(run.records);
    }
    Ok(records)
}

/// Machine of a host of a trial.
fn machine_of(record: &Record, host: HostName) -> Option<&Machine> {
    let machine = record.machines.get(&record.hosts.get(&host)?.machine)?;
    Some(machine)
}

/// Samples of fitted cells and of check cells. Prices are of the client's machine: hosts on a machine of another kernel or other CPUs
/// are omitted.
fn samples(records: &[Record]) -> (Vec<Sample>, Vec<Sample>) {
    let of_client = |record: &Record| {
        let client = machine_of(record, HostName::CLIENT);
        let place = client.map(|machine| Place::of("", machine, VETH));
        let mut samples = Sample::all(record);
        samples.retain(|sample| {
            let machine = machine_of(record, sample.host);
            place
                .as_ref()
                .zip(machine)
                .is_some_and(|(own, other)| own.is_of(other))
        });
        samples
    };
    let samples = records.iter().flat_map(of_client);
    samples.partition(|sample| !sample.cell.starts_with(CHECK))
}

fn list(records: &[Record]) -> anyhow::Result<PriceList> {
    let (fitted, checked) = samples(records);
    let machine = records
        .iter()
        .find_map(|record| machine_of(record, HostName::CLIENT));
    let machine = machine.context("no trial was measured")?;
    if fitted.is_empty() {
        return Err(unavailable(records));
    }
    let fit = tcpcost_model::fit(&fitted, &checked)?;
    let all = fitted.iter().chain(&checked);
    let mut cells: Vec<&str> = all.map(|sample| sample.cell.as_str()).collect();
    cells.sort_unstable();
    cells.dedup();
    let of_checks = fit
        .errors
        .iter()
        .filter(|error| error.cell.starts_with(CHECK));
    let references = of_checks.map(|error| Reference {
        cell: error.cell.clone(),
        host: error.host.to_string(),
        ratio: error.log_ratio.exp(),
    });
    let started = records
        .iter()
        .filter_map(|record| record.started.parse().ok());
    let measured = started.map(jiff::Timestamp::as_second).max();
    Ok(PriceList {
        schema_version: SCHEMA_VERSION,
        tcpcost: machine.tcpcost.clone(),
        place: Place::of(&prices::host_name(), machine, prices::device(records)),
        measured_unix_s: measured.and_then(|at| u64::try_from(at).ok()).unwrap_or(0),
        cells: cells.len(),
        references: references.collect(),
        prices: fit.prices,
        unpriced: fit.unpriced,
        accuracy: fit.accuracy,
        draws: fit.draws,
    })
}

/// Error of records without CPU time by context or without counts of skbs.
fn unavailable(records: &[Record]) -> anyhow::Error {
    use tcpcost_study::Outcome;
    let mut outcomes = records.iter().map(|record| &record.outcome);
    let why = outcomes.find_map(|outcome| match outcome {
        Outcome::Failed { reason } | Outcome::Skipped { reason } => Some(reason.clone()),
        Outcome::Measured => None,
    });
    let why = why.unwrap_or_else(|| {
        "prices need CPU time and skbs by eBPF: run as root (tcpcost doctor says what is missing)"
            .to_string()
    });
    Stop {
        exit: Exit::Unavailable,
        text: why,
    }
    .into()
}

/// Environment variable with the driver of the device whose prices `explain`, `advise` and `watch` use; default [`VETH`].
const DEVICE: &str = "TCPCOST_PRICES_OF";

/// Reads the price list of this host and kernel, for the device of [`DEVICE`].
///
/// # Errors
/// There is none, or it cannot be read.
pub fn kept() -> anyhow::Result<PriceList> {
    let device = std::env::var(DEVICE).unwrap_or_else(|_| VETH.to_string());
    Ok(prices::kept(&tcpcost_host::machine::host(), &device)?)
}

/// Age of a list, s.
pub fn age_s(list: &PriceList) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs());
    now.saturating_sub(list.measured_unix_s)
}

/// Check cells of `--check`, and their repetitions: 5 s.
const CHECK_CELLS: usize = 5;
const CHECK_REPETITIONS: u32 = 2;

fn check(args: &ModelArgs) -> anyhow::Result<Exit> {
    let list = prices::kept(&tcpcost_host::machine::host(), VETH)?;
    let text = studies::built_in(STUDY).expect("the study is built in");
    let study = tcpcost_study::Study::parse(STUDY, text, STUDY).map_err(usage)?;
    let names = study.cells.iter().map(|cell| cell.name.clone());
    let cells: Vec<String> = names.filter(|name| name.starts_with(CHECK)).collect();
    let overrides = Overrides {
        study: STUDY.to_string(),
        cells: cells.into_iter().take(CHECK_CELLS).collect(),
        repetitions: Some(CHECK_REPETITIONS),
        duration: Some("250ms".to_string()),
        ..Overrides::default()
    };
    let folder = tempfile::tempdir().context("create a folder for the check")?;
    let path = folder.path().join("run");
    let Some(records) = measured(&path, &overrides, Launchers::default(), true)? else {
        return Ok(Exit::Interrupted);
    };
    let (_, checked) = samples(&records);
    let Some(drift) = list.drift(&checked) else {
        return Err(unavailable(&records));
    };
    let is_kept = drift.is_within(&list.accuracy.interval);
    let text = drift.text(&list, age_s(&list));
    for (format, _) in args.output.each() {
        match format {
            Format::Json => {
                let json = serde_json::json!({
                    "schema_version": SCHEMA_VERSION,
                    "ratio": drift.ratio,
                    "low": drift.low,
                    "high": drift.high,
                    "is_kept": is_kept,
                });
                output::write_json(&format!("{json}\n"))?
            }
            _ => output::write(&(text.clone() + "\n"))?,
        };
    }
    Ok(if is_kept { Exit::Ok } else { Exit::Missed })
}
