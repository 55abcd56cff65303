//! Finding out what was lost and how fast to send while repairing it.

pub(super) mod frto;
pub(super) mod prr;
pub(super) mod rack;
pub(super) mod scoreboard;
pub(super) mod tail_probe;
pub(super) mod undo;

use std::time::Instant;

use crate::SeqNum;
use frto::Frto;
use prr::Prr;
use rack::Rack;
use scoreboard::Scoreboard;
use tail_probe::TailProbe;
use undo::Undo;

/// Everything about loss.
#[derive(Debug)]
pub(super) struct Recovery {
    pub(super) scoreboard: Scoreboard,
    pub(super) rack: Rack,
    pub(super) phase: Phase,
    pub(super) tail_probe: Option<TailProbe>,
    /// What to go back to if the last reduction was for nothing; kept until the next one, because
    /// the proof can come after the repair.
    pub(super) undo: Option<Box<Undo>>,
    /// Duplicate ACKs in a row, where the peer does not say what it has (no SACK).
    pub(super) duplicate_acks: u32,
    /// Bytes in flight when we last sent.
    pub(super) flight_at_send: u32,
    /// When we last sent something that occupies sequence numbers.
    pub(super) last_sent: Option<Instant>,
}

/// What the sender is busy with.
#[derive(Debug)]
pub(super) enum Phase {
    /// Nothing is known to be lost.
    Open,
    /// Repairing what was lost before `until` (RecoveryPoint of RFC 6675), at PRR's pace.
    Recovery {
        /// SND.NXT when it began.
        until: SeqNum,
        prr: Prr,
    },
    /// After a timeout, repairing in slow start what was sent before `until`.
    Loss {
        /// SND.NXT when the timer fired.
        until: SeqNum,
        /// Whether it should have.
        frto: Frto,
    },
    /// The window was reduced for a congestion mark; not again before `until` is acknowledged.
    Reduced {
        /// SND.NXT when it was.
        until: SeqNum,
    },
}

impl Recovery {
    pub(super) fn new(start: SeqNum) -> Self {
        Self {
            scoreboard: Scoreboard::default(),
            rack: Rack::new(start),
            phase: Phase::Open,
            tail_probe: None,
            undo: None,
            duplicate_acks: 0,
            flight_at_send: 0,
            last_sent: None,
        }
    }

    /// Bytes in the network as far as is known: "pipe" of RFC 6675. Without SACK every duplicate
    /// ACK says that one segment left it.
    pub(super) fn flight(&self, mss: u32) -> u32 {
        self.scoreboard
            .flight()
            .saturating_sub(self.duplicate_acks.saturating_mul(mss))
    }

    /// SND.NXT at the timeout whose losses are being repaired.
    #[inline]
    pub(super) fn timeout(&self) -> Option<SeqNum> {
        match self.phase {
            Phase::Loss { until, .. } => Some(until),
            _ => None,
        }
    }

    /// What was lost waits: F-RTO sends new data first.
    pub(super) fn is_probing(&self) -> bool {
        matches!(
            self.phase,
            Phase::Loss {
                frto: Frto::Probing,
                ..
            }
        )
    }

    pub(super) fn is_repairing(&self) -> bool {
        matches!(self.phase, Phase::Recovery { .. } | Phase::Loss { .. })
    }
}
