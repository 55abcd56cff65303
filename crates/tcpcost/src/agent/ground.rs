//! What an end's stack stands on: the kernel's sockets, or our own TCP over a TAP or over memory;
//! and what each tells about its connections.

use std::sync::Arc;

use tcpcost_link::memory::Memory;
use tcpcost_link::{Device, Tap};
use tcpcost_meter::tcp_info::{self, TcpInfo};
use tcpcost_stack::{KernelStack, SocketOptions, Stack, UserStack, Wire};
use tcpcost_study::{
    Counts, DeviceSettings, Environment, Quantity, Snapshot, Totals, Value, Whose, WorkloadSettings,
};
use tcpcost_tcp::{Config, CongestionControl, Connection};
use tcpcost_workload::Worker;

use super::worker::Ready;
use super::{Refusal, policy};
use crate::protocol::{Prepare, clock_ns};

/// What a worker's stack stands on.
#[derive(Clone)]
pub enum Ground {
    /// The kernel's sockets.
    Kernel,
    /// Our end of a TAP.
    Tap(Arc<Tap>),
    /// An end of a pair in memory.
    Memory(Memory<Wire>),
}

impl Ground {
    /// Whether the kernel's TCP is under test at this end.
    pub fn is_kernel(&self) -> bool {
        matches!(self, Ground::Kernel)
    }
}

/// Ethernet's, and what a TAP begins with.
const MTU: u32 = 1500;

/// Refuses what our TCP does not have; the state it will work in.
pub fn prepare(
    prepare: &Prepare,
    settings: &WorkloadSettings,
    device: &DeviceSettings,
) -> Result<Environment, Refusal> {
    let refuse = |knob: &str, reason: &str| Refusal::Unsupported {
        knob: knob.to_string(),
        reason: reason.to_string(),
    };
    if settings.threads.is_some_and(|threads| threads > 1) {
        return Err(refuse("threads", "our TCP has one thread an end"));
    }
    // The MTU is the path's, so both ends know it; all else is of a device of the kernel's.
    let untouched = DeviceSettings {
        mtu: device.mtu,
        bottleneck_queue_bytes: device.bottleneck_queue_bytes,
        ..DeviceSettings::default()
    };
    if *device != untouched {
        let knob = format!("{}.stack", prepare.end);
        return Err(refuse(
            &knob,
            "offloads, routes, bottleneck and sysctls are of the kernel's end alone: set them there",
        ));
    }
    Ok(Environment {
        device: prepare.device.clone(),
        mtu: u64::from(device.mtu.unwrap_or(MTU)),
        segmentation: "tso".to_string(),
        ..Environment::default()
    })
}

/// Our TCP over one end of a wire.
pub fn stack<D: Device<Wire>>(
    device: D,
    prepare: &Prepare,
    options: &SocketOptions,
) -> Result<UserStack<D>, String> {
    let mtu = match prepare.knobs.value_at(prepare.end, "mtu") {
        Some(Value::Bytes(mtu)) => mtu,
        _ => u64::from(MTU),
    };
    let config = Config {
        mss: u16::try_from(mtu.saturating_sub(40)).unwrap_or(u16::MAX),
        ..Config::default()
    };
    let config = policy::user_config(&config, prepare);
    UserStack::new(device, &[prepare.address], &config, options).map_err(|error| error.to_string())
}

/// A stack whose connections tell what they count.
pub trait Observed: Stack + Sized {
    /// Congestion control and MSS of the first connection.
    fn describe(worker: &Worker<Self>) -> Ready;

    /// The totals of all connections, in TCP_INFO's quantities.
    fn tcp_info(worker: &Worker<Self>, meter: &mut TcpInfo) -> Result<Snapshot, String>;
}

impl Observed for KernelStack {
    fn describe(worker: &Worker<Self>) -> Ready {
        let first = worker.conns().find_map(|conn| worker.stack().fd(conn));
        Ready {
            congestion_control: first.and_then(|first| tcp_info::congestion_control(first).ok()),
            mss: first.and_then(|first| tcp_info::mss(first).ok()),
            ..Ready::default()
        }
    }

    fn tcp_info(worker: &Worker<Self>, meter: &mut TcpInfo) -> Result<Snapshot, String> {
        let sockets = worker.conns().filter_map(|conn| worker.stack().fd(conn));
        meter.snapshot(sockets).map_err(|error| error.to_string())
    }
}

impl<D: Device<Wire>> Observed for UserStack<D> {
    fn describe(worker: &Worker<Self>) -> Ready {
        let first = worker
            .conns()
            .find_map(|conn| worker.stack().connection(conn));
        let name = |connection: &Connection| match connection.config().congestion {
            CongestionControl::NewReno => "reno",
            CongestionControl::Cubic => "cubic",
            CongestionControl::Fixed(_) => "fixed",
        };
        Ready {
            congestion_control: first.map(|first| name(first).to_string()),
            mss: first.map(|first| u64::from(first.mss())),
            ..Ready::default()
        }
    }

    fn tcp_info(worker: &Worker<Self>, _: &mut TcpInfo) -> Result<Snapshot, String> {
        let mut counts = Counts::new();
        let stack = worker.stack();
        for connection in worker.conns().filter_map(|conn| stack.connection(conn)) {
            for (quantity, count) in counts_of(connection) {
                *counts.entry(quantity).or_insert(0) += count;
            }
        }
        Ok(Snapshot {
            meter: "tcp_info".to_string(),
            at_ns: clock_ns(),
            totals: vec![Totals {
                whose: Whose::Connections,
                counts,
            }],
        })
    }
}

/// What ours counts in the same sense as TCP_INFO; the rest is absent.
fn counts_of(connection: &Connection) -> [(Quantity, u64); 5] {
    let counters = connection.counters();
    [
        (Quantity::ConnSegmentsSent, counters.segments_sent),
        (Quantity::ConnSegmentsReceived, counters.segments_received),
        (Quantity::ConnBytesSent, counters.payload_bytes_sent),
        (Quantity::ConnBytesReceived, counters.payload_bytes_received),
        (
            Quantity::ConnSegmentsRetransmitted,
            counters.segments_retransmitted,
        ),
    ]
}
