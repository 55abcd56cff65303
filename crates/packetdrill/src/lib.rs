//! Our TCP as a shared object that packetdrill loads (`--so_filename`), so that scripts that others
//! wrote for Linux judge it, in virtual time. docs/conformance.md says how to run them.
//!
//! `abi.rs` is the interface that packetdrill expects, `calls.rs` what a socket call does to a
//! connection, `host.rs` the endpoint with its clock and its wire, `sysctl.rs` what the scripts set,
//! `info.rs` TCP_INFO. Nothing here is for use: it stands for a kernel only where the scripts look.
//!
//! Not here: epoll, splice, error queues, timestamping, MD5: those are Linux's sockets, not TCP.

#![deny(unsafe_code)]

mod abi;
mod calls;
mod host;
mod info;
mod sysctl;
