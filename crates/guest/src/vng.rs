//! A guest that virtme-ng starts (`vng`): its init is the first process, and the host's files are
//! the root, read-only. For users who try kernels with virtme-ng anyway. The kernel needs 9p or
//! virtiofs, which Debian's cloud kernels do not have.
//!
//! The machine is ours: its options come after vng's, and QEMU uses the last. But vng's init, its
//! devices and the host's files are part of what is measured, so a boot by vng is compared only
//! with boots by vng.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::error::GuestError;
use crate::image::Task;
use crate::init::{ASKED, TASK};
use crate::kernel::Kernel;
use crate::qemu::Machine;

/// Name of the program.
pub(crate) const VNG: &str = "vng";

/// Directory of the task's files in the guest.
const PLACE: &str = "/run/tcpcost-guest";

/// A task on the host's disk; its files are removed with this value.
pub(crate) struct Handed {
    folder: TempDir,
}

impl Handed {
    pub(crate) fn new(task: &Task) -> Result<Handed, GuestError> {
        let folder = tempfile::tempdir();
        let folder = folder.map_err(GuestError::file("create", &std::env::temp_dir()))?;
        let inside = |path: &str| folder.path().join(path.trim_start_matches('/'));
        let write = |path: PathBuf, content: &[u8]| {
            fs::write(&path, content).map_err(GuestError::file("write", &path))
        };
        let tasks = inside(TASK);
        fs::create_dir(&tasks).map_err(GuestError::file("create", &tasks))?;
        for (path, content) in task.packed() {
            write(inside(&path), &content)?;
        }
        let lines = folder.path().join(LINES);
        write(lines, &[])?;
        Ok(Handed { folder })
    }

    /// Command that runs vng: the guest's lines go to a file, its console to standard output.
    pub(crate) fn command(&self, machine: &Machine, kernel: &Kernel, program: &Path) -> Command {
        let folder = self.folder.path();
        let mut command = Command::new(VNG);
        command
            .arg("--run")
            .arg(&kernel.image)
            // Selects the machine type of vng that works with TCG.
            .args(["--disable-kvm", "--disable-microvm"])
            .args(["--cpus", "1", "--user", "root"])
            .arg("--memory")
            .arg(format!("{}M", machine.memory_mib))
            .arg(format!("--rwdir={PLACE}={}", folder.display()));
        for option in machine.for_the_kernel() {
            command.args(["--append", &option]);
        }
        let options = [
            machine.emulation(),
            machine.options.clone(),
            // The first serial port is vng's console.
            [
                "-chardev".to_string(),
                format!("file,id=lines,path={}", self.lines().display()),
                "-serial".to_string(),
                "chardev:lines".to_string(),
            ]
            .to_vec(),
        ];
        command
            .arg(format!("--qemu-opts={}", options.concat().join(" ")))
            .arg("--exec")
            .arg(format!("{ASKED}={PLACE} {}", program.display()))
            // Has a child and QEMU below it, which must end together.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// File with the guest's lines.
    pub(crate) fn lines(&self) -> PathBuf {
        self.folder.path().join(LINES)
    }
}

/// Name of the file with the output of the second serial port.
const LINES: &str = "lines";
