//! What is kept per connection: at most one cache line of 64 bytes, because a turn of another
//! connection touches a cold one each time. Buffers are per worker.

/// Where a connection is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// No connection: a free place, or a `crr` transaction that is not due yet.
    Idle,
    /// The connect has not ended.
    Connecting,
    /// The hello is on its way.
    Greeting,
    /// Traffic.
    Open,
    /// `crr` at the client: the response is in, the end of the stream is not.
    Closing,
}

#[derive(Debug)]
pub(crate) struct Flow<C> {
    pub(crate) conn: Option<C>,
    /// Index in the group, 0 to flows - 1.
    pub(crate) connection: u32,
    /// Which of the worker's groups it is of.
    pub(crate) group: u16,
    pub(crate) state: State,
    /// Edges told by the stack and not yet used up.
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) peer_closed: bool,
    pub(crate) error: bool,
    /// In the run queue.
    pub(crate) queued: bool,
    /// In the queue of those that wait for a due time.
    pub(crate) waiting: bool,
    /// Offset in the source's pattern of the next byte to send.
    pub(crate) send_at: u64,
    /// Bytes of the current message still to send.
    pub(crate) send_left: u32,
    /// Bytes of the current message still to come.
    pub(crate) receive_left: u32,
    /// At the client, requests without a response; at the server, responses owed.
    pub(crate) outstanding: u32,
    /// At the client, which of the connection's start times is the oldest.
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

    /// A new connection takes this place; whether it is queued is the queue's to say.
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
