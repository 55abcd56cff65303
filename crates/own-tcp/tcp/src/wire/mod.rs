//! Wire formats: functions that parse bytes into values, and functions that write values as bytes.
//!
//! The TCP code works on [`Segment`]s and does not see bytes. Input that cannot be parsed returns a
//! [`DropReason`], which is counted. IP options are skipped.

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

pub use crate::checksum::Sum;
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

/// Reason why a packet was dropped before it reached a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Neither IPv4 nor IPv6.
    NotIp,
    /// Shorter than its headers claim.
    Truncated,
    /// Invalid IP header.
    BadIp,
    /// Wrong IPv4 header checksum.
    BadIpChecksum,
    /// Part of a fragmented packet.
    Fragment,
    /// Not TCP.
    NotTcp,
    /// Invalid TCP header.
    BadTcp,
    /// Wrong TCP checksum.
    BadTcpChecksum,
}
