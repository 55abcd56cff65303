//! Text of one connection in depth: its ends line by line, over time, and its events.

use std::fmt::Write as _;

use tcpcost_counts::Figure;
use tcpcost_counts::table::{ABSENT, Align, Table, WIDTH};

use super::{began, decimal, ended, head, ms, policy, wrapped};
use crate::connection::{OwedKind, ServerBy};
use crate::direction::SynOptions;
use crate::findings::{count, seconds};
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
    use Align::Right;
    let steps = &graph.steps;
    let seconds = steps.step_ns as f64 / 1e9;
    let kib_per_s = |bytes: u64| format!("{:.1}", bytes as f64 / 1024.0 / seconds);
    for (from, end) in connection.ends.iter().enumerate() {
        if end.sent.payload_bytes == 0 || steps.steps.is_empty() {
            continue;
        }
        let mut table = Table::aligned(&[
            ("s", Right),
            ("sent KiB/s", Right),
            ("goodput KiB/s", Right),
            ("again", Right),
            ("in flight", Right),
            ("least window", Right),
            ("RTT ms", Right),
        ]);
        for (place, step) in steps.steps.iter().enumerate().take(STEPS_SHOWN) {
            let window = step.window_least[from].map(|window| window.to_string());
            table.row(vec![
                format!("{:.0}", place as f64 * seconds),
                kib_per_s(step.sent_bytes[from]),
                kib_per_s(step.acked_bytes[from]),
                step.again[from].to_string(),
                step.in_flight_most[from].to_string(),
                window.unwrap_or_else(|| ABSENT.to_string()),
                format!("{:.3}", step.rtt_us_most[from] as f64 / 1000.0),
            ]);
        }
        if steps.steps.len() > STEPS_SHOWN {
            table.heading(&format!("{} more", steps.steps.len() - STEPS_SHOWN));
        }
        let _ = write!(out, "\n{} over time\n{}", end.address, table.text(2, WIDTH));
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
    let mut table = Table::aligned(&[
        ("ms", Align::Right),
        ("frame", Align::Left),
        ("event", Align::Left),
    ]);
    for event in graph.events.iter().take(EVENTS_SHOWN) {
        let what = match event.kind {
            EventKind::Retransmission => "sent again",
            EventKind::Dsack => "reported a duplicate (D-SACK)",
            EventKind::ZeroWindow => "closed its window",
            EventKind::DelayedAck => "sent an ACK that was delayed and waited for",
            EventKind::Reset => "reset the connection",
        };
        let address = &connection.ends[event.from].address;
        table.row(vec![
            format!("{:.3}", event.at_ns.saturating_sub(start_ns) as f64 / 1e6),
            event.frame.to_string(),
            format!("{address} {what}"),
        ]);
    }
    if graph.events.len() > EVENTS_SHOWN {
        let more = graph.events.len() - EVENTS_SHOWN;
        table.heading(&format!("{more} more are in the page's data"));
    }
    *out += &table.text(2, WIDTH);
}

pub(crate) fn depth(connection: &ConnectionReport) -> String {
    let [client, server] = &connection.ends;
    let mut out = Facts(format!(
        "connection {}: {} and {}\n  {}, {}\n",
        connection.number,
        client.address,
        server.address,
        began(connection.began),
        ended(connection)
    ));
    out.roles(connection);
    out.times(connection);
    if let Some(tunnel) = connection.tunnel {
        out.line("carried in", tunnel.name());
    }
    if connection.one_sided {
        out.line("capture", "one direction only: what needs both is unknown");
    }
    let is_timed = connection.duration_ns.is_some();
    for end in [client, server] {
        let _ = writeln!(out.0, "\n{} sent", end.address);
        out.opening(end);
        out.data(end);
        out.acks(end);
        out.losses(end);
        out.limits(end, is_timed);
    }
    out.0
}

/// Lines of a name and a value each.
struct Facts(String);

impl Facts {
    fn line(&mut self, name: &str, value: impl AsRef<str>) {
        wrapped(&mut self.0, &format!("  {name:<35} "), 38, value.as_ref());
    }

    fn distribution(&mut self, name: &str, of: &Distribution) {
        if of.n > 0 {
            let number =
                |value: Option<u64>| value.map_or(ABSENT.to_string(), |value| value.to_string());
            self.line(
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

    /// Adds the most frequent values, each with a bar.
    fn bars(&mut self, of: &Distribution) {
        let mut steps = of.steps.clone();
        steps.sort_by_key(|step| std::cmp::Reverse(step.1));
        steps.truncate(8);
        steps.sort_unstable();
        let mut table =
            Table::aligned(&[("", Align::Right), ("", Align::Right), ("", Align::Left)]);
        for (value, count) in steps {
            let share = count as f64 / of.n.max(1) as f64;
            let mark = if value > 2 { " stretch" } else { "" };
            let bar = "#".repeat((share * 40.0).ceil() as usize);
            table.row(vec![
                value.to_string(),
                format!("{:.1} %", share * 100.0),
                format!("{bar}{mark}"),
            ]);
        }
        self.0 += &table.text(4, WIDTH);
    }

    /// Adds which end is the server, if no SYN shows it, and what was owed when the capture ended.
    fn roles(&mut self, connection: &ConnectionReport) {
        if connection.server_by != ServerBy::Syn {
            let server = &connection.ends[1].address;
            let words = connection.server_by.words();
            self.line("server", format!("{server}, {words}"));
        }
        if let Some(owed) = connection.owed {
            let end = &connection.ends[owed.by].address;
            let since = seconds(owed.ns);
            let text = match owed.kind {
                OwedKind::Answer => format!("{end} owed an answer for {since}"),
                OwedKind::RestOfAnswer => format!("{end} owed the rest of its answer for {since}"),
                OwedKind::Delivery => {
                    let bytes = count(owed.bytes, "byte");
                    format!("{bytes} of {end} were not delivered for {since}")
                }
                OwedKind::Fin => format!("{end} owed a FIN for {since}"),
            };
            self.line("when the capture ended", text);
        }
    }

    /// Adds the times of a connection, and what was waited for.
    fn times(&mut self, connection: &ConnectionReport) {
        let times = [
            ("duration", connection.duration_ns),
            ("nothing outstanding", connection.idle_ns),
            ("longest silence", connection.longest_silence_ns),
            ("handshake", connection.handshake_ns),
        ];
        for (name, ns) in times {
            if let Some(ns) = ns.filter(|ns| *ns > 0) {
                self.line(name, ms(ns));
            }
        }
        if connection.duration_ns.is_none() {
            self.line("times", "unknown: not in the capture");
            return;
        }
        let mut waits = Wait::ALL.map(|wait| (wait, connection.waits.of(wait)));
        waits.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        for (wait, ns) in waits.into_iter().filter(|(_, ns)| *ns > 0) {
            self.line(&format!("waited for: {}", wait.label()), ms(ns));
        }
        self.line("captured", captured_at(connection.captured_at));
        if let Some(ns) = connection.rtt_min_ns {
            self.line("shortest round trip between the ends", ms(ns));
        }
    }

    /// Adds what an end negotiated, and what it sent first.
    fn opening(&mut self, end: &EndReport) {
        let options = end
            .syn
            .as_ref()
            .map_or("not captured".to_string(), syn_options);
        self.line("SYN options", options);
        if let Some(scale) = end.window_scale.filter(|_| end.syn.is_none()) {
            self.line(
                "window scale",
                format!("{scale}, inferred from what passed"),
            );
        }
        let mss = format!("{} bytes, {}", end.mss.bytes, source(end.mss.source));
        self.line("MSS", mss);
        self.line("payload", format!("{} bytes", end.sent.payload_bytes));
        if let Some(bytes) = end.initial_window_bytes {
            let window = format!("{bytes} bytes (initial window)");
            self.line("before the first ACK of it", window);
        }
    }

    /// Adds the packets of an end, and the segments that they stand for.
    fn data(&mut self, end: &EndReport) {
        let sent = &end.sent;
        let packets = format!(
            "{}, {} with payload, {} of them super-segments",
            sent.captured_packets, sent.captured_data_packets, sent.super_segments
        );
        self.line("captured packets", packets);
        let segments = format!(
            "{}, {} with payload",
            sent.wire_segments, sent.data_wire_segments
        );
        self.line("wire segments", segments);
        let per_packet = &end.wire_segments_per_packet;
        self.distribution("wire segments per data packet", per_packet);
        self.distribution("payload bytes per data packet", &end.packet_bytes);
        let per_datagram = decimal(end.captured_octets_per_datagram);
        self.line(Figure::CapturedOctetsPerDatagram.words(), per_datagram);
        if sent.tail_splits > 0 {
            let splits = format!(
                "{} ({} % of data packets)",
                sent.tail_splits,
                decimal(end.captured_tail_ratio.map(|share| share * 100.0))
            );
            self.line("sub-MSS tail splits", splits);
        }
        if sent.small_packets > 0 {
            let small = format!("{}, {} joinable", sent.small_packets, sent.joinable_packets);
            self.line("small packets", small);
        }
        let bursts = &end.data_burst_wire_segments;
        self.distribution("data burst, wire segments", bursts);
    }

    /// Adds the ACKs of an end.
    fn acks(&mut self, end: &EndReport) {
        let sent = &end.sent;
        if sent.pure_acks == 0 && end.piggybacked_acks == 0 {
            return;
        }
        let acks = format!(
            "{}, {} of them window updates, {} duplicates; {} ACKs came with data",
            sent.pure_acks, sent.window_updates, sent.duplicate_acks, end.piggybacked_acks
        );
        self.line("pure ACKs", acks);
        let per_ack = decimal(end.captured_wire_segments_per_pure_ack_sent);
        self.line(Figure::CapturedSegmentsPerAckSent.words(), per_ack);
        let covered = &end.wire_segments_covered;
        self.distribution("wire segments that an ACK covers", covered);
        self.distribution("bytes that an ACK covers", &end.bytes_per_ack);
        self.bars(covered);
        if end.stretch_acks > 0 {
            let stretch = end.stretch_acks.to_string();
            self.line("stretch ACKs (more than 2 segments)", stretch);
        }
        let guess = format!("{}: {}", policy(&end.ack_policy), end.ack_policy.evidence);
        self.line("ACK policy, guessed", guess);
        self.distribution("pure ACKs in a row", &end.ack_burst);
    }

    /// Adds what an end sent again, and what came late or damaged.
    fn losses(&mut self, end: &EndReport) {
        let sent = &end.sent;
        if sent.retransmitted_packets > 0 {
            let resent = format!(
                "{}, {}; {} after their ACK, {} proved needless",
                count(sent.retransmitted_packets, "packet"),
                count(sent.retransmitted_bytes, "byte"),
                sent.retransmitted_after_ack,
                sent.retransmitted_needlessly
            );
            self.line("retransmitted", resent);
        }
        if sent.reordered_packets > 0 {
            let late = format!(
                "{}, at most {} behind their place, {}",
                sent.reordered_packets,
                count(sent.reordered_positions_most, "packet"),
                seconds(sent.reordered_most_ns)
            );
            self.line("late packets (reordered)", late);
        }
        if sent.doubtful_segments > 0 {
            let doubtful = sent.doubtful_segments;
            let text = format!("{doubtful} (no window offered their numbers)");
            self.line("doubtful segments", text);
        }
        if sent.sack_segments > 0 {
            let with_sack = sent.sack_segments.to_string();
            self.line("segments with SACK blocks", with_sack);
        }
    }

    /// Adds the closed windows of an end, and with times its stalls, limits and round trips.
    fn limits(&mut self, end: &EndReport, is_timed: bool) {
        let sent = &end.sent;
        if sent.zero_windows > 0 {
            let zero = match is_timed {
                true => format!("{}, {} in all", sent.zero_windows, ms(sent.zero_window_ns)),
                false => sent.zero_windows.to_string(),
            };
            self.line("zero windows", zero);
        }
        if !is_timed {
            return;
        }
        if sent.delayed_ack_stalls > 0 {
            let stalls = format!(
                "{}, {} in all",
                sent.delayed_ack_stalls,
                ms(sent.delayed_ack_stall_ns)
            );
            self.line("delayed-ACK stalls", stalls);
        }
        let limits = format!(
            "window {}, receiver {}, application {}, unknown {}",
            ms(sent.window_limited_ns),
            ms(sent.receiver_limited_ns),
            ms(sent.application_limited_ns),
            ms(sent.limit_unknown_ns)
        );
        self.line("limited by", limits);
        self.distribution("RTT to the other end by ACK, µs", &end.rtt_by_ack_us);
        self.distribution("RTT by timestamps, µs", &end.rtt_by_timestamp_us);
    }
}

fn syn_options(syn: &SynOptions) -> String {
    let flags = [
        (syn.sack_permitted, "SACK"),
        (syn.timestamps, "timestamps"),
        (syn.ecn, "ECN"),
    ];
    let mss = syn
        .mss
        .map_or("no MSS".to_string(), |mss| format!("MSS {mss}"));
    let scale = syn
        .window_scale
        .map(|scale| format!("window scale {scale}"));
    let flags = flags.iter().filter(|flag| flag.0);
    let flags = flags.map(|flag| flag.1.to_string());
    let options = std::iter::once(mss).chain(scale).chain(flags);
    options.collect::<Vec<_>>().join(", ")
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
