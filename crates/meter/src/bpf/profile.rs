//! Call-chain sampling over an interval: which functions, and which layer of the stack, cost CPU time.
//!
//! Samples are taken by the PMU's cycles where the machine has one, else by the kernel's CPU clock, which
//! cannot see stretches with interrupts off: they are charged to where interrupts come back. Programs
//! built without frame pointers have no user call chain.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use blazesym::Pid;
use blazesym::symbolize::source::{Kernel, Process, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use libbpf_rs::{Link, MapCore, MapFlags, Object};

use super::layer::{Layer, layer};
use super::{Scope, object};
use crate::MeterError;

/// A sampler, stopped until [`Profile::start`].
pub struct Profile {
    object: Object,
    events: Vec<Event>,
    source: &'static str,
    own_pids: Vec<u32>,
}

/// A sampling event of one CPU. The link owns the descriptor and closes it.
struct Event {
    fd: i32,
    _link: Link,
}

impl Profile {
    /// Opens a sampling event of `hz` samples per second on each of the CPUs. 99 costs nothing that can be
    /// measured, and does not run in step with timers of 100 or 250 Hz.
    ///
    /// # Errors
    /// [`MeterError::Load`]: no privilege, or a kernel without perf events or BTF.
    pub fn load(scope: &Scope, hz: u64) -> Result<Profile, MeterError> {
        let object = object::load(METER, OBJECT, &[])?;
        let failed = |doing, error| object::failure(METER, doing, &error);
        let mut events = Vec::new();
        let mut source = "cycles";
        for &cpu in &scope.cpus {
            let event = open(HARDWARE_CYCLES, hz, cpu).or_else(|_| {
                source = "cpu-clock";
                open(SOFTWARE_CPU_CLOCK, hz, cpu)
            });
            let event = event.map_err(|error| failed("perf_event_open", error.into()))?;
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
            source,
            own_pids: scope.own_pids.clone(),
        };
        // libbpf starts what it attaches.
        profile.stop()?;
        profile.clear()?;
        Ok(profile)
    }

    /// What the samples are of: `cycles` or `cpu-clock`.
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// Begins an interval; what was sampled before is forgotten.
    ///
    /// # Errors
    /// A system call that failed.
    pub fn start(&mut self) -> Result<(), MeterError> {
        self.clear()?;
        self.control(PERF_EVENT_IOC_ENABLE)
    }

    /// Ends the interval.
    ///
    /// # Errors
    /// A system call that failed.
    pub fn stop(&mut self) -> Result<(), MeterError> {
        self.control(PERF_EVENT_IOC_DISABLE)
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
                return Err(MeterError::last("ioctl of a sampling event"));
            }
        }
        Ok(())
    }

    /// The interval's call chains with names; user functions of the scope's own processes alone, and only
    /// while these live. Takes some 100 ms.
    ///
    /// # Errors
    /// The kernel's maps cannot be read.
    pub fn chains(&self) -> Result<Chains, MeterError> {
        let failed = |error| object::failure(METER, "read the samples", &error);
        let (samples, stacks) = (self.map("samples"), self.map("stacks"));
        let mut names = Names::default();
        let mut chains = Chains::default();
        for key in samples.keys() {
            let word = |at: usize| key[at..at + 4].try_into().map_or(0, u32::from_ne_bytes);
            let (process, kernel_stack, user_stack) = (word(0), word(4), word(8));
            let frames = |stack: u32| -> Result<Vec<u64>, MeterError> {
                if stack.cast_signed() < 0 {
                    return Ok(Vec::new());
                }
                let bytes = stacks
                    .lookup(&stack.to_ne_bytes(), MapFlags::ANY)
                    .map_err(failed)?;
                Ok(words(&bytes.unwrap_or_default())
                    .take_while(|&address| address != 0)
                    .collect())
            };
            let Some(count) = samples.lookup(&key, MapFlags::ANY).map_err(failed)? else {
                continue;
            };
            let count = words(&count).next().unwrap_or(0);
            let comm = String::from_utf8_lossy(&key[12..]);
            let mut chain = vec![comm.trim_end_matches('\0').replace(';', "_")];
            // Others' programs may be large, and are not what this is about.
            let user = match self.own_pids.contains(&process) {
                true => frames(user_stack)?,
                false => Vec::new(),
            };
            chain.extend(
                user.iter()
                    .rev()
                    .map(|&address| names.of(Some(process), address)),
            );
            let kernel: Vec<String> = frames(kernel_stack)?
                .iter()
                .rev()
                .map(|&address| names.of(None, address))
                .collect();
            let layer = layer(kernel.iter().rev().map(String::as_str));
            *chains.layers.entry(layer).or_default() += count;
            chain.extend(kernel);
            *chains.folded.entry(chain).or_default() += count;
        }
        Ok(chains)
    }

    fn map(&self, name: &str) -> libbpf_rs::Map<'_> {
        let map = self.object.maps().find(|map| map.name() == name);
        map.expect("profile.bpf.c defines it")
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// What was sampled in an interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chains {
    /// Samples by call chain: the task's name, then functions, outermost first.
    pub folded: BTreeMap<Vec<String>, u64>,
    /// Samples by layer; each sample is in one.
    pub layers: BTreeMap<Layer, u64>,
}

/// Samples of one function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FunctionSamples {
    /// In which it was on the call chain.
    pub inclusive: u64,
    /// In which it was running itself.
    pub exclusive: u64,
}

impl Chains {
    /// All samples.
    pub fn samples(&self) -> u64 {
        self.folded.values().sum()
    }

    /// Samples by function. A function that is on a chain more than once is counted once.
    pub fn functions(&self) -> BTreeMap<&str, FunctionSamples> {
        let mut functions: BTreeMap<&str, FunctionSamples> = BTreeMap::new();
        for (chain, &count) in &self.folded {
            let frames = &chain[1..];
            for (depth, name) in frames.iter().enumerate() {
                let samples = functions.entry(name).or_default();
                if !frames[..depth].contains(name) {
                    samples.inclusive += count;
                }
                if depth + 1 == frames.len() {
                    samples.exclusive += count;
                }
            }
        }
        functions
    }

    /// A line per chain, `outer;inner count`: what flame graph programs read.
    pub fn to_folded(&self) -> String {
        let lines = self
            .folded
            .iter()
            .map(|(chain, count)| format!("{} {count}\n", chain.join(";")));
        lines.collect()
    }
}

/// Names of functions by address, each looked up once.
#[derive(Default)]
struct Names {
    symbolizer: Symbolizer,
    known: HashMap<(Option<u32>, u64), String>,
}

impl Names {
    /// Of a process' function, or of the kernel's.
    fn of(&mut self, process: Option<u32>, address: u64) -> String {
        let look_up = || {
            let source = match process {
                Some(process) => Source::Process(Process::new(Pid::from(process))),
                None => Source::Kernel(Kernel::default()),
            };
            match self
                .symbolizer
                .symbolize_single(&source, Input::AbsAddr(address))
            {
                // A semicolon parts frames.
                Ok(Symbolized::Sym(symbol)) => symbol.name.replace(';', "_"),
                _ => "[unknown]".to_string(),
            }
        };
        self.known
            .entry((process, address))
            .or_insert_with(look_up)
            .clone()
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes
        .chunks_exact(8)
        .map(|word| word.try_into().map_or(0, u64::from_ne_bytes))
}

/// Type and number of a perf event (linux/perf_event.h).
type Kind = (u32, u64);
const HARDWARE_CYCLES: Kind = (0, 0);
const SOFTWARE_CPU_CLOCK: Kind = (1, 0);
const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
const PERF_EVENT_IOC_DISABLE: libc::c_ulong = 0x2401;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// struct perf_event_attr in its first published size, 64 bytes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    frequency: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
}
/// Bits of `flags`: begin disabled; `frequency` is one, not a period.
const DISABLED: u64 = 1 << 0;
const FREQ: u64 = 1 << 10;

fn open((kind, config): Kind, hz: u64, cpu: usize) -> io::Result<OwnedFd> {
    let size = mem::size_of::<Attributes>() as u32;
    let flags = DISABLED | FREQ;
    let attributes = Attributes {
        kind,
        size,
        config,
        frequency: hz,
        flags,
        ..Attributes::default()
    };
    let cpu = libc::c_int::try_from(cpu).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the kernel reads `size` bytes of the attributes, which outlive the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &attributes,
            -1,
            cpu,
            -1,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    match i32::try_from(fd) {
        // SAFETY: a descriptor just made, that nobody else knows.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

const METER: &str = "profile";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/profile.bpf.o"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_calls_itself_is_counted_once() {
        let chain = |frames: &[&str]| frames.iter().map(ToString::to_string).collect::<Vec<_>>();
        let chains = Chains {
            folded: BTreeMap::from([
                (chain(&["task", "a", "b", "a"]), 3),
                (chain(&["task", "a"]), 4),
                (chain(&["task"]), 1),
            ]),
            ..Chains::default()
        };
        let functions = chains.functions();
        assert_eq!(
            functions["a"],
            FunctionSamples {
                inclusive: 7,
                exclusive: 7
            }
        );
        assert_eq!(
            functions["b"],
            FunctionSamples {
                inclusive: 3,
                exclusive: 0
            }
        );
        assert_eq!(chains.samples(), 8);
        assert_eq!(chains.to_folded(), "task 1\ntask;a 4\ntask;a;b;a 3\n");
    }
}
