//! The policies of a study as choices of a connection.

use std::num::NonZeroU16;
use std::time::Duration;

use tcpcost_study::{AckKind, PolicySettings, TailSplit, WindowGrowth};
use tcpcost_tcp::{AckPolicy, Config, LinuxAcks, Pacing, Segmentation, TailRule};

/// `config` with the policies that are set; the others stay.
pub fn config_with(config: &Config, policies: &PolicySettings) -> Config {
    let mut config = config.clone();
    config.ack = ack(config.ack, policies);
    set_linux_acks(&mut config.linux_acks, policies);
    set_segmentation(&mut config.segmentation, policies);
    if let Some(segments) = policies.initial_window {
        config.initial_window = u16::try_from(segments).ok().and_then(NonZeroU16::new);
    }
    if let Some(on) = policies.tail_loss_probe {
        config.tail_loss_probe = on;
    }
    match policies.window_growth {
        None => {}
        Some(WindowGrowth::Bytes) => config.window_growth = tcpcost_tcp::WindowGrowth::Bytes,
        Some(WindowGrowth::PerAck) => config.window_growth = tcpcost_tcp::WindowGrowth::PerAck,
    }
    config
}

fn set_linux_acks(acks: &mut LinuxAcks, policies: &PolicySettings) {
    if let Some(acks_max) = policies.comp_sack_nr {
        acks.comp_sack_nr = u8::try_from(acks_max).unwrap_or(u8::MAX);
    }
    if let Some(us) = policies.comp_sack_delay_us {
        acks.comp_sack_delay = Duration::from_micros(us.into());
    }
    if let Some(on) = policies.backlog_ack_defer {
        acks.backlog_ack_defer = on;
    }
}

fn set_segmentation(segmentation: &mut Segmentation, policies: &PolicySettings) {
    match policies.tail_split {
        None => {}
        Some(TailSplit::Always) => segmentation.tail = TailRule::OnItsOwn,
        Some(TailSplit::Nagle) => segmentation.tail = TailRule::WithLast,
    }
    if policies.tso_win_divisor.is_some() {
        segmentation.window_divisor = policies.tso_win_divisor;
    }
    if let Some(bytes) = policies.super_segment_bytes {
        segmentation.super_segment_bytes_max = bytes;
    }
    if let Some(segments) = policies.tso_min_segs {
        segmentation.paced_segments_min = segments;
    }
    if let Some(on) = policies.whole_super_segments {
        segmentation.whole_only = on;
    }
    match (policies.pacing, policies.pacing_bits_per_s) {
        (None, _) => {}
        (Some(false), _) => segmentation.pacing = Pacing::Off,
        (Some(true), None) => segmentation.pacing = Pacing::Window,
        (Some(true), Some(rate)) => segmentation.pacing = Pacing::BytesPerSecond(rate / 8),
    }
}

/// The policy asked for; with only a delay set, the standards' with it.
fn ack(own: AckPolicy, policies: &PolicySettings) -> AckPolicy {
    let kind = match policies.ack {
        Some(kind) => kind,
        None if policies.ack_delay.is_some() => AckKind::Delayed,
        None => return own,
    };
    let delay = |own| policies.ack_delay.unwrap_or(own);
    let delay_max = delay(DELAY);
    let segments = |own| policies.ack_segments.unwrap_or(own);
    match kind {
        AckKind::Delayed => AckPolicy::Delayed { delay_max },
        AckKind::LinuxLike => AckPolicy::LinuxLike {
            delay_max: delay(LINUX_DELAY),
        },
        AckKind::Every => AckPolicy::Every {
            segments: segments(2),
            delay_max,
        },
        AckKind::Exactly => AckPolicy::Exactly {
            segments: segments(2),
            delay_max,
        },
        AckKind::Avoidance => AckPolicy::Avoidance {
            limit_initial: policies.ack_limit_initial.unwrap_or(1),
            limit_max: policies.ack_limit_max.unwrap_or(segments(22)),
            delay_max: delay(AVOIDANCE_DELAY),
        },
        AckKind::OnRead => AckPolicy::OnRead {
            segments: segments(64),
            delay_max,
        },
        AckKind::Requested => AckPolicy::Requested {
            segments: segments(8),
            delay_max,
        },
    }
}

/// As of [`Config::default`].
const DELAY: Duration = Duration::from_millis(40);
/// `TCP_DELACK_MAX`.
const LINUX_DELAY: Duration = Duration::from_millis(200);
/// `tcp_local_dack_interval` of illumos.
const AVOIDANCE_DELAY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_set_changes_nothing() {
        let config = Config::default();
        assert_eq!(config_with(&config, &PolicySettings::default()), config);
    }

    #[test]
    fn each_policy_brings_its_own_parameters() {
        let with = |kind, delay| PolicySettings {
            ack: Some(kind),
            ack_delay: delay,
            ..PolicySettings::default()
        };
        let ack = |settings| config_with(&Config::default(), &settings).ack;
        let avoidance = AckPolicy::Avoidance {
            limit_initial: 1,
            limit_max: 22,
            delay_max: Duration::from_millis(50),
        };
        assert_eq!(ack(with(AckKind::Avoidance, None)), avoidance);
        let ms = Duration::from_millis;
        assert_eq!(
            ack(with(AckKind::LinuxLike, Some(ms(10)))),
            AckPolicy::LinuxLike { delay_max: ms(10) }
        );
    }

    #[test]
    fn the_sysctls_of_linux_are_ours_too() {
        let settings = PolicySettings {
            comp_sack_nr: Some(0),
            comp_sack_delay_us: Some(250),
            backlog_ack_defer: Some(false),
            ..PolicySettings::default()
        };
        let acks = config_with(&Config::default(), &settings).linux_acks;
        let expected = LinuxAcks {
            comp_sack_nr: 0,
            comp_sack_delay: Duration::from_micros(250),
            backlog_ack_defer: false,
            ..LinuxAcks::default()
        };
        assert_eq!(acks, expected);
    }

    #[test]
    fn a_rate_alone_does_not_pace() {
        let settings = |pacing| PolicySettings {
            pacing,
            pacing_bits_per_s: Some(8_000_000),
            ..PolicySettings::default()
        };
        let pacing = |on| {
            config_with(&Config::default(), &settings(on))
                .segmentation
                .pacing
        };
        assert_eq!(pacing(None), Pacing::Off);
        assert_eq!(pacing(Some(true)), Pacing::BytesPerSecond(1_000_000));
    }
}
