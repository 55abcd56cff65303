//! Where applications of this host come in: sockets of the kernel that `--forward` and `--socks` listen
//! on, and standard input and output.
//!
//! Each listener has a thread, and a SOCKS client has one until it has said where to: asking a name
//! server takes its time, and the loops of our TCP never wait for anybody. What they take over does not
//! block.

use std::io::{self, IsTerminal, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use tcpcost_counts::{Guard, TextForm};

use super::relay::Answer;
use super::socks;

/// An application that wants a connection of our TCP.
#[derive(Debug)]
pub struct Visitor {
    /// Its side; does not block.
    pub socket: OwnedFd,
    /// Where to.
    pub remote: SocketAddr,
    /// What it is told first.
    pub answer: Option<Answer>,
}

/// Where one instance takes its visitors.
pub struct Hall {
    visitors: Receiver<Visitor>,
    bell: Arc<OwnedFd>,
}

impl Hall {
    /// Readable while somebody waits.
    pub fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// Who came since the last look, [`VISITORS`] at most; the bell rings on if there are more.
    pub fn visitors(&self) -> Vec<Visitor> {
        let mut count = [0; 8];
        // Empty if a bell was heard twice.
        let _ = rustix::io::read(&*self.bell, &mut count);
        let visitors: Vec<_> = self.visitors.try_iter().take(VISITORS).collect();
        if visitors.len() == VISITORS {
            let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        }
        visitors
    }
}

/// Distributes visitors among the instances.
#[derive(Clone)]
pub struct Porter {
    halls: Arc<[(Sender<Visitor>, Arc<OwnedFd>)]>,
    next: Arc<AtomicUsize>,
}

impl Porter {
    /// For so many instances, with their halls.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn new(instances: usize) -> io::Result<(Self, Vec<Hall>)> {
        let mut pairs = Vec::new();
        for _ in 0..instances {
            let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
            let bell = Arc::new(rustix::event::eventfd(0, flags)?);
            let (sender, visitors) = channel();
            pairs.push(((sender, Arc::clone(&bell)), Hall { visitors, bell }));
        }
        let (halls, rooms): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let porter = Self {
            halls: halls.into(),
            next: Arc::default(),
        };
        Ok((porter, rooms))
    }

    fn show_in(&self, visitor: Visitor) {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, bell) = &self.halls[turn % self.halls.len()];
        // An instance that has ended takes nobody in, and the visitor is let go.
        if sender.send(visitor).is_ok() {
            let _ = rustix::io::write(&**bell, &1u64.to_ne_bytes());
        }
    }

    fn show_in_stream(&self, stream: TcpStream, remote: SocketAddr, answer: Option<Answer>) {
        let _ = stream.set_nodelay(true);
        if stream.set_nonblocking(true).is_ok() {
            self.show_in(Visitor {
                socket: stream.into(),
                remote,
                answer,
            });
        }
    }

    /// Whoever connects to `listener` wants `remote`.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn forward(&self, listener: TcpListener, remote: SocketAddr) -> io::Result<()> {
        let porter = self.clone();
        open(listener, move |stream| {
            porter.show_in_stream(stream, remote, None)
        })
    }

    /// Whoever connects to `listener` says in SOCKS 5 whom it wants, of those that `fits` lets pass.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn socks(
        &self,
        listener: TcpListener,
        fits: impl Fn(&SocketAddr) -> bool + Clone + Send + 'static,
    ) -> io::Result<()> {
        let porter = self.clone();
        let places = Arc::new(Places::default());
        open(listener, move |stream| {
            // A client that comes when all places are taken waits in the listen queue, as at any busy server.
            places.take();
            let stream = Arc::new(stream);
            let ask = |stream: Arc<TcpStream>| {
                let (porter, places, fits) = (porter.clone(), Arc::clone(&places), fits.clone());
                move || {
                    let deadline = Instant::now() + PATIENCE;
                    let mut within = Within(&stream, deadline);
                    let destination = socks::destination(&mut within, fits);
                    places.free();
                    // After an error the client was told why not.
                    if let Ok(remote) = destination
                        && let Ok(stream) = Arc::try_unwrap(stream).or_else(|it| it.try_clone())
                    {
                        porter.show_in_stream(stream, remote, Some(socks::outcome));
                    }
                }
            };
            let is_started = || {
                let builder = std::thread::Builder::new().name("socks".to_string());
                builder.spawn(ask(Arc::clone(&stream))).is_ok()
            };
            // The limit on threads (RLIMIT_NPROC, pids.max): some will end.
            let deadline = Instant::now() + PATIENCE;
            while !is_started() {
                if Instant::now() >= deadline {
                    places.free();
                    return;
                }
                std::thread::sleep(RETRY);
            }
        })
    }
}

/// Places for SOCKS clients that have not said yet where to, [`ASKED_MAX`] of them.
#[derive(Default)]
struct Places {
    taken: Mutex<usize>,
    freed: Condvar,
}

impl Places {
    /// Waits for a place; clients have [`PATIENCE`] at most, so one becomes free.
    fn take(&self) {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = self.freed.wait_while(taken, |taken| *taken >= ASKED_MAX);
        *taken.unwrap_or_else(PoisonError::into_inner) += 1;
    }

    fn free(&self) {
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.freed.notify_one();
    }
}

/// A stream whose calls together end by a time: a client that says a byte now and then gets no more time by that.
struct Within<'a>(&'a TcpStream, Instant);

impl Within<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.1.saturating_duration_since(Instant::now());
        // 0 would be no limit.
        (left > Duration::ZERO)
            .then_some(Some(left))
            .ok_or_else(|| io::ErrorKind::TimedOut.into())
    }
}

impl Read for Within<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.0.set_read_timeout(self.left()?)?;
        let mut stream = self.0;
        stream.read(to)
    }
}

impl Write for Within<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.set_write_timeout(self.left()?)?;
        let mut stream = self.0;
        stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Takes connections for as long as the process lives.
fn open(listener: TcpListener, take: impl Fn(TcpStream) + Send + 'static) -> io::Result<()> {
    // The standard library asks for 128, which a burst of clients overflows.
    rustix::net::listen(&listener, BACKLOG)?;
    let accept = move || {
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => take(stream),
                // Out of descriptors, or one that was gone at once: others may close some.
                Err(_) => std::thread::sleep(RETRY),
            }
        }
    };
    std::thread::Builder::new()
        .name("door".to_string())
        .spawn(accept)
        .map(drop)
}

/// Standard input and output as one socket.
pub struct Stdio {
    output: JoinHandle<io::Result<u64>>,
}

impl Stdio {
    /// The socket to relay, and what to wait for at the end. Two threads copy: a pipe or terminal that
    /// other processes have as well must not be made non-blocking under them, and a file knows no
    /// waiting at all.
    ///
    /// # Errors
    /// There can be no sockets or threads.
    pub fn open() -> io::Result<(OwnedFd, Self)> {
        let (near, far) = UnixStream::pair()?;
        near.set_nonblocking(true)?;
        let mut writer = far.try_clone()?;
        let input = move || {
            // Ends with the input, or with the connection.
            let _ = copy(&mut io::stdin().lock(), &mut writer);
            let _ = writer.shutdown(Shutdown::Write);
        };
        std::thread::Builder::new()
            .name("input".to_string())
            .spawn(input)?;
        let mut far = far;
        let output = move || {
            let stdout = io::stdout();
            let copied = match stdout.is_terminal() {
                // The other end may write what it likes.
                true => copy(&mut far, &mut Guard::new(stdout, TextForm::Lines)),
                false => copy(&mut far, &mut stdout.lock()),
            };
            if copied.is_err() {
                // Nobody reads any more: the connection hears of it by its next byte.
                let _ = far.shutdown(Shutdown::Both);
            }
            copied
        };
        let output = std::thread::Builder::new()
            .name("output".to_string())
            .spawn(output)?;
        Ok((near.into(), Self { output }))
    }

    /// Waits until all that came is written.
    ///
    /// # Errors
    /// What writing failed by.
    pub fn finish(self) -> io::Result<()> {
        match self.output.join() {
            Ok(written) => written.map(drop),
            Err(_) => Err(io::Error::other("the thread for standard output panicked")),
        }
    }
}

/// As `std::io::copy`, but each read is written at once: somebody may be typing.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<u64> {
    let (mut buffer, mut copied) = (vec![0; 1 << 16], 0);
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(copied),
            Ok(bytes) => {
                to.write_all(&buffer[..bytes])?;
                to.flush()?;
                copied += bytes as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// What an instance waits on beside its interface: the bell and the sockets of its relays.
pub struct Waits {
    epoll: OwnedFd,
}

impl Waits {
    /// On nothing yet.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn new() -> io::Result<Self> {
        use rustix::event::epoll;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll })
    }

    /// On a bell.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn on(bell: &impl AsFd) -> io::Result<Self> {
        use rustix::event::epoll;
        let waits = Self::new()?;
        let (data, events) = (epoll::EventData::new_u64(BELL), epoll::EventFlags::IN);
        epoll::add(&waits.epoll, bell, data, events)?;
        Ok(waits)
    }

    /// For [`UserStack::wake_by`](tcpcost_stack::UserStack::wake_by).
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.epoll.try_clone()
    }

    /// From now on changes of a socket are told under its token; it is forgotten when it is closed.
    ///
    /// # Errors
    /// The kernel's limit of such.
    pub fn add(&self, socket: impl AsFd, token: u32) -> io::Result<()> {
        use rustix::event::epoll::{self, EventFlags};
        // Told once at each change: a full send queue must not keep the loop awake.
        let events = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(
            &self.epoll,
            socket,
            epoll::EventData::new_u64(token.into()),
            events,
        )?)
    }

    /// What changed: tokens, and none for the bell.
    pub fn changes(&self) -> io::Result<Vec<Option<u32>>> {
        use rustix::event::epoll;
        let mut events = Vec::with_capacity(EVENTS);
        let now = rustix::event::Timespec::default();
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&now),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(events
            .iter()
            .map(|event: &epoll::Event| u32::try_from(event.data.u64()).ok())
            .collect())
    }
}

const BELL: u64 = u64::MAX;
const EVENTS: usize = 256;
/// Visitors that are let in before others have their turns.
const VISITORS: usize = 64;
/// SOCKS clients that have not said yet where to.
const ASKED_MAX: usize = 256;
/// As the kernel's somaxconn.
const BACKLOG: i32 = 4096;
/// After a limit on descriptors or threads was met.
const RETRY: Duration = Duration::from_millis(50);
/// For all that such a client says.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visitors_are_shown_in_by_turns_and_the_bell_is_heard() {
        let (porter, halls) = Porter::new(2).unwrap();
        let waits: Vec<_> = halls
            .iter()
            .map(|hall| Waits::on(hall.bell()).unwrap())
            .collect();
        for port in 1..=3 {
            let (socket, _) = UnixStream::pair().unwrap();
            let (socket, remote) = (socket.into(), SocketAddr::from(([10, 0, 0, 1], port)));
            porter.show_in(Visitor {
                socket,
                remote,
                answer: None,
            });
        }
        let ports = |hall: &Hall| {
            hall.visitors()
                .iter()
                .map(|visitor| visitor.remote.port())
                .collect::<Vec<_>>()
        };
        assert_eq!(waits[0].changes().unwrap(), [None]);
        assert_eq!(ports(&halls[0]), [1, 3]);
        assert_eq!(ports(&halls[1]), [2]);
        assert_eq!(waits[0].changes().unwrap(), []);
    }
}
