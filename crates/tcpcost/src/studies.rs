//! `tcpcost study`: built-in studies, and study files by path.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use csv::{Terminator, WriterBuilder};
use tcpcost_study::{AppliesTo, FileTable, KNOBS, Knob, Study, nearest};

use crate::exit::usage;
use crate::format::{Format, ListFormats, Output};

/// Finds a study by its built-in name or by its path. Returns its name, its text, and the file's
/// name for error messages.
///
/// # Errors
/// No study has this name, or the file cannot be read: exit code 2.
pub fn find(named: &str) -> anyhow::Result<(String, String, String)> {
    if let Some(text) = built_in(named) {
        return Ok((
            named.to_string(),
            text.to_string(),
            format!("{named} (built in)"),
        ));
    }
    let path = Path::new(named);
    let is_path = named.contains('/') || path.extension().is_some();
    match read(path) {
        Ok(text) => {
            let stem = path
                .file_stem()
                .map_or_else(|| named.into(), |stem| stem.to_string_lossy());
            Ok((stem.into_owned(), text, named.to_string()))
        }
        Err(error) if is_path => Err(usage(format!("read {named}: {error}"))),
        Err(_) => {
            let names = BUILT_IN.iter().map(|(name, _)| *name);
            let near = nearest(named, names.clone());
            let meant = near.map_or_else(String::new, |near| format!(" (did you mean {near}?)"));
            Err(usage(format!(
                "no study \"{named}\"{meant}: built in are {}; a file is named by its path, e.g. ./{named}.toml",
                names.collect::<Vec<_>>().join(", ")
            )))
        }
    }
}

/// Longest study, 1 MiB. The limit ends the reading of an endless file such as /dev/zero.
pub const STUDY_BYTES_MAX: u64 = 1 << 20;

/// Reads a text that the user named: a file, or a pipe such as `<(COMMAND)`.
///
/// # Errors
/// FileTooLarge beyond 1 MiB; InvalidData if the text is not UTF-8; else the kernel's error.
pub fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = File::open(path)?;
    file.take(STUDY_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > STUDY_BYTES_MAX {
        let reason = "longer than 1 MiB";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(text)
}

/// Returns the output of `tcpcost study list`.
pub fn list(output: &Output<ListFormats>) -> anyhow::Result<String> {
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
pub fn show(name: &str) -> anyhow::Result<String> {
    match built_in(name) {
        Some(text) => Ok(text.to_string()),
        None => Err(find(name).err().unwrap_or_else(|| {
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
pub fn one_knob(named: &str) -> anyhow::Result<String> {
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
pub fn knobs() -> String {
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

/// Lists the built-in studies: name and text.
macro_rules! built_in {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../studies/", $name, ".toml")))),+]
    };
}

const BUILT_IN: &[(&str, &str)] = built_in![
    "tour",
    "cost-of-tcp",
    "acks",
    "ack-limits",
    "ack-bursts",
    "tso-split",
    "fair-queue",
    "stacks",
    "accounting",
    "copy-paths",
    "send-paths",
    "relay",
    "crossover",
    "on-read",
    "segmentation",
    "write-size",
    "connections",
    "transmit",
    "lso",
    "ack-ratio",
    "scale",
    "request-response",
    "beside",
    "profile",
    "fleet-check",
];

/// Returns the text of a built-in study. `None` if no study has this name.
pub fn built_in(name: &str) -> Option<&'static str> {
    let found = BUILT_IN.iter().find(|(built_in, _)| *built_in == name);
    found.map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_file_of_the_studies_folder_is_shipped() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/studies");
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            assert!(built_in(name).is_some(), "{name} is in no list");
        }
    }

    #[test]
    fn shipped_studies_parse_and_say_what_they_ask() {
        for (name, text) in BUILT_IN {
            let study = Study::parse(name, text, name).unwrap_or_else(|error| panic!("{error}"));
            assert!(study.title.starts_with(name), "{name}: {}", study.title);
        }
    }

    #[test]
    fn every_shipped_study_is_done_in_a_minute() {
        for (name, text) in BUILT_IN {
            let mut study = Study::parse(name, text, name).unwrap();
            study.make_quick();
            let of_cell = |cell| {
                let (warm_up, duration) = study.times(cell);
                // A trial with a capture also waits for the capture and reads it.
                let trial = TRIAL * if cell.captured.is_some() { 2 } else { 1 };
                (warm_up + duration + trial) * study.repetitions(cell)
            };
            let all: Duration = study.cells.iter().map(of_cell).sum();
            assert!(!all.is_zero(), "{name}");
            assert!(all < Duration::from_secs(56), "{name}: {all:?}");
        }
    }

    /// Time that a trial takes beyond its warm-up and its interval.
    const TRIAL: Duration = Duration::from_millis(120);
}
