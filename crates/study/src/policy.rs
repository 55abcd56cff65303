//! The policies of one end's TCP: when it acknowledges, how it cuts and paces what it sends.
//!
//! Which of them a stack has is not known here: the stack takes or refuses them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::knob::{End, Knobs};
use crate::value::Value;
use crate::words::words;

words! {
    /// When to acknowledge.
    AckKind {
        /// RFC 9293: every second full-sized segment.
        Delayed = "delayed",
        /// As the kernel's TCP.
        LinuxLike = "linux-like",
        /// Each so many wire segments.
        Every = "every",
        /// Each so many segments, also within a super-segment.
        Exactly = "exactly",
        /// HP-UX and Solaris.
        Avoidance = "avoidance",
        /// The reader's read acknowledges.
        OnRead = "on-read",
        /// As the sender asks (TCP ACK Rate Request).
        Requested = "requested",
    }
}

words! {
    /// When a partial segment behind full ones leaves by itself.
    TailSplit {
        /// Always: Linux before 3.14.
        Always = "always",
        /// Where Nagle's rule holds it back.
        Nagle = "nagle",
    }
}

words! {
    /// What opens the congestion window.
    WindowGrowth {
        /// The bytes acknowledged.
        Bytes = "bytes",
        /// Each ACK that found the window full.
        PerAck = "per-ack",
    }
}

/// Which of a kernel receiver's pure ACKs leave its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckThinning {
    /// Every so many-th ACK.
    Acks(u32),
    /// One ACK for so many wire segments.
    Segments(u32),
}

/// The policies of one end; `None` is the stack's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicySettings {
    /// `ack_policy`.
    pub ack: Option<AckKind>,
    /// `ack_segments`.
    pub ack_segments: Option<u32>,
    /// `ack_delay`.
    pub ack_delay: Option<Duration>,
    /// `ack_limit_initial`.
    pub ack_limit_initial: Option<u32>,
    /// `ack_limit_max`.
    pub ack_limit_max: Option<u32>,
    /// `comp_sack_nr`.
    pub comp_sack_nr: Option<u32>,
    /// `comp_sack_delay_us`.
    pub comp_sack_delay_us: Option<u32>,
    /// `backlog_ack_defer`.
    pub backlog_ack_defer: Option<bool>,
    /// `tail_split`.
    pub tail_split: Option<TailSplit>,
    /// `tso_win_divisor`.
    pub tso_win_divisor: Option<u32>,
    /// `super_segment`, bytes.
    pub super_segment_bytes: Option<u32>,
    /// `tso_min_segs`.
    pub tso_min_segs: Option<u32>,
    /// `whole_super_segments`.
    pub whole_super_segments: Option<bool>,
    /// `pacing`.
    pub pacing: Option<bool>,
    /// `pacing_rate`, bits per second.
    pub pacing_bits_per_s: Option<u64>,
    /// `initial_window`, segments.
    pub initial_window: Option<u32>,
    /// `window_growth`.
    pub window_growth: Option<WindowGrowth>,
    /// `tail_loss_probe`.
    pub tail_loss_probe: Option<bool>,
}

impl PolicySettings {
    /// Reads one end's policies out of a cell's knobs.
    pub fn from_knobs(knobs: &Knobs, end: End) -> PolicySettings {
        let small = |value: u64| u32::try_from(value).expect("the registry's ranges fit 32 bits");
        let number = |name: &str| match knobs.value_at(end, name) {
            Some(Value::Bytes(n) | Value::Count(n)) => Some(small(n)),
            _ => None,
        };
        let word = |name: &str| match knobs.value_at(end, name) {
            Some(Value::Word(word)) => Some(word),
            _ => None,
        };
        let switch = |name: &str| match knobs.value_at(end, name) {
            Some(Value::Switch(on)) => Some(on),
            _ => None,
        };
        PolicySettings {
            ack: word("ack_policy").and_then(|word| AckKind::from_word(&word)),
            ack_segments: number("ack_segments"),
            ack_delay: match knobs.value_at(end, "ack_delay") {
                Some(Value::Time(delay)) => Some(delay),
                _ => None,
            },
            ack_limit_initial: number("ack_limit_initial"),
            ack_limit_max: number("ack_limit_max"),
            comp_sack_nr: number("comp_sack_nr"),
            comp_sack_delay_us: number("comp_sack_delay_us"),
            backlog_ack_defer: switch("backlog_ack_defer"),
            tail_split: word("tail_split").and_then(|word| TailSplit::from_word(&word)),
            tso_win_divisor: number("tso_win_divisor"),
            super_segment_bytes: number("super_segment"),
            tso_min_segs: number("tso_min_segs"),
            whole_super_segments: switch("whole_super_segments"),
            pacing: match word("pacing").as_deref() {
                Some("timer") => Some(true),
                Some("off") => Some(false),
                _ => None,
            },
            pacing_bits_per_s: match knobs.value_at(end, "pacing_rate") {
                Some(Value::BitsPerS(rate)) => Some(rate),
                _ => None,
            },
            initial_window: number("initial_window"),
            window_growth: word("window_growth").and_then(|word| WindowGrowth::from_word(&word)),
            tail_loss_probe: switch("tail_loss_probe"),
        }
    }

    /// Wire segments per ACK where an end of the kernel's is to follow `every`: its route's quickack
    /// makes an ACK of each, and thinning leaves one of so many.
    pub fn kernel_every(&self) -> Option<u32> {
        (self.ack == Some(AckKind::Every)).then(|| self.ack_segments.unwrap_or(EVERY_DEFAULT))
    }

    /// Those that the kernel has as sysctls, by their dotted names.
    pub fn sysctls(&self) -> BTreeMap<String, String> {
        let early_retrans = self.tail_loss_probe.map(|on| if on { 3 } else { 0 });
        let sysctls = [
            ("net.ipv4.tcp_early_retrans", early_retrans),
            ("net.ipv4.tcp_tso_win_divisor", self.tso_win_divisor),
            ("net.ipv4.tcp_min_tso_segs", self.tso_min_segs),
            ("net.ipv4.tcp_comp_sack_nr", self.comp_sack_nr),
            (
                "net.ipv4.tcp_comp_sack_delay_ns",
                self.comp_sack_delay_us.map(|us| us * 1000),
            ),
            (
                "net.ipv4.tcp_backlog_ack_defer",
                self.backlog_ack_defer.map(u32::from),
            ),
        ];
        sysctls
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_string(), value?.to_string())))
            .collect()
    }
}

/// RFC 9293's every second segment.
const EVERY_DEFAULT: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceSettings;

    fn knobs(pairs: &[(&str, &str)]) -> Knobs {
        let mut knobs = Knobs::default();
        for (name, text) in pairs {
            knobs.set(name, text).unwrap();
        }
        knobs
    }

    #[test]
    fn nothing_set_is_every_stacks_own() {
        let settings = PolicySettings::from_knobs(&Knobs::default(), End::Client);
        assert_eq!(settings, PolicySettings::default());
    }

    #[test]
    fn each_end_has_its_own() {
        let knobs = knobs(&[
            ("server.ack_policy", "avoidance"),
            ("server.ack_delay", "50ms"),
            ("ack_limit_max", "22"),
            ("client.whole_super_segments", "on"),
            ("client.pacing_rate", "1Gbit"),
        ]);
        let server = PolicySettings::from_knobs(&knobs, End::Server);
        assert_eq!(server.ack, Some(AckKind::Avoidance));
        assert_eq!(server.ack_delay, Some(Duration::from_millis(50)));
        let client = PolicySettings::from_knobs(&knobs, End::Client);
        assert_eq!((client.ack, client.ack_limit_max), (None, Some(22)));
        assert_eq!(client.whole_super_segments, Some(true));
        assert_eq!(client.pacing_bits_per_s, Some(1_000_000_000));
    }

    #[test]
    fn every_word_of_the_registry_is_a_variant() {
        let words = |name: &str| match crate::find(name).unwrap().kind {
            crate::Kind::Choice(words) => words,
            _ => panic!("{name} is a choice"),
        };
        let every = |name, known: fn(&str) -> bool| words(name).iter().all(|word| known(word));
        assert!(every("ack_policy", |word| AckKind::from_word(word).is_some()));
        assert!(every("tail_split", |word| TailSplit::from_word(word).is_some()));
        assert!(every("window_growth", |word| WindowGrowth::from_word(word)
            .is_some()));
    }

    #[test]
    fn every_is_made_of_quickack_no_gro_and_thinning_at_the_kernels_end_alone() {
        let knobs = |segments| {
            knobs(&[
                ("ack_policy", "every"),
                ("ack_segments", segments),
                ("client.stack", "user"),
            ])
        };
        let server = DeviceSettings::from_knobs(&knobs("8"), End::Server);
        assert_eq!(server.ack_thinning, Some(AckThinning::Segments(8)));
        assert_eq!(
            (server.quickack, server.offloads["gro"]),
            (Some(true), false)
        );
        let client = DeviceSettings::from_knobs(&knobs("8"), End::Client);
        assert_eq!(
            (client.ack_thinning, client.quickack, client.offloads.len()),
            (None, None, 0)
        );
        let each = DeviceSettings::from_knobs(&knobs("1"), End::Server);
        assert_eq!((each.ack_thinning, each.quickack), (None, Some(true)));
    }

    #[test]
    fn the_kernels_divisor_is_a_sysctl_and_ours_is_not() {
        let knobs = knobs(&[("tso_win_divisor", "8"), ("server.stack", "user")]);
        let sysctls = |end| DeviceSettings::from_knobs(&knobs, end).sysctls;
        assert_eq!(sysctls(End::Client)["net.ipv4.tcp_tso_win_divisor"], "8");
        assert!(sysctls(End::Server).is_empty());
    }
}
