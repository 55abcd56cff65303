//! Undo of a spurious reduction: data marked lost was only late.
//!
//! Two signs: an ACK of the first retransmission that echoes a timestamp from before it (Eifel, RFC
//! 3522), and a DSACK for every retransmission (RFC 3708). For a timeout without timestamps also
//! F-RTO (`frto.rs`). The response is the full one of RFC 4015: the window is restored.

use crate::SeqNum;
use crate::connection::congestion::Congestion;

/// State before a reduction.
#[derive(Debug)]
pub(in crate::connection) struct Undo {
    /// Congestion control before the reduction.
    pub before: Congestion,
    /// Start of the first retransmission, and our timestamp clock when it left.
    first: Option<(SeqNum, u32)>,
    /// SND.NXT at the reduction: retransmissions beyond it belong to a later one.
    until: SeqNum,
    /// Bytes retransmitted and not reported as duplicates.
    unreported_bytes: u32,
}

impl Undo {
    pub(in crate::connection) fn new(before: Congestion, until: SeqNum) -> Self {
        Self {
            before,
            first: None,
            until,
            unreported_bytes: 0,
        }
    }

    pub(in crate::connection) fn on_retransmitted(
        &mut self,
        start: SeqNum,
        bytes: u32,
        clock: u32,
    ) {
        self.first.get_or_insert((start, clock));
        self.unreported_bytes = self.unreported_bytes.saturating_add(bytes);
    }

    /// True if `ack`, which moved SND.UNA and echoes `echo`, was for the original of the first
    /// retransmission.
    pub(in crate::connection) fn is_spurious_by_echo(&self, ack: SeqNum, echo: u32) -> bool {
        self.first
            .is_some_and(|(start, clock)| ack.after(start) && (echo.wrapping_sub(clock) as i32) < 0)
    }

    /// True if the DSACK of `[start, end)` completes the reports: every retransmission was a
    /// duplicate.
    pub(in crate::connection) fn is_spurious_by_report(
        &mut self,
        start: SeqNum,
        end: SeqNum,
    ) -> bool {
        let repeated = |first: SeqNum| start.at_or_after(first) && end.at_or_before(self.until);
        if !self.first.is_some_and(|(first, _)| repeated(first)) || end.before(start) {
            return false;
        }
        self.unreported_bytes = self.unreported_bytes.saturating_sub(end.since(start));
        self.unreported_bytes == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, CongestionControl};

    fn undo() -> Undo {
        let reno = Config {
            congestion: CongestionControl::NewReno,
            ..Config::default()
        };
        let mut undo = Undo::new(Congestion::new(&reno, 1000), SeqNum::new(9000));
        undo.on_retransmitted(SeqNum::new(100), 1000, 50);
        undo.on_retransmitted(SeqNum::new(5100), 1000, 60);
        undo
    }

    #[test]
    fn an_older_echo_tells_the_original_from_its_repetition() {
        let check = |ack, echo| undo().is_spurious_by_echo(SeqNum::new(ack), echo);
        assert!(check(1100, 49));
        assert!(!check(1100, 50), "the repetition itself");
        assert!(!check(100, 49), "not about it");
    }

    #[test]
    fn every_repetition_must_be_reported() {
        let mut undo = undo();
        let mut report =
            |start| undo.is_spurious_by_report(SeqNum::new(start), SeqNum::new(start + 1000));
        assert!(!report(100));
        assert!(report(5100));
    }
}
