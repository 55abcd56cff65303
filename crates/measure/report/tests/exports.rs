//! Compares exports with stored files; `TCPCOST_REWRITE=1` rewrites these. Also checks the rules of each
//! format on every document.

use std::fs;
use std::path::PathBuf;

use tcpcost_report::{Summary, bmf, github_benchmark, ktap, markdown, openmetrics};
use tcpcost_study::{Record, Study};

fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn summary(name: &str) -> Summary {
    let read = |ending: &str| fs::read_to_string(data().join(format!("{name}.{ending}"))).unwrap();
    let study = Study::parse(name, &read("toml"), "golden.toml").unwrap();
    let records = read("jsonl");
    let records: Vec<Record> = records
        .lines()
        .map(|line| Record::from_line(line).unwrap())
        .collect();
    Summary::new(&study, &records)
}

fn check(file: &str, ours: &str) {
    let path = data().join("exports").join(file);
    if std::env::var_os("TCPCOST_REWRITE").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, ours).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    let differs = ours.lines().zip(expected.lines()).find(|(a, b)| a != b);
    assert!(
        ours == expected,
        "{file} differs, first in (ours, expected): {differs:#?}; TCPCOST_REWRITE=1 writes it anew"
    );
}

#[test]
fn each_form_is_as_its_file() {
    for name in ["stream", "marks", "rr"] {
        let one = [summary(name)];
        // The details are those of the text, which has its own file.
        let markdown = markdown(&one);
        let (answer, _) = markdown.split_once("<details>").unwrap();
        check(&format!("{name}.md"), answer);
        check(&format!("{name}.ktap"), &ktap(&one));
        check(&format!("{name}.bmf.json"), &bmf(&one));
        check(&format!("{name}.github.json"), &github_benchmark(&one));
    }
    // One family of each kind, because all of them are 90 KB.
    let openmetrics = openmetrics(&[summary("stream")]);
    let families = [
        "tcpcost_cpu_us_per_kib",
        "tcpcost_response_us_p99",
        "tcpcost_trials",
        "tcpcost_threshold_verdict",
    ];
    let is_of = |line: &&str| {
        let name = line
            .split([' ', '{'])
            .find(|word| word.starts_with("tcpcost_"));
        name.is_none_or(|name| families.contains(&name))
    };
    let lines: Vec<&str> = openmetrics.lines().filter(is_of).collect();
    check("stream.openmetrics.txt", &(lines.join("\n") + "\n"));
}

#[test]
fn several_runs_are_one_document_and_none_hides_another() {
    let both = [summary("stream"), summary("stream")];
    let json: serde_json::Value = serde_json::from_str(&bmf(&both)).unwrap();
    let names: Vec<&String> = json.as_object().unwrap().keys().collect();
    assert_eq!(names.len(), 2 * both[0].cells.len(), "{names:?}");
    assert!(
        names.iter().any(|name| name.starts_with("stream (2): ")),
        "{names:?}"
    );
    let plan = ktap(&both).lines().nth(1).unwrap().to_string();
    let tests = both[0].cells.len() + both[0].judged.len();
    assert_eq!(plan, format!("1..{}", 2 * tests));
    assert_eq!(openmetrics(&both).matches("# EOF").count(), 1);
}

#[test]
fn ktap_results_are_numbered_and_a_skip_has_its_reason() {
    let text = ktap(&[summary("marks")]);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("KTAP version 1"));
    let plan: usize = lines
        .next()
        .unwrap()
        .strip_prefix("1..")
        .unwrap()
        .parse()
        .unwrap();
    let results: Vec<&str> = lines.filter(|line| !line.starts_with('#')).collect();
    assert_eq!(results.len(), plan);
    for (index, line) in results.iter().enumerate() {
        let rest = line.strip_prefix("not ").unwrap_or(line);
        assert!(rest.starts_with(&format!("ok {} ", index + 1)), "{line}");
    }
    let zerocopy = results
        .iter()
        .find(|line| line.contains("zerocopy"))
        .unwrap();
    assert!(
        zerocopy.ends_with("# SKIP SO_ZEROCOPY: Operation not supported"),
        "{zerocopy}"
    );
    let splice = results.iter().find(|line| line.contains("splice")).unwrap();
    assert!(splice.starts_with("not ok"), "it failed twice: {splice}");
}

#[test]
fn a_tracker_of_what_is_to_be_small_gets_nothing_that_is_to_be_large() {
    for name in ["stream", "rr"] {
        let list: serde_json::Value =
            serde_json::from_str(&github_benchmark(&[summary(name)])).unwrap();
        let names: Vec<&str> = list
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap())
            .collect();
        assert!(
            names.iter().any(|name| name.contains("cpu_us_per_")),
            "{names:?}"
        );
        assert!(
            !names.iter().any(|name| name.ends_with("_per_s")),
            "{names:?}"
        );
    }
}

#[test]
fn every_sample_is_of_the_family_above_it_and_families_stand_once() {
    let text = openmetrics(&[summary("stream"), summary("rr")]);
    assert!(text.ends_with("# EOF\n"));
    let mut families: Vec<&str> = Vec::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "TYPE", name, _] => {
                assert!(!families.contains(&name), "{name} twice");
                families.push(name);
            }
            ["#", what, name, rest] => {
                assert_eq!(Some(&name), families.last(), "{line}");
                assert!(
                    what != "UNIT" || name.ends_with(&format!("_{rest}")),
                    "{line}"
                );
            }
            _ => {
                let (name, rest) = line.split_once('{').unwrap();
                assert_eq!(Some(&name), families.last(), "{line}");
                let (_, numbers) = rest.rsplit_once("} ").unwrap();
                let numbers: Vec<f64> = numbers
                    .split(' ')
                    .map(|number| number.parse().unwrap())
                    .collect();
                assert_eq!(numbers.len(), 2, "value and time: {line}");
            }
        }
    }
    assert!(families.len() > 20, "{families:?}");
}
