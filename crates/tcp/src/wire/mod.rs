//! What crosses the wire: views that parse bytes into plain values, and values that emit bytes.
//!
//! The TCP above works on [`Segment`]s and never sees bytes. What cannot be parsed is a
//! [`DropReason`], to be counted. Not here: IP options beyond skipping them.

mod checksum;
mod cut;
mod fast_open;
mod fragment;
mod icmp;
mod ip;
mod options;
mod packet;
mod segment;
mod tcp;
mod template;
mod train;

pub use checksum::Sum;
pub use fast_open::FastOpen;
pub use icmp::Unreachable;
pub use ip::Ecn;
pub use options::{AckRate, Options, SackBlocks, Timestamps};
pub use packet::{Checksum, FourTuple, Header, Packet};
pub use segment::{Flags, Segment};

pub(crate) use cut::Cut;
pub(crate) use fragment::{Fragment, FragmentKey, rebuild};
pub(crate) use icmp::{IcmpSays, parse_icmp};
pub(crate) use train::Train;

/// Why a packet was dropped before it reached a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Neither IPv4 nor IPv6.
    NotIp,
    /// Shorter than its headers claim.
    Truncated,
    /// An IP header that cannot be.
    BadIp,
    /// A wrong IPv4 header checksum.
    BadIpChecksum,
    /// Part of a fragmented packet.
    Fragment,
    /// Not TCP.
    NotTcp,
    /// A TCP header that cannot be.
    BadTcp,
    /// A wrong TCP checksum.
    BadTcpChecksum,
}
