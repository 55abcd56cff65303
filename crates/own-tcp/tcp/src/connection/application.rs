//! Calls of the application (RFC 9293 §3.10.2 to §3.10.5).

use std::time::Instant;

use super::ack::Read;
use super::checksums::Summing;
use super::timers::Timer;
use super::{Connection, Ended, State};
use crate::Piece;

/// Reason why a write failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The application closed writing; or the peer closed and then reset the connection (EPIPE, as
    /// in Linux).
    Closed,
    /// The connection ended.
    Ended(Ended),
}

/// Reason why a read failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// No data is available yet.
    Empty,
    /// The peer closed; no more data will arrive.
    Finished,
    /// The connection ended.
    Ended(Ended),
}

impl std::fmt::Display for WriteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("closed for writing"),
            Self::Ended(reason) => write!(f, "connection ended: {reason:?}"),
        }
    }
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => f.write_str("nothing to read yet"),
            Self::Finished => f.write_str("the peer has closed"),
            Self::Ended(reason) => write!(f, "connection ended: {reason:?}"),
        }
    }
}

impl std::error::Error for WriteError {}
impl std::error::Error for ReadError {}

impl Connection {
    /// Copies bytes into the send queue and returns how many fitted; 0 if the queue is full. Data
    /// written before the connection is established is sent afterwards.
    ///
    /// # Errors
    /// [`WriteError`] if the connection ended or is closed for writing.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, WriteError> {
        self.write_more(bytes, false)
    }

    /// Writes as [`write`](Self::write). With `more`, a partial segment at the end waits for the
    /// next write, but no longer than until the next acknowledgement, as in Linux (MSG_MORE).
    ///
    /// # Errors
    /// [`WriteError`] if the connection ended or is closed for writing.
    pub fn write_more(&mut self, bytes: &[u8], more: bool) -> Result<usize, WriteError> {
        self.check_write()?;
        let space = self.writable() as u32;
        let summing = self.config.sum_on_write.then_some(Summing {
            sent: self.snd.nxt.max(self.snd.queue.start()),
            mss: self.snd.mss,
        });
        let written = self.snd.queue.write(&self.pool, bytes, space, summing);
        (self.snd.more, self.snd.more_over) = (more, false);
        self.snd.wanted = written < bytes.len();
        Ok(written)
    }

    /// Queues a piece without copying it. Returns the part that did not fit; `None` if all fitted.
    ///
    /// # Errors
    /// [`WriteError`] if the connection ended or is closed for writing.
    pub fn write_piece(&mut self, piece: Piece) -> Result<Option<Piece>, WriteError> {
        self.write_piece_more(piece, false)
    }

    /// Writes as [`write_piece`](Self::write_piece), with `more` as in
    /// [`write_more`](Self::write_more).
    ///
    /// # Errors
    /// [`WriteError`] if the connection ended or is closed for writing.
    pub fn write_piece_more(
        &mut self,
        mut piece: Piece,
        more: bool,
    ) -> Result<Option<Piece>, WriteError> {
        self.check_write()?;
        let space = self.writable();
        (self.snd.more, self.snd.more_over) = (more, false);
        if piece.len() <= space {
            self.snd.queue.push(piece);
            return Ok(None);
        }
        self.snd.wanted = true;
        if space > 0 {
            self.snd.queue.push(piece.split_front(space));
        }
        Ok(Some(piece))
    }

    /// Ends a record at the last byte written: no segment carries bytes from before and after this
    /// point (MSG_EOR). Once more data is written, the record's last segment is sent even if it is
    /// small. It has PSH unless [`write_more`](Self::write_more) announced more data.
    pub fn end_record(&mut self) {
        let (end, pushed) = (self.snd.queue.end(), !self.snd.more);
        self.snd.queue.end_record(end, pushed);
    }

    pub(super) fn check_write(&self) -> Result<(), WriteError> {
        match (self.ended, self.snd.closed || !self.state.may_write()) {
            (Some(Ended::Reset), _) if self.rcv.finished => Err(WriteError::Closed),
            (Some(reason), _) => Err(WriteError::Ended(reason)),
            (None, true) => Err(WriteError::Closed),
            (None, false) => Ok(()),
        }
    }

    /// Copies received bytes into `to` and returns how many: at least 1 unless `to` is empty.
    ///
    /// # Errors
    /// [`ReadError`] if there is nothing to read.
    pub fn read(&mut self, to: &mut [u8], now: Instant) -> Result<usize, ReadError> {
        self.check_read()?;
        let read = self.rcv.queue.read(to);
        self.on_read(read, now);
        Ok(read)
    }

    /// Copies received bytes without consuming them (MSG_PEEK) and returns how many. Does not open
    /// the window.
    ///
    /// # Errors
    /// [`ReadError`] if there is nothing to read.
    pub fn peek(&self, to: &mut [u8]) -> Result<usize, ReadError> {
        self.check_read()?;
        Ok(self.rcv.queue.peek(to))
    }

    /// Takes the next received bytes without copying them, up to `max`.
    ///
    /// # Errors
    /// [`ReadError`] if there is nothing to read.
    pub fn read_piece(&mut self, max: usize, now: Instant) -> Result<Piece, ReadError> {
        self.check_read()?;
        let piece = self.rcv.queue.take_piece(max).unwrap_or_default();
        self.on_read(piece.len(), now);
        Ok(piece)
    }

    pub(super) fn check_read(&self) -> Result<(), ReadError> {
        if self.readable() > 0 {
            return Ok(());
        }
        match self.ended {
            _ if self.rcv.finished || self.rcv.discarded => Err(ReadError::Finished),
            Some(reason) => Err(ReadError::Ended(reason)),
            None if self.state == State::Closed => Err(ReadError::Finished),
            None => Err(ReadError::Empty),
        }
    }

    pub(super) fn on_read(&mut self, read: usize, now: Instant) {
        if self.rcv.urgent {
            self.settle_urgent();
        }
        self.tune_buffer(read, now);
        if !self.state.may_receive() {
            return;
        }
        let read = Read {
            unacked_bytes: self.rcv.nxt.since(self.rcv.acked),
            drained: self.rcv.queue.bytes() == 0,
            window_known: self.rcv.edge.since(self.rcv.nxt),
            window_new: self.window_free().min(self.window_max()),
            buffer: self.rcv.buffer.min(self.window_max()),
            full_segment_bytes: self.rcv.full_segment,
        };
        let decision = self.ack.on_read(&self.config.ack, &read);
        self.follow(decision);
    }

    /// Holds partial segments back, or releases them (TCP_CORK).
    pub fn cork(&mut self, cork: bool) {
        self.snd.cork = cork;
        if !cork {
            self.snd.more = false;
            self.snd.flush = self.unsent() > 0;
            self.timers.stop(Timer::Cork);
        }
    }

    /// Sends what was written now, even if it is small or corked. Later writes are held back as
    /// before.
    pub fn push(&mut self) {
        self.snd.flush = self.unsent() > 0;
        self.timers.stop(Timer::Cork);
    }

    /// Closes writing: a FIN follows the data written so far. Reading continues (half-close).
    pub fn close(&mut self) {
        if self.snd.closed {
            return;
        }
        self.snd.closed = true;
        match self.state {
            // RFC 9293 §3.10.4 drops the written data here. We send it first, because `write`
            // accepted it.
            State::SynSent if self.snd.queue.len() == 0 => self.end(None),
            State::Established => self.become_state(State::FinWait1),
            State::CloseWait => self.become_state(State::LastAck),
            // SYN-SENT and SYN-RECEIVED: the FIN follows after the handshake.
            _ => {}
        }
        self.debug_assert_invariants();
    }

    /// Ends reading for good: data that arrives later is answered with a reset. Resets the
    /// connection now if received data was not read (RFC 9293 §3.6.1; RFC 2525 §2.17).
    pub fn abandon(&mut self, now: Instant) {
        self.rcv.abandoned = true;
        if self.readable() > 0 {
            self.abort();
            return;
        }
        if self.state == State::FinWait2 {
            self.timers
                .start(Timer::TimeWait, now + self.config.time_wait);
        }
    }

    /// Ends reading without telling the peer (SHUT_RD): received and later data is acknowledged and
    /// dropped, and a read returns "finished". Writing continues.
    pub fn stop_reading(&mut self, now: Instant) {
        self.rcv.discarded = true;
        self.discard(now);
        self.debug_assert_invariants();
    }

    pub(super) fn discard(&mut self, now: Instant) {
        let bytes = self.rcv.queue.discard();
        if bytes > 0 {
            self.on_read(bytes, now);
        }
    }

    /// Sends a delayed acknowledgement now (TCP_QUICKACK). Does nothing if all data is
    /// acknowledged. To change the policy permanently use [`configure`](Self::configure).
    pub fn acknowledge_now(&mut self) {
        if self.state.is_synchronized() && self.rcv.acked != self.rcv.nxt {
            self.owe_ack();
        }
    }

    /// Limits later segments to `bytes` of payload and options (TCP_MAXSEG), at least 88 as in
    /// Linux. Segments in flight are not changed. The limit can only decrease.
    pub fn limit_mss(&mut self, bytes: u16) {
        let bytes = u32::from(bytes.max(MSS_LIMIT_MIN));
        if bytes < self.snd.mss_path {
            self.snd.mss_path = bytes;
            self.set_mss();
        }
        self.debug_assert_invariants();
    }

    /// Ends the connection at once, with a reset if the peer knows the connection.
    pub fn abort(&mut self) {
        let known = self.state.is_synchronized() || self.state == State::SynReceived;
        let reset = (known && self.state != State::TimeWait).then_some((self.snd.nxt, true));
        if self.state != State::Closed {
            self.end(Some(Ended::Aborted));
            self.owed.reset = reset;
        }
        self.rcv.queue = super::recv_queue::RecvQueue::default();
        self.debug_assert_invariants();
    }
}

/// Linux's TCP_MIN_MSS.
const MSS_LIMIT_MIN: u16 = 88;
