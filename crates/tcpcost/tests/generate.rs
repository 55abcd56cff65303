//! Manual pages, completions and docs/commands.md, as `tcpcost generate` makes them.

mod common;

use std::path::Path;
use std::process::Command;

use common::Place;
use tcpcost_testbed::has_program;

/// Names of all manual pages in a folder that `tcpcost generate man` made.
fn pages(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|one| one.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn the_page_of_commands_is_what_the_parser_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
    let ran = Place::new().run(&["generate", "commands"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    if std::env::var_os("TCPCOST_REWRITE").is_some() {
        std::fs::write(path, &ran.stdout).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap();
    assert!(
        committed == ran.stdout,
        "{path} is old: TCPCOST_REWRITE=1 cargo test -p tcpcost --test generate"
    );
}

#[test]
fn each_command_has_a_manual_page_without_warnings() {
    let place = Place::new();
    let folder = place.path("man");
    let ran = place.run(&["generate", "man", folder.to_str().unwrap()]);
    assert_eq!((ran.code, &*ran.stdout), (Some(0), ""), "{ran:?}");
    let names = pages(&folder);
    for expected in [
        "tcpcost.1",
        "tcpcost-kernels-bisect.1",
        "tcpcost-netserver.1",
        "tcpcost-run.1",
        "tcpcost-uperf.1",
    ] {
        assert!(names.iter().any(|name| name == expected), "{names:?}");
    }
    let hidden = |name: &&String| name.contains("agent") || name.contains("generate");
    assert_eq!(names.iter().find(hidden), None);
    let has_man = has_program("man");
    for name in names {
        let page = folder.join(&name);
        let source = std::fs::read_to_string(&page).unwrap();
        assert!(source.contains("EXIT STATUS"), "{name}");
        assert!(
            !source.contains("EXTRA") && !source.contains("Exit codes:"),
            "{name}"
        );
        if has_man {
            let shown = Command::new("man")
                .args(["--warnings", "-l"])
                .arg(&page)
                .envs([("LC_ALL", "C.UTF-8"), ("MANPAGER", "cat")])
                .output()
                .unwrap();
            let (text, complaints) = (
                String::from_utf8_lossy(&shown.stdout),
                String::from_utf8_lossy(&shown.stderr),
            );
            assert!(
                text.contains("EXIT STATUS") && complaints.is_empty(),
                "{name}: {complaints}\n{text}"
            );
        }
    }
}

/// Asserts that a shell with our completions completes `tcpcost wat`. `line` prints what it offers, SCRIPT being the completions.
fn check_completion(shell: &str, line: &str) {
    let place = Place::new();
    let ran = place.run(&["generate", shell]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("compare") && !ran.stdout.contains("carry"));
    let script = place.write("script", &ran.stdout);
    if has_program(shell) {
        let offered = Command::new(shell)
            .args(["-c", &line.replace("SCRIPT", &script)])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&offered.stdout);
        assert!(text.starts_with("watch"), "{offered:?}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn bash_completes_commands() {
    check_completion(
        "bash",
        "source SCRIPT; COMP_WORDS=(tcpcost wat); COMP_CWORD=1; _tcpcost tcpcost wat tcpcost; echo \"${COMPREPLY[@]}\"",
    );
}

#[test]
fn fish_completes_commands() {
    check_completion(
        "fish",
        "source SCRIPT; complete --do-complete 'tcpcost wat'",
    );
}

#[test]
fn zsh_reads_its_completions() {
    // Completion itself needs a terminal: the function is defined, and is ours.
    check_completion(
        "zsh",
        "autoload -U compinit; compinit -u -D; source SCRIPT; whence -w _tcpcost > /dev/null && echo watch",
    );
}
