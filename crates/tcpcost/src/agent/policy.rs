//! Policies of an end's TCP: which of them the kernel's has, and ours with those that are set.

use tcpcost_stack::config_with;
use tcpcost_study::{AckKind, PolicySettings, TailSplit, WindowGrowth};
use tcpcost_tcp::Config;

use super::Refusal;
use crate::protocol::Prepare;

/// Refuses what the kernel's TCP cannot be told. What it has as a sysctl is among the device's
/// settings already ([`PolicySettings::sysctls`]).
pub fn check_kernel(prepare: &Prepare) -> Result<(), Refusal> {
    let policies = PolicySettings::from_knobs(&prepare.knobs, prepare.end);
    check_kernel_acks(prepare, &policies)?;
    let refusals = [
        (
            "tail_split",
            policies.tail_split == Some(TailSplit::Always),
            "the kernel's is fixed; gso_max_segs = 2 has the same effect on small messages",
        ),
        (
            "super_segment",
            policies.super_segment_bytes.is_some(),
            "the kernel's is gso_max_size",
        ),
        (
            "whole_super_segments",
            policies.whole_super_segments == Some(true),
            "the kernel's TCP has sent partial ones since 2.6.12",
        ),
        (
            "pacing",
            policies.pacing == Some(true),
            "the kernel's TCP paces by its congestion control (bbr) or by the qdisc fq",
        ),
        (
            "initial_window",
            policies.initial_window.is_some(),
            "the kernel's is of the route (initcwnd), which is not set here",
        ),
        (
            "window_growth",
            policies.window_growth == Some(WindowGrowth::PerAck),
            "the kernel's TCP counts what is acknowledged",
        ),
    ];
    match refusals.into_iter().find(|(_, set, _)| *set) {
        Some((knob, _, reason)) => Err(unsupported(prepare, knob, reason)),
        None => Ok(()),
    }
}

/// The acknowledgements of a kernel's end: its own, or a skip. Whatever can make the kernel follow
/// another policy (a route's quickack, a filter of what leaves) takes its case out of this list.
fn check_kernel_acks(prepare: &Prepare, policies: &PolicySettings) -> Result<(), Refusal> {
    match policies.ack {
        None | Some(AckKind::LinuxLike) => {}
        Some(other) => {
            let reason = format!("the kernel's TCP has no policy \"{}\"", other.word());
            return Err(unsupported(prepare, "ack_policy", &reason));
        }
    }
    match policies.ack_delay {
        None => Ok(()),
        Some(_) => Err(unsupported(
            prepare,
            "ack_delay",
            "the kernel's delay is not set here",
        )),
    }
}

/// `config` with the policies of our TCP's end.
pub fn user_config(config: &Config, prepare: &Prepare) -> Config {
    let policies = PolicySettings::from_knobs(&prepare.knobs, prepare.end);
    config_with(config, &policies)
}

fn unsupported(prepare: &Prepare, knob: &str, reason: &str) -> Refusal {
    Refusal::Unsupported {
        knob: format!("{}.{knob}", prepare.end),
        reason: reason.to_string(),
    }
}
