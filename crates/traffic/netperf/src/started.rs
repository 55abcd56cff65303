//! A netserver that is started for one test and ends with its input.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::Failure;

/// Handle of the process. Dropping it ends the process and waits for it.
pub(crate) struct Started {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Drop for Started {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// Limit on a line of netserver, which prints its address. A longer line is split.
const LINE_BYTES_MAX: u64 = 4096;

impl Started {
    /// Starts the command. A terminal's Ctrl-C is only for netperf, which still needs the results.
    ///
    /// # Errors
    /// The command cannot be started.
    pub(crate) fn new(mut command: Command) -> io::Result<Started> {
        let mut child = tcpcost_signals::ignoring_interrupt(&mut command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take().expect("it is piped");
        Ok(Started {
            child,
            input,
            output: BufReader::new(output),
        })
    }

    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads the next line, including its end. `None` if the process is gone.
    pub(crate) fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self
            .output
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_line(&mut line);
        (read.ok()? > 0).then_some(line)
    }

    /// Sends an empty line.
    ///
    /// # Errors
    /// The process is gone.
    pub(crate) fn go_on(&mut self) -> io::Result<()> {
        let input = self.input.as_mut().expect("it is there until the end");
        input.write_all(b"\n")
    }

    /// Reads the address on which it listens.
    ///
    /// # Errors
    /// It does not print one.
    pub(crate) fn address(&mut self) -> io::Result<SocketAddr> {
        let line = self.line();
        let address = line
            .as_deref()
            .and_then(|line| line.trim().rsplit(' ').next());
        address
            .and_then(|address| address.parse().ok())
            .ok_or_else(|| io::Error::other("netserver did not print its address"))
    }
}

/// Path of this program.
///
/// # Errors
/// The program has no path any more.
pub(crate) fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::remote(format!("find this program: {error}")))
}
