//! A guest in which a nanosecond of time is one executed instruction, made of a kernel's files and
//! one program.
//!
//! QEMU's TCG with `-icount shift=0` advances the guest's clock by 1 ns for each instruction that
//! its CPU executes, kernel included. So every reading of time there is a count of instructions:
//! the same on a loaded machine as on a quiet one. The guest has no disk and no network. Its
//! initramfs holds the program, which is its init ([`init`]), the modules that the program asks
//! for, and input files. Results come back over a serial port, as lines.
//!
//! The crate knows no studies, records or TCP: the caller decides what the program does ([`Task`]).
//! It needs no privilege.
//!
//! Start with [`Kernel::find`], [`Image::make`] and [`Guest::boot`].

#![deny(unsafe_code)]

mod architecture;
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

pub use architecture::Architecture;
pub use boot::{Boot, BootEnd, Guest, Line};
pub use error::GuestError;
pub use functions::{Functions, Plugin, Symbols, moves_memory};
pub use image::{Image, Task};
pub use kernel::Kernel;
pub use qemu::{INSTRUCTIONS_PER_NS, Machine};
