//! What a user stack sends from and receives into.
//!
//! `write` and `send` copy into the stack, as the kernel's do. `sendfile`, `splice` and `zerocopy`
//! share one piece of memory by counting references: no file is read, because what the kernel
//! takes out of its page cache is memory here as well.

use std::io;
use std::time::Instant;

use tcpcost_study::{ReceiveWith, SendWith};
use tcpcost_tcp::wire::Unreachable;
use tcpcost_tcp::{Connection, Ended, Piece, ReadError, WriteError};

use crate::error::{StackError, call};
use crate::stack::Moved;

/// What a [`UserStack`](super::UserStack) sends from; its content never changes once made.
#[derive(Debug)]
pub struct UserSource {
    bytes: Piece,
    with: SendWith,
}

impl UserSource {
    pub(super) fn new(
        with: SendWith,
        len: u64,
        fill: &mut dyn FnMut(u64, &mut [u8]),
    ) -> Result<Self, StackError> {
        // A piece counts its bytes in 32 bits.
        let len = u32::try_from(len)
            .map_err(|_| io::Error::from(io::ErrorKind::Unsupported))
            .map_err(call("a source of 4 GiB or more"))?;
        let mut bytes = vec![0; len as usize];
        fill(0, &mut bytes);
        Ok(Self {
            bytes: bytes.into(),
            with,
        })
    }

    /// Whether the peer of this stack might wait for completions of it.
    pub(super) fn is_zerocopy(&self) -> bool {
        self.with == SendWith::Zerocopy
    }

    pub(super) fn send(
        &self,
        connection: &mut Connection,
        at: u64,
        len: usize,
        more: bool,
    ) -> io::Result<Moved> {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let range = at..at.saturating_add(len);
        let bytes = self
            .bytes
            .as_ref()
            .get(range.clone())
            .ok_or(io::ErrorKind::InvalidInput)?;
        let written = match self.with {
            // write(2) has no MSG_MORE.
            SendWith::Write => connection.write(bytes),
            SendWith::Send => connection.write_more(bytes, more),
            SendWith::Sendfile
            | SendWith::SendfileMemfd
            | SendWith::Splice
            | SendWith::Zerocopy => connection
                .write_piece_more(self.bytes.slice(range), more)
                .map(|rest| len - rest.map_or(0, |rest| rest.len())),
        }
        .map_err(write_error)?;
        if written == 0 && len > 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // Short means that the send queue is full; when a third of it is free the edge is told.
        Ok(Moved {
            bytes: written,
            again: written == len,
        })
    }
}

/// What a [`UserStack`](super::UserStack) receives into.
#[derive(Debug)]
pub struct UserSink {
    read_bytes: usize,
    into: Into,
}

#[derive(Debug)]
enum Into {
    /// `read`: copied.
    Buffer(Vec<u8>),
    /// `recv-trunc`: dropped unseen.
    Nothing,
    /// `splice`: the reader is lent the memory that the packet arrived in, one piece a call.
    Lent(Piece),
}

impl UserSink {
    pub(super) fn new(with: ReceiveWith, read_bytes: usize) -> Self {
        let into = match with {
            ReceiveWith::Read => Into::Buffer(vec![0; read_bytes]),
            ReceiveWith::RecvTrunc => Into::Nothing,
            ReceiveWith::Splice => Into::Lent(Piece::default()),
        };
        Self { read_bytes, into }
    }

    pub(super) fn receive(
        &mut self,
        connection: &mut Connection,
        now: Instant,
    ) -> io::Result<Moved> {
        let taken = match &mut self.into {
            Into::Buffer(buffer) => connection.read(buffer, now),
            Into::Nothing => drop_bytes(connection, self.read_bytes, now),
            Into::Lent(lent) => connection.read_piece(self.read_bytes, now).map(|piece| {
                *lent = piece;
                lent.len()
            }),
        };
        let bytes = read_result(taken)?;
        Ok(Moved {
            bytes,
            again: connection.readable() > 0 || connection.is_finished(),
        })
    }

    pub(super) fn received(&self, bytes: usize) -> Option<&[u8]> {
        match &self.into {
            Into::Buffer(buffer) => buffer.get(..bytes),
            Into::Lent(piece) => piece.as_ref().get(..bytes),
            Into::Nothing => None,
        }
    }
}

/// Takes out at most `max` bytes that nobody looks at.
fn drop_bytes(connection: &mut Connection, max: usize, now: Instant) -> Result<usize, ReadError> {
    let mut taken = connection.read_piece(max, now)?.len();
    while taken < max && connection.readable() > 0 {
        taken += connection.read_piece(max - taken, now)?.len();
    }
    Ok(taken)
}

/// The end of the stream is 0 bytes, as read(2) has it.
pub(super) fn read_result(result: Result<usize, ReadError>) -> io::Result<usize> {
    match result {
        Ok(bytes) => Ok(bytes),
        Err(ReadError::Finished) => Ok(0),
        Err(ReadError::Empty) => Err(io::ErrorKind::WouldBlock.into()),
        Err(ReadError::Ended(reason)) => Err(ended(reason)),
    }
}

pub(super) fn write_error(error: WriteError) -> io::Error {
    match error {
        WriteError::Closed => io::ErrorKind::BrokenPipe.into(),
        WriteError::Ended(reason) => ended(reason),
    }
}

/// What a socket of the kernel's would say.
pub(super) fn ended(reason: Ended) -> io::Error {
    match reason {
        Ended::Reset => io::ErrorKind::ConnectionReset,
        Ended::Refused => io::ErrorKind::ConnectionRefused,
        Ended::TimedOut => io::ErrorKind::TimedOut,
        Ended::Aborted => io::ErrorKind::ConnectionAborted,
        Ended::Unreachable(Unreachable::Network) => io::ErrorKind::NetworkUnreachable,
        Ended::Unreachable(Unreachable::Host | Unreachable::Prohibited) => {
            io::ErrorKind::HostUnreachable
        }
        Ended::Unreachable(Unreachable::Port | Unreachable::Protocol) => {
            io::ErrorKind::ConnectionRefused
        }
    }
    .into()
}
