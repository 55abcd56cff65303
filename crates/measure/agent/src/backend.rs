//! The base of an end's stack: the kernel's sockets, or our own TCP over a TAP or over memory. Also how
//! each stack reports on its connections.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tcpcost_link::memory::{self, Memory};
use tcpcost_link::{Device, Routed, Tap};
use tcpcost_meter::memory::MemoryUse;
use tcpcost_meter::tcp_info::{self, TcpInfo};
use tcpcost_stack::{
    KernelStack, RingStack, SocketOptions, Stack, StackError, UserSettings, UserStack, Wire,
    socket_buffers, socket_knob,
};
use tcpcost_study::{
    BufferSizes, CountOwner, Counts, DeviceSettings, Environment, FlowGroup, Knob, MeterName,
    Quantity, SeriesSample, Side, Snapshot, Totals, Value,
};
use tcpcost_tcp::{Config, CongestionControl, Connection, Ports};
use tcpcost_workload::Worker;

use crate::PrepareError;
use crate::policy::ConnectedOptions;
use crate::protocol::{Prepare, TestedPort, clock_ns};

/// Base of a worker's stack.
#[derive(Clone)]
pub enum Backend {
    /// The kernel's sockets.
    Kernel,
    /// Our end of each of the host's TAPs: a list of queues, one for each instance of our TCP.
    Tap(Arc<Vec<Vec<Tap>>>),
    /// Wires in memory, each from an instance of one host to the same instance of the other host.
    Memory(MemoryWires),
}

/// Wires in memory between a host that connects and a host that listens, by number of the instance.
#[derive(Clone, Default)]
pub struct MemoryWires(Arc<Mutex<Vec<Pair>>>);

/// The connecting host's end, and the listening host's end.
type Pair = (Memory<Wire>, Memory<Wire>);

impl MemoryWires {
    /// Removes the wires, with the packets that an earlier trial left on them.
    fn clear(&self) {
        let mut pairs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.clear();
    }

    /// Adds wires up to `count`. Must run before the workers start: each worker has a file table of its own,
    /// with the files that were open when it began.
    fn make(&self, count: usize) -> io::Result<()> {
        let mut pairs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while pairs.len() < count {
            pairs.push(memory::waitable_pair(MEMORY_PACKETS)?);
        }
        Ok(())
    }

    /// One end of the wire of instance `index`. `None` if there is no such wire.
    pub fn end(&self, index: usize, side: Side) -> Option<Memory<Wire>> {
        let pairs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (connects, listens) = pairs.get(index)?;
        Some(match side {
            Side::Connects => connects.clone(),
            Side::Listens => listens.clone(),
        })
    }
}

impl Backend {
    /// True if the kernel's TCP is under test at this end.
    pub fn is_kernel(&self) -> bool {
        matches!(self, Backend::Kernel)
    }
}

/// Limit on packets in flight each way between two ends in memory: a window of super-segments.
const MEMORY_PACKETS: usize = 256;
/// Ethernet's MTU, and a TAP's initial one.
const MTU: u64 = 1500;

/// Makes the wires of our TCP in memory. Returns the state of each device that our TCP uses.
pub fn prepare(
    backend: &Backend,
    prepare: &Prepare,
    device: &DeviceSettings,
) -> Result<BTreeMap<String, Environment>, PrepareError> {
    if let Backend::Memory(wires) = backend {
        // The host that connects is prepared first.
        if prepare.side == Some(Side::Connects) {
            wires.clear();
        }
        wires.make(prepare.instances).map_err(crate::failed)?;
    }
    let mtu = device.values.get("mtu").and_then(Value::whole);
    let environment = |device_name: &String| Environment {
        device: device_name.clone(),
        mtu: mtu.unwrap_or(MTU),
        segmentation: "tso".to_string(),
        ..Environment::default()
    };
    let ports = prepare.ports.iter().map(|port| &port.device);
    Ok(ports
        .map(|name| (name.clone(), environment(name)))
        .collect())
}

/// A device of one queue of each of the host's TAPs, for instance `index` of our TCP.
pub fn routed(
    links: &[Vec<Tap>],
    index: usize,
    prepare: &Prepare,
) -> Result<Routed<Tap, Wire>, String> {
    let port = |(queues, port): (&Vec<Tap>, &TestedPort)| {
        let queue = queues.get(index).ok_or("more threads than queues")?;
        let tap = queue.try_clone().map_err(|error| error.to_string())?;
        Ok::<_, String>((tap, (port.address, port.prefix)))
    };
    let ports = links.iter().zip(&prepare.ports).map(port);
    Routed::new(ports.collect::<Result<_, _>>()?).map_err(|error| error.to_string())
}

/// Instance `index` of our TCP over `device`.
pub fn stack<D: Device<Wire>>(
    device: D,
    index: usize,
    prepare: &Prepare,
    options: &SocketOptions,
) -> Result<UserStack<D>, String> {
    let choices = prepare.knobs.user_choices(prepare.host);
    let settings = UserSettings::new(&Config::default(), choices);
    let ports = Ports {
        every: u16::try_from(prepare.instances).map_err(|error| error.to_string())?,
        offset: u16::try_from(index).map_err(|error| error.to_string())?,
    };
    let addresses: Vec<_> = prepare.ports.iter().map(|port| port.address).collect();
    let networks = prepare.ports.iter().map(|port| (port.address, port.prefix));
    let networks: Vec<_> = networks.collect();
    UserStack::with_settings(device, &addresses, &settings, options)
        .map(|stack| stack.with_networks(&networks).with_ports(ports))
        .map_err(|error| error.to_string())
}

/// The kernel's sockets by io_uring, for one of a host's `threads` threads.
pub fn ring(
    options: &SocketOptions,
    groups: &[FlowGroup],
    threads: usize,
) -> Result<RingStack, StackError> {
    let each = groups.iter().map(|group| &group.settings);
    let connections: usize = each.clone().map(|settings| settings.flows).sum();
    let read_bytes = each.map(|settings| settings.read_bytes).max();
    RingStack::new(
        options,
        connections.div_ceil(threads.max(1)),
        read_bytes.unwrap_or(1),
    )
}

/// Connections that are up.
#[derive(Debug, Default)]
pub struct OpenConnections {
    /// Number of connections.
    pub connections: usize,
    /// Duration of their set-up, ns.
    pub set_up_ns: u64,
    /// Memory use before set-up.
    pub memory: MemoryUse,
    /// Congestion control of the first connection.
    pub congestion_control: Option<String>,
    /// MSS of the first connection, bytes.
    pub mss: Option<u64>,
    /// Values of the knobs that were set, as read back from the first connection.
    pub knobs: BTreeMap<String, String>,
}

/// A stack whose connections report their counts.
pub trait ObservedStack: Stack + Sized {
    /// Congestion control and MSS of the first connection, and its values of `knobs`.
    fn describe(worker: &Worker<Self>, knobs: &[&'static Knob]) -> OpenConnections;

    /// Buffer sizes of the first connection.
    fn buffers(worker: &Worker<Self>) -> Option<BufferSizes>;

    /// State of the first connection at this moment. `None` for the kernel's sockets, which report less.
    fn look(worker: &Worker<Self>) -> Option<SeriesSample>;

    /// Totals of all connections, in TCP_INFO's quantities.
    fn tcp_info(worker: &Worker<Self>, meter: &mut TcpInfo) -> Result<Snapshot, String>;

    /// Counts that the stack keeps of itself in the place of /proc/net's. `None` if the kernel keeps them.
    fn counts(worker: &Worker<Self>) -> Option<Counts>;

    /// Keys of all connections in the meter `segments`, which sees only the kernel's connections.
    fn keys(worker: &Worker<Self>) -> Vec<u64>;

    /// Sets the options that each socket gets once its connection is up.
    fn set(worker: &Worker<Self>, options: &ConnectedOptions) -> Result<(), String>;
}

/// A stack of the kernel's sockets.
trait Sockets: Stack {
    /// The socket of a connection.
    fn socket(&self, conn: Self::Conn) -> Option<BorrowedFd<'_>>;
}

impl Sockets for KernelStack {
    fn socket(&self, conn: Self::Conn) -> Option<BorrowedFd<'_>> {
        self.fd(conn)
    }
}

impl Sockets for RingStack {
    fn socket(&self, conn: Self::Conn) -> Option<BorrowedFd<'_>> {
        self.fd(conn)
    }
}

/// Sockets of the open connections.
fn sockets<S: Sockets>(worker: &Worker<S>) -> impl Iterator<Item = BorrowedFd<'_>> {
    let sockets = worker.conns();
    sockets.filter_map(|conn| worker.stack().socket(conn))
}

fn describe<S: Sockets>(worker: &Worker<S>, knobs: &[&'static Knob]) -> OpenConnections {
    let first = sockets(worker).next();
    let read = |row: &&'static Knob| {
        let value = socket_knob(first?, row.name)?;
        Some((row.name.to_string(), value.to_string()))
    };
    OpenConnections {
        knobs: knobs.iter().filter_map(read).collect(),
        congestion_control: first.and_then(|first| tcp_info::congestion_control(first).ok()),
        mss: first.and_then(|first| tcp_info::mss(first).ok()),
        ..OpenConnections::default()
    }
}

/// Implements [`ObservedStack`] for both stacks of the kernel's sockets, which differ only in how a thread waits.
macro_rules! observed_sockets {
    ($stack:ty) => {
        impl ObservedStack for $stack {
            fn describe(worker: &Worker<Self>, knobs: &[&'static Knob]) -> OpenConnections {
                describe(worker, knobs)
            }

            fn buffers(worker: &Worker<Self>) -> Option<BufferSizes> {
                let [send_bytes, receive_bytes] = socket_buffers(sockets(worker).next()?)?;
                Some(BufferSizes {
                    send_bytes,
                    receive_bytes,
                })
            }

            fn look(_: &Worker<Self>) -> Option<SeriesSample> {
                None
            }

            fn tcp_info(worker: &Worker<Self>, meter: &mut TcpInfo) -> Result<Snapshot, String> {
                let snapshot = meter.snapshot(sockets(worker));
                snapshot.map_err(|error| error.to_string())
            }

            fn counts(_: &Worker<Self>) -> Option<Counts> {
                None
            }

            fn keys(worker: &Worker<Self>) -> Vec<u64> {
                sockets(worker).filter_map(tcp_info::key).collect()
            }

            fn set(worker: &Worker<Self>, options: &ConnectedOptions) -> Result<(), String> {
                sockets(worker).try_for_each(|socket| options.set(socket))
            }
        }
    };
}

observed_sockets!(KernelStack);
observed_sockets!(RingStack);

impl<D: Device<Wire>> ObservedStack for UserStack<D> {
    fn describe(worker: &Worker<Self>, knobs: &[&'static Knob]) -> OpenConnections {
        let first = worker
            .conns()
            .find_map(|conn| worker.stack().connection(conn));
        let settings = first.map(|first| worker.stack().settings(Some(first)));
        let read = |row: &&'static Knob| {
            let which = row.user_choice()?;
            let value = settings.as_ref()?.read(which)?;
            Some((row.name.to_string(), value.to_string()))
        };
        let name = |connection: &Connection| match connection.config().congestion {
            CongestionControl::NewReno => "reno",
            CongestionControl::Cubic => "cubic",
            CongestionControl::Fixed(_) => "fixed",
        };
        OpenConnections {
            knobs: knobs.iter().filter_map(read).collect(),
            congestion_control: first.map(|first| name(first).to_string()),
            mss: first.map(|first| u64::from(first.mss())),
            ..OpenConnections::default()
        }
    }

    fn buffers(worker: &Worker<Self>) -> Option<BufferSizes> {
        let mut conns = worker.conns();
        let first = conns.find_map(|conn| worker.stack().connection(conn))?;
        Some(BufferSizes {
            send_bytes: first.config().send_buffer.into(),
            receive_bytes: first.info(Instant::now()).receive_buffer_bytes.into(),
        })
    }

    fn look(worker: &Worker<Self>) -> Option<SeriesSample> {
        let mut conns = worker.conns();
        let first = conns.find_map(|conn| worker.stack().connection(conn))?;
        let counters = first.counters();
        let info = first.info(Instant::now());
        let limits = info.ack.limit.zip(info.ack.limit_max);
        Some(SeriesSample {
            congestion_window_bytes: info.cwnd_bytes.into(),
            data_segments_received: counters
                .segments_received
                .saturating_sub(counters.pure_acks_received),
            pure_acks_sent: counters.pure_acks_sent,
            delayed_acks_sent: counters.delayed_acks_sent,
            ack_limits: limits.map(|(limit, most)| [limit, most].map(u64::from)),
        })
    }

    fn tcp_info(worker: &Worker<Self>, _: &mut TcpInfo) -> Result<Snapshot, String> {
        let mut counts = Counts::new();
        let (stack, now) = (worker.stack(), Instant::now());
        for connection in worker.conns().filter_map(|conn| stack.connection(conn)) {
            for (quantity, count) in counts_of(connection, now) {
                *counts.entry(quantity).or_insert(0) += count;
            }
        }
        Ok(Snapshot {
            meter: MeterName::TcpInfo,
            at_ns: clock_ns(),
            totals: vec![Totals {
                whose: CountOwner::Connections,
                counts,
            }],
        })
    }

    fn counts(worker: &Worker<Self>) -> Option<Counts> {
        let counters = worker.stack().endpoint().counters();
        Some(Counts::from([
            (Quantity::IpPacketsSent, counters.packets_sent),
            (Quantity::IpOctetsSent, counters.octets_sent),
            (Quantity::PureAcksSent, counters.pure_acks_sent),
            (
                Quantity::WindowAdvancingAcksSent,
                counters.window_advancing_acks_sent,
            ),
            (
                Quantity::OnlyAcknowledgingAcksSent,
                counters.pure_acks_sent - counters.window_advancing_acks_sent,
            ),
        ]))
    }

    fn keys(_: &Worker<Self>) -> Vec<u64> {
        Vec::new()
    }

    /// Nothing to do: our TCP has these options in its configuration.
    fn set(_: &Worker<Self>, _: &ConnectedOptions) -> Result<(), String> {
        Ok(())
    }
}

/// Counts of our TCP that mean the same as TCP_INFO's. Others are absent.
fn counts_of(connection: &Connection, now: Instant) -> [(Quantity, u64); 13] {
    let (counters, info) = (connection.counters(), connection.info(now));
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    // Bytes sent at least once.
    let sent_once = counters.payload_bytes_sent - counters.payload_bytes_retransmitted;
    [
        (Quantity::ConnSegmentsSent, counters.segments_sent),
        (Quantity::ConnSegmentsReceived, counters.segments_received),
        // SYN and FIN, which carry no data either, are outside the interval.
        (
            Quantity::ConnDataSegmentsSent,
            counters
                .segments_sent
                .saturating_sub(counters.pure_acks_sent),
        ),
        (
            Quantity::ConnDataSegmentsReceived,
            counters
                .segments_received
                .saturating_sub(counters.pure_acks_received),
        ),
        (Quantity::DelayedAcksSent, counters.delayed_acks_sent),
        (Quantity::Timeouts, counters.timeouts.into()),
        (Quantity::ConnBytesSent, counters.payload_bytes_sent),
        (
            Quantity::ConnBytesAcked,
            sent_once.saturating_sub(info.unacked_bytes.into()),
        ),
        (Quantity::ConnBytesReceived, counters.payload_bytes_received),
        (Quantity::ConnBusyNs, ns(info.limits.busy)),
        (
            Quantity::ConnReceiveWindowLimitedNs,
            ns(info.limits.by_window),
        ),
        (Quantity::ConnSendBufferLimitedNs, ns(info.limits.by_buffer)),
        (
            Quantity::ConnSegmentsRetransmitted,
            counters.segments_retransmitted,
        ),
    ]
}
