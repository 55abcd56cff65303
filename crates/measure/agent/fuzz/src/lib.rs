//! Bodies of the fuzz targets. `cargo test` also runs them over the corpus and changed copies of it.

use std::collections::BTreeMap;
use std::io::Write;

use tcpcost_agent::input::{Input, LeaseStart};
use tcpcost_agent::protocol::{Answer, Ask, addressed};
use tcpcost_study::{HostName, Knobs, Outcome, Record, Shared, Topology};

/// Feeds any bytes to an agent's input: each line is a question, or the agent can report that it is none.
pub fn ask(data: &[u8]) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    // A pipe holds 64 KiB, and nothing reads while it is filled.
    let data = &data[..data.len().min(60_000)];
    writer.write_all(data).expect("the pipe holds it");
    drop(writer);
    let mut input = Input::new(reader, None, LeaseStart::AtOnce);
    while let Ok(Some(line)) = input.line() {
        let Some((_, message)) = addressed(&line) else {
            continue;
        };
        match serde_json::from_str::<Ask>(message) {
            Ok(ask) => {
                let line = serde_json::to_string(&ask).expect("it has only text keys");
                assert!(!line.contains('\n'));
                serde_json::from_str::<Ask>(&line).expect("what was read can be read again");
            }
            Err(error) => {
                let reason = format!("did not understand {line:?}: {error}");
                let line = serde_json::to_string(&Answer::Failed { reason });
                assert!(!line.expect("a text").contains('\n'));
            }
        }
    }
}

/// Reads any bytes as agents' answers. An answer can be written again, and a host's findings make a record
/// that can be read again.
pub fn answer(data: &[u8]) {
    for line in String::from_utf8_lossy(data).lines() {
        let Some((host, message)) = addressed(line) else {
            continue;
        };
        let Ok(answer) = serde_json::from_str::<Answer>(message) else {
            continue;
        };
        let line = serde_json::to_string(&answer).expect("it has only text keys");
        serde_json::from_str::<Answer>(&line).expect("what was read can be read again");
        let (Answer::Measured(measured), Ok(host)) = (answer, host.parse::<HostName>()) else {
            continue;
        };
        let record = Record {
            schema_version: tcpcost_study::SCHEMA_VERSION,
            study: "fuzz".into(),
            cell: "fuzz".into(),
            knobs: Knobs::default().into(),
            repetition: 0,
            attempt: 0,
            seed: 0,
            started: "2026-01-01T00:00:00Z".into(),
            bed: "hosts".into(),
            captured: false,
            interval_ns: 1,
            work: None,
            outcome: Outcome::Measured,
            warnings: Vec::new(),
            cpu_distances: Vec::new(),
            took_ns: None,
            topology: Topology::default().into(),
            machines: Shared::default(),
            hosts: BTreeMap::from([(host, Box::new(measured.record))]),
        };
        Record::from_line(&record.to_line()).expect("a record can be read again");
    }
}
