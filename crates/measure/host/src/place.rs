//! Resolution of a path, component by component, which refuses links of users that root does not
//! trust.
//!
//! Whether a folder may be written to is checked elsewhere: in [`crate::folder`].

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, mkdirat, openat,
    readlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Place that a path leads to: a folder held open, and a name in it.
pub(crate) struct Place {
    pub(crate) folder: OwnedFd,
    pub(crate) name: OsString,
    /// File of this name (O_PATH). `None` if there is none.
    pub(crate) found: Option<OwnedFd>,
    /// True if the name is a link of /proc, which only the kernel can follow: an open file of a
    /// process.
    pub(crate) is_proc_link: bool,
}

/// True if this process is root and there are other users.
///
/// False in a user namespace of one user (as `unshare -r` or an ordinary user's run makes): this
/// root may do only what that user may.
pub fn is_root() -> bool {
    let map = || std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    geteuid().is_root() && !has_one_user(&map())
}

/// True in the host's own user namespace: the only one whose map is the identity on all ids. In another one a process may have all
/// capabilities, but none over the host. `root`: where /proc is.
pub fn is_in_hosts_user_namespace(root: &Path) -> bool {
    let map = std::fs::read_to_string(root.join("proc/self/uid_map")).unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// True for a uid_map (user_namespaces(7)) with a single user.
fn has_one_user(map: &str) -> bool {
    let mut lines = map.lines().map(str::split_whitespace);
    let count = lines.next().and_then(|mut words| words.nth(2));
    count == Some("1") && lines.next().is_none()
}

/// Finds the place that a path leads to. With `make`, creates the missing folders before the last
/// component, with this mode.
///
/// # Errors
/// PermissionDenied for root, if a link on the way belongs to another user; else the kernel's
/// error.
pub(crate) fn find(path: &Path, make: Option<Mode>) -> io::Result<Place> {
    let mut folder = start(path)?;
    let mut left = components(path);
    let mut links = 0;
    let place = |folder, name, found, is_proc_link| Place {
        folder,
        name,
        found,
        is_proc_link,
    };
    loop {
        let Some(name) = left.pop() else {
            let found = Some(open(&folder, OsStr::new("."), OFlags::DIRECTORY)?);
            return Ok(place(folder, OsString::from("."), found, false));
        };
        // Opened as a folder first: autofs mounts a file system only if a folder is requested.
        match open(&folder, &name, OFlags::DIRECTORY | OFlags::NOFOLLOW) {
            Ok(found) if left.is_empty() => return Ok(place(folder, name, Some(found), false)),
            Ok(below) => folder = below,
            Err(Errno::NOTDIR) => {
                let found = open(&folder, &name, OFlags::NOFOLLOW)?;
                let stat = fstat(&found)?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
                    if left.is_empty() {
                        return Ok(place(folder, name, Some(found), false));
                    }
                    return Err(Errno::NOTDIR.into());
                }
                if fstatfs(&found)?.f_type == PROC_SUPER_MAGIC {
                    let found = open(&folder, &name, OFlags::empty())?;
                    if left.is_empty() {
                        return Ok(place(folder, name, Some(found), true));
                    }
                    folder = found;
                    continue;
                }
                check_link(&name, &stat)?;
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::LOOP.into());
                }
                let target = readlinkat(&found, "", Vec::new())?;
                let target = Path::new(OsStr::from_bytes(target.as_bytes()));
                if target.is_absolute() {
                    folder = start(target)?;
                }
                left.extend(components(target));
            }
            Err(Errno::NOENT) if left.is_empty() => return Ok(place(folder, name, None, false)),
            Err(Errno::NOENT) if make.is_some() => {
                make_folder(&folder, &name, make.expect("checked"))?;
                left.push(name);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Creates a folder. True if there was none.
pub(crate) fn make_folder(folder: &OwnedFd, name: &OsStr, mode: Mode) -> io::Result<bool> {
    match mkdirat(folder, name, mode) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Limit of links in a path: Linux's own (path_resolution(7)).
const LINKS_MAX: usize = 40;

fn check_link(name: &OsStr, stat: &Stat) -> io::Result<()> {
    if !is_root() || stat.st_uid == 0 {
        return Ok(());
    }
    let name = PathBuf::from(name);
    Err(refused(format!(
        "{} is a link of user {}, which root does not follow: name what it leads to",
        name.display(),
        stat.st_uid
    )))
}

/// Creates an error for an action that the kernel would allow.
pub(crate) fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// Opens the folder in which a path begins.
fn start(path: &Path) -> io::Result<OwnedFd> {
    let begin = if path.is_absolute() { "/" } else { "." };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, begin, flags, Mode::empty())?)
}

fn open(folder: &OwnedFd, name: &OsStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
    openat(folder, name, flags, Mode::empty())
}

/// Names of a path, the last first.
fn components(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_os_string()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    names.rev().collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    #[test]
    fn a_path_leads_where_the_kernel_would_lead_it() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::fs::write(at("a/file"), "").unwrap();
        symlink("../a", at("a/up")).unwrap();
        symlink(at("a/b"), at("far")).unwrap();
        symlink("around", at("around")).unwrap();
        let inode = |path: &Path| -> io::Result<Option<u64>> {
            let found = find(path, None)?.found;
            Ok(found.map(fstat).transpose()?.map(|stat| stat.st_ino))
        };
        use std::os::unix::fs::MetadataExt;
        for name in [
            "a",
            "a/b",
            "a/file",
            "a/up/file",
            "a/../far",
            "./a/up/up/b/..",
        ] {
            let expected = std::fs::metadata(at(name)).unwrap().ino();
            assert_eq!(inode(&at(name)).unwrap(), Some(expected), "{name}");
        }
        assert_eq!(inode(&at("a/none")).unwrap(), None);
        for (name, errno) in [
            ("none/x", Errno::NOENT),
            ("a/file/x", Errno::NOTDIR),
            ("around", Errno::LOOP),
        ] {
            let error = inode(&at(name)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()), "{name}");
        }
        assert_eq!(
            inode(Path::new("/proc/self")).unwrap(),
            inode(&PathBuf::from(format!("/proc/{}", std::process::id()))).unwrap()
        );
    }

    #[test]
    fn missing_folders_are_made_and_the_last_name_is_not() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b/c");
        let place = find(&path, Some(Mode::from_raw_mode(0o700))).unwrap();
        assert!(place.found.is_none() && root.path().join("a/b").is_dir());
        assert!(!path.exists());
    }

    #[test]
    fn root_follows_no_link_of_another_user() {
        if !tcpcost_testbed::is_root() {
            return tcpcost_testbed::skip("needs root to make another user's link");
        }
        let root = tempfile::tempdir().unwrap();
        let link = root.path().join("link");
        symlink("/root", &link).unwrap();
        assert!(find(&link, None).is_ok());
        lchown(&link, Some(NOBODY), None).unwrap();
        for path in [link.clone(), link.join("below")] {
            let error = find(&path, None).err().unwrap().to_string();
            assert_eq!(
                error,
                "link is a link of user 65534, which root does not follow: name what it leads to"
            );
        }
    }

    #[test]
    fn a_user_namespace_of_one_user_has_no_others() {
        assert!(has_one_user("         0       1000          1\n"));
        assert!(!has_one_user("         0          0 4294967295\n"));
        assert!(!has_one_user(
            "         0       1000          1\n         1     100000      65536\n"
        ));
        assert!(!has_one_user(""));
    }

    const NOBODY: u32 = 65534;
}
