//! RACK (RFC 8985): a segment is lost if one sent sufficiently later has arrived.

use std::time::{Duration, Instant};

use super::scoreboard::{Fate, RangeState, Scoreboard, Sent};
use crate::SeqNum;

/// Most recently sent segment that has arrived, and the reordering to expect.
#[derive(Debug)]
pub(in crate::connection) struct Rack {
    newest: Option<Newest>,
    /// RACK.fack: the highest sequence number that has arrived.
    highest: SeqNum,
    /// Largest reordering seen: bytes from the start of a late segment to the highest byte that had
    /// arrived. 0 if there was none.
    reordering: u32,
    /// RACK.reo_wnd_mult.
    window_multiplier: u32,
    /// RACK.reo_wnd_persist: recoveries until the multiplier returns to 1.
    window_persist: u8,
    /// RACK.dsack_round.
    dsack_round: Option<SeqNum>,
}

#[derive(Clone, Copy, Debug)]
struct Newest {
    sent_at: Instant,
    end: SeqNum,
    rtt: Duration,
}

impl Rack {
    pub(in crate::connection) fn new(start: SeqNum) -> Self {
        Self {
            newest: None,
            highest: start,
            reordering: 0,
            window_multiplier: 1,
            window_persist: 0,
            dsack_round: None,
        }
    }

    /// True if neither reordering nor spurious repairs were seen. Then the state need not be kept
    /// once all data is acknowledged.
    pub(in crate::connection) fn has_nothing_learned(&self) -> bool {
        self.reordering == 0 && self.window_multiplier == 1 && self.window_persist == 0
    }

    /// Processes the arrival of `sent` (RFC 8985 §6.2, steps 2 and 3).
    pub(in crate::connection) fn on_delivered(
        &mut self,
        sent: &Sent,
        rtt_min: Option<Duration>,
        now: Instant,
    ) {
        if sent.end.after(self.highest) {
            self.highest = sent.end;
        } else if sent.end.before(self.highest) && !sent.retransmitted {
            self.reordering = self.reordering.max(self.highest.since(sent.start));
        }
        let rtt = now.saturating_duration_since(sent.sent_at);
        // An ACK within less than a round trip after a retransmission is for the original.
        if sent.retransmitted && rtt_min.is_some_and(|min| rtt < min) {
            return;
        }
        let newer = self
            .newest
            .is_none_or(|newest| sent_after(sent.sent_at, sent.end, newest.sent_at, newest.end));
        if newer {
            self.newest = Some(Newest {
                sent_at: sent.sent_at,
                end: sent.end,
                rtt,
            });
        }
    }

    /// Processes a DSACK (step 4): a retransmission was spurious, so the reordering window grows,
    /// once per round trip.
    pub(in crate::connection) fn on_dsack(&mut self, una: SeqNum, nxt: SeqNum) {
        if self.dsack_round.is_some_and(|round| una.before(round)) {
            return;
        }
        self.dsack_round = Some(nxt);
        self.window_multiplier = (self.window_multiplier + 1).min(WINDOW_MULTIPLIER_MAX);
        self.window_persist = WINDOW_PERSIST;
    }

    /// Notes that data marked lost was only late, so that reordering is expected from now on.
    /// Forgets the newest delivery, whose time came from ACKs of originals, not of retransmissions.
    pub(in crate::connection) fn on_spurious(&mut self) {
        self.reordering = self.reordering.max(1);
        self.newest = None;
    }

    /// Largest reordering seen, in bytes; 0 if there was none.
    pub(in crate::connection) fn reordering(&self) -> u32 {
        self.reordering
    }

    /// Called when a recovery ends.
    pub(in crate::connection) fn on_recovered(&mut self) {
        if self.window_persist > 0 {
            self.window_persist -= 1;
            if self.window_persist == 0 {
                self.window_multiplier = 1;
            }
        }
    }

    /// Returns how much later than its successor a segment may arrive.
    fn window(&self, scoreboard: &Scoreboard, repairing: bool, rtt: &Rtts, mss: u32) -> Duration {
        // RACK_update_reo_wnd: while no reordering was seen, three later segments suffice.
        if self.reordering == 0 && (repairing || scoreboard.sacked_bytes() >= 3 * mss) {
            return Duration::ZERO;
        }
        let Some(rtt_min) = rtt.min else {
            return Duration::ZERO;
        };
        (rtt_min / 4 * self.window_multiplier).min(rtt.smoothed.unwrap_or(rtt_min))
    }

    /// Marks lost segments (step 5). Returns the time until the next check; `None` if no check is
    /// needed.
    pub(in crate::connection) fn detect_loss(
        &self,
        scoreboard: &mut Scoreboard,
        repairing: bool,
        rtt: &Rtts,
        mss: u32,
        now: Instant,
    ) -> Option<Duration> {
        let newest = self.newest?;
        let window = self.window(scoreboard, repairing, rtt, mss);
        let mut wait: Option<Duration> = None;
        scoreboard.mark_lost(|sent| {
            debug_assert_eq!(sent.fate, Fate::InFlight);
            if !sent_after(newest.sent_at, newest.end, sent.sent_at, sent.end) {
                // Originals leave in order, so every later original was sent later still.
                return if sent.retransmitted {
                    RangeState::InFlight
                } else {
                    RangeState::AllLaterInFlight
                };
            }
            let deadline = sent.sent_at + newest.rtt + window;
            if deadline <= now {
                return RangeState::Lost;
            }
            wait = wait.max(Some(deadline - now));
            RangeState::InFlight
        });
        wait
    }
}

/// Round-trip times that RACK uses.
pub(in crate::connection) struct Rtts {
    pub min: Option<Duration>,
    pub smoothed: Option<Duration>,
}

/// RACK_sent_after.
fn sent_after(a: Instant, a_end: SeqNum, b: Instant, b_end: SeqNum) -> bool {
    a > b || (a == b && a_end.after(b_end))
}

/// Recoveries for which a widened window is kept (RFC 8985 §6.2 step 4).
const WINDOW_PERSIST: u8 = 16;
/// Limit of the multiplier, which keeps the product small. The smoothed round-trip time limits the
/// window anyway.
const WINDOW_MULTIPLIER_MAX: u32 = 255;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::ms;

    const RTT: Rtts = Rtts {
        min: Some(Duration::from_millis(40)),
        smoothed: Some(Duration::from_millis(40)),
    };

    /// Scoreboard with ten segments of 100 bytes, sent 1 ms apart.
    fn ten() -> Scoreboard {
        let mut board = Scoreboard::default();
        for n in 0..10 {
            board.on_sent(
                SeqNum::new(n * 100),
                SeqNum::new(n * 100 + 100),
                ms(u64::from(n)),
            );
        }
        board
    }

    fn sack(board: &mut Scoreboard, rack: &mut Rack, n: u32, now: Instant) {
        let (start, end) = (SeqNum::new(n * 100), SeqNum::new(n * 100 + 100));
        board.on_sacked(start, end, 100, |sent| {
            rack.on_delivered(sent, RTT.min, now)
        });
    }

    #[test]
    fn the_first_is_lost_a_quarter_round_trip_after_its_successor_arrived() {
        let (mut board, mut rack) = (ten(), Rack::new(SeqNum::new(0)));
        sack(&mut board, &mut rack, 1, ms(41));
        let wait = rack.detect_loss(&mut board, false, &RTT, 100, ms(41));
        assert_eq!(
            (wait, board.lost_bytes()),
            (Some(Duration::from_millis(9)), 0)
        );
        let wait = rack.detect_loss(&mut board, false, &RTT, 100, ms(50));
        assert_eq!((wait, board.lost_bytes()), (None, 100));
    }

    #[test]
    fn three_later_ones_are_enough_at_once() {
        let (mut board, mut rack) = (ten(), Rack::new(SeqNum::new(0)));
        for n in 1..=3 {
            sack(&mut board, &mut rack, n, ms(44));
        }
        rack.detect_loss(&mut board, false, &RTT, 100, ms(44));
        assert_eq!(board.lost_bytes(), 100);
    }

    #[test]
    fn a_lost_retransmission_is_found_by_what_was_sent_after_it() {
        let (mut board, mut rack) = (ten(), Rack::new(SeqNum::new(0)));
        sack(&mut board, &mut rack, 9, ms(49));
        rack.detect_loss(&mut board, true, &RTT, 100, ms(49));
        board.on_retransmitted(SeqNum::new(0), SeqNum::new(100), ms(50));
        board.on_retransmitted(SeqNum::new(100), SeqNum::new(200), ms(51));
        let before = board.lost_bytes();
        sack(&mut board, &mut rack, 1, ms(91));
        rack.detect_loss(&mut board, true, &RTT, 100, ms(91));
        assert_eq!(board.lost_bytes(), before + 100, "the first is lost again");
    }

    #[test]
    fn once_reordering_was_seen_three_are_not_enough() {
        let (mut board, mut rack) = (ten(), Rack::new(SeqNum::new(0)));
        sack(&mut board, &mut rack, 2, ms(42));
        sack(&mut board, &mut rack, 1, ms(43));
        for n in 3..=5 {
            sack(&mut board, &mut rack, n, ms(45));
        }
        let wait = rack.detect_loss(&mut board, false, &RTT, 100, ms(45));
        assert_eq!(board.lost_bytes(), 0);
        assert_eq!(wait, Some(Duration::from_millis(5)));
        assert_eq!(rack.reordering(), 200, "from 100 to 300");
    }
}
