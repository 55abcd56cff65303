//! The histogram of `-v 2`, as of a netperf that was built with it (netperf's `netlib.c`, `HIST_report`).
//! perfkitbenchmarker reads its rows.

use std::fmt::Write;

use super::Report;
use crate::options::Direction;

/// Titles of the rows, each a power of ten.
const TITLES: [&str; 8] = [
    "UNIT_USEC     ",
    "TEN_USEC      ",
    "HUNDRED_USEC  ",
    "UNIT_MSEC     ",
    "TEN_MSEC      ",
    "HUNDRED_MSEC  ",
    "UNIT_SEC      ",
    "TEN_SEC       ",
];

/// The title and the histogram. Empty if no times were taken.
pub fn titled(report: &Report<'_>, title: &str) -> String {
    let Some(buckets) = report.histogram else {
        return String::new();
    };
    let mut text = format!("{title}\n");
    for (title, row) in TITLES.iter().zip(&buckets.rows) {
        text += title;
        for count in row {
            let _ = write!(text, ": {count:>4}");
        }
        text.push('\n');
    }
    let _ = writeln!(text, ">100_SECS: {}", buckets.longer);
    let _ = writeln!(text, "HIST_TOTAL:      {}", buckets.total());
    text
}

/// The histogram below omni results, at `-v 2`.
pub fn omni(report: &Report<'_>) -> String {
    let options = report.options;
    if options.verbosity < 2 {
        return String::new();
    }
    let what = match options.direction {
        Direction::Send => "send",
        Direction::Receive => "recv",
        Direction::Both if options.is_connect_test => "connect/request/response/close",
        Direction::Both => "request/response",
    };
    titled(report, &format!("\nHistogram of {what} times"))
}
