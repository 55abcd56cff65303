//! netem at the root of a device: delay, loss and duplicates of the packets that it sends, if the
//! kernel has netem.
//!
//! Only those knobs of a wire are supported that mean the same in netem. netem's jitter lets
//! packets overtake each other; its reordering sends some packets early instead of holding some
//! back; and its limit counts packets that are only delayed.

use std::time::Duration;

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::TcAttribute;
use tcpcost_knobs::WireSettings;
use tcpcost_knobs::units::nanos;

use crate::error::SystemError;
use crate::netlink::ask;
use crate::qdisc::{TCA_OPTIONS, at_root, delete_root, push};

/// Impairments of a device's outgoing packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Netem {
    /// Delay of each packet.
    pub delay: Duration,
    /// Share of packets lost, in millionths.
    pub loss_ppm: u64,
    /// Share of packets sent twice, in millionths.
    pub duplicate_ppm: u64,
}

impl From<WireSettings> for Netem {
    fn from(wire: WireSettings) -> Netem {
        Netem {
            delay: wire.delay,
            loss_ppm: wire.loss_ppm,
            duplicate_ppm: wire.duplicate_ppm,
        }
    }
}

impl Netem {
    /// Encodes `struct tc_netem_qopt` (latency in ticks, limit, loss, gap, duplicate, jitter), then
    /// attributes.
    fn options(self) -> Vec<u8> {
        let delay_ns = nanos(self.delay);
        let ticks = u32::try_from(delay_ns / TICK_NS).unwrap_or(u32::MAX);
        let words = [
            ticks,
            LIMIT_PACKETS,
            chance(self.loss_ppm),
            0,
            chance(self.duplicate_ppm),
            0,
        ];
        let mut options: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
        // The ticks above are for kernels before 4.15; this value is exact.
        push(&mut options, TCA_NETEM_LATENCY64, &delay_ns.to_ne_bytes());
        options
    }
}

/// Converts a share to netem's scale, in which 2^32 - 1 is certainty.
fn chance(ppm: u64) -> u32 {
    let scaled = u128::from(ppm) * u128::from(u32::MAX) / 1_000_000;
    u32::try_from(scaled).unwrap_or(u32::MAX)
}

/// Sets netem as a device's root qdisc, and replaces the former one.
///
/// # Errors
/// ENOENT on a kernel without CONFIG_NET_SCH_NETEM.
pub fn set(device: &str, netem: Netem) -> Result<(), SystemError> {
    let mut message = at_root(device)?;
    message.attributes = vec![
        TcAttribute::Kind("netem".into()),
        TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, netem.options())),
    ];
    ask(
        &format!("set netem on {device}"),
        RouteNetlinkMessage::NewQueueDiscipline(message),
        NLM_F_CREATE | NLM_F_REPLACE,
    )?;
    Ok(())
}

/// Tests whether this kernel has netem: sets it on a device of our own namespace, and removes it
/// again.
///
/// # Errors
/// The reason why it cannot be set.
pub fn probe(device: &str) -> Result<(), SystemError> {
    set(device, Netem::default())?;
    delete_root(device)
}

/// Limit of waiting packets: more than the window of any connection, because packets that are only
/// delayed count.
const LIMIT_PACKETS: u32 = 1_000_000;
/// `1 << PSCHED_SHIFT`.
const TICK_NS: u64 = 64;
// linux/pkt_sched.h
const TCA_NETEM_LATENCY64: u16 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qdisc;

    #[test]
    fn options_have_the_kernels_layout() {
        let options = Netem {
            delay: Duration::from_micros(1500),
            loss_ppm: 10_000,
            duplicate_ppm: 1_000_000,
        }
        .options();
        let word = |at: usize| u32::from_ne_bytes(options[4 * at..4 * at + 4].try_into().unwrap());
        assert_eq!(word(0), 1_500_000 / 64);
        assert_eq!(word(1), LIMIT_PACKETS);
        assert_eq!(word(2), 42_949_672, "one in a hundred");
        assert_eq!((word(3), word(5)), (0, 0), "no gap, no jitter");
        assert_eq!(word(4), u32::MAX);
        // 12 bytes: length, TCA_NETEM_LATENCY64, ns.
        assert_eq!(options.len(), 24 + 12);
        assert_eq!(
            options[24..28],
            [12_u16.to_ne_bytes(), 10_u16.to_ne_bytes()].concat()
        );
        assert_eq!(options[28..], 1_500_000_u64.to_ne_bytes());
        let longest = Netem {
            delay: Duration::MAX,
            ..Netem::default()
        };
        assert_eq!(longest.options()[..4], u32::MAX.to_ne_bytes());
    }

    #[test]
    fn a_kernel_that_has_it_takes_it_and_tells_it_back() {
        let wanted = Netem {
            delay: Duration::from_millis(20),
            ..Netem::default()
        };
        let told = tcpcost_testbed::in_namespace(|| match set("lo", wanted) {
            Ok(()) => Some(qdisc::describe("lo").unwrap()),
            Err(error) => {
                assert_eq!(error.source.raw_os_error(), Some(libc::ENOENT), "{error}");
                None
            }
        });
        match told {
            Some(Some(told)) => assert!(told.starts_with("netem "), "{told}"),
            Some(None) => tcpcost_testbed::skip("this kernel has no netem"),
            // The namespace's own skip was already reported.
            None => {}
        }
    }
}
