//! Advice of the real binary: on stored runs, captures and commands, with prices and without.

mod common;

use std::fs;
use std::path::Path;

use common::Place;
use jsonschema::Validator;
use serde_json::{Value, json};
use tcpcost_testbed::{is_root, skip};

#[track_caller]
fn advised(stdout: &str) -> Vec<Value> {
    let document: Value = serde_json::from_str(stdout).unwrap_or_else(|_| panic!("{stdout}"));
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/schema/advise.schema.json"
    );
    let schema = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let schema: Validator = jsonschema::draft202012::new(&schema).unwrap();
    let wrong: Vec<String> = schema
        .iter_errors(&document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    document["advised"].as_array().unwrap().clone()
}

fn ids(of: &Value, list: &str) -> Vec<String> {
    let rows = of[list].as_array().unwrap().iter();
    rows.map(|row| row["id"].as_str().unwrap().to_string())
        .collect()
}

const STUDY: &str = r#"
[workload]
congestion_control = "reno"
[bed]
kind = "netns"
[[cells]]
name = "small writes"
workload = "stream"
write_size = "512B"
nodelay = "on"
[[cells]]
name = "no autocorking"
workload = "stream"
"sysctl.net.ipv4.tcp_autocorking" = 0
[[cells]]
name = "connections"
workload = "crr"
request_size = "200B"
response_size = "2KiB"
flows = 4
[measure]
meters = ["exact", "segments", "netstat", "rusage", "tcp_info", "others"]
warm_up = "20ms"
duration = "100ms"
repetitions = 2
retries = 0
others_max = "100%"
"#;

/// Writes made prices of this host: those of `machine` in a record.
fn write_prices(place: &Place, machine: &Value) {
    let price = |cause: &str, ns: f64| {
        json!({
            "cause": cause, "ns": ns, "interval": {"low": ns * 0.9, "high": ns * 1.1},
            "largest_share": 0.5, "most_per_cpu_s": 1e12,
        })
    };
    let prices = [
        ("byte_copied_in", 0.15),
        ("byte_copied_out", 0.14),
        ("send_call", 650.0),
        ("receive_call", 960.0),
        ("sleep", 12_600.0),
        ("connection", 45_600.0),
        ("skb_sent", 3320.0),
        ("skb_received", 1940.0),
        ("backlog_merge", 1270.0),
        ("ack_received", 2060.0),
        ("ack_sent", 2690.0),
    ];
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let list = json!({
        "schema_version": 1, "tcpcost": "0.1.0",
        "place": {
            "host": host.trim(), "kernel": machine["kernel"], "cpu": machine["cpu"],
            "cpus": machine["cpus"], "device": "veth",
        },
        "measured_unix_s": 1_700_000_000_u64, "cells": 14,
        "prices": prices.map(|(cause, ns)| price(cause, ns)),
        "unpriced": [],
        "accuracy": {
            "interval": {"low": 0.9, "high": 1.1}, "median": 0.05,
            "within_20": 16, "predictions": 16, "cells": 8,
        },
        "draws": [prices.map(|(_, ns)| ns)],
        "references": [],
    });
    let release = machine["kernel"]
        .as_str()
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    let name = format!("{}-{release}-veth", host.trim());
    let name = name.replace(
        |c: char| !c.is_ascii_alphanumeric() && !"._-+".contains(c),
        "_",
    );
    let folder = place.path("xdg-state/tcpcost/prices");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(name + ".json"), list.to_string()).unwrap();
}

#[test]
fn a_stored_run_is_advised_cell_by_cell_with_prices_and_without() {
    if !is_root() {
        return skip("needs root for beds of namespaces and eBPF");
    }
    let place = Place::new();
    let study = place.write("cells.toml", STUDY);
    let ran = place.run(&["run", &study, "--out", "out", "--quiet"]);
    let records = place.records("out");
    let measured = records
        .iter()
        .filter(|record| record["outcome"] == "measured");
    assert_eq!(measured.count(), 6, "{ran:?}");

    let bare = place.run(&["advise", "out"]);
    assert_eq!(bare.code, Some(0), "{bare:?}");
    assert!(bare.stdout.contains("tcpcost model"), "{}", bare.stdout);
    let bare = place.run(&["advise", "out", "--format", "json"]);
    let cells = advised(&bare.stdout);
    assert!(cells.iter().all(|cell| ids(cell, "claims").is_empty()));
    assert!(ids(&cells[1], "worth_trying").contains(&"autocorking-on".to_string()));

    let machine = records[0]["machines"]
        .as_object()
        .unwrap()
        .values()
        .next()
        .unwrap();
    write_prices(&place, machine);
    let priced = place.run(&["advise", "out", "--format", "json"]);
    let cells = advised(&priced.stdout);
    let of = |name: &str| {
        let mut cells = cells.iter();
        let found = cells.find(|cell| cell["subject"].as_str().unwrap().starts_with(name));
        found.unwrap_or_else(|| panic!("{priced:?}"))
    };
    assert_eq!(
        ids(of("small writes"), "claims"),
        ["larger-writes"],
        "{}",
        of("small writes")
    );
    let connections = of("connections");
    assert!(
        ids(connections, "claims").contains(&"keep-connections".to_string()),
        "{connections}"
    );
    assert!(connections["cost"]["priced_ns"].as_f64() > Some(0.0));
    for claim in connections["claims"].as_array().unwrap() {
        assert!(
            claim["saving"]["interval"]["low"].as_f64() > Some(0.0),
            "{claim}"
        );
    }
    let text = place.run(&["advise", "out"]).stdout;
    for words in [
        "1 larger-writes",
        "  verify  tcpcost stat TARGET -n 10 --",
        "Nothing was changed.",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn a_capture_is_advised_without_numbers() {
    let place = Place::new();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::copy(
        here.join("tests/data/pages/slow.pcap"),
        place.path("slow.pcap"),
    )
    .unwrap();
    let ran = place.run(&["advise", "slow.pcap", "--format", "json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let [capture] = &advised(&ran.stdout)[..] else {
        panic!("{ran:?}");
    };
    assert!(ids(capture, "claims").is_empty() && capture["cost"].is_null());
    assert!(
        capture["prices"]
            .as_str()
            .unwrap()
            .contains("no calls and no CPU time")
    );
}

#[test]
fn a_command_is_advised_and_its_exit_code_is_kept() {
    let place = Place::new();
    let ran = place.run(&["advise", "--format", "json", "--", "sh", "-c", "exit 7"]);
    assert_eq!(ran.code, Some(7), "{ran:?}");
    assert_eq!(advised(&ran.stdout).len(), 1);
    let ran = place.run(&["advise"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let ran = place.run(&["advise", "missing.pcap"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
}
