//! Moves the bytes of open connections by io_uring. A flow receives into a provided buffer, sends
//! from it, and receives again once all was sent; send and next receive are one submission.
//!
//! If a receiver does not accept all bytes, the rest is sent from a box of its size. From then on
//! smaller receives are asked for, so that slow receivers do not hold buffers that other flows
//! need.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use tcpcost_stack::{Ring, RingCompletion};

use super::Kernel;
use crate::config::Config;
use crate::counters::{Direction, Ending, WorkerCounters};
use crate::mover::{FlowState, Outcome};
use crate::side::Side;
use crate::worker::{Connection, Step};

/// A worker's ring, and the state of the flows that use it.
pub(crate) struct Uring {
    pub(crate) ring: Ring,
    /// Flows that found no free buffer.
    starved: VecDeque<(usize, Direction)>,
    /// Connections that have ended but for operations in flight.
    closing: HashMap<usize, Closing>,
    /// Bytes in boxes.
    held: usize,
    held_max: usize,
    buffer_bytes: usize,
    completions: Vec<RingCompletion>,
}

/// Parts of an ended connection that are kept until none of its operations is in flight.
pub(crate) struct Closing {
    pub(crate) client: Side,
    pub(crate) server: Option<Side>,
    pub(crate) ending: Ending,
    in_flight: usize,
    buffers: Vec<u16>,
}

/// State of one direction of a connection.
#[derive(Debug, Default)]
pub(crate) struct RingFlow {
    receiving: bool,
    sending: Option<Sending>,
    /// Limit of a receive, bytes, set since the receiver did not accept all.
    careful: Option<usize>,
}

/// Source of a send in flight: a buffer, or a box with the rest of one.
#[derive(Debug)]
enum Sending {
    Buffer { buffer: u16, bytes: usize },
    Boxed { at: usize, bytes: usize },
}

/// Meaning of a completion.
pub(crate) enum Event {
    /// The descriptor of [`Uring::poll`] is readable.
    Readable,
    /// An operation of an open connection completed.
    Direction(usize, Direction, RingCompletion),
    /// The last operation of an ended connection completed.
    Closed(usize, Closing),
}

impl Uring {
    /// Makes a ring with [`BUFFERS`] buffers.
    ///
    /// # Errors
    /// io_uring is not available to this process.
    pub(crate) fn new(config: &Config) -> io::Result<Uring> {
        Ok(Uring {
            ring: Ring::new(BUFFERS, config.buffer_bytes).map_err(io::Error::other)?,
            starved: VecDeque::new(),
            closing: HashMap::new(),
            held: 0,
            held_max: config.held_bytes,
            buffer_bytes: config.buffer_bytes,
            completions: Vec::new(),
        })
    }

    /// Yields [`Event::Readable`] when the descriptor is readable.
    pub(crate) fn poll(&mut self, descriptor: impl std::os::fd::AsFd) {
        self.ring.poll(descriptor, READABLE);
    }

    /// Waits for completions.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Vec<RingCompletion>> {
        let mut completions = std::mem::take(&mut self.completions);
        completions.clear();
        self.ring.enter(timeout, &mut completions)?;
        Ok(completions)
    }

    /// Takes the list of [`Uring::wait`] back, to use its memory again.
    pub(crate) fn reuse(&mut self, completions: Vec<RingCompletion>) {
        self.completions = completions;
    }

    /// Finds the event of a completion. `None` if there is nothing to do.
    pub(crate) fn event(&mut self, completion: RingCompletion) -> Option<Event> {
        let token = completion.token;
        if token == READABLE {
            return Some(Event::Readable);
        }
        if token == CANCEL {
            return None;
        }
        let index = (token >> 2) as usize;
        let direction = Direction::ALL[(token >> 1 & 1) as usize];
        let Some(closing) = self.closing.get_mut(&index) else {
            return Some(Event::Direction(index, direction, completion));
        };
        if let Some(buffer) = completion.buffer {
            self.ring.give_back(buffer);
        }
        if let Some(bytes) = self.ring.take_box(token) {
            self.held -= bytes.len();
        }
        closing.in_flight -= 1;
        if closing.in_flight > 0 {
            return None;
        }
        let closing = self.closing.remove(&index)?;
        for &buffer in &closing.buffers {
            self.ring.give_back(buffer);
        }
        Some(Event::Closed(index, closing))
    }

    /// Starts both flows of a connection.
    pub(crate) fn begin(&mut self, index: usize, connection: &mut Connection<Kernel>) {
        for direction in Direction::ALL {
            self.receive(index, direction, connection);
        }
    }

    /// Removes and returns starved flows for which a buffer is free now, the longest waiting first.
    pub(crate) fn fed(&mut self) -> Vec<(usize, Direction)> {
        let count = self.starved.len().min(self.ring.free());
        self.starved.drain(..count).collect()
    }

    /// True if another starved flow can be served before an operation completes: the flows served
    /// last may have had no bytes.
    pub(crate) fn can_feed(&self) -> bool {
        !self.starved.is_empty() && self.ring.free() > 0
    }

    /// Asks for more bytes of a flow; after the flows that wait for a buffer, if there are any.
    fn receive(&mut self, index: usize, direction: Direction, connection: &mut Connection<Kernel>) {
        match self.starved.is_empty() {
            true => self.ask(index, direction, connection, false),
            false => self.starved.push_back((index, direction)),
        }
    }

    /// Asks for bytes at once. `waits`: the socket is known to be empty, so the kernel polls before
    /// it takes a buffer.
    pub(crate) fn ask(
        &mut self,
        index: usize,
        direction: Direction,
        connection: &mut Connection<Kernel>,
        waits: bool,
    ) {
        let Some(server) = &connection.server else {
            return;
        };
        let from = match direction {
            Direction::ToServer => &connection.client,
            Direction::ToClient => server,
        };
        let flow = &mut connection.flows.ring[direction as usize];
        if flow.receiving || connection.flows.moved[direction as usize].state != FlowState::Open {
            return;
        }
        flow.receiving = true;
        let most = match self.held >= self.held_max {
            true => CAREFUL_MIN,
            false => flow.careful.unwrap_or(self.buffer_bytes),
        };
        let token = token(index, direction, RECEIVE);
        self.ring.receive(&from.socket, most, waits, token);
    }

    /// Handles a completed operation of a flow.
    pub(crate) fn advance(
        &mut self,
        index: usize,
        direction: Direction,
        completion: RingCompletion,
        connection: &mut Connection<Kernel>,
        counters: &WorkerCounters,
    ) -> Step {
        let is_send = completion.token & 1 == SEND;
        let outcome = match is_send {
            true => self.sent(index, direction, completion, connection, counters),
            false => self.received(index, direction, completion, connection),
        };
        match outcome {
            Outcome::Moved(_) | Outcome::Blocked => Step::Wait,
            Outcome::SinkGone(error) => {
                // The other flow, which is receiving, reads the bytes that the sink sent before.
                connection.on_outcome(direction, Outcome::SinkGone(error))
            }
            outcome => connection.on_outcome(direction, outcome),
        }
    }

    fn received(
        &mut self,
        index: usize,
        direction: Direction,
        completion: RingCompletion,
        connection: &mut Connection<Kernel>,
    ) -> Outcome {
        let flow = &mut connection.flows.ring[direction as usize];
        flow.receiving = false;
        let bytes = match completion.result {
            0 => {
                if let Some(buffer) = completion.buffer {
                    self.ring.give_back(buffer);
                }
                return Outcome::End;
            }
            bytes if bytes > 0 => bytes as usize,
            error => {
                return match -error {
                    // The send before this receive was partial. The flow continues after the rest
                    // is sent; if it is sent already, now.
                    libc::ECANCELED if flow.sending.is_some() => Outcome::Blocked,
                    libc::ECANCELED => {
                        self.receive(index, direction, connection);
                        Outcome::Blocked
                    }
                    libc::ENOBUFS => {
                        self.starved.push_back((index, direction));
                        Outcome::Blocked
                    }
                    libc::EAGAIN | libc::EINTR => {
                        self.ask(index, direction, connection, true);
                        Outcome::Blocked
                    }
                    error => Outcome::SourceGone(Errno::from_raw_os_error(error)),
                };
            }
        };
        let buffer = completion.buffer.expect("bytes are in a buffer");
        if connection.flows.moved[direction as usize].state == FlowState::Broken {
            self.ring.give_back(buffer);
            let moved = &connection.counters.moved[direction as usize];
            moved.abandoned.add(bytes as u64);
            return Outcome::Blocked;
        }
        flow.sending = Some(Sending::Buffer { buffer, bytes });
        let Some(server) = &connection.server else {
            return Outcome::Blocked;
        };
        let to = match direction {
            Direction::ToServer => server,
            Direction::ToClient => &connection.client,
        };
        // If other flows wait for a buffer, this flow waits after them, once the bytes are sent.
        let then_next = self.starved.is_empty();
        let token = token(index, direction, SEND);
        self.ring
            .send_buffer(&to.socket, buffer, 0..bytes, then_next, token);
        if then_next {
            self.ask(index, direction, connection, !completion.has_more);
        }
        Outcome::Moved(bytes)
    }

    fn sent(
        &mut self,
        index: usize,
        direction: Direction,
        completion: RingCompletion,
        connection: &mut Connection<Kernel>,
        counters: &WorkerCounters,
    ) -> Outcome {
        let flow = &mut connection.flows.ring[direction as usize];
        let moved = &connection.counters.moved[direction as usize];
        let given = usize::try_from(completion.result).unwrap_or(0);
        let error = match -completion.result {
            libc::EAGAIN | libc::EINTR => None,
            error => (error > 0).then(|| Errno::from_raw_os_error(error)),
        };
        moved.copied.add(given as u64);
        let sink = match (direction, &connection.server) {
            (Direction::ToClient, _) => &connection.client,
            (Direction::ToServer, Some(server)) => server,
            (Direction::ToServer, None) => return Outcome::Blocked,
        };
        match flow.sending.take() {
            None => {}
            Some(Sending::Buffer { buffer, bytes }) => {
                let rest = match given < bytes && error.is_none() {
                    true => Some(Box::from(self.ring.bytes(buffer, given..bytes))),
                    false => None,
                };
                self.ring.give_back(buffer);
                if let Some(error) = error {
                    moved.abandoned.add((bytes - given) as u64);
                    return Outcome::SinkGone(error);
                }
                if let Some(rest) = rest {
                    counters.stalls.add(1);
                    flow.careful = Some(given.max(CAREFUL_MIN));
                    flow.sending = Some(Sending::Boxed {
                        at: 0,
                        bytes: bytes - given,
                    });
                    self.held += bytes - given;
                    let token = token(index, direction, SEND);
                    self.ring.send_box(&sink.socket, rest, 0, token);
                    return Outcome::Moved(given);
                }
                let more = flow.careful.map(|most| 2 * most);
                flow.careful = more.filter(|&most| most < self.buffer_bytes);
            }
            Some(Sending::Boxed { at, bytes }) => {
                let rest = self.ring.take_box(completion.token);
                if let Some(error) = error {
                    self.held -= bytes;
                    moved.abandoned.add((bytes - at - given) as u64);
                    return Outcome::SinkGone(error);
                }
                let at = at + given;
                match rest.filter(|_| at < bytes) {
                    Some(rest) => {
                        flow.sending = Some(Sending::Boxed { at, bytes });
                        let token = token(index, direction, SEND);
                        self.ring.send_box(&sink.socket, rest, at, token);
                        return Outcome::Moved(given);
                    }
                    None => self.held -= bytes,
                }
            }
        }
        // A receive that was linked to this send is in flight already, or was cancelled.
        self.receive(index, direction, connection);
        Outcome::Moved(given)
    }

    /// Cancels operations in flight of an ended connection, and keeps its sides until
    /// [`Event::Closed`]. Returns the connection if no operation is in flight.
    pub(crate) fn close(
        &mut self,
        index: usize,
        connection: Box<Connection<Kernel>>,
        ending: Ending,
    ) -> Option<Box<Connection<Kernel>>> {
        let mut in_flight = 0;
        let mut buffers = Vec::new();
        for (flow, moved) in connection.flows.ring.iter().zip(&connection.counters.moved) {
            in_flight += usize::from(flow.receiving);
            match flow.sending {
                None => {}
                Some(Sending::Buffer { buffer, bytes }) => {
                    in_flight += 1;
                    buffers.push(buffer);
                    moved.abandoned.add(bytes as u64);
                }
                Some(Sending::Boxed { at, bytes }) => {
                    in_flight += 1;
                    moved.abandoned.add((bytes - at) as u64);
                }
            }
        }
        self.starved.retain(|(other, _)| *other != index);
        if in_flight == 0 {
            return Some(connection);
        }
        self.ring.cancel_all(&connection.client.socket, CANCEL);
        if let Some(server) = &connection.server {
            self.ring.cancel_all(&server.socket, CANCEL);
        }
        let closing = Closing {
            client: connection.client,
            server: connection.server,
            ending,
            in_flight,
            buffers,
        };
        self.closing.insert(index, closing);
        None
    }
}

fn token(index: usize, direction: Direction, kind: u64) -> u64 {
    (index as u64) << 2 | (direction as u64) << 1 | kind
}

const RECEIVE: u64 = 0;
const SEND: u64 = 1;
const READABLE: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;
/// Buffers: 16 MiB at 64 KiB each; memory is touched as it is used.
const BUFFERS: u16 = 256;
/// Least limit of a receive whose receiver was slow, bytes. The limit is what the receiver
/// accepted, if that is more, and doubles after each complete send, as in `mover.rs`.
const CAREFUL_MIN: usize = 4 << 10;
