//! The kernel's TCP and our own with the same workloads, every byte checked. The TAP needs root;
//! memory needs no privilege.

mod common;

use common::{Place, able};
use tcpcost_testbed::has_cpus;

/// Study with a cell for each workload, over these stacks and with these knobs.
fn study(stacks: &str, knobs: &str) -> String {
    format!(
        r#"
[bed]
kind = "auto"
{stacks}
[workload]
client_cpus = [0]
server_cpus = [1]
check = "on"
flows = 3
{knobs}
[vary]
workload = ["stream", "maerts", "bidirectional", "rr", "crr"]
[measure]
warm_up = "20ms"
duration = "60ms"
repetitions = 1
retries = 0
others_max = "100%"
"#
    )
}

/// Quantities of connections that both TCPs report.
const OF_CONNECTIONS: [&str; 11] = [
    "conn_segments_sent",
    "conn_segments_received",
    "conn_data_segments_sent",
    "conn_data_segments_received",
    "conn_bytes_sent",
    "conn_bytes_acked",
    "conn_bytes_received",
    "conn_segments_retransmitted",
    "conn_busy_ns",
    "conn_receive_window_limited_ns",
    "conn_send_buffer_limited_ns",
];

/// Asserts that all trials are measured in this bed with so many threads an end, and that every
/// byte received was sent.
fn check(stacks: &str, bed: &str, ours: &[&str], threads: usize) {
    let place = Place::new();
    let ran = place.run(&[
        "run",
        &place.write("s.toml", &study(stacks, &format!("threads = {threads}"))),
        "--out",
        "out",
    ]);
    let records = place.records_of_work("out");
    assert_eq!(records.len(), 5, "{ran:?}");
    // A busy machine may keep a host off its CPU for an interval, but not in all five trials.
    let mut checked = 0;
    for record in records {
        assert_eq!(record["outcome"], "measured", "{record}");
        assert_eq!(record["bed"], bed);
        for end in ["client", "server"] {
            let readings = record["hosts"][end]["readings"].as_array().unwrap();
            let of =
                |reading: &serde_json::Value| reading["counts"]["payload_bytes_checked"].as_u64();
            checked += readings.iter().filter_map(of).sum::<u64>();
        }
        for end in ["client", "server"] {
            let end_record = &record["hosts"][end];
            assert_eq!(end_record["threads"], threads, "{record}");
            let meters: Vec<_> = end_record["readings"]
                .as_array()
                .unwrap()
                .iter()
                .map(|reading| reading["meter"].as_str().unwrap())
                .collect();
            // The kernel's counts do not cover our TCP.
            assert_eq!(meters.contains(&"netstat"), !ours.contains(&end), "{end}");
            if record["knobs"]["workload"] != "crr" {
                assert_eq!(common::environment(&record, end)["mss"], 1448, "{record}");
                let readings = end_record["readings"].as_array().unwrap();
                let of_connections: Vec<_> = readings
                    .iter()
                    .filter(|reading| reading["meter"] == "tcp_info")
                    .collect();
                assert!(!of_connections.is_empty());
                for (reading, name) in of_connections
                    .iter()
                    .flat_map(|reading| OF_CONNECTIONS.map(|name| (reading, name)))
                {
                    assert!(reading["counts"][name].is_u64(), "{end} {name}: {record}");
                }
            }
        }
    }
    assert!(checked > 0, "{ran:?}");
}

#[test]
fn ours_at_both_ends_meets_in_memory() {
    if !has_cpus(2) {
        return;
    }
    for threads in [1, 3] {
        check("stack = \"user\"", "memory", &["client", "server"], threads);
    }
}

#[test]
fn ours_meets_the_kernel_over_a_tap() {
    if !able() {
        return;
    }
    for threads in [1, 2] {
        check("client = { stack = \"user\" }", "tap", &["client"], threads);
        check("server = { stack = \"user\" }", "tap", &["server"], threads);
    }
}

#[test]
fn what_ours_does_not_have_is_a_skip_that_says_so() {
    for (knobs, said) in [
        (
            "kind = \"loopback\"\nstack = \"user\"",
            "loopback does not fit stack = user at both ends",
        ),
        (
            "kind = \"memory\"",
            "memory does not fit stack = kernel at both ends: set kind = \"netns\" in [bed], or change stack",
        ),
        (
            "kind = \"memory\"\nstack = \"user\"\ntso = \"off\"",
            "set them there",
        ),
    ] {
        let place = Place::new();
        let text = format!("[bed]\n{knobs}\n[measure]\nrepetitions = 1\nduration = \"50ms\"\n");
        let ran = place.run(&["run", &place.write("s.toml", &text), "--out", "out"]);
        let records = place.records("out");
        assert_eq!(records[0]["outcome"], "skipped", "{ran:?}");
        let reason = records[0]["reason"].as_str().unwrap();
        assert!(reason.contains(said), "{reason}");
    }
}
