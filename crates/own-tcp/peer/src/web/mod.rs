//! `--service serve:DIR`: the files of a directory over HTTP/1.1 on our TCP, so that curl, wget, browsers and wrk
//! fetch real files. hyper speaks HTTP; `files.rs` finds the files.
//!
//! The loop that drives our TCP polls hyper's futures after each event of a connection: there is no other executor. Not here:
//! TLS, HTTP/2, compression, limits for idle clients.

mod files;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use hyper::Request;
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tcpcost_tcp::{Connection, Piece, Pool, ReadError};

use super::turn::{NextStep, Step, turn};

pub use files::Files;

/// A client's connection.
pub struct Client {
    buffers: Rc<RefCell<Buffers>>,
    conversation: Pin<Box<dyn Future<Output = hyper::Result<()>>>>,
    woken: Arc<Woken>,
}

impl Client {
    /// Starts a conversation that serves these files.
    pub fn new(files: &Rc<Files>, pool: &Pool) -> Self {
        let buffers = Rc::new(RefCell::new(Buffers::new(pool.clone())));
        let files = Rc::clone(files);
        let answer = service_fn(move |request: Request<Incoming>| {
            let answer = files.answer(&request);
            async { Ok::<_, io::Error>(answer) }
        });
        let conversation = http1::Builder::new()
            .half_close(true)
            .writev(true)
            .serve_connection(HyperIo(Rc::clone(&buffers)), answer);
        Self {
            buffers,
            conversation: Box::pin(conversation),
            woken: Arc::default(),
        }
    }

    /// Takes a turn.
    pub fn serve(&mut self, connection: &mut Connection, now: Instant) -> NextStep {
        let waker = Waker::from(Arc::clone(&self.woken));
        turn(|| self.step(connection, &waker, now))
    }

    fn step(&mut self, connection: &mut Connection, waker: &Waker, now: Instant) -> Step {
        let Some(received) = self.buffers.borrow_mut().read_connection(connection, now) else {
            return Step::Over;
        };
        let step = self
            .conversation
            .as_mut()
            .poll(&mut Context::from_waker(waker));
        let sent = self.buffers.borrow_mut().write_connection(connection);
        if step.is_ready() {
            return Step::Over;
        }
        // hyper may stop early and wake itself, to let other tasks run: this is a step, too.
        let woken = self.woken.0.swap(false, Ordering::Relaxed);
        Step::Moved((received + sent).max(woken.into()))
    }
}

/// True once hyper asks to be polled again.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Buffers between our TCP and hyper: bytes that arrived and are not read, bytes that hyper wrote and are not queued.
struct Buffers {
    arrived: VecDeque<Piece>,
    arrived_bytes: usize,
    finished: bool,
    leaving: Vec<Piece>,
    /// Bytes that may be written.
    room: usize,
    pool: Pool,
}

impl Buffers {
    fn new(pool: Pool) -> Self {
        Self {
            arrived: VecDeque::new(),
            arrived_bytes: 0,
            finished: false,
            leaving: Vec::new(),
            room: 0,
            pool,
        }
    }

    /// Reads bytes of the connection, at most those of one request: a client that sends faster than hyper reads finds the window
    /// closed. Returns their number; `None` if the connection has ended with an error.
    fn read_connection(&mut self, connection: &mut Connection, now: Instant) -> Option<usize> {
        self.room = connection.writable();
        let before = self.arrived_bytes;
        while !self.finished && self.arrived_bytes < REQUEST_BYTES {
            match connection.read_piece(REQUEST_BYTES, now) {
                Ok(piece) => {
                    self.arrived_bytes += piece.len();
                    self.arrived.push_back(piece);
                }
                Err(ReadError::Empty) => break,
                Err(ReadError::Finished) => self.finished = true,
                Err(ReadError::Ended(_)) => return None,
            }
        }
        let received = self.arrived_bytes - before;
        connection.ended().is_none().then_some(received)
    }

    /// Queues the bytes that hyper wrote. Returns their number.
    fn write_connection(&mut self, connection: &mut Connection) -> usize {
        let mut bytes = 0;
        for piece in self.leaving.drain(..) {
            bytes += piece.len();
            // hyper wrote no more than fits; an error shows at the next read.
            let _ = if piece.len() < WORTH_A_SLAB {
                connection.write(piece.as_ref()).map(drop)
            } else {
                connection.write_piece(piece).map(drop)
            };
        }
        bytes
    }

    fn write(&mut self, slices: &[IoSlice<'_>]) -> usize {
        let mut written = 0;
        while self.room > 0 && slices.iter().map(|slice| slice.len()).sum::<usize>() > written {
            let piece = self.pool.fill(|buffer| {
                let most = buffer.len().min(self.room);
                let (mut skip, mut filled) = (written, 0);
                for slice in slices {
                    let from = skip.min(slice.len());
                    skip -= from;
                    let part = &slice[from..];
                    let part = &part[..part.len().min(most - filled)];
                    buffer[filled..filled + part.len()].copy_from_slice(part);
                    filled += part.len();
                }
                Ok::<_, io::Error>(filled)
            });
            let piece = piece.unwrap_or_default();
            written += piece.len();
            self.room -= piece.len();
            self.leaving.push(piece);
        }
        written
    }
}

/// hyper's end of the buffers.
struct HyperIo(Rc<RefCell<Buffers>>);

impl Read for HyperIo {
    fn poll_read(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        mut to: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut buffers = self.0.borrow_mut();
        let Some(first) = buffers.arrived.front_mut() else {
            return if buffers.finished {
                Poll::Ready(Ok(()))
            } else {
                Poll::Pending
            };
        };
        let bytes = first.len().min(to.remaining());
        to.put_slice(&first.as_ref()[..bytes]);
        first.trim_front(bytes);
        if first.is_empty() {
            buffers.arrived.pop_front();
        }
        buffers.arrived_bytes -= bytes;
        Poll::Ready(Ok(()))
    }
}

impl Write for HyperIo {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut buffers = self.0.borrow_mut();
        if buffers.room == 0 && slices.iter().any(|slice| !slice.is_empty()) {
            return Poll::Pending;
        }
        Poll::Ready(Ok(buffers.write(slices)))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The connection is closed when the conversation is over.
        Poll::Ready(Ok(()))
    }
}

/// Limit of bytes that wait for hyper.
const REQUEST_BYTES: usize = 1 << 16;
/// Bytes from which a piece is queued without a copy.
const WORTH_A_SLAB: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_not_taken_and_slices_become_one() {
        let mut buffers = Buffers::new(Pool::default());
        buffers.room = 7;
        let slices = [&b"abc"[..], b"", b"defgh"].map(IoSlice::new);
        assert_eq!(buffers.write(&slices), 7);
        assert_eq!(buffers.leaving.len(), 1);
        assert_eq!(buffers.leaving[0].as_ref(), b"abcdefg");
        assert_eq!(buffers.write(&slices), 0);
    }

    #[test]
    fn more_than_a_slab_is_several() {
        let mut buffers = Buffers::new(Pool::default());
        buffers.room = 1 << 20;
        let bytes: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
        let slices = [
            IoSlice::new(&bytes[..100_001]),
            IoSlice::new(&bytes[100_001..]),
        ];
        assert_eq!(buffers.write(&slices), bytes.len());
        let written: Vec<u8> = buffers
            .leaving
            .iter()
            .flat_map(|piece| piece.as_ref().to_vec())
            .collect();
        assert!(written == bytes);
    }
}
