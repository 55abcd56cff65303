//! Compares text, JSON and CSV of records with stored files. `TCPCOST_REWRITE=1` rewrites these. It also
//! writes the records of a case that has none, but never changes existing records.

mod common;

use std::fs;
use std::path::PathBuf;

use common::{Fate, all_measured, records};
use tcpcost_report::{Summary, TextStyle, csv, json, text};
use tcpcost_study::{Cell, Outcome, Record, Study};

fn check(name: &str, bed: &str, repetitions: u32, fate: Fate) {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let rewrite = std::env::var_os("TCPCOST_REWRITE").is_some();
    let file = |ending: &str| data.join(format!("{name}.{ending}"));
    let read = |ending: &str| {
        fs::read_to_string(file(ending))
            .unwrap_or_else(|error| panic!("{name}.{ending}: {error}; TCPCOST_REWRITE=1 makes it"))
    };
    let study = Study::parse(name, &read("toml"), "golden.toml").unwrap();
    if rewrite && !file("jsonl").exists() {
        let lines: Vec<String> = records(&study, bed, repetitions, fate)
            .iter()
            .map(|record| record.to_line() + "\n")
            .collect();
        fs::write(file("jsonl"), lines.concat()).unwrap();
    }
    let found: Vec<Record> = read("jsonl")
        .lines()
        .map(|line| Record::from_line(line).unwrap())
        .collect();
    let summary = Summary::new(&study, &found);
    let style = TextStyle::default();
    let coloured = text(
        &summary,
        TextStyle {
            colour: true,
            ..style
        },
    );
    let plain: String = coloured
        .split('\u{1b}')
        .map(|part| {
            part.split_once('m')
                .filter(|_| part.starts_with('['))
                .map_or(part, |(_, rest)| rest)
        })
        .collect();
    assert!(coloured != plain, "{name}: no colour");
    assert_eq!(
        plain,
        text(&summary, style),
        "{name}: colour alone tells something"
    );
    for (ending, ours) in [
        ("txt", text(&summary, style)),
        (
            "details.txt",
            text(
                &summary,
                TextStyle {
                    details: true,
                    ..style
                },
            ),
        ),
        ("json", json(&summary)),
        ("csv", csv(&summary)),
    ] {
        if rewrite {
            fs::write(file(ending), &ours).unwrap();
        }
        let expected = read(ending);
        let differs = ours.lines().zip(expected.lines()).find(|(a, b)| a != b);
        assert!(
            ours == expected,
            "{name}.{ending} differs, first in (ours, expected): {differs:#?}"
        );
    }
}

#[test]
fn a_stream_study_with_published_figures_and_thresholds() {
    check("stream", "netns", 6, all_measured);
}

#[test]
fn a_study_that_concludes_something() {
    check("acks", "netns", 6, all_measured);
}

#[test]
fn request_response_on_loopback() {
    check("rr", "loopback", 9, all_measured);
}

#[test]
fn groups_of_connections_each_with_its_figures() {
    check("groups", "netns", 2, all_measured);
}

#[test]
fn call_chains_and_what_the_meters_cost() {
    check("profile", "netns", 6, all_measured);
}

#[test]
fn captures_beside_a_published_one() {
    check("captured", "memory", 6, all_measured);
}

#[test]
fn skips_failures_and_marks() {
    check("marks", "netns", 6, |cell: &Cell, repetition| {
        match (cell.name.as_str(), repetition) {
            ("send_with=zerocopy", _) => (
                Outcome::Skipped {
                    reason: "SO_ZEROCOPY: Operation not supported".into(),
                },
                0,
            ),
            ("send_with=splice", 1 | 4) => (
                Outcome::Failed {
                    reason: "server: 0 of 1 connections came".into(),
                },
                0,
            ),
            ("send_with=sendfile", _) => (Outcome::Measured, 2),
            ("send_with=write", 2) => (Outcome::Measured, 1),
            _ => (Outcome::Measured, 0),
        }
    });
}

#[test]
fn hosts_of_a_study_each_by_its_own_meters() {
    check("hosts", "hosts", 6, all_measured);
}

#[test]
fn a_study_broken_off() {
    check("partial", "netns", 2, all_measured);
}
