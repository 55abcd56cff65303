//! Runs every command of README.md: with real names for placeholders, and with options that make it short.

mod common;

use std::fs;
use std::path::Path;

use common::{Place, Ran};

/// Command as README.md has it, the words with which it is run here, and the exit codes that it may have.
/// Without words it is only parsed (`pages.rs` of the command), for the reason given.
type Row = (
    &'static str,
    Result<&'static [&'static str], &'static str>,
    &'static [i32],
);

/// Codes of a comparison, whatever the machine does.
const VERDICTS: &[i32] = &[0, 3, 4];

const ROWS: &[Row] = &[
    (
        "tcpcost compare tour --cells \"stream 64 KiB, CPU-bound\" \"sendfile 64 KiB, CPU-bound\"",
        Ok(&[
            "compare",
            "tour",
            "--cells",
            "stream 64 KiB, CPU-bound",
            "sendfile 64 KiB, CPU-bound",
            "--set=bed=loopback",
            "--duration=100ms",
            "--time=2s",
        ]),
        VERDICTS,
    ),
    ("tcpcost doctor", Ok(&["doctor"]), &[0]),
    ("tcpcost run tour", Ok(&["run", "tour", "--dry-run"]), &[0]),
    (
        "tcpcost stat -n 6 COMMAND…",
        Ok(&["stat", "-n", "6", "true"]),
        &[0],
    ),
    (
        "tcpcost compare -- ./a --versus -- ./b",
        Ok(&[
            "compare",
            "--time=1s",
            "--",
            "true",
            "--versus",
            "--",
            "true",
        ]),
        VERDICTS,
    ),
    (
        "tcpcost watch --by process",
        Ok(&[
            "watch",
            "--by=process",
            "--format=lines",
            "--interval=50ms",
            "--count=1",
        ]),
        &[0],
    ),
    (
        "tcpcost model",
        Err("takes 90 s; tests/model.rs makes prices of a short run"),
        &[],
    ),
    (
        "tcpcost explain -- COMMAND…",
        // 1: there are no prices here.
        Ok(&["explain", "--", "true"]),
        &[1],
    ),
    (
        "tcpcost advise --pid PID",
        Ok(&["advise", "--fresh-netns", "--", "true"]),
        // 1, 77: without rights.
        &[0, 1, 77],
    ),
    ("tcpcost trace FILE", Ok(&["trace", "slow.pcap"]), &[0]),
    (
        "tcpcost trace -i eth0",
        Ok(&["trace", "-i", "lo", "--count=1", "--interval=100ms"]),
        // 77: without libpcap or rights.
        &[0, 77],
    ),
    ("tcpcost run STUDY", Ok(&["run", "./mine.toml"]), &[0]),
    (
        "tcpcost kernels OLD NEW STUDY",
        Err("takes QEMU and two kernels"),
        &[],
    ),
    (
        "tcpcost compare --min-effect 3 -- ./old --versus -- ./new",
        Ok(&[
            "compare",
            "--min-effect=3",
            "--time=1s",
            "--",
            "true",
            "--versus",
            "--",
            "true",
        ]),
        VERDICTS,
    ),
    (
        "tcpcost doctor --restore",
        Ok(&["doctor", "--restore"]),
        &[0],
    ),
    ("tcpcost netperf", Ok(&["netperf", "-h"]), &[0]),
];

const STUDY: &str = r#"
[bed]
kind = "loopback"
[vary]
write_size = ["1KiB", "64KiB"]
[measure]
meters = ["proc", "rusage"]
warm_up = "10ms"
duration = "50ms"
repetitions = 2
others_max = "100%"
"#;

/// Commands of README.md: what is in backquotes, and lines after `$ `.
fn commands(page: &str) -> Vec<&str> {
    let spans = page.split('`').skip(1).step_by(2);
    let lines = page.lines().filter_map(|line| line.strip_prefix("    $ "));
    spans
        .chain(lines)
        .map(|command| command.trim_start_matches("sudo "))
        .filter(|command| command.starts_with("tcpcost ") && !command.contains('\n'))
        .collect()
}

/// Runs a command, again if a trial failed: on a machine with dozens of other programs for each CPU a host
/// may have no CPU for the whole interval.
fn run(place: &Place, words: &[&str]) -> Ran {
    for _ in 0..5 {
        let ran = place.run(words);
        if ran.code != Some(1) || !ran.stderr.contains(": failed: ") {
            return ran;
        }
    }
    place.run(words)
}

#[test]
fn every_command_of_the_readme_runs() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(here.join("../../README.md")).unwrap();
    let commands = commands(&page);
    for command in &commands {
        let is_known = ROWS.iter().any(|(known, ..)| known == command);
        assert!(is_known, "{command}: say in ROWS how it is run");
    }
    let place = Place::new();
    place.write("mine.toml", STUDY);
    fs::copy(
        here.join("tests/data/pages/slow.pcap"),
        place.path("slow.pcap"),
    )
    .unwrap();
    for (command, words, codes) in ROWS {
        assert!(commands.contains(command), "not in README.md: {command}");
        match words {
            Ok(words) => {
                let ran = run(&place, words);
                let code = ran.code.unwrap_or(-1);
                assert!(codes.contains(&code), "{command}: {ran:#?}");
            }
            Err(reason) => println!("only parsed: {command}: {reason}"),
        }
    }
}

#[test]
fn the_makefile_has_every_target_of_the_readme() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("README.md")).unwrap();
    let makefile = fs::read_to_string(root.join("Makefile")).unwrap();
    // In a sentence `make` is a word of English.
    let commands = ["\nmake ", "`make "];
    let after = commands.iter().flat_map(|begin| page.split(begin).skip(1));
    let targets: Vec<&str> = after
        .filter_map(|text| text.split([' ', '\n', '`']).next())
        .collect();
    assert!(targets.contains(&"build"), "{targets:?}");
    for target in targets {
        assert!(makefile.contains(&format!("\n{target}:")), "{target}");
    }
}
