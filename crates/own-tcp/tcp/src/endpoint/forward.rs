//! Forwarding of received data from one connection to another, for a relay (Klemkow 2020): without
//! copying, as OpenBSD's SO_SPLICE, or through a buffer, as a relay that reads and writes.

use std::time::Instant;

use super::{ConnId, Endpoint};
use crate::{Ended, Piece, ReadError, WriteError};

/// Result of [`Endpoint::forward`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// Bytes moved into the sink's send queue.
    pub bytes: usize,
    /// Part of `bytes` that was copied: all with a buffer; without one small packets, each in a
    /// slab of its own, when the queue pins more than four times the send buffer.
    pub copied: usize,
    /// Reason why no more was moved.
    pub stopped: Stopped,
}

/// Reason why a forward stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The limit was reached, and the source has more data.
    Most,
    /// The source has no more data yet; it will become ready.
    Empty,
    /// The sink's send queue is full; the sink will become ready.
    Full,
    /// The source's peer has closed, and all its data was moved.
    Finished,
    /// The source ended, and all its data was moved. `None`: the source does not exist any more.
    SourceEnded(Option<Ended>),
    /// The sink cannot be written; data not moved stays in the source. `None`: the sink does not
    /// exist any more.
    SinkEnded(Option<WriteError>),
}

/// Way of the bytes from the receive queue to the send queue.
enum Way<'a> {
    /// Pieces move, and their memory stays where it is.
    Pieces(Vec<Piece>),
    /// Bytes are copied into the buffer and out of it.
    Buffer(&'a mut [u8]),
}

impl Endpoint {
    /// Moves received bytes of `from` into the send queue of `to`, in order and without copying: at
    /// most `most`, and at most what `to` has room for. Counts as one read of `from`: its window
    /// opens and its ACK policy is asked. A FIN is not forwarded; the caller closes `to`.
    pub fn forward(&mut self, from: ConnId, to: ConnId, most: usize, now: Instant) -> Forwarded {
        let mut way = Way::Pieces(std::mem::take(&mut self.forwarding));
        let forwarded = self.carry(from, to, most, &mut way, now);
        if let Way::Pieces(pieces) = way {
            self.forwarding = pieces;
        }
        forwarded
    }

    /// Forwards as [`forward`](Self::forward), by one read into `buffer` and one write out of it.
    /// Reads no more than `to` has room for, so that the buffer is empty afterwards.
    pub fn forward_through(
        &mut self,
        from: ConnId,
        to: ConnId,
        buffer: &mut [u8],
        now: Instant,
    ) -> Forwarded {
        self.carry(from, to, buffer.len(), &mut Way::Buffer(buffer), now)
    }

    fn carry(
        &mut self,
        from: ConnId,
        to: ConnId,
        most: usize,
        way: &mut Way<'_>,
        now: Instant,
    ) -> Forwarded {
        let stopped = |stopped| Forwarded {
            bytes: 0,
            copied: 0,
            stopped,
        };
        let room = match self.connection(to).map(|to| to.room()) {
            Some(Ok(room)) => room,
            Some(Err(error)) => return stopped(Stopped::SinkEnded(Some(error))),
            None => return stopped(Stopped::SinkEnded(None)),
        };
        let most = room.min(most);
        let taken = self.apply(from, |from| match way {
            Way::Pieces(pieces) => from.take_pieces(most, pieces, now),
            Way::Buffer(buffer) => from.take_bytes(&mut buffer[..most], now),
        });
        let Some((bytes, nothing_more)) = taken else {
            return stopped(Stopped::SourceEnded(None));
        };
        let stopped = match nothing_more {
            Some(ReadError::Empty) => Stopped::Empty,
            Some(ReadError::Finished) => Stopped::Finished,
            Some(ReadError::Ended(reason)) => Stopped::SourceEnded(Some(reason)),
            None if bytes == room => Stopped::Full,
            None => Stopped::Most,
        };
        let mut copied = 0;
        if bytes > 0 || stopped == Stopped::Full {
            let given = self.apply(to, |to| {
                let copied = match way {
                    Way::Pieces(pieces) => to.give_pieces(pieces.drain(..)),
                    Way::Buffer(buffer) => to.give_bytes(&buffer[..bytes]),
                };
                if stopped == Stopped::Full {
                    to.want_room();
                }
                copied
            });
            copied = given.unwrap_or(0);
        }
        Forwarded {
            bytes,
            copied,
            stopped,
        }
    }
}
