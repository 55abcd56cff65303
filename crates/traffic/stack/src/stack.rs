//! The trait: everything that a workload may ask of a TCP.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tcpcost_knobs::{ReceiveWith, SendWith};

use crate::blocking::{BlockingConnector, BlockingListener, BlockingSocket};
use crate::error::StackError;
use crate::file_sizes::FileSizes;

/// Options of every socket that a stack makes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// SO_SNDBUF to ask for, bytes (the kernel doubles it); `None` keeps the kernel's tuning.
    pub send_buffer_bytes: Option<usize>,
    /// SO_RCVBUF to ask for, bytes (the kernel doubles it); `None` keeps the kernel's tuning.
    pub receive_buffer_bytes: Option<usize>,
    /// TCP_NODELAY.
    pub nodelay: bool,
    /// Multipath TCP (RFC 8684) in place of TCP.
    pub mptcp: bool,
    /// TCP_CONGESTION; `None` keeps the host's default.
    pub congestion_control: Option<String>,
    /// SO_ZEROCOPY, without which the kernel silently ignores MSG_ZEROCOPY.
    pub zerocopy: bool,
    /// First and last port to try when listening at port 0; the first free port is taken. `None`:
    /// the kernel chooses. Only the kernel's TCP uses this.
    pub listen_ports: Option<(u16, u16)>,
}

/// Readiness of a connection or listener, as an edge: reported once until it changes again. A
/// listener's readiness is reported as long as connections wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// Token given at `listen`, `connect` or `accept`.
    pub token: u32,
    /// True if there may be bytes, an end of stream or an error to read.
    pub readable: bool,
    /// True if there may be room to write, or a pending connect has ended.
    pub writable: bool,
    /// True if the peer has closed its direction: read until the end of stream.
    pub peer_closed: bool,
    /// True if there is an error, or completions of MSG_ZEROCOPY: call [`Stack::reap`].
    pub error: bool,
}

/// Result of a send or receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Bytes moved; 0 from a receive is the end of the stream.
    pub bytes: usize,
    /// True if the next call may move more at once. False if it would find nothing to do: the next
    /// readiness will be reported, so the caller saves a call that would return EAGAIN.
    pub again: bool,
}

/// Totals of a stack that no call's result shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Completions {
    /// Completed sends by reference: MSG_ZEROCOPY, IORING_OP_SEND_ZC.
    pub sends: u64,
    /// Sends among them whose data the kernel copied after all (SO_EE_CODE_ZEROCOPY_COPIED,
    /// IORING_NOTIF_USAGE_ZC_COPIED).
    pub copied: u64,
    /// Bytes received by mapping their pages (TCP_ZEROCOPY_RECEIVE).
    pub mapped_bytes: u64,
    /// System calls of a stack that does not make one for each send, receive and wait; `None` for
    /// other stacks.
    pub ring_calls: Option<u64>,
}

/// Pages of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pages {
    /// All pages.
    pub all: u64,
    /// Pages that are in the page cache.
    pub cached: u64,
}

/// Content of a source to be made.
pub struct Content<'a> {
    /// Bytes of the whole content.
    pub bytes: u64,
    /// Sizes of the files, for a source of files; the last may be shorter. No call crosses a file's
    /// end.
    pub files: FileSizes,
    /// Bytes of the longest send call.
    pub call_bytes: usize,
    /// Writes the content at an offset into the slice; called in ascending order.
    pub fill: &'a mut dyn FnMut(u64, &mut [u8]),
}

/// A TCP under test: non-blocking sockets with edge-triggered readiness.
///
/// `token` is the caller's number of a socket, which [`Stack::ready`] reports. A call that finds
/// nothing to do fails with [`io::ErrorKind::WouldBlock`].
pub trait Stack {
    /// A listening socket.
    type Listener: Copy + Debug;
    /// A connection.
    type Conn: Copy + Debug;
    /// Payload to send: a buffer, a file; immutable once made.
    type Source;
    /// Destination of received payload: a buffer, or nothing.
    type Sink;

    /// True if the stack stands still while it is not polled: it then neither acknowledges nor
    /// retransmits.
    const STANDS_STILL: bool;

    /// Listens. With port 0 the stack chooses a port.
    ///
    /// # Errors
    /// Errors of socket, bind and listen.
    fn listen(
        &mut self,
        local: SocketAddr,
        backlog: u32,
        token: u32,
    ) -> Result<Self::Listener, StackError>;

    /// Local address of a listener.
    ///
    /// # Errors
    /// Errors of getsockname.
    fn local_addr(&self, listener: Self::Listener) -> Result<SocketAddr, StackError>;

    /// Closes a listener; connections that were not accepted are reset.
    fn close_listener(&mut self, listener: Self::Listener);

    /// Accepts a connection.
    ///
    /// # Errors
    /// `WouldBlock`; EMFILE; errors of a connection that failed while it waited.
    fn accept(
        &mut self,
        listener: Self::Listener,
        token: u32,
    ) -> io::Result<(Self::Conn, SocketAddr)>;

    /// Starts to connect. Writability reports the end, [`Stack::connected`] the outcome.
    ///
    /// # Errors
    /// Errors of socket, setsockopt and connect, e.g. EADDRNOTAVAIL if no port is free.
    fn connect(&mut self, remote: SocketAddr, token: u32) -> Result<Self::Conn, StackError>;

    /// Outcome of a connect that has ended.
    ///
    /// # Errors
    /// Error of the connect, e.g. ECONNREFUSED.
    fn connected(&mut self, conn: Self::Conn) -> io::Result<()>;

    /// Waits for readiness, at most for `timeout` (`None`: without limit), and returns the number
    /// of [`Stack::ready`] entries. Returns 0 if a signal interrupts the wait.
    ///
    /// # Errors
    /// The stack is broken.
    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<usize>;

    /// Sends pending packets, acknowledgements included. A thread calls this before it does
    /// something other than poll, e.g. read meters. There is no default, so that no stack that
    /// gathers packets can forget it.
    ///
    /// # Errors
    /// The stack is broken.
    fn flush(&mut self) -> io::Result<()>;

    /// Stops readiness reports of a connection, whose calls are then made without polling. A stack
    /// whose reports cannot be stopped ignores this.
    fn stop_telling(&mut self, _conn: Self::Conn) {}

    /// Entry `index` of the last poll.
    fn ready(&self, index: usize) -> Ready;

    /// Reads into the caller's buffer, for bytes that are not payload.
    ///
    /// # Errors
    /// `WouldBlock`, or the connection's error.
    fn read(&mut self, conn: Self::Conn, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes from the caller's buffer, for bytes that are not payload.
    ///
    /// # Errors
    /// `WouldBlock`, or the connection's error.
    fn write(&mut self, conn: Self::Conn, bytes: &[u8]) -> io::Result<usize>;

    /// Makes a source that holds `content` and sends it by `with`.
    ///
    /// # Errors
    /// Errors of mmap, of the file in the temporary directory, of the pipe, of io_uring; a send
    /// call that the stack does not have.
    fn source(
        &mut self,
        with: SendWith,
        content: &mut Content<'_>,
    ) -> Result<Self::Source, StackError>;

    /// Pages of the files that a source sends from; `None` for a source in memory.
    fn pages(&self, source: &Self::Source) -> Option<Pages>;

    /// Sends `len` bytes of a source from offset `at`; `more` is MSG_MORE.
    ///
    /// # Errors
    /// `WouldBlock`; `ResourceBusy` if the previous send was not submitted yet, so that no call was
    /// made, and writability will be reported; or the connection's error.
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
    /// Errors of the pipe or /dev/null; a receive call that the stack does not have.
    fn sink(&mut self, with: ReceiveWith, read_bytes: usize) -> Result<Self::Sink, StackError>;

    /// Receives once.
    ///
    /// # Errors
    /// `WouldBlock`, or the connection's error.
    fn receive(&mut self, conn: Self::Conn, sink: &mut Self::Sink) -> io::Result<Moved>;

    /// Bytes of the last receive; `None` if the sink never sees them.
    fn received<'a>(&'a self, sink: &'a Self::Sink, bytes: usize) -> Option<&'a [u8]>;

    /// Ends the sending direction with a FIN; receiving continues. `close` must still be called.
    fn finish(&mut self, conn: Self::Conn);

    /// Sets or clears TCP_CORK; clearing sends held bytes.
    ///
    /// # Errors
    /// Errors of setsockopt; `Unsupported`.
    fn cork(&mut self, conn: Self::Conn, on: bool) -> io::Result<()>;

    /// Takes a connection's completions of MSG_ZEROCOPY.
    ///
    /// # Errors
    /// The connection's error, if [`Ready::error`] was about one.
    fn reap(&mut self, conn: Self::Conn) -> io::Result<()>;

    /// Totals over all connections, closed ones included.
    fn completions(&self) -> Completions;

    /// Converts the connection for a thread that makes blocking calls. Its readiness is no longer
    /// reported.
    ///
    /// # Errors
    /// `Unsupported` if the stack has no blocking calls; errors of the socket.
    fn blocking(&mut self, _conn: Self::Conn) -> io::Result<BlockingSocket> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Converts a listener for blocking calls. Several threads may each have it.
    ///
    /// # Errors
    /// See [`Stack::blocking`].
    fn blocking_listener(&mut self, _listener: Self::Listener) -> io::Result<BlockingListener> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes a connector for blocking connections, with the options of this stack.
    ///
    /// # Errors
    /// `Unsupported`; see [`Stack::blocking`].
    fn blocking_connector(&self) -> io::Result<BlockingConnector> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Closes. With unread bytes the kernel's close is a reset.
    fn close(&mut self, conn: Self::Conn);

    /// Closes by a reset: leaves no TIME_WAIT and drops undelivered bytes.
    fn abort(&mut self, conn: Self::Conn);
}
