//! Settings of a connection.

use std::num::NonZeroU16;
use std::time::Duration;

use crate::connection::{AckPolicy, LinuxAcks, Segmentation};

/// Settings of a connection. An [`Endpoint`](crate::Endpoint) gives each of its connections a copy.
/// [`Connection::configure`](crate::Connection::configure) changes most of them later.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Largest payload of a segment without options that we can receive: the MTU less 40 (IPv4) or
    /// 60 (IPv6) bytes. Announced as MSS. Default 1460.
    pub mss: u16,
    /// Limit of bytes written and not acknowledged. Default 1 MiB.
    pub send_buffer: u32,
    /// Initial limit of bytes received and not read. Default 256 KiB.
    pub receive_buffer: u32,
    /// Limit to which the receive buffer grows if the application reads fast enough and the path
    /// could carry more. At or below `receive_buffer` the buffer does not grow. Determines the
    /// window scale. Default 4 MiB.
    pub receive_buffer_max: u32,
    /// Offer timestamps and PAWS (RFC 7323). Default true.
    pub timestamps: bool,
    /// Offer selective acknowledgements (RFC 2018). Default true.
    pub sack: bool,
    /// Offer window scaling (RFC 7323). Default true.
    pub window_scaling: bool,
    /// Offer explicit congestion notification (RFC 3168). Default false, as Linux does for
    /// connections that it opens.
    pub ecn: bool,
    /// Differentiated services code point of sent packets (RFC 2474), 0 to 63: the upper six bits
    /// of IP_TOS and IPV6_TCLASS. Default 0.
    pub dscp: u8,
    /// Compute the checksum of payload while it is copied into the send queue, because the device
    /// does not compute it. Default false; an [`Endpoint`](crate::Endpoint) sets it to match its
    /// device.
    pub sum_on_write: bool,
    /// Acknowledgement policy. Default [`AckPolicy::Delayed`] with 40 ms.
    pub ack: AckPolicy,
    /// Details of [`AckPolicy::LinuxLike`] for segments after a gap and for batches. Default as in
    /// Linux.
    pub linux_acks: LinuxAcks,
    /// Rules for cutting the stream into segments.
    pub segmentation: Segmentation,
    /// Congestion control. Default CUBIC.
    pub congestion: CongestionControl,
    /// Growth of the congestion window. Default [`WindowGrowth::Bytes`].
    pub window_growth: WindowGrowth,
    /// End the first slow start when the round-trip time grows, before a queue overflows
    /// (HyStart++, RFC 9406). For CUBIC and Reno. Default false: slow start ends with the first
    /// loss.
    pub hystart: bool,
    /// Initial congestion window in segments. `None`, the default, is RFC 6928: 10 segments, at
    /// most 14,600 bytes.
    pub initial_window: Option<NonZeroU16>,
    /// Data with the SYN (TCP Fast Open, RFC 7413). Default off for both client and server.
    pub fast_open: FastOpenChoice,
    /// When a sender returns to the initial window. Default [`WindowRestart::Idle`].
    pub window_restart: WindowRestart,
    /// Lower limit of the part of the retransmission timeout that is added to the smoothed
    /// round-trip time. RFC 6298 (2.4) sets a minimum of 1 s for the whole timeout. Default 200 ms
    /// as in Linux, because peers delay ACKs by no more. At most 65 s.
    pub rto_min: Duration,
    /// Upper limit of the retransmission timeout, including its doublings. Default 120 s as in
    /// Linux (socket option TCP_RTO_MAX_MS). RFC 6298 (2.5) allows any maximum of at least 60 s.
    pub rto_max: Duration,
    /// Send a tail loss probe when the last segments of a flight stay unacknowledged (RFC 8985 §7).
    /// Linux before 3.10 did not. Default true; takes effect only if SACK was agreed on.
    pub tail_loss_probe: bool,
    /// Search for the path MTU with probes (RFC 4821). Default [`MtuProbing::Off`] as in Linux:
    /// most paths report packets that are too big, and a peer that is silent for a while would cost
    /// us the large segments.
    pub mtu_probing: MtuProbing,
    /// Consecutive timeouts after which the connection is given up (R2 of RFC 9293 §3.8.3). Default
    /// 15: about 15 minutes.
    pub retries_max: u8,
    /// Consecutive timeouts of the SYN after which the connection is given up. Default 6: about a
    /// minute.
    pub syn_retries_max: u8,
    /// Time that written data may stay unacknowledged before the connection is given up (RFC 9293
    /// §3.8.3, RFC 5482). Default `None`: no limit.
    pub user_timeout: Option<Duration>,
    /// Keepalive probes on an idle connection. Default `None` (MUST-25: off unless requested).
    pub keepalive: Option<KeepAlive>,
    /// Length of TIME-WAIT (2 MSL). Default 60 s as in Linux; RFC 9293 §3.4.2 says 4 minutes.
    pub time_wait: Duration,
}

impl Config {
    /// True if each segment must be answered before the next is processed
    /// ([`LinuxAcks::backlog_ack_defer`] is false).
    pub(crate) fn answers_each(&self) -> bool {
        !self.linux_acks.backlog_ack_defer && matches!(self.ack, AckPolicy::LinuxLike { .. })
    }

    /// Smallest window scale with which 16 bits can express the largest buffer (RFC 7323 §2.3: at
    /// most 14).
    pub(crate) fn window_shift(&self) -> u8 {
        let buffer = self.receive_buffer.max(self.receive_buffer_max);
        (0..14)
            .find(|shift| buffer >> shift <= 0xffff)
            .unwrap_or(14)
    }
}

/// Choice of when a sender searches for the path MTU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MtuProbing {
    /// No probing: the sender relies on ICMP errors of routers.
    #[default]
    Off,
    /// After four timeouts in a row, which suggest that full-sized segments are lost. The size
    /// falls to 1024 bytes and probes raise it again.
    BlackHole,
    /// Always, starting with 1024 bytes.
    Always,
}

/// TCP Fast Open settings of a connection or listener (RFC 7413). The [`Endpoint`](crate::Endpoint)
/// keeps the cookies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastOpenChoice {
    /// Client: request a cookie with the SYN; or, if a cookie is known, send it with the data
    /// written before the SYN leaves. Default false.
    pub connect: bool,
    /// Client: send data with the SYN without a cookie, for hosts that trust each other. Default
    /// false.
    pub connect_without_cookie: bool,
    /// Listener: limit of connections that began with data and are still in the handshake. Default
    /// 0: data with a SYN is not accepted.
    pub accept_max: u16,
    /// Listener: accept data with a SYN without a cookie. Default false.
    pub accept_without_cookie: bool,
}

/// Keepalive settings (RFC 9293 §3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence before the first probe. Default 2 hours (MUST-28).
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Unanswered probes after which the connection is given up.
    pub probes: u8,
}

impl Default for KeepAlive {
    /// 2 h, 75 s and 9 probes, as in Linux.
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
            window_restart: WindowRestart::Idle,
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

/// Congestion control algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionControl {
    /// RFC 5681 with the byte counting of RFC 3465.
    NewReno,
    /// CUBIC (RFC 9438).
    Cubic,
    /// Constant window of this many bytes. Removes congestion control from a measurement.
    Fixed(u32),
}

/// When a sender returns to the initial window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowRestart {
    /// Never.
    Off,
    /// After an idle time longer than the retransmission timeout (RFC 5681 §4.1; Linux's
    /// `tcp_slow_start_after_idle`).
    Idle,
    /// With each send that finds all earlier data acknowledged, so that each message begins in slow
    /// start. For studies of how a message's bursts grow.
    EachSend,
}

/// Rule for growth of the congestion window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowGrowth {
    /// Growth by the bytes that an ACK acknowledges (RFC 3465), if the sender used the window (in
    /// slow start: more than half of it).
    Bytes,
    /// Growth by one segment for each ACK (in congestion avoidance: for each window of ACKs) that
    /// finds the window full, however much the ACK acknowledges; as Linux did in 2005. For studies
    /// of stretch ACKs. CUBIC's own growth is not changed.
    PerAck,
}
