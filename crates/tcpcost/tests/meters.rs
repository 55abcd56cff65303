//! Meters that need privileges: what they count in a trial, and that a trial goes on without them.

mod common;

use std::os::unix::process::CommandExt;

#[cfg(feature = "bpf")]
use common::able;
use common::{Place, Ran, count};

const STUDY: &str = r#"
[bed]
kind = "netns"
[workload]
kind = "stream"
client_cpus = [0]
server_cpus = [1]
[measure]
warm_up = "50ms"
duration = "200ms"
repetitions = 1
others_max = "100%"
"#;

/// The warnings of a record, one line each.
fn warnings(record: &serde_json::Value) -> String {
    let warnings = record["warnings"].as_array().cloned().unwrap_or_default();
    let texts = warnings
        .iter()
        .map(|warning| warning["text"].as_str().unwrap().to_string() + "\n");
    texts.collect()
}

#[cfg(feature = "bpf")]
#[test]
fn exact_time_adds_up_and_is_by_end_and_context() {
    if !able() {
        return;
    }
    let place = Place::new();
    let text = STUDY.replace("[measure]", "[measure]\nmeters = [\"exact\"]");
    let study = place.write("exact.toml", &text);
    let ran = place.run(&["run", &study, "--out", "out"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let record = &place.records("out")[0];
    let warnings = warnings(record);
    if warnings.contains("meter exact: ") {
        return common::skip(&warnings);
    }
    assert!(!warnings.contains("accounts for"), "{warnings}");
    for end in ["client", "server"] {
        let own = count(record, end, "exact", "exact_task_own_ns");
        let net_rx = count(record, end, "exact", "exact_softirq_net_rx_ns");
        assert!(own > 0 && net_rx > 0, "{record}");
        let readings = record["ends"][end]["readings"].as_array().unwrap();
        for reading in readings
            .iter()
            .filter(|reading| reading["meter"] == "exact")
        {
            let counts = reading["counts"].as_object().unwrap().values();
            let sum: u64 = counts.map(|count| count.as_u64().unwrap()).sum();
            let wall = reading["duration_ns"].as_u64().unwrap();
            assert!(
                sum.abs_diff(wall) < wall / 1000,
                "{sum} of {wall}: {reading}"
            );
        }
    }
}

/// Each end counts its own namespace: the client sends the data, the server the ACKs.
#[cfg(feature = "bpf")]
#[test]
fn segments_are_counted_by_end() {
    if !able() {
        return;
    }
    let place = Place::new();
    let text = STUDY.replace("[measure]", "[measure]\nmeters = [\"segments\"]");
    let study = place.write("segments.toml", &text);
    let ran = place.run(&["run", &study, "--out", "out"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let record = &place.records("out")[0];
    if warnings(record).contains("meter segments: ") {
        return common::skip(&warnings(record));
    }
    let of = |end, quantity| count(record, end, "segments", quantity);
    assert!(of("client", "data_skb_bytes_sent") > 0, "{record}");
    assert!(of("server", "data_skb_bytes_received") > 0, "{record}");
    assert!(of("server", "pure_acks_sent") > 0, "{record}");
    assert_eq!(of("server", "data_skbs_sent"), 0, "{record}");
    assert_eq!(of("client", "data_skbs_received"), 0, "{record}");
}

#[test]
fn without_the_privilege_a_trial_is_measured_by_the_other_meters() {
    let place = Place::new();
    let text = STUDY
        .replace("netns", "loopback")
        .replace("server_cpus = [1]", "server_cpus = [0]")
        .replace("[measure]", "[measure]\nmeters = [\"proc\", \"exact\"]");
    let study = place.write("refused.toml", &text);
    let mut command = place.command(&["run", &study, "--out", "out"]);
    // SAFETY: prctl is async-signal-safe and takes no pointers here. What is dropped from the bounding
    // set is lost at exec, for root too; without root it fails, and there is nothing to drop.
    unsafe {
        command.pre_exec(|| {
            for capability in [CAP_SYS_ADMIN, CAP_PERFMON, CAP_BPF] {
                libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
            }
            Ok(())
        });
    }
    let ran = Ran::from(command.output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let record = &place.records("out")[0];
    assert_eq!(record["outcome"], "measured", "{record}");
    count(record, "client", "proc", "cpu_idle_ns");
    let warnings = warnings(record);
    assert_eq!(warnings.matches("meter exact: ").count(), 1, "{warnings}");
    let expected = if cfg!(feature = "bpf") {
        "load: Operation not permitted (needs CAP_BPF and CAP_PERFMON; or drop \"exact\" from meters)"
    } else {
        "built without eBPF"
    };
    assert!(warnings.contains(expected), "{warnings}");
}

/// linux/capability.h.
const CAP_SYS_ADMIN: libc::c_ulong = 21;
const CAP_PERFMON: libc::c_ulong = 38;
const CAP_BPF: libc::c_ulong = 39;
