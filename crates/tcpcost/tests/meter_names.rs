//! Meters are identified by their type: no source but the table of meters has a meter's name as a
//! string.

use std::fs;
use std::path::{Path, PathBuf};

use tcpcost_counts::MeterName;
use tcpcost_testbed::source_folders;

/// Names that are also words for other things: a knob, a unit, a command, a file of /proc, a
/// column. For these only lines with the word "meter" count.
const WORDS: &[MeterName] = &[
    MeterName::Proc,
    MeterName::Netstat,
    MeterName::Tsc,
    MeterName::Others,
    MeterName::Segments,
    MeterName::Profile,
    MeterName::Soak,
    MeterName::Workload,
    MeterName::Tcp,
    MeterName::AckFilter,
    MeterName::Trace,
    MeterName::SelfCost,
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_source_has_a_meters_name_as_a_text() {
    let mut files = Vec::new();
    for folder in source_folders() {
        // The crate `tcp` knows no meter.
        if !folder.ends_with("own-tcp/tcp/src") {
            sources(&folder, &mut files);
        }
    }
    assert!(files.len() > 100, "{files:?}");
    files.retain(|file| !file.ends_with("counts/src/meter_name.rs"));
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            let is_code = !line.trim_start().starts_with("//");
            let names = |meter: &&MeterName| {
                let is_meters = !WORDS.contains(meter) || line.contains("meter");
                line.contains(&format!("\"{meter}\"")) && is_meters
            };
            if is_code && MeterName::ALL.iter().any(|meter| names(&meter)) {
                found.push(format!("{}:{}: {line}", file.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
