//! The initramfs of a guest: the program as its init, and modules.

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::agreed::{MODULES, PROGRAM, TASK};
use crate::architecture::Architecture;
use crate::cpio::Archive;
use crate::error::GuestError;
use crate::kernel::Kernel;
use crate::libraries::libraries;
use crate::module::load_order;
use crate::temporary::temporary;

/// Initramfs of a kernel and a program, in a temporary file.
#[derive(Debug)]
pub struct Image {
    file: NamedTempFile,
    hash: [u8; 32],
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
        let archive = archive.finish();
        Ok(Image {
            hash: Sha256::digest(&archive).into(),
            file: temporary(&archive)?,
        })
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// SHA-256 of the file.
    pub(crate) fn hash(&self) -> &[u8; 32] {
        &self.hash
    }
}
