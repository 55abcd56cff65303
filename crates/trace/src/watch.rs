//! What happens in a connection, told one by one to whoever wants to know.

/// Takes events; each does nothing unless it is written. `connection` is the place in
/// what [`crate::Analysis::finish`] gives, `from` the end: 0 is the client, or else who was seen first.
pub trait Watch {
    /// A captured packet was taken in.
    fn on_packet(&mut self, _connection: usize, _packet: &PacketEvent) {}
    /// An ACK covered payload for the first time.
    fn on_ack(&mut self, _connection: usize, _ack: &AckEvent) {}
    /// A burst ended.
    fn on_burst(&mut self, _connection: usize, _burst: &BurstEvent) {}
    /// A delayed-ACK stall ended.
    fn on_stall(&mut self, _connection: usize, _stall: &StallEvent) {}
}

impl Watch for () {}

/// A captured packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketEvent {
    /// Who sent it.
    pub from: usize,
    /// When, ns since the epoch.
    pub at_ns: Option<u64>,
    /// Its sequence number.
    pub seq: u32,
    /// Place of its payload in the direction's byte stream, from the first byte known.
    pub offset: u64,
    /// Its payload.
    pub payload_bytes: u32,
    /// Wire segments that it stands for; 0 without payload.
    pub wire_segments: u32,
    /// Full-sized ones of them.
    pub full_segments: u32,
    /// Its acknowledgment number, and that as a place in the other direction's byte stream.
    pub ack: Option<(u32, u64)>,
    /// Whether PSH is set.
    pub push: bool,
    /// Whether the payload was sent before.
    pub retransmission: bool,
    /// Whether it is the short tail that was split off a super-segment.
    pub tail_split: bool,
    /// Its number in the capture, from 1 on.
    pub frame: u64,
    /// Bytes that its sender has in flight with it.
    pub in_flight_bytes: u64,
    /// Payload bytes that it acknowledges for the first time.
    pub newly_acked_bytes: u64,
    /// The window that it offers, bytes; `None` without ACK, or if the scale is unknown.
    pub window_bytes: Option<u64>,
    /// The round trip that its ACK ended.
    pub rtt_ns: Option<u64>,
    /// Where its first SACK block ends, as a place in the other direction's byte stream.
    pub sacked: Option<u64>,
    /// Whether that tells of a duplicate.
    pub dsack: bool,
    /// Whether it resets the connection.
    pub reset: bool,
}

/// An ACK that covered payload for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckEvent {
    /// Who sent it.
    pub from: usize,
    /// The acknowledgment number before, and now.
    pub previous: u32,
    /// Now.
    pub ack: u32,
    /// Payload bytes covered.
    pub bytes: u64,
    /// Wire segments covered.
    pub wire_segments: u64,
    /// Full-sized ones of them.
    pub full_segments: u64,
    /// Whether it came alone.
    pub pure: bool,
}

/// Packets of one kind and direction in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BurstEvent {
    /// Who sent them.
    pub from: usize,
    /// Data, or pure ACKs.
    pub data: bool,
    /// Captured packets.
    pub packets: u64,
    /// Wire segments.
    pub wire_segments: u64,
}

/// A pause in which an end waited for an ACK that was delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StallEvent {
    /// Who waited.
    pub from: usize,
    /// When the last data left, ns since the epoch.
    pub since_ns: u64,
    /// When the ACK came.
    pub until_ns: u64,
    /// The ACK's number in the capture.
    pub frame: u64,
}
