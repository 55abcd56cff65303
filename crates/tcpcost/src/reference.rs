//! Exit codes and files of each command: the help, man pages and docs/commands.md have them from here.

use tcpcost_console::exit::Exit;

use crate::fronts;

/// Returns the exit codes of a command and their meanings, in order: those of every command, and its own, which replace them.
/// `words`: the words that call the command, "" for `tcpcost` itself.
pub fn exit_codes(words: &str) -> Vec<(String, &'static str)> {
    if let Some(front) = fronts::usage(words) {
        return numbered(front.exit_codes);
    }
    use Exit::{Failed, Interrupted, Usage};
    let (more, own) = own_codes(words);
    let common: &[Exit] = match words {
        "kernels bisect" => &[],
        _ => &[Exit::Ok, Failed, Usage, Interrupted],
    };
    let every = common.iter().chain(more);
    let mut codes = numbered(
        &every
            .map(|exit| (*exit as u8, exit.meaning()))
            .collect::<Vec<_>>(),
    );
    codes.retain(|(code, _)| own.iter().all(|(replaced, _)| code != replaced));
    codes.extend(
        own.iter()
            .map(|(code, meaning)| (code.to_string(), *meaning)),
    );
    codes.sort_by_key(|(code, _)| code.parse().unwrap_or(u16::MAX));
    codes
}

/// Exit codes that a command has beside those of every command: common ones, and its own with their meanings.
fn own_codes(words: &str) -> (&'static [Exit], &'static [(&'static str, &'static str)]) {
    use Exit::{Inconclusive, Missed, Unavailable};
    match words {
        "" | "run" => (&[Missed, Inconclusive, Unavailable], &[]),
        "compare" | "kernels" => (&[Unavailable], &VERDICTS),
        "kernels bisect" => (
            &[],
            &[
                ("0", "as good as the baseline"),
                ("1", "costs more"),
                (
                    "125",
                    "undecided: not built, no boot, no verdict; git skips the commit",
                ),
                (
                    "128",
                    "the command line is wrong, or the command failed or was stopped; git ends the bisection",
                ),
                ("130", AT_ONCE),
            ],
        ),
        "stat" => (
            &[Unavailable],
            &[
                (
                    "0",
                    "the command's own code is 0; of two commands: improves or equivalent",
                ),
                ("3", "of two commands: regresses"),
                ("4", "of two commands: inconclusive"),
                ("126", "the command cannot be run"),
                ("127", "there is no such command"),
                ("128+N", "signal N ended the command"),
                ("other", "the command's own code, the first that is not 0"),
            ],
        ),
        "explain" | "advise" => (
            &[Unavailable],
            &[
                (
                    "0",
                    "the command's own code is 0, or stored files were read",
                ),
                ("126", "the command cannot be run"),
                ("127", "there is no such command"),
                ("128+N", "signal N ended the command"),
                ("other", "the command's own code"),
            ],
        ),
        "model" => (
            &[Missed, Unavailable],
            &[(
                "3",
                "--check: the prices are off by more than their accuracy",
            )],
        ),
        "watch" => (
            &[],
            &[(
                "130",
                "the terminal closed, a second signal, or Ctrl-C before --soak has its lines",
            )],
        ),
        "trace" => (
            &[],
            &[
                ("1", "failed, or a capture is damaged"),
                ("77", "-i lacks libpcap or CAP_NET_RAW"),
                ("130", AT_ONCE),
            ],
        ),
        "peer" => (
            &[],
            &[("1", "failed, or a connection did"), ("130", AT_ONCE)],
        ),
        "relay" => (
            &[],
            &[
                ("0", "ended by a signal, connections drained"),
                ("1", "failed, or an address to listen on is not available"),
                (
                    "2",
                    "wrong command line, an unresolved name, or an upstream that is the relay itself",
                ),
                (
                    "77",
                    "too few open files, or the mode is not available on this host",
                ),
                (
                    "130",
                    "a second signal reset open connections, or the terminal closed",
                ),
            ],
        ),
        "doctor" => (
            &[],
            &[
                ("0", "studies can run here"),
                ("1", "failed, or --restore left a change"),
                ("77", "no study can run here"),
            ],
        ),
        _ => (&[], &[]),
    }
}

const AT_ONCE: &str = "the terminal closed, or a second signal";

const VERDICTS: [(&str, &str); 3] = [
    ("0", "improves or equivalent"),
    ("3", "regresses"),
    ("4", "inconclusive"),
];

fn numbered(codes: &[(u8, &'static str)]) -> Vec<(String, &'static str)> {
    codes
        .iter()
        .map(|(code, meaning)| (code.to_string(), *meaning))
        .collect()
}

/// Returns the exit codes of a command as a sentence.
pub fn exit_codes_line(words: &str) -> String {
    let codes = exit_codes(words);
    let codes: Vec<String> = codes
        .iter()
        .map(|(code, meaning)| format!("{code} {meaning}"))
        .collect();
    format!("Exit codes: {}.", codes.join("; "))
}

/// Returns the files that a command reads or writes without being told their names, each with its contents.
pub fn files(words: &str) -> Vec<(&'static str, &'static str)> {
    let of = |commands: &[&str]| commands.contains(&words);
    [
        (of(&["run", "compare", "kernels"]), RUNS),
        (of(&["report"]), PAGE),
        (of(&["run", "compare", "model", "doctor", "netperf"]), STATE),
        (
            of(&[
                "run", "compare", "stat", "watch", "explain", "advise", "model", "doctor",
                "netperf",
            ]),
            TYPES,
        ),
        (of(&["explain", "advise", "model"]), PRICES),
        (of(&["peer", "relay"]), TUN),
    ]
    .into_iter()
    .filter(|(has, _)| *has)
    .flat_map(|(_, files)| files.iter().copied())
    .collect()
}

type Files = &'static [(&'static str, &'static str)];

const RUNS: Files = &[
    (
        "tcpcost-out/",
        "directories of runs, unless --out names one",
    ),
    (
        "DIR/records.jsonl",
        "a JSON line for each trial, written right after it",
    ),
    ("DIR/study.toml", "the study"),
    ("DIR/run.json", "options of the command line"),
    ("DIR/report.html", "the report as a page"),
];
const PAGE: Files = &[("DIR/report.html", "the report as a page, made again")];
const STATE: Files = &[(
    "/run/tcpcost/",
    "journals of changed settings, and locks; a user's are in $XDG_RUNTIME_DIR/tcpcost; $TCPCOST_STATE_DIR names another folder",
)];
const PRICES: Files = &[(
    "~/.local/state/tcpcost/prices/",
    "price lists, one for each host, kernel and device; $XDG_STATE_HOME/tcpcost/prices/ if that is set",
)];
const TYPES: Files = &[(
    "/sys/kernel/btf/vmlinux",
    "types of the running kernel, which the eBPF meters need",
)];
const TUN: Files = &[("/dev/net/tun", "makes the interface of our own TCP")];
