//! Assignment of packets to the queues of an interface.
//!
//! Without a program the kernel remembers the queue that last sent a flow, and forgets it after
//! three seconds. Packets of an idle connection would then arrive at another queue. So each queue
//! gets its own ports, by a program of twelve instructions (`tun_ebpf_select_queue` in the kernel's
//! drivers/net/tun.c takes its result modulo the number of queues).

#![allow(unsafe_code, reason = "an eBPF program is loaded by bpf(2)")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::neighbours::ETHERNET_BYTES;
use super::{Layer, TapError};

/// Makes packets to port p arrive at queue p modulo the number of queues. Packets other than TCP
/// and UDP arrive at an arbitrary queue.
pub(super) fn by_port(file: &File, layer: Layer) -> Result<(), TapError> {
    let failed = |tried| move |inner| TapError { tried, inner };
    let program = load(&program(layer)).map_err(failed("BPF_PROG_LOAD"))?;
    let descriptor = program.as_raw_fd();
    // SAFETY: TUNSETSTEERINGEBPF reads an `int`; the interface keeps the program from then on.
    let result = unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            libc::TUNSETSTEERINGEBPF,
            &raw const descriptor,
        )
    };
    if result < 0 {
        return Err(failed("TUNSETSTEERINGEBPF")(io::Error::last_os_error()));
    }
    Ok(())
}

/// `struct bpf_insn`.
#[repr(C)]
struct Instruction {
    code: u8,
    /// Source register in the upper half, destination in the lower.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Makes a program that returns the destination port, or 0 if the packet is too short: a load
/// beyond its end terminates the program.
fn program(layer: Layer) -> [Instruction; 12] {
    let ip = match layer {
        Layer::Ethernet => ETHERNET_BYTES as i32,
        Layer::Ip => 0,
    };
    let line = |code, registers, offset, immediate| Instruction {
        code,
        registers,
        offset,
        immediate,
    };
    [
        line(MOVE, 0x16, 0, 0),              // r6 = packet; loads read from it into r0
        line(LOAD_BYTE, 0x00, 0, ip),        // version and header length in words
        line(MOVE, 0x07, 0, 0),              // r7 = r0
        line(SHIFT_RIGHT, 0x07, 0, 4),       // version
        line(JUMP_UNLESS_EQUAL, 0x07, 2, 6), // skips the next two
        line(LOAD_HALF, 0x00, 0, ip + 40 + 2),
        line(EXIT, 0x00, 0, 0),
        line(AND, 0x00, 0, 0xf),
        line(SHIFT_LEFT, 0x00, 0, 2), // header length in bytes
        line(MOVE, 0x07, 0, 0),
        line(LOAD_HALF_BEHIND, 0x70, 0, ip + 2), // offset r7 added
        line(EXIT, 0x00, 0, 0),
    ]
}

fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    /// Start of `union bpf_attr` for BPF_PROG_LOAD.
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        program: u64,
        license: u64,
        log: [u64; 2],
        version_and_flags: u64,
    }
    let load = Load {
        kind: SOCKET_FILTER,
        count: program.len() as u32,
        program: program.as_ptr() as u64,
        license: c"MIT".as_ptr() as u64,
        log: [0; 2],
        version_and_flags: 0,
    };
    // SAFETY: the attributes have the given size, and what they point to lives until the call ends.
    // The result is a new descriptor or -1.
    unsafe {
        let fd = libc::syscall(libc::SYS_bpf, PROG_LOAD, &raw const load, size_of::<Load>());
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

// Values of linux/bpf.h and linux/bpf_common.h.
const PROG_LOAD: libc::c_long = 5;
const SOCKET_FILTER: u32 = 1;
const MOVE: u8 = 0xbf;
const LOAD_BYTE: u8 = 0x30;
const LOAD_HALF: u8 = 0x28;
const LOAD_HALF_BEHIND: u8 = 0x48;
const SHIFT_RIGHT: u8 = 0x77;
const SHIFT_LEFT: u8 = 0x67;
const AND: u8 = 0x57;
const JUMP_UNLESS_EQUAL: u8 = 0x55;
const EXIT: u8 = 0x95;
