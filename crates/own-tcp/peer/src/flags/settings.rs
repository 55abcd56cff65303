//! Settings of `tcpcost peer`: its TCP and its wire, for `--set`.

use std::str::FromStr;
use std::time::Duration;

use clap::{ArgAction, Args};
use tcpcost_console::set::switch;
use tcpcost_console::values::amount;
use tcpcost_knobs::units;
use tcpcost_link::Offloads;
use tcpcost_stack::UserSettings;
use tcpcost_tcp::{Config, CongestionControl, KeepAlive, Nagle};

use super::super::policy::PolicyFlags;
use super::wire::{WireFlags, size};

/// A congestion control by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Congestion(pub CongestionControl);

impl FromStr for Congestion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected cubic, reno or fixed:SIZE".to_string();
        Ok(Self(match text.split_once(':') {
            None if text == "cubic" => CongestionControl::Cubic,
            None if text == "reno" => CongestionControl::NewReno,
            Some(("fixed", bytes)) => CongestionControl::Fixed(size(bytes)?),
            _ => return Err(wrong()),
        }))
    }
}

/// Parses the size of a buffer. It holds at least one or two segments, like the kernel's (SOCK_MIN_SNDBUF is 4.5 KiB):
/// with less each segment waits for the acknowledgement of the one before.
fn buffer(text: &str) -> Result<u32, String> {
    let fits = |bytes: &u64| (4096..1 << 30).contains(bytes);
    amount(
        text,
        units::bytes,
        fits,
        "a size from 4KiB to less than 1GiB",
    )
}

fn wait(text: &str) -> Result<Duration, String> {
    amount(
        text,
        units::duration,
        |time| *time >= WAIT_MIN,
        "10ms or more",
    )
}

/// Settings of the peer's TCP and of its wire.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// Largest payload of one segment, without options [default: the MTU less 40, IPv6 less 60].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(88..=65_495))]
    pub mss: Option<u16>,
    /// MTU to set on the interface: 1280 to 65535, of a TAP to 65521.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1280..=65_535))]
    pub mtu: Option<u32>,
    /// Congestion control: cubic, reno or fixed:SIZE.
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub congestion_control: Congestion,
    /// Send buffer, from 4KiB [default: 1MiB].
    #[arg(long, value_name = "SIZE", value_parser = buffer)]
    pub send_buffer: Option<u32>,
    /// Receive buffer, from 4KiB; ends its tuning [default: 256KiB to 4MiB].
    #[arg(long, value_name = "SIZE", value_parser = buffer)]
    pub receive_buffer: Option<u32>,
    /// Send partial segments at once (TCP_NODELAY).
    #[arg(long, value_name = "on|off", action = ArgAction::Set, default_value = "off", value_parser = switch)]
    pub nodelay: bool,
    /// Use explicit congestion notification.
    #[arg(long, value_name = "on|off", action = ArgAction::Set, default_value = "off", value_parser = switch)]
    pub ecn: bool,
    /// Offer selective acknowledgements.
    #[arg(long, value_name = "on|off", action = ArgAction::Set, default_value = "on", value_parser = switch)]
    pub sack: bool,
    /// Offer timestamps.
    #[arg(long, value_name = "on|off", action = ArgAction::Set, default_value = "on", value_parser = switch)]
    pub timestamps: bool,
    /// Time without a packet after which a connection is probed, e.g. 60s (RFC 9293 §3.8.4)
    /// [default: none is probed].
    #[arg(long, value_name = "TIME", value_parser = wait)]
    pub keepalive: Option<Duration>,
    /// Time between probes.
    #[arg(long, value_name = "TIME", value_parser = wait, default_value = "75s", requires = "keepalive")]
    pub keepalive_interval: Duration,
    /// Probes without an answer after which the connection ends.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..), default_value_t = 9, requires = "keepalive")]
    pub keepalive_probes: u8,
    /// Time after which a connection ends if its data stay unacknowledged (RFC 9293 §3.8.3,
    /// RFC 5482) [default: after 15 timeouts in a row, about a quarter of an hour].
    #[arg(long, value_name = "TIME", value_parser = wait)]
    pub user_timeout: Option<Duration>,
    /// Segmentation and checksum offload, in both directions. An impaired wire has none.
    #[arg(long, value_name = "on|off", action = ArgAction::Set, default_value = "on", value_parser = switch)]
    pub offloads: bool,
    /// Impairments of the wire.
    #[command(flatten)]
    pub wire: WireFlags,
    /// Policies of the peer's TCP.
    #[command(flatten)]
    pub policies: PolicyFlags,
}

impl Settings {
    /// Returns the offloads of the interface. An impaired wire has none, so that it loses single packets, and a changed bit
    /// shows in a checksum.
    pub fn offloads(&self) -> Offloads {
        if self.offloads && self.wire.is_unimpaired() {
            Offloads::ALL
        } else {
            Offloads::NONE
        }
    }

    /// Returns the settings of the TCP over an interface of this MTU.
    pub fn settings(&self, mtu: u32) -> UserSettings {
        let mut config = Config::default();
        let fits = u16::try_from(mtu.saturating_sub(40)).unwrap_or(u16::MAX);
        config.mss = self.mss.unwrap_or(fits);
        config.congestion = self.congestion_control.0;
        config.send_buffer = self.send_buffer.unwrap_or(config.send_buffer);
        if let Some(bytes) = self.receive_buffer {
            (config.receive_buffer, config.receive_buffer_max) = (bytes, 0);
        }
        if self.nodelay {
            config.segmentation.nagle = Nagle::Off;
        }
        config.keepalive = self.keepalive.map(|idle| KeepAlive {
            idle,
            interval: self.keepalive_interval,
            probes: self.keepalive_probes,
        });
        config.user_timeout = self.user_timeout;
        config.ecn = self.ecn;
        config.sack = self.sack;
        config.timestamps = self.timestamps;
        UserSettings::new(&config, self.policies.choices())
    }
}

/// Minimum of a keepalive or user timeout. With 0 the timer would fire without end.
const WAIT_MIN: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_holds_a_few_segments() {
        assert_eq!(buffer("4KiB"), Ok(4096));
        for wrong in ["1B", "0B", "4095B", "1GiB", "x"] {
            assert!(buffer(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_fixed_window_has_a_size() {
        let fixed = Congestion(CongestionControl::Fixed(65536));
        assert_eq!("fixed:64KiB".parse(), Ok(fixed));
        for wrong in ["fixed", "fixed:", "bbr", "fixed:2GiB"] {
            assert!(wrong.parse::<Congestion>().is_err(), "{wrong}");
        }
    }
}
