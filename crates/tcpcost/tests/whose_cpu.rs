//! Whose CPU pays: in the `netns` bed per-CPU accounting is per-host accounting. A file of its own,
//! since cargo runs test files one after the other: other tests' packets would be counted too.

mod common;

use common::{Place, STUDY, able, count, environment};

/// Packets that each CPU's network stack has taken in: first column of softnet_stat, hex.
fn processed() -> Vec<u64> {
    let text = std::fs::read_to_string("/proc/net/softnet_stat").unwrap();
    let first =
        |line: &str| u64::from_str_radix(line.split_whitespace().next().unwrap(), 16).unwrap();
    text.lines().map(first).collect()
}

#[test]
fn a_one_way_transfer_charges_each_end_to_its_own_cpu() {
    if !able() {
        return;
    }
    let place = Place::new();
    // The kernel counts received packets by the CPU that took them in. With one skb per MSS there
    // are so many that whatever else the machine receives does not matter.
    let text = STUDY.replace(
        "[measure]",
        "[bed.client]\nsegmentation = \"per-mss\"\n[measure]",
    );
    let shares = |steering: &str| {
        let text = text.replace(
            "kind = \"netns\"",
            &format!("kind = \"netns\"\nsteering = \"{steering}\""),
        );
        let study = place.write(&format!("{steering}.toml"), &text);
        let before = processed();
        let ran = place.run(&["run", &study, "--out", steering]);
        let after = processed();
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let record = &place.records(steering)[0];
        assert_eq!(record["outcome"], "measured", "{record}");
        let data = count(record, "server", "netstat", "ip_packets_received") as f64;
        let acks = count(record, "client", "netstat", "ip_packets_received") as f64;
        let on = |cpu: usize| (after[cpu] - before[cpu]) as f64;
        let on_servers_cpu = on(1) / (on(0) + on(1));
        (on_servers_cpu, data / (data + acks), record.clone())
    };
    // Steered, the server's CPU takes in the data and the client's the ACKs. The kernel counts what all
    // the machine receives, warm-up included: on a busy one another try is of other traffic.
    let mut tries = 0;
    let (steered, record) = loop {
        let (steered, data, record) = shares("on");
        tries += 1;
        // A busy machine cuts a transfer into pieces that are acknowledged one by one: most packets must be
        // data to tell the two CPUs from each other.
        if data > 0.6 && (steered - data).abs() < 0.15 {
            break (steered, record);
        }
        assert!(tries < 5, "on the server's CPU {steered}, data {data}");
        std::fs::remove_dir_all(place.path("on")).unwrap();
    };
    // Without steering a veth's receive work stays on the CPU that sent, mostly the client's (data
    // that an ACK sets off leaves from the server's: the more, the busier the machine).
    let (unsteered, _, _) = shares("off");
    assert!(
        unsteered < steered - 0.2,
        "on the server's CPU {unsteered} without steering, {steered} with"
    );

    // How far apart the two CPUs were, unless one was not free for 20 ms.
    assert_eq!(
        record["cpu_distances"][0]["cpus"],
        serde_json::json!([{"host": "client", "cpu": 0}, {"host": "server", "cpu": 1}])
    );
    for when in ["before_ns", "after_ns"] {
        let ns = &record["cpu_distances"][0][when];
        assert!(ns.is_null() || ns.as_u64().is_some_and(|ns| ns > 0), "{ns}");
    }

    // And the tasks: each end's threads spent their time while their own CPU was busy.
    for end in ["client", "server"] {
        let task = count(&record, end, "rusage", "task_user_ns")
            + count(&record, end, "rusage", "task_system_ns");
        assert!(task > 0, "{end}");
    }
    assert_eq!(record["hosts"]["client"]["cpus"], serde_json::json!([0]));
    assert_eq!(record["hosts"]["server"]["cpus"], serde_json::json!([1]));
    assert_eq!(environment(&record, "server")["rps_cpus"], "2");
}
