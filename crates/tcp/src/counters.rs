//! What a connection or an endpoint counts about itself.

/// Totals of one connection since it began. "Segments" are wire segments, whatever the size of the
/// super-segments they travelled in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Wire segments sent, of any kind.
    pub segments_sent: u64,
    /// Units handed to the device: a super-segment counts once.
    pub super_segments_sent: u64,
    /// Payload bytes sent, retransmissions included.
    pub payload_bytes_sent: u64,
    /// Payload bytes sent again.
    pub payload_bytes_retransmitted: u64,
    /// Wire segments sent again.
    pub segments_retransmitted: u64,
    /// Segments sent that carry nothing but an acknowledgement.
    pub pure_acks_sent: u64,
    /// Wire segments received and not dropped before they reached the connection.
    pub segments_received: u64,
    /// Units received: a super-segment counts once.
    pub super_segments_received: u64,
    /// Payload bytes received for the first time, in order or not.
    pub payload_bytes_received: u64,
    /// Wire segments of ours that the peer said it has, the SYN included.
    pub segments_delivered: u64,
    /// Segments received that carry nothing but an acknowledgement.
    pub pure_acks_received: u64,
    /// ACKs sent because their delay was over.
    pub delayed_acks_sent: u64,
    /// Retransmission timeouts.
    pub timeouts: u32,
    /// Tail loss probes sent.
    pub tail_probes_sent: u32,
    /// Zero-window probes sent.
    pub window_probes_sent: u32,
    /// Keepalive probes sent.
    pub keepalives_sent: u32,
    /// Times loss recovery began.
    pub recoveries: u32,
    /// Times what was taken for lost turned out to be late, and the window was given back.
    pub spurious_repairs: u32,
    /// Times the window was reduced for a congestion mark.
    pub ecn_reductions: u32,
    /// Segments dropped: outside the window, or old.
    pub dropped_unacceptable: u32,
    /// Segments dropped by PAWS (RFC 7323 §5).
    pub dropped_paws: u32,
    /// Segments dropped: no ACK flag where there must be one, or an ACK of what was never sent.
    pub dropped_bad_ack: u32,
    /// Payload dropped because the application will read no more or reassembly was full.
    pub dropped_payload: u32,
    /// Challenge ACKs sent (RFC 5961).
    pub challenge_acks_sent: u32,
    /// Acknowledgements not sent because they would have been too many (RFC 5961 §7).
    pub acks_suppressed: u32,
    /// Out-of-order segments received.
    pub out_of_order_received: u32,
    /// Segments received that held nothing new.
    pub duplicates_received: u32,
}
