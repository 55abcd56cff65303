//! Settings of network cards (rings, coalescing, queues, RSS, interrupts) on emulated cards: two
//! ports of one machine joined by a cable, in a guest. Each value is set, read back and recorded,
//! and is at its default in the trials without it. Only the cards are special: the command, its
//! agents and the study are those of any machine.

mod common;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tcpcost_guest::{BootEnd, Guest, Image, Kernel, Limit, Line, Machine, Setup, Task};
use tcpcost_host::namespace;
use tcpcost_testbed::{can_make_namespaces, has_program, skip};

const STUDY: &str = r#"
title = "two ports of one machine, joined by a cable"

[hosts]
client = { reach = "local", device = "eth0" }
server = { reach = "netns", device = "eth1" }

[workload]
rate = "5Mbit"

[measure]
meters = ["netstat", "rusage"]
warm_up = "50ms"
duration = "200ms"
repetitions = 2
others_max = "100%"
retries = 0

[[cells]]
name = "as it is"
"#;

/// Kernel named by this variable, with `driver` as a module (scripts/guest-kernel builds one). If
/// the variable is not set, the test is skipped.
#[track_caller]
fn kernel(variable: &str, driver: &str) -> Option<Kernel> {
    if !has_program("qemu-system-x86_64") {
        return None;
    }
    let Some(named) = std::env::var_os(variable) else {
        skip(&format!(
            "needs a kernel with {driver}: {variable}=$(scripts/guest-kernel …)"
        ));
        return None;
    };
    Some(Kernel::find(Some(&PathBuf::from(named))).unwrap())
}

/// Runs a study in a guest with these cards. Returns the records.
fn run(kernel: Kernel, driver: &str, options: &[String], cells: &str) -> Vec<Value> {
    let program = env!("CARGO_BIN_EXE_tcpcost");
    let image = Image::make(
        program.as_ref(),
        &kernel,
        &["veth", "virtio_pci", driver],
        &Setup::default(),
    )
    .unwrap();
    let guest = Guest::new(kernel, image).unwrap();
    // Each end has a CPU.
    let mut machine = Machine::with_time(2);
    machine.options = options.to_vec();
    let file = format!("{}/nics.toml", Task::FOLDER);
    let out = format!("{}/out", Task::FOLDER);
    let task = Task {
        arguments: ["run", &file, "--out", &out].map(String::from).to_vec(),
        files: vec![(
            "nics.toml".to_string(),
            format!("{STUDY}{cells}").into_bytes(),
        )],
        results: vec!["out/records.jsonl".to_string()],
        addresses: [("eth0", 1), ("eth1", 2)]
            .map(|(device, last)| (device.to_string(), Ipv4Addr::new(10, 77, 0, last), 24))
            .to_vec(),
        padding: 0,
    };
    // A boot takes about ten seconds.
    let limit = Limit {
        wall: Duration::from_secs(240),
        ..Limit::default()
    };
    let boot = guest.boot(&machine, &task, limit, &|| false);
    let boot = boot.unwrap();
    assert_eq!(boot.failure(), None, "{:?}", boot.lines);
    let of = |line: &Line| match line {
        Line::ResultsFile(_, text) => Some(serde_json::from_str(text).unwrap()),
        Line::Printed(_) => None,
    };
    let mut records: Vec<Value> = boot.lines.iter().filter_map(of).collect();
    // A trial that failed on a busy machine was tried again.
    records.retain(|record| record["outcome"] != "failed");
    assert_eq!(boot.ended, BootEnd::Done(0), "{:?}", boot.lines);
    records
}

/// Checks the settings of each cell on both ends. A cell that sets nothing has the driver's
/// defaults.
fn check(records: &[Value], driver: &str, cells: &[(&str, &[(&str, u64)])]) {
    assert_eq!(records.len(), 2 * cells.len());
    for record in records {
        assert_eq!(record["outcome"], "measured", "{record}");
        let cell = record["cell"].as_str().unwrap();
        let (_, values) = cells.iter().find(|(name, _)| *name == cell).unwrap();
        for host in ["client", "server"] {
            let nic = &common::environment(record, host)["nic"];
            assert_eq!(nic["driver"], driver, "{nic}");
            // A card whose link was down at the read-back reports no speed; a virtio card never
            // does.
            let speed = nic["speed_mbit_per_s"].as_u64();
            assert_eq!(speed, (driver == "e1000e").then_some(1000), "{cell}: {nic}");
            for (name, expected) in *values {
                assert_eq!(
                    nic["ethtool"][name], *expected,
                    "{cell}: {host} {name}: {nic}"
                );
            }
            let irqs = nic["irqs"].as_object().unwrap();
            let on_second = irqs.values().filter(|cpus| **cpus == "1").count();
            assert!(!irqs.is_empty(), "{nic}");
            assert_eq!(on_second == irqs.len(), cell == "set", "{cell}: {nic}");
        }
        let received = common::count(record, "server", "workload", "payload_bytes_received");
        assert!(received > 20_000, "{received}");
    }
}

/// Options for two joined cards of a model.
fn pair(model: &str, more: &str, ends: [&str; 2]) -> Vec<String> {
    let mut options = Vec::new();
    for (number, end) in ends.into_iter().enumerate() {
        let mac = format!("52:54:00:00:00:0{number}");
        options.extend(["-netdev".to_string(), format!("{end},id=n{number}")]);
        let card = format!("{model},netdev=n{number},mac={mac}{more}");
        options.extend(["-device".to_string(), card]);
    }
    options
}

const HUB: &str = "hubport,hubid=0";

#[test]
fn rings_coalescing_and_interrupts_of_an_e1000e() {
    let Some(kernel) = kernel("TCPCOST_GUEST_NIC_KERNEL", "e1000e") else {
        return;
    };
    let options = pair("e1000e", "", [HUB; 2]);
    let set =
        "[[cells]]\nname = \"set\"\nrx_ring = 512\ntx_ring = 1024\nrx_usecs = 20\nirq_cpus = [1]\n";
    let records = run(kernel, "e1000e", &options, set);
    let own = [("rx_ring", 256), ("tx_ring", 256), ("rx_usecs", 3)];
    let set = [("rx_ring", 512), ("tx_ring", 1024), ("rx_usecs", 20)];
    check(&records, "e1000e", &[("as it is", &own), ("set", &set)]);
}

#[test]
fn channels_rss_and_interrupts_of_a_virtio_card() {
    let Some(kernel) = kernel("TCPCOST_GUEST_KERNEL", "virtio_net") else {
        return;
    };
    if !can_make_namespaces() || !has_program("ip") {
        return;
    }
    let taps = ["t0", "t1"]
        .map(|name| format!("tap,ifname={name},script=no,downscript=no,queues=2,vhost=off"));
    let options = pair(
        "virtio-net-pci",
        ",mq=on,vectors=6,rss=on",
        [&taps[0], &taps[1]],
    );
    let records = std::thread::spawn(move || {
        namespace::enter_new().unwrap();
        ip("link add bridge type bridge");
        ip("link set bridge up");
        for tap in ["t0", "t1"] {
            ip(&format!(
                "tuntap add dev {tap} mode tap multi_queue vnet_hdr"
            ));
            ip(&format!("link set {tap} master bridge up"));
        }
        let cells = "[[cells]]\nname = \"set\"\nrss_queues = 1\nrx_ring = 128\nirq_cpus = [1]\n\
                     [[cells]]\nname = \"one queue\"\nchannels = 1\n";
        run(kernel, "virtio_net", &options, cells)
    });
    let records = records.join().unwrap();
    let own = [("channels", 2), ("rss_queues", 2), ("rx_ring", 256)];
    let set = [("channels", 2), ("rss_queues", 1), ("rx_ring", 128)];
    let one = [("channels", 1), ("rx_ring", 256)];
    let cells: [(&str, &[(&str, u64)]); 3] =
        [("as it is", &own), ("set", &set), ("one queue", &one)];
    check(&records, "virtio_net", &cells);
}

fn ip(arguments: &str) {
    let ran = Command::new("ip").args(arguments.split(' ')).status();
    assert!(ran.unwrap().success(), "ip {arguments}");
}
