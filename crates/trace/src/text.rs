//! Reports as text: findings first, then a row for each direction, or one connection in depth.

use std::fmt::Write as _;

use crate::connection::{Began, Ended};
use crate::findings::Finding;
use crate::graph::{ConnectionGraph, EventKind};
use crate::mss::MssSource;
use crate::policy::{Policy, PolicyGuess};
use crate::report::{ConnectionReport, Distribution, EndReport, Report};
use crate::waits::{CapturedAt, Wait};

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
        out += "\nNothing in it stands out.\n";
    } else {
        out += "\nWhat was waited for most, and what went wrong\n";
        lines(&mut out, &report.findings);
    }
    for note in &report.notes {
        let _ = writeln!(out, "  {note}");
    }
    if let Some(per) = &report.per_mib {
        let _ = writeln!(
            out,
            "\nWhat the CPU pays (estimates: a capture holds no CPU time), for each MiB of payload: {:.0} packets with it ({:.0} wire segments, {:.1} super-segments), {:.0} pure ACKs",
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

/// One connection in depth.
pub fn connection_text(
    report: &Report,
    connection: &ConnectionReport,
    graph: Option<&ConnectionGraph>,
) -> String {
    let mut out = format!("{}\n{}", head(report), depth(connection));
    if let Some(graph) = graph {
        over_time(&mut out, connection, graph);
        events(&mut out, report, connection, graph);
    }
    out
}

/// Steps that a text shows.
const STEPS_SHOWN: usize = 60;

/// Second by second: what each end that sent payload did.
fn over_time(out: &mut String, connection: &ConnectionReport, graph: &ConnectionGraph) {
    let steps = &graph.steps;
    let seconds = steps.step_ns as f64 / 1e9;
    for (from, end) in connection.ends.iter().enumerate() {
        if end.sent.payload_bytes == 0 || steps.steps.is_empty() {
            continue;
        }
        let _ = writeln!(
            out,
            "\n{} over time\n  {:>8}{:>14}{:>14}{:>8}{:>14}{:>14}{:>12}",
            end.address,
            "s",
            "sent KiB/s",
            "goodput KiB/s",
            "again",
            "in flight",
            "least window",
            "RTT ms"
        );
        for (place, step) in steps.steps.iter().enumerate().take(STEPS_SHOWN) {
            let kib = |bytes: u64| bytes as f64 / 1024.0 / seconds;
            let _ = writeln!(
                out,
                "  {:>8.0}{:>14.1}{:>14.1}{:>8}{:>14}{:>14}{:>12.3}",
                place as f64 * seconds,
                kib(step.sent_bytes[from]),
                kib(step.acked_bytes[from]),
                step.again[from],
                step.in_flight_most[from],
                step.window_least[from],
                step.rtt_us_most[from] as f64 / 1000.0
            );
        }
        if steps.steps.len() > STEPS_SHOWN {
            let _ = writeln!(out, "  {} more", steps.steps.len() - STEPS_SHOWN);
        }
    }
}

/// Events that a text shows.
const EVENTS_SHOWN: usize = 20;

fn events(
    out: &mut String,
    report: &Report,
    connection: &ConnectionReport,
    graph: &ConnectionGraph,
) {
    let Some(first) = graph.events.first() else {
        return;
    };
    let start_ns = connection.first_ns.unwrap_or(first.at_ns);
    let _ = writeln!(
        out,
        "\nevents; to look at one: tshark -r {} -Y frame.number=={}",
        report.file, first.frame
    );
    for event in graph.events.iter().take(EVENTS_SHOWN) {
        let what = match event.kind {
            EventKind::Retransmission => "sent again",
            EventKind::Dsack => "told of a duplicate (D-SACK)",
            EventKind::ZeroWindow => "closed its window",
            EventKind::DelayedAck => "sent an ACK that was delayed and waited for",
            EventKind::Reset => "reset the connection",
        };
        let _ = writeln!(
            out,
            "  {:>12.3} ms  frame {:<9} {} {what}",
            event.at_ns.saturating_sub(start_ns) as f64 / 1e6,
            event.frame,
            connection.ends[event.from].address
        );
    }
    if graph.events.len() > EVENTS_SHOWN {
        let _ = writeln!(
            out,
            "  {} more are in the page's data",
            graph.events.len() - EVENTS_SHOWN
        );
    }
}

pub(crate) fn depth(connection: &ConnectionReport) -> String {
    let mut out = String::new();
    let [client, server] = &connection.ends;
    let _ = writeln!(
        out,
        "connection {}: {} and {}\n  {}, {}",
        connection.number,
        client.address,
        server.address,
        began(connection.began),
        ended(connection)
    );
    let mut times = vec![
        ("duration", connection.duration_ns),
        ("idle (nothing outstanding)", connection.idle_ns),
        ("longest silence", connection.longest_silence_ns),
        ("handshake", connection.handshake_ns),
    ];
    times.retain(|(_, ns)| ns.is_some());
    for (name, ns) in times {
        line(&mut out, name, ns.map(ms).unwrap_or_default());
    }
    if connection.duration_ns.is_some() {
        let mut waits = Wait::ALL.map(|wait| (wait, connection.waits.of(wait)));
        waits.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        for (wait, ns) in waits.into_iter().filter(|(_, ns)| *ns > 0) {
            line(&mut out, &format!("waited for: {}", wait.label()), ms(ns));
        }
        line(&mut out, "captured", captured_at(connection.captured_at));
    }
    if connection.duration_ns.is_none() {
        line(&mut out, "times", "unknown: the capture tells none");
    }
    if let Some(tunnel) = connection.tunnel {
        line(&mut out, "carried in", tunnel.name());
    }
    if connection.one_sided {
        line(
            &mut out,
            "capture",
            "one direction only: what needs both is unknown",
        );
    }
    for (end, other) in [(client, server), (server, client)] {
        let _ = writeln!(out, "\n{} sent", end.address);
        end_lines(&mut out, end, other, connection.duration_ns.is_some());
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
            "{gone} of them are counted in totals and findings, and no longer kept one by one"
        );
    }
    let skipped = &report.skipped;
    let parts = [
        (skipped.not_ip, "not IP"),
        (skipped.not_tcp, "not TCP"),
        (skipped.fragments, "IP fragments"),
        (skipped.headers_cut, "headers cut by the snap length"),
        (skipped.malformed, "malformed"),
        (skipped.link_unknown, "of a link type that is not read"),
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

fn end_lines(out: &mut String, end: &EndReport, other: &EndReport, timed: bool) {
    let sent = &end.sent;
    match &end.syn {
        Some(syn) => {
            let mut options = vec![
                syn.mss
                    .map_or("no MSS".to_string(), |mss| format!("MSS {mss}")),
            ];
            options.extend(
                syn.window_scale
                    .map(|scale| format!("window scale {scale}")),
            );
            let flags = [
                (syn.sack_permitted, "SACK"),
                (syn.timestamps, "timestamps"),
                (syn.ecn, "ECN"),
            ];
            options.extend(
                flags
                    .iter()
                    .filter(|flag| flag.0)
                    .map(|flag| flag.1.to_string()),
            );
            line(out, "SYN options", options.join(", "));
        }
        None => line(out, "SYN options", "not captured"),
    }
    line(
        out,
        "MSS",
        format!("{} bytes, {}", end.mss.bytes, source(end.mss.source)),
    );
    line(out, "payload", format!("{} bytes", sent.payload_bytes));
    if let Some(bytes) = end.initial_window_bytes {
        line(
            out,
            "before the first ACK of it",
            format!("{bytes} bytes (initial window)"),
        );
    }
    line(
        out,
        "captured packets",
        format!(
            "{}, {} with payload, {} of them super-segments",
            sent.captured_packets, sent.captured_data_packets, sent.super_segments
        ),
    );
    line(
        out,
        "wire segments",
        format!(
            "{}, {} with payload",
            sent.wire_segments, sent.data_wire_segments
        ),
    );
    distribution(
        out,
        "wire segments per data packet",
        &end.wire_segments_per_packet,
    );
    distribution(out, "payload bytes per data packet", &end.packet_bytes);
    line(
        out,
        "IP octets per datagram",
        decimal(end.captured_octets_per_datagram),
    );
    line(
        out,
        "sub-MSS tail splits",
        format!(
            "{} ({} % of data packets)",
            sent.tail_splits,
            decimal(end.captured_tail_ratio.map(|share| share * 100.0))
        ),
    );
    line(
        out,
        "small packets",
        format!("{}, {} joinable", sent.small_packets, sent.joinable_packets),
    );
    distribution(
        out,
        "data burst, wire segments",
        &end.data_burst_wire_segments,
    );
    line(
        out,
        "pure ACKs",
        format!(
            "{}, {} of them window updates, {} duplicates; {} ACKs came with data",
            sent.pure_acks, sent.window_updates, sent.duplicate_acks, end.piggybacked_acks
        ),
    );
    line(
        out,
        "other's wire segments per pure ACK",
        decimal(end.captured_wire_segments_per_pure_ack_sent),
    );
    distribution(
        out,
        "wire segments that an ACK covers",
        &end.wire_segments_covered,
    );
    distribution(out, "bytes that an ACK covers", &end.bytes_per_ack);
    bars(out, &end.wire_segments_covered);
    line(
        out,
        "stretch ACKs (more than 2 segments)",
        end.stretch_acks.to_string(),
    );
    line(
        out,
        "ACK policy, guessed",
        format!("{}: {}", policy(&end.ack_policy), end.ack_policy.evidence),
    );
    distribution(out, "pure ACKs in a row", &end.ack_burst);
    let resent = format!(
        "{} packets, {} bytes; {} after their ACK, {} spurious by DSACK",
        sent.retransmitted_packets,
        sent.retransmitted_bytes,
        sent.retransmitted_after_ack,
        sent.spurious_by_dsack
    );
    line(out, "retransmitted", resent);
    line(
        out,
        "late packets (reordered)",
        sent.reordered_packets.to_string(),
    );
    if sent.doubtful_segments > 0 {
        line(
            out,
            "doubtful segments",
            format!(
                "{} (no window offered their numbers)",
                sent.doubtful_segments
            ),
        );
    }
    line(
        out,
        "segments with SACK blocks",
        sent.sack_segments.to_string(),
    );
    line(
        out,
        "zero windows",
        format!(
            "{}{}",
            sent.zero_windows,
            if timed {
                format!(", {} in all", ms(sent.zero_window_ns))
            } else {
                String::new()
            }
        ),
    );
    if timed {
        line(
            out,
            "delayed-ACK stalls",
            format!(
                "{}, {} in all",
                sent.delayed_ack_stalls,
                ms(sent.delayed_ack_stall_ns)
            ),
        );
        line(
            out,
            "limited by",
            format!(
                "window {}, receiver {}, application {}, unknown {}",
                ms(sent.window_limited_ns),
                ms(sent.receiver_limited_ns),
                ms(sent.application_limited_ns),
                ms(sent.limit_unknown_ns)
            ),
        );
        distribution(
            out,
            &format!("RTT to {} by ACK, µs", other.address),
            &end.rtt_by_ack_us,
        );
        distribution(out, "RTT by timestamps, µs", &end.rtt_by_timestamp_us);
    }
}

fn line(out: &mut String, name: &str, value: impl AsRef<str>) {
    let _ = writeln!(out, "  {name:<36}{}", value.as_ref());
}

fn distribution(out: &mut String, name: &str, of: &Distribution) {
    if of.n > 0 {
        let number =
            |value: Option<u64>| value.map_or(ABSENT.to_string(), |value| value.to_string());
        line(
            out,
            name,
            format!(
                "mean {}, median {}, p90 {}, p99 {}, max {} (n {})",
                decimal(of.mean),
                number(of.p50),
                number(of.p90),
                number(of.p99),
                number(of.max),
                of.n
            ),
        );
    }
}

/// The commonest values, each with a bar.
fn bars(out: &mut String, of: &Distribution) {
    let mut steps = of.steps.clone();
    steps.sort_by_key(|step| std::cmp::Reverse(step.1));
    steps.truncate(8);
    steps.sort_unstable();
    for (value, count) in steps {
        let share = count as f64 / of.n.max(1) as f64;
        let mark = if value > 2 { " stretch" } else { "" };
        let bar = "#".repeat((share * 40.0).ceil() as usize);
        let _ = writeln!(out, "    {value:>6} {:>5.1} % {bar}{mark}", share * 100.0);
    }
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

fn source(source: MssSource) -> &'static str {
    match source {
        MssSource::Given => "given",
        MssSource::Handshake => "from the handshake",
        MssSource::OneSyn => "from the one SYN captured",
        MssSource::Inferred => "inferred from payload sizes",
        MssSource::Assumed => "assumed: nothing tells it",
    }
}

fn began(began: Began) -> &'static str {
    match began {
        Began::Handshake => "began with its handshake",
        Began::OneSyn => "one SYN captured",
        Began::BeforeCapture => "began before the capture",
    }
}

fn captured_at(at: CapturedAt) -> &'static str {
    match at {
        CapturedAt::Client => "at the client",
        CapturedAt::Server => "at the server",
        CapturedAt::Between => "between the ends",
        CapturedAt::Both => "with both ends near",
        CapturedAt::Unknown => "unknown where",
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
