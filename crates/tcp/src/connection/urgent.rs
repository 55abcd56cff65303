//! The urgent mechanism (RFC 9293 §3.8.5, RFC 6093): a pointer into the byte stream, in which urgent bytes
//! stay where they are (RFC 6093 §3.1 has them read so; Linux with SO_OOBINLINE).
//!
//! Not here: one byte out of band, as sockets take it out by default.

use super::{Connection, WriteError};
use crate::wire::{Flags, Segment};

impl Connection {
    /// Copies bytes into the send queue and tells the peer that what is written up to their end is urgent
    /// (MUST-31: however much that is); returns how many fitted. For applications that have it already:
    /// new ones should not use it (RFC 6093 §5).
    ///
    /// # Errors
    /// When nothing can be written any more.
    pub fn write_urgent(&mut self, bytes: &[u8]) -> Result<usize, WriteError> {
        let written = self.write(bytes)?;
        if written > 0 {
            self.snd.up = self.snd.queue.end();
            self.snd.urgent = true;
        }
        Ok(written)
    }

    /// Bytes that can be read, or will come, up to the end of what the peer calls urgent (MUST-33); 0 where
    /// nothing is. That there is some at all is told as readiness (MUST-32).
    pub fn urgent(&self) -> u32 {
        if !self.rcv.urgent {
            return 0;
        }
        let read = self.rcv.nxt - self.rcv.queue.bytes();
        if self.rcv.up.after(read) {
            self.rcv.up.since(read)
        } else {
            0
        }
    }

    /// RFC 9293 §3.10.7.4, sixth.
    #[cold]
    pub(super) fn take_urgent(&mut self, segment: &Segment) {
        let up = segment.seq + u32::from(segment.urgent);
        let news = up.after(self.rcv.nxt) && (!self.rcv.urgent || up.after(self.rcv.up));
        if self.state.may_receive() && segment.urgent > 0 && news {
            (self.rcv.up, self.rcv.urgent) = (up, true);
        }
    }

    /// Marks a segment on its way out (RFC 9293 §3.8.5) and forgets what is acknowledged. A pointer that
    /// does not fit says the most it can.
    #[cold]
    pub(super) fn mark_urgent(&mut self, segment: &mut Segment) {
        if self.snd.up.at_or_before(self.snd.una) {
            self.snd.urgent = false;
        } else if self.snd.up.after(segment.seq) {
            let ahead = self.snd.up.since(segment.seq);
            segment.urgent = u16::try_from(ahead).unwrap_or(u16::MAX);
            segment.flags = segment.flags | Flags::URG;
        }
    }

    /// What was urgent has been read.
    #[cold]
    pub(super) fn settle_urgent(&mut self) {
        self.rcv.urgent = self.urgent() > 0;
    }
}
