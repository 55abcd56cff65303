//! An application's end of a connection: a kernel socket, or a socket of our TCP on a TAP.

use std::cell::RefCell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use tcpcost_link::{Layer, Offloads, Tap};
use tcpcost_stack::{SocketOptions, Stack, UserConn, UserStack};
use tcpcost_tcp::{Config, Connection};

use super::program::Program;

/// Operations of an application; no call blocks.
pub trait End {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize>;
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Bytes that wait to be read.
    fn waiting(&mut self) -> usize;
    fn shutdown(&mut self);
    /// Closes; the end is not used afterwards.
    fn close(&mut self);
    /// Closes by a reset; the end is not used afterwards.
    fn abort(&mut self);
    /// Runs our stack for a turn; does nothing for the kernel's.
    fn turn(&mut self);
}

/// Two ends of one connection; the `watched` end is always the kernel's.
pub struct Pair {
    pub tried: Box<dyn End>,
    pub watched: Box<dyn End>,
}

/// Sizes of the socket buffers, bytes, of our ends and of the kernel's.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    pub ours: usize,
    pub kernels: usize,
}

type Ours = Rc<RefCell<UserStack<Tap>>>;

/// A TAP with our TCP behind it.
pub struct Bed {
    kernel: IpAddr,
    ours: IpAddr,
    buffers: Option<Buffers>,
    stack: Ours,
    port: u16,
}

impl Bed {
    pub fn new(ipv6: bool, buffers: Option<Buffers>) -> Self {
        let [kernel, ours]: [IpAddr; 2] = match ipv6 {
            false => ["10.79.0.1", "10.79.0.2"],
            true => ["fd79::1", "fd79::2"],
        }
        .map(|text| text.parse().unwrap());
        let mut tap = Tap::open("tap%d", Layer::Ethernet, Offloads::ALL).unwrap();
        tap.answer_for(ours);
        let name = tap.name().to_string();
        super::ip("link set lo up");
        super::ip(&format!("link set {name} up"));
        match ipv6 {
            false => super::ip(&format!("addr add 10.79.0.1/24 dev {name}")),
            true => super::ip(&format!("addr add fd79::1/64 dev {name} nodad")),
        }
        let options = SocketOptions {
            send_buffer_bytes: buffers.map(|sizes| sizes.ours),
            receive_buffer_bytes: buffers.map(|sizes| sizes.ours),
            ..SocketOptions::default()
        };
        let stack = UserStack::new(tap, &[ours], &Config::default(), &options).unwrap();
        Self {
            kernel,
            ours,
            buffers,
            stack: Rc::new(RefCell::new(stack)),
            port: 1000,
        }
    }

    /// Makes a connection with the kernel's TCP at both ends.
    pub fn kernels(&mut self, program: &Program) -> Pair {
        let listener = self.listener();
        listener.set_nonblocking(true).unwrap();
        let to = listener.local_addr().unwrap();
        let mut first = self.connect(to);
        let second = self.until(|_| {
            // An address that was just set may not be usable yet.
            if first.take_error().unwrap().is_some() {
                first = self.connect(to);
            }
            Some(listener.accept().ok()?.0)
        });
        let [tried, watched] = match program.tried_connects {
            true => [first, second],
            false => [second, first],
        };
        Pair {
            tried: Box::new(KernelEnd::new(tried)),
            watched: Box::new(KernelEnd::new(watched)),
        }
    }

    /// Makes a connection with our TCP at the tried end.
    pub fn ours(&mut self, program: &Program) -> Pair {
        let (conn, watched) = if program.tried_connects {
            let listener = self.listener();
            listener.set_nonblocking(true).unwrap();
            let to = listener.local_addr().unwrap();
            let conn = self.stack.borrow_mut().connect(to, 1).unwrap();
            let accepted = self.until(|stack| {
                stack.connected(conn).is_ok().then_some(())?;
                Some(listener.accept().ok()?.0)
            });
            (conn, accepted)
        } else {
            self.port += 1;
            let at = SocketAddr::new(self.ours, self.port);
            let listener = self.stack.borrow_mut().listen(at, 5, 0).unwrap();
            let stream = self.connect(at);
            let conn = self.until(|stack| Some(stack.accept(listener, 1).ok()?.0));
            self.until(|_| stream.peer_addr().is_ok().then_some(()));
            self.stack.borrow_mut().close_listener(listener);
            (conn, stream)
        };
        Pair {
            tried: Box::new(OurEnd {
                stack: Rc::clone(&self.stack),
                conn,
            }),
            watched: Box::new(KernelEnd::new(watched)),
        }
    }

    fn until<T>(&self, mut done: impl FnMut(&mut UserStack<Tap>) -> Option<T>) -> T {
        let deadline = Instant::now() + BOUND;
        loop {
            let mut stack = self.stack.borrow_mut();
            stack.poll(Some(TURN)).unwrap();
            if let Some(value) = done(&mut stack) {
                return value;
            }
            assert!(Instant::now() < deadline, "no connection");
        }
    }

    fn listener(&self) -> TcpListener {
        let listener = TcpListener::bind(SocketAddr::new(self.kernel, 0)).unwrap();
        self.size(&listener);
        listener
    }

    /// Begins to connect.
    fn connect(&self, to: SocketAddr) -> TcpStream {
        use rustix::net::{AddressFamily, SocketType, connect, socket};
        let family = match to.is_ipv4() {
            true => AddressFamily::INET,
            false => AddressFamily::INET6,
        };
        let socket = socket(family, SocketType::STREAM, None).unwrap();
        self.size(&socket);
        rustix::io::ioctl_fionbio(&socket, true).unwrap();
        match connect(&socket, &to) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => TcpStream::from(socket),
            Err(error) => panic!("{error}"),
        }
    }

    fn size(&self, socket: &impl AsFd) {
        if let Some(sizes) = self.buffers {
            sockopt::set_socket_send_buffer_size(socket, sizes.kernels).unwrap();
            sockopt::set_socket_recv_buffer_size(socket, sizes.kernels).unwrap();
        }
    }
}

struct KernelEnd(Option<TcpStream>);

impl KernelEnd {
    fn new(stream: TcpStream) -> Self {
        stream.set_nonblocking(true).unwrap();
        Self(Some(stream))
    }

    fn stream(&mut self) -> &mut TcpStream {
        self.0.as_mut().expect("not closed yet")
    }
}

impl End for KernelEnd {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.stream().read(to)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream().write(bytes)
    }

    fn waiting(&mut self) -> usize {
        rustix::io::ioctl_fionread(self.stream()).unwrap() as usize
    }

    fn shutdown(&mut self) {
        self.stream().shutdown(Shutdown::Write).unwrap();
    }

    fn close(&mut self) {
        self.0 = None;
    }

    fn abort(&mut self) {
        sockopt::set_socket_linger(self.stream(), Some(Duration::ZERO)).unwrap();
        self.close();
    }

    fn turn(&mut self) {
        std::thread::yield_now();
    }
}

struct OurEnd {
    stack: Ours,
    conn: UserConn,
}

impl End for OurEnd {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.stack.borrow_mut().read(self.conn, to)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stack.borrow_mut().write(self.conn, bytes)
    }

    fn waiting(&mut self) -> usize {
        let stack = self.stack.borrow();
        stack.connection(self.conn).map_or(0, Connection::readable)
    }

    fn shutdown(&mut self) {
        let closed = |connection: &mut Connection, _| connection.close();
        self.stack.borrow_mut().with(self.conn, closed).unwrap();
    }

    fn close(&mut self) {
        self.stack.borrow_mut().close(self.conn);
    }

    fn abort(&mut self) {
        self.stack.borrow_mut().abort(self.conn);
    }

    fn turn(&mut self) {
        self.stack.borrow_mut().poll(Some(TURN)).unwrap();
    }
}

pub fn is_nothing(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
}

/// Longest wait of our TCP for packets before the kernel's end has its turn.
const TURN: Duration = Duration::from_millis(1);
/// Time after which a test fails.
pub const BOUND: Duration = Duration::from_secs(60);
