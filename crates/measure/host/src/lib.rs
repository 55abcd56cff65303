//! Network set-up of the host: all of it that tcpcost reads, changes and restores.
//!
//! Each end of a `netns` bed is a process that moves itself into a namespace without a name
//! ([`namespace`]). The kernel removes the namespace and all in it when the process ends, however
//! it ends. Settings of a cell for a device go through [`apply`], the only writer: it reads the
//! former value, notes it in a [`journal::Journal`], writes, and reads back. [`environment`] reads
//! the actual state.
//!
//! Start with [`namespace::enter_new`], [`link::create_veth`] and [`apply::apply`].

#![deny(unsafe_code)]

pub mod address;
pub mod apply;
pub mod channels;
pub mod cpu_accounting;
pub mod cpu_quota;
pub mod cpus;
pub mod device_knobs;
pub mod environment;
pub mod error;
pub mod ethtool;
pub mod folder;
pub mod irq;
pub mod journal;
pub mod lend;
pub mod libpcap;
pub mod link;
pub mod lock;
pub mod machine;
pub mod named_file;
pub mod namespace;
pub mod netem;
mod netlink;
pub mod nic;
mod place;
pub mod port;
pub mod privileges;
pub mod qdisc;
pub mod queues;
pub mod route;
pub mod rps;
pub mod setting;
pub mod sysctl;

pub use place::{is_in_hosts_user_namespace, is_root};
