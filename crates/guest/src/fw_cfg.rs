//! Reading of QEMU's fw_cfg in a guest (docs/specs/fw_cfg.rst): a selector and a byte of data, by ports on x86-64, by a page of
//! memory on aarch64. Not by the kernel's module `qemu_fw_cfg`: it reads as many bytes as the file had when the guest booted.
#![allow(unsafe_code, reason = "ports, or a page of a device")]

use std::io;

/// The device. It works until the process ends.
pub(crate) struct Device(imp::Registers);

/// Key of the directory of files.
const DIRECTORY: u16 = 0x19;
/// Bytes of an entry of the directory: size, key, reserved, name.
const ENTRY: usize = 64;

impl Device {
    /// Opens the device.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn open() -> io::Result<Device> {
        imp::Registers::open().map(Device)
    }

    /// Key of a file; `None` if QEMU has none of this name.
    pub(crate) fn key(&self, name: &str) -> Option<u16> {
        self.select(DIRECTORY);
        let mut count = [0; 4];
        self.read(&mut count);
        (0..u32::from_be_bytes(count)).find_map(|_| {
            let mut entry = [0; ENTRY];
            self.read(&mut entry);
            let found = entry[8..].split(|&byte| byte == 0).next();
            (found == Some(name.as_bytes())).then(|| u16::from_be_bytes([entry[4], entry[5]]))
        })
    }

    /// Begins at the first byte of a file.
    pub(crate) fn select(&self, key: u16) {
        self.0.select(key);
    }

    /// Reads the next bytes. Behind the end of a file they are 0.
    pub(crate) fn read(&self, bytes: &mut [u8]) {
        bytes.fill_with(|| self.0.byte());
    }
}

#[cfg(target_arch = "x86_64")]
mod imp {
    use std::arch::asm;
    use std::io;

    const SELECTOR: u16 = 0x510;
    const DATA: u16 = 0x511;

    pub(super) struct Registers;

    impl Registers {
        pub(super) fn open() -> io::Result<Registers> {
            // SAFETY: a system call that lets this process use two ports, which belong to fw_cfg alone.
            match unsafe { libc::ioperm(SELECTOR.into(), 2, 1) } {
                0 => Ok(Registers),
                _ => Err(io::Error::last_os_error()),
            }
        }

        pub(super) fn select(&self, key: u16) {
            // SAFETY: `open` got the permission for this port; a write of it changes no memory.
            unsafe {
                asm!("out dx, ax", in("dx") SELECTOR, in("ax") key, options(nomem, nostack, preserves_flags))
            };
        }

        pub(super) fn byte(&self) -> u8 {
            let byte: u8;
            // SAFETY: `open` got the permission for this port; a read of it changes no memory.
            unsafe {
                asm!("in al, dx", in("dx") DATA, out("al") byte, options(nomem, nostack, preserves_flags))
            };
            byte
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod imp {
    use std::fs::OpenOptions;
    use std::io;

    use rustix::mm::{MapFlags, ProtFlags, mmap};

    /// Address of the device on the machine `virt` (hw/arm/virt.c, VIRT_FW_CFG).
    const ADDRESS: u64 = 0x0902_0000;
    const PAGE: usize = 4096;
    /// Offset of the selector; data are at 0.
    const SELECTOR: usize = 8;

    pub(super) struct Registers(*mut u8);

    impl Registers {
        pub(super) fn open() -> io::Result<Registers> {
            let memory = OpenOptions::new().read(true).write(true).open("/dev/mem")?;
            let rights = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping, of a page that is no memory but a device.
            let page = unsafe {
                mmap(
                    std::ptr::null_mut(),
                    PAGE,
                    rights,
                    MapFlags::SHARED,
                    &memory,
                    ADDRESS,
                )
            };
            Ok(Registers(page?.cast()))
        }

        pub(super) fn select(&self, key: u16) {
            // SAFETY: within the page, which stays mapped; the register is aligned and big-endian.
            unsafe {
                self.0
                    .add(SELECTOR)
                    .cast::<u16>()
                    .write_volatile(key.to_be())
            };
        }

        pub(super) fn byte(&self) -> u8 {
            // SAFETY: within the page, which stays mapped.
            unsafe { self.0.read_volatile() }
        }
    }
}
