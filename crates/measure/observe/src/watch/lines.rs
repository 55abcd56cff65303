//! Lines as vmstat prints them, with a header every 20 lines.

use std::io::{self, Write};
use std::ops::ControlFlow;

use tcpcost_counts::table::{Align, Table};

use crate::watch::causes;
use crate::watch::column::Column;
use crate::watch::connections::Wanted;
use crate::watch::driver::{Moment, View};
use crate::watch::rows::{By, Row, top};
use crate::watch::sample::{COLUMNS, Sample};
use crate::watch::sources::About;

/// Writes lines to a pipe, a file or a terminal.
pub struct Lines<W> {
    out: W,
    wanted: Wanted,
    shown: u64,
}

impl<W: Write> Lines<W> {
    /// Prints first what the figures mean.
    pub fn new(mut out: W, about: &About, wanted: &Wanted) -> io::Result<Lines<W>> {
        for line in about.lines() {
            writeln!(out, "# {line}")?;
        }
        Ok(Lines {
            out,
            wanted: wanted.clone(),
            shown: 0,
        })
    }
}

impl<W: Write> View for Lines<W> {
    fn show(&mut self, _: &Moment, sample: &Sample) -> io::Result<ControlFlow<()>> {
        if self.shown.is_multiple_of(HEADER_EVERY) {
            writeln!(self.out, "{}", cells(|column| column.heading().to_string()))?;
        }
        self.shown += 1;
        for warning in &sample.growth.warnings {
            writeln!(self.out, "# {warning}")?;
        }
        writeln!(self.out, "{}", cells(|column| sample.text(column)))?;
        if let Some(causes) = causes::told(sample) {
            writeln!(self.out, "  {causes}")?;
        }
        if let Some(rows) = &sample.rows {
            for (&by, &most) in &self.wanted.rows {
                let top = top(rows, by, most);
                self.out
                    .write_all(table(by, &top, sample.growth.duration_ns).as_bytes())?;
            }
        }
        self.out.flush()?;
        Ok(ControlFlow::Continue(()))
    }
}

/// Cells right-aligned under their heads. A wider cell moves the rest to the right.
fn cells(cell: impl Fn(&Column) -> String) -> String {
    let cells = COLUMNS
        .iter()
        .map(|column| format!("{:>1$}", cell(column), width(column)));
    cells.collect::<Vec<_>>().join(" ")
}

/// Rows of one view below their interval's line, no wider than necessary.
fn table(by: By, rows: &[Row], duration_ns: u64) -> String {
    let columns = by.columns();
    let heads = columns
        .iter()
        .map(|column| (column.heading(), Align::Right));
    let heads: Vec<_> = heads.chain([(by.name(), Align::Left)]).collect();
    let mut table = Table::aligned(&heads).with_gap(1);
    for row in rows {
        let texts = columns.iter().map(|column| row.text(column, duration_ns));
        table.row(texts.chain([row.label()]).collect());
    }
    table.text(2, usize::MAX)
}

/// Width of a column: that of its head, of `65535` or of `100.0`.
pub fn width(column: &Column) -> usize {
    column
        .heading()
        .len()
        .max(4 + usize::from(column.decimals > 0))
}

/// Same as vmstat on a terminal of 24 rows.
const HEADER_EVERY: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::testing::{about, cost, counters_only, row, tracepoints};
    use tcpcost_counts::{MeterName, Quantity};
    use tcpcost_meter::holder::Port;

    fn printed(has_ebpf: bool, samples: &[Sample]) -> String {
        let mut out = Vec::new();
        let mut wanted = Wanted::default();
        wanted.rows.insert(By::Connection, 1);
        wanted.rows.insert(By::Process, 2);
        let mut lines = Lines::new(&mut out, &about(has_ebpf), &wanted).unwrap();
        for sample in samples {
            assert!(
                lines
                    .show(&Moment::default(), sample)
                    .unwrap()
                    .is_continue()
            );
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_stand_under_their_heads() {
        assert_eq!(
            printed(true, &[tracepoints(0), tracepoints(10)]),
            "\
# tier: counters, tracepoints, PMU (core cycles); CPU: exact by eBPF (task + softirq + hard irq) of 2 CPUs
# Gb/s: TCP payload of this network namespace; us/KiB: all busy CPU of the host per KiB out and in
# eBPF above 0.6 % of a CPU is sampled: seen% is its share of time, +-% the error of Gb/s
out Gb/s in Gb/s us/KiB cyc/KiB seg/skb skb B tail% seg/ack> seg/ack< call% ack% tsq% tmr% sirq% retr/s self% seen%   +-%
   1.000   0.100  7.447   23831    10.0 12500   5.0     20.0     10.0    60   30    8    2  12.5      7  0.75   5.0   1.5
   2.000   0.200  3.724   11916    10.0 12500   5.0     20.0     10.0    60   30    8    2  12.5      7  0.75   5.0   1.5
"
        );
    }

    #[test]
    fn what_is_absent_is_a_dash_and_the_header_says_why() {
        assert_eq!(
            printed(false, &[counters_only(0)]),
            "\
# tier: counters only; CPU: by /proc/stat (time not idle) of 2 CPUs
# Gb/s: IP bytes of all protocols of this network namespace; us/KiB: all busy CPU of the host per KiB out and in
# meter exact: load: Operation not permitted (needs CAP_BPF)
out Gb/s in Gb/s us/KiB cyc/KiB seg/skb skb B tail% seg/ack> seg/ack< call% ack% tsq% tmr% sirq% retr/s self% seen%   +-%
   1.040   0.104  7.197       -       -     -     -        -        -     -    -    -    -  10.0      7  0.50     -     -
"
        );
    }

    #[test]
    fn the_header_comes_again_every_twenty_lines() {
        let text = printed(true, &vec![tracepoints(0); 41]);
        let heads = text.lines().enumerate();
        let heads: Vec<usize> = heads
            .filter(|(_, line)| line.contains("us/KiB cyc"))
            .map(|(index, _)| index)
            .collect();
        assert_eq!(heads, [3, 24, 45]);
    }

    #[test]
    fn views_of_connections_stand_under_their_line() {
        let mut sample = tracepoints(0);
        let mut host = Row {
            is_host: true,
            counts: cost(0, "", None).counts,
            ..Row::default()
        };
        host.counts.remove(&Quantity::HolderUserNs);
        sample.rows = Some(vec![
            row(7, "web", 1_000_000),
            row(8, "db", 125_000_000),
            cost(7, "web", None),
            cost(7, "web", Some(Port::Served(80))),
            host,
        ]);
        let text = printed(true, &[sample]);
        let views = text.lines().skip(5).map(|line| format!("{line}\n"));
        assert_eq!(
            views.collect::<String>(),
            "  \
out Gb/s in Gb/s seg/s> seg/s< seg/ack> seg/ack< retr/s seg/skb  skb B tail% burst> acks< connections
     1.000   0.000  20000   2000     10.0        -      3    40.0 250000  10.0   50.0   1.6 10.0.0.1:40000 10.0.0.2:443 8 db
  out Gb/s in Gb/s  us/KiB cpu% user% sys% sirq% irq% seg/s> seg/s< retr/s processes
     0.008   0.000 716.800 70.0  10.0 20.0  30.0 10.0  20000   2000      3 7 web (1)
     1.000   0.000       -    -     -    -     -    -  20000   2000      3 8 db (1)
         -       -       - 30.0     -    -   0.0  0.0      -      -      - the host: without a socket
"
        );
    }

    #[test]
    fn what_went_wrong_stands_under_its_line() {
        let mut sample = counters_only(0);
        let netstat = sample.growth.counts.get_mut(&MeterName::Netstat).unwrap();
        netstat.insert(Quantity::ReceiveCollapsed, 3);
        let text = printed(false, &[sample, counters_only(0)]);
        assert_eq!(text.matches("also, per s").count(), 1);
        assert!(
            text.contains("    -\n  also, per s: collapse 3\n"),
            "{text}"
        );
    }

    #[test]
    fn a_note_stands_before_its_line() {
        let mut sample = counters_only(0);
        sample
            .growth
            .warnings
            .push("meter netstat: gone".to_string());
        let text = printed(false, &[sample]);
        assert!(text.contains("+-%\n# meter netstat: gone\n"), "{text}");
    }
}
