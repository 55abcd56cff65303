//! Compares docs/records.md with the actual formats.

mod common;

use std::collections::BTreeSet;

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
