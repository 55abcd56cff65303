//! Reports as JSON, and as CSV made from the JSON.

use std::io::{self, Write};

use csv::{Terminator, WriterBuilder};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::Value;
use tcpcost_counts::csv_field;

use crate::report::{ConnectionReport, Report, SCHEMA_VERSION};

/// Renders these reports as one JSON document. docs/records.md describes its fields.
pub fn json(reports: &[Report]) -> String {
    in_memory(|out| write_json(reports, out))
}

/// Writes these reports as one JSON document, piece by piece: for 100,000 connections it has a GiB.
///
/// # Errors
/// The error of `out`.
pub fn write_json(reports: &[Report], mut out: impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut out, &Document(reports))?;
    out.write_all(b"\n")
}

/// Renders these reports as one JSON document in one line.
pub fn json_line(reports: &[Report]) -> String {
    in_memory(|mut out| {
        serde_json::to_writer(&mut out, &Document(reports))?;
        out.write_all(b"\n")
    })
}

fn in_memory(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).expect("memory takes all");
    String::from_utf8(out).expect("JSON and CSV are UTF-8")
}

struct Document<'r>(&'r [Report]);

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(2))?;
        map.serialize_entry("captures", &Each(self.0, Capture))?;
        map.serialize_entry("schema_version", &SCHEMA_VERSION)?;
        map.end()
    }
}

/// Sequence whose values are made one by one while it is written.
struct Each<'r, T, M>(&'r [T], M);

impl<'r, T, V: Serialize, M: Fn(&'r T) -> V> Serialize for Each<'r, T, M> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.iter().map(&self.1))
    }
}

struct Capture<'r>(&'r Report);

impl Serialize for Capture<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let report = self.0;
        let mut value = to_value(report);
        let timed = |connection: &ConnectionReport| connection.duration_ns.is_some();
        if !report.connections.iter().all(timed) {
            without_times(&mut value["total"]);
        }
        // Placeholder that keeps the place among the other fields.
        value["connections"] = Value::Null;
        let mut map = to.serialize_map(None)?;
        for (name, field) in value.as_object().into_iter().flatten() {
            if name == "connections" {
                map.serialize_entry(name, &Each(&report.connections, connection_value))?;
            } else {
                map.serialize_entry(name, field)?;
            }
        }
        map.end()
    }
}

/// Connection as JSON. Its times are null if the capture has no times.
fn connection_value(connection: &ConnectionReport) -> Value {
    let mut value = to_value(connection);
    if connection.duration_ns.is_none() {
        without_times(&mut value);
    }
    value
}

fn to_value(of: &impl Serialize) -> Value {
    serde_json::to_value(of).expect("maps have strings as keys")
}

fn without_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if name.ends_with("_ns") {
                    *field = Value::Null;
                }
                without_times(field);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(without_times),
        _ => {}
    }
}

/// Renders CSV with a row for each number of each end: `file,connection,end,quantity,value`. The
/// steps of distributions are in JSON only.
pub fn csv(reports: &[Report]) -> String {
    in_memory(|out| write_csv(reports, out))
}

/// Writes the CSV of [`csv()`] piece by piece.
///
/// # Errors
/// The error of `out`.
pub fn write_csv(reports: &[Report], out: impl Write) -> io::Result<()> {
    let mut out = WriterBuilder::new()
        .terminator(Terminator::Any(b'\n'))
        .from_writer(out);
    out.write_record(["file", "connection", "end", "quantity", "value"])?;
    for report in reports {
        for connection in &report.connections {
            let value = connection_value(connection);
            let number = connection.number.to_string();
            let file = csv_field(&report.file);
            let mut row = |end: &str, name: &str, value: &Value| {
                let value = match value {
                    Value::String(text) => csv_field(text),
                    other => other.to_string().into(),
                };
                out.write_record([&file, &*number, &csv_field(end), name, &value])
            };
            for (name, value) in value.as_object().into_iter().flatten() {
                if name != "ends" && name != "number" {
                    flatten(name, value, &mut |name, value| row("", name, value))?;
                }
            }
            for end in value["ends"].as_array().into_iter().flatten() {
                let address = end["address"].as_str().unwrap_or_default();
                for (name, value) in end.as_object().into_iter().flatten() {
                    if name != "address" {
                        flatten(name, value, &mut |name, value| row(address, name, value))?;
                    }
                }
            }
        }
    }
    out.flush()
}

fn flatten(
    name: &str,
    value: &Value,
    row: &mut impl FnMut(&str, &Value) -> csv::Result<()>,
) -> csv::Result<()> {
    match value {
        Value::Null | Value::Array(_) => Ok(()),
        Value::Object(fields) => fields
            .iter()
            .try_for_each(|(inner, value)| flatten(&format!("{name}.{inner}"), value, row)),
        value => row(name, value),
    }
}
