//! A QEMU process: its lines, its errors, its limit of CPU time, and its end.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};

use crate::architecture::Architecture;
use crate::error::GuestError;

/// Limits of a guest. The default is for a task that is known to be short.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// Limit of QEMU's CPU time, which a busy host does not make longer; 600 s by default.
    pub cpu: Duration,
    /// Limit of the time that passes, which also ends a guest that only waits; 1800 s by default.
    pub wall: Duration,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit {
            cpu: Duration::from_secs(600),
            wall: Duration::from_secs(1800),
        }
    }
}

/// Reason why no further line came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    /// QEMU ended by itself.
    Ended,
    /// A limit was reached.
    Late,
    /// The caller asked to stop.
    Stopped,
}

/// A running QEMU; dropping it ends QEMU.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    errors: Receiver<String>,
    /// Start of QEMU.
    pub(crate) began: Instant,
    until: Instant,
}

impl Running {
    #[allow(
        unsafe_code,
        reason = "a child that makes system calls before it becomes QEMU"
    )]
    pub(crate) fn start(
        mut command: Command,
        architecture: Architecture,
        limit: Limit,
    ) -> Result<Running, GuestError> {
        // The kernel sends SIGXCPU after the first number of seconds, and SIGKILL after the second.
        let seconds = limit.cpu.as_secs().max(1);
        let cpu = Rlimit {
            current: Some(seconds),
            maximum: Some(seconds + 5),
        };
        // SIGXCPU would leave a core file of the guest's memory.
        let core = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        // SAFETY: between fork and exec there are three system calls, which are async-signal-safe and allocate nothing.
        unsafe {
            command.pre_exec(move || {
                // Otherwise a killed command would leave a guest running.
                set_parent_process_death_signal(Some(Signal::KILL))?;
                setrlimit(Resource::Core, core)?;
                Ok(setrlimit(Resource::Cpu, cpu)?)
            });
        }
        let began = Instant::now();
        let mut child = command.spawn().map_err(|error| GuestError::Program {
            program: architecture.emulator(),
            said: error.to_string(),
        })?;
        let lines = read(
            child.stdout.take().expect("stdout is piped"),
            SAID_BYTES_MAX,
        );
        let errors = read(
            child.stderr.take().expect("stderr is piped"),
            ERROR_BYTES_MAX,
        );
        Ok(Running {
            child,
            lines,
            errors,
            began,
            until: began + limit.wall,
        })
    }

    /// Waits for the next line, until QEMU ends, a limit is reached, or `stop` returns true.
    pub(crate) fn line(&mut self, stop: &dyn Fn() -> bool) -> Result<String, Silence> {
        loop {
            match self.lines.recv_timeout(LOOK) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Disconnected) => return Err(self.why_it_ended()),
                Err(RecvTimeoutError::Timeout) => self.look(stop)?,
            }
        }
    }

    /// Checks the limit of time, and whether the caller wants to stop.
    pub(crate) fn look(&self, stop: &dyn Fn() -> bool) -> Result<(), Silence> {
        if stop() {
            return Err(Silence::Stopped);
        }
        match Instant::now() >= self.until {
            true => Err(Silence::Late),
            false => Ok(()),
        }
    }

    /// QEMU has closed its output, so it is about to end.
    fn why_it_ended(&mut self) -> Silence {
        let by_limit = |status: ExitStatus| status.signal() == Some(Signal::XCPU.as_raw());
        match self.child.wait() {
            Ok(status) if by_limit(status) => Silence::Late,
            _ => Silence::Ended,
        }
    }

    /// Ends QEMU, if it has not ended, and returns the lines of its standard error.
    pub(crate) fn end(mut self) -> Vec<String> {
        self.kill();
        self.errors.iter().collect()
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Longest delay until a request to stop is seen.
pub(crate) const LOOK: Duration = Duration::from_millis(200);
/// Limit of bytes from a guest's serial port, and of QEMU's output: the symbols of a kernel are
/// some megabytes, records some 100 KiB for each trial. A guest that sends more counts as one that
/// ended early.
const SAID_BYTES_MAX: u64 = 256 << 20;
/// Limit of bytes of QEMU's errors.
const ERROR_BYTES_MAX: u64 = 1 << 20;

/// Last `most` bytes of a file, as text; empty if the file cannot be read.
pub(crate) fn end_of(path: &Path, most: u64) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = fs::File::open(path)?;
        let surplus = file.metadata()?.len().saturating_sub(most);
        file.seek(SeekFrom::Start(surplus))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// Reads lines of a pipe on a separate thread, until the pipe ends or has given `most` bytes.
fn read(pipe: impl Read + Send + 'static, most: u64) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(pipe.take(most)).split(b'\n');
        for line in lines.map_while(io::Result::ok) {
            let line = String::from_utf8_lossy(&line)
                .trim_end_matches('\r')
                .to_string();
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
