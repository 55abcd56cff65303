//! The send call and the receive call that all kinds of traffic use.

use std::io;

use tcpcost_knobs::{Cork, Side};
use tcpcost_stack::Stack;

use crate::error::{Mismatch, WorkloadError};
use crate::flow::Flow;
use crate::group::Group;
use crate::hello::TOKEN_BYTES;
use crate::pattern::PERIOD;
use crate::plan::Plan;

/// The stack, and the state that the connections of the current group share.
pub(crate) struct Io<S: Stack> {
    pub(crate) stack: S,
    /// Current group: the group of the connection whose turn it is.
    pub(crate) group: Box<Group<S>>,
}

/// Result of a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    Bytes(usize),
    Nothing,
    End,
    /// The first bytes of a `crr` connection were not the token.
    Stranger,
}

pub(crate) fn failed<C>(
    flow: &Flow<C>,
    doing: &'static str,
) -> impl FnOnce(io::Error) -> WorkloadError + use<C> {
    let connection = flow.connection;
    move |error| WorkloadError::Connection {
        connection,
        doing,
        error,
    }
}

impl<S: Stack> Io<S> {
    /// [`Io::receive`], not inlined: for programs. The loops of `stream`, `rr` and `crr` keep their
    /// inlined copies, which saves a quarter of their instructions.
    #[inline(never)]
    pub(crate) fn receive_by_call(
        &mut self,
        flow: &mut Flow<S::Conn>,
    ) -> Result<Received, WorkloadError> {
        self.receive(flow)
    }

    /// [`Io::send`], not inlined: for programs.
    #[inline(never)]
    pub(crate) fn send_by_call(
        &mut self,
        flow: &mut Flow<S::Conn>,
    ) -> Result<usize, WorkloadError> {
        self.send(flow)
    }

    /// Receives once, checks and counts. Clears `readable` when the edge is used up.
    #[inline(always)]
    pub(crate) fn receive(&mut self, flow: &mut Flow<S::Conn>) -> Result<Received, WorkloadError> {
        let group = &mut *self.group;
        let (Some(conn), Some(sink)) = (flow.conn, &mut group.sink) else {
            flow.readable = false;
            return Ok(Received::Nothing);
        };
        group.tally.receive_calls += 1;
        let moved = match self.stack.receive(conn, sink) {
            Ok(moved) => moved,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                group.tally.would_block_calls += 1;
                flow.readable = false;
                return Ok(Received::Nothing);
            }
            Err(error) => return Err(failed(flow, "receive")(error)),
        };
        if moved.bytes == 0 {
            flow.readable = false;
            return Ok(Received::End);
        }
        // After the peer's FIN there is an end of stream to read after the last bytes.
        flow.readable = moved.again || flow.peer_closed;
        if (group.checker.is_some() || group.plan.token_in_request)
            && let Some(bytes) = self.stack.received(sink, moved.bytes)
        {
            let skip = if group.plan.token_in_request && group.plan.receives_requests() {
                let Some(skip) = group.plan.compare_token(flow.received, bytes) else {
                    return Ok(Received::Stranger);
                };
                skip
            } else {
                0
            };
            if let Some(checker) = &group.checker {
                let offset = flow.received + skip as u64;
                let phase = u64::from(group.plan.receive_phase(flow.connection));
                checker
                    .compare(phase + offset, &bytes[skip..])
                    .map_err(|mismatch: Mismatch| WorkloadError::Mismatch {
                        connection: flow.connection,
                        offset: offset + mismatch.after,
                        expected: mismatch.expected,
                        found: mismatch.found,
                    })?;
                // The token was compared, too.
                group.tally.bytes_checked += bytes.len() as u64;
            }
        }
        flow.received += moved.bytes as u64;
        group.tally.bytes_received += moved.bytes as u64;
        Ok(Received::Bytes(moved.bytes))
    }

    /// Makes at most one send call for the flow's message, counts, and returns the bytes; 0 if the
    /// connection takes no more. Clears `writable` when the edge is used up.
    #[inline(always)]
    pub(crate) fn send(&mut self, flow: &mut Flow<S::Conn>) -> Result<usize, WorkloadError> {
        let group = &mut *self.group;
        let (Some(conn), Some(source)) = (flow.conn, &mut group.source) else {
            flow.writable = false;
            return Ok(0);
        };
        let left = flow.send_left as usize;
        let (at, len) = group.plan.place(flow.send_at, flow.send_left);
        let more = match group.plan.cork {
            Cork::MsgMore => group.plan.is_stream() || len < left,
            Cork::Off | Cork::On => false,
        };
        group.tally.send_calls += 1;
        match self.stack.send(conn, source, at, len, more) {
            Ok(moved) => {
                // A call that moved nothing is no progress, whatever the stack reports of the next
                // call, so no loop continues because of it.
                flow.writable = moved.again && moved.bytes > 0;
                flow.send_left -= moved.bytes as u32;
                if group.plan.advances {
                    flow.send_at = group.plan.wrap(flow.send_at) + moved.bytes as u64;
                }
                group.tally.bytes_sent += moved.bytes as u64;
                Ok(moved.bytes)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                group.tally.would_block_calls += 1;
                flow.writable = false;
                Ok(0)
            }
            // No call was made.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                group.tally.send_calls -= 1;
                flow.writable = false;
                Ok(0)
            }
            Err(error) => Err(failed(flow, "send")(error)),
        }
    }

    /// Starts a message, corked if the plan says so.
    pub(crate) fn start_message(&mut self, flow: &mut Flow<S::Conn>) -> Result<(), WorkloadError> {
        flow.send_left = self.group.plan.send_message;
        self.cork(flow, true)
    }

    /// Sends as much of the current message as the connection takes, at most a turn's worth;
    /// uncorks at the message's end. Returns the bytes.
    pub(crate) fn send_message(
        &mut self,
        flow: &mut Flow<S::Conn>,
    ) -> Result<usize, WorkloadError> {
        let mut sent = 0;
        while flow.send_left > 0 && flow.writable && sent < TURN_BYTES {
            sent += self.send(flow)?;
        }
        if flow.send_left == 0 {
            self.cork(flow, false)?;
        }
        Ok(sent)
    }

    /// Sets or clears TCP_CORK, if this workload uses it.
    pub(crate) fn cork(&mut self, flow: &mut Flow<S::Conn>, on: bool) -> Result<(), WorkloadError> {
        match flow.conn {
            Some(conn) if self.group.plan.corks() => {
                self.stack.cork(conn, on).map_err(failed(flow, "TCP_CORK"))
            }
            _ => Ok(()),
        }
    }
}

impl Plan {
    fn receives_requests(&self) -> bool {
        self.side == Side::Listens
    }

    /// Compares the part of `bytes` that belongs to the token; `bytes` starts at `offset` of a
    /// connection. Returns the length of that part; `None` if it differs (a stranger).
    fn compare_token(&self, offset: u64, bytes: &[u8]) -> Option<usize> {
        let from = usize::try_from(offset).map_or(TOKEN_BYTES, |offset| offset.min(TOKEN_BYTES));
        let expected = &self.token[from..];
        let part = expected.len().min(bytes.len());
        (expected[..part] == bytes[..part]).then_some(part)
    }

    /// Offset in the source, and length, of the next send call: never past the end of the source or
    /// of a file.
    #[inline]
    pub(crate) fn place(&self, send_at: u64, send_left: u32) -> (u64, usize) {
        let len = self.call_bytes.min(send_left as usize);
        let sent = u64::from(self.send_message - send_left);
        if sent < self.token_region {
            let room = (self.token_region - sent) as usize;
            return (sent, len.min(room));
        }
        let at = self.wrap(send_at);
        let end = match self.files {
            Some(files) => files.of(at).1.end.min(self.pattern_bytes),
            None => self.pattern_bytes,
        };
        let room = end - at;
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        (self.token_region + at, len.min(room))
    }

    /// Offset in the pattern from which a whole call can be sent, with equal content: a multiple of
    /// the period back where bytes are checked, the start of the file otherwise. Each of several
    /// files is sent to its end.
    #[inline]
    pub(crate) fn wrap(&self, send_at: u64) -> u64 {
        let room = self.pattern_bytes - send_at.min(self.pattern_bytes);
        // A source shorter than a call and a period is used to its end.
        let wanted = match self.files {
            Some(_) => 1,
            None => (self.call_bytes as u64).min(self.pattern_bytes - self.lap()),
        };
        if room > 0 && room >= wanted {
            return send_at;
        }
        if self.lap() > 0 {
            send_at % PERIOD as u64
        } else {
            0
        }
    }

    /// Going back must be by a multiple of this many bytes; 0 if bytes are not checked.
    fn lap(&self) -> u64 {
        if self.advances && self.checked_by_peer() {
            PERIOD as u64
        } else {
            0
        }
    }
}

/// Limit of bytes of one turn, exceeded by at most a call: two calls of the default size. Where each end has
/// a CPU of its own, bulk carries 0.78 of it with 256 KiB (6,000 connections; 100 carry 0.85), and 0.75 with
/// 64 KiB. Where both ends share their CPUs, 6,000 connections carry 1.3 times as much with 256 KiB. The
/// sender's limit matters, not the reader's.
pub(crate) const TURN_BYTES: usize = 128 * 1024;

/// Bytes that a call of a stream, and a turn, count as at least. So a turn has 16 calls at most: with 4, 100
/// connections with writes of 128 B carried a fifth less. And the clock is read after 256 of them: a batch of
/// 4 MiB in writes of 1 KiB took 20 ms, and on a CPU shared with five tasks more than an interval of 100 ms.
/// The second snapshot then followed the first at once, and the trial had moved nothing.
pub(crate) const CALL_LEAST: usize = 8 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tcpcost_knobs::{Knobs, WorkloadSettings};

    use super::*;
    use crate::pattern::Checker;

    fn plan(knobs: &[(&str, String)], side: Side) -> Plan {
        let mut set = Knobs::default();
        for (name, text) in knobs {
            set.set(name, text).unwrap();
        }
        Plan::new(&WorkloadSettings::from_knobs(&set).unwrap(), side, [9; 16])
    }

    proptest! {
        /// Pieces of any size give the pattern at the peer, with the token before it.
        #[test]
        fn any_pieces_out_of_the_source_make_the_stream_that_is_checked(
            request in 1u32..30_000,
            write in 1u32..20_000,
            file in 4096u32..50_000,
            files in 1u32..4,
            crr in any::<bool>(),
            from_file in any::<bool>(),
            takes in prop::collection::vec(1usize..9000, 1..40),
        ) {
            let mut knobs = vec![
                ("workload", if crr { "crr" } else { "rr" }.into()),
                ("check", "on".into()),
                ("request_size", format!("{request}B")),
                ("write_size", format!("{write}B")),
            ];
            if from_file {
                knobs.extend([("send_with", "sendfile".into()), ("file_size", format!("{file}B"))]);
                if !crr {
                    knobs.push(("files", files.to_string()));
                }
            }
            let plan = plan(&knobs, Side::Connects);
            let mut source = vec![0; (plan.token_region + plan.pattern_bytes) as usize];
            plan.fill(0, &mut source);
            let checker = Checker::new(source.len());
            let phase = plan.send_phase(5);
            let (mut at, mut left, mut offset) = (u64::from(phase), plan.send_message, 0u64);
            for take in takes {
                let (from, len) = plan.place(at, left);
                prop_assert!(len > 0);
                let bytes = &source[from as usize..from as usize + len.min(take)];
                let skip = if plan.token_in_request {
                    plan.compare_token(offset, bytes).unwrap()
                } else {
                    0
                };
                prop_assert_eq!(checker.compare(u64::from(phase) + offset + skip as u64, &bytes[skip..]), Ok(()));
                at = plan.wrap(at) + bytes.len() as u64;
                left -= bytes.len() as u32;
                offset += bytes.len() as u64;
                if left == 0 {
                    if crr {
                        break;
                    }
                    left = plan.send_message;
                }
            }
        }
    }

    #[test]
    fn without_check_a_buffer_is_always_sent_from_its_start() {
        let plan = plan(&[("write_size", "64KiB".into())], Side::Connects);
        assert_eq!(plan.place(0, 65536), (0, 65536));
        assert_eq!(plan.pattern_bytes, 65536);
    }

    #[test]
    fn files_are_sent_one_after_the_other_to_their_ends() {
        let knobs = [
            ("send_with", "sendfile".into()),
            ("file_size", "100000B".into()),
            ("files", "3".into()),
        ];
        let plan = plan(&knobs, Side::Connects);
        for (at, expected) in [
            (0, (0, 65536)),
            (65536, (65536, 34464)),
            (100_000, (100_000, 65536)),
            (265_536, (265_536, 34464)),
            (300_000, (0, 65536)),
        ] {
            assert_eq!(plan.place(at, 65536), expected, "{at}");
        }
    }

    #[test]
    fn a_file_is_sent_over_and_over() {
        let plan = plan(
            &[
                ("send_with", "sendfile".into()),
                ("file_size", "128KiB".into()),
            ],
            Side::Connects,
        );
        assert_eq!(plan.place(65536, 65536), (65536, 65536));
        assert_eq!(plan.place(131_072, 65536), (0, 65536));
    }
}
