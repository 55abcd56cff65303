//! Progress of the other end's ACKs, and the data that each ACK covers.

use super::{Coverage, Direction, Early, Outstanding};
use crate::segment::{Segment, flag};
use crate::sequence::{extend, first};

impl Direction {
    /// ACK number of a segment of the other end, in 64 bits. `None` without the ACK flag.
    #[inline]
    pub(crate) fn acknowledged_by(&self, segment: &Segment) -> Option<u64> {
        segment.any(flag::ACK).then(|| match self.nxt {
            0 => first(segment.ack),
            nxt => extend(nxt.max(self.una), segment.ack),
        })
    }

    /// Handles an ACK of all bytes before `ack`, which came without data if it `is_alone`. Returns what it covers for the first time; `None`
    /// if nothing.
    // Inlined: called at one place for nearly every packet, and the result is about a hundred bytes
    // long.
    #[inline(always)]
    pub(crate) fn on_acked(
        &mut self,
        ack: u64,
        at_ns: u64,
        echo: Option<u32>,
        is_alone: bool,
    ) -> Option<Coverage> {
        if self.una == 0 || !self.seen {
            // The capture began in the middle of the connection, or holds the other direction
            // alone.
            if !self.seen && ack > self.una {
                self.unseen_from = self.una;
            }
            self.una = self.una.max(ack);
            if !self.seen {
                self.nxt = self.una;
                self.base = self.una;
            }
            return None;
        }
        if ack <= self.una {
            return None;
        }
        let (mut coverage, newest_certain) = self.cover(ack);
        coverage.of_syn = self.syn_seen && coverage.from == self.base;
        if let Some(at) = newest_certain {
            let rtt_ns = at_ns.saturating_sub(at);
            // A SYN is acknowledged at once, whatever comes with the ACK.
            self.rtt.on_ack(rtt_ns, is_alone || coverage.of_syn);
            coverage.rtt_ns = Some(rtt_ns);
        }
        coverage.bytes = ack - self.una;
        if !self.holes.is_empty() || ack > self.nxt {
            coverage.wire_segments += self.on_missing(ack, at_ns, echo);
        }
        // SYN and FIN take one sequence number each.
        let of_fin = self.fin_seen && ack == self.nxt;
        coverage.bytes = coverage
            .bytes
            .saturating_sub(u64::from(coverage.of_syn) + u64::from(of_fin));
        self.initial_over |= coverage.bytes > 0;
        if let Some(echo) = echo
            && self.resent.back().is_some_and(|last| last.end > self.una)
        {
            self.on_echo_of_original(self.una, ack, echo);
        }
        self.una = ack;
        Some(coverage)
    }

    /// Removes the outstanding packets before `ack`. Returns what the ACK covers of them, and the
    /// time of the newest that gives an RTT sample.
    #[inline(always)]
    fn cover(&mut self, ack: u64) -> (Coverage, Option<u64>) {
        let mut coverage = Coverage {
            from: self.una,
            to: ack,
            on_boundary: true,
            ..Coverage::default()
        };
        let mss = u64::from(self.mss.bytes);
        let mut newest_certain = None;
        let mut counted_to = self.una;
        while let Some(front) = self.outstanding.front_mut() {
            if front.start >= ack {
                break;
            }
            let missing = front.start.saturating_sub(counted_to);
            counted_to = front.end.min(ack);
            if missing > 0 {
                // Bytes that were not captured count as full segments.
                coverage.wire_segments += missing.div_ceil(mss);
                coverage.full_segments += missing / mss;
            }
            coverage.oldest_at_ns.get_or_insert(front.at_ns);
            coverage.newest_at_ns = Some(front.at_ns);
            if front.end > ack {
                coverage.add_part(front, ack, mss);
                break;
            }
            coverage.wire_segments += u64::from(front.wire_segments);
            coverage.full_segments += (front.end - front.start) / mss;
            coverage.packets += 1;
            if !front.vague {
                newest_certain = Some(front.at_ns);
            }
            self.outstanding.pop_front();
        }
        (coverage, newest_certain)
    }

    /// Handles acknowledged gaps: the capture lost the data, or holds them after their ACK. Returns
    /// the wire segments after the last packet.
    #[cold]
    fn on_missing(&mut self, ack: u64, at_ns: u64, echo: Option<u32>) -> u64 {
        let mut acked = Vec::new();
        self.holes.retain_mut(|hole| {
            let end = hole.end.min(ack);
            if hole.start < end {
                acked.push((hole.start, end));
                hole.start = end;
            }
            hole.start < hole.end
        });
        let behind = ack.saturating_sub(self.nxt);
        if behind > 0 {
            acked.push((self.nxt, ack));
        }
        for (start, end) in acked {
            self.sent.bytes_missing_from_capture += end - start;
            let early = Early {
                start,
                end,
                at_ns,
                echo,
            };
            self.remember_early(early, at_ns);
        }
        self.nxt = self.nxt.max(ack);
        behind.div_ceil(u64::from(self.mss.bytes))
    }
}

impl Coverage {
    /// Adds the bytes of a packet before `ack`. The rest of the packet stays outstanding.
    #[inline]
    fn add_part(&mut self, packet: &mut Outstanding, ack: u64, mss: u64) {
        let bytes = ack - packet.start;
        let covered = (bytes.div_ceil(mss) as u32).min(packet.wire_segments.saturating_sub(1));
        self.wire_segments += u64::from(covered);
        self.full_segments += bytes / mss;
        self.on_boundary = false;
        packet.start = ack;
        packet.wire_segments -= covered;
        packet.vague = true;
    }
}
