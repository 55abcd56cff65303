//! netperf's command line and its control protocol, both ends, for TCP and UDP: scripts that use `netperf` and
//! `netserver` keep working, with correct figures.
//!
//! The output has netperf's columns, selectors and units (netperf 2.7). These points differ from netperf:
//! - interim results of a stream count bytes that the receiver's TCP has acknowledged, not bytes in the send buffer;
//! - service demand is that of this instance's CPU time ([`protocol::exact::Method`]), not of everything on the machine;
//! - [`serve`] listens on the given addresses, or on loopback, and accepts data only from the control connection's peer.
//!
//! SCTP and others are refused by name, and UDP from netserver. The crate knows nothing about studies.
//! Start with [`netperf`], [`serve`], [`answer`] and [`protocol`].
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
pub mod getopt;
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
pub use options::usage as netperf_usage;
pub use server::{answer, serve, settle, usage as netserver_usage};

/// Text about a command line, for help and manuals.
#[derive(Debug, Clone)]
pub struct Usage {
    /// The usage line, and the options. Many lines.
    pub text: String,
    /// Exit codes and their meanings.
    pub exit_codes: &'static [(u8, &'static str)],
}

impl Usage {
    /// Returns the text of `-h`.
    pub fn help(&self) -> String {
        let codes = self.exit_codes.iter();
        let codes: Vec<String> = codes
            .map(|(code, meaning)| format!("{code} {meaning}"))
            .collect();
        format!("{}Exit codes: {}.\n", self.text, codes.join("; "))
    }
}

/// Reason for the end: a line, and netperf's exit code for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// 1 for an invalid command line and a failed test; 255 if there is no netserver or it refuses.
    pub code: u8,
    /// Text of the line.
    pub text: String,
}

impl Failure {
    /// Failure of a test, or of an invalid command line.
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure {
            code: 1,
            text: text.into(),
        }
    }

    /// Failure because there is no netserver, or because it refuses.
    pub fn remote(text: impl Into<String>) -> Failure {
        Failure {
            code: 255,
            text: text.into(),
        }
    }
}

/// Version that netperf prints; scripts compare it.
pub const VERSION: &str = "2.7.1";
