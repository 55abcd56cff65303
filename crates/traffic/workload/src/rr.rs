//! `rr`: requests and responses on connections that stay open, one or more in flight on each.

use tcpcost_stack::Stack;

use crate::error::WorkloadError;
use crate::io::{Received, TURN_BYTES};
use crate::stream::peer_closed;
use crate::worker::Worker;

/// Takes `bytes` off a stream of messages of `message` bytes, of whose current one `left` bytes are
/// still to come. Returns the number of messages completed.
pub(crate) fn complete(left: &mut u32, message: u32, bytes: usize) -> u32 {
    let bytes = bytes as u64;
    if bytes < u64::from(*left) {
        *left -= bytes as u32;
        return 0;
    }
    let behind = bytes - u64::from(*left);
    let message = u64::from(message);
    *left = (message - behind % message) as u32;
    (1 + behind / message) as u32
}

impl<S: Stack> Worker<S> {
    /// Notes a request's start and makes it the message to send.
    #[inline(always)]
    pub(crate) fn start_request(&mut self, index: usize, at_ns: u64) -> Result<(), WorkloadError> {
        let flow = &mut self.flows[index];
        let group = &mut *self.io.group;
        let in_flight = group.plan.in_flight;
        let place = (flow.oldest + flow.outstanding) % in_flight;
        let slots = (index - group.first) * in_flight as usize;
        group.started_ns[slots + place as usize] = at_ns;
        flow.outstanding += 1;
        self.io.start_message(flow)
    }

    pub(crate) fn rr_client_turn(&mut self, index: usize) -> Result<usize, WorkloadError> {
        let in_flight = self.io.group.plan.in_flight;
        let mut moved = 0;
        // One clock read per response serves as the next request's start, too.
        let mut now_ns = None;
        let flow = &mut self.flows[index];
        while flow.readable && moved < TURN_BYTES {
            let bytes = match self.io.receive(flow)? {
                Received::Bytes(bytes) => bytes,
                Received::Nothing => break,
                Received::End | Received::Stranger => return Err(peer_closed(flow)),
            };
            moved += bytes;
            let done = complete(
                &mut flow.receive_left,
                self.io.group.plan.receive_message,
                bytes,
            );
            if done == 0 {
                continue;
            }
            if done > flow.outstanding {
                return Err(WorkloadError::Unasked {
                    connection: flow.connection,
                });
            }
            let now = *now_ns.insert(self.clock.now_ns());
            let group = &mut *self.io.group;
            let slots = (index - group.first) * in_flight as usize;
            for _ in 0..done {
                let place = slots + flow.oldest as usize;
                if let Some(responses) = &mut group.responses {
                    responses.saturating_record(now.saturating_sub(group.started_ns[place]));
                }
                flow.oldest = (flow.oldest + 1) % in_flight;
            }
            flow.outstanding -= done;
            group.tally.transactions += u64::from(done);
        }
        let mut sent = 0;
        loop {
            let flow = &mut self.flows[index];
            if flow.send_left > 0 {
                if !flow.writable {
                    break;
                }
                if sent >= TURN_BYTES {
                    self.enqueue(index as u32);
                    break;
                }
                sent += self.io.send_message(flow)?;
                continue;
            }
            if flow.outstanding == in_flight {
                break;
            }
            if self.io.group.schedule.is_some() {
                self.wait_for_due(index);
                break;
            }
            if !flow.writable {
                break;
            }
            let at_ns = now_ns.unwrap_or_else(|| self.clock.now_ns());
            self.start_request(index, at_ns)?;
        }
        if self.flows[index].readable {
            self.enqueue(index as u32);
        }
        Ok(moved + sent)
    }

    pub(crate) fn rr_server_turn(&mut self, index: usize) -> Result<usize, WorkloadError> {
        let io = &mut self.io;
        let flow = &mut self.flows[index];
        let mut moved = 0;
        while flow.readable && moved < TURN_BYTES {
            match io.receive(flow)? {
                Received::Bytes(bytes) => {
                    moved += bytes;
                    let message = io.group.plan.receive_message;
                    flow.outstanding += complete(&mut flow.receive_left, message, bytes);
                }
                Received::Nothing => break,
                Received::End | Received::Stranger => return Err(peer_closed(flow)),
            }
        }
        let mut sent = 0;
        while flow.writable && flow.outstanding > 0 && sent < TURN_BYTES {
            if flow.send_left == 0 {
                io.start_message(flow)?;
            }
            sent += io.send_message(flow)?;
            if flow.send_left == 0 {
                flow.outstanding -= 1;
            }
        }
        if flow.readable || (flow.writable && flow.outstanding > 0) {
            self.enqueue(index as u32);
        }
        Ok(moved + sent)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn messages_are_counted_however_the_bytes_come(
            message in 1u32..5000,
            pieces in prop::collection::vec(1usize..20_000, 0..30),
        ) {
            let mut left = message;
            let done: u64 = pieces
                .iter()
                .map(|&bytes| u64::from(complete(&mut left, message, bytes)))
                .sum();
            let total = pieces.iter().sum::<usize>() as u64;
            prop_assert_eq!(done, total / u64::from(message));
            prop_assert_eq!(u64::from(left), u64::from(message) - total % u64::from(message));
        }
    }
}
