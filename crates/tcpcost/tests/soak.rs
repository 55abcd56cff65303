//! Lines, documents and exit codes of `tcpcost watch --soak`.

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use common::Place;
use serde_json::Value;

const SHORT: [&str; 4] = ["watch", "--soak", "--interval=20ms", "--calibrate=20ms"];

fn documents(stdout: &str) -> Vec<Value> {
    let lines = stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn documents_are_a_calibration_intervals_and_a_calibration() {
    let args = [
        &["watch", "--interval=20ms", "--calibrate=20ms"][..],
        &["--count=2", "--soak=0", "--dirty-lines=0", "--format=json"],
    ]
    .concat();
    let ran = Place::new().run(&args);
    if ran.stderr.contains("not allowed here") {
        return tcpcost_testbed::skip("CPU 0 is not this process'");
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let documents = documents(&ran.stdout);
    let kinds: Vec<&str> = documents
        .iter()
        .map(|document| document["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        ["calibration", "interval", "interval", "calibration"]
    );
    for document in &documents {
        assert_eq!(document["schema_version"], 1);
        assert_eq!(document["cpus"].as_array().unwrap().len(), 1);
        assert_eq!(document["cpus"][0]["cpu"], 0);
    }
    assert_eq!(documents[0]["when"], "before");
    assert_eq!(documents[3]["when"], "after");
    assert!(documents[3]["cpus"][0].get("drift_ratio").is_some());
    for interval in &documents[1..3] {
        assert!(interval["duration_ns"].as_u64() > Some(0), "{interval}");
        assert!(
            interval["cpus"][0]["soak_work_units"].is_u64(),
            "{interval}"
        );
        // A spinner that lost its CPU to others during calibration reports no load.
        let is_calibrated = documents[0]["cpus"][0]["units_per_s"].is_number();
        let idle = &interval["cpus"][0]["soak_idle_work_units"];
        assert_eq!(idle.is_u64(), is_calibrated, "{interval}");
        let load = &interval["cpus"][0]["load_ratio"];
        assert!(load.as_f64().is_none_or(|load| load <= 1.0), "{interval}");
    }
}

#[test]
fn a_person_gets_a_head_every_twenty_lines() {
    let mut args = SHORT.to_vec();
    args[2] = "--interval=10ms";
    args.push("--count=21");
    let ran = Place::new().run(&args);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let heads = ran.stdout.lines().filter(|line| line.contains("steal%"));
    assert_eq!(heads.count(), 2, "{ran:?}");
    assert!(ran.stdout.starts_with("idle rate, units/s: cpu"), "{ran:?}");
    assert!(
        ran.stdout
            .contains("\ndrift of the idle rate since, %: cpu"),
        "{ran:?}"
    );
}

#[test]
fn ctrl_c_ends_it_with_the_closing_calibration() {
    // A watch without a limit ends with 0; one that is interrupted before its count ends with 130.
    for (count, code) in [(None, 0), (Some("--count=1000000"), 130)] {
        let place = Place::new();
        let mut command = place.command(&SHORT);
        command
            .args(count)
            .arg("--format=json")
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Skips the calibration, and waits for one interval.
        lines.nth(1).unwrap().unwrap();
        let id = i32::try_from(child.id()).unwrap();
        // SAFETY: the child is ours and not yet waited for, so the id names it.
        assert_eq!(unsafe { libc::kill(id, libc::SIGINT) }, 0);
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        let last = documents(rest.last().unwrap());
        assert_eq!(last[0]["when"], "after", "{rest:?}");
        assert_eq!(child.wait().unwrap().code(), Some(code));
    }
}

#[test]
fn it_ends_when_nobody_reads_it() {
    let place = Place::new();
    let mut command = place.command(&SHORT);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_mistake_is_one_line_with_exit_code_2() {
    let cases: &[(&[&str], &str)] = &[
        (
            &["watch", "--soak", "--interval=soon"],
            "'soon' for '--interval <TIME>': a time such as 1s",
        ),
        (&["watch", "--soak", "--count=0"], "0"),
        (
            &["watch", "--soak=x"],
            "--soak=x: expected a list such as 0-3,8",
        ),
        (
            &["watch", "--soak=65000"],
            "CPU 65000 is offline or not allowed here",
        ),
        (
            &["watch", "--soak", "--calibrate=1ms"],
            "'1ms' for '--calibrate <TIME>': a time such as 1s",
        ),
        (
            &["watch", "--soak", "--dirty-lines=99999999999"],
            "dirty-lines",
        ),
    ];
    for (args, part) in cases {
        let ran = Place::new().run(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(part), "{args:?}: {ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{args:?}: {ran:?}");
    }
}
