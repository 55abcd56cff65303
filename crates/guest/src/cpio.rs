//! Archives that the kernel unpacks into its initramfs: cpio's "newc"
//! (Documentation/driver-api/early-userspace/buffer-format.rst).
//!
//! Only what an initramfs needs: directories, files and character devices, all owned by root. Not
//! compressed: a guest whose every instruction is emulated copies faster than it inflates.

/// An archive under construction.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Adds a directory; its parents must come before it.
    pub fn directory(&mut self, path: &str) {
        self.entry(path, 0o040_755, (0, 0), &[]);
    }

    /// Adds a file with this mode.
    pub fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entry(path, 0o100_000 | mode, (0, 0), content);
    }

    /// Adds a character device. The kernel opens /dev/console for its first process before anything
    /// is mounted.
    pub fn device(&mut self, path: &str, major: u32, minor: u32) {
        self.entry(path, 0o020_600, (major, minor), &[]);
    }

    /// Ends the archive and returns its bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    /// Adds an entry: header of 110 characters, name, content; the latter two begin and end at a
    /// multiple of 4 bytes.
    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        let name = path.trim_start_matches('/');
        self.entries += 1;
        let links = if mode >> 12 == 4 { 2 } else { 1 };
        let size = u32::try_from(content.len()).expect("no file of a guest has 4 GiB");
        let fields = [
            self.entries, // inode
            mode,
            0, // uid
            0, // gid
            links,
            0, // mtime: fixed, so that equal files give equal archives
            size,
            0, // device of the file system
            0,
            device.0,
            device.1,
            u32::try_from(name.len() + 1).expect("a path is short"),
            0, // checksum: not used in this format
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads paths, modes and contents of an archive, by the lengths in its headers.
    fn read(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        let mut at = 0;
        loop {
            let field = |number: usize| {
                let from = at + 6 + 8 * number;
                let text = std::str::from_utf8(&bytes[from..from + 8]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            assert_eq!(&bytes[at..at + 6], b"070701");
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let name = &bytes[at + 110..at + 110 + name_size - 1];
            let name = String::from_utf8(name.to_vec()).unwrap();
            let content = (at + 110 + name_size).next_multiple_of(4);
            at = (content + size).next_multiple_of(4);
            if name == "TRAILER!!!" {
                assert_eq!(at, bytes.len());
                return entries;
            }
            entries.push((name, mode, bytes[content..content + size].to_vec()));
        }
    }

    #[test]
    fn what_goes_in_is_found_by_the_formats_own_lengths() {
        let mut archive = Archive::default();
        archive.directory("/dev");
        archive.device("/dev/console", 5, 1);
        for length in 0..6 {
            archive.file(
                &format!("/{}", "x".repeat(length + 1)),
                0o755,
                &vec![7; length],
            );
        }
        let entries = read(&archive.finish());
        assert_eq!(entries.len(), 8);
        assert_eq!(entries[0], ("dev".to_string(), 0o040_755, vec![]));
        assert_eq!(entries[1].1, 0o020_600);
        assert_eq!(entries[6], ("xxxxx".to_string(), 0o100_755, vec![7; 4]));
    }
}
