//! Compares the output of the real binary with docs/schema.

mod common;

use std::fs;

use common::Place;
use jsonschema::Validator;
use serde_json::Value;

fn schema(name: &str) -> Validator {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema");
    let text = fs::read_to_string(format!("{folder}/{name}.schema.json")).unwrap();
    jsonschema::draft202012::new(&serde_json::from_str(&text).unwrap()).unwrap()
}

#[track_caller]
fn check(schema: &Validator, document: &Value) {
    let wrong: Vec<String> = schema
        .iter_errors(document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

const STUDY: &str = r#"
[bed]
kind = "loopback"
[workload]
kind = "rr"
placement = "same-cpu"
[vary]
request_size = ["1B", "4KiB"]
bottleneck = ["none", "100Mbit"]
[measure]
warm_up = "5ms"
duration = "30ms"
repetitions = 6
others_max = "100%"
[[threshold]]
quantity = "transactions_per_s"
at_least = 1
"#;

#[test]
fn a_fresh_run_writes_what_the_schemas_say() {
    let place = Place::new();
    let study = place.write("fresh.toml", STUDY);
    let ran = place.run(&["run", &study, "--out", "out", "--format=json", "--quiet"]);
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    check(&schema("summary"), &summary);
    let records = place.records("out");
    let outcomes = |outcome| {
        records
            .iter()
            .filter(|record| record["outcome"] == outcome)
            .count()
    };
    assert!(
        outcomes("measured") > 0 && outcomes("skipped") > 0,
        "{ran:?}"
    );
    let record_schema = schema("record");
    for record in &records {
        check(&record_schema, record);
    }
    let both = place.run(&["report", "out", "out", "--format=json"]);
    let both: Vec<Value> = serde_json::from_str(&both.stdout).unwrap();
    assert_eq!(both, [summary.clone(), summary]);
}

#[test]
fn stat_writes_what_its_schema_says() {
    let place = Place::new();
    let schema = schema("stat");
    let one = ["stat", "--format=json", "-o", "one.json", "--", "true"];
    let two = [
        "stat",
        "--format=json",
        "-o",
        "two.json",
        "-n",
        "6",
        "--",
        "true",
        "--versus",
        "--",
        "true",
    ];
    for (args, file) in [(&one[..], "one.json"), (&two[..], "two.json")] {
        let ran = place.run(args);
        let text = fs::read_to_string(place.path(file)).unwrap_or_else(|_| panic!("{ran:?}"));
        let document: Value = serde_json::from_str(&text).unwrap();
        check(&schema, &document);
        assert_eq!(document["versus"].is_null(), file == "one.json");
    }
}
