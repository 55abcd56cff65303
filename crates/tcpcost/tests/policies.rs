//! ACK policies as knobs of studies: our TCP has all of them, the kernel's TCP some.

mod common;

use common::{Place, able, environment};
use tcpcost_study::AckKind;
use tcpcost_testbed::has_cpus;

fn run(text: &str) -> Vec<serde_json::Value> {
    let place = Place::new();
    let measure = "[measure]\nwarm_up = \"20ms\"\nduration = \"60ms\"\nrepetitions = 1\nothers_max = \"100%\"\nretries = 5\n";
    let text = format!("{text}\n{measure}");
    let ran = place.run(&["run", &place.write("s.toml", &text), "--out", "out"]);
    let records = place.records_of_work("out");
    assert!(!records.is_empty(), "{ran:?}");
    records
}

/// Segments that the receiving end sent and received between the same snapshots, and segments that
/// were sent to it again.
fn acks_and_segments(record: &serde_json::Value) -> (f64, f64, f64) {
    let count = |end: &str, quantity: &str| {
        let readings = record["hosts"][end]["readings"].as_array().unwrap();
        let mut own = readings
            .iter()
            .filter(|reading| reading["meter"] == "tcp_info");
        own.next().unwrap()["counts"][quantity].as_f64().unwrap()
    };
    (
        count("server", "conn_segments_sent"),
        count("server", "conn_segments_received"),
        count("client", "conn_segments_retransmitted"),
    )
}

#[test]
fn each_ack_policy_of_ours_runs_and_exactly_is_exact() {
    if !has_cpus(2) {
        return;
    }
    let policies: Vec<&str> = ["default"]
        .into_iter()
        .chain(AckKind::WORDS.iter().copied())
        .collect();
    let records = run(&format!(
        "[bed]\nkind = \"memory\"\nstack = \"user\"\nack_segments = 16\n\
         [workload]\nclient_cpus = [0]\nserver_cpus = [1]\ncheck = \"on\"\n\
         [vary]\nack_policy = {policies:?}\n"
    ));
    assert_eq!(records.len(), policies.len());
    for record in &records {
        assert_eq!(record["outcome"], "measured", "{record}");
        if record["knobs"]["ack_policy"] == "exactly" {
            let (acks, segments, again) = acks_and_segments(record);
            // The tolerance is for window updates, and for an interval that cuts a super-segment of
            // 45. A retransmitted segment (from an end that had no CPU for longer than a probe
            // timeout) is acknowledged at once, with all segments that wait for an ACK.
            let aside = acks - segments / 16.0;
            assert!(
                aside.abs() <= 4.0 + segments / 16.0 / 8.0 + 3.0 * again,
                "{acks} ACKs of {segments} segments, {again} of them again"
            );
        }
    }
}

#[test]
fn each_segmentation_policy_of_ours_runs() {
    let records = run("[bed]\nkind = \"memory\"\nstack = \"user\"\n\
         [workload]\nclient_cpus = [0]\nserver_cpus = [0]\ncheck = \"on\"\n\
         [[cells]]\nname = \"split\"\ntail_split = \"split\"\n\
         [[cells]]\nname = \"divisor\"\ntso_win_divisor = 1\nsuper_segment = \"16KiB\"\n\
         [[cells]]\nname = \"2005\"\nwhole_super_segments = \"on\"\ninitial_window = 3\nwindow_growth = \"per-ack\"\n\
         [[cells]]\nname = \"paced\"\npacing = \"timer\"\npacing_rate = \"100Mbit\"\ntso_min_segs = 4\n\
         [[cells]]\nname = \"linux\"\nsegmentation_rules = \"linux\"\n");
    assert_eq!(records.len(), 5);
    for record in &records {
        assert_eq!(record["outcome"], "measured", "{record}");
    }
}

#[test]
fn what_the_kernel_has_is_set_and_what_it_has_not_is_a_skip() {
    if !able() {
        return;
    }
    let records = run(
        "[bed]\nkind = \"netns\"\ntso_win_divisor = 8\ntso_min_segs = 4\nack_policy = \"linux-like\"\n\
         comp_sack_nr = 8\ncomp_sack_delay_us = 500\nbacklog_ack_defer = \"off\"\n",
    );
    assert_eq!(records[0]["outcome"], "measured", "{}", records[0]);
    for end in ["client", "server"] {
        let sysctls = &environment(&records[0], end)["sysctls"];
        assert_eq!(sysctls["net.ipv4.tcp_tso_win_divisor"], "8", "{sysctls}");
        assert_eq!(sysctls["net.ipv4.tcp_min_tso_segs"], "4", "{sysctls}");
        assert_eq!(sysctls["net.ipv4.tcp_comp_sack_nr"], "8", "{sysctls}");
        assert_eq!(sysctls["net.ipv4.tcp_comp_sack_delay_ns"], "500000");
        assert_eq!(sysctls["net.ipv4.tcp_backlog_ack_defer"], "0", "{sysctls}");
    }
    for knob in [
        "tail_split = \"split\"",
        "whole_super_segments = \"on\"",
        "pacing = \"timer\"",
        "super_segment = \"16KiB\"",
        "initial_window = 3",
        "window_growth = \"per-ack\"",
        "ack_policy = \"avoidance\"",
    ] {
        let records = run(&format!("[bed]\nkind = \"loopback\"\n{knob}\n"));
        assert_eq!(records[0]["outcome"], "skipped", "{knob}: {}", records[0]);
        let reason = records[0]["reason"].as_str().unwrap();
        assert!(reason.contains("kernel"), "{reason}");
    }
}
