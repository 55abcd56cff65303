//! Analysed capture as data. The content of the text, JSON, CSV and HTML formats is decided here.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use tcpcost_counts::{Counts, Figure, MeterName, Printable, Quantity, Source};

use crate::connection::{Connection, ConnectionEnd, ConnectionStart, Handshake, Owed, ServerBy};
use crate::counts::DirectionCounts;
use crate::direction::{Direction, SynOptions};
use crate::evidence::{Evidence, rate};
use crate::findings::Finding;
use crate::handshakes::Handshakes;
use crate::histogram::Histogram;
use crate::mss::Mss;
use crate::policy::PolicyGuess;
use crate::read::{CaptureFormat, Names, ReadFailure, Reading};
use crate::segment::{Skipped, endpoint_name};
use crate::tunnels::Tunnel;
use crate::waits::{CapturedAt, Waits};

/// Version of the JSON format. A changed meaning of a field raises it.
pub const SCHEMA_VERSION: u32 = 3;

/// An analysed capture.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Name of the file, `-` for standard input.
    pub file: Printable,
    /// Format. `None` if it is unknown.
    pub form: Option<CaptureFormat>,
    /// Number of packets, or of lines of a text.
    pub packets: u64,
    /// Bytes after decompression.
    pub bytes: u64,
    /// Packets that were skipped.
    pub skipped: Skipped,
    /// Packets that the capture reports as dropped. `None` if it does not report that.
    pub dropped_by_capture: Option<u64>,
    /// Packets of unsupported link types, by the number in libpcap's registry.
    pub links_unread: BTreeMap<u32, u64>,
    /// Error that stopped reading before the end. `None` if there was none.
    pub broken: Option<String>,
    /// Findings about waits and failures, the largest share first.
    pub findings: Vec<Finding>,
    /// Remarks that are no findings.
    pub notes: Vec<String>,
    /// Findings about what costs the CPU more than necessary.
    pub costs: Vec<Finding>,
    /// Segments and packets for each MiB of payload. `None` without payload.
    pub per_mib: Option<PerMib>,
    /// Time of all connections by what was waited for.
    pub waits: Waits,
    /// Handshakes, by result.
    pub handshakes: Handshakes,
    /// Counts of all connections and both directions.
    pub total: DirectionCounts,
    /// Number of connections, including those that are not listed.
    pub connections_begun: usize,
    /// Connections that began before the capture: which end is the server is inferred.
    pub begun_before: u64,
    /// Connections with payload of which the scale of a window is unknown.
    pub scale_unknown: u64,
    /// Connections in the order of their first packets. Connections that were released to save
    /// memory are missing.
    #[serde(skip)]
    pub connections: Vec<ConnectionReport>,
}

/// Segments and packets that pass the stack for each MiB of payload.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PerMib {
    /// Wire segments with payload.
    pub data_wire_segments: f64,
    /// Captured packets with payload.
    pub data_packets: f64,
    /// Pure ACKs.
    pub pure_acks: f64,
    /// Super-segments.
    pub super_segments: f64,
    /// Short tails split off super-segments.
    pub tail_splits: f64,
}

impl PerMib {
    fn of(total: &DirectionCounts) -> Option<PerMib> {
        let mib = total.payload_bytes as f64 / 1_048_576.0;
        let per = |count: u64| count as f64 / mib;
        (total.payload_bytes > 0).then(|| PerMib {
            data_wire_segments: per(total.data_wire_segments),
            data_packets: per(total.captured_data_packets),
            pure_acks: per(total.pure_acks),
            super_segments: per(total.super_segments),
            tail_splits: per(total.tail_splits),
        })
    }
}

/// A connection.
#[derive(Debug, Clone, Serialize)]
pub struct ConnectionReport {
    /// Number, from 1.
    pub number: usize,
    /// Start of the connection.
    pub began: ConnectionStart,
    /// End of the connection.
    pub ended: ConnectionEnd,
    /// Time of the first packet, ns since the epoch. `None` if the capture has no times.
    pub first_ns: Option<u64>,
    /// Time from the first packet to the last, ns. `None` if the capture has no times.
    pub duration_ns: Option<u64>,
    /// Time with nothing outstanding, ns. `None` if the capture has no times.
    pub idle_ns: Option<u64>,
    /// Longest time without a packet, ns. `None` if the capture has no times.
    pub longest_silence_ns: Option<u64>,
    /// Time from the client's SYN to its ACK of the server's SYN, ns. `None` if either was not
    /// captured.
    pub handshake_ns: Option<u64>,
    /// Time by what was waited for.
    pub waits: Waits,
    /// Kind of the finding that leads for this connection alone, and its cause in plain words. `None` without a finding.
    pub leading_kind: Option<&'static str>,
    /// Cause of `leading_kind` in plain words.
    pub leading_cause: Option<&'static str>,
    /// Exchange that was not finished: what was owed, and by which end. `None` if all were.
    pub owed: Option<Owed>,
    /// Payload rate of the larger direction while not idle, bit/s. `None` without times.
    pub bits_per_s: Option<f64>,
    /// Shortest round trip between the ends, ns. `None` if one part of it is unknown.
    pub rtt_min_ns: Option<u64>,
    /// Evidence for which end is the server.
    pub server_by: ServerBy,
    /// Place of the capture.
    pub captured_at: CapturedAt,
    /// Result of the handshake. `None` if the client's SYN was not captured.
    pub handshake: Option<Handshake>,
    /// True if a RST ended it with data in flight, or with a request unanswered.
    pub cut_off: bool,
    /// Innermost tunnel. `None` if there was no tunnel.
    pub tunnel: Option<Tunnel>,
    /// True if only one direction was captured.
    pub one_sided: bool,
    /// Packets whose timestamp is earlier than that of the packet before.
    pub clock_went_back: u64,
    /// Ends: the client first, or the end that was seen first.
    pub ends: [EndReport; 2],
}

/// One end of a connection: the data that it sent, and its ACKs.
#[derive(Debug, Clone, Serialize)]
pub struct EndReport {
    /// Address and port.
    pub address: String,
    /// Options of its SYN. `None` if it was not captured whole.
    pub syn: Option<SynOptions>,
    /// Scale of its windows, as a shift: of the handshake, or inferred (`syn` is null then). `None` if it is unknown.
    pub window_scale: Option<u8>,
    /// Payload of its full-sized wire segments, with the source of that number.
    pub mss: Mss,
    /// Counts of what it sent.
    pub sent: DirectionCounts,
    /// [`Figure::CapturedOctetsPerDatagram`].
    pub captured_octets_per_datagram: Option<f64>,
    /// Payload bytes that it sent before any was acknowledged: its initial window, if it had that
    /// much to send. `None` if its SYN was not captured.
    pub initial_window_bytes: Option<u64>,
    /// Payload bytes of its captured data packets.
    pub packet_bytes: Distribution,
    /// Wire segments for each captured data packet.
    pub wire_segments_per_packet: Distribution,
    /// [`Figure::CapturedTailRatio`]: packets that an unsplit tail would save.
    pub captured_tail_ratio: Option<f64>,
    /// [`Figure::CapturedSegmentsPerAckSent`]: wire segments of the other end's data for each pure
    /// ACK of this end.
    pub captured_wire_segments_per_pure_ack_sent: Option<f64>,
    /// Wire segments that each pure ACK covers.
    pub wire_segments_covered: Distribution,
    /// Payload bytes that each pure ACK covers.
    pub bytes_per_ack: Distribution,
    /// Pure ACKs that cover more than two full-sized segments.
    pub stretch_acks: u64,
    /// ACKs that came with data.
    pub piggybacked_acks: u64,
    /// Guessed ACK policy of this end.
    pub ack_policy: PolicyGuess,
    /// Wire segments of its data bursts.
    pub data_burst_wire_segments: Distribution,
    /// Pure ACKs of each burst of pure ACKs.
    pub ack_burst: Distribution,
    /// RTT from the capture to the other end and back, from data to their ACK, µs.
    pub rtt_by_ack_us: Distribution,
    /// RTT from the capture to the other end and back, by timestamps, µs.
    pub rtt_by_timestamp_us: Distribution,
    /// Smallest RTT by ACK or timestamp, ns. `None` without samples.
    pub rtt_min_ns: Option<u64>,
    /// Counts under the names of the meters' quantities (docs/quantities.md), as this end's meters
    /// would count.
    pub quantities: Counts,
}

/// A distribution.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Distribution {
    /// Number of values.
    pub n: u64,
    /// Mean. `None` without values.
    pub mean: Option<f64>,
    /// Median. It and the other quantiles are exact below 64, and above that in steps of 1/16.
    pub p50: Option<u64>,
    /// 90th percentile. `None` without values.
    pub p90: Option<u64>,
    /// 99th percentile. `None` without values.
    pub p99: Option<u64>,
    /// Largest value. `None` without values.
    pub max: Option<u64>,
    /// Smallest value of each step that is not empty (the largest for the last step), with its
    /// count.
    pub steps: Vec<(u64, u64)>,
}

impl From<&Histogram> for Distribution {
    fn from(histogram: &Histogram) -> Distribution {
        Distribution {
            n: histogram.n(),
            mean: histogram.mean(),
            p50: histogram.quantile(0.5),
            p90: histogram.quantile(0.9),
            p99: histogram.quantile(0.99),
            max: histogram.max(),
            steps: histogram.buckets().collect(),
        }
    }
}

impl Report {
    /// Creates the report of a capture that was read and analysed.
    pub fn new(
        file: &str,
        reading: &Reading,
        outcome: Result<(), &ReadFailure>,
        connections: &[Connection],
    ) -> Report {
        let connections = connections.iter().map(Cow::Borrowed);
        Report::build(file, reading, outcome, Evidence::default(), connections)
    }

    /// Number of the connection with the most payload; the first of equal ones.
    pub fn largest(&self) -> Option<usize> {
        let order = |connection: &&ConnectionReport| connection.payload_bytes();
        let from_last = self.connections.iter().rev();
        from_last
            .max_by_key(order)
            .map(|connection| connection.number)
    }

    /// Creates the report, with the evidence of released connections.
    pub(crate) fn build<'c>(
        file: &str,
        reading: &Reading,
        outcome: Result<(), &ReadFailure>,
        mut evidence: Evidence,
        connections: impl Iterator<Item = Cow<'c, Connection>>,
    ) -> Report {
        let connections = connections
            .map(|connection| {
                evidence.add(&connection);
                ConnectionReport::new(&connection, &reading.names)
            })
            .collect();
        Report {
            file: Printable::from(file),
            form: reading.form,
            packets: reading.packets,
            bytes: reading.bytes,
            skipped: reading.skipped,
            dropped_by_capture: reading.dropped_by_capture,
            links_unread: reading.links_unread.clone(),
            broken: outcome.err().map(ToString::to_string),
            findings: evidence.findings(&reading.names),
            notes: evidence.notes(),
            costs: evidence.costs(&reading.names),
            per_mib: PerMib::of(&evidence.total),
            waits: evidence.waits,
            handshakes: evidence.handshakes,
            connections_begun: evidence.connections,
            begun_before: evidence.begun_before,
            scale_unknown: evidence.scale_unknown,
            total: evidence.total,
            connections,
        }
    }
}

impl ConnectionReport {
    fn new(connection: &Connection, names: &Names) -> ConnectionReport {
        let duration_ns = connection.duration_ns();
        let timed = |ns: u64| duration_ns.map(|_| ns);
        let [client, server] = &connection.directions;
        let mut alone = Evidence::default();
        alone.add(connection);
        let leads = alone.leading_cause();
        let waits = connection.waits();
        let named = connection.ends.map(|end| endpoint_name(end, names));
        let [client_name, server_name] = named;
        ConnectionReport {
            number: connection.number(),
            began: connection.began(),
            ended: connection.ended(),
            first_ns: connection.first_ns,
            duration_ns,
            idle_ns: timed(connection.idle_ns),
            longest_silence_ns: timed(connection.longest_silence_ns),
            handshake_ns: connection.handshake_ns,
            leading_kind: leads.map(|(kind, _)| kind),
            leading_cause: leads.map(|(_, cause)| cause),
            owed: connection.owed(),
            bits_per_s: duration_ns
                .filter(|ns| *ns > 0)
                .map(|_| rate(connection, &waits) * 8.0),
            rtt_min_ns: client
                .rtt
                .min_ns
                .zip(server.rtt.min_ns)
                .map(|(a, b)| a.saturating_add(b)),
            server_by: connection.server_by(),
            waits,
            captured_at: connection.captured_at(),
            handshake: connection.handshake(),
            cut_off: connection.is_cut_off(),
            tunnel: connection.tunnel,
            one_sided: connection.is_one_sided(),
            clock_went_back: connection.clock_went_back,
            ends: [
                EndReport::new(client_name, client, server),
                EndReport::new(server_name, server, client),
            ],
        }
    }
}

impl ConnectionReport {
    /// Payload bytes of both directions.
    pub fn payload_bytes(&self) -> u64 {
        self.ends.iter().map(|end| end.sent.payload_bytes).sum()
    }
}

impl EndReport {
    fn new(address: String, own: &Direction, other: &Direction) -> EndReport {
        let sent = &own.sent;
        let captured = Captured { own, other };
        let of = |figure: Figure| figure.value(&captured);
        EndReport {
            address,
            syn: own.syn,
            window_scale: own.window_shift,
            mss: own.mss,
            initial_window_bytes: own.syn_seen.then_some(own.initial_bytes),
            captured_octets_per_datagram: of(Figure::CapturedOctetsPerDatagram),
            packet_bytes: (&own.packet_bytes).into(),
            wire_segments_per_packet: (&own.wire_segments_per_packet).into(),
            captured_tail_ratio: of(Figure::CapturedTailRatio),
            captured_wire_segments_per_pure_ack_sent: of(Figure::CapturedSegmentsPerAckSent),
            wire_segments_covered: (&own.acks.wire_segments_per_pure_ack).into(),
            bytes_per_ack: (&own.acks.bytes_per_pure_ack).into(),
            stretch_acks: own.acks.stretch_acks,
            piggybacked_acks: own.acks.piggybacked_acks,
            ack_policy: own.acks.policy(),
            data_burst_wire_segments: (&own.data_burst_wire_segments).into(),
            ack_burst: (&own.ack_burst).into(),
            rtt_by_ack_us: (&own.rtt.by_ack_us).into(),
            rtt_by_timestamp_us: (&own.rtt.by_timestamp_us).into(),
            rtt_min_ns: own.rtt.min_ns,
            quantities: quantities(own, other),
            sent: sent.clone(),
        }
    }
}

/// Counts that this end's meters would have. An end with packets missing in the capture gets none
/// for what it sent: a count that is too small must not look like a count.
fn quantities(own: &Direction, other: &Direction) -> Counts {
    let mut counts = Counts::new();
    if own.sent.captured_packets > 0 && own.sent.bytes_missing_from_capture == 0 {
        counts.extend([
            (Quantity::ConnSegmentsSent, own.sent.wire_segments),
            (Quantity::ConnDataSegmentsSent, own.sent.data_wire_segments),
            (Quantity::ConnBytesSent, own.sent.payload_bytes),
            (
                Quantity::ConnSegmentsRetransmitted,
                own.sent.retransmitted_wire_segments,
            ),
            (Quantity::DataWireSegmentsSent, own.sent.data_wire_segments),
            (Quantity::PureAcksSent, own.sent.pure_acks),
        ]);
    }
    if own.sent.captured_packets > 0 {
        counts.insert(Quantity::ConnBytesReceived, own.acks.bytes_acked);
    }
    if other.sent.captured_packets > 0 {
        counts.insert(Quantity::ConnBytesAcked, other.acks.bytes_acked);
    }
    if other.sent.captured_packets > 0 && other.sent.bytes_missing_from_capture == 0 {
        counts.extend([
            (Quantity::ConnSegmentsReceived, other.sent.wire_segments),
            (
                Quantity::ConnDataSegmentsReceived,
                other.sent.data_wire_segments,
            ),
            (
                Quantity::DataWireSegmentsReceived,
                other.sent.data_wire_segments,
            ),
            (Quantity::PureAcksReceived, other.sent.pure_acks),
        ]);
    }
    counts
}

/// Counts that the meters of an end would have, for a connection captured at that end's device. Adds to the counts of
/// [`EndReport::quantities`] those that depend on the place of the capture.
pub fn counts_at(connection: &Connection, end: usize) -> Counts {
    let (own, other) = (&connection.directions[end], &connection.directions[1 - end]);
    let mut counts = quantities(own, other);
    if own.sent.captured_packets > 0 && own.sent.bytes_missing_from_capture == 0 {
        let bursts = own.data_burst_wire_segments.n();
        counts.extend([
            (Quantity::DataSkbsSent, own.sent.captured_data_packets),
            (Quantity::DataSkbBytesSent, own.sent.payload_bytes),
            (Quantity::TailSkbsSent, own.sent.tail_splits),
            (Quantity::DataBurstsSent, bursts),
            (Quantity::AckBurstsSent, own.ack_burst.n()),
            (Quantity::DelayedAckStalls, own.sent.delayed_ack_stalls),
            (Quantity::DelayedAckStallNs, own.sent.delayed_ack_stall_ns),
        ]);
    }
    if other.sent.captured_packets > 0 && other.sent.bytes_missing_from_capture == 0 {
        let bursts = other.data_burst_wire_segments.n();
        counts.extend([
            (Quantity::DataSkbsReceived, other.sent.captured_data_packets),
            (Quantity::DataSkbBytesReceived, other.sent.payload_bytes),
            (Quantity::DataBurstsReceived, bursts),
            (Quantity::AckBurstsReceived, other.ack_burst.n()),
        ]);
    }
    counts
}

/// One end of a connection as a source of figures. Its counts are those of the captured packets,
/// which may not be all.
struct Captured<'a> {
    own: &'a Direction,
    other: &'a Direction,
}

impl Source for Captured<'_> {
    fn count(&self, by: MeterName, of: Quantity) -> Option<f64> {
        if by != MeterName::Trace {
            return None;
        }
        let (sent, received) = (&self.own.sent, &self.other.sent);
        let count = match of {
            Quantity::IpOctetsSent => sent.ip_octets,
            Quantity::IpPacketsSent => sent.captured_packets,
            Quantity::DataSkbsSent => sent.captured_data_packets,
            Quantity::TailSkbsSent => sent.tail_splits,
            Quantity::PureAcksSent => sent.pure_acks,
            Quantity::DataWireSegmentsReceived => received.data_wire_segments,
            _ => return None,
        };
        Some(count as f64)
    }

    fn per_s(&self, _: MeterName, _: Quantity) -> Option<f64> {
        None
    }

    fn time_ns(&self, _: MeterName) -> Option<f64> {
        None
    }
}
