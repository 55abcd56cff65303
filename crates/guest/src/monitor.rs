//! QEMU's monitor (docs/interop/qmp-spec.rst): questions and answers as lines of JSON over a socket.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// Longest time until QEMU answers. It answers within milliseconds, but not while its thread emulates on a busy host.
const ANSWER: Duration = Duration::from_secs(120);

/// An open monitor.
pub(crate) struct Monitor(BufReader<UnixStream>);

impl Monitor {
    /// Connects to the socket of a running QEMU.
    pub(crate) fn connect(socket: &Path) -> io::Result<Monitor> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER))?;
        let mut monitor = Monitor(BufReader::new(stream));
        // QEMU greets first.
        monitor.answer()?;
        monitor.ask("qmp_capabilities", json!({}))?;
        Ok(monitor)
    }

    /// Executes a command, and returns its result.
    ///
    /// # Errors
    /// QEMU refuses; the text has its reason.
    pub(crate) fn ask(&mut self, command: &str, arguments: Value) -> io::Result<Value> {
        let question = json!({ "execute": command, "arguments": arguments });
        // In one piece: QEMU obeys at the last brace, and may be gone before the end of the line.
        let line = format!("{question}\n");
        self.0.get_mut().write_all(line.as_bytes())?;
        // Events come between.
        loop {
            let mut answer = self.answer()?;
            if let Some(result) = answer.get_mut("return") {
                return Ok(result.take());
            }
            if let Some(error) = answer.get("error") {
                let reason = error["desc"].as_str().unwrap_or_default();
                return Err(io::Error::other(format!("{command}: {reason}")));
            }
        }
    }

    fn answer(&mut self) -> io::Result<Value> {
        let mut line = String::new();
        match self.0.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(serde_json::from_str(&line)?),
        }
    }
}
