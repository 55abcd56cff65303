//! `stream`, `maerts`, `bidirectional`: either end or both send without end.

use tcpcost_stack::Stack;

use crate::error::WorkloadError;
use crate::flow::Flow;
use crate::io::{Received, TURN_BYTES};
use crate::worker::Worker;

pub(crate) fn peer_closed<C>(flow: &Flow<C>) -> WorkloadError {
    WorkloadError::PeerClosed {
        connection: flow.connection,
        received_bytes: flow.received,
    }
}

impl<S: Stack> Worker<S> {
    pub(crate) fn stream_turn(&mut self, index: usize) -> Result<usize, WorkloadError> {
        let paced = self.io.group.schedule.is_some();
        // A call that moves nothing ends its loop.
        let least = self.call_least;
        let counted = |bytes: usize| if bytes == 0 { 0 } else { bytes.max(least) };
        let io = &mut self.io;
        let flow = &mut self.flows[index];
        if !io.group.plan.receives && flow.peer_closed {
            return Err(peer_closed(flow));
        }
        let mut received = 0;
        while flow.readable && received < TURN_BYTES {
            match io.receive(flow)? {
                Received::Bytes(bytes) => received += counted(bytes),
                Received::Nothing => {}
                Received::End | Received::Stranger => return Err(peer_closed(flow)),
            }
        }
        let mut sent = 0;
        while flow.writable && sent < self.send_turn_bytes {
            if flow.send_left == 0 {
                if paced || !io.group.plan.sends {
                    break;
                }
                flow.send_left = io.group.plan.send_message;
            }
            sent += counted(io.send(flow)?);
        }
        let has_work = flow.readable
            || (flow.writable && io.group.plan.sends && (!paced || flow.send_left > 0));
        let idle = paced && flow.writable && flow.send_left == 0;
        if has_work {
            self.enqueue(index as u32);
        }
        if idle {
            self.wait_for_due(index);
        }
        Ok(received + sent)
    }
}
