//! Reports as text: findings first, then a row for each direction, or one connection in depth.

mod connection;

use std::fmt::Write as _;

pub use self::connection::connection_text;
use crate::connection::{Began, Ended};
use crate::findings::Finding;
use crate::policy::{Policy, PolicyGuess};
use crate::report::{ConnectionReport, Report};

/// Connections that the table shows: those with most payload. `--connection` shows any.
const ROWS: usize = 20;

/// A capture: what it holds, what costs most, and its largest connections.
pub fn text(report: &Report) -> String {
    summary(report) + &largest(report)
}

/// What it holds, and what costs most.
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
        let _ = writeln!(out, "  {note}");
    }
    if let Some(per) = &report.per_mib {
        let _ = writeln!(
            out,
            "\nEvents that cost CPU, for each MiB of payload (estimates: a capture has no CPU time): {:.0} packets with it ({:.0} wire segments, {:.1} super-segments), {:.0} pure ACKs",
            per.data_packets, per.data_wire_segments, per.super_segments, per.pure_acks
        );
        lines(&mut out, &report.costs);
    }
    out
}

fn lines(out: &mut String, findings: &[Finding]) {
    for (place, finding) in findings.iter().enumerate() {
        let _ = writeln!(
            out,
            "  {}. {:.0} % of {}: {}\n     knob: {}",
            place + 1,
            finding.share_ratio * 100.0,
            finding.share_of,
            finding.text,
            finding.knob
        );
    }
}

/// Its largest connections.
pub(crate) fn largest(report: &Report) -> String {
    let mut out = String::new();
    let mut order: Vec<&ConnectionReport> = report.connections.iter().collect();
    order.sort_by_key(|connection| std::cmp::Reverse(connection.payload_bytes()));
    let shown = &order[..order.len().min(ROWS)];
    if !shown.is_empty() {
        out += "\n";
        out += &table(shown);
    }
    if shown.len() < order.len() {
        let _ = writeln!(
            out,
            "{} connections more, with less payload; --csv and --json have all",
            order.len() - shown.len()
        );
    }
    out
}

fn head(report: &Report) -> String {
    let mut out = format!("{}: ", report.file);
    let form = report.form.map_or("unknown form", |form| match form {
        crate::Form::Pcap => "pcap",
        crate::Form::Pcapng => "pcapng",
        crate::Form::TcpdumpText => "tcpdump's text",
        crate::Form::Live => "live",
    });
    let _ = writeln!(
        out,
        "{form}, {} packets, {} connections",
        report.packets, report.connections_begun
    );
    let gone = report.connections_begun - report.connections.len();
    if gone > 0 {
        let _ = writeln!(
            out,
            "{gone} of them are in totals and findings, but no longer listed"
        );
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
        let _ = writeln!(out, "left out: {}", parts.join(", "));
    }
    let lost = report.total.bytes_missing_from_capture;
    if report.form == Some(crate::Form::Live) && report.dropped_by_capture == Some(0) && lost == 0 {
        let _ = writeln!(out, "the kernel dropped no packet of the capture");
    }
    if report.dropped_by_capture.is_some_and(|dropped| dropped > 0) || lost > 0 {
        let dropped = report
            .dropped_by_capture
            .map_or("an unknown number of".to_string(), |n| n.to_string());
        let _ = writeln!(
            out,
            "the capture lost {dropped} packets; {lost} acknowledged bytes are not in it: its counts are too small"
        );
    }
    if report.total.captured_twice > 0 {
        let _ = writeln!(
            out,
            "{} packets are in it twice and counted once",
            report.total.captured_twice
        );
    }
    for (link, packets) in &report.links_unread {
        let _ = writeln!(
            out,
            "{packets} packets of link type {link} are not read (tcpdump.org/linktypes.html has its name)"
        );
    }
    if let Some(broken) = &report.broken {
        let _ = writeln!(out, "broken {broken}; what was read until there follows");
    }
    out
}

fn table(connections: &[&ConnectionReport]) -> String {
    let header = [
        "#",
        "sender > receiver",
        "KiB",
        "data wire segs",
        "per packet",
        "receiver's pure ACKs",
        "segs/ACK",
        "stretch",
        "tail splits",
        "resent",
        "stalls ms",
        "receiver's ACK policy",
    ];
    let mut rows: Vec<[String; 12]> = Vec::new();
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
            // Of an end that was not captured nothing is known.
            let of_receiver = |count: u64| match receiver.sent.captured_packets {
                0 => ABSENT.to_string(),
                _ => count.to_string(),
            };
            let stalls = connection
                .duration_ns
                .map(|_| format!("{:.1}", sent.delayed_ack_stall_ns as f64 / 1e6));
            rows.push([
                number,
                format!("{} > {}", sender.address, receiver.address),
                format!("{:.1}", sent.payload_bytes as f64 / 1024.0),
                sent.data_wire_segments.to_string(),
                decimal(sender.wire_segments_per_packet.mean),
                of_receiver(receiver.sent.pure_acks),
                decimal(receiver.captured_wire_segments_per_pure_ack_sent),
                of_receiver(receiver.stretch_acks),
                sent.tail_splits.to_string(),
                sent.retransmitted_packets.to_string(),
                stalls.unwrap_or_else(|| ABSENT.to_string()),
                policy(&receiver.ack_policy),
            ]);
        }
    }
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells
            .chain([header[column].chars().count()])
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut out = String::new();
    let mut put = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (column, (cell, &width)) in cells.zip(&widths).enumerate() {
            let _ = match column {
                1 | 11 => write!(text, "{cell:<width$}  "),
                _ => write!(text, "{cell:>width$}  "),
            };
        }
        out += text.trim_end();
        out += "\n";
    };
    put(&mut header.iter().copied());
    for row in &rows {
        put(&mut row.iter().map(String::as_str));
    }
    out
}

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

fn began(began: Began) -> &'static str {
    match began {
        Began::Handshake => "began with its handshake",
        Began::OneSyn => "one SYN captured",
        Began::BeforeCapture => "began before the capture",
    }
}

fn ended(connection: &ConnectionReport) -> String {
    let name = |end: usize| connection.ends[end].address.as_str();
    match connection.ended {
        Ended::Fin { first } => format!("closed, first by {}", name(first)),
        Ended::HalfClosed { by } => format!("closed by {} alone", name(by)),
        Ended::Reset { by } => format!("reset by {}", name(by)),
        Ended::NotSeen => "end not captured".to_string(),
    }
}

/// What was guessed, and what would look the same.
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
