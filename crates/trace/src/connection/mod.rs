//! One connection: both directions, and results that need both.

mod burst;
mod held;
mod owed;
mod pace;
mod roles;
mod spots;
mod stall;
mod steps;
mod time;
mod view;

use serde::Serialize;

use self::burst::Burst;
use self::held::Held;
pub use self::owed::{Owed, OwedKind};
pub(crate) use self::roles::Ports;
pub use self::roles::ServerBy;
pub use self::spots::Spot;
pub(crate) use self::spots::{Sight, Spots};
use self::stall::Pending;
use self::time::Time;
use crate::counts::DirectionCounts;
use crate::direction::Direction;
use crate::segment::{Endpoint, Host, Segment, flag};
use crate::tunnels::Tunnel;
use crate::watch::Watch;

/// Start of a connection, as far as the capture shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionStart {
    /// Both SYNs were captured.
    Handshake,
    /// One SYN was captured.
    OneSyn,
    /// No SYN was captured: the connection is older than the capture.
    BeforeCapture,
}

/// End of a connection, as far as the capture shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionEnd {
    /// Both FINs were captured.
    Fin {
        /// End that sent the first FIN: 0 or 1.
        first: usize,
    },
    /// One FIN was captured.
    HalfClosed {
        /// End that sent the FIN: 0 or 1.
        by: usize,
    },
    /// A RST was captured.
    Reset {
        /// End that sent the RST: 0 or 1.
        by: usize,
    },
    /// No FIN or RST was captured: the connection outlived the capture, or its end was not
    /// captured.
    NotSeen,
}

/// Result of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Handshake {
    /// An end sent a packet other than SYN or RST.
    Completed,
    /// The client's SYN was answered, and the client sent nothing more: a scan, a flood with
    /// spoofed addresses, or a lost answer.
    HalfOpen,
    /// The server answered with a RST.
    Refused,
    /// No packet answered the SYN.
    Unanswered,
    /// The capture ended within a second of the handshake's last packet.
    Open,
}

/// Settings of an analysis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Pause that ends a burst, ns.
    pub burst_gap_ns: u64,
    /// MSS of every connection, bytes. `None`: the MSS that the capture shows.
    pub mss: Option<u32>,
}

impl Default for Settings {
    /// Burst gap of 10 ms: longer than the delay that a host's scheduler or GRO adds within a
    /// burst, and shorter than the usual delayed-ACK timer of 40 ms.
    fn default() -> Settings {
        Settings {
            burst_gap_ns: 10_000_000,
            mss: None,
        }
    }
}

/// TCP connection of a capture.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Ends: 0 is the client. Without a SYN it is inferred ([`Connection::server_by`]).
    pub ends: [Endpoint; 2],
    /// Packets that each end sent.
    pub directions: [Direction; 2],
    /// Time of the first packet, ns since the epoch. `None` if the capture has no times.
    pub first_ns: Option<u64>,
    /// Time of the last packet, ns since the epoch. `None` if the capture has no times.
    pub last_ns: Option<u64>,
    /// Time without anything outstanding in either direction, ns.
    pub idle_ns: u64,
    /// Longest time without a packet, ns.
    pub longest_silence_ns: u64,
    /// Time from the client's SYN to its ACK of the server's SYN, ns. `None` if either was not
    /// captured.
    pub handshake_ns: Option<u64>,
    /// Innermost tunnel that carried the first packet. `None` if there was no tunnel.
    pub tunnel: Option<Tunnel>,
    /// Packets whose timestamp is earlier than that of the packet before.
    pub clock_went_back: u64,
    server_by: ServerBy,
    /// End that other connections show to be the server.
    server_by_ports: Option<usize>,
    first_fin: Option<usize>,
    reset_by: Option<usize>,
    place: usize,
    now_ns: u64,
    clock: bool,
    /// End of the capture, ns since the epoch; 0 while it is unknown.
    until_ns: u64,
    /// Exchange that was not finished when the capture ended.
    owed: Option<Owed>,
    timestamps: bool,
    ipv6: bool,
    loopback: bool,
    burst: Burst,
    last_from: Option<usize>,
    /// Time of the last packet, ns, if it carried data. Timestamps that went back do not count.
    last_data_ns: Option<u64>,
    /// Pause that an ACK ended, until the next packet shows whether it was a stall.
    stall: Option<Pending>,
    /// Packets held back until the MSS is known; `None` once it is.
    held: Option<Box<Held>>,
    settings: Settings,
    /// True if several interfaces see each packet: then only the first packet seen is analysed.
    has_views: bool,
    /// Sequence numbers of the SYNs, for recognising a new connection on the same ports.
    syn_numbers: [Option<u32>; 2],
    beyond_syn: bool,
    /// True for each end that sent a packet other than SYN or RST.
    spoke: [bool; 2],
    time: Time,
}

impl Connection {
    pub(crate) fn new(
        first: &Segment,
        place: usize,
        settings: Settings,
        ports: &Ports,
    ) -> Connection {
        // The client sends the SYN and receives the SYN-ACK.
        let swapped = first.has(flag::SYN | flag::ACK);
        let ends = if swapped {
            [first.destination, first.source]
        } else {
            [first.source, first.destination]
        };
        let of_host = |test: fn(std::net::IpAddr) -> bool| matches!(ends[0].host, Host::Address(address) if test(address));
        Connection {
            ends,
            directions: [Direction::new(), Direction::new()],
            first_ns: first.at_ns,
            last_ns: first.at_ns,
            idle_ns: 0,
            longest_silence_ns: 0,
            handshake_ns: None,
            tunnel: first.tunnel,
            clock_went_back: 0,
            server_by: ServerBy::Syn,
            server_by_ports: ports.server(&ends),
            first_fin: None,
            reset_by: None,
            place,
            now_ns: first.at_ns.unwrap_or(0),
            clock: true,
            until_ns: 0,
            owed: None,
            timestamps: false,
            ipv6: of_host(|address| address.is_ipv6()),
            loopback: of_host(|address| address.is_loopback()),
            burst: Burst::default(),
            last_from: None,
            last_data_ns: None,
            stall: None,
            held: Some(Box::default()),
            settings,
            has_views: false,
            syn_numbers: [None; 2],
            beyond_syn: false,
            spoke: [false; 2],
            time: Time::since(first.at_ns.unwrap_or(0)),
        }
    }

    /// Number of the connection: from 1, in the order of first packets.
    pub fn number(&self) -> usize {
        self.place + 1
    }

    /// Evidence for which end is the server.
    pub fn server_by(&self) -> ServerBy {
        self.server_by
    }

    /// True if what its ends' windows stand for is unknown: the scale is in the SYN (RFC 7323 §2.2).
    pub(crate) fn is_scale_unknown(&self) -> bool {
        let carries = self.directions.iter().any(|of| of.sent.payload_bytes > 0);
        carries && self.directions.iter().any(|of| of.window_shift.is_none())
    }

    /// Frames at which causes show.
    pub(crate) fn spots(&self) -> &Spots {
        &self.time.spots
    }

    /// Start of the connection.
    pub fn began(&self) -> ConnectionStart {
        match self
            .directions
            .each_ref()
            .map(|direction| direction.syn_seen)
        {
            [true, true] => ConnectionStart::Handshake,
            [false, false] => ConnectionStart::BeforeCapture,
            _ => ConnectionStart::OneSyn,
        }
    }

    /// End of the connection.
    pub fn ended(&self) -> ConnectionEnd {
        match (self.reset_by, self.first_fin) {
            (Some(by), _) => ConnectionEnd::Reset { by },
            (None, Some(first)) if self.directions[1 - first].fin_seen => {
                ConnectionEnd::Fin { first }
            }
            (None, Some(by)) => ConnectionEnd::HalfClosed { by },
            (None, None) => ConnectionEnd::NotSeen,
        }
    }

    /// Result of the handshake. `None` if the client's SYN was not captured.
    pub fn handshake(&self) -> Option<Handshake> {
        let [client, server] = &self.directions;
        if !client.syn_seen {
            return None;
        }
        Some(if self.spoke[0] || self.spoke[1] {
            Handshake::Completed
        } else if server.reset {
            Handshake::Refused
        } else if self.is_under_way() {
            Handshake::Open
        } else if server.syn_seen {
            Handshake::HalfOpen
        } else {
            Handshake::Unanswered
        })
    }

    /// True if the capture ended so soon after the last packet that an answer may follow. Where the ports began another
    /// connection none follows.
    fn is_under_way(&self) -> bool {
        let is_soon = self.until_ns.saturating_sub(self.now_ns) < SYN_TIMEOUT_NS;
        self.clock && self.until_ns > 0 && is_soon
    }

    /// Time from the first packet to the last, ns. `None` if the capture has no times.
    pub fn duration_ns(&self) -> Option<u64> {
        Some(self.last_ns?.saturating_sub(self.first_ns?))
    }

    /// True if only one direction was captured, though the other end must have sent packets.
    pub fn is_one_sided(&self) -> bool {
        let packets = self
            .directions
            .each_ref()
            .map(|direction| direction.sent.captured_packets);
        packets.contains(&0) && packets.iter().sum::<u64>() > 3
    }

    /// True if this SYN opens another connection between the same ports.
    #[cold]
    pub(crate) fn is_followed_by(&self, syn: &Segment, from: usize) -> bool {
        match self.syn_numbers[from] {
            Some(number) => syn.seq != Some(number),
            None => self.beyond_syn,
        }
    }

    /// Number of the end that sends from `source`: 0 or 1.
    #[inline]
    pub(crate) fn end_of(&self, source: &Endpoint) -> usize {
        usize::from(*source != self.ends[0])
    }

    /// Number of the end that sent `segment`. `None` if it is not of this connection.
    #[inline(always)]
    pub(crate) fn sender_of(&self, segment: &Segment) -> Option<usize> {
        let [first, second] = &self.ends;
        if segment.source == *first && segment.destination == *second {
            Some(0)
        } else if segment.source == *second && segment.destination == *first {
            Some(1)
        } else {
            None
        }
    }

    #[inline(always)]
    pub(crate) fn on_segment<W: Watch>(&mut self, segment: &Segment, from: usize, watch: &mut W) {
        if segment.any(flag::SYN) {
            self.syn_numbers[from] = segment.seq;
        } else {
            self.beyond_syn = true;
            self.spoke[from] |= !segment.any(flag::RST);
        }
        if self.held.is_some() {
            self.hold(segment, from, watch);
        } else {
            self.analyse(segment, from, watch);
        }
    }

    /// Ends what is still open, at the end of the capture (0: unknown, or of no interest).
    pub(crate) fn finish<W: Watch>(&mut self, until_ns: u64, watch: &mut W) {
        self.release(watch);
        self.end_burst(watch);
        self.until_ns = until_ns;
        self.end_span();
    }

    /// Counts of both directions together.
    pub fn total(&self) -> DirectionCounts {
        let mut total = self.directions[0].sent.clone();
        total.add(&self.directions[1].sent);
        total
    }
}

/// First timeout of a SYN (RFC 6298 §2.1).
const SYN_TIMEOUT_NS: u64 = 1_000_000_000;

/// Returns the sender's direction and the other one.
#[inline]
fn sides(directions: &mut [Direction; 2], from: usize) -> (&mut Direction, &mut Direction) {
    let [first, second] = directions;
    if from == 0 {
        (first, second)
    } else {
        (second, first)
    }
}
