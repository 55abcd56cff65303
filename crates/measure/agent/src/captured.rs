//! Reads a trial's own capture by the analysis of `tcpcost trace`: the growth over the interval, and how the
//! first connection began.

use anyhow::{Context, bail};
use tcpcost_study::{
    Brackets, CountOwner, Counts, MeterName, Opening, Reading, Side, Snapshot, Totals, WorkloadKind,
};
use tcpcost_trace::{
    Analysis, ConnectionStart, Filter, OpeningWatch, Segment, Settings, Sink, counts_at, read,
};

use crate::protocol::CaptureRequest;

/// Number of transactions that are kept. The published trace has four.
const TRANSACTIONS: usize = 8;

/// Result of reading a capture.
pub struct Read {
    /// Growth between the two readings of the meters, as the meter `trace`.
    pub readings: Vec<Reading>,
    /// For the workload `rr`: how the first connection began, without the greeting. Else `None`.
    pub opening: Option<Opening>,
}

/// Reads a host's capture: connections to `ports`, from the end of the first snapshot to the start of the
/// second.
pub fn read_capture(
    asked: &CaptureRequest,
    side: Side,
    kind: Option<WorkloadKind>,
    ports: Vec<u16>,
    snapshots: &Brackets,
) -> anyhow::Result<Read> {
    let tried = || format!("read {}", asked.file.display());
    let filter = Filter {
        ports,
        ..Filter::default()
    };
    // Segments that one ACK released are one burst, however long the sender was kept from sending them.
    let settings = Settings {
        burst_gap_ns: u64::MAX,
        ..Settings::default()
    };
    let greeting = 1;
    let watch = OpeningWatch::of(greeting + TRANSACTIONS);
    let mut interval = Interval {
        analysis: Analysis::watched(settings, filter, watch),
        end: match side {
            Side::Connects => 0,
            Side::Listens => 1,
        },
        from_ns: snapshots.first_end_ns,
        until_ns: snapshots.second_begin_ns,
        before: None,
        after: None,
    };
    let opened = asked
        .place()
        .and_then(|(folder, name)| folder.open_file(name));
    let (_, outcome) = read(opened.with_context(tried)?, &mut interval);
    outcome.with_context(tried)?;
    let over = interval.snapshot(interval.until_ns);
    let after = interval.after.take().unwrap_or_else(|| over.clone());
    let before = interval.before.take().unwrap_or(over);
    let mut connections = interval.analysis.connections().iter();
    if !connections.any(|one| one.began() == ConnectionStart::Handshake) {
        bail!("{}: holds no connection of the trial", asked.file.display());
    }
    let opening = (kind == Some(WorkloadKind::Rr)).then(|| {
        let (_, watch) = interval.analysis.finish();
        watch.opening(greeting)
    });
    Ok(Read {
        readings: after.since(&before).with_context(tried)?,
        opening,
    })
}

/// An analysis that keeps its counts at the start and at the end of the interval.
struct Interval {
    analysis: Analysis<OpeningWatch>,
    end: usize,
    from_ns: u64,
    until_ns: u64,
    before: Option<Snapshot>,
    after: Option<Snapshot>,
}

impl Interval {
    fn snapshot(&self, at_ns: u64) -> Snapshot {
        let mut counts = Counts::new();
        let connections = self.analysis.connections().iter();
        // A connection that does not begin with a handshake is the end of an earlier trial's connection.
        let connections = connections.filter(|one| one.began() == ConnectionStart::Handshake);
        let of_each: Vec<Counts> = connections.map(|one| counts_at(one, self.end)).collect();
        // Omits a count that any connection lacks because of packets that the capture lost: the sum would be
        // too small.
        for of_one in &of_each {
            for (&quantity, &count) in of_one {
                if of_each.iter().all(|other| other.contains_key(&quantity)) {
                    *counts.entry(quantity).or_insert(0) += count;
                }
            }
        }
        Snapshot {
            meter: MeterName::Trace,
            at_ns,
            totals: vec![Totals {
                whose: CountOwner::Connections,
                counts,
            }],
        }
    }
}

impl Sink for Interval {
    fn segment(&mut self, segment: &Segment) {
        let at_ns = segment.at_ns.unwrap_or(0);
        if self.before.is_none() && at_ns >= self.from_ns {
            self.before = Some(self.snapshot(self.from_ns));
        }
        if self.after.is_none() && at_ns >= self.until_ns {
            self.after = Some(self.snapshot(self.until_ns));
        }
        self.analysis.segment(segment);
    }
}
