//! Prices of this host, and explanations by them.

mod common;

use std::collections::BTreeSet;
use std::fs;

use common::Place;
use jsonschema::Validator;
use serde_json::Value;
use tcpcost_testbed::{is_root, skip};

fn check(schema: &str, document: &Value) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema");
    let text = fs::read_to_string(format!("{folder}/{schema}.schema.json")).unwrap();
    let schema: Validator =
        jsonschema::draft202012::new(&serde_json::from_str(&text).unwrap()).unwrap();
    let wrong: Vec<String> = schema
        .iter_errors(document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn prices_of_a_stored_run_explain_its_cells_and_a_command() {
    if !is_root() {
        return skip("needs root for beds of namespaces and eBPF");
    }
    let place = Place::new();
    let run = place.run(&[
        "run",
        "prices",
        "--duration",
        "30ms",
        "-n",
        "2",
        "--out",
        "out",
        "--quiet",
    ]);
    assert!(place.path("out/records.jsonl").exists(), "{run:?}");

    let model = place.run(&["model", "out", "--format", "json"]);
    let list: Value = serde_json::from_str(&model.stdout).unwrap_or_else(|_| panic!("{model:?}"));
    check("prices", &list);
    // Every cause has a price, or a reason why it has none.
    let length = |key: &str| list[key].as_array().unwrap().len();
    assert!(
        length("prices") >= 3 && length("prices") + length("unpriced") == 18,
        "{list}"
    );
    for price in list["prices"].as_array().unwrap() {
        let (low, high) = (&price["interval"]["low"], &price["interval"]["high"]);
        assert!(
            low.as_f64() <= high.as_f64() && low.as_f64() > Some(0.0),
            "{price}"
        );
    }

    let cells = place.run(&["explain", "out", "--format", "json"]);
    let cells: Value = serde_json::from_str(&cells.stdout).unwrap_or_else(|_| panic!("{cells:?}"));
    check("explain", &cells);
    let cells = cells["explained"].as_array().unwrap();
    let is_crr = |one: &&Value| one["name"] == "crr 100/8K x16" && one["host"] == "server";
    let crr = cells.iter().find(is_crr).unwrap();
    assert_eq!(crr["unit"], "response");
    let terms = crr["terms"].as_array().unwrap();
    let sum: f64 = terms.iter().filter_map(|term| term["ns"].as_f64()).sum();
    let sum = sum + crr["inseparable_ns"].as_f64().unwrap();
    assert!(
        (sum / crr["priced_ns"].as_f64().unwrap() - 1.0).abs() < 1e-6,
        "{crr}"
    );

    let text = place.run(&["explain", "out"]);
    assert!(
        text.stdout.contains("w64 r64K, server: a KiB costs "),
        "{}",
        text.stdout
    );
    assert!(
        text.stdout.contains("90 % of predictions are within"),
        "{}",
        text.stdout
    );

    let command = place.run(&["explain", "--fresh-netns", "--format", "json", "--", "true"]);
    let document: Value =
        serde_json::from_str(&command.stdout).unwrap_or_else(|_| panic!("{command:?}"));
    check("explain", &document);
    assert_eq!(document["explained"][0]["name"], "`true`");

    let hosts = |list: &Value| -> BTreeSet<String> {
        let references = list["references"].as_array().unwrap().iter();
        references
            .map(|one| one["host"].as_str().unwrap().to_string())
            .collect()
    };
    let both = ["client", "server"].map(str::to_string);
    assert_eq!(hosts(&list), BTreeSet::from(both));
    let records = fs::read_to_string(place.path("out/records.jsonl")).unwrap();
    place.write(
        "out/records.jsonl",
        &records.lines().map(with_another_server).collect::<String>(),
    );
    let model = place.run(&["model", "out", "--format", "json"]);
    let list: Value = serde_json::from_str(&model.stdout).unwrap_or_else(|_| panic!("{model:?}"));
    assert_eq!(
        hosts(&list),
        BTreeSet::from(["client".to_string()]),
        "no price of another machine"
    );
}

/// Record whose server was on a machine with other CPUs.
fn with_another_server(line: &str) -> String {
    let mut record: Value = serde_json::from_str(line).unwrap();
    let key = record["hosts"]["client"]["machine"]
        .as_str()
        .unwrap_or_default()
        .to_string();
    if !key.is_empty() {
        let mut other = record["machines"][&key].clone();
        other["cpu"] = "another".into();
        record["machines"]["other"] = other;
        record["hosts"]["server"]["machine"] = "other".into();
    }
    record.to_string() + "\n"
}

#[test]
fn without_prices_the_command_to_get_them_is_named() {
    let place = Place::new();
    for command in ["explain", "advise"] {
        let nothing = place.run(&[command]);
        assert_eq!(nothing.code, Some(2), "{nothing:?}");
        assert!(
            nothing.stderr.starts_with("tcpcost: which work?"),
            "{nothing:?}"
        );
    }
    let no_hosts = place.run(&["model", "--hosts", "silence_max=60s"]);
    assert_eq!(no_hosts.code, Some(2), "{no_hosts:?}");
    assert!(
        no_hosts
            .stderr
            .starts_with("tcpcost: --hosts: prices need two hosts: NETIF,"),
        "{no_hosts:?}"
    );
    let explained = place.run(&["explain", "--", "true"]);
    assert_eq!(explained.code, Some(1), "{explained:?}");
    assert!(
        explained.stderr.ends_with("run tcpcost model first\n"),
        "{explained:?}"
    );
}
