//! Parsers of other projects' wrappers over output of ours (bench/wrappers), where their sources are at hand.

use std::path::Path;
use std::process::Command;

use tcpcost_testbed::{has_program, skip};

#[test]
fn wrappers_find_their_figures_in_our_output() {
    let Ok(sources) = std::env::var("TCPCOST_WRAPPERS") else {
        skip(
            "TCPCOST_WRAPPERS=FOLDER with the wrappers' repositories: bench/wrappers FOLDER --fetch",
        );
        return;
    };
    if !has_program("python3") {
        skip("python3: not on PATH");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/wrappers");
    let mut command = Command::new(script);
    let binary = env!("CARGO_BIN_EXE_tcpcost");
    command.args([sources.as_str(), "--tcpcost", binary, "--seconds", "2"]);
    let ran = command.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    match ran.status.code() {
        Some(77) => skip(&said),
        code => assert_eq!(
            code,
            Some(0),
            "{said}{}",
            String::from_utf8_lossy(&ran.stderr)
        ),
    }
}
