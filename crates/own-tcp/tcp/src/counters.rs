//! Counters of a connection.

/// Totals of one connection since it was opened. "Segments" are wire segments; a super-segment
/// counts as the segments that it is cut into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Wire segments sent, of any kind.
    pub segments_sent: u64,
    /// Units passed to the device: a super-segment counts once.
    pub super_segments_sent: u64,
    /// Payload bytes sent, retransmissions included.
    pub payload_bytes_sent: u64,
    /// Payload bytes retransmitted.
    pub payload_bytes_retransmitted: u64,
    /// Wire segments retransmitted.
    pub segments_retransmitted: u64,
    /// Segments sent that carry only an acknowledgement.
    pub pure_acks_sent: u64,
    /// Wire segments received and not dropped before they reached the connection.
    pub segments_received: u64,
    /// Units received: a super-segment counts once.
    pub super_segments_received: u64,
    /// Payload bytes received for the first time, in order or not.
    pub payload_bytes_received: u64,
    /// Wire segments of ours that the peer acknowledged or reported by SACK, including the SYN.
    pub segments_delivered: u64,
    /// Segments received that carry only an acknowledgement.
    pub pure_acks_received: u64,
    /// ACKs sent because their delay expired.
    pub delayed_acks_sent: u64,
    /// Retransmission timeouts.
    pub timeouts: u32,
    /// Tail loss probes sent.
    pub tail_probes_sent: u32,
    /// Zero-window probes sent.
    pub window_probes_sent: u32,
    /// Keepalive probes sent.
    pub keepalives_sent: u32,
    /// Entries into loss recovery.
    pub recoveries: u32,
    /// Repairs of segments that were late, not lost; the congestion window was restored.
    pub spurious_repairs: u32,
    /// Reductions of the window because of an ECN congestion mark.
    pub ecn_reductions: u32,
    /// Segments dropped because they were outside the window or old.
    pub dropped_unacceptable: u32,
    /// Segments dropped by PAWS (RFC 7323 §5).
    pub dropped_paws: u32,
    /// Segments dropped because the ACK flag was missing, or the ACK was of data never sent.
    pub dropped_bad_ack: u32,
    /// Segments whose payload was dropped because the application reads no more, the window was
    /// closed, reassembly was full, or the payload came after the peer's FIN.
    pub dropped_payload: u32,
    /// Challenge ACKs sent (RFC 5961).
    pub challenge_acks_sent: u32,
    /// Acknowledgements not sent because of the rate limit (RFC 5961 §7).
    pub acks_suppressed: u32,
    /// Out-of-order segments received.
    pub out_of_order_received: u32,
    /// Segments received without any new data.
    pub duplicates_received: u32,
}

/// Compact storage of [`Counters`], preceded by `MORE` other numbers. Each number takes as many
/// groups of seven bits as it needs; trailing zero bytes are omitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tally<const MORE: usize>(Box<[u8]>);

impl<const MORE: usize> Tally<MORE> {
    pub(crate) fn of(counters: &Counters, more: [u64; MORE]) -> Self {
        let mut bytes = Vec::with_capacity(64);
        let mut push = |mut count: u64| {
            while count >= 0x80 {
                bytes.push(count as u8 | 0x80);
                count >>= 7;
            }
            bytes.push(count as u8);
        };
        more.into_iter().for_each(&mut push);
        let mut copy = *counters;
        copy.each(|count| {
            push(count);
            count
        });
        let said = bytes.iter().rposition(|byte| *byte != 0);
        bytes.truncate(said.map_or(0, |last| last + 1));
        Self(bytes.into())
    }

    pub(crate) fn told(&self) -> (Counters, [u64; MORE]) {
        let mut bytes = self.0.iter();
        let mut next = || {
            let (mut count, mut shift) = (0, 0);
            for byte in bytes.by_ref() {
                count |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            count
        };
        let more = std::array::from_fn(|_| next());
        let mut counters = Counters::default();
        counters.each(|_| next());
        (counters, more)
    }
}

impl Counters {
    /// Replaces each counter by `of(counter)`, in a fixed order.
    fn each(&mut self, mut of: impl FnMut(u64) -> u64) {
        let long: [&mut u64; LONG] = [
            &mut self.segments_sent,
            &mut self.super_segments_sent,
            &mut self.payload_bytes_sent,
            &mut self.payload_bytes_retransmitted,
            &mut self.segments_retransmitted,
            &mut self.pure_acks_sent,
            &mut self.segments_received,
            &mut self.super_segments_received,
            &mut self.payload_bytes_received,
            &mut self.segments_delivered,
            &mut self.pure_acks_received,
            &mut self.delayed_acks_sent,
        ];
        long.into_iter().for_each(|count| *count = of(*count));
        let short: [&mut u32; SHORT] = [
            &mut self.timeouts,
            &mut self.tail_probes_sent,
            &mut self.window_probes_sent,
            &mut self.keepalives_sent,
            &mut self.recoveries,
            &mut self.spurious_repairs,
            &mut self.ecn_reductions,
            &mut self.dropped_unacceptable,
            &mut self.dropped_paws,
            &mut self.dropped_bad_ack,
            &mut self.dropped_payload,
            &mut self.challenge_acks_sent,
            &mut self.acks_suppressed,
            &mut self.out_of_order_received,
            &mut self.duplicates_received,
        ];
        (short.into_iter()).for_each(|count| *count = of(u64::from(*count)) as u32);
    }
}

const LONG: usize = 12;
const SHORT: usize = 15;
/// Checks that `each` lists every field.
const _: () = assert!(
    size_of::<Counters>().next_multiple_of(8) == (8 * LONG + 4 * SHORT).next_multiple_of(8)
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_tells_every_count() {
        let mut counters = Counters::default();
        let mut next = 1_u64;
        counters.each(|_| {
            next = next.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
            next >> (next % 64)
        });
        let more = [u64::MAX, 0, 300];
        assert_eq!(Tally::of(&counters, more).told(), (counters, more));
        let none = (Counters::default(), [0; 3]);
        let tally = Tally::of(&none.0, none.1);
        assert_eq!((tally.told(), tally.0.len()), (none, 0));
    }
}
