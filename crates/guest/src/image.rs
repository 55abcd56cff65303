//! The initramfs of a guest: the program as its init, modules, and input files.

use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;

use tempfile::NamedTempFile;

use crate::architecture::Architecture;
use crate::cpio::Archive;
use crate::error::GuestError;
use crate::init::{ADDRESSES, ARGUMENTS, MODULES, PROGRAM, RESULTS, SYMBOLS, TASK};
use crate::kernel::Kernel;
use crate::libraries::libraries;
use crate::module::load_order;

/// Work for a guest.
#[derive(Debug, Clone, Default)]
pub struct Task {
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// Input files in [`Task::FOLDER`]: name, content.
    pub files: Vec<(String, Vec<u8>)>,
    /// Names of files whose lines are sent to the host after the program has ended. Sending earlier
    /// would add to the measured work.
    pub results: Vec<String>,
    /// True if the kernel's symbols are sent, too.
    pub wants_symbols: bool,
    /// Devices that are set up before the program starts: name, address, prefix length.
    pub addresses: Vec<(String, Ipv4Addr, u8)>,
}

impl Task {
    /// Directory of the input files in the guest.
    pub const FOLDER: &str = TASK;

    /// Files for the guest, each with its path below a root.
    pub(crate) fn packed(&self) -> Vec<(String, Vec<u8>)> {
        let lines =
            |path: &str, lines: &[String]| (path.to_string(), lines.join("\n").into_bytes());
        let addresses = self.addresses.iter();
        let addresses =
            addresses.map(|(device, address, prefix)| format!("{device} {address} {prefix}"));
        let mut files = vec![
            lines(ARGUMENTS, &self.arguments),
            lines(RESULTS, &self.results),
            lines(ADDRESSES, &addresses.collect::<Vec<_>>()),
        ];
        if self.wants_symbols {
            files.push((SYMBOLS.to_string(), Vec::new()));
        }
        let of_task = self.files.iter();
        files.extend(of_task.map(|(name, content)| (format!("{TASK}/{name}"), content.clone())));
        files
    }
}

/// Part of an initramfs that all boots of one kernel and program share.
#[derive(Debug)]
pub struct Image {
    archive: Vec<u8>,
}

impl Image {
    /// Packs the program with its libraries, and those of the named modules that the kernel's tree
    /// has.
    ///
    /// # Errors
    /// A file cannot be read, or the program is of another architecture than the kernel.
    pub fn make(program: &Path, kernel: &Kernel, modules: &[&str]) -> Result<Image, GuestError> {
        let of = Architecture::of_program(program).map_err(GuestError::file("read", program))?;
        if let Some(of) = of.filter(|of| *of != kernel.architecture) {
            return Err(GuestError::NoKernel {
                path: kernel.image.clone(),
                reason: format!(
                    "a kernel for {}, and {} is a program for {}: name a kernel of that architecture",
                    kernel.architecture.name(),
                    program.display(),
                    of.name()
                ),
            });
        }
        let mut archive = Archive::default();
        for folder in ["dev", "proc", "sys", "tmp", "run", TASK, "modules"] {
            archive.directory(folder);
        }
        archive.device("dev/console", 5, 1);
        let read = |path: &Path| fs::read(path).map_err(GuestError::file("read", path));
        archive.file(PROGRAM, 0o755, &read(program)?);
        let mut folders = Vec::new();
        for library in libraries(program)? {
            let parents: Vec<&Path> = library.ancestors().skip(1).collect();
            // From the top-level directory down.
            for folder in parents.into_iter().rev().skip(1) {
                if !folders.contains(&folder.to_path_buf()) {
                    archive.directory(&folder.to_string_lossy());
                    folders.push(folder.to_path_buf());
                }
            }
            archive.file(&library.to_string_lossy(), 0o755, &read(&library)?);
        }
        let mut order = String::new();
        if let Some(tree) = &kernel.modules {
            for module in load_order(tree, modules)? {
                let path = format!("/modules/{}.ko", module.name);
                archive.file(&path, 0o644, &module.code);
                order += &format!("{path}\n");
            }
        }
        archive.file(MODULES, 0o644, order.as_bytes());
        Ok(Image {
            archive: archive.finish(),
        })
    }

    /// Writes an initramfs with a task to a temporary file, which is removed with the returned
    /// value. The kernel unpacks one archive after the other.
    pub(crate) fn with(&self, task: &Task) -> Result<NamedTempFile, GuestError> {
        let mut archive = Archive::default();
        for (path, content) in task.packed() {
            archive.file(&path, 0o644, &content);
        }
        let folder = std::env::temp_dir();
        let mut file = NamedTempFile::new().map_err(GuestError::file("create", &folder))?;
        file.write_all(&self.archive)
            .and_then(|()| file.write_all(&archive.finish()))
            .map_err(GuestError::file("write", &folder))?;
        Ok(file)
    }
}
