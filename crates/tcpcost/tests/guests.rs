//! Studies in a guest whose clock counts instructions: one boot of a real kernel, and the messages
//! where none is available.

mod common;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use common::Place;
use serde_json::Value;
use tcpcost_guest::{BootEnd, Guest, Image, Kernel, Limit, Line, Machine, Plugin, Setup};
use tcpcost_guest::{Snapshots, Task};
use tcpcost_testbed::{has_program, skip};

const STUDY: &str = r#"
title = "two workloads in a guest"
[[cells]]
name = "rr"
workload = "rr"
[[cells]]
name = "stream"
workload = "stream"
send_with = "sendfile"
send_buffer = "256KiB"
receive_buffer = "512KiB"
[measure]
bytes = "4MiB"
transactions = 200
repetitions = 1
"#;

/// Kernel to boot: the one named by TCPCOST_GUEST_KERNEL (scripts/guest-kernel builds one), else
/// the newest of this host that this user can read. Without any, the test is skipped.
fn kernel() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("TCPCOST_GUEST_KERNEL") {
        return Some(named.into());
    }
    let images = std::fs::read_dir("/boot").into_iter().flatten().flatten();
    let mut names = images.map(|entry| entry.file_name().to_string_lossy().into_owned());
    if names.any(|name| name.starts_with("vmlinuz-")) {
        return Some("/".into());
    }
    skip("needs a kernel to boot: TCPCOST_GUEST_KERNEL=$(scripts/guest-kernel)");
    None
}

#[test]
fn a_study_in_a_guest_counts_instructions_of_fixed_work_and_tells_no_time() {
    if !has_program("qemu-system-x86_64") {
        return;
    }
    let Some(kernel) = kernel() else { return };
    let place = Place::new();
    let study = place.write("two.toml", STUDY);
    let kernel = kernel.to_str().unwrap();
    let guest = format!("--guest={kernel}");
    let args = ["run", &study, &guest];
    let ran = place.run(&[&args[..], &["--out", "out", "--format=json", "--quiet"]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let records = std::fs::read_to_string(place.path("out/records.jsonl")).unwrap();
    let records: Vec<Value> = records
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(records.len(), 2);
    let count = |record: &Value, host: &str, quantity: &str| -> u64 {
        let readings = record["hosts"][host]["readings"].as_array().unwrap();
        let of_workload = |reading: &&Value| reading["meter"] == "workload";
        let reading = readings.iter().find(of_workload).unwrap();
        reading["counts"][quantity].as_u64().unwrap()
    };
    for record in &records {
        assert_eq!(record["outcome"], "measured", "{record}");
        assert_eq!(record["work"]["transactions"], 200);
        let machines = record["machines"].as_object().unwrap();
        assert!(machines.values().all(|one| one["instructions_per_ns"] == 1));
    }
    let of = |cell: &str| {
        records
            .iter()
            .find(|record| record["cell"] == cell)
            .unwrap()
    };
    assert_eq!(count(of("rr"), "client", "transactions"), 200);
    // Both ends have taken turns in one thread, without a wake-up.
    for record in &records {
        assert!(count(record, "client", "turns_ns") > 0);
        assert!(count(record, "server", "turns_ns") > 0);
    }
    // Two ways to count by context agree: eBPF at the kernel's tracepoints, and the plugin at its functions.
    let sum = |record: &Value, meter: &str, quantity: &str| -> f64 {
        let hosts = record["hosts"].as_object().unwrap().values();
        let readings = hosts.flat_map(|host| host["readings"].as_array().unwrap());
        let of_meter = readings.filter(|reading| {
            // The meter `exact` has a reading of all CPUs together, too.
            reading["meter"] == meter && reading["whose"]["cpu"].is_u64()
        });
        of_meter
            .filter_map(|reading| reading["counts"][quantity].as_f64())
            .sum()
    };
    for record in &records {
        for (exact, emulated, least, most) in [
            ("exact_softirq_net_rx_ns", "net_rx_instructions", 0.9, 1.1),
            ("exact_task_own_ns", "task_instructions", 0.9, 1.1),
        ] {
            let ratio = sum(record, "emulator", emulated) / sum(record, "exact", exact);
            assert!((least..most).contains(&ratio), "{emulated}: {ratio}");
        }
        let user = sum(record, "emulator", "user_instructions");
        assert!(user > 0.0 && user < sum(record, "emulator", "task_instructions"));
    }
    // The tolerance is a turn (a write of 64 KiB): both the warm-up and the work end within one.
    let received = count(of("stream"), "server", "payload_bytes_received");
    assert!(received.abs_diff(4 << 20) < 256 << 10, "{received}");
    let writes = count(of("stream"), "client", "send_calls");
    let sent = count(of("stream"), "client", "payload_bytes_sent");
    assert_eq!(sent, writes << 16, "each write is taken whole");

    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    let cells = summary["cells"].as_array().unwrap();
    for (cell, main, least, most) in [
        // A transaction is two system calls, two packets and two wake-ups at each end. Copying 1
        // KiB twice is 256 instructions.
        (&cells[0], "instructions_per_transaction", 5e3, 2e5),
        (&cells[1], "instructions_per_kib", 3e2, 2e4),
    ] {
        assert_eq!(cell["main"], main, "{cell}");
        let values = cell["estimates"].as_object().unwrap();
        let median = values[main]["median"].as_f64().unwrap();
        assert!((least..most).contains(&median), "{main}: {median}");
        let times: Vec<&String> = values
            .keys()
            .filter(|name| name.contains("_us_") || name.ends_with("_per_s"))
            .collect();
        assert!(
            times.is_empty(),
            "a clock that counts instructions tells no time: {times:?}"
        );
    }
    // Between the snapshots nothing runs but the traffic and its meters, so the emulator counts what the
    // guest's clock counts. The snapshots themselves take some 40,000 instructions.
    for record in &records {
        let readings = record["hosts"]["client"]["readings"].as_array().unwrap();
        let counts = |meter: &str| {
            let mut of_it = readings.iter().filter(|reading| reading["meter"] == meter);
            of_it
                .next()
                .map(|reading| reading["counts"].as_object().unwrap())
        };
        if let (Some(clock), Some(emulator)) = (counts("exact"), counts("emulator")) {
            let sum: u64 = clock.values().filter_map(Value::as_u64).sum();
            let counted = emulator["instructions"].as_u64().unwrap();
            assert!(sum.abs_diff(counted) < counted / 20, "{sum} {counted}");
        }
    }
    // Its counts by function are there for the same trials.
    if let Ok(text) = std::fs::read_to_string(place.path("out/functions.json")) {
        let by_function: Value = serde_json::from_str(&text).unwrap();
        let trials = by_function["cells"]["rr"].as_array().unwrap();
        let functions = trials[0]["functions"].as_object().unwrap();
        let sum: f64 = functions
            .values()
            .map(|count| count.as_f64().unwrap())
            .sum();
        let quantities = &cells[0]["estimates"];
        let median = quantities["instructions_per_transaction"]["median"]
            .as_f64()
            .unwrap();
        // The sum has the instructions that move memory, too.
        assert!((sum / median - 1.0).abs() < 0.15, "{sum} {median}");
        assert!(functions.contains_key("tcp_sendmsg"), "{functions:?}");
        // The guest is restored, not booted, and counts the same to the digit. A model of caches changes no count.
        let caches = ["--out", "again", "--caches", "32K/8,32K/8,512K/8,8M/16"];
        let again = place.run(&[&args[..], &caches].concat());
        assert_eq!(again.code, Some(0), "{again:?}");
        assert_eq!(saved_guests(&place), 1);
        let other = std::fs::read_to_string(place.path("again/functions.json")).unwrap();
        let other: Value = serde_json::from_str(&other).unwrap();
        for (cell, trials) in by_function["cells"].as_object().unwrap() {
            let functions = |trials: &Value| trials[0]["functions"].clone();
            let again = &other["cells"][cell];
            assert!(
                functions(trials) == functions(again),
                "one seed gave two counts"
            );
            let misses = again[0]["misses"].as_object().unwrap();
            let lines = |of: &Value| of["touched"][0].as_f64().unwrap();
            assert!(misses.values().map(lines).sum::<f64>() > 1.0, "{misses:?}");
        }
        let report = place.run(&["report", "again"]);
        assert!(
            report.stdout.contains("stream, per KiB (n=1)"),
            "{report:?}"
        );
        assert!(!report.stdout.contains("stream against rr"), "{report:?}");
    }
    let cleaned = place.run(&["kernels", "--clean"]);
    assert_eq!(cleaned.code, Some(0), "{cleaned:?}");
    assert!(
        cleaned.stderr.contains("MiB of saved guests removed"),
        "{cleaned:?}"
    );
    assert_eq!(saved_guests(&place), 0);
}

#[test]
fn what_one_trial_leaves_undecided_is_counted_in_the_same_run() {
    if !has_program("qemu-system-x86_64") {
        return;
    }
    let Some(kernel) = kernel() else { return };
    let place = Place::new();
    let study = "[vary]\nsegmentation = [\"tso\", \"per-mss\"]\n\
                 [[statement]]\nid = \"small\"\nsource = \"x\"\ntext = \"small skbs are dearer\"\n\
                 [[conclusion]]\ntext = \"Small skbs\"\nknob = \"segmentation\"\nfrom = \"tso\"\nto = [\"per-mss\"]\n\
                 expects = \"more\"\nstatement = \"small\"\n\
                 [measure]\nbytes = \"4MiB\"\nrepetitions = 1\n";
    let study = place.write("small.toml", study);
    let never = ["run", &study, "--out", "never", "--format=json", "--quiet"];
    let never = place.run(&[&never[..], &["--second-clock", "never"]].concat());
    let held = |ran: &common::Ran| -> Value {
        let document: Value = serde_json::from_str(&ran.stdout).unwrap();
        document["statements"][0].clone()
    };
    assert_eq!(held(&never)["held"], "undecided", "{never:?}");
    assert!(!place.path("never/instructions").exists());

    let args = ["run", &study, "--out", "out", "--format=json"];
    let asked = ["--second-clock", kernel.to_str().unwrap()];
    let ran = place.run(&[&args[..], &asked].concat());
    assert_eq!(held(&ran)["held"], "holds", "{ran:?}");
    assert_eq!(held(&ran)["by_instructions"], true, "{ran:?}");
    assert!(ran.stderr.contains("2 cells, 3 guests each"), "{ran:?}");
    // The stored run has both clocks.
    let again = place.run(&["report", "out"]);
    let shown = again.stdout.split_whitespace().collect::<Vec<_>>();
    let shown = shown.join(" ");
    assert!(shown.contains("; by instructions: costs"), "{shown}");
    assert!(
        shown.contains("holds, by instructions: small skbs are dearer"),
        "{shown}"
    );
    // Who asks for it where there is no kernel learns it before the first trial.
    let args = ["run", &study, "--out", "none", "--second-clock", "/nowhere"];
    let ran = place.run(&args);
    assert_eq!(
        (ran.code, ran.stderr.lines().count()),
        (Some(2), 1),
        "{ran:?}"
    );
    assert!(
        ran.stderr
            .contains("expected auto, never, always or a kernel"),
        "{ran:?}"
    );
    assert!(!place.path("none").exists());
}

/// Number of files and folders where guests are saved: two for each.
fn saved_guests(place: &Place) -> usize {
    let folder = std::fs::read_dir(place.path("cache/tcpcost/snapshots")).unwrap();
    folder.count().div_ceil(2)
}

#[test]
fn three_hundred_more_instructions_of_a_transaction_are_counted_as_such() {
    if !has_program("qemu-system-x86_64") || !has_program("cc") {
        return;
    }
    let Some(kernel) = kernel() else { return };
    let place = Place::new();
    let kernel = Kernel::find(Some(&kernel)).unwrap();
    let image = Image::make(
        env!("CARGO_BIN_EXE_tcpcost").as_ref(),
        &kernel,
        &["veth"],
        &Setup::default(),
    )
    .unwrap();
    let guest = Guest::new(kernel, image).unwrap();
    let mut machine = Machine::new(7);
    let clock = "tcpcost.instructions_per_ns=1".to_string();
    machine.kernel_options.push(clock);
    let snapshots = Snapshots::at(place.path("snapshots")).unwrap();
    let snapshot = snapshots.get(&guest, &machine, &|| false).unwrap();
    let plugin = Plugin::build(None).unwrap();
    let overrides = r#"{"study": "two", "repetitions": 1, "seed": 3, "cells": ["rr"], "exact_instructions": "here"}"#;
    let numbers = std::cell::Cell::new(0);
    let counted = |transactions: u32, padding: u16| -> f64 {
        let study = STUDY.replace(
            "transactions = 200",
            &format!("transactions = {transactions}"),
        );
        let files = [
            ("study.toml", &study[..]),
            ("run.json", overrides),
            ("records.jsonl", ""),
        ];
        let task = Task {
            arguments: ["run", "--quiet", "--resume", Task::FOLDER]
                .map(String::from)
                .to_vec(),
            files: files
                .map(|(name, text)| (name.to_string(), text.into()))
                .to_vec(),
            padding,
            ..Task::default()
        };
        let number = numbers.replace(numbers.get() + 1);
        let options = plugin.options(number, &snapshot.symbols);
        let boot = snapshot.restore(&guest, 3, &task, &options, Limit::default(), &|| false);
        let boot = boot.unwrap();
        assert_eq!(
            boot.ended,
            BootEnd::Done(0),
            "{:?} {:?}",
            boot.failure(),
            boot.lines
        );
        let spans = plugin.spans(number, &snapshot.symbols).unwrap();
        assert_eq!(spans.len(), 1);
        let all = spans[0].functions.values().sum::<u64>();
        let of = spans[0].contexts.unwrap();
        assert_eq!(of.task + of.deferred + of.net_rx + of.hardirq, all);
        all as f64
    };
    // A transaction makes six system calls; each adds 50 more. The reading of meters makes some, too, in a short interval as in a
    // long one.
    let more = |transactions| counted(transactions, 60) - counted(transactions, 10);
    // The longer interval may have some ticks more of 4500 instructions: 1.1 a transaction each (four were seen).
    let each = (more(4200) - more(200)) / 4000.0;
    assert!((each - 300.0).abs() < 9.0, "{each}");
}

#[test]
fn a_guest_runs_commands_of_the_user_before_it_is_saved() {
    if !has_program("qemu-system-x86_64") || !has_program("nft") {
        return;
    }
    let Some(kernel) = kernel() else { return };
    let place = Place::new();
    let cell = "bed = \"loopback\"\nworkload = \"rr\"";
    let measure = "transactions = 200\nrepetitions = 1";
    let study = format!("title = \"rules\"\n[[cells]]\n{cell}\n[measure]\n{measure}\n");
    let study = place.write("rules.toml", &study);
    let rules = "table ip t {\n chain in {\n  type filter hook input priority 0;\n  tcp dport 1 drop\n }\n}\n";
    let rules = place.write("rules.nft", rules);
    let guest = format!("--guest={}", kernel.display());
    let run = |init: &[&str]| {
        let init = init.iter().flat_map(|command| ["--init", command]);
        let args = ["run", &study, &guest, "--out", "out", "--quiet"];
        place.run(&args.into_iter().chain(init).collect::<Vec<_>>())
    };
    for (command, expected) in [
        ("no-such-program x", "no-such-program is not on this host"),
        ("modprobe no_such_module", "has no such module"),
    ] {
        let ran = run(&[command]);
        assert_eq!(ran.code, Some(77), "{ran:?}");
        assert!(ran.stderr.contains(expected), "{ran:?}");
        assert!(!place.path("out").exists(), "nothing is left behind");
    }
    let failed = run(&["nft delete table ip none"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    let said = failed.stderr.lines().last().unwrap();
    assert!(
        said.contains("nft delete table ip none` ended by exit status: "),
        "{failed:?}"
    );

    let ran = run(&["modprobe nf_tables", &format!("nft -f {rules}")]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let functions = std::fs::read_to_string(place.path("out/functions.json")).unwrap();
    let functions: Value = serde_json::from_str(&functions).unwrap();
    let trial = functions["cells"]
        .as_object()
        .unwrap()
        .values()
        .next()
        .unwrap();
    let of_rules = trial[0]["functions"]["nft_do_chain"].as_f64();
    // For each of the two packets, tens of instructions.
    assert!(of_rules.is_some_and(|count| count > 50.0), "{of_rules:?}");
}

#[test]
fn a_host_without_an_emulator_says_what_to_install() {
    let place = Place::new();
    let study = place.write("two.toml", STUDY);
    let mut command = place.command(&["run", &study, "--guest", "--out", "out"]);
    let ran = command
        .env("PATH", place.directory.path())
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(77));
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(said.contains("apt-get install qemu-system-x86"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn what_is_no_kernel_is_one_line_and_leaves_nothing() {
    if !has_program("qemu-system-x86_64") {
        return;
    }
    let place = Place::new();
    let study = place.write("two.toml", STUDY);
    let run = |kernel: &str, out: &str| {
        let guest = format!("--guest={kernel}");
        let args = ["run", &study, &guest];
        place.run(&[&args[..], &["--out", out, "--quiet"]].concat())
    };
    let nowhere = run("/nowhere", "nowhere");
    assert_eq!(nowhere.code, Some(2), "{nowhere:?}");
    assert!(nowhere.stderr.contains("boot/vmlinuz-*"), "{nowhere:?}");
    assert!(!place.path("nowhere").exists(), "nothing is left behind");
    let text = run(&study, "text");
    assert_eq!(text.code, Some(2), "{text:?}");
    assert_eq!(text.stderr.lines().count(), 1, "{text:?}");
    assert!(text.stderr.contains("not a kernel's image"), "{text:?}");
    // It looks like a bzImage, and does not boot.
    let fake = place.path("fake.image");
    std::fs::write(&fake, [&[0; 0x202][..], b"HdrS", &[0; 4096]].concat()).unwrap();
    let fake = fake.to_str().unwrap();
    let ran = run(fake, "fake");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let last = ran.stderr.lines().last().unwrap();
    for expected in ["the guest did not come up", "last words"] {
        assert!(last.contains(expected), "{ran:?}");
    }
    assert!(!place.path("fake").exists(), "nothing is left behind");
    // Neither is a bad commit for git: bisect skips a kernel that was not built or does not boot.
    std::fs::create_dir(place.path("good")).unwrap();
    let overrides = r#"{"study": "two", "exact_instructions": {"in_guests": null}}"#;
    for (name, text) in [
        ("study.toml", STUDY),
        ("run.json", overrides),
        ("records.jsonl", ""),
    ] {
        std::fs::write(place.path("good").join(name), text).unwrap();
    }
    for kernel in ["/nowhere", &study, fake] {
        let ran = place.run(&["kernels", "bisect", kernel, "--baseline", "good", "--quiet"]);
        assert_eq!(ran.code, Some(125), "{ran:?}");
    }
    assert_eq!(saved_guests(&place), 0, "no half of a guest is kept");
    // A failure of the command itself ends the bisection, and is a word on no commit.
    for wrong in [
        &["--baseline"][..],
        &["--baseline", "nowhere"],
        &["--baseline", "good", "--cell", "nowhere"],
    ] {
        let ran = place.run(&[&["kernels", "bisect", fake][..], wrong].concat());
        assert_eq!(ran.code, Some(128), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    }
}

#[test]
fn each_ebpf_meter_loads_in_a_guest_or_says_which_kernel_it_needs() {
    if !has_program("qemu-system-x86_64") {
        return;
    }
    let Some(kernel) = kernel() else { return };
    let kernel = Kernel::find(Some(&kernel)).unwrap();
    let image = Image::make(
        env!("CARGO_BIN_EXE_tcpcost").as_ref(),
        &kernel,
        &[],
        &Setup::default(),
    )
    .unwrap();
    let guest = Guest::new(kernel, image).unwrap();
    let task = Task {
        arguments: ["doctor", "--format", "json"].map(String::from).to_vec(),
        addresses: vec![("lo".to_string(), Ipv4Addr::LOCALHOST, 8)],
        ..Task::default()
    };
    // A boot takes about ten seconds. One of two CPUs beside other tests' guests was seen not to come up, so it may be tried again.
    let limit = Limit {
        wall: Duration::from_secs(240),
        ..Limit::default()
    };
    let boot = || {
        let boot = guest.boot(&Machine::with_time(2), &task, limit, &|| false);
        boot.unwrap()
    };
    let first = boot();
    let boot = match first.ended {
        BootEnd::Done(_) => first,
        _ => boot(),
    };
    assert_eq!(boot.ended, BootEnd::Done(0), "{:?}", boot.failure());
    let lines = boot.lines.iter().filter_map(|line| match line {
        Line::Printed(text) => Some(text.as_str()),
        Line::ResultsFile(..) => None,
    });
    let document: Value = serde_json::from_str(&lines.collect::<String>()).unwrap();
    let checks = document["checks"].as_array().unwrap();
    for name in ["exact", "owners", "segments", "socket_calls", "profile"] {
        let name = format!("meter_{name}");
        let check = checks.iter().find(|check| check["name"] == name).unwrap();
        let names_kernel = check["found"].as_str().unwrap().contains("(needs Linux ");
        assert!(check["verdict"] == "ok" || names_kernel, "{check}");
    }
}
