//! Captures of a study's trials: their settings, and their part of a record.
//!
//! A capture costs CPU, so captured trials are additional ones, in cells of their own.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tcpcost_counts::Opening;
use toml::de::DeValue;

use crate::parse::{Section, StudyError, any, list, matching, quoted, whole, whole_from};
use tcpcost_knobs::{Knobs, units};

/// Settings of `[measure.capture]`.
#[derive(Debug, Clone, PartialEq)]
pub struct CaptureSettings {
    /// Captured trials of each cell. 0 captures none.
    pub trials: u32,
    /// Bytes kept of each packet, from the link header on; 0 keeps all. The default of 128 holds a
    /// cooked or Ethernet header with a VLAN tag (18), IPv6 (40) and the longest TCP header (60).
    pub snap_len: u32,
    /// Limit of a captured trial's warm-up and of its interval; the study's are used if they are
    /// shorter. A second of a CPU-bound trial is a million packets.
    pub duration: Duration,
    /// Cells that are captured: those that have these knobs.
    pub matching: Knobs,
}

impl Default for CaptureSettings {
    fn default() -> Self {
        CaptureSettings {
            trials: 0,
            snap_len: 128,
            duration: Duration::from_millis(100),
            matching: Knobs::default(),
        }
    }
}

impl CaptureSettings {
    pub(crate) fn parse(mut section: Section<'_>) -> Result<CaptureSettings, StudyError> {
        let mut capture = CaptureSettings {
            trials: 1,
            ..CaptureSettings::default()
        };
        section.set(&mut capture.trials, "trials", whole_from(0))?;
        let size = quoted(|text| match units::bytes(text) {
            Ok(bytes) if bytes == 0 || (64..=262_144).contains(&bytes) => Ok(bytes as u32),
            _ => Err("a size from 64B to 256KiB, or 0B for whole packets"),
        });
        section.set(&mut capture.snap_len, "snaplen", size)?;
        let time = quoted(|text| match units::duration(text) {
            Ok(time) if !time.is_zero() => Ok(time),
            _ => Err("a time such as \"100ms\", more than 0"),
        });
        section.set(&mut capture.duration, "duration", time)?;
        capture.matching = matching(&mut section)?;
        section.end()?;
        Ok(capture)
    }
}

/// Capture at an end of a trial: the file, the times at which the meters were read, and the first
/// transactions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// Path of the file, relative to the run's directory.
    pub file: String,
    /// Point and method of the capture.
    pub place: String,
    /// Bytes kept of each packet; 0 means all.
    pub snap_len: u32,
    /// Packets in the file.
    pub packets: u64,
    /// Packets that found no room in the capture's buffer. `None` if the capture cannot lose any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
    /// Times at which the meters and the workload's own counts were read.
    pub snapshots: Brackets,
    /// Times at which the connections' counts (meter `tcp_info`) were read: before the others at
    /// the start, and after them at the end. `None` if they were not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_info: Option<Brackets>,
    /// First transactions of the first connection. `None` unless the workload is `rr`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opening: Option<Opening>,
}

/// Times of the two readings of a meter, CLOCK_REALTIME, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brackets {
    /// Start of the first reading.
    pub first_begin_ns: u64,
    /// End of the first reading.
    pub first_end_ns: u64,
    /// Start of the second reading.
    pub second_begin_ns: u64,
    /// End of the second reading.
    pub second_end_ns: u64,
}

impl Brackets {
    /// Returns the brackets that contain both: several threads read at nearly the same time.
    #[must_use]
    pub fn around(self, other: Brackets) -> Brackets {
        Brackets {
            first_begin_ns: self.first_begin_ns.min(other.first_begin_ns),
            first_end_ns: self.first_end_ns.max(other.first_end_ns),
            second_begin_ns: self.second_begin_ns.min(other.second_begin_ns),
            second_end_ns: self.second_end_ns.max(other.second_end_ns),
        }
    }
}

/// `[published_opening]`: a published capture of a connection's first transactions, shown next to
/// ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedOpening {
    /// Author, year and place of the publication.
    pub source: String,
    /// Pure ACKs of the client, as in [`tcpcost_counts::Sequences::pure_acks`].
    pub pure_acks: Vec<Vec<u64>>,
    /// Data bursts of the server, as in [`tcpcost_counts::Sequences::data_bursts`].
    pub data_bursts: Vec<Vec<u64>>,
    /// Cells to which it belongs: those that have these knobs.
    pub matching: Knobs,
}

impl PublishedOpening {
    pub(crate) fn parse(mut section: Section<'_>) -> Result<PublishedOpening, StudyError> {
        let opening = PublishedOpening {
            source: section.required("source", quoted(any))?,
            pure_acks: section.required("pure_acks", sequences)?,
            data_bursts: section.required("data_bursts", sequences)?,
            matching: matching(&mut section)?,
        };
        let lists = opening.pure_acks.len();
        if opening.data_bursts.len() != lists {
            let expected = format!("expected {lists} lists, as pure_acks has");
            return Err(section.error(section.start(), "data_bursts", expected));
        }
        section.end()?;
        Ok(opening)
    }
}

fn sequences(value: &DeValue<'_>) -> Result<Vec<Vec<u64>>, &'static str> {
    list(value, |numbers| list(numbers, whole))
        .filter(|lists| !lists.is_empty())
        .ok_or("a list of whole numbers for each transaction")
}
