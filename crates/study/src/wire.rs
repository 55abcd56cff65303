//! What is wrong with the wire between two namespaces, by who sends.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::host_name::HostName;
use crate::knob::Knobs;
use crate::value::Value;

/// What becomes of what one end sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WireSettings {
    /// Time on the wire.
    pub delay: Duration,
    /// At most this much more.
    pub jitter: Duration,
    /// Share that is lost, in millionths, as all shares here.
    pub loss_ppm: u64,
    /// Share that is kept back.
    pub reorder_ppm: u64,
    /// How long.
    pub reorder_delay: Duration,
    /// Share that arrives twice.
    pub duplicate_ppm: u64,
    /// Rate; `None` is no limit.
    pub rate_bits_per_s: Option<u64>,
    /// Bytes that may wait for it.
    pub queue_bytes: u64,
}

impl WireSettings {
    /// The knobs that a wire is made for; the others say more of these.
    const KNOBS: [&str; 6] = [
        "delay",
        "jitter",
        "loss",
        "reorder",
        "duplicate",
        "wire_rate",
    ];

    /// Whether the study sets one of them, be it to nothing: a wire that is otherwise alike, to compare with.
    pub(crate) fn are_set(knobs: &Knobs) -> bool {
        let hosts = HostName::PAIR.map(|host| host.to_string());
        WireSettings::KNOBS.iter().any(|knob| {
            let of = |host: &String| knobs.get(&format!("{host}.{knob}")).is_some();
            knobs.get(knob).is_some() || hosts.iter().any(of)
        })
    }

    /// What becomes of what `host` sends.
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

    /// Whether it treats packets one by one, so that a super-segment must not enter it.
    pub fn is_by_packet(&self) -> bool {
        self.loss_ppm > 0 || self.reorder_ppm > 0 || self.duplicate_ppm > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
