//! Where applications of this host come in: sockets of the kernel that `--forward` and `--socks` listen
//! on, and standard input and output.
//!
//! Each listener has a thread, and a SOCKS client has one until it has said where to: asking a name
//! server takes its time, and the loops of our TCP never wait for anybody. What they take over does not
//! block.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::EventfdFlags;

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
        let asked = Arc::new(AtomicUsize::new(0));
        open(listener, move |mut stream| {
            // Who says nothing is in nobody's way for long.
            if asked.fetch_add(1, Ordering::Relaxed) >= ASKED_MAX {
                asked.fetch_sub(1, Ordering::Relaxed);
                return;
            }
            let (porter, left, fits) = (porter.clone(), Arc::clone(&asked), fits.clone());
            let ask = move || {
                let times = stream
                    .set_read_timeout(Some(PATIENCE))
                    .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
                let said = times.and_then(|()| socks::destination(&mut stream, fits));
                left.fetch_sub(1, Ordering::Relaxed);
                // It was told why not.
                if let Ok(remote) = said {
                    porter.show_in_stream(stream, remote, Some(socks::outcome));
                }
            };
            if std::thread::Builder::new()
                .name("socks".to_string())
                .spawn(ask)
                .is_err()
            {
                asked.fetch_sub(1, Ordering::Relaxed);
            }
        })
    }
}

/// Takes connections for as long as the process lives.
fn open(listener: TcpListener, take: impl Fn(TcpStream) + Send + 'static) -> io::Result<()> {
    let accept = move || {
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => take(stream),
                // Out of descriptors, or one that was gone at once: others may close some.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
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
            let copied = copy(&mut far, &mut io::stdout().lock());
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
/// With such a one.
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
