//! Runs `tcpcost stat` on real commands. Tests that need root report a skip without it.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::{Place, Ran};
use serde_json::Value;

/// Shell in a shell that counts: some CPU time is in a child of the command.
const COUNTS: &str = "sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; :'; :";

fn document(ran: &Ran) -> Value {
    // The document of two commands is on standard output; that of one command is on standard error.
    let mut lines = ran.stderr.lines().chain(ran.stdout.lines());
    let line = lines.find(|line| line.starts_with('{'));
    let line = line.unwrap_or_else(|| panic!("no document: {ran:?}"));
    serde_json::from_str(line).unwrap()
}

fn median(document: &Value, command: usize, key: &str) -> Option<f64> {
    document["commands"][command]["estimates"][key]["median"].as_f64()
}

#[test]
fn the_exit_code_and_the_output_are_the_commands() {
    let place = Place::new();
    let ran = place.run(&["stat", "--", "sh", "-c", "echo said; exit 7"]);
    assert_eq!(ran.code, Some(7), "{ran:?}");
    assert_eq!(ran.stdout, "said\n");
    let killed = place.run(&["stat", "--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(killed.code, Some(128 + 15), "{killed:?}");
    let absent = place.run(&["stat", "--", "/no/such/program"]);
    assert_eq!(absent.code, Some(127), "{absent:?}");
    assert!(absent.stderr.contains("run /no/such/program"), "{absent:?}");
    let folder = place.run(&["stat", "--", "/"]);
    assert_eq!(folder.code, Some(126), "{folder:?}");
}

#[test]
fn mistakes_are_told() {
    let place = Place::new();
    for (args, said) in [
        (&["stat"][..], "COMMAND"),
        (&["stat", "--per", "(", "--", "true"], "--per"),
        (
            &["stat", "--pid", "4194305", "--", "true"],
            "there is no such process",
        ),
        (&["stat", "--cgroup", "/no/such", "--", "true"], "--cgroup"),
        (&["stat", "--netns", "no-such", "true"], "--netns no-such"),
        (&["stat", "--no-such", "true"], "--no-such"),
        (
            &["stat", "--min-effect", "nan", "--", "true"],
            "--min-effect",
        ),
        (&["stat", "--", "true", "--versus", "--"], "two commands"),
    ] {
        let ran = place.run(args);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(said), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    }
}

#[test]
fn what_a_command_starts_is_its_own() {
    let place = Place::new();
    let ran = place.run(&["stat", "-n", "2", "--format=json", "--", "sh", "-c", COUNTS]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let document = document(&ran);
    assert_eq!(document["schema_version"], 1);
    let command = &document["commands"][0];
    assert_eq!(command["runs"].as_array().unwrap().len(), 2);
    assert_eq!(command["estimates"]["elapsed_s"]["n"], 2);
    let unavailable = document["unavailable"].to_string();
    if let Some(ns) = median(&document, 0, "task_clock_ns") {
        assert!(ns > 1e6, "{ns}");
    } else {
        assert!(unavailable.contains("descendants"), "{unavailable}");
    }
    let Some(exact) = median(&document, 0, "exact_task_own_ns") else {
        assert!(unavailable.contains("exact"), "{unavailable}");
        return tcpcost_testbed::skip(&unavailable);
    };
    assert!(exact > 1e6, "{exact}");
}

#[test]
fn the_cost_is_told_per_what_the_command_says_that_it_did() {
    let place = Place::new();
    let command =
        "echo 3 requests; echo 1,500 requests; i=0; while [ $i -lt 9999 ]; do i=$((i+1)); done";
    let args = [
        "stat",
        "--per",
        r"([\d,]+) requests",
        "--format=json",
        "--",
        "sh",
        "-c",
        command,
    ];
    let ran = place.run(&args);
    assert!(
        ran.stdout.contains("3 requests\n1,500 requests\n"),
        "{ran:?}"
    );
    let found = document(&ran);
    assert_eq!(median(&found, 0, "units"), Some(1500.0));
    if let Some(own) = median(&found, 0, "exact_task_own_ns") {
        let per = median(&found, 0, "exact_cpu_us_per_transaction").unwrap();
        assert!(per >= own / 1e3 / 1500.0, "{per} {own}");
    }
    let ran = place.run(&["stat", "--per", "(\\d+) others", "--", "echo", "none"]);
    assert!(ran.stderr.contains("--per: no number by"), "{ran:?}");
}

#[test]
fn of_two_commands_the_dearer_one_is_found() {
    let place = Place::new();
    let args = [
        "stat",
        "-n",
        "8",
        "--seed",
        "1",
        "--format=json",
        "--",
        "sh",
        "-c",
        ":",
        "--versus",
        "--",
        "sh",
        "-c",
        COUNTS,
    ];
    let ran = place.run(&args);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // The verdict is alone on standard output; the output of the commands goes elsewhere.
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    let verdict = &document["versus"];
    assert_eq!(verdict["verdict"], "REGRESSES", "{verdict}");
    assert_eq!(verdict["ratio"]["n"], 8, "{verdict}");
    assert!(verdict["ratio"]["lo"].as_f64().unwrap() > 1.0, "{verdict}");
    assert_eq!(document["commands"][1]["command"][2], COUNTS);
    let too_few = place.run(&["stat", "-n", "2", "--", "true", "--versus", "--", "true"]);
    assert!(too_few.stdout.contains("INCONCLUSIVE"), "{too_few:?}");
    assert!(too_few.stdout.contains("-n 6 or more"), "{too_few:?}");
}

#[test]
fn a_process_that_runs_already_is_measured_while_a_command_runs() {
    let place = Place::new();
    // The process is measured, not the command after `stat`.
    let mut counted = std::process::Command::new("sh")
        .args(["-c", "while read -r _; do :; done; while :; do :; done"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = counted.id().to_string();
    // The CPU time of its start must be over, because it is not idle.
    tcpcost_testbed::until("it waits for its input", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.contains(") S ").then_some(())
    });
    let args = [
        "stat",
        "--format=json",
        "--pid",
        &pid,
        "--",
        "sh",
        "-c",
        COUNTS,
    ];
    let idle = place.run(&args);
    drop(counted.stdin.take()); // From here on it spins.
    let busy = place.run(&args);
    counted.kill().unwrap();
    counted.wait().unwrap();
    let (idle, busy) = (document(&idle), document(&busy));
    assert_eq!(busy["attached"], true);
    let Some(spun) = median(&busy, 0, "exact_task_own_ns") else {
        return tcpcost_testbed::skip(&busy["unavailable"].to_string());
    };
    assert_eq!(median(&idle, 0, "exact_task_own_ns"), Some(0.0), "{idle}");
    assert!(spun > 1e6, "{spun}");
}

#[test]
fn in_a_fresh_namespace_all_tcp_is_the_commands() {
    if !tcpcost_testbed::can_make_namespaces() {
        return;
    }
    let place = Place::new();
    let study = place.write(
        "one.toml",
        "[bed]\nkind = \"loopback\"\n[measure]\nwarm_up = \"10ms\"\nduration = \"100ms\"\nrepetitions = 1\nothers_max = \"100%\"\nretries = 0\n",
    );
    let own = env!("CARGO_BIN_EXE_tcpcost");
    let args = [
        "stat",
        "--fresh-netns",
        "--format=json",
        "-o",
        "stat.json",
        "--",
        own,
        "run",
        &study,
        "--out",
        "out",
    ];
    let ran = place.run(&args);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let text = std::fs::read_to_string(place.path("stat.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["network_namespace"], "fresh");
    assert_eq!(
        median(&document, 0, "active_opens"),
        median(&document, 0, "passive_opens")
    );
    assert!(
        median(&document, 0, "active_opens").unwrap() >= 1.0,
        "{document}"
    );
    let Some(sent) = median(&document, 0, "data_skb_bytes_sent") else {
        return tcpcost_testbed::skip(&document["unavailable"].to_string());
    };
    assert!(sent > 65_536.0, "{sent}");
    assert!(median(&document, 0, "command_exact_cpu_us_per_payload_kib").unwrap() > 0.0);
}

#[test]
fn system_calls_of_the_network_are_counted_where_they_are_asked_for() {
    let place = Place::new();
    // bash connects by itself, and is refused. If SHELL or HOME is unset it first asks nscd over a
    // socket.
    let connects = |times| {
        let script = format!("for i in {times}; do : < /dev/tcp/127.0.0.1/1; done 2> /dev/null; :");
        let ran = place.run(&[
            "stat",
            "--syscalls",
            "--format=json",
            "--",
            "bash",
            "-c",
            &script,
        ]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        document(&ran)
    };
    let (none, with) = (connects(""), connects("1 2 3"));
    let without = document(&place.run(&["stat", "--format=json", "--", "bash", "-c", ":"]));
    assert_eq!(median(&without, 0, "connect_system_calls"), None);
    let Some(connected) = median(&with, 0, "connect_system_calls") else {
        let unavailable = with["unavailable"].to_string();
        assert!(unavailable.contains("count system calls"), "{unavailable}");
        return tcpcost_testbed::skip(&unavailable);
    };
    let start = median(&none, 0, "connect_system_calls").unwrap();
    assert_eq!(connected - start, 3.0);
    assert_eq!(median(&with, 0, "accept_system_calls"), Some(0.0));
}

#[test]
fn the_tcp_of_a_process_is_that_of_its_own_namespace() {
    if !tcpcost_testbed::can_make_namespaces() {
        return;
    }
    let place = Place::new();
    let (started, done) = (place.path("started"), place.path("done"));
    // A namespace has a process and connections, while `stat` attaches to the process from outside.
    let (pid_here, pid_there) = std::sync::mpsc::channel();
    let of_namespace = {
        let (started, done) = (started.clone(), done.clone());
        std::thread::spawn(move || {
            tcpcost_host::namespace::enter_new_network().unwrap();
            let mut process = std::process::Command::new("cat")
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            pid_here.send(process.id()).unwrap();
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            tcpcost_testbed::until("the command", || started.exists().then_some(()));
            for _ in 0..5 {
                drop(std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            }
            std::fs::write(done, "").unwrap();
            drop(process.stdin.take());
            process.wait().unwrap();
        })
    };
    let pid = pid_there.recv().unwrap().to_string();
    let waits = "touch started; while [ ! -e done ]; do sleep 0.01; done";
    let ran = place.run(&[
        "stat",
        "--format=json",
        "--pid",
        &pid,
        "--",
        "sh",
        "-c",
        waits,
    ]);
    of_namespace.join().unwrap();
    let document = document(&ran);
    assert_eq!(document["network_namespace"], "attached");
    assert_eq!(
        median(&document, 0, "active_opens"),
        Some(5.0),
        "{document}"
    );
    assert_eq!(
        median(&document, 0, "passive_opens"),
        Some(5.0),
        "{document}"
    );
}

#[test]
fn no_line_for_people_is_longer_than_100_columns() {
    let place = Place::new();
    let words = ["a-word-of-a-long-command"; 12].join(" ");
    let said = format!(": {words}; {COUNTS}");
    for args in [
        &["stat", "--", "sh", "-c", &said][..],
        &[
            "stat", "-n", "6", "--", "sh", "-c", &said, "--versus", "--", "sh", "-c", &said,
        ],
    ] {
        let ran = place.run(args);
        let told = ran.stdout + &ran.stderr;
        assert!(told.contains("took") || told.contains("cost"), "{told}");
        for line in told.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}

/// Softirqs for another process do not count for a command without a socket.
#[test]
fn a_busy_neighbour_is_no_part_of_the_cost() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let echo = thread::spawn(move || {
        let mut byte = [0];
        while server.read_exact(&mut byte).is_ok() && server.write_all(&byte).is_ok() {}
    });
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_over);
    let asks = thread::spawn(move || {
        let mut rounds = 0_u64;
        while !ends.load(Ordering::Relaxed) {
            client.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
            rounds += 1;
        }
        rounds
    });
    let ran = place.run(&["stat", "--format=json", "--", "sh", "-c", COUNTS]);
    is_over.store(true, Ordering::Relaxed);
    let rounds = asks.join().unwrap();
    echo.join().unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(rounds > 0);
    let document = document(&ran);
    let Some(neighbours) = median(&document, 0, "exact_neighbour_softirq_ns") else {
        let unavailable = document["unavailable"].to_string();
        assert!(unavailable.contains("owners"), "{unavailable}");
        return tcpcost_testbed::skip(&unavailable);
    };
    assert!(neighbours > 0.0, "{document}");
    for key in [
        "exact_own_softirq_ns",
        "exact_own_hardirq_ns",
        "exact_peer_softirq_ns",
    ] {
        assert_eq!(median(&document, 0, key), Some(0.0), "{key} {document}");
    }
}

/// Options of `stat` come before the command, as with perf.
#[test]
fn a_command_needs_no_dashes_before_it() {
    let place = Place::new();
    let ran = place.run(&[
        "stat",
        "-n",
        "2",
        "--format=json",
        "sh",
        "-c",
        "echo $0; exit 7",
        "-r",
    ]);
    assert_eq!(ran.code, Some(7), "{ran:?}");
    assert_eq!(ran.stdout, "-r\n-r\n");
    let found = document(&ran);
    assert_eq!(found["commands"][0]["command"][3], "-r", "{found}");
    let two = place.run(&[
        "stat",
        "-n",
        "2",
        "--format=json",
        "true",
        "--versus",
        "--",
        "echo",
        "-x",
    ]);
    assert_eq!(document(&two)["commands"][1]["command"][1], "-x", "{two:?}");
    let line = place.run(&["stat", "no such program"]);
    assert_eq!(line.code, Some(127), "{line:?}");
    assert!(line.stderr.contains("sh -c 'LINE'"), "{line:?}");
}

/// Runs `stat` as a user without capabilities.
fn run_unprivileged(args: &[&str]) -> Option<Ran> {
    if !tcpcost_testbed::is_root() {
        return Some(Place::new().run(args));
    }
    let place = Place::new();
    let of_root = place.command(args);
    let mut command = std::process::Command::new("setpriv");
    command
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(of_root.get_program())
        .args(args)
        .current_dir("/");
    match command.output() {
        Ok(output) => Some(Ran::from(output)),
        Err(error) => {
            tcpcost_testbed::skip(&format!("setpriv: {error}"));
            None
        }
    }
}

#[test]
fn without_privileges_the_threads_have_their_time_and_the_rest_its_remedy() {
    let args = ["stat", "sh", "-c", COUNTS];
    let Some(ran) = run_unprivileged(&args) else {
        return;
    };
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let said = ran.stderr.replace("\n  ", " ").replace('\n', " ");
    assert!(said.contains("of CPU in its own threads"), "{ran:?}");
    assert!(said.contains("in user mode"), "{ran:?}");
    assert!(
        said.contains("sudo setcap cap_bpf,cap_perfmon,cap_net_admin=ep"),
        "{ran:?}"
    );
    let Some(ran) = run_unprivileged(&["stat", "--format=json", "sh", "-c", COUNTS]) else {
        return;
    };
    let found = document(&ran);
    assert!(
        median(&found, 0, "command_cpu_ns").unwrap() > 1e6,
        "{found}"
    );
    assert_eq!(median(&found, 0, "exact_task_own_ns"), None, "{found}");
}

#[test]
fn without_privileges_a_fresh_namespace_is_made_in_a_user_namespace() {
    let command = "id -u; grep -c : /proc/net/dev; grep CapEff /proc/self/status";
    let Some(ran) = run_unprivileged(&["stat", "--fresh-netns", "sh", "-c", command]) else {
        return;
    };
    if ran.code == Some(77) {
        assert!(ran.stderr.contains("--fresh-netns"), "{ran:?}");
        return tcpcost_testbed::skip(&ran.stderr);
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    if tcpcost_testbed::is_root() {
        assert_eq!(lines[0], "65534", "{ran:?}");
    }
    // The namespace has lo only, and the command has no more capabilities than its user.
    assert_eq!(lines[1], "1", "{ran:?}");
    assert_eq!(lines[2], "CapEff:\t0000000000000000", "{ran:?}");
}

#[test]
fn a_process_that_outlives_its_command_in_a_fresh_namespace_is_named() {
    let command = "sleep 60 >/dev/null 2>&1 & echo $!";
    let ran = Place::new().run(&["stat", "--fresh-netns", "sh", "-c", command]);
    if ran.code == Some(77) {
        return tcpcost_testbed::skip(&ran.stderr);
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let pid: i32 = ran.stdout.trim().parse().unwrap();
    let sleeper = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(sleeper, rustix::process::Signal::KILL).unwrap();
    assert!(
        ran.stderr
            .contains(&format!("({pid}). To end it: kill {pid}")),
        "{ran:?}"
    );
}

/// The tracepoints of sockets also count read and write.
#[test]
fn sends_and_receives_of_a_running_process_are_counted() {
    const ROUNDS: usize = 100;
    let place = Place::new();
    let (started, done) = (place.path("started"), place.path("done"));
    let waits = "touch started; while [ ! -e done ]; do sleep 0.01; done";
    let own = std::process::id().to_string();
    let args = [
        "stat",
        "--syscalls",
        "--format=json",
        "--pid",
        &own,
        "sh",
        "-c",
        waits,
    ];
    let stat = place.start(&args);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    let [mut client, mut server] =
        [client, server].map(|stream| std::fs::File::from(std::os::fd::OwnedFd::from(stream)));
    tcpcost_testbed::until("the command", || started.exists().then_some(()));
    for _ in 0..ROUNDS {
        client.write_all(b"abc").unwrap();
        server.read_exact(&mut [0; 3]).unwrap();
    }
    std::fs::write(done, "").unwrap();
    let ran = stat.end();
    let found = document(&ran);
    let Some(sends) = median(&found, 0, "socket_sends") else {
        let unavailable = found["unavailable"].to_string();
        assert!(
            unavailable.contains("socket_calls") || unavailable.contains("exact"),
            "{unavailable}"
        );
        return tcpcost_testbed::skip(&unavailable);
    };
    // Other tests of this process send, too, so the count may be larger.
    assert!(sends >= ROUNDS as f64, "{found}");
    for key in [
        "socket_receives",
        "socket_bytes_sent",
        "socket_bytes_received",
    ] {
        assert!(
            median(&found, 0, key).unwrap() >= ROUNDS as f64,
            "{key} {found}"
        );
    }
}

/// The tracepoints count a command's read and write, which are not counted by the name of a system
/// call.
#[test]
fn reads_and_writes_of_a_command_are_counted() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answers = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut stream = std::fs::File::from(std::os::fd::OwnedFd::from(stream));
        stream.read_exact(&mut [0; 6]).unwrap();
        stream.write_all(b"four\n").unwrap();
    });
    // bash uses read and write on the socket, as on any descriptor.
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port}; echo -n a >&3; echo -n bcdef >&3; read -r line <&3"
    );
    let ran = place.run(&[
        "stat",
        "--syscalls",
        "--format=json",
        "--",
        "bash",
        "-c",
        &script,
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    answers.join().unwrap();
    let found = document(&ran);
    let Some(sends) = median(&found, 0, "socket_sends") else {
        return tcpcost_testbed::skip(&found["unavailable"].to_string());
    };
    assert!(sends >= 2.0, "{found}");
    assert!(median(&found, 0, "socket_bytes_sent").unwrap() >= 6.0);
    assert!(median(&found, 0, "socket_bytes_received").unwrap() >= 5.0);
}

/// The connections were opened by a process of the namespace before `stat` began.
#[test]
fn open_sockets_of_a_namespace_are_its_own() {
    if !tcpcost_testbed::can_make_namespaces() {
        return;
    }
    let place = Place::new();
    let directory = place.directory.path().to_path_buf();
    let (pid_here, pid_there) = std::sync::mpsc::channel();
    let of_namespace = thread::spawn(move || {
        tcpcost_host::namespace::enter_new_network().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{port}; for i in {{1..6000}}; do [ -e started ] && break; sleep 0.01; done; \
             for i in {{1..300}}; do echo x >&3; done; touch done"
        );
        let mut process = std::process::Command::new("bash")
            .args(["-c", &script])
            .current_dir(directory)
            .spawn()
            .unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        pid_here.send(process.id()).unwrap();
        let mut all = Vec::new();
        accepted.read_to_end(&mut all).unwrap();
        assert!(process.wait().unwrap().success());
    });
    let pid = pid_there.recv().unwrap().to_string();
    let waits = "touch started; while [ ! -e done ]; do sleep 0.01; done";
    let ran = place.run(&["stat", "--format=json", "--netns", &pid, "sh", "-c", waits]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    of_namespace.join().unwrap();
    let found = document(&ran);
    assert_eq!(found["network_namespace"], "attached");
    let Some(own) = median(&found, 0, "exact_own_softirq_ns") else {
        return tcpcost_testbed::skip(&found["unavailable"].to_string());
    };
    assert!(own > 0.0, "{found}");
    assert!(
        median(&found, 0, "data_skb_bytes_sent").unwrap() >= 600.0,
        "{found}"
    );
}

/// Programs and cgroup hooks end with the process that holds them, even by SIGKILL.
#[test]
fn nothing_is_left_in_the_kernel_by_a_stat_that_is_killed() {
    let place = Place::new();
    let pid_file = place.path("pid");
    let mut child = place
        .command(&[
            "stat",
            "sh",
            "-c",
            "echo $$ > new; mv new pid; exec sleep 600",
        ])
        .spawn()
        .unwrap();
    let sleeper = tcpcost_testbed::until("the command", || {
        std::fs::read_to_string(&pid_file)
            .ok()?
            .trim()
            .parse::<i32>()
            .ok()
    });
    let files = std::fs::read_dir(format!("/proc/{}/fdinfo", child.id())).unwrap();
    let texts: Vec<String> = files
        .flatten()
        .filter_map(|file| std::fs::read_to_string(file.path()).ok())
        .collect();
    let ids: Vec<u32> = texts
        .iter()
        .filter_map(|text| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("prog_id:"))?;
            line.trim().parse().ok()
        })
        .collect();
    let has_hook = texts.iter().any(|text| text.contains("link_type:\tcgroup"));
    child.kill().unwrap();
    child.wait().unwrap();
    // SAFETY: kill takes no pointers. The process is ours, and its new parent has not waited for
    // it, since it sleeps.
    unsafe { libc::kill(sleeper, libc::SIGKILL) };
    if ids.is_empty() {
        return tcpcost_testbed::skip("no eBPF programs can be loaded here");
    }
    if !has_hook {
        tcpcost_testbed::skip("no program can be at the root of cgroup v2 here");
    }
    tcpcost_testbed::until("the end of the programs", || {
        ids.iter().all(|id| !is_loaded(*id)).then_some(())
    });
}

/// Report of `stat true` started by a program with arguments, such as setpriv.
fn report_of(words: &[&str]) -> Value {
    let place = Place::new();
    let report = place.path("report");
    let ran = std::process::Command::new(words[0])
        .args(&words[1..])
        .arg(env!("CARGO_BIN_EXE_tcpcost"))
        .args(["stat", "--format", "json", "-o"])
        .args([&report, std::path::Path::new("true")])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap()
}

/// Line of the unavailable methods that contains this text.
fn unavailable<'a>(report: &'a Value, text: &str) -> &'a str {
    let lines = report["unavailable"].as_array().unwrap().iter();
    let mut lines = lines.filter_map(|line| line.as_str());
    let found = lines.find(|line| line.contains(text));
    found.unwrap_or_else(|| panic!("{text}: {report}"))
}

fn has_own_tasks(report: &Value) -> bool {
    !report["commands"][0]["runs"][0]["values"]["exact_task_own_ns"].is_null()
}

/// Without the capability for cgroup programs, tcp_probe determines the owners, and a line says so.
#[test]
fn owners_without_programs_of_cgroups_are_said_to_miss_some() {
    if !tcpcost_testbed::is_root() || !tcpcost_testbed::has_program("setpriv") {
        return tcpcost_testbed::skip("needs root and setpriv");
    }
    let report = report_of(&["setpriv", "--bounding-set=-all,+bpf,+perfmon"]);
    if !has_own_tasks(&report) {
        return tcpcost_testbed::skip("no eBPF programs can be loaded here");
    }
    let line = unavailable(&report, "tcp_probe");
    assert!(line.contains("CAP_NET_ADMIN"), "{line}");
    assert!(line.contains("UDP"), "{line}");
}

/// In a cgroup namespace, programs see the sockets of that part of the hierarchy only, and a line
/// says so.
#[test]
fn owners_in_a_container_are_said_to_be_those_of_the_container() {
    if !tcpcost_testbed::can_make_namespaces() {
        return tcpcost_testbed::skip("needs to make namespaces");
    }
    let place = Place::new();
    let mount = place.path("cgroup");
    std::fs::create_dir(&mount).unwrap();
    std::fs::create_dir(place.path("cgroup-inside")).unwrap();
    // The shell leaves its cgroup at the end, so that it can be removed.
    let script = r#"
        mount -t cgroup2 none "$0" && mkdir "$0/tcpcost-$$" && echo $$ > "$0/tcpcost-$$/cgroup.procs" || exit 77
        unshare --cgroup --mount sh -c 'mount -t cgroup2 none "$0-inside" && exec "$@"' "$0" "$@"
        status=$?
        echo $$ > "$0/cgroup.procs" && rmdir "$0/tcpcost-$$"
        exit $status"#;
    let words = ["unshare", "--mount", "sh", "-c", script];
    let mount = mount.to_str().unwrap();
    let mut can = std::process::Command::new(words[0]);
    can.args(&words[1..]).args([mount, "true"]);
    if can.status().unwrap().code() == Some(77) {
        return tcpcost_testbed::skip("no cgroup v2 can be mounted here");
    }
    let report = report_of(&[&words[..], &[mount]].concat());
    if !has_own_tasks(&report) {
        return tcpcost_testbed::skip("no eBPF programs can be loaded here");
    }
    let line = unavailable(&report, "container's cgroup");
    assert!(line.contains("--cgroupns=host"), "{line}");
}

/// Without the kernel's type information no program loads: rusage gives the own time of the command,
/// and a line says what is missing.
#[test]
fn without_type_information_of_the_kernel_a_line_says_what_is_missing() {
    if !tcpcost_testbed::can_make_namespaces() {
        return tcpcost_testbed::skip("needs to make namespaces");
    }
    let script = r#"mount -t tmpfs none /sys/kernel/btf && exec "$0" "$@""#;
    if !std::path::Path::new("/sys/kernel/btf").is_dir() {
        return tcpcost_testbed::skip("this kernel has no type information");
    }
    let report = report_of(&["unshare", "--mount", "sh", "-c", script]);
    assert!(!has_own_tasks(&report), "{report}");
    let line = unavailable(&report, "meter exact");
    assert!(line.contains("CONFIG_DEBUG_INFO_BTF"), "{line}");
}

/// True if the kernel has an eBPF program of this id (bpf(2), BPF_PROG_GET_FD_BY_ID).
fn is_loaded(id: u32) -> bool {
    let mut attributes = [0_u32; 32];
    attributes[0] = id;
    // SAFETY: the attributes outlive the call and have the given length; the result is a new
    // descriptor or negative.
    unsafe {
        let fd = libc::syscall(
            libc::SYS_bpf,
            13,
            attributes.as_ptr(),
            size_of_val(&attributes),
        );
        if fd >= 0 {
            libc::close(fd as libc::c_int);
        }
        fd >= 0
    }
}
