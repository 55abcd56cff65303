//! The wire with delay and loss between two namespaces. It is a separate process, so that its CPU time
//! belongs to neither end.
//!
//! The agent of the host at its first end starts it in the agent's namespace. The process makes both
//! interfaces, moves the second into the other host's namespace, and carries packets until its input ends.
//! Its thread has the policy SCHED_BATCH, by which the meter `exact` recognizes it.

#![allow(unsafe_code, reason = "sched_setscheduler")]

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use tcpcost_host::link;
use tcpcost_link::{Impairment, LaneCounters, TapWire};
use tcpcost_meter::{Meter, MeterError};
use tcpcost_study::{CountOwner, Counts, MeterName, Quantity, Snapshot, Totals, WireSettings};

use crate::protocol::clock_ns;

/// An order from the agent to the process, one line each.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireOrder {
    /// Sets the impairments, by sender.
    Set {
        settings: [WireSettings; 2],
        seed: u64,
    },
    /// Asks for the counts since the last `Set`.
    Count,
}

/// Answer of the process, one line each.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireAnswer {
    /// Both interfaces are in their namespaces.
    Ready,
    /// Answer to every order: counts since the last `Set`.
    Counts(WireCounts),
    /// The reason why the process ends.
    Failed(String),
}

#[derive(Serialize, Deserialize)]
struct WireCounts {
    packets: u64,
    lost: u64,
    overflowed: u64,
    reordered: u64,
    duplicated: u64,
    cpu_ns: u64,
}

/// Handle of the process, held by the agent that started it.
#[derive(Debug, Clone)]
pub struct Wire(Arc<Mutex<Process>>);

#[derive(Debug)]
struct Process {
    child: Child,
    /// `None` once the process has been told to end.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Wire {
    /// Starts the process with interfaces of these names. The first stays here, the second goes to the
    /// network namespace of the process `peer_pid`.
    pub fn start(device: &str, peer_device: &str, peer_pid: u32) -> anyhow::Result<Wire> {
        let program = std::env::current_exe().context("find tcpcost itself")?;
        let mut child = Command::new(program)
            .args(["carry", device, peer_device, &peer_pid.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start the wire")?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("start the wire: no pipes");
        };
        let mut process = Process {
            child,
            orders: Some(orders),
            answers: BufReader::new(answers),
        };
        match process.answer().context("start the wire")? {
            WireAnswer::Ready => Ok(Wire(Arc::new(Mutex::new(process)))),
            _ => bail!("start the wire: it gave counts first"),
        }
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.lock().child.id()
    }

    /// Sets the impairments, by sender, and discards packets in flight.
    pub fn set(&self, settings: [WireSettings; 2], seed: u64) -> anyhow::Result<()> {
        self.lock()
            .ask(&WireOrder::Set { settings, seed })
            .map(drop)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Process> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Process {
    fn ask(&mut self, order: &WireOrder) -> anyhow::Result<WireCounts> {
        let orders = self.orders.as_mut().context("the wire has ended")?;
        let line = serde_json::to_string(order).expect("an order has only text keys");
        // If the process has ended, its last answer says why.
        let written = writeln!(orders, "{line}");
        match self.answer()? {
            WireAnswer::Counts(counts) => written
                .map(|()| counts)
                .context("write to the wire process"),
            _ => bail!("the wire gave no counts"),
        }
    }

    /// Reads an answer. Fails with the reason of the process if it ends.
    fn answer(&mut self) -> anyhow::Result<WireAnswer> {
        let mut line = String::new();
        let read = self
            .answers
            .read_line(&mut line)
            .context("read from the wire process")?;
        if read == 0 {
            bail!("the wire has ended and gave no reason");
        }
        match serde_json::from_str(&line).with_context(|| format!("the wire said {line:?}"))? {
            WireAnswer::Failed(reason) => bail!("{reason}"),
            answer => Ok(answer),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process ends when its input ends.
        self.orders = None;
        let _ = self.child.wait();
    }
}

impl Meter for Wire {
    fn name(&self) -> MeterName {
        MeterName::Wire
    }

    fn snapshot(&mut self) -> Result<Snapshot, MeterError> {
        let carried = self.lock().ask(&WireOrder::Count);
        let carried = carried.map_err(|error| MeterError::Call {
            call: "read counts of the wire process",
            source: io::Error::other(error),
        })?;
        let counts = Counts::from([
            (Quantity::WirePackets, carried.packets),
            (Quantity::WireLostPackets, carried.lost),
            (Quantity::WireOverflowedPackets, carried.overflowed),
            (Quantity::WireReorderedPackets, carried.reordered),
            (Quantity::WireDuplicatedPackets, carried.duplicated),
            (Quantity::WireCpuNs, carried.cpu_ns),
        ]);
        Ok(Snapshot {
            meter: MeterName::Wire,
            at_ns: clock_ns(),
            totals: vec![Totals {
                whose: CountOwner::Namespace,
                counts,
            }],
        })
    }
}

/// Temporary name of the second interface until it is in the other namespace.
const UNDER_WAY: &str = "tcpcost-wire";

/// Longest sleep. An order wakes the process sooner.
const SLEEP: Duration = Duration::from_secs(1);

/// Main function of the process. If it fails, the agent gets the reason as an answer, and tells the user.
///
/// # Errors
/// Standard output cannot be written.
pub fn main(device: &str, peer_device: &str, peer_pid: u32) -> anyhow::Result<()> {
    match carry(device, peer_device, peer_pid) {
        Ok(()) => Ok(()),
        Err(error) => say(&WireAnswer::Failed(format!("{error:#}"))),
    }
}

fn say(answer: &WireAnswer) -> anyhow::Result<()> {
    let mut stdout = io::stdout();
    writeln!(stdout, "{}", serde_json::to_string(answer)?)?;
    Ok(stdout.flush()?)
}

/// Carries packets until standard input ends.
fn carry(device: &str, peer_device: &str, peer_pid: u32) -> anyhow::Result<()> {
    tcpcost_signals::leave_to_parent();
    // SAFETY: the kernel only reads the parameter, which lives through the call.
    let batch = unsafe {
        let parameter: libc::sched_param = std::mem::zeroed();
        // Makes timers as exact as possible: the default slack of 50 us would delay every packet.
        libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64);
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameter)
    };
    if batch != 0 {
        return Err(io::Error::last_os_error()).context("sched_setscheduler to SCHED_BATCH");
    }
    // In a star both interfaces have the same name.
    let mut wire = TapWire::open([device, UNDER_WAY], true)?;
    link::move_to_as(UNDER_WAY, peer_pid, peer_device)?;
    let stdin = io::stdin();
    say(&WireAnswer::Ready)?;
    loop {
        let gone = match wire.carry(SLEEP, stdin.as_fd()) {
            Ok(true) => None,
            Ok(false) => continue,
            // The second interface went with its namespace. At the end of a run that may come before the end of the input.
            Err(error) if error.raw_os_error() == Some(libc::EBADFD) => Some(error),
            Err(error) => return Err(error.into()),
        };
        let mut line = String::new();
        if stdin.lock().read_line(&mut line)? == 0 {
            return Ok(());
        }
        if let Some(error) = gone {
            return Err(error).context("an interface of the wire is gone");
        }
        if let WireOrder::Set { settings, seed } = serde_json::from_str(&line)? {
            wire.set(settings.map(impairment), seed);
        }
        say(&WireAnswer::Counts(carried(wire.counters())))?;
    }
}

/// Converts a study's settings into the wire's impairments.
pub(crate) fn impairment(settings: WireSettings) -> Impairment {
    let share = |ppm: u64| ppm as f64 / 1e6;
    let limited = settings.rate_bits_per_s.is_some();
    Impairment {
        delay: settings.delay,
        jitter: settings.jitter,
        rate_bits_per_s: settings.rate_bits_per_s,
        queue_bytes: limited.then(|| usize::try_from(settings.queue_bytes).unwrap_or(usize::MAX)),
        loss: share(settings.loss_ppm),
        reorder: share(settings.reorder_ppm),
        reorder_delay: settings.reorder_delay,
        duplicate: share(settings.duplicate_ppm),
        ..Impairment::default()
    }
}

fn carried(lanes: [LaneCounters; 2]) -> WireCounts {
    let sum = |of: fn(&LaneCounters) -> u64| lanes.iter().map(of).sum();
    WireCounts {
        packets: sum(|lane| lane.packets),
        lost: sum(|lane| lane.lost),
        overflowed: sum(|lane| lane.overflowed),
        reordered: sum(|lane| lane.reordered),
        duplicated: sum(|lane| lane.duplicated),
        cpu_ns: tcpcost_meter::self_cost::thread_cpu_ns(),
    }
}
