//! Counts of one direction.

use serde::Serialize;

/// Counts of what one end sent. *Captured packets* are the packets in the capture: on a host with
/// segmentation or receive offload a captured packet may stand for many wire segments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DirectionCounts {
    /// Captured packets of every kind, without second captures of a packet.
    pub captured_packets: u64,
    /// Wire segments of every kind.
    pub wire_segments: u64,
    /// IP bytes of the captured packets, headers included.
    pub ip_octets: u64,
    /// Captured packets with payload.
    pub captured_data_packets: u64,
    /// Wire segments with payload.
    pub data_wire_segments: u64,
    /// Captured packets with payload that stand for more than one wire segment.
    pub super_segments: u64,
    /// Payload bytes sent, retransmissions included.
    pub payload_bytes: u64,
    /// Segments that only acknowledge, without keepalives.
    pub pure_acks: u64,
    /// Pure ACKs that repeat the ACK and change the window.
    pub window_updates: u64,
    /// Pure ACKs that repeat ACK and window while data are outstanding (RFC 5681).
    pub duplicate_acks: u64,
    /// Keepalives: the last sequence number again, with one byte or none.
    pub keepalives: u64,
    /// Captured packets whose payload was sent before.
    pub retransmitted_packets: u64,
    /// Wire segments of the retransmitted packets.
    pub retransmitted_wire_segments: u64,
    /// Payload bytes of the retransmitted packets.
    pub retransmitted_bytes: u64,
    /// Retransmitted packets whose data were all acknowledged before the packet passed the capture.
    pub retransmitted_after_ack: u64,
    /// Duplicates that the other end reported (DSACK, RFC 2883).
    pub dsacks: u64,
    /// Reported duplicates whose data this end sent again: spurious retransmissions. The network
    /// duplicated the others.
    pub spurious_by_dsack: u64,
    /// Retransmitted packets that proved needless: by a DSACK, by an ACK that echoes an older timestamp (Eifel, RFC 3522), or
    /// since the original came later.
    pub retransmitted_needlessly: u64,
    /// Packets that filled a gap so soon that they were late rather than lost.
    pub reordered_packets: u64,
    /// Most packets that a late packet was behind its place.
    pub reordered_positions_most: u64,
    /// Longest time that a late packet was behind its place, ns.
    pub reordered_most_ns: u64,
    /// Segments with sequence numbers that no window offered: damaged on the way to the capture.
    /// Their ACKs and data are ignored.
    pub doubtful_segments: u64,
    /// Captured packets whose options the snap length cut off.
    pub options_cut: u64,
    /// Segments with SACK blocks.
    pub sack_segments: u64,
    /// Second captures of a packet, as on both sides of a loopback interface.
    pub captured_twice: u64,
    /// Repetitions counted as retransmissions that may as well be second captures: no field of the
    /// packet decides.
    pub repeats_unclear: u64,
    /// Payload bytes that were acknowledged but are missing in the capture.
    pub bytes_missing_from_capture: u64,
    /// Gaps that were forgotten while open, because there were too many. Data that fill such a gap
    /// count as retransmitted; acknowledged bytes of it do not count as missing.
    pub gaps_not_followed: u64,
    /// Full-size super-segments directly followed by their short PSH tail.
    pub tail_splits: u64,
    /// Captured packets with payload shorter than one MSS that are no split tail.
    pub small_packets: u64,
    /// Small packets that larger writes would save: each directly follows a small packet (no other
    /// packet and no pause between them), and its bytes would have fitted into that packet.
    pub joinable_packets: u64,
    /// Segments that offer a window of 0, without SYN, FIN and RST: the count of tshark and
    /// tcptrace.
    pub zero_windows: u64,
    /// Times that this end closed its window.
    pub window_closings: u64,
    /// Time that this end's window was closed, ns.
    pub zero_window_ns: u64,
    /// Times that this end waited for a delayed ACK.
    pub delayed_ack_stalls: u64,
    /// Time lost by waiting for delayed ACKs, ns.
    pub delayed_ack_stall_ns: u64,
    /// Silence of the connection before retransmissions of this end, ns.
    pub silence_before_retransmission_ns: u64,
    /// Time that this end waited for ACKs, ns: its congestion window or its own limit was full, or
    /// (Nagle) a short packet was outstanding in a delayed-ACK stall.
    pub window_limited_ns: u64,
    /// Time that the other end's window was full, ns.
    pub receiver_limited_ns: u64,
    /// Time that this end had nothing to send, ns. Data that wait before the point of capture, in a
    /// qdisc or for pacing, count as not sent yet.
    pub application_limited_ns: u64,
    /// Time for which the limit of this end is unknown, ns.
    pub limit_unknown_ns: u64,
}

/// Adds the listed fields one by one, saturating.
macro_rules! add_fields {
    ($into:expr, $from:expr, $($field:ident)+) => { $($into.$field = $into.$field.saturating_add($from.$field);)+ };
}

impl DirectionCounts {
    /// True if so many repetitions may be second captures that the retransmissions are unknown: at
    /// least 8, and a third of the data packets. No path makes a sender send a third of its packets
    /// again within a tick of its timestamps.
    pub fn is_unclear(&self) -> bool {
        self.repeats_unclear >= 8 && self.repeats_unclear * 3 >= self.captured_data_packets
    }

    pub(crate) fn add(&mut self, other: &DirectionCounts) {
        add_fields!(self, other,
            captured_packets wire_segments ip_octets captured_data_packets data_wire_segments
            super_segments payload_bytes pure_acks window_updates duplicate_acks keepalives
            retransmitted_packets retransmitted_wire_segments retransmitted_bytes
            retransmitted_after_ack dsacks spurious_by_dsack options_cut retransmitted_needlessly reordered_packets doubtful_segments sack_segments captured_twice
            bytes_missing_from_capture gaps_not_followed tail_splits small_packets joinable_packets
            repeats_unclear zero_windows window_closings zero_window_ns
            delayed_ack_stalls delayed_ack_stall_ns silence_before_retransmission_ns
            window_limited_ns receiver_limited_ns application_limited_ns limit_unknown_ns);
        let positions = &mut self.reordered_positions_most;
        *positions = (*positions).max(other.reordered_positions_most);
        self.reordered_most_ns = self.reordered_most_ns.max(other.reordered_most_ns);
    }
}
