//! Accepts applications of this host that connect to a port of `--forward`, and distributes them among the instances.
//!
//! Each listener has a thread that accepts, because the loops of our TCP never wait for a listener.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tcpcost_link::Bell;

/// An accepted application that wants a connection of our TCP.
#[derive(Debug)]
pub struct Accepted {
    /// Socket of the kernel's TCP, non-blocking.
    pub socket: OwnedFd,
    /// Destination of our connection.
    pub remote: SocketAddr,
}

/// Queue of accepted applications of one instance.
pub struct Queue {
    accepted: Receiver<Accepted>,
    bell: Arc<Bell>,
}

impl Queue {
    /// Bell that is rung while the queue has an application.
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Takes at most [`BATCH`] applications; the bell stays readable if more are queued.
    pub fn take(&self) -> Vec<Accepted> {
        self.bell.hear();
        let accepted: Vec<_> = self.accepted.try_iter().take(BATCH).collect();
        if accepted.len() == BATCH {
            self.bell.ring();
        }
        accepted
    }
}

/// Distributes applications among the instances in turn.
#[derive(Clone)]
pub struct Distributor {
    queues: Arc<[(Sender<Accepted>, Arc<Bell>)]>,
    next: Arc<AtomicUsize>,
}

impl Distributor {
    /// Makes a queue for each of `instances`.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn new(instances: usize) -> io::Result<(Self, Vec<Queue>)> {
        let mut pairs = Vec::new();
        for _ in 0..instances {
            let bell = Arc::new(Bell::new()?);
            let (sender, accepted) = channel();
            pairs.push(((sender, Arc::clone(&bell)), Queue { accepted, bell }));
        }
        let (senders, queues): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let distributor = Self {
            queues: senders.into(),
            next: Arc::default(),
        };
        Ok((distributor, queues))
    }

    fn hand_over(&self, accepted: Accepted) {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, bell) = &self.queues[turn % self.queues.len()];
        // An instance that has ended has no receiver: the application's socket is closed.
        if sender.send(accepted).is_ok() {
            bell.ring();
        }
    }

    /// Accepts from `listener` for as long as the process lives, each for a connection to `remote`.
    ///
    /// # Errors
    /// The limit of threads is reached.
    pub fn forward(&self, listener: TcpListener, remote: SocketAddr) -> io::Result<()> {
        // The standard library asks for 128, which a burst of clients overflows.
        rustix::net::listen(&listener, BACKLOG)?;
        let distributor = self.clone();
        let accept = move || {
            for stream in listener.incoming() {
                match stream {
                    Ok(stream) => distributor.hand_over_stream(stream, remote),
                    // No descriptors are left, or the client has gone: a later accept may succeed.
                    Err(_) => std::thread::sleep(RETRY),
                }
            }
        };
        std::thread::Builder::new()
            .name("forward".to_string())
            .spawn(accept)
            .map(drop)
    }

    fn hand_over_stream(&self, stream: TcpStream, remote: SocketAddr) {
        let _ = stream.set_nodelay(true);
        if stream.set_nonblocking(true).is_ok() {
            let socket = stream.into();
            self.hand_over(Accepted { socket, remote });
        }
    }
}

/// Applications that are taken before other connections have their turns.
const BATCH: usize = 64;
/// Listen backlog: the kernel's default of somaxconn.
const BACKLOG: i32 = 4096;
/// Pause after a failed accept.
const RETRY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::super::epoll_set::EpollSet;
    use super::*;

    #[test]
    fn applications_are_distributed_in_turn_and_ring_the_bell() {
        let (distributor, queues) = Distributor::new(2).unwrap();
        let epoll_sets: Vec<_> = queues
            .iter()
            .map(|queue| EpollSet::with_bell(queue.bell()).unwrap())
            .collect();
        for port in 1..=3 {
            let (socket, _) = UnixStream::pair().unwrap();
            let (socket, remote) = (socket.into(), SocketAddr::from(([10, 0, 0, 1], port)));
            distributor.hand_over(Accepted { socket, remote });
        }
        let ports = |queue: &Queue| {
            let accepted = queue.take();
            let ports = accepted.iter().map(|accepted| accepted.remote.port());
            ports.collect::<Vec<_>>()
        };
        assert_eq!(epoll_sets[0].changes().unwrap(), [None]);
        assert_eq!(ports(&queues[0]), [1, 3]);
        assert_eq!(ports(&queues[1]), [2]);
        assert_eq!(epoll_sets[0].changes().unwrap(), []);
    }
}
