//! The built-in studies and study files by path: `list`, `show`, `knobs`.

use std::path::Path;

use tcpcost_study::{BUILT_IN, Group, KNOBS, Study, built_in};

use crate::cli::Format;
use crate::exit::usage;

/// A study named on the command line: a built-in name, or a path. Gives name, text, and how to call
/// the file in errors.
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
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let stem = path
                .file_stem()
                .map_or_else(|| named.into(), |stem| stem.to_string_lossy());
            Ok((stem.into_owned(), text, named.to_string()))
        }
        Err(error) if is_path => Err(usage(format!("read {named}: {error}"))),
        Err(_) => {
            let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            Err(usage(format!(
                "no study \"{named}\": built in are {}; a file is named by its path, e.g. ./{named}.toml",
                names.join(", ")
            )))
        }
    }
}

/// `tcpcost list`.
pub fn list(format: Format) -> anyhow::Result<String> {
    let studies = BUILT_IN
        .iter()
        .map(|(name, text)| Ok((*name, Study::parse(name, text, name)?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    if format.json {
        let list: Vec<_> = studies
            .iter()
            .map(|(name, study)| {
                serde_json::json!({"name": name, "title": study.title, "cells": study.cells.len()})
            })
            .collect();
        return Ok(serde_json::to_string_pretty(&list)? + "\n");
    }
    let mut lines = String::new();
    if format.csv {
        lines += "name,cells,title\n";
    }
    for (name, study) in &studies {
        if format.csv {
            lines += &format!("{name},{},\"{}\"\n", study.cells.len(), study.title);
        } else {
            // Titles begin with the name, which the first column already has.
            let title = study
                .title
                .split_once(": ")
                .map_or(study.title.as_str(), |(_, rest)| rest);
            lines += &format!("{name:<18} {title}\n");
        }
    }
    Ok(lines)
}

/// `tcpcost show NAME`.
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

/// `tcpcost knobs`.
pub fn knobs() -> String {
    let mut text = String::new();
    for (group, title) in [(Group::Workload, "[workload]"), (Group::Bed, "[bed]")] {
        text += &format!("{title}\n");
        for knob in KNOBS.iter().filter(|knob| knob.group == group) {
            let end = if knob.per_end {
                "; client.* and server.* set one end"
            } else {
                ""
            };
            text += &format!(
                "  {} = {} (default {}{end})\n",
                knob.key,
                knob.expected(),
                knob.default
            );
            text += &format!("      {}\n", knob.doc);
        }
    }
    text += "  sysctl.\"net.…\" = a sysctl of the end's namespace (client.sysctl, server.sysctl for one end)\n";
    text
}
