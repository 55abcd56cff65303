//! CPU time, switches, migrations and faults of everything that the calling thread starts from now on, and of
//! its descendants, by perf_event_open(2) with inheritance. Also cycles and instructions if there is a PMU.
//!
//! The kernel passes each event on when a thread or process is created. So short-lived tasks are counted,
//! unlike with /proc, and daemons for which no process waits are counted, unlike with getrusage. The thread's
//! own share is counted separately and subtracted. Needs kernel.perf_event_paranoid at most 2, the default,
//! or CAP_PERFMON.

use std::fs::File;
use std::io;

use tcpcost_counts::{CountOwner, Counts, MeterName, Quantity, Snapshot};

use crate::perf::{Attributes, Counter, PERF_TYPE_HARDWARE, READ_FORMAT, perf_event_open};
use crate::{Meter, MeterError, Needs, snapshot_of, system_calls};

/// The meter `descendants`: [`CountOwner::Threads`].
#[derive(Debug)]
pub struct Descendants {
    /// Each event twice: including descendants, and of the thread alone.
    pairs: Vec<[Counter; 2]>,
    /// Last total of each event.
    told: Vec<u64>,
}

impl Descendants {
    /// Counts everything that the calling thread starts from now on.
    ///
    /// # Errors
    /// The kernel refuses its software events.
    pub fn open() -> Result<Descendants, MeterError> {
        let mut pairs = Vec::new();
        for &(kind, event, quantity) in EVENTS {
            let counter = |flags| {
                let source = open(kind, event, flags)?;
                Ok(Counter::new(0, quantity, source))
            };
            match counter(INHERIT).and_then(|all| Ok([all, counter(0)?])) {
                Ok(pair) => pairs.push(pair),
                // There is no PMU, or its kernel mode is not allowed for this user.
                Err(_) if kind == PERF_TYPE_HARDWARE => {}
                Err(error) => return Err(why(error)),
            }
        }
        let told = Vec::new();
        Ok(Descendants { pairs, told })
    }
}

impl Descendants {
    /// Also counts the network's system calls. This makes every system call of the machine cost more as long
    /// as this is open.
    ///
    /// # Errors
    /// The kernel has no tracepoints of system calls, or this user has no access to tracefs.
    pub fn count_system_calls(&mut self) -> Result<(), MeterError> {
        let refused = |error: io::Error| {
            let needs = match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENODEV) => {
                    Needs::Kernel("a kernel with CONFIG_FTRACE_SYSCALLS, and tracefs")
                }
                _ => Needs::Capabilities("CAP_SYS_ADMIN, for tracefs"),
            };
            MeterError::Unavailable {
                meter: MeterName::Descendants,
                tried: "count system calls".to_string(),
                source: Some(error),
                needs: Some(needs),
            }
        };
        let mut pairs = Vec::new();
        for (number, quantity) in system_calls::tracepoints().map_err(refused)? {
            let counter = |flags| {
                let source = open(PERF_TYPE_TRACEPOINT, number, flags)?;
                Ok(Counter::new(0, quantity, source))
            };
            pairs.push([
                counter(INHERIT).map_err(refused)?,
                counter(0).map_err(refused)?,
            ]);
        }
        self.pairs.extend(pairs);
        Ok(())
    }
}

impl Meter for Descendants {
    fn name(&self) -> MeterName {
        MeterName::Descendants
    }

    fn snapshot(&mut self) -> Result<Snapshot, MeterError> {
        let mut counts = Counts::new();
        self.told.resize(self.pairs.len(), 0);
        for ([all, own], told) in self.pairs.iter_mut().zip(&mut self.told) {
            // Reads the own share first, because it is part of the other.
            if let (Some(own_count), Some(count)) = (own.read()?, all.read()?) {
                // Work of this thread between the two reads is in the difference. So the difference may
                // shrink if nothing ran in between, but a total must not.
                *told = count.saturating_sub(own_count).max(*told);
                // Several events may count the same quantity.
                *counts.entry(all.quantity).or_insert(0) += *told;
            }
        }
        Ok(snapshot_of(self.name(), CountOwner::Threads, counts))
    }
}

fn open(kind: u32, event: u64, flags: u64) -> io::Result<File> {
    let attributes = Attributes {
        kind,
        config: event,
        read_format: READ_FORMAT,
        flags,
        ..Attributes::default()
    };
    Ok(perf_event_open(attributes, 0, -1)?.into())
}

fn why(error: io::Error) -> MeterError {
    let needs = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Some(Needs::Capabilities(
            "CAP_PERFMON, or sysctl kernel.perf_event_paranoid at most 1",
        )),
        Some(libc::ENOSYS) => Some(Needs::Kernel("a kernel with CONFIG_PERF_EVENTS")),
        _ => None,
    };
    MeterError::Unavailable {
        meter: MeterName::Descendants,
        tried: "count what is started".to_string(),
        source: Some(error),
        needs,
    }
}

/// Values PERF_COUNT_SW_… and PERF_COUNT_HW_… of linux/perf_event.h.
const EVENTS: &[(u32, u64, Quantity)] = &[
    (PERF_TYPE_SOFTWARE, 1, Quantity::TaskClockNs),
    (PERF_TYPE_SOFTWARE, 3, Quantity::ContextSwitches),
    (PERF_TYPE_SOFTWARE, 4, Quantity::CpuMigrations),
    (PERF_TYPE_SOFTWARE, 2, Quantity::PageFaults),
    (PERF_TYPE_HARDWARE, 0, Quantity::CoreCycles),
    (PERF_TYPE_HARDWARE, 1, Quantity::Instructions),
];

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_TYPE_TRACEPOINT: u32 = 2;
/// Bit 1 of the flags, `inherit`.
const INHERIT: u64 = 2;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn system_calls_are_those_of_what_is_started() {
        let mut meter = match Descendants::open() {
            Ok(meter) => meter,
            Err(error) => return tcpcost_testbed::skip(&error.to_string()),
        };
        if let Err(error) = meter.count_system_calls() {
            return tcpcost_testbed::skip(&error.to_string());
        }
        // bash itself connects, and is refused. If SHELL or HOME is unset, it asks nscd first, over a socket.
        let mut connects = |times| {
            let before = meter.snapshot().unwrap();
            // A connect of this thread, which does not count.
            let _ = std::net::TcpStream::connect("127.0.0.1:1");
            let script =
                format!("for i in {times}; do : < /dev/tcp/127.0.0.1/1; done 2> /dev/null; :");
            let status = Command::new("bash").args(["-c", &script]).status().unwrap();
            assert!(status.success());
            let after = meter.snapshot().unwrap();
            after.since(&before).unwrap().remove(0).counts
        };
        let start = connects("")[&Quantity::ConnectSystemCalls];
        let counts = connects("1 2 3");
        assert_eq!(
            counts[&Quantity::ConnectSystemCalls] - start,
            3,
            "{counts:?}"
        );
        assert_eq!(counts[&Quantity::AcceptSystemCalls], 0, "{counts:?}");
    }

    /// Starts a command that starts two more: one that works, and one for which no process waits.
    #[test]
    fn what_a_command_starts_is_counted_and_what_the_thread_does_itself_is_not() {
        let mut meter = match Descendants::open() {
            Ok(meter) => meter,
            Err(error) => return tcpcost_testbed::skip(&error.to_string()),
        };
        let mut grown = |work: &dyn Fn()| {
            let before = meter.snapshot().unwrap();
            work();
            let after = meter.snapshot().unwrap();
            after.since(&before).unwrap().remove(0).counts
        };
        let counts = "sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; :'; :";
        let started = grown(&|| {
            let status = Command::new("sh").args(["-c", counts]).status().unwrap();
            assert!(status.success());
        });
        assert!(started[&Quantity::TaskClockNs] > 1_000_000, "{started:?}");
        assert!(started[&Quantity::PageFaults] > 0, "{started:?}");
        assert!(started[&Quantity::ContextSwitches] > 0, "{started:?}");
        let own = grown(&|| {
            let mut sum = 0_u64;
            for value in 0..20_000_000 {
                sum = std::hint::black_box(sum.wrapping_add(value));
            }
        });
        let ratio = own[&Quantity::TaskClockNs] as f64 / started[&Quantity::TaskClockNs] as f64;
        assert!(ratio < 0.1, "{own:?} {started:?}");
    }
}
