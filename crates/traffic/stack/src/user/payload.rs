//! Sources and sinks of a user stack.
//!
//! There are five code paths. `write` and `send` copy from memory into the stack, `read+send` from
//! a buffer that a file was read into, `mmap+send` from a mapped file. `zerocopy` lends memory and
//! `sendfile` mapped files, by counting references: nothing is copied, and segments are made of
//! pieces of them.

use std::io;
use std::time::Instant;

use tcpcost_knobs::{ReceiveWith, SendWith};
use tcpcost_tcp::wire::Unreachable;
use tcpcost_tcp::{Connection, Ended, Piece, ReadError, WriteError};

use crate::error::{StackError, call};
use crate::files::{Files, slice};
use crate::reader::Reader;
use crate::stack::{Content, Moved, Pages};

/// Payload that a [`UserStack`](super::UserStack) sends; its content never changes once made.
#[derive(Debug)]
pub struct UserSource {
    with: SendWith,
    from: PayloadSource,
}

#[derive(Debug)]
enum PayloadSource {
    Memory(Vec<u8>),
    Lent(Piece),
    Read(Reader),
    Mapped(Files),
    /// The files, and each of them as a piece.
    LentFiles(Files, Vec<Piece>),
}

impl UserSource {
    pub(super) fn new(with: SendWith, content: &mut Content<'_>) -> Result<Self, StackError> {
        let mut memory = || {
            // A piece counts its bytes in 32 bits.
            let len = u32::try_from(content.bytes)
                .map_err(|_| io::Error::from(io::ErrorKind::Unsupported))
                .map_err(call("a source of 4 GiB or more"))?;
            let mut bytes = vec![0; len as usize];
            (content.fill)(0, &mut bytes);
            Ok(bytes)
        };
        let from = match with {
            SendWith::Write | SendWith::Send => PayloadSource::Memory(memory()?),
            SendWith::Zerocopy => PayloadSource::Lent(memory()?.into()),
            SendWith::ReadWrite | SendWith::ReadSend => PayloadSource::Read(Reader::new(content)?),
            SendWith::MmapSend => PayloadSource::Mapped(Files::on_disk(content)?),
            SendWith::Sendfile
            | SendWith::SendfileMemfd
            | SendWith::Splice
            | SendWith::MmapZerocopy => {
                let files = Files::on_disk(content)?;
                let pieces = files.maps().map(Piece::lend).collect();
                PayloadSource::LentFiles(files, pieces)
            }
            SendWith::UringSend | SendWith::UringSendZc | SendWith::UringSplice => {
                let unsupported = io::Error::from(io::ErrorKind::Unsupported);
                return Err(call("io_uring with our own TCP")(unsupported));
            }
        };
        Ok(Self { with, from })
    }

    /// True if a workload expects completions of sends from this source.
    pub(super) fn has_completions(&self) -> bool {
        self.with.has_completions()
    }

    pub(super) fn pages(&self) -> Option<Pages> {
        match &self.from {
            PayloadSource::Memory(_) | PayloadSource::Lent(_) => None,
            PayloadSource::Read(reader) => reader.files().pages().ok(),
            PayloadSource::Mapped(files) | PayloadSource::LentFiles(files, _) => files.pages().ok(),
        }
    }

    pub(super) fn send(
        &mut self,
        connection: &mut Connection,
        at: u64,
        len: usize,
        more: bool,
    ) -> io::Result<Moved> {
        // write(2) has no MSG_MORE.
        let more = more && self.with != SendWith::Write;
        let mut copy = |bytes: &[u8]| connection.write_more(bytes, more).map_err(write_error);
        let written = match &mut self.from {
            PayloadSource::Memory(bytes) => copy(slice(bytes, at, len)?)?,
            PayloadSource::Mapped(files) => copy(files.mapped(at, len)?)?,
            PayloadSource::Read(reader) => reader.send(at, len, copy)?,
            PayloadSource::Lent(piece) => lend(connection, part(piece, at, len)?, more)?,
            PayloadSource::LentFiles(files, pieces) => {
                let (index, offset) = files.place(at);
                let piece = pieces.get(index).ok_or(io::ErrorKind::InvalidInput)?;
                lend(connection, part(piece, offset, len)?, more)?
            }
        };
        if written == 0 && len > 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // A short count means that the send queue is full; the edge comes when a third of it is
        // free.
        Ok(Moved {
            bytes: written,
            again: written == len,
        })
    }
}

/// Lends a piece to the connection. Returns the bytes taken.
fn lend(connection: &mut Connection, piece: Piece, more: bool) -> io::Result<usize> {
    let len = piece.len();
    connection
        .write_piece_more(piece, more)
        .map(|rest| len - rest.map_or(0, |rest| rest.len()))
        .map_err(write_error)
}

/// Bytes of one call. A range outside the source is the caller's mistake and an error.
fn part(piece: &Piece, at: u64, len: usize) -> io::Result<Piece> {
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    let part = piece.slice(at..at.saturating_add(len));
    match part.len() == len {
        true => Ok(part),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Destination of payload that a [`UserStack`](super::UserStack) receives.
#[derive(Debug)]
pub struct UserSink {
    read_bytes: usize,
    into: PayloadSink,
}

#[derive(Debug)]
enum PayloadSink {
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
            ReceiveWith::Read => PayloadSink::Buffer(vec![0; read_bytes]),
            ReceiveWith::RecvTrunc => PayloadSink::Nothing,
            // "zerocopy" is refused where the knobs are read.
            ReceiveWith::Splice | ReceiveWith::Zerocopy => PayloadSink::Lent(Piece::default()),
        };
        Self { read_bytes, into }
    }

    pub(super) fn receive(
        &mut self,
        connection: &mut Connection,
        now: Instant,
    ) -> io::Result<Moved> {
        let taken = match &mut self.into {
            PayloadSink::Buffer(buffer) => connection.read(buffer, now),
            PayloadSink::Nothing => drop_bytes(connection, self.read_bytes, now),
            PayloadSink::Lent(lent) => connection.read_piece(self.read_bytes, now).map(|piece| {
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
            PayloadSink::Buffer(buffer) => buffer.get(..bytes),
            PayloadSink::Lent(piece) => piece.as_ref().get(..bytes),
            PayloadSink::Nothing => None,
        }
    }
}

/// Drops up to `max` received bytes. Returns how many.
fn drop_bytes(connection: &mut Connection, max: usize, now: Instant) -> Result<usize, ReadError> {
    let mut taken = connection.read_piece(max, now)?.len();
    while taken < max && connection.readable() > 0 {
        taken += connection.read_piece(max - taken, now)?.len();
    }
    Ok(taken)
}

/// Converts a read's result; the end of the stream is 0 bytes, as with read(2).
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

/// Converts the reason to the error that a kernel socket would return.
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
