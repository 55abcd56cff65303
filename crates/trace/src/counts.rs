//! Counts of one direction.

use serde::Serialize;

/// Counts of what one end sent. *Captured packets* are what the capture holds: on a host with
/// segmentation or receive offload one of them may stand for many wire segments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DirectionCounts {
    /// Captured packets of every kind; copies that the capture holds twice are not in it.
    pub captured_packets: u64,
    /// Wire segments of every kind.
    pub wire_segments: u64,
    /// IP octets of the captured packets, headers included.
    pub ip_octets: u64,
    /// Captured packets with payload.
    pub captured_data_packets: u64,
    /// Wire segments with payload.
    pub data_wire_segments: u64,
    /// Of the captured packets with payload, those of more than one wire segment.
    pub super_segments: u64,
    /// Payload bytes sent, retransmissions included.
    pub payload_bytes: u64,
    /// Segments that only acknowledge, keepalives not among them.
    pub pure_acks: u64,
    /// Pure ACKs that repeat the ACK and change the window.
    pub window_updates: u64,
    /// Pure ACKs that repeat ACK and window while data are outstanding (RFC 5681).
    pub duplicate_acks: u64,
    /// Keepalives: the last sequence number again, with one byte or none.
    pub keepalives: u64,
    /// Captured packets whose payload was sent before.
    pub retransmitted_packets: u64,
    /// Their wire segments.
    pub retransmitted_wire_segments: u64,
    /// Their payload bytes.
    pub retransmitted_bytes: u64,
    /// Retransmitted packets of which all was acknowledged before they passed the capture.
    pub retransmitted_after_ack: u64,
    /// Duplicates that the other end reported (DSACK, RFC 2883).
    pub dsacks: u64,
    /// Of these, such as were sent again: spurious retransmissions. Others the network doubled.
    pub spurious_by_dsack: u64,
    /// Packets that filled a gap so soon that they were late rather than lost.
    pub reordered_packets: u64,
    /// Segments with numbers that no window offered: damaged on the way to the capture. What they
    /// acknowledge or carry is left out.
    pub doubtful_segments: u64,
    /// Segments with SACK blocks.
    pub sack_segments: u64,
    /// Packets that the capture holds a second time, as on both sides of a loopback.
    pub captured_twice: u64,
    /// Repetitions that are called sent again, but may as well have been captured twice: nothing in them
    /// tells.
    pub repeats_unclear: u64,
    /// Payload bytes that were acknowledged and are not in the capture.
    pub bytes_missing_from_capture: u64,
    /// Gaps that were forgotten while they were open, because there were too many: what filled one counts
    /// as retransmitted, and what was acknowledged of it is not counted as missing.
    pub gaps_not_followed: u64,
    /// Full-size super-segments directly followed by their short PSH tail.
    pub tail_splits: u64,
    /// Captured packets with payload shorter than one MSS that are no such tail.
    pub small_packets: u64,
    /// Of these, what larger writes would save: a small packet right after a small one (no other packet
    /// and no pause between them) whose bytes would have fitted into that.
    pub joinable_packets: u64,
    /// Segments that offer a window of 0, SYN, FIN and RST not among them: what tshark and tcptrace count.
    pub zero_windows: u64,
    /// Times that this end closed its window.
    pub window_closings: u64,
    /// How long its window was closed, ns.
    pub zero_window_ns: u64,
    /// Times that this end waited for a delayed ACK.
    pub delayed_ack_stalls: u64,
    /// Time lost by that, ns.
    pub delayed_ack_stall_ns: u64,
    /// Silence of the connection that ended in a retransmission of this end, ns.
    pub silence_before_retransmission_ns: u64,
    /// Time that this end waited for ACKs: its congestion window, or its own limit, was full, or (Nagle)
    /// a short packet was outstanding in a delayed-ACK stall, ns.
    pub window_limited_ns: u64,
    /// Time that the other end's window was full, ns.
    pub receiver_limited_ns: u64,
    /// Time that this end had nothing to send, ns; what waits before the capture, in a qdisc or for
    /// pacing, was not sent yet.
    pub application_limited_ns: u64,
    /// Time in which what limited it is unknown, ns.
    pub limit_unknown_ns: u64,
}

/// Adds up field by field.
macro_rules! add_fields {
    ($into:expr, $from:expr, $($field:ident)+) => { $($into.$field = $into.$field.saturating_add($from.$field);)+ };
}

impl DirectionCounts {
    /// Whether so many repetitions may as well be copies that what was sent again is not known: no path
    /// makes a sender send a third of its packets again within a tick of its timestamps.
    pub fn is_unclear(&self) -> bool {
        self.repeats_unclear >= 8 && self.repeats_unclear * 3 >= self.captured_data_packets
    }

    pub(crate) fn add(&mut self, other: &DirectionCounts) {
        add_fields!(self, other,
            captured_packets wire_segments ip_octets captured_data_packets data_wire_segments
            super_segments payload_bytes pure_acks window_updates duplicate_acks keepalives
            retransmitted_packets retransmitted_wire_segments retransmitted_bytes
            retransmitted_after_ack dsacks spurious_by_dsack reordered_packets doubtful_segments sack_segments captured_twice
            bytes_missing_from_capture gaps_not_followed tail_splits small_packets joinable_packets
            repeats_unclear zero_windows window_closings zero_window_ns
            delayed_ack_stalls delayed_ack_stall_ns silence_before_retransmission_ns
            window_limited_ns receiver_limited_ns application_limited_ns limit_unknown_ns);
    }
}
