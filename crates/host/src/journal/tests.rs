use super::*;

fn former(value: &str) -> Setting {
    // A setting that cannot be read: putting it back fails, so that entries stay visible.
    let (name, value) = ("net.core.nonesuch".into(), value.into());
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

/// What [`restore`] does once nobody has a journal open. The child of another test's fork has all files of this process
/// for a moment, and with them the locks.
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
        let (device, bytes) = ("nonesuch0".into(), 1500);
        entry.former = Setting::Mtu { device, bytes };
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
