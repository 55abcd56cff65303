//! Meters that need privileges: their counts in a trial, and trials that continue without them.

mod common;

use std::os::unix::process::CommandExt;

#[cfg(feature = "bpf")]
use common::able;
use common::{MEASURE, Place, Ran, STUDY, count};
#[cfg(feature = "bpf")]
use tcpcost_testbed::until;

/// Warnings of a record, one line each.
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
        return tcpcost_testbed::skip(&warnings);
    }
    assert!(!warnings.contains("accounts for"), "{warnings}");
    for end in ["client", "server"] {
        let own = count(record, end, "exact", "exact_task_own_ns");
        let net_rx = count(record, end, "exact", "exact_softirq_net_rx_ns");
        assert!(own > 0 && net_rx > 0, "{record}");
        let readings = record["hosts"][end]["readings"].as_array().unwrap();
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

/// Meters of a record's client, without those that come by themselves.
fn asked_meters(record: &serde_json::Value) -> Vec<String> {
    let readings = record["hosts"]["client"]["readings"].as_array().unwrap();
    let meters = readings.iter().map(|reading| &reading["meter"]);
    let mut meters: Vec<String> = meters
        .map(|meter| meter.as_str().unwrap().to_string())
        .filter(|meter| !["workload", "set_up", "vmstat", "self"].contains(&&**meter))
        .collect();
    meters.sort_unstable();
    meters.dedup();
    meters
}

#[test]
fn meters_of_the_command_line_are_those_of_a_resumed_run_too() {
    let place = Place::new();
    let text =
        format!("[bed]\nkind = \"loopback\"\n{MEASURE}meters = [\"netstat\", \"tcp_info\"]\n");
    let study = place.write("few.toml", &text);
    let changed = "--meters=+rusage,-tcp_info";
    let ran = place.run(&["run", &study, "--dry-run", changed]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stdout.ends_with("\nmeters: netstat, rusage\n"),
        "{ran:?}"
    );
    let unchanged = place.run(&["run", &study, "--dry-run"]);
    assert!(!unchanged.stdout.contains("meters"), "{unchanged:?}");

    let out = ["--out", "out", "--quiet", "-n", "2"];
    let run = || place.run(&[&["run", &study, changed], &out[..]].concat());
    let ran = place.in_time(run);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // Without its last record the run goes on with this trial.
    let records = place.path("out/records.jsonl");
    let lines = std::fs::read_to_string(&records).unwrap();
    let first = lines.split_inclusive('\n').next().unwrap();
    std::fs::write(&records, first).unwrap();
    let resumed = place.run(&["run", "--resume", "out", "--quiet"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    let records = place.records_of_work("out");
    assert_eq!(records.len(), 2, "{records:?}");
    for record in &records {
        assert_eq!(asked_meters(record), ["netstat", "rusage"], "{record}");
    }
    let both = place.run(&["run", "--resume", "out", "--meters=exact"]);
    assert_eq!(both.code, Some(2), "{both:?}");
}

#[test]
fn a_meter_that_a_study_cannot_have_is_one_line() {
    let place = Place::new();
    for (list, expected) in [
        ("exakt", "no such meter \"exakt\"; nearest is \"exact\""),
        (
            "+segmnts",
            "no such meter \"segmnts\"; nearest is \"segments\"",
        ),
        (
            "emulator",
            "a study cannot ask for the meter \"emulator\"; known: proc, rusage, ",
        ),
        ("exact,+soak", "expected names, or a + or a - before each"),
        (
            "-proc,-rusage,-netstat,-tcp_info,-tsc,-others,-exact",
            "expected at least one meter: none is left",
        ),
    ] {
        // A word that begins with - is a value, not an option.
        let ran = place.run(&["run", "write-size", "--dry-run", "--meters", list]);
        assert_eq!((ran.code, &*ran.stdout), (Some(2), ""), "{ran:?}");
        let line = format!("tcpcost: --meters {list}: {expected}");
        assert!(ran.stderr.starts_with(&line), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    }
}

/// CPU time by owner is measured on loopback, on a shared CPU and with our own TCP, but not if hosts have
/// CPUs of their own or if one thread is both hosts.
#[cfg(feature = "bpf")]
#[test]
fn hosts_that_share_cpus_have_exact_time_by_owner() {
    if !able() {
        return;
    }
    let place = Place::new();
    let study = place.write("owners.toml", &(OWNERS.to_string() + MEASURE));
    let ran = place.in_time(|| {
        let command = place.command(&["run", &study, "--out", "out", "--format=json"]);
        // Mounted where today's distributions have it: in the namespaces of a bed another /sys covers it. A host that
        // has cgroup v1, too, mounts it one folder lower.
        let command = common::with_mounted(command, c"cgroup2", c"/sys/fs/cgroup");
        Ran::from({ command }.output().unwrap())
    });
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let records = place.records("out");
    let refused: String = records.iter().map(warnings).collect();
    // A kernel may lack what they need; a place that is not found is our error.
    if refused.contains("meter exact: load: ") {
        return tcpcost_testbed::skip(&refused);
    }
    let summary: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    for cell in summary["cells"].as_array().unwrap() {
        let name = cell["name"].as_str().unwrap();
        let record = records.iter().find(|record| record["cell"] == name);
        let record = record.unwrap();
        assert_eq!(record["outcome"], "measured", "{record}");
        if name.starts_with("no owners") {
            assert!(!record.to_string().contains("holder_task_ns"), "{record}");
            continue;
        }
        let unit = match name.contains("rr") {
            true => "transaction",
            false => "kib",
        };
        let figure = |whose: &str| {
            let found = cell["estimates"][format!("{whose}_cpu_us_per_{unit}")]["median"].as_f64();
            found.unwrap_or_else(|| panic!("{whose}: {cell}"))
        };
        let [client, server] = ["client_owned", "server_owned"].map(figure);
        let (all, none) = (figure("exact"), figure("unowned"));
        assert!(client > 0.0 && server > 0.0, "{cell}");
        assert!((client + server + none - all).abs() < 1e-6 * all, "{cell}");
        // The hosts take their snapshots some µs apart.
        assert!(none > -0.01 * all, "{cell}");
        let of = |host, quantity| count(record, host, "exact", quantity) as f64;
        for host in ["client", "server"] {
            let is_ours = name == "ours" && host == "client";
            assert!(is_ours || of(host, "holder_softirq_ns") > 0.0, "{record}");
        }
        // The trial has no other process but the command, which sleeps. On a busy machine the hosts take their snapshots some ms
        // apart: shares of each host's own interval are compared.
        let tasks = held_by_tasks(record, "client") + held_by_tasks(record, "server");
        let own = own_tasks(record);
        assert!(
            (0.8..1.25).contains(&(tasks / own)),
            "{tasks} of {own}: {record}"
        );
    }
}

/// CPUs that a host's tasks kept busy while its meters ran.
#[cfg(feature = "bpf")]
fn held_by_tasks(record: &serde_json::Value, host: &str) -> f64 {
    let readings = record["hosts"][host]["readings"].as_array().unwrap();
    let held = readings.iter().filter_map(|reading| {
        let held = reading["counts"]["holder_task_ns"].as_f64()?;
        Some(held / reading["duration_ns"].as_f64().unwrap())
    });
    held.sum()
}

/// CPUs that the trial's tasks kept busy, with each CPU counted once.
#[cfg(feature = "bpf")]
fn own_tasks(record: &serde_json::Value) -> f64 {
    let hosts = record["hosts"].as_object().unwrap().values();
    let readings = hosts.flat_map(|host| host["readings"].as_array().unwrap());
    let mut by_cpu = std::collections::BTreeMap::new();
    for reading in readings {
        if let (Some(cpu), Some(own)) = (
            reading["whose"]["cpu"].as_u64(),
            reading["counts"]["exact_task_own_ns"].as_f64(),
        ) {
            let share = own / reading["duration_ns"].as_f64().unwrap();
            by_cpu.entry(cpu).or_insert(share);
        }
    }
    by_cpu.into_values().sum()
}

#[cfg(feature = "bpf")]
const OWNERS: &str = r#"
[[cells]]
name = "stream"
bed = "loopback"
workload = "stream"
[[cells]]
name = "rr, 3 connections in 2 threads"
bed = "loopback"
workload = "rr"
flows = 3
threads = 2
[[cells]]
name = "crr on one CPU"
bed = "netns"
workload = "crr"
client_cpus = [0]
server_cpus = [0]
[[cells]]
name = "ours"
bed = "tap"
workload = "stream"
"client.stack" = "user"
client_cpus = [0]
server_cpus = [0]
[[cells]]
name = "no owners: CPUs of their own"
bed = "netns"
workload = "stream"
client_cpus = [0]
server_cpus = [1]
[[cells]]
name = "no owners: one thread"
bed = "netns"
workload = "stream"
placement = "one-thread"
"#;

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
        return tcpcost_testbed::skip(&warnings(record));
    }
    let of = |end, quantity| count(record, end, "segments", quantity);
    assert!(of("client", "data_skb_bytes_sent") > 0, "{record}");
    assert!(of("server", "data_skb_bytes_received") > 0, "{record}");
    assert!(of("server", "pure_acks_sent") > 0, "{record}");
    assert_eq!(of("server", "data_skbs_sent"), 0, "{record}");
    assert_eq!(of("client", "data_skbs_received"), 0, "{record}");
}

/// Compares counts by connection with the namespace's counts (at least) and with TCP_INFO (at
/// most).
#[cfg(feature = "bpf")]
#[test]
fn segments_are_spread_over_connections_where_the_study_asks() {
    if !able() {
        return;
    }
    let place = Place::new();
    let text = STUDY
        .replace("[workload]", "[workload]\nflows = 5\nthreads = 1")
        .replace(
            "[measure]",
            "[measure]\nmeters = [\"tcp_info\", \"segments\"]\nby_connection = true",
        );
    let study = place.write("spread.toml", &text);
    let ran = place.run(&["run", &study, "--out", "out"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let record = &place.records("out")[0];
    if warnings(record).contains("meter segments: ") {
        return tcpcost_testbed::skip(&warnings(record));
    }
    for end in ["client", "server"] {
        let spread = &record["hosts"][end]["by_connection"];
        assert_eq!(spread["connections"], 5, "{record}");
        let readings = record["hosts"][end]["readings"].as_array().unwrap();
        let of_segments = readings.iter().find(|one| one["meter"] == "segments");
        let inner = of_segments.unwrap()["duration_ns"].as_u64();
        assert!(spread["duration_ns"].as_u64() >= inner, "{record}");
        let of = |quantity: &str, which: &str| {
            let count = spread["quantities"][quantity][which].as_u64();
            count.unwrap_or_else(|| panic!("{quantity} {which}: {spread}"))
        };
        let sent = ["data_wire_segments_sent", "pure_acks_sent"];
        let by_connection: u64 = sent.iter().map(|quantity| of(quantity, "sum")).sum();
        let by_namespace: u64 = sent
            .iter()
            .map(|quantity| count(record, end, "segments", quantity))
            .sum();
        let by_tcp_info = count(record, end, "tcp_info", "conn_segments_sent");
        // One super-segment on each CPU may be between the two counts.
        let way = 2 * 65;
        assert!(
            (by_namespace..=by_tcp_info + way).contains(&(by_connection + way / 2)),
            "{by_namespace} {by_connection} {by_tcp_info}"
        );
        let data = match end {
            "client" => "data_skb_bytes_sent",
            _ => "data_skb_bytes_received",
        };
        let [min, median, max, sum] = ["min", "median", "max", "sum"].map(|which| of(data, which));
        assert!(min <= median && median <= max, "{spread}");
        assert!((5 * min..=5 * max).contains(&sum) && sum > 0, "{spread}");
    }
}

/// Both ends are on this host: the client reads the programs that the server has loaded.
#[cfg(feature = "bpf")]
#[test]
fn two_ends_share_a_copy_of_the_programs_and_none_is_left_when_it_goes() {
    if !able() {
        return;
    }
    let place = Place::new();
    let text = STUDY.replace("[measure]", "[measure]\nmeters = [\"exact\", \"segments\"]");
    let study = place.write("share.toml", &text);
    let ran = place.run(&["run", &study, "--out", "probe"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let warnings = warnings(&place.records("probe")[0]);
    if warnings.contains("meter ") {
        return tcpcost_testbed::skip(&warnings);
    }
    let started = place.start(&["run", &study, "--out", "out", "--duration", "60s"]);
    // Meters are loaded before the first connection.
    let is_connected = |agent: &i32| {
        let table = std::fs::read_to_string(format!("/proc/{agent}/net/tcp")).unwrap_or_default();
        table.lines().any(|line| line.contains(ESTABLISHED))
    };
    let agents = until("two agents with a connection", || {
        let agents = started.agents();
        (agents.len() == 2 && agents.iter().all(is_connected)).then_some(agents)
    });
    // Programs are not yet attached at that time.
    let owners = until("attached programs", || {
        let owners: Vec<i32> = agents
            .iter()
            .copied()
            .filter(|&agent| !links(agent).is_empty())
            .collect();
        (!owners.is_empty()).then_some(owners)
    });
    assert_eq!(owners.len(), 1, "one of them attached the programs");
    let ids = links(owners[0]);
    assert!(ids.iter().all(|&id| is_link(id)), "{ids:?}");
    // SAFETY: a child of the command that we started; if another one replaced it, this fails
    // harmlessly.
    unsafe { libc::kill(owners[0], libc::SIGKILL) };
    // The kernel removes a link a moment after its last descriptor is closed.
    until("the end of the links", || {
        (!ids.iter().any(|&id| is_link(id))).then_some(())
    });
    // The failed trial would be repeated; the test does not wait for that.
    started.signal(libc::SIGINT);
    assert_eq!(started.end().code, Some(130));
}

/// State of a connection in /proc/net/tcp, between its addresses and its queues: TCP_ESTABLISHED.
#[cfg(feature = "bpf")]
const ESTABLISHED: &str = " 01 ";

/// Ids of the eBPF links that threads of a process hold.
#[cfg(feature = "bpf")]
fn links(process: i32) -> Vec<u32> {
    let mut ids = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        let Ok(files) = std::fs::read_dir(task.unwrap().path().join("fdinfo")) else {
            continue;
        };
        for file in files {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap_or_default();
            let id = text.lines().find_map(|line| line.strip_prefix("link_id:"));
            ids.extend(id.map(|id| id.trim().parse::<u32>().unwrap()));
        }
    }
    ids
}

/// True if the kernel has a link of this id.
#[cfg(feature = "bpf")]
fn is_link(id: u32) -> bool {
    // SAFETY: union bpf_attr of BPF_LINK_GET_FD_BY_ID (30) begins with the id, and the rest is 0. A
    // descriptor that it returns is ours to close.
    unsafe {
        let attributes = [id, 0, 0, 0];
        let length = size_of_val(&attributes);
        let fd = libc::syscall(libc::SYS_bpf, 30, attributes.as_ptr(), length);
        fd >= 0 && libc::close(fd as i32) == 0
    }
}

/// Samples each end's own CPU; the report makes layers, costs and pictures of the chains without
/// any privilege.
#[cfg(feature = "bpf")]
#[test]
fn call_chains_are_of_the_layers_that_a_transfer_passes() {
    if !able() {
        return;
    }
    let place = Place::new();
    let text = STUDY
        .replace("duration = \"300ms\"", "duration = \"1s\"")
        .replace(
            "[measure]",
            "[measure]\nmeters = [\"exact\", \"profile\"]\nprofile_hz = 999",
        );
    let study = place.write("chains.toml", &text);
    let ran = place.run(&["run", &study, "--out", "out", "--format=json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let record = &place.records("out")[0];
    if warnings(record).contains("meter profile: ") {
        return tcpcost_testbed::skip(&warnings(record));
    }
    for (end, cpu) in [("client", 0), ("server", 1)] {
        let profile = &record["hosts"][end]["profile"];
        assert_eq!(profile["cpus"], serde_json::json!([cpu]), "{profile}");
        let interval = record["interval_ns"].as_u64().unwrap();
        let sampled = profile["duration_ns"].as_u64().unwrap();
        // Sampling begins and ends with the snapshots; a busy machine may delay either.
        assert!(
            (interval / 2..interval * 2).contains(&sampled),
            "{sampled} of {interval}"
        );
    }
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let profiles = report["cells"][0]["profiles"].as_array().unwrap();
    let ends: Vec<&str> = profiles
        .iter()
        .filter_map(|one| one["host"].as_str())
        .collect();
    assert_eq!(ends, ["client", "server"], "the bed tells them apart");
    let mut layers = std::collections::BTreeSet::new();
    for profile in profiles {
        let mut sum = 0.0;
        for layer in profile["layers"].as_array().unwrap() {
            assert!(
                layer["cpu_us_per_unit"]["median"].as_f64().unwrap() > 0.0,
                "{layer}"
            );
            sum += layer["share_ratio"]["median"].as_f64().unwrap();
            layers.insert(layer["layer"].as_str().unwrap());
        }
        assert!((sum - 1.0).abs() < 1e-9, "{sum}: {profile}");
    }
    for expected in ["system call and copy", "TCP output", "TCP input and ACK"] {
        assert!(layers.contains(expected), "{layers:?}");
    }
    let drawn = place.run(&["report", "out", "--format=flame", "--cell", "1"]);
    assert!(drawn.stdout.contains("<title>tcp_sendmsg"), "{drawn:?}");
    let same = place.run(&[
        "report",
        "out",
        "--format=flame",
        "--cell",
        "1",
        "--cell",
        "chains",
    ]);
    assert!(
        same.stdout.contains("chains (") && same.stdout.contains("<svg"),
        "{same:?}"
    );
    let wrong = place.run(&["report", "out", "--format=flame", "--cell", "2"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(
        wrong.stderr.contains("no cell \"2\": there are \"chains\""),
        "{wrong:?}"
    );
}

/// The cost of a permanent meter comes from trials with and without it in one run, which may be
/// resumed.
#[test]
fn what_a_meter_costs_is_told_also_by_a_resumed_run() {
    let place = Place::new();
    let text = STUDY
        .replace("netns", "loopback")
        .replace("server_cpus = [1]", "server_cpus = [0]")
        .replace("repetitions = 1", "repetitions = 2")
        .replace("[measure]", "[measure]\nmeters = [\"proc\", \"soak\"]");
    let study = place.write("costs.toml", &text);
    let ran = place.run(&[
        "run",
        &study,
        "--out",
        "out",
        "--meter-cost",
        "--format=json",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let cells = |records: &[serde_json::Value]| -> Vec<String> {
        let names = records
            .iter()
            .map(|record| record["cell"].as_str().unwrap());
        names.map(String::from).collect()
    };
    let records = cells(&place.records("out"));
    assert_eq!(
        records,
        [
            "costs",
            "costs, no standing meter",
            "costs, no standing meter",
            "costs"
        ],
        "neighbours, each first in turn"
    );
    let without = &place.records("out")[1]["hosts"]["client"]["readings"];
    let meters: Vec<&str> = without
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|reading| reading["meter"].as_str())
        .collect();
    assert!(
        meters.contains(&"proc") && !meters.contains(&"soak"),
        "{meters:?}"
    );

    let file = place.path("out").join("records.jsonl");
    let kept = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &kept[..kept.len() - 100]).unwrap();
    let ran = place.run(&["run", "--resume", "out", "--format=json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(cells(&place.records("out")), records);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["cells"].as_array().unwrap().len(), 1, "{report}");
    let cost = &report["meter_costs"];
    assert_eq!(cost.as_array().unwrap().len(), 1, "{cost}");
    assert_eq!(
        (&cost[0]["cell"], &cost[0]["meter"]),
        (&"costs".into(), &"soak".into())
    );
    assert_eq!(cost[0]["quantity"], "goodput_bits_per_s");
    assert_eq!(cost[0]["ratio"]["n"], 2);
    assert!(cost[0]["ratio"]["median"].as_f64().unwrap() > 0.0);
}

#[test]
fn without_the_privilege_a_trial_is_measured_by_the_other_meters() {
    let place = Place::new();
    let text = STUDY
        .replace("netns", "loopback")
        .replace("server_cpus = [1]", "server_cpus = [0]")
        .replace(
            "[measure]",
            "[measure]\nmeters = [\"proc\", \"exact\", \"profile\"]",
        );
    let study = place.write("refused.toml", &text);
    let mut command = place.command(&["run", &study, "--out", "out"]);
    // SAFETY: prctl is async-signal-safe and takes no pointers here. A capability dropped from the
    // bounding set is lost at exec, for root too; without root the call fails, and there is nothing
    // to drop.
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
    assert_eq!(warnings.matches("meter profile: ").count(), 1, "{warnings}");
    assert!(record["hosts"]["client"]["profile"].is_null(), "{record}");
    let expected = if cfg!(feature = "bpf") {
        // This root has lost its capabilities, as in a container: sudo would give it none.
        "load: Operation not permitted (needs CAP_BPF and CAP_PERFMON): start this container with --privileged --pid=host, or drop \"exact\" from meters"
    } else {
        "built without eBPF"
    };
    assert!(warnings.contains(expected), "{warnings}");
}

/// linux/capability.h.
const CAP_SYS_ADMIN: libc::c_ulong = 21;
const CAP_PERFMON: libc::c_ulong = 38;
const CAP_BPF: libc::c_ulong = 39;
