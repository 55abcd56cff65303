//! What a capture says about ACKs, bursts, splits and stalls of TCP connections.

#![warn(missing_docs)]

mod acks;
mod analysis;
mod bytes;
mod connection;
mod half;
mod histogram;
mod mss;
mod packet;
mod pcap;
mod pcapng;
mod read;
mod rtt;
mod segment;
mod sequence;
mod tcpdump;
mod watch;

pub use acks::{AckCoverage, Policy, PolicyGuess};
pub use analysis::{Analysis, Filter};
pub use connection::{Began, Connection, Ended, Settings};
pub use half::{Half, Sent, SynOptions};
pub use histogram::Histogram;
pub use mss::{Mss, MssSource};
pub use packet::{Link, segment as parse};
pub use read::{Broken, Form, Names, Reading, Sink, read};
pub use rtt::Rtt;
pub use segment::{Endpoint, Host, Options, Segment, Skipped, flag};
pub use watch::{AckEvent, BurstEvent, PacketEvent, StallEvent, Watch};
