//! A kernel to boot: its image and its modules.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::error::GuestError;

/// Files of a kernel.
#[derive(Debug)]
pub struct Kernel {
    /// Name that the user gave, for messages.
    pub named: String,
    /// Image (bzImage).
    pub image: PathBuf,
    /// Tree with the modules; `None` for an image alone, which must have everything built in.
    pub modules: Option<PathBuf>,
    /// Directory that a package was unpacked to.
    _unpacked: Option<TempDir>,
}

impl Kernel {
    /// Finds the kernel at a path. The path is a Debian package of an image (`.deb`), a directory
    /// with its content or a root (boot/vmlinuz-*, lib/modules/), a build tree
    /// (arch/x86/boot/bzImage), or an image. Without a path, finds the running kernel of this host.
    ///
    /// # Errors
    /// None of these is there, or dpkg-deb cannot unpack the package.
    pub fn find(path: Option<&Path>) -> Result<Kernel, GuestError> {
        let Some(path) = path else {
            return Kernel::running();
        };
        let named = path.display().to_string();
        if path.extension().is_some_and(|ending| ending == "deb") && path.is_file() {
            let folder = unpack(path)?;
            let (image, modules) = in_root(folder.path(), None).ok_or_else(|| {
                no_kernel(path, "the package has no boot/vmlinuz-*: expected one of a kernel's image, e.g. linux-image-6.1.0-…-amd64")
            })?;
            return Ok(Kernel {
                named,
                image,
                modules,
                _unpacked: Some(folder),
            });
        }
        let (image, modules) = if path.is_file() {
            (path.to_path_buf(), None)
        } else if path.join(BUILT).is_file() {
            (path.join(BUILT), Some(path.to_path_buf()))
        } else {
            in_root(path, None).ok_or_else(|| {
                no_kernel(path, "expected a package (.deb), a directory with boot/vmlinuz-*, a build tree with arch/x86/boot/bzImage, or an image")
            })?
        };
        Ok(Kernel {
            named,
            image,
            modules,
            _unpacked: None,
        })
    }

    fn running() -> Result<Kernel, GuestError> {
        let release = rustix::system::uname();
        let release = release.release().to_string_lossy();
        let (image, modules) = in_root(Path::new("/"), Some(&release)).ok_or_else(|| {
            no_kernel(
                &PathBuf::from(format!("/boot/vmlinuz-{release}")),
                "not there or not readable: name a kernel with --guest=KERNEL, e.g. a package that `apt-get download linux-image-cloud-amd64` or its like brings",
            )
        })?;
        Ok(Kernel {
            named: format!("this host's {release}"),
            image,
            modules,
            _unpacked: None,
        })
    }
}

/// Image in a build tree.
const BUILT: &str = "arch/x86/boot/bzImage";

/// Image and modules below a root: of this release, or of the newest one.
fn in_root(root: &Path, release: Option<&str>) -> Option<(PathBuf, Option<PathBuf>)> {
    let images = fs::read_dir(root.join("boot")).ok()?;
    let mut releases: Vec<String> = images
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().to_str()?.to_string();
            Some(name.strip_prefix("vmlinuz-")?.to_string())
        })
        .filter(|name| release.is_none_or(|release| release == name))
        .collect();
    releases.sort_by_cached_key(|release| (numbers(release), release.clone()));
    let release = releases.pop()?;
    let image = root.join(format!("boot/vmlinuz-{release}"));
    fs::File::open(&image).ok()?; // Some distributions let only root read it.
    let modules = ["lib/modules", "usr/lib/modules"]
        .map(|folder| root.join(folder).join(&release))
        .into_iter()
        .find(|folder| folder.is_dir());
    Some((image, modules))
}

/// Numbers in a release's name, in order: 6.12 is newer than 6.9.
fn numbers(release: &str) -> Vec<u64> {
    let words = release.split(|c: char| !c.is_ascii_digit());
    words.filter_map(|word| word.parse().ok()).collect()
}

fn unpack(package: &Path) -> Result<TempDir, GuestError> {
    let folder = tempfile::tempdir().map_err(GuestError::file("create", &std::env::temp_dir()))?;
    let told = Command::new("dpkg-deb")
        .arg("-x")
        .args([package, folder.path()])
        .output();
    let said = match told {
        Ok(output) if output.status.success() => return Ok(folder),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_string(),
        Err(error) => format!("{error} (unpack the package yourself and name the directory)"),
    };
    Err(GuestError::Program {
        program: "dpkg-deb",
        said,
    })
}

fn no_kernel(path: &Path, reason: &str) -> GuestError {
    GuestError::NoKernel {
        path: path.to_path_buf(),
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_found_in_a_root_in_a_build_tree_and_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let error = Kernel::find(Some(root)).unwrap_err().to_string();
        assert!(error.contains("boot/vmlinuz-*"), "{error}");
        for path in ["boot", "lib/modules/6.1.0-x", "tree/arch/x86/boot"] {
            fs::create_dir_all(root.join(path)).unwrap();
        }
        fs::write(root.join("boot/vmlinuz-6.1.0-x"), "").unwrap();
        fs::write(root.join("boot/System.map-6.1.0-x"), "").unwrap();
        let kernel = Kernel::find(Some(root)).unwrap();
        assert_eq!(kernel.image, root.join("boot/vmlinuz-6.1.0-x"));
        assert_eq!(kernel.modules, Some(root.join("lib/modules/6.1.0-x")));
        let tree = root.join("tree");
        fs::write(tree.join(BUILT), "").unwrap();
        let kernel = Kernel::find(Some(&tree)).unwrap();
        assert_eq!(
            (kernel.image.clone(), kernel.modules),
            (tree.join(BUILT), Some(tree))
        );
        fs::write(root.join("boot/vmlinuz-6.12.0-x"), "").unwrap();
        fs::write(root.join("boot/vmlinuz-6.9.0-x"), "").unwrap();
        let newest = Kernel::find(Some(root)).unwrap();
        assert_eq!(newest.image, root.join("boot/vmlinuz-6.12.0-x"));
        let alone = Kernel::find(Some(&kernel.image)).unwrap();
        assert_eq!(alone.modules, None);
    }
}
