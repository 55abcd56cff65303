//! Attacks by files in a run's directory, in the state folder or at the place of a result: links,
//! devices, FIFOs, forged journals, folders of other users. Needs root, except for attacks on
//! ordinary users.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use common::{Place, Ran};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use tcpcost_testbed::{is_root, skip};

const NOBODY: u32 = 65534;

const STUDY: &str = r#"
[bed]
kind = "loopback"
[workload]
placement = "same-cpu"
[measure]
warm_up = "5ms"
duration = "20ms"
repetitions = 1
others_max = "100%"
retries = 0
"#;

/// Makes a place with a run in `out`, and a file that must not change.
fn with_run() -> (Place, PathBuf) {
    let place = Place::new();
    let study = place.write("short.toml", STUDY);
    let ran = place.run(&["run", &study, "--out", "out"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let victim = PathBuf::from(place.write("victim", "precious"));
    (place, victim)
}

fn has_other_users() -> bool {
    if !is_root() {
        skip("needs root, who has other users");
    }
    is_root()
}

fn give_away(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        give_away(&entry.path());
    }
    lchown(path, Some(NOBODY), None).unwrap();
}

fn fifo(path: &Path) {
    let _ = fs::remove_file(path);
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
}

/// Asserts that stderr is one line with these words.
fn says(ran: &Ran, code: i32, words: &str) {
    assert_eq!(ran.code, Some(code), "{ran:?}");
    assert!(ran.stderr.contains(words), "{words}: {ran:?}");
    assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
}

#[test]
fn root_begins_and_resumes_no_run_where_another_user_could_put_links() {
    if !has_other_users() {
        return;
    }
    let (place, victim) = with_run();
    let study = place.write("short.toml", STUDY);
    fs::create_dir(place.path("uo")).unwrap();
    symlink(&victim, place.path("uo/study.toml")).unwrap();
    give_away(&place.path("uo"));
    let ran = place.run(&["run", &study, "--out", "uo"]);
    says(
        &ran,
        1,
        "uo belongs to user 65534, not to root: chown root uo, or name a folder",
    );
    // A folder reached by another user's link, then a folder of root's that every user can write
    // to.
    fs::create_dir(place.path("private")).unwrap();
    symlink(place.path("private"), place.path("link")).unwrap();
    lchown(place.path("link"), Some(NOBODY), None).unwrap();
    let ran = place.run(&["run", &study, "--out", "link/new"]);
    says(
        &ran,
        1,
        "link is a link of user 65534, which root does not follow",
    );
    assert!(!place.path("private/new").exists());
    fs::set_permissions(place.path("private"), fs::Permissions::from_mode(0o777)).unwrap();
    let ran = place.run(&["run", &study, "--out", "private"]);
    says(
        &ran,
        1,
        "can be written by others than root (mode 777): chmod go-w private",
    );

    give_away(&place.path("out"));
    let ran = place.run(&["run", "--resume", "out"]);
    says(&ran, 2, "out belongs to user 65534");
    // The directory belongs to root, the records do not.
    chown(place.path("out"), Some(0), None).unwrap();
    says(
        &place.run(&["run", "--resume", "out"]),
        2,
        "study.toml belongs to user 65534",
    );
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
}

#[test]
fn no_run_is_written_through_what_lies_in_its_directory() {
    let (place, victim) = with_run();
    let at = |name: &str| place.path("out").join(name);
    // The link belongs to the user, as after unpacking an archive.
    let records = fs::read(at("records.jsonl")).unwrap();
    fs::remove_file(at("records.jsonl")).unwrap();
    fs::write(&victim, &records).unwrap();
    symlink(&victim, at("records.jsonl")).unwrap();
    let ran = place.run(&["run", "--resume", "out", "--repetitions", "2"]);
    assert_ne!(ran.code, Some(0), "{ran:?}");
    let ran = place.run(&["run", "--resume", "out"]);
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stderr.contains("a link, which is not followed here"),
        "{ran:?}"
    );
    assert_eq!(fs::read(&victim).unwrap(), records);

    fs::remove_file(at("records.jsonl")).unwrap();
    fs::write(at("records.jsonl"), &records).unwrap();
    fs::write(&victim, "precious").unwrap();
    fs::remove_file(at("report.html")).unwrap();
    symlink(&victim, at("report.html")).unwrap();
    let ran = place.run(&["report", "out"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert!(!at("report.html").is_symlink());
    // Links in place of the study and of the changes, for a run that begins.
    fs::create_dir(place.path("new")).unwrap();
    symlink(place.path("short.toml"), place.path("new/study.toml")).unwrap();
    symlink(&victim, place.path("new/run.json")).unwrap();
    let ran = place.run(&["run", "short.toml", "--out", "new"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
}

#[test]
fn nothing_is_written_to_a_device_that_has_the_name_of_a_page() {
    if !has_other_users() {
        return;
    }
    let (place, _) = with_run();
    let page = place.path("out/report.html");
    let make = |kind, device| {
        let _ = fs::remove_file(&page);
        mknodat(CWD, &page, kind, Mode::from_raw_mode(0o600), device)
    };
    // No loop device has this number, so nothing can be damaged.
    if make(FileType::BlockDevice, makedev(7, 4000)).is_err() {
        return skip("needs mknod(2)");
    }
    let ran = place.run(&["report", "out"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(fs::symlink_metadata(&page).unwrap().is_file());
    make(FileType::BlockDevice, makedev(7, 4000)).unwrap();
    let name = page.to_str().unwrap();
    let ran = place.run(&["stat", "-o", name, "--", "true"]);
    says(&ran, 1, "neither a file, a pipe nor a terminal");
}

#[test]
fn root_reports_another_users_run_and_leaves_its_page_alone() {
    if !has_other_users() {
        return;
    }
    let (place, victim) = with_run();
    let printed = place.run(&["report", "out"]).stdout;
    fs::remove_file(place.path("out/report.html")).unwrap();
    symlink(&victim, place.path("out/report.html")).unwrap();
    give_away(&place.path("out"));
    let ran = place.run(&["report", "out"]);
    assert_eq!((ran.code, &ran.stdout), (Some(0), &printed), "{ran:?}");
    says(&ran, 0, "its report.html is left as it was");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    // Links of the other user are not read, either.
    fs::remove_file(place.path("out/study.toml")).unwrap();
    symlink(&victim, place.path("out/study.toml")).unwrap();
    says(
        &place.run(&["report", "out"]),
        2,
        "a link, which is not followed here",
    );
}

#[test]
fn a_directory_that_is_swapped_during_a_run_is_still_the_one_that_was_opened() {
    let place = Place::new();
    let study = place.write("long.toml", &STUDY.replace("20ms", "10min"));
    let mut started = place.start(&["run", &study, "--out", "out"]);
    started.wait_for("records and report");
    fs::create_dir(place.path("decoy")).unwrap();
    fs::rename(place.path("out"), place.path("moved")).unwrap();
    symlink("decoy", place.path("out")).unwrap();
    started.signal(libc::SIGINT);
    let ran = started.end();
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(place.path("moved/report.html").exists());
    assert_eq!(fs::read_dir(place.path("decoy")).unwrap().count(), 0);
}

#[test]
fn what_is_no_file_or_never_ends_is_refused_at_once_by_all_that_read_runs() {
    let (place, _) = with_run();
    let other = place.run(&["run", "short.toml", "--out", "other"]);
    assert_eq!(other.code, Some(0), "{other:?}");
    let commands: [&[&str]; 6] = [
        &["report", "other", "out"],
        &["compare", "other", "out"],
        &["compare", "out", "other"],
        &["run", "short.toml", "--out", "new", "--baseline", "out"],
        &["run", "--resume", "out"],
        &["run", "--resume", "out", "--dry-run"],
    ];
    for name in ["study.toml", "run.json", "records.jsonl"] {
        let path = place.path("out").join(name);
        let whole = fs::read(&path).unwrap();
        type Put = (&'static str, fn(&Path));
        let put: [Put; 3] = [
            ("not a regular file", fifo),
            ("followed here", |path| symlink("/dev/zero", path).unwrap()),
            ("longer than", |path| {
                let file = fs::File::create(path).unwrap();
                file.set_len((1 << 30) + 1).unwrap();
            }),
        ];
        for (words, put) in put {
            fs::remove_file(&path).unwrap();
            put(&path);
            for args in commands {
                let ran = place.run(args);
                assert_eq!(ran.code, Some(2), "{name} {args:?} {ran:?}");
                let is_said = ran.stderr.contains(words)
                    || (!is_root() && ran.stderr.contains("not a regular file"));
                assert!(is_said, "{name} {args:?} {ran:?}");
            }
        }
        fs::remove_file(&path).unwrap();
        fs::write(&path, whole).unwrap();
    }
    assert!(!place.path("new").exists());
}

#[test]
fn a_records_file_of_rubbish_is_said_in_some_lines() {
    let (place, _) = with_run();
    let path = place.path("out/records.jsonl");
    let mut text = "\n".repeat(100_000);
    text += &fs::read_to_string(&path).unwrap();
    fs::write(&path, text).unwrap();
    let ran = place.run(&["report", "out"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stderr.contains("99990 more lines are ignored"),
        "{ran:?}"
    );
    assert_eq!(ran.stderr.lines().count(), 11);
}

#[test]
fn root_acts_on_no_journal_in_a_folder_that_is_not_its_own() {
    if !has_other_users() {
        return;
    }
    let place = Place::new();
    let study = place.write("short.toml", STUDY);
    let state = place.path("state");
    fs::create_dir(&state).unwrap();
    let text = |path: &str| fs::read_to_string(path).unwrap().trim().to_string();
    let netns = fs::metadata("/proc/self/ns/net").unwrap().ino();
    let former = r#"{"setting":"sysctl","name":"kernel.core_pattern","value":"|/bin/false %p"}"#;
    let line = format!(
        r#"{{"netns":{netns},"boot_id":"{}","pid":1,"pid_started_ticks":1,"at_ns":1,"former":{former}}}"#,
        text("/proc/sys/kernel/random/boot_id")
    );
    let journal = state.join("1-0.journal");
    fs::write(&journal, format!("{line}\n")).unwrap();
    fifo(&state.join("x.journal"));
    let before = text("/proc/sys/kernel/core_pattern");
    // In root's own folder, the line and the FIFO are reported and kept.
    let ran = place.run(&["doctor", "--restore"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let said = [
        "is no sysctl that a study may set",
        "x.journal: not a regular file",
    ];
    assert!(
        said.iter().all(|words| ran.stdout.contains(words)),
        "{ran:?}"
    );
    assert!(journal.exists());
    fs::remove_file(state.join("x.journal")).unwrap();
    // In a folder of another user, nothing is read.
    give_away(&state);
    says(
        &place.run(&["doctor", "--restore"]),
        1,
        "belongs to user 65534, not to root: chown root",
    );
    let ran = place.run(&["run", &study, "--out", "out", "--quiet"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let said = ran.stderr.matches("belongs to user 65534").count();
    assert_eq!(said, 2, "before the trials and after them: {ran:?}");
    assert_eq!(place.records("out")[0]["outcome"], "measured");
    assert!(journal.exists());
    assert_eq!(text("/proc/sys/kernel/core_pattern"), before);
}

#[test]
fn an_ordinary_user_shares_a_folder_with_a_group() {
    if !has_other_users() {
        return;
    }
    use std::os::unix::process::CommandExt;
    let place = Place::new();
    let study = place.write("short.toml", STUDY);
    let binary = place.path("tcpcost");
    fs::copy(env!("CARGO_BIN_EXE_tcpcost"), &binary).unwrap();
    for name in ["", "shared"] {
        let path = place.path(name);
        let _ = fs::create_dir(&path);
        chown(&path, Some(0), Some(NOBODY)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o2775)).unwrap();
    }
    for args in [
        &["run", &study, "--out", "shared"][..],
        &["run", "--resume", "shared"],
        &["report", "shared"],
    ] {
        let mut command = std::process::Command::new(&binary);
        command.args(args).current_dir(place.directory.path());
        command.env("TCPCOST_STATE_DIR", place.path("shared"));
        let ran = Ran::from(command.uid(NOBODY).gid(NOBODY).output().unwrap());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(!ran.stderr.contains("left as it was"), "{ran:?}");
    }
}
