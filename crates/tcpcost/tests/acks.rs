//! Acknowledgements of the kernel's TCP as the knobs of a study set them, in real namespaces. Needs
//! root. A knob that cannot be set is a skip with its reason.

mod common;

use common::{Place, able, environment};
use serde_json::Value;

/// Runs the cells with a checked stream. Returns the records.
fn run(place: &Place, bed: &str, cells: &str) -> Vec<Value> {
    let study = format!(
        r#"
[workload]
client_cpus = [0]
server_cpus = [1]
check = "on"
{bed}
{cells}
[measure]
meters = ["proc", "netstat", "tcp_info"]
warm_up = "100ms"
duration = "200ms"
repetitions = 1
others_max = "100%"
"#
    );
    let study = place.write("s.toml", &study);
    let ran = place.in_time(|| place.run(&["run", &study, "--out", "out"]));
    let records = place.records("out");
    assert!(!records.is_empty(), "{ran:?}");
    records
}

fn cell<'a>(records: &'a [Value], name: &str) -> &'a Value {
    let of = |record: &&Value| record["cell"] == name;
    records.iter().find(of).unwrap_or_else(|| panic!("{name}"))
}

/// Count that a meter read at an end. `None` if the meter has no such count.
fn count(record: &Value, end: &str, meter: &str, of: &str) -> Option<u64> {
    let readings = record["hosts"][end]["readings"].as_array()?;
    let counts = |reading: &&Value| reading["meter"] == meter && !reading["counts"][of].is_null();
    readings.iter().find(counts)?["counts"][of].as_u64()
}

/// Data segments on the wire that the client sent, for each ACK that it received.
fn segments_per_ack(record: &Value) -> f64 {
    let of = |name: &str| count(record, "client", "tcp_info", name).unwrap() as f64;
    of("conn_data_segments_sent")
        / (of("conn_segments_received") - of("conn_data_segments_received"))
}

#[test]
fn a_kernels_end_acknowledges_every_nth_segment_by_quickack_and_an_ack_filter() {
    if !able() {
        return;
    }
    let place = Place::new();
    let bed = "[bed]\nkind = \"netns\"\n[bed.client]\nsegmentation = \"per-mss\"\n[bed.server]\nack_policy = \"every\"";
    let records = run(&place, bed, "[vary]\n\"server.ack_segments\" = [1, 4]");
    let each = cell(&records, "server.ack_segments=1");
    assert_eq!(each["outcome"], "measured", "{each}");
    assert!(count(each, "server", "ack_filter", "ack_filter_held_acks").is_none());
    let fourth = cell(&records, "server.ack_segments=4");
    if fourth["outcome"] == "skipped" {
        let reason = fourth["reason"].as_str().unwrap();
        assert!(reason.starts_with("server.ack_filter: "), "{reason}");
        return tcpcost_testbed::skip(reason);
    }
    assert_eq!(fourth["outcome"], "measured", "{fourth}");
    // Segments of a backlog are acknowledged together, so an ACK may cover more than four, and
    // fewer only at the flush.
    let held = count(fourth, "server", "ack_filter", "ack_filter_held_acks").unwrap();
    let passed = count(fourth, "server", "ack_filter", "ack_filter_passed_acks").unwrap();
    assert!(held > 0 && passed > 0, "{held} {passed}");
    let route = environment(fourth, "server")["route"].as_str().unwrap();
    assert!(route.contains("quickack 1"), "{route}");
    assert_eq!(environment(fourth, "server")["offloads"]["gro"], false);
    assert!(
        segments_per_ack(fourth) > segments_per_ack(each),
        "{fourth}"
    );
    assert!(
        segments_per_ack(fourth) > 3.0,
        "{}",
        segments_per_ack(fourth)
    );
}

#[test]
fn an_ack_filter_ends_with_its_trial() {
    if !able() {
        return;
    }
    let place = Place::new();
    let bed = "[bed]\nkind = \"netns\"\n[bed.server]\nquickack = \"on\"";
    let records = run(
        &place,
        bed,
        "[vary]\n\"server.ack_filter\" = [8, \"leave\", 2]",
    );
    let untouched = cell(&records, "server.ack_filter=leave");
    assert_eq!(untouched["outcome"], "measured");
    assert!(count(untouched, "server", "ack_filter", "ack_filter_held_acks").is_none());
}

#[test]
fn low_water_and_delay_are_of_sockets_that_stand() {
    if !able() {
        return;
    }
    let place = Place::new();
    let cells = r#"
[[cells]]
name = "low water"
"server.rcvlowat" = "16KiB"
[[cells]]
name = "delay"
"server.ack_delay" = "40ms"
[[cells]]
name = "delay too long"
"server.ack_delay" = "400ms"
[[cells]]
name = "delay of crr"
workload = "crr"
"server.ack_delay" = "40ms"
"#;
    let records = run(&place, "[bed]\nkind = \"netns\"", cells);
    assert_eq!(cell(&records, "low water")["outcome"], "measured");
    let skipped = |name: &str, reason: &str| {
        let record = cell(&records, name);
        let said = record["reason"].as_str().unwrap_or_default();
        assert!(said.starts_with(reason), "{name}: {record}");
    };
    // Linux before 6.15 has no such option, which is a skip too.
    let delay = cell(&records, "delay");
    if delay["outcome"] != "measured" {
        skipped("delay", "server.ack_delay: TCP_DELACK_MAX_US: ");
    }
    skipped("delay too long", "server.ack_delay: TCP_DELACK_MAX_US: ");
    skipped(
        "delay of crr",
        "server.ack_delay: only for connections that stay open",
    );
}

#[test]
fn what_no_kernel_can_do_is_a_skip_with_its_reason() {
    if !able() {
        return;
    }
    let place = Place::new();
    let cells = r#"
[[cells]]
name = "exactly"
"server.ack_policy" = "exactly"
[[cells]]
name = "every without quickack"
"server.ack_policy" = "every"
"server.quickack" = "off"
[[cells]]
name = "every with gro"
"server.ack_policy" = "every"
"server.gro" = "on"
[[cells]]
name = "every and a filter"
"server.ack_policy" = "every"
"server.ack_filter" = 3
[[cells]]
name = "on loopback"
bed = "loopback"
"server.ack_filter" = 3
"client.ack_filter" = 3
"#;
    let records = run(&place, "", cells);
    for (name, reason) in [
        (
            "exactly",
            "server.ack_policy: the kernel's TCP has no policy \"exactly\"",
        ),
        ("every without quickack", "server.quickack: "),
        ("every with gro", "server.gro: "),
        ("every and a filter", "server.ack_filter: "),
        (
            "on loopback",
            "client.ack_filter: only for a bed's own device",
        ),
    ] {
        let record = cell(&records, name);
        assert_eq!(record["outcome"], "skipped", "{name}: {record}");
        let said = record["reason"].as_str().unwrap();
        assert!(said.starts_with(reason), "{name}: {said}");
    }
}

#[test]
fn quick_keeps_what_the_study_says_and_resumes_as_it_began() {
    let place = Place::new();
    let study = "[workload]\n[bed]\nkind = \"loopback\"\n[vary]\nflows = [1, 2, 4]\n[measure]\nothers_max = \"100%\"\n\
                 [quick]\nduration = \"30ms\"\nwarm_up = \"10ms\"\nrepetitions = 1\n[quick.keep]\nflows = [1, 4]\n";
    let file = place.write("s.toml", study);
    let plan = place.run(&["run", &file, "--quick", "--dry-run"]);
    assert!(
        plan.stdout.contains("2 cells, 1 repetitions of 30ms"),
        "{plan:?}"
    );
    let ran = place.run(&["run", &file, "--quick", "--out", "out"]);
    assert_eq!(place.records_of_work("out").len(), 2, "{ran:?}");
    let again = place.run(&["run", "--resume", "out"]);
    assert_eq!(place.records_of_work("out").len(), 2, "{again:?}");
}
