//! Messages, exit codes and files that a user sees.

mod common;

use std::collections::BTreeSet;

use common::{Place, did_no_work};

/// One short study over loopback that any user can run.
const SHORT: &str = r#"
title = "short"
[bed]
kind = "loopback"
[workload]
placement = "same-cpu"
[vary]
write_size = ["4KiB", "64KiB"]
[measure]
warm_up = "10ms"
duration = "50ms"
repetitions = 2
# On a busy machine no trial is to be marked: what others do is none of these tests' business.
others_max = "100%"
"#;

#[test]
fn a_mistake_is_one_line_with_exit_code_2() {
    let place = Place::new();
    let wrong = place.write("wrong.toml", "[workload]\nwrite_sise = \"4KiB\"\n");
    // 10^10 cells.
    let ten = |knob| format!("\"sysctl.net.knob{knob}\" = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n");
    let vast: String = (0..10).map(ten).collect();
    let vast = place.write("vast.toml", &format!("[vary]\n{vast}"));
    let cases: &[(&[&str], &str)] = &[
        (&["run", "tuor"], "no study \"tuor\""),
        (&["run", "./missing.toml"], "read ./missing.toml: "),
        (
            &["run", &wrong],
            "wrong.toml:2: workload.write_sise: no such knob here; nearest is \"write_size\"",
        ),
        (
            &["run", "tour", "--set", "flows"],
            "--set flows: expected KNOB=VALUE",
        ),
        (&["run", "tour", "--set", "flowz=3"], "nearest is \"flows\""),
        (
            &["run", "tour", "--set", "rate=1Gbit"],
            "varies in this study",
        ),
        (
            &["run", "write-size", "--set", "transaction_rate=5/s"],
            "transaction_rate: needs workload = \"rr\" or \"crr\"",
        ),
        (
            &["run", "tour", "--duration", "3"],
            "--duration 3: expected a time",
        ),
        (&["run", "--resume", "nowhere"], "read nowhere: "),
        (&["report", "nowhere"], "read nowhere: "),
        (&["trace", "missing.pcap"], "read missing.pcap: "),
        (&["run", "/dev/zero"], "read /dev/zero: longer than 1 MiB"),
        (
            &["run", &vast, "--dry-run"],
            "cells, more than 10000: take values off",
        ),
        (&["study", "show", "tuor"], "no study \"tuor\""),
        (&["rum"], "unrecognized subcommand 'rum'"),
        (
            &["soak"],
            "unrecognized subcommand 'soak' (see tcpcost watch --soak, and --help)",
        ),
        (&["run"], "required"),
    ];
    for (args, part) in cases {
        let ran = place.run(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
        assert_eq!(ran.stdout, "", "{args:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(part), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn a_folder_of_runs_may_have_a_studys_name() {
    let place = Place::new();
    let study = place.write("short.toml", SHORT);
    for name in ["tour", "mine"] {
        let ran = place.run(&["run", &study, "--out", name]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let (cells, as_they_are) = (
        ["--cells", "a", "b"],
        "stored runs are compared as they are",
    );
    let cases: &[(&[&str], &[&str], &str)] = &[
        (&["tour"], &[], "tour holds one side"),
        (&["tour"], &cells, "no cell \"a\""),
        (&["mine"], &cells, as_they_are),
        (&["tour", "mine"], &cells, as_they_are),
    ];
    for (of, cells, expected) in cases {
        let ran = place.run(&[&["compare"], *of, *cells].concat());
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(expected), "{ran:?}");
    }
}

#[test]
fn every_listed_study_can_be_shown_copied_and_planned() {
    let place = Place::new();
    let list = place.run(&["study", "list"]);
    assert_eq!(list.code, Some(0));
    assert!(list.stdout.lines().count() >= 6, "{}", list.stdout);
    for line in list.stdout.lines() {
        let name = line.split_whitespace().next().unwrap();
        let shown = place.run(&["study", "show", name]);
        let copy = place.write("copy.toml", &shown.stdout);
        let planned = place.run(&["run", &copy, "--dry-run"]);
        assert_eq!(planned.code, Some(0), "{planned:?}");
        assert!(planned.stdout.contains(" cells, "), "{}", planned.stdout);
    }
    let one = place.run(&["study", "knobs", "client.mtu"]);
    assert!(one.stdout.starts_with("  mtu = "), "{one:?}");
    let none = place.run(&["study", "knobs", "mtv"]);
    assert_eq!(none.code, Some(2), "{none:?}");
    assert!(none.stderr.contains("did you mean mtu?"), "{none:?}");
    let knobs = place.run(&["study", "knobs"]);
    assert!(
        knobs
            .stdout
            .contains("write_size = a size such as \"64KiB\""),
        "{}",
        knobs.stdout
    );
}

#[test]
fn fronts_have_help_by_its_long_name() {
    let place = Place::new();
    for name in ["netperf", "netserver", "uperf"] {
        let ran = place.run(&[name, "--help"]);
        assert_eq!(ran.code, Some(0), "{name}: {ran:?}");
        assert!(ran.stdout.contains(name), "{name}: {ran:?}");
    }
}

#[test]
fn results_go_to_several_files_and_to_standard_output() {
    let place = Place::new();
    let study = place.write("short.toml", SHORT);
    let formats = [
        "--format=text",
        "--format=json",
        "-o",
        "a.json",
        "--format=csv",
        "-o",
        "a.csv",
    ];
    let ran = place.run(&[&["run", &study, "--out", "out"], &formats[..]].concat());
    assert!(ran.stdout.starts_with("short\n"), "{ran:?}");
    let json = std::fs::read_to_string(place.path("a.json")).unwrap();
    assert!(
        serde_json::from_str::<serde_json::Value>(&json).is_ok(),
        "{json}"
    );
    let csv = std::fs::read_to_string(place.path("a.csv")).unwrap();
    assert!(csv.lines().count() > 1, "{csv}");
    let wrong = place.run(&["report", "out", "--format=html"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(
        wrong.stderr.contains("expected text, details, json"),
        "{wrong:?}"
    );
}

#[test]
fn a_title_is_one_line_that_moves_no_cursor() {
    let place = Place::new();
    let dry_run = |title: &str| {
        let title = format!("title = {title}\n");
        let study = place.write("t.toml", &SHORT.replace("title = \"short\"\n", &title));
        place.run(&["run", &study, "--dry-run"])
    };
    let ran = dry_run("\"first\\nsecond\"");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.stdout.lines().next(), Some("first second"));
    let ran = dry_run("\"\\u001b[31mred\\u0007\"");
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let why = "title: expected a printable text in one line: it has U+001B\n";
    assert!(ran.stderr.ends_with(why), "{ran:?}");
}

#[test]
fn a_dry_run_runs_nothing() {
    let place = Place::new();
    let study = place.write("short.toml", SHORT);
    let ran = place.run(&["run", &study, "--dry-run", "--repetitions", "7"]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.stdout.contains("write_size=4KiB"), "{}", ran.stdout);
    assert!(
        ran.stdout
            .contains("2 cells, 7 repetitions of 50ms after 10ms of warm-up"),
        "{}",
        ran.stdout
    );
    assert!(!place.path("tcpcost-out").exists());
}

#[test]
fn a_study_runs_from_file_to_report() {
    let place = Place::new();
    let study = place.write("short.toml", SHORT);
    let ran = place.run(&["run", &study, "--out", "out", "--format=json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let summary: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(summary["schema_version"], 2);
    assert_eq!(summary["study"], "short");
    assert_eq!(summary["cells"].as_array().unwrap().len(), 2);
    for cell in summary["cells"].as_array().unwrap() {
        assert_eq!(cell["n"], 2, "{cell}");
        let goodput = &cell["estimates"]["goodput_bits_per_s"];
        assert!(goodput["median"].as_f64().unwrap() > 0.0, "{cell}");
        assert_eq!(goodput["unit"], "bit/s");
    }
    let records = place.records_of_work("out");
    assert_eq!(records.len(), 4);
    for record in &records {
        assert_eq!(record["outcome"], "measured", "{record}");
        assert_eq!(record["bed"], "loopback");
    }
    assert!(place.path("out/report.html").exists());

    let again = place.run(&["report", "out", "--format=json"]);
    assert_eq!(
        again.stdout, ran.stdout,
        "a report can always be made again from records"
    );
    let csv = place.run(&["report", "out", "--format=csv"]);
    assert!(csv.stdout.lines().count() > 10, "{}", csv.stdout);
    let text = place.run(&["report", "out"]);
    assert!(text.stdout.contains("write_size=64KiB"), "{}", text.stdout);
    let twice = place.run(&["run", &study, "--out", "out"]);
    assert_eq!(twice.code, Some(2), "records are never written over");
}

#[test]
fn a_killed_run_goes_on_without_losing_or_repeating_a_trial() {
    let place = Place::new();
    let study = place.write("short.toml", SHORT);
    let mut started = place.start(&["run", &study, "--out", "out", "--repetitions", "4"]);
    started.wait_for("[3/8]");
    started.signal(libc::SIGKILL);
    started.end();
    let before = place.records("out");
    assert!((3..8).contains(&before.len()), "{}", before.len());

    // A crash in the middle of a write leaves half a line.
    let file = place.path("out/records.jsonl");
    let mut text = std::fs::read_to_string(&file).unwrap();
    text += "{\"schema_version\":1,\"study\":\"sho";
    std::fs::write(&file, text).unwrap();

    let resumed = place.run(&["run", "--resume", "out"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    let after = place.records("out");
    assert_eq!(
        after[..before.len()],
        before[..],
        "a record is never changed"
    );
    // A busy machine may make a trial fail, which is then made again.
    let measured = after
        .iter()
        .filter(|record| record["outcome"] == "measured");
    let mut trials: Vec<String> = measured
        .map(|record| format!("{}#{}", record["cell"], record["repetition"]))
        .collect();
    trials.sort();
    let all = trials.len();
    trials.dedup();
    assert_eq!((all, trials.len()), (8, 8), "{trials:?}");
    let done = place.run(&["run", "--resume", "out", "--quiet"]);
    assert_eq!(done.code, Some(0));
    assert_eq!(place.records("out"), after, "nothing is left to do");
}

#[test]
fn ctrl_c_ends_with_a_report_of_what_is_there() {
    let place = Place::new();
    let study = place.write("short.toml", SHORT);
    let mut started = place.start(&["run", &study, "--out", "out", "--repetitions", "50"]);
    started.wait_for("[2/100]");
    started.signal(libc::SIGINT);
    let ran = started.end();
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(
        ran.stderr
            .contains("continue with: tcpcost run --resume out"),
        "{}",
        ran.stderr
    );
    assert!(ran.stdout.contains("write_size=64KiB"), "{}", ran.stdout);
    assert!(place.path("out/report.html").exists());
    assert!(place.records("out").len() >= 2);
}

#[test]
fn thresholds_decide_the_exit_code() {
    let place = Place::new();
    let with = |limit: &str| {
        format!("{SHORT}\n[[threshold]]\nquantity = \"goodput_bits_per_s\"\n{limit}\n")
            // Flagged trials are omitted if they are the minority, so at least seven of twelve make
            // an interval.
            .replace("repetitions = 2", "repetitions = 12")
    };
    let met = place.write("met.toml", &with("at_least = 1000"));
    let missed = place.write("missed.toml", &with("at_least = 1e18"));
    assert_eq!(place.run(&["run", &met, "--out", "met"]).code, Some(0));
    assert_eq!(
        place.run(&["run", &missed, "--out", "missed"]).code,
        Some(3)
    );
    let few = place.run(&["run", &met, "--out", "few", "--repetitions", "2"]);
    assert_eq!(few.code, Some(4), "two trials have no interval: {few:?}");
}

#[test]
fn a_knob_that_cannot_be_had_is_a_recorded_skip() {
    let place = Place::new();
    let study = place.write(
        "skip.toml",
        &SHORT.replace("[vary]", "[vary]\nbottleneck = [\"none\", \"100Mbit\"]"),
    );
    let ran = place.run(&["run", &study, "--out", "out", "--format=json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let skipped: Vec<_> = place
        .records("out")
        .into_iter()
        .filter(|record| record["outcome"] == "skipped")
        .collect();
    assert_eq!(skipped.len(), 2, "each of two cells once");
    assert!(
        skipped[0]["reason"]
            .as_str()
            .unwrap()
            .contains("bottleneck"),
        "{}",
        skipped[0]
    );
    let only = place.write(
        "only.toml",
        &SHORT.replace("[vary]", "[vary]\nbottleneck = [\"100Mbit\"]"),
    );
    assert_eq!(place.run(&["run", &only, "--out", "only"]).code, Some(77));
}

#[test]
fn every_workload_and_copy_path_runs_and_every_byte_is_checked() {
    let place = Place::new();
    let text = r#"
[bed]
kind = "loopback"
[workload]
placement = "same-cpu"
check = "on"
flows = 3
request_size = "300B"
response_size = "2000B"
[vary]
workload = ["stream", "maerts", "bidirectional", "rr", "crr"]
send_with = ["write", "send", "sendfile", "sendfile-memfd", "splice", "zerocopy"]
[measure]
warm_up = "5ms"
duration = "30ms"
repetitions = 1
retries = 0
"#;
    let study = place.write("all.toml", text);
    let mut seen = BTreeSet::new();
    // A busy machine may move no data in an interval of 30 ms; then the next run may.
    for run in 0..10 {
        let out = format!("out-{run}");
        let ran = place.run(&["run", &study, "--out", &out, "--quiet"]);
        // The run reports that, and a cell without a measured trial makes exit code 1.
        assert!(matches!(ran.code, Some(0 | 1)), "{ran:?}");
        let records = place.records(&out);
        assert!(records.len() >= 30, "{records:?}");
        for record in &records {
            let has_run = record["outcome"] == "measured" || did_no_work(record);
            assert!(has_run, "{record}");
            let received = |end: &str, quantity: &str| -> u64 {
                record["hosts"][end]["readings"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|reading| reading["meter"] == "workload")
                    .map(|reading| reading["counts"][quantity].as_u64().unwrap_or(0))
                    .sum()
            };
            let all = received("client", "payload_bytes_received")
                + received("server", "payload_bytes_received");
            let checked = received("client", "payload_bytes_checked")
                + received("server", "payload_bytes_checked");
            assert_eq!(all, checked, "{record}");
            if all > 0 {
                seen.insert(record["cell"].as_str().unwrap().to_string());
            }
        }
        if seen.len() == 30 {
            return;
        }
    }
    panic!("of 30 cells these alone moved anything: {seen:?}");
}
