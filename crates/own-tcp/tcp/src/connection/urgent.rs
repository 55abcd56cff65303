//! Urgent mechanism (RFC 9293 §3.8.5, RFC 6093): a pointer into the byte stream. Urgent bytes stay
//! in the stream, as RFC 6093 §3.1 recommends and as in Linux with SO_OOBINLINE.
//!
//! Not implemented: reading one byte out of band, as sockets do by default.

use super::{Connection, WriteError};
use crate::wire::{Flags, Segment};

impl Connection {
    /// Copies bytes into the send queue and tells the peer that everything written up to their end
    /// is urgent (MUST-31: any length). Returns how many bytes fitted. New applications should not
    /// use urgent data (RFC 6093 §5).
    ///
    /// # Errors
    /// [`WriteError`] if the connection ended or is closed for writing.
    pub fn write_urgent(&mut self, bytes: &[u8]) -> Result<usize, WriteError> {
        let written = self.write(bytes)?;
        if written > 0 {
            self.snd.up = self.snd.queue.end();
            self.snd.urgent = true;
        }
        Ok(written)
    }

    /// Number of bytes until the end of the peer's urgent data, whether they have arrived or not
    /// (MUST-33); 0 if there is no urgent data. New urgent data makes the connection ready
    /// (MUST-32).
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

    /// Processes the URG bit, sixth step of RFC 9293 §3.10.7.4.
    #[cold]
    pub(super) fn take_urgent(&mut self, segment: &Segment) {
        let up = segment.seq + u32::from(segment.urgent);
        let news = up.after(self.rcv.nxt) && (!self.rcv.urgent || up.after(self.rcv.up));
        if self.state.may_receive() && segment.urgent > 0 && news {
            (self.rcv.up, self.rcv.urgent) = (up, true);
        }
    }

    /// Sets the urgent pointer of a segment that leaves (RFC 9293 §3.8.5). Ends urgent mode once
    /// the urgent data is acknowledged. A pointer that does not fit is set to its maximum.
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

    /// Ends urgent mode once the application has read the urgent data.
    #[cold]
    pub(super) fn settle_urgent(&mut self) {
        self.rcv.urgent = self.urgent() > 0;
    }
}
