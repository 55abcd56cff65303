//! Groups of connections and programs, by the real binary in namespaces and in memory.

mod common;

use common::{MEASURE, Place, able};
use tcpcost_testbed::skip;

const STUDY: &str = r#"
[workload]
check = "on"

[[group]]
name = "small"
workload = "rr"
flows = 3
request_size = "100B"
response_size = "3KiB"

[[group]]
name = "bulk"
workload = "stream"
flows = 2
rate = "200Mbit"

[[group]]
name = "steps"
program = [{ send = ["1B", "5KiB"] }, { repeat = 2, do = [{ receive = "1KiB" }] }, { sleep = "100us" }]
"#;

/// Runs a study, and checks the counts and histograms of each group and their figures in the
/// report.
fn check(place: &Place, study: &str) {
    let study = place.write("study.toml", &format!("{study}{MEASURE}"));
    let ran = place.in_time(|| place.run(&["run", &study, "--out", "out"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let record = &place.records("out")[0];
    assert_eq!(record["outcome"], "measured", "{}", record["reason"]);
    let clients: Vec<&serde_json::Value> = record["hosts"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(name, _)| name.starts_with("client"))
        .map(|(_, host)| host)
        .collect();
    let sum = |whose: serde_json::Value, quantity: &str| -> u64 {
        let of = |host: &&serde_json::Value| {
            let readings = host["readings"].as_array().unwrap();
            let mut its = readings.iter().filter(|reading| reading["whose"] == whose);
            its.find_map(|reading| reading["counts"][quantity].as_u64())
                .unwrap_or(0)
        };
        clients.iter().map(of).sum()
    };
    let group = |name: &str| serde_json::json!({ "group": name });
    let sent = "payload_bytes_sent";
    let of_groups: u64 = ["small", "bulk", "steps"]
        .map(|name| sum(group(name), sent))
        .iter()
        .sum();
    assert!(of_groups > 0);
    assert_eq!(of_groups, sum("workload".into(), sent));
    for name in ["small", "steps"] {
        assert!(sum(group(name), "transactions") > 0, "{name}");
        let histograms = clients
            .iter()
            .map(|host| &host["response_time_hdr_by_group"][name]);
        assert!(
            histograms.filter(|text| text.is_string()).count() > 0,
            "{name}"
        );
    }
    assert_eq!(sum(group("bulk"), "transactions"), 0);
    let report = place.run(&["report", "out", "--format=json"]);
    assert_eq!(report.code, Some(0), "{report:?}");
    for figure in [
        "small_response_us_p50",
        "bulk_goodput_bits_per_s",
        "steps_transactions_per_s",
    ] {
        assert!(report.stdout.contains(&format!("\"{figure}\"")), "{figure}");
    }
    assert!(!report.stdout.contains("bulk_transactions_per_s"));
}

#[test]
fn groups_beside_each_other_in_namespaces() {
    if able() {
        check(&Place::new(), &format!("[bed]\nkind = \"netns\"\n{STUDY}"));
    }
}

#[test]
fn groups_over_our_own_tcp_by_several_threads() {
    let stack = "[bed]\nkind = \"memory\"\n[bed.client]\nstack = \"user\"\n[bed.server]\nstack = \"user\"\n";
    let threads = STUDY.replace("[workload]", "[workload]\nthreads = 2");
    check(&Place::new(), &format!("{stack}{threads}"));
}

#[test]
fn groups_of_some_hosts_of_a_star() {
    if able() {
        let star = "[bed]\nkind = \"netns\"\ntopology = \"star\"\nclients = 2\n";
        let study = STUDY.replace("name = \"steps\"", "name = \"steps\"\non = \"client2\"");
        check(&Place::new(), &format!("{star}{study}"));
    }
}

/// Requests on connections that stay open, together with connections that come and go.
const TWO_GROUPS: &str = r#"
[workload]
io = "IO"
check = "on"
[bed]
kind = "netns"
[[group]]
name = "a"
workload = "rr"
flows = 20
[[group]]
name = "b"
workload = "crr"
flows = 2
[measure]
meters = ["proc", "rusage", "netstat"]
warm_up = "50ms"
duration = "300ms"
repetitions = 1
others_max = "100%"
retries = 0
"#;

#[test]
fn a_thread_for_each_connection() {
    if !able() {
        return;
    }
    let place = Place::new();
    let study = place.write(
        "threads.toml",
        &TWO_GROUPS.replace("IO", "blocking-threads"),
    );
    let ran = place.in_time(|| place.run(&["run", &study, "--out", "out"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let record = &place.records("out")[0];
    // A machine that is too busy to read the meters in time reports a failed trial.
    if record["outcome"] == "failed" {
        let reason = record["reason"].as_str().unwrap();
        assert!(reason.contains("ms late"), "{reason}");
        return;
    }
    for host in ["client", "server"] {
        assert_eq!(record["hosts"][host]["threads"], 22);
        let readings = record["hosts"][host]["readings"].as_array().unwrap();
        let of = |meter: &str| readings.iter().find(|reading| reading["meter"] == meter);
        assert!(of("rusage").unwrap()["counts"]["task_system_ns"].as_u64() > Some(0));
        let counts = &of("workload").unwrap()["counts"];
        assert!(
            counts["payload_bytes_received"].as_u64() > Some(0),
            "{host}: {counts}"
        );
    }
    let refused = place.write(
        "refused.toml",
        "[workload]\nio = \"blocking-threads\"\nin_flight = 2\nkind = \"rr\"\n",
    );
    let ran = place.run(&["run", &refused]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("wait for each response"), "{ran:?}");
}

#[test]
fn a_ring_has_its_own_system_calls_and_refuses_what_it_cannot_do() {
    if !able() {
        return;
    }
    let place = Place::new();
    let study = place.write("ring.toml", &TWO_GROUPS.replace("IO", "io-uring"));
    let ran = place.in_time(|| place.run(&["run", &study, "--out", "out"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let record = &place.records("out")[0];
    if record["outcome"] == "skipped" {
        return skip(&record["reason"].to_string());
    }
    for host in ["client", "server"] {
        let readings = record["hosts"][host]["readings"].as_array().unwrap();
        let of =
            |meter: &str| &readings.iter().find(|one| one["meter"] == meter).unwrap()["counts"];
        let (counts, set_up) = (of("workload"), of("set_up"));
        let calls = counts["io_uring_enter_system_calls"].as_u64().unwrap();
        let sends = counts["send_calls"].as_u64().unwrap();
        assert!(calls > 0 && sends > 0, "{host}: {counts}");
        // Connections of crr are not counted, because they do not stay open.
        assert_eq!(set_up["connections_set_up"], 20, "{host}: {set_up}");
        assert_eq!(set_up.get("set_up_ns").is_some(), host == "client");
    }
    for (knob, reason) in [
        (
            "send_with = \"zerocopy\"",
            "leave send_with and receive_with out",
        ),
        ("cork = \"on\"", "use cork = \"msg-more\""),
        (
            "receive_with = \"splice\"",
            "leave send_with and receive_with out",
        ),
    ] {
        let text = format!("[workload]\nio = \"io-uring\"\n{knob}\n");
        let ran = place.run(&["run", &place.write("refused.toml", &text)]);
        assert_eq!(ran.code, Some(2), "{knob}");
        assert!(ran.stderr.contains(reason), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    }
}

#[test]
fn a_call_that_takes_no_msg_more_is_refused_with_what_works() {
    let place = Place::new();
    let text = "[workload]\ncork = \"msg-more\"\nsend_with = \"write\"\n";
    let ran = place.run(&["run", &place.write("cork.toml", text), "--dry-run"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let works = "use send_with = \"send\", or cork = \"on\"";
    assert!(ran.stderr.contains(works), "{ran:?}");
    assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
}

#[test]
fn a_wrong_program_is_one_line_and_exit_2() {
    let place = Place::new();
    let study = place.write(
        "wrong.toml",
        "[[group]]\nname = \"a\"\nprogram = [{ send = \"1KiB\" }, { recieve = \"1KiB\" }]\n",
    );
    let ran = place.run(&["run", &study]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{ran:?}");
    let expected =
        "3: group.program: operation 2: no such operation \"recieve\"; nearest is \"receive\"";
    assert!(lines[0].ends_with(expected), "{ran:?}");
}
