//! A netserver that is started for a test and ends with its input.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::Failure;

/// Ends, and is waited for, when this is dropped.
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

/// A netserver says where it listens; of more the rest is another line.
const LINE_BYTES_MAX: u64 = 4096;

impl Started {
    /// Starts it. A terminal's Ctrl-C is for netperf, which still wants the results.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn new(mut command: Command) -> Result<Started, String> {
        let mut child = tcpcost_signals::ignoring_interrupt(&mut command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let input = child.stdin.take();
        let output = child.stdout.take().expect("it is piped");
        Ok(Started {
            child,
            input,
            output: BufReader::new(output),
        })
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it says, with its end; `None` if it is gone.
    pub(crate) fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self
            .output
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_line(&mut line);
        (read.ok()? > 0).then_some(line)
    }

    /// Says an empty line to it.
    ///
    /// # Errors
    /// It is gone.
    pub(crate) fn go_on(&mut self) -> Result<(), String> {
        let input = self.input.as_mut().expect("it is there until the end");
        input.write_all(b"\n").map_err(|error| error.to_string())
    }

    /// Where it listens.
    ///
    /// # Errors
    /// It does not say so.
    pub(crate) fn address(&mut self) -> Result<SocketAddr, String> {
        let line = self.line();
        let address = line
            .as_deref()
            .and_then(|line| line.trim().rsplit(' ').next());
        address
            .and_then(|address| address.parse().ok())
            .ok_or_else(|| "it did not tell where it listens".to_string())
    }
}

/// This program.
///
/// # Errors
/// It has no path any more.
pub(crate) fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::remote(format!("find this program: {error}")))
}
