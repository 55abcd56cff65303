//! `tcpcost trace --follow`: analyses a growing file, a pipe or an interface until Ctrl-C.
//!
//! One thread does all work. It waits for packets for at most [`STEP`] at a time, and shows a
//! report between two waits when one is due. A file that replaces another of the same name
//! continues the same capture.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tcpcost_console::exit::{Exit, Stop, unread, usage};
use tcpcost_console::format::Format;
use tcpcost_console::output;
use tcpcost_trace::{
    Analysis, Graph, Link, ReadFailure, Reading, Report, Segment, Sink, connection_text, follow,
    json_line, parse, text,
};

use super::growing::{FileEnd, Growing};
use super::{Options, TraceArgs};
use tcpcost_host::libpcap::{CaptureError, Live};
use tcpcost_observe::ticker::Clock;
use tcpcost_signals::Interrupt;

/// Signal that ends the process at once. The first one ends the capture with a report.
const ENDS_AT_ONCE: u32 = 2;

/// Longest wait for packets before signals and due reports are handled.
const STEP: Duration = Duration::from_millis(100);

/// Bytes captured of a packet: the longest headers of a tunnelled packet. These are Ethernet (14),
/// IPv6 (40), UDP and VXLAN (16), Ethernet (14), IPv6 (40), TCP (60), and two VLAN tags (8).
const SNAP_LEN: u32 = 192;

/// Size of the ring. With 192 bytes and a header for each packet, it holds about 40 ms of a million
/// packets per second.
const RING_BYTES: usize = 12 << 20;

/// Limit of connections held at a time: about 60 MiB.
const CONNECTIONS_MOST: usize = 4096;

/// Follows a file or an interface; prints the final report at the end.
pub fn trace(args: &TraceArgs) -> anyhow::Result<Exit> {
    let interrupt = Interrupt::watch(ENDS_AT_ONCE)?;
    let options = Options::new(args)?;
    let mut follower = Follower::new(args, &options, interrupt);
    let exit = match (&args.interface, &args.files[..]) {
        (Some(interface), _) => interface_to(&mut follower, interface)?,
        (None, [file]) => file_to(&mut follower, file)?,
        (None, _) => return Err(usage("--follow: wants one file, or --interface")),
    };
    let report = follower.report(&Reading::default());
    super::print(
        args,
        &[report],
        follower.analysis.watch(),
        |reports, out| out.write_all(json_line(reports).as_bytes()),
    )?;
    Ok(exit)
}

fn file_to(follower: &mut Follower<'_>, path: &Path) -> anyhow::Result<Exit> {
    let mut exit = Exit::Ok;
    loop {
        let mut source = Growing::open(path, STEP).map_err(|error| unread(path, &error))?;
        let (reading, outcome) = follow(&mut source, follower);
        follower.before.add(reading);
        if let Err(broken) = outcome {
            output::say!("tcpcost: {}: {broken}", path.display());
            follower.broken = Some(broken);
            exit = Exit::Failed;
        }
        match source.ended() {
            Some(FileEnd::Replaced) if !follower.over => {
                output::say!(
                    "tcpcost: {}: replaced: continues with the new file",
                    path.display()
                );
            }
            Some(FileEnd::Cut) if !follower.over => {
                output::say!(
                    "tcpcost: {}: cut short: continues from its start",
                    path.display()
                );
            }
            _ => return Ok(exit),
        }
    }
}

fn interface_to(follower: &mut Follower<'_>, interface: &str) -> anyhow::Result<Exit> {
    let opened = Live::open(interface, SNAP_LEN, RING_BYTES);
    let mut live = opened.map_err(|error| match error {
        CaptureError::Unavailable(text) => anyhow::Error::new(Stop {
            exit: Exit::Unavailable,
            text,
        }),
        failed @ CaptureError::Failed(_) => failed.into(),
    })?;
    let link = Link::from_number(live.link_type().into());
    if matches!(link, Link::Unknown(_)) {
        bail!(
            "capture on {interface}: its link type {} is not read",
            live.link_type()
        );
    }
    let mut reading = Reading {
        form: Some(tcpcost_trace::CaptureFormat::Live),
        ..Reading::default()
    };
    let mut exit = Exit::Ok;
    loop {
        live.wait(STEP).context("poll the capture")?;
        // An error here (the interface goes down) ends the capture. The packets seen until then are
        // reported.
        let taken = live.packets(|at_ns, wire, frame| {
            reading.packets += 1;
            reading.bytes += frame.len() as u64;
            if let Some(mut segment) = parse(link, frame, wire, at_ns, &mut reading.skipped) {
                segment.frame = reading.packets;
                follower.segment(&segment);
            }
        });
        reading.dropped_by_capture = live.dropped().ok().or(reading.dropped_by_capture);
        if let Err(error) = taken {
            output::say!("tcpcost: {error}");
            exit = Exit::Failed;
            break;
        }
        if !follower.goes_on(&reading) {
            break;
        }
    }
    follower.before.add(reading);
    Ok(exit)
}

/// The analysis of the packets, and the state of the periodic reports.
struct Follower<'a> {
    analysis: Analysis<Graph>,
    args: &'a TraceArgs,
    name: String,
    clock: Clock,
    started: Instant,
    left: Option<u64>,
    over: bool,
    on_terminal: bool,
    /// Counts of the earlier files of the capture.
    before: Reading,
    broken: Option<ReadFailure>,
}

impl<'a> Follower<'a> {
    fn new(args: &'a TraceArgs, options: &Options, interrupt: Interrupt) -> Follower<'a> {
        let name = match (&args.interface, args.files.first()) {
            (Some(interface), _) => interface.clone(),
            (None, file) => file.map_or(String::new(), |file| file.display().to_string()),
        };
        Follower {
            analysis: options.analysis().holding(CONNECTIONS_MOST),
            args,
            name,
            clock: Clock::new(args.interval, interrupt),
            started: Instant::now(),
            left: args.count,
            over: false,
            on_terminal: io::stdout().is_terminal(),
            before: Reading::default(),
            broken: None,
        }
    }

    fn report(&self, so_far: &Reading) -> Report {
        let mut reading = self.before.clone();
        reading.add(so_far.clone());
        let outcome = self.broken.as_ref().map_or(Ok(()), Err);
        self.analysis.report(&self.name, &reading, outcome)
    }

    /// Shows a report of the packets so far. True unless the reader has closed its end.
    fn show(&self, so_far: &Reading) -> anyhow::Result<bool> {
        if self.args.output.has(Format::Csv) {
            return Ok(true);
        }
        let report = self.report(so_far);
        if self.args.output.has(Format::Json) {
            return output::write_json(&json_line(&[report]));
        }
        if !self.on_terminal {
            return output::write(&self.line(&report));
        }
        let wanted = |&number: &usize| match report.connections.iter().find(|c| c.number == number)
        {
            Some(connection) => {
                let graph = self.analysis.watch().of_connection(number);
                connection_text(&report, connection, graph)
            }
            None => format!("{}: no connection {number} yet\n", self.name),
        };
        let shown = match &self.args.connection[..] {
            [] => text(&report),
            numbers => numbers.iter().map(wanted).collect::<Vec<_>>().join("\n"),
        };
        let rows =
            rustix::termios::tcgetwinsize(io::stdout()).map_or(24, |size| usize::from(size.ws_row));
        let fits: Vec<&str> = shown.lines().take(rows.saturating_sub(1)).collect();
        output::write_screen(&format!("{}\n", fits.join("\n")))
    }

    /// Returns a report as one line.
    fn line(&self, report: &Report) -> String {
        let dropped = report
            .dropped_by_capture
            .map_or(String::new(), |dropped| format!(", {dropped} dropped"));
        let first = report.findings.first().map_or(String::new(), |finding| {
            let percent = finding.share_ratio * 100.0;
            format!("; {percent:.0} % {}", finding.kind.replace('_', " "))
        });
        format!(
            "{:.1} s: {} packets{dropped}, {} connections, {:.1} KiB, {} retransmitted, {} stalls{first}\n",
            self.started.elapsed().as_secs_f64(),
            report.packets,
            report.connections_begun,
            report.total.payload_bytes as f64 / 1024.0,
            report.total.retransmitted_packets,
            report.total.delayed_ack_stalls,
        )
    }
}

impl Sink for Follower<'_> {
    #[inline]
    fn segment(&mut self, segment: &Segment) {
        self.analysis.segment(segment);
    }

    fn goes_on(&mut self, so_far: &Reading) -> bool {
        if !self.over && self.clock.due().is_some() {
            // No reader is left, or the write failed.
            self.over |= !self.show(so_far).unwrap_or(false);
            self.left = self.left.map(|left| left - 1);
            self.over |= self.left == Some(0);
        }
        self.over |= self.clock.is_ended(Duration::ZERO);
        !self.over
    }
}
