//! Results on standard output and in files.

use std::fmt;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use tcpcost_counts::{Guard, TextForm, printable};
use tcpcost_host::named_file;

/// Writes a file that the user named; see [`named_file::write`].
pub fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    named_file::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// Prints a line to standard error, with unprintable characters replaced. A failed write is
/// ignored.
#[macro_export]
macro_rules! say {
    ($($line:tt)*) => {
        $crate::output::to_stderr(format_args!($($line)*))
    };
}
pub use crate::say;

/// Prints a line to standard error; see [`say!`].
pub fn to_stderr(line: fmt::Arguments<'_>) {
    // One write, so that lines of several processes do not mix.
    let line = line.to_string();
    let _ = WaitingWriter(io::stderr()).write_all(format!("{}\n", printable(&line)).as_bytes());
}

/// Writes results to standard error at once, through a [`Guard`]. For commands whose standard
/// output belongs to the program that they run.
pub fn results_to_stderr(text: &str, form: TextForm) {
    let mut stderr = Guard::new(WaitingWriter(io::stderr()), form);
    // A failed write is no error, as in `say!`.
    let _ = stderr
        .write_all(text.as_bytes())
        .and_then(|()| stderr.flush());
}

/// Writer of the log: prints each event as one line.
pub struct Log;

impl Write for Log {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(event);
        say!("{}", line.strip_suffix('\n').unwrap_or(&line));
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a result to `file`, else prints it on standard output.
pub fn put(text: &str, form: TextForm, file: Option<&Path>) -> anyhow::Result<()> {
    put_with(form, file, |out| out.write_all(text.as_bytes()))
}

/// Writes a result to `file`, else prints it on standard output while `write` makes it.
pub fn put_with(
    form: TextForm,
    file: Option<&Path>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    let Some(file) = file else {
        return write_with(form, write).map(|_| ());
    };
    let mut text = Vec::new();
    write(&mut text)?;
    write_file(file, &String::from_utf8(text)?)
}

/// Writes lines to standard output at once, through a [`Guard`]. True unless the reader has closed
/// its end: `tcpcost report DIR | head` is no error.
pub fn write(text: &str) -> anyhow::Result<bool> {
    write_with(TextForm::Lines, |out| out.write_all(text.as_bytes()))
}

/// Writes a JSON document like [`write()`].
pub fn write_json(text: &str) -> anyhow::Result<bool> {
    write_with(TextForm::Json, |out| out.write_all(text.as_bytes()))
}

/// Replaces the terminal's contents with lines.
pub fn write_screen(text: &str) -> anyhow::Result<bool> {
    // Moves the cursor to the upper left corner, and erases all after it.
    match WaitingWriter(io::stdout()).write_all(b"\x1b[H\x1b[J") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("write to standard output"),
        Ok(()) => write(text),
    }
}

/// Writes text to standard output while `write` makes it. True unless the reader has closed its
/// end.
pub fn write_with(
    form: TextForm,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<bool> {
    let guard = Guard::new(WaitingWriter(io::stdout().lock()), form);
    let mut stdout = BufWriter::with_capacity(1 << 16, guard);
    match write(&mut stdout).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        other => other.map(|()| true).context("write to standard output"),
    }
}

/// Standard output or error, for a reader that may read nothing (a full pipe, a stopped terminal).
/// A write waits for the reader. After a request to stop it waits `GRACE` more, then fails with
/// [`io::ErrorKind::BrokenPipe`].
pub struct WaitingWriter<F: AsFd>(pub F);

impl<F: AsFd> Write for WaitingWriter<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let step = Timespec {
            tv_sec: 0,
            tv_nsec: GRACE.subsec_nanos().into(),
        };
        loop {
            let was_asked = tcpcost_signals::is_asked();
            let mut fds = [PollFd::new(&self.0, PollFlags::OUT)];
            match rustix::event::poll(&mut fds, Some(&step)) {
                Ok(0) if was_asked => return Err(io::ErrorKind::BrokenPipe.into()),
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            match rustix::io::write(&self.0, &bytes[..bytes.len().min(PIPE_BUF)]) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Wait after a request to stop: long enough for a slow reader, and short enough to end within a second.
const GRACE: Duration = Duration::from_millis(250);
/// Bytes that a pipe reported ready takes without blocking (pipe(7)).
const PIPE_BUF: usize = 4096;
