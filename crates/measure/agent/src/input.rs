//! Lines of standard input, and the time without input after which the command counts as gone.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::protocol::clock_ns;

/// Limit on the bytes of a line. The knobs of thousands of cells are some megabytes.
const LINE_MAX: usize = 64 << 20;

/// When the lease begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseStart {
    /// When the agent starts.
    AtOnce,
    /// With the first line that is read.
    WithAWord,
}

/// Lines of an input, without their line ends.
pub struct Input<R> {
    source: R,
    /// Bytes that were read but not yet returned.
    pending: Vec<u8>,
    /// Number of bytes at the start of `pending` that hold no line end.
    searched: usize,
    lease: Option<Duration>,
    /// True once the lease has begun.
    is_let: bool,
    /// No line is expected before this time, ns of the monotonic clock.
    silent_until_ns: u64,
}

impl<R: Read + AsFd> Input<R> {
    /// Makes a reader of lines. With a lease, the input also ends after that time without a line. `begins`
    /// says from when the lease counts: at once, or from the first line if a command may attach at any time.
    pub fn new(source: R, lease: Option<Duration>, begins: LeaseStart) -> Input<R> {
        Input {
            source,
            pending: Vec::new(),
            searched: 0,
            lease,
            is_let: begins == LeaseStart::AtOnce,
            silent_until_ns: 0,
        }
    }

    /// The lease is counted from this moment, unless a line comes before.
    pub fn expect_silence_until(&mut self, at_ns: u64) {
        self.silent_until_ns = at_ns;
    }

    /// Reads the next line. `None` at the end of the input.
    ///
    /// # Errors
    /// The lease has ended, a line is too long or no UTF-8, or reading fails.
    pub fn line(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.pending[self.searched..]
                .iter()
                .position(|&byte| byte == b'\n')
            {
                let rest = self.pending.split_off(self.searched + end + 1);
                let mut line = std::mem::replace(&mut self.pending, rest);
                line.pop();
                self.searched = 0;
                let line = String::from_utf8(line);
                return line
                    .map(Some)
                    .map_err(|_| wrong("received a line that is not UTF-8 text"));
            }
            self.searched = self.pending.len();
            if self.searched > LINE_MAX {
                return Err(wrong("received a line longer than 64 MiB"));
            }
            self.wait()?;
            let mut bytes = [0; 8192];
            match self.source.read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(count) => {
                    self.pending.extend_from_slice(&bytes[..count]);
                    self.is_let = true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until there is something to read, not longer than the lease.
    fn wait(&self) -> io::Result<()> {
        let Some(lease) = self.lease.filter(|_| self.is_let) else {
            return Ok(()); // The read waits.
        };
        let now_ns = clock_ns();
        let silence = Duration::from_nanos(self.silent_until_ns.saturating_sub(now_ns));
        let timeout = Timespec::try_from(silence + lease).ok();
        let mut source = [PollFd::new(&self.source, PollFlags::IN)];
        match poll(&mut source, timeout.as_ref()) {
            Ok(0) => {
                let seconds = lease.as_secs_f64();
                let text = format!("no line from the command for {seconds} s: it counts as gone");
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            }
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn wrong(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn lines_come_one_by_one_until_the_end() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"a 1\n\nb").unwrap();
        let mut input = Input::new(reader, None, LeaseStart::AtOnce);
        assert_eq!(input.line().unwrap().as_deref(), Some("a 1"));
        assert_eq!(input.line().unwrap().as_deref(), Some(""));
        writer.write_all(b" 2\nrest").unwrap();
        assert_eq!(input.line().unwrap().as_deref(), Some("b 2"));
        drop(writer);
        assert_eq!(
            input.line().unwrap(),
            None,
            "a line that was cut short is none"
        );
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"\xff\xfe\n").unwrap();
        let error = Input::new(reader, None, LeaseStart::AtOnce)
            .line()
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_lease_ends_after_silence_and_not_before_the_silence_that_is_expected() {
        let (reader, writer) = io::pipe().unwrap();
        let mut input = Input::new(reader, Some(Duration::from_millis(1)), LeaseStart::AtOnce);
        let until_ns = clock_ns() + 20_000_000;
        input.expect_silence_until(until_ns);
        let error = input.line().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(clock_ns() >= until_ns);
        drop(writer);
    }

    #[test]
    fn a_lease_that_begins_with_a_word_ends_nothing_before_it() {
        let (reader, mut writer) = io::pipe().unwrap();
        let lease = Some(Duration::from_millis(1));
        let mut input = Input::new(reader, lease, LeaseStart::WithAWord);
        // Begins no lease, so it returns without waiting although nothing can be read.
        input.wait().unwrap();
        writer.write_all(b"a 1\n").unwrap();
        assert_eq!(input.line().unwrap().as_deref(), Some("a 1"));
        let error = input.line().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(writer);
    }
}
