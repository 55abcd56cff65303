//! Files that payload is sent from, and their pages in the page cache.

#![allow(
    unsafe_code,
    reason = "mincore(2) writes a byte a page into a buffer of ours"
)]

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use memmap2::Mmap;
use rustix::fs::MemfdFlags;

use crate::error::{StackError, call};
use crate::file_sizes::FileSizes;
use crate::stack::{Content, Pages};

/// One file or several, end to end. Their content never changes once made.
#[derive(Debug)]
pub(crate) struct Files {
    files: Vec<(OwnedFd, Arc<Mmap>)>,
    sizes: FileSizes,
}

impl Files {
    /// Makes files in the temporary directory (TMPDIR), without names, so nothing is left behind.
    pub(crate) fn on_disk(content: &mut Content<'_>) -> Result<Files, StackError> {
        let open = || tempfile::tempfile().map_err(call("open a file in the temporary directory"));
        Files::new(content, open)
    }

    pub(crate) fn in_memory(content: &mut Content<'_>) -> Result<Files, StackError> {
        let open = || {
            rustix::fs::memfd_create("tcpcost", MemfdFlags::CLOEXEC)
                .map(File::from)
                .map_err(call("memfd_create"))
        };
        Files::new(content, open)
    }

    fn new(
        content: &mut Content<'_>,
        open: impl Fn() -> Result<File, StackError>,
    ) -> Result<Files, StackError> {
        let sizes = content.files;
        let (mut files, mut start) = (Vec::new(), 0);
        while start < content.bytes {
            let end = content.bytes.min(sizes.of(start).1.end);
            let file = filled(open()?, start..end, content)?;
            // SAFETY: no other code has the file, and it is not written or truncated again.
            let map = unsafe { Mmap::map(&file) }.map_err(call("mmap"))?;
            files.push((OwnedFd::from(file), Arc::new(map)));
            start = end;
        }
        Ok(Files { files, sizes })
    }

    /// File that holds byte `at`, and the offset in it.
    #[inline]
    pub(crate) fn file(&self, at: u64) -> io::Result<(&OwnedFd, u64)> {
        let (file, _) = self.of(at)?;
        Ok((file, self.place(at).1))
    }

    /// Mapped files, in order.
    pub(crate) fn maps(&self) -> impl Iterator<Item = Map> {
        self.files.iter().map(|(_, map)| Map(Arc::clone(map)))
    }

    /// Index of the file that holds byte `at`, and the offset in it.
    #[inline]
    pub(crate) fn place(&self, at: u64) -> (usize, u64) {
        let (index, range) = self.sizes.of(at);
        (
            usize::try_from(index).unwrap_or(usize::MAX),
            at - range.start,
        )
    }

    /// Mapped bytes of a call. A range outside the content, or across a file's end, is the caller's
    /// mistake and an error.
    #[inline]
    pub(crate) fn mapped(&self, at: u64, len: usize) -> io::Result<&[u8]> {
        let (_, map) = self.of(at)?;
        slice(map, self.place(at).1, len)
    }

    #[inline]
    fn of(&self, at: u64) -> io::Result<&(OwnedFd, Arc<Mmap>)> {
        let file = self.files.get(self.place(at).0);
        file.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
    }

    /// Pages of all files, and those among them that are in the page cache, by mincore(2).
    pub(crate) fn pages(&self) -> io::Result<Pages> {
        let mut pages = Pages::default();
        let page = rustix::param::page_size();
        for (_, map) in &self.files {
            let mut resident = vec![0_u8; map.len().div_ceil(page)];
            // SAFETY: the mapping is ours and whole; the buffer has a byte for each of its pages.
            let result = unsafe {
                libc::mincore(
                    map.as_ptr().cast_mut().cast(),
                    map.len(),
                    resident.as_mut_ptr(),
                )
            };
            if result != 0 {
                return Err(io::Error::last_os_error());
            }
            pages.all += resident.len() as u64;
            pages.cached += resident.iter().filter(|byte| **byte & 1 == 1).count() as u64;
        }
        Ok(pages)
    }
}

/// A mapped file.
#[derive(Debug)]
pub(crate) struct Map(Arc<Mmap>);

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Bytes of one call. A range outside the source is the caller's mistake and an error.
#[inline]
pub(crate) fn slice(map: &[u8], at: u64, len: usize) -> io::Result<&[u8]> {
    usize::try_from(at)
        .ok()
        .and_then(|at| map.get(at..at.checked_add(len)?))
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}

fn filled(
    mut file: File,
    range: std::ops::Range<u64>,
    content: &mut Content<'_>,
) -> Result<File, StackError> {
    let mut chunk = vec![0; 1 << 20];
    let mut at = range.start;
    while at < range.end {
        let left = usize::try_from(range.end - at).unwrap_or(usize::MAX);
        let part = left.min(chunk.len());
        (content.fill)(at, &mut chunk[..part]);
        file.write_all(&chunk[..part])
            .map_err(call("write the file to send from"))?;
        at += part as u64;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_files_are_one_content_and_what_was_just_written_is_cached() {
        let mut fill = |at: u64, bytes: &mut [u8]| {
            for (index, byte) in bytes.iter_mut().enumerate() {
                *byte = ((at + index as u64) % 251) as u8;
            }
        };
        let mut content = Content {
            bytes: 25_000,
            files: FileSizes::new(10_000, false),
            call_bytes: 4096,
            fill: &mut fill,
        };
        let files = Files::on_disk(&mut content).unwrap();
        assert_eq!(files.pages().unwrap(), Pages { all: 8, cached: 8 });
        for (at, offset) in [(0, 0), (9_999, 9_999), (10_000, 0), (24_000, 4000)] {
            let (_, found) = files.file(at).unwrap();
            assert_eq!(found, offset, "{at}");
            assert_eq!(files.mapped(at, 1).unwrap()[0], (at % 251) as u8);
        }
        assert!(files.mapped(9_999, 2).is_err(), "over a file's end");
        assert!(files.file(30_000).is_err());
    }
}
