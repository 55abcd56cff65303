//! The trait: everything a workload may ask of a TCP.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tcpcost_study::{ReceiveWith, SendWith};

use crate::blocking::{BlockingConnector, BlockingListener, BlockingSocket};
use crate::error::StackError;

/// Options of every socket that a stack makes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// SO_SNDBUF as asked for, bytes (the kernel doubles it); `None` leaves its tuning on.
    pub send_buffer_bytes: Option<usize>,
    /// SO_RCVBUF as asked for, bytes (the kernel doubles it); `None` leaves its tuning on.
    pub receive_buffer_bytes: Option<usize>,
    /// TCP_NODELAY.
    pub nodelay: bool,
    /// Multipath TCP (RFC 8684) in place of TCP.
    pub mptcp: bool,
    /// TCP_CONGESTION; `None` leaves the host's default.
    pub congestion_control: Option<String>,
    /// SO_ZEROCOPY, without which MSG_ZEROCOPY is ignored without a word.
    pub zerocopy: bool,
    /// Listening at port 0 takes the first free port from the first to the last of these; `None` leaves the choice to the
    /// kernel. Of the kernel's TCP alone.
    pub listen_ports: Option<(u16, u16)>,
}

/// Readiness of one connection or listener, as an edge: told once until it changes again.
/// A listener alone is told for as long as connections wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// The token given at `listen`, `connect` or `accept`.
    pub token: u32,
    /// There may be bytes, an end of stream or an error to read.
    pub readable: bool,
    /// There may be room to write; a pending connect has ended.
    pub writable: bool,
    /// The peer has closed its direction: read on until the end of stream.
    pub peer_closed: bool,
    /// An error, or completions of MSG_ZEROCOPY: call [`Stack::reap`].
    pub error: bool,
}

/// What one call moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Bytes; 0 from a receive is the end of the stream.
    pub bytes: usize,
    /// Whether the next call may move more at once. `false`: it would find nothing to do, and the
    /// next readiness will be told, so the call that would only return EAGAIN is saved.
    pub again: bool,
}

/// What [`Stack::forward`] moved, and why it stopped.
#[derive(Debug)]
pub struct Forwarded {
    /// Bytes that are in the other connection's send queue now.
    pub bytes: usize,
    /// Of these, bytes that were copied after all.
    pub copied: usize,
    /// Why no more.
    pub stopped: Stopped,
}

/// Why a forward stopped.
#[derive(Debug)]
pub enum Stopped {
    /// It moved as much as it was to, and there is more.
    Most,
    /// Nothing more has come: the source's readiness will be told.
    Empty,
    /// The other's send queue is full: the sink's readiness will be told.
    Full,
    /// The source's peer has closed its direction, and all that it sent is moved.
    Finished,
    /// The source has failed, and all that could be read of it is moved.
    SourceGone(io::Error),
    /// Nothing can be written to the sink any more. What was not moved is with the source still.
    SinkGone(io::Error),
}

/// What a stack has done so far that no call's result tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Completions {
    /// Sends by reference completed: MSG_ZEROCOPY, IORING_OP_SEND_ZC.
    pub sends: u64,
    /// Of these, sends whose data was copied after all (SO_EE_CODE_ZEROCOPY_COPIED, IORING_NOTIF_USAGE_ZC_COPIED).
    pub copied: u64,
    /// Bytes received by mapping their pages (TCP_ZEROCOPY_RECEIVE).
    pub mapped_bytes: u64,
    /// System calls of a stack whose sends, receives and waits are not one each.
    pub ring_calls: Option<u64>,
}

/// Pages of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pages {
    /// All.
    pub all: u64,
    /// Those in the page cache.
    pub cached: u64,
}

/// What a source is to hold.
pub struct Content<'a> {
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes of each file, where the source is files: the last may have fewer. No call crosses a file's end.
    pub file_bytes: u64,
    /// Bytes of the longest call to come.
    pub call_bytes: usize,
    /// Writes the content from an offset; it is asked in order.
    pub fill: &'a mut dyn FnMut(u64, &mut [u8]),
}

/// A TCP under test: non-blocking sockets with edge-triggered readiness.
///
/// `token` is the caller's own number of a socket, told back by [`Stack::ready`]. A call that
/// finds nothing to do fails with [`io::ErrorKind::WouldBlock`].
pub trait Stack {
    /// A listening socket.
    type Listener: Copy + Debug;
    /// A connection.
    type Conn: Copy + Debug;
    /// What payload is sent from: a buffer, a file; immutable once made.
    type Source;
    /// What payload is received into: a buffer, or nothing.
    type Sink;

    /// Whether it stands still while nobody polls it: it then neither acknowledges nor sends again.
    const STANDS_STILL: bool;

    /// Listens. Port 0 lets the stack choose.
    ///
    /// # Errors
    /// Of socket, bind and listen.
    fn listen(
        &mut self,
        local: SocketAddr,
        backlog: u32,
        token: u32,
    ) -> Result<Self::Listener, StackError>;

    /// Where a listener listens.
    ///
    /// # Errors
    /// Of getsockname.
    fn local_addr(&self, listener: Self::Listener) -> Result<SocketAddr, StackError>;

    /// Ends a listener; connections that nobody accepted are reset.
    fn close_listener(&mut self, listener: Self::Listener);

    /// Takes one connection that has come in.
    ///
    /// # Errors
    /// `WouldBlock`; EMFILE; errors of a connection that failed while it waited.
    fn accept(
        &mut self,
        listener: Self::Listener,
        token: u32,
    ) -> io::Result<(Self::Conn, SocketAddr)>;

    /// Starts to connect; writability tells the end, [`Stack::connected`] the outcome.
    ///
    /// # Errors
    /// Of socket, setsockopt and connect, e.g. EADDRNOTAVAIL when no port is free.
    fn connect(&mut self, remote: SocketAddr, token: u32) -> Result<Self::Conn, StackError>;

    /// The outcome of a connect that has ended.
    ///
    /// # Errors
    /// Why it failed, e.g. ECONNREFUSED.
    fn connected(&mut self, conn: Self::Conn) -> io::Result<()>;

    /// Waits for readiness, at most `timeout` (`None` is for ever), and gives the number of
    /// [`Stack::ready`] entries. Interrupted by a signal it gives 0.
    ///
    /// # Errors
    /// Only of a broken stack.
    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<usize>;

    /// Sends what waits to be sent, acknowledgements included. A thread calls it before it does something else than poll,
    /// e.g. read meters. It has no default: a stack that gathers packets must not forget it.
    ///
    /// # Errors
    /// Only of a broken stack.
    fn flush(&mut self) -> io::Result<()>;

    /// Tells nothing more of a connection: its calls are made without asking. A stack that can only tell goes on.
    fn stop_telling(&mut self, _conn: Self::Conn) {}

    /// Makes the calling thread's timeouts as precise as the host can; what a fixed rate needs.
    fn use_precise_timeouts(&mut self);

    /// Entry `index` of the last poll.
    fn ready(&self, index: usize) -> Ready;

    /// Reads into a buffer of the caller's: for what is no payload.
    ///
    /// # Errors
    /// `WouldBlock`, or the connection's error.
    fn read(&mut self, conn: Self::Conn, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes from a buffer of the caller's: for what is no payload.
    ///
    /// # Errors
    /// `WouldBlock`, or the connection's error.
    fn write(&mut self, conn: Self::Conn, bytes: &[u8]) -> io::Result<usize>;

    /// Makes a source that holds `content` and sends it by `with`.
    ///
    /// # Errors
    /// Of mmap, of the file in the temporary directory, of the pipe, of io_uring.
    fn source(
        &mut self,
        with: SendWith,
        content: &mut Content<'_>,
    ) -> Result<Self::Source, StackError>;

    /// Pages of the files that a source sends from, and those in the page cache; `None` where it sends from memory.
    fn pages(&self, source: &Self::Source) -> Option<Pages>;

    /// Sends `len` bytes of a source from offset `at`; `more` is MSG_MORE.
    ///
    /// # Errors
    /// `WouldBlock`; `ResourceBusy` where the send before it is still to be handed over, so that none was tried, and
    /// writability will be told; or the connection's error.
    fn send(
        &mut self,
        conn: Self::Conn,
        source: &mut Self::Source,
        at: u64,
        len: usize,
        more: bool,
    ) -> io::Result<Moved>;

    /// Makes a sink that takes up to `read_bytes` per call.
    ///
    /// # Errors
    /// Of the pipe or /dev/null.
    fn sink(&mut self, with: ReceiveWith, read_bytes: usize) -> Result<Self::Sink, StackError>;

    /// Receives once.
    ///
    /// # Errors
    /// `WouldBlock`, or the connection's error.
    fn receive(&mut self, conn: Self::Conn, sink: &mut Self::Sink) -> io::Result<Moved>;

    /// The bytes of the last receive; `None` where the sink never sees them.
    fn received<'a>(&'a self, sink: &'a Self::Sink, bytes: usize) -> Option<&'a [u8]>;

    /// Moves received bytes of a connection into the send queue of another, by reference: at most `most`, and no more
    /// than the other has room for. For the connection that they come from it is a read. An end is not passed on.
    ///
    /// # Errors
    /// `Unsupported` by a stack that cannot move them by reference.
    fn forward(&mut self, from: Self::Conn, to: Self::Conn, most: usize) -> io::Result<Forwarded>;

    /// Ends what is sent (a FIN behind it); receiving goes on. `close` is still to be called.
    fn finish(&mut self, conn: Self::Conn);

    /// Sets or clears TCP_CORK; clearing sends what was held.
    ///
    /// # Errors
    /// Of setsockopt.
    fn cork(&mut self, conn: Self::Conn, on: bool) -> io::Result<()>;

    /// Takes a connection's completions of MSG_ZEROCOPY.
    ///
    /// # Errors
    /// The connection's error, if that is what [`Ready::error`] was about.
    fn reap(&mut self, conn: Self::Conn) -> io::Result<()>;

    /// Of all connections, those closed included.
    fn completions(&self) -> Completions;

    /// The connection for a thread of its own, in calls that block; readiness of it is told no more.
    ///
    /// # Errors
    /// `Unsupported` of a stack that has no such calls; of the socket.
    fn blocking(&mut self, _conn: Self::Conn) -> io::Result<BlockingSocket> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The same of a listener; several threads may each have it.
    ///
    /// # Errors
    /// As of [`Stack::blocking`].
    fn blocking_listener(&mut self, _listener: Self::Listener) -> io::Result<BlockingListener> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// What makes connections that block, with the options of this stack's.
    ///
    /// # Errors
    /// `Unsupported` as of [`Stack::blocking`].
    fn blocking_connector(&self) -> io::Result<BlockingConnector> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Closes. Bytes not read yet make it a reset, as the kernel has it.
    fn close(&mut self, conn: Self::Conn);

    /// Closes by a reset: leaves no TIME_WAIT behind and drops what is not yet delivered.
    fn abort(&mut self, conn: Self::Conn);
}
