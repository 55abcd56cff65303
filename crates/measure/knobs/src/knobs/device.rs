//! Knobs of an end's device: offloads, queues, interrupts, steering, queueing disciplines.

use super::{GIB, NOT_EVERY};
use crate::choices::Segmentation;
use crate::row::{
    AppliesTo, CheckedEnds, KernelSupport, Knob, Need, Required, UserKnob, UserSupport, ValueKind,
    is, is_not, link, requires,
};

const REGIME: &[Need] = &[
    Need::any_of(&[is_not("segmentation", &["software-gso", "tso"])])
        .because("these values set tso and gso"),
];

const FLOW_ENTRIES: &str = "net.core.rps_sock_flow_entries";

/// The number that the kernel makes of a number of flows.
fn power_of_two(flows: u64) -> u64 {
    if flows == 0 {
        0
    } else {
        flows.next_power_of_two()
    }
}

/// Rows of the devices.
pub(super) const ROWS: &[Knob] = &[
    Knob {
        applies_to: AppliesTo::Link(KernelSupport::Device("device"), UserSupport::Supported(UserKnob::Mtu)),
        ..link(
            "mtu",
            ValueKind::Bytes(576, 65535),
            KernelSupport::Device("device"),
            "MTU of the device in bytes; veth starts at 1500, loopback at 65536. Of our TCP, the MTU less 40 is its MSS.",
        )
    },
    link(
        "segmentation",
        ValueKind::Choice(Segmentation::WORDS),
        KernelSupport::Device("device"),
        "Place of segmentation: `per-mss` (gso_max_segs 1: one skb per MSS through TCP's output path, as in 2005), `software-gso` (tso off, gso on: TCP builds super-segments, the kernel cuts them before the device), `tso` (the device gets super-segments).",
    ),
    link(
        "tso",
        ValueKind::Switch,
        KernelSupport::Device("ethtool"),
        "TCP segmentation offload (ethtool tso).",
    )
    .needs(REGIME),
    link(
        "gso",
        ValueKind::Switch,
        KernelSupport::Device("ethtool"),
        "Generic segmentation offload (ethtool gso).",
    )
    .needs(REGIME),
    link(
        "gro",
        ValueKind::Switch,
        KernelSupport::Device("ethtool"),
        "Generic receive offload (ethtool gro). veth starts with it off.",
    )
    .needs(&[Need::any_of(&[NOT_EVERY])
        .at(CheckedEnds::Kernel)
        .when(&["on"])
        .because("the kernel's \"every\" needs it off")]),
    link(
        "sg",
        ValueKind::Switch,
        KernelSupport::Device("ethtool"),
        "Scatter-gather (ethtool sg); off also takes tso away, as the kernel has it.",
    ),
    link(
        "tx_checksum",
        ValueKind::Switch,
        KernelSupport::Device("ethtool"),
        "Transmit checksum offload (ethtool tx-checksumming); off also takes sg and tso away.",
    ),
    link(
        "gso_max_segs",
        ValueKind::Count(1, 65535),
        KernelSupport::Device("device"),
        "Most segments in one super-segment (ip link gso_max_segs).",
    )
    .needs(&[Need::any_of(&[is_not("segmentation", &["per-mss"])]).because("that is gso_max_segs 1")]),
    link(
        "gso_max_size",
        ValueKind::Bytes(1500, 524_280),
        KernelSupport::Device("device"),
        "Most bytes in one super-segment, IPv4's limit included (ip link gso_max_size, gso_ipv4_max_size).",
    ),
    link(
        "gro_max_size",
        ValueKind::Bytes(1500, 524_280),
        KernelSupport::Device("device"),
        "Most bytes that GRO merges, IPv4's limit included (ip link gro_max_size, gro_ipv4_max_size); more than 64 KiB, with `gso_max_size`, is BIG TCP.",
    ),
    link(
        "rx_ring",
        ValueKind::Count(1, 65535),
        KernelSupport::RealDevice("ethtool"),
        "Descriptors of each receive ring of a device that has rings (ethtool -g), as many as the driver takes.",
    ),
    link(
        "tx_ring",
        ValueKind::Count(1, 65535),
        KernelSupport::RealDevice("ethtool"),
        "Descriptors of each transmit ring (ethtool -g).",
    ),
    link(
        "rx_usecs",
        ValueKind::Count(0, 1_000_000),
        KernelSupport::RealDevice("ethtool"),
        "Time for which a device keeps a receive interrupt back, µs (ethtool -c); of a driver that adapts it, after `adaptive_rx = 0`.",
    ),
    link(
        "rx_frames",
        ValueKind::Count(0, 1_000_000),
        KernelSupport::RealDevice("ethtool"),
        "Packets received for which it keeps one back at most (ethtool -c).",
    ),
    link(
        "tx_usecs",
        ValueKind::Count(0, 1_000_000),
        KernelSupport::RealDevice("ethtool"),
        "Time for which a device keeps a transmit interrupt back, µs (ethtool -c).",
    ),
    link(
        "adaptive_rx",
        ValueKind::Count(0, 1),
        KernelSupport::RealDevice("ethtool"),
        "Adaptive moderation (ethtool -c): 1 if the driver chooses `rx_usecs`, else 0.",
    ),
    link(
        "channels",
        ValueKind::Count(1, 4096),
        KernelSupport::RealDevice("ethtool"),
        "Queues of the device that take interrupts of their own, so many of each way (ethtool -L): combined ones where it has such.",
    ),
    link(
        "rss_queues",
        ValueKind::Count(1, 4096),
        KernelSupport::RealDevice("ethtool"),
        "Receive queues among which the device spreads flows by their hash, from the first (ethtool -X equal).",
    ),
    link(
        "irq_cpus",
        ValueKind::Cpus,
        KernelSupport::RealDevice("proc"),
        "CPUs on which the device's interrupts arrive, each on one of them in turn (/proc/irq/NUMBER/smp_affinity_list). irqbalance moves them again.",
    ),
    link(
        "threaded_napi",
        ValueKind::Switch,
        KernelSupport::RealDevice("sysfs"),
        "Receive work of the device in kernel threads of its own instead of softirqs (/sys/class/net/DEVICE/threaded).",
    )
    .needs(&[Need::any_of(&[is("steering", &["off"])]).because("steering moves the same work")]),
    link(
        "gro_flush_timeout",
        ValueKind::Time(0, 1000),
        KernelSupport::RealDevice("sysfs"),
        "How long the device's NAPI holds merged packets for more of them, and its interrupt off where `napi_defer_hard_irqs` says so (/sys/class/net/DEVICE/gro_flush_timeout). Fewer, larger skbs and ACKs; packets wait longer. Of a veth only with `gro` or `threaded_napi`.",
    ),
    link(
        "napi_defer_hard_irqs",
        ValueKind::Count(0, 10_000),
        KernelSupport::RealDevice("sysfs"),
        "Polls without a packet after which the device's interrupt is turned on again, `gro_flush_timeout` apart (/sys/class/net/DEVICE/napi_defer_hard_irqs).",
    )
    .needs(&[Need::any_of(&[requires("gro_flush_timeout", Required::Set)]).because("its polls are so far apart")]),
    link(
        "xps_cpus",
        ValueKind::Cpus,
        KernelSupport::RealDevice("sysfs"),
        "CPUs whose packets the device's transmit queues take, the first queue the first CPU's, and so on in turn (XPS, /sys/class/net/DEVICE/queues/tx-NUMBER/xps_cpus). A device with one queue has no choice.",
    ),
    link(
        "rps_flow_cnt",
        ValueKind::Count(0, 1 << 20),
        KernelSupport::RealDevice("sysfs"),
        "Flows of each receive queue that RFS remembers, a power of two or rounded up to one: their receive work goes to the CPU on which the program last read (/sys/class/net/DEVICE/queues/rx-NUMBER/rps_flow_cnt). RFS is on if `rps_sock_flow_entries` is not 0, too.",
    )
    .needs(&[Need::any_of(&[is("steering", &["off"])]).because("steering moves the same work")]),
    Knob {
        applies_to: AppliesTo::Tcp(
            KernelSupport::Sysctl(FLOW_ENTRIES, power_of_two),
            UserSupport::Unsupported("our TCP has no RFS"),
        ),
        ..link(
            "rps_sock_flow_entries",
            ValueKind::Count(0, 1 << 24),
            KernelSupport::Sysctl(FLOW_ENTRIES, power_of_two),
            "Flows of the whole machine that RFS remembers, rounded up to a power of two. In a network namespace of its own it cannot be set: set it for the host (sysctl) before.",
        )
    },
    Knob {
        or_word: None,
        default: "on",
        per_end: false,
        ..link(
            "steering",
            ValueKind::Switch,
            KernelSupport::RealDevice("RPS"),
            "Steer each end's receive work to that end's CPUs (RPS). Off, a veth's receiver runs on the sender's CPU.",
        )
    },
    link(
        "qdisc",
        ValueKind::Choice(&["pfifo_fast", "pfifo", "bfifo", "fq", "fq_codel", "cake", "sfq"]),
        KernelSupport::OwnDevice("netlink"),
        "The queueing discipline at the root of what the end sends, with its defaults; a veth has none.",
    )
    .needs(&[Need::any_of(&[requires("bottleneck", Required::Unset)]).because("a bottleneck is a tbf")]),
    Knob {
        or_word: Some("none"),
        default: "none",
        ..link(
            "bottleneck",
            ValueKind::BitRate,
            KernelSupport::OwnDevice("tbf"),
            "Rate of a token bucket (tbf) on what the end sends; counts Ethernet frames.",
        )
    },
    Knob {
        or_word: None,
        default: "1MiB",
        ..link(
            "bottleneck_queue",
            ValueKind::Bytes(1500, GIB),
            KernelSupport::OwnDevice("tbf"),
            "Bytes that may wait in the bottleneck's queue.",
        )
    }
    .needs(&[Need::any_of(&[requires("bottleneck", Required::Set)])]),
];
