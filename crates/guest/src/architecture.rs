//! Architectures of guests: QEMU's program, and options that differ.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Architecture of a kernel and of the program that runs in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// `x86_64`, on QEMU's `pc`.
    X86_64,
    /// `aarch64`, on QEMU's `virt`.
    Aarch64,
}

impl Architecture {
    /// Architecture of this program.
    pub(crate) const HOST: Architecture = match cfg!(target_arch = "aarch64") {
        true => Architecture::Aarch64,
        false => Architecture::X86_64,
    };

    /// Architecture of a kernel's image: `Image` of aarch64 (Documentation/arch/arm64/booting.rst), or
    /// bzImage (Documentation/arch/x86/boot.rst). `None` if it is neither.
    pub(crate) fn of_image(path: &Path) -> io::Result<Option<Architecture>> {
        let head = head(path)?;
        let has = |at: usize, magic: &[u8]| head.get(at..at + magic.len()) == Some(magic);
        Ok(if has(56, b"ARM\x64") {
            Some(Architecture::Aarch64)
        } else {
            has(0x202, b"HdrS").then_some(Architecture::X86_64)
        })
    }

    /// Architecture of an ELF file; `None` if it is another one, or no ELF file.
    pub(crate) fn of_program(path: &Path) -> io::Result<Option<Architecture>> {
        let head = head(path)?;
        let machine = head.get(18..20).filter(|_| head.starts_with(b"\x7fELF"));
        // elf.h: EM_X86_64, EM_AARCH64.
        Ok(match machine {
            Some([62, 0]) => Some(Architecture::X86_64),
            Some([183, 0]) => Some(Architecture::Aarch64),
            _ => None,
        })
    }

    /// Name as of `uname -m`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Architecture::X86_64 => "x86_64",
            Architecture::Aarch64 => "aarch64",
        }
    }

    /// Program name of the emulator.
    pub(crate) fn emulator(self) -> &'static str {
        match self {
            Architecture::X86_64 => "qemu-system-x86_64",
            Architecture::Aarch64 => "qemu-system-aarch64",
        }
    }

    /// Packages with the emulator, of Debian and of Fedora.
    pub(crate) fn packages(self) -> [&'static str; 2] {
        match self {
            Architecture::X86_64 => ["qemu-system-x86", "qemu-system-x86-core"],
            Architecture::Aarch64 => ["qemu-system-arm", "qemu-system-aarch64-core"],
        }
    }

    /// Options for the machine and its CPU.
    pub(crate) fn machine(self) -> &'static [&'static str] {
        match self {
            // Copies and clears use `rep movsq` in place of `rep movsb`: a byte is an eighth of an
            // instruction. With a whole instruction a byte, copies would hide everything else. The
            // sign of a difference between kernels was seen to depend on this.
            Architecture::X86_64 => &["-cpu", "max,erms=off,fsrm=off"],
            // The architecture's own algorithm of pointer authentication takes most of the time.
            Architecture::Aarch64 => &["-machine", "virt", "-cpu", "max,pauth-impdef=on"],
        }
    }

    /// The kernel's name of its console.
    pub(crate) fn console(self) -> &'static str {
        match self {
            Architecture::X86_64 => "ttyS0",
            Architecture::Aarch64 => "ttyAMA0",
        }
    }

    /// Options for the serial port that carries lines out, [`crate::init`]'s `PORT`, from the character device `lines`.
    pub(crate) fn port(self) -> [&'static str; 2] {
        match self {
            Architecture::X86_64 => ["-serial", "chardev:lines"],
            // The machine `virt` has one port of its own.
            Architecture::Aarch64 => ["-device", "pci-serial,chardev=lines"],
        }
    }
}

/// First KiB of a file, or all of a shorter one.
fn head(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?.take(1024).read_to_end(&mut head)?;
    Ok(head)
}
