//! Names and properties of meters: the methods of counting.
//!
//! The crate `meter` has a row for each meter that a program can open, with its constructor.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Subject of a meter's counts, which decides how the counts of several hosts are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeterSubject {
    /// CPUs, each counted once.
    Cpus,
    /// A network namespace, counted once however many workers ask.
    Namespace,
    /// Connections.
    Connections,
    /// A worker: its thread, or its own traffic.
    Worker,
    /// A host as a whole.
    Host,
    /// tcpcost itself.
    Tcpcost,
}

/// Mechanism of a meter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeterMechanism {
    /// A file or a system call, read when a snapshot is taken.
    Read,
    /// Counters that the kernel keeps while they are open (perf_event_open).
    Perf,
    /// eBPF programs; needs the feature `bpf`.
    Bpf,
    /// Spinning threads.
    Spinners,
}

/// Condition for a study to have the meter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeterSelection {
    /// The study names no meters.
    ByDefault,
    /// The study names the meter in `[measure] meters`.
    ByName,
    /// Never on request: the meter comes with its subject.
    Never,
}

macro_rules! meters {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $subject:ident, $mechanism:ident, $selection:ident;)+) => {
        /// A meter: the method by which something was counted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum MeterName {
            $($(#[doc = $doc])+ #[serde(rename = $name)] $variant,)+
        }

        impl MeterName {
            /// Every meter, in the order of the documentation.
            pub const ALL: &[MeterName] = &[$(MeterName::$variant,)+];

            /// Name in study files and records, e.g. `tcp_info`.
            pub const fn name(self) -> &'static str {
                match self { $(MeterName::$variant => $name,)+ }
            }

            /// Definition in one line: counts and method.
            pub fn definition(self) -> &'static str {
                match self { $(MeterName::$variant => concat!($($doc,)+).trim_ascii(),)+ }
            }

            /// Subject of its counts.
            pub const fn subject(self) -> MeterSubject {
                match self { $(MeterName::$variant => MeterSubject::$subject,)+ }
            }

            /// Mechanism of the meter.
            pub const fn mechanism(self) -> MeterMechanism {
                match self { $(MeterName::$variant => MeterMechanism::$mechanism,)+ }
            }

            /// Condition for a study to have the meter.
            pub const fn selection(self) -> MeterSelection {
                match self { $(MeterName::$variant => MeterSelection::$selection,)+ }
            }
        }
    };
}

meters! {
    /// CPU time of each CPU by /proc/stat: idle time is measured, what is not idle is sampled by the tick.
    Proc = "proc", Cpus, Read, ByDefault;
    /// CPU time, context switches and page faults of the workload's threads by getrusage, their
    /// migrations by /proc/thread-self/sched. For a command that `tcpcost stat` runs: its own use,
    /// and the use of all processes that it waited for.
    Rusage = "rusage", Worker, Read, ByDefault;
    /// Counts of each namespace by /proc/net/snmp, snmp6 and netstat.
    Netstat = "netstat", Namespace, Read, ByDefault;
    /// TCP_INFO of each connection, summed.
    TcpInfo = "tcp_info", Connections, Read, ByDefault;
    /// The time-stamp counter.
    Tsc = "tsc", Host, Read, ByDefault;
    /// CPU time of all other tasks by /proc/PID/stat.
    Others = "others", Cpus, Read, ByDefault;
    /// CPU time by context to the nanosecond, by eBPF.
    Exact = "exact", Cpus, Bpf, ByDefault;
    /// skbs, wire segments and ACKs of each namespace, and the contexts that sent them, by eBPF.
    Segments = "segments", Namespace, Bpf, ByName;
    /// Core cycles, instructions, cache misses and branch misses of each CPU, if there is a PMU.
    Perf = "perf", Cpus, Perf, ByName;
    /// Slowdown of an idle-priority spinner on each CPU; the spinner keeps the CPUs from idling.
    Soak = "soak", Cpus, Spinners, ByName;
    /// Call chains of each CPU, sampled in the interval: costs by function and layer.
    Profile = "profile", Cpus, Bpf, ByName;
    /// Instructions by function in a guest whose clock counts them, by the emulator, from outside.
    Emulator = "emulator", Cpus, Read, Never;
    /// The workload's own counts.
    Workload = "workload", Worker, Read, Never;
    /// Set-up before the interval: time until the host's connections were set up, and their memory.
    SetUp = "set_up", Worker, Read, Never;
    /// Our own TCP's counts, in place of a namespace's.
    Tcp = "tcp", Namespace, Read, Never;
    /// ACKs that the knob `ack_filter` passed and held, by its eBPF program.
    AckFilter = "ack_filter", Namespace, Bpf, Never;
    /// Packets that a wire with delay and loss carried and lost (`delay`, `loss`, …).
    Wire = "wire", Namespace, Read, Never;
    /// Threads of a command that `tcpcost stat` runs, and of all processes that it starts, by
    /// perf_event_open with inheritance.
    Descendants = "descendants", Worker, Perf, Never;
    /// Sends and receives of the processes that `tcpcost stat` measures, by eBPF at the kernel's
    /// socket tracepoints (Linux 6.3).
    SocketCalls = "socket_calls", Worker, Bpf, Never;
    /// Packets of a capture, as `tcpcost trace` reads it.
    Trace = "trace", Connections, Read, Never;
    /// Page faults of the whole host by /proc/vmstat.
    Vmstat = "vmstat", Host, Read, Never;
    /// CPU time of tcpcost itself.
    SelfCost = "self", Tcpcost, Read, Never;
    /// Run time of tcpcost's eBPF programs, if the kernel records it.
    Programs = "programs", Tcpcost, Read, Never;
}

impl MeterName {
    /// Meter with this name that a study can ask for; `None` if there is none.
    pub fn asked_as(name: &str) -> Option<MeterName> {
        MeterName::choices().find(|meter| meter.name() == name)
    }

    /// Meters that a study can ask for.
    pub fn choices() -> impl Iterator<Item = MeterName> {
        let all = MeterName::ALL.iter().copied();
        all.filter(|meter| meter.selection() != MeterSelection::Never)
    }

    /// True if the meter runs all through the interval, so that it may cost something. Other meters
    /// are read before and after the interval.
    pub fn is_standing(self) -> bool {
        self.selection() != MeterSelection::Never && self.mechanism() != MeterMechanism::Read
    }
}

impl fmt::Display for MeterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_the_same_in_records() {
        for (index, meter) in MeterName::ALL.iter().enumerate() {
            let earlier = &MeterName::ALL[..index];
            assert!(earlier.iter().all(|other| other.name() != meter.name()));
            let json = serde_json::to_string(meter).unwrap();
            assert_eq!(json, format!("\"{meter}\""));
            assert!(meter.definition().ends_with('.'), "{meter}");
        }
    }

    #[test]
    fn what_runs_all_through_the_interval_is_standing() {
        let standing = MeterName::ALL.iter().filter(|meter| meter.is_standing());
        let names: Vec<&str> = standing.map(|meter| meter.name()).collect();
        assert_eq!(names, ["exact", "segments", "perf", "soak", "profile"]);
    }
}
