//! What an end's stack stands on: the kernel's sockets, or our own TCP over a TAP or over memory;
//! and what each tells about its connections.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tcpcost_link::memory::{self, Memory};
use tcpcost_link::{Device, Routed, Tap};
use tcpcost_meter::tcp_info::{self, TcpInfo};
use tcpcost_stack::{
    KernelStack, SocketOptions, Stack, UserSettings, UserStack, Wire, socket_buffers, socket_knob,
};
use tcpcost_study::{
    BufferSizes, Counts, DeviceSettings, Environment, Knob, Look, MeterName, Quantity, Side,
    Snapshot, Totals, Whose,
};
use tcpcost_tcp::{Config, CongestionControl, Connection, Ports};
use tcpcost_workload::Worker;

use crate::PrepareError;
use crate::policy::ConnectedOptions;
use crate::protocol::{Prepare, TestedPort, clock_ns};

/// What a worker's stack stands on.
#[derive(Clone)]
pub enum Backend {
    /// The kernel's sockets.
    Kernel,
    /// Our end of each of the host's TAPs: its queues, one for each instance of our TCP.
    Tap(Arc<Vec<Vec<Tap>>>),
    /// Wires in memory, each from an instance of one host to its partner of another.
    Memory(Wires),
}

/// Pairs in memory between a host that connects and one that listens, by number of the instance.
#[derive(Clone, Default)]
pub struct Wires(Arc<Mutex<Vec<Pair>>>);

/// The end of the one that connects, and of the one that listens.
type Pair = (Memory<Wire>, Memory<Wire>);

impl Wires {
    /// Takes the wires away, with what an earlier trial left on them.
    fn clear(&self) {
        let mut pairs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.clear();
    }

    /// Sees to it that there are so many. Before the workers start: each has a file table of its
    /// own, with what was open when it began.
    fn make(&self, count: usize) -> io::Result<()> {
        let mut pairs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while pairs.len() < count {
            pairs.push(memory::waitable_pair(MEMORY_PACKETS)?);
        }
        Ok(())
    }

    /// One end of the wire between the instances of this number, if there is one.
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
    /// Whether the kernel's TCP is under test at this end.
    pub fn is_kernel(&self) -> bool {
        matches!(self, Backend::Kernel)
    }
}

/// Packets that wait between two ends in memory, each way: a window of super-segments.
const MEMORY_PACKETS: usize = 256;
/// Ethernet's, and what a TAP begins with.
const MTU: u32 = 1500;

/// Makes the wires of our TCP; the state it will work in, by device.
pub fn prepare(
    backend: &Backend,
    prepare: &Prepare,
    device: &DeviceSettings,
) -> Result<BTreeMap<String, Environment>, PrepareError> {
    if let Backend::Memory(wires) = backend {
        // The one that connects is prepared first.
        if prepare.side == Some(Side::Connects) {
            wires.clear();
        }
        wires.make(prepare.instances).map_err(crate::failed)?;
    }
    let environment = |device_name: &String| Environment {
        device: device_name.clone(),
        mtu: u64::from(device.mtu.unwrap_or(MTU)),
        segmentation: "tso".to_string(),
        ..Environment::default()
    };
    let ports = prepare.ports.iter().map(|port| &port.device);
    Ok(ports
        .map(|name| (name.clone(), environment(name)))
        .collect())
}

/// A queue of each of the host's TAPs, for instance `index` of our TCP.
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

/// Our TCP over one end of a wire: instance `index` of so many.
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

/// Connections that are up.
#[derive(Debug, Default)]
pub struct Ready {
    /// How many.
    pub connections: usize,
    /// Congestion control of the first.
    pub congestion_control: Option<String>,
    /// MSS of the first, bytes.
    pub mss: Option<u64>,
    /// What the first has of the knobs that are set.
    pub knobs: BTreeMap<String, String>,
}

/// A stack whose connections tell what they count.
pub trait Observed: Stack + Sized {
    /// Congestion control and MSS of the first connection, and of these knobs those that it has.
    fn describe(worker: &Worker<Self>, knobs: &[&'static Knob]) -> Ready;

    /// Buffers of the first connection.
    fn buffers(worker: &Worker<Self>) -> Option<BufferSizes>;

    /// A look at the first connection; `None` of the kernel's, which tells less.
    fn look(worker: &Worker<Self>) -> Option<Look>;

    /// The totals of all connections, in TCP_INFO's quantities.
    fn tcp_info(worker: &Worker<Self>, meter: &mut TcpInfo) -> Result<Snapshot, String>;

    /// What the stack counts of itself as /proc/net counts for a namespace; `None` where it does that.
    fn counts(worker: &Worker<Self>) -> Option<Counts>;

    /// Keys of all connections in the meter `segments`, which sees the kernel's alone.
    fn keys(worker: &Worker<Self>) -> Vec<u64>;

    /// Sets what is set of each socket once its connection is up.
    fn set(worker: &Worker<Self>, options: &ConnectedOptions) -> Result<(), String>;
}

impl Observed for KernelStack {
    fn describe(worker: &Worker<Self>, knobs: &[&'static Knob]) -> Ready {
        let first = worker.conns().find_map(|conn| worker.stack().fd(conn));
        let read = |row: &&'static Knob| {
            let value = socket_knob(first?, row.name)?;
            Some((row.name.to_string(), value.to_string()))
        };
        Ready {
            knobs: knobs.iter().filter_map(read).collect(),
            congestion_control: first.and_then(|first| tcp_info::congestion_control(first).ok()),
            mss: first.and_then(|first| tcp_info::mss(first).ok()),
            ..Ready::default()
        }
    }

    fn buffers(worker: &Worker<Self>) -> Option<BufferSizes> {
        let first = worker.conns().find_map(|conn| worker.stack().fd(conn))?;
        let [send_bytes, receive_bytes] = socket_buffers(first)?;
        Some(BufferSizes {
            send_bytes,
            receive_bytes,
        })
    }

    fn look(_: &Worker<Self>) -> Option<Look> {
        None
    }

    fn tcp_info(worker: &Worker<Self>, meter: &mut TcpInfo) -> Result<Snapshot, String> {
        let sockets = worker.conns().filter_map(|conn| worker.stack().fd(conn));
        meter.snapshot(sockets).map_err(|error| error.to_string())
    }

    fn counts(_: &Worker<Self>) -> Option<Counts> {
        None
    }

    fn keys(worker: &Worker<Self>) -> Vec<u64> {
        let sockets = worker.conns().filter_map(|conn| worker.stack().fd(conn));
        sockets.filter_map(tcp_info::key).collect()
    }

    fn set(worker: &Worker<Self>, options: &ConnectedOptions) -> Result<(), String> {
        let mut sockets = worker.conns().filter_map(|conn| worker.stack().fd(conn));
        sockets.try_for_each(|socket| options.set(socket))
    }
}

impl<D: Device<Wire>> Observed for UserStack<D> {
    fn describe(worker: &Worker<Self>, knobs: &[&'static Knob]) -> Ready {
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
        Ready {
            knobs: knobs.iter().filter_map(read).collect(),
            congestion_control: first.map(|first| name(first).to_string()),
            mss: first.map(|first| u64::from(first.mss())),
            ..Ready::default()
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

    fn look(worker: &Worker<Self>) -> Option<Look> {
        let mut conns = worker.conns();
        let first = conns.find_map(|conn| worker.stack().connection(conn))?;
        let counters = first.counters();
        let info = first.info(Instant::now());
        let limits = info.ack.limit.zip(info.ack.limit_max);
        Some(Look {
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
                whose: Whose::Connections,
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

    /// Ours has them in its configuration.
    fn set(_: &Worker<Self>, _: &ConnectedOptions) -> Result<(), String> {
        Ok(())
    }
}

/// What ours counts in the same sense as TCP_INFO; the rest is absent.
fn counts_of(connection: &Connection, now: Instant) -> [(Quantity, u64); 13] {
    let (counters, info) = (connection.counters(), connection.info(now));
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    // Whatever was sent for the first time and is not waited for any more.
    let sent_once = counters.payload_bytes_sent - counters.payload_bytes_retransmitted;
    [
        (Quantity::ConnSegmentsSent, counters.segments_sent),
        (Quantity::ConnSegmentsReceived, counters.segments_received),
        // SYN and FIN, which have no data either, are outside the interval.
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
