//! State of a connection: at most one cache line of 64 bytes, because each turn of another
//! connection touches a cold line. Buffers are per worker.

/// Phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// No connection: a free place, or a `crr` transaction that is not due yet.
    Idle,
    /// The connect has not completed.
    Connecting,
    /// The hello is on its way.
    Greeting,
    /// Traffic.
    Open,
    /// `crr` at the client: the response has arrived, the end of the stream has not.
    Closing,
}

#[derive(Debug)]
pub(crate) struct Flow<C> {
    pub(crate) conn: Option<C>,
    /// Number of the connection in the group, from 0.
    pub(crate) connection: u32,
    /// Index of its group in the worker.
    pub(crate) group: u16,
    pub(crate) state: State,
    /// Edges that the stack reported and that are not used up.
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) peer_closed: bool,
    pub(crate) error: bool,
    /// True while in the run queue.
    pub(crate) queued: bool,
    /// True while in the queue for a due time.
    pub(crate) waiting: bool,
    /// Offset in the source's pattern of the next byte to send.
    pub(crate) send_at: u64,
    /// Bytes of the current message still to send.
    pub(crate) send_left: u32,
    /// Bytes of the current message still to receive.
    pub(crate) receive_left: u32,
    /// At the client, requests without a response; at the server, responses owed.
    pub(crate) outstanding: u32,
    /// Slot of the oldest start time of this connection (client).
    pub(crate) oldest: u32,
    /// Payload bytes received.
    pub(crate) received: u64,
}

impl<C> Flow<C> {
    pub(crate) fn new(connection: u32, group: u16) -> Flow<C> {
        Flow {
            conn: None,
            connection,
            group,
            state: State::Idle,
            readable: false,
            writable: false,
            peer_closed: false,
            error: false,
            queued: false,
            waiting: false,
            send_at: 0,
            send_left: 0,
            receive_left: 0,
            outstanding: 0,
            oldest: 0,
            received: 0,
        }
    }

    /// Puts a new connection into this place. Membership in the queues does not change.
    pub(crate) fn restart(&mut self, conn: C, state: State) {
        *self = Flow {
            conn: Some(conn),
            state,
            queued: self.queued,
            waiting: self.waiting,
            ..Flow::new(self.connection, self.group)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_small() {
        assert!(size_of::<Flow<u32>>() <= 64);
    }
}
