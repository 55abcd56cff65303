//! TCP (RFC 9293 and related RFCs) without I/O: segments in, segments out, time as an argument.
//!
//! This crate reads no clock, does no I/O and starts no thread; its `clippy.toml` forbids the calls
//! that would. No input from a peer makes it fail or use unbounded memory: bad input is dropped and
//! counted by reason. When to acknowledge, how to cut segments and how much may be in flight are
//! data ([`AckPolicy`], [`Segmentation`], [`CongestionControl`]), so that each can be studied
//! alone. Another crate can add its own policies: see [`AckRule`], [`OwnCut`] and
//! `crates/traffic/stack/examples/own_policy.rs`.
//!
//! Start with [`Endpoint`] (many connections on one device), [`Connection`] (one connection,
//! without addresses) and [`Config`] (its settings). Payload is a list of [`Piece`]s of pooled
//! slabs. [`Connection::write`] copies once; [`Connection::write_piece`] and
//! [`Connection::read_piece`] do not copy; retransmissions share the bytes of the first
//! transmission. A packet is a header and pieces ([`wire::Packet`]), up to 64 KiB at once if the
//! device cuts segments (TSO).
//!
//! Not implemented: out-of-band urgent data, MPTCP, authentication options, sending of IP
//! fragments.
//!
//! # The driver loop
//!
//! Pass packets in, pass the time, run the application, take packets out, and sleep until the next
//! timeout or packet. This example connects two endpoints in memory by a wire with 1 ms of delay:
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

mod checksum;
mod connection;
mod counters;
mod endpoint;
mod payload;
mod seq;
#[cfg(test)]
mod time;
pub mod wire;

pub use connection::config::{
    Config, CongestionControl, FastOpenChoice, KeepAlive, MtuProbing, WindowGrowth, WindowRestart,
};
pub use connection::{
    AckDecision, AckPolicy, AckRule, AckState, Agreed, Arrival, Clock, Connection, Ended, Info,
    Limits, LinuxAcks, LossState, MtuProbes, Nagle, OwnAckPolicy, OwnAcks, OwnCut, OwnSegmentation,
    Pacing, Read, ReadError, Segmentation, SegmentationRules, SendView, State, TailRule,
    WriteError,
};
pub use counters::Counters;
pub use endpoint::{
    ConnId, ConnectError, Endpoint, EndpointCounters, Forwarded, ListenError, Ports, Stopped,
};
pub use payload::{Chain, Piece, Pool, Writer};
pub use seq::SeqNum;
