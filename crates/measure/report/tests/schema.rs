//! Checks every document of the corpus against the schemas of docs/schema. Fails if a document has a field
//! that is not in its schema.

mod common;

use std::fs;
use std::path::PathBuf;

use jsonschema::Validator;
use serde_json::{Value, json};
use tcpcost_study::{Record, WarningCode};

fn schema_text(name: &str) -> Value {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/schema");
    let text = fs::read_to_string(format!("{folder}/{name}.schema.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn schema(name: &str) -> Validator {
    let made = jsonschema::draft202012::new(&schema_text(name));
    made.unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[track_caller]
fn check(schema: &Validator, document: &Value, what: &str) {
    let wrong: Vec<String> = schema
        .iter_errors(document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(wrong.is_empty(), "{what}: {wrong:#?}");
}

/// Texts of the corpus files with this extension.
fn corpus(ending: &str) -> Vec<(String, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|of| of == ending));
    let read = |path: PathBuf| {
        (
            path.display().to_string(),
            fs::read_to_string(&path).unwrap(),
        )
    };
    files.map(read).collect()
}

fn records() -> Vec<(String, Value)> {
    let mut records = Vec::new();
    for (file, text) in corpus("jsonl") {
        for (number, line) in text.lines().enumerate() {
            // Written again, because readers recalculate some fields.
            let line = Record::from_line(line).unwrap().to_line();
            records.push((
                format!("{file}:{}", number + 1),
                serde_json::from_str(&line).unwrap(),
            ));
        }
    }
    records
}

/// Lists of words in a document that have this word.
fn lists<'a>(document: &'a Value, word: &str, found: &mut Vec<Vec<&'a str>>) {
    let parts: Vec<&Value> = match document {
        Value::Array(parts) => parts.iter().collect(),
        Value::Object(parts) => parts.values().collect(),
        _ => return,
    };
    let words: Option<Vec<&str>> = parts.iter().map(|part| part.as_str()).collect();
    found.extend(words.filter(|words| words.contains(&word)));
    parts.into_iter().for_each(|part| lists(part, word, found));
}

#[test]
fn the_schemas_have_each_code_of_a_warning() {
    // Serde names all of them to whom none of them is.
    let refused = serde_json::from_value::<WarningCode>(json!("none")).unwrap_err();
    let refused = refused.to_string();
    let codes: Vec<&str> = refused.split('`').skip(3).step_by(2).collect();
    assert!(codes.len() > 10, "{codes:?}");
    for name in ["record", "summary"] {
        let (text, mut found) = (schema_text(name), Vec::new());
        lists(&text, "cpus_far", &mut found);
        assert_eq!(found, std::slice::from_ref(&codes), "{name}");
    }
}

#[test]
fn every_record_of_the_corpus_is_as_its_schema_says() {
    let schema = schema("record");
    let records = records();
    assert!(records.len() > 100, "{}", records.len());
    for (place, record) in &records {
        check(&schema, record, place);
    }
}

#[test]
fn every_summary_of_the_corpus_is_as_its_schema_says() {
    let schema = schema("summary");
    let summaries = corpus("json");
    assert!(summaries.len() >= 7, "{}", summaries.len());
    for (file, text) in summaries {
        check(&schema, &serde_json::from_str(&text).unwrap(), &file);
    }
}

#[test]
fn statements_and_crossovers_are_as_the_schema_says() {
    let text = "[vary]\nflows = [1, 10]\nwrite_size = [\"1KiB\", \"16KiB\"]\n\
                [[conclusion]]\ntext = \"More flows\"\nknob = \"flows\"\nfrom = 1\nto = [10]\nover = \"write_size\"\n\
                [[conclusion]]\ntext = \"Larger writes\"\nknob = \"write_size\"\nfrom = \"1KiB\"\nto = [\"16KiB\"]\n\
                expects = \"less\"\nstatement = \"a\"\n\
                [[conclusion]]\ntext = \"Goodput\"\nquantity = \"goodput_bits_per_s\"\nat_least = 1\nstatement = \"b\"\n\
                [[statement]]\nid = \"a\"\nsource = \"x\"\ntext = \"larger writes are cheaper\"\n\
                [[statement]]\nid = \"b\"\nsource = \"x\"\ntext = \"bytes arrive\"\n\
                [[statement]]\nid = \"c\"\nsource = \"x\"\ntext = \"nobody tests it\"\n\
                [published_table]\nsource = \"x\"\nknobs = [\"flows\"]\n\
                columns = [[\"Gbit/s\", \"goodput_bits_per_s\"]]\nrows = [[1, 2e9], [7, 3e9]]\n";
    let study = tcpcost_study::Study::parse("s", text, "s.toml").unwrap();
    let records = common::records(&study, "netns", 6, common::all_measured);
    let summary = tcpcost_report::Summary::new(&study, &records);
    let document: Value = serde_json::from_str(&tcpcost_report::json(&summary)).unwrap();
    check(&schema("summary"), &document, "made here");
    let findings = document["findings"].as_array().unwrap();
    assert_eq!(findings[0]["kind"], "crossover");
    assert!(
        findings
            .iter()
            .any(|one| one["steps"][0]["statement"] == "holds"),
        "{findings:#?}"
    );
    let rows = document["published_table"]["rows"].as_array().unwrap();
    assert_eq!(rows[0]["ours"].as_array().unwrap().len(), 2, "{rows:#?}");
    assert!(
        rows[1]["ours"].as_array().unwrap().is_empty(),
        "no cell of 7 flows"
    );
    let statements = document["statements"].as_array().unwrap();
    let held: Vec<_> = statements.iter().map(|one| &one["held"]).collect();
    assert_eq!(held, ["holds", "holds", "undecided"], "{statements:#?}");
    let text = tcpcost_report::text(&summary, tcpcost_report::TextStyle::default());
    assert!(
        text.contains("holds: larger writes are cheaper (x)"),
        "{text}"
    );
}

#[test]
fn a_change_between_two_named_cells_may_be_of_cells_that_differ_in_more() {
    let text = "[[cells]]\nname = \"few\"\nflows = 1\n\
                [[cells]]\nname = \"many\"\nflows = 10\nsend_buffer = \"16KiB\"\n\
                [[conclusion]]\ntext = \"More flows\"\nknob = \"flows\"\nfrom = 1\nto = [10]\n\
                [[conclusion]]\ntext = \"None\"\nknob = \"flows\"\nfrom = 1\nto = [100]\n";
    let study = tcpcost_study::Study::parse("s", text, "s.toml").unwrap();
    let records = common::records(&study, "netns", 6, common::all_measured);
    let summary = tcpcost_report::Summary::new(&study, &records);
    let texts: Vec<&str> = summary
        .findings
        .iter()
        .map(|one| one.text.as_str())
        .collect();
    assert_eq!(texts, ["More flows"]);
}

#[test]
fn the_corpus_has_what_the_schemas_leave_to_choice() {
    let lines: Vec<String> = records()
        .into_iter()
        .map(|(_, record)| record.to_string())
        .collect();
    for key in [
        "profile",
        "capture",
        "warnings",
        "response_time_hdr",
        "response_time_hdr_by_group",
        "reason",
        "mss",
    ] {
        let written = format!("\"{key}\":");
        assert!(
            lines.iter().any(|line| line.contains(&written)),
            "no record has {key}"
        );
    }
    let summaries: Vec<String> = corpus("json").into_iter().map(|(_, text)| text).collect();
    for key in [
        "published",
        "published_functions",
        "meter_costs",
        "openings",
        "profiles",
        "with",
    ] {
        let written = format!("\"{key}\":");
        assert!(
            summaries.iter().any(|text| text.contains(&written)),
            "no summary has {key}"
        );
    }
}

#[test]
fn a_field_that_is_not_in_the_schema_is_an_error_at_every_depth() {
    let of_record = schema("record");
    let (_, record) = records()
        .into_iter()
        .find(|(_, record)| record["outcome"] == "measured")
        .unwrap();
    let host = record["hosts"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap()
        .clone();
    for place in [
        String::new(),
        "/topology".into(),
        format!("/hosts/{host}"),
        format!("/hosts/{host}/readings/0"),
    ] {
        let mut changed = record.clone();
        changed.pointer_mut(&place).unwrap()["new_field"] = json!(1);
        assert!(!of_record.is_valid(&changed), "{place}");
    }
    let mut changed = record.clone();
    changed.as_object_mut().unwrap().remove("seed");
    assert!(!of_record.is_valid(&changed));
    changed = record;
    changed["outcome"] = json!("skipped");
    assert!(!of_record.is_valid(&changed), "a skip has its reason");

    let of_summary = schema("summary");
    for (name, place) in [
        ("acks.json", ""),
        ("acks.json", "/measure"),
        ("acks.json", "/cells/0"),
        ("acks.json", "/cells/0/estimates/goodput_bits_per_s"),
        ("acks.json", "/findings/0"),
        ("stream.json", "/effects/0/at/0"),
        ("stream.json", "/thresholds/0"),
    ] {
        let (_, text) = corpus("json")
            .into_iter()
            .find(|(file, _)| file.ends_with(name))
            .unwrap();
        let mut changed: Value = serde_json::from_str(&text).unwrap();
        let at = changed.pointer_mut(place);
        at.unwrap_or_else(|| panic!("{name}: nothing at {place}"))["new_field"] = json!(1);
        assert!(!of_summary.is_valid(&changed), "{name}: {place}");
    }
}
