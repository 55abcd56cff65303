//! Analysis of captures: ACKs, bursts, tail splits and stalls of TCP connections.
//!
//! [`read`] passes the segments of a capture to a [`Sink`], such as [`Analysis`]. The result is a
//! [`Report`], rendered by [`text()`], [`json()`] or [`csv()`]. One pass; memory grows with
//! connections, never with packets. No checksum is verified, nothing is reassembled, and no clock
//! is used but the capture's timestamps.
//!
//! ```
//! use tcpcost_trace::{Analysis, Report, Settings, read, text};
//! let capture = "IP A > B: P 1:101(100) ack 1 win 9\nIP B > A: . ack 101 win 9\n";
//! let mut analysis = Analysis::new(Settings::default());
//! let (reading, outcome) = read(capture.as_bytes(), &mut analysis);
//! let (connections, ()) = analysis.finish();
//! let report = Report::new("example", &reading, outcome.as_ref().copied(), &connections);
//! assert_eq!(report.total.payload_bytes, 100);
//! assert!(text(&report).contains("1 connection"));
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod acks;
mod analysis;
mod attempts;
mod bytes;
mod compare;
mod compressed;
mod connection;
mod counts;
mod direction;
mod evidence;
mod findings;
mod forms;
mod graph;
mod handshakes;
mod histogram;
mod html;
mod json;
mod links;
mod mss;
mod opening;
mod packet;
mod page_policy;
mod pcap;
mod pcapng;
mod policy;
mod read;
mod report;
mod rtt;
mod segment;
mod sequence;
mod tcpdump;
mod text;
mod tunnels;
mod waits;
mod watch;

pub use acks::AckCoverage;
pub use analysis::{Analysis, CaptureTime, Filter};
pub use compare::{CauseRow, Causes, Pair, PairedConnection, PairedDirection, Passed};
pub use connection::{
    Connection, ConnectionEnd, ConnectionStart, Handshake, Owed, OwedKind, ServerBy, Settings, Spot,
};
pub use counts::DirectionCounts;
pub use direction::{Direction, SynOptions};
pub use findings::{Finding, Severity};
pub use forms::{follow, read};
pub use graph::{ConnectionGraph, Curves, Event, EventKind, Graph, Points, Step, Steps};
pub use handshakes::Handshakes;
pub use histogram::Histogram;
pub use html::page;
pub use json::{csv, json, json_line, write_csv, write_json};
pub use links::Link;
pub use mss::{Mss, MssSource};
pub use opening::OpeningWatch;
pub use packet::segment as parse;
pub use policy::{Policy, PolicyGuess};
pub use read::{CaptureFormat, Names, ReadFailure, Reading, Sink};
pub use report::{
    ConnectionReport, Distribution, EndReport, PerMib, Report, SCHEMA_VERSION, counts_at,
};
pub use rtt::Rtt;
pub use segment::{Endpoint, Host, Options, PacketDirection, Segment, Skipped, flag};
pub use text::{connection_text, text};
pub use tunnels::Tunnel;
pub use waits::{CapturedAt, Wait, Waits};
pub use watch::{AckEvent, BurstEvent, PacketEvent, StallEvent, Watch};
