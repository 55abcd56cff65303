//! The policies of a study as choices of a connection.

use std::time::Duration;

use tcpcost_study::{AckKind, PolicySettings, TailSplit};
use tcpcost_tcp::{AckPolicy, Config, TailRule};

/// `config` with the policies that are set; the others stay.
///
/// # Errors
/// The name of the knob that our TCP does not have.
pub fn config_with(config: &Config, policies: &PolicySettings) -> Result<Config, &'static str> {
    let mut config = config.clone();
    config.ack = ack(config.ack, policies)?;
    let segmentation = &mut config.segmentation;
    match policies.tail_split {
        None => {}
        Some(TailSplit::Always) => segmentation.tail = TailRule::OnItsOwn,
        Some(TailSplit::Nagle) => segmentation.tail = TailRule::WithLast,
    }
    if let Some(divisor) = policies.tso_win_divisor {
        segmentation.window_divisor = divisor;
    }
    if let Some(bytes) = policies.super_segment_bytes {
        segmentation.super_segment_bytes_max = bytes;
    }
    let missing = [
        ("tso_min_segs", policies.tso_min_segs.is_some()),
        (
            "whole_super_segments",
            policies.whole_super_segments == Some(true),
        ),
        ("pacing", policies.pacing == Some(true)),
        ("initial_window", policies.initial_window.is_some()),
        ("window_growth", policies.window_growth.is_some()),
    ];
    match missing.into_iter().find(|(_, set)| *set) {
        Some((knob, _)) => Err(knob),
        None => Ok(config),
    }
}

/// The policy asked for, or with only its parameters set the one that was.
fn ack(own: AckPolicy, policies: &PolicySettings) -> Result<AckPolicy, &'static str> {
    let delay_max = policies.ack_delay.unwrap_or(DELAY);
    let segments = policies.ack_segments;
    Ok(match policies.ack {
        None if policies.ack_delay.is_none() => own,
        None | Some(AckKind::Delayed) => AckPolicy::Delayed { delay_max },
        Some(AckKind::Every) => AckPolicy::Every {
            segments: segments.unwrap_or(2),
            delay_max,
        },
        Some(AckKind::Exactly) => AckPolicy::Exactly {
            segments: segments.unwrap_or(2),
            delay_max,
        },
        Some(AckKind::LinuxLike | AckKind::Avoidance | AckKind::OnRead | AckKind::Requested) => {
            return Err("ack_policy");
        }
    })
}

/// As of [`Config::default`].
const DELAY: Duration = Duration::from_millis(40);
