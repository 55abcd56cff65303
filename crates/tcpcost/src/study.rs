//! `tcpcost study`: built-in studies and their knobs.

use clap::{Args, Subcommand};
use csv::{Terminator, WriterBuilder};
use tcpcost_conduct::studies::{self, BUILT_IN};
use tcpcost_console::exit::usage;
use tcpcost_console::format::{Format, ListFormats, Output, ShowFormats};
use tcpcost_study::{AppliesTo, FileTable, KNOBS, Knob, Study, nearest};

use crate::manifest;

/// `tcpcost study`.
#[derive(Debug, Subcommand)]
pub enum StudyCommand {
    /// List the built-in studies.
    List(Output<ListFormats>),
    /// Print a built-in study as a file to copy and change, or the objects of Kubernetes whose pods are its hosts.
    Show(ShowArgs),
    /// List the knobs that a study can set: values, defaults, and support by each TCP.
    Knobs {
        /// This knob alone.
        name: Option<String>,
    },
    /// Print a profile of uperf (XML) as a study file that runs the same.
    Convert {
        /// Path of the profile.
        profile: String,
    },
}

/// `tcpcost study show`.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Keys of --pod:\n  image=IMAGE          the image of the pods, with tcpcost (make static) in its PATH; needed\n  attach               the agents are the Job itself, reached by kubectl attach instead of exec\n  host-network         measure the nodes' own devices instead of the pods'\n  capabilities=LIST    capabilities of the pods, or none [default: BPF,PERFMON,NET_ADMIN]\n  tolerate=TAINT       a node taint to tolerate: KEY=VALUE:EFFECT, KEY:EFFECT or KEY; may be repeated\n  namespace=NAME       namespace of the objects [default: kubectl's]\n  deadline=SECONDS     time after which the pods end by themselves [default: 86400]"
)]
pub struct ShowArgs {
    /// Name of a built-in study; with --format manifest also the path of a study file.
    pub name: String,
    /// Format of the study.
    #[command(flatten)]
    pub output: Output<ShowFormats>,
    /// With --format manifest: image=IMAGE, and other properties of the pods; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub pod: Vec<String>,
}

/// Returns the output of `tcpcost study`.
pub fn study(command: &StudyCommand) -> anyhow::Result<String> {
    match command {
        StudyCommand::List(output) => list(output),
        StudyCommand::Show(args) if args.output.has(Format::Manifest) => {
            manifest::manifest(&args.name, &args.pod)
        }
        StudyCommand::Show(args) if args.pod.is_empty() => show(&args.name),
        StudyCommand::Show(_) => Err(usage("--pod needs --format manifest")),
        StudyCommand::Knobs { name: None } => Ok(knobs()),
        StudyCommand::Knobs { name: Some(name) } => one_knob(name),
        StudyCommand::Convert { profile } => studies::convert(profile),
    }
}

/// Returns the output of `tcpcost study list`.
fn list(output: &Output<ListFormats>) -> anyhow::Result<String> {
    let studies = BUILT_IN
        .iter()
        .map(|(name, text)| Ok((*name, Study::parse(name, text, name)?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    if output.has(Format::Json) {
        let list: Vec<_> = studies
            .iter()
            .map(|(name, study)| {
                serde_json::json!({"name": name, "title": study.title, "cells": study.cells.len()})
            })
            .collect();
        return Ok(serde_json::to_string_pretty(&list)? + "\n");
    }
    if output.has(Format::Csv) {
        let feed = Terminator::Any(b'\n');
        let mut rows = WriterBuilder::new().terminator(feed).from_writer(vec![]);
        rows.write_record(["name", "cells", "title"])?;
        for (name, study) in &studies {
            rows.write_record([*name, &study.cells.len().to_string(), &study.title])?;
        }
        return Ok(String::from_utf8(rows.into_inner()?)?);
    }
    let mut lines = String::new();
    for (name, study) in &studies {
        // A title begins with the study's name, which the first column shows.
        let title = study
            .title
            .split_once(": ")
            .map_or(study.title.as_str(), |(_, rest)| rest);
        lines += &format!("{name:<18} {title}\n");
    }
    Ok(lines)
}

/// Returns the output of `tcpcost study show NAME`: the text of a built-in study.
fn show(name: &str) -> anyhow::Result<String> {
    match studies::built_in(name) {
        Some(text) => Ok(text.to_string()),
        None => Err(studies::find_text(name).err().unwrap_or_else(|| {
            usage(format!(
                "{name} is a file, not a built-in study: it can be copied as it is"
            ))
        })),
    }
}

/// Returns the output of `tcpcost study knobs NAME`. The host of a name such as `client.mtu` is ignored.
///
/// # Errors
/// No knob has this name.
fn one_knob(named: &str) -> anyhow::Result<String> {
    let name = named.rsplit('.').next().unwrap_or(named);
    match KNOBS
        .iter()
        .find(|knob| knob.key == name || knob.name == name)
    {
        Some(knob) => Ok(knob_text(knob)),
        None => {
            let near = nearest(name, KNOBS.iter().map(|knob| knob.name));
            let meant = near.map_or_else(String::new, |near| format!(" (did you mean {near}?)"));
            Err(usage(format!("no knob \"{named}\"{meant}")))
        }
    }
}

/// Returns the output of `tcpcost study knobs`.
fn knobs() -> String {
    let mut text = String::new();
    for (table, title) in [
        (FileTable::Workload, "[workload]"),
        (FileTable::Bed, "[bed]"),
    ] {
        text += &format!("{title}\n");
        for knob in KNOBS.iter().filter(|knob| knob.table == table) {
            text += &knob_text(knob);
        }
    }
    text += "  sysctl.\"net.…\" = a sysctl of the end's namespace (client.sysctl, server.sysctl for one end)\n";
    text
}

fn knob_text(knob: &Knob) -> String {
    let mut text = String::new();
    let end = match knob {
        knob if knob.per_end => "; client.* and server.* set one end",
        knob if knob.per_group => "; a [[group]] may have its own",
        _ => "",
    };
    text += &format!(
        "  {} = {} (default {}{end})\n",
        knob.key,
        knob.expected(),
        knob.default
    );
    text += &format!("      {}\n", knob.doc);
    if !knob.needs.is_empty() {
        text += &format!("      needs {}\n", knob.needs_text());
    }
    if let AppliesTo::Link(kernel, user) | AppliesTo::Tcp(kernel, user) = knob.applies_to {
        text += &format!("      kernel's TCP: {kernel}; our TCP: {user}\n");
    }
    text
}
