//! Reports as text: findings first, then a table of the largest connections, or one connection in
//! depth.

mod connection;
mod wrap;

use std::fmt::Write as _;

pub use self::connection::connection_text;
pub(crate) use self::wrap::wrapped;
use crate::connection::{ConnectionEnd, ConnectionStart, Handshake};
use crate::findings::Finding;
use crate::policy::{Policy, PolicyGuess};
use crate::report::{ConnectionReport, Report};

/// Limit of connections in the table: those with the most payload. `--connection` shows any.
const ROWS: usize = 10;

/// Renders a capture: its contents, what costs most, and its largest connections.
pub fn text(report: &Report) -> String {
    summary(report) + &largest(report)
}

/// Renders the contents of a capture, and what costs most.
pub(crate) fn summary(report: &Report) -> String {
    let mut out = head(report);
    if report.connections_begun == 0 {
        out += "\nNo TCP connection is in it.\n";
        return out;
    }
    if report.findings.is_empty() {
        out += "\nNo findings.\n";
    } else {
        out += "\nWhere time was spent waiting, and what went wrong\n";
        lines(&mut out, &report.findings);
    }
    for note in &report.notes {
        wrapped(&mut out, "  ", 2, note);
    }
    if let Some(per) = &report.per_mib {
        let events = format!(
            "Events that cost CPU, for each MiB of payload (estimates: a capture has no CPU time): {:.0} packets with it ({:.0} wire segments, {:.1} super-segments, {:.1} tail splits), {:.0} pure ACKs",
            per.data_packets,
            per.data_wire_segments,
            per.super_segments,
            per.tail_splits,
            per.pure_acks
        );
        wrapped(&mut out, "\n", 0, &events);
        lines(&mut out, &report.costs);
    }
    out
}

fn lines(out: &mut String, findings: &[Finding]) {
    for (place, finding) in findings.iter().enumerate() {
        let number = format!("  {}. ", place + 1);
        let share = finding.share_ratio * 100.0;
        let found = format!("{share:.0} % of {}: {}", finding.share_of, finding.text);
        wrapped(out, &number, 5, &found);
        wrapped(out, "     knob: ", 11, finding.knob);
    }
}

/// Renders the table of the largest connections.
pub(crate) fn largest(report: &Report) -> String {
    let mut out = String::new();
    // Failed handshakes are in the findings.
    let is_failed = |of: &&ConnectionReport| {
        use Handshake::{HalfOpen, Refused, Unanswered};
        matches!(of.handshake, Some(HalfOpen | Refused | Unanswered))
    };
    let all = report.connections.iter();
    let mut order: Vec<&ConnectionReport> = all.filter(|of| !is_failed(of)).collect();
    order.sort_by_key(|connection| std::cmp::Reverse(connection.payload_bytes()));
    let shown = &order[..order.len().min(ROWS)];
    if !shown.is_empty() {
        out += "\n";
        out += &table(shown);
    }
    if shown.len() < order.len() {
        let _ = writeln!(
            out,
            "{} connections more, with less payload; --format csv and --format json have all",
            order.len() - shown.len()
        );
    }
    out
}

fn head(report: &Report) -> String {
    let mut out = String::new();
    let mut put = |text: String| wrapped(&mut out, "", 2, &text);
    let form = report.form.map_or("unknown form", |form| match form {
        crate::CaptureFormat::Pcap => "pcap",
        crate::CaptureFormat::Pcapng => "pcapng",
        crate::CaptureFormat::TcpdumpText => "tcpdump's text",
        crate::CaptureFormat::Live => "live",
    });
    put(format!(
        "{}: {form}, {} packets, {} connections",
        report.file, report.packets, report.connections_begun
    ));
    let gone = report.connections_begun - report.connections.len();
    if gone > 0 {
        put(format!(
            "{gone} of them are in totals and findings, but no longer listed"
        ));
    }
    let skipped = &report.skipped;
    let parts = [
        (skipped.not_ip, "not IP"),
        (skipped.not_tcp, "not TCP"),
        (skipped.fragments, "IP fragments"),
        (skipped.headers_cut, "headers cut by the snap length"),
        (skipped.malformed, "malformed"),
        (skipped.link_unknown, "of an unknown link type"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|part| part.0 > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if !parts.is_empty() {
        put(format!("omitted: {}", parts.join(", ")));
    }
    let lost = report.total.bytes_missing_from_capture;
    if report.form == Some(crate::CaptureFormat::Live)
        && report.dropped_by_capture == Some(0)
        && lost == 0
    {
        put("the kernel dropped no packet of the capture".to_string());
    }
    if report.dropped_by_capture.is_some_and(|dropped| dropped > 0) || lost > 0 {
        let dropped = report
            .dropped_by_capture
            .map_or("an unknown number of".to_string(), |n| n.to_string());
        put(format!(
            "the capture lost {dropped} packets; {lost} acknowledged bytes are not in it: its counts are too small"
        ));
    }
    let gaps = report.total.gaps_not_followed;
    if gaps > 0 {
        put(format!(
            "{gaps} gaps in sequence numbers were not followed, because too many were open at once: retransmitted, late and missing data are estimates"
        ));
    }
    if report.total.captured_twice > 0 {
        put(format!(
            "{} packets are in it twice and counted once",
            report.total.captured_twice
        ));
    }
    for (link, packets) in &report.links_unread {
        put(format!(
            "{packets} packets of link type {link} are not read (tcpdump.org/linktypes.html has its name)"
        ));
    }
    if let Some(broken) = &report.broken {
        put(format!(
            "broken {broken}; what was read until there follows"
        ));
    }
    out
}

/// Renders two lines for each direction, because addresses and numbers in one line are wider than a
/// terminal.
fn table(connections: &[&ConnectionReport]) -> String {
    let mut out = String::from("#  sender > receiver: the receiver's ACK policy, guessed\n");
    let numbers = |cells: [&str; COLUMNS.len()]| {
        let cells = cells.iter().zip(COLUMNS);
        let cells = cells.map(|(cell, (_, width))| format!("  {cell:>width$}"));
        " ".to_string() + &cells.collect::<String>() + "\n"
    };
    out += &numbers(COLUMNS.map(|(name, _)| name));
    for connection in connections {
        let [client, server] = &connection.ends;
        for (place, (sender, receiver)) in
            [(client, server), (server, client)].into_iter().enumerate()
        {
            if place == 1 && sender.sent.payload_bytes == 0 {
                continue;
            }
            let sent = &sender.sent;
            let number = if place == 0 {
                connection.number.to_string()
            } else {
                String::new()
            };
            // Nothing is known of an end that was not captured.
            let of_receiver = |count: u64| match receiver.sent.captured_packets {
                0 => ABSENT.to_string(),
                _ => count.to_string(),
            };
            let stalls = connection
                .duration_ns
                .map(|_| format!("{:.1}", sent.delayed_ack_stall_ns as f64 / 1e6));
            let (from, to) = (&sender.address, &receiver.address);
            let ends = format!("{from} > {to}: {}", policy(&receiver.ack_policy));
            wrapped(&mut out, &format!("{number:<3}"), 5, &ends);
            out += &numbers([
                &format!("{:.1}", sent.payload_bytes as f64 / 1024.0),
                &sent.data_wire_segments.to_string(),
                &decimal(sender.wire_segments_per_packet.mean),
                &of_receiver(receiver.sent.pure_acks),
                &decimal(receiver.captured_wire_segments_per_pure_ack_sent),
                &of_receiver(receiver.stretch_acks),
                &sent.tail_splits.to_string(),
                &sent.retransmitted_packets.to_string(),
                &stalls.unwrap_or_else(|| ABSENT.to_string()),
            ]);
        }
    }
    out
}

/// Columns of the second line, with widths: sent data, then the receiver's ACKs, then
/// retransmissions and stalls.
const COLUMNS: [(&str, usize); 9] = [
    ("KiB", 10),
    ("wire segs", 10),
    ("per packet", 10),
    ("pure ACKs", 9),
    ("segs/ACK", 8),
    ("stretch", 7),
    ("tails", 7),
    ("resent", 7),
    ("stalls ms", 9),
];

const ABSENT: &str = "–";

fn decimal(value: Option<f64>) -> String {
    value.map_or(ABSENT.to_string(), |value| {
        if value >= 100.0 {
            format!("{value:.0}")
        } else {
            format!("{value:.2}")
        }
    })
}

fn ms(ns: u64) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}

fn began(began: ConnectionStart) -> &'static str {
    match began {
        ConnectionStart::Handshake => "began with its handshake",
        ConnectionStart::OneSyn => "one SYN captured",
        ConnectionStart::BeforeCapture => "began before the capture",
    }
}

fn ended(connection: &ConnectionReport) -> String {
    let name = |end: usize| connection.ends[end].address.as_str();
    match connection.ended {
        ConnectionEnd::Fin { first } => format!("closed, first by {}", name(first)),
        ConnectionEnd::HalfClosed { by } => format!("closed by {} alone", name(by)),
        ConnectionEnd::Reset { by } => format!("reset by {}", name(by)),
        ConnectionEnd::NotSeen => "end not captured".to_string(),
    }
}

/// Name of the guessed policy, and of policies that would look the same.
fn policy(guess: &PolicyGuess) -> String {
    let all = [guess.policy].into_iter().chain(guess.or.iter().copied());
    all.map(policy_name).collect::<Vec<_>>().join(", or ")
}

fn policy_name(policy: Policy) -> String {
    match policy {
        Policy::Unknown => "unknown".to_string(),
        Policy::EverySegments { segments: 1 } => "every segment".to_string(),
        Policy::EverySegments { segments: 2 } => "every two segments".to_string(),
        Policy::EverySegments { segments } => format!("every {segments} segments"),
        Policy::GrowingAvoidance { most } => format!("avoidance growing to {most}"),
        Policy::PerBatch => "one per batch (GRO/TSO)".to_string(),
        Policy::ByTimer => "by timer".to_string(),
        Policy::OnRead => "on read".to_string(),
        Policy::Mixed => "mixed".to_string(),
    }
}
