//! Causes of TCP's CPU cost: the units that a price list has prices for, and how each is counted.
//!
//! A cause is defined by its row alone.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use tcpcost_counts::{MeterName as M, Quantity as Q, Source};

/// Who decides how often a cause occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The program, by its calls.
    Program,
    /// The kernel and its settings.
    Kernel,
}

macro_rules! causes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $id:literal, $kind:ident, $one:literal, $many:literal => $count:expr;)+) => {
        /// A cause of CPU cost. The order is that of tables.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Cause {
            $($(#[doc = $doc])+ #[serde(rename = $id)] $variant,)+
        }

        impl Cause {
            /// Every cause, in the order of tables.
            pub const ALL: &[Cause] = &[$(Cause::$variant,)+];

            /// Stable name in files, e.g. `net_rx_run`.
            pub const fn id(self) -> &'static str {
                match self { $(Cause::$variant => $id,)+ }
            }

            /// Unit that a price is for, e.g. `run of NET_RX`.
            pub const fn unit(self) -> &'static str {
                match self { $(Cause::$variant => $one,)+ }
            }

            /// Label in a table, e.g. `runs of NET_RX`.
            pub const fn label(self) -> &'static str {
                match self { $(Cause::$variant => $many,)+ }
            }

            /// Who decides how often the cause occurs.
            pub const fn kind(self) -> Kind {
                match self { $(Cause::$variant => Kind::$kind,)+ }
            }

            /// Definition, as in the documentation.
            pub fn definition(self) -> &'static str {
                match self { $(Cause::$variant => concat!($($doc,)+).trim_ascii(),)+ }
            }

            fn formula(self) -> fn(&dyn Source) -> Option<f64> {
                match self { $(Cause::$variant => $count,)+ }
            }
        }
    };
}

causes! {
    /// Payload bytes that a send copied into the kernel.
    ByteCopiedIn = "byte_copied_in", Program, "byte copied in", "bytes copied in"
        => |from| Some((bytes_sent(from)? - bytes_referenced(from).unwrap_or(0.0)).max(0.0));
    /// Payload bytes sent by reference: sendfile, splice; of a study's workload also MSG_ZEROCOPY and its like.
    ByteReferenced = "byte_referenced", Program, "byte sent by reference", "bytes sent by reference"
        => |from| bytes_referenced(from);
    /// Payload bytes that a receive copied out of the kernel.
    ByteCopiedOut = "byte_copied_out", Program, "byte copied out", "bytes copied out"
        => |from| bytes_received(from);
    /// System calls that send, including calls that found no room.
    SendCall = "send_call", Program, "send call", "send calls"
        => |from| either(from, &[(M::Workload, Q::SendCalls), (M::SocketCalls, Q::SocketSends)]);
    /// System calls that receive, including calls that found nothing.
    ReceiveCall = "receive_call", Program, "receive call", "receive calls"
        => |from| either(from, &[(M::Workload, Q::ReceiveCalls), (M::SocketCalls, Q::SocketReceives)]);
    /// Times that a thread gave up the CPU to wait, each with the wake-up that ends the wait.
    Sleep = "sleep", Program, "sleep and wake-up", "sleeps and wake-ups"
        => |from| either(from, &[(M::Exact, Q::HolderSleeps), (M::Exact, Q::ExactTaskOwnSleeps), (M::Rusage, Q::VoluntarySwitches)]);
    /// Connections opened, by either end.
    Connection = "connection", Program, "connection", "connections"
        => |from| Some(from.count(M::Netstat, Q::ActiveOpens)? + from.count(M::Netstat, Q::PassiveOpens)?);
    /// skbs with payload that TCP passed down, a super-segment counting as one.
    SkbSent = "skb_sent", Kernel, "skb sent", "skbs sent"
        => |from| from.count(M::Segments, Q::DataSkbsSent);
    /// Packets beyond the first that software segmentation cut from an skb.
    GsoPacket = "gso_packet", Kernel, "packet cut by software", "packets cut by software"
        => |from| {
            let of_data = from.count(M::Segments, Q::DeviceSkbsSent)? - from.count(M::Segments, Q::PureAcksSent)?;
            Some((of_data - from.count(M::Segments, Q::DataSkbsSent)?).max(0.0))
        };
    /// skbs with payload received after GRO, without those of the next row.
    SkbReceived = "skb_received", Kernel, "skb received", "skbs received"
        => |from| Some(from.count(M::Segments, Q::DataSkbsReceived)? - data_merged(from)?);
    /// skbs with payload that the kernel merged into another because the reader held the socket.
    BacklogMerge = "backlog_merge", Kernel, "skb merged in the backlog", "skbs merged in the backlog"
        => |from| data_merged(from);
    /// Segments received without payload, without those merged in the backlog.
    AckReceived = "ack_received", Kernel, "ACK received", "ACKs received"
        => |from| Some(from.count(M::Segments, Q::PureAcksReceived)? - acks_merged(from)?);
    /// Segments sent without payload.
    AckSent = "ack_sent", Kernel, "ACK sent", "ACKs sent"
        => |from| from.count(M::Segments, Q::PureAcksSent);
    /// Runs of softirq NET_RX, with the poll of the device, however many packets they handle.
    NetRxRun = "net_rx_run", Kernel, "run of NET_RX", "runs of NET_RX"
        => |from| event(from, Q::HolderNetRxRuns, Q::ExactOwnNetRxRuns, Q::ExactNetRxRuns);
    /// Function-call IPIs received: by them another CPU begins NET_RX for packets that RPS or RFS steered, or
    /// wakes a task.
    IpiReceived = "ipi_received", Kernel, "function-call IPI received", "function-call IPIs received"
        => |from| event(from, Q::HolderCallIpis, Q::ExactOwnCallIpis, Q::ExactCallIpis);
    /// Function-call IPIs sent: in a virtual machine each may leave the guest. In a trial, those that the other
    /// hosts of the machine received; otherwise as many as were received, because with RPS on a device the same
    /// sockets send and receive them.
    IpiSent = "ipi_sent", Kernel, "function-call IPI sent", "function-call IPIs sent"
        => |from| event(from, Q::HolderCallIpis, Q::ExactOwnCallIpis, Q::ExactCallIpis);
    /// Reschedule IPIs: a task was woken on an idle CPU by another CPU. Sending, receiving and the end of idle
    /// together.
    RescheduleIpi = "reschedule_ipi", Kernel, "reschedule IPI", "reschedule IPIs"
        => |from| event(from, Q::HolderRescheduleIpis, Q::ExactOwnRescheduleIpis, Q::ExactRescheduleIpis);
    /// Timer interrupts beyond the regular tick: pacing, delayed ACKs, ends of idle.
    TimerInterrupt = "timer_interrupt", Kernel, "timer interrupt beyond the tick", "timer interrupts beyond the tick"
        => |from| event(from, Q::HolderExtraTimerInterrupts, Q::ExactOwnExtraTimerInterrupts, Q::ExactExtraTimerInterrupts);
}

/// Count of the first meter that has it.
fn either(from: &dyn Source, of: &[(M, Q)]) -> Option<f64> {
    of.iter().find_map(|&(by, of)| from.count(by, of))
}

/// Events of the meter `exact`: of a process, else of a command, else on the CPUs.
fn event(from: &dyn Source, of_process: Q, of_command: Q, on_cpus: Q) -> Option<f64> {
    either(
        from,
        &[
            (M::Exact, of_process),
            (M::Exact, of_command),
            (M::Exact, on_cpus),
        ],
    )
}

fn bytes_sent(from: &dyn Source) -> Option<f64> {
    either(
        from,
        &[
            (M::Workload, Q::PayloadBytesSent),
            (M::SocketCalls, Q::SocketBytesSent),
            (M::Segments, Q::DataSkbBytesSent),
        ],
    )
}

fn bytes_referenced(from: &dyn Source) -> Option<f64> {
    from.count(M::SocketCalls, Q::SocketReferenceBytesSent)
}

fn bytes_received(from: &dyn Source) -> Option<f64> {
    either(
        from,
        &[
            (M::Workload, Q::PayloadBytesReceived),
            (M::SocketCalls, Q::SocketBytesReceived),
            (M::Segments, Q::DataSkbBytesReceived),
        ],
    )
}

/// skbs with payload that were merged in the backlog. The kernel counts them together with merged ACKs:
/// they are those of what the host mostly receives.
fn data_merged(from: &dyn Source) -> Option<f64> {
    let merged = from.count(M::Netstat, Q::BacklogCoalesced)?;
    let data = from.count(M::Segments, Q::DataSkbsReceived)?;
    let mostly_data = data > from.count(M::Segments, Q::PureAcksReceived)?;
    Some(if mostly_data { merged.min(data) } else { 0.0 })
}

/// ACKs that were merged in the backlog, as in [`data_merged`].
fn acks_merged(from: &dyn Source) -> Option<f64> {
    let merged = from.count(M::Netstat, Q::BacklogCoalesced)?;
    let acks = from.count(M::Segments, Q::PureAcksReceived)?;
    let of_data = data_merged(from)?;
    Some(if of_data == 0.0 {
        merged.min(acks)
    } else {
        0.0
    })
}

impl Cause {
    /// Cause with this id; `None` if there is none.
    pub fn named(id: &str) -> Option<Cause> {
        Cause::ALL.iter().copied().find(|cause| cause.id() == id)
    }

    /// Count of the cause in a source; `None` if a quantity that it needs was not measured.
    pub fn count(self, from: &dyn Source) -> Option<f64> {
        self.formula()(from).filter(|count| count.is_finite())
    }

    /// Quantities that the count is made of, each with its meter.
    pub fn quantities(self) -> BTreeSet<(M, Q)> {
        let probe = Probe::default();
        self.formula()(&probe);
        // Every alternative is asked only if those before it have no answer.
        let none = Probe {
            has_none: true,
            ..Probe::default()
        };
        self.formula()(&none);
        let mut asked = probe.asked.into_inner();
        asked.append(&mut none.asked.into_inner());
        asked
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// A source that records the questions.
#[derive(Default)]
struct Probe {
    asked: RefCell<BTreeSet<(M, Q)>>,
    has_none: bool,
}

impl Source for Probe {
    fn count(&self, by: M, of: Q) -> Option<f64> {
        self.asked.borrow_mut().insert((by, of));
        (!self.has_none).then_some(1.0)
    }

    fn per_s(&self, by: M, of: Q) -> Option<f64> {
        self.count(by, of)
    }

    fn time_ns(&self, _: M) -> Option<f64> {
        (!self.has_none).then_some(1.0)
    }
}

/// Counts of causes. A cause that was not counted is absent, never 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counts(BTreeMap<Cause, f64>);

impl Counts {
    /// Counts of all causes that a source has the quantities of.
    pub fn of(from: &dyn Source) -> Counts {
        let counted = |&cause: &Cause| Some((cause, cause.count(from)?));
        Cause::ALL.iter().filter_map(counted).collect()
    }

    /// Count of a cause; `None` if it was not counted.
    pub fn get(&self, cause: Cause) -> Option<f64> {
        self.0.get(&cause).copied()
    }

    /// Sets the count of a cause.
    pub fn set(&mut self, cause: Cause, count: f64) {
        self.0.insert(cause, count);
    }

    /// Adds to the count of a cause that was counted; the count does not fall below 0.
    pub fn add(&mut self, cause: Cause, count: f64) {
        if let Some(counted) = self.0.get_mut(&cause) {
            *counted = (*counted + count).max(0.0);
        }
    }

    /// All counts times a factor, e.g. per unit of work.
    #[must_use]
    pub fn scaled(&self, by: f64) -> Counts {
        self.iter()
            .map(|(cause, count)| (cause, count * by))
            .collect()
    }

    /// Causes that were counted, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Cause, f64)> + '_ {
        self.0.iter().map(|(&cause, &count)| (cause, count))
    }
}

impl FromIterator<(Cause, f64)> for Counts {
    fn from_iter<I: IntoIterator<Item = (Cause, f64)>>(counts: I) -> Counts {
        Counts(counts.into_iter().collect())
    }
}
