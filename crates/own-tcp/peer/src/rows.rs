//! State of connections, one row each: for `--top`.

use std::fmt::Write;
use std::time::Instant;

use serde::Serialize;
use tcpcost_counts::table::{Align, Table};
use tcpcost_knobs::UserKnob;
use tcpcost_knobs::units::nanos;
use tcpcost_stack::UserSettings;
use tcpcost_tcp::wire::FourTuple;
use tcpcost_tcp::{AckState, Connection, LossState, State};

/// State of a connection. Rates are over the time since its last row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    pub local: String,
    pub remote: String,
    pub state: String,
    /// State of loss recovery: open, disorder, reduced, recovery or loss.
    pub loss_state: &'static str,
    pub sent_bits_per_s: f64,
    pub received_bits_per_s: f64,
    pub payload_bytes_sent: u64,
    pub payload_bytes_received: u64,
    pub cwnd_bytes: u32,
    pub ssthresh_bytes: Option<u32>,
    pub mss: u32,
    pub srtt_ns: Option<u64>,
    pub rtt_min_ns: Option<u64>,
    pub rto_ns: u64,
    pub unacked_bytes: u32,
    pub send_window_bytes: u32,
    pub receive_window_bytes: u32,
    pub segments_received: u64,
    pub pure_acks_sent: u64,
    pub segments_retransmitted: u64,
    pub timeouts: u64,
    pub busy_ns: u64,
    pub limited_by_window_ns: u64,
    pub limited_by_buffer_ns: u64,
    pub ack: AckRow,
}

/// State of the ACK policy. A value that the policy does not have is absent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AckRow {
    pub policy: String,
    pub unacked_segments: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quick: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pingpong: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<u8>,
}

/// Time and bytes of a connection's last row.
#[derive(Debug, Clone, Copy)]
pub struct LastRow {
    at: Instant,
    sent: u64,
    received: u64,
}

impl LastRow {
    /// Starts at `at` with no bytes moved.
    pub fn new(at: Instant) -> Self {
        Self {
            at,
            sent: 0,
            received: 0,
        }
    }
}

impl Row {
    /// Reads a connection, and replaces `before` with the time and bytes of this row.
    pub fn read(
        connection: &Connection,
        path: &FourTuple,
        settings: &UserSettings,
        before: &mut LastRow,
        now: Instant,
    ) -> Self {
        let (info, counters) = (connection.info(now), connection.counters());
        let sent = counters.payload_bytes_sent - counters.payload_bytes_retransmitted;
        let received = counters.payload_bytes_received;
        let seconds = now.saturating_duration_since(before.at).as_secs_f64();
        let rate = |moved: u64| {
            if seconds > 0.0 {
                moved as f64 * 8.0 / seconds
            } else {
                0.0
            }
        };
        let (sent_bits_per_s, received_bits_per_s) = (
            rate(sent.saturating_sub(before.sent)),
            rate(received.saturating_sub(before.received)),
        );
        *before = LastRow {
            at: now,
            sent,
            received,
        };
        Self {
            local: path.local.to_string(),
            remote: path.remote.to_string(),
            state: state(connection.state()).to_string(),
            loss_state: match info.loss {
                LossState::Open => "open",
                LossState::Disorder => "disorder",
                LossState::Reduced => "reduced",
                LossState::Recovery => "recovery",
                LossState::Loss => "loss",
            },
            sent_bits_per_s,
            received_bits_per_s,
            payload_bytes_sent: sent,
            payload_bytes_received: received,
            cwnd_bytes: info.cwnd_bytes,
            ssthresh_bytes: info.ssthresh_bytes,
            mss: info.mss,
            srtt_ns: info.srtt.map(nanos),
            rtt_min_ns: info.rtt_min.map(nanos),
            rto_ns: nanos(info.rto),
            unacked_bytes: info.unacked_bytes,
            send_window_bytes: info.send_window_bytes,
            receive_window_bytes: info.receive_window_bytes,
            segments_received: counters.segments_received,
            pure_acks_sent: counters.pure_acks_sent,
            segments_retransmitted: counters.segments_retransmitted,
            timeouts: counters.timeouts.into(),
            busy_ns: nanos(info.limits.busy),
            limited_by_window_ns: nanos(info.limits.by_window),
            limited_by_buffer_ns: nanos(info.limits.by_buffer),
            ack: AckRow::new(&info.ack, settings),
        }
    }

    fn moved(&self) -> f64 {
        self.sent_bits_per_s + self.received_bits_per_s
    }
}

impl AckRow {
    fn new(state: &AckState, settings: &UserSettings) -> Self {
        let policy = settings.read(UserKnob::AckPolicy);
        Self {
            policy: policy.map_or("own".to_string(), |policy| policy.to_string()),
            unacked_segments: state.unacked_segments,
            limit: state.limit,
            limit_max: state.limit_max,
            quick: state.quick,
            pingpong: state.pingpong,
            delay_ns: state.delay.map(nanos),
            requested: state.requested,
        }
    }

    /// State of the ACK policy in words.
    fn text(&self) -> String {
        let mut text = format!("{} {} waiting", self.policy, self.unacked_segments);
        if let (Some(limit), Some(max)) = (self.limit, self.limit_max) {
            let _ = write!(text, ", limit {limit} of {max}");
        }
        if let (Some(quick), Some(delay)) = (self.quick, self.delay_ns) {
            let _ = write!(text, ", {quick} quick, delay {:.1} ms", delay as f64 / 1e6);
        }
        if self.pingpong == Some(true) {
            text.push_str(", ping-pong");
        }
        if let Some(segments) = self.requested {
            let _ = write!(text, ", {segments} requested");
        }
        text
    }
}

/// Returns the busiest rows, at most `most`, the busiest first.
pub fn busiest(mut rows: Vec<Row>, most: usize) -> Vec<Row> {
    rows.sort_by(|a, b| {
        b.moved()
            .total_cmp(&a.moved())
            .then_with(|| a.remote.cmp(&b.remote))
    });
    rows.truncate(most);
    rows
}

/// Formats the rows as a table with a head; empty if there are no rows.
pub fn table(rows: &[Row]) -> String {
    use Align::{Left, Right};
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::aligned(&[
        ("remote", Left),
        ("state", Left),
        ("losses", Left),
        ("sent Mb/s", Right),
        ("recv Mb/s", Right),
        ("cwnd KiB", Right),
        ("RTT ms", Right),
        ("RTO ms", Right),
        ("resent", Right),
        ("RTOs", Right),
        ("segs/ACK", Right),
        ("acknowledges", Left),
    ]);
    for row in rows {
        let rtt = row.srtt_ns.map(|ns| format!("{:.3}", ns as f64 / 1e6));
        let segments_per_ack = match row.pure_acks_sent {
            0 => "-".to_string(),
            acks => format!("{:.1}", row.segments_received as f64 / acks as f64),
        };
        table.row(vec![
            row.remote.clone(),
            row.state.clone(),
            row.loss_state.to_string(),
            format!("{:.1}", row.sent_bits_per_s / 1e6),
            format!("{:.1}", row.received_bits_per_s / 1e6),
            (row.cwnd_bytes / 1024).to_string(),
            rtt.unwrap_or_else(|| "-".to_string()),
            format!("{:.0}", row.rto_ns as f64 / 1e6),
            row.segments_retransmitted.to_string(),
            row.timeouts.to_string(),
            segments_per_ack,
            row.ack.text(),
        ]);
    }
    table.text(2, usize::MAX)
}

/// Name of a state in RFC 9293.
fn state(state: State) -> &'static str {
    match state {
        State::SynSent => "SYN-SENT",
        State::SynReceived => "SYN-RECEIVED",
        State::Established => "ESTABLISHED",
        State::FinWait1 => "FIN-WAIT-1",
        State::FinWait2 => "FIN-WAIT-2",
        State::CloseWait => "CLOSE-WAIT",
        State::Closing => "CLOSING",
        State::LastAck => "LAST-ACK",
        State::TimeWait => "TIME-WAIT",
        State::Closed => "CLOSED",
    }
}
