//! Our TCP as a shared object that packetdrill loads (`--so_filename`), so that scripts that others
//! wrote for Linux judge it, in virtual time. docs/conformance.md says how to run them.
//!
//! `abi` is the interface that packetdrill expects, `calls` what a socket call does to a
//! connection, `host.rs` the endpoint with its clock and its wire, `sysctl.rs` and `device.rs` what the
//! scripts set, `info.rs` TCP_INFO, `control.rs` the control messages of recvmsg. Nothing here is for use:
//! it stands for a kernel only where the scripts look.
//!
//! Not here: qdiscs, routes, the kernel's counters, MD5.

#![deny(unsafe_code)]

mod abi;
mod calls;
mod control;
mod device;
mod host;
mod info;
mod sysctl;
