//! A test at netserver's end.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::Shutdown;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use tcpcost_meter::tcp_info;

use super::Server;
use super::connections::{Buffers, Place, Running};
use super::control::{Control, Ends};
use super::limits::{BACKLOG, BEYOND, BEYOND_TRANSACTIONS, BUFFER, DATA_CONNECTION, IDLE};
use crate::Failure;
use crate::cpu::{Cpu, Meters, Reading};
use crate::net::socket::{self, Sizes, SocketOptions, data_socket, errno};
use crate::net::timers;
use crate::options::Transport;
use crate::protocol::exact::{self, OwnCpu};
use crate::protocol::omni::{self, RECEIVES, Request, Response, Results, SENDS, flag};
use crate::protocol::{LENGTH_MAX_S, Message, PROC_STAT, classic, kind};
use crate::traffic::{self, Counted, Live, Until};

/// Runs the requested test and sends the results. True if the session continues.
pub fn run(
    server: &Server,
    place: &Place,
    control: &mut Control,
    ends: &Ends,
    message: &Message,
    request: &Request,
) -> bool {
    let _turn = server.turn();
    let to_be_told = |error: &io::Error| Message::new(message.kind + 1, errno(error));
    let is_omni = message.kind == kind::OMNI;
    let set_up = Plan::of(request, ends, &server.bound)
        .and_then(|plan| Ready::new(place, plan, message.aside));
    let ready = match set_up {
        Ok(ready) => ready,
        Err(error) => {
            control.send(&to_be_told(&error));
            return false;
        }
    };
    let response = ready.response();
    let mut answer = match is_omni {
        true => response.message(),
        false => classic::response(message.kind, &response),
    };
    // Marks the answer as ours, without a CPU time yet.
    exact::put(
        &mut answer,
        OwnCpu {
            cpu_ns: 0,
            method: exact::Method::Share,
        },
    );
    if !control.send(&answer) {
        return false;
    }
    match ready.run(control.socket()) {
        Ok((results, own)) => {
            let mut answer = match is_omni {
                true => results.message(),
                false => classic::results(message.kind, &results),
            };
            if let Some(own) = own {
                exact::put(&mut answer, own);
            }
            control.send(&answer)
        }
        Err(error) => {
            control.send(&to_be_told(&error));
            false
        }
    }
}

/// A checked request.
#[derive(Debug)]
struct Plan {
    listen: SocketAddr,
    /// Peer from which data is accepted.
    peer: IpAddr,
    options: SocketOptions,
    request: Request,
    until: Until,
    /// Duration of the test. `None` if the clock does not end it.
    time: Option<Duration>,
}

fn refused(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

impl Plan {
    /// Checks all values from the network.
    fn of(request: &Request, ends: &Ends, bound: &[SocketAddr]) -> io::Result<Plan> {
        let transport = match (request.socket_type, request.protocol) {
            (omni::STREAM_SOCKET, omni::TCP) => Transport::Tcp,
            (omni::DATAGRAM_SOCKET, omni::UDP) => Transport::Udp,
            _ => return Err(refused(libc::EPROTONOSUPPORT)),
        };
        // A request must not make this host send datagrams to an address that it only names.
        let sends_alone = request.direction & (SENDS | RECEIVES) == SENDS;
        let is_connect_test = request.flags & flag::CONNECT_TEST != 0;
        if transport == Transport::Udp && (sends_alone || is_connect_test) {
            return Err(refused(libc::EOPNOTSUPP));
        }
        let unknown = flag::FASTOPEN | flag::DEFER_ACCEPT;
        let has_intervals = request.interval_burst != 0 || request.interval_usecs != 0;
        let is_connection_alone = request.direction & (SENDS | RECEIVES) == 0;
        if request.flags & unknown != 0 || has_intervals || is_connection_alone {
            return Err(refused(libc::EOPNOTSUPP));
        }
        // Files of this host must not be sent to clients.
        if !request.fill_file.is_empty() {
            return Err(refused(libc::EPERM));
        }
        if request.test_length == 0 || request.test_length > LENGTH_MAX_S {
            return Err(refused(libc::EINVAL));
        }
        let is_v6 = match request.ipfamily {
            0 => ends.local.is_ipv6(),
            4 => false,
            6 => true,
            _ => return Err(refused(libc::EAFNOSUPPORT)),
        };
        if is_v6 != ends.local.is_ipv6() {
            return Err(refused(libc::EAFNOSUPPORT));
        }
        let port = u16::try_from(request.data_port).map_err(|_| refused(libc::EINVAL))?;
        // Ports of services are reserved for users of this host.
        if (1..1024).contains(&port) {
            return Err(refused(libc::EACCES));
        }
        let address = omni::address_of(&request.netserver_ip, is_v6).unwrap_or(ends.local.ip());
        let is_ours = |bound: &SocketAddr| bound.ip() == address || bound.ip().is_unspecified();
        if address != ends.local.ip() && !bound.iter().any(is_ours) {
            return Err(refused(libc::EADDRNOTAVAIL));
        }
        let mut listen = SocketAddr::new(address, port);
        if let (SocketAddr::V6(listen), SocketAddr::V6(local)) = (&mut listen, ends.local) {
            // A link-local address needs its interface.
            listen.set_scope_id(local.scope_id());
        }
        let asked = |value: i32| (value >= 0).then_some(value);
        let options = SocketOptions {
            transport,
            send_buffer: asked(request.send_buf_size),
            receive_buffer: asked(request.recv_buf_size),
            nodelay: request.flags & flag::NO_DELAY != 0,
            keepalive: request.flags & flag::KEEPALIVE != 0,
            priority: asked(request.socket_prio),
            tos: asked(request.socket_tos),
            congestion: request.cong_control.clone(),
            unrouted: request.flags & flag::ROUTING_ALLOWED == 0,
            ..SocketOptions::default()
        };
        let seconds = u64::try_from(request.test_length).ok();
        Ok(Plan {
            listen,
            peer: ends.peer.ip(),
            options,
            until: Until::of(request.test_length),
            time: seconds.map(Duration::from_secs),
            request: request.clone(),
        })
    }

    fn sends(&self) -> bool {
        self.request.direction & SENDS != 0
    }

    fn receives(&self) -> bool {
        self.request.direction & RECEIVES != 0
    }

    fn is_connect_test(&self) -> bool {
        self.request.flags & flag::CONNECT_TEST != 0
    }

    /// Sizes of a send and of a receive, in bytes.
    fn lengths(&self, sizes: Sizes) -> io::Result<(usize, usize)> {
        let request = &self.request;
        let is_transactions = self.sends() && self.receives();
        let length = |asked: i32, or: i32, is_used: bool| {
            let length = if asked > 0 { asked } else { or.max(1) };
            let length = if is_used {
                usize::try_from(length).unwrap_or(0)
            } else {
                0
            };
            (length <= BUFFER)
                .then_some(length)
                .ok_or_else(|| refused(libc::EMSGSIZE))
        };
        if is_transactions && (request.request_size < 1 || request.response_size < 1) {
            return Err(refused(libc::EINVAL));
        }
        let (send, receive) = match is_transactions {
            true => (request.response_size, request.request_size),
            false => (request.send_size, request.receive_size),
        };
        Ok((
            length(send, sizes.send, self.sends())?,
            length(receive, sizes.receive, self.receives())?,
        ))
    }
}

/// Test that waits for its data connection.
struct Ready<'a> {
    plan: Plan,
    place: &'a Place,
    listener: Arc<OwnedFd>,
    sizes: Sizes,
    send: Vec<u8>,
    receive: Vec<u8>,
    meters: Option<Meters>,
    _room: Buffers,
}

impl<'a> Ready<'a> {
    fn new(place: &'a Place, plan: Plan, cpu: i32) -> io::Result<Ready<'a>> {
        if let Ok(cpu) = usize::try_from(cpu) {
            // A CPU that does not exist is an error of the client.
            if cpu >= CPUS_MAX {
                return Err(refused(libc::EINVAL));
            }
            tcpcost_meter::affinity::pin(cpu).map_err(|_| refused(libc::EINVAL))?;
        }
        let measures = plan.request.flags & flag::MEASURE_CPU != 0;
        // Opened before the listener, because softirqs for sockets that the thread makes from now on belong
        // to the test.
        let meters = measures.then(|| Meters::open(plan.options.transport));
        let listener = data_socket(plan.listen, &plan.options)?;
        let sizes = socket::sizes(listener.as_fd());
        let (send, receive) = plan.lengths(sizes)?;
        let room = place.buffers(send + receive);
        let room = room.ok_or_else(|| refused(libc::ENOBUFS))?;
        if plan.options.transport == Transport::Tcp {
            rustix::net::listen(&listener, BACKLOG)?;
        }
        Ok(Ready {
            listener: Arc::new(listener),
            sizes,
            send: traffic::filler(send),
            receive: vec![0; receive],
            meters,
            _room: room,
            place,
            plan,
        })
    }

    fn response(&self) -> Response {
        let request = &self.plan.request;
        let length = |bytes: usize, asked: i32| match bytes {
            0 => asked,
            bytes => i32::try_from(bytes).unwrap_or(i32::MAX),
        };
        let bound = rustix::net::getsockname(&*self.listener).ok();
        let bound = bound.and_then(|bound| SocketAddr::try_from(bound).ok());
        let (ip, options) = (self.plan.listen.ip(), &self.plan.options);
        Response {
            recv_buf_size: self.sizes.receive,
            receive_size: length(self.receive.len(), request.receive_size),
            send_buf_size: self.sizes.send,
            send_size: length(self.send.len(), request.send_size),
            flags: request.flags & (flag::NO_DELAY | flag::MEASURE_CPU),
            data_port: bound.map_or(0, |bound| bound.port().into()),
            socket_prio: socket::priority(self.listener.as_fd(), options.priority),
            socket_tos: socket::tos(self.listener.as_fd(), ip, options.tos),
        }
    }

    fn run(mut self, control: BorrowedFd<'_>) -> io::Result<(Results, Option<OwnCpu>)> {
        let live = Arc::<Live>::default();
        let end = Instant::now() + DATA_CONNECTION;
        let seen = match self.plan.options.transport {
            Transport::Udp => {
                let from = self.first_from(control, end)?;
                self.datagrams(&live, from)?
            }
            Transport::Tcp if self.plan.is_connect_test() => {
                self.wait(control, end)?;
                self.each_its_own(&live)?
            }
            Transport::Tcp => {
                let socket = Arc::new(self.accept(control, end)?);
                self.one_connection(&live, &socket)?
            }
        };
        let mut results = Results {
            bytes_received: seen.counted.bytes_received,
            recv_calls: seen.counted.receive_calls as u32,
            recv_buf_size: seen.sizes.receive,
            bytes_sent: seen.counted.bytes_sent,
            send_calls: seen.counted.send_calls as u32,
            send_buf_size: seen.sizes.send,
            trans_received: seen.counted.transactions as u32,
            elapsed_time: seen.elapsed.as_secs_f32(),
            cpu_util: -1.0,
            cpu_method: PROC_STAT,
            num_cpus: u32::try_from(tcpcost_host::cpus::online().len()).unwrap_or(u32::MAX),
            transport_retrans: seen.retransmits,
            cong_control: seen.congestion,
            ..Results::default()
        };
        let own = seen.cpu.map(|cpu| {
            if let Some(cpu) = cpu.utilization {
                results.cpu_util = cpu.all as f32;
                results.cpu_percent_user = cpu.user as f32;
                results.cpu_percent_system = cpu.system as f32;
                results.cpu_percent_iowait = cpu.iowait as f32;
                results.cpu_percent_irq = cpu.irq as f32;
                results.cpu_percent_swintr = cpu.softirq as f32;
                results.peak_cpu_util = cpu.peak as f32;
                results.peak_cpu_id = cpu.peak_id;
            }
            let (cpu_ns, method) = cpu.cpu_ns.zip(cpu.method)?;
            Some(OwnCpu { cpu_ns, method })
        });
        Ok((results, own.flatten()))
    }

    /// Waits for a data connection. Fails if the client closes or the session is ended.
    fn wait(&self, control: BorrowedFd<'_>, end: Instant) -> io::Result<()> {
        loop {
            let mut ready = [
                PollFd::new(&*self.listener, PollFlags::IN),
                PollFd::from_borrowed_fd(control, PollFlags::IN | PollFlags::RDHUP),
            ];
            let left = end.saturating_duration_since(Instant::now());
            let left = rustix::time::Timespec::try_from(left).map_err(io::Error::other)?;
            match rustix::event::poll(&mut ready, Some(&left)) {
                Ok(0) => return Err(refused(libc::ETIMEDOUT)),
                Ok(_) if !ready[1].revents().is_empty() => {
                    return Err(refused(libc::ECONNABORTED));
                }
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Accepts the data connection from the peer of the control connection. Connections of others do not
    /// extend the wait.
    fn accept(&self, control: BorrowedFd<'_>, end: Instant) -> io::Result<OwnedFd> {
        // Non-blocking, because a connection that is reset before it is accepted would block us.
        rustix::io::ioctl_fionbio(&*self.listener, true)?;
        loop {
            self.wait(control, end)?;
            let is_known = |from: SocketAddr| from.ip() == self.plan.peer;
            match traffic::accept_one(self.listener.as_fd(), is_known) {
                Ok(Some(socket)) => return Ok(socket),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Ok(None) | Err(_) => {}
            }
        }
    }

    /// Waits for the first datagram from the peer of the control connection and returns its address. Those
    /// of others do not extend the wait.
    fn first_from(&self, control: BorrowedFd<'_>, end: Instant) -> io::Result<SocketAddr> {
        loop {
            self.wait(control, end)?;
            let is_known = |from: SocketAddr| from.ip() == self.plan.peer;
            match traffic::next_from(self.listener.as_fd(), is_known) {
                Ok(Some(from)) => return Ok(from),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Ok(None) | Err(_) => {}
            }
        }
    }

    /// Marks the start of the traffic. From now on the session cannot be ended for another.
    fn running(&self) -> io::Result<Running> {
        let running = self.place.running();
        running.ok_or_else(|| refused(libc::ECONNABORTED))
    }

    fn one_connection(&mut self, live: &Arc<Live>, socket: &Arc<OwnedFd>) -> io::Result<Seen> {
        let _running = self.running()?;
        let fd = socket.as_fd();
        // No further connection is accepted.
        let _ = rustix::net::shutdown(&*self.listener, Shutdown::Both);
        if self.plan.time.is_none() {
            set_socket_timeout(fd, Timeout::Recv, Some(IDLE))?;
            set_socket_timeout(fd, Timeout::Send, Some(IDLE))?;
        }
        live.watch(socket);
        let before = self.read(Meters::begin)?;
        let begin = Instant::now();
        let timer = self.end_timer(live, begin);
        let until = self.plan.until;
        let counted = match (self.plan.sends(), self.plan.receives()) {
            (true, true) => traffic::respond(fd, &mut self.receive, &self.send, until),
            // netperf ends by its own clock, which may be earlier.
            (true, false) => traffic::send(live, fd, &self.send, until, None),
            _ => traffic::receive(live, fd, &mut self.receive, until, None),
        }?;
        let elapsed = begin.elapsed();
        let _ = rustix::net::shutdown(fd, Shutdown::Write);
        // Reads data in flight until netperf closes: with -b the original sends more requests than it needs
        // answers.
        traffic::drain(fd)?;
        drop(timer);
        let after = self.read(Meters::end)?;
        let info = tcp_info::fields(fd).ok();
        let segments = info.map_or(0, |info| u64::from(info.segs_out));
        Ok(Seen {
            counted,
            elapsed,
            retransmits: info.map_or(-1, |info| info.total_retrans.cast_signed()),
            sizes: socket::sizes(fd),
            congestion: socket::congestion(fd),
            cpu: self.cpu(before, after, segments),
        })
    }

    /// Receives, and answers if asked for, until netperf announces the end or the time is over.
    fn datagrams(&mut self, live: &Arc<Live>, from: SocketAddr) -> io::Result<Seen> {
        let _running = self.running()?;
        let socket = Arc::clone(&self.listener);
        let fd = socket.as_fd();
        let is_connected = self.plan.request.flags & flag::CONNECTED != 0;
        if is_connected {
            rustix::net::connect(fd, &from)?;
        }
        if self.plan.time.is_none() {
            set_socket_timeout(fd, Timeout::Recv, Some(IDLE))?;
        }
        live.watch(&socket);
        let before = self.read(Meters::begin)?;
        let begin = Instant::now();
        let timer = self.end_timer(live, begin);
        let response = self.plan.sends().then_some(&self.send[..]);
        let known = |other: SocketAddr| other == from;
        let buffer = &mut self.receive;
        let counted = traffic::receive_datagrams(fd, known, buffer, response, is_connected)?;
        // The datagrams of the end may be lost.
        let elapsed = begin.elapsed();
        let elapsed = elapsed.min(self.plan.time.unwrap_or(elapsed));
        drop(timer);
        let after = self.read(Meters::end)?;
        let packets = counted.packets(|bytes| socket::fragments(from, bytes));
        Ok(Seen {
            counted,
            elapsed,
            retransmits: -1,
            sizes: self.sizes,
            congestion: String::new(),
            cpu: self.cpu(before, after, packets),
        })
    }

    fn each_its_own(&mut self, live: &Arc<Live>) -> io::Result<Seen> {
        let _running = self.running()?;
        live.watch(&self.listener);
        let before = self.read(Meters::begin)?;
        let begin = Instant::now();
        let timer = self.end_timer(live, begin);
        let (peer, measures) = (self.plan.peer, self.meters.is_some());
        let (mut segments, mut retransmits, mut last) = (0, 0, None);
        let closing = |fd: BorrowedFd<'_>| {
            last = Some(Instant::now());
            if let (true, Ok(info)) = (measures, tcp_info::fields(fd)) {
                segments += u64::from(info.segs_out);
                retransmits += info.total_retrans.cast_signed();
            }
        };
        let counted = traffic::accept_each(
            live,
            self.listener.as_fd(),
            |from| from.ip() == peer,
            &mut self.receive,
            &self.send,
            self.plan.until,
            closing,
        )?;
        // Excludes the time after the last connection.
        let elapsed = last.unwrap_or(begin) - begin;
        drop(timer);
        let after = self.read(Meters::end)?;
        Ok(Seen {
            counted,
            elapsed,
            retransmits,
            sizes: self.sizes,
            congestion: socket::congestion(self.listener.as_fd()),
            cpu: self.cpu(before, after, segments),
        })
    }

    /// Timer for the end: at the test's time if we send, some time later if the other side ends the test.
    fn end_timer(&self, live: &Arc<Live>, begin: Instant) -> Option<timers::Timer> {
        let time = self.plan.time?;
        let live = Arc::clone(live);
        let is_ours = self.plan.sends() && !self.plan.receives();
        let is_transactions = self.plan.sends() && self.plan.receives();
        let beyond = if is_transactions {
            BEYOND_TRANSACTIONS
        } else {
            BEYOND
        };
        let first = if is_ours { time } else { time + beyond };
        Some(timers::at(begin + first, move || {
            if is_ours && !live.is_over() {
                live.end(Some(Shutdown::Write));
                return Some(begin + time + beyond);
            }
            live.end(Some(Shutdown::Both));
            None
        }))
    }

    fn read(
        &mut self,
        read: fn(&mut Meters) -> Result<Reading, Failure>,
    ) -> io::Result<Option<Reading>> {
        let reading = self.meters.as_mut().map(read).transpose();
        reading.map_err(io::Error::other)
    }

    fn cpu(&self, before: Option<Reading>, after: Option<Reading>, segments: u64) -> Option<Cpu> {
        let (before, after) = before.zip(after)?;
        Some(self.meters.as_ref()?.between(&before, &after, segments))
    }
}

/// Highest number of CPUs for which the kernel can be built.
const CPUS_MAX: usize = 8192;

/// Results of a test.
struct Seen {
    counted: Counted,
    elapsed: Duration,
    retransmits: i32,
    sizes: Sizes,
    congestion: String,
    cpu: Option<Cpu>,
}

#[cfg(test)]
mod tests;
