//! One boot, from the start of QEMU to its end, within a time limit.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};
use tempfile::NamedTempFile;

use crate::architecture::Architecture;
use crate::error::GuestError;
use crate::functions::Symbols;
use crate::image::{Image, Task};
use crate::kernel::Kernel;
use crate::qemu::Machine;

/// A kernel and a program that can be booted any number of times, each time with a task and a
/// machine.
#[derive(Debug)]
pub struct Guest {
    kernel: Kernel,
    image: Image,
}

/// A line from a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A line that the program, or its init, printed.
    Printed(String),
    /// A line of a results file: name of the file, and the line.
    ResultsFile(String, String),
}

/// End of a boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootEnd {
    /// The program ended with this exit code, and all results were sent.
    Done(i32),
    /// The program was ended by a signal; the status in words.
    Killed(String),
    /// The guest ended before its program did: it panicked, or its init failed.
    Early,
    /// The guest had not ended at the time limit: it hangs, or the limit was too short.
    Late,
    /// The caller asked to stop.
    Stopped,
}

/// Result of a boot.
#[derive(Debug, Clone)]
pub struct Boot {
    /// Release of the kernel that booted; `None` if none did.
    pub release: Option<String>,
    /// Lines that the guest sent.
    pub lines: Vec<Line>,
    /// Symbols of its kernel, if the task asked for them.
    pub symbols: Symbols,
    /// End of the boot.
    pub ended: BootEnd,
    /// Last lines of its console, and of QEMU's errors.
    pub last_words: Vec<String>,
    /// Duration of the boot.
    pub took: Duration,
}

impl Boot {
    /// Description of the failure in one line, with the guest's last words; `None` if the program
    /// ended.
    pub fn failure(&self) -> Option<String> {
        let took = self.took.as_secs();
        let what = match &self.ended {
            BootEnd::Done(_) => return None,
            BootEnd::Killed(status) => format!("the program in the guest ended by {status}"),
            BootEnd::Early if self.release.is_some() => {
                format!("the guest ended after {took} s, before it was done")
            }
            BootEnd::Early => format!("the guest did not come up and ended after {took} s"),
            BootEnd::Late if self.release.is_some() => {
                format!("the guest was not done after {took} s and was ended")
            }
            BootEnd::Late => format!("the guest did not come up within {took} s and was ended"),
            BootEnd::Stopped => "the guest was stopped".to_string(),
        };
        let words = self.last_words.join(" | ");
        Some(match words.is_empty() {
            true => format!("{what}; nothing was on its console"),
            false => format!("{what}; its last words: {words}"),
        })
    }
}

impl Guest {
    /// Makes a guest of a kernel and a packed program.
    ///
    /// # Errors
    /// QEMU is not installed: the text says what to install.
    pub fn new(kernel: Kernel, image: Image) -> Result<Guest, GuestError> {
        Guest::check(kernel.architecture)?;
        Ok(Guest { kernel, image })
    }

    /// Checks that this host can run guests of its own architecture.
    ///
    /// # Errors
    /// What is missing, and what to install.
    pub fn check_host() -> Result<(), GuestError> {
        Guest::check(Architecture::HOST)
    }

    fn check(architecture: Architecture) -> Result<(), GuestError> {
        let program = architecture.emulator();
        let asked = Command::new(program).arg("--version").output();
        match asked {
            Ok(told) if told.status.success() => Ok(()),
            Ok(told) => Err(GuestError::Program {
                program,
                said: String::from_utf8_lossy(&told.stderr).trim().to_string(),
            }),
            Err(_) => {
                let [debian, fedora] = architecture.packages();
                Err(GuestError::Missing(format!(
                    "{program} is not here: install it (Debian: apt-get install {debian}; Fedora: dnf install {fedora})"
                )))
            }
        }
    }

    /// Kernel that the guest boots.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Boots, and waits until the guest ends, at most for `most`, or until `stop` returns true.
    ///
    /// # Errors
    /// QEMU cannot be started. If a guest fails, the [`Boot`] describes the failure.
    pub fn boot(
        &self,
        machine: &Machine,
        task: &Task,
        most: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<Boot, GuestError> {
        let folder = std::env::temp_dir();
        let console = NamedTempFile::new().map_err(GuestError::file("create", &folder))?;
        let initramfs = self.image.with(task)?;
        let command = machine.command(&self.kernel, initramfs.path(), console.path());
        let began = Instant::now();
        let running = Running::start(command, self.kernel.architecture)?;
        let mut boot = Boot {
            release: None,
            lines: Vec::new(),
            symbols: Symbols::default(),
            ended: BootEnd::Early,
            last_words: Vec::new(),
            took: Duration::ZERO,
        };
        let mut symbols = Vec::new();
        let mut take = |boot: &mut Boot, line: &str| match line.strip_prefix("symbols ") {
            Some(piece) => symbols.push(piece.to_string()),
            None => boot.take(line),
        };
        loop {
            match running.lines.recv_timeout(LOOK) {
                Ok(line) => take(&mut boot, &line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if stop() => {
                    boot.ended = BootEnd::Stopped;
                    break;
                }
                Err(RecvTimeoutError::Timeout) if began.elapsed() >= most => {
                    boot.ended = BootEnd::Late;
                    break;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        boot.took = began.elapsed();
        let errors = running.end();
        boot.symbols = Symbols::decode(&symbols);
        let words = end_of(console.path(), CONSOLE_BYTES);
        boot.last_words = last_words(&words, &errors);
        Ok(boot)
    }
}

/// Longest delay until a request to stop is seen.
const LOOK: Duration = Duration::from_millis(200);

impl Boot {
    /// Handles a line from the guest.
    fn take(&mut self, line: &str) {
        let (what, text) = line.split_once(' ').unwrap_or((line, ""));
        match what {
            "up" => self.release = Some(text.to_string()),
            "said" => self.lines.push(Line::Printed(text.to_string())),
            "of" => {
                let (name, text) = text.split_once(' ').unwrap_or((text, ""));
                self.lines
                    .push(Line::ResultsFile(name.to_string(), text.to_string()));
            }
            "end" => {
                let killed = || BootEnd::Killed(text.to_string());
                self.ended = text.parse().map_or_else(|_| killed(), BootEnd::Done);
            }
            // A line of the firmware, before the kernel has the port.
            _ => {}
        }
    }
}

/// A running QEMU; dropping it ends QEMU.
struct Running {
    child: Child,
    lines: Receiver<String>,
    errors: Receiver<String>,
}

impl Running {
    #[allow(
        unsafe_code,
        reason = "a child that asks for a signal before it becomes QEMU"
    )]
    fn start(mut command: Command, architecture: Architecture) -> Result<Running, GuestError> {
        // SAFETY: between fork and exec there is one system call, which is async-signal-safe and allocates nothing.
        unsafe {
            // Otherwise a killed command would leave a guest running.
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
        }
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
        })
    }

    /// Ends QEMU, if it has not ended, and returns the lines of its standard error.
    fn end(mut self) -> Vec<String> {
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

/// Limit of bytes from a guest's serial port, and of QEMU's output: the symbols of a kernel are
/// some megabytes, records some 100 KiB for each trial. A guest that sends more counts as one that
/// ended early.
const SAID_BYTES_MAX: u64 = 256 << 20;
/// Limit of bytes of QEMU's errors.
const ERROR_BYTES_MAX: u64 = 1 << 20;
/// Bytes at the end of a console in which last words are looked for.
const CONSOLE_BYTES: u64 = 64 << 10;

/// Last `most` bytes of a file, as text; empty if the file cannot be read.
fn end_of(path: &Path, most: u64) -> String {
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

/// Last meaningful lines: without terminal control characters (the firmware begins with them), and
/// without the stack trace that a panic prints after its reason.
fn last_words(console: &str, errors: &[String]) -> Vec<String> {
    const MOST: usize = 6;
    const OF_A_STACK: [&str; 4] = ["Call Trace:", "TASK>", "+0x", "Kernel Offset:"];
    let clean = |line: &str| -> String {
        let line: String = line.chars().filter(|c| !c.is_control()).collect();
        line.trim().to_string()
    };
    let console = console.lines().map(clean);
    let says =
        |line: &String| !line.is_empty() && !OF_A_STACK.iter().any(|part| line.contains(part));
    let lines: Vec<String> = console
        .chain(errors.iter().map(|line| clean(line)))
        .filter(says)
        .collect();
    lines[lines.len().saturating_sub(MOST)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot() -> Boot {
        Boot {
            release: None,
            lines: Vec::new(),
            symbols: Symbols::default(),
            ended: BootEnd::Early,
            last_words: Vec::new(),
            took: Duration::from_secs(9),
        }
    }

    #[test]
    fn a_guests_lines_are_its_kernel_what_it_said_its_results_and_its_end() {
        let mut boot = boot();
        for line in [
            "SeaBIOS",
            "up 6.1.0-x",
            "said a b",
            "of r.jsonl {\"a\": 1}",
            "end 3",
        ] {
            boot.take(line);
        }
        assert_eq!(boot.release.as_deref(), Some("6.1.0-x"));
        let of = Line::ResultsFile("r.jsonl".into(), "{\"a\": 1}".into());
        assert_eq!(boot.lines, [Line::Printed("a b".into()), of]);
        assert_eq!(boot.ended, BootEnd::Done(3));
        assert_eq!(boot.failure(), None);
        boot.take("end signal: 9 (SIGKILL)");
        assert!(boot.failure().unwrap().contains("SIGKILL"));
    }

    #[test]
    fn a_guest_that_panics_tells_its_last_words() {
        let console = "\u{1b}cSeaBIOS\n\n[ 1.0] VFS: no root\r\n[ 1.1] Kernel panic - not syncing\n[ 1.2] Call Trace:\n[ 1.2]  panic+0x118/0x2f4\n";
        let boot = Boot {
            last_words: last_words(console, &[]),
            ..boot()
        };
        let told = boot.failure().unwrap();
        assert!(told.starts_with("the guest did not come up"), "{told}");
        assert!(
            told.ends_with("[ 1.0] VFS: no root | [ 1.1] Kernel panic - not syncing"),
            "{told}"
        );
    }
}
