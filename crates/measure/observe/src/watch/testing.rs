//! Samples with known figures, and a ticker that plays a list of events.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use tcpcost_counts::{Counts, Growth, MeterName, Quantity};
use tcpcost_meter::holder::Port;

use crate::ticker::{Event, Ticker};
use crate::watch::owners::Process;
use crate::watch::rows::{Namespace, Row};
use crate::watch::sample::Sample;
use crate::watch::sources::{About, Tier};

/// Plays the events of a list, then ends.
pub struct Script(pub VecDeque<Event>);

impl Ticker for Script {
    fn wait(&mut self) -> io::Result<Event> {
        Ok(self.0.pop_front().unwrap_or(Event::End))
    }
}

/// One second at 1 Gb/s out and 0.1 Gb/s in. All traffic is multiplied by (10 + `step`) / 10.
pub fn tracepoints(step: u64) -> Sample {
    let mut sample = counters_only(step);
    let scaled = |count: u64| count * (10 + step) / 10;
    let mut exact: Counts = Quantity::EXACT_CONTEXTS
        .iter()
        .map(|&context| (context, 0))
        .collect();
    exact.insert(Quantity::ExactTaskOthersNs, 750_000_000);
    exact.insert(Quantity::ExactSoftirqNetRxNs, 250_000_000);
    exact.insert(Quantity::ExactIdleNs, 1_000_000_000);
    let segments = [
        (Quantity::DataSkbsSent, scaled(10_000)),
        (Quantity::DataSkbBytesSent, scaled(125_000_000)),
        (Quantity::DataWireSegmentsSent, scaled(100_000)),
        (Quantity::TailSkbsSent, scaled(500)),
        (Quantity::PureAcksReceived, scaled(5_000)),
        (Quantity::DataSkbBytesReceived, scaled(12_500_000)),
        (Quantity::DataSkbsReceived, scaled(1_000)),
        (Quantity::DataWireSegmentsReceived, scaled(10_000)),
        (Quantity::PureAcksSent, scaled(1_000)),
        (Quantity::WindowAdvancingAcksSent, scaled(250)),
        (Quantity::OnlyAcknowledgingAcksSent, scaled(750)),
        (Quantity::DuplicateAcksSent, 0),
        (Quantity::DrainedSystemCallSkbs, scaled(6_000)),
        (Quantity::DrainedNetRxSkbs, scaled(3_000)),
        (Quantity::DrainedTaskletSkbs, scaled(800)),
        (Quantity::DrainedTimerSkbs, scaled(200)),
        (Quantity::DrainedOthersSkbs, 0),
    ];
    sample.growth.counts.insert(MeterName::Exact, exact);
    let programs = [
        (Quantity::SelfProgramsNs, 2_500_000),
        (Quantity::SelfProgramsIdleNs, 950_000_000),
    ];
    let cycles = [
        (Quantity::CoreCycles, 3_200_000_000),
        (Quantity::BranchMisses, 4_000_000),
    ];
    for (meter, counts) in [
        (MeterName::Segments, Counts::from(segments)),
        (MeterName::Programs, Counts::from(programs)),
        (MeterName::Perf, Counts::from(cycles)),
    ] {
        sample.growth.counts.insert(meter, counts);
    }
    sample.growth.sampling_error = Some(0.015);
    sample
}

/// The sample of [`tracepoints`] by counters alone: octets with 4 % headers.
pub fn counters_only(step: u64) -> Sample {
    let scaled = |count: u64| count * (10 + step) / 10;
    let proc = [
        (Quantity::CpuUserNs, 300_000_000),
        (Quantity::CpuNiceNs, 0),
        (Quantity::CpuSystemNs, 500_000_000),
        (Quantity::CpuIdleNs, 990_000_000),
        (Quantity::CpuIowaitNs, 5_000_000),
        (Quantity::CpuIrqNs, 0),
        (Quantity::CpuSoftirqNs, 200_000_000),
        (Quantity::CpuStealNs, 5_000_000),
        (Quantity::CpuGuestNs, 0),
    ];
    let netstat = [
        (Quantity::IpOctetsSent, scaled(130_000_000)),
        (Quantity::IpOctetsReceived, scaled(13_000_000)),
        (Quantity::SegmentsRetransmitted, 7),
        (Quantity::SuperSegmentsReceived, 2_000),
        (Quantity::HeaderPredictedData, 900),
        (Quantity::HeaderPredictedAcks, 900),
        (Quantity::DelayedAcksSent, 40),
        (Quantity::Autocorked, 25),
        (Quantity::OutOfOrderQueued, 0),
        (Quantity::DsacksReceived, 0),
        (Quantity::CompressedAcks, 0),
        (Quantity::ReceiveCollapsed, 0),
        (Quantity::ReceivePruned, 0),
        (Quantity::ZeroWindowsSent, 0),
        (Quantity::Timeouts, 0),
        (Quantity::ListenDrops, 0),
    ];
    let vmstat = [(Quantity::MinorFaults, 5_000), (Quantity::MajorFaults, 0)];
    let own = [(Quantity::SelfCpuNs, 5_000_000)];
    let growth = Growth {
        duration_ns: 1_000_000_000,
        counts: BTreeMap::from([
            (MeterName::Proc, Counts::from(proc)),
            (MeterName::Netstat, Counts::from(netstat)),
            (MeterName::Vmstat, Counts::from(vmstat)),
            (MeterName::SelfCost, Counts::from(own)),
        ]),
        ..Growth::default()
    };
    Sample {
        growth,
        ..Sample::default()
    }
}

/// A connection of a process in the cgroup `/a` that sent `bytes` bytes in 20,000 segments.
pub fn row(pid: u32, name: &str, bytes: u64) -> Row {
    let counts = [
        (Quantity::ConnBytesAcked, bytes),
        (Quantity::ConnBytesReceived, 0),
        (Quantity::ConnSegmentsSent, 20_000),
        (Quantity::ConnSegmentsReceived, 2_000),
        (Quantity::ConnDataSegmentsSent, 20_000),
        (Quantity::ConnDataSegmentsReceived, 0),
        (Quantity::ConnSegmentsRetransmitted, 3),
        (Quantity::DataSkbsSent, 500),
        (Quantity::DataSkbBytesSent, bytes),
        (Quantity::DataWireSegmentsSent, 20_000),
        (Quantity::TailSkbsSent, 50),
        (Quantity::DataBurstsSent, 400),
        (Quantity::PureAcksReceived, 2_000),
        (Quantity::AckBurstsReceived, 1_250),
    ];
    let name = name.into();
    Row {
        ends: Some([([10, 0, 0, 1], 40_000).into(), ([10, 0, 0, 2], 443).into()]),
        process: Some(Process { pid, name }),
        cgroup: Some("/a".into()),
        connections: 1,
        counts: Counts::from(counts),
        namespace: Some(NAMESPACE),
        port: Some(Port::Asked(443)),
        is_host: false,
        is_without_port: false,
    }
}

/// CPU time of a process. Without `port`: a tenth of a CPU in user mode and two tenths in the kernel. With
/// `port`: three tenths in softirqs and one in hard interrupts.
pub fn cost(pid: u32, name: &str, port: Option<Port>) -> Row {
    let ns = match port {
        None => [300_000_000, 100_000_000, 0, 0],
        Some(_) => [0, 0, 300_000_000, 100_000_000],
    };
    Row {
        process: Some(Process {
            pid,
            name: name.into(),
        }),
        cgroup: Some("/a".into()),
        namespace: Some(NAMESPACE),
        port,
        counts: Quantity::HOLDER.into_iter().zip(ns).collect(),
        ..Row::default()
    }
}

const NAMESPACE: Namespace = Namespace {
    inode: 4_026_531_840,
    name: None,
};

/// Methods with both eBPF meters, or without eBPF.
pub fn about(has_ebpf: bool) -> About {
    let refused = "meter exact: load: Operation not permitted (needs CAP_BPF)".to_string();
    About {
        tier: if has_ebpf { Tier::Pmu } else { Tier::Counters },
        cpus: 2,
        has_exact: has_ebpf,
        has_segments: has_ebpf,
        cost_max: has_ebpf.then_some(0.006),
        refused: if has_ebpf { vec![] } else { vec![refused] },
        metrics: None,
    }
}
