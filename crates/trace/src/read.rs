//! What reading a capture gives: segments to a sink, one by one, and what was met on the way.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use tcpcost_counts::Printable;

use crate::segment::{Segment, Skipped};

/// Takes what a capture holds.
pub trait Sink {
    /// One segment, in the order of the capture.
    fn segment(&mut self, segment: &Segment);

    /// All that was there is taken, and more is about to be asked for, which may take its time: a
    /// look at the clock, or at what was found so far. `false` ends the reading as the end of the
    /// capture would.
    fn goes_on(&mut self, _so_far: &Reading) -> bool {
        true
    }
}

impl<F: FnMut(&Segment)> Sink for F {
    fn segment(&mut self, segment: &Segment) {
        self(segment);
    }
}

/// The form of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// libpcap's.
    Pcap,
    /// pcapng.
    Pcapng,
    /// What tcpdump prints.
    TcpdumpText,
    /// No file: packets as they pass an interface.
    Live,
}

/// Names of hosts in a text, by the number that a [`crate::Host::Named`] holds.
pub type Names = Vec<Printable>;

/// What reading found beside the segments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// The form, once known.
    pub form: Option<Form>,
    /// Packets, or lines of a text.
    pub packets: u64,
    /// Bytes of the capture, after decompression.
    pub bytes: u64,
    /// Packets left out.
    pub skipped: Skipped,
    /// Packets that the capture itself says it dropped (pcapng's statistics, or the kernel's of an
    /// interface).
    pub dropped_by_capture: Option<u64>,
    /// Packets of link types that are not read, by the number of libpcap's registry.
    pub links_unread: BTreeMap<u32, u64>,
    /// Names of hosts of a text.
    pub names: Names,
}

impl Reading {
    /// Goes on with another piece of the same capture. Names are those of the last piece that has
    /// any: pieces of a text with names are to be joined before they are read.
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

/// Why reading stopped before the end. What was read until then stands.
#[derive(Debug)]
pub struct Broken {
    /// Where, in bytes after decompression.
    pub offset: u64,
    /// What was found.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.what)
    }
}

impl std::error::Error for Broken {}

impl Broken {
    pub(crate) fn new(offset: u64, what: impl Into<String>) -> Broken {
        Broken {
            offset,
            what: what.into(),
        }
    }

    pub(crate) fn io(offset: u64, error: &io::Error) -> Broken {
        Broken::new(offset, format!("read: {error}"))
    }
}
