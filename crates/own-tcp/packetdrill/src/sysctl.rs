//! Settings of the scripts. packetdrill runs in a network namespace of its own, and scripts set
//! sysctls of the kernel there. Their values are our configuration.

use std::num::NonZeroU16;
use std::time::Duration;

use tcpcost_tcp::{AckPolicy, Config, CongestionControl, Segmentation, WindowRestart};

/// Numbers of a TCP sysctl.
fn read(name: &str) -> Vec<u32> {
    let path = format!("/proc/sys/net/ipv4/{name}");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let number = |word: &str| match word.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    };
    text.split_whitespace().filter_map(number).collect()
}

fn first(name: &str) -> Option<u32> {
    read(name).first().copied()
}

/// Configuration of a connection that begins now.
pub fn config() -> Config {
    let is_on = |name| first(name).is_none_or(|value| value != 0);
    let (read, write) = (read("tcp_rmem"), read("tcp_wmem"));
    let mtu = crate::device::mtu().unwrap_or(1500);
    Config {
        mss: mtu.saturating_sub(40),
        // Half of the kernel's value is payload, of which it offers at most 64 KiB at first.
        receive_buffer: read.get(1).map_or(65_536, |bytes| (bytes / 2).min(65_536)),
        receive_buffer_max: read.get(2).copied().unwrap_or(6 << 20),
        send_buffer: write.get(1).copied().unwrap_or(1 << 20),
        timestamps: is_on("tcp_timestamps"),
        sack: is_on("tcp_sack"),
        window_scaling: is_on("tcp_window_scaling"),
        ecn: first("tcp_ecn") == Some(1),
        ack: AckPolicy::LinuxLike {
            delay_max: Duration::from_millis(200),
        },
        segmentation: Segmentation {
            window_divisor: first("tcp_tso_win_divisor"),
            paced_segments_min: first("tcp_min_tso_segs").unwrap_or(2),
            ..Segmentation::linux()
        },
        congestion: CongestionControl::Cubic,
        initial_window: NonZeroU16::new(10),
        window_restart: match is_on("tcp_slow_start_after_idle") {
            true => WindowRestart::Idle,
            false => WindowRestart::Off,
        },
        tail_loss_probe: first("tcp_early_retrans").is_none_or(|value| value >= 3),
        syn_retries_max: first("tcp_syn_retries").unwrap_or(6) as u8,
        ..Config::default()
    }
}

/// Initial size of a send buffer, bytes: the second number of `tcp_wmem`.
pub fn send_buffer() -> u32 {
    read("tcp_wmem").get(1).copied().unwrap_or(1 << 20)
}

/// Limit of a send buffer's growth, bytes: the third number of `tcp_wmem`.
pub fn send_buffer_max() -> u32 {
    read("tcp_wmem").get(2).copied().unwrap_or(4 << 20)
}

/// `tcp_notsent_lowat`, bytes.
pub fn unsent_low_water() -> u32 {
    first("tcp_notsent_lowat").unwrap_or(u32::MAX)
}

/// Bits of `tcp_fastopen`.
pub struct FastOpen {
    pub client: bool,
    pub server: bool,
    pub client_without_cookie: bool,
    pub server_without_cookie: bool,
    /// True if every listener uses Fast Open without asking for it.
    pub every_listener: bool,
}

pub fn fast_open() -> FastOpen {
    let bits = first("tcp_fastopen").unwrap_or(1);
    FastOpen {
        client: bits & 1 != 0,
        server: bits & 2 != 0,
        client_without_cookie: bits & 4 != 0,
        server_without_cookie: bits & 0x200 != 0,
        every_listener: bits & 0x400 != 0,
    }
}

/// `tcp_fastopen_key`: one or two keys of four words.
pub fn fast_open_keys() -> Vec<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_fastopen_key");
    let text = text.unwrap_or_default();
    text.trim().split(',').filter_map(key).collect()
}

fn key(text: &str) -> Option<[u8; 16]> {
    let words = text
        .split('-')
        .map(|word| u32::from_str_radix(word, 16).ok());
    let words: Option<Vec<u32>> = words.collect();
    let bytes: Vec<u8> = words?.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.try_into().ok()
}

/// True if a listener agrees to ECN.
pub fn agrees_to_ecn() -> bool {
    first("tcp_ecn").is_some_and(|value| value == 1 || value == 2)
}
