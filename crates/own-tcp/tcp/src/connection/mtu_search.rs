//! Path MTU search with probes (RFC 4821; RFC 8899 for TCP; Linux's `tcp_mtu_probing`), for paths
//! that drop packets that are too large without an ICMP error.
//!
//! A probe is a segment of new data that is larger than the others. If it arrives, later segments
//! get its size. If only the probe is lost, it was too large: its data is sent again in segments of
//! the old size, and the congestion window does not change (RFC 4821 §7.6.2). If other segments are
//! lost too, the probe decides nothing.
//!
//! All sizes are in bytes of payload and options, as in the MSS option.

use std::time::{Duration, Instant};

use super::config::MtuProbing;
use super::recovery::Phase;
use super::recovery::scoreboard::RangeState;
use super::{Connection, State};
use crate::SeqNum;
use crate::wire::Segment;

/// Range that contains the largest size that arrives.
#[derive(Clone, Debug)]
pub(super) struct MtuSearch {
    /// Largest size known to arrive (search_low).
    low: u32,
    /// Largest size that may arrive (search_high).
    high: u32,
    /// True if `high` is the limit of both ends or of a router: no probe of that size was lost.
    is_whole: bool,
    probe: Option<Probe>,
    /// Start of the current search.
    since: Instant,
    counts: MtuProbes,
}

/// Counts of path MTU probing, in an [`Info`](crate::Info) of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MtuProbes {
    /// Probes that arrived.
    pub arrived: u32,
    /// Probes that were too large.
    pub lost: u32,
    /// Reductions of the segment size because full-sized segments seemed to be lost.
    pub black_holes: u32,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    start: SeqNum,
    end: SeqNum,
    size: u32,
    /// True if the probe was too large; its data is being sent again.
    failed: bool,
}

/// Decision of the search when new data may leave.
pub(super) enum Turn {
    /// Send a probe of this size first.
    Probe(u32),
    /// Wait until acknowledgements make room for a probe.
    Wait,
    /// Send data as usual.
    Pass,
}

impl MtuSearch {
    fn new(low: u32, high: u32, now: Instant) -> Self {
        Self {
            low: low.min(high),
            high,
            is_whole: true,
            probe: None,
            since: now,
            counts: MtuProbes::default(),
        }
    }

    /// Returns the next size to try; `None` if a probe is in flight or the search has ended. The
    /// first probe has the largest size: on a path without obstacles one probe is enough, and RFC
    /// 4821 §7.3 recommends to try common sizes first. Later probes have the middle of the range,
    /// as in Linux.
    fn next_size(&self) -> Option<u32> {
        let range = self.high - self.low;
        match self.probe {
            Some(_) => None,
            None if self.is_whole && range > 0 => Some(self.high),
            None => (range >= RANGE_MIN).then_some(self.low + range / 2),
        }
    }

    fn on_arrived(&mut self, size: u32) {
        self.low = size.min(self.high);
        self.probe = None;
        self.counts.arrived += 1;
    }

    fn on_lost(&mut self, size: u32) {
        self.high = self.high.min(size - 1).max(self.low);
        self.is_whole = false;
        self.counts.lost += 1;
    }

    /// Lowers the upper limit to `most`, the limit of both ends and of routers.
    fn bound(&mut self, most: u32) {
        if most < self.high {
            (self.high, self.is_whole) = (most, true);
            self.low = self.low.min(most);
        }
    }

    /// Restarts the search from `low`, because the path may have changed.
    fn begin_again(&mut self, low: u32, high: u32, now: Instant) {
        *self = Self {
            counts: self.counts,
            ..Self::new(low, high, now)
        };
    }
}

impl Connection {
    /// Starts the search after the handshake, which gives the peer's MSS.
    pub(super) fn begin_mtu_search(&mut self, now: Instant) {
        if self.config.mtu_probing == MtuProbing::Always {
            let (low, high) = (BASE + self.option_bytes(), self.mss_limit());
            self.mtu_search = Some(Box::new(MtuSearch::new(low, high, now)));
        }
    }

    /// Limit of the size by both ends and by what routers reported.
    fn mss_limit(&self) -> u32 {
        self.snd.mss_peer.min(self.snd.mss_path)
    }

    /// Size of full-sized segments: the largest size known to arrive, within the limit.
    pub(super) fn segment_bytes_limit(&mut self) -> u32 {
        let limit = self.mss_limit();
        self.mtu_search.as_mut().map_or(limit, |search| {
            search.bound(limit);
            search.low
        })
    }

    /// Forgets the probe in flight, because a timeout marks everything as lost and decides nothing
    /// about the probe.
    pub(super) fn forget_mtu_probe(&mut self) {
        if let Some(search) = &mut self.mtu_search {
            search.probe = None;
        }
    }

    /// Reduces the segment size after several timeouts without an answer, because full-sized
    /// segments may never have arrived (RFC 4821 §7.7). Does nothing if the lost segments are
    /// small.
    pub(super) fn suspect_black_hole(&mut self, now: Instant) {
        if self.config.mtu_probing == MtuProbing::Off || self.retries <= RETRIES {
            return;
        }
        let (options, limit) = (self.option_bytes(), self.mss_limit());
        let base = BASE + options;
        let low = self
            .mtu_search
            .as_ref()
            .map_or(base, |search| base.min(search.low / 2).max(SIZE_MIN));
        let first = self.recovery.scoreboard.first();
        let lost = first.map_or(0, |sent| sent.end.since(sent.start).min(self.snd.mss));
        if lost + options <= low {
            return;
        }
        let new = || Box::new(MtuSearch::new(low, limit, now));
        let search = self.mtu_search.get_or_insert_with(new);
        search.begin_again(low, limit, now);
        search.counts.black_holes += 1;
        self.set_mss();
    }

    pub(super) fn mtu_probes(&self) -> MtuProbes {
        let search = self.mtu_search.as_ref();
        search.map(|search| search.counts).unwrap_or_default()
    }

    /// Decides whether a probe may leave (RFC 4821 §7.4, as in Linux): nothing is being repaired,
    /// and enough data follows to show the loss of the probe alone.
    #[cold]
    pub(super) fn mtu_turn(&mut self, unsent: u32, now: Instant) -> Turn {
        let (options, limit, mss) = (self.option_bytes(), self.mss_limit(), self.snd.mss);
        let board = &self.recovery.scoreboard;
        let calm = matches!(self.recovery.phase, Phase::Open)
            && board.lost_bytes() == 0
            && board.sacked_bytes() == 0
            && self.recovery.duplicate_acks == 0
            && !self.snd.urgent
            && self.state != State::SynReceived;
        let Some(search) = self.mtu_search.as_mut().filter(|_| calm) else {
            return Turn::Pass;
        };
        if now.saturating_duration_since(search.since) >= INTERVAL {
            let low = search.low;
            search.begin_again(low, limit, now);
        }
        let Some(size) = search.next_size() else {
            return Turn::Pass;
        };
        let bytes = size - options;
        let needed = bytes + FOLLOWERS * mss;
        let cwnd = self.congestion.cwnd();
        if unsent.min(self.window_left()) < needed || cwnd < needed.max(CWND_SEGMENTS_MIN * mss) {
            return Turn::Pass;
        }
        if cwnd.saturating_sub(self.recovery.flight(mss)) < bytes {
            return Turn::Wait;
        }
        Turn::Probe(size)
    }

    #[cold]
    pub(super) fn send_mtu_probe(&mut self, size: u32, now: Instant) -> Segment {
        let (start, bytes) = (self.snd.nxt, size - self.option_bytes());
        self.pace(bytes, now);
        // Sets the MSS to the probe's size, so that the device does not cut the probe.
        let mss = std::mem::replace(&mut self.snd.mss, bytes);
        let segment = self.send_new(bytes, false, None, now);
        self.snd.mss = mss;
        if let Some(search) = &mut self.mtu_search {
            search.probe = Some(Probe {
                start,
                end: start + bytes,
                size,
                failed: false,
            });
        }
        segment
    }

    /// Ends a probe that SND.UNA has passed.
    #[cold]
    pub(super) fn settle_mtu_probe(&mut self) {
        let una = self.snd.una;
        let Some(search) = &mut self.mtu_search else {
            return;
        };
        let Some(probe) = search.probe.filter(|probe| una.at_or_after(probe.end)) else {
            return;
        };
        if probe.failed {
            search.probe = None;
        } else {
            search.on_arrived(probe.size);
            self.set_mss();
        }
    }

    /// True if only the probe is lost, which is no sign of congestion. Its data is then sent again
    /// in parts.
    pub(super) fn is_only_probe_lost(&mut self) -> bool {
        let Some(search) = &mut self.mtu_search else {
            return false;
        };
        let Some(probe) = search.probe else {
            return false;
        };
        if (self.recovery.scoreboard).is_lost_beside(probe.start, probe.end) {
            search.probe = None;
            return false;
        }
        self.lose_mtu_probe();
        true
    }

    /// Marks the probe in flight as too large.
    pub(super) fn lose_mtu_probe(&mut self) {
        let Some(search) = &mut self.mtu_search else {
            return;
        };
        let Some(probe) = search.probe.as_mut().filter(|probe| !probe.failed) else {
            return;
        };
        probe.failed = true;
        let probe = *probe;
        search.on_lost(probe.size);
        self.recovery.scoreboard.mark_lost(|sent| {
            if sent.start.at_or_after(probe.end) {
                RangeState::AllLaterInFlight
            } else if sent.start.at_or_after(probe.start) {
                RangeState::Lost
            } else {
                RangeState::InFlight
            }
        });
    }
}

/// Start size without options, which nearly every path carries: Linux's `tcp_base_mss`, RFC 4821
/// §7.2.
const BASE: u32 = 1024;
/// Smallest size, as for limits that routers report: RFC 9293 §3.7.1.
const SIZE_MIN: u32 = 536;
/// Smallest range worth a probe (Linux's `tcp_probe_threshold`).
const RANGE_MIN: u32 = 8;
/// Time after which a larger size is tried again (Linux's `tcp_probe_interval`, RFC 4821 §7.3).
const INTERVAL: Duration = Duration::from_secs(600);
/// Retries without an answer, after which the next timeout is a full-stop timeout (R1 of RFC 9293
/// §3.8.3, Linux's `tcp_retries1`).
const RETRIES: u8 = 3;
/// Full-sized segments that must follow a probe: one more than are needed to detect its loss.
const FOLLOWERS: u32 = 4;
/// Smallest window for probes, in segments, as in Linux. With a smaller window a loss would cost
/// more than larger segments gain.
const CWND_SEGMENTS_MIN: u32 = 11;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::ms;

    /// Runs the search on a path that carries `path`. Returns the number of probes and the size
    /// found.
    fn search(low: u32, high: u32, path: u32) -> (u32, u32) {
        let mut search = MtuSearch::new(low, high, ms(0));
        let mut probes = 0;
        while let Some(size) = search.next_size() {
            probes += 1;
            if size <= path {
                search.on_arrived(size);
            } else {
                search.on_lost(size);
            }
        }
        (probes, search.low)
    }

    #[test]
    fn a_path_that_takes_all_is_searched_by_one_probe() {
        assert_eq!(search(1036, 1460, 1460), (1, 1460));
        assert_eq!(search(1036, 8960, 8960), (1, 8960));
        assert_eq!(search(1036, 1036, 1460), (0, 1036), "nothing to search");
    }

    #[test]
    fn what_is_found_gets_there_and_is_less_than_a_threshold_too_small() {
        for high in [1037, 1040, 1400, 1460, 8960, 65_000] {
            for path in (1036..high).step_by(7) {
                let (probes, found) = search(1036, high, path);
                assert!(found <= path, "{found} of {path}");
                assert!(path - found < RANGE_MIN, "{found} of {path}");
                assert!(probes <= 1 + (high - 1036).ilog2(), "{probes} of {high}");
            }
        }
    }

    #[test]
    fn what_routers_say_bounds_it() {
        let mut search = MtuSearch::new(1036, 1460, ms(0));
        search.bound(1300);
        assert_eq!(search.next_size(), Some(1300));
        search.bound(1000);
        assert_eq!((search.low, search.next_size()), (1000, None));
    }
}
