//! Time of connections by what was waited for.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

/// Cause of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Round trips: the handshake, a request on its way, its answer.
    Network,
    /// Server's application: a request had arrived, or an answer had begun, and no data came.
    ServerApplication,
    /// Client's application: it had begun to send and did not go on.
    ClientApplication,
    /// Idle: no request was in flight and none had begun.
    Idle,
    /// Timeout of a SYN, which was sent again.
    SynTimeout,
    /// Recovery from a loss that ACKs reported.
    LossFast,
    /// Recovery from a loss that the retransmission timer found.
    LossTimeout,
    /// Recovery from a loss that a tail loss probe found.
    LossProbe,
    /// Receiver's window, which was full or nearly full.
    ReceiverWindow,
    /// ACKs of data in flight: the congestion window, or the path's rate.
    CongestionWindow,
    /// Delayed ACK, while the sender held data back for it.
    DelayedAck,
    /// Sender's own pace, with data and window left: pacing, or a queue before the capture.
    Paced,
    /// Sender that had data and window and sent nothing, for times that follow no rate: its CPU was
    /// busy.
    HeldUp,
    /// Congestion window, pacing, receiver's window or the path's rate: they cannot be
    /// distinguished at this place of capture.
    Unclear,
    /// Round trips or an application: they cannot be distinguished in this capture.
    UnclearAnswer,
    /// Retransmissions that proved needless: packets had only changed their order.
    Reordering,
    /// Request that was not answered until the capture ended.
    Unanswered,
    /// Answer that stopped and did not go on until the capture ended.
    Stopped,
    /// Data that were not delivered until the capture ended.
    Undelivered,
    /// FIN that was not answered until the capture ended.
    FinUnanswered,
}

impl Wait {
    /// All causes, in the order of [`Waits`].
    pub const ALL: [Wait; 20] = [
        Wait::Network,
        Wait::ServerApplication,
        Wait::ClientApplication,
        Wait::Idle,
        Wait::SynTimeout,
        Wait::LossFast,
        Wait::LossTimeout,
        Wait::LossProbe,
        Wait::ReceiverWindow,
        Wait::CongestionWindow,
        Wait::DelayedAck,
        Wait::Paced,
        Wait::HeldUp,
        Wait::Unclear,
        Wait::UnclearAnswer,
        Wait::Reordering,
        Wait::Unanswered,
        Wait::Stopped,
        Wait::Undelivered,
        Wait::FinUnanswered,
    ];

    /// Name of the JSON field.
    pub fn field(self) -> &'static str {
        match self {
            Wait::Network => "network_ns",
            Wait::ServerApplication => "server_application_ns",
            Wait::ClientApplication => "client_application_ns",
            Wait::Idle => "idle_ns",
            Wait::SynTimeout => "syn_timeout_ns",
            Wait::LossFast => "loss_fast_ns",
            Wait::LossTimeout => "loss_timeout_ns",
            Wait::LossProbe => "loss_probe_ns",
            Wait::ReceiverWindow => "receiver_window_ns",
            Wait::CongestionWindow => "congestion_window_ns",
            Wait::DelayedAck => "delayed_ack_ns",
            Wait::Paced => "paced_ns",
            Wait::HeldUp => "held_up_ns",
            Wait::Unclear => "unclear_ns",
            Wait::UnclearAnswer => "unclear_answer_ns",
            Wait::Reordering => "reordering_ns",
            Wait::Unanswered => "unanswered_ns",
            Wait::Stopped => "stopped_ns",
            Wait::Undelivered => "undelivered_ns",
            Wait::FinUnanswered => "fin_unanswered_ns",
        }
    }

    /// Name in a text.
    pub fn label(self) -> &'static str {
        match self {
            Wait::Network => "round trips",
            Wait::ServerApplication => "server's application",
            Wait::ClientApplication => "client's application",
            Wait::Idle => "idle",
            Wait::SynTimeout => "SYN sent again",
            Wait::LossFast => "loss, fast recovery",
            Wait::LossTimeout => "loss, timeout",
            Wait::LossProbe => "loss, tail probe",
            Wait::ReceiverWindow => "receiver's window",
            Wait::CongestionWindow => "congestion window or path's rate",
            Wait::DelayedAck => "delayed ACK",
            Wait::Paced => "sender's own pace",
            Wait::HeldUp => "sender held up",
            Wait::Unclear => "sender or path, unclear here",
            Wait::UnclearAnswer => "path or application, unclear here",
            Wait::Reordering => "reordering taken for loss",
            Wait::Unanswered => "request never answered",
            Wait::Stopped => "answer never finished",
            Wait::Undelivered => "data never delivered",
            Wait::FinUnanswered => "FIN never answered",
        }
    }
}

/// Time by what was waited for, ns. The sum is the connection's lifetime.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits([u64; 20]);

impl Waits {
    /// Time of this cause, ns.
    pub fn of(&self, wait: Wait) -> u64 {
        self.0[wait as usize]
    }

    /// Sum of all causes, ns.
    pub fn total_ns(&self) -> u64 {
        self.0.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    pub(crate) fn add(&mut self, wait: Wait, ns: u64) {
        let of = &mut self.0[wait as usize];
        *of = of.saturating_add(ns);
    }

    /// Moves the time of one cause to another.
    pub(crate) fn shift(&mut self, from: Wait, to: Wait) {
        let ns = std::mem::take(&mut self.0[from as usize]);
        self.add(to, ns);
    }

    /// Moves up to `ns` of the time of one cause to another.
    pub(crate) fn shift_ns(&mut self, from: Wait, to: Wait, ns: u64) {
        let ns = ns.min(self.of(from));
        self.0[from as usize] -= ns;
        self.add(to, ns);
    }

    pub(crate) fn add_all(&mut self, other: &Waits) {
        for wait in Wait::ALL {
            self.add(wait, other.of(wait));
        }
    }
}

impl Serialize for Waits {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(Wait::ALL.len()))?;
        for wait in Wait::ALL {
            map.serialize_entry(wait.field(), &self.of(wait))?;
        }
        map.end()
    }
}

/// Place of a capture, inferred from the round trips to both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CapturedAt {
    /// Near the client: the way there and back is a quarter of the whole round trip or less.
    Client,
    /// Near the server, likewise.
    Server,
    /// Between the ends.
    Between,
    /// Near both ends, within 0.2 ms each: on one host, or one switch.
    Both,
    /// Unknown, because the round trip to an end is not known.
    Unknown,
}
