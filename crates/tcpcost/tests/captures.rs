//! Captures of a study: `tcpcost trace` of each agrees with the stack's counters and with eBPF.
//! Also: the begin of a connection from 2005. Namespaces and eBPF need root; without it the
//! tests are skipped.

mod common;

use std::collections::BTreeMap;

use common::{Place, able, environment};
use serde_json::Value;
use tcpcost_testbed::{has_cpus, skip};

type Counts = BTreeMap<String, u64>;

/// Delay between the time stamp of a packet (when it is queued) and its count (when it is taken
/// in): some µs on an idle CPU, some time slices where ksoftirqd waits. Traffic rests longer than
/// that before the meters are read.
const APART_NS: u64 = 100_000_000;

/// A packet that is sent is counted some µs before its time stamp. Connections end 10 ms after the
/// last reading.
const AFTER_NS: u64 = 5_000_000;

/// Counts of an end between two times, by `tcpcost trace` of a capture.
fn told(place: &Place, file: &str, address: &str, mss: u64, from_ns: u64, until_ns: u64) -> Counts {
    let ran = place.run(&[
        "trace",
        file,
        "--from",
        &format!("@{from_ns}"),
        "--until",
        &format!("@{until_ns}"),
        "--mss",
        &mss.to_string(),
        "--format=json",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    let mut sums = Counts::new();
    for connection in document["captures"][0]["connections"].as_array().unwrap() {
        let ends = connection["ends"].as_array().unwrap();
        let is_it = |end: &&Value| end["address"].as_str().unwrap().starts_with(address);
        let end = ends.iter().find(is_it).unwrap();
        let other = ends.iter().find(|end| !is_it(end)).unwrap();
        for (name, count) in end["quantities"].as_object().unwrap() {
            *sums.entry(name.clone()).or_default() += count.as_u64().unwrap();
        }
        // Namespaces count packets as the capture shows them.
        for (name, from, of) in [
            ("captured_packets_received", other, "captured_packets"),
            ("data_skbs_sent", end, "captured_data_packets"),
            ("data_skbs_received", other, "captured_data_packets"),
        ] {
            let count = from["sent"][of].as_u64().unwrap();
            *sums.entry(name.to_string()).or_default() += count;
        }
    }
    sums
}

/// Growth of a meter's counts, under the names of the capture.
fn counted(end: &Value, meter: &str) -> Counts {
    let readings = end["readings"].as_array().unwrap();
    let Some(reading) = readings.iter().find(|reading| reading["meter"] == meter) else {
        return Counts::new();
    };
    let of = |name: &str| reading["counts"][name].as_u64();
    let mut counts = Counts::new();
    match meter {
        "netstat" => {
            let sent = of("segments_sent").unwrap() + of("segments_retransmitted").unwrap();
            counts.insert("conn_segments_sent".into(), sent);
            let received = of("super_segments_received").unwrap();
            counts.insert("captured_packets_received".into(), received);
        }
        "tcp_info" => {
            for name in [
                "conn_segments_sent",
                "conn_segments_received",
                "conn_data_segments_sent",
                "conn_data_segments_received",
                "conn_bytes_sent",
            ] {
                counts.insert(name.into(), of(name).unwrap());
            }
        }
        "segments" => {
            for name in [
                "data_wire_segments_sent",
                "data_wire_segments_received",
                "pure_acks_sent",
                "pure_acks_received",
                "data_skbs_sent",
                "data_skbs_received",
            ] {
                counts.insert(name.into(), of(name).unwrap());
            }
        }
        other => panic!("{other}"),
    }
    counts
}

/// Name in the capture for a count. The kernel, and eBPF after it, count a super-segment from a TAP
/// as one received segment, because its skb does not say how many segments it holds (SKB_GSO_DODGY,
/// drivers/net/tun.c).
fn word(name: &str, by_tap: bool) -> &str {
    match name {
        "conn_segments_received" if by_tap => "captured_packets_received",
        "conn_data_segments_received" | "data_wire_segments_received" if by_tap => {
            "data_skbs_received"
        }
        name => name,
    }
}

/// Compares the growth of a meter between its two readings with the capture. A packet that passes
/// during a reading may be counted or not: the growth must be between the capture's counts without
/// and with such packets. Returns true if there were none and all counts are equal.
///
/// eBPF alone may have less, which is printed: it missed some when other load was on its CPU.
fn check(place: &Place, record: &Value, end: &str, meter: &str, brackets: &str) -> bool {
    let by_tap = record["cell"].as_str().unwrap().starts_with("ours answers") && end == "client";
    let of = &record["hosts"][end];
    let counted = counted(of, meter);
    let address = if end == "client" {
        "10.0.0.1:"
    } else {
        "10.0.0.2:"
    };
    let file = place
        .path("out")
        .join(of["capture"]["file"].as_str().unwrap());
    let file = file.to_str().unwrap();
    let mss = environment(record, end)["mss"].as_u64().unwrap();
    let at = |name: &str| of["capture"][brackets][name].as_u64().unwrap();
    let least = told(
        place,
        file,
        address,
        mss,
        at("first_end_ns") + APART_NS,
        at("second_begin_ns") - APART_NS,
    );
    let most = told(
        place,
        file,
        address,
        mss,
        at("first_begin_ns") - APART_NS,
        at("second_end_ns") + AFTER_NS,
    );
    // A machine that stands still for a whole interval has no packets in it.
    let captured = |told: &Counts, name| told.get(word(name, by_tap)).copied().unwrap_or(0);
    let is_quiet = counted
        .keys()
        .all(|name| captured(&least, name) == captured(&most, name));
    let mut is_exact = is_quiet && !counted.is_empty();
    for (name, count) in &counted {
        let (least, most) = (captured(&least, name), captured(&most, name));
        let what = format!("{end} {meter} {name}: {count}, captured {least} to {most}");
        if meter == "segments" && *count < least {
            eprintln!("{what}");
            is_exact = false;
        } else {
            assert!((least..=most).contains(count), "{what}: {record}");
        }
    }
    is_exact
}

/// Compares the record's counts of a capture with `tcpcost trace` of the file over the same
/// interval.
fn check_record(place: &Place, record: &Value, end: &str) {
    let of = &record["hosts"][end];
    let address = if end == "client" {
        "10.0.0.1:"
    } else {
        "10.0.0.2:"
    };
    let capture = &of["capture"];
    let file = place.path("out").join(capture["file"].as_str().unwrap());
    let at = |name: &str| capture["snapshots"][name].as_u64().unwrap();
    let mss = environment(record, end)["mss"].as_u64().unwrap();
    let (from_ns, until_ns) = (at("first_end_ns"), at("second_begin_ns"));
    let told = told(
        place,
        file.to_str().unwrap(),
        address,
        mss,
        from_ns,
        until_ns,
    );
    let readings = of["readings"].as_array().unwrap();
    let trace = readings.iter().find(|one| one["meter"] == "trace").unwrap();
    for name in [
        "conn_segments_sent",
        "conn_segments_received",
        "conn_bytes_sent",
        "data_wire_segments_sent",
        "data_wire_segments_received",
        "pure_acks_sent",
        "pure_acks_received",
        "data_skbs_sent",
        "data_skbs_received",
    ] {
        assert_eq!(
            trace["counts"][name].as_u64(),
            told.get(name).copied(),
            "{end} {name}: {record}"
        );
    }
    assert_eq!(trace["duration_ns"], until_ns - from_ns);
}

const TRIALS: usize = 3;

/// Runs these cells with captures, at so low a rate that both ends rest while meters are read: a
/// transaction every 250 ms, the meters halfway between two of them.
fn run(place: &Place, cells: &str) -> Vec<Value> {
    let study = format!(
        r#"
[workload]
kind = "rr"
request_size = "128B"
response_size = "16KiB"
transaction_rate = "4/s"
{cells}
[measure]
meters = ["netstat", "tcp_info", "segments"]
warm_up = "175ms"
duration = "1s"
repetitions = 1
retries = 0
others_max = "100%"
[measure.capture]
trials = {TRIALS}
duration = "1s"
"#
    );
    let study = place.write("captures.toml", &study);
    let ran = place.run(&["run", &study, "--out", "out", "--quiet"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let records = place.records("out").into_iter();
    records
        .filter(|record| record["captured"] == true)
        .collect()
}

/// False if the trials were skipped because libpcap is not available.
fn has_captures(records: &[Value]) -> bool {
    let skipped = |record: &&Value| record["outcome"] == "skipped";
    match records.iter().find(skipped) {
        Some(record) => {
            skip(record["reason"].as_str().unwrap());
            false
        }
        None => true,
    }
}

fn agree(records: &[Value], place: &Place, kernels: &dyn Fn(&str, &str) -> bool) {
    let mut quiet = BTreeMap::new();
    let mut by_ebpf = 0;
    for record in records {
        assert_eq!(record["outcome"], "measured", "{record}");
        for end in ["client", "server"] {
            check_record(place, record, end);
            let cell = record["cell"].as_str().unwrap();
            let mut meters = vec![("tcp_info", "tcp_info")];
            if kernels(cell, end) {
                meters.extend([("netstat", "snapshots"), ("segments", "snapshots")]);
                assert_eq!(record["hosts"][end]["capture"]["dropped"], 0, "{record}");
            }
            for (meter, brackets) in meters {
                let exactly = check(place, record, end, meter, brackets);
                by_ebpf += usize::from(exactly && meter == "segments");
                *quiet.entry(meter).or_insert(0) += usize::from(exactly);
            }
        }
    }
    if by_ebpf == 0 {
        skip("eBPF: the meter \"segments\" cannot be had");
        quiet.retain(|meter, _| *meter != "segments");
    }
    // A loaded machine reads some meters late, when a FIN falls into the reading.
    for (of, exactly) in quiet {
        assert!(
            exactly > 0,
            "{of}: no trial of any cell was idle while its meters were read"
        );
    }
}

#[test]
fn over_veth_a_studys_captures_agree_with_the_kernel_and_with_ebpf() {
    if !able() {
        return;
    }
    let place = Place::new();
    let cells =
        "[[cells]]\nname = \"tso\"\n[[cells]]\nname = \"per-mss\"\nsegmentation = \"per-mss\"\n";
    let records = run(&place, cells);
    assert_eq!(records.len(), 2 * TRIALS);
    if has_captures(&records) {
        agree(&records, &place, &|_, _| true);
    }
}

#[test]
fn over_a_tap_a_studys_captures_agree_with_the_kernel_our_tcp_and_ebpf() {
    if !able() {
        return;
    }
    if !std::path::Path::new("/dev/net/tun").exists() {
        return skip("needs /dev/net/tun");
    }
    let place = Place::new();
    let cells = "[[cells]]\nname = \"ours asks\"\n\"client.stack\" = \"user\"\n\
         \"client.ack_policy\" = \"exactly\"\n\
         [[cells]]\nname = \"ours answers\"\n\"server.stack\" = \"user\"\n";
    let records = run(&place, cells);
    assert_eq!(records.len(), 2 * TRIALS);
    if has_captures(&records) {
        let is_kernels = |cell: &str, end: &str| cell.starts_with("ours asks") == (end == "server");
        agree(&records, &place, &is_kernels);
    }
}

#[test]
fn loopback_and_memory_are_captured_too_and_the_costs_are_of_the_other_trials() {
    let place = Place::new();
    let study = place.write(
        "s.toml",
        "[workload]\nkind = \"rr\"\nplacement = \"same-cpu\"\n\
         [[cells]]\nname = \"lo\"\nbed = \"loopback\"\n[[cells]]\nname = \"memory\"\nstack = \"user\"\n\
         [measure]\nmeters = [\"rusage\"]\nwarm_up = \"5ms\"\nduration = \"20ms\"\nrepetitions = 2\n",
    );
    let ran = place.run(&[
        "run",
        &study,
        "--capture",
        "--out",
        "out",
        "--format=json",
        "--quiet",
    ]);
    let records = place.records("out");
    assert_eq!(records.len(), 6, "{ran:?}");
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    let names: Vec<&Value> = summary["cells"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cell| &cell["name"])
        .collect();
    assert_eq!(names, ["lo", "memory"]);
    for (record, captured) in records
        .iter()
        .map(|record| (record, record["captured"] == true))
    {
        if record["outcome"] == "skipped" {
            assert!(captured && record["reason"].as_str().unwrap().starts_with("capture: "));
            skip(record["reason"].as_str().unwrap());
            continue;
        }
        assert_eq!(record["outcome"], "measured", "{record}");
        for end in ["client", "server"] {
            let capture = &record["hosts"][end]["capture"];
            assert_eq!(capture.is_object(), captured, "{record}");
            if captured {
                let file = place.path("out").join(capture["file"].as_str().unwrap());
                let bytes = std::fs::read(file).unwrap();
                let comment = format!(
                    "cell \"{}\", repetition 0, {end}",
                    &record["cell"].as_str().unwrap().replace(", captured", "")
                );
                assert!(
                    String::from_utf8_lossy(&bytes[..400]).contains(&comment),
                    "{comment}"
                );
                assert!(capture["packets"].as_u64() > Some(0));
            }
        }
    }
    for cell in summary["cells"].as_array().unwrap() {
        assert_eq!(cell["n"], 2, "of the trials that were not captured");
        assert_eq!(cell["estimates"]["transactions_per_s"]["n"], 2);
        if cell["skipped"].as_object().unwrap().is_empty() {
            assert_eq!(cell["estimates"]["captured_data_burst_segments"]["n"], 1);
        }
    }
}

/// Compares with Jones's trace of 2005, in real time between two threads: the published ACKs and
/// bursts.
#[test]
fn on_the_real_link_a_pair_of_2005_begins_as_published() {
    if !has_cpus(2) {
        return;
    }
    let place = Place::new();
    let study = place.write(
        "s.toml",
        // Same knobs as studies/ack-bursts.toml, but no ACK timer fires before the sender's own.
        "[workload]\nkind = \"rr\"\nrequest_size = \"128B\"\nresponse_size = \"16KiB\"\n\
         congestion_control = \"reno\"\ntransaction_rate = \"200/s\"\n\
         [bed]\nstack = \"user\"\nreceive_batch = 1\n\
         [bed.client]\nack_policy = \"avoidance\"\nack_limit_initial = 0\nack_delay = \"199ms\"\n\
         [bed.server]\ninitial_window = 3\nwindow_growth = \"per-ack\"\nsuper_segment = \"0B\"\n\
         tail_loss_probe = \"off\"\n\
         [measure]\nmeters = [\"rusage\"]\nwarm_up = \"60ms\"\nduration = \"60ms\"\nrepetitions = 1\nothers_max = \"100%\"\n\
         [measure.capture]\ntrials = 20\n",
    );
    let ran = place.run(&["run", &study, "--out", "out", "--quiet"]);
    let records = place.records("out").into_iter();
    let captured: Vec<Value> = records
        .filter(|record| record["captured"] == true)
        .collect();
    // A busy machine flags some trials, which are repeated.
    assert!(captured.len() >= 20, "{ran:?}");
    let acks = serde_json::json!([[1, 2, 3, 4], [5, 6], [7], [8]]);
    let bursts = serde_json::json!([[3, 2, 3, 4], [7, 5], [8, 4], [9, 3]]);
    let mut whole = 0;
    for record in captured {
        for end in ["client", "server"] {
            let opening = &record["hosts"][end]["capture"]["opening"];
            let found = opening["client"]["pure_acks"].as_array().unwrap();
            // An end that had no CPU for long has fewer ACKs to show.
            if found.len() > 4 {
                assert_eq!(found[..4], acks.as_array().unwrap()[..], "{end} {record}");
                // Bursts that an ACK releases are reported at the end that releases them.
                if end == "server" {
                    let found = opening["server"]["data_bursts"].as_array().unwrap();
                    assert_eq!(found[..4], bursts.as_array().unwrap()[..], "{record}");
                    whole += 1;
                }
            }
        }
    }
    assert!(whole > 0, "none of 20 captures has four transactions");
}
