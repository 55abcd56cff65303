//! Made readings: for each rule one on which it fires, and a change after which it does not.

use std::collections::BTreeMap;

use tcpcost_counts::{MeterName as M, Quantity as Q, Source};

use crate::advice::{Settings, Situation};
use crate::causes::Cause;
use crate::prices::{Accuracy, Interval, Place, Price, PriceList};

/// Counts of 10 s, and settings.
#[derive(Clone)]
pub(super) struct Made {
    pub(super) counts: BTreeMap<(M, Q), f64>,
    pub(super) settings: Settings,
    pub(super) has_both_ends: bool,
}

impl Source for Made {
    fn count(&self, by: M, of: Q) -> Option<f64> {
        self.counts.get(&(by, of)).copied()
    }

    fn per_s(&self, by: M, of: Q) -> Option<f64> {
        Some(self.count(by, of)? / 10.0)
    }

    fn time_ns(&self, _: M) -> Option<f64> {
        Some(1e10)
    }
}

impl Made {
    fn new(counts: &[(M, Q, f64)]) -> Made {
        let mut made = Made {
            counts: BTreeMap::new(),
            settings: Settings::default(),
            has_both_ends: false,
        };
        for quantity in [
            Q::ActiveOpens,
            Q::PassiveOpens,
            Q::BacklogCoalesced,
            Q::ZeroWindowsSent,
        ] {
            made.set(M::Netstat, quantity, 0.0);
        }
        for quantity in [Q::PureAcksSent, Q::PureAcksReceived] {
            made.set(M::Segments, quantity, 0.0);
        }
        for &(by, of, count) in counts {
            made.set(by, of, count);
        }
        let sent = made
            .counts
            .get(&(M::Segments, Q::DataSkbsSent))
            .copied()
            .unwrap_or(0.0);
        made.set(M::Segments, Q::DeviceSkbsSent, sent);
        made
    }

    pub(super) fn set(&mut self, by: M, of: Q, count: f64) {
        self.counts.insert((by, of), count);
    }

    pub(super) fn situation<'a>(&'a self, list: Option<&'a PriceList>) -> Situation<'a> {
        let mut situation = Situation::of(self, 1e10);
        situation.settings = self.settings.clone();
        situation.has_both_ends = self.has_both_ends;
        situation.kernel = Some((6, 18));
        situation.prices = list.ok_or_else(|| "no prices of this host".to_string());
        situation
    }

    pub(super) fn setting(mut self, name: &str, value: &str) -> Made {
        self.settings.set(name, value);
        self
    }
}

/// Prices, ns, as of a small machine; those of bytes are 0.15.
pub(super) fn price(cause: Cause) -> f64 {
    match cause {
        Cause::ByteCopiedIn | Cause::ByteReferenced | Cause::ByteCopiedOut => 0.15,
        Cause::SkbSent => 3320.0,
        Cause::GsoPacket => 710.0,
        Cause::SkbReceived => 1940.0,
        Cause::BacklogMerge => 1270.0,
        Cause::AckReceived => 6060.0,
        Cause::AckSent => 2690.0,
        Cause::SendCall => 650.0,
        Cause::ReceiveCall => 960.0,
        Cause::Connection => 45_600.0,
        _ => 12_000.0,
    }
}

/// A price list whose prices and predictions err by this factor either way.
pub(super) fn list(error: f64) -> PriceList {
    let prices = Cause::ALL.iter().map(|&cause| Price {
        cause,
        ns: price(cause),
        interval: Interval {
            low: price(cause) / error,
            high: price(cause) * error,
        },
        largest_share: 1.0,
        most_per_cpu_s: 1e12,
    });
    let prices: Vec<Price> = prices.collect();
    let draw = |at: usize| {
        let one = |(place, price): (usize, &Price)| {
            let up = (at >> (place % 8)) & 1 == 1;
            price.ns * if up { error.sqrt() } else { 1.0 / error.sqrt() }
        };
        prices.iter().enumerate().map(one).collect()
    };
    PriceList {
        schema_version: 1,
        tcpcost: "0.1.0".to_string(),
        place: Place {
            host: "h".to_string(),
            kernel: "6.18.0".to_string(),
            cpu: "cpu".to_string(),
            cpus: 2,
            device: "veth".to_string(),
        },
        measured_unix_s: 0,
        cells: 14,
        unpriced: Vec::new(),
        accuracy: Accuracy {
            interval: Interval {
                low: 1.0 / error,
                high: error,
            },
            median: 0.08,
            within_20: 92,
            predictions: 100,
            cells: 8,
        },
        draws: (0..200).map(draw).collect(),
        prices,
        references: Vec::new(),
    }
}

/// A sender of writes of `write` bytes, in packets of `packet` bytes.
pub(super) fn sender(write: f64, packet: f64) -> Made {
    let bytes = 512e6;
    let skbs = bytes / packet;
    let segments = (bytes / 1448.0).max(skbs);
    Made::new(&[
        (M::SocketCalls, Q::SocketSends, bytes / write),
        (M::SocketCalls, Q::SocketBytesSent, bytes),
        (M::SocketCalls, Q::SocketReceives, 0.0),
        (M::SocketCalls, Q::SocketBytesReceived, 0.0),
        (M::Segments, Q::DataSkbsSent, skbs),
        (M::Segments, Q::DataSkbBytesSent, bytes),
        (M::Segments, Q::DataWireSegmentsSent, segments),
        (M::Segments, Q::PureAcksReceived, skbs / 2.0),
        (M::Segments, Q::DataSkbsReceived, 0.0),
        (M::Segments, Q::DataSkbBytesReceived, 0.0),
        (M::Segments, Q::DataWireSegmentsReceived, 0.0),
    ])
}

/// A receiver that reads `read` bytes at a time, from packets of `packet` bytes.
pub(super) fn receiver(read: f64, packet: f64) -> Made {
    let bytes = 512e6;
    let skbs = bytes / packet;
    Made::new(&[
        (M::SocketCalls, Q::SocketSends, 0.0),
        (M::SocketCalls, Q::SocketBytesSent, 0.0),
        (M::SocketCalls, Q::SocketReceives, bytes / read),
        (M::SocketCalls, Q::SocketBytesReceived, bytes),
        (M::Segments, Q::DataSkbsSent, 0.0),
        (M::Segments, Q::DataSkbBytesSent, 0.0),
        (M::Segments, Q::DataWireSegmentsSent, 0.0),
        (M::Segments, Q::DataSkbsReceived, skbs),
        (M::Segments, Q::DataSkbBytesReceived, bytes),
        (
            M::Segments,
            Q::DataWireSegmentsReceived,
            (bytes / 1448.0).max(skbs),
        ),
        (M::Segments, Q::PureAcksSent, skbs / 2.0),
    ])
}

/// A server of 150,000 requests of 200 B with responses of `response` bytes in `sends` writes.
pub(super) fn server(response: f64, sends: f64, opens: f64) -> Made {
    let count = 150_000.0;
    let skbs = count * sends.max((response / 65_536.0).ceil());
    Made::new(&[
        (M::SocketCalls, Q::SocketSends, count * sends),
        (M::SocketCalls, Q::SocketBytesSent, count * response),
        (M::SocketCalls, Q::SocketReceives, count * 2.0),
        (M::SocketCalls, Q::SocketBytesReceived, count * 200.0),
        (M::Rusage, Q::VoluntarySwitches, count),
        (M::Segments, Q::DataSkbsSent, skbs),
        (M::Segments, Q::DataSkbBytesSent, count * response),
        (
            M::Segments,
            Q::DataWireSegmentsSent,
            (count * response / 1448.0).max(skbs),
        ),
        (M::Segments, Q::DataSkbsReceived, count),
        (M::Segments, Q::DataSkbBytesReceived, count * 200.0),
        (M::Segments, Q::DataWireSegmentsReceived, count),
        (M::Segments, Q::PureAcksSent, 3.0 * opens * count),
        (M::Segments, Q::PureAcksReceived, 3.0 * opens * count),
        (M::Netstat, Q::PassiveOpens, opens * count),
    ])
}

/// A reading on which a rule fires, and a change after which it does not.
pub(super) struct Case {
    pub(super) id: &'static str,
    pub(super) fires: Made,
    pub(super) neighbour: fn(&mut Made),
}

pub(super) fn case(id: &'static str, fires: Made, neighbour: fn(&mut Made)) -> Case {
    Case {
        id,
        fires,
        neighbour,
    }
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("keep-connections", server(2048.0, 1.0, 1.0), |made| {
            made.set(M::Netstat, Q::PassiveOpens, 9_000.0);
        }),
        case("larger-writes", sender(512.0, 512.0), |made| {
            made.set(M::SocketCalls, Q::SocketSends, 512e6 / 16_384.0);
        }),
        case("cork", sender(700.0, 700.0), |made| {
            made.set(M::Segments, Q::DataSkbsSent, 512e6 / 2100.0);
        }),
        case("larger-reads", receiver(2048.0, 20_000.0), |made| {
            made.set(M::SocketCalls, Q::SocketReceives, 512e6 / 4200.0);
        }),
        case("pipeline", server(400.0, 1.0, 0.0), |made| {
            // Two requests are in most reads already, but not in one packet.
            made.set(M::SocketCalls, Q::SocketReceives, 59_000.0);
        }),
        case("sendfile", sender(65_536.0, 60_000.0), |made| {
            made.set(M::SocketCalls, Q::SocketBytesSent, 5e6);
        }),
        case(
            "zerocopy",
            sender(65_536.0, 60_000.0).setting("driver", "mlx5_core"),
            |made| made.settings.set("driver", "veth"),
        ),
        case(
            "zerocopy-receive",
            receiver(600_000.0, 60_000.0)
                .setting("driver", "mlx5_core")
                .setting("mtu", "4168"),
            |made| made.settings.set("mtu", "1500"),
        ),
        case(
            "rcvlowat",
            with_sleeps(receiver(30_000.0, 20_000.0), 8_000.0),
            |made| {
                made.set(M::Rusage, Q::VoluntarySwitches, 4_000.0);
            },
        ),
        case("send-buffer", limited(sender(65_536.0, 60_000.0)), |made| {
            made.set(M::TcpInfo, Q::ConnSendBufferLimitedNs, 4e8);
        }),
        case(
            "receive-buffer",
            zero_windows(receiver(65_536.0, 20_000.0)),
            |made| {
                made.set(M::Netstat, Q::ZeroWindowsSent, 300.0);
            },
        ),
        case(
            "io-uring",
            with_sleeps(server(400.0, 1.0, 0.0), 5_000.0).setting("connections", "32"),
            |made| made.settings.set("connections", "8"),
        ),
        case(
            "fewer-connections",
            server(400.0, 1.0, 0.0).setting("connections", "200"),
            |made| made.settings.set("connections", "50"),
        ),
        case(
            "gso-on",
            sender(32_768.0, 1448.0).setting("segmentation", "per-mss"),
            |made| made.settings.set("segmentation", "tso"),
        ),
        case(
            "tso-on",
            cut(sender(32_768.0, 30_000.0))
                .setting("segmentation", "software-gso")
                .setting("tso", "off"),
            |made| made.settings.set("tso", "on"),
        ),
        case(
            "mtu",
            sender(32_768.0, 1448.0)
                .setting("segmentation", "per-mss")
                .setting("mtu", "1500")
                .setting("device", "veth0"),
            |made| made.settings.set("mtu", "9000"),
        ),
        case(
            "big-tcp",
            sender(262_144.0, 64_000.0).setting("gso_max_size", "65536"),
            |made| made.settings.set("gso_max_size", "180000"),
        ),
        case(
            "bbr-without-fq",
            sender(65_536.0, 60_000.0)
                .setting("congestion_control", "bbr")
                .setting("qdisc", "pfifo_fast"),
            |made| made.settings.set("qdisc", "fq limit 10000p"),
        ),
        case(
            "busy-read-off",
            server(400.0, 1.0, 0.0).setting("net.core.busy_read", "50"),
            |made| made.settings.set("net.core.busy_read", "0"),
        ),
        case(
            "quickack-off",
            acked(1.0).setting("quickack", "on"),
            |made| {
                made.settings.set("quickack", "off");
            },
        ),
        case("ack-ratio", acked(0.5), |made| {
            made.set(M::Segments, Q::PureAcksReceived, 512e6 / 1448.0 / 4.1);
        }),
        case(
            "autocorking-on",
            sender(700.0, 700.0).setting("net.ipv4.tcp_autocorking", "0"),
            |made| made.settings.set("net.ipv4.tcp_autocorking", "1"),
        ),
        case(
            "backlog-ack-defer-on",
            receiver(65_536.0, 2_000.0).setting("net.ipv4.tcp_backlog_ack_defer", "0"),
            |made| made.settings.set("net.ipv4.tcp_backlog_ack_defer", "1"),
        ),
        case(
            "tso-rtt-log",
            sender(65_536.0, 6_000.0).setting("net.ipv4.tcp_tso_rtt_log", "0"),
            |made| made.settings.set("net.ipv4.tcp_tso_rtt_log", "9"),
        ),
        case(
            "min-tso-segs",
            sender(65_536.0, 1_448.0).setting("net.ipv4.tcp_min_tso_segs", "1"),
            |made| made.settings.set("net.ipv4.tcp_min_tso_segs", "2"),
        ),
        case(
            "pingpong-thresh",
            with_acks(server(400.0, 1.0, 0.0)).setting("net.ipv4.tcp_pingpong_thresh", "3"),
            |made| made.settings.set("net.ipv4.tcp_pingpong_thresh", "1"),
        ),
        case(
            "compressed-sacks",
            out_of_order(receiver(65_536.0, 20_000.0)).setting("net.ipv4.tcp_comp_sack_nr", "0"),
            |made| made.settings.set("net.ipv4.tcp_comp_sack_nr", "44"),
        ),
        case(
            "tx-coalescing",
            nic(sender(65_536.0, 60_000.0)).setting("tx_usecs", "0"),
            |made| made.settings.set("tx_usecs", "64"),
        ),
        case(
            "receive-flow-steering",
            server(400.0, 1.0, 0.0)
                .setting("rps", "on")
                .setting("net.core.rps_sock_flow_entries", "0"),
            |made| made.settings.set("rps", "off"),
        ),
        case(
            "transmit-steering",
            nic(sender(65_536.0, 60_000.0))
                .setting("tx_queues", "8")
                .setting("xps", "off"),
            |made| made.settings.set("tx_queues", "1"),
        ),
        case(
            "gro-flush-timeout",
            nic(receiver(65_536.0, 4_000.0))
                .setting("gro", "on")
                .setting("gro_flush_timeout", "0"),
            |made| made.settings.set("gro_flush_timeout", "2000"),
        ),
        case(
            "gro",
            with_runs(receiver(65_536.0, 1448.0), 20_000.0).setting("gro", "off"),
            |made| made.set(M::Exact, Q::ExactOwnNetRxRuns, 100_000.0),
        ),
        case(
            "defer-hard-irqs",
            busy(nic(with_runs(receiver(65_536.0, 1448.0), 200_000.0)))
                .setting("napi_defer_hard_irqs", "0"),
            |made| made.set(M::Exact, Q::ExactOwnNetRxRuns, 50_000.0),
        ),
        case(
            "rx-coalescing",
            busy(nic(with_runs(receiver(65_536.0, 1448.0), 300_000.0))).setting("rx_usecs", "0"),
            |made| made.set(M::Exact, Q::ExactOwnNetRxRuns, 150_000.0),
        ),
        case("busy-poll", nic(with_runs(sleepy(), 100_000.0)), |made| {
            made.settings.set("driver", "veth")
        }),
    ]
}

pub(super) fn with_runs(mut made: Made, runs: f64) -> Made {
    made.set(M::Exact, Q::ExactOwnNetRxRuns, runs);
    made
}

/// Half of the CPU time is softirqs.
pub(super) fn busy(mut made: Made) -> Made {
    made.set(M::Exact, Q::ExactOwnSoftirqNs, 1e9);
    made.set(M::Exact, Q::ExactTaskOwnNs, 1e9);
    made
}

/// A sender whose packets the CPU cuts into segments.
pub(super) fn cut(mut made: Made) -> Made {
    let segments = made.counts[&(M::Segments, Q::DataWireSegmentsSent)];
    made.set(M::Segments, Q::DeviceSkbsSent, segments);
    made
}

pub(super) fn with_sleeps(mut made: Made, sleeps: f64) -> Made {
    made.set(M::Rusage, Q::VoluntarySwitches, sleeps);
    made
}

pub(super) fn sleepy() -> Made {
    let mut made = server(400.0, 1.0, 0.0);
    made.set(M::Rusage, Q::VoluntarySwitches, 300_000.0);
    made
}

pub(super) fn with_acks(mut made: Made) -> Made {
    made.set(M::Segments, Q::PureAcksSent, 100_000.0);
    made
}

pub(super) fn limited(mut made: Made) -> Made {
    made.set(M::TcpInfo, Q::ConnBusyNs, 1e10);
    made.set(M::TcpInfo, Q::ConnSendBufferLimitedNs, 6e8);
    with_sleeps(made, 10_000.0)
}

pub(super) fn zero_windows(mut made: Made) -> Made {
    made.set(M::Netstat, Q::ZeroWindowsSent, 400.0);
    with_sleeps(made, 10_000.0)
}

pub(super) fn out_of_order(mut made: Made) -> Made {
    made.set(M::Netstat, Q::OutOfOrderQueued, 10_000.0);
    made
}

pub(super) fn nic(made: Made) -> Made {
    made.setting("driver", "mlx5_core")
}

/// A sender of segments with so many ACKs for each.
pub(super) fn acked(each: f64) -> Made {
    let mut made = sender(65_536.0, 1448.0);
    made.set(M::Segments, Q::PureAcksReceived, each * 512e6 / 1448.0);
    made
}
