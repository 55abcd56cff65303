//! What a capture says about ACKs, bursts, splits and stalls of TCP connections.

#![warn(missing_docs)]

mod bytes;
mod packet;
mod pcap;
mod pcapng;
mod read;
mod segment;
mod tcpdump;

pub use packet::{Link, segment as parse};
pub use read::{Broken, Form, Names, Reading, Sink, read};
pub use segment::{Endpoint, Host, Options, Segment, Skipped, flag};
