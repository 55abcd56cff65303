//! Captures of a study's own trials: what is asked for, and what a record has of them.
//!
//! A capture costs CPU, so the trials that are captured are further ones, in cells of their own.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::de::DeValue;

use crate::cell::Cell;
use crate::knob::Knobs;
use crate::parse::{Section, StudyError, raw};
use crate::study::{Study, matching, required};
use crate::units;
use crate::value::Raw;

/// `[measure.capture]`.
#[derive(Debug, Clone, PartialEq)]
pub struct CaptureSettings {
    /// Captured trials of each cell; 0 captures none.
    pub trials: u32,
    /// Bytes kept of each packet, from the link's header on; 0 keeps all. 128: cooked or Ethernet with a VLAN
    /// tag (18), IPv6 (40) and the longest TCP header (60).
    pub snap_len: u32,
    /// A captured trial's warm-up and its interval are each the study's or this, if that is less: a
    /// second of a CPU-bound trial is a million packets.
    pub duration: Duration,
    /// The cells that are captured: those that have these knobs.
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
        let count = |value: &DeValue<'_>| match raw(value) {
            Raw::Integer(n) => u32::try_from(n).ok(),
            _ => None,
        };
        if let Some(n) = section.read("trials", "a whole number from 0", count)? {
            capture.trials = n;
        }
        let snap_len = section.text("snaplen", |text| match units::bytes(text) {
            Ok(bytes) if bytes == 0 || (64..=262_144).contains(&bytes) => Ok(bytes as u32),
            _ => Err("a size from 64B to 256KiB, or 0B for whole packets"),
        })?;
        capture.snap_len = snap_len.unwrap_or(capture.snap_len);
        let duration = section.text("duration", |text| match units::duration(text) {
            Ok(time) if !time.is_zero() => Ok(time),
            _ => Err("a time such as \"100ms\", more than 0"),
        })?;
        capture.duration = duration.unwrap_or(capture.duration);
        capture.matching = matching(&mut section)?;
        section.end()?;
        Ok(capture)
    }
}

impl Study {
    /// Adds a cell of captured trials for each cell that is to be captured. A second time it does
    /// nothing.
    pub fn ask_captures(&mut self) {
        let asked = &self.measure.capture;
        if asked.trials == 0 || self.cells.iter().any(|cell| cell.captured.is_some()) {
            return;
        }
        let of = |cell: &Cell| {
            let wanted = cell.meter_trial.is_none() && cell.knobs.has(&asked.matching);
            wanted.then(|| Cell {
                name: format!("{}, captured", cell.name),
                knobs: cell.knobs.clone(),
                meter_trial: None,
                captured: Some(cell.name.clone()),
            })
        };
        let added: Vec<Cell> = self.cells.iter().filter_map(of).collect();
        self.cells.extend(added);
    }

    /// Repetitions of a cell, at least.
    pub fn repetitions(&self, cell: &Cell) -> u32 {
        match cell.captured {
            Some(_) => self.measure.capture.trials,
            None => self.measure.repetitions,
        }
    }

    /// Warm-up and interval of a cell's trials.
    pub fn times(&self, cell: &Cell) -> (Duration, Duration) {
        let (warm_up, duration) = (self.measure.warm_up, self.measure.duration);
        match cell.captured {
            Some(_) => {
                let most = self.measure.capture.duration;
                (warm_up.min(most), duration.min(most))
            }
            None => (warm_up, duration),
        }
    }
}

/// Of a captured trial's end: the file, when the meters were read, how its first connection began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// The file, from the run's directory.
    pub file: String,
    /// Where packets were seen, and by what.
    pub place: String,
    /// Bytes kept of each packet; 0 is all.
    pub snap_len: u32,
    /// Packets in the file.
    pub packets: u64,
    /// Packets that had no room in the capture's buffer; absent where it cannot lose any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
    /// When the meters and the workload's own counts were read.
    pub snapshots: Brackets,
    /// When the connections' counts (meter `tcp_info`) were read: earlier, and later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_info: Option<Brackets>,
    /// The first transactions of the first connection; of `rr` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opening: Option<Opening>,
}

/// From when to when the two readings took, CLOCK_REALTIME, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brackets {
    /// The first began.
    pub first_begin_ns: u64,
    /// The first was over.
    pub first_end_ns: u64,
    /// The second began.
    pub second_begin_ns: u64,
    /// The second was over.
    pub second_end_ns: u64,
}

impl Brackets {
    /// The brackets that hold both: several threads read at nearly the same time.
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

/// How a connection's first transactions went, as one end's capture has them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// What the client sent.
    pub client: Sequences,
    /// What the server sent.
    pub server: Sequences,
}

/// What an end sent, a list for each transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequences {
    /// Wire segments that each of its pure ACKs covered.
    pub pure_acks: Vec<Vec<u64>>,
    /// Wire segments of its data without a packet of the other end between them.
    pub data_bursts: Vec<Vec<u64>>,
}

/// `[published_opening]`: somebody's capture of a connection's first transactions, to show beside ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedOpening {
    /// Who, when, where.
    pub source: String,
    /// The client's pure ACKs, as [`Sequences::pure_acks`].
    pub pure_acks: Vec<Vec<u64>>,
    /// The server's data, as [`Sequences::data_bursts`].
    pub data_bursts: Vec<Vec<u64>>,
    /// The cells that are theirs: those that have these knobs.
    pub matching: Knobs,
}

impl PublishedOpening {
    pub(crate) fn parse(mut section: Section<'_>) -> Result<PublishedOpening, StudyError> {
        let source = section.text("source", |text| Ok::<_, String>(text.to_string()))?;
        let source = required(&section, "source", source)?;
        let mut lists = |key: &str| {
            let read = section.read(
                key,
                "a list of whole numbers for each transaction",
                sequences,
            );
            read.and_then(|read| required(&section, key, read))
        };
        let (pure_acks, data_bursts) = (lists("pure_acks")?, lists("data_bursts")?);
        if pure_acks.len() != data_bursts.len() {
            let expected = format!("expected {} lists, as pure_acks has", pure_acks.len());
            return Err(section.error(section.start(), "data_bursts", expected));
        }
        let matching = matching(&mut section)?;
        section.end()?;
        Ok(PublishedOpening {
            source,
            pure_acks,
            data_bursts,
            matching,
        })
    }
}

fn sequences(value: &DeValue<'_>) -> Option<Vec<Vec<u64>>> {
    let number = |item: &Raw| match item {
        Raw::Integer(n) => u64::try_from(*n).ok(),
        _ => None,
    };
    let list = |item: &Raw| match item {
        Raw::List(items) => items.iter().map(number).collect::<Option<Vec<u64>>>(),
        _ => None,
    };
    match raw(value) {
        Raw::List(lists) if !lists.is_empty() => lists.iter().map(list).collect(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Study, String> {
        Study::parse("s", text, "s.toml").map_err(|error| error.to_string())
    }

    #[test]
    fn captured_trials_are_cells_of_their_own_beside_those_they_are_of() {
        let text = "[vary]\nflows = [1, 2]\n[measure]\nwarm_up = \"50ms\"\n\
             [measure.capture]\ntrials = 3\nsnaplen = \"96B\"\nwhere = { flows = 2 }\n";
        let mut study = parse(text).unwrap();
        study.ask_captures();
        let names: Vec<&str> = study.cells.iter().map(|cell| cell.name.as_str()).collect();
        assert_eq!(names, ["flows=1", "flows=2", "flows=2, captured"]);
        let (own, captured) = (&study.cells[1], &study.cells[2]);
        assert_eq!(captured.captured.as_deref(), Some("flows=2"));
        assert_eq!(
            (study.repetitions(own), study.repetitions(captured)),
            (6, 3)
        );
        let ms = Duration::from_millis;
        assert_eq!(study.times(own), (ms(50), ms(1000)));
        assert_eq!(study.times(captured), (ms(50), ms(100)));
        assert_eq!(study.measure.capture.snap_len, 96);
        assert!(parse("").unwrap().cells[0].captured.is_none());
    }

    #[test]
    fn mistakes_have_their_line() {
        for (text, expected) in [
            (
                "[measure.capture]\nsnaplen = \"8B\"\n",
                "s.toml:2: measure.capture.snaplen: expected a size from 64B to 256KiB, or 0B for whole packets",
            ),
            (
                "[published_opening]\nsource = \"x\"\npure_acks = [1, 2]\n",
                "s.toml:3: published_opening.pure_acks: expected a list of whole numbers for each transaction",
            ),
            (
                "[published_opening]\nsource = \"x\"\npure_acks = [[1, 2]]\n",
                "s.toml:2: published_opening.data_bursts: is missing",
            ),
            (
                "[published_opening]\nsource = \"x\"\npure_acks = [[1]]\ndata_bursts = [[1], [2]]\n",
                "s.toml:2: published_opening.data_bursts: expected 1 lists, as pure_acks has",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected);
        }
    }
}
