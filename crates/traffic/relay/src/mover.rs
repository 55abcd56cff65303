//! Moves the bytes of one flow from its source socket to its sink socket, by copy or by splice.
//!
//! At most one piece is between the two: bytes read from the source and not yet accepted by the
//! sink. No more is read until that piece is gone, so a slow receiver fills the sender's receive
//! queue, closes its window, and slows the sender.

use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::pipe::{SpliceFlags, splice};
use tcpcost_knobs::RelayMode;

use crate::config::Config;
use crate::counters::{ByteCounters, WorkerCounters};
use crate::pipes::{Pipe, Pipes};
use crate::side::Side;

/// A worker's buffer and pipes, shared by all its connections.
pub(crate) struct Mover {
    buffer: Vec<u8>,
    pub(crate) pipes: Pipes,
    pipe_bytes: usize,
    mode: RelayMode,
    /// Bytes in buffers of flows, and the limit of them.
    held: usize,
    held_max: usize,
    pub(crate) now: Instant,
}

/// Method of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Copy,
    Splice,
}

/// Bytes read from the source and not yet accepted by the sink.
#[derive(Debug)]
enum Pending {
    None,
    Bytes(Box<[u8]>, usize),
    Piped(Pipe, usize),
}

/// State of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlowState {
    /// More bytes may come.
    Open,
    /// The flow has ended, and its end was passed on.
    Ended,
    /// The sink is gone.
    Broken,
}

/// One direction of a connection.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) state: FlowState,
    pending: Pending,
    method: Method,
    /// Successive reads whose size favours the other method.
    streak: u8,
    /// Bytes to peek at before they are read, set since the receiver was slow. `None`: the receiver
    /// accepts what comes.
    careful: Option<usize>,
}

/// Outcome of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Bytes that were moved.
    Moved(usize),
    /// The source has no bytes, or the sink accepts none: an event will follow.
    Blocked,
    /// The source has ended.
    End,
    /// The source is gone.
    SourceGone(Errno),
    /// The sink is gone.
    SinkGone(Errno),
}

impl Flow {
    fn has_pending(&self) -> bool {
        !matches!(self.pending, Pending::None)
    }

    /// True if, as far as is known, the source has bytes and the sink accepts some.
    pub(crate) fn may_go_on(&self, from: &Side, to: &Side) -> bool {
        to.writable && (self.has_pending() || from.readable)
    }
}

impl Mover {
    pub(crate) fn new(config: &Config, now: Instant) -> Mover {
        Mover {
            buffer: vec![0; config.buffer_bytes],
            pipes: Pipes::new(config.pipes_max, config.pipe_bytes),
            pipe_bytes: config.pipe_bytes,
            mode: config.mode,
            held: 0,
            held_max: config.held_bytes,
            now,
        }
    }

    /// Largest copy, bytes.
    pub(crate) fn piece(&self) -> usize {
        self.buffer.len()
    }

    /// A new flow.
    pub(crate) fn flow(&self) -> Flow {
        Flow {
            state: FlowState::Open,
            pending: Pending::None,
            method: match self.mode {
                RelayMode::Splice => Method::Splice,
                _ => Method::Copy,
            },
            streak: 0,
            careful: None,
        }
    }

    /// Moves a piece, or returns the reason why not.
    pub(crate) fn advance(
        &mut self,
        flow: &mut Flow,
        from: &mut Side,
        to: &mut Side,
        moved: &ByteCounters,
        counters: &WorkerCounters,
    ) -> Outcome {
        if !flow.may_go_on(from, to) {
            return Outcome::Blocked;
        }
        if flow.has_pending() {
            return self.give(flow, to, moved, counters);
        }
        if flow.method == Method::Copy || from.has_urgent {
            return self.copy(flow, from, to, moved, counters);
        }
        match self.pipes.lend(self.now) {
            Some(pipe) => self.splice(flow, pipe, from, to, moved, counters),
            None => {
                counters.pipe_shortages.add(1);
                self.copy(flow, from, to, moved, counters)
            }
        }
    }

    /// Reads and drops up to `most` bytes.
    pub(crate) fn discard(&mut self, from: &mut Side, most: usize) -> Outcome {
        let most = most.min(self.buffer.len());
        match recv(&from.socket, &mut self.buffer[..most], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Outcome::End,
            Ok((_, taken)) => Outcome::Moved(taken),
            Err(error) => on_read_error(from, error),
        }
    }

    /// Drops the pending bytes and counts them as abandoned.
    pub(crate) fn abandon(&mut self, flow: &mut Flow, moved: &ByteCounters) {
        match std::mem::replace(&mut flow.pending, Pending::None) {
            Pending::None => {}
            Pending::Bytes(bytes, at) => {
                self.held -= bytes.len();
                moved.abandoned.add((bytes.len() - at) as u64);
            }
            Pending::Piped(pipe, left) => {
                self.pipes.destroy(pipe);
                moved.abandoned.add(left as u64);
            }
        }
    }

    fn copy(
        &mut self,
        flow: &mut Flow,
        from: &mut Side,
        to: &mut Side,
        moved: &ByteCounters,
        counters: &WorkerCounters,
    ) -> Outcome {
        if flow.careful.is_some() || self.held >= self.held_max {
            return self.copy_what_is_taken(flow, from, to, moved, counters);
        }
        let taken = match recv(&from.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Outcome::End,
            Ok((_, taken)) => taken,
            Err(error) => return on_read_error(from, error),
        };
        if taken < self.buffer.len() && !from.may_have_more {
            // The queue was empty; epoll reports new bytes.
            from.readable = false;
        }
        self.learn(flow, from, taken, counters);
        match give_all(to, &self.buffer[..taken]) {
            Ok(given) => {
                moved.copied.add(given as u64);
                if given < taken {
                    self.held += taken - given;
                    flow.pending = Pending::Bytes(self.buffer[given..taken].into(), 0);
                    stalled(flow, given, counters);
                }
                Outcome::Moved(given)
            }
            Err((given, error)) => {
                moved.copied.add(given as u64);
                moved.abandoned.add((taken - given) as u64);
                Outcome::SinkGone(error)
            }
        }
    }

    /// Peeks at the bytes, and removes from the receive queue what the sink accepted. The rest
    /// stays in the kernel, which accounts for it. This costs one system call more than
    /// [`Mover::copy`], but no memory of this process, however many receivers are slow.
    fn copy_what_is_taken(
        &mut self,
        flow: &mut Flow,
        from: &mut Side,
        to: &mut Side,
        moved: &ByteCounters,
        counters: &WorkerCounters,
    ) -> Outcome {
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        // Peeking copies, so the size is not much more than the sink will accept.
        let most = flow.careful.unwrap_or(CAREFUL_MIN).min(self.buffer.len());
        let seen = match recv(&from.socket, &mut self.buffer[..most], flags) {
            Ok((_, 0)) => return Outcome::End,
            Ok((_, seen)) => seen,
            Err(error) => return on_read_error(from, error),
        };
        let (given, broken) = match give_all(to, &self.buffer[..seen]) {
            Ok(given) => (given, None),
            Err((given, error)) => (given, Some(error)),
        };
        if given > 0 {
            // On TCP MSG_TRUNC drops the bytes without a copy (tcp(7)); on a unix socket they are
            // read again.
            let mut flags = RecvFlags::DONTWAIT;
            flags.set(RecvFlags::TRUNC, from.is_tcp);
            let mut left = given;
            while left > 0 {
                match recv(&from.socket, &mut self.buffer[..left], flags) {
                    Ok((_, 0)) | Err(_) => break, // Only a reset removes the peeked bytes.
                    Ok((_, bytes)) => left -= bytes,
                }
            }
            moved.copied.add(given as u64);
        }
        if let Some(error) = broken {
            return Outcome::SinkGone(error);
        }
        self.learn(flow, from, seen, counters);
        if given < seen {
            stalled(flow, given, counters);
        } else {
            flow.careful = (2 * most < self.buffer.len()).then_some(2 * most);
            if seen < most && !from.may_have_more {
                from.readable = false;
            }
        }
        match given {
            0 => Outcome::Blocked,
            given => Outcome::Moved(given),
        }
    }

    fn splice(
        &mut self,
        flow: &mut Flow,
        pipe: Pipe,
        from: &mut Side,
        to: &mut Side,
        moved: &ByteCounters,
        counters: &WorkerCounters,
    ) -> Outcome {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        let most = self.pipe_bytes.max(SPLICE_MAX);
        let taken = match splice(&from.socket, None, &pipe.write, None, most, flags) {
            Ok(taken) => taken,
            Err(error) => {
                self.pipes.take_back(pipe);
                return match error {
                    Errno::INVAL | Errno::OPNOTSUPP => {
                        // Sockets that cannot splice (TLS in the kernel, old unix sockets): copy
                        // from now on.
                        flow.method = Method::Copy;
                        self.copy(flow, from, to, moved, counters)
                    }
                    error => on_read_error(from, error),
                };
            }
        };
        if taken == 0 {
            self.pipes.take_back(pipe);
            // Either the end, or the mark of urgent data: in that case recv(2) finds what follows
            // it.
            from.has_urgent = true;
            return self.copy(flow, from, to, moved, counters);
        }
        if taken < pipe.slots && !from.may_have_more {
            // Each slot in use has at least a byte, so some slots were free: the queue was empty.
            from.readable = false;
        }
        self.learn(flow, from, taken, counters);
        match pour(&pipe, to, taken) {
            Ok(given) => {
                moved.spliced.add(given as u64);
                if given < taken {
                    flow.pending = Pending::Piped(pipe, taken - given);
                    stalled(flow, given, counters);
                } else {
                    self.pipes.take_back(pipe);
                }
                Outcome::Moved(given)
            }
            Err((given, error)) => {
                self.pipes.destroy(pipe);
                moved.spliced.add(given as u64);
                moved.abandoned.add((taken - given) as u64);
                Outcome::SinkGone(error)
            }
        }
    }

    /// Moves pending bytes to the sink, as many as it accepts.
    fn give(
        &mut self,
        flow: &mut Flow,
        to: &mut Side,
        moved: &ByteCounters,
        counters: &WorkerCounters,
    ) -> Outcome {
        let (given, is_all, broken) = match &mut flow.pending {
            Pending::None => return Outcome::Moved(0),
            Pending::Bytes(bytes, at) => {
                let (given, broken) = match give_all(to, &bytes[*at..]) {
                    Ok(given) => (given, None),
                    Err((given, error)) => (given, Some(error)),
                };
                moved.copied.add(given as u64);
                *at += given;
                (given, *at == bytes.len(), broken)
            }
            Pending::Piped(pipe, left) => {
                let (given, broken) = match pour(pipe, to, *left) {
                    Ok(given) => (given, None),
                    Err((given, error)) => (given, Some(error)),
                };
                moved.spliced.add(given as u64);
                *left -= given;
                (given, *left == 0, broken)
            }
        };
        if let Some(error) = broken {
            return Outcome::SinkGone(error);
        }
        if is_all {
            match std::mem::replace(&mut flow.pending, Pending::None) {
                Pending::None => {}
                Pending::Bytes(bytes, _) => self.held -= bytes.len(),
                Pending::Piped(pipe, _) => self.pipes.take_back(pipe),
            }
        } else {
            stalled(flow, given, counters);
        }
        match given {
            0 => Outcome::Blocked,
            given => Outcome::Moved(given),
        }
    }

    /// Changes the method (mode `auto`) after [`STREAK`] successive reads that would have cost less
    /// with the other method.
    fn learn(&mut self, flow: &mut Flow, from: &Side, taken: usize, counters: &WorkerCounters) {
        if self.mode != RelayMode::Auto || from.has_urgent {
            return;
        }
        let speaks_for_other = match flow.method {
            Method::Copy => taken >= SPLICE_FROM,
            Method::Splice => taken < COPY_BELOW,
        };
        flow.streak = if speaks_for_other { flow.streak + 1 } else { 0 };
        if flow.streak >= STREAK {
            flow.streak = 0;
            flow.method = match flow.method {
                Method::Copy => Method::Splice,
                Method::Splice => Method::Copy,
            };
            counters.switches.add(1);
        }
    }
}

fn stalled(flow: &mut Flow, given: usize, counters: &WorkerCounters) {
    flow.careful = Some(given.max(CAREFUL_MIN));
    counters.stalls.add(1);
}

fn on_read_error(from: &mut Side, error: Errno) -> Outcome {
    match error {
        Errno::AGAIN => {
            from.readable = false;
            Outcome::Blocked
        }
        Errno::INTR => Outcome::Moved(0),
        error => Outcome::SourceGone(error),
    }
}

/// Sends until all bytes are sent or the sink accepts no more. An error comes with the bytes sent
/// before it.
fn give_all(to: &mut Side, bytes: &[u8]) -> Result<usize, (usize, Errno)> {
    let mut given = 0;
    while given < bytes.len() {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(&to.socket, &bytes[given..], flags) {
            Ok(sent) => given += sent,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                to.writable = false;
                break;
            }
            Err(error) => return Err((given, error)),
        }
    }
    Ok(given)
}

/// Splices from a pipe until `bytes` are sent or the sink accepts no more. An error comes with the
/// bytes sent before it.
fn pour(pipe: &Pipe, to: &mut Side, bytes: usize) -> Result<usize, (usize, Errno)> {
    let mut given = 0;
    while given < bytes {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        match splice(&pipe.read, None, &to.socket, None, bytes - given, flags) {
            Ok(sent) => given += sent,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                to.writable = false;
                break;
            }
            Err(error) => return Err((given, error)),
        }
    }
    Ok(given)
}

// Constants of `auto`, measured by bench/relay --crossover (figures in docs/relay.md).
/// Size of a read, bytes, from which splicing costs less: 0.77 of a copy with one flow, 0.86 with a
/// hundred.
const SPLICE_FROM: usize = 16 << 10;
/// Size of a read, bytes, below which copying costs less with many flows (splicing 4 KiB: 1.14 of a
/// copy; 1 KiB: 1.18). Smaller than [`SPLICE_FROM`], so that a flow in between keeps its method.
const COPY_BELOW: usize = 8 << 10;
/// Successive reads that must agree: one large message among small ones is no bulk flow.
const STREAK: u8 = 4;
/// Fewest bytes to peek at for a flow whose receiver is slow. The number doubles each time that all
/// of them were accepted.
const CAREFUL_MIN: usize = 4 << 10;
/// Limit of bytes of a splice. A slot can hold a whole fragment of 32 KiB, so a pipe may take more
/// than its size suggests.
const SPLICE_MAX: usize = 1 << 20;
