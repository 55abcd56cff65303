//! Signals: quotients of counts that the rules test, each with one formula.

use tcpcost_counts::{MeterName as M, Quantity as Q};

use crate::advice::situation::Situation;
use crate::causes::Cause;

/// A number that a rule compares with a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Payload bytes per send call.
    BytesPerSend,
    /// Payload bytes per receive call.
    BytesPerReceive,
    /// Send calls for each receive call of the same end; for one if it made none.
    SendsPerReceive,
    /// Payload bytes sent per exchange.
    BytesPerExchange,
    /// Exchanges per second.
    ExchangesPerSecond,
    /// Payload bytes per data skb sent.
    SkbBytes,
    /// Payload bytes per data skb received.
    SkbBytesReceived,
    /// Data skbs sent per exchange.
    SkbsPerExchange,
    /// Wire segments per data skb sent.
    SegmentsPerSkbSent,
    /// Wire segments per data skb received.
    SegmentsPerSkbReceived,
    /// Payload bytes per data wire segment sent.
    SegmentBytes,
    /// Data wire segments received per NET_RX run.
    SegmentsPerRun,
    /// Connections opened and accepted per exchange.
    OpensPerExchange,
    /// Receive calls per exchange.
    ReceivesPerExchange,
    /// Pure ACKs sent per exchange.
    AcksPerExchange,
    /// Sleeps with wake-up per MiB received.
    SleepsPerMib,
    /// Receive calls per data skb received.
    ReceivesPerSkb,
    /// Pure ACKs received per 8 data wire segments sent.
    AcksPerEightSegments,
    /// Pure ACKs sent per data wire segment received.
    AcksPerSegment,
    /// Share of the busy time of connections in which the send buffer was the limit.
    SendBufferLimited,
    /// Zero windows advertised per 1,000 data wire segments received.
    ZeroWindows,
    /// skbs queued out of order per 1,000 data wire segments received.
    OutOfOrder,
    /// Share of data skbs that are a short tail after an skb of full segments.
    TailShare,
    /// Segments retransmitted per 100 data wire segments sent.
    Retransmitted,
    /// Share of the CPUs' time in softirqs.
    SoftirqShare,
}

/// Row of a signal.
struct Row {
    signal: Signal,
    key: &'static str,
    words: &'static str,
    unit: Unit,
    value: fn(&Situation<'_>) -> Option<f64>,
}

/// Unit of a signal, for its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes,
    Number,
    Share,
}

const fn row(
    signal: Signal,
    key: &'static str,
    words: &'static str,
    unit: Unit,
    value: fn(&Situation<'_>) -> Option<f64>,
) -> Row {
    Row {
        signal,
        key,
        words,
        unit,
        value,
    }
}

/// All signals.
const ROWS: &[Row] = &[
    row(
        Signal::BytesPerSend,
        "bytes_per_send",
        "bytes per send",
        Unit::Bytes,
        |of| ratio(bytes_sent(of)?, cause(of, Cause::SendCall)?),
    ),
    row(
        Signal::BytesPerReceive,
        "bytes_per_receive",
        "bytes per receive",
        Unit::Bytes,
        |of| {
            ratio(
                cause(of, Cause::ByteCopiedOut)?,
                cause(of, Cause::ReceiveCall)?,
            )
        },
    ),
    row(
        Signal::SendsPerReceive,
        "sends_per_receive",
        "sends per receive by the sender",
        Unit::Number,
        |of| {
            let sends = cause(of, Cause::SendCall)?;
            match (of.has_both_ends, exchanges(of)) {
                // The receives are of the other end.
                (true, None) => Some(sends),
                // Both ends send and receive: one of the sends is the request.
                (true, Some(exchanges)) => ratio(sends - exchanges, exchanges),
                (false, _) => {
                    let receives = cause(of, Cause::ReceiveCall).unwrap_or(0.0);
                    ratio(sends, receives.max(1.0))
                }
            }
        },
    ),
    row(
        Signal::BytesPerExchange,
        "bytes_per_exchange",
        "bytes sent per response",
        Unit::Bytes,
        |of| ratio(bytes_sent(of)?, exchanges(of)?),
    ),
    row(
        Signal::ExchangesPerSecond,
        "exchanges_per_s",
        "responses per second",
        Unit::Number,
        |of| ratio(exchanges(of)? * 1e9, of.duration_ns),
    ),
    row(
        Signal::SkbBytes,
        "skb_bytes",
        "bytes per packet (skb) sent",
        Unit::Bytes,
        |of| ratio(seg(of, Q::DataSkbBytesSent)?, seg(of, Q::DataSkbsSent)?),
    ),
    row(
        Signal::SkbBytesReceived,
        "skb_bytes_received",
        "bytes per packet (skb) received",
        Unit::Bytes,
        |of| {
            ratio(
                seg(of, Q::DataSkbBytesReceived)?,
                seg(of, Q::DataSkbsReceived)?,
            )
        },
    ),
    row(
        Signal::SkbsPerExchange,
        "skbs_per_exchange",
        "packets (skbs) sent per response",
        Unit::Number,
        |of| ratio(seg(of, Q::DataSkbsSent)?, exchanges(of)?),
    ),
    row(
        Signal::SegmentsPerSkbSent,
        "segments_per_skb_sent",
        "wire segments per packet (skb) sent",
        Unit::Number,
        |of| ratio(seg(of, Q::DataWireSegmentsSent)?, seg(of, Q::DataSkbsSent)?),
    ),
    row(
        Signal::SegmentsPerSkbReceived,
        "segments_per_skb_received",
        "wire segments per packet (skb) received",
        Unit::Number,
        |of| {
            ratio(
                seg(of, Q::DataWireSegmentsReceived)?,
                seg(of, Q::DataSkbsReceived)?,
            )
        },
    ),
    row(
        Signal::SegmentBytes,
        "segment_bytes",
        "bytes per wire segment sent",
        Unit::Bytes,
        |of| {
            ratio(
                seg(of, Q::DataSkbBytesSent)?,
                seg(of, Q::DataWireSegmentsSent)?,
            )
        },
    ),
    row(
        Signal::SegmentsPerRun,
        "segments_per_run",
        "wire segments received per softirq run",
        Unit::Number,
        |of| {
            ratio(
                seg(of, Q::DataWireSegmentsReceived)?,
                cause(of, Cause::NetRxRun)?,
            )
        },
    ),
    row(
        Signal::OpensPerExchange,
        "opens_per_exchange",
        "connections per response",
        Unit::Number,
        |of| ratio(cause(of, Cause::Connection)?, exchanges(of)?),
    ),
    row(
        Signal::ReceivesPerExchange,
        "receives_per_exchange",
        "receives per response",
        Unit::Number,
        |of| ratio(cause(of, Cause::ReceiveCall)?, exchanges(of)?),
    ),
    row(
        Signal::AcksPerExchange,
        "acks_per_exchange",
        "ACKs sent per response",
        Unit::Number,
        |of| ratio(seg(of, Q::PureAcksSent)?, exchanges(of)?),
    ),
    row(
        Signal::SleepsPerMib,
        "sleeps_per_mib",
        "sleeps per MiB received",
        Unit::Number,
        |of| {
            ratio(
                cause(of, Cause::Sleep)? * 1_048_576.0,
                seg(of, Q::DataSkbBytesReceived)?,
            )
        },
    ),
    row(
        Signal::ReceivesPerSkb,
        "receives_per_skb",
        "receives per packet (skb) received",
        Unit::Number,
        |of| {
            ratio(
                cause(of, Cause::ReceiveCall)?,
                seg(of, Q::DataSkbsReceived)?,
            )
        },
    ),
    row(
        Signal::AcksPerEightSegments,
        "acks_per_8_segments",
        "ACKs received per 8 segments sent",
        Unit::Number,
        |of| {
            ratio(
                8.0 * seg(of, Q::PureAcksReceived)?,
                seg(of, Q::DataWireSegmentsSent)?,
            )
        },
    ),
    row(
        Signal::AcksPerSegment,
        "acks_per_segment",
        "ACKs sent per segment received",
        Unit::Number,
        |of| {
            ratio(
                seg(of, Q::PureAcksSent)?,
                seg(of, Q::DataWireSegmentsReceived)?,
            )
        },
    ),
    row(
        Signal::SendBufferLimited,
        "send_buffer_limited",
        "busy time that waited for the send buffer",
        Unit::Share,
        |of| {
            ratio(
                of.source.count(M::TcpInfo, Q::ConnSendBufferLimitedNs)?,
                of.source.count(M::TcpInfo, Q::ConnBusyNs)?,
            )
        },
    ),
    row(
        Signal::ZeroWindows,
        "zero_windows_per_1000",
        "zero windows per 1,000 segments received",
        Unit::Number,
        |of| {
            ratio(
                1000.0 * netstat(of, Q::ZeroWindowsSent)?,
                seg(of, Q::DataWireSegmentsReceived)?,
            )
        },
    ),
    row(
        Signal::OutOfOrder,
        "out_of_order_per_1000",
        "packets out of order per 1,000 segments received",
        Unit::Number,
        |of| {
            ratio(
                1000.0 * netstat(of, Q::OutOfOrderQueued)?,
                seg(of, Q::DataWireSegmentsReceived)?,
            )
        },
    ),
    row(
        Signal::TailShare,
        "tail_share",
        "packets (skbs) sent that are the short tail of a larger one",
        Unit::Share,
        |of| ratio(seg(of, Q::TailSkbsSent)?, seg(of, Q::DataSkbsSent)?),
    ),
    row(
        Signal::Retransmitted,
        "retransmitted_per_100",
        "segments retransmitted per 100 sent",
        Unit::Number,
        |of| {
            ratio(
                100.0 * netstat(of, Q::SegmentsRetransmitted)?,
                seg(of, Q::DataWireSegmentsSent)?,
            )
        },
    ),
    row(
        Signal::SoftirqShare,
        "softirq_share",
        "CPU time that is softirqs",
        Unit::Share,
        |of| {
            let [softirq, _] = Q::EXACT_OWNED[0];
            let softirqs = of.source.count(M::Exact, softirq)?;
            ratio(
                softirqs,
                softirqs + of.source.count(M::Exact, Q::ExactTaskOwnNs)?,
            )
        },
    ),
];

impl Signal {
    /// All signals.
    pub fn all() -> impl Iterator<Item = Signal> {
        ROWS.iter().map(|row| row.signal)
    }

    fn row(self) -> &'static Row {
        let row = ROWS.iter().find(|row| row.signal == self);
        row.expect("each signal has a row")
    }

    /// Name in JSON.
    pub fn key(self) -> &'static str {
        self.row().key
    }

    /// Name in a sentence.
    pub fn words(self) -> &'static str {
        self.row().words
    }

    /// Value; `None` if a count is missing, or the divisor is 0.
    pub fn value(self, of: &Situation<'_>) -> Option<f64> {
        (self.row().value)(of).filter(|value| value.is_finite())
    }

    /// Value with the signal's name: `4.1 KiB per send`.
    pub fn sentence(self, value: f64) -> String {
        let words = self.words();
        let words = match self.row().unit {
            Unit::Bytes => words.strip_prefix("bytes ").unwrap_or(words),
            _ => words,
        };
        format!("{} {words}", self.text(value))
    }

    /// Text of a value with its unit: `4.1 KB`, `14.6`, `35 %`.
    pub fn text(self, value: f64) -> String {
        match self.row().unit {
            Unit::Bytes if value >= 1024.0 * 1024.0 => format!("{:.1} MiB", value / 1_048_576.0),
            Unit::Bytes if value >= 1024.0 => format!("{:.1} KiB", value / 1024.0),
            Unit::Bytes => format!("{value:.0} B"),
            Unit::Share => format!("{:.0} %", 100.0 * value),
            Unit::Number => number(value),
        }
    }
}

/// Number with two significant digits below 10, else whole, with commas.
pub(super) fn number(value: f64) -> String {
    match value {
        _ if value == 0.0 => "0".to_string(),
        _ if value.abs() < 0.995 => format!("{value:.2}"),
        _ if value.abs() < 99.5 => format!("{value:.1}"),
        _ => {
            let digits = format!("{value:.0}");
            let mut text = String::new();
            for (place, digit) in digits.chars().enumerate() {
                if place > 0 && (digits.len() - place) % 3 == 0 && digit != '-' {
                    text.push(',');
                }
                text.push(digit);
            }
            text
        }
    }
}

fn ratio(over: f64, under: f64) -> Option<f64> {
    (under > 0.0).then(|| over / under)
}

fn seg(of: &Situation<'_>, quantity: Q) -> Option<f64> {
    of.source.count(M::Segments, quantity)
}

fn netstat(of: &Situation<'_>, quantity: Q) -> Option<f64> {
    of.source.count(M::Netstat, quantity)
}

fn cause(of: &Situation<'_>, cause: Cause) -> Option<f64> {
    of.counts.get(cause)
}

/// Payload bytes sent, by copy or by reference.
fn bytes_sent(of: &Situation<'_>) -> Option<f64> {
    let referenced = cause(of, Cause::ByteReferenced).unwrap_or(0.0);
    Some(cause(of, Cause::ByteCopiedIn)? + referenced)
}

/// Upper bound of the number of exchanges: requests with their responses. The transactions of a study,
/// or the units of `--per`, if they were counted. Otherwise the least of the calls and packets that
/// each exchange has one of: a send and a receive, and a data skb in each direction, if the counts are
/// of one end. `None` without traffic in both directions, and for a stream.
pub(super) fn exchanges(of: &Situation<'_>) -> Option<f64> {
    if let Some(counted) = of.source.work(Q::Transactions) {
        return Some(counted).filter(|count| *count > 0.0);
    }
    let mut bounds = Vec::new();
    if of.source.count(M::SocketCalls, Q::SocketSends).is_some() {
        bounds.extend([cause(of, Cause::SendCall), cause(of, Cause::ReceiveCall)]);
    }
    if !of.has_both_ends {
        bounds.extend([seg(of, Q::DataSkbsSent), seg(of, Q::DataSkbsReceived)]);
    }
    let least = bounds.into_iter().flatten().reduce(f64::min)?;
    let is_stream = bytes_sent(of).is_some_and(|bytes| bytes > STREAM_BYTES * least);
    Some(least).filter(|count| *count > 0.0 && !is_stream)
}

/// Bytes sent per exchange above which the work is a stream: the few receives are of another connection, or of a
/// request that weighs nothing.
const STREAM_BYTES: f64 = 4.0 * 1_048_576.0;
