//! The first process of a guest: sets up what a program expects of a Linux, runs it, sends the
//! results, and powers off.
//!
//! Nothing is sent while the program runs: the serial port would interrupt what is measured.

use std::ffi::CStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::agreed::{
    ADDRESSES, ARGUMENTS, COUNTS, MODULES, PADDING, PROGRAM, READY, RESULTS, SETUP, TASK,
};
use crate::architecture::Architecture;
use crate::padding;
use crate::port;
use crate::symbols::encode;
use crate::task::Header;
use crate::waiting;
use rustix::mount::{MountFlags, mount};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::system::{RebootCommand, init_module, reboot};
use rustix::termios::{OptionalActions, tcdrain, tcgetattr, tcsetattr};

/// Time for which a guest rests before it is saved, so that its kernel is done with its start.
const REST: Duration = Duration::from_secs(2);

/// Limit of open files. The kernel's own for its first process is 4096 (`INR_OPEN_MAX`), fewer than 4000 connections need.
const OPEN_FILES: u64 = 1 << 20;

/// The port that carries lines out; the console is another.
const PORT: &str = match Architecture::HOST {
    Architecture::X86_64 => "/dev/ttyS1",
    Architecture::Aarch64 => "/dev/ttyS0",
};

/// True if this process is a guest's init: the kernel started it, and [`crate::Image`] packed it.
pub fn is_asked() -> bool {
    std::process::id() == 1 && Path::new(MODULES).exists()
}

/// Runs the guest. Errors are printed on the kernel's console, whose last lines the host shows.
pub fn main() -> ! {
    if let Err(error) = serve() {
        // Standard error of the first process is the console.
        let _ = writeln!(io::stderr(), "guest: {error}");
    }
    rustix::fs::sync();
    let error = reboot(RebootCommand::PowerOff);
    // If power-off fails, the kernel panics when its first process ends, so the host sees an end
    // all the same.
    let _ = writeln!(io::stderr(), "guest: switch off: {error:?}");
    std::process::exit(1)
}

fn serve() -> io::Result<()> {
    mounts()?;
    let mut port = open_port().map_err(said("open the serial port"))?;
    tell_up(&mut port)?;
    for path in lines(Path::new(MODULES))? {
        let code = fs::read(&path).map_err(said("read a module"))?;
        // A failed load is only printed; the code that needs the module reports its absence.
        if let Err(error) = init_module(&code, c"") {
            tell(&mut port, "said", &format!("load {path}: {error}"))?;
        }
    }
    for (name, value) in SETTINGS {
        // An error means that this kernel does not have the setting.
        let _ = fs::write(format!("/proc/sys/{name}"), value);
    }
    for line in lines(Path::new(SETUP))? {
        set_up(&line)?;
    }
    if waiting::first_order()? == Header::Save {
        let pieces = encode(Path::new("/proc/kallsyms")).map_err(said("read the symbols"))?;
        for piece in pieces {
            tell(&mut port, "symbols", &piece)?;
        }
        std::thread::sleep(REST);
        tell(&mut port, READY, "")?;
        tcdrain(&port).map_err(said("drain the serial port"))?;
        let seed = waiting::task()?;
        std::thread::sleep(phase(seed));
    } else {
        waiting::task()?;
    }
    work(&mut port)
}

/// Runs a command of [`crate::Setup`].
fn set_up(line: &str) -> io::Result<()> {
    let command = line.replace('\t', " ");
    let mut words = line.split('\t');
    let mut program = Command::new(words.next().unwrap_or_default());
    program
        .args(words)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let ended = program.stdin(Stdio::null()).output();
    let ended = ended.map_err(|error| io::Error::other(format!("run `{command}`: {error}")))?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let said = said.lines().next().unwrap_or("it printed no error");
    Err(io::Error::other(format!(
        "`{command}` ended by {}: {said}",
        ended.status
    )))
}

/// Time until a restored guest begins: another phase of the tick (4 ms or less) for each seed.
fn phase(seed: u64) -> Duration {
    const TICK_NS: u64 = 4_000_000;
    // Knuth's multiplicative hash: neighbouring seeds get distant phases.
    Duration::from_secs(1) + Duration::from_nanos(seed.wrapping_mul(2_654_435_761) % TICK_NS)
}

fn tell_up(port: &mut File) -> io::Result<()> {
    let release = rustix::system::uname();
    tell(port, "up", &release.release().to_string_lossy())
}

/// Runs the program on the task, and sends its output and results to the host.
fn work(port: &mut File) -> io::Result<()> {
    for line in lines(Path::new(ADDRESSES))? {
        port::take_up(&line).map_err(said("take up a device"))?;
    }
    let counts = fs::read_to_string("/proc/cmdline").map_err(said("read the command line"))?;
    if counts.contains(COUNTS) {
        for pid in softirq_threads() {
            run_in_order(pid, 2).map_err(said("SCHED_FIFO of ksoftirqd"))?;
        }
        run_in_order(0, 1).map_err(said("SCHED_FIFO"))?;
    }
    let files = Rlimit {
        current: Some(OPEN_FILES),
        maximum: Some(OPEN_FILES),
    };
    setrlimit(Resource::Nofile, files).map_err(said("set the limit of open files"))?;
    let arguments = lines(Path::new(ARGUMENTS))?;
    let output = File::create("/tmp/output").map_err(said("create a file"))?;
    let both = output.try_clone().map_err(said("create a file"))?;
    let mut program = Command::new(PROGRAM);
    program
        .args(arguments)
        .current_dir("/tmp")
        .env("HOME", "/tmp")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(both);
    let padding = fs::read_to_string(PADDING).map_err(said("read a number"))?;
    padding::add(
        &mut program,
        padding.parse().map_err(said("read a number"))?,
    );
    let status = program.status().map_err(said("start the program"))?;
    tell_file(port, "said", Path::new("/tmp/output"))?;
    for name in lines(Path::new(RESULTS))? {
        let path = Path::new(TASK).join(&name);
        if path.exists() {
            tell_file(port, &format!("of {name}"), &path)?;
        }
    }
    let code = status
        .code()
        .map_or_else(|| status.to_string(), |code| code.to_string());
    tell(port, "end", &code)?;
    tcdrain(&*port).map_err(said("drain the serial port"))
}

/// Mounts file systems: the program reads the kernel's state, and eBPF needs tracepoints.
fn mounts() -> io::Result<()> {
    const NONE: Option<&CStr> = None;
    for (kind, place) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/tmp"),
        ("tmpfs", "/run"),
    ] {
        mount(kind, place, kind, MountFlags::empty(), NONE)
            .map_err(|error| io::Error::other(format!("mount {kind} at {place}: {error}")))?;
    }
    // A kernel may lack these; the meter that needs one reports it.
    for (kind, place) in [
        ("debugfs", "/sys/kernel/debug"),
        ("tracefs", "/sys/kernel/tracing"),
    ] {
        let _ = mount(kind, place, kind, MountFlags::empty(), NONE);
    }
    Ok(())
}

/// Sysctls for a machine that does nothing else.
///
/// SCHED_FIFO threads must not be stopped for other threads (by default for 50 ms of each second),
/// and a spinning process must not count as hung. A neighbour stays reachable once it is (by
/// default for 15 to 45 s, and about 5 s before), because packets to a neighbour in another state
/// take a separate path (150 instructions a transaction). The number of free pages that a CPU keeps
/// is fixed, because Linux 6.7 and later tune it by time.
const SETTINGS: &[(&str, &str)] = &[
    ("kernel/sched_rt_runtime_us", "-1"),
    ("kernel/hung_task_timeout_secs", "0"),
    ("net/ipv4/neigh/default/base_reachable_time_ms", "86400000"),
    ("net/ipv4/neigh/default/delay_first_probe_time", "0"),
    ("net/ipv6/neigh/default/base_reachable_time_ms", "86400000"),
    ("net/ipv6/neigh/default/delay_first_probe_time", "0"),
    ("vm/percpu_pagelist_high_fraction", "8"),
    ("net/core/rmem_max", "16777216"),
    ("net/core/wmem_max", "16777216"),
];

/// Sets SCHED_FIFO: from now on each thread runs until it waits. Otherwise the scheduler's time
/// slices would decide which of two ends runs first, and would make batches of their own. Children
/// inherit the policy. Pid 0 is the calling thread; a higher priority runs first.
#[allow(unsafe_code, reason = "rustix does not set a scheduling policy")]
fn run_in_order(pid: i32, priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: the kernel reads the parameters, which live through the call.
    match unsafe { libc::sched_setscheduler(pid, libc::SCHED_FIFO, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Pids of ksoftirqd, which must run before the programs. At a lower priority it would wait until
/// they sleep. Up to Linux 6.4 no softirq is handled where it is raised while ksoftirqd is runnable
/// (`ksoftirqd_running` of kernel/softirq.c), so that segments would come in batches of different
/// sizes in each boot.
fn softirq_threads() -> Vec<i32> {
    let tasks = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_one = |pid: &i32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.starts_with("ksoftirqd/"))
    };
    let pids = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    pids.filter(is_one).collect()
}

fn open_port() -> io::Result<File> {
    let port = OpenOptions::new().read(true).write(true).open(PORT)?;
    let mut settings = tcgetattr(&port)?;
    settings.make_raw();
    settings.set_speed(115_200)?;
    tcsetattr(&port, OptionalActions::Now, &settings)?;
    Ok(port)
}

/// Sends a line to the host.
fn tell(port: &mut File, what: &str, text: &str) -> io::Result<()> {
    port.write_all(format!("{what} {text}\n").as_bytes())
        .map_err(said("write to the serial port"))
}

fn tell_file(port: &mut File, what: &str, path: &Path) -> io::Result<()> {
    let file = File::open(path).map_err(said("open a file"))?;
    for line in BufReader::new(file).split(b'\n') {
        let line = line.map_err(said("read a file"))?;
        tell(port, what, &String::from_utf8_lossy(&line))?;
    }
    Ok(())
}

/// Reads a list that the host packed: a line each, none if the list is empty.
fn lines(path: &Path) -> io::Result<Vec<String>> {
    let text = fs::read_to_string(path).map_err(said("read a list"))?;
    Ok(text.lines().map(String::from).collect())
}

/// Adds what was tried to an error.
fn said<E: std::fmt::Display>(doing: &'static str) -> impl Fn(E) -> io::Error {
    move |error| io::Error::other(format!("{doing}: {error}"))
}
