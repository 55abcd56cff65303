//! Places for connections, and the choice of the connection that must end for a new one.
//!
//! A connection that answers a request keeps its place until the answer is written. Any other connection can
//! be ended for a new one, but only after a short time, because its request may be in flight. The new
//! connection waits until then.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

/// Connections that are served, up to a limit.
pub(crate) struct Places {
    limit: usize,
    tasks: JoinSet<()>,
    taken: Vec<(Arc<Place>, AbortHandle)>,
}

impl Places {
    pub(crate) fn new(limit: usize) -> Places {
        Places {
            limit,
            tasks: JoinSet::new(),
            taken: Vec::new(),
        }
    }

    /// Waits for a place: until a connection ends by itself or may be ended.
    pub(crate) async fn take(&mut self) -> Arc<Place> {
        loop {
            while self.tasks.try_join_next().is_some() {}
            self.taken.retain(|(_, task)| !task.is_finished());
            if self.taken.len() < self.limit {
                return Place::new();
            }
            let gives_way = |index: &usize| self.taken[*index].0.gives_way();
            let first = (0..self.taken.len()).min_by_key(gives_way);
            let first = first.expect("the limit is not 0");
            let (at, now) = (gives_way(&first), Instant::now());
            if at <= now {
                self.taken.swap_remove(first).1.abort();
                return Place::new();
            }
            // An answer that completes in between can bring this time forward.
            let at = at.min(now + QUIET_MIN);
            let _ = tokio::time::timeout_at(at, self.tasks.join_next()).await;
        }
    }

    /// Serves a connection that has taken a place.
    pub(crate) fn serve(
        &mut self,
        place: Arc<Place>,
        connection: impl Future<Output = ()> + Send + 'static,
    ) {
        self.taken.push((place, self.tasks.spawn(connection)));
    }
}

/// Place of a connection, with the time from which it may be ended.
pub(crate) struct Place(Mutex<Instant>);

impl Place {
    fn new() -> Arc<Place> {
        Arc::new(Place(Mutex::new(Instant::now() + QUIET_MIN)))
    }

    /// Keeps the place, because the connection begins to answer.
    pub(crate) fn answers(&self) {
        self.set(ANSWER_MAX);
    }

    /// Time from which this connection may be ended for a new one.
    fn gives_way(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, after: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + after;
    }
}

/// Stream of a connection, which notices that an answer has been written.
pub(crate) struct Watched {
    stream: TcpStream,
    place: Arc<Place>,
    has_written: bool,
}

impl Watched {
    pub(crate) fn new(stream: TcpStream, place: Arc<Place>) -> Watched {
        Watched {
            stream,
            place,
            has_written: false,
        }
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut TcpStream> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(context, buffer)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.has_written = true;
        self.stream().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.has_written = true;
        self.stream().poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Called when all data has been written: after an answer, but also without one.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.has_written) {
            self.place.set(QUIET_MIN);
        }
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }
}

/// Time that a connection without a complete request keeps its place. A lost request is sent again after
/// about 200 ms.
const QUIET_MIN: Duration = Duration::from_millis(500);

/// Time that an answer keeps its place if the client does not read. Prometheus waits 10 s by default.
const ANSWER_MAX: Duration = Duration::from_secs(5);
