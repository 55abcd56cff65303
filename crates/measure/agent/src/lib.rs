//! A host of a bed: answers questions on standard input, drives its side of the traffic, reads its meters.
//!
//! An agent decides nothing: the command chooses trials and times, and judges the results. When its input
//! ends, an agent restores what it changed and exits at once, even in the middle of a trial.

#![deny(unsafe_code)]

#[cfg(feature = "bpf")]
mod ack_filter;
#[cfg(not(feature = "bpf"))]
#[path = "ack_filter/absent.rs"]
mod ack_filter;
mod backend;
mod capture;
mod captured;
mod deal;
#[doc(hidden)]
pub mod input;
mod lane;
mod policy;
pub mod protocol;
mod readings;
mod relays;
mod sampler;
mod soak;
mod space;
mod trial;
mod wire;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use tcpcost_counts::printable;
use tcpcost_host::cpu_quota::CpuQuota;
use tcpcost_host::cpus::Cpus;
use tcpcost_host::error::SystemError;
use tcpcost_host::journal::{self, Journal};
use tcpcost_host::lend::{self, LentDevice};
use tcpcost_host::lock::{HostLock, LockKind};
use tcpcost_host::{address, environment, link, machine, namespace, netem, route, sysctl};
use tcpcost_link::{Layer, Offloads, Tap};
use tcpcost_meter::core_to_core::round_trip_ns;
use tcpcost_stack::limits::TcpLimits;
use tcpcost_study::{CarrierAsked, DeviceName, HostName, KnobError, Machine, Route};

use crate::backend::{Backend, MemoryWires};
use crate::input::{Input, LeaseStart};
use crate::protocol::{ANSWER_BYTES_MAX, Answer, Ask, AttachedDevice, Hello, PROTOCOL, clock_ns};
use crate::trial::HostTrial;
use crate::wire::Wire;
pub use crate::wire::main as wire;
use crate::worker::{EndHandover, Listening};

/// How a process runs its hosts.
#[derive(Debug, Clone, Copy)]
pub struct ProcessSetup {
    /// True if each host has a network namespace of its own.
    pub isolate: bool,
    /// True if the hosts are joined by wires in memory.
    pub memory: bool,
    /// True if two hosts take turns in one thread.
    pub one_thread: bool,
    /// True if a supervisor starts the process again when it ends, so that a command can always attach.
    pub standing: bool,
}

/// Exit code of a standing agent whose command is gone, so that it is started again: EX_TEMPFAIL of
/// sysexits.h. Kubernetes does not restart a pod of a Job that exits with 0.
const AGAIN: i32 = 75;

/// Answers as one host or as several until the input ends. With a lease it also ends after that time without
/// a line.
///
/// # Errors
/// The namespace cannot be made.
pub fn main(
    how: ProcessSetup,
    lease: Option<Duration>,
    hosts: &[HostName],
) -> anyhow::Result<Infallible> {
    // Ctrl-C and a closed terminal signal the whole process group; the command decides what to do.
    tcpcost_signals::leave_to_parent();
    let machine = MachineFacts::read();
    // Before any thread exists, because unshare moves only the calling thread. With several hosts, each
    // host's thread enters its own namespace.
    if how.isolate && hosts.len() == 1 {
        namespace::enter_new()?;
    }
    let enters = how.isolate && hosts.len() > 1;
    let journals = Arc::new(Mutex::new(Journals {
        code: if how.standing { AGAIN } else { 0 },
        ..Journals::default()
    }));
    let handover = how.one_thread.then(EndHandover::default);
    let backend = match how.memory {
        true => Backend::Memory(MemoryWires::default()),
        false => Backend::Kernel,
    };
    let mut inboxes = BTreeMap::new();
    let mut agents = Vec::new();
    for &host in hosts {
        let (to_agent, asks) = channel();
        inboxes.insert(host.to_string(), to_agent);
        let agent = Agent {
            trial: None,
            backend: backend.clone(),
            wire: None,
            machine: machine.clone(),
            // Settings in a namespace of a host are restored there, or not at all because the namespace ends.
            journals: match enters {
                true => Arc::default(),
                false => Arc::clone(&journals),
            },
            held: None,
            is_isolated: how.isolate,
            handover: handover.clone(),
        };
        agents.push((host, agent, asks));
    }
    let input = std::io::stdin().as_fd().try_clone_to_owned()?;
    listen(
        Arc::clone(&journals),
        inboxes,
        Input::new(
            input.into(),
            lease,
            match how.standing {
                true => LeaseStart::WithAWord,
                false => LeaseStart::AtOnce,
            },
        ),
    );
    let (host, last, asks) = agents
        .pop()
        .context("an agent answers for at least one host")?;
    for (host, agent, asks) in agents {
        std::thread::spawn(move || match enter(enters) {
            Ok(()) => serve(agent, host, &asks),
            Err(error) => {
                complain(&error);
                leave(&agent.journals)
            }
        });
    }
    enter(enters)?;
    serve(last, host, &asks)
}

/// Moves the calling thread, and the threads that it will start, into a new namespace if `is_asked`.
fn enter(is_asked: bool) -> Result<(), SystemError> {
    match is_asked {
        true => namespace::enter_new(),
        false => Ok(()),
    }
}

/// Answers each question with a line that begins with the host's name, until the command is gone.
fn serve(mut agent: Agent, host: HostName, asks: &Receiver<String>) -> ! {
    while let Ok(line) = asks.recv() {
        let answer = match serde_json::from_str::<Ask>(&line) {
            Ok(ask) => agent.answer(ask).unwrap_or_else(|error| error.into()),
            Err(error) => Answer::Failed {
                reason: format!("did not understand {line:?}: {error}"),
            },
        };
        let line = answer_line(&answer);
        let mut stdout = std::io::stdout().lock();
        if writeln!(stdout, "{host} {line}")
            .and_then(|()| stdout.flush())
            .is_err()
        {
            break; // The command no longer reads.
        }
    }
    leave(&agent.journals)
}

/// Makes a line of an answer. An answer that is too long for the command becomes a failure.
fn answer_line(answer: &Answer) -> String {
    let text =
        |answer: &Answer| serde_json::to_string(answer).expect("answers have only text keys");
    let line = text(answer);
    // The host's name and a space come before the answer.
    if line.len() + HostName::MAX + 1 < ANSWER_BYTES_MAX {
        return line;
    }
    let reason = format!(
        "results of {} bytes exceed the limit of {ANSWER_BYTES_MAX}: use a shorter duration, a longer series interval or fewer groups",
        line.len()
    );
    text(&Answer::Failed { reason })
}

/// Reads questions on a separate thread, so that the end of the input is seen at once, even in the middle of
/// a trial.
fn listen(
    journals: Arc<Mutex<Journals>>,
    inboxes: BTreeMap<String, Sender<String>>,
    mut input: Input<File>,
) {
    std::thread::spawn(move || {
        let why = loop {
            let line = match input.line() {
                Ok(Some(line)) => line,
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            };
            // An empty line only renews the lease.
            if line.is_empty() {
                continue;
            }
            let Some((inbox, ask)) =
                protocol::addressed(&line).and_then(|(host, ask)| Some((inboxes.get(host)?, ask)))
            else {
                break Some(format!("did not understand {:?}", shown(&line)));
            };
            if ask.starts_with(RUN)
                && let Ok(Ask::Run(span)) = serde_json::from_str(ask)
            {
                input.expect_silence_until(span.stop_ns);
            }
            if inbox.send(ask.to_string()).is_err() {
                break None;
            }
        };
        if let Some(why) = why {
            complain(&why);
        }
        leave(&journals);
    });
}

/// Start of the line of an [`Ask::Run`].
const RUN: &str = r#"{"do":"run""#;

/// Writes a line to standard error, which may be root's terminal. A closed standard error is no reason to
/// end.
pub(crate) fn complain(what: &dyn std::fmt::Display) {
    let line = format!("tcpcost agent: {what}");
    let _ = writeln!(std::io::stderr(), "{}", printable(&line));
}

/// Start of a line, long enough to identify it.
fn shown(line: &str) -> String {
    line.chars().take(60).collect()
}

/// Restores what was changed and ends the process. The first of the two threads that sees that the command is
/// gone does so. The other waits for the lock until the process has ended.
fn leave(journals: &Mutex<Journals>) -> ! {
    let mut journals = journals
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let own = put_back(&mut journals.settings);
    // Waits until the borrowers have ended, so that lent devices come back with their former settings.
    let settled = journals.lent.iter().map(LentDevice::settle);
    let settled: Vec<SystemError> = settled.filter_map(Result::err).collect();
    for error in &settled {
        complain(&error);
    }
    let lent = put_back(&mut journals.ports);
    std::process::exit(match own && settled.is_empty() && lent {
        true => journals.code,
        false => 1,
    })
}

/// Restores the changes of a journal if it is of the host's own settings. True if everything was restored.
fn put_back(journal: &mut Option<Journal>) -> bool {
    // A namespace of ours ends with this process; a TAP in it ends with the other end's process.
    let of_host = journal.as_mut().filter(|journal| journal.is_of_host());
    let done = of_host.map_or(Ok(()), Journal::put_back);
    if let Err(error) = &done {
        complain(&format!(
            "restore settings: {error}; `tcpcost doctor --restore` tries again"
        ));
    }
    drop(journal.take()); // Deletes the file if no change is left in it.
    done.is_ok()
}

/// Changes to be restored before the process ends.
#[derive(Default)]
struct Journals {
    /// Settings changed for a trial, restored before the next trial.
    settings: Option<Journal>,
    /// Devices that were moved away, for the whole bed.
    ports: Option<Journal>,
    /// The devices of `ports`.
    lent: Vec<LentDevice>,
    /// Exit code if everything was restored.
    code: i32,
}

/// Reason why a question was not answered as asked.
#[derive(Debug, thiserror::Error)]
enum PrepareError {
    #[error(transparent)]
    Unsupported(#[from] KnobError),
    #[error("{0}")]
    Failed(String),
}

impl From<PrepareError> for Answer {
    fn from(error: PrepareError) -> Answer {
        match error {
            PrepareError::Unsupported(error) => Answer::Unsupported(error),
            PrepareError::Failed(reason) => Answer::Failed { reason },
        }
    }
}

impl PrepareError {
    /// Failure with this reason: one line, which has its causes already.
    fn because(reason: impl ToString) -> PrepareError {
        PrepareError::Failed(reason.to_string())
    }
}

/// Converts an error of a library into one line with its causes.
fn failed(error: impl Into<anyhow::Error>) -> PrepareError {
    PrepareError::Failed(format!("{:#}", error.into()))
}

/// Properties of the machine that a namespace hides, read before this process enters one.
#[derive(Clone)]
struct MachineFacts {
    id: String,
    environment: Machine,
    limits: TcpLimits,
    quota: Option<Arc<CpuQuota>>,
}

impl MachineFacts {
    fn read() -> MachineFacts {
        MachineFacts {
            id: machine::boot_id(),
            environment: Machine {
                tsc_hz: tcpcost_meter::tsc::rate_hz(),
                sysctls: environment::sysctls(sysctl::root(), &BTreeSet::new()),
                ..machine::host()
            },
            limits: TcpLimits::read(Path::new("/proc")),
            quota: CpuQuota::find().map(Arc::new),
        }
    }
}

const ENDING_PAUSE: Duration = Duration::from_millis(20);

struct Agent {
    /// Set by `Prepare`.
    trial: Option<HostTrial>,
    backend: Backend,
    /// The wire that begins at this host, and the host at its other end. `None` if its link has no wire.
    wire: Option<(HostName, Wire)>,
    machine: MachineFacts,
    journals: Arc<Mutex<Journals>>,
    /// Lock on the settings of a host that a study names.
    #[allow(dead_code, reason = "held until the process ends")]
    held: Option<HostLock>,
    /// True if this process has a network namespace of its own.
    is_isolated: bool,
    /// Shared by two hosts that take turns in one thread.
    handover: Option<EndHandover>,
}

impl Agent {
    fn answer(&mut self, ask: Ask) -> Result<Answer, PrepareError> {
        match ask {
            Ask::Hello { protocol } if protocol != PROTOCOL => Err(PrepareError::Failed(format!(
                "this agent speaks protocol {PROTOCOL}, the command {protocol}: install one version"
            ))),
            Ask::Hello { .. } => self.hello().map(|hello| Answer::Hello(Box::new(hello))),
            Ask::Clock => Ok(Answer::Clock { now_ns: clock_ns() }),
            // A CPU that is not free has no distance now. That is no reason not to run.
            Ask::Distance { cpus } => Ok(Answer::Distance {
                round_trip_ns: round_trip_ns(cpus).ok().flatten(),
            }),
            Ask::Port {
                device,
                address,
                is_v6,
                changes,
                held_max_ns,
            } => {
                let found = address::find(device.as_deref(), address, is_v6);
                let found = found.map_err(PrepareError::because)?;
                let restored = self.hold(changes, Duration::from_nanos(held_max_ns))?;
                let port = AttachedDevice {
                    device: found.device,
                    address: found.address,
                    prefix: found.prefix,
                };
                Ok(Answer::Port { port, restored })
            }
            Ask::Lend { device, pid } => self.lend(&device, pid),
            Ask::Veth {
                device,
                peer_device,
                peer_pid,
            } => {
                link::create_veth(&device, &peer_device, peer_pid).map_err(failed)?;
                Ok(Answer::Done)
            }
            Ask::Tap {
                device,
                address,
                queues,
                peer_pid,
            } => self.add_tap(&device, address, queues, peer_pid),
            Ask::Wire {
                device,
                peer_device,
                peer,
                peer_pid,
                by,
            } => {
                self.wire = None;
                if by_netem(by)? {
                    link::create_veth(&device, &peer_device, peer_pid).map_err(failed)?;
                    return Ok(Answer::Wired { pid: None });
                }
                let wire = Wire::start(&device, &peer_device, peer_pid).map_err(failed)?;
                let pid = Some(wire.pid());
                self.wire = Some((peer, wire));
                Ok(Answer::Wired { pid })
            }
            Ask::Attach {
                ports,
                routes,
                forwards,
            } => attach(&ports, &routes, forwards).map_err(failed),
            Ask::Prepare(prepare) => self.prepare(*prepare),
            Ask::Listen => {
                let Listening { addresses, loaded } = self.trial()?.listen()?;
                Ok(Answer::Listening { addresses, loaded })
            }
            Ask::Connect { targets, loaded } => {
                let trial = self.trial()?;
                trial.connect(&targets, &loaded)?;
                trial.connected()
            }
            Ask::Relay { targets } => Ok(Answer::Listening {
                addresses: self.trial()?.relay(&targets)?,
                loaded: BTreeMap::new(),
            }),
            Ask::Observe { loaded } => {
                let trial = self.trial()?;
                trial.observe(&loaded)?;
                trial.connected()
            }
            Ask::Accepted => self.trial()?.connected(),
            Ask::Soak => {
                self.trial()?.soak();
                Ok(Answer::Done)
            }
            Ask::Run(span) => {
                let quota = self.machine.quota.clone();
                let measured = self.trial()?.run(span, quota.as_deref())?;
                Ok(Answer::Measured(Box::new(measured)))
            }
            Ask::Finish => {
                let trial = self.trial.take();
                let captured = trial.map(HostTrial::finish).transpose().map_err(failed)?;
                Ok(Answer::Finished {
                    captured: captured.flatten().map(Box::new),
                })
            }
        }
    }

    /// Facts about this host that the command needs before the first trial.
    fn hello(&self) -> Result<Hello, PrepareError> {
        Ok(Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_string(),
            // Thread id, because with several hosts in a process each thread has its own namespace.
            pid: rustix::thread::gettid()
                .as_raw_nonzero()
                .get()
                .cast_unsigned(),
            machine: self.machine.id.clone(),
            netns: namespace::inode().map_err(failed)?,
            environment: self.machine.environment.clone(),
            cpus: Cpus::read(Path::new("/sys")).map_err(failed)?,
        })
    }

    /// Moves a device of this machine into another host's namespace, until this agent ends.
    fn lend(&mut self, device: &str, pid: u32) -> Result<Answer, PrepareError> {
        let name: DeviceName = device.parse().map_err(failed)?;
        let mut journals = self
            .journals
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let Journals { ports, lent, .. } = &mut *journals;
        let journal = match ports {
            Some(journal) => journal,
            none => none.insert(trial::open_journal(false)?),
        };
        let moved = lend::lend(&name, pid, journal).map_err(failed)?;
        let attached = |&(address, prefix): &(IpAddr, u8)| AttachedDevice {
            device: device.to_string(),
            address,
            prefix,
        };
        let ports = moved.addresses.iter().map(attached).collect();
        lent.push(moved);
        Ok(Answer::Lent { ports })
    }

    /// Creates a TAP for our TCP, and moves its device into the other host's namespace.
    fn add_tap(
        &mut self,
        device: &str,
        address: IpAddr,
        queues: usize,
        peer_pid: u32,
    ) -> Result<Answer, PrepareError> {
        let mut taps =
            Tap::open_queues(device, Layer::Ethernet, Offloads::ALL, queues).map_err(failed)?;
        taps.iter_mut().for_each(|tap| tap.answer_for(address));
        link::move_to(device, peer_pid).map_err(failed)?;
        if !matches!(self.backend, Backend::Tap(_)) {
            self.backend = Backend::Tap(Arc::default());
        }
        let links = match &mut self.backend {
            Backend::Tap(links) => Arc::get_mut(links),
            _ => None,
        };
        let in_use = || PrepareError::because("a TAP during a trial");
        links.ok_or_else(in_use)?.push(taps);
        Ok(Answer::Done)
    }

    /// Prepares the next trial.
    fn prepare(&mut self, prepare: protocol::Prepare) -> Result<Answer, PrepareError> {
        // Ends the last trial's workers, in case it failed before `Finish`.
        self.trial = None;
        let mut journals = self
            .journals
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let held = prepare.held;
        let (trial, ports, mut warnings) = HostTrial::prepare(
            prepare,
            self.backend.clone(),
            self.wire.clone(),
            self.handover.clone(),
            &mut journals.settings,
        )?;
        self.trial = Some(trial);
        if let Some((connections, queues)) = held {
            let checked = self.machine.limits.check_memory(connections, queues);
            warnings.extend(checked.map_err(failed)?);
        }
        Ok(Answer::Prepared { ports, warnings })
    }

    /// Holds the settings of this network namespace until this process ends, and restores what dead agents
    /// left changed.
    fn hold(&mut self, changes: bool, held_max: Duration) -> Result<Vec<String>, PrepareError> {
        if self.is_isolated {
            return Ok(Vec::new()); // No other process is in this namespace.
        }
        // Without a folder for journals no agent could have changed anything, and neither can this one.
        let Ok(folder) = journal::folder() else {
            return Ok(Vec::new());
        };
        let lock = match HostLock::open(&folder) {
            Err(error) if error.is_denied() => return Ok(Vec::new()),
            other => other.map_err(failed)?,
        };
        let hold = match changes {
            true => LockKind::Exclusive,
            false => LockKind::Shared,
        };
        // An agent whose command was killed a moment ago may still be restoring settings.
        let until = Instant::now() + held_max;
        while !lock.try_hold(hold).map_err(failed)? {
            if Instant::now() >= until {
                let text = format!("its network settings are held by {}", lock.holders());
                return Err(PrepareError::Failed(text));
            }
            std::thread::sleep(ENDING_PAUSE);
        }
        self.held = Some(lock);
        let restored = journal::restore(&folder).map_err(failed)?;
        match restored.failed.is_empty() {
            true => Ok(restored.put_back),
            false => Err(PrepareError::Failed(format!(
                "settings changed by a dead agent could not be restored ({}): fix the cause, then run tcpcost doctor --restore there",
                restored.failed.join("; ")
            ))),
        }
    }

    fn trial(&mut self) -> Result<&mut HostTrial, PrepareError> {
        self.trial
            .as_mut()
            .ok_or_else(|| PrepareError::because("asked before `prepare`"))
    }
}

/// Gives devices their addresses, takes them up, and sets the routes.
fn attach(
    ports: &[AttachedDevice],
    routes: &[Route],
    forwards: bool,
) -> Result<Answer, SystemError> {
    let is_v6 = ports.iter().any(|port| port.address.is_ipv6());
    let ipv6 = |name: &str, value| {
        sysctl::set(sysctl::root(), &format!("net.ipv6.conf.all.{name}"), value)
    };
    if is_v6 {
        // No other host is on these links: no duplicate address to detect, no router to ask.
        for port in ports {
            for name in ["accept_dad", "accept_ra"] {
                let name = format!("net.ipv6.conf.{}.{name}", port.device);
                sysctl::set(sysctl::root(), &name, "0")?;
            }
        }
    } else {
        // Neighbour discovery and multicast reports would be among the packets counted. A kernel without IPv6
        // has no such sysctl and no such packets.
        let _ = ipv6("disable_ipv6", "1");
    }
    if forwards && is_v6 {
        ipv6("forwarding", "1")?;
    } else if forwards {
        sysctl::set(sysctl::root(), "net.ipv4.ip_forward", "1")?;
    }
    for port in ports {
        link::add_address(&port.device, port.address, port.prefix)?;
        link::set_up(&port.device)?;
    }
    for route in routes {
        route::add(route.to, route.prefix, route.via)?;
    }
    Ok(Answer::Done)
}

/// True if netem must carry the packets. Fails if netem was asked for and is missing.
fn by_netem(by: CarrierAsked) -> Result<bool, PrepareError> {
    if by == CarrierAsked::Own {
        return Ok(false);
    }
    // Tries it on the namespace's loopback, which carries no traffic of the trial.
    match (netem::probe("lo"), by) {
        (Ok(()), _) => Ok(true),
        (Err(error), CarrierAsked::Netem) => {
            let reason = format!("the kernel has no netem ({error})");
            Err(KnobError::new("carrier", reason).into())
        }
        (Err(_), _) => Ok(false),
    }
}
