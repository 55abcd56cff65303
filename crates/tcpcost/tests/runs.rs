//! Runs that lose no records: signals, kills, two runs at once, closed pipes, full disks. Most use
//! loopback, so every user can run them; tests that change the host's settings have a namespace.

mod common;

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Exit, Place, Ran, did_no_work, environment};
use tcpcost_testbed::{has_cpus, in_namespace, skip, until};

const STUDY: &str = r#"
title = "short"
[bed]
kind = "loopback"
[workload]
placement = "same-cpu"
[vary]
write_size = ["4KiB", "64KiB"]
[measure]
warm_up = "5ms"
duration = "20ms"
repetitions = 4
others_max = "100%"
retries = 0
"#;

/// Study with a setting of the host.
fn with_mtu(bytes: u32) -> String {
    STUDY.replace("[workload]", &format!("mtu = {bytes}\n[workload]"))
}

/// Study whose trial lasts until it is stopped.
fn endless(study: &str) -> String {
    study.replace("duration = \"20ms\"", "duration = \"10min\"")
}

/// Number of trials that were measured, or that a busy machine gave no CPU. None was measured twice.
fn measured_once(place: &Place, directory: &str) -> usize {
    let mut trials = BTreeMap::new();
    for record in place.records(directory) {
        let trial = (
            record["cell"].as_str().unwrap().to_string(),
            record["repetition"].as_u64().unwrap(),
        );
        let (measured, idle) = trials.entry(trial).or_insert((0, 0));
        *measured += usize::from(record["outcome"] == "measured");
        *idle += usize::from(did_no_work(&record));
    }
    let all = trials.values();
    assert!(
        all.clone().all(|(measured, _)| *measured <= 1),
        "{trials:?}"
    );
    all.filter(|(measured, idle)| measured + idle > 0).count()
}

#[test]
fn where_one_cpu_is_allowed_both_ends_share_it_and_the_run_says_so() {
    let place = Place::new();
    let study = place.write(
        "study.toml",
        &STUDY.replace("placement = \"same-cpu\"\n", ""),
    );
    let cpu = *tcpcost_host::cpus::allowed().unwrap().last().unwrap();
    let mut command = place.command(&["run", &study, "--out", "out", "--quiet"]);
    let mut only = rustix::thread::CpuSet::new();
    only.set(cpu);
    // SAFETY: between fork and exec the child makes one system call.
    unsafe { command.pre_exec(move || Ok(rustix::thread::sched_setaffinity(None, &only)?)) };
    let ran = Ran::from(command.output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let records = place.records("out");
    let measured = records
        .iter()
        .filter(|record| record["outcome"] == "measured");
    assert!(measured.clone().count() > 0, "{ran:?}");
    for record in measured {
        for host in ["client", "server"] {
            assert_eq!(record["hosts"][host]["cpus"], serde_json::json!([cpu]));
        }
        let warnings = record["warnings"].to_string();
        assert!(
            warnings.contains(&format!("both ends share CPU {cpu}")),
            "{warnings}"
        );
        assert!(!warnings.contains("preempted"), "{warnings}");
    }
}

/// A cgroup with a CPU quota of a fifth of a CPU; removed at the end. `None` if this user or this kernel cannot have one.
struct Limited(PathBuf);

impl Limited {
    fn make() -> Option<Limited> {
        let name = format!("tcpcost-test-{}", std::process::id());
        let files = [
            ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "20000"),
            ("/sys/fs/cgroup/unified", "cpu.max", "20000 100000"),
            ("/sys/fs/cgroup", "cpu.max", "20000 100000"),
        ];
        files.into_iter().find_map(|(mount, file, quota)| {
            let folder = Path::new(mount).join(&name);
            std::fs::create_dir(&folder).ok()?;
            let made = Limited(folder);
            std::fs::write(made.0.join(file), quota).ok()?;
            Some(made)
        })
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn what_a_cpu_quota_stopped_has_a_warning() {
    let Some(limited) = Limited::make() else {
        return skip("needs root and a cgroup with the controller cpu");
    };
    let place = Place::new();
    let study = STUDY
        .replace("\"20ms\"", "\"300ms\"")
        .replace("repetitions = 4", "repetitions = 1");
    let study = place.write("study.toml", &study);
    let procs = limited.0.join("cgroup.procs");
    let mut command = place.command(&["run", &study, "--out", "out", "--quiet"]);
    // SAFETY: between fork and exec the child makes system calls alone; a short path needs no memory.
    unsafe { command.pre_exec(move || std::fs::write(&procs, "0")) };
    let ran = Ran::from(command.output().unwrap());
    let records = place.records("out");
    let quota = |record: &serde_json::Value| {
        let warnings = record["warnings"].as_array().unwrap();
        warnings.iter().any(|warning| warning["code"] == "quota")
    };
    // A trial that got no CPU time at all has failed instead.
    assert!(
        records
            .iter()
            .all(|record| quota(record) || record["outcome"] != "measured"),
        "{records:?}"
    );
    assert!(records.iter().any(quota), "{ran:?}");
}

fn kill(pid: i32, signal: libc::c_int) {
    // SAFETY: kill takes no pointers; the process was started by a command of this test.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

fn is_stopped(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.contains("State:\tT")
}

#[test]
fn asked_to_stop_at_any_instant_a_run_ends_with_a_report_and_goes_on_whole() {
    let place = Place::new();
    let study = place.write("short.toml", STUDY);
    let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
    // Times spread over a run of about 600 ms, the same in each test run.
    let instants = (0..12_u64).map(|index| index * 7919 % 600);
    for (index, instant_ms) in instants.enumerate() {
        let out = format!("out-{index}");
        let mut started = place.start(&["run", &study, "--out", &out]);
        started.wait_for("records and report");
        std::thread::sleep(Duration::from_millis(instant_ms));
        let signal = signals[index % signals.len()];
        started.signal(signal);
        let ran = started.end();
        let done = place.records(&out).len();
        let expected = if done == 8 {
            [Some(0), Some(130)]
        } else {
            [Some(130); 2]
        };
        assert!(expected.contains(&ran.code), "signal {signal}: {ran:?}");
        assert!(ran.stdout.contains("short"), "no report: {ran:?}");
        assert!(place.path(&out).join("report.html").exists());
        let resumed = place.run(&["run", "--resume", &out]);
        assert_eq!(resumed.code, Some(0), "{resumed:?}");
        assert_eq!(measured_once(&place, &out), 8);
    }
}

#[test]
fn a_run_that_waits_for_its_cpus_to_be_near_each_other_can_be_interrupted() {
    if !has_cpus(2) {
        return;
    }
    let place = Place::new();
    let on_two = STUDY.replace(
        "placement = \"same-cpu\"",
        "client_cpus = [0]\nserver_cpus = [1]",
    );
    // If the machine is too busy to wait, the trials still take seconds.
    let study = place.write("short.toml", &on_two.replace("20ms", "1s"));
    let mut started = place.start(&["run", &study, "--out", "out"]);
    started.wait_for("[1/8]");
    started.signal(libc::SIGKILL);
    started.end();
    // The next trials measure a larger core distance than the records have, so each waits.
    let file = place.path("out/records.jsonl");
    let mut near = String::new();
    for mut record in place.records("out") {
        record["cpu_distances"][0]["before_ns"] = serde_json::json!(1);
        near += &format!("{record}\n");
    }
    std::fs::write(&file, &near).unwrap();
    let mut started = place.start(&["run", "--resume", "out"]);
    started.wait_for("records and report");
    std::thread::sleep(Duration::from_millis(300));
    started.signal(libc::SIGINT);
    let ran = started.end();
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
}

#[test]
fn a_second_request_ends_a_run_whose_agents_hang_and_there_is_a_report() {
    let place = Place::new();
    let study = place.write("long.toml", &endless(STUDY));
    let mut started = place.start(&["run", &study, "--out", "out"]);
    started.wait_for("records and report");
    let agents = started.two_agents();
    let ends: Vec<Exit> = agents.iter().copied().map(Exit::of).collect();
    agents.iter().for_each(|&agent| kill(agent, libc::SIGSTOP));
    // Two different signals, because a second signal of one kind may be merged with the first.
    started.signal(libc::SIGINT);
    started.signal(libc::SIGTERM);
    let ran = started.end();
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(ran.stdout.contains("short"), "no report: {ran:?}");
    assert!(ends.iter().all(Exit::wait), "an agent lives on");
}

#[test]
fn a_host_that_hangs_ends_its_trial_soon_after_the_limit_of_the_run() {
    let place = Place::new();
    let limited = STUDY.replace(
        "duration = \"20ms\"",
        "duration = \"1s\"\ntime_max = \"5s\"",
    );
    let study = place.write("short.toml", &limited);
    let mut started = place.start(&["run", &study, "--out", "out"]);
    started.wait_for("[1/8]");
    let agent = started.agent_of("server");
    let end = Exit::of(agent);
    kill(agent, libc::SIGSTOP);
    let ran = started.end();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let records = place.records("out");
    let mut reasons = records
        .iter()
        .filter_map(|record| record["reason"].as_str());
    assert!(
        reasons.any(|reason| reason.starts_with("server agent: no end after 1")),
        "{records:?}"
    );
    assert!(ran.stdout.contains("short"), "no report: {ran:?}");
    assert!(end.wait(), "the agent lives on");
}

#[test]
fn several_runs_go_on_where_they_were_interrupted() {
    let place = Place::new();
    let study = place.write("short.toml", &STUDY.replace("20ms", "100ms"));
    let args = ["run", &study, "--runs", "3", "--out", "out"];
    let mut started = place.start(&args);
    started.wait_for("run 2 of 3");
    until("a trial of the second run", || {
        let text = std::fs::read_to_string(place.path("out/002/records.jsonl"));
        text.ok()?.contains('\n').then_some(())
    });
    started.signal(libc::SIGINT);
    let ran = started.end();
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(ran.stderr.contains("with --out out continues"), "{ran:?}");
    assert!(!place.path("out/003").exists());
    let texts = || {
        ["001", "002"].map(|run| {
            std::fs::read_to_string(place.path(&format!("out/{run}/records.jsonl"))).unwrap()
        })
    };
    let before = texts();
    let ran = place.run(&args);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let after = texts();
    assert_eq!(after[0], before[0], "the first run was complete");
    assert!(after[1].starts_with(&before[1]), "trials were done again");
    for run in ["out/001", "out/002", "out/003"] {
        assert_eq!(measured_once(&place, run), 8);
    }
    let other = place.run(&["run", &study, "--seed", "7", "--runs", "3", "--out", "out"]);
    assert_eq!(other.code, Some(2), "{other:?}");
    assert!(
        other
            .stderr
            .contains("of another study or with other options"),
        "{other:?}"
    );
}

#[test]
fn agents_leave_signals_of_the_terminal_to_the_command() {
    let place = Place::new();
    let study = place.write("short.toml", STUDY);
    let mut started = place.start(&["run", &study, "--out", "out"]);
    started.wait_for("[1/8]");
    for agent in started.two_agents() {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
            kill(agent, signal);
        }
    }
    let ran = started.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(measured_once(&place, "out"), 8);
}

fn mtu() -> String {
    common::mtu_of_lo()
}

#[test]
fn of_two_runs_on_the_hosts_devices_the_later_waits_and_says_for_whom() {
    in_namespace(|| {
        let place = Place::new();
        let before = mtu();
        let first = place.write("first.toml", &endless(&with_mtu(1500)));
        let second = place.write("second.toml", &with_mtu(9000));
        let unchanged = place.write("unchanged.toml", STUDY);
        let first = place.start(&["run", &first, "--out", "first"]);
        until("the first run's MTU", || (mtu() == "1500").then_some(()));

        // A run that waits ends at once when asked to stop.
        let mut waits = place.start(&["run", &unchanged, "--out", "waits"]);
        let line = waits.wait_for("tcpcost: waiting: this run");
        assert!(line.contains("--out first"), "{line}");
        waits.signal(libc::SIGTERM);
        assert_eq!(waits.end().code, Some(130));

        let mut later = place.start(&["run", &second, "--out", "second"]);
        later.wait_for("tcpcost: waiting: this run");
        assert_eq!(mtu(), "1500");
        first.signal(libc::SIGINT);
        assert_eq!(first.end().code, Some(130));
        let later = later.end();
        assert_eq!(later.code, Some(0), "{later:?}");
        for record in &place.records("second") {
            assert_eq!(environment(record, "client")["mtu"], 9000);
        }
        assert_eq!(mtu(), before);
        assert!(
            place
                .run(&["doctor", "--restore"])
                .stdout
                .contains("nothing"),
            "nothing is left to put back"
        );
    });
}

#[test]
fn a_later_run_has_the_host_only_when_the_agents_of_a_killed_one_are_gone() {
    in_namespace(|| {
        let place = Place::new();
        let before = mtu();
        let first = place.write("first.toml", &endless(&with_mtu(1500)));
        let second = place.write("second.toml", STUDY);
        let first = place.start(&["run", &first, "--out", "first"]);
        until("the first run's MTU", || (mtu() == "1500").then_some(()));
        let agents = first.two_agents();
        let both = |signal| agents.iter().for_each(|&agent| kill(agent, signal));
        // The agents must stop during a trial, not between two trials, when the MTU is restored.
        until("agents that stop while the MTU is changed", || {
            both(libc::SIGSTOP);
            until("both to stop", || {
                agents.iter().all(|&agent| is_stopped(agent)).then_some(())
            });
            let is_changed = mtu() == "1500";
            if !is_changed {
                both(libc::SIGCONT);
            }
            is_changed.then_some(())
        });
        first.signal(libc::SIGKILL);
        let mut later = place.start(&["run", &second, "--out", "second"]);
        later.wait_for("tcpcost: waiting: this run");
        both(libc::SIGKILL);
        first.end();
        let later = later.end();
        assert_eq!(later.code, Some(0), "{later:?}");
        let said = "restored what a killed run had changed";
        assert!(later.stderr.contains(said), "{later:?}");
        for record in &place.records("second") {
            let mtu = &environment(record, "client")["mtu"];
            assert_eq!(mtu.to_string(), before, "{later:?}");
        }
    });
}

#[test]
fn what_a_killed_agent_had_changed_is_put_back_and_its_trial_repeated() {
    in_namespace(|| {
        let before = mtu();
        for index in 0..2 {
            let place = Place::new();
            // The second cell uses the host's own MTU.
            let cells =
                "[[cells]]\nname = \"changed\"\nmtu = 1500\n[[cells]]\nname = \"as it is\"\n";
            let text = STUDY.replace("[vary]\nwrite_size = [\"4KiB\", \"64KiB\"]\n", cells);
            let study = place.write("short.toml", &text);
            let mut started = place.start(&["run", &study, "--out", "out"]);
            started.wait_for("[1/8]");
            until("the study's MTU", || (mtu() == "1500").then_some(()));
            kill(started.two_agents()[index], libc::SIGKILL);
            let ran = started.end();
            assert_eq!(ran.code, Some(1), "{ran:?}");
            let records = place.records("out");
            let failed = |one: &&serde_json::Value| one["outcome"] == "failed" && !did_no_work(one);
            let failed = records.iter().filter(failed);
            assert_eq!(failed.count(), 1, "{ran:?}");
            assert_eq!(measured_once(&place, "out"), 8);
            for record in records.iter().filter(|one| one["outcome"] == "measured") {
                let asked = if record["cell"] == "changed" {
                    "1500"
                } else {
                    &before
                };
                let mtu = &environment(record, "client")["mtu"];
                assert_eq!(mtu.to_string(), asked, "{}", record["cell"]);
            }
            assert_eq!(mtu(), before);
        }
    });
}

#[test]
fn a_directory_that_is_written_to_is_not_resumed() {
    let place = Place::new();
    let study = place.write("long.toml", &endless(STUDY));
    let mut started = place.start(&["run", &study, "--out", "out"]);
    started.wait_for("records and report");
    for args in [
        ["run", "--resume", "out", "--quiet"],
        ["run", &study, "--out", "out"],
    ] {
        let second = place.run(&args);
        assert_eq!(second.code, Some(2), "{second:?}");
        assert!(second.stderr.contains("is being written by"), "{second:?}");
        let pid = format!("process {}", started.child.id());
        assert!(second.stderr.contains(&pid), "{second:?}");
    }
    started.signal(libc::SIGINT);
    started.end();
}

/// Panics unless each of two cells has four trials, those that a busy machine failed or marked
/// included. Marked trials may be among `n`.
fn has_four_trials_a_cell(summary: &serde_json::Value) {
    let cells = summary["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2, "{summary}");
    for cell in cells {
        let of = |name: &str| cell[name].as_u64().unwrap();
        let least = of("n") + of("n_failed");
        assert!((least..=least + of("n_marked")).contains(&4), "{cell}");
    }
}

#[test]
fn a_record_that_stands_twice_counts_once_and_a_lost_one_is_done_again() {
    let place = Place::new();
    let study = place.write("short.toml", STUDY);
    let ran = place.in_time(|| place.run(&["run", &study, "--out", "out"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let file = place.path("out/records.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.lines().collect();

    let twice = [&lines[..], &lines[2..4]].concat().join("\n") + "\n";
    std::fs::write(&file, twice).unwrap();
    let report = place.run(&["report", "out", "--format=json"]);
    assert_eq!(report.code, Some(0), "{report:?}");
    assert!(
        report.stderr.contains("2 of its 10 records are duplicates"),
        "{report:?}"
    );
    let summary: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
    has_four_trials_a_cell(&summary);

    // One line is missing, another is damaged.
    let mut holed = lines.clone();
    holed[5] = "{\"schema_version\":1,\"stu";
    holed.remove(1);
    std::fs::write(&file, holed.join("\n") + "\n").unwrap();
    let resumed = place.run(&["run", "--resume", "out"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    assert!(resumed.stderr.contains("records.jsonl:5: "), "{resumed:?}");
    let now = std::fs::read_to_string(&file).unwrap();
    assert_eq!(now.lines().count(), 9, "two more than were left");
    let report = place.run(&["report", "out", "--format=json"]);
    let summary: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
    has_four_trials_a_cell(&summary);
}

/// Runs a command with these kinds of standard output and standard error.
fn run_into(place: &Place, args: &[&str], stdout: Stdio, stderr: Stdio) -> Ran {
    let mut command = place.command(args);
    command.stdout(stdout).stderr(stderr);
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    Ran::from(output)
}

fn full() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

/// Pipe without a reader.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn a_closed_or_full_output_is_no_panic_and_what_was_measured_is_kept() {
    let place = Place::new();
    let study = place.write("short.toml", STUDY);
    let commands: &[&[&str]] = &[
        &["study", "list"],
        &["study", "list", "--format=json"],
        &["study", "show", "tour"],
        &["study", "knobs"],
        &["run", "tour", "--dry-run"],
        &["doctor"],
        &["doctor", "--restore"],
    ];
    for args in commands {
        let to_full = run_into(&place, args, full(), Stdio::piped());
        assert_eq!(to_full.code, Some(1), "{args:?}: {to_full:?}");
        assert!(to_full.stderr.contains("standard output"), "{to_full:?}");
        let unread = run_into(&place, args, closed(), Stdio::piped());
        assert!(
            matches!(unread.code, Some(0 | 77)) && unread.stderr.is_empty(),
            "{args:?}: {unread:?}"
        );
    }
    let cases = [
        (full(), Stdio::piped(), 1),
        (closed(), Stdio::piped(), 0),
        (Stdio::piped(), full(), 0),
        (Stdio::piped(), closed(), 0),
        (closed(), closed(), 0),
    ];
    for (index, (stdout, stderr, code)) in cases.into_iter().enumerate() {
        let out = format!("out-{index}");
        let ran = run_into(&place, &["run", &study, "--out", &out], stdout, stderr);
        assert_eq!(ran.code, Some(code), "case {index}: {ran:?}");
        assert_eq!(measured_once(&place, &out), 8);
        assert!(place.path(&out).join("report.html").exists());
    }
    let wrong = run_into(&place, &["run", "tuor"], Stdio::piped(), closed());
    assert_eq!(wrong.code, Some(2));
}

/// Limits the size of files, as a full disk does.
fn limit_files(command: &mut Command, bytes: u64) {
    // SAFETY: setrlimit and signal are async-signal-safe and do not touch the parent.
    unsafe {
        command.pre_exec(move || {
            let limits = libc::rlimit {
                rlim_cur: bytes,
                rlim_max: bytes,
            };
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            match libc::setrlimit(libc::RLIMIT_FSIZE, &limits) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
}

/// Makes this directory readable but not writable for the command. Root may write whatever the mode
/// is, so for root it becomes a read-only mount in a mount namespace of the command.
fn make_read_only(command: &mut Command, directory: &Path) {
    // SAFETY: geteuid cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o555);
        std::fs::set_permissions(directory, mode).unwrap();
        return;
    }
    let directory = CString::new(directory.as_os_str().as_bytes()).unwrap();
    let (directory, root) = (directory, c"/");
    // SAFETY: unshare and mount are plain system calls, and all strings live as long as the
    // closure.
    unsafe {
        command.pre_exec(move || {
            let mount = |from: *const libc::c_char, to: &CStr, flags| {
                let (none, data) = (std::ptr::null(), std::ptr::null());
                match libc::mount(from, to.as_ptr(), none, flags, data) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            };
            if libc::unshare(libc::CLONE_NEWNS) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            mount(std::ptr::null(), root, libc::MS_REC | libc::MS_PRIVATE)?;
            mount(directory.as_ptr(), &directory, libc::MS_BIND)?;
            let read_only = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY;
            mount(std::ptr::null(), &directory, read_only)
        });
    }
}

#[test]
fn a_run_that_can_only_be_read_is_reported_with_a_line_about_its_page() {
    let place = Place::new();
    let study = place.write("short.toml", STUDY);
    assert_eq!(place.run(&["run", &study, "--out", "out"]).code, Some(0));
    let printed = place.run(&["report", "out"]).stdout;
    let mut command = place.command(&["report", "out"]);
    make_read_only(&mut command, &place.path("out"));
    let ran = Ran::from(command.output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.stdout, printed);
    let line = "tcpcost: out cannot be written: its report.html is left as it was\n";
    assert_eq!(ran.stderr, line);
}

#[test]
fn on_a_full_disk_the_text_is_printed_and_no_half_of_a_page_stays() {
    let place = Place::new();
    let study = place.write("short.toml", STUDY);
    assert_eq!(place.run(&["run", &study, "--out", "out"]).code, Some(0));
    let page = std::fs::read(place.path("out/report.html")).unwrap();
    let files = || std::fs::read_dir(place.path("out")).unwrap().count();
    let before = files();
    let printed = place.run(&["report", "out"]).stdout;
    let mut command = place.command(&["report", "out"]);
    limit_files(&mut command, page.len() as u64 / 2);
    let ran = Ran::from(command.output().unwrap());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("report.html"), "{ran:?}");
    assert_eq!(ran.stdout, printed);
    assert_eq!(std::fs::read(place.path("out/report.html")).unwrap(), page);
    assert_eq!(files(), before, "nothing half written stays");

    // Not all records fit: the records that do are reported, and the other trials can be done
    // later.
    let line = std::fs::metadata(place.path("out/records.jsonl"))
        .unwrap()
        .len()
        / 8;
    let mut command = place.command(&["run", &study, "--out", "short"]);
    limit_files(&mut command, line * 5 / 2);
    let ran = Ran::from(command.output().unwrap());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("short"), "no report: {ran:?}");
    let kept = place.records("short").len();
    assert!((1..8).contains(&kept), "{kept} whole records");
    let resumed = place.run(&["run", "--resume", "short"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    assert_eq!(measured_once(&place, "short"), 8);
}

#[test]
fn nohup_keeps_a_run_going_when_the_terminal_is_closed() {
    let place = Place::new();
    let study = place.write("short.toml", STUDY);
    let mut command = place.command(&["run", &study, "--out", "out"]);
    // SAFETY: ignoring a signal is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            Ok(())
        });
    }
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut String::new()).unwrap();
    kill(child.id().cast_signed(), libc::SIGHUP);
    stderr.read_to_string(&mut String::new()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(measured_once(&place, "out"), 8);
}

#[test]
fn a_file_that_stands_where_a_run_would_write_is_neither_written_over_nor_removed() {
    let place = Place::new();
    let read = |name: &str| std::fs::read_to_string(place.path(name)).unwrap();
    for name in ["study.toml", "run.json"] {
        place.write(name, "precious");
        let ran = place.run(&["run", "tour", "--out", "."]);
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        let said = format!("./{name} exists already and differs from what this run would write");
        assert!(ran.stderr.contains(&said), "{}", ran.stderr);
        assert_eq!(read(name), "precious");
        std::fs::remove_file(place.path(name)).unwrap();
    }
    // A run that cannot begin removes what it created, and nothing else.
    let submit = |out: &str| {
        let mut command = place.command(&["run", "study.toml", "--slurm", "--out", out]);
        let output = command.env("PATH", "/nonexistent").output().unwrap();
        assert!(!output.status.success());
    };
    place.write("study.toml", STUDY);
    submit(".");
    assert_eq!(read("study.toml"), STUDY);
    let left = std::fs::read_dir(place.path(".")).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(
        !left
            .iter()
            .any(|name| name == "run.json" || name == "records.jsonl"),
        "{left:?}"
    );
    submit("new");
    assert!(!place.path("new").exists());
}
