//! Runs, converts and refuses profiles of uperf.

mod common;

use common::{Place, Ran, able};
use serde_json::Value;

const LOOP: &str = r#"<?xml version="1.0"?>
<profile name="a loop">
  <group nthreads="3" name="asks">
    <transaction iterations="1">
      <flowop type="connect" options="remotehost=server protocol=tcp tcp_nodelay"/>
    </transaction>
    <transaction duration="100ms">
      <flowop type="write" options="size=90"/>
      <flowop type="read" options="size=2k"/>
    </transaction>
    <transaction iterations="1">
      <flowop type="disconnect"/>
    </transaction>
  </group>
  <group nthreads="2" name="takes">
    <transaction>
      <flowop type="accept" options="remotehost=localhost tcp_nodelay"/>
      <flowop type="write" options="size=10 count=2"/>
      <flowop type="read" options="size=1"/>
      <flowop type="disconnect"/>
    </transaction>
  </group>
</profile>
"#;

const QUICK: &[&str] = &["--set", "check=on", "--quiet"];

/// Operations of a run: host, group, text and count.
fn operations(record: &Value) -> Vec<(String, String, String, u64)> {
    let mut found = Vec::new();
    for (host, of_host) in record["hosts"].as_object().unwrap() {
        for one in of_host["operations"].as_array().into_iter().flatten() {
            let text = |key: &str| one[key].as_str().unwrap_or_default().to_string();
            let count = one["count"].as_u64().unwrap();
            // An event loop does not wait for a connection, so it has no time for that operation.
            assert_eq!(one["time_hdr"].is_string(), count > 0, "{one}");
            found.push((host.clone(), text("group"), text("operation"), count));
        }
    }
    found
}

#[test]
fn a_profile_runs_as_it_is_and_as_the_study_that_it_is() {
    let place = Place::new();
    let profile = place.write("p.xml", LOOP);
    let converted = place.run(&["study", "convert", &profile]);
    assert_eq!(converted.code, Some(0), "{converted:?}");
    assert_eq!(converted.stderr.lines().count(), 1, "{converted:?}");
    let study = place.write("p.toml", &converted.stdout);
    let run = |file: &str, out: &str, more: &[&str]| {
        let args = [&["run", file, "--out", out, "--format=json"], QUICK, more].concat();
        let ran = place.run(&args);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let record = place.records(out).remove(0);
        assert_eq!(record["outcome"], "measured", "{}", record["reason"]);
        (serde_json::from_str::<Value>(&ran.stdout).unwrap(), record)
    };
    let (summary, of_profile) = run(&profile, "one", &[]);
    let (_, of_study) = run(&study, "two", &[]);
    assert_eq!(of_profile["knobs"], of_study["knobs"]);
    assert_eq!(of_profile["interval_ns"], 100_000_000);
    let (_, by_epoll) = run(&profile, "three", &["--set", "io=epoll"]);
    for record in [&of_profile, &of_study, &by_epoll] {
        let found = operations(record);
        let of = |host: &str, group: &str, operation: &str| {
            let is_it = |one: &&(String, String, String, u64)| {
                (one.0.as_str(), one.1.as_str(), one.2.as_str()) == (host, group, operation)
            };
            found.iter().find(is_it).map_or(0, |one| one.3)
        };
        assert!(of("client", "asks", "send 90B") > 0, "{found:?}");
        assert!(of("client", "asks", "receive 2KiB") > 0, "{found:?}");
        let (sent, received) = (
            of("server", "takes", "send 10B"),
            of("server", "takes", "receive 1B"),
        );
        assert!(
            sent >= 2 * received.saturating_sub(2) && received > 0,
            "{found:?}"
        );
        // Operations of the mirrored side are not listed.
        assert!(
            found
                .iter()
                .all(|one| (one.0 == "server") == (one.1 == "takes")),
            "{found:?}"
        );
    }
    let listed = summary["cells"][0]["operations"].as_array().unwrap();
    let p50 = listed
        .iter()
        .find(|one| one["operation"] == "send 90B")
        .unwrap();
    assert!(p50["time_us_p50"].as_f64().unwrap() > 0.0, "{p50}");
    let details = place.run(&["report", "one", "--format=details"]);
    let expected = ["Operations of programs", "server, takes", "accept", "close"];
    for part in expected {
        assert!(details.stdout.contains(part), "{part}: {}", details.stdout);
    }
    // The study has one cell, so the report answers with its figures.
    let words: Vec<&str> = details.stdout.split_whitespace().collect();
    let words = words.join(" ");
    for part in ["CPU per transaction", "half of the responses took"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let page = std::fs::read_to_string(place.path("one/report.html")).unwrap();
    for part in [
        "Operations of programs, times in µs",
        "client, asks",
        "server, takes",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn in_namespaces_the_interval_is_the_profiles() {
    if !able() {
        return;
    }
    let place = Place::new();
    let text = LOOP.replace("remotehost=server", "remotehost=$h");
    let profile = place.write("p.xml", &text);
    let mut command = place.command(&["run", &profile, "--out", "out", "--quiet"]);
    let ran = Ran::from(command.env("h", "server").output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(place.records("out")[0]["interval_ns"], 100_000_000);
}

#[test]
fn convert_takes_profiles_alone() {
    let place = Place::new();
    let study = place.write("s.toml", "[workload]\nkind = \"rr\"\n");
    let ran = place.run(&["study", "convert", &study]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.stderr.contains("a study file needs no converting"),
        "{ran:?}"
    );
    let ran = place.run(&["study", "convert", "nothing.xml"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
}
