//! State of a running test that timers and interim results use.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::net::Shutdown;
use tcpcost_meter::tcp_info;

/// State shared by the traffic's thread and the timers. Only the traffic's thread writes the counts.
#[derive(Debug, Default)]
pub struct Live {
    socket: Mutex<Option<Arc<OwnedFd>>>,
    is_over: AtomicBool,
    bytes: AtomicU64,
    transactions: AtomicU64,
    /// Bytes received, and bytes acknowledged, at the end of the time.
    at_end: Mutex<Option<(u64, u64)>>,
}

impl Live {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<OwnedFd>>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the socket that [`Live::end`] shuts down. If the time is over already, the socket is shut down at
    /// once.
    pub fn watch(&self, socket: &Arc<OwnedFd>) {
        *self.lock() = Some(Arc::clone(socket));
        if self.is_over() {
            let _ = rustix::net::shutdown(socket.as_fd(), Shutdown::Both);
        }
    }

    /// Drops the reference to the socket, so that it closes with its owner.
    pub fn forget(&self) {
        *self.lock() = None;
    }

    /// Ends the time and keeps the counts so far. Calls that wait for the socket end.
    pub fn end(&self, how: Option<Shutdown>) {
        let socket = self.lock().clone();
        let bytes = self.bytes.load(Ordering::Relaxed);
        let acknowledged = self.acknowledged();
        *self.at_end.lock().unwrap_or_else(PoisonError::into_inner) = Some((bytes, acknowledged));
        self.is_over.store(true, Ordering::Release);
        if let (Some(socket), Some(how)) = (socket, how) {
            let _ = rustix::net::shutdown(socket.as_fd(), how);
        }
    }

    /// Shuts the socket down without ending the time.
    pub fn shut(&self, how: Shutdown) {
        if let Some(socket) = self.lock().clone() {
            let _ = rustix::net::shutdown(socket.as_fd(), how);
        }
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    pub fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    pub fn set_transactions(&self, transactions: u64) {
        self.transactions.store(transactions, Ordering::Relaxed);
    }

    /// Bytes received, or sent as datagrams, so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn transactions(&self) -> u64 {
        self.transactions.load(Ordering::Relaxed)
    }

    /// Bytes on the socket that the other side's TCP has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        let socket = self.lock().clone();
        let info = socket.and_then(|socket| tcp_info::fields(socket.as_fd()).ok());
        info.map_or(0, |info| info.bytes_acked)
    }

    /// Bytes received, and bytes acknowledged, at the end of the time.
    pub fn at_end(&self) -> Option<(u64, u64)> {
        *self.at_end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
