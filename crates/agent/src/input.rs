//! The lines of standard input, and how long the command may be silent before it is taken for gone.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::protocol::clock_ns;

/// The knobs of thousands of cells are some megabytes; what has no end is no question.
const LINE_MAX: usize = 64 << 20;

/// When a lease begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begins {
    /// With the input.
    AtOnce,
    /// With the first word that is heard.
    WithAWord,
}

/// Lines of an input, each without its end.
pub struct Input<R> {
    source: R,
    /// What was read and not given yet.
    pending: Vec<u8>,
    /// Of these so many bytes have no line end.
    searched: usize,
    lease: Option<Duration>,
    /// Whether the lease has begun.
    is_let: bool,
    /// No word is expected before, ns of the monotonic clock.
    silent_until_ns: u64,
}

impl<R: Read + AsFd> Input<R> {
    /// With a lease the input ends as well once nothing was heard for so long. It begins at once, or, where somebody may come
    /// whenever they like, with the first word.
    pub fn new(source: R, lease: Option<Duration>, begins: Begins) -> Input<R> {
        Input {
            source,
            pending: Vec::new(),
            searched: 0,
            lease,
            is_let: begins == Begins::AtOnce,
            silent_until_ns: 0,
        }
    }

    /// The lease begins at this moment, if nothing is heard before.
    pub fn expect_silence_until(&mut self, at_ns: u64) {
        self.silent_until_ns = at_ns;
    }

    /// The next line; `None` at the end.
    ///
    /// # Errors
    /// The lease is over, a line has no end or is no text, or the input is broken.
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
                    .map_err(|_| wrong("was sent what is no text"));
            }
            self.searched = self.pending.len();
            if self.searched > LINE_MAX {
                return Err(wrong("was sent a line without an end"));
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

    /// Until there is something to read, at most as long as the lease.
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
                let text = format!("heard nothing for {seconds} s: the command is taken for gone");
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
        let mut input = Input::new(reader, None, Begins::AtOnce);
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
        let error = Input::new(reader, None, Begins::AtOnce).line().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_lease_ends_after_silence_and_not_before_the_silence_that_is_expected() {
        let (reader, writer) = io::pipe().unwrap();
        let mut input = Input::new(reader, Some(Duration::from_millis(1)), Begins::AtOnce);
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
        let mut input = Input::new(reader, lease, Begins::WithAWord);
        // With a lease it would look for a word that long, and none is there.
        input.wait().unwrap();
        writer.write_all(b"a 1\n").unwrap();
        assert_eq!(input.line().unwrap().as_deref(), Some("a 1"));
        let error = input.line().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(writer);
    }
}
