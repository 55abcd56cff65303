//! The initramfs of a guest: the program as its init, and modules.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::agreed::{MODULES, PROGRAM, SETUP, TASK};
use crate::architecture::Architecture;
use crate::cpio::Archive;
use crate::error::GuestError;
use crate::kernel::Kernel;
use crate::libraries::libraries;
use crate::module::{canonical, load_order, may_be_built_in};
use crate::setup::Setup;
use crate::temporary::temporary;

/// Initramfs of a kernel and a program, in a temporary file.
#[derive(Debug)]
pub struct Image {
    file: NamedTempFile,
    hash: [u8; 32],
}

impl Image {
    /// Packs the program with its libraries, those of the named modules that the kernel's tree has,
    /// and what the commands of the setup need.
    ///
    /// # Errors
    /// A file cannot be read, or the program is of another architecture than the kernel.
    pub fn make(
        program: &Path,
        kernel: &Kernel,
        modules: &[&str],
        setup: &Setup,
    ) -> Result<Image, GuestError> {
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
        archive.file(PROGRAM, 0o755, &read(program)?);
        let mut files = setup.files.clone();
        for program in setup.files.values().map(PathBuf::as_path).chain([program]) {
            let libraries = libraries(program)?.into_iter();
            files.extend(libraries.map(|library| (library.clone(), library)));
        }
        add_with_folders(&mut archive, &files)?;
        let lines: Vec<String> = setup
            .commands
            .iter()
            .map(|words| words.join("\t"))
            .collect();
        archive.file(SETUP, 0o644, lines.join("\n").as_bytes());
        let mut order = String::new();
        if let Some(tree) = &kernel.modules {
            let more = setup.modules.iter().map(String::as_str);
            let wanted: Vec<&str> = modules.iter().copied().chain(more).collect();
            let order_of_all = load_order(tree, &wanted)?;
            let has = |name: &str| {
                order_of_all
                    .iter()
                    .any(|module| module.name == canonical(name))
            };
            let mut named = setup.modules.iter();
            if let Some(name) = named.find(|name| !has(name) && !may_be_built_in(tree, name)) {
                return Err(GuestError::Missing(format!(
                    "the guest cannot run `modprobe {name}`: {} has no such module",
                    kernel.named
                )));
            }
            for module in order_of_all {
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

fn read(path: &Path) -> Result<Vec<u8>, GuestError> {
    fs::read(path).map_err(GuestError::file("read", path))
}

/// Adds files by their paths in the archive, which are absolute; each folder comes before what is in it.
fn add_with_folders(
    archive: &mut Archive,
    files: &BTreeMap<PathBuf, PathBuf>,
) -> Result<(), GuestError> {
    let mut folders = BTreeSet::new();
    for path in files.keys() {
        // Without the file itself and the root.
        let above = path.ancestors().skip(1);
        folders.extend(above.filter(|folder| folder.parent().is_some()));
    }
    for folder in folders {
        archive.directory(&folder.to_string_lossy());
    }
    for (path, source) in files {
        archive.file(&path.to_string_lossy(), 0o755, &read(source)?);
    }
    Ok(())
}
