//! Checks that this machine has the disk space and the memory that a trial needs, before anything is made.

use std::path::Path;

use rustix::fs::{statfs, statvfs};
use tcpcost_study::units::about_bytes as size;
use tcpcost_study::{KnobError, Knobs, Needs};

/// Checks the trial's needs against this machine.
///
/// # Errors
/// The knob that needs most, with the amount that is needed and the amount that is available.
pub fn check(needs: &Needs, knobs: &Knobs) -> Result<(), KnobError> {
    let folder = std::env::temp_dir();
    let mut memory_bytes = needs.memory_bytes;
    let mut memory_knob = needs.memory_knob.as_str();
    // If the file system cannot be read, the code that creates the files will report it.
    if needs.disk_bytes > 0
        && let (Ok(space), Ok(kind)) = (statvfs(&folder), statfs(&folder))
    {
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if needs.disk_bytes > free {
            return Err(KnobError::new(
                "files",
                format!(
                    "{} need {} on disk in {} (TMPDIR), where {} are free",
                    Needs::why(knobs, &["send_with", "files", "file_size"]),
                    size(needs.disk_bytes),
                    folder.display(),
                    size(free)
                ),
            ));
        }
        if kind.f_type == TMPFS_MAGIC {
            memory_bytes = memory_bytes.saturating_add(needs.disk_bytes);
            memory_knob = "files";
        }
    }
    match available(Path::new("/proc/meminfo")) {
        Some(available) if memory_bytes > available => Err(KnobError::new(
            memory_knob,
            format!(
                "the trial needs {} of memory, most of it by {}, and {} are available (MemAvailable)",
                size(memory_bytes),
                Needs::why(knobs, &[memory_knob, "flows", "threads"]),
                size(available)
            ),
        )),
        _ => Ok(()),
    }
}

/// TMPFS_MAGIC of `man 2 statfs`.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// Reads MemAvailable, bytes.
fn available(meminfo: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(meminfo).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(needs: &Needs, set: &[(&str, &str)]) -> KnobError {
        let mut knobs = Knobs::default();
        for (name, value) in set {
            knobs.set(name, value).unwrap();
        }
        check(needs, &knobs).unwrap_err()
    }

    fn needs(set: impl FnOnce(&mut Needs)) -> Needs {
        let mut needs = Needs::default();
        set(&mut needs);
        needs
    }

    #[test]
    fn what_no_machine_has_is_refused_with_the_knob() {
        check(&Needs::default(), &Knobs::default()).unwrap();
        let disk = needs(|needs| needs.disk_bytes = 1 << 60);
        let KnobError { knob, reason } =
            refused(&disk, &[("files", "4096"), ("file_size", "1GiB")]);
        assert_eq!(knob, "files");
        let begins =
            "send_with = send, files = 4096, file_size = 1GiB need 1048576.0 TiB on disk in ";
        assert!(reason.starts_with(begins), "{reason}");
        let memory = needs(|needs| {
            needs.memory_bytes = 1 << 60;
            needs.memory_knob = "read_size".to_string();
        });
        let KnobError { knob, reason } = refused(&memory, &[("read_size", "64MiB")]);
        assert_eq!(knob, "read_size");
        assert!(reason.contains("read_size = 64MiB, flows = 1"), "{reason}");
    }
}
