//! Causes of a span without a loss: what its sender waited for before it sent.

use super::{BURST_NS, Ending, IDLE_NS, NEAR_NS, tolerance};
use crate::connection::Connection;
use crate::direction::Data;
use crate::waits::{CapturedAt, Wait};

/// Parts of a span by cause, the main cause first. Their times sum to the span.
#[derive(Clone, Copy)]
pub(super) struct Parts(pub(super) [(Wait, u64); 3]);

impl Parts {
    pub(super) fn all(wait: Wait, span_ns: u64) -> Parts {
        Parts([(wait, span_ns), (Wait::Network, 0), (Wait::Network, 0)])
    }

    fn longest_first(mut parts: [(Wait, u64); 3]) -> Parts {
        parts.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        Parts(parts)
    }

    /// The main cause.
    pub(super) fn first(&self) -> Wait {
        self.0[0].0
    }
}

/// Span and its length.
#[derive(Clone, Copy)]
struct Span<'a> {
    ending: &'a Ending,
    ns: u64,
    /// Smallest time from the point of capture to the sender and back, ns.
    way_ns: u64,
    /// True if the sender may have had nothing to do: the span is long, or has a keepalive.
    is_idle: bool,
}

impl Connection {
    /// Finds the causes of a span.
    pub(super) fn parts(&mut self, ending: &Ending, span_ns: u64) -> Parts {
        let x = ending.from;
        let span = Span {
            ending,
            ns: span_ns,
            way_ns: self.way_to(x).unwrap_or(0),
            is_idle: self.time.keepalive || span_ns > IDLE_NS,
        };
        let all = |wait| Parts::all(wait, span_ns);
        if self.directions[x].is_unseen() {
            // Progress that ACKs alone show.
            let goes_on = self.time.from == x && !self.time.was_syn;
            return all(match goes_on {
                true => Wait::Unclear,
                false => Wait::UnclearAnswer,
            });
        }
        if ending.is_syn {
            // After a SYN that was sent again the answer's time is that of a loss, or of a server that accepts late.
            let is_again = self.directions.iter().any(|of| of.syns_retransmitted > 0);
            return all(match is_again {
                true => Wait::SynTimeout,
                false => Wait::Network,
            });
        }
        if !ending.has_data
            && ending.outcome == Data::New
            && let Some(wait) = self.give_up(x)
        {
            return all(wait);
        }
        if self.is_request_given_up(&span) {
            self.owe_answer(span_ns);
            return self.parts_before_reset(&span);
        }
        let here = &self.directions[x];
        let answers = self.time.from != x && ending.nxt_before <= here.una.max(1);
        if answers || self.time.was_syn {
            return self.parts_before_answer(&span);
        }
        if let Some(lost_ns) = ending.stalled_ns {
            let lost_ns = lost_ns.min(span_ns);
            return Parts([
                (Wait::DelayedAck, lost_ns),
                (Wait::Network, span_ns - lost_ns),
                (Wait::Network, 0),
            ]);
        }
        if self.waited_for_window(&span) {
            return all(Wait::ReceiverWindow);
        }
        if span_ns < BURST_NS {
            return all(self.of_burst());
        }
        self.parts_of_sender(&span)
    }

    /// True if a client that sent a whole request resets the connection: it has waited for the
    /// answer.
    fn is_request_given_up(&self, span: &Span<'_>) -> bool {
        let time = &self.time;
        let is_client = span.ending.from == 0 && time.from == 0;
        span.ending.is_reset && is_client && time.ran_out[0] && !span.is_idle
    }

    fn parts_before_reset(&self, span: &Span<'_>) -> Parts {
        let here = &self.directions[span.ending.from];
        let rtt_ns = here.rtt.min_ns.unwrap_or(0).saturating_add(span.way_ns);
        let network_ns = span.ns.min(rtt_ns);
        let wait = match self.owed() {
            Some(_) => Wait::Unanswered,
            None => Wait::ServerApplication,
        };
        Parts([
            (wait, span.ns - network_ns),
            (Wait::Network, network_ns),
            (Wait::Network, 0),
        ])
    }

    /// Finds the causes of a span that ends with the first data after the other end's data, or
    /// after a SYN.
    fn parts_before_answer(&self, span: &Span<'_>) -> Parts {
        let x = span.ending.from;
        let time = &self.time;
        let way_ns = if time.from == x {
            self.directions[x].rtt.min_ns.unwrap_or(0)
        } else {
            span.way_ns
        };
        let application = match x {
            1 => Wait::ServerApplication,
            // A client connects in order to send a request.
            0 if time.was_syn && !span.is_idle => Wait::ClientApplication,
            // A client that has its answer keeps no other end waiting.
            _ => Wait::Idle,
        };
        // A partial ACK of the request was sent before the rest of the request arrived. That rest
        // waited for the path, because its sender had already sent it.
        let part_acked_ns = self.directions[1 - x].part_acked_ns;
        let arriving_ns = part_acked_ns.saturating_sub(time.since_ns);
        let network_ns = span.ns.min(way_ns);
        let queued_ns = span.ns.min(arriving_ns).saturating_sub(network_ns);
        // Where all ACKs came with answers, the shortest round trip has the application's time in it.
        let is_of_path = self.directions[1 - x].rtt.is_of_path || time.was_syn;
        let network = if is_of_path {
            Wait::Network
        } else {
            Wait::UnclearAnswer
        };
        Parts::longest_first([
            (network, network_ns),
            (Wait::CongestionWindow, queued_ns),
            (application, span.ns - network_ns - queued_ns),
        ])
    }

    /// True if the window that the sender knew kept it from sending.
    fn waited_for_window(&self, span: &Span<'_>) -> bool {
        let x = span.ending.from;
        let here = &self.directions[x];
        // All data were sent and read, and the window had opened again: then nothing waited for the
        // window.
        let is_rest = span.is_idle
            && self.time.ran_out[x]
            && span.ending.nxt_before <= here.una
            && here.allowed > span.ending.nxt_before;
        self.time.bound[x] && !is_rest || span.ns > 0 && self.closed_ns() >= span.ns / 2
    }

    /// Finds the causes of a pause between two packets of the same end, which no closed window
    /// explains.
    fn parts_of_sender(&mut self, span: &Span<'_>) -> Parts {
        let &Span { ending, way_ns, .. } = span;
        let x = ending.from;
        let all = |wait| Parts::all(wait, span.ns);
        let tolerance_ns = tolerance(way_ns);
        let (learned, _) = self.directions[x].knew_of_ack(self.now_ns, way_ns, tolerance_ns);
        let knew_ns = self.now_ns.saturating_sub(way_ns);
        let since_ack_ns = knew_ns.saturating_sub(learned.at_ns);
        let had_in_flight = ending.nxt_before > learned.una;
        let ran_out = self.time.ran_out[x];
        if self.may_have_been_full(span, had_in_flight) {
            return all(match span.is_idle && x == 0 {
                true => Wait::Idle,
                false => Wait::Unclear,
            });
        }
        // Near the sender: if the sender did not answer an ACK for most of the span, it did not
        // wait for that ACK.
        let is_answer =
            since_ack_ns <= tolerance_ns && (way_ns >= NEAR_NS || since_ack_ns <= span.ns / 2);
        if learned.at_ns > 0 && is_answer {
            // RFC 896 (Nagle): a short segment waits until nothing is in flight.
            return all(if !had_in_flight && ran_out {
                Wait::Network
            } else {
                self.of_sender(x, Wait::CongestionWindow)
            });
        }
        // A full segment is not the end of a stream: there was more to send, though nothing was in
        // flight.
        if ran_out || !had_in_flight && self.time.messages[x] {
            return all(match x {
                _ if span.is_idle && !ending.has_data => Wait::Idle,
                0 if span.is_idle => Wait::Idle,
                0 => Wait::ClientApplication,
                _ if span.is_idle => self.of_unasked_answer(span.ns),
                _ => Wait::ServerApplication,
            });
        }
        let was_told = learned.at_ns.saturating_add(way_ns) > self.time.since_ns;
        if was_told && self.time.pace[x].is_faster(span.ns, since_ack_ns) {
            return all(self.of_sender(x, Wait::CongestionWindow));
        }
        if self.time.rate[x].keeps(span.ns, ending.nxt_before) {
            return all(self.of_sender(x, Wait::Paced));
        }
        // Until the last ACK the sender may have waited for that ACK.
        let late_ns = if was_told {
            since_ack_ns.min(span.ns)
        } else {
            span.ns
        };
        Parts::longest_first([
            (self.of_sender(x, Wait::HeldUp), late_ns),
            (self.of_sender(x, Wait::CongestionWindow), span.ns - late_ns),
            (Wait::Network, 0),
        ])
    }

    /// True if the window was of an unknown scale and may have been full: what was in flight nearly fills the lower bound, or
    /// the pause is too short to tell that the sender had heard of the reader's last window.
    fn may_have_been_full(&self, span: &Span<'_>, had_in_flight: bool) -> bool {
        let x = span.ending.from;
        let there = &self.directions[1 - x];
        if there.window_shift.is_some() {
            return false;
        }
        let way_ns = there.rtt.least_ns();
        let has_heard = way_ns.is_some_and(|way_ns| way_ns.saturating_mul(HEARD) <= span.ns);
        had_in_flight || !has_heard || !there.was_ample_for(self.time.filled[x])
    }

    /// Wait of a server that went on after a long pause though nobody had asked. A server that stopped within its answer
    /// does so once or twice; one that sends news does so again and again, or with one message each.
    fn of_unasked_answer(&mut self, span_ns: u64) -> Wait {
        if self.time.messages[1] {
            return Wait::Idle;
        }
        let (count, ns) = self.time.pauses;
        self.time.pauses = (count + 1, ns.saturating_add(span_ns));
        match count + 1 {
            0..NEWS => return Wait::ServerApplication,
            NEWS => {
                let waits = &mut self.time.waits;
                waits.shift_ns(Wait::ServerApplication, Wait::Idle, ns);
            }
            _ => {}
        }
        Wait::Idle
    }

    /// Returns `wait` if the capture is near the sender and the sender's window is known; else
    /// `Unclear`.
    fn of_sender(&self, x: usize, wait: Wait) -> Wait {
        let is_known = self.directions[1 - x].window_shift.is_some();
        let is_near = match self.captured_at() {
            CapturedAt::Both => true,
            CapturedAt::Client => x == 0,
            CapturedAt::Server => x == 1,
            CapturedAt::Between | CapturedAt::Unknown => false,
        };
        if is_known && is_near {
            wait
        } else {
            Wait::Unclear
        }
    }
}

/// Long pauses without a request from which a server is taken to send news.
const NEWS: u32 = 3;

/// Ways to a sender and back in which it certainly hears of a window.
const HEARD: u64 = 4;
