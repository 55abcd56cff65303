//! Interface for reading a capture: segments go to a sink one by one, and a [`Reading`] counts the
//! rest.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use tcpcost_counts::Printable;

use crate::segment::{Segment, Skipped};

/// Receiver of a capture's segments.
pub trait Sink {
    /// Receives a segment, in the order of the capture.
    fn segment(&mut self, segment: &Segment);

    /// Called when all available input was read, before more is requested, which may block. An
    /// implementation may check the clock or use the results so far. `false` ends the reading, as
    /// the end of the capture would.
    fn goes_on(&mut self, _so_far: &Reading) -> bool {
        true
    }
}

impl<F: FnMut(&Segment)> Sink for F {
    fn segment(&mut self, segment: &Segment) {
        self(segment);
    }
}

/// Format of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureFormat {
    /// libpcap's format.
    Pcap,
    /// pcapng.
    Pcapng,
    /// Text that tcpdump prints.
    TcpdumpText,
    /// Live capture: packets as they pass an interface.
    Live,
}

/// Names of hosts in a text, indexed by the number in a [`crate::Host::Named`].
pub type Names = Vec<Printable>;

/// Facts about a capture that are not in its segments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Format. `None` until it is known.
    pub form: Option<CaptureFormat>,
    /// Number of packets, or of lines of a text.
    pub packets: u64,
    /// Bytes of the capture, after decompression.
    pub bytes: u64,
    /// Packets that were skipped.
    pub skipped: Skipped,
    /// Packets that the capture itself reports as dropped (pcapng's statistics, or the kernel's for
    /// an interface). `None` if it does not report that.
    pub dropped_by_capture: Option<u64>,
    /// Packets of unsupported link types, by the number in libpcap's registry.
    pub links_unread: BTreeMap<u32, u64>,
    /// Names of hosts in a text.
    pub names: Names,
}

impl Reading {
    /// Adds another piece of the same capture. Names are those of the last piece that has any, so
    /// pieces of a text with names must be joined before they are read.
    pub fn add(&mut self, piece: Reading) {
        self.form = self.form.or(piece.form);
        self.packets += piece.packets;
        self.bytes += piece.bytes;
        self.skipped.add(&piece.skipped);
        for (link, packets) in piece.links_unread {
            *self.links_unread.entry(link).or_default() += packets;
        }
        self.dropped_by_capture = match (self.dropped_by_capture, piece.dropped_by_capture) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        if !piece.names.is_empty() {
            self.names = piece.names;
        }
    }
}

/// Error that stopped reading before the end. Results until then are valid.
#[derive(Debug)]
pub struct ReadFailure {
    /// Offset of the error, bytes after decompression.
    pub offset: u64,
    /// Description of the error.
    pub what: String,
}

impl fmt::Display for ReadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.what)
    }
}

impl std::error::Error for ReadFailure {}

impl ReadFailure {
    pub(crate) fn new(offset: u64, what: impl Into<String>) -> ReadFailure {
        ReadFailure {
            offset,
            what: what.into(),
        }
    }

    pub(crate) fn io(offset: u64, error: &io::Error) -> ReadFailure {
        ReadFailure::new(offset, format!("read: {error}"))
    }
}
