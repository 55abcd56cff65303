//! A guest in which a nanosecond of time is one executed instruction, made of a kernel's files and one program.
//!
//! QEMU's TCG with `-icount shift=0` advances the guest's clock by 1 ns for each instruction that its CPU executes, kernel
//! included, so whatever reads time there reads instructions: the same on a loaded machine as on a quiet one. The guest
//! has no disk and no network: an initramfs with the program, which is its init ([`init`]), the modules that it asks for
//! and the files that it is to work on. What it has to say comes back over a serial port, a line each.
//!
//! Knows nothing of studies, records or TCP: what the program does is its own ([`Task`]). Needs no privilege.
//!
//! Start with [`Kernel::find`], [`Image::make`] and [`Guest::boot`].

#![deny(unsafe_code)]

mod boot;
mod cpio;
mod error;
mod functions;
mod image;
pub mod init;
mod kernel;
mod libraries;
mod module;
mod port;
mod qemu;

pub use boot::{Boot, Ended, Guest, Line};
pub use error::GuestError;
pub use functions::{Functions, Plugin, Symbols, moves_memory};
pub use image::{Image, Task};
pub use kernel::Kernel;
pub use qemu::{INSTRUCTIONS_PER_NS, Machine};
