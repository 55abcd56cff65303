//! Reader of a growing file or a pipe. Returns [`io::ErrorKind::WouldBlock`] if no data came within
//! a step.
//!
//! A regular file is polled at its end, because not every file system reports growth: inotify does
//! not see the writes of other hosts on NFS.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Reason why no more data will come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileEnd {
    /// The last writer of the pipe closed it.
    Closed,
    /// Another file has the name now, as after a rotation.
    Replaced,
    /// The file is shorter than the part that was read. A file that is cut and grows beyond that
    /// part within one step is taken for one that only grew.
    Cut,
}

/// A file or pipe that grows.
#[derive(Debug)]
pub struct Growing {
    file: File,
    step: Duration,
    /// Path of a regular file; `None` for a pipe.
    name: Option<PathBuf>,
    bytes_read: u64,
    /// True if another file has the name now. The old file's last data is still read.
    replaced: bool,
    ended: Option<FileEnd>,
}

impl Growing {
    /// Opens a file or FIFO, or standard input for `-`. A read waits for at most one `step`.
    ///
    /// # Errors
    /// See [`File::open`].
    pub fn open(path: &Path, step: Duration) -> io::Result<Growing> {
        let file = if path == Path::new("-") {
            File::from(io::stdin().as_fd().try_clone_to_owned()?)
        } else {
            File::open(path)?
        };
        let is_named = path != Path::new("-") && file.metadata()?.is_file();
        Ok(Growing {
            file,
            step,
            name: is_named.then(|| path.to_path_buf()),
            bytes_read: 0,
            replaced: false,
            ended: None,
        })
    }

    /// Reason of the end; `None` while more data may come.
    pub fn ended(&self) -> Option<FileEnd> {
        self.ended
    }

    /// Checks at the end of the data if more may come. `None` if so.
    fn check_end(&mut self) -> io::Result<Option<FileEnd>> {
        let Some(name) = &self.name else {
            return Ok(Some(FileEnd::Closed));
        };
        let own = self.file.metadata()?;
        if own.len() < self.bytes_read {
            return Ok(Some(FileEnd::Cut));
        }
        if self.replaced {
            return Ok(Some(FileEnd::Replaced));
        }
        // A file that was moved may still be written while no other file has its name.
        let named = std::fs::metadata(name).ok();
        self.replaced =
            named.is_some_and(|named| (named.dev(), named.ino()) != (own.dev(), own.ino()));
        Ok(None)
    }
}

impl Read for Growing {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.ended.is_some() {
            return Ok(0);
        }
        if self.name.is_none() && !wait_for(self.file.as_fd(), self.step)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = self.file.read(into)?;
        self.bytes_read += count as u64;
        if count > 0 || into.is_empty() {
            return Ok(count);
        }
        self.ended = self.check_end()?;
        if self.ended.is_some() {
            return Ok(0);
        }
        std::thread::sleep(self.step);
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// Waits until data is ready or the other end is closed. False if neither came within `most`.
///
/// # Errors
/// See poll(2).
fn wait_for(fd: BorrowedFd<'_>, most: Duration) -> io::Result<bool> {
    let most = Timespec::try_from(most).ok();
    match poll(&mut [PollFd::new(&fd, PollFlags::IN)], most.as_ref()) {
        Err(Errno::INTR) => Ok(false),
        ready => Ok(ready? > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn read(growing: &mut Growing) -> Option<String> {
        let mut bytes = [0; 100];
        match growing.read(&mut bytes) {
            Ok(count) => Some(String::from_utf8(bytes[..count].to_vec()).unwrap()),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                None
            }
        }
    }

    #[test]
    fn what_is_added_follows_and_a_new_file_comes_after_the_rest_of_the_old() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("growing");
        let mut written = File::create(&path).unwrap();
        let mut growing = Growing::open(&path, Duration::ZERO).unwrap();
        assert_eq!(read(&mut growing), None);
        written.write_all(b"one").unwrap();
        assert_eq!(read(&mut growing).as_deref(), Some("one"));
        std::fs::rename(&path, directory.path().join("old")).unwrap();
        assert_eq!(read(&mut growing), None);
        std::fs::write(&path, "new").unwrap();
        assert_eq!(read(&mut growing), None);
        written.write_all(b"two").unwrap();
        assert_eq!(read(&mut growing).as_deref(), Some("two"));
        assert_eq!(read(&mut growing).as_deref(), Some(""));
        assert_eq!(growing.ended(), Some(FileEnd::Replaced));
    }

    #[test]
    fn a_file_cut_short_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("growing");
        std::fs::write(&path, "long").unwrap();
        let mut growing = Growing::open(&path, Duration::ZERO).unwrap();
        assert_eq!(read(&mut growing).as_deref(), Some("long"));
        std::fs::write(&path, "cut").unwrap();
        assert_eq!(read(&mut growing).as_deref(), Some(""));
        assert_eq!(growing.ended(), Some(FileEnd::Cut));
    }
}
