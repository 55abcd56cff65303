//! `tcpcost compare` and `--baseline`: the real binary, on beds in memory and on real commands.

mod common;

use common::{Place, Ran};
use serde_json::Value;

const STUDY: &str = r#"
title = "in memory"

[workload]
kind = "stream"

[bed]
kind = "memory"
stack = "user"

[vary]
write_size = ["64B", "64KiB"]

[measure]
meters = ["proc", "rusage"]
quantity = "task_us_per_kib"
warm_up = "10ms"
duration = "30ms"
repetitions = 6
others_max = "100%"
"#;

fn place() -> Place {
    let place = Place::new();
    place.write("mine.toml", STUDY);
    place
}

fn document(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

#[test]
fn two_cells_run_in_turn_until_it_is_known_and_can_be_told_again() {
    let place = place();
    let cells = ["write_size=64KiB", "write_size=64B"];
    let ran = place.run(&[
        "compare",
        "mine.toml",
        "--cells",
        cells[0],
        cells[1],
        "--time",
        "30s",
        "--out",
        "run",
        "--format=json",
        "-q",
    ]);
    let comparison = &document(&ran)["comparisons"][0];
    // One call for each 64 bytes costs several times as much as one for 64 KiB, whatever else runs.
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert_eq!(comparison["verdict"], "REGRESSES");
    assert_eq!(comparison["paired"], true);
    let lo = comparison["ratio"]["lo"].as_f64().unwrap();
    assert!(lo > 1.0, "{comparison}");
    assert!(comparison["ratio"]["n"].as_u64().unwrap() >= 7);
    let again = place.run(&["report", "run", "--format=json"]);
    assert_eq!(&document(&again)["comparisons"][0], comparison);
    let resumed = place.run(&["run", "--resume", "run", "--format=json", "-q"]);
    assert_eq!(resumed.code, Some(3), "{resumed:?}");
    assert_eq!(&document(&resumed)["comparisons"][0], comparison);
    let said = place.run(&["report", "run"]);
    assert!(
        said.stdout.contains("REGRESSES: \"write_size=64B\" costs"),
        "{said:?}"
    );
}

#[test]
fn a_cell_against_itself_set_otherwise_and_another_build_are_pairs() {
    let place = place();
    let ran = place.run(&[
        "compare",
        "mine.toml",
        "--cell",
        "write_size=64KiB",
        "--b",
        "ack_policy=exactly",
        "--b",
        "ack_segments=1",
        "--time",
        "2s",
        "--format=json",
        "-q",
    ]);
    let document_of = document(&ran);
    let comparison = &document_of["comparisons"][0];
    assert_eq!(
        comparison["to"],
        "write_size=64KiB, ack_policy=exactly ack_segments=1"
    );
    assert_eq!(document_of["comparisons"].as_array().unwrap().len(), 1);

    let binary = format!("tcpcost={}", env!("CARGO_BIN_EXE_tcpcost"));
    let ran = place.run(&[
        "compare",
        "mine.toml",
        "--with",
        &binary,
        "--min-effect",
        "80",
        "--time",
        "20s",
        "--format=json",
        "-q",
    ]);
    let document = document(&ran);
    let comparisons = document["comparisons"].as_array().unwrap();
    assert_eq!(comparisons.len(), 2, "{document}");
    for one in comparisons {
        // A program cannot cost five times as much as itself.
        assert_ne!(one["verdict"], "REGRESSES", "{one}");
        assert!(one["to"].as_str().unwrap().contains("tcpcost"), "{one}");
    }
}

/// Copies a record with the CPU time of its threads multiplied.
fn times(record: &str, factor: u64) -> String {
    fn multiply(value: &mut Value, factor: u64) {
        match value {
            Value::Array(all) => all.iter_mut().for_each(|one| multiply(one, factor)),
            Value::Object(all) => {
                for (key, value) in all {
                    match value.as_u64() {
                        Some(ns) if key.starts_with("task_") && key.ends_with("_ns") => {
                            *value = (ns * factor).into();
                        }
                        _ => multiply(value, factor),
                    }
                }
            }
            _ => {}
        }
    }
    let mut record: Value = serde_json::from_str(record).unwrap();
    multiply(&mut record, factor);
    record.to_string()
}

/// Copies a run with its records changed.
fn copy(place: &Place, from: &str, to: &str, change: impl Fn(&str) -> String) {
    std::fs::create_dir_all(place.path(to)).unwrap();
    for file in ["study.toml", "run.json"] {
        let path = place.path(&format!("{from}/{file}"));
        std::fs::copy(path, place.path(&format!("{to}/{file}"))).unwrap();
    }
    let records = std::fs::read_to_string(place.path(&format!("{from}/records.jsonl"))).unwrap();
    let records: Vec<String> = records.lines().map(change).collect();
    place.write(&format!("{to}/records.jsonl"), &(records.join("\n") + "\n"));
}

/// Study with six cells: the least for a verdict between two stored single runs.
fn six_cells() -> String {
    let sizes = r#"["64B", "256B", "1KiB", "4KiB", "16KiB", "64KiB"]"#;
    STUDY.replace(r#"["64B", "64KiB"]"#, sizes)
}

#[test]
fn a_run_is_held_against_an_earlier_one_and_thresholds_may_be_on_the_change() {
    let study = six_cells();
    let place = Place::new();
    place.write("mine.toml", &study);
    let before = place.run(&["run", "mine.toml", "--out", "before", "-q"]);
    assert_eq!(before.code, Some(0), "{before:?}");
    // A limit of a million percent is met on any machine.
    let limited = |at_most: &str| {
        let limit = format!(
            "{study}\n[[threshold]]\nquantity = \"task_us_per_kib\"\nat_most = \"{at_most}\"\n"
        );
        place.write("mine.toml", &limit);
    };
    limited("+1000000 %");
    let ran = place.run(&[
        "run",
        "mine.toml",
        "--baseline",
        "before",
        "--format=json",
        "-q",
    ]);
    // Runs are not judged if the machine became much busier between them.
    assert!(matches!(ran.code, Some(0 | 4)), "{ran:?}");
    let of_run = document(&ran);
    for judged in of_run["thresholds"].as_array().unwrap() {
        assert!(
            judged["verdict"] == "met" || ran.code == Some(4),
            "{judged}"
        );
        assert_ne!(judged["verdict"], "missed", "{judged}");
        assert_eq!(judged["against"], "the baseline");
    }
    assert_eq!(of_run["thresholds"].as_array().unwrap().len(), 6);
    assert_eq!(of_run["comparisons"][0]["paired"], false);
    assert_eq!(of_run["comparisons"][0]["runs"]["before"], 1);
    // One cell costs a billion times as much as in the run before: both its limit and its verdict
    // fail.
    let dearer = |record: &str| match record.contains("\"cell\":\"write_size=64B\"") {
        true => times(record, 1_000_000_000),
        false => record.to_string(),
    };
    copy(&place, "before", "after", dearer);
    let ran = place.run(&["compare", "before", "after", "--format=json"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let verdict = &document(&ran)["comparisons"][0];
    assert_eq!(verdict["verdict"], "REGRESSES", "{verdict}");
    assert_eq!(verdict["runs"]["stands"], true, "{verdict}");
    place.write(
        "after/study.toml",
        &std::fs::read_to_string(place.path("mine.toml")).unwrap(),
    );
    let ran = place.run(&[
        "compare",
        "before",
        "after",
        "--format=junit",
        "-o",
        "verdicts.xml",
    ]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), ""), "{ran:?}");
    let tests = std::fs::read_to_string(place.path("verdicts.xml")).unwrap();
    // Each other cell is also judged against the other cells, and moved by a sixth the other way.
    assert!(
        tests.contains("<testsuite name=\"mine\" tests=\"18\" failures="),
        "{tests}"
    );
    assert!(
        tests.contains("<failure message=\"task_us_per_kib"),
        "{tests}"
    );
    let study = STUDY;
    let of_a_knob = format!(
        "{study}\n[[threshold]]\nquantity = \"task_us_per_kib\"\nknob = \"write_size\"\nfrom = \"64KiB\"\nto = [\"64B\"]\nat_most = \"-90 %\"\n"
    );
    place.write("mine.toml", &of_a_knob);
    let ran = place.run(&["run", "mine.toml", "-q"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let words: Vec<&str> = ran.stdout.split_whitespace().collect();
    let limit = "task_us_per_kib <= -90.0 % against write_size=64KiB";
    assert!(words.join(" ").contains(limit), "{ran:?}");
    assert!(words.contains(&"missed"), "{ran:?}");
}

/// Interval long enough for a thread to run once beside four spinners on two CPUs.
const WITH_A_TURN: &str = "60ms";

#[test]
fn runs_that_alternate_are_judged_and_what_parts_them_is_said() {
    let place = Place::new();
    place.write("mine.toml", &six_cells());
    let ran = place.run(&[
        "run",
        "mine.toml",
        "--out",
        "first",
        "--duration",
        WITH_A_TURN,
        "-q",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let build = format!("tcpcost={}", env!("CARGO_BIN_EXE_tcpcost"));
    let args_of_turn = [
        "run",
        "mine.toml",
        "--runs",
        "3",
        "--in-turn-with",
        "first",
        "--with",
        &build,
        "--duration",
        WITH_A_TURN,
        "--out",
        "turn",
        "--format=json",
        "-q",
    ];
    let ran = place.run(&args_of_turn);
    assert!(matches!(ran.code, Some(0 | 3 | 4)), "{ran:?}");
    let document = document(&ran);
    let comparisons = document["comparisons"].as_array().unwrap();
    // Six cells, each against the others, and one verdict on all, because the runs alternated.
    assert_eq!(comparisons.len(), 7, "{document}");
    assert_eq!(comparisons[6]["to"], "all cells");
    assert_eq!(comparisons[0]["runs"]["before"], 3);
    assert!(comparisons[0]["ratio"]["lo"].is_number(), "{document}");
    let runs = |side: &str| std::fs::read_dir(place.path(side)).unwrap().count();
    assert_eq!((runs("turn/before"), runs("turn/after")), (3, 3));
    // The runs are compared again by name; one of them now has another kernel.
    let file = place.path("turn/after/003/records.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    let kernel = text.split("\"kernel\":\"").nth(1).unwrap();
    let kernel = kernel.split('"').next().unwrap();
    std::fs::write(&file, text.replace(kernel, "9.9.9")).unwrap();
    let args = [
        "compare",
        "turn/before/001",
        "turn/before/002",
        "turn/before/003",
        "--versus",
        "turn/after",
    ];
    let ran = place.run(&args);
    assert!(ran.stdout.contains("other kernels: "), "{ran:?}");
    assert!(ran.stdout.contains("9.9.9"), "{ran:?}");
    assert!(ran.stdout.contains("the last of the 3 runs"), "{ran:?}");
    // All runs exist already, so `--baseline` only judges them again.
    let records = std::fs::read_to_string(&file).unwrap();
    let args = args_of_turn.map(|arg| match arg {
        "--in-turn-with" => "--baseline",
        arg => arg,
    });
    let ran = place.run(&args);
    assert!(matches!(ran.code, Some(0 | 3 | 4)), "{ran:?}");
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(document["comparisons"][6]["to"], "all cells");
    assert_eq!(document["comparisons"][0]["runs"]["before"], 3);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), records);
    let again = place.run(&[
        "run",
        "mine.toml",
        "--runs",
        "2",
        "--out",
        "turn/before",
        "-q",
    ]);
    assert_eq!(again.code, Some(2), "no run is overwritten: {again:?}");
}

#[test]
fn one_run_each_has_no_verdict_on_what_a_busy_machine_does() {
    let place = Place::new();
    place.write("mine.toml", &six_cells());
    let ran = place.run(&[
        "run",
        "mine.toml",
        "--set",
        "nodelay=on",
        "--out",
        "one",
        "-q",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // All cells cost five times as much, as in a run next to other tasks.
    copy(&place, "one", "two", |record| times(record, 5));
    let ran = place.run(&["compare", "one", "two"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let said = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("NO VERDICT on any of 6 cells: all 6 cells cost 400 % more after, as when a machine is busier"),
        "{said}"
    );
    let command = said
        .split("To decide: ")
        .nth(1)
        .unwrap()
        .split(" --with")
        .next()
        .unwrap();
    assert_eq!(
        command,
        "tcpcost compare one/study.toml --set nodelay=on --cell \"write_size=64B\""
    );
}

#[test]
fn two_commands_are_compared_until_it_is_known() {
    let place = Place::new();
    let ran = place.run(&[
        "compare",
        "--time",
        "60s",
        "--format=json",
        "--",
        "sh",
        "-c",
        "echo said; i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done",
        "--versus",
        "--",
        "true",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let document = document(&ran);
    assert_eq!(document["versus"]["verdict"], "IMPROVES");
    assert!(ran.stderr.starts_with("said\n"), "{ran:?}");
    assert!(document["versus"]["ratio"]["n"].as_u64().unwrap() >= 7);
}

#[test]
fn mistakes_are_one_line() {
    let place = place();
    let transactions = STUDY
        .replace("\"stream\"", "\"rr\"")
        .replace("quantity = \"task_us_per_kib\"\n", "");
    place.write("rr.toml", &transactions);
    let ran = place.run(&["run", "mine.toml", "--out", "held", "-q"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for (args, said) in [
        (&["compare"][..], "required"),
        (&["compare", "mine.toml"], "nothing to compare"),
        (&["compare", "a", "b"], "neither a nor b holds a run"),
        (&["compare", "a", "b", "c"], "--versus"),
        (&["compare", "held", "held"], "named twice"),
        (&["compare", "held"], "one side"),
        (
            &[
                "run",
                "mine.toml",
                "--runs",
                "2",
                "--in-turn-with",
                "/no/such",
            ],
            "/no/such",
        ),
        (&["run", "mine.toml", "--in-turn-with", "held"], "--runs"),
        (
            &["run", "mine.toml", "--with", "tcpcost=/bin/true"],
            "--baseline",
        ),
        (
            &[
                "compare",
                "rr.toml",
                "--a",
                "response_size=1B",
                "--b",
                "response_size=64KiB",
            ],
            "their transactions carry different numbers of bytes",
        ),
        (
            &[
                "run",
                "mine.toml",
                "--set",
                "flows=3",
                "--runs",
                "2",
                "--in-turn-with",
                "held",
            ],
            "no cell with the same name and knobs",
        ),
        (
            &["compare", "mine.toml", "--cells", "x", "y"],
            "no cell \"x\"",
        ),
        (
            &["compare", "mine.toml", "--b", "write_size=2KiB"],
            "varies",
        ),
        (
            &["compare", "mine.toml", "--with", "/no/such"],
            "tcpcost=PATH",
        ),
        (
            &["compare", "mine.toml", "--with", "tcpcost=/no/such"],
            "No such file",
        ),
        (
            &["compare", "mine.toml", "--with", "tcpcost=/bin/true"],
            "not a build of tcpcost",
        ),
        (&["compare", "--", "true"], "two commands"),
        (
            &[
                "compare",
                "mine.toml",
                "--b",
                "nodelay=on",
                "--min-effect",
                "nan",
            ],
            "--min-effect",
        ),
        (&["run", "mine.toml", "--baseline", "/no/such"], "/no/such"),
    ] {
        let ran = place.run(args);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(said), "{said}: {ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    }
}
