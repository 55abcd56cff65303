//! Ends of a wire and wrappers around them. Packets are not interpreted here, so every wrapper
//! works on every end and with any protocol. Only a TAP reads headers: for the Ethernet, ARP and
//! neighbour discovery that its wire needs, and to assign packets to queues by port.
//!
//! A [`Device`] carries IP packets in their owner's representation ([`Frame`]): it reads their
//! bytes if necessary, moves them, and does not copy them. Ends are [`memory::pair`] and [`Tap`].
//! The wrappers [`Impaired`] and [`CapturingDevice`] can be combined; [`Routed`] combines several devices
//! into one.
//!
//! Start with [`Device`], then [`memory::pair`]:
//!
//! ```
//! use std::{collections::VecDeque, time::Instant};
//! use tcpcost_link::{Copied, Device, Impaired, Impairment, memory};
//!
//! let (near, mut far) = memory::pair::<Copied>(100);
//! let mut near = Impaired::new(near, Impairment { duplicate: 1.0, ..Impairment::default() }, Impairment::default(), 1);
//! let (now, mut out, mut arrived) = (Instant::now(), VecDeque::from([Copied::from(b"hello".as_slice())]), VecDeque::new());
//! near.send(&mut out, now)?;
//! far.receive(&mut Copied::source(), &mut arrived, 10, now)?;
//! assert_eq!(arrived.len(), 2);
//! # Ok::<(), std::io::Error>(())
//! ```
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod bell;
mod captured;
mod device;
mod impaired;
pub mod memory;
pub mod network;
pub mod pcapng;
mod random;
mod routed;
mod tap;

pub use bell::Bell;
pub use captured::CapturingDevice;
pub use device::{
    Copied, Device, Filled, Frame, Offload, Offloads, PartialChecksum, Segmentation, Source,
};
pub use impaired::{Impaired, Impairment, LaneCounters, Lanes};
pub use routed::Routed;
pub use tap::{Layer, Tap, TapCounters, TapError, TapWire};
