//! `netperf`: runs a test, from the command line to the last line of output.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use self::buffers::Buffers;
use self::ends::DataEnds;
use self::run::{Outcome, Run};
use self::stop::Stop;
use crate::Failure;
use crate::confidence::{Measured, Repetitions};
use crate::cpu::{Cpu, Meters, Reading, Utilization};
use crate::latency::{Latency, Summary};
use crate::net::socket::{self, SocketOptions, data_socket};
use crate::options::{Asked, Direction, Ends, Options, Transport, parse};
use crate::output::{self, Layout, Report, selectors};
use crate::protocol::exact::{self, Method};
use crate::protocol::omni::{self, Request, Response, Results, flag};
use crate::remote::Control;
use crate::thread_meter;
use crate::traffic::{Local, Until};
use tcpcost_counts::{Guard, TextForm, printable};
use tcpcost_signals::Interrupt;

mod buffers;
mod ends;
mod run;
mod stop;

/// Runs netperf's command line, without the program's name. Returns the exit code.
///
/// `watch` is called before other threads are started, but after the namespaces are entered that only a
/// process of one thread may enter. A request to stop then ends the test, and the results so far are printed
/// within a second. A request before the first test ends the process.
///
/// # Errors
/// A line with the reason, and the exit code.
pub fn netperf(
    args: &[String],
    watch: impl FnOnce() -> io::Result<Interrupt>,
) -> Result<u8, Failure> {
    let options = match parse(args)? {
        Asked::Test(options) => *options,
        Asked::Text(text, code) => {
            print(&text)?;
            return Ok(code);
        }
        // netperf's own exit code for this.
        Asked::Selectors(in_one_line) => {
            print(&selectors::list(in_one_line))?;
            return Ok(1);
        }
    };
    let layout = Layout::of(&options)?;
    for note in options.notes.iter().chain(&layout.notes) {
        say(note);
    }
    if let Some(cpu) = options.affinity.local {
        let cpu = usize::try_from(cpu).unwrap_or(usize::MAX);
        tcpcost_meter::affinity::pin(cpu)
            .map_err(|error| Failure::usage(format!("-T: {error}")))?;
    }
    let mut control = Control::connect(&options)?;
    let watched = watch().and_then(|interrupt| Ok(Stop::new(interrupt, control.socket()?)));
    let stop = watched.map_err(|error| Failure::usage(format!("wait for signals: {error}")))?;
    let ends = DataEnds::of(&options, &control)?;
    if options.with_headers {
        let (source, destination) = (&ends.source, &ends.destination);
        print(&output::banner(
            &options,
            source,
            ends.local,
            destination,
            ends.remote,
        ))?;
    }
    if options.cpu.local {
        thread_meter::connect();
    }
    let mut test = Tester {
        meters: (options.cpu.local).then(|| Meters::open(options.transport)),
        latency: with_latency(&options, &layout).then(Latency::default),
        buffers: None,
        options: &options,
        ends,
        stop,
    };
    let mut repetitions = Repetitions::new(options.confidence);
    let mut last = None;
    while repetitions.goes_on() {
        match test.once(&mut control) {
            // A repetition that is cut short would count as much as a whole one.
            _ if last.is_some() && test.stop.is_asked() => {}
            seen => {
                let seen = seen?;
                repetitions.push(test.measured(&seen));
                last = Some(seen);
            }
        }
        if test.stop.is_asked() {
            break;
        }
    }
    control.close();
    let seen = last.expect("there is one repetition at least");
    let report = test.report(seen, &repetitions);
    print(&output::results(&report, &layout))?;
    if options.verbosity > 1 {
        for remark in output::remarks(&report) {
            say(&remark);
        }
    }
    Ok(0)
}

/// True if each transaction, or each call of a stream, must be timed.
fn with_latency(options: &Options, layout: &Layout) -> bool {
    let has_histogram = options.verbosity > 1;
    options.with_latency || has_histogram || layout.has_latency()
}

/// Prints a line on standard error. Text from others is made printable.
fn say(line: &str) {
    eprintln!("netperf: {}", printable(line));
}

fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = Guard::new(io::stdout().lock(), TextForm::Lines);
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::usage(format!("write results: {error}")))
        }
        _ => Ok(()),
    }
}

/// State of a test that all repetitions use.
struct Tester<'a> {
    options: &'a Options,
    ends: DataEnds,
    meters: Option<Meters>,
    buffers: Option<Buffers>,
    /// Times of all repetitions.
    latency: Option<Latency>,
    stop: Stop,
}

/// Results of one repetition.
struct Seen {
    local: Local,
    transactions: u64,
    /// All bytes that were sent or received, including those after the end of the time, because the CPU time
    /// includes them.
    bytes: u64,
    elapsed: Duration,
    set_up: Response,
    remote: Results,
    cpu: Ends<Cpu>,
}

impl Tester<'_> {
    fn until(&self) -> Until {
        Until::of(self.options.length)
    }

    /// Duration of the test. `None` if the clock does not end it.
    fn time(&self) -> Option<Duration> {
        let seconds = u64::try_from(self.options.length).ok()?;
        Some(Duration::from_secs(seconds))
    }

    fn socket_options(&self) -> SocketOptions {
        let options = self.options;
        SocketOptions {
            transport: options.transport,
            send_buffer: options.send_buffer.local,
            receive_buffer: options.receive_buffer.local,
            nodelay: options.nodelay,
            cork: options.cork,
            mss: options.mss,
            pacing: options.pacing,
            keepalive: options.keepalive,
            priority: options.priority.local,
            tos: options.tos.local,
            congestion: options.congestion.local.clone(),
            unrouted: !options.routed,
        }
    }

    fn socket(&self) -> io::Result<OwnedFd> {
        let mut local = self.ends.local;
        if self.options.is_connect_test {
            // One port can have only one connection to another port at a time.
            local.set_port(0);
        }
        data_socket(local, &self.socket_options())
    }

    fn request(&self) -> Request {
        let options = self.options;
        let or_default = |size: Option<i32>| size.unwrap_or(-1);
        let mut flags = 0;
        let mut set = |is_set: bool, bit| flags |= if is_set { bit } else { 0 };
        set(options.nodelay, flag::NO_DELAY);
        set(options.is_connect_test, flag::CONNECT_TEST);
        set(options.cpu.remote, flag::MEASURE_CPU);
        set(options.routed, flag::ROUTING_ALLOWED);
        set(options.keepalive, flag::KEEPALIVE);
        set(options.connected.remote, flag::CONNECTED);
        let (socket_type, protocol) = match options.transport {
            Transport::Tcp => (omni::STREAM_SOCKET, omni::TCP),
            Transport::Udp => (omni::DATAGRAM_SOCKET, omni::UDP),
        };
        Request {
            send_buf_size: or_default(options.send_buffer.remote),
            send_size: or_default(options.send_size.remote),
            request_size: options.request,
            recv_buf_size: or_default(options.receive_buffer.remote),
            receive_size: or_default(options.receive_size.remote),
            response_size: options.response,
            flags,
            test_length: options.length,
            data_port: self.options.data_port.remote.into(),
            ipfamily: if self.ends.remote.is_ipv4() { 4 } else { 6 },
            socket_type,
            protocol,
            direction: match options.direction {
                Direction::Send => omni::RECEIVES,
                Direction::Receive => omni::SENDS,
                Direction::Both => omni::SENDS | omni::RECEIVES,
            },
            netserver_ip: match self.ends.is_explicit {
                true => omni::address_bytes(self.ends.remote.ip()),
                false => [0; 16],
            },
            socket_prio: or_default(options.priority.remote),
            socket_tos: or_default(options.tos.remote),
            cong_control: options.congestion.remote.clone(),
            fill_file: options.remote_fill.clone(),
            ..Request::default()
        }
    }

    /// Runs one repetition.
    fn once(&mut self, control: &mut Control) -> Result<Seen, Failure> {
        let options = self.options;
        let failed = |what: &str, error: &io::Error| Failure::usage(format!("{what}: {error}"));
        let socket = self
            .socket()
            .map_err(|error| failed("make a data socket", &error))?;
        let sizes = socket::sizes(socket.as_fd());
        if self.buffers.is_none() {
            self.buffers = Some(Buffers::new(options, sizes)?);
        }
        control.send(
            &self
                .request()
                .message(options.affinity.remote.unwrap_or(-1)),
        )?;
        let answer = control.answer(Duration::ZERO)?;
        let is_ours = exact::of(&answer).is_some();
        let set_up = Response::of(&answer);
        self.stop.wait(options.wait);
        let port = u16::try_from(set_up.data_port)
            .map_err(|_| Failure::remote("netserver names no port to connect to"))?;
        let mut to = self.ends.remote;
        to.set_port(port);
        // Transactions that the last repetition did not complete.
        self.latency.iter_mut().for_each(Latency::forget);
        let latency = self.latency.take();
        let mut run = Run {
            test: self,
            live: Arc::default(),
            latency,
            segments: 0,
            retransmits: 0,
            mss: -1,
        };
        let mut outcome = run
            .traffic(socket, to)
            .map_err(|error| match error.kind() {
                io::ErrorKind::ConnectionReset => {
                    Failure::usage("the data connection ended before its time")
                }
                io::ErrorKind::WouldBlock => Failure::usage(
                    "netserver did not end the data connection within 120 s of the end",
                ),
                _ => failed(&format!("data to and from {to}"), &error),
            })?;
        let Run {
            live,
            latency,
            segments,
            retransmits,
            mss,
            ..
        } = run;
        self.latency = latency;
        if is_ours && options.is_connect_test {
            // A last connection without a request tells our netserver that there are no more.
            let _ = self
                .socket()
                .and_then(|last| Ok(rustix::net::connect(&last, &to)?));
        }
        let time_is_over = live.at_end();
        let answer = control.answer(self.time().unwrap_or_default());
        drop(outcome.datagrams.take());
        let answer = match answer {
            // After a request to stop, the answer may be missing.
            Err(_) if self.stop.is_asked() => None,
            answer => Some(answer?),
        };
        let remote = match &answer {
            Some(answer) => Results::of(answer),
            None => unreported(&outcome, &set_up),
        };
        let counted = outcome.counted;
        let local = Local {
            mss,
            retransmits,
            send_buffer: sizes.send,
            receive_buffer: sizes.receive,
            ..self.local(&outcome, time_is_over)
        };
        let mut seen = Seen {
            local,
            transactions: counted.transactions,
            bytes: counted.bytes_sent + counted.bytes_received,
            elapsed: outcome.elapsed,
            set_up,
            remote,
            cpu: Ends::default(),
        };
        seen.cpu.local = self.local_cpu(outcome.local_cpu, segments, &seen);
        if let Some(answer) = answer {
            seen.cpu.remote = self.remote_cpu(exact::of(&answer), &seen);
        }
        Ok(seen)
    }

    /// Our end's counts and sizes. `time_is_over`: bytes received and bytes acknowledged at the end of the
    /// time.
    fn local(&self, outcome: &Outcome, time_is_over: Option<(u64, u64)>) -> Local {
        let options = self.options;
        let (counted, direction) = (outcome.counted, options.direction);
        let bytes_received = match (direction, time_is_over) {
            (Direction::Receive, Some((bytes, _))) => bytes,
            _ => counted.bytes_received,
        };
        let unconfirmed = match (direction, time_is_over) {
            (Direction::Send, Some((_, acknowledged))) if options.transport == Transport::Tcp => {
                let confirmed = acknowledged.saturating_sub(outcome.acknowledged_before);
                Some(counted.bytes_sent.saturating_sub(confirmed))
            }
            _ => None,
        };
        let buffers = self.buffers.as_ref().expect("they were made");
        let one_way = |is_used: bool, length: usize| match is_used {
            true => i32::try_from(length).unwrap_or(i32::MAX),
            false => -1,
        };
        Local {
            bytes_sent: counted.bytes_sent,
            bytes_received,
            send_calls: counted.send_calls,
            receive_calls: counted.receive_calls,
            failed_sends: counted.failed_sends,
            send_buffer_end: outcome.end_sizes.send,
            receive_buffer_end: outcome.end_sizes.receive,
            send_size: one_way(direction == Direction::Send, buffers.send.len()),
            receive_size: one_way(direction == Direction::Receive, buffers.receive.len()),
            congestion: outcome.congestion.clone(),
            unconfirmed,
            ..Local::default()
        }
    }

    fn local_cpu(&self, readings: Option<(Reading, Reading)>, segments: u64, seen: &Seen) -> Cpu {
        let (Some(meters), Some((before, after))) = (&self.meters, readings) else {
            return Cpu::default();
        };
        let mut cpu = meters.between(&before, &after, segments);
        let cpu_ns = cpu.cpu_ns.map(|ns| ns as f64);
        cpu.service_demand = cpu_ns.and_then(|ns| self.demand(ns, seen));
        cpu
    }

    /// CPU figures of netserver's end: of this instance if known, else of the whole machine.
    fn remote_cpu(&self, own: Option<exact::OwnCpu>, seen: &Seen) -> Cpu {
        if !self.options.cpu.remote {
            return Cpu::default();
        }
        let told = &seen.remote;
        let all: f64 = told.cpu_util.into();
        let machine = all / 100.0 * seen.elapsed.as_secs_f64() * 1e9 * f64::from(told.num_cpus);
        let cpu_ns = own.map_or(machine, |own| own.cpu_ns as f64);
        Cpu {
            utilization: Some(Utilization {
                all,
                user: told.cpu_percent_user.into(),
                system: told.cpu_percent_system.into(),
                iowait: told.cpu_percent_iowait.into(),
                irq: told.cpu_percent_irq.into(),
                softirq: told.cpu_percent_swintr.into(),
                peak: told.peak_cpu_util.into(),
                peak_id: told.peak_cpu_id,
            }),
            cpus: told.num_cpus,
            service_demand: self.demand(cpu_ns, seen),
            method: Some(own.map_or(Method::Machine, |own| own.method)),
            cpu_ns: own.map(|own| own.cpu_ns),
        }
    }

    /// Service demand in microseconds per KiB or per transaction. `None` if the test moved nothing.
    fn demand(&self, cpu_ns: f64, seen: &Seen) -> Option<f64> {
        let units = match self.options.unit.counts_transactions() {
            true => seen.transactions as f64,
            false => seen.bytes as f64 / 1024.0,
        };
        (units > 0.0).then(|| cpu_ns / 1e3 / units)
    }

    /// Throughput. For a stream, the bytes that the receiver has read, over the time until then.
    fn throughput(&self, seen: &Seen) -> f64 {
        let count = match self.options.direction {
            _ if self.options.unit.counts_transactions() => seen.transactions,
            Direction::Send => seen.remote.bytes_received,
            Direction::Receive => seen.local.bytes_received,
            Direction::Both => seen.remote.bytes_received + seen.remote.bytes_sent,
        };
        self.options
            .unit
            .of(count as f64, seen.elapsed.as_secs_f64())
    }

    fn measured(&self, seen: &Seen) -> Measured {
        Measured {
            elapsed: seen.elapsed.as_secs_f64(),
            throughput: self.throughput(seen),
            local_cpu: seen.cpu.local.utilization.map(|cpu| cpu.all),
            remote_cpu: seen.cpu.remote.utilization.map(|cpu| cpu.all),
            local_demand: seen.cpu.local.service_demand,
            remote_demand: seen.cpu.remote.service_demand,
        }
    }

    fn report(&self, seen: Seen, repetitions: &Repetitions) -> Report<'_> {
        let options = self.options;
        let mean = repetitions.mean();
        let seconds = seen.elapsed.as_secs_f64();
        let is_transactions = options.direction == Direction::Both;
        let rate = seen.transactions as f64 / seconds.max(1e-9);
        let in_flight = 1.0 + f64::from(options.burst);
        let mut cpu = seen.cpu;
        cpu.local.set_means(mean.local_cpu, mean.local_demand);
        cpu.remote.set_means(mean.remote_cpu, mean.remote_demand);
        Report {
            options,
            elapsed: mean.elapsed,
            throughput: mean.throughput,
            transaction_rate: if is_transactions { rate } else { 1.0 },
            round_trip_us: match is_transactions && rate > 0.0 {
                true => 1e6 / rate * in_flight,
                false => -1.0,
            },
            local: seen.local,
            remote_nodelay: seen.set_up.flags & flag::NO_DELAY != 0,
            set_up: seen.set_up,
            remote: seen.remote,
            cpu,
            latency: self
                .latency
                .as_ref()
                .map_or(Summary::NONE, Latency::summary),
            histogram: self.latency.as_ref().map(Latency::buckets),
            confidence: repetitions.figures(),
            family: match self.ends.remote {
                SocketAddr::V4(_) => libc::AF_INET,
                SocketAddr::V6(_) => libc::AF_INET6,
            },
            source: self.ends.source.clone(),
            destination: self.ends.destination.clone(),
            uuid: options.uuid.clone().unwrap_or_else(uuid),
        }
    }
}

/// Results for a netserver that did not report them, from the bytes that its TCP has acknowledged and sent.
fn unreported(outcome: &Outcome, set_up: &Response) -> Results {
    say("netserver did not report what it saw; its figures are those of this end");
    Results {
        bytes_received: outcome.confirmed,
        bytes_sent: outcome.counted.bytes_received,
        recv_buf_size: set_up.recv_buf_size,
        send_buf_size: set_up.send_buf_size,
        transport_retrans: -1,
        ..Results::default()
    }
}

fn uuid() -> String {
    let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    uuid.trim().to_string()
}
