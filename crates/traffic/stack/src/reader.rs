//! pread(2) of a file into a buffer that is then sent, as a server does that does not use sendfile.

use std::io;

use crate::error::StackError;
use crate::files::Files;
use crate::stack::Content;

/// Files and one buffer, whatever the number of connections.
#[derive(Debug)]
pub(crate) struct Reader {
    files: Files,
    buffer: Vec<u8>,
    /// Content of the buffer: `held` bytes from `held_at`. Bytes that a socket did not take are not
    /// read again if the next call continues there.
    held_at: u64,
    held: usize,
}

impl Reader {
    pub(crate) fn new(content: &mut Content<'_>) -> Result<Reader, StackError> {
        Ok(Reader {
            files: Files::on_disk(content)?,
            buffer: vec![0; content.call_bytes],
            held_at: 0,
            held: 0,
        })
    }

    /// Passes the bytes of a call to `send`, and reads them first unless the buffer holds them.
    /// After a complete send the same bytes are read again next time, as a server's next file would
    /// be.
    pub(crate) fn send(
        &mut self,
        at: u64,
        len: usize,
        send: impl FnOnce(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let is_held = at >= self.held_at && at + len as u64 <= self.held_at + self.held as u64;
        if !is_held {
            self.read(at, len)?;
        }
        let from = (at - self.held_at) as usize;
        let sent = send(&self.buffer[from..from + len])?;
        if sent == len {
            self.held = 0;
        }
        Ok(sent)
    }

    fn read(&mut self, at: u64, len: usize) -> io::Result<()> {
        let (file, offset) = self.files.file(at)?;
        let wanted = self
            .buffer
            .get_mut(..len)
            .ok_or(io::ErrorKind::InvalidInput)?;
        self.held_at = at;
        self.held = 0;
        while self.held < len {
            let from = offset + self.held as u64;
            match rustix::io::pread(file, &mut wanted[self.held..], from)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.held += read,
            }
        }
        Ok(())
    }

    pub(crate) fn files(&self) -> &Files {
        &self.files
    }
}
