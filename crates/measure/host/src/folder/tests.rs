use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

use tempfile::TempDir;

use super::*;

const NOBODY: u32 = 65534;

fn place() -> (TempDir, Folder) {
    let root = tempfile::tempdir().unwrap();
    let folder = Folder::own(root.path()).unwrap();
    (root, folder)
}

fn fifo(path: &Path) {
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, mode, 0).unwrap();
}

/// Checks that root refuses a folder that another user owns or can write to, with a line about it.
/// Skips without root.
fn root_refuses(use_it: impl Fn(&Path) -> io::Result<()>) {
    if !tcpcost_testbed::is_root() {
        return tcpcost_testbed::skip("needs root, who has other users");
    }
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("folder");
    fs::create_dir(&path).unwrap();
    use_it(&path).unwrap();
    for mode in [0o775, 0o757, 0o1777] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = use_it(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        let shown = path.display();
        let expected = format!(
            "{shown} can be written by others than root (mode {mode:o}): chmod go-w {shown}, or name another folder"
        );
        assert_eq!(error.to_string(), expected);
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    chown(&path, Some(NOBODY), None).unwrap();
    let error = use_it(&path).unwrap_err().to_string();
    assert!(
        error.contains("belongs to user 65534, not to root: chown root "),
        "{error}"
    );
}

#[test]
fn root_writes_in_no_folder_that_others_own_or_can_write_to() {
    root_refuses(|path| Folder::own(path).map(|_| ()));
    root_refuses(|path| Folder::make(path, 0o755).map(|_| ()));
    root_refuses(|path| {
        let parent = Folder::own(path.parent().unwrap())?;
        parent.make_folder("folder").map(|_| ())
    });
}

#[test]
fn root_reads_anybodys_folder() {
    if !tcpcost_testbed::is_root() {
        return tcpcost_testbed::skip("needs root, who has other users");
    }
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("file"), "text").unwrap();
    for path in [root.path().join("file"), root.path().to_path_buf()] {
        chown(path, Some(NOBODY), None).unwrap();
    }
    let folder = Folder::open(root.path()).unwrap();
    assert_eq!(folder.read("file", 4).unwrap(), b"text");
    symlink("file", root.path().join("link")).unwrap();
    let error = folder.read("link", 4).unwrap_err();
    assert_eq!(error.to_string(), "a link, which is not followed here");
}

#[test]
fn root_uses_no_file_of_others_in_a_folder_of_its_own() {
    if !tcpcost_testbed::is_root() {
        return tcpcost_testbed::skip("needs root, who has other users");
    }
    let (root, folder) = place();
    let path = root.path().join("file");
    fs::write(&path, "text").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(folder.read("file", 9).is_err() && folder.append("file").is_err());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(folder.read("file", 9).is_ok() && folder.append("file").is_ok());
    chown(&path, Some(NOBODY), None).unwrap();
    assert!(folder.read("file", 9).is_err() && folder.append_or_create("file", 0o600).is_err());
}

#[test]
fn nothing_but_a_regular_file_is_read_or_written_and_nothing_is_waited_for() {
    let (root, folder) = place();
    let at = |name: &str| root.path().join(name);
    fifo(&at("fifo"));
    let _listener = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    fs::create_dir(at("folder")).unwrap();
    for name in ["fifo", "socket"] {
        let errors = [
            folder.read(name, 9).unwrap_err(),
            folder.append(name).unwrap_err(),
            folder.append_or_create(name, 0o600).unwrap_err(),
        ];
        assert!(
            errors.iter().all(|error| error.to_string() == NOT_REGULAR),
            "{errors:?}"
        );
        assert!(folder.create(name, 0o600).is_err());
        folder.replace(name, b"file").unwrap();
        assert_eq!(folder.read(name, 4).unwrap(), b"file");
    }
    assert!(folder.read("folder", 9).is_err() && folder.replace("folder", b"").is_err());
    assert_eq!(
        folder.names().unwrap().len(),
        3,
        "nothing half written stays"
    );
    // /dev/zero never ends: root refuses it as a link, other users as a device.
    symlink("/dev/zero", at("zero")).unwrap();
    assert_eq!(
        folder.read("zero", 9).unwrap_err().kind(),
        io::ErrorKind::InvalidInput
    );
}

#[test]
fn no_link_is_written_through() {
    let (root, folder) = place();
    let victim = tempfile::NamedTempFile::new().unwrap();
    let precious = || fs::read_to_string(victim.path()).unwrap();
    fs::write(victim.path(), "precious").unwrap();
    let link = || symlink(victim.path(), root.path().join("link")).unwrap();
    link();
    assert!(folder.append("link").is_err() && folder.append_or_create("link", 0o600).is_err());
    assert!(folder.create("link", 0o600).is_err() && folder.folder("link").is_err());
    folder.replace("link", b"own").unwrap();
    assert_eq!(
        (folder.read("link", 3).unwrap(), precious()),
        (b"own".to_vec(), "precious".into())
    );
    folder.remove("link").unwrap();
    link();
    folder
        .create_anew("link")
        .unwrap()
        .write_all(b"new")
        .unwrap();
    assert_eq!(
        (folder.read("link", 3).unwrap(), precious()),
        (b"new".to_vec(), "precious".into())
    );
}

#[test]
fn a_file_is_read_up_to_its_limit() {
    let (_root, folder) = place();
    let limit = 1 << 20;
    folder.replace("file", &vec![b'x'; limit]).unwrap();
    assert_eq!(folder.read("file", limit as u64).unwrap().len(), limit);
    folder.append("file").unwrap().write_all(b"y").unwrap();
    let error = folder.read("file", limit as u64).unwrap_err();
    assert_eq!(error.to_string(), "longer than 1 MiB");
}

#[test]
fn a_folder_that_is_swapped_is_still_the_one_that_was_opened() {
    let root = tempfile::tempdir().unwrap();
    let (path, moved) = (root.path().join("run"), root.path().join("moved"));
    let (folder, is_new) = Folder::make(&path, 0o755).unwrap();
    assert!(is_new);
    let victim = tempfile::tempdir().unwrap();
    fs::rename(&path, &moved).unwrap();
    symlink(victim.path(), &path).unwrap();
    folder.create("file", 0o600).unwrap();
    folder.replace("page", b"x").unwrap();
    folder.make_folder("below").unwrap();
    assert_eq!(fs::read_dir(victim.path()).unwrap().count(), 0);
    assert_eq!(fs::read_dir(&moved).unwrap().count(), 3);
    assert_eq!(
        folder.handle().unwrap().metadata().unwrap().ino(),
        fs::metadata(&moved).unwrap().ino()
    );
}

#[test]
fn an_empty_folder_is_removed_and_a_link_is_not_followed_to_one() {
    let root = tempfile::tempdir().unwrap();
    let (path, link) = (root.path().join("a"), root.path().join("link"));
    fs::create_dir(&path).unwrap();
    fs::write(path.join("file"), "").unwrap();
    assert!(remove_folder(&path).is_err());
    fs::remove_file(path.join("file")).unwrap();
    symlink(&path, &link).unwrap();
    remove_folder(&path).unwrap();
    assert!(!path.exists() && link.is_symlink());
}
