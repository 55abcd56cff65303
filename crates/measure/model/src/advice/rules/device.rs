//! Knobs of a device and of the path: segmentation, MTU, GRO, interrupts, steering.

use super::program::{KEPT, VIRTUAL};
use super::{WORTH_TRYING, requests, stream};
use crate::advice::rule::{Change, Class, Condition, Needs, Rule, Size, Verify};
use crate::advice::signal::Signal;
use crate::causes::Cause;

const ROOT: Needs = Needs {
    kernel: None,
    device: "",
    who: "root",
};

/// Needs of knobs that act on a NIC's interrupts.
const OF_NIC: Needs = Needs {
    device: "a NIC whose driver has it",
    ..ROOT
};

/// Rules, in the order of the documentation.
pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "gso-on",
        title: "Segmentation offload on",
        class: Class::A,
        when: &[
            Condition::Is("segmentation", &["per-mss"]),
            Condition::Below(Signal::SegmentsPerSkbSent, 1.5),
            Condition::Above(Signal::SkbBytes, 500.0),
            Condition::Above(Signal::BytesPerSend, 4096.0),
        ],
        claims_if: KEPT,
        acts_on: &[Cause::SkbSent, Cause::AckReceived, Cause::NetRxRun],
        change: &[Change::Packets(Size::OfSends(0.6, 1.5))],
        limits: "drivers with broken TSO; paced and small flows",
        claim: "−87 % [−90, −84] of both ends with writes of 32 KiB",
        source: "measured with tcpcost's studies on 2 virtual CPUs, Linux 6.18; kernel commit 0a6b2a1dc2a2 has throughput",
        study: stream!("--a segmentation=per-mss --b segmentation=tso"),
        act: "ethtool -K DEV tx on sg on gso on tso on && ip link set DEV gso_max_segs 65535",
        undo: "ip link set DEV gso_max_segs 1",
        set: &[("segmentation", "tso")],
        costs: "latency of small flows that share the device",
        // A sender that paces (bbr) sets a timer for each packet. These timers are not in the claim: 96 % was
        // measured of iperf3 where 16 % was claimed.
        saves_more: true,
        ..WORTH_TRYING
    },
    Rule {
        id: "tso-on",
        title: "Let the device cut packets (TSO) instead of the CPU",
        when: &[
            Condition::Is("segmentation", &["software-gso"]),
            Condition::Is("tso", &["off"]),
            Condition::Above(Signal::SegmentsPerSkbSent, 1.5),
        ],
        acts_on: &[Cause::GsoPacket],
        limits: "drivers without TSO, or with a broken one",
        claim: "BBR with pfifo_fast at 40 Gbit: 0.66 to 14.9 Gbit/s with GSO always on and without scatter-gather, 24.2 with it (throughput)",
        source: "kernel commit 0a6b2a1dc2a2",
        study: stream!("--a segmentation=software-gso --b segmentation=tso"),
        act: "ethtool -K DEV tso on",
        undo: "ethtool -K DEV tso off",
        set: &[("tso", "on")],
        costs: "nothing known",
        ..WORTH_TRYING
    },
    Rule {
        id: "mtu",
        title: "MTU of 9000 on the whole path",
        class: Class::A,
        needs: Needs {
            device: "every hop of the path takes 9000 bytes: ping -M do -s 8972 PEER",
            ..ROOT
        },
        when: &[
            Condition::Under("mtu", 8999.0),
            Condition::IsNot("device", &["lo"]),
            Condition::Is("segmentation", &["per-mss"]),
            Condition::Below(Signal::SegmentsPerSkbSent, 1.5),
            Condition::Above(Signal::SkbBytes, 1200.0),
            Condition::Above(Signal::BytesPerSend, 8948.0),
        ],
        not_when: &[
            Condition::Above(Signal::SegmentsPerSkbSent, 1.5),
            Condition::Below(Signal::SkbBytes, 1200.0),
        ],
        claims_if: KEPT,
        acts_on: &[
            Cause::SkbSent,
            Cause::SkbReceived,
            Cause::AckReceived,
            Cause::AckSent,
            Cause::NetRxRun,
        ],
        change: &[Change::Packets(Size::Times(8948.0 / 1448.0))],
        limits: "with TSO and GRO the gain is nearly none: turn these on first; every hop and the other end must agree",
        claim: "−78 % [−80, −74] of both ends without TSO",
        source: "measured with tcpcost's studies on 2 virtual CPUs, Linux 6.18; moby/libnetwork#1330 has throughput",
        study: stream!("--set segmentation=per-mss --a mtu=1500 --b mtu=9000"),
        act: "ip link set DEV mtu 9000",
        undo: "ip link set DEV mtu 1500",
        costs: "a hop that drops large packets makes connections hang",
        instead: &["gso-on"],
        // Fewer timers of pacing, too, as above.
        saves_more: true,
        ..WORTH_TRYING
    },
    Rule {
        id: "big-tcp",
        title: "Packets above 64 KiB (BIG TCP)",
        needs: Needs {
            kernel: Some((6, 3)),
            device: "a driver that takes them (ip -d link: tso_max_size)",
            who: "root",
        },
        when: &[
            Condition::Above(Signal::SkbBytes, 56_000.0),
            Condition::Under("gso_max_size", 65_537.0),
        ],
        not_when: &[Condition::Below(Signal::SkbBytes, 56_000.0)],
        acts_on: &[Cause::SkbSent, Cause::SkbReceived],
        limits: "writes above 64 KiB; IPv4 from Linux 6.3, IPv6 from 5.19; captures and filters see packets above 64 KiB",
        claim: "80 KB requests: 4,442 and 4,782 per second without it (throughput)",
        source: "cilium/cilium#26385, #20349",
        study: stream!("--set write_size=256KiB --a gso_max_size=65536 --b gso_max_size=180000"),
        act: "ip link set DEV gso_max_size 180000 gso_ipv4_max_size 180000",
        undo: "ip link set DEV gso_max_size 65536 gso_ipv4_max_size 65536",
        costs: "bursts on the wire",
        ..WORTH_TRYING
    },
    Rule {
        id: "gro",
        title: "Merge received packets (GRO)",
        when: &[
            Condition::Is("gro", &["off"]),
            Condition::Below(Signal::SegmentsPerSkbReceived, 1.5),
            Condition::Above(Signal::SegmentsPerRun, 8.0),
        ],
        not_when: &[
            Condition::Above(Signal::SegmentsPerSkbReceived, 8.0),
            Condition::Below(Signal::SegmentsPerRun, 2.0),
        ],
        acts_on: &[Cause::SkbReceived, Cause::BacklogMerge],
        limits: "GRO merges only packets of one softirq run; on veth it moves work to the sender's CPU (client +84 %, server −53 %)",
        claim: "−11 % [−38, +19] of both ends: not established",
        source: "measured with tcpcost's studies on 2 virtual CPUs, Linux 6.18",
        study: stream!("--set segmentation=software-gso --a server.gro=off --b server.gro=on"),
        act: "ethtool -K DEV gro on",
        undo: "ethtool -K DEV gro off",
        set: &[("gro", "on")],
        costs: "a packet may wait for the end of its run",
        ..WORTH_TRYING
    },
    Rule {
        id: "gro-flush-timeout",
        title: "Let GRO wait for more packets (gro_flush_timeout)",
        needs: OF_NIC,
        when: &[
            Condition::Is("gro", &["on"]),
            Condition::IsNot("driver", VIRTUAL),
            Condition::Is("gro_flush_timeout", &["0"]),
            Condition::Below(Signal::SegmentsPerSkbReceived, 8.0),
            Condition::Above(Signal::SegmentsPerSkbReceived, 1.2),
        ],
        acts_on: &[Cause::SkbReceived, Cause::AckSent],
        limits: "adds latency to packets without PSH",
        claim: "ACKs 305,000 a second fewer; GRO 2.65 to 42 segments with 200 streams at 10 Gbit",
        source: "kernel commit 3b47d30396ba",
        study: stream!("--set server.gro=on --a gro_flush_timeout=0us --b gro_flush_timeout=2us"),
        act: "echo 2000 > /sys/class/net/DEV/gro_flush_timeout",
        undo: "echo 0 > /sys/class/net/DEV/gro_flush_timeout",
        set: &[("gro_flush_timeout", "2us")],
        costs: "2 µs of latency for packets without PSH",
        ..WORTH_TRYING
    },
    Rule {
        id: "defer-hard-irqs",
        title: "Poll again before interrupts are enabled (napi_defer_hard_irqs)",
        needs: Needs {
            kernel: Some((5, 8)),
            ..OF_NIC
        },
        when: &[
            Condition::IsNot("driver", VIRTUAL),
            Condition::Is("napi_defer_hard_irqs", &["0"]),
            Condition::Below(Signal::SegmentsPerRun, 4.0),
            Condition::Above(Signal::SoftirqShare, 0.3),
        ],
        acts_on: &[Cause::NetRxRun],
        limits: "many queues; nothing on veth and loopback",
        claim: "enabling interrupts \"could hurt throughput by ~20 %\" at 100 Gbit with 32 queues and more",
        source: "kernel commit 6f8b12d661d0",
        study: stream!(
            "--set gro_flush_timeout=20us --a napi_defer_hard_irqs=0 --b napi_defer_hard_irqs=10"
        ),
        act: "echo 10 > /sys/class/net/DEV/napi_defer_hard_irqs && echo 20000 > /sys/class/net/DEV/gro_flush_timeout",
        undo: "echo 0 > /sys/class/net/DEV/napi_defer_hard_irqs && echo 0 > /sys/class/net/DEV/gro_flush_timeout",
        set: &[
            ("gro_flush_timeout", "20us"),
            ("napi_defer_hard_irqs", "10"),
        ],
        costs: "up to 20 µs of latency",
        ..WORTH_TRYING
    },
    Rule {
        id: "rx-coalescing",
        title: "Fewer receive interrupts (rx-usecs, adaptive-rx)",
        needs: OF_NIC,
        when: &[
            Condition::IsNot("driver", VIRTUAL),
            Condition::Under("rx_usecs", 8.0),
            Condition::Below(Signal::SegmentsPerRun, 2.0),
            Condition::Above(Signal::SoftirqShare, 0.3),
        ],
        acts_on: &[Cause::NetRxRun],
        limits: "requests wait longer: up to 50 % more latency at rx-usecs 4, rx-frames 44",
        claim: "+14 % requests a second of one HTTP benchmark on AWS (throughput)",
        source: "amzn/amzn-drivers#195; kernel commit 3b47d30396ba",
        study: requests!("--a rx_usecs=0 --b rx_usecs=20"),
        act: "ethtool -C DEV adaptive-rx off rx-usecs 20",
        undo: "ethtool -C DEV rx-usecs 0",
        set: &[("adaptive_rx", "0"), ("rx_usecs", "20")],
        costs: "latency: up to 20 µs for each request",
        ..WORTH_TRYING
    },
    Rule {
        id: "tx-coalescing",
        title: "Fewer interrupts for sent packets (tx-usecs)",
        needs: OF_NIC,
        when: &[
            Condition::IsNot("driver", VIRTUAL),
            Condition::Is("tx_usecs", &["0"]),
        ],
        limits: "drivers that complete sent packets by receive interrupts",
        claim: "20 % fewer interrupts with tx-usecs 64, and no performance lost",
        source: "kernel commit 05785adf6e57 (ena)",
        study: stream!("--a tx_usecs=0 --b tx_usecs=64"),
        act: "ethtool -C DEV tx-usecs 64",
        undo: "ethtool -C DEV tx-usecs 0",
        set: &[("tx_usecs", "64")],
        costs: "memory of sent packets is freed later",
        ..WORTH_TRYING
    },
    Rule {
        id: "busy-poll",
        title: "Poll the device instead of sleeping (busy_read)",
        needs: Needs {
            device: "a driver that can be polled",
            ..ROOT
        },
        when: &[
            Condition::IsNot("driver", VIRTUAL),
            Condition::Above(Signal::ExchangesPerSecond, 10_000.0),
            Condition::Share(&[Cause::Sleep, Cause::NetRxRun], 0.5),
        ],
        not_when: &[Condition::Is("driver", VIRTUAL)],
        acts_on: &[Cause::Sleep, Cause::NetRxRun],
        limits: "spinning has no price; veth and loopback cannot be polled",
        claim: "\"will increase power usage\": it lowers latency, and costs CPU where the CPU would be idle",
        source: "kernel Documentation/admin-guide/sysctl/net.rst",
        study: requests!("--a busy_poll_us=0 --b busy_poll_us=50"),
        act: "sysctl -w net.core.busy_read=50",
        undo: "sysctl -w net.core.busy_read=0",
        costs: "burns CPU that would be idle",
        ..WORTH_TRYING
    },
    Rule {
        id: "receive-flow-steering",
        title: "Receive on the CPU of the program (RFS)",
        needs: OF_NIC,
        when: &[
            Condition::Is("rps", &["on"]),
            Condition::Is("net.core.rps_sock_flow_entries", &["0"]),
        ],
        limits: "bulk transfers gain from two CPUs (kernel commit 133c4c0d3717); requests from one",
        claim: "better locality; no figure looked up",
        source: "kernel Documentation/networking/scaling.rst",
        study: requests!(
            "--set steering=off --set rps_sock_flow_entries=32768 --a rps_flow_cnt=0 --b rps_flow_cnt=32768"
        ),
        act: "sysctl -w net.core.rps_sock_flow_entries=32768 && echo 32768 > /sys/class/net/DEV/queues/rx-0/rps_flow_cnt",
        undo: "sysctl -w net.core.rps_sock_flow_entries=0 && echo 0 > /sys/class/net/DEV/queues/rx-0/rps_flow_cnt",
        costs: "memory of the table",
        ..WORTH_TRYING
    },
    Rule {
        id: "transmit-steering",
        title: "Send by the queue of the same CPU (XPS)",
        needs: OF_NIC,
        when: &[
            Condition::Over("tx_queues", 1.0),
            Condition::Is("xps", &["off"]),
            Condition::IsNot("driver", VIRTUAL),
        ],
        limits: "several transmit queues; drivers choose well by themselves",
        claim: "\"improved locality\"; no figure looked up",
        source: "kernel commit 1d24eb4815d1",
        study: stream!("--a xps_cpus=[0] --b 'xps_cpus=[0, 1]'"),
        act: "echo MASK > /sys/class/net/DEV/queues/tx-0/xps_cpus",
        undo: "echo 0 > /sys/class/net/DEV/queues/tx-0/xps_cpus",
        costs: "nothing known",
        verify: Verify::Switch,
        ..WORTH_TRYING
    },
];
