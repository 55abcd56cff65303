//! What one connection received goes to another, by reference: a relay's work (OpenBSD's SO_SPLICE, Klemkow 2020).

use std::time::Instant;

use super::{ConnId, Endpoint};
use crate::{Ended, ReadError, WriteError};

/// What a forward moved, and why it stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// Bytes that are in the other's send queue now.
    pub bytes: usize,
    /// Of these, bytes that were copied: those of small packets, each in a slab of its own, once a queue of them
    /// pins four times the send buffer.
    pub copied: usize,
    /// Why no more.
    pub stopped: Stopped,
}

/// Why a forward stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It moved as much as it was to, and there is more.
    Most,
    /// Nothing more has come: the source will be ready.
    Empty,
    /// The other's send queue takes no more: the sink will be ready.
    Full,
    /// The source's peer has closed, and all it sent is moved.
    Finished,
    /// The source ended, and all that could be read of it is moved. `None`: it is forgotten.
    SourceEnded(Option<Ended>),
    /// Nothing can be written any more; what was not moved is with the source. `None`: the sink is forgotten.
    SinkEnded(Option<WriteError>),
}

impl Endpoint {
    /// Moves received bytes of `from` into the send queue of `to`, at most `most` and what `to` has room for, in order
    /// and without copying. It is one read of `from`: its window opens, and its ACK policy is asked, as by a reader
    /// that takes so much. An end (FIN) is not passed on; `to` is closed by who forwards.
    pub fn forward(&mut self, from: ConnId, to: ConnId, most: usize, now: Instant) -> Forwarded {
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
        let mut pieces = std::mem::take(&mut self.forwarding);
        let taken = self.apply(from, |from| {
            from.take_pieces(room.min(most), &mut pieces, now)
        });
        let Some((bytes, nothing_more)) = taken else {
            self.forwarding = pieces;
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
                let copied = to.give_pieces(pieces.drain(..));
                if stopped == Stopped::Full {
                    to.want_room();
                }
                copied
            });
            copied = given.unwrap_or(0);
        }
        self.forwarding = pieces;
        Forwarded {
            bytes,
            copied,
            stopped,
        }
    }
}
