//! Foreign text that tries to move a terminal's cursor, to forge lines or to command CI: no output
//! passes it on.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};

use common::{Place, Ran};
use serde_json::Value;
use tcpcost_testbed::until;

/// A window title, C1, a change of direction, a line and a command of CI, a table cell.
const HOSTILE: &str =
    "\x1b]0;pwned\x07\u{9b}31m\u{202e}\u{2028}\n::error::pwned\n##[error]pwned | b |";

/// Asserts that a text holds nothing that a terminal or CI obeys.
fn check(what: &str, text: &str) {
    let is_mark = |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    for line in text.lines() {
        let wrong = line
            .chars()
            .find(|c| (c.is_control() && *c != '\t') || is_mark(*c));
        assert_eq!(wrong, None, "{what}: {line:?}");
        assert!(
            !line.trim_start().starts_with("::error"),
            "{what}: {line:?}"
        );
        assert!(!line.contains("##[error"), "{what}: {line:?}");
    }
}

fn checked(what: &str, ran: &Ran) {
    check(what, &ran.stdout);
    check(what, &ran.stderr);
}

/// Replaces every text of a record that its host chooses.
fn poison(value: &mut Value, key: &str) {
    const CHOSEN: [&str; 19] = [
        "kernel",
        "machine",
        "cpu",
        "hypervisor",
        "governor",
        "clocksource",
        "cpu_accounting",
        "cmdline",
        "tcpcost",
        "device",
        "qdisc",
        "route",
        "rps_cpus",
        "congestion_control",
        "task",
        "text",
        "functions",
        "sysctls",
        "operation",
    ];
    match value {
        Value::String(text) if CHOSEN.contains(&key) => *text += HOSTILE,
        Value::Array(items) => items.iter_mut().for_each(|item| poison(item, key)),
        Value::Object(fields) => {
            for (name, field) in fields {
                let key = if key == "sysctls" { key } else { name };
                poison(field, key);
            }
        }
        _ => {}
    }
}

/// Makes a run's directory as a hostile archive may hold it.
fn hostile_run(place: &Place) {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../measure/report/tests/data");
    let study = std::fs::read_to_string(format!("{data}/profile.toml")).unwrap();
    let records = std::fs::read_to_string(format!("{data}/profile.jsonl")).unwrap();
    let mut lines: Vec<Value> = records
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut failed = lines[0].clone();
    failed["outcome"] = "failed".into();
    failed["reason"] = HOSTILE.into();
    failed["attempt"] = 7.into();
    let mut skipped = failed.clone();
    skipped["outcome"] = "skipped".into();
    skipped["attempt"] = 8.into();
    lines.extend([failed, skipped]);
    lines.iter_mut().for_each(|line| poison(line, ""));
    for line in &mut lines {
        line["warnings"] = serde_json::json!([{"code": "steal", "text": HOSTILE}]);
    }
    std::fs::create_dir(place.path("run")).unwrap();
    let lines = lines.iter().map(|line| format!("{line}\n"));
    place.write("run/records.jsonl", &lines.collect::<String>());
    place.write("run/study.toml", &study);
    let name = serde_json::json!({ "study": format!("=1+1{HOSTILE}") });
    place.write("run/run.json", &name.to_string());
}

#[test]
fn records_of_others_are_shown_and_not_obeyed_in_any_form() {
    let place = Place::new();
    hostile_run(&place);
    for form in [
        "",
        "--format=details",
        "--format=markdown",
        "--format=csv",
        "--format=json",
        "--format=ktap",
        "--format=nipa",
        "--format=bmf",
        "--format=github-benchmark",
        "--format=openmetrics",
    ] {
        let args: Vec<&str> = ["report", "run", form]
            .into_iter()
            .filter(|word| !word.is_empty())
            .collect();
        let ran = place.run(&args);
        assert_eq!(ran.code, Some(0), "{form}: {}", ran.stderr);
        checked(form, &ran);
        let is_figures = [
            "--format=bmf",
            "--format=github-benchmark",
            "--format=openmetrics",
            "--format=nipa",
            "--format=csv",
        ]
        .contains(&form);
        assert!(
            is_figures || form.is_empty() || ran.stdout.contains("pwned␇"),
            "{form}"
        );
        match form {
            "--format=csv" => {
                let rows = ran.stdout.lines().skip(1);
                assert!(
                    rows.into_iter().all(|row| row.starts_with("'=1+1")),
                    "a formula"
                );
            }
            "--format=markdown" => {
                let (plain, _) = ran.stdout.split_once("<details>").unwrap();
                let tables = plain.split("\n\n").filter(|part| part.starts_with('|'));
                let mut checked = 0;
                for table in tables {
                    let bars = |row: &str| row.replace("\\|", "").matches('|').count();
                    let heading = bars(table.lines().next().unwrap());
                    assert!(table.lines().all(|row| bars(row) == heading), "{table}");
                    checked += 1;
                }
                assert!(checked > 0, "{plain}");
            }
            _ => {}
        }
    }
    check(
        "report.html",
        &std::fs::read_to_string(place.path("run/report.html")).unwrap(),
    );
}

#[test]
fn a_study_whose_names_a_terminal_would_obey_is_refused_by_its_line() {
    let place = Place::new();
    for (text, place_of) in [
        (
            "[[cells]]\nname = \"a\\nb\"\nflows = 2\n",
            "t.toml:2: name: ",
        ),
        (
            "title = \"x\"\n[[statement]]\nid = \"a\"\nsource = \"b\\u202e\"\ntext = \"c\"\n",
            "t.toml:4: ",
        ),
        ("\"a\\u001b\" = 1\n", "t.toml:1: a␛: "),
    ] {
        let study = place.write("t.toml", text);
        let ran = place.run(&["run", &study, "--dry-run"]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
        let why = "expected a printable text in one line";
        assert!(ran.stderr.contains(why), "{ran:?}");
        assert!(ran.stderr.contains(place_of), "{ran:?}");
        checked(place_of, &ran);
    }
}

#[test]
fn names_in_a_tcpdump_text_are_shown_and_not_obeyed() {
    let place = Place::new();
    let name = "\x1b]0;x\x07\u{9b}\u{202e}";
    let text = format!(
        "000000 ={name}.1 > ::error::B.2: P 1:101(100) ack 1 win 9\n000009 ::error::B.2 > ={name}.1: . ack 101 win 9\n"
    );
    place.write("a\x1b[2Jb\n::error::", &text);
    let file = "a\x1b[2Jb\n::error::";
    for form in [
        &[][..],
        &["--connection", "1"],
        &["--format=csv"],
        &["--format=json"],
        &["--format=text", "--format=html", "-o", "page.html"],
    ] {
        let ran = place.run(&[&["trace", file], form].concat());
        assert_eq!(ran.code, Some(0), "{form:?}: {ran:?}");
        checked(&format!("{form:?}"), &ran);
        assert!(ran.stdout.contains("a␛[2Jb␊::error::"), "{form:?}: {ran:?}");
        if form == ["--format=csv"] {
            assert!(ran.stdout.contains(",'=␛]0;x␇"), "{ran:?}");
        }
    }
    check(
        "page",
        &std::fs::read_to_string(place.path("page.html")).unwrap(),
    );
}

#[test]
fn a_files_name_in_an_error_is_part_of_one_line() {
    let place = Place::new();
    let name = "no\x1b]0;x\x07\n::error::such\u{202e}";
    for args in [
        &["trace", name][..],
        &["trace", "--compare", name, name],
        &["report", name],
        &["run", name],
        &["run", "--resume", name],
        &["run", "tour", "--baseline", name],
        &["compare", name, name],
        &["study", "convert", name],
        &["study", "show", name],
        &["study", "show", name, "--format=manifest"],
        &["kernels", "bisect", "--baseline", name],
        &["stat", name],
        &["relay", "--listen", name, "--to", name],
        &["netperf", "-H", name],
        &["netserver", "-D", "-L", name],
        &[name],
    ] {
        let ran = place.run(args);
        assert_ne!(ran.code, Some(0), "{args:?}: {ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{args:?}: {ran:?}");
        checked(&format!("{args:?}"), &ran);
    }
}

/// Child that is killed at the end of the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a netserver by this path of our program. Returns it with its port.
fn netserver(program: &std::path::Path) -> (Ended, u16) {
    let mut child = Command::new(program)
        .args(["netserver", "-D", "-L", "127.0.0.1", "-p", "0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut said = Vec::new();
    let mut byte = [0];
    while byte != *b"\n" {
        output.read_exact(&mut byte).unwrap();
        said.push(byte[0]);
    }
    let said = String::from_utf8(said).unwrap();
    let port = said.trim().rsplit(':').next().unwrap().parse().unwrap();
    (Ended(child), port)
}

#[test]
fn the_name_of_a_process_moves_no_cursor_of_watch() {
    let place = Place::new();
    // A process has the name of its file.
    let program = place.path("\x1b]0;x\x07\n::a::");
    symlink(env!("CARGO_BIN_EXE_tcpcost"), &program).unwrap();
    let (_server, port) = netserver(&program);
    let client = place
        .command(&[
            "netperf",
            "-H",
            "127.0.0.1",
            "-p",
            &port.to_string(),
            "-l",
            "60",
        ])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let _client = Ended(client);
    for form in ["--format=lines", "--format=json"] {
        until("a row of the process", || {
            let ran = place.run(&[
                "watch",
                "--interval=100ms",
                "--count=2",
                "--by",
                "process",
                "--top",
                "50",
                form,
            ]);
            assert_eq!(ran.code, Some(0), "{ran:?}");
            checked(form, &ran);
            ran.stdout.contains("␛]0;x␇␊::a::").then_some(())
        });
    }
}

#[test]
fn the_words_of_a_netserver_move_no_cursor_and_add_no_line() {
    let (_server, port) = netserver(env!("CARGO_BIN_EXE_tcpcost").as_ref());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let hostile = listener.local_addr().unwrap().port().to_string();
    let proxy = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut asks, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut asks, &mut to_server);
            let _ = to_server.shutdown(std::net::Shutdown::Write);
        });
        let mut changed = 0;
        let mut message = [0; 656];
        while server.read_exact(&mut message).is_ok() {
            // The name of the server's congestion control is in its last message.
            for name in [&b"cubic\0"[..], b"reno\0", b"bbr\0", b"dctcp\0"] {
                if let Some(at) = message.windows(name.len()).position(|word| word == name) {
                    message[at..at + 15].copy_from_slice(b"\x1b]0;x\x07\n;id\xff=,\x9b ");
                    changed += 1;
                }
            }
            if client.write_all(&message).is_err() {
                break;
            }
        }
        changed
    });
    let ran = Place::new().run(&[
        "netperf",
        "-H",
        "127.0.0.1",
        "-p",
        &hostile,
        "-l",
        "-100000",
        "--",
        "-k",
        "REMOTE_CONG_CONTROL",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    checked("netperf", &ran);
    assert!(
        proxy.join().unwrap() > 0,
        "netserver names no congestion control"
    );
    let told = ran
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("REMOTE_CONG_CONTROL="));
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '?';
    assert!(
        told.is_some_and(|told| told.contains("id") && told.chars().all(is_word)),
        "{ran:?}"
    );
}
