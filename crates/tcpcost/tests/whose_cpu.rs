//! CPU time by end: in the bed `netns`, accounting by CPU is accounting by host. The test has a
//! file of its own, because cargo runs test files one after the other, and the packets of other
//! tests would be counted too.

mod common;

use common::{Place, STUDY, able, count, environment};

/// Packets that the network stack of each CPU has taken in: first column of softnet_stat, hex.
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
    // are so many that other traffic of the machine does not matter.
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
    // With steering, the server's CPU takes in the data and the client's CPU the ACKs. The kernel
    // counts all that the machine receives, warm-up included, so a busy machine may need another
    // try.
    let mut tries = 0;
    let (steered, record) = loop {
        let (steered, data, record) = shares("on");
        tries += 1;
        // A busy machine cuts a transfer into pieces that are acknowledged one by one. Most packets
        // must be data to tell the two CPUs apart.
        if data > 0.6 && (steered - data).abs() < 0.15 {
            break (steered, record);
        }
        assert!(tries < 5, "on the server's CPU {steered}, data {data}");
        std::fs::remove_dir_all(place.path("on")).unwrap();
    };
    // Without steering, the receive work of a veth stays on the CPU that sent: mostly the client's.
    // Data released by an ACK leaves from the server's CPU; a busy machine has more of it.
    let (unsteered, _, _) = shares("off");
    assert!(
        unsteered < steered - 0.2,
        "on the server's CPU {unsteered} without steering, {steered} with"
    );

    // The core distance is recorded, unless a CPU was not free for 20 ms.
    assert_eq!(
        record["cpu_distances"][0]["cpus"],
        serde_json::json!([{"host": "client", "cpu": 0}, {"host": "server", "cpu": 1}])
    );
    for when in ["before_ns", "after_ns"] {
        let ns = &record["cpu_distances"][0][when];
        assert!(ns.is_null() || ns.as_u64().is_some_and(|ns| ns > 0), "{ns}");
    }

    // The threads of each end used CPU time while their own CPU was busy.
    for end in ["client", "server"] {
        let task = count(&record, end, "rusage", "task_user_ns")
            + count(&record, end, "rusage", "task_system_ns");
        assert!(task > 0, "{end}");
    }
    assert_eq!(record["hosts"]["client"]["cpus"], serde_json::json!([0]));
    assert_eq!(record["hosts"]["server"]["cpus"], serde_json::json!([1]));
    assert_eq!(environment(&record, "server")["rps_cpus"], "2");
}
