//! uperf's output, from its formats (uperf's `print.c`, `numbers.c`): scripts read its lines.

use std::io::{self, Write};

use crate::strand::Stat;
use crate::wire::Goodbye;

/// Writer of all output.
pub struct Printer<'a> {
    pub out: &'a mut dyn Write,
    /// `-R`: numbers with their times, a line each.
    pub is_raw: bool,
    /// Columns of the terminal.
    pub width: usize,
}

/// Sum over a span of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Span {
    pub name: String,
    pub begin_ns: u64,
    pub end_ns: u64,
    pub bytes: u64,
    pub operations: u64,
}

impl Span {
    /// Sum of a part that was timed. `None` if it was not done.
    pub fn of(name: &str, stat: &Stat) -> Option<Span> {
        Some(Span {
            name: name.to_string(),
            begin_ns: stat.begin_ns?,
            end_ns: stat.end_ns,
            bytes: stat.bytes,
            operations: stat.count,
        })
    }

    fn elapsed_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }
}

impl Printer<'_> {
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    pub fn line(&mut self) -> io::Result<()> {
        let line = "-".repeat(self.width - 1) + "\n";
        self.text(&line)
    }

    /// Prints bytes and operations. `is_progress`: over the line before, unless it is raw.
    pub fn span(&mut self, span: &Span, is_progress: bool) -> io::Result<()> {
        if span.elapsed_ns() == 0 {
            return Ok(());
        }
        if self.is_raw {
            let ms = span.end_ns as f64 / 1e6;
            let (name, bytes, operations) = (&span.name, span.bytes, span.operations);
            return self.text(&format!(
                "timestamp_ms:{ms:.4} name:{name} nr_bytes:{bytes} nr_ops:{operations}\n"
            ));
        }
        let seconds = span.elapsed_ns() as f64 / 1e9;
        let mut text = String::new();
        if is_progress {
            text = format!("\r{}\r", " ".repeat(self.width - 1));
        }
        text += &format!(
            "{:<8.8} {}/{seconds:7.2}(s) = {} {:10.0}op/s ",
            span.name,
            decimal(span.bytes as f64, 8, false),
            decimal(span.bytes as f64 * 8.0 / seconds, 12, true),
            span.operations as f64 / seconds,
        );
        if !is_progress {
            text.push('\n');
        }
        self.text(&text)
    }

    pub fn title(&mut self, title: &str) -> io::Result<()> {
        self.text(&format!("\n{title}\n"))?;
        self.line()
    }

    /// Prints a table of mean, least and most times.
    pub fn averages<'s>(
        &mut self,
        label: &str,
        rows: impl Iterator<Item = (String, &'s Stat)>,
    ) -> io::Result<()> {
        const HEADER: &str = "   Count         avg         cpu         max         min ";
        self.title(&format!("{label:<15} {HEADER}"))?;
        for (name, stat) in rows.filter(|(_, stat)| stat.count > 0) {
            let mean = stat.used_ns / stat.count;
            // uperf's own is 0 on Linux, which has no gethrvtime(3C).
            let times = [mean, 0, stat.most_ns, stat.least_ns.unwrap_or(0)];
            let times = times.map(|ns| time(ns as f64, 11)).concat();
            self.text(&format!("{name:<15} {:>8} {times}\n", stat.count))?;
        }
        self.text("\n")
    }

    /// Prints what a host moved in the whole run.
    pub fn host(&mut self, host: &str, end: &Goodbye) -> io::Result<()> {
        let rate = rate(end);
        self.text(&format!(
            "{host:<15.15} {}{}{}{:>12} {:11.2}\n",
            time(end.elapsed_ns as f64, 8),
            decimal(end.bytes as f64, 10, false),
            decimal(rate, 12, true),
            end.count,
            0.0,
        ))
    }

    /// Prints by how much slaves differ from the master, percent.
    pub fn difference(&mut self, master: &Goodbye, slaves: &Goodbye) -> io::Result<()> {
        let percent = |master: f64, slave: f64| match slave {
            0.0 => 0.0,
            slave => 100.0 - 100.0 * slave / master,
        };
        self.line()?;
        let counts = |of: fn(&Goodbye) -> u64| percent(of(master) as f64, of(slaves) as f64);
        self.text(&format!(
            "{:<15} {:7.2}% {:9.2}% {:11.2}% {:11.2}% {:10.2}%\n\n",
            "Difference(%)",
            counts(|end| end.elapsed_ns),
            counts(|end| end.bytes),
            percent(rate(master), rate(slaves)),
            counts(|end| end.count),
            0.0,
        ))
    }
}

/// Bits per second; 1 without a time, as in uperf.
fn rate(end: &Goodbye) -> f64 {
    match end.elapsed_ns {
        0 => 1.0,
        ns => end.bytes as f64 * 8.0 / (ns as f64 / 1e9),
    }
}

/// A number of bytes in steps of 1024, or of bits per second in steps of 1000, right-aligned with a space after it. uperf cuts
/// what has no room.
pub fn decimal(value: f64, width: usize, is_bits: bool) -> String {
    const SUFFIXES: &[u8] = b" KMGTPEZ";
    let step = if is_bits { 1000.0 } else { 1024.0 };
    let (mut rest, mut power) = (value, 0);
    while rest > step && power + 1 < SUFFIXES.len() {
        rest /= step;
        power += 1;
    }
    let mut text = match (value == 0.0, power) {
        (true, _) => "0".to_string(),
        (false, 0) => format!("{rest:.2}"),
        (false, power) => format!("{rest:.2}{}", char::from(SUFFIXES[power])),
    };
    if value != 0.0 {
        text += if is_bits { "b/s" } else { "B" };
    }
    text.truncate(width - 1);
    format!("{text:>width$} ")
}

/// A time with its unit, right-aligned with a space after it.
fn time(ns: f64, width: usize) -> String {
    let mut value = ns;
    for unit in ["ns", "us", "ms"] {
        if value < 1000.0 {
            return format!("{:>width$} ", format!("{value:.2}{unit}"));
        }
        value /= 1000.0;
    }
    format!("{:>width$} ", format!("{value:.2}s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(print: impl Fn(&mut Printer<'_>) -> io::Result<()>, is_raw: bool) -> String {
        let mut out = Vec::new();
        let mut printer = Printer {
            out: &mut out,
            is_raw,
            width: 80,
        };
        print(&mut printer).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_cut_as_uperf_cuts_them() {
        assert_eq!(decimal(0.0, 8, false), "       0 ");
        assert_eq!(decimal(512.0, 8, false), " 512.00B ");
        assert_eq!(decimal(24.39 * 1048576.0, 8, false), " 24.39MB ");
        assert_eq!(decimal(102.28 * 1048576.0, 8, false), " 102.28M ");
        assert_eq!(decimal(267.75e6, 12, true), "  267.75Mb/s ");
        assert_eq!(time(669_750.0, 11), "   669.75us ");
        assert_eq!(time(0.0, 11), "     0.00ns ");
        assert_eq!(time(5.21e9, 8), "   5.21s ");
    }

    #[test]
    fn lines_are_uperfs() {
        let span = Span {
            name: "Txn2".to_string(),
            begin_ns: 1_795_833_665_602_000_000,
            end_ns: 1_795_833_666_603_227_800,
            bytes: 40_080_640,
            operations: 626_260,
        };
        assert_eq!(
            printed(|printer| printer.span(&span, true), true),
            "timestamp_ms:1795833666603.2278 name:Txn2 nr_bytes:40080640 nr_ops:626260\n"
        );
        let total = Span {
            name: "Total".to_string(),
            begin_ns: 0,
            end_ns: 5_210_000_000,
            bytes: 107_252_000,
            operations: 1_675_625,
        };
        assert_eq!(
            printed(|printer| printer.span(&total, false), false),
            "Total     102.28M /   5.21(s) =   164.69Mb/s      321617op/s \n"
        );
        let end = Goodbye {
            elapsed_ns: 5_210_000_000,
            bytes: 123_292_000,
            count: 1_926_438,
            ..Goodbye::default()
        };
        assert_eq!(
            printed(|printer| printer.host("master", &end), false),
            "master             5.21s   117.58MB   189.32Mb/s      1926438        0.00\n"
        );
        let stat = Stat {
            count: 2,
            used_ns: 1_337_680,
            most_ns: 952_940,
            least_ns: Some(384_740),
            ..Stat::default()
        };
        let rows = || [("connect".to_string(), &stat)].into_iter();
        let table = printed(|printer| printer.averages("Flowop", rows()), false);
        let row = table.lines().nth(3).unwrap();
        assert_eq!(
            row,
            "connect                2    668.84us      0.00ns    952.94us    384.74us "
        );
    }
}
