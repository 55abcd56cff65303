//! The host's network set-up: everything of it that tcpcost reads, changes and puts back.
//!
//! Each end of a `netns` bed is a process that moves itself into a namespace without a name
//! ([`namespace`]): the kernel takes the namespace and all in it away when the process ends, however
//! it ends. What a cell asks of a device goes through [`apply`], which is the only writer: it reads
//! the former value, notes it in a [`journal::Journal`], writes, and reads back. [`environment`]
//! says how things really are.
//!
//! Start with [`namespace::enter_new`], [`link::create_veth`] and [`apply::apply`].

#![deny(unsafe_code)]

pub mod address;
pub mod apply;
pub mod channels;
pub mod cpus;
pub mod environment;
pub mod error;
pub mod ethtool;
pub mod irq;
pub mod journal;
pub mod lend;
pub mod libpcap;
pub mod link;
pub mod lock;
pub mod machine;
pub mod namespace;
pub mod netem;
mod netlink;
pub mod nic;
pub mod port;
pub mod privileges;
pub mod qdisc;
pub mod route;
pub mod rps;
pub mod setting;
pub mod sysctl;
