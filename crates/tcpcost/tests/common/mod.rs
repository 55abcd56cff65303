//! The real binary, run in a directory of its own; and a network namespace to run it in.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// One flow one way, each end on a CPU of its own.
pub const STUDY: &str = r#"
[bed]
kind = "netns"
[workload]
kind = "stream"
client_cpus = [0]
server_cpus = [1]
[measure]
warm_up = "50ms"
duration = "300ms"
repetitions = 1
others_max = "100%"
retries = 0
"#;

/// A directory to run in; state (the journal) is kept inside it too.
pub struct Place {
    pub directory: TempDir,
}

impl Place {
    pub fn new() -> Place {
        Place {
            directory: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tcpcost"));
        command
            .args(args)
            .current_dir(self.directory.path())
            .env("TCPCOST_STATE_DIR", self.path("state"))
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::from(self.command(args).output().expect("the binary runs"))
    }

    /// Starts it and gives its progress lines as they come.
    pub fn start(&self, args: &[&str]) -> Started {
        let mut child = self
            .command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Started { child, stderr }
    }

    /// The lines of a run's records file.
    pub fn records(&self, directory: &str) -> Vec<serde_json::Value> {
        records(&self.path(directory))
    }
}

pub fn records(directory: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(directory.join("records.jsonl")).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A command that has ended.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// A command that runs.
pub struct Started {
    pub child: Child,
    stderr: BufReader<std::process::ChildStderr>,
}

impl Started {
    /// Waits until a line of stderr contains this. Panics with what came if it never does.
    pub fn wait_for(&mut self, part: &str) {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            let read = self.stderr.read_line(&mut line).unwrap();
            assert!(read > 0, "{part:?} never came:\n{seen}");
            if line.contains(part) {
                return;
            }
            seen += &line;
        }
    }

    pub fn signal(&self, signal: libc::c_int) {
        let pid = i32::try_from(self.child.id()).unwrap();
        // SAFETY: the child is ours and not yet waited for, so its id names it.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    /// Ids of the agents.
    pub fn agents(&self) -> Vec<i32> {
        let id = self.child.id();
        let mut agents = Vec::new();
        for task in std::fs::read_dir(format!("/proc/{id}/task")).unwrap() {
            let children = task.unwrap().path().join("children");
            let children = std::fs::read_to_string(children).unwrap_or_default();
            agents.extend(
                children
                    .split_whitespace()
                    .map(|pid| pid.parse::<i32>().unwrap()),
            );
        }
        agents
    }

    /// Waits for the command, and until every process that holds its stderr (its agents do) is gone.
    pub fn end(mut self) -> Ran {
        let mut stdout = String::new();
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut stdout)
            .unwrap();
        let mut stderr = String::new();
        self.stderr.read_to_string(&mut stderr).unwrap();
        let code = self.child.wait().unwrap().code();
        Ran {
            code,
            stdout,
            stderr,
        }
    }
}

impl Drop for Started {
    /// A test that fails leaves nothing running, and shows what the command said.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.child.kill();
            let mut stderr = String::new();
            let _ = self.stderr.read_to_string(&mut stderr);
            eprintln!("it was killed; its stderr:\n{stderr}");
        }
    }
}

/// A process to wait for that is not our child.
pub struct Exit(std::os::fd::OwnedFd);

impl Exit {
    /// Of a process that is there now.
    pub fn of(pid: i32) -> Exit {
        use std::os::fd::FromRawFd;
        // SAFETY: pidfd_open takes no pointers; what it returns is a new descriptor or -1.
        unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
            assert!(
                fd >= 0,
                "pidfd_open {pid}: {}",
                std::io::Error::last_os_error()
            );
            Exit(std::os::fd::OwnedFd::from_raw_fd(fd as i32))
        }
    }

    /// Waits until it has ended; a minute is as good as never.
    pub fn wait(&self) -> bool {
        use std::os::fd::AsRawFd;
        let mut poll = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid pollfd.
        unsafe { libc::poll(&mut poll, 1, 60_000) == 1 }
    }
}

pub fn is_root() -> bool {
    // SAFETY: geteuid cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Says why a test was skipped.
pub fn skip(why: &str) {
    eprintln!("skipped: {why}");
}

/// Runs a closure on a thread in a fresh network namespace with lo up; commands that it starts are
/// in it too. `None` without root.
pub fn in_namespace<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    if !is_root() {
        skip("needs root to make a network namespace");
        return None;
    }
    let result = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                // SAFETY: unshare moves only this thread, which runs nothing but `work`.
                assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
                lo_up();
                work()
            })
            .join()
    });
    Some(result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

fn lo_up() {
    // SAFETY: an all-zero ifreq is valid; the name "lo" fits; the kernel reads and writes within it.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        assert!(socket >= 0);
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        assert_eq!(libc::ioctl(socket, libc::SIOCSIFFLAGS as _, &request), 0);
        libc::close(socket);
    }
}

/// Root and two CPUs, or a reason.
pub fn able() -> bool {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if !is_root() {
        skip("needs root to make network namespaces");
    } else if cpus < 2 {
        skip("needs two CPUs");
    } else {
        return true;
    }
    false
}

/// A count of one end by one meter.
pub fn count(record: &serde_json::Value, end: &str, meter: &str, quantity: &str) -> u64 {
    let readings = record["ends"][end]["readings"].as_array().unwrap();
    readings
        .iter()
        .filter(|reading| reading["meter"] == meter)
        .find_map(|reading| reading["counts"][quantity].as_u64())
        .unwrap_or_else(|| panic!("{end} {meter} {quantity}: {record}"))
}
