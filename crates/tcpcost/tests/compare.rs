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
        "--json",
        "-q",
    ]);
    let comparison = &document(&ran)["comparisons"][0];
    // A call for each 64 bytes costs several times what one for 64 KiB does: whatever the machine does meanwhile.
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert_eq!(comparison["verdict"], "REGRESSES");
    assert_eq!(comparison["paired"], true);
    let lo = comparison["ratio"]["lo"].as_f64().unwrap();
    assert!(lo > 1.0, "{comparison}");
    assert!(comparison["ratio"]["n"].as_u64().unwrap() >= 7);
    let again = place.run(&["report", "run", "--json"]);
    assert_eq!(&document(&again)["comparisons"][0], comparison);
    let resumed = place.run(&["run", "--resume", "run", "--json", "-q"]);
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
        "--json",
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
        "--json",
        "-q",
    ]);
    let document = document(&ran);
    let comparisons = document["comparisons"].as_array().unwrap();
    assert_eq!(comparisons.len(), 2, "{document}");
    for one in comparisons {
        // The same program is not five times as dear as itself.
        assert_ne!(one["verdict"], "REGRESSES", "{one}");
        assert!(one["to"].as_str().unwrap().contains("tcpcost"), "{one}");
    }
}

/// A record whose threads took a hundredth of their time.
fn a_hundredth(record: &str) -> String {
    fn divide(value: &mut Value) {
        match value {
            Value::Array(all) => all.iter_mut().for_each(divide),
            Value::Object(all) => all
                .iter_mut()
                .for_each(|(key, value)| match value.as_u64() {
                    Some(ns) if key.starts_with("task_") && key.ends_with("_ns") => {
                        *value = (ns / 100).into()
                    }
                    _ => divide(value),
                }),
            _ => {}
        }
    }
    let mut record: Value = serde_json::from_str(record).unwrap();
    divide(&mut record);
    format!("{record}\n")
}

#[test]
fn a_run_is_held_against_an_earlier_one_and_thresholds_may_be_on_the_change() {
    // At least half of the trials and of the pairs are in one state of the machine and are used, whatever
    // state that is: seven of fourteen have an interval.
    let study = STUDY.replace("repetitions = 6", "repetitions = 14");
    let place = Place::new();
    place.write("mine.toml", &study);
    let before = place.run(&["run", "mine.toml", "--out", "before", "-q"]);
    assert_eq!(before.code, Some(0), "{before:?}");
    // What has a limit of 900 % holds on any machine; what has one of −90 % on none.
    for (at_most, code, verdict) in [("+900 %", 0, "met"), ("-90 %", 3, "missed")] {
        let limit = format!(
            "{study}\n[[threshold]]\nquantity = \"task_us_per_kib\"\nat_most = \"{at_most}\"\n"
        );
        place.write("mine.toml", &limit);
        let ran = place.run(&["run", "mine.toml", "--baseline", "before", "--json", "-q"]);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        let document = document(&ran);
        for judged in document["thresholds"].as_array().unwrap() {
            assert_eq!(judged["verdict"], verdict, "{judged}");
            assert_eq!(judged["against"], "the baseline");
        }
        assert_eq!(document["thresholds"].as_array().unwrap().len(), 2);
        assert_eq!(document["comparisons"][0]["paired"], false);
    }
    // What is limited of the run itself hides nothing of what is dearer than before.
    let dearer = |limit: &str| {
        place.write("mine.toml", &format!("{study}\n{limit}"));
        let summary = place.run(&["run", "mine.toml", "--baseline", "cheaper", "--json", "-q"]);
        (summary.code, document(&summary))
    };
    let records = std::fs::read_to_string(place.path("before/records.jsonl")).unwrap();
    std::fs::create_dir(place.path("cheaper")).unwrap();
    for file in std::fs::read_dir(place.path("before")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), place.path("cheaper").join(file.file_name())).unwrap();
    }
    let cheaper: String = records.lines().map(a_hundredth).collect();
    std::fs::write(place.path("cheaper/records.jsonl"), cheaper).unwrap();
    let any = "[[threshold]]\nquantity = \"task_us_per_kib\"\nat_least = 0\n";
    for limit in ["", any] {
        let (code, document) = dearer(limit);
        let verdict = &document["comparisons"][0]["verdict"];
        assert_eq!(verdict, "REGRESSES", "{document}");
        assert_eq!(code, Some(3), "{limit}");
    }
    let of_a_knob = format!(
        "{study}\n[[threshold]]\nquantity = \"task_us_per_kib\"\nknob = \"write_size\"\nfrom = \"64KiB\"\nto = [\"64B\"]\nat_most = \"-90 %\"\n"
    );
    place.write("mine.toml", &of_a_knob);
    let ran = place.run(&["run", "mine.toml", "-q"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let missed = "missed: task_us_per_kib <= -90.0 % against write_size=64KiB: ";
    assert!(ran.stdout.contains(missed), "{ran:?}");
}

#[test]
fn two_stored_runs_are_compared_and_what_parts_them_is_said() {
    let place = place();
    for out in ["one", "two"] {
        let ran = place.run(&["run", "mine.toml", "--out", out, "-q"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let file = place.path("two/records.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    let kernel = text.split("\"kernel\":\"").nth(1).unwrap();
    let kernel = kernel.split('"').next().unwrap();
    std::fs::write(&file, text.replace(kernel, "9.9.9")).unwrap();
    let ran = place.run(&["compare", "one", "two"]);
    assert!(matches!(ran.code, Some(0 | 3 | 4)), "{ran:?}");
    assert!(ran.stdout.contains("other kernels: "), "{ran:?}");
    assert!(ran.stdout.contains("9.9.9"), "{ran:?}");
    assert!(ran.stdout.contains("which did not run in turn"), "{ran:?}");
}

#[test]
fn two_commands_are_compared_until_it_is_known() {
    let place = Place::new();
    let ran = place.run(&[
        "compare",
        "--time",
        "60s",
        "--json",
        "--",
        "sh",
        "-c",
        "i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done",
        "--versus",
        "--",
        "true",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let line = ran.stderr.lines().find(|line| line.starts_with('{'));
    let document: Value = serde_json::from_str(line.unwrap()).unwrap();
    assert_eq!(document["versus"]["verdict"], "IMPROVES");
    assert!(document["versus"]["ratio"]["n"].as_u64().unwrap() >= 7);
}

#[test]
fn mistakes_are_one_line() {
    let place = place();
    for (args, said) in [
        (&["compare"][..], "required"),
        (&["compare", "mine.toml"], "what is to be compared?"),
        (&["compare", "a", "b"], "neither a nor b holds a run"),
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
