//! A kernel to boot: its image and its modules.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::architecture::Architecture;
use crate::config::Config;
use crate::error::GuestError;

/// Files of a kernel.
#[derive(Debug)]
pub struct Kernel {
    /// Name that the user gave, for messages.
    pub named: String,
    /// Image (bzImage, Image).
    pub image: PathBuf,
    /// Architecture of the image.
    pub architecture: Architecture,
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
            let folder = tempfile::tempdir();
            let folder = folder.map_err(GuestError::file("create", &std::env::temp_dir()))?;
            for package in parts(path) {
                unpack(&package, folder.path())?;
            }
            let (image, modules) = in_root(folder.path(), None).ok_or_else(|| {
                no_kernel(path, "the package has no image (boot/vmlinuz-*): expected one of a kernel's image, e.g. linux-image-6.1.0-…-amd64; since 6.19 Debian's are in parts: linux-binary-… and linux-modules-… must be in one directory")
            })?;
            return Kernel::of(named, (image, modules), Some(folder));
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
        Kernel::of(named, (image, modules), None)
    }

    fn of(
        named: String,
        (image, modules): (PathBuf, Option<PathBuf>),
        unpacked: Option<TempDir>,
    ) -> Result<Kernel, GuestError> {
        let architecture =
            Architecture::of_image(&image).map_err(GuestError::file("read", &image))?;
        let architecture = architecture.ok_or_else(|| {
            no_kernel(
                &image,
                "not a kernel's image: expected a bzImage, or an Image of arm64",
            )
        })?;
        Ok(Kernel {
            named,
            image,
            architecture,
            modules,
            _unpacked: unpacked,
        })
    }

    /// Options with which the kernel was built. `None` if no `.config` is with it: boot/config-RELEASE, the build tree's, or Fedora's
    /// beside its modules.
    pub fn config(&self) -> Option<Config> {
        let name = self.image.file_name()?.to_string_lossy().into_owned();
        let release = name
            .strip_prefix("vmlinuz-")
            .map(|release| format!("config-{release}"));
        let beside = release.map(|name| self.image.with_file_name(name));
        let own = self.modules.iter();
        let own = own.flat_map(|folder| [folder.join(".config"), folder.join("config")]);
        let mut all = beside.into_iter().chain(own);
        all.find_map(|path| Config::read(&path).ok())
    }

    fn running() -> Result<Kernel, GuestError> {
        let release = rustix::system::uname();
        let release = release.release().to_string_lossy();
        let found = in_root(Path::new("/"), Some(&release)).ok_or_else(|| {
            no_kernel(
                &PathBuf::from(format!("/boot/vmlinuz-{release}")),
                "not there or not readable: name a kernel with --guest=KERNEL, e.g. a package that `apt-get download linux-image-cloud-amd64` or its like brings",
            )
        })?;
        Kernel::of(format!("this host's {release}"), found, None)
    }
}

/// Image in a build tree.
const BUILT: &str = "arch/x86/boot/bzImage";

/// Image and modules below a root: of this release, or of the newest one.
fn in_root(root: &Path, release: Option<&str>) -> Option<(PathBuf, Option<PathBuf>)> {
    let mut images: Vec<(String, PathBuf)> = names(&root.join("boot"))
        .filter_map(|(name, path)| Some((name.strip_prefix("vmlinuz-")?.to_string(), path)))
        .collect();
    let modules = MODULES.map(|folder| root.join(folder));
    // Fedora's images are next to their modules, and so are Debian's since 6.19.
    let beside = modules.iter().flat_map(|folder| names(folder));
    let beside = beside.map(|(release, folder)| (release, folder.join("vmlinuz")));
    images.extend(beside.filter(|(_, image)| image.exists()));
    images.retain(|(name, _)| release.is_none_or(|release| release == name));
    images.sort_by_cached_key(|(release, _)| (numbers(release), release.clone()));
    let (release, _) = images.last()?.clone();
    // Some distributions let only root read it.
    let is_readable = |image: &PathBuf| fs::File::open(image).is_ok();
    let mut images = images.into_iter().filter(|(name, _)| *name == release);
    let image = images.find_map(|(_, image)| Some(image).filter(is_readable))?;
    let mut modules = modules.into_iter().map(|folder| folder.join(&release));
    Some((image, modules.find(|folder| folder.is_dir())))
}

/// Directories of modules below a root; in each a directory for each release.
const MODULES: [&str; 2] = ["lib/modules", "usr/lib/modules"];

/// Names and paths in a directory; none if it cannot be read.
fn names(folder: &Path) -> impl Iterator<Item = (String, PathBuf)> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
}

/// Numbers in a release's name, in order: 6.12 is newer than 6.9.
fn numbers(release: &str) -> Vec<u64> {
    let words = release.split(|c: char| !c.is_ascii_digit());
    words.filter_map(|word| word.parse().ok()).collect()
}

/// A package, and the others of the same kernel beside it: since 6.19 Debian has the image and the modules in packages of their own.
fn parts(package: &Path) -> Vec<PathBuf> {
    const KINDS: [&str; 4] = [
        "linux-image-unsigned-",
        "linux-image-",
        "linux-binary-",
        "linux-modules-",
    ];
    let name = package.file_name().unwrap_or_default().to_string_lossy();
    let own = KINDS.iter().find_map(|kind| name.strip_prefix(kind));
    let beside = KINDS
        .iter()
        .filter_map(|kind| Some(package.with_file_name(format!("{kind}{}", own?))));
    let mut all = vec![package.to_path_buf()];
    all.extend(beside.filter(|other| other != package && other.is_file()));
    all
}

fn unpack(package: &Path, folder: &Path) -> Result<(), GuestError> {
    let told = Command::new("dpkg-deb")
        .arg("-x")
        .args([package, folder])
        .output();
    let said = match told {
        Ok(output) if output.status.success() => return Ok(()),
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

/// Least content that makes a file a bzImage, for tests.
#[cfg(test)]
pub(crate) const BARE_IMAGE: [u8; 0x206] = {
    let mut image = [0; 0x206];
    let magic = *b"HdrS";
    let mut at = 0;
    while at < magic.len() {
        image[0x202 + at] = magic[at];
        at += 1;
    }
    image
};

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
        fs::write(root.join("boot/vmlinuz-6.1.0-x"), BARE_IMAGE).unwrap();
        fs::write(root.join("boot/System.map-6.1.0-x"), "").unwrap();
        let kernel = Kernel::find(Some(root)).unwrap();
        assert_eq!(kernel.image, root.join("boot/vmlinuz-6.1.0-x"));
        assert_eq!(kernel.modules, Some(root.join("lib/modules/6.1.0-x")));
        let tree = root.join("tree");
        fs::write(tree.join(BUILT), BARE_IMAGE).unwrap();
        let kernel = Kernel::find(Some(&tree)).unwrap();
        assert_eq!(
            (kernel.image.clone(), kernel.modules),
            (tree.join(BUILT), Some(tree))
        );
        fs::write(root.join("boot/vmlinuz-6.12.0-x"), BARE_IMAGE).unwrap();
        fs::write(root.join("boot/vmlinuz-6.9.0-x"), BARE_IMAGE).unwrap();
        let newest = Kernel::find(Some(root)).unwrap();
        assert_eq!(newest.image, root.join("boot/vmlinuz-6.12.0-x"));
        let alone = Kernel::find(Some(&kernel.image)).unwrap();
        assert_eq!(alone.modules, None);
        assert_eq!(alone.architecture, Architecture::X86_64);

        fs::write(root.join("boot/config-6.12.0-x"), "CONFIG_VETH=y\n").unwrap();
        assert!(newest.config().is_some() && alone.config().is_none());

        let names = [
            "linux-binary-7.3.4-x_1_amd64.deb",
            "linux-modules-7.3.4-x_1_amd64.deb",
            "linux-modules-7.3.5-x_1_amd64.deb",
        ];
        let packages = names.map(|name| root.join(name));
        packages
            .iter()
            .for_each(|path| fs::write(path, "").unwrap());
        assert_eq!(parts(&packages[0]), packages[..2]);

        let beside = root.join("usr/lib/modules/7.3.4-x");
        fs::create_dir_all(&beside).unwrap();
        assert_eq!(Kernel::find(Some(root)).unwrap().image, newest.image);
        let mut image = vec![0; 64];
        image[56..60].copy_from_slice(b"ARM\x64");
        fs::write(beside.join("vmlinuz"), image).unwrap();
        let split = Kernel::find(Some(root)).unwrap();
        assert_eq!(split.image, beside.join("vmlinuz"));
        assert_eq!(split.modules, Some(beside));
        assert_eq!(split.architecture, Architecture::Aarch64);
    }
}
