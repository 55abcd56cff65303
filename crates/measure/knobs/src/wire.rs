//! Wires between namespaces: delay, loss and other impairments, by the host that sends.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::choices::Carrier;
use crate::host_name::HostName;
use crate::knob::Knobs;
use crate::value::Value;

/// Carrier that a study requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CarrierAsked {
    /// Our own wire: requested, or needed because a knob has another meaning in netem.
    Own,
    /// netem if the kernel has it, else our own wire.
    NetemIfThere,
    /// netem only.
    Netem,
}

impl CarrierAsked {
    /// Carrier by the knob `carrier`; if that is not set, by the other knobs.
    pub fn of(knobs: &Knobs) -> CarrierAsked {
        let word = knobs.word("carrier");
        match word.as_deref().and_then(Carrier::from_word) {
            Some(Carrier::Own) => CarrierAsked::Own,
            // Knobs that netem does not support are refused when the trial is prepared, with the
            // reason.
            _ if WireSettings::not_netems(knobs).is_some() => CarrierAsked::Own,
            Some(Carrier::Netem) => CarrierAsked::Netem,
            None => CarrierAsked::NetemIfThere,
        }
    }
}

/// Impairments of the packets that one end sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WireSettings {
    /// Time of each packet on the wire.
    pub delay: Duration,
    /// Limit of additional random delay.
    pub jitter: Duration,
    /// Share of packets lost, in millionths.
    pub loss_ppm: u64,
    /// Share of packets held back, in millionths.
    pub reorder_ppm: u64,
    /// Time for which they are held back.
    pub reorder_delay: Duration,
    /// Share of packets that arrive twice, in millionths.
    pub duplicate_ppm: u64,
    /// Rate of the wire. `None` for no limit.
    pub rate_bits_per_s: Option<u64>,
    /// Limit of bytes that wait for the rate.
    pub queue_bytes: u64,
}

impl WireSettings {
    /// Knobs that need a wire. The other knobs of a wire only refine these.
    const KNOBS: [&str; 7] = [
        "carrier",
        "delay",
        "jitter",
        "loss",
        "reorder",
        "duplicate",
        "wire_rate",
    ];

    /// True if the study sets one of these knobs, even to no effect: that makes a wire without
    /// impairment, to compare with.
    pub fn are_set(knobs: &Knobs) -> bool {
        let is_one = |name: &str| WireSettings::KNOBS.contains(&name);
        let of_hosts =
            |(_, knob): (_, &str)| knob.split_once('.').is_some_and(|(_, name)| is_one(name));
        WireSettings::KNOBS
            .iter()
            .any(|knob| knobs.get(knob).is_some())
            || knobs.named().any(of_hosts)
    }

    /// Impairments of the packets that `host` sends.
    pub fn of(knobs: &Knobs, host: HostName) -> WireSettings {
        let value = |name| knobs.value_at(host, name);
        let time = |name| {
            value(name)
                .as_ref()
                .and_then(Value::time)
                .unwrap_or_default()
        };
        let share = |name| match value(name) {
            Some(Value::Share(ppm)) => ppm,
            _ => 0,
        };
        let whole = |name| value(name).as_ref().and_then(Value::whole);
        WireSettings {
            delay: time("delay"),
            jitter: time("jitter"),
            loss_ppm: share("loss"),
            reorder_ppm: share("reorder"),
            reorder_delay: time("reorder_delay"),
            duplicate_ppm: share("duplicate"),
            rate_bits_per_s: whole("wire_rate"),
            queue_bytes: whole("wire_queue").unwrap_or(1 << 20),
        }
    }

    /// First knob that netem does not support, or gives another meaning, with the reason. `None` if
    /// netem can carry like our own wire.
    pub fn not_netems(knobs: &Knobs) -> Option<(&'static str, &'static str)> {
        knobs.host_names().into_iter().find_map(|host| {
            let wire = WireSettings::of(knobs, host);
            let is_set = |name| {
                let value = knobs.value_at(host, name);
                value.is_some_and(|value| !matches!(value.to_string().as_str(), "leave" | "none"))
            };
            let per_mss = knobs.value_at(host, "segmentation");
            let per_mss = per_mss.is_some_and(|value| value.to_string() == "per-mss");
            let rules = [
                (
                    "jitter",
                    !wire.jitter.is_zero(),
                    "lets packets overtake each other in netem",
                ),
                (
                    "reorder",
                    wire.reorder_ppm > 0,
                    "sends some packets ahead in netem, and keeps none back",
                ),
                (
                    "wire_rate",
                    wire.rate_bits_per_s.is_some(),
                    "has a queue in packets in netem, those that are delayed among them",
                ),
                (
                    "qdisc",
                    is_set("qdisc") || is_set("bottleneck"),
                    "has the place of netem, a device's root",
                ),
                (
                    "segmentation",
                    wire.is_by_packet() && !per_mss,
                    "must be \"per-mss\": netem loses a super-segment whole",
                ),
            ];
            let broken = rules.into_iter().find(|(_, is_broken, _)| *is_broken);
            broken.map(|(knob, _, why)| (knob, why))
        })
    }

    /// True if packets are treated singly, so that no super-segment may enter the wire.
    pub fn is_by_packet(&self) -> bool {
        self.loss_ppm > 0 || self.reorder_ppm > 0 || self.duplicate_ppm > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netem_carries_what_means_the_same_there() {
        let asked = |set: &[(&str, &str)]| {
            let mut knobs = Knobs::default();
            for (name, value) in set {
                knobs.set(name, value).unwrap();
            }
            (
                CarrierAsked::of(&knobs),
                WireSettings::not_netems(&knobs).map(|(knob, _)| knob),
            )
        };
        assert_eq!(
            asked(&[("delay", "5ms")]),
            (CarrierAsked::NetemIfThere, None)
        );
        let own = ("carrier", "own");
        assert_eq!(asked(&[("delay", "5ms"), own]), (CarrierAsked::Own, None));
        for (name, value, knob) in [
            ("client.jitter", "1ms", "jitter"),
            ("reorder", "1%", "reorder"),
            ("server.wire_rate", "1Gbit", "wire_rate"),
            ("client.qdisc", "fq", "qdisc"),
            ("bottleneck", "1Gbit", "qdisc"),
            ("client.loss", "1%", "segmentation"),
        ] {
            assert_eq!(
                asked(&[(name, value)]),
                (CarrierAsked::Own, Some(knob)),
                "{name}"
            );
            let netem = asked(&[(name, value), ("carrier", "netem")]);
            assert_eq!(netem, (CarrierAsked::Own, Some(knob)));
        }
        let netem = [("delay", "5ms"), ("carrier", "netem")];
        assert_eq!(asked(&netem), (CarrierAsked::Netem, None));
        let single = [("client.loss", "1%"), ("client.segmentation", "per-mss")];
        assert_eq!(asked(&single), (CarrierAsked::NetemIfThere, None));
    }

    #[test]
    fn each_end_has_its_own_and_a_wire_without_faults_is_one_too() {
        let mut knobs = Knobs::default();
        assert!(!WireSettings::are_set(&knobs));
        knobs.set("client.loss", "0.05%").unwrap();
        knobs.set("delay", "10ms").unwrap();
        assert!(WireSettings::are_set(&knobs));
        let client = WireSettings::of(&knobs, HostName::CLIENT);
        let server = WireSettings::of(&knobs, HostName::SERVER);
        assert_eq!((client.loss_ppm, server.loss_ppm), (500, 0));
        assert_eq!(server.delay, Duration::from_millis(10));
        assert!(client.is_by_packet() && !server.is_by_packet());
        let mut none = Knobs::default();
        none.set("delay", "0ms").unwrap();
        assert!(WireSettings::are_set(&none));
        assert_eq!(none.value("delay").unwrap().to_string(), "0ms");
        assert_eq!(knobs.value("client.loss").unwrap().to_string(), "0.05%");
    }
}
