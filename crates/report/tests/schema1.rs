//! Records of schema 1, as the program of that time wrote them, are read and give the figures that it gave.
//!
//! The files are read-only: nothing writes them anew.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use tcpcost_report::{Summary, csv};
use tcpcost_study::{Outcome, Record, Study};

fn file(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/schema1");
    let path = path.join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn records(name: &str) -> Vec<Record> {
    let text = file(&format!("{name}.jsonl"));
    let read = |line| Record::from_line(line).unwrap_or_else(|error| panic!("{name}: {error}"));
    text.lines().map(read).collect()
}

/// What has said since whose ACKs these are.
const RENAMED: [&str; 2] = [
    "data_segments_per_pure_ack",
    "captured_wire_segments_per_pure_ack",
];

/// Median, lower and upper bound by cell and quantity.
fn figures(csv: &str) -> BTreeMap<(String, String), Vec<String>> {
    let row = |line: &str| {
        let fields: Vec<String> = fields(line);
        let quantity = match RENAMED.iter().any(|name| fields[5].ends_with(name)) {
            true => format!("{}_received", fields[5]),
            false => fields[5].clone(),
        };
        let key = (fields[1].clone(), quantity);
        (key, fields[7..11].to_vec())
    };
    csv.lines().skip(1).map(row).collect()
}

/// The fields of a line of CSV.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().expect("one from the beginning").push(c),
        }
    }
    fields
}

/// Equal but for what the order of additions leaves.
fn is_same(then: &str, now: &str) -> bool {
    match (then.parse::<f64>(), now.parse::<f64>()) {
        (Ok(then), Ok(now)) => (then - now).abs() <= 1e-9 * then.abs().max(1e-3),
        _ => then == now,
    }
}

fn check(name: &str) {
    let study = Study::parse(name, &file(&format!("{name}.toml")), name).unwrap();
    let summary = Summary::new(&study, &records(name));
    assert_eq!(summary.records_of_others, 0, "{name}");
    let then = figures(&file(&format!("{name}.csv")));
    let now = figures(&csv(&summary));
    for (key, figure) in &then {
        let here = now.get(key).unwrap_or_else(|| panic!("{name}: no {key:?}"));
        let same = figure
            .iter()
            .zip(here)
            .all(|(then, now)| is_same(then, now));
        assert!(
            same && figure.len() == here.len(),
            "{name}: {key:?}: {figure:?} {here:?}"
        );
    }
}

#[test]
fn every_bed_gives_the_figures_that_it_gave() {
    check("beds");
}

#[test]
fn every_meter_gives_the_figures_that_it_gave() {
    check("meters");
}

#[test]
fn captured_trials_give_the_figures_that_they_gave() {
    check("captures");
}

#[test]
fn what_was_skipped_or_failed_says_why() {
    let reasons: Vec<String> = records("outcomes")
        .into_iter()
        .map(|record| match record.outcome {
            Outcome::Measured => panic!("{}: measured", record.cell),
            Outcome::Failed { reason } | Outcome::Skipped { reason } => reason,
        })
        .collect();
    assert_eq!(reasons.len(), 5);
    assert!(
        reasons.iter().all(|reason| !reason.is_empty()),
        "{reasons:?}"
    );
}
