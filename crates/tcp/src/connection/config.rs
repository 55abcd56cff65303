//! What can be chosen about a connection: plain data.

use std::num::NonZeroU16;
use std::time::Duration;

use crate::connection::{AckPolicy, LinuxAcks, MtuProbing, Segmentation};

/// Choices of a connection. An [`Endpoint`](crate::Endpoint) gives each of its connections a copy;
/// most can be changed later.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Largest payload of one segment without options that our side of the path takes: the MTU
    /// less 40 (IPv4) or 60 (IPv6) bytes. Announced as MSS. Default 1460.
    pub mss: u16,
    /// Bytes written and not acknowledged that a connection holds. Default 1 MiB.
    pub send_buffer: u32,
    /// Bytes received and not read that a connection offers to hold at first. Default 256 KiB.
    pub receive_buffer: u32,
    /// What the receive buffer may grow to when the reader keeps up and the path could carry more;
    /// at or below `receive_buffer` it stays as it is. Decides the window scale. Default 4 MiB.
    pub receive_buffer_max: u32,
    /// Offer timestamps and PAWS (RFC 7323). Default yes.
    pub timestamps: bool,
    /// Offer selective acknowledgements (RFC 2018). Default yes.
    pub sack: bool,
    /// Offer window scaling (RFC 7323). Default yes.
    pub window_scaling: bool,
    /// Offer explicit congestion notification (RFC 3168). Default no, as in Linux for connections
    /// it opens.
    pub ecn: bool,
    /// Differentiated services code point of its packets (RFC 2474; IP_TOS and IPV6_TCLASS, whose two
    /// lowest bits are ECN's), 0 to 63. Default 0.
    pub dscp: u8,
    /// Sum payload in the pass that copies it into the send queue, because no device will. Default
    /// no; an [`Endpoint`](crate::Endpoint) sets it by what its device does.
    pub sum_on_write: bool,
    /// When to acknowledge. Default [`AckPolicy::Delayed`] with 40 ms.
    pub ack: AckPolicy,
    /// What [`AckPolicy::LinuxLike`] does behind a gap and about a batch. Default as Linux.
    pub linux_acks: LinuxAcks,
    /// How to cut segments.
    pub segmentation: Segmentation,
    /// How much may be in flight. Default CUBIC.
    pub congestion: CongestionControl,
    /// What opens the congestion window. Default [`WindowGrowth::Bytes`].
    pub window_growth: WindowGrowth,
    /// End the first slow start where the round-trip time grows, before a queue overflows (HyStart++,
    /// RFC 9406), with CUBIC or Reno. Default no: slow start ends with the first loss.
    pub hystart: bool,
    /// Congestion window of a new connection, in segments. Default RFC 6928's 10, at most
    /// 14,600 bytes.
    pub initial_window: Option<NonZeroU16>,
    /// Data with the SYN (RFC 7413). Default neither way.
    pub fast_open: FastOpenChoice,
    /// Fall back to the initial window after an idle time of more than a timeout (RFC 5681 §4.1;
    /// Linux's `tcp_slow_start_after_idle`). Default yes.
    pub restart_after_idle: bool,
    /// The retransmission timeout is the smoothed round-trip time and at least this. RFC 6298 (2.4)
    /// says 1 s for both together; default 200 ms as in Linux: peers delay ACKs by no more. At most 65 s.
    pub rto_min: Duration,
    /// The retransmission timeout is at most this, however often it is doubled. Default 120 s as in Linux (its socket option
    /// TCP_RTO_MAX_MS); RFC 6298 (2.5) allows a maximum of at least 60 s.
    pub rto_max: Duration,
    /// Send one more segment when the last of a flight stay unacknowledged (RFC 8985 §7); Linux before
    /// 3.10 did not. Default yes, where SACK is agreed on.
    pub tail_loss_probe: bool,
    /// Whether probes find out how large segments may be (RFC 4821). Default [`MtuProbing::Off`] as in
    /// Linux: most paths say what is too big, and a peer that is merely gone for a while would cost
    /// the large segments.
    pub mtu_probing: MtuProbing,
    /// Give up after this many timeouts in a row (R2 of RFC 9293 §3.8.3). Default 15: about a
    /// quarter of an hour.
    pub retries_max: u8,
    /// The same for SYNs. Default 6: about a minute.
    pub syn_retries_max: u8,
    /// Give up when written data stays unacknowledged for this long (RFC 9293 §3.8.3, RFC 5482).
    /// Default none.
    pub user_timeout: Option<Duration>,
    /// Probe an idle connection. Default none (MUST-25: off unless asked for).
    pub keepalive: Option<KeepAlive>,
    /// 2 MSL. Default 60 s as in Linux; RFC 9293 §3.4.2 says 4 minutes.
    pub time_wait: Duration,
}

impl Config {
    /// Whether each segment is to be answered before the next is taken in
    /// ([`LinuxAcks::backlog_ack_defer`]).
    pub(crate) fn answers_each(&self) -> bool {
        !self.linux_acks.backlog_ack_defer && matches!(self.ack, AckPolicy::LinuxLike { .. })
    }

    /// The smallest shift with which 16 bits tell of the whole buffer (RFC 7323 §2.3: at most 14).
    pub(crate) fn window_shift(&self) -> u8 {
        let buffer = self.receive_buffer.max(self.receive_buffer_max);
        (0..14)
            .find(|shift| buffer >> shift <= 0xffff)
            .unwrap_or(14)
    }
}

/// TCP Fast Open (RFC 7413), as far as it is chosen for each connection; cookies are the
/// [`Endpoint`](crate::Endpoint)'s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastOpenChoice {
    /// A connection that is opened asks for a cookie, or has one and carries with its SYN what was
    /// written before that leaves. Default no.
    pub connect: bool,
    /// The same without a cookie, between hosts that trust each other. Default no.
    pub connect_without_cookie: bool,
    /// Connections of a listener that begin with data and whose handshake is not over: at most so many.
    /// Default 0: none begins so.
    pub accept_max: u16,
    /// Such data is taken without a cookie. Default no.
    pub accept_without_cookie: bool,
}

/// Keepalive (RFC 9293 §3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence before the first probe. MUST-28: no less than two hours by default.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Probes without an answer before the connection is given up.
    pub probes: u8,
}

impl Default for KeepAlive {
    /// 2 h, 75 s, 9: as in Linux.
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(7200),
            interval: Duration::from_secs(75),
            probes: 9,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mss: 1460,
            send_buffer: 1 << 20,
            receive_buffer: 256 << 10,
            receive_buffer_max: 4 << 20,
            timestamps: true,
            sack: true,
            window_scaling: true,
            ecn: false,
            dscp: 0,
            sum_on_write: false,
            ack: AckPolicy::Delayed {
                delay_max: Duration::from_millis(40),
            },
            linux_acks: LinuxAcks::default(),
            segmentation: Segmentation::default(),
            congestion: CongestionControl::Cubic,
            window_growth: WindowGrowth::Bytes,
            hystart: false,
            initial_window: None,
            fast_open: FastOpenChoice::default(),
            restart_after_idle: true,
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(120),
            tail_loss_probe: true,
            mtu_probing: MtuProbing::Off,
            retries_max: 15,
            syn_retries_max: 6,
            user_timeout: None,
            keepalive: None,
            time_wait: Duration::from_secs(60),
        }
    }
}

/// Which algorithm a connection uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionControl {
    /// RFC 5681 with RFC 3465's byte counting.
    NewReno,
    /// RFC 9438.
    Cubic,
    /// A window of this many bytes whatever happens: takes congestion control out of a question.
    Fixed(u32),
}

/// What opens the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowGrowth {
    /// The bytes that an ACK acknowledges (RFC 3465), if the sender used the window.
    Bytes,
    /// One segment for each ACK (in congestion avoidance, for each window's worth of ACKs) that
    /// finds the window full, whatever it acknowledges: Linux of 2005. For studies of what stretch
    /// ACKs do to such a sender; CUBIC's own growth is not changed.
    PerAck,
}
