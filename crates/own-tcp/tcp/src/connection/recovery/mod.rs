//! Loss recovery: what was lost, and how fast to send during the repair.

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

#[derive(Debug)]
pub(super) struct Recovery {
    pub(super) scoreboard: Scoreboard,
    pub(super) rack: Rack,
    pub(super) phase: Phase,
    pub(super) tail_probe: Option<TailProbe>,
    /// State to restore if the last reduction was spurious. Kept until the next reduction, because
    /// the proof can come after the repair.
    pub(super) undo: Option<Box<Undo>>,
    /// Consecutive duplicate ACKs; used only without SACK.
    pub(super) duplicate_acks: u32,
    /// Bytes in flight when the last segment was sent.
    pub(super) flight_at_send: u32,
    /// Time of the last segment that occupies sequence numbers; `None` before the first.
    pub(super) last_sent: Option<Instant>,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// No loss is known.
    Open,
    /// Repairs losses before `until` (RecoveryPoint of RFC 6675) at PRR's rate.
    Recovery {
        /// SND.NXT at the start of recovery.
        until: SeqNum,
        prr: Prr,
    },
    /// Repairs losses before `until` in slow start, after a timeout.
    Loss {
        /// SND.NXT at the timeout.
        until: SeqNum,
        /// State of the test whether the timeout was spurious.
        frto: Frto,
    },
    /// The window was reduced for a congestion mark, and is not reduced again before `until` is
    /// acknowledged.
    Reduced {
        /// SND.NXT at the reduction.
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

    /// Estimate of the bytes in the network ("pipe" of RFC 6675). Without SACK every duplicate ACK
    /// means that one segment left the network.
    pub(super) fn flight(&self, mss: u32) -> u32 {
        self.scoreboard
            .flight()
            .saturating_sub(self.duplicate_acks.saturating_mul(mss))
    }

    /// SND.NXT at the timeout whose losses are being repaired; `None` in other phases.
    #[inline]
    pub(super) fn timeout(&self) -> Option<SeqNum> {
        match self.phase {
            Phase::Loss { until, .. } => Some(until),
            _ => None,
        }
    }

    /// True while F-RTO sends new data and retransmissions wait.
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
