//! One server and fifteen clients, each with its own sshd (Sun 2008): CPU, segments and ACKs of
//! each host by that host's meters, and their table in the report. Needs root and openssh-server.

mod common;
mod lab;

use common::count;
use lab::Lab;

const CLIENTS: usize = 15;

const STUDY: &str = r#"
[hosts]
server = { reach = "ssh:host0", device = "eth0" }
"client[1-15]" = { reach = "ssh:host[1-15]", device = "eth0" }

[workload]
rate = "1Mbit"
write_size = "1KiB"

[measure]
meters = ["proc", "netstat", "tcp_info", "rusage"]
warm_up = "20ms"
duration = "500ms"
repetitions = 2
others_max = "100%"
retries = 2
"#;

#[test]
fn fifteen_clients_and_their_server_are_each_told_by_their_own_meters() {
    let Some(lab) = Lab::new(CLIENTS + 1) else {
        return;
    };
    let ran = lab.run(STUDY, &[]);
    let records = lab.place.records("out");
    let measured = records
        .iter()
        .find(|record| record["outcome"] == "measured");
    let record = measured.unwrap_or_else(|| panic!("{ran:?}"));
    let hosts = record["hosts"].as_object().unwrap();
    assert_eq!(hosts.len(), CLIENTS + 1);
    let clients = (1..=CLIENTS).map(|number| format!("client{number}"));
    for host in clients.chain(["server".to_string()]) {
        let found = &hosts[&host];
        // CPU time of the threads by getrusage, which may count all of so little as either user or
        // system.
        let task = |kind| count(record, &host, "rusage", kind);
        assert!(task("task_user_ns") + task("task_system_ns") > 0, "{found}");
        let sent = count(record, &host, "netstat", "segments_sent");
        let acks = count(record, &host, "tcp_info", "conn_segments_sent")
            - count(record, &host, "tcp_info", "conn_data_segments_sent");
        // 1 Mbit/s is 61 writes of 1 KiB in half a second; the server sends the ACKs for them.
        match host.as_str() {
            "server" => assert!(acks > 100, "{acks} ACKs for fifteen clients"),
            _ => assert!((30..200).contains(&sent), "{host}: {sent} segments"),
        }
        assert!(
            found["clock"]["before"]["error_ns"].as_u64() > Some(0),
            "{found}"
        );
        assert_eq!(found["ports"]["eth0"]["nic"]["driver"], "veth");
    }
    let report = lab.place.run(&["report", "--format=details", "out"]);
    let rows: Vec<&str> = report
        .stdout
        .lines()
        .skip_while(|line| !line.starts_with("Hosts, CPU"))
        .take_while(|line| !line.is_empty())
        .collect();
    let of = |host: &str| {
        let own = rows
            .iter()
            .filter(|row| row.split_whitespace().next() == Some(host));
        own.count()
    };
    for number in 1..=CLIENTS {
        assert_eq!(of(&format!("client{number}")), 1, "{}", report.stdout);
    }
    assert_eq!(of("server"), 1, "{}", report.stdout);
    assert!(
        rows[2].contains(": CPU "),
        "by what it is told: {}",
        rows[2]
    );
    let skew = rows
        .iter()
        .find(|row| row.contains("between the first host's start"));
    assert!(skew.is_some(), "{}", report.stdout);
}
