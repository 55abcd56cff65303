//! Pipes for splice(2), lent to a flow while bytes are in them.
//!
//! There are few pipes, because a pipe for each flow would exceed a limit: after
//! pipe-user-pages-soft (16,384 pages, so 1,024 pipes of the usual 64 KiB) an unprivileged user
//! gets pipes of two pages, without an error, and F_SETPIPE_SZ is refused (pipe(7), fs/pipe.c). So
//! the size is asked for and read back, and pipes that are too small to be useful are closed. A
//! flow without a pipe copies.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with};

/// A pipe, empty when it is lent.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) read: OwnedFd,
    pub(crate) write: OwnedFd,
    /// Buffers of the pipe: a piece of a segment, however small, fills one.
    pub(crate) slots: usize,
}

/// Pipes of a worker.
#[derive(Debug)]
pub(crate) struct Pipes {
    idle: Vec<Pipe>,
    /// Pipes that exist, idle and lent.
    there: usize,
    most: usize,
    bytes: usize,
    /// Time before which no new pipe is tried.
    refused_until: Option<Instant>,
    has_told: bool,
}

impl Pipes {
    pub(crate) fn new(most: usize, bytes: usize) -> Pipes {
        Pipes {
            idle: Vec::new(),
            there: 0,
            most,
            bytes,
            refused_until: None,
            has_told: false,
        }
    }

    /// Lends an empty pipe. `None` if the limit is reached, or if the kernel gives no pipe that is
    /// large enough.
    pub(crate) fn lend(&mut self, now: Instant) -> Option<Pipe> {
        if let Some(pipe) = self.idle.pop() {
            return Some(pipe);
        }
        if self.there >= self.most || self.refused_until.is_some_and(|until| now < until) {
            return None;
        }
        match make(self.bytes) {
            Ok(pipe) if pipe.slots * PAGE >= WORTH_IT => {
                self.there += 1;
                if pipe.slots * PAGE < self.bytes && !self.has_told {
                    self.has_told = true;
                    let (have, asked) = (pipe.slots * PAGE / 1024, self.bytes / 1024);
                    tracing::info!("pipes have {have} KiB, {asked} were asked for: {PIPE_LIMIT}");
                }
                Some(pipe)
            }
            outcome => {
                self.refused_until = Some(now + RETRY);
                if !self.has_told {
                    self.has_told = true;
                    let there = self.there;
                    match outcome {
                        Ok(pipe) => tracing::warn!(
                            "after {there} pipes the kernel gives only such of {} KiB: what has none is copied; {PIPE_LIMIT}",
                            pipe.slots * PAGE / 1024
                        ),
                        Err(error) => tracing::warn!(
                            "after {there} pipes there is no other ({error}): what has none is copied"
                        ),
                    }
                }
                None
            }
        }
    }

    /// Takes an empty pipe back.
    pub(crate) fn take_back(&mut self, pipe: Pipe) {
        self.idle.push(pipe);
    }

    /// Closes a pipe with bytes in it, which are lost.
    pub(crate) fn destroy(&mut self, pipe: Pipe) {
        drop(pipe);
        self.there -= 1;
    }

    /// Pipes that exist, lent and idle.
    pub(crate) fn there(&self) -> usize {
        self.there
    }
}

fn make(bytes: usize) -> Result<Pipe, Errno> {
    let (read, write) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
    // A refusal shows in the size that is read back.
    let _ = fcntl_setpipe_size(&write, bytes);
    let slots = fcntl_getpipe_size(&write)? / PAGE;
    Ok(Pipe { read, write, slots })
}

/// Bytes of a slot: a page of 4 KiB. Where pages are larger, sizes are underestimated.
const PAGE: usize = 4096;
/// Least size of a useful pipe: the kernel's usual size. With two pages splicing costs more than
/// copying (docs/relay.md).
const WORTH_IT: usize = 16 * PAGE;
/// Pause before a new pipe is tried: another process may close its pipes meanwhile.
const RETRY: Duration = Duration::from_secs(10);
const PIPE_LIMIT: &str = "sysctl fs.pipe-user-pages-soft and fs.pipe-max-size, or CAP_SYS_RESOURCE";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_lent_than_there_may_be_and_the_last_one_back_is_lent_first() {
        let now = Instant::now();
        let mut pipes = Pipes::new(2, 64 << 10);
        let (one, two) = (pipes.lend(now).unwrap(), pipes.lend(now).unwrap());
        assert!(one.slots >= 16);
        assert!(pipes.lend(now).is_none());
        pipes.take_back(one);
        let again = pipes.lend(now).unwrap();
        pipes.destroy(again);
        assert!(pipes.lend(now).is_some(), "one that is gone leaves room");
        pipes.destroy(two);
        assert_eq!(pipes.there(), 1);
    }

    #[test]
    fn a_pipe_that_is_too_small_is_not_kept_nor_asked_for_again_at_once() {
        let now = Instant::now();
        // The kernel treats a request for a smaller size like one for a larger size.
        let mut pipes = Pipes::new(2, 2 * PAGE);
        assert!(pipes.lend(now).is_none());
        assert_eq!(pipes.there, 0);
        pipes.bytes = WORTH_IT;
        assert!(pipes.lend(now).is_none(), "it was refused just now");
        assert!(pipes.lend(now + RETRY).is_some());
    }
}
