//! Reports as JSON, and as CSV made from it.

use serde_json::{Value, json};

use crate::report::{Report, SCHEMA_VERSION};

/// One JSON document of these reports; docs/trace.md has its fields.
pub fn json(reports: &[Report]) -> String {
    format!("{:#}", document(reports))
}

/// The same document as one line.
pub fn json_line(reports: &[Report]) -> String {
    format!("{}\n", document(reports))
}

fn document(reports: &[Report]) -> Value {
    json!({
        "schema_version": SCHEMA_VERSION,
        "captures": reports.iter().map(value).collect::<Vec<_>>(),
    })
}

/// The report; times of a connection whose capture tells none are null.
fn value(report: &Report) -> Value {
    let mut value = serde_json::to_value(report).expect("maps have strings as keys");
    let connections = report
        .connections
        .iter()
        .zip(value["connections"].as_array_mut().into_iter().flatten());
    let mut all_timed = true;
    for (connection, value) in connections {
        if connection.duration_ns.is_none() {
            all_timed = false;
            without_times(value);
        }
    }
    if !all_timed {
        without_times(&mut value["total"]);
    }
    value
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

/// CSV with a row for each number of each end: `file,connection,end,quantity,value`. Steps of
/// distributions are in JSON alone.
pub fn csv(reports: &[Report]) -> String {
    let mut out = "file,connection,end,quantity,value\n".to_string();
    for report in reports {
        let value = value(report);
        for connection in value["connections"].as_array().into_iter().flatten() {
            let number = &connection["number"];
            let file = field(&report.file);
            let mut row = |end: &str, name: &str, value: &Value| {
                let shown = match value {
                    Value::String(text) => field(text),
                    other => other.to_string(),
                };
                out += &format!("{file},{number},{},{name},{shown}\n", field(end));
            };
            for (name, value) in connection.as_object().into_iter().flatten() {
                if name != "ends" && name != "number" {
                    flatten(name, value, &mut |name, value| row("", name, value));
                }
            }
            for end in connection["ends"].as_array().into_iter().flatten() {
                let address = end["address"].as_str().unwrap_or_default();
                for (name, value) in end.as_object().into_iter().flatten() {
                    if name != "address" {
                        flatten(name, value, &mut |name, value| row(address, name, value));
                    }
                }
            }
        }
    }
    out
}

fn flatten(name: &str, value: &Value, row: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Null | Value::Array(_) => {}
        Value::Object(fields) => {
            for (inner, value) in fields {
                flatten(&format!("{name}.{inner}"), value, row);
            }
        }
        value => row(name, value),
    }
}

/// RFC 4180: quoted where a separator or a quote stands in it.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_string()
    }
}
