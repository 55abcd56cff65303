//! Policies of an end's TCP: which of them the kernel's has, and ours with those that are set.

use std::time::Duration;

use tcpcost_stack::{ack_delay_max_here, config_with};
use tcpcost_study::{
    AckKind, DeviceSettings, PolicySettings, TailSplit, Value, WindowGrowth, WorkloadKind,
};
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
            "busy_poll_us",
            busy_poll(prepare).is_some(),
            "the kernel's is the sysctl net.core.busy_poll",
        ),
        (
            "receive_batch",
            receive_batch(prepare).is_some(),
            "the kernel's is of NAPI and of GRO",
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

/// The acknowledgements of a kernel's end: its own, `every` made of a route's quickack and of thinning
/// ([`DeviceSettings::ack_thinning`]), or a skip.
fn check_kernel_acks(prepare: &Prepare, policies: &PolicySettings) -> Result<(), Refusal> {
    let device = DeviceSettings::from_knobs(&prepare.knobs, prepare.end);
    let refuse = |knob, reason: &str| Err(unsupported(prepare, knob, reason));
    if device.ack_thinning.is_some() && !prepare.owned {
        return refuse("ack_thin", "of a bed's own device alone");
    }
    match policies.ack {
        None | Some(AckKind::LinuxLike) => {}
        Some(AckKind::Every) if device.quickack == Some(false) => {
            return refuse("quickack", "the kernel's \"every\" is made of quickack");
        }
        Some(AckKind::Every) if device.offloads.get("gro") == Some(&true) => {
            return refuse("gro", "the kernel's \"every\" needs it off");
        }
        Some(AckKind::Every) if prepare.knobs.value_at(prepare.end, "ack_thin") != leave() => {
            return refuse("ack_thin", "the kernel's \"every\" thins by itself");
        }
        Some(AckKind::Every) => {}
        Some(other) => {
            let reason = format!("the kernel's TCP has no policy \"{}\"", other.word());
            return refuse("ack_policy", &reason);
        }
    }
    let options = AckOptions::new(prepare);
    if let Some(knob) = options.first().filter(|_| is_crr(prepare)) {
        return refuse(knob, "of connections that stand, so not of crr");
    }
    if options.low_water.is_some() && !is_stream(prepare) {
        return refuse(
            "rcvlowat",
            "of streams alone: the rest of a message would never be read",
        );
    }
    match options
        .delay_max
        .map(|delay| (delay, ack_delay_max_here(delay)))
    {
        None => Ok(()),
        Some((asked, Ok(here))) if asked == here => Ok(()),
        Some((_, Ok(here))) => {
            let reason = format!("TCP_DELACK_MAX_US: the kernel makes it {here:?}");
            refuse("ack_delay", &reason)
        }
        Some((_, Err(error))) => refuse(
            "ack_delay",
            &format!("TCP_DELACK_MAX_US: {error} (Linux 6.15 and newer, two ticks to 200 ms)"),
        ),
    }
}

fn leave() -> Option<Value> {
    Some(Value::Word("leave".to_string()))
}

fn kind(prepare: &Prepare) -> Option<WorkloadKind> {
    WorkloadKind::from_word(&prepare.knobs.word("workload")?)
}

fn is_crr(prepare: &Prepare) -> bool {
    kind(prepare) == Some(WorkloadKind::Crr)
}

fn is_stream(prepare: &Prepare) -> bool {
    kind(prepare).is_some_and(|kind| !kind.has_transactions())
}

/// What changes a kernel's ACKs and is of each socket.
#[derive(Debug, Clone, Copy, Default)]
pub struct AckOptions {
    /// SO_RCVLOWAT, bytes.
    pub low_water: Option<u32>,
    /// TCP_DELACK_MAX_US.
    pub delay_max: Option<Duration>,
}

impl AckOptions {
    /// Reads them out of a trial's knobs.
    pub fn new(prepare: &Prepare) -> AckOptions {
        AckOptions {
            low_water: match prepare.knobs.value_at(prepare.end, "rcvlowat") {
                Some(Value::Bytes(bytes)) => u32::try_from(bytes).ok(),
                _ => None,
            },
            delay_max: PolicySettings::from_knobs(&prepare.knobs, prepare.end).ack_delay,
        }
    }

    /// The name of one that is set.
    fn first(&self) -> Option<&'static str> {
        let low_water = self.low_water.map(|_| "rcvlowat");
        low_water.or(self.delay_max.map(|_| "ack_delay"))
    }
}

/// Refuses what our TCP cannot be told.
pub fn check_user(prepare: &Prepare) -> Result<(), Refusal> {
    match AckOptions::new(prepare).low_water {
        None => Ok(()),
        Some(_) => Err(unsupported(prepare, "rcvlowat", "our TCP does not have it")),
    }
}

/// How long our TCP looks on at its device before it sleeps, if the study says.
pub fn busy_poll(prepare: &Prepare) -> Option<Duration> {
    match prepare.knobs.value_at(prepare.end, "busy_poll_us") {
        Some(Value::Count(us)) => Some(Duration::from_micros(us)),
        _ => None,
    }
}

/// Packets that our TCP takes in at a time, if the study says.
pub fn receive_batch(prepare: &Prepare) -> Option<usize> {
    match prepare.knobs.value_at(prepare.end, "receive_batch") {
        Some(Value::Count(packets)) => usize::try_from(packets).ok(),
        _ => None,
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
