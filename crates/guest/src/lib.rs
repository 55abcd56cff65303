//! A guest in which a nanosecond of time is one executed instruction, made of a kernel's files and
//! one program.
//!
//! QEMU's TCG with `-icount shift=0` advances the guest's clock by 1 ns for each instruction that
//! its CPU executes, kernel included. So every reading of time there is a count of instructions:
//! the same on a loaded machine as on a quiet one. The guest has no disk and no network. Its
//! initramfs holds the program, which is its init ([`init`]), and the modules that the program asks
//! for. A task and its files come by QEMU's fw_cfg, so a guest can be saved before it has one
//! ([`Snapshots`]). Results come back over a serial port, as lines.
//!
//! The crate knows no studies, records or TCP: the caller decides what the program does ([`Task`]).
//! It needs no privilege.
//!
//! Start with [`Kernel::find`], [`Image::make`], [`Guest::boot`] and [`Snapshot::restore`].

#![deny(unsafe_code)]

mod agreed;
mod architecture;
mod boot;
mod caches;
mod config;
mod contexts;
mod cpio;
mod error;
mod functions;
mod fw_cfg;
mod guest;
mod image;
pub mod init;
mod kernel;
mod libraries;
mod module;
mod monitor;
mod padding;
mod port;
mod qemu;
mod running;
mod setup;
mod snapshot;
mod symbols;
mod task;
mod temporary;
mod waiting;

pub use architecture::Architecture;
pub use boot::{Boot, BootEnd, Line};
pub use caches::{Caches, CachesError, Misses};
pub use config::Config;
pub use contexts::Contexts;
pub use error::GuestError;
pub use functions::{Functions, Plugin, Span, moves_memory};
pub use guest::Guest;
pub use image::Image;
pub use kernel::Kernel;
pub use qemu::{INSTRUCTIONS_PER_NS, Machine};
pub use running::Limit;
pub use setup::Setup;
pub use snapshot::{Snapshot, Snapshots};
pub use symbols::{Symbols, USER};
pub use task::Task;
