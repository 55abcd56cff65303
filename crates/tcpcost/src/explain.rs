//! `tcpcost explain`: where the CPU time of measured work goes, by this host's prices.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use serde::Serialize;
use tcpcost_conduct::{self as conduct, StoredRun};
use tcpcost_console::exit::{Exit, usage};
use tcpcost_console::format::{Format, Output, TextOrJson};
use tcpcost_console::output;
use tcpcost_counts::table::{WIDTH, wrap};
use tcpcost_counts::{Source, exact_cost_ns};
use tcpcost_model::{Counts, Explanation, PriceList, Work, age, explain as by_prices};
use tcpcost_observe::{Observed, StatArgs, Target};

use crate::model::{age_s, kept};

/// Version of the JSON document.
const SCHEMA_VERSION: u32 = 1;
/// Age from which the prices are checked before use, s: a day.
const CHECKED_FROM_S: u64 = 86_400;

/// `tcpcost explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Stored runs to explain: each host of each cell.
    #[arg(value_name = "DIR", conflicts_with_all = ["pid", "cgroup", "netns", "command", "per", "fresh_netns"])]
    pub runs: Vec<PathBuf>,
    /// Work to explain.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Formats of the results.
    #[command(flatten)]
    pub output: Output<TextOrJson>,
}

/// Work that runs on this host, with the command after `--`.
#[derive(Debug, Args)]
pub struct TargetArgs {
    /// Work that is measured.
    #[command(flatten)]
    pub of: Target,
    /// The command and its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl TargetArgs {
    /// Checks that there is work: processes or a command, or files instead.
    ///
    /// # Errors
    /// There is none.
    pub fn check(&self, files: &[PathBuf]) -> anyhow::Result<()> {
        if self.is_attached() || !self.command.is_empty() || !files.is_empty() {
            return Ok(());
        }
        Err(usage(
            "which work? Give a command after --, running processes (--pid, --cgroup, --netns), or the directory of a run",
        ))
    }

    /// True if the work is of running processes.
    fn is_attached(&self) -> bool {
        let of = &self.of;
        !of.pid.is_empty() || of.cgroup.is_some() || of.netns.is_some()
    }

    /// Measures the work once.
    ///
    /// # Errors
    /// A process, cgroup or namespace does not exist, or a meter can no longer be read.
    pub fn observe(&self) -> anyhow::Result<Observed> {
        // The defaults of `tcpcost stat`.
        let output = Output::default();
        tcpcost_observe::observe(&StatArgs {
            repetitions: 1,
            target: self.of.clone(),
            syscalls: true,
            min_effect: 1.0,
            seed: None,
            output,
            command: self.command.clone(),
        })
    }

    /// Name of the work in a sentence.
    pub fn name(&self) -> String {
        let command = self.command.join(" ");
        match (self.is_attached(), command.is_empty()) {
            (false, _) => format!("`{command}`"),
            (true, true) => "The attached workload".to_string(),
            (true, false) => format!("The attached workload, while `{command}` ran,"),
        }
    }
}

/// Work with its explanation.
#[derive(Debug, Serialize)]
struct Explained {
    /// Name of the work: a cell, or the command.
    name: String,
    /// Host of a study's cell.
    host: Option<String>,
    /// Unit of the costs: `response`, `KiB`, `unit` of `--per`, or `run`.
    unit: &'static str,
    /// Units in the whole.
    units: f64,
    /// Costs per unit.
    #[serde(flatten)]
    explanation: Explanation,
    /// Further remarks for the reader.
    notes: Vec<String>,
}

impl Explained {
    fn subject(&self) -> String {
        match (self.unit, &self.host) {
            ("response", Some(host)) => format!("{}, {host}: a response", self.name),
            (unit, Some(host)) => format!("{}, {host}: a {unit}", self.name),
            ("unit", None) => "A unit".to_string(),
            _ => self.name.clone(),
        }
    }
}

/// Runs `tcpcost explain`. Returns the command's own exit code.
///
/// # Errors
/// There are no prices of this host, or the work cannot be measured.
pub fn explain(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    args.target.check(&args.runs)?;
    let list = kept()?;
    if !args.runs.is_empty() {
        print(&list, &stored(&args.runs, &list)?, None, &args.output)?;
        return Ok(Exit::Ok.into());
    }
    let drift = (age_s(&list) >= CHECKED_FROM_S).then(checked).flatten();
    let observed = args.target.observe()?;
    if !observed.was_started {
        return Ok(observed.code.into());
    }
    let explained = live(&args.target, &observed, &list);
    print(&list, &[explained], drift, &args.output)?;
    Ok(observed.code.into())
}

/// Result of `tcpcost model --check` in a process of its own, because a check starts agents; `None` if it fails.
fn checked() -> Option<String> {
    output::say!("tcpcost: the prices are older than a day: checking them for 5 s");
    let program = std::env::current_exe().ok()?;
    let mut check = Command::new(program);
    check
        .args(["model", "--check", "--quiet"])
        .stdin(Stdio::null());
    let done = check.stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&done.stdout).trim().to_string();
    (!text.is_empty()).then_some(text)
}

/// Explains one run of a command.
fn live(target: &TargetArgs, observed: &Observed, list: &PriceList) -> Explained {
    let growth = &observed.growth;
    let units = growth.work(tcpcost_counts::Quantity::Transactions);
    let per = 1.0 / units.unwrap_or(1.0);
    let counts = Counts::of(growth).scaled(per);
    let measured = exact_cost_ns(growth).map(|ns| ns * per);
    let mut notes = observed.unavailable.clone();
    if !observed.is_alone {
        notes.push("skbs, ACKs and connections are those of the whole network namespace (--fresh-netns separates a command's).".to_string());
    }
    notes.extend(growth.warnings.iter().cloned());
    if target.of.per.is_some() && units.is_none() {
        notes.push(
            "--per: no such number in the output, so costs are of the whole run.".to_string(),
        );
    }
    Explained {
        name: target.name(),
        host: None,
        unit: if units.is_some() { "unit" } else { "run" },
        units: units.unwrap_or(1.0),
        explanation: by_prices(list, &counts, measured),
        notes,
    }
}

/// Explains each host of each cell of stored runs.
fn stored(paths: &[PathBuf], list: &PriceList) -> anyhow::Result<Vec<Explained>> {
    let mut explained = Vec::new();
    for path in conduct::directories(paths)? {
        let run = StoredRun::load(&path)?;
        let is_here = |record: &tcpcost_study::Record| {
            let mut machines = record.machines.values();
            machines.all(|machine| list.place.is(machine))
        };
        if !run.records.iter().all(is_here) {
            output::say!(
                "tcpcost: {}: measured on another host or kernel than the prices: costs by them are a guess",
                path.display()
            );
        }
        for work in Work::all(&run.records, list) {
            explained.push(Explained {
                name: work.cell,
                host: Some(work.host.to_string()),
                unit: work.unit,
                units: work.units,
                explanation: by_prices(list, &work.counts, Some(work.cpu_ns)),
                notes: Vec::new(),
            });
        }
    }
    anyhow::ensure!(
        !explained.is_empty(),
        "no trial has CPU time and counts by eBPF: nothing to explain"
    );
    Ok(explained)
}

fn print(
    list: &PriceList,
    all: &[Explained],
    drift: Option<String>,
    output: &Output<TextOrJson>,
) -> anyhow::Result<()> {
    for (format, _) in output.each() {
        match format {
            Format::Json => output::write_json(&json(list, all, drift.as_deref())?)?,
            _ => output::write(&text(list, all, drift.as_deref()))?,
        };
    }
    Ok(())
}

fn json(list: &PriceList, all: &[Explained], drift: Option<&str>) -> anyhow::Result<String> {
    let document = serde_json::json!({
        "schema_version": SCHEMA_VERSION,
        "prices": {
            "place": list.place,
            "measured_unix_s": list.measured_unix_s,
            "accuracy": list.accuracy,
            "drift": drift,
        },
        "explained": all,
    });
    Ok(serde_json::to_string(&document)? + "\n")
}

fn text(list: &PriceList, all: &[Explained], drift: Option<&str>) -> String {
    let mut text = String::new();
    for explained in all {
        let explanation = &explained.explanation;
        text += &(wrap(&explanation.answer(&explained.subject()), WIDTH, "") + "\n\n");
        text += &explanation.table();
        text.push('\n');
        let notes = explained.notes.iter().cloned();
        for note in explanation.remarks().into_iter().chain(notes) {
            text += &(wrap(&note, WIDTH, "  ") + "\n");
        }
    }
    let method = format!(
        "Each row is a count times its price; the sum's interval is that of predictions for check cells. \
         Prices: {} ago, over {}, Linux {}. {}",
        age(age_s(list)),
        list.place.device,
        list.release(),
        list.accuracy_text()
    );
    text += &(wrap(&method, WIDTH, "  ") + "\n");
    if let Some(drift) = drift {
        text += &(wrap(drift, WIDTH, "  ") + "\n");
    }
    text
}
