//! Reports as text: findings first, then a table of the largest connections, or one connection in
//! depth.

mod connection;

use std::fmt::Write as _;

use tcpcost_counts::Figure;
use tcpcost_counts::table::{ABSENT, Table, WIDTH, wrap_after};

pub use self::connection::connection_text;
use crate::connection::{ConnectionEnd, ConnectionStart, Handshake};
use crate::findings::{Finding, count, seconds};
use crate::policy::{Policy, PolicyGuess};
use crate::report::{ConnectionReport, EndReport, Report};
use crate::waits::Wait;

/// Limit of connections in the table: those with the most payload. `--connection` shows any.
const ROWS: usize = 10;

/// Appends `first` and `text`, broken between words. Further lines begin with `indent` spaces.
pub(crate) fn wrapped(out: &mut String, first: &str, indent: usize, text: &str) {
    *out += &wrap_after(first, text, WIDTH, &" ".repeat(indent));
    *out += "\n";
}

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
        out += "\n";
        wrapped(&mut out, "", 0, &events);
        lines(&mut out, &report.costs);
    }
    out
}

fn lines(out: &mut String, findings: &[Finding]) {
    for (place, finding) in findings.iter().enumerate() {
        let number = format!("  {}. ", place + 1);
        wrapped(out, &number, 5, &finding.in_short());
        wrapped(out, "     ", 5, &evidence(finding));
        wrapped(out, "     knob: ", 11, finding.knob);
    }
}

/// Evidence of a finding, with the frames at which it shows.
fn evidence(finding: &Finding) -> String {
    let frames = finding.frames.map(|of| {
        if of.worst_frame == 0 {
            return format!("; first at frame {}", of.first_frame);
        }
        let worst = format!(
            "longest {} until frame {}",
            seconds(of.worst_ns),
            of.worst_frame
        );
        match of.first_frame == of.worst_frame {
            true => format!("; {worst}"),
            false => format!("; first until frame {}, {worst}", of.first_frame),
        }
    });
    format!("{}{}", finding.text, frames.unwrap_or_default())
}

/// Renders the tables of the largest connections.
fn largest(report: &Report) -> String {
    let mut out = String::new();
    let (shown, count) = shown(report);
    if !shown.is_empty() {
        out += "\n";
        out += &list(&shown);
    }
    if shown.len() < count {
        let _ = writeln!(
            out,
            "{} connections more, with less payload; --format csv and --format json have all",
            count - shown.len()
        );
    }
    out + &acknowledged(report)
}

/// Renders how the data of the largest connections were cut and acknowledged.
pub(crate) fn acknowledged(report: &Report) -> String {
    let (shown, _) = shown(report);
    let with_data = |of: &&ConnectionReport| of.payload_bytes() > 0;
    let shown: Vec<&ConnectionReport> = shown.into_iter().filter(with_data).collect();
    if shown.is_empty() {
        return String::new();
    }
    format!("\n{}", table(&shown))
}

/// The largest connections, and the number of those that are worth a row. Failed handshakes are in the findings.
fn shown(report: &Report) -> (Vec<&ConnectionReport>, usize) {
    let is_failed = |of: &&ConnectionReport| {
        use Handshake::{HalfOpen, Open, Refused, Unanswered};
        matches!(of.handshake, Some(HalfOpen | Open | Refused | Unanswered))
    };
    let all = report.connections.iter();
    let mut order: Vec<&ConnectionReport> = all.filter(|of| !is_failed(of)).collect();
    order.sort_by_key(|connection| std::cmp::Reverse(connection.payload_bytes()));
    let count = order.len();
    order.truncate(ROWS);
    (order, count)
}

/// Renders the file, what was omitted from it, and what it lacks.
fn head(report: &Report) -> String {
    let mut lines = vec![contents(report)];
    let gone = report.connections_begun - report.connections.len();
    if gone > 0 {
        lines.push(format!(
            "{gone} of them are in totals and findings, but no longer listed"
        ));
    }
    lines.extend(unknown(report));
    lines.extend(omitted(report));
    lines.extend(lost(report));
    let gaps = report.total.gaps_not_followed;
    if gaps > 0 {
        lines.push(format!(
            "{gaps} gaps in sequence numbers were not followed, because too many were open at once: retransmitted, late and missing data are estimates"
        ));
    }
    let twice = report.total.captured_twice;
    if twice > 0 {
        lines.push(format!("{twice} packets are in it twice and counted once"));
    }
    lines.extend(report.links_unread.iter().map(|(link, packets)| {
        format!(
            "{packets} packets of link type {link} are not read (tcpdump.org/linktypes.html has its name)"
        )
    }));
    if let Some(broken) = &report.broken {
        lines.push(format!(
            "broken {broken}; what was read until there follows"
        ));
    }
    let mut out = String::new();
    for line in lines {
        wrapped(&mut out, "", 2, &line);
    }
    out
}

fn contents(report: &Report) -> String {
    let form = report.form.map_or("unknown form", |form| match form {
        crate::CaptureFormat::Pcap => "pcap",
        crate::CaptureFormat::Pcapng => "pcapng",
        crate::CaptureFormat::TcpdumpText => "tcpdump's text",
        crate::CaptureFormat::Live => "live",
    });
    format!(
        "{}: {form}, {}, {}",
        report.file,
        count(report.packets, "packet"),
        count(report.connections_begun as u64, "connection")
    )
}

/// Renders what is unknown for want of handshakes.
fn unknown(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    let those = |some: u64| count(some, "connection");
    if report.begun_before > 0 {
        lines.push(format!(
            "{} began before the capture: which end is the server is inferred (--connection N says from what)",
            those(report.begun_before)
        ));
    }
    if report.scale_unknown > 0 {
        lines.push(format!(
            "of {} it cannot be told whether a window was full, unless it closed: the windows' scale is in the SYNs, which were not captured whole",
            those(report.scale_unknown)
        ));
    }
    if report.handshakes.open > 0 {
        lines.push(format!(
            "{} under way when the capture ended: whether they failed is unknown",
            count(report.handshakes.open, "handshake")
        ));
    }
    if report.handshakes.not_analysed > 0 {
        lines.push(format!(
            "{} more handshakes were open at once than are held: they were not analysed",
            report.handshakes.not_analysed
        ));
    }
    lines
}

/// Packets that are not analysed, by reason. `None` if there are none.
fn omitted(report: &Report) -> Option<String> {
    let skipped = &report.skipped;
    let parts = [
        (skipped.not_ip, "not IP"),
        (skipped.not_tcp, "not TCP"),
        (skipped.fragments, "IP fragments"),
        (skipped.headers_cut, "headers cut by the snap length"),
        (skipped.malformed, "malformed"),
        (skipped.link_unknown, "of an unknown link type"),
    ];
    let parts = parts.iter().filter(|part| part.0 > 0);
    let parts: Vec<String> = parts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    (!parts.is_empty()).then(|| format!("omitted: {}", parts.join(", ")))
}

/// Packets that the capture lost. `None` if there is no sign of it.
fn lost(report: &Report) -> Option<String> {
    let bytes = report.total.bytes_missing_from_capture;
    let dropped = report.dropped_by_capture;
    if bytes == 0 && dropped.unwrap_or(0) == 0 {
        let is_complete = report.form == Some(crate::CaptureFormat::Live) && dropped == Some(0);
        return is_complete.then(|| "the kernel dropped no packet of the capture".to_string());
    }
    let dropped = dropped.map_or("an unknown number of".to_string(), |n| n.to_string());
    Some(format!(
        "the capture lost {dropped} packets; {bytes} acknowledged bytes are not in it: its counts are too small"
    ))
}

/// Renders the connections, each with what it waited for most.
fn list(connections: &[&ConnectionReport]) -> String {
    let mut table = Table::new(&CONNECTION_COLUMNS);
    for connection in connections {
        let [first, rest @ ..] = connection_cells(connection);
        let number = format!("{:<3}", connection.number);
        let mut cells = vec![wrap_after(&number, &first, WIDTH, "     ")];
        cells.extend(rest);
        table.row(cells);
    }
    table.text(0, WIDTH)
}

/// Headings of the list of connections.
pub(crate) const CONNECTION_COLUMNS: [&str; 8] = [
    "#  client > server: what it waited for most",
    "ms",
    "KiB sent",
    "KiB received",
    "Mbit/s",
    "RTT ms",
    "resent",
    "idle %",
];

/// Cells of a connection in the list: its ends and cause; its duration, the payload that the client sent and received, the
/// rate of the larger direction while not idle, the shortest round trip, retransmitted packets, idle time.
pub(crate) fn connection_cells(connection: &ConnectionReport) -> [String; 8] {
    let [client, server] = &connection.ends;
    let cause = connection.leading_cause.unwrap_or("nothing stands out");
    let kib = |end: &EndReport| match end.sent.captured_packets {
        0 => ABSENT.to_string(),
        _ => format!("{:.1}", end.sent.payload_bytes as f64 / 1024.0),
    };
    let ms = |ns: Option<u64>| match ns {
        Some(ns) => format!("{:.1}", ns as f64 / 1e6),
        None => ABSENT.to_string(),
    };
    let idle_ratio = connection.duration_ns.filter(|ns| *ns > 0).map(|ns| {
        let idle_ns = connection.waits.of(Wait::Idle);
        format!("{:.0}", idle_ns as f64 / ns as f64 * 100.0)
    });
    [
        format!("{} > {}: {cause}", client.address, server.address),
        ms(connection.duration_ns),
        kib(client),
        kib(server),
        decimal(connection.bits_per_s.map(|rate| rate / 1e6)),
        ms(connection.rtt_min_ns),
        connection
            .ends
            .iter()
            .map(|end| end.sent.retransmitted_packets)
            .sum::<u64>()
            .to_string(),
        idle_ratio.unwrap_or_else(|| ABSENT.to_string()),
    ]
}

/// Renders the directions of connections: the sender's data, then the receiver's ACKs, then
/// retransmissions and stalls. Addresses and numbers in one line are wider than a terminal, so each
/// has its own.
fn table(connections: &[&ConnectionReport]) -> String {
    let mut table = Table::new(&[
        "#  sender > receiver: the receiver's ACK policy, guessed",
        "KiB",
        "wire segs",
        "per packet",
        "pure ACKs",
        Figure::CapturedSegmentsPerAckSent.heading(),
        "stretch",
        "tails",
        "resent",
        "stalls ms",
    ]);
    for connection in connections {
        let [client, server] = &connection.ends;
        let number = connection.number.to_string();
        table.row(direction(&number, connection, client, server));
        if server.sent.payload_bytes > 0 {
            table.row(direction("", connection, server, client));
        }
    }
    table.text(0, WIDTH)
}

/// Cells of one direction.
fn direction(
    number: &str,
    connection: &ConnectionReport,
    sender: &EndReport,
    receiver: &EndReport,
) -> Vec<String> {
    let (from, to) = (&sender.address, &receiver.address);
    let ends = format!("{from} > {to}: {}", policy(&receiver.ack_policy));
    // Nothing is known of an end that was not captured.
    let of_receiver = |count: u64| match receiver.sent.captured_packets {
        0 => ABSENT.to_string(),
        _ => count.to_string(),
    };
    let sent = &sender.sent;
    let stalls = connection
        .duration_ns
        .map(|_| format!("{:.1}", sent.delayed_ack_stall_ns as f64 / 1e6));
    vec![
        wrap_after(&format!("{number:<3}"), &ends, WIDTH, "     "),
        format!("{:.1}", sent.payload_bytes as f64 / 1024.0),
        sent.data_wire_segments.to_string(),
        decimal(sender.wire_segments_per_packet.mean),
        of_receiver(receiver.sent.pure_acks),
        decimal(receiver.captured_wire_segments_per_pure_ack_sent),
        of_receiver(receiver.stretch_acks),
        sent.tail_splits.to_string(),
        sent.retransmitted_packets.to_string(),
        stalls.unwrap_or_else(|| ABSENT.to_string()),
    ]
}

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
