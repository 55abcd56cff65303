//! Comparison of two captures, before and after a change: time and packets for each MiB of payload,
//! cause by cause.

use serde::Serialize;
use tcpcost_counts::table::{ABSENT, Table, WIDTH};

use crate::findings::Finding;
use crate::report::Report;
use crate::text::wrapped;
use crate::waits::Wait;

/// One cause in two captures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CauseRow {
    /// Name for scripts. Causes of time end in `_ns_per_mib`.
    pub cause: String,
    /// Amount for each MiB of payload in the first capture. `None` if that capture has no payload.
    pub before: Option<f64>,
    /// Amount for each MiB of payload in the second capture. `None` if that capture has no payload.
    pub after: Option<f64>,
}

/// The differences between two captures.
#[derive(Debug, Clone, Serialize)]
pub struct Causes {
    /// Names of the two captures.
    pub files: [String; 2],
    /// First finding of each capture. `None` if a capture has none.
    pub headlines: [Option<String>; 2],
    /// Time by what the sender waited for, except idle time; the largest difference first.
    pub time: Vec<CauseRow>,
    /// Packets and segments of each kind; the largest difference first.
    pub packets: Vec<CauseRow>,
}

impl CauseRow {
    fn difference(&self) -> f64 {
        self.after.unwrap_or(0.0) - self.before.unwrap_or(0.0)
    }
}

impl Causes {
    /// Compares two reports.
    pub fn of(before: &Report, after: &Report) -> Causes {
        let mib = |report: &Report| report.total.payload_bytes as f64 / 1_048_576.0;
        let per = |report: &Report, count: u64| {
            (report.total.payload_bytes > 0).then(|| count as f64 / mib(report))
        };
        let row = |cause: String, of: &dyn Fn(&Report) -> u64| CauseRow {
            cause,
            before: per(before, of(before)),
            after: per(after, of(after)),
        };
        let sorted = |mut rows: Vec<CauseRow>| {
            rows.sort_by(|a, b| b.difference().abs().total_cmp(&a.difference().abs()));
            rows
        };
        let waits = Wait::ALL.into_iter().filter(|wait| *wait != Wait::Idle);
        let time = waits
            .map(|wait| {
                let cause = format!("{}_per_mib", wait.field());
                row(cause, &move |report| report.waits.of(wait))
            })
            .filter(|row| row.before.unwrap_or(0.0) + row.after.unwrap_or(0.0) > 0.0);
        let packets = [
            row("data_wire_segments_per_mib".into(), &|of| {
                of.total.data_wire_segments
            }),
            row("data_packets_per_mib".into(), &|of| {
                of.total.captured_data_packets
            }),
            row("pure_acks_per_mib".into(), &|of| of.total.pure_acks),
            row("super_segments_per_mib".into(), &|of| {
                of.total.super_segments
            }),
            row("tail_splits_per_mib".into(), &|of| of.total.tail_splits),
            row("small_packets_per_mib".into(), &|of| of.total.small_packets),
            row("retransmitted_wire_segments_per_mib".into(), &|of| {
                of.total.retransmitted_wire_segments
            }),
        ];
        let headline = |of: &Report| of.findings.first().map(Finding::in_short);
        Causes {
            files: [before.file.to_string(), after.file.to_string()],
            headlines: [headline(before), headline(after)],
            time: sorted(time.collect()),
            packets: sorted(packets.into_iter().collect()),
        }
    }

    /// Renders the comparison as a table.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (file, headline) in self.files.iter().zip(&self.headlines) {
            let headline = headline.as_deref().unwrap_or("nothing stands out");
            wrapped(&mut out, "", 2, &format!("{file}: {headline}"));
        }
        let number = |value: Option<f64>, scale: f64| {
            value.map_or(ABSENT.to_string(), |value| format!("{:.3}", value / scale))
        };
        for (title, rows, scale) in [
            ("ms for each MiB of payload", &self.time, 1e6),
            ("for each MiB of payload", &self.packets, 1.0),
        ] {
            let mut table = Table::new(&[title, "before", "after", "difference"]);
            for row in rows {
                let cause = row
                    .cause
                    .trim_end_matches("_per_mib")
                    .trim_end_matches("_ns");
                table.row(vec![
                    cause.replace('_', " "),
                    number(row.before, scale),
                    number(row.after, scale),
                    format!("{:+.3}", row.difference() / scale),
                ]);
            }
            out += "\n";
            out += &table.text(0, WIDTH);
        }
        out
    }
}
