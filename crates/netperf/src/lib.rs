//! netperf's command line and its control protocol, both ends, for TCP: scripts written for `netperf` and `netserver` go on
//! working, with figures that are true.
//!
//! What is printed has netperf's columns, selectors and units (netperf 2.7). Otherwise than netperf
//! - interim results of a stream count what the receiver's TCP has acknowledged, not what went into the send buffer;
//! - service demand is of this instance's CPU ([`protocol::exact::Method`]), not of all that ran on the machine;
//! - [`serve`] listens on the addresses that it is told, or on loopback, and takes data only from who controls.
//!
//! It speaks TCP alone: UDP, SCTP and the rest are refused by name. It knows no study. Start with [`netperf`],
//! [`serve`], [`answer`] and [`protocol`].
//!
//! ```
//! use tcpcost_netperf::protocol::{Message, omni};
//!
//! let request = omni::Request { test_length: 2, direction: omni::SENDS, ..omni::Request::default() };
//! let wire = request.message(-1).to_bytes();
//! assert_eq!(omni::Request::of(&Message::from_bytes(&wire)), request);
//! ```

#![deny(unsafe_code)]
#![warn(missing_docs)]

mod bed;
mod client;
mod confidence;
mod cpu;
mod demo;
mod getopt;
mod latency;
mod net;
mod number;
mod options;
mod output;
pub mod protocol;
mod remote;
mod segments;
mod server;
mod started;
mod thread_meter;
mod traffic;
mod units;

pub use client::netperf;
pub use server::{answer, serve};

/// Why it ended: a line, and netperf's own exit code for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// 1 for a command line that cannot be and a test that failed, 255 where there is no netserver or it refuses.
    pub code: u8,
    /// The line.
    pub text: String,
}

impl Failure {
    /// A test that failed, or a command line that cannot be.
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure {
            code: 1,
            text: text.into(),
        }
    }

    /// No netserver, or one that refuses.
    pub fn remote(text: impl Into<String>) -> Failure {
        Failure {
            code: 255,
            text: text.into(),
        }
    }
}

/// What netperf prints when it is asked for its version; scripts compare it.
pub const VERSION: &str = "2.7.1";
