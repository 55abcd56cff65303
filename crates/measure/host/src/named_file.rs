//! Files that the user named on the command line (`-o FILE`), outside of a run's directory.
//!
//! A link is followed, as any program does. Root follows only links of root, because in a shared
//! folder another user may have created the link. Pipes and terminals (`/dev/stdout`, `>(COMMAND)`)
//! are written to; a block device never is.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, ftruncate, openat};
use rustix::io::Errno;

use crate::folder::{Folder, file_mode};
use crate::place::{self, Place};

/// Writes a file. A regular file is written completely or not at all: it gets its name when all
/// bytes are on the disk.
///
/// # Errors
/// PermissionDenied for root, if a link on the way belongs to another user; InvalidInput for a
/// block device or a socket; else the kernel's error.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let place = place::find(path, None)?;
    match kind(&place)? {
        Some(FileType::RegularFile) | None if !place.is_proc_link => {
            Folder::of_place(&place)?.replace(&place.name, text.as_bytes())
        }
        _ => open(&place)?.write_all(text.as_bytes()),
    }
}

/// Opens a file for writing piece by piece; its former content is lost.
///
/// # Errors
/// Those of [`write()`].
pub fn create(path: &Path) -> io::Result<File> {
    open(&place::find(path, None)?)
}

fn open(place: &Place) -> io::Result<File> {
    let wrong = || {
        let why = "neither a file, a pipe nor a terminal";
        io::Error::new(io::ErrorKind::InvalidInput, why)
    };
    use FileType::{CharacterDevice, Fifo, RegularFile};
    let kind = kind(place)?;
    // Opening a pipe waits for its reader; a file of another kind is not opened at all.
    let flags = match kind {
        Some(Fifo | CharacterDevice | RegularFile) if place.is_proc_link => OFlags::APPEND,
        Some(Fifo | CharacterDevice) => OFlags::NOFOLLOW,
        Some(RegularFile) | None => OFlags::NOFOLLOW | OFlags::CREATE | OFlags::NONBLOCK,
        Some(FileType::Directory) => return Err(Errno::ISDIR.into()),
        _ => return Err(wrong()),
    };
    let flags = flags | OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(file_mode());
    let file = openat(&place.folder, &place.name, flags, mode)?;
    let opened = FileType::from_raw_mode(fstat(&file)?.st_mode);
    // Another user may have replaced the file in between.
    if opened != kind.unwrap_or(RegularFile) {
        return Err(wrong());
    }
    if opened == RegularFile && !place.is_proc_link {
        ftruncate(&file, 0)?;
    }
    Ok(file.into())
}

/// Kind of the file. `None` if there is no file.
fn kind(place: &Place) -> io::Result<Option<FileType>> {
    let Some(found) = &place.found else {
        return Ok(None);
    };
    Ok(Some(FileType::from_raw_mode(fstat(found)?.st_mode)))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    fn read(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_file_is_replaced_and_a_link_is_followed_and_stays() {
        let root = tempfile::tempdir().unwrap();
        let (file, link) = (root.path().join("file"), root.path().join("link"));
        symlink("file", &link).unwrap();
        write(&link, "new").unwrap();
        assert_eq!(read(&file), "new");
        write(&link, "newer").unwrap();
        create(&link).unwrap().write_all(b"s").unwrap();
        assert_eq!(read(&file), "s");
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 2);
    }

    #[test]
    fn pipes_and_terminals_are_written_to_by_their_links_too() {
        write(Path::new("/dev/null"), "x").unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        write(
            Path::new(&format!("/dev/fd/{}", writer.as_raw_fd())),
            "through",
        )
        .unwrap();
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
        // Standard output redirected to a file: that file is written, and /dev/stdout stays a link.
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("out");
        std::fs::write(&path, "before ").unwrap();
        let file = File::options().append(true).open(&path).unwrap();
        write(
            Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())),
            "after",
        )
        .unwrap();
        assert_eq!(read(&path), "before after");
    }

    #[test]
    fn a_block_device_a_socket_and_a_folder_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let socket = root.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let refused = |path: &Path| {
            let wrote = write(path, "x").unwrap_err().to_string();
            let made = create(path).unwrap_err().to_string();
            assert_eq!(wrote, made);
            wrote
        };
        assert_eq!(refused(&socket), "neither a file, a pipe nor a terminal");
        assert!(refused(root.path()).contains("directory"));
        if !tcpcost_testbed::is_root() {
            return tcpcost_testbed::skip("needs root to make a block device");
        }
        let device = root.path().join("device");
        // Loop device 200 rarely exists: opening it would fail with another error.
        let mode = Mode::from_raw_mode(0o600);
        let made = rustix::fs::mknodat(
            rustix::fs::CWD,
            &device,
            FileType::BlockDevice,
            mode,
            rustix::fs::makedev(7, 200),
        );
        if made.is_err() {
            return tcpcost_testbed::skip("needs mknod(2)");
        }
        let link = root.path().join("link");
        symlink(&device, &link).unwrap();
        for path in [&device, &link] {
            assert_eq!(refused(path), "neither a file, a pipe nor a terminal");
        }
    }

    #[test]
    fn root_writes_through_no_link_of_another_user() {
        if !tcpcost_testbed::is_root() {
            return tcpcost_testbed::skip("needs root to make another user's link");
        }
        let root = tempfile::tempdir().unwrap();
        let (file, link) = (root.path().join("file"), root.path().join("link"));
        std::fs::write(&file, "precious").unwrap();
        symlink(&file, &link).unwrap();
        lchown(&link, Some(65534), None).unwrap();
        for error in [write(&link, "x").unwrap_err(), create(&link).unwrap_err()] {
            assert!(error.to_string().contains("link of user 65534"), "{error}");
        }
        assert_eq!(read(&file), "precious");
    }
}
