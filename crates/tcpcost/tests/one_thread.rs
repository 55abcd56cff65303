//! Two ends that take turns in one thread: the same trial, with CPU time by turn.

mod common;

use common::{Place, able, count};

const STUDY: &str = r#"
[workload]
placement = "one-thread"
[[cells]]
name = "stream"
workload = "stream"
bed = "netns"
"server.mtu" = 1400
"client.mtu" = 1400
[[cells]]
name = "rr, 3 connections"
workload = "rr"
bed = "netns"
flows = 3
[[cells]]
name = "crr"
workload = "crr"
bed = "netns"
[[cells]]
name = "ours"
workload = "stream"
stack = "user"
[[cells]]
name = "over a TAP"
workload = "stream"
"server.stack" = "user"
[measure]
meters = ["rusage", "netstat", "tcp_info"]
warm_up = "20ms"
duration = "60ms"
repetitions = 1
others_max = "100%"
retries = 0
"#;

#[test]
fn two_ends_of_one_thread_have_their_turns_by_time_and_by_work() {
    if !able() {
        return;
    }
    let place = Place::new();
    let timed = place.write("timed.toml", STUDY);
    let work = STUDY.replace("warm_up", "bytes = \"1MiB\"\ntransactions = 50\nwarm_up");
    let work = place.write("work.toml", &work);
    for (study, out) in [(timed, "timed"), (work, "work")] {
        let ran = place.run(&["run", &study, "--out", out]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let records = place.records_of_work(out);
        assert_eq!(records.len(), 5);
        for record in &records {
            if record["cell"] == "over a TAP" {
                assert_eq!(record["outcome"], "skipped", "{record}");
                let reason = record["reason"].as_str().unwrap();
                assert!(reason.starts_with("placement: one-thread"), "{reason}");
                continue;
            }
            assert_eq!(record["outcome"], "measured", "{record}");
            for end in ["client", "server"] {
                assert!(count(record, end, "workload", "turns_ns") > 0);
            }
            // One of the ends has the thread, so the other end shows no switches.
            let switches = count(record, "server", "rusage", "voluntary_switches");
            assert_eq!(switches, 0);
            if record["cell"] == "stream" {
                // Segments are counted by the namespace of each end, although one thread read both.
                let data = |end| count(record, end, "tcp_info", "conn_data_segments_sent");
                let all = |end| count(record, end, "netstat", "segments_sent");
                assert_eq!(data("server"), 0);
                assert!(all("client") > all("server"), "{record}");
            }
        }
        if out == "work" {
            let of = |cell| records.iter().find(|one| one["cell"] == cell).unwrap();
            let received = count(of("stream"), "server", "workload", "payload_bytes_received");
            assert!(received.abs_diff(1 << 20) <= 256 << 10, "{received}");
            assert_eq!(count(of("crr"), "client", "workload", "transactions"), 50);
        }
    }
}

/// Two cells that differ only in where the ends run, so that a bed could be taken for both.
const BOTH: &str = r#"
[workload]
kind = "rr"
[bed]
kind = "netns"
[vary]
placement = ["one-thread", "same-cpu"]
[measure]
meters = ["rusage"]
warm_up = "10ms"
duration = "40ms"
repetitions = 2
others_max = "100%"
retries = 0
"#;

#[test]
fn a_bed_of_one_thread_serves_no_trial_of_two() {
    if !able() {
        return;
    }
    let place = Place::new();
    let study = place.write("both.toml", BOTH);
    let ran = place.run(&["run", &study, "--out", "both"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let records = place.records_of_work("both");
    assert_eq!(records.len(), 4);
    for record in &records {
        assert_eq!(record["outcome"], "measured", "{record}");
        // The server waits for each request, if it has a thread of its own.
        let waits = count(record, "server", "rusage", "voluntary_switches");
        let has_turns = record["cell"] == "placement=one-thread";
        assert_eq!(waits == 0, has_turns, "{record}");
    }
}
