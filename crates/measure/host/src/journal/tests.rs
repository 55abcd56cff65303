use std::fs;

use super::*;
use crate::device_knobs::{DeviceSetting, State};

fn former(value: &str) -> Setting {
    // A setting that cannot be read: restoring it fails, so that entries stay visible.
    let (name, value) = ("net.core.nonesuch".parse().unwrap(), value.into());
    Setting::Sysctl { name, value }
}

fn files(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

fn dead_entry(folder: &Path, change: impl Fn(&mut Entry), tail: &str) {
    let mut entry = Entry {
        netns: namespace::inode().unwrap(),
        boot_id: boot_id().unwrap(),
        pid: 1,
        pid_started_ticks: 1,
        at_ns: 1,
        former: former("1"),
    };
    change(&mut entry);
    let line = entry.to_line();
    fs::write(folder.join("1-0.journal"), line + tail).unwrap();
}

/// Runs [`restore`] until no process has a journal open. For a moment a child forked by another
/// test has all files of this process, and so the locks.
fn restore_alone(folder: &Path) -> Restored {
    tcpcost_testbed::until("nobody has a journal open", || {
        let restored = restore(folder).unwrap();
        (restored.running == 0).then_some(restored)
    })
}

#[test]
fn entries_of_a_live_owner_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(folder.path()).unwrap();
    journal.note(former("1")).unwrap();
    let restored = restore(folder.path()).unwrap();
    assert_eq!(restored.kept.len(), 1);
    assert!(restored.kept[0].contains("running"), "{restored}");
    assert_eq!((files(folder.path()), restored.failed.len()), (1, 0));
}

#[test]
fn an_unused_journal_leaves_no_file_and_two_have_two() {
    let folder = tempfile::tempdir().unwrap();
    let one = Journal::open(folder.path()).unwrap();
    let two = Journal::open(folder.path()).unwrap();
    assert_eq!(files(folder.path()), 2);
    drop((one, two));
    assert_eq!(files(folder.path()), 0);
}

#[test]
fn entries_of_another_boot_are_dropped() {
    let folder = tempfile::tempdir().unwrap();
    dead_entry(folder.path(), |entry| entry.boot_id = "other".into(), "");
    let restored = restore_alone(folder.path());
    assert_eq!(restored.dropped, 1);
    assert_eq!(files(folder.path()), 0);
}

#[test]
fn entries_of_another_namespace_are_kept_and_said() {
    let folder = tempfile::tempdir().unwrap();
    dead_entry(folder.path(), |entry| entry.netns = 7, "");
    for _ in 0..2 {
        let restored = restore_alone(folder.path());
        assert!(restored.kept[0].contains("namespace 7"), "{restored}");
        assert_eq!(files(folder.path()), 1);
    }
}

#[test]
fn what_cannot_be_put_back_is_said_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    dead_entry(folder.path(), |_| {}, "");
    for _ in 0..2 {
        let restored = restore_alone(folder.path());
        assert!(restored.failed[0].contains("nonesuch"), "{restored}");
    }
}

#[test]
fn a_knob_that_is_none_and_a_state_of_another_knob_are_said_and_stay() {
    let folder = tempfile::tempdir().unwrap();
    for (knob, expected) in [
        ("nonesuch", "no such knob"),
        ("gro", "a state of another knob"),
    ] {
        let forged = |entry: &mut Entry| {
            entry.former = Setting::Device(DeviceSetting {
                knob: knob.to_string(),
                device: "lo".parse().unwrap(),
                state: State::Cpus(vec![0]),
            });
        };
        dead_entry(folder.path(), forged, "");
        let restored = restore_alone(folder.path());
        assert!(restored.failed[0].contains(expected), "{restored}");
        assert_eq!(files(folder.path()), 1);
    }
}

#[test]
fn a_torn_last_line_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    dead_entry(folder.path(), |_| {}, "{\"netns\":12,\"boo\u{fffd}");
    let restored = restore_alone(folder.path());
    assert_eq!((restored.failed.len(), restored.kept.len()), (1, 0));
}

#[test]
fn a_whole_line_that_is_not_understood_is_said_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    dead_entry(
        folder.path(),
        |entry| entry.boot_id = "other".into(),
        "{}\n",
    );
    for dropped in [1, 0] {
        let restored = restore_alone(folder.path());
        assert_eq!((restored.failed.len(), restored.dropped), (1, dropped));
        assert_eq!(files(folder.path()), 1);
    }
}

#[test]
fn a_device_that_has_gone_needs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let gone = |entry: &mut Entry| {
        entry.former = Setting::Device(DeviceSetting {
            knob: "mtu".to_string(),
            device: "nonesuch0".parse().unwrap(),
            state: State::Number(1500),
        });
    };
    dead_entry(folder.path(), gone, "");
    let restored = restore_alone(folder.path());
    assert_eq!(restored.put_back.len(), 1, "{restored}");
    assert_eq!(restore_alone(folder.path()), Restored::default());
}

#[test]
fn a_folder_that_is_not_there_is_an_empty_one() {
    let restored = restore(Path::new("/nonesuch/tcpcost")).unwrap();
    assert_eq!(restored, Restored::default());
}

#[test]
fn the_folder_follows_the_environment() {
    let both = |name: &str| Some(PathBuf::from(format!("/{name}")));
    let runtime = |name: &str| both(name).filter(|_| name == "XDG_RUNTIME_DIR");
    assert_eq!(
        folder_from(both, true).unwrap(),
        Path::new("/TCPCOST_STATE_DIR")
    );
    assert_eq!(
        folder_from(runtime, true).unwrap(),
        Path::new("/run/tcpcost")
    );
    assert_eq!(
        folder_from(runtime, false).unwrap(),
        Path::new("/XDG_RUNTIME_DIR/tcpcost")
    );
    assert!(
        folder_from(|_| None, false)
            .unwrap_err()
            .contains("TCPCOST_STATE_DIR")
    );
}

/// Whole line of this boot and namespace with another former value.
fn forged(former: &str) -> String {
    let entry = Entry {
        netns: namespace::inode().unwrap(),
        boot_id: boot_id().unwrap(),
        pid: 1,
        pid_started_ticks: 1,
        at_ns: 1,
        former: self::former("1"),
    };
    let mut entry = serde_json::to_value(entry).unwrap();
    entry["former"] = serde_json::from_str(former).unwrap();
    format!("{entry}\n")
}

fn device_knob(knob: &str, device: &str, state: &str) -> String {
    format!(r#"{{"setting":"device","knob":"{knob}","device":"{device}","state":{state}}}"#)
}

#[test]
fn what_no_study_can_set_is_said_and_stays_and_nothing_is_set() {
    let folder = tempfile::tempdir().unwrap();
    let victim = tempfile::tempdir().unwrap();
    // The file is like a device's in /sys, so that only the path to it is missing.
    fs::write(victim.path().join("threaded"), "precious").unwrap();
    let device = format!("../../..{}", victim.path().display());
    let pattern = || fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let before = pattern();
    let attacks = [
        r#"{"setting":"sysctl","name":"kernel.core_pattern","value":"|/bin/false %p"}"#.to_string(),
        r#"{"setting":"sysctl","name":"net/../kernel/core_pattern","value":"x"}"#.to_string(),
        device_knob("threaded_napi", &device, r#"{"switch":true}"#),
        device_knob("steering", &device, r#"{"cpus":[0]}"#),
        r#"{"setting":"port","device":"lo","port":{"is_here":true,"is_up":true,"addresses":[],"borrower":{"pid":1,"netns":1,"held":"/etc/passwd"}}}"#.to_string(),
    ];
    let lines: String = attacks.iter().map(|attack| forged(attack)).collect();
    fs::write(folder.path().join("1-0.journal"), &lines).unwrap();
    for _ in 0..2 {
        let restored = restore_alone(folder.path());
        assert_eq!(restored.failed.len(), attacks.len(), "{restored}");
        assert!(restored.put_back.is_empty(), "{restored}");
        assert!(
            restored.failed[0]
                .contains("\"kernel.core_pattern\" is no sysctl that a study may set"),
            "{restored}"
        );
        assert!(
            restored.failed[2].contains("is no name of a network device"),
            "{restored}"
        );
    }
    assert_eq!(pattern(), before);
    assert_eq!(
        fs::read_to_string(victim.path().join("threaded")).unwrap(),
        "precious"
    );
    assert_eq!(
        fs::read_to_string(folder.path().join("1-0.journal")).unwrap(),
        lines
    );
}

#[test]
fn what_is_no_regular_file_is_said_and_stays_and_does_not_hang() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let victim = tempfile::NamedTempFile::new().unwrap();
    fs::write(victim.path(), "precious\n").unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, at("a.journal"), fifo, mode, 0).unwrap();
    std::os::unix::fs::symlink(victim.path(), at("b.journal")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", at("c.journal")).unwrap();
    dead_entry(folder.path(), |entry| entry.boot_id = "other".into(), "");
    let restored = restore_alone(folder.path());
    assert_eq!(
        (restored.failed.len(), restored.dropped),
        (3, 1),
        "{restored}"
    );
    assert_eq!(files(folder.path()), 3);
    assert_eq!(fs::read_to_string(victim.path()).unwrap(), "precious\n");
}

#[test]
fn a_journal_without_end_is_said_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("1-0.journal");
    fs::File::create(&path)
        .unwrap()
        .set_len(BYTES_MAX + 1)
        .unwrap();
    let restored = restore_alone(folder.path());
    assert!(
        restored.failed[0].ends_with("longer than 16 MiB"),
        "{restored}"
    );
    assert!(path.exists());
}

#[test]
fn root_trusts_no_journal_that_another_user_can_have_written() {
    if !tcpcost_testbed::is_root() {
        return tcpcost_testbed::skip("needs root, who has other users");
    }
    use std::os::unix::fs::{PermissionsExt, chown};
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("state");
    let reset = || {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        // If this entry were restored, it would be reported as failed.
        dead_entry(&folder, |_| {}, "");
    };
    let refused = || {
        let error = restore(&folder).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("read {0}: {0} ", folder.display())),
            "{error}"
        );
        assert!(Journal::open(&folder).is_err());
        assert!(crate::lock::HostLock::open(&folder).is_err());
        assert_eq!(files(&folder), 1);
        error
    };
    reset();
    chown(&folder, Some(65534), None).unwrap();
    assert!(refused().contains("belongs to user 65534"));
    reset();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(refused().contains("can be written by others than root (mode 777)"));
    reset();
    chown(folder.join("1-0.journal"), Some(65534), None).unwrap();
    let restored = restore_alone(&folder);
    assert!(
        restored.failed[0].contains("1-0.journal belongs to user 65534"),
        "{restored}"
    );
    assert_eq!(restored.failed.len(), 1, "{restored}");
}
