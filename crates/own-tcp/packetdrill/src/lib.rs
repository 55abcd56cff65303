//! Our TCP as a shared object that packetdrill loads (`--so_filename`), so that scripts written for
//! Linux test it, in virtual time. docs/conformance.md says how to run them.
//!
//! `abi` is the interface that packetdrill expects, `calls` has the effects of socket calls on a
//! connection, `host.rs` the endpoint with its clock and its wire, `sysctl.rs` and `device.rs` the
//! settings of the scripts, `info.rs` TCP_INFO, `control.rs` the control messages of recvmsg. It is
//! not for other uses: it imitates a kernel only where the scripts look.
//!
//! Qdiscs, routes, the kernel's counters and MD5 are not supported.

#![deny(unsafe_code)]

mod abi;
mod calls;
mod control;
mod device;
mod host;
mod info;
mod sysctl;
