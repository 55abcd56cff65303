//! Text of one connection in depth: its ends line by line, over time, and its events.

use std::fmt::Write as _;

use super::{ABSENT, began, decimal, ended, head, ms, policy, wrapped};
use crate::graph::{ConnectionGraph, EventKind};
use crate::mss::MssSource;
use crate::report::{ConnectionReport, Distribution, EndReport, Report};
use crate::waits::{CapturedAt, Wait};

/// Renders one connection in depth. Without `graph`, the parts "over time" and "events" are
/// omitted.
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

/// Limit of steps in a text.
const STEPS_SHOWN: usize = 60;

/// Renders what each end that sent payload did, step by step.
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
                step.window_least[from]
                    .map_or(super::ABSENT.to_string(), |window| window.to_string()),
                step.rtt_us_most[from] as f64 / 1000.0
            );
        }
        if steps.steps.len() > STEPS_SHOWN {
            let _ = writeln!(out, "  {} more", steps.steps.len() - STEPS_SHOWN);
        }
    }
}

/// Limit of events in a text.
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
        "\nevents; to look at one:\n  tshark -r {} -Y frame.number=={}",
        report.file, first.frame
    );
    for event in graph.events.iter().take(EVENTS_SHOWN) {
        let what = match event.kind {
            EventKind::Retransmission => "sent again",
            EventKind::Dsack => "reported a duplicate (D-SACK)",
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
        line(&mut out, "times", "unknown: not in the capture");
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
    for end in [client, server] {
        let _ = writeln!(out, "\n{} sent", end.address);
        end_lines(&mut out, end, connection.duration_ns.is_some());
    }
    out
}

fn end_lines(out: &mut String, end: &EndReport, timed: bool) {
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
        "IP bytes per datagram",
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
        distribution(out, "RTT to the other end by ACK, µs", &end.rtt_by_ack_us);
        distribution(out, "RTT by timestamps, µs", &end.rtt_by_timestamp_us);
    }
}

fn line(out: &mut String, name: &str, value: impl AsRef<str>) {
    wrapped(out, &format!("  {name:<35} "), 38, value.as_ref());
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

/// Renders the most frequent values, each with a bar.
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

fn source(source: MssSource) -> &'static str {
    match source {
        MssSource::Given => "given",
        MssSource::Handshake => "from the handshake",
        MssSource::OneSyn => "from the one SYN captured",
        MssSource::Inferred => "inferred from payload sizes",
        MssSource::Assumed => "assumed: not in the capture",
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
