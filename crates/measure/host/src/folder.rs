//! Folders held open, so that nothing changes if another user moves them or puts a link in their
//! place.
//!
//! Files in a folder are opened by a single name relative to the open folder. Only regular files
//! are read or written.
//!
//! Root trusts only what root alone can write. A folder that root writes to ([`Folder::own`]) must
//! be root's, and no other user may be able to write there; the same holds for each file that root
//! reads back or appends to. Root follows no link in a folder, and on the way to it only links that
//! root owns. Ordinary users share folders with their groups, so they get no such refusal.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::place::{self, Place, is_root, refused};

/// Folder held open.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    fd: OwnedFd,
    /// True for root: no link is followed.
    is_root: bool,
    /// True if files of other users must not be used (checked for root only).
    is_own: bool,
}

impl Folder {
    /// Opens a folder for reading. Any user may own it.
    ///
    /// # Errors
    /// PermissionDenied for root, if a link on the way belongs to another user; else the kernel's
    /// error.
    pub fn open(path: &Path) -> io::Result<Folder> {
        Folder::at(&place::find(path, None)?, path.to_path_buf(), is_root())
    }

    /// Opens a folder for writing.
    ///
    /// # Errors
    /// Those of [`Folder::open`]; PermissionDenied for root, if another user owns the folder or can
    /// write to it.
    pub fn own(path: &Path) -> io::Result<Folder> {
        Folder::open(path)?.owned()
    }

    /// Opens a folder for writing, and creates it with this mode if it is missing. The `bool` is
    /// true if it was created.
    ///
    /// # Errors
    /// Those of [`Folder::own`].
    pub fn make(path: &Path, mode: u32) -> io::Result<(Folder, bool)> {
        let mode = Mode::from_raw_mode(mode);
        let mut place = place::find(path, Some(mode))?;
        let is_new = place.found.is_none() && place::make_folder(&place.folder, &place.name, mode)?;
        if place.found.is_none() {
            place.found = Some(below(&place.folder, &place.name)?);
        }
        let folder = Folder::at(&place, path.to_path_buf(), is_root())?;
        Ok((folder.owned()?, is_new))
    }

    fn at(place: &Place, path: PathBuf, is_root: bool) -> io::Result<Folder> {
        let found = place.found.as_ref().ok_or(Errno::NOENT)?;
        Ok(Folder {
            fd: below(found, OsStr::new("."))?,
            path,
            is_root,
            is_own: false,
        })
    }

    /// Folder that contains a place, for writing a file that the user named. Its owner is not
    /// checked.
    pub(crate) fn of_place(place: &Place) -> io::Result<Folder> {
        Ok(Folder {
            fd: place.folder.try_clone()?,
            path: PathBuf::new(),
            is_root: is_root(),
            is_own: false,
        })
    }

    /// Turns this into a folder for writing.
    ///
    /// # Errors
    /// Those of [`Folder::own`].
    pub fn owned(mut self) -> io::Result<Folder> {
        self.is_own = true;
        self.check(&self.path, &fstat(&self.fd)?)?;
        Ok(self)
    }

    fn check(&self, path: &Path, stat: &Stat) -> io::Result<()> {
        if !(self.is_root && self.is_own) {
            return Ok(());
        }
        let path = path.display();
        let (owner, mode) = (stat.st_uid, stat.st_mode & 0o7777);
        if owner != 0 {
            return Err(refused(format!(
                "{path} belongs to user {owner}, not to root: chown root {path}, or name a folder that is root's or not there yet"
            )));
        }
        if mode & 0o022 != 0 {
            return Err(refused(format!(
                "{path} can be written by others than root (mode {mode:o}): chmod go-w {path}, or name another folder"
            )));
        }
        Ok(())
    }

    /// Path by which the folder was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path that leads to this very folder as long as it is held open, for processes of this
    /// machine and user.
    pub fn proc_path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd()).into()
    }

    /// Opens the folder once more as a file, for locking or syncing.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn handle(&self) -> io::Result<File> {
        below(&self.fd, OsStr::new(".")).map(File::from)
    }

    /// Opens a folder in this one, with the same checks.
    ///
    /// # Errors
    /// Those of [`Folder::own`] for a folder for writing, else those of [`Folder::open`].
    pub fn folder(&self, name: &str) -> io::Result<Folder> {
        let folder = Folder {
            path: self.path.join(name),
            fd: below(&self.fd, OsStr::new(name))?,
            ..*self
        };
        folder.check(&folder.path, &fstat(&folder.fd)?)?;
        Ok(folder)
    }

    /// Opens a folder in this one, and creates it if it is missing. The `bool` is true if it was
    /// created.
    ///
    /// # Errors
    /// Those of [`Folder::own`].
    pub fn make_folder(&self, name: &str) -> io::Result<(Folder, bool)> {
        let mode = Mode::from_raw_mode(folder_mode());
        let is_new = place::make_folder(&self.fd, OsStr::new(name), mode)?;
        Ok((self.folder(name)?, is_new))
    }

    /// True if a file of any kind has this name.
    pub fn has(&self, name: &str) -> bool {
        statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Lists the names in the folder, in no order.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_os_string());
            }
        }
        Ok(names)
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// InvalidInput for anything but a regular file; PermissionDenied for root in a folder of its
    /// own if the file is another user's; else the kernel's error.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let links = if self.is_root {
            OFlags::NOFOLLOW
        } else {
            OFlags::empty()
        };
        self.regular(name.as_ref(), OFlags::RDONLY | links, Mode::empty())
    }

    /// Reads a regular file of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// Those of [`Folder::open_file`]; FileTooLarge.
    pub fn read(&self, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
        let file = self.open_file(name)?;
        let too_long = || {
            let limit = bytes_max >> 20;
            io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("longer than {limit} MiB"),
            )
        };
        if file.metadata()?.len() > bytes_max {
            return Err(too_long());
        }
        let mut bytes = Vec::new();
        file.take(bytes_max + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > bytes_max {
            return Err(too_long());
        }
        Ok(bytes)
    }

    /// Creates a file for appending and reading. The umask takes bits from `mode`.
    ///
    /// # Errors
    /// AlreadyExists if anything has this name, even a link; else the kernel's error.
    pub fn create(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
        self.regular(name.as_ref(), flags, Mode::from_raw_mode(mode))
    }

    /// Removes any file of this name, and creates a new one for appending and reading.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn create_anew(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        match self.remove(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.create(name, file_mode())
    }

    /// Opens a regular file for appending and reading.
    ///
    /// # Errors
    /// Those of [`Folder::open_file`]; InvalidInput for a link.
    pub fn append(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW;
        self.regular(name.as_ref(), flags, Mode::empty())
    }

    /// Opens a regular file for appending and reading, and creates it if it is missing.
    ///
    /// # Errors
    /// Those of [`Folder::open_file`]; InvalidInput for a link.
    pub fn append_or_create(&self, name: &str, mode: u32) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CREATE;
        self.regular(name.as_ref(), flags, Mode::from_raw_mode(mode))
    }

    /// Writes a file completely or not at all: it gets its name when all bytes are on the disk. Any
    /// file of that name is replaced; a link is not followed.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn replace(&self, name: impl AsRef<OsStr>, bytes: &[u8]) -> io::Result<()> {
        let mut random = [0; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let new = format!(".tcpcost-{:016x}", u64::from_ne_bytes(random));
        let mut file = self.create(&new, file_mode())?;
        let written = file
            .write_all(bytes)
            .and_then(|()| file.sync_data())
            .and_then(|()| Ok(renameat(&self.fd, &new, &self.fd, name.as_ref())?));
        written.inspect_err(|_| drop(self.remove(&new)))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(unlinkat(&self.fd, name.as_ref(), AtFlags::empty())?)
    }

    /// Opens a file that must be regular. It does not block, whatever the file is.
    fn regular(&self, name: &OsStr, flags: OFlags, mode: Mode) -> io::Result<File> {
        let path = || self.path.join(name);
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let strange = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_string());
        let file = match openat(&self.fd, name, flags, mode) {
            Err(Errno::LOOP) => return Err(strange("a link, which is not followed here")),
            // A FIFO without a reader, or a socket.
            Err(Errno::NXIO) => return Err(strange(NOT_REGULAR)),
            other => other?,
        };
        let stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(strange(NOT_REGULAR));
        }
        self.check(&path(), &stat)?;
        Ok(file.into())
    }
}

const NOT_REGULAR: &str = "not a regular file";

/// Removes an empty folder by its path.
///
/// # Errors
/// Those of [`Folder::open`]; the folder is not empty.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    let place = place::find(path, None)?;
    Ok(unlinkat(&place.folder, &place.name, AtFlags::REMOVEDIR)?)
}

/// Mode of a new folder, before the umask. Root's folders are writable for root alone, whatever the
/// umask.
pub fn folder_mode() -> u32 {
    if is_root() { 0o755 } else { 0o777 }
}

/// Mode of a new file, before the umask.
pub fn file_mode() -> u32 {
    if is_root() { 0o644 } else { 0o666 }
}

fn below(folder: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(folder, name, flags, Mode::empty()) {
        // A link or a file.
        Err(Errno::LOOP) => Err(Errno::NOTDIR.into()),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests;
