//! `crr`: connect, request, response, close, and again.
//!
//! The server closes first, so TIME_WAIT stays at the server and the client's ports are free at
//! once. The client waits for the end of the stream before it closes and connects again.

use std::io;

use tcpcost_stack::Stack;

use crate::error::WorkloadError;
use crate::flow::State;
use crate::io::{Received, TURN_BYTES};
use crate::set_up::is_of_one_connection;
use crate::stream::peer_closed;
use crate::worker::Worker;

/// Accepts in a row, so that accepted connections are served between them.
const ACCEPTS: usize = 64;

impl<S: Stack> Worker<S> {
    /// Starts a transaction with its connect.
    pub(crate) fn start_transaction(
        &mut self,
        index: usize,
        at_ns: u64,
    ) -> Result<(), WorkloadError> {
        let group = &mut self.io.group;
        group.started_ns[index - group.first] = at_ns;
        self.connect_flow(index)
            .map_err(|error| WorkloadError::Connect {
                connection: self.flows[index].connection,
                error,
            })
    }

    pub(crate) fn crr_client_turn(&mut self, index: usize) -> Result<usize, WorkloadError> {
        let flow = &mut self.flows[index];
        let Some(conn) = flow.conn else {
            return self.next_transaction(index).map(|()| 0);
        };
        if flow.state == State::Connecting {
            if !flow.writable {
                return Ok(0);
            }
            // If the connect failed, the first send returns its error: one getsockopt less per
            // transaction.
            self.io.group.tally.connections_opened += 1;
            flow.state = State::Open;
            flow.receive_left = self.io.group.plan.receive_message;
            self.io.start_message(flow)?;
        }
        let mut moved = 0;
        if flow.send_left > 0 {
            moved += self.io.send_message(flow)?;
        }
        while flow.readable && moved < TURN_BYTES {
            match self.io.receive(flow)? {
                Received::Bytes(bytes) if flow.state == State::Open => {
                    moved += bytes;
                    flow.receive_left = flow.receive_left.saturating_sub(bytes as u32);
                    if flow.receive_left == 0 {
                        let group = &mut *self.io.group;
                        let started_ns = group.started_ns[index - group.first];
                        let took_ns = self.clock.now_ns().saturating_sub(started_ns);
                        if let Some(responses) = &mut group.responses {
                            responses.saturating_record(took_ns);
                        }
                        group.tally.transactions += 1;
                        flow.state = State::Closing;
                    }
                }
                Received::Bytes(_) => {
                    return Err(WorkloadError::Unasked {
                        connection: flow.connection,
                    });
                }
                Received::Nothing => break,
                Received::End if flow.state == State::Closing => {
                    self.io.stack.close(conn);
                    flow.conn = None;
                    flow.state = State::Idle;
                    self.next_transaction(index)?;
                    return Ok(moved);
                }
                Received::End | Received::Stranger => return Err(peer_closed(flow)),
            }
        }
        if flow.readable || (flow.writable && flow.send_left > 0) {
            self.enqueue(index as u32);
        }
        Ok(moved)
    }

    /// Connects again, at once or when due.
    fn next_transaction(&mut self, index: usize) -> Result<(), WorkloadError> {
        if self.io.group.schedule.is_some() {
            self.wait_for_due(index);
            return Ok(());
        }
        let now_ns = self.clock.now_ns();
        self.start_transaction(index, now_ns)
    }

    pub(crate) fn accept(&mut self, listening: usize) -> Result<(), WorkloadError> {
        let Some((Some(listener), group)) = self.listeners.get(listening).copied() else {
            return Ok(());
        };
        self.switch_to(group);
        for _ in 0..ACCEPTS {
            let place = self.free.pop().unwrap_or(self.flows.len() as u32);
            if place as usize == self.flows.len() {
                self.add_flow();
            }
            self.flows[place as usize].group = group;
            match self.io.stack.accept(listener, place) {
                Ok((conn, peer)) => {
                    let flow = &mut self.flows[place as usize];
                    flow.restart(conn, State::Open);
                    flow.receive_left = self.io.group.plan.receive_message;
                    self.begin_program(place as usize);
                    if !self.peers.contains(&peer.ip()) {
                        self.refuse(place);
                    }
                }
                Err(error) => {
                    self.free.push(place);
                    if error.kind() == io::ErrorKind::WouldBlock {
                        self.io.group.tally.would_block_calls += 1;
                    }
                    return if is_of_one_connection(&error) {
                        Ok(())
                    } else {
                        Err(WorkloadError::Wait {
                            doing: "accept",
                            error,
                        })
                    };
                }
            }
        }
        Ok(())
    }

    pub(crate) fn crr_server_turn(&mut self, index: usize) -> Result<usize, WorkloadError> {
        let flow = &mut self.flows[index];
        let Some(conn) = flow.conn else {
            return Ok(0);
        };
        let mut moved = 0;
        while flow.readable && flow.receive_left > 0 && moved < TURN_BYTES {
            match self.io.receive(flow) {
                Ok(Received::Bytes(bytes)) => {
                    moved += bytes;
                    flow.receive_left = flow.receive_left.saturating_sub(bytes as u32);
                    if flow.receive_left == 0 {
                        self.io.start_message(flow)?;
                    }
                }
                Ok(Received::Nothing) => break,
                Ok(Received::Stranger) => {
                    self.refuse(index as u32);
                    return Ok(moved);
                }
                // The client gave up, as it does at the end of a trial. If that was wrong, the
                // client reports the error.
                Ok(Received::End) | Err(WorkloadError::Connection { .. }) => {
                    self.end_transaction(index, conn);
                    return Ok(moved);
                }
                Err(error) => return Err(error),
            }
        }
        if flow.send_left > 0 {
            match self.io.send_message(flow) {
                Ok(sent) => moved += sent,
                Err(_) => {
                    self.end_transaction(index, conn);
                    return Ok(moved);
                }
            }
            if self.flows[index].send_left == 0 {
                self.end_transaction(index, conn);
                return Ok(moved);
            }
        }
        let flow = &self.flows[index];
        // Bytes after a request are not read.
        let goes_on = if flow.receive_left > 0 {
            flow.readable
        } else {
            flow.writable
        };
        if goes_on {
            self.enqueue(index as u32);
        }
        Ok(moved)
    }

    /// Closes the connection; the server closes first.
    pub(crate) fn end_transaction(&mut self, index: usize, conn: S::Conn) {
        self.io.stack.close(conn);
        let flow = &mut self.flows[index];
        flow.conn = None;
        flow.state = State::Idle;
        self.free.push(index as u32);
    }
}
