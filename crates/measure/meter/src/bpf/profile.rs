//! Call-chain sampling over an interval: which functions cost CPU time.
//!
//! Samples are taken every so many cycles of the PMU where the machine has one, else every so many ns of the
//! kernel's CPU clock, which cannot see stretches with interrupts off: they are charged to where interrupts
//! come back. A fixed period, not a frequency that the kernel steers: it would begin each interval with a
//! burst of samples that stand for next to nothing. Programs built without frame pointers have no user call
//! chain beyond the innermost function; what an address is not known by is `[unknown]`.

#![allow(unsafe_code, reason = "memory that an eBPF program writes")]

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::time::Instant;

use blazesym::Pid;
use blazesym::symbolize::source::{Kernel, Process, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use libbpf_rs::{Link, MapCore, MapFlags, Object};
use tcpcost_counts::{CallChain, CallChains, MeterName, TaskClass, UNKNOWN};

use super::layout::profile::Key;
use super::object;
use crate::MeterError;
use crate::Scope;
use crate::perf::{Attributes, perf_event_open};

/// A sampler, stopped until [`Profile::start`].
pub struct Profile {
    object: Object,
    events: Vec<Event>,
    clock: Clock,
    period: u64,
    scope: Scope,
    started: Option<Instant>,
    duration_ns: u64,
}

/// Event that is counted until the next sample.
#[derive(Clone, Copy)]
enum Clock {
    /// Cycles that the PMU counts, in user and kernel mode.
    Cycles,
    /// Time by a timer of each CPU, ns.
    CpuClock,
}

/// A sampling event of one CPU. The link owns the descriptor and closes it.
struct Event {
    fd: i32,
    _link: Link,
}

impl Profile {
    /// Opens a sampling event of `hz` samples per second on each of the CPUs, while it is busy; of cycles, at
    /// 3 GHz. 99 costs nothing that can be measured, and does not run in step with timers of 100 or 250 Hz.
    ///
    /// # Errors
    /// [`MeterError::Unavailable`]: no privilege, or a kernel without perf events or BTF.
    pub fn load(scope: &Scope, hz: u32) -> Result<Profile, MeterError> {
        Profile::by(&[Clock::Cycles, Clock::CpuClock], scope, hz)
    }

    /// By the first of the clocks that can be had on all CPUs: samples of two could not be added.
    fn by(clocks: &[Clock], scope: &Scope, hz: u32) -> Result<Profile, MeterError> {
        let object = object::load(METER, OBJECT, &[])?;
        let failed = |doing, error| object::failure(METER, doing, &error);
        let mut opened = Err(io::ErrorKind::Unsupported.into());
        for &clock in clocks {
            opened = opened.or_else(|_| open_all(clock, hz, &scope.cpus));
        }
        let (clock, files) = opened.map_err(|error| failed("perf_event_open", error.into()))?;
        let mut events = Vec::new();
        for event in files {
            let program = object.progs_mut().next();
            let link = program
                .expect("the object has one program")
                .attach_perf_event(event.as_raw_fd())
                .map_err(|error| failed("attach", error))?;
            let fd = event.into_raw_fd();
            events.push(Event { fd, _link: link });
        }
        let mut profile = Profile {
            object,
            events,
            clock,
            period: clock.period(hz),
            scope: scope.clone(),
            started: None,
            duration_ns: 0,
        };
        // libbpf starts what it attaches.
        profile.stop()?;
        profile.clear()?;
        Ok(profile)
    }

    /// Event that is sampled: `cycles` or `cpu-clock`.
    pub fn source(&self) -> &'static str {
        match self.clock {
            Clock::Cycles => "cycles",
            Clock::CpuClock => "cpu-clock",
        }
    }

    /// Begins an interval; what was sampled before is forgotten.
    ///
    /// # Errors
    /// A system call that failed.
    pub fn start(&mut self) -> Result<(), MeterError> {
        self.clear()?;
        self.started = Some(Instant::now());
        self.control(PERF_EVENT_IOC_ENABLE)
    }

    /// Ends the interval.
    ///
    /// # Errors
    /// A system call that failed.
    pub fn stop(&mut self) -> Result<(), MeterError> {
        self.control(PERF_EVENT_IOC_DISABLE)?;
        if let Some(started) = self.started.take() {
            self.duration_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
        Ok(())
    }

    fn clear(&self) -> Result<(), MeterError> {
        for map in [self.map("samples"), self.map("stacks")] {
            for key in map.keys() {
                map.delete(&key)
                    .map_err(|error| object::failure(METER, "clear", &error))?;
            }
        }
        Ok(())
    }

    fn control(&self, request: libc::c_ulong) -> Result<(), MeterError> {
        for event in &self.events {
            // SAFETY: the descriptor is the link's, which lives as long as `self`; no pointer is passed.
            if unsafe { libc::ioctl(event.fd, request as _, 0) } != 0 {
                let error = io::Error::last_os_error().into();
                return Err(object::failure(METER, "start or stop sampling", &error));
            }
        }
        Ok(())
    }

    /// The interval's call chains with names; user functions of the scope's own processes alone, and only
    /// while these live. Takes some 100 ms.
    ///
    /// # Errors
    /// The kernel's maps cannot be read, or were full before the interval's end.
    pub fn chains(&self) -> Result<CallChains, MeterError> {
        let samples = self.map("samples");
        let mut stacks = Stacks {
            map: self.map("stacks"),
            names: Names::default(),
        };
        let mut chains: BTreeMap<Chain, u64> = BTreeMap::new();
        let keys: Vec<Vec<u8>> = samples.keys().collect();
        if keys.len() >= samples.max_entries() as usize {
            let doing = "keep every chain, which takes a shorter duration or a lower profile_hz";
            let full = io::Error::from_raw_os_error(libc::ENOSPC).into();
            return Err(object::failure(METER, doing, &full));
        }
        for key in keys {
            let Some(count) = samples.lookup(&key, MapFlags::ANY).map_err(unreadable)? else {
                continue;
            };
            if key.len() != size_of::<Key>() {
                continue;
            }
            // SAFETY: so many bytes are there, and any are a key.
            let key: Key = unsafe { key.as_ptr().cast::<Key>().read_unaligned() };
            *chains.entry(self.chain(&key, &mut stacks)?).or_default() +=
                words(&count).next().unwrap_or(0);
        }
        let chain = |((task, whose, user, kernel), samples)| CallChain {
            task,
            whose,
            user,
            kernel,
            samples,
        };
        let found = CallChains {
            source: self.source().to_string(),
            period: self.period,
            cpus: self.scope.cpus.clone(),
            duration_ns: self.duration_ns,
            functions: stacks.names.names,
            chains: chains.into_iter().map(chain).collect(),
            samples_left_out: 0,
        };
        Ok(found.bound(CallChains::MAX))
    }

    fn chain(&self, key: &Key, stacks: &mut Stacks<'_>) -> Result<Chain, MeterError> {
        let process = key.tgid;
        let comm = String::from_utf8_lossy(&key.comm);
        let task = comm.split('\0').next().unwrap_or_default().to_string();
        let whose = class_of(process, &task, &self.scope);
        // Others' programs may be large, and are not what this is about.
        let user = match whose {
            TaskClass::Own => stacks.frames(key.user_stack, Some(process))?,
            _ => Vec::new(),
        };
        let kernel = stacks.frames(key.kernel_stack, None)?;
        // Tasks of others may have any number of names, some of them private.
        let task = match whose {
            TaskClass::Others => "others".to_string(),
            _ => task,
        };
        Ok((task, whose, user, kernel))
    }

    fn map(&self, name: &str) -> libbpf_rs::Map<'_> {
        let map = self.object.maps().find(|map| map.name() == name);
        map.expect("profile.bpf.c defines it")
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile")
            .field("source", &self.source())
            .finish_non_exhaustive()
    }
}

/// Name and class of a task, then its functions in user mode and in the kernel.
type Chain = (String, TaskClass, Vec<u32>, Vec<u32>);

fn unreadable(error: libbpf_rs::Error) -> MeterError {
    object::failure(METER, "read the samples", &error)
}

/// Call stacks of the samples, by number.
struct Stacks<'a> {
    map: libbpf_rs::Map<'a>,
    names: Names,
}

impl Stacks<'_> {
    /// Numbers of the functions of a stack, of a process or of the kernel, from the outermost in.
    fn frames(&mut self, stack: u64, process: Option<u32>) -> Result<Vec<u32>, MeterError> {
        if stack == NO_STACK {
            return Ok(Vec::new());
        }
        let key = stack.to_ne_bytes();
        let addresses = self.map.lookup(&key, MapFlags::ANY).map_err(unreadable)?;
        let unknown = self.names.place(UNKNOWN);
        let Some(addresses) = addresses else {
            // It could not be kept: the map was full, or another CPU held its lock.
            return Ok(vec![unknown]);
        };
        let mut frames: Vec<u32> = words(&addresses)
            .take_while(|&address| address != 0)
            .map(|address| self.names.of(process, address))
            .collect();
        frames.reverse();
        // A chain without frame pointers ends in addresses of nothing: they tell no more than one.
        frames.dedup_by(|a, b| *a == unknown && *b == unknown);
        Ok(frames)
    }
}

/// Names of functions, each address looked up once and each name kept once.
#[derive(Default)]
struct Names {
    symbolizer: Symbolizer,
    known: HashMap<(Option<u32>, u64), u32>,
    places: HashMap<String, u32>,
    names: Vec<String>,
}

impl Names {
    /// Number of a function of a process, or of the kernel.
    fn of(&mut self, process: Option<u32>, address: u64) -> u32 {
        if let Some(&place) = self.known.get(&(process, address)) {
            return place;
        }
        let source = match process {
            Some(process) => Source::Process(Process::new(Pid::from(process))),
            None => Source::Kernel(Kernel::default()),
        };
        let found = self
            .symbolizer
            .symbolize_single(&source, Input::AbsAddr(address));
        let place = match found {
            // A semicolon parts frames where chains are written in a line.
            Ok(Symbolized::Sym(symbol)) => self.place(&symbol.name.replace(';', "_")),
            _ => self.place(UNKNOWN),
        };
        self.known.insert((process, address), place);
        place
    }

    fn place(&mut self, name: &str) -> u32 {
        if let Some(&place) = self.places.get(name) {
            return place;
        }
        let place =
            u32::try_from(self.names.len()).expect("fewer names than addresses in two maps");
        self.names.push(name.to_string());
        self.places.insert(name.to_string(), place);
        place
    }
}

/// Class of a task, as in the meter `exact`, except that each kernel thread has a name of its own.
fn class_of(process: u32, task: &str, scope: &Scope) -> TaskClass {
    let of_network = ["ksoftirqd", "kworker/", "napi/"];
    if process == 0 {
        TaskClass::Idle
    } else if scope.own_pids.contains(&process) {
        TaskClass::Own
    } else if of_network.iter().any(|name| task.starts_with(name)) {
        TaskClass::Kernel
    } else {
        TaskClass::Others
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes
        .chunks_exact(8)
        .map(|word| word.try_into().map_or(0, u64::from_ne_bytes))
}

/// The hash of no stack: a kernel thread has none of user mode.
const NO_STACK: u64 = 0;

impl Clock {
    /// Type and number of the perf event (linux/perf_event.h).
    fn kind(self) -> (u32, u64) {
        match self {
            Clock::Cycles => (0, 0),
            Clock::CpuClock => (1, 0),
        }
    }

    fn period(self, hz: u32) -> u64 {
        let per_s: u64 = match self {
            Clock::Cycles => 3_000_000_000,
            Clock::CpuClock => 1_000_000_000,
        };
        per_s / u64::from(hz.max(1))
    }
}

fn open_all(clock: Clock, hz: u32, cpus: &[usize]) -> io::Result<(Clock, Vec<OwnedFd>)> {
    if matches!(clock, Clock::Cycles) && !counts_cycles()? {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let open_one = |&cpu: &usize| {
        let cpu = libc::c_int::try_from(cpu).map_err(|_| io::ErrorKind::InvalidInput)?;
        open(clock, clock.period(hz), DISABLED, (-1, cpu))
    };
    let files = cpus.iter().map(open_one);
    Ok((clock, files.collect::<io::Result<_>>()?))
}

/// Some hypervisors show a PMU that stands still: it would never give a sample.
fn counts_cycles() -> io::Result<bool> {
    const THIS_THREAD: (i32, i32) = (0, -1);
    let mut count = File::from(open(Clock::Cycles, 0, 0, THIS_THREAD)?);
    let mut bytes = [0; 8];
    count.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes) > 0)
}

const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
const PERF_EVENT_IOC_DISABLE: libc::c_ulong = 0x2401;

/// A bit of `flags`: begin disabled.
const DISABLED: u64 = 1 << 0;

/// An event of a thread, or (-1) of all on a CPU; with a period of 0 it only counts.
fn open(clock: Clock, period: u64, flags: u64, (thread, cpu): (i32, i32)) -> io::Result<OwnedFd> {
    let (kind, config) = clock.kind();
    let attributes = Attributes {
        kind,
        config,
        sample_period: period,
        flags,
        ..Attributes::default()
    };
    perf_event_open(attributes, thread, cpu)
}

const METER: MeterName = MeterName::Profile;
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/profile.bpf.o"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_of_the_trial_of_the_kernel_idle_or_of_others() {
        let scope = Scope {
            cpus: vec![0],
            own_pids: vec![7],
            ..Scope::default()
        };
        let check = |process, task, expected| {
            assert_eq!(class_of(process, task, &scope), expected, "{task}");
        };
        check(0, "swapper/0", TaskClass::Idle);
        check(7, "kworker/0:1", TaskClass::Own);
        check(9, "ksoftirqd/1", TaskClass::Kernel);
        check(9, "kworker/u8:2", TaskClass::Kernel);
        check(9, "napi/eth0-8193", TaskClass::Kernel);
        check(9, "cc1", TaskClass::Others);
    }

    /// Hosts without a PMU have no other.
    #[test]
    fn the_cpu_clock_gives_samples_too() {
        // SAFETY: takes no pointers.
        let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        let scope = Scope {
            cpus: (0..usize::try_from(cpus).unwrap()).collect(),
            own_pids: vec![std::process::id()],
            ..Scope::default()
        };
        let mut profile = match Profile::by(&[Clock::CpuClock], &scope, 999) {
            Ok(profile) => profile,
            Err(error) => return tcpcost_testbed::skip(&error.to_string()),
        };
        profile.start().unwrap();
        let is_own = |chain: &CallChain| chain.whose == TaskClass::Own;
        // Until this thread was met, however slow the machine is.
        while !profile.chains().unwrap().chains.iter().any(is_own) {}
        profile.stop().unwrap();
        let chains = profile.chains().unwrap();
        assert_eq!(
            (chains.source.as_str(), chains.period),
            ("cpu-clock", 1_001_001)
        );
    }

    #[test]
    fn a_busy_cpu_has_so_many_samples_a_second() {
        assert_eq!(Clock::CpuClock.period(99), 10_101_010);
        assert_eq!(Clock::Cycles.period(1000), 3_000_000);
        assert_eq!(Clock::CpuClock.period(0), 1_000_000_000, "no division by 0");
    }
}
