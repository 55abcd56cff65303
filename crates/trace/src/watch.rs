//! Events of connections, reported one by one to a [`Watch`].

/// Receiver of events; each method does nothing by default. `connection`: index in the result of
/// [`crate::Analysis::finish`]. `from`: the end, 0 for the client, or for the end that was seen
/// first.
pub trait Watch {
    /// True if packets of this connection are of interest: no event is made of others.
    fn wants(&self, _connection: usize) -> bool {
        true
    }
    /// Receives a captured packet.
    fn on_packet(&mut self, _connection: usize, _packet: &PacketEvent) {}
    /// Receives an ACK that covers payload for the first time.
    fn on_ack(&mut self, _connection: usize, _ack: &AckEvent) {}
    /// Receives a burst that ended.
    fn on_burst(&mut self, _connection: usize, _burst: &BurstEvent) {}
    /// Receives a delayed-ACK stall that ended.
    fn on_stall(&mut self, _connection: usize, _stall: &StallEvent) {}
}

impl Watch for () {}

/// Captured packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketEvent {
    /// End that sent it: 0 or 1.
    pub from: usize,
    /// Time, ns since the epoch. `None` if the capture has no times.
    pub at_ns: Option<u64>,
    /// Sequence number.
    pub seq: u32,
    /// Offset of its payload in the direction's byte stream, from the first known byte.
    pub offset: u64,
    /// Payload bytes.
    pub payload_bytes: u32,
    /// Wire segments that it stands for; 0 without payload.
    pub wire_segments: u32,
    /// Full-sized wire segments among them.
    pub full_segments: u32,
    /// Acknowledgment number, and its offset in the other direction's byte stream. `None` without
    /// the ACK flag.
    pub ack: Option<(u32, u64)>,
    /// True if PSH is set.
    pub push: bool,
    /// True if the payload was sent before.
    pub retransmission: bool,
    /// True if the packet is the short tail that was split off a super-segment.
    pub tail_split: bool,
    /// Number in the capture, from 1.
    pub frame: u64,
    /// Bytes that its sender has in flight, this packet included.
    pub in_flight_bytes: u64,
    /// Payload bytes that it acknowledges for the first time.
    pub newly_acked_bytes: u64,
    /// Window that it offers, bytes. `None` without ACK, or if the scale is unknown.
    pub window_bytes: Option<u64>,
    /// Round trip that its ACK ended, ns. `None` if it ended none.
    pub rtt_ns: Option<u64>,
    /// End of its first SACK block, as an offset in the other direction's byte stream. `None`
    /// without a block.
    pub sacked: Option<u64>,
    /// True if that block reports a duplicate (D-SACK).
    pub dsack: bool,
    /// True if RST is set.
    pub reset: bool,
}

/// ACK that covers payload for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckEvent {
    /// End that sent it: 0 or 1.
    pub from: usize,
    /// Acknowledgment number of the ACK before.
    pub previous: u32,
    /// Acknowledgment number of this ACK.
    pub ack: u32,
    /// Payload bytes covered.
    pub bytes: u64,
    /// Wire segments covered.
    pub wire_segments: u64,
    /// Full-sized wire segments among them.
    pub full_segments: u64,
    /// True if it is a pure ACK.
    pub pure: bool,
}

/// Burst: successive packets of one kind and direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BurstEvent {
    /// End that sent it: 0 or 1.
    pub from: usize,
    /// True for data, false for pure ACKs.
    pub data: bool,
    /// Captured packets.
    pub packets: u64,
    /// Wire segments.
    pub wire_segments: u64,
}

/// Pause in which an end waited for a delayed ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StallEvent {
    /// End that waited: 0 or 1.
    pub from: usize,
    /// Time of the last data before the pause, ns since the epoch.
    pub since_ns: u64,
    /// Time of the ACK, ns since the epoch.
    pub until_ns: u64,
    /// Number of the ACK in the capture.
    pub frame: u64,
}
