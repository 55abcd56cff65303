//! Bytes from one connection to another, by reference or through a buffer. The kernel's sockets
//! share no queue, so only our own TCP has this.

use std::io;

use tcpcost_link::Device;
use tcpcost_tcp as tcp;

use super::payload::{ended, write_error};
use super::{UserConn, UserStack, Wire};

/// Result of [`UserStack::forward`].
#[derive(Debug)]
pub struct Forwarded {
    /// Bytes that were added to the other connection's send queue.
    pub bytes: usize,
    /// Bytes among them that had to be copied.
    pub copied: usize,
    /// Reason for stopping.
    pub stopped: Stopped,
}

/// Reason why a forward stopped.
#[derive(Debug)]
pub enum Stopped {
    /// The limit was reached, and there is more.
    Most,
    /// The source has no more bytes: its readiness will be reported.
    Empty,
    /// The sink's send queue is full: its readiness will be reported.
    Full,
    /// The source's peer has closed its direction, and all its bytes were moved.
    Finished,
    /// The source has failed, and all its readable bytes were moved.
    SourceGone(io::Error),
    /// The sink can no longer be written to. Bytes that were not moved remain with the source.
    SinkGone(io::Error),
}

impl<D: Device<Wire>> UserStack<D> {
    /// Moves received bytes of a connection to the send queue of another, by reference: at most
    /// `most`, and no more than the queue has room for. To the source connection this is a read. An
    /// end is not passed on.
    pub fn forward(&mut self, from: UserConn, to: UserConn, most: usize) -> Forwarded {
        report(self.endpoint.forward(from.0, to.0, most, self.now))
    }

    /// Moves received bytes as [`forward`](Self::forward), by one read into `buffer` and one write.
    /// No more is read than the sink has room for, so the buffer is empty afterwards.
    pub fn forward_through(
        &mut self,
        from: UserConn,
        to: UserConn,
        buffer: &mut [u8],
    ) -> Forwarded {
        let now = self.now;
        report(self.endpoint.forward_through(from.0, to.0, buffer, now))
    }
}

/// Converts the errors to those that a kernel socket would return.
fn report(forwarded: tcp::Forwarded) -> Forwarded {
    let gone = || io::Error::from_raw_os_error(libc::EBADF);
    let stopped = match forwarded.stopped {
        tcp::Stopped::Most => Stopped::Most,
        tcp::Stopped::Empty => Stopped::Empty,
        tcp::Stopped::Full => Stopped::Full,
        tcp::Stopped::Finished => Stopped::Finished,
        tcp::Stopped::SourceEnded(reason) => Stopped::SourceGone(reason.map_or_else(gone, ended)),
        tcp::Stopped::SinkEnded(error) => Stopped::SinkGone(error.map_or_else(gone, write_error)),
    };
    Forwarded {
        bytes: forwarded.bytes,
        copied: forwarded.copied,
        stopped,
    }
}
