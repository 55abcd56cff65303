//! Compares docs/records.md with the actual formats, and makes its tables of fields from the schemas.

mod common;

use std::collections::BTreeSet;
use std::fmt::Write;

use common::{all_measured, records};
use serde_json::Value;
use tcpcost_report::{Summary, csv, json};
use tcpcost_study::{Derived, HostName, Outcome, Quantity, Study, Warning, WarningCode};

/// True for keys that are data, not fields: names of quantities, knobs, sysctls, reasons.
fn is_data(key: &str, parent: &str) -> bool {
    match parent {
        "counts" => Quantity::ALL.iter().any(|quantity| quantity.name() == key),
        "estimates" => key.parse::<Derived>().is_ok(),
        "knobs" | "where" | "sysctls" | "failed" | "skipped" | "machines" | "ports" => true,
        _ => false,
    }
}

fn keys(value: &Value, parent: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if !is_data(key, parent) {
                    found.insert(key.clone());
                }
                keys(value, key, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, parent, found)),
        _ => {}
    }
}

#[test]
fn every_field_of_records_and_summaries_is_described() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/records.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut found = BTreeSet::new();
    for (name, text) in [
        ("copy-paths", common::shipped("copy-paths").as_str()),
        (
            "request-response",
            common::shipped("request-response").as_str(),
        ),
        ("acks", include_str!("data/acks.toml")),
        (
            "limits",
            "[[threshold]]\nquantity = \"cpu_us_per_kib\"\nat_most = 1.0\n",
        ),
        ("profile", include_str!("data/profile.toml")),
        ("captured", include_str!("data/captured.toml")),
        ("hosts", include_str!("data/hosts.toml")),
    ] {
        let study = Study::parse(name, text, "study.toml").unwrap();
        let mut records = records(
            &study,
            if name == "hosts" { "hosts" } else { "netns" },
            2,
            all_measured,
        );
        let machine = records[0].machines.values_mut().next().unwrap();
        machine.governor = Some("performance".into());
        let warning = Warning::new(WarningCode::Preempted, "seen");
        records[0].warnings = vec![warning.extent(300.0).of(vec![HostName::CLIENT])];
        let mut skipped = records[0].clone();
        skipped.outcome = Outcome::Skipped {
            reason: "no".into(),
        };
        records.push(skipped);
        for record in &records {
            keys(&serde_json::to_value(record).unwrap(), "", &mut found);
        }
        let summary = Summary::new(&study, &records);
        keys(
            &serde_json::from_str(&json(&summary)).unwrap(),
            "",
            &mut found,
        );
        let csv = csv(&summary);
        let by_chain = csv
            .lines()
            .filter_map(|row| row.split(',').nth(5)?.split_once(':'));
        found.extend(by_chain.map(|(figure, _)| {
            let of_end = ["client_", "server_"];
            let name = of_end.iter().find_map(|end| figure.strip_prefix(end));
            name.unwrap_or(figure).to_string()
        }));
        let columns = csv.lines().next().unwrap().split(',');
        found.extend(
            columns
                .filter(|name| !name.starts_with("knob:"))
                .map(String::from),
        );
    }
    let missing: Vec<&String> = found
        .iter()
        .filter(|key| !page.contains(&format!("`{key}`")) && !page.contains(&format!(".{key}`")))
        .collect();
    assert!(found.len() > 80, "{found:?}");
    assert!(missing.is_empty(), "not in docs/records.md: {missing:?}");
}

/// Renders the fields of an object as a Markdown table, from the properties of its schema.
fn field_table(properties: &Value) -> String {
    let mut table = String::from("| field | meaning |\n|---|---|\n");
    for (name, field) in properties.as_object().expect("an object has properties") {
        let meaning = meaning(field).replace('|', "\\|");
        assert!(!meaning.is_empty(), "{name} has no description");
        writeln!(table, "| `{name}` | {meaning} |").expect("a String takes all");
    }
    table
}

/// Description of a field, then its choices if it has some that the description does not name.
fn meaning(field: &Value) -> String {
    let described = field["description"].as_str().unwrap_or_default();
    let choices = field["enum"].as_array().into_iter().flatten();
    let choices: Vec<String> = choices
        .filter_map(Value::as_str)
        .map(|choice| format!("`{choice}`"))
        .collect();
    let named = choices.iter().all(|choice| described.contains(choice));
    match (described, named) {
        (_, true) => described.to_string(),
        ("", false) => choices.join(", "),
        (_, false) => format!("{described}: {}", choices.join(", ")),
    }
}

#[test]
fn the_page_has_the_fields_as_the_schemas_say() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs");
    let path = format!("{docs}/records.md");
    let committed = std::fs::read_to_string(&path).unwrap();
    let marker = "<!-- fields of ";
    let mut parts = committed.split(marker);
    let mut page = parts.next().expect("a first part").to_string();
    let mut tables = 0;
    for part in parts {
        let (place, rest) = part.split_once(": ").expect("a place and how it is made");
        let (file, pointer) = place.split_once('#').expect("a file and a pointer");
        let (how, rest) = rest.split_once("-->\n").expect("the marker is a comment");
        let (_, after) = rest.split_once("<!-- end -->").expect("and ends");
        let schema = std::fs::read_to_string(format!("{docs}/schema/{file}")).unwrap();
        let schema: Value = serde_json::from_str(&schema).unwrap();
        let properties = schema.pointer(pointer);
        let properties = properties.unwrap_or_else(|| panic!("{file} has no {pointer}"));
        let table = field_table(properties);
        page += &format!("{marker}{place}: {how}-->\n{table}<!-- end -->{after}");
        tables += 1;
    }
    assert!(tables > 15, "{tables}");
    if std::env::var_os("TCPCOST_REWRITE").is_some() {
        std::fs::write(path, &page).unwrap();
    } else {
        assert!(
            page == committed,
            "docs/records.md is old: TCPCOST_REWRITE=1 cargo test -p tcpcost-report"
        );
    }
}
