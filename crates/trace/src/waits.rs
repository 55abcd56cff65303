//! What the time of connections went into.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

/// What a connection waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Round trips that had to be waited for: the handshake, a request on its way, its answer.
    Network,
    /// The server's application: a request was there, or an answer begun, and nothing came.
    ServerApplication,
    /// The client's application: it had begun to send and did not go on.
    ClientApplication,
    /// Nobody waited: no request was in flight, nothing begun.
    Idle,
    /// A SYN had to be sent again.
    SynTimeout,
    /// Recovery from a loss that ACKs told of.
    LossFast,
    /// Recovery from a loss that the retransmission timer told of.
    LossTimeout,
    /// Recovery from a loss that a tail loss probe told of.
    LossProbe,
    /// The receiver's window was full, or as good as full.
    ReceiverWindow,
    /// ACKs of data in flight: the congestion window, or the path's rate.
    CongestionWindow,
    /// An ACK that was delayed while the sender held back for it.
    DelayedAck,
    /// The sender's own pace, with data and window left: pacing, or a queue before the capture.
    Paced,
    /// The sender had data and window and let them wait for times that follow no rate: its CPU was busy.
    HeldUp,
    /// One of congestion window, pacing, receiver's window and the path's rate: not to be told apart
    /// where this was captured.
    Unclear,
}

impl Wait {
    /// Every one, in the order of [`Waits`].
    pub const ALL: [Wait; 14] = [
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
    ];

    /// Its field in JSON.
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
        }
    }

    /// Its name in a text.
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
        }
    }
}

/// Time by what it was waited for, ns; the sum is the connection's life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits([u64; 14]);

impl Waits {
    /// The time for this.
    pub fn of(&self, wait: Wait) -> u64 {
        self.0[wait as usize]
    }

    /// All of it.
    pub fn total_ns(&self) -> u64 {
        self.0.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    pub(crate) fn add(&mut self, wait: Wait, ns: u64) {
        let of = &mut self.0[wait as usize];
        *of = of.saturating_add(ns);
    }

    /// What was of the one is of the other.
    pub(crate) fn shift(&mut self, from: Wait, to: Wait) {
        let ns = std::mem::take(&mut self.0[from as usize]);
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

/// Where a connection was captured, told by the round trips to both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CapturedAt {
    /// At the client: the way there and back is a quarter of the whole or less.
    Client,
    /// At the server.
    Server,
    /// In between.
    Between,
    /// Both ends are within 0.2 ms: on one host, or one switch.
    Both,
    /// The round trip to one of them is not known.
    Unknown,
}
