//! pread(2) of a file into a buffer, before the buffer is sent: what a server does that knows no sendfile.

use std::io;

use crate::error::StackError;
use crate::files::Files;
use crate::stack::Content;

/// One buffer, whatever the number of connections.
#[derive(Debug)]
pub(crate) struct Reader {
    files: Files,
    buffer: Vec<u8>,
    /// What of the content is in the buffer: `held` bytes from `held_at`. What a socket did not take is not read
    /// again if the next call goes on from there.
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

    /// The bytes of a call, which are read unless they are held; what `send` sends of them whole is read again next time,
    /// as a server's next file would be.
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
