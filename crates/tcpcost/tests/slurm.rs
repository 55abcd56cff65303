//! Jobs of a real Slurm whose nodes are namespaces of this machine: a study on the nodes of a job,
//! parts of a job array, all nodes in rounds, a node that fails. Needs root and Slurm; else a test
//! is skipped.

mod common;

use std::collections::BTreeSet;
use std::process::{Command, Output};

use common::records;
use serde_json::Value;
use tcpcost_testbed::{Slurm, until};

const MEASURE: &str = r#"
[measure]
meters = ["proc", "netstat", "rusage"]
warm_up = "20ms"
duration = "100ms"
repetitions = 2
others_max = "100%"
retries = 0
"#;

const PAIR: &str =
    "[hosts]\nclient = \"slurm\"\nserver = \"slurm\"\n[workload]\nrate = \"4Mbit\"\n";

/// Starts the binary as a user of the cluster does on a login node.
fn command(slurm: &Slurm, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tcpcost"));
    command
        .args(arguments)
        .current_dir(slurm.shared())
        .env("SLURM_CONF", slurm.configuration())
        .env("TCPCOST_STATE_DIR", slurm.shared().join("tcpcost-state"));
    command
}

fn run(slurm: &Slurm, arguments: &[&str]) -> Output {
    slurm.within(|| command(slurm, arguments).output().unwrap())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn write(slurm: &Slurm, name: &str, text: &str) {
    std::fs::write(slurm.shared().join(name), text).unwrap();
}

/// Output of a directory's jobs.
fn logs(slurm: &Slurm, directory: &str) -> String {
    let entries = std::fs::read_dir(slurm.shared().join(directory)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let logs = paths.filter(|path| path.extension().is_some_and(|extension| extension == "out"));
    logs.map(|path| std::fs::read_to_string(path).unwrap())
        .collect()
}

/// Waits until a run has a record.
fn until_a_record(slurm: &Slurm, directory: &str) {
    let file = slurm.shared().join(directory).join("records.jsonl");
    until("a first record", || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.contains('\n').then_some(())
    });
}

/// Waits until no job is left.
fn until_the_end(slurm: &Slurm) {
    until("the end of the job", || {
        let jobs = slurm.output("squeue", &["-h"]);
        jobs.trim().is_empty().then_some(())
    });
}

fn summary(slurm: &Slurm, directory: &str) -> Value {
    let report = run(slurm, &["report", directory, "--format=json"]);
    serde_json::from_slice(&report.stdout).unwrap()
}

fn reaches(record: &Value) -> Vec<&str> {
    let hosts = record["topology"]["hosts"].as_array().unwrap();
    hosts
        .iter()
        .map(|host| host["reach"].as_str().unwrap())
        .collect()
}

#[test]
fn a_study_runs_on_the_nodes_of_a_job_and_of_a_job_array() {
    let Some(slurm) = Slurm::start(4) else { return };
    write(&slurm, "pair.toml", &format!("{PAIR}{MEASURE}"));
    let ran = run(
        &slurm,
        &[
            "run",
            "pair.toml",
            "--slurm",
            "--out",
            "one",
            "--",
            "--wait",
        ],
    );
    let log = logs(&slurm, "one");
    assert!(ran.status.success(), "{}\n{log}", text(&ran.stderr));
    assert!(
        text(&ran.stderr).starts_with("tcpcost: job "),
        "{}",
        text(&ran.stderr)
    );
    let found = records(&slurm.shared().join("one"));
    assert_eq!(found.len(), 2, "{log}");
    for record in &found {
        assert_eq!(record["outcome"], "measured", "{record}");
        assert_eq!(reaches(record), ["slurm:n1", "slurm:n2"]);
        let received = common::count(record, "server", "workload", "payload_bytes_received");
        // A fifth of the rate, which also a busy machine carries.
        assert!(received > 10_000, "{received}");
    }
    // The array has two tasks, which share four repetitions.
    let array = [
        "run",
        "pair.toml",
        "--slurm",
        "--out",
        "two",
        "--repetitions",
        "4",
        "--",
        "--array=0-1",
        "--wait",
    ];
    let ran = run(&slurm, &array);
    assert!(
        ran.status.success(),
        "{}\n{}",
        text(&ran.stderr),
        logs(&slurm, "two")
    );
    for share in ["0", "1"] {
        let own = records(&slurm.shared().join("two/shares").join(share));
        let repetitions: Vec<u64> = own
            .iter()
            // On a busy machine a trial may fail and be tried again.
            .filter(|record| record["outcome"] == "measured")
            .map(|record| record["repetition"].as_u64().unwrap())
            .collect();
        let expected = share.parse::<u64>().unwrap();
        assert_eq!(repetitions, [expected, expected + 2]);
    }
    let summary = summary(&slurm, "two");
    assert_eq!(
        (&summary["trials_done"], &summary["trials_planned"]),
        (&4.into(), &4.into())
    );
    // No trial is left for a third run.
    let again = run(&slurm, &["run", "--resume", "two"]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert_eq!(records(&slurm.shared().join("two")).len(), 0);
}

#[test]
fn what_a_job_cannot_do_is_told_in_a_line() {
    let Some(slurm) = Slurm::start(2) else { return };
    write(&slurm, "pair.toml", &format!("{PAIR}{MEASURE}"));
    for (arguments, expected, code) in [
        (&["--", "--partition=none"][..], "invalid partition", 1),
        (&["--", "--no-such-option"], "unrecognized option", 1),
    ] {
        let whole = [
            &["run", "pair.toml", "--slurm", "--out", "out"][..],
            arguments,
        ]
        .concat();
        let ran = run(&slurm, &whole);
        let said = text(&ran.stderr);
        assert!(said.contains(expected), "{said}");
        assert_eq!(ran.status.code(), Some(code), "{said}");
        assert!(!slurm.shared().join("out").exists(), "a directory is left");
    }
    // A study with a Slurm host outside of a job is refused.
    let ran = run(&slurm, &["run", "pair.toml", "--out", "none"]);
    assert_eq!(ran.status.code(), Some(2));
    assert!(
        text(&ran.stderr).contains("--slurm"),
        "{}",
        text(&ran.stderr)
    );
    // The job has one node too few.
    let one = [
        "run",
        "pair.toml",
        "--slurm",
        "--out",
        "few",
        "--",
        "--nodes=1",
        "--wait",
    ];
    let ran = run(&slurm, &one);
    assert_eq!(ran.status.code(), Some(1), "{}", text(&ran.stderr));
    let log = logs(&slurm, "few");
    assert!(log.contains("server: no node is left for it"), "{log}");
}

#[test]
fn the_one_slow_node_of_sixteen_is_found() {
    let Some(slurm) = Slurm::start(16) else {
        return;
    };
    // A quarter of the rate reaches this node. The rate is low enough for the other nodes of a busy
    // machine, in one of three runs.
    slurm.impair(7, "tbf rate 2mbit burst 4kb latency 20ms");
    let mut found = (1..=3).map(|number| slow_nodes(&slurm, &format!("check-{number}")));
    assert!(found.any(|slow| slow == ["n7"]), "never n7 alone");
}

/// Runs a check of 16 nodes, and returns those that it calls outliers by goodput.
fn slow_nodes(slurm: &Slurm, out: &str) -> Vec<String> {
    let study = ["--set", "rate=8Mbit", "--duration", "200ms"];
    let check = ["run", "fleet-check", "--slurm", "--out", out];
    let ran = run(
        slurm,
        &[&check[..], &study, &["--", "--nodes=16", "--wait"]].concat(),
    );
    let log = logs(slurm, out);
    // A busy machine may stop a host during a trial, which then fails.
    let measured = |record: &&Value| record["outcome"] == "measured";
    let found = records(&slurm.shared().join(out));
    let rounds = found.iter().filter(measured).count();
    assert!(rounds >= 13, "{rounds}: {}\n{log}", text(&ran.stderr));
    let pairs = |record: &Value| record["topology"]["traffic"].as_array().unwrap().len();
    assert!(found.iter().all(|record| pairs(record) == 8));
    // The first host on each CPU reads the other tasks of the machine, not all sixteen hosts.
    let read = |host: &Value| host["readings"].to_string().contains("\"others\"");
    for record in found.iter().filter(measured) {
        let hosts = record["hosts"].as_object().unwrap();
        let cpus = record["machines"].as_object().unwrap().values();
        let cpus: u64 = cpus.map(|machine| machine["cpus"].as_u64().unwrap()).sum();
        let readers = hosts.values().filter(|host| read(host)).count() as u64;
        assert!(
            (1..=cpus).contains(&readers),
            "{readers} hosts, {cpus} CPUs"
        );
    }
    let summary = summary(slurm, out);
    let outliers = summary["cells"][0]["fleet"]["outliers"].as_array().unwrap();
    let of_goodput = outliers
        .iter()
        .filter(|outlier| outlier["quantity"] == "goodput_bits_per_s");
    of_goodput
        .map(|outlier| outlier["host"].as_str().unwrap().to_string())
        .collect()
}

#[test]
fn a_node_of_many_that_is_dead_is_told_by_name_and_the_others_are_compared() {
    let Some(mut slurm) = Slurm::start(5) else {
        return;
    };
    let study = ["--set", "rate=20Mbit", "--duration", "100ms"];
    let check = ["run", "fleet-check", "--slurm", "--out", "check"];
    let submitted = run(&slurm, &[&check[..], &study, &["--", "--nodes=5"]].concat());
    assert!(submitted.status.success(), "{}", text(&submitted.stderr));
    until_a_record(&slurm, "check");
    slurm.kill_node(3);
    until_the_end(&slurm);
    let log = logs(&slurm, "check");
    assert!(
        log.contains("n3 is left out from now on: n3 agent: "),
        "{log}"
    );
    let found = records(&slurm.shared().join("check"));
    let later: Vec<&Value> = found
        .iter()
        .filter(|record| record["outcome"] == "measured" && record["hosts"]["n3"].is_null())
        .filter(|record| record["warnings"].to_string().contains("n3 is left out"))
        .collect();
    assert!(!later.is_empty(), "{log}");
    // In rounds of five, the partner of the dead node rests and other pairs meet.
    for record in later {
        let traffic = record["topology"]["traffic"].as_array().unwrap();
        assert!((1..=2).contains(&traffic.len()), "{record}");
    }
    let summary = summary(&slurm, "check");
    let hosts = summary["cells"][0]["fleet"]["hosts"].as_object().unwrap();
    for host in ["n1", "n2", "n4", "n5"] {
        assert!(hosts.contains_key(host), "{hosts:?}");
    }
}

#[test]
fn hosts_are_on_both_components_of_a_heterogeneous_job() {
    let Some(slurm) = Slurm::start(3) else { return };
    write(
        &slurm,
        "star.toml",
        &format!(
            "[hosts]\nserver = \"slurm\"\n\"client[1-2]\" = \"slurm\"\n[workload]\nrate = \"10Mbit\"\n{MEASURE}"
        ),
    );
    let options = [
        "--",
        "--nodes=1",
        "--nodelist=n3",
        ":",
        "--nodes=2",
        "--nodelist=n1,n2",
    ];
    let ran = run(
        &slurm,
        &[
            &["run", "star.toml", "--slurm", "--out", "het"][..],
            &options,
        ]
        .concat(),
    );
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    until_the_end(&slurm);
    let log = logs(&slurm, "het");
    let found = records(&slurm.shared().join("het"));
    let measured = found.iter().find(|record| record["outcome"] == "measured");
    let record = measured.unwrap_or_else(|| panic!("{log}"));
    let mut nodes = reaches(record);
    nodes.sort_unstable();
    assert_eq!(nodes, ["slurm:n1", "slurm:n2", "slurm:n3"]);
}

#[test]
fn a_node_that_fails_is_told_by_name_and_the_run_goes_on_in_another_job() {
    let Some(mut slurm) = Slurm::start(3) else {
        return;
    };
    let study = format!(
        "{PAIR}{}",
        MEASURE.replace("repetitions = 2", "repetitions = 30")
    );
    write(&slurm, "pair.toml", &study);
    let submitted = run(&slurm, &["run", "pair.toml", "--slurm", "--out", "out"]);
    assert!(submitted.status.success(), "{}", text(&submitted.stderr));
    until_a_record(&slurm, "out");
    slurm.kill_node(2);
    until_the_end(&slurm);
    let log = logs(&slurm, "out");
    let found = records(&slurm.shared().join("out"));
    let failed: Vec<&Value> = found
        .iter()
        .filter(|record| record["outcome"] == "failed")
        .collect();
    assert!(!failed.is_empty(), "{log}");
    let reason = failed[0]["reason"].as_str().unwrap();
    assert!(
        reason.contains("server") && reason.contains("n2"),
        "{reason}"
    );
    let measured = found
        .iter()
        .filter(|record| record["outcome"] == "measured")
        .count();
    assert!((1..30).contains(&measured), "{measured}");
    // No agent is left on the other node.
    assert_eq!(slurm.running(1, "tcpcost"), Vec::<String>::new());
    let ran = run(
        &slurm,
        &["run", "--resume", "out", "--slurm", "--", "--wait"],
    );
    let log = logs(&slurm, "out");
    let found = records(&slurm.shared().join("out"));
    // A trial that failed twice is not repeated, and the exit code reports the failure.
    let repetitions: BTreeSet<u64> = found
        .iter()
        .map(|record| record["repetition"].as_u64().unwrap())
        .collect();
    let measured = found
        .iter()
        .filter(|record| record["outcome"] == "measured")
        .count();
    assert!(
        repetitions.len() == 30 && measured >= 28,
        "{measured}: {}\n{log}",
        text(&ran.stderr)
    );
    assert_eq!(reaches(found.last().unwrap()), ["slurm:n1", "slurm:n3"]);
}
