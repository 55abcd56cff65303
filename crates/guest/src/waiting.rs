//! The wait of a guest for its order, in a process of its own: its right to use ports dies with it, and the kernel is as it was.

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::process::{WaitOptions, waitpid};

use crate::fw_cfg::Device;
use crate::task::{FILE, HEADER, Header, header, unpacked};

/// File with what the child process read from the host, for its parent: a header, or a seed.
const READ: &str = "/read-from-host";

/// Header of the order that the guest has now.
pub(crate) fn first_order() -> io::Result<Header> {
    apart(|| {
        let (device, key) = device()?;
        let mut bytes = [0; HEADER];
        device.select(key);
        device.read(&mut bytes);
        fs::write(READ, bytes)
    })?;
    header(&fs::read(READ)?).ok_or_else(|| io::Error::other("the host's order has no header"))
}

/// Waits for a task, unpacks its files, and makes the kernel's random numbers those of the seed, which is returned. A guest that
/// is saved meanwhile goes on here when it is restored.
pub(crate) fn task() -> io::Result<u64> {
    apart(take_task).map_err(|error| {
        io::Error::other(format!(
            "{error}: if each trial of a saved guest fails, it is damaged: remove it with `tcpcost kernels --clean`"
        ))
    })?;
    fs::read_to_string(READ)?.parse().map_err(io::Error::other)
}

fn device() -> io::Result<(Device, u16)> {
    let device = Device::open()?;
    let key = device.key(FILE);
    let key = key.ok_or_else(|| io::Error::other(format!("QEMU's fw_cfg has no {FILE}")))?;
    Ok((device, key))
}

fn take_task() -> io::Result<()> {
    let (device, key) = device()?;
    let mut bytes = [0; HEADER];
    // The host changes the file between two reads.
    let (seed, length) = loop {
        device.select(key);
        device.read(&mut bytes);
        if let Some(Header::Go { seed, length }) = header(&bytes) {
            break (seed, length);
        }
        rest();
    };
    let mut body = vec![0; length];
    device.read(&mut body);
    let files = unpacked(&body).ok_or_else(|| io::Error::other("the host's task is cut off"))?;
    for (path, content) in files {
        if let Some(folder) = Path::new(&path).parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, content)?;
    }
    reseed(seed)?;
    fs::write(READ, seed.to_string())
}

/// Executes instructions that use no port. QEMU 7.2 saves a wrong program counter if it stops the guest at one that does: of some 60 guests
/// that waited by such instructions alone, one was damaged.
fn rest() {
    /// One instruction in some thousand uses a port then. The guest looks for its task every millisecond of its time at least.
    const TURNS: u32 = 100_000;
    for turn in 0..TURNS {
        std::hint::black_box(turn);
    }
}

/// Makes the kernel's random numbers depend on this seed from here on.
#[allow(unsafe_code, reason = "rustix has no ioctl of random devices")]
fn reseed(seed: u64) -> io::Result<()> {
    /// `RNDRESEEDCRNG` of linux/random.h.
    const RESEED: libc::c_ulong = 0x5207;
    let mut device = fs::OpenOptions::new().write(true).open("/dev/urandom")?;
    device.write_all(&seed.to_le_bytes().repeat(4))?;
    // SAFETY: the request has no argument.
    match unsafe { libc::ioctl(device.as_raw_fd(), RESEED as _) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Runs a function in a child process, and returns its error.
#[allow(unsafe_code, reason = "rustix has no fork")]
fn apart(run: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    // SAFETY: the first process of a guest has one thread here, so the child has all that it needs.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = match run() {
                Ok(()) => 0,
                Err(error) => {
                    // Standard error of the first process is the console.
                    let _ = writeln!(io::stderr(), "guest: wait for a task: {error}");
                    1
                }
            };
            // SAFETY: ends the child without what the parent would do at its end.
            unsafe { libc::_exit(code) }
        }
        child => {
            let child = rustix::process::Pid::from_raw(child);
            let ended = waitpid(child, WaitOptions::empty())?;
            match ended.and_then(|(_, status)| status.exit_status()) {
                Some(0) => Ok(()),
                _ => Err(io::Error::other("the process that waits for a task failed")),
            }
        }
    }
}
