//! Recoveries: from a loss, or from what looks like a loss, until all data in flight then are acknowledged.

use super::{Ending, PROBE_NS, TIMEOUT_NS, closed_ns_of, tolerance};
use crate::connection::Connection;
use crate::direction::Data;
use crate::waits::{Wait, Waits};

/// One recovery.
#[derive(Debug, Clone)]
pub(in crate::connection) struct Episode {
    from: usize,
    recover: u64,
    /// Way in which the loss was found. `None` as long as nothing was sent again.
    means: Option<Wait>,
    /// Packets that were sent again, and those of them that proved needless.
    resent: u32,
    needless: u32,
    /// True if a gap was reported: packets were lost, or came in another order.
    has_gap: bool,
    /// Time that windows had been closed when it began, both ends together, ns.
    closed_ns: u64,
    /// True if the window was closed for most of it: without the loss the end would have waited as well.
    is_shut: bool,
    /// Waits of the same time, had there been no loss.
    pub(super) otherwise: Waits,
}

impl Episode {
    fn new(from: usize, recover: u64, means: Option<Wait>) -> Box<Episode> {
        Box::new(Episode {
            from,
            recover,
            means,
            resent: 0,
            needless: 0,
            has_gap: false,
            closed_ns: 0,
            is_shut: false,
            otherwise: Waits::default(),
        })
    }

    /// Wait to which the episode is charged. If most of what was sent again proved needless: reordering if a gap was
    /// reported, else nothing was wrong. `None` as long as nothing was sent again.
    fn wait(&self) -> Option<Wait> {
        let is_needless = self.needless > 0 && self.needless * 2 > self.resent;
        match (self.means, is_needless) {
            _ if self.is_shut => None,
            (Some(_), true) => self.has_gap.then_some(Wait::Reordering),
            (means, _) => means,
        }
    }

    pub(in crate::connection) fn otherwise_ns(&self) -> u64 {
        self.otherwise.total_ns()
    }
}

impl Connection {
    /// Ends the recovery of an end whose ACKs are not in the capture: it sends new data again.
    pub(super) fn end_recovery_unseen(&mut self, ending: &Ending) {
        let is_unseen = self.directions[1 - ending.from].sent.captured_packets == 0;
        if is_unseen
            && ending.outcome == Data::New
            && let Some(episode) = &self.time.episode
            && episode.means.is_some()
        {
            self.close_episode();
        }
    }

    /// Ends the recovery, and remembers it: its retransmissions may yet prove needless.
    fn close_episode(&mut self) {
        if let Some(mut episode) = self.time.episode.take() {
            let closed_ns = closed_ns_of(&self.directions).saturating_sub(episode.closed_ns);
            episode.is_shut = closed_ns > episode.otherwise_ns() / 2;
            self.time.episode = Some(episode);
        }
        let before_ns = self.time.waits.of(Wait::Reordering);
        self.time.waits = self.waits_so_far();
        let ns = self.time.waits.of(Wait::Reordering) - before_ns;
        self.time.spots.note(Wait::Reordering, self.time.frame, ns);
        self.time.past = self.time.episode.take();
    }

    /// Handles the proof that end `from` sent a packet again needlessly.
    pub(in crate::connection) fn on_needless(&mut self, from: usize) {
        let time = &mut self.time;
        if let Some(episode) = time.episode.as_mut().filter(|of| of.from == from) {
            episode.needless += 1;
        } else if let Some(past) = time.past.as_mut().filter(|of| of.from == from) {
            let before = past.wait();
            past.needless += 1;
            let (Some(before), after) = (before, past.wait()) else {
                return;
            };
            if after == Some(before) {
                return;
            }
            let ns = past.otherwise_ns();
            match after {
                Some(after) => {
                    time.waits.shift_ns(before, after, ns);
                    time.spots.note(after, time.frame, ns);
                }
                None => {
                    for wait in Wait::ALL {
                        let ns = past.otherwise.of(wait);
                        time.waits.shift_ns(before, wait, ns);
                    }
                }
            }
        }
    }

    /// Handles a gap or a retransmission: begins or extends the recovery.
    pub(super) fn on_loss(&mut self, ending: &Ending, span_ns: u64, is_again: bool) {
        if ending.is_syn {
            return;
        }
        let from = ending.from;
        let closed_ns = self.time.closed_ns;
        let here = &self.directions[from];
        let nxt = here.nxt;
        let means = is_again.then(|| {
            let way_ns = self.way_to(from).unwrap_or(0);
            let knew_ns = self.now_ns.saturating_sub(way_ns);
            let told_ns = here.told_of_gap_ns;
            let is_told = told_ns > 0 && knew_ns.saturating_sub(told_ns) <= tolerance(way_ns);
            let rtt_ns = here.rtt.min_ns.unwrap_or(0).saturating_add(way_ns);
            if is_told || span_ns < PROBE_NS.max(rtt_ns / 2) {
                Wait::LossFast
            } else if span_ns >= rtt_ns.saturating_add(TIMEOUT_NS) || ending.end < nxt {
                Wait::LossTimeout
            } else {
                Wait::LossProbe
            }
        });
        let episode = self
            .time
            .episode
            .get_or_insert_with(|| Episode::new(from, nxt, None));
        if episode.otherwise_ns() == 0 {
            episode.closed_ns = closed_ns;
        }
        episode.has_gap |= !is_again || means == Some(Wait::LossFast);
        if let Some(means) = means.filter(|_| episode.from == from) {
            episode.resent += 1;
            self.time.spots.note(means, ending.frame, span_ns.max(1));
            // A timeout costs the most, then a tail loss probe.
            let worst = |a: Wait, b: Wait| match (a, b) {
                (Wait::LossTimeout, _) | (_, Wait::LossTimeout) => Wait::LossTimeout,
                (Wait::LossProbe, _) | (_, Wait::LossProbe) => Wait::LossProbe,
                _ => Wait::LossFast,
            };
            episode.means = Some(episode.means.map_or(means, |before| worst(before, means)));
            episode.recover = nxt;
        }
    }

    /// Handles an ACK of new data, or a report of a gap, from end `from`.
    pub(in crate::connection) fn on_recovery(&mut self, from: usize, tells_of_gap: bool) {
        let there = &self.directions[1 - from];
        let (una, nxt, has_gap) = (there.una, there.nxt, there.has_gap());
        match &self.time.episode {
            None if tells_of_gap && there.is_unseen() => {
                // Its retransmissions are not in the capture either.
                let means = Some(Wait::LossFast);
                self.time.unseen_gaps += 1;
                let mut episode = Episode::new(1 - from, nxt, means);
                episode.has_gap = true;
                self.time.episode = Some(episode);
            }
            None if tells_of_gap && nxt > una => {
                let mut episode = Episode::new(1 - from, nxt, None);
                episode.closed_ns = closed_ns_of(&self.directions);
                episode.has_gap = true;
                self.time.episode = Some(episode);
            }
            Some(episode)
                if episode.from != from && una >= episode.recover && !has_gap && !tells_of_gap =>
            {
                // The part of the span so far belongs to the recovery.
                let span_ns = self.span_ns();
                self.spend(self.time.last.unwrap_or(Wait::Network), span_ns);
                self.time.since_ns = self.now_ns;
                self.close_episode();
            }
            _ => {}
        }
    }

    /// Waits of the connection, with those of a recovery that is not over.
    pub(super) fn waits_so_far(&self) -> Waits {
        let mut waits = self.time.waits;
        if let Some(episode) = &self.time.episode {
            match episode.wait() {
                Some(wait) => waits.add(wait, episode.otherwise.total_ns()),
                None => {
                    let mut otherwise = episode.otherwise;
                    if episode.has_gap && episode.resent == 0 {
                        // The window was full since a packet was late: nothing was sent again.
                        otherwise.shift(Wait::ReceiverWindow, Wait::Reordering);
                    }
                    waits.add_all(&otherwise);
                }
            }
        }
        waits
    }
}
