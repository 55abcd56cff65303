//! ACK policies, one row each: name, parameters with defaults, and whether the kernel's TCP has the
//! policy. Their effect in our own TCP is in `tcpcost_tcp`.

use std::time::Duration;

use crate::row::KernelSupport;
use crate::words::words;

words! {
    /// ACK policy of an end.
    AckKind {
        /// RFC 9293: every second full-sized segment.
        Delayed = "delayed",
        /// Policy of the kernel's TCP.
        LinuxLike = "linux-like",
        /// One ACK for every `ack_segments` wire segments.
        Every = "every",
        /// One ACK for every `ack_segments` segments, even within a super-segment.
        Exactly = "exactly",
        /// ACK avoidance of HP-UX and Solaris.
        Avoidance = "avoidance",
        /// ACKs when the application reads.
        OnRead = "on-read",
        /// Every second full-sized segment, and each with PSH.
        OnPush = "on-push",
        /// ACKs as the sender requests (TCP ACK Rate Request).
        Requested = "requested",
    }
}

/// Calls a macro with all policies and those of their parameters that are knobs, in the words of
/// `tcpcost_tcp::AckPolicy`. Code that converts policies needs to name none of them.
#[macro_export]
macro_rules! with_ack_policies {
    ($call:ident) => {
        $call! {
            Delayed { delay_max }
            LinuxLike { delay_max }
            Every { segments, delay_max }
            Exactly { segments, delay_max }
            Avoidance { limit_initial, limit_max, delay_max }
            OnRead { segments, delay_max }
            OnPush { delay_max }
            Requested { segments, delay_max }
        }
    };
}

/// Row of an ACK policy.
#[derive(Debug, Clone, Copy)]
pub struct AckPolicyRow {
    /// Condition for an ACK, for the documents.
    pub doc: &'static str,
    /// Source of the policy.
    pub from: &'static str,
    /// Default of `ack_segments`. `None` if the policy counts no segments.
    pub segments: Option<u32>,
    /// Default of `ack_delay`.
    pub delay_max: Duration,
    /// Defaults of `ack_limit_initial` and `ack_limit_max`. `None` if the policy has no limits.
    pub limits: Option<[u32; 2]>,
    /// Way in which the kernel's TCP has the policy. `None` if it does not.
    pub in_kernel: Option<KernelSupport>,
}

impl AckKind {
    /// Row of the policy.
    pub const fn row(self) -> AckPolicyRow {
        let ms = Duration::from_millis;
        // Defaults of RFC 9293, for all fields that a policy does not set.
        let plain = AckPolicyRow {
            doc: "",
            from: "",
            segments: None,
            delay_max: ms(40),
            limits: None,
            in_kernel: None,
        };
        match self {
            AckKind::Delayed => AckPolicyRow {
                doc: "every second full-sized segment, in bytes; ours by default",
                from: "RFC 9293 §3.8.6.3",
                ..plain
            },
            AckKind::LinuxLike => AckPolicyRow {
                doc: "at once in quick mode (at most 16 segments and half the window); then at more than one segment if the reader keeps up, else at the reader's read; else after an adaptive timeout, sooner outside pingpong mode (requests and responses); for data after a gap see below",
                from: "Linux 6.18",
                delay_max: ms(200), // TCP_DELACK_MAX
                in_kernel: Some(KernelSupport::Fixed("linux-like", "")),
                ..plain
            },
            AckKind::Every => AckPolicyRow {
                doc: "every `ack_segments` wire segments; a super-segment gets one",
                from: "Jones 2005",
                segments: Some(2),
                in_kernel: Some(KernelSupport::OwnDevice(
                    "the route's `quickack 1`, and eBPF that holds ACKs",
                )),
                ..plain
            },
            AckKind::Exactly => AckPolicyRow {
                doc: "every `ack_segments` full-sized segments, also within a super-segment",
                from: "Jones 2005",
                segments: Some(2),
                ..plain
            },
            AckKind::Avoidance => AckPolicyRow {
                doc: "at a limit that grows by one with each ACK it causes; two, and one less at most, after its delay was over with more than a segment waiting",
                from: "HP-UX, Solaris, illumos",
                segments: Some(22),
                delay_max: ms(50), // tcp_local_dack_interval of illumos
                limits: Some([1, 22]),
                ..plain
            },
            AckKind::OnRead => AckPolicyRow {
                doc: "when a read has opened the window by two segments; `ack_segments` and `ack_delay` guard against a slow reader",
                from: "Klemkow 2020",
                segments: Some(64),
                ..plain
            },
            AckKind::OnPush => AckPolicyRow {
                doc: "as `delayed`, and at once for a segment with PSH",
                from: "OpenBSD, NetBSD: `tcp_ack_on_push`",
                ..plain
            },
            AckKind::Requested => AckPolicyRow {
                doc: "as the sender asks by the TCP ACK Rate Request option, else as `delayed`; asks for one per `ack_segments` for what it sends itself; without effect unless both ends have it",
                from: "draft-ietf-tcpm-ack-rate-request-11",
                segments: Some(8),
                ..plain
            },
        }
    }

    /// Way in which the kernel's TCP has the policy. `None` if it does not.
    pub fn in_kernel(self) -> Option<KernelSupport> {
        self.row().in_kernel
    }
}

/// True if the policy of this name counts segments.
pub(crate) fn counts_segments(word: &str) -> bool {
    AckKind::from_word(word).is_some_and(|kind| kind.row().segments.is_some())
}

/// True if the policy of this name has limits.
pub(crate) fn has_limits(word: &str) -> bool {
    AckKind::from_word(word).is_some_and(|kind| kind.row().limits.is_some())
}
