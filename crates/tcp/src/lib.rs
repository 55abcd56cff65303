//! TCP itself (RFC 9293 and its family), sans I/O: segments in, segments out, time as an argument.
//!
//! This crate reads no clock, does no input or output and starts no thread; its `clippy.toml`
//! refuses what would. What a peer sends cannot make it fail or grow without bound: it is dropped
//! and counted by reason. When to acknowledge, how to cut segments and how much may be in flight
//! are data ([`AckPolicy`], [`Segmentation`], [`CongestionControl`]), so that each can be studied
//! alone. One of another crate's goes beside the built-in ones: [`AckRule`], [`OwnCut`], and
//! `crates/stack/examples/own_policy.rs`.
//!
//! Start with [`Endpoint`] (many connections behind one device), [`Connection`] (one, without
//! addresses) and [`Config`] (what can be chosen). Payload is [`Piece`]s of pooled slabs: writing
//! copies once, [`Connection::write_piece`] and [`Connection::read_piece`] not at all, and
//! retransmissions share what was sent. Packets are handed over as headers and pieces
//! ([`wire::Packet`]), up to 64 KiB at once if the device cuts segments.
//!
//! Not here: urgent data out of band, MPTCP, authentication options; sending IP fragments.
//!
//! # The driver loop
//!
//! Give packets in, let time pass, do the application's part, take packets out, and sleep until
//! the next timeout or packet. Here two endpoints in memory, with a wire of a millisecond:
//!
//! ```
//! use std::{collections::VecDeque, time::{Duration, Instant}};
//! use tcpcost_tcp::{Config, Connection, Endpoint, Pool, wire::Checksum};
//!
//! let mut now = Instant::now(); // the last time anybody looks at a clock
//! let endpoint = |secret| {
//!     Endpoint::new(Config::default(), Pool::default(), [secret; 16], Checksum::Complete, now)
//! };
//! let (mut client, mut server) = (endpoint(1), endpoint(2));
//! server.listen(80, 10, Config::default())?;
//! let id = client.connect("10.0.0.1:0".parse()?, "10.0.0.2:80".parse()?, now)?;
//! client.apply(id, |connection| connection.write(b"hello"));
//!
//! let (mut wire, mut heard) = (VecDeque::new(), Vec::<u8>::new());
//! while heard.len() < 5 {
//!     // What was caused leaves.
//!     let arrival = now + Duration::from_millis(1);
//!     wire.extend(std::iter::from_fn(|| Some((arrival, true, client.poll_packet(now)?))));
//!     wire.extend(std::iter::from_fn(|| Some((arrival, false, server.poll_packet(now)?))));
//!     // Sleep until something is due: a real driver polls its device with this timeout.
//!     let packet = wire.front().map(|(arrival, ..)| *arrival);
//!     let due = [packet, client.next_timeout(), server.next_timeout()].into_iter().flatten().min();
//!     now = now.max(due.ok_or("nothing will happen any more")?);
//!     // What arrives, what time brings.
//!     while wire.front().is_some_and(|(arrival, ..)| *arrival <= now) {
//!         let Some((_, to_server, packet)) = wire.pop_front() else { break };
//!         if to_server { server.on_packet(packet, now) } else { client.on_packet(packet, now) }
//!     }
//!     client.on_timeout(now);
//!     server.on_timeout(now);
//!     // The application's part.
//!     while let Some(port) = server.poll_acceptable() {
//!         while server.accept(port).is_some() {}
//!     }
//!     while let Some(id) = server.poll_ready() {
//!         let mut buffer = [0; 100];
//!         if let Some(Ok(n)) = server.apply(id, |connection| connection.read(&mut buffer, now)) {
//!             heard.extend(&buffer[..n]);
//!         }
//!     }
//! }
//! assert_eq!(heard, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod connection;
mod counters;
mod endpoint;
mod payload;
mod seq;
#[cfg(test)]
mod time;
pub mod wire;

pub use connection::config::{Config, CongestionControl, FastOpenChoice, KeepAlive, WindowGrowth};
pub use connection::{
    AckDecision, AckPolicy, AckRule, AckState, Agreed, Arrival, Clock, Connection, Ended, Info,
    Limits, LinuxAcks, LossState, MtuProbes, MtuProbing, Nagle, OwnAckPolicy, OwnAcks, OwnCut,
    OwnSegmentation, Pacing, Read, ReadError, Segmentation, SegmentationRules, SendView, State,
    TailRule, WriteError,
};
pub use counters::Counters;
pub use endpoint::{
    ConnId, ConnectError, Endpoint, EndpointCounters, Forwarded, ListenError, Ports, Stopped,
};
pub use payload::{Chain, Piece, Pool, Writer};
pub use seq::SeqNum;
