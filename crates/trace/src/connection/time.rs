//! Time of a connection, by what was waited for. The cause of a wait is decided when the data come
//! that end the wait.
//!
//! A span is the time between two packets with data (SYN and FIN included). Its cause depends on
//! what its sender knew when it sent: the ACKs that passed the point of capture at least as long
//! ago as the way from there to the sender and back takes.

mod causes;
mod recovery;

use self::causes::Parts;
use self::recovery::Episode;
use super::pace::{Pace, Rate};
use super::{Connection, ConnectionStart, Spots, owed};
use crate::direction::{Data, Direction};
use crate::waits::{CapturedAt, Wait, Waits};

/// Current span, and what was learned from the spans before.
#[derive(Debug, Clone, Default)]
pub(super) struct Time {
    pub(super) waits: Waits,
    pub(super) since_ns: u64,
    pub(super) begun: bool,
    /// End that sent last, and whether that packet was a SYN.
    pub(super) from: usize,
    pub(super) was_syn: bool,
    /// True if the end's last data reached the edge of the window that it knew.
    bound: [bool; 2],
    /// True if the end's last packet showed that it had no more data: short, with PSH.
    ran_out: [bool; 2],
    /// True if the end's last two packets were one message each: PSH, and no more than one segment.
    messages: [bool; 2],
    was_message: [bool; 2],
    /// Time after which the end sends again without waiting for anything.
    pace: [Pace; 2],
    rate: [Rate; 2],
    /// First sequence number of the data by which the end last probed a closed window.
    probed: [Option<u64>; 2],
    /// Time that windows had been closed when the span began, both ends together, ns.
    closed_ns: u64,
    /// True if a keepalive was sent in the span.
    keepalive: bool,
    pub(super) last: Option<Wait>,
    pub(super) episode: Option<Box<Episode>>,
    past: Option<Box<Episode>>,
    /// True if a RST ended the connection with data in flight, or with a request unanswered.
    pub(super) cut_off: bool,
    /// Bytes that the end had in flight with its last data.
    pub(super) filled: [u64; 2],
    /// True if the end's last data had PSH: its application had written no more.
    pub(super) pushed: [bool; 2],
    /// True if a FIN was the last that ended a span.
    pub(super) ended_by_fin: bool,
    /// True if the client went on after a pause without an answer: what it sends are no requests.
    pub(super) is_one_way: bool,
    /// Frames at which waits ended, and that of the last data.
    pub(super) spots: Spots,
    pub(super) frame: u64,
    /// Gaps that ACKs reported of data that the capture does not hold.
    unseen_gaps: u64,
    /// Long pauses after which the server went on unasked, since the last request: their number and time, ns.
    pauses: (u32, u64),
}

/// A packet with data that ends a span.
#[derive(Clone, Copy)]
pub(super) struct Ending {
    pub(super) from: usize,
    /// Highest sequence number that its direction had sent before.
    pub(super) nxt_before: u64,
    pub(super) seq: u64,
    pub(super) end: u64,
    pub(super) outcome: Data,
    pub(super) is_syn: bool,
    pub(super) is_reset: bool,
    /// True if the packet was sent again needlessly: the receiver had its data, since the original came late.
    pub(super) is_needless: bool,
    /// Number of the packet in the capture.
    pub(super) frame: u64,
    /// True if the packet is short and has PSH.
    pub(super) ran_out: bool,
    /// True if the packet has PSH, and if it has payload.
    pub(super) push: bool,
    pub(super) has_data: bool,
    /// True if the packet has PSH and is no more than one segment.
    pub(super) is_message: bool,
    /// Time lost in a delayed-ACK stall that the packet ended, ns.
    pub(super) stalled_ns: Option<u64>,
}

impl Time {
    pub(super) fn since(since_ns: u64) -> Time {
        Time {
            since_ns,
            ..Time::default()
        }
    }

    pub(super) fn is_recovering(&self) -> bool {
        self.episode.is_some()
    }
}

impl Connection {
    /// Time of the connection by what was waited for.
    pub fn waits(&self) -> Waits {
        let mut waits = self.waits_so_far();
        if self.is_one_sided() {
            // Which end waited for the other cannot be decided: the other end's packets are
            // missing.
            for wait in [Wait::ClientApplication, Wait::ServerApplication] {
                waits.shift(wait, Wait::UnclearAnswer);
            }
        }
        // Gaps that ACKs alone report: reordering makes more of them than retransmissions, each of which a DSACK answers;
        // after a loss a DSACK is rare.
        let gaps = self.time.unseen_gaps;
        let dsacks = self.directions.iter().filter(|of| of.is_unseen());
        let dsacks: u64 = dsacks.map(|of| of.sent.dsacks).sum();
        match gaps {
            0 => {}
            _ if dsacks * 4 > gaps => waits.shift(Wait::LossFast, Wait::Reordering),
            _ if dsacks * 20 > gaps => waits.shift(Wait::LossFast, Wait::Unclear),
            _ => {}
        }
        // A full window limits nothing if data wait in a queue of the path and the window never
        // closes: a larger window would only fill the queue.
        let closings = self.directions.iter().map(|of| of.sent.window_closings);
        if waits.of(Wait::ReceiverWindow) > 0
            && closings.sum::<u64>() == 0
            && !self.acks_cover_windows()
            && self.began() == ConnectionStart::Handshake
            && self.round_trips().is_some_and(|(median, min)| {
                median.saturating_sub(min) > (min / 2).saturating_add(NEAR_NS)
            })
        {
            waits.shift(Wait::ReceiverWindow, Wait::CongestionWindow);
        }
        waits
    }

    /// True if most ACKs of the larger direction cover a third of a window or more. A reader that
    /// makes room sends such ACKs; through a queue data arrive bit by bit, and so do their ACKs.
    fn acks_cover_windows(&self) -> bool {
        let [client, server] = &self.directions;
        let acking = if client.sent.payload_bytes > server.sent.payload_bytes {
            server
        } else {
            client
        };
        let covered = acking.acks.bytes_per_pure_ack.median_by_weight();
        covered.is_some_and(|bytes| bytes.saturating_mul(3) > u64::from(acking.window_most()))
    }

    /// Median round trip and shortest round trip, each summed over both parts of the path, ns.
    /// `None` only if no samples can be compared.
    pub(crate) fn round_trips(&self) -> Option<(u64, u64)> {
        let mut sums = (0u64, 0u64);
        let is_scale_unknown = self.is_scale_unknown();
        for direction in &self.directions {
            let rtt = &direction.rtt;
            let by_data = [&rtt.by_ack_us, &rtt.by_timestamp_us];
            let most = by_data.into_iter().max_by_key(|of| of.n())?;
            let min_ns = rtt.least_ns().unwrap_or(0);
            // Few samples, as those of a handshake alone, give no median. ACK timing takes one
            // sample at a time, so long round trips give few samples; hence the median by weight.
            let of_acks = &rtt.of_acks_us;
            // Where windows of an unknown scale may have been full, an echo may have waited for the reader.
            let is_by_acks = !is_scale_unknown && (of_acks.n() > most.n() || most.n() < 8);
            let median = if is_by_acks {
                of_acks.median_by_weight().filter(|_| of_acks.n() >= 4)
            } else {
                most.quantile(0.5)
            };
            let median_ns = median.map_or(min_ns, |us| us.saturating_mul(1000));
            sums.0 = sums.0.saturating_add(median_ns.max(min_ns));
            sums.1 = sums.1.saturating_add(min_ns);
        }
        Some(sums)
    }

    /// Place of the capture: near the client, near the server, near both, or between.
    pub fn captured_at(&self) -> CapturedAt {
        let [Some(client), Some(server)] = [0, 1].map(|end| self.way_to(end)) else {
            return CapturedAt::Unknown;
        };
        let most = client.max(server);
        if most < NEAR_NS {
            CapturedAt::Both
        } else if client.saturating_mul(3) <= server {
            CapturedAt::Client
        } else if server.saturating_mul(3) <= client {
            CapturedAt::Server
        } else {
            CapturedAt::Between
        }
    }

    /// Smallest time from the point of capture to this end and back, ns.
    pub(super) fn way_to(&self, end: usize) -> Option<u64> {
        self.directions[1 - end].rtt.min_ns
    }

    /// True if a RST ended the connection with data in flight, or with a request unanswered.
    pub fn is_cut_off(&self) -> bool {
        self.time.cut_off
    }

    /// Handles data, SYN, FIN or RST: charges the span that it ends.
    #[inline(always)]
    pub(super) fn on_span_end(&mut self, ending: Ending) {
        let span_ns = self.span_ns();
        if self.is_of_burst(&ending, span_ns) {
            let wait = self.of_burst();
            self.spend(wait, span_ns);
            self.time.last = Some(wait);
        } else if !self.on_any_span(ending, span_ns) {
            return;
        }
        let shift = self.directions[1 - ending.from].window_shift;
        let here = &self.directions[ending.from];
        let (_, edge) = here.knew(self.now_ns, self.way_to(ending.from).unwrap_or(0));
        let time = &mut self.time;
        if ending.is_reset {
            let asks = time.from == 0 && !time.was_syn && self.directions[0].sent.payload_bytes > 0;
            let in_flight = self.directions.iter().any(|of| of.in_flight() > 0);
            time.cut_off |= (in_flight || asks)
                && !self.directions.iter().all(|of| of.fin_seen)
                && self.directions.iter().any(|of| of.sent.payload_bytes > 0);
            time.since_ns = self.now_ns;
            return;
        }
        // Linux defers super-segments, so the last quarter of a window is not always used.
        let slack = u64::from(here.mss.bytes).max(here.offered / 4);
        time.bound[ending.from] = shift.is_some() && edge > 0 && ending.end + slack > edge;
        time.ran_out[ending.from] = ending.ran_out;
        if ending.has_data {
            time.pushed[ending.from] = ending.push;
        }
        time.ended_by_fin = !ending.has_data && !ending.is_syn;
        time.frame = ending.frame;
        if shift.is_none() {
            time.filled[ending.from] = here.in_flight();
        }
        time.messages[ending.from] = ending.is_message && time.was_message[ending.from];
        time.was_message[ending.from] = ending.is_message;
        (time.from, time.was_syn) = (ending.from, ending.is_syn);
        (time.since_ns, time.keepalive) = (self.now_ns, false);
        time.closed_ns = closed_ns_of(&self.directions);
        self.directions[1 - ending.from].forget_least_window();
    }

    /// True if this packet directly follows the same end's last one, in time and sequence number.
    /// Most data do.
    #[inline]
    fn is_of_burst(&self, ending: &Ending, span_ns: u64) -> bool {
        let time = &self.time;
        span_ns < BURST_NS
            && time.begun
            && time.from == ending.from
            && !time.was_syn
            && !time.bound[ending.from]
            && ending.outcome == Data::New
            && ending.seq == ending.nxt_before
            && !(ending.is_syn || ending.is_reset || ending.stalled_ns.is_some())
    }

    /// Wait to which time within a burst is charged.
    #[inline]
    fn of_burst(&self) -> Wait {
        use Wait::{CongestionWindow, HeldUp, Paced, ReceiverWindow, Unclear};
        match self.time.last {
            Some(last @ (CongestionWindow | HeldUp | Paced | ReceiverWindow | Unclear)) => last,
            _ => Wait::Network,
        }
    }

    /// Charges a span of any kind. False if the span goes on.
    #[inline(never)]
    fn on_any_span(&mut self, ending: Ending, span_ns: u64) -> bool {
        let ending = &ending;
        if !self.time.begun {
            // The wait before the first data is unknown.
            self.time.begun = true;
            self.time.rate[ending.from].begin = ending.seq;
            // A window of 0 needs no scale to be known as closed.
            let closed_ns = self.closed_ns().min(span_ns);
            for (wait, ns) in [
                (Wait::ReceiverWindow, closed_ns),
                (Wait::Unclear, span_ns - closed_ns),
            ] {
                self.spend(wait, ns);
                self.time.spots.note(wait, ending.frame, ns);
            }
            self.time.last = (!ending.is_syn).then_some(Wait::Unclear);
            return true;
        }
        if ending.outcome == Data::Keepalive {
            self.time.keepalive = true;
            return false;
        }
        let is_again = ending.outcome == Data::Retransmitted;
        self.note_exchange(ending, span_ns);
        self.end_recovery_unseen(ending);
        let opens =
            ending.outcome == Data::New && ending.nxt_before > 0 && ending.seq > ending.nxt_before;
        let beyond = self.is_beyond_closed_window(ending);
        // Data of a window probe are sent again when the window opens: nothing was lost.
        let probes = is_again && (beyond || self.time.probed[ending.from] == Some(ending.seq));
        self.time.probed[ending.from] = beyond.then_some(ending.seq);
        if ending.is_needless {
            self.directions[ending.from].is_needless = false;
            self.on_needless(ending.from);
        } else if (is_again || opens) && !probes {
            self.on_loss(ending, span_ns, is_again);
        }
        let parts = if probes {
            Parts::all(Wait::ReceiverWindow, span_ns)
        } else if is_again && !ending.is_syn {
            // The span before a retransmission is part of the recovery, whatever its cause would be
            // otherwise.
            let is_shut = self.time.bound[ending.from] || self.closed_ns() >= span_ns / 2;
            Parts::all(
                match is_shut {
                    true => Wait::ReceiverWindow,
                    false => Wait::CongestionWindow,
                },
                span_ns,
            )
        } else {
            self.parts(ending, span_ns)
        };
        for (wait, ns) in parts.0 {
            self.spend(wait, ns);
            self.time.spots.note(wait, ending.frame, ns);
        }
        if !is_again {
            self.learn_pace(ending, span_ns);
        }
        if span_ns >= BURST_NS || self.time.was_syn {
            self.time.rate[ending.from].begin = ending.seq;
        }
        self.time.last = Some(parts.first());
        true
    }

    /// Notes which end goes on without the other.
    fn note_exchange(&mut self, ending: &Ending, span_ns: u64) {
        let time = &mut self.time;
        if ending.from == 0 {
            time.is_one_way |= time.from == 0
                && time.ran_out[0]
                && !time.was_syn
                && ending.has_data
                && ending.outcome == Data::New
                && span_ns > owed::LEAST_NS;
            time.pauses = (0, 0);
        }
    }

    /// True if this packet probes a closed window by data beyond it (RFC 9293 §3.8.6.1).
    fn is_beyond_closed_window(&self, ending: &Ending) -> bool {
        let here = &self.directions[ending.from];
        here.allowed > 0 && here.offered == 0 && ending.seq >= here.allowed
    }

    #[inline]
    pub(super) fn span_ns(&self) -> u64 {
        self.now_ns.saturating_sub(self.time.since_ns)
    }

    /// Time that windows were closed in this span, ns.
    fn closed_ns(&self) -> u64 {
        closed_ns_of(&self.directions).saturating_sub(self.time.closed_ns)
    }

    pub(super) fn spend(&mut self, wait: Wait, ns: u64) {
        match &mut self.time.episode {
            Some(episode) => episode.otherwise.add(wait, ns),
            None => self.time.waits.add(wait, ns),
        }
    }

    /// Updates the pace of an end that sent again with no ACK in between and had more to send.
    fn learn_pace(&mut self, ending: &Ending, span_ns: u64) {
        let x = ending.from;
        let way_ns = self.way_to(x).unwrap_or(0);
        let told_ns = self.directions[x].knew(self.now_ns, way_ns).0.at_ns;
        let time = &mut self.time;
        if time.from == x && !time.ran_out[x] && told_ns.saturating_add(way_ns) <= time.since_ns {
            time.pace[x].add(span_ns);
        }
    }
}

fn closed_ns_of(directions: &[Direction; 2]) -> u64 {
    let [client, server] = directions;
    let [a, b] = [client, server].map(|of| of.sent.zero_window_ns);
    a.saturating_add(b)
}

/// Time within which an event counts as the answer to another: Linux reacts about 10 µs after an
/// ACK, and a path varies by an eighth.
fn tolerance(way_ns: u64) -> u64 {
    AT_ONCE_NS.max(way_ns / 8)
}

const AT_ONCE_NS: u64 = 500_000;

/// Limit of the round trip below which ends are on one host or switch.
const NEAR_NS: u64 = 200_000;

/// Limit of the time between packets of one burst: 1448 bytes take 116 µs at 100 Mbit/s.
const BURST_NS: u64 = 120_000;

/// Shortest tail loss probe (RFC 8985 §7.2: 2 RTT, and 2 ms in Linux), and shortest retransmission
/// timeout.
const PROBE_NS: u64 = 2_000_000;
const TIMEOUT_NS: u64 = 190_000_000;

/// Silence after which an end that sends unasked is taken to have been idle: no other end waited
/// for it.
const IDLE_NS: u64 = 3_000_000_000;
