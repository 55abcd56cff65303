//! A running repetition: its connections and their traffic.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::Shutdown;
use rustix::net::sockopt::{Timeout, set_socket_linger, set_socket_timeout};
use tcpcost_meter::tcp_info;

use super::Tester;
use super::buffers::Buffers;
use crate::cpu::{Meters, Reading};
use crate::demo::Interim;
use crate::latency::Latency;
use crate::net::socket::{self, Sizes};
use crate::net::timers;
use crate::options::{Direction, Transport};
use crate::traffic::{self, Counted, Live};

/// How long a receiver goes on reading after the time, because the sender stops at that time, too.
const GRACE: Duration = Duration::from_secs(2);
/// Limit on waiting at the end for data in flight: until the receiver has read it, and netserver has answered
/// the requests.
const CONFIRM: Duration = Duration::from_secs(120);

/// A running repetition.
pub(super) struct Run<'a, 'b> {
    pub(super) test: &'a mut Tester<'b>,
    pub(super) live: Arc<Live>,
    pub(super) latency: Option<Latency>,
    pub(super) segments: u64,
    pub(super) retransmits: i32,
    pub(super) mss: i32,
}

/// Result of the traffic.
pub(super) struct Outcome {
    pub(super) counted: Counted,
    pub(super) elapsed: Duration,
    pub(super) local_cpu: Option<(Reading, Reading)>,
    pub(super) end_sizes: Sizes,
    pub(super) congestion: String,
    pub(super) acknowledged_before: u64,
    /// Bytes that we sent and that the other side's TCP has acknowledged or answered.
    pub(super) confirmed: u64,
    /// The socket of UDP, which must be open until netserver has ended: it may still answer.
    pub(super) datagrams: Option<Arc<OwnedFd>>,
}

impl Run<'_, '_> {
    /// Runs the traffic, from the connection to its end.
    pub(super) fn traffic(&mut self, socket: OwnedFd, to: SocketAddr) -> io::Result<Outcome> {
        let options = self.test.options;
        let is_udp = options.transport == Transport::Udp;
        let is_single = !options.is_connect_test && !is_udp;
        let socket = Arc::new(socket);
        let fd = socket.as_fd();
        if is_single {
            set_socket_timeout(fd, Timeout::Send, Some(CONFIRM))?;
            rustix::net::connect(fd, &to)?;
            set_socket_timeout(fd, Timeout::Send, None)?;
        }
        if is_udp {
            self.prepare_datagrams(fd, to)?;
        }
        let fresh_sizes = socket::sizes(fd);
        self.live.watch(&socket);
        let acknowledged_before = if is_single {
            self.live.acknowledged()
        } else {
            0
        };
        let interim = options.interim.map(|_| Interim::new(options, &self.live));
        let before = self.test.meters.as_mut().map(Meters::begin).transpose();
        let before = before.map_err(io::Error::other)?;
        let begin = Instant::now();
        self.test.stop.begin(&self.live, self.ends_by());
        let end_timer = self.end_timer(begin);
        let interim_timer = self.interim_timer(interim.as_ref(), begin);
        let counted = self.bytes(&socket, to)?;
        let done = match options.direction {
            Direction::Send => counted.bytes_sent,
            Direction::Receive => counted.bytes_received,
            Direction::Both => counted.transactions,
        };
        // A sender's clock may end slightly earlier than ours.
        let may_end = self.live.is_over()
            || options.direction == Direction::Receive && self.test.time().is_some();
        if !may_end && !self.test.until().is_done(done) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let mut elapsed = begin.elapsed();
        drop(interim_timer);
        if let Some(interim) = interim {
            interim.print(true);
        }
        if is_single {
            self.finish(fd)?;
        }
        if is_udp {
            traffic::end_datagrams(fd, self.destination(to));
            self.segments = counted.packets(|bytes| socket::fragments(to, bytes));
            self.retransmits = -1;
        } else if options.direction == Direction::Send {
            elapsed = begin.elapsed();
        }
        let limit = self.test.time().map(|time| time + CONFIRM);
        if limit.is_some_and(|limit| begin.elapsed() >= limit) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        drop(end_timer);
        let mut confirmed = counted.bytes_sent;
        if is_single {
            // The count of acknowledged bytes includes the FIN.
            confirmed = confirmed.min(self.live.acknowledged().saturating_sub(acknowledged_before));
        }
        // Drops our reference, because netserver may wait for the connection's close before it reports.
        self.live.forget();
        let after = self.test.meters.as_mut().map(Meters::end).transpose();
        let after = after.map_err(io::Error::other)?;
        if let (Direction::Receive, Some(time)) = (options.direction, self.test.time()) {
            // Bytes that came after the time are not counted.
            elapsed = elapsed.min(time);
        }
        if is_single {
            self.look(fd);
            if std::env::var_os("DUMP_TCP_INFO").is_some()
                && let Ok(info) = tcp_info::fields(fd)
            {
                eprint!("{}", dump(&info));
            }
        }
        let mut end_sizes = socket::sizes(fd);
        if options.is_connect_test {
            end_sizes = fresh_sizes;
        }
        Ok(Outcome {
            counted,
            elapsed,
            local_cpu: before.zip(after),
            end_sizes,
            congestion: socket::congestion(fd),
            acknowledged_before,
            confirmed,
            datagrams: is_udp.then(|| Arc::clone(&socket)),
        })
    }

    /// Timer that prints interim results.
    fn interim_timer(&self, interim: Option<&Interim>, begin: Instant) -> Option<timers::Timer> {
        let (interim, every) = (interim?.clone(), self.test.options.interim?);
        let end = self.test.time().map(|time| begin + time);
        let mut due = begin + every;
        Some(timers::at(due, move || {
            // The line of the end has the rest.
            if end.is_some_and(|end| due >= end) {
                return None;
            }
            interim.print(false);
            due += every;
            Some(due)
        }))
    }

    /// Which calls on the socket the end of the time ends.
    fn ends_by(&self) -> Shutdown {
        let options = self.test.options;
        match (options.direction, options.transport) {
            // The datagrams of the end must be sent after it.
            (_, Transport::Udp) => Shutdown::Read,
            // Shuts down both ways, because the sender would go on to the end of its time.
            (Direction::Receive, _) => Shutdown::Both,
            (Direction::Send | Direction::Both, _) => Shutdown::Write,
        }
    }

    /// Address of each datagram.
    fn destination(&self, to: SocketAddr) -> traffic::Destination {
        (!self.test.options.connected.local).then_some(to)
    }

    fn prepare_datagrams(&self, fd: BorrowedFd<'_>, to: SocketAddr) -> io::Result<()> {
        let options = self.test.options;
        if options.direction == Direction::Send {
            socket::receive_errors(fd, to)?;
        }
        if let Some(seconds) = options.patience.filter(|seconds| *seconds > 0) {
            let time = Duration::from_secs(u64::from(seconds.unsigned_abs()));
            set_socket_timeout(fd, Timeout::Recv, Some(time))?;
        }
        if options.connected.local {
            rustix::net::connect(fd, &to)?;
        }
        Ok(())
    }

    /// Waits until netserver has read all data and has answered all requests.
    fn finish(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        if self.test.options.direction == Direction::Receive {
            if self.test.stop.is_asked() {
                // Resets, because a sender that waits for a window would not notice the close.
                set_socket_linger(fd, Some(Duration::ZERO))?;
            }
            return Ok(());
        }
        // Closing with responses in flight would send a reset, which netserver reports as an error.
        rustix::net::shutdown(fd, Shutdown::Write).or_else(|error| match error {
            rustix::io::Errno::NOTCONN => Ok(()),
            error => Err(error),
        })?;
        set_socket_timeout(fd, Timeout::Recv, Some(CONFIRM))?;
        traffic::drain(fd)
    }

    /// Adds the kernel's counts of a connection before it is closed.
    fn look(&mut self, fd: BorrowedFd<'_>) {
        let Ok(info) = tcp_info::fields(fd) else {
            return;
        };
        self.segments += u64::from(info.segs_out);
        self.retransmits += info.total_retrans.cast_signed();
        self.mss = info.snd_mss.cast_signed();
    }

    /// Timer that ends the test after its time.
    fn end_timer(&self, begin: Instant) -> Option<timers::Timer> {
        let time = self.test.time()?;
        let live = Arc::clone(&self.live);
        let direction = self.test.options.direction;
        let is_udp = self.test.options.transport == Transport::Udp;
        Some(timers::at(begin + time, move || {
            match direction {
                _ if is_udp => live.end(Some(Shutdown::Read)),
                _ if live.is_over() => live.shut(Shutdown::Both),
                Direction::Send => live.end(Some(Shutdown::Write)),
                // The current transaction is completed.
                Direction::Both => {
                    live.end(Some(Shutdown::Write));
                    return Some(begin + time + CONFIRM);
                }
                // The sender's clock ends the test at the same moment. If not, we stop waiting after the
                // grace time.
                Direction::Receive => {
                    live.end(None);
                    return Some(begin + time + GRACE);
                }
            }
            None
        }))
    }

    fn bytes(&mut self, socket: &Arc<OwnedFd>, to: SocketAddr) -> io::Result<Counted> {
        let options = self.test.options;
        let until = self.test.until();
        let mut buffers = self.test.buffers.take().expect("they were made");
        let Buffers {
            send,
            receive,
            file,
        } = &mut buffers;
        let latency = self.latency.as_mut();
        let (live, fd) = (&*self.live, socket.as_fd());
        let more = u64::from(options.burst.unsigned_abs());
        let destination = (!options.connected.local).then_some(to);
        let counted = match options.direction {
            Direction::Both if options.transport == Transport::Udp => {
                traffic::ask_datagrams(live, fd, destination, send, receive, more, until, latency)
            }
            _ if options.transport == Transport::Udp => {
                traffic::send_datagrams(live, fd, destination, send, until, latency)
            }
            Direction::Send => match file {
                Some(file) => traffic::send_file(live, fd, file, send.len(), until, latency),
                None => traffic::send(live, fd, send, until, latency),
            },
            Direction::Receive => traffic::receive(live, fd, receive, until, latency),
            Direction::Both if !options.is_connect_test => {
                traffic::request(live, fd, send, receive, more, until, latency)
            }
            Direction::Both => {
                let (test, counts_segments) = (&*self.test, self.test.meters.is_some());
                let (mut segments, mut retransmits, mut mss) = (0, 0, -1);
                let closing = |fd: BorrowedFd<'_>| {
                    if mss >= 0 && !counts_segments {
                        return;
                    }
                    if let Ok(info) = tcp_info::fields(fd) {
                        segments += u64::from(info.segs_out);
                        retransmits += info.total_retrans.cast_signed();
                        mss = info.snd_mss.cast_signed();
                    }
                };
                let connect = || traffic::connect(live, test.socket()?, to);
                let counted =
                    traffic::connect_each(live, connect, send, receive, until, latency, closing);
                (self.segments, self.retransmits, self.mss) = (segments, retransmits, mss);
                counted
            }
        };
        self.test.buffers = Some(buffers);
        counted
    }
}

/// Lines that netperf prints if DUMP_TCP_INFO is set; flent reads them.
fn dump(info: &tcp_info::Fields) -> String {
    format!(
        "tcpi_rto {} tcpi_ato {} tcpi_pmtu {} tcpi_rcv_ssthresh {}\n\
         tcpi_rtt {} tcpi_rttvar {} tcpi_snd_ssthresh {} tcpi_snd_cwnd {}\n\
         tcpi_reordering {} tcpi_total_retrans {}\n",
        info.rto,
        info.ato,
        info.pmtu,
        info.rcv_ssthresh,
        info.rtt,
        info.rttvar,
        info.snd_ssthresh,
        info.snd_cwnd,
        info.reordering,
        info.total_retrans
    )
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_dump_has_netperfs_names_and_lines() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let info = tcp_info::fields(client.as_fd()).unwrap();
        let dumped = dump(&info);
        let names = |line: &str| line.split(' ').step_by(2).collect::<Vec<_>>().join(" ");
        assert_eq!(
            dumped.lines().map(names).collect::<Vec<_>>(),
            [
                "tcpi_rto tcpi_ato tcpi_pmtu tcpi_rcv_ssthresh",
                "tcpi_rtt tcpi_rttvar tcpi_snd_ssthresh tcpi_snd_cwnd",
                "tcpi_reordering tcpi_total_retrans",
            ]
        );
        let window = format!(" tcpi_snd_cwnd {}\n", info.snd_cwnd);
        assert!(info.snd_cwnd > 0 && dumped.contains(&window), "{dumped}");
    }
}
