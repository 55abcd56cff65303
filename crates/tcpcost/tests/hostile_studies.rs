//! Studies of other people: the commands that they would run, and the disks that they would fill.

mod common;

use common::{MEASURE, Place};

/// Command that creates a file.
fn command(place: &Place) -> String {
    let script = format!("touch {}\n", place.path("ran").display());
    format!("sh {}", place.write("script", &script))
}

/// Study that creates a file if its command runs.
fn study(place: &Place) -> String {
    let command = command(place);
    let hosts = format!("[hosts]\nclient = \"local\"\nserver = \"exec:{command}\"\n");
    place.write("study.toml", &format!("{hosts}{MEASURE}"))
}

/// Asserts that a study is refused for its command, and that the command did not run.
fn refused(place: &Place, args: &[&str]) {
    let ran = place.run(args);
    assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
    let said = format!(
        "tcpcost: the study would run a command of its own: sh {}: ",
        place.path("script").display()
    );
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert!(lines.len() == 1 && lines[0].starts_with(&said), "{ran:?}");
    assert!(lines[0].ends_with("--allow-exec"), "{ran:?}");
    assert!(!place.path("ran").exists(), "{args:?}");
}

#[test]
fn a_study_runs_no_command_of_its_own_unless_it_is_let() {
    let place = Place::new();
    let study = study(&place);
    refused(&place, &["run", &study, "--out", "out"]);
    assert!(!place.path("out").exists(), "nothing was made");
    let sides = ["--a", "write_size=1KiB", "--b", "write_size=2KiB"];
    refused(
        &place,
        &[&["compare", &study, "--out", "out"], &sides[..]].concat(),
    );
    assert!(!place.path("out").exists(), "nothing was made");
    let attached = std::fs::read_to_string(&study)
        .unwrap()
        .replace("exec:", "attach:");
    let attached = place.write("attached.toml", &attached);
    refused(&place, &["run", &attached, "--out", "out"]);

    let ran = place.run(&["run", &study, "--out", "out", "--allow-exec"]);
    assert_eq!(ran.code, Some(1), "the script is no agent: {ran:?}");
    assert!(place.path("ran").exists());
}

#[test]
fn a_directory_of_a_run_runs_no_command_unless_it_is_let() {
    let place = Place::new();
    let study = study(&place);
    let ran = place.run(&["run", &study, "--out", "out", "--allow-exec"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    std::fs::remove_file(place.path("ran")).unwrap();
    refused(&place, &["run", "--resume", "out"]);
    refused(&place, &["run", "--resume", "out", "--share", "0/1"]);
    refused(&place, &["run", "--resume", "out", "--slurm"]);
    // A baseline's command does not matter, because only its records are read.
    let harmless = place.write(
        "harmless.toml",
        &format!("[bed]\nkind = \"loopback\"\n{MEASURE}"),
    );
    let ran = place.run(&["run", &harmless, "--out", "held", "--baseline", "out"]);
    assert_ne!(ran.code, Some(2), "{ran:?}");
    assert!(!place.path("ran").exists());
}

#[test]
fn what_a_stored_run_says_of_its_command_line_is_not_typed() {
    let place = Place::new();
    let text = format!("[hosts]\nclient = \"local\"\nserver = \"ssh:nowhere.invalid\"\n{MEASURE}");
    let study = place.write("study.toml", &text);
    let set = format!("server.reach=exec:{}", command(&place));
    let ran = place.run(&["run", &study, "--out", "out", "--set", &set]);
    assert_eq!(ran.code, Some(1), "what is typed needs no flag: {ran:?}");
    std::fs::remove_file(place.path("ran")).unwrap();
    refused(&place, &["run", "--resume", "out"]);
}

#[test]
fn another_build_of_a_stored_comparison_is_a_command() {
    let place = Place::new();
    let program = place.path("ran");
    let text = format!("[bed]\nkind = \"loopback\"\n{MEASURE}");
    place.write("study.toml", &text);
    let study = place.path("study.toml");
    let ran = place.run(&["run", study.to_str().unwrap(), "--out", "out"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let stored = place.path("out/run.json");
    let mut changed: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&stored).unwrap()).unwrap();
    changed["compare"] =
        serde_json::json!({ "Set": { "cell": null, "a": [], "b": [], "program": program } });
    std::fs::write(&stored, changed.to_string()).unwrap();
    let ran = place.run(&["run", "--resume", "out"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let said = format!("a command of its own: {}: ", program.display());
    assert!(ran.stderr.contains(&said), "{ran:?}");
}

#[test]
fn a_dry_run_prints_each_command_as_a_shell_reads_it() {
    let place = Place::new();
    let hosts = "[hosts]\nclient = \"ssh:alpha\"\nserver = \"exec:env A='b $(x) sh\"\n";
    let study = place.write("study.toml", &format!("{hosts}{MEASURE}"));
    let ran = place.run(&["run", &study, "--dry-run"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let commands: Vec<&str> = ran
        .stdout
        .lines()
        .skip_while(|line| *line != "commands that start agents:")
        .skip(1)
        .map(str::trim)
        .collect();
    assert_eq!(commands.len(), 2, "{ran:?}");
    assert!(
        commands[0].starts_with("ssh -T -o BatchMode=yes ")
            && commands[0].ends_with(" -- alpha 'exec tcpcost agent --lease 90000ms client'"),
        "{commands:?}"
    );
    assert_eq!(
        commands[1],
        r"env 'A='\''b' '$(x)' sh tcpcost agent --lease 90000ms server"
    );
    let pushed = place.run(&["run", &study, "--dry-run", "--hosts=push=on"]);
    assert!(pushed.stdout.contains("umask 077"), "{pushed:?}");
    assert!(!place.path("tcpcost-out").exists());
}

#[test]
fn a_study_that_would_fill_the_disk_or_memory_is_shown_and_skipped() {
    for (workload, shown, knob) in [
        (
            "send_with = \"sendfile\"\nfiles = 4096\nfile_size = \"1GiB\"\n",
            "needs up to 4.0 TiB on disk (TMPDIR) and ",
            "files: ",
        ),
        (
            "send_with = \"sendfile-memfd\"\nfiles = 4096\nfile_size = \"1GiB\"\n",
            "needs up to 4.0 TiB of memory for buffers",
            "files: ",
        ),
        (
            "io = \"blocking-threads\"\nflows = 30000\nread_size = \"64MiB\"\n",
            "needs up to 1.8 TiB of memory for buffers",
            "read_size: ",
        ),
    ] {
        let place = Place::new();
        let text = format!("[bed]\nkind = \"loopback\"\n[workload]\n{workload}{MEASURE}");
        let study = place.write("study.toml", &text);
        let planned = place.run(&["run", &study, "--dry-run"]);
        assert!(planned.stdout.contains(shown), "{planned:?}");
        let ran = place.run(&["run", &study, "--out", "out"]);
        assert_eq!(ran.code, Some(77), "{ran:?}");
        let record = place.records("out").remove(0);
        assert_eq!(record["outcome"], "skipped", "{record}");
        let reason = record["reason"].as_str().unwrap();
        assert!(reason.starts_with(knob), "{reason}");
        assert!(reason.contains(" need"), "{reason}");
    }
}
