//! Hosts that are pods: what `tcpcost manifest` prints is what `tcpcost run` then needs, by a stand-in for kubectl that knows the
//! printed objects alone and starts what it is told to in a network namespace. As root; elsewhere skipped.

mod common;
mod lab;

use lab::Lab;
use tcpcost_testbed::has_program;

/// `kubectl exec -i svc/NAME -- PROGRAM ARGUMENT…`, and nothing else. A service's folder has the thread of its pod.
const KUBECTL: &str = r#"#!/bin/sh
[ "$1" = exec ] && [ "$2" = -i ] && [ "$4" = -- ] || { echo "error: unknown command: $*" >&2; exit 1; }
service=${3#svc/}
[ -f "$0.services/$service" ] || { echo "Error from server (NotFound): services \"$service\" not found" >&2; exit 1; }
thread=$(cat "$0.services/$service")
shift 4
exec nsenter --net="/proc/$thread/ns/net" --mount="/proc/$thread/ns/mnt" -- env PATH="$(dirname "$TCPCOST")" "$@"
"#;

const STUDY: &str = r#"
[workload]
rate = "20Mbit"
[measure]
warm_up = "20ms"
duration = "100ms"
repetitions = 1
others_max = "100%"
retries = 0
"#;

#[test]
fn the_hosts_of_a_manifest_are_reached_by_kubectl_exec() {
    let Some(lab) = Lab::new(2) else { return };
    if !has_program("nsenter") {
        return;
    }
    let kubectl = lab.place.write("kubectl", KUBECTL);
    std::fs::set_permissions(
        &kubectl,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let study = lab.place.write("pods.toml", STUDY);
    let printed = lab
        .place
        .run(&["manifest", &study, "--image", "registry.example/tcpcost:1"]);
    assert_eq!(printed.code, Some(0), "{printed:?}");

    // Each service selects the pod of its index.
    std::fs::create_dir(lab.place.path("kubectl.services")).unwrap();
    let services: Vec<&str> = printed
        .stdout
        .split("---\n")
        .filter(|object| object.contains("kind: Service"))
        .map(|object| {
            let name = object
                .lines()
                .find_map(|line| line.strip_prefix("  name: "));
            name.unwrap_or_else(|| panic!("{object}"))
        })
        .collect();
    assert_eq!(services.len(), 2);
    for (index, service) in services.iter().enumerate() {
        let thread = lab.thread_of(index).to_string();
        lab.place
            .write(&format!("kubectl.services/{service}"), &thread);
    }

    // The comment has the hosts.
    let hosts: String = printed
        .stdout
        .lines()
        .skip_while(|line| *line != "# [hosts]")
        .take_while(|line| line.starts_with('#'))
        .map(|line| format!("{}\n", line.trim_start_matches("# ")))
        .collect();
    let hosts = hosts.replace("exec:kubectl ", &format!("exec:{kubectl} "));
    let ran = lab.start_in(&format!(
        "{hosts}[bed]\nclient.device = \"eth0\"\nserver.device = \"eth0\"\n{STUDY}"
    ));
    assert_eq!(ran.code, Some(0), "{hosts}{ran:?}");
    let record = lab.place.records("out").remove(0);
    assert_eq!(record["outcome"], "measured", "{record}");
    let received = common::count(&record, "server", "workload", "payload_bytes_received");
    assert!(received > 50_000, "{received}");

    // A pod that is gone.
    std::fs::remove_file(lab.place.path(&format!("kubectl.services/{}", services[1]))).unwrap();
    std::fs::remove_dir_all(lab.place.path("out")).unwrap();
    let ran = lab.start_in(&format!("{hosts}{STUDY}"));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stderr.contains("server agent: ") && ran.stderr.contains("NotFound"),
        "{ran:?}"
    );
}
