//! Hosts that break the protocol by malice or by mistake: the command ends them, in bounded time
//! and memory.

mod common;

use std::io::Write;

use common::{Place, Ran};
use tcpcost_agent::protocol::{ANSWER_BYTES_MAX, PROTOCOL};
use tcpcost_testbed::until;

/// Writes a study whose server's agent is a shell script.
fn study(place: &Place, script: &str) -> String {
    let agent = place.write("agent", script);
    place.write(
        "study.toml",
        &format!(
            "[hosts]\nclient = \"local\"\nserver = \"exec:sh {agent}\"\n{}",
            common::MEASURE
        ),
    )
}

/// Runs a study whose agent is this script. The run must fail in bounded memory.
fn attack(script: &str, more: &[&str]) -> Ran {
    let place = Place::new();
    let study = study(&place, script);
    let mut args = vec!["run", &study, "--out", "out", "--allow-exec"];
    args.extend(["--hosts", "silence_max=2s"]);
    args.extend(more);
    let ran = place.run(&args);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let lines = ran.stderr.lines().filter(|line| line.len() > 2000);
    assert_eq!(lines.count(), 0, "no line of a host is repeated whole");
    let peak = peak_bytes();
    assert!(peak < PEAK_MAX, "{peak} bytes");
    ran
}

/// Limit of the resident memory. The command alone has about 15 MiB.
const PEAK_MAX: i64 = 200 << 20;

/// Largest resident memory of all children that were waited for, in bytes.
fn peak_bytes() -> i64 {
    // SAFETY: a zeroed rusage is valid, and the kernel fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage), 0);
        usage
    };
    usage.ru_maxrss * 1024
}

/// Answer of an agent to the first question, with more fields.
fn hello(more: &str) -> String {
    format!(
        r#"server {{"is":"hello","protocol":{PROTOCOL},"version":"{}","pid":1,"machine":"m","environment":{{"kernel":"","machine":"","cpu":"","cpus":1,"memory_bytes":1,"clocksource":"","cpu_accounting":"","cmdline":"","tcpcost":"","privileged":true}},"cpus":{{"cpus":[0],"cores":[[0]]}}{more}}}"#,
        env!("CARGO_PKG_VERSION")
    )
}

/// Script that answers the first question, then runs `then`.
fn after_hello(then: &str) -> String {
    format!("read -r ask\ncat <<'END'\n{}\nEND\n{then}\n", hello(""))
}

#[test]
fn endless_lines_end_the_host() {
    let ran = attack("yes garbage\n", &[]);
    let said = "server agent: printed more than 1024 KiB before its first answer";
    assert!(ran.stderr.contains(said), "{ran:?}");
    let ran = attack(&after_hello("yes garbage"), &[]);
    assert!(
        ran.stderr.contains("server agent: said \"garbage\""),
        "{ran:?}"
    );
}

#[test]
fn answers_to_questions_that_were_not_asked_end_the_host() {
    let answers = after_hello("yes 'server {\"is\":\"done\"}'");
    let ran = attack(&answers, &[]);
    let said = "server agent: answered without a question";
    assert!(ran.stderr.contains(said), "{ran:?}");
}

#[test]
fn a_line_without_an_end_ends_the_host() {
    let said = format!("server agent: sent a line of more than {ANSWER_BYTES_MAX} bytes");
    for script in [
        "yes | tr -d '\\n'\n",
        &after_hello("yes | tr -d '\\n'"),
        &after_hello("head -c 100000000 /dev/zero"),
    ] {
        let ran = attack(script, &[]);
        assert!(ran.stderr.contains(&said), "{ran:?}");
    }
}

#[test]
fn an_answer_that_is_as_long_as_may_be_is_parsed_in_bounded_memory() {
    let place = Place::new();
    let empty = hello(",\"x\":[]").len();
    let items = "0,".repeat((ANSWER_BYTES_MAX - empty - 2) / 2);
    let answer = hello(&format!(",\"x\":[{items}0]"));
    let mut file = std::fs::File::create(place.path("answer")).unwrap();
    writeln!(file, "{answer}").unwrap();
    let script = format!(
        "cat {}\nread -r ask\nread -r ask\necho nonsense\nexec sleep 100000\n",
        place.path("answer").display()
    );
    // On a busy machine a debug build takes seconds to parse it.
    let ran = attack(&script, &["--hosts=silence_max=60s"]);
    assert!(
        ran.stderr.contains("server agent: said \"nonsense\""),
        "{ran:?}"
    );
}

#[test]
fn errors_without_an_end_are_not_kept() {
    let ran = attack("(yes | tr -d '\\n') >&2\n", &[]);
    assert!(
        ran.stderr.contains("server agent: has not answered"),
        "{ran:?}"
    );
}

#[test]
fn a_host_that_closes_its_output_and_lives_is_killed_with_its_children() {
    for script in ["", &after_hello("")] {
        let place = Place::new();
        let pid = place.path("pid");
        let then = format!(
            "exec >&-\nsleep 100000 &\necho $! >{}\nwait\n",
            pid.display()
        );
        let ran = attack(&format!("{script}{then}"), &[]);
        assert!(
            ran.stderr.contains("server agent: closed its output"),
            "{ran:?}"
        );
        let pid = std::fs::read_to_string(pid).unwrap();
        until("the end of the agent's child", || {
            let status = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
            let is_over = status.map_or(true, |status| status.contains(") Z "));
            is_over.then_some(())
        });
    }
}

#[test]
fn a_silent_host_is_given_up() {
    let ran = attack("exec sleep 100000\n", &[]);
    assert!(
        ran.stderr
            .contains("server agent: has not answered for 2 s"),
        "{ran:?}"
    );
}

#[test]
fn a_host_that_is_copied_to_and_then_lives_or_talks_on_is_given_up() {
    let present = "echo \"tcpcost-push: $(uname -m)\"\necho tcpcost-push: present /x\n";
    let ran = attack(
        &format!("{present}exec sleep 100000\n"),
        &["--hosts=push=on"],
    );
    assert!(ran.stderr.contains("server agent: "), "{ran:?}");
    let ran = attack("yes | tr -d '\\n'\n", &["--hosts=push=on"]);
    assert!(
        ran.stderr.contains("server agent: push: the script ended"),
        "{ran:?}"
    );
}
