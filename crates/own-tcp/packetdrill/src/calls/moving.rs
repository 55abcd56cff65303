//! Calls that move bytes: to and from connections, and through pipes.

use std::collections::VecDeque;

use libc::{EBADF, EINVAL, EPIPE};
use tcpcost_tcp::{Connection, ReadError, State, WriteError};

use super::Failure::{Again, Errno};
use super::{Report, Result, Socket, Sockets, Write};
use crate::sysctl;

impl Sockets {
    /// Reads; with `peek` the bytes stay in the queue (MSG_PEEK).
    pub fn read(&mut self, fd: i32, to: &mut [u8], peek: bool) -> Result<i64> {
        if self.deferred(fd).is_some() {
            return Err(Again);
        }
        let (id, now) = (self.connection(fd)?, self.host.now());
        let read = self.apply(id, |connection| match peek {
            true => connection.peek(to),
            false => connection.read(to, now),
        })?;
        match read {
            Ok(bytes) => Ok(bytes as i64),
            Err(ReadError::Finished) => Ok(0),
            Err(ReadError::Empty) if self.get(fd)?.deaf => Ok(0),
            Err(ReadError::Empty) => Err(Again),
            Err(ReadError::Ended(_)) => {
                self.error_once(fd).map_or(Ok(0), |errno| Err(Errno(errno)))
            }
        }
    }

    /// Value of TCP_INQ after a read, if it was asked for. 1 with an empty queue means that the
    /// peer has closed.
    pub fn left(&mut self, fd: i32) -> Option<i32> {
        let id = self.connection(fd).ok()?;
        if !self.get(fd).ok()?.tells_left {
            return None;
        }
        let connection = self.host.endpoint.connection(id)?;
        let finished = i32::from(connection.is_finished());
        Some((connection.readable() as i32).max(finished))
    }

    /// Writes unit by unit, as long as there is room. Returns the bytes accepted.
    pub fn write(&mut self, fd: i32, bytes: &[u8], how: Write) -> Result<i64> {
        if matches!(self.get(fd)?.socket, Socket::Fresh(_)) {
            return Err(Errno(EPIPE));
        }
        let id = self.connection(fd)?;
        let state = self.host.endpoint.connection(id).map(Connection::state);
        if state == Some(State::SynSent) || (how.waited && self.get(fd)?.buffer.full) {
            return Err(Again);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let view = self.view(fd).ok_or(Errno(EBADF))?;
            let buffer = &mut self.get(fd)?.buffer;
            let Some(share) = buffer.take(rest.len() as u32, &view) else {
                break;
            };
            let (now, later) = rest.split_at(share.bytes as usize);
            let is_last = later.is_empty();
            let more = if is_last { how.more } else { !share.pushed };
            if !more {
                buffer.on_pushed();
            }
            let ends = is_last && how.ends_record;
            if ends {
                buffer.end_record();
            }
            self.put(fd, now, share.bytes, more, share.fills || ends)?;
            rest = later;
        }
        if rest.is_empty() && !bytes.is_empty() {
            return Ok(bytes.len() as i64);
        }
        // Announces the bytes that do not fit, so that accepted bytes wait for nothing but room.
        self.put(fd, rest, 0, how.more, false)?;
        let descriptor = self.get(fd)?;
        descriptor.buffer.full |= !rest.is_empty();
        descriptor.buffer.on_pushed();
        match bytes.len() - rest.len() {
            0 if !bytes.is_empty() => Err(Again),
            taken => Ok(taken as i64),
        }
    }

    /// Writes `room` bytes, which the send buffer's rule allows, rather than the limit of our TCP.
    fn put(&mut self, fd: i32, bytes: &[u8], room: u32, more: bool, ends: bool) -> Result<()> {
        let id = self.connection(fd)?;
        let written = self.apply(id, |connection| {
            let room = connection.unacknowledged() as u32 + room;
            connection.configure(|config| config.send_buffer = room);
            let written = connection.write_more(bytes, more)?;
            if ends {
                connection.end_record();
            }
            Ok(written)
        })?;
        match written {
            Ok(_) => Ok(()),
            Err(WriteError::Closed) => Err(Errno(EPIPE)),
            Err(WriteError::Ended(_)) => Err(Errno(self.error_once(fd).unwrap_or(EPIPE))),
        }
    }

    /// Notes a successful write.
    pub fn on_written(&mut self, fd: i32, zerocopy: bool) {
        let Ok(id) = self.connection(fd) else {
            return;
        };
        let written = self.host.endpoint.connection(id).map(Connection::written);
        if let (Some(end), Ok(descriptor)) = (written, self.get(fd)) {
            descriptor.reports.on_written(end, zerocopy);
            self.look_at(fd);
        }
    }

    /// Next message of the error queue; true if the connection is IPv4.
    pub fn report(&mut self, fd: i32) -> Result<(Report, bool)> {
        let is_v4 = match self.connection(fd) {
            Ok(id) => (self.host.endpoint.path(id)).is_none_or(|path| path.remote.is_ipv4()),
            Err(_) => true,
        };
        let report = self.get(fd)?.reports.next().ok_or(Again)?;
        Ok((report, is_v4))
    }

    pub fn pipe(&mut self) -> [i32; 2] {
        self.pipes.push(VecDeque::new());
        let number = self.pipes.len() - 1;
        [(); 2].map(|()| self.add(Socket::Pipe(number), sysctl::config()))
    }

    /// Splices from a connection to a pipe, up to urgent data, which is not in its stream; or from
    /// a pipe to a connection.
    pub fn splice(&mut self, from: i32, to: i32, bytes: usize) -> Result<i64> {
        match (&self.get(from)?.socket, bytes) {
            (Socket::Pipe(number), _) => {
                let number = *number;
                let taken: Vec<u8> = self.pipes[number].iter().take(bytes).copied().collect();
                let written = self.write(to, &taken, Write::default())?;
                self.pipes[number].drain(..written as usize);
                Ok(written)
            }
            _ => {
                let Socket::Pipe(number) = self.get(to)?.socket else {
                    return Err(Errno(EINVAL));
                };
                let id = self.connection(from)?;
                let connection = self.host.endpoint.connection(id).ok_or(Errno(EBADF))?;
                let bytes = match connection.urgent() {
                    0 => bytes,
                    urgent => bytes.min(urgent as usize - 1),
                };
                let mut buffer = vec![0; bytes];
                let read = self.read(from, &mut buffer, false)?;
                self.pipes[number].extend(&buffer[..read as usize]);
                Ok(read)
            }
        }
    }
}
