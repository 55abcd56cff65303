//! Runner of scripts in packetdrill's notation against an endpoint in virtual time.
//!
//! Supported: times (`0`, `+0.1`, `+.1`), segments in (`<`) and out (`>`) with flags, sequence
//! numbers, `ack`, `win`, `<options>` (`<...>` for any), `[ce]` and `[ect0]`; a router's `< icmp
//! unreachable frag_needed mtu 1200 [1:1461(1460)]`; the calls in [`Runner::call`]. As in
//! packetdrill, sequence numbers are relative to each side's first, and timestamps to the script's.
//! Exactly the expected segments must be sent, at the expected times, within [`TOLERANCE`].
//! Settings that Linux makes by sysctl are in comments: `// config: sack=no`. Further words there
//! are `batch` (segments that arrive at the same time are processed before anything is sent) and
//! `first_iss` (our sequence numbers are relative to the first connection's).

mod parse;

use std::collections::VecDeque;
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use tcpcost_tcp::wire::{
    Checksum, Ecn, Flags, FourTuple, Options, Packet, SackBlocks, Segment, Sum, Timestamps,
};
use tcpcost_tcp::{
    AckPolicy, Config, CongestionControl, ConnId, Connection, Ended, Endpoint, KeepAlive,
    ListenError, MtuProbing, Nagle, Pacing, Piece, Pool, ReadError, Segmentation, SeqNum, TailRule,
    WindowGrowth, WindowRestart,
};

use crate::common::ms;
use parse::{Call, Event, Expected, Line};

/// Runs a script. Errors: the message of the first difference.
pub fn run(text: &str) -> Result<(), String> {
    let is_set = |word| {
        text.lines()
            .filter_map(|line| line.strip_prefix("// config:"))
            .any(|line| line.split_whitespace().any(|found| found == word))
    };
    let mut runner = Runner::new(config(text)?, is_set("ipv6"));
    if is_set("others") {
        runner.fill_backlog();
    }
    runner.batch = is_set("batch");
    runner.first_iss = is_set("first_iss");
    for line in parse::lines(text)? {
        runner
            .line(&line)
            .map_err(|message| format!("line {}: {}\n  {message}", line.number, line.text))?;
    }
    runner.nothing_more()
}

fn config(text: &str) -> Result<Config, String> {
    let mut config = Config {
        segmentation: Segmentation {
            super_segment_bytes_max: 0,
            ..Segmentation::default()
        },
        congestion: CongestionControl::NewReno,
        ..Config::default()
    };
    let words = text
        .lines()
        .filter_map(|line| line.strip_prefix("// config:"))
        .flat_map(str::split_whitespace)
        .filter(|word| !matches!(*word, "ipv6" | "others" | "batch" | "first_iss"));
    for word in words {
        let (name, value) = word.split_once('=').ok_or(format!("config {word}"))?;
        let number = || value.parse::<u32>().map_err(|_| format!("config {word}"));
        match name {
            "timestamps" => config.timestamps = value == "yes",
            "sack" => config.sack = value == "yes",
            "fast_open" => {
                config.fast_open.connect = value == "yes";
                config.fast_open.accept_max = 1;
            }
            "mtu_probing" if value == "black-hole" => config.mtu_probing = MtuProbing::BlackHole,
            "restart" => {
                config.window_restart = match value {
                    "each-send" => WindowRestart::EachSend,
                    "no" => WindowRestart::Off,
                    _ => WindowRestart::Idle,
                }
            }
            "ecn" => config.ecn = value == "yes",
            "scaling" => config.window_scaling = value == "yes",
            "cc" if value == "cubic" => config.congestion = CongestionControl::Cubic,
            "cwnd" => config.congestion = CongestionControl::Fixed(number()?),
            "rcvbuf_max" => config.receive_buffer_max = number()?,
            "rcvbuf" => (config.receive_buffer, config.receive_buffer_max) = (number()?, 0),
            "delay_ms" => {
                config.ack = AckPolicy::Delayed {
                    delay_max: Duration::from_millis(number()?.into()),
                }
            }
            // Policy and its number: `every:4`, or `avoidance:1` (its initial limit).
            "ack" => config.ack = policy(value).ok_or(format!("config {word}"))?,
            "supers" => config.segmentation.super_segment_bytes_max = number()?,
            "tail" if value == "split" => config.segmentation.tail = TailRule::Split,
            "divisor" => config.segmentation.window_divisor = Some(number()?),
            "whole" => config.segmentation.whole_only = value == "yes",
            "min_segs" => config.segmentation.paced_segments_min = number()?,
            "pacing" if value == "window" => config.segmentation.pacing = Pacing::Window,
            "comp_sack_nr" => config.linux_acks.comp_sack_nr = number()? as u8,
            "backlog_ack_defer" => config.linux_acks.backlog_ack_defer = value == "yes",
            "time_wait_s" => config.time_wait = Duration::from_secs(number()?.into()),
            "pacing_bytes_per_s" => {
                config.segmentation.pacing = Pacing::BytesPerSecond(number()?.into());
            }
            "iw" => config.initial_window = NonZeroU16::new(number()? as u16),
            "growth" if value == "per-ack" => config.window_growth = WindowGrowth::PerAck,
            "retries" => config.retries_max = number()? as u8,
            "user_timeout_ms" => {
                config.user_timeout = Some(Duration::from_millis(number()?.into()))
            }
            "keepalive_ms" => {
                let every = Duration::from_millis(number()?.into());
                config.keepalive = Some(KeepAlive {
                    idle: every,
                    interval: every,
                    probes: 2,
                });
            }
            _ => return Err(format!("config {word}")),
        }
    }
    Ok(config)
}

fn policy(text: &str) -> Option<AckPolicy> {
    let (name, number) = text.split_once(':').unwrap_or((text, "1"));
    let segments = number.parse().ok()?;
    let delay_max = Duration::from_millis(40);
    Some(match name {
        "delayed" => AckPolicy::Delayed { delay_max },
        "linux-like" => AckPolicy::LinuxLike { delay_max },
        "every" => AckPolicy::Every {
            segments,
            delay_max,
        },
        "exactly" => AckPolicy::Exactly {
            segments,
            delay_max,
        },
        "avoidance" => AckPolicy::Avoidance {
            limit_initial: segments,
            limit_max: 8,
            delay_max,
        },
        "on-read" => AckPolicy::OnRead {
            segments,
            delay_max,
        },
        "on-push" => AckPolicy::OnPush { delay_max },
        "requested" => AckPolicy::Requested {
            segments,
            delay_max,
        },
        _ => return None,
    })
}

struct Runner {
    endpoint: Endpoint,
    config: Config,
    now: Duration,
    sent: VecDeque<(Duration, Segment)>,
    path: FourTuple,
    connections: Vec<(i64, ConnId)>,
    /// Our first sequence number; `None` before it is sent.
    iss: Option<SeqNum>,
    /// Difference between our real timestamps and the script's.
    clock: Option<u32>,
    nodelay: bool,
    /// True if segments that arrive at the same time, in consecutive lines, are processed together.
    batch: bool,
    /// True if our sequence numbers in all connections are relative to the first connection's.
    first_iss: bool,
}

impl Runner {
    fn new(config: Config, v6: bool) -> Self {
        let mut endpoint = Endpoint::new(
            config.clone(),
            Pool::default(),
            [8; 16],
            Checksum::Complete,
            ms(0),
        );
        // Linux with tcp_fastopen_key a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4 issues the same cookies.
        let key = [[0xa1; 4], [0xb2; 4], [0xc3; 4], [0xd4; 4]].concat();
        endpoint.set_fast_open_keys(&[key.try_into().unwrap()]);
        let (local, remote) = match v6 {
            false => ("192.168.0.1:8080", "192.0.2.1:40000"),
            true => ("[fd3d::1]:8080", "[2001:db8::1]:40000"),
        };
        let path = FourTuple {
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
        };
        Self {
            endpoint,
            config,
            now: Duration::ZERO,
            sent: VecDeque::new(),
            path,
            connections: Vec::new(),
            iss: None,
            clock: None,
            nodelay: false,
            batch: false,
            first_iss: false,
        }
    }

    /// Fills the backlog, which has one place, with a connection of another client that never
    /// completes.
    fn fill_backlog(&mut self) {
        let port = self.path.local.port();
        self.endpoint.listen(port, 1, self.config.clone()).unwrap();
        let path = FourTuple {
            local: "192.0.2.99:1".parse().unwrap(),
            remote: self.path.local,
        };
        let syn = Segment {
            flags: Flags::SYN,
            window: 1000,
            options: Options::default(),
            ..Segment::default()
        };
        let packet = Packet::emit(&path, syn, Checksum::Complete);
        self.endpoint.on_packet(packet, self.at());
        self.endpoint.poll_packet(self.at()).expect("a SYN-ACK");
    }

    fn at(&self) -> Instant {
        ms(0) + self.now
    }

    /// Lets time pass until `until`, with all events in between.
    fn advance(&mut self, until: Duration) {
        loop {
            while let Some(packet) = self.endpoint.poll_packet(self.at()) {
                let (path, segment) = packet.parse().expect("what we send can be parsed");
                self.path = FourTuple {
                    local: path.remote,
                    remote: path.local,
                };
                if segment.flags.contains(Flags::SYN) && !(self.first_iss && self.iss.is_some()) {
                    self.iss = Some(segment.seq);
                }
                self.sent.push_back((self.now, segment));
            }
            let next = self
                .endpoint
                .next_timeout()
                .map(|at| at - ms(0))
                .filter(|next| *next <= until);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            self.endpoint.on_timeout(self.at());
        }
        self.now = self.now.max(until);
    }

    fn line(&mut self, line: &Line) -> Result<(), String> {
        let at = if line.relative {
            self.now + line.time
        } else {
            line.time
        };
        let in_batch = self.batch && at == self.now && matches!(line.event, Event::In(_));
        if !in_batch {
            self.advance(at);
        }
        match &line.event {
            Event::In(segment) => {
                let segment = self.inbound(segment)?;
                let back = FourTuple {
                    local: self.path.remote,
                    remote: self.path.local,
                };
                self.endpoint
                    .on_packet(Packet::emit(&back, segment, Checksum::Complete), self.at());
                if !self.batch {
                    self.advance(self.now);
                }
                Ok(())
            }
            Event::Out(expected) => self.expect(expected, at),
            Event::TooBig { mtu, seq } => {
                let packet = self.too_big(*mtu, *seq);
                self.endpoint.on_packet(packet, self.at());
                self.advance(self.now);
                Ok(())
            }
            Event::Call(call) => {
                let result = self.call(call)?;
                self.advance(self.now);
                if result == call.result {
                    Ok(())
                } else {
                    Err(format!("the call gave {result}"))
                }
            }
        }
    }

    fn inbound(&self, line: &Expected) -> Result<Segment, String> {
        let ours = |n: u32| self.iss.unwrap_or_default() + n;
        let mut options = line.options.unwrap_or_default();
        if let Some(timestamps) = &mut options.timestamps
            && timestamps.echo != 0
        {
            let clock = self.clock.ok_or("no timestamp of ours to echo yet")?;
            timestamps.echo = timestamps.echo.wrapping_add(clock);
        }
        let mut sack = SackBlocks::default();
        for (start, end) in options.sack.as_slice() {
            sack.push(ours(start.value()), ours(end.value()));
        }
        options.sack = sack;
        Ok(Segment {
            seq: theirs(line.seq),
            ack: line.ack.map_or(SeqNum::default(), ours),
            flags: line.flags.with(Flags::ACK, line.ack.is_some()),
            window: line.window.unwrap_or(0),
            options,
            payload: Piece::from(vec![7; line.bytes as usize]).into(),
            segment_size: 0,
            ecn: line.ecn.unwrap_or(Ecn::NotCapable),
            dscp: 0,
            urgent: 0,
            fast_open: line.fast_open.map(Box::new),
        })
    }

    /// ICMP error for IPv4: type 3, code 4, with the first bytes of the packet that was too big.
    fn too_big(&self, mtu: u16, seq: u32) -> Packet {
        let ours = Segment {
            seq: self.iss.unwrap_or_default() + seq,
            flags: Flags::ACK,
            ..Segment::default()
        };
        let about = Packet::emit(&self.path, ours, Checksum::Complete);
        let mut icmp = vec![3, 4, 0, 0, 0, 0, (mtu >> 8) as u8, mtu as u8];
        icmp.extend(&about.header.as_ref()[..28]);
        let sum = Sum::new().add_bytes(&icmp).finish();
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut ip = about.header.as_ref()[..20].to_vec();
        ip[9] = 1;
        ip[2..4].copy_from_slice(&(20 + icmp.len() as u16).to_be_bytes());
        ip[12..20].rotate_left(4);
        ip[10..12].fill(0);
        let sum = Sum::new().add_bytes(&ip).finish();
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        Packet::from_piece(Piece::from([ip, icmp].concat()))
    }

    fn expect(&mut self, expected: &Expected, at: Duration) -> Result<(), String> {
        let Some((sent, segment)) = self.sent.pop_front() else {
            self.advance(at + TOLERANCE);
            let next = self.endpoint.next_timeout().map(|next| next - ms(0));
            return Err(format!(
                "nothing was sent by {at:?}; next timer {next:?}, then {:?}",
                self.sent.front()
            ));
        };
        let found = self.describe(&segment);
        let check = |what: &str, same: bool| {
            if same {
                Ok(())
            } else {
                Err(format!("{what}; sent at {sent:?} was {found}"))
            }
        };
        check("at another time", sent.abs_diff(at) <= TOLERANCE)?;
        check(
            "other flags",
            segment.flags.without(Flags::ACK) == expected.flags
                && segment.flags.contains(Flags::ACK) == expected.ack.is_some(),
        )?;
        // A reset for an unknown connection has sequence numbers from the peer's segment.
        let iss = self.iss.unwrap_or_default();
        check(
            "another sequence number",
            segment.seq.since(iss) == expected.seq,
        )?;
        check(
            "another length",
            segment.payload.len() as u32 == expected.bytes,
        )?;
        check(
            "another acknowledgement",
            expected.ack.is_none_or(|ack| segment.ack == theirs(ack)),
        )?;
        check(
            "another window",
            expected
                .window
                .is_none_or(|window| segment.window == window),
        )?;
        check(
            "another congestion mark",
            expected.ecn.is_none_or(|ecn| segment.ecn == ecn),
        )?;
        if let Some(options) = &expected.options {
            let mut wanted = *options;
            if let (Some(script), Some(real)) = (&mut wanted.timestamps, segment.options.timestamps)
            {
                let clock = *self
                    .clock
                    .get_or_insert(real.value.wrapping_sub(script.value));
                *script = Timestamps {
                    value: script.value.wrapping_add(clock),
                    ..*script
                };
            }
            let mut sack = SackBlocks::default();
            for (start, end) in options.sack.as_slice() {
                sack.push(theirs(start.value()), theirs(end.value()));
            }
            wanted.sack = sack;
            check("other options", wanted == segment.options)?;
            let fast_open = segment.fast_open.as_deref();
            check("another cookie", expected.fast_open.as_ref() == fast_open)?;
        }
        Ok(())
    }

    fn describe(&self, segment: &Segment) -> String {
        let seq = segment.seq.since(self.iss.unwrap_or_default());
        let len = segment.payload.len() as u32;
        let ack = segment.ack.value().wrapping_sub(PEER);
        format!(
            "{:?} {seq}:{}({len}) ack {ack} win {} {:?}",
            segment.flags,
            seq.wrapping_add(len),
            segment.window,
            segment.options
        )
    }

    /// Executes a call of a script. Returns the result in packetdrill's notation.
    fn call(&mut self, call: &Call) -> Result<String, String> {
        match call.name.as_str() {
            "socket" => Ok("3".into()),
            "bind" | "fcntl" => Ok(call.result.clone()),
            "setsockopt" => self.set_option(call),
            "listen" => self.listen(call),
            "accept" => self.accept(call),
            "connect" => self.connect(call),
            "write" | "send" => self.write(call),
            "read" | "recv" => self.read(call),
            "shutdown" => {
                let id = self.connection(call.number(0)?)?;
                self.apply(id, Connection::close);
                Ok("0".into())
            }
            "close" => {
                let (id, at) = (self.connection(call.number(0)?)?, self.at());
                self.endpoint.release(id, at);
                Ok("0".into())
            }
            name => Err(format!("no such call: {name}")),
        }
    }

    fn set_option(&mut self, call: &Call) -> Result<String, String> {
        match call.argument(2)? {
            "TCP_NODELAY" => {
                self.nodelay = call.argument(3)? != "[0]";
                let nagle = if self.nodelay {
                    Nagle::Off
                } else {
                    Nagle::Minshall
                };
                match self.connection(call.number(0)?) {
                    Ok(id) => self.apply(id, |connection| {
                        connection.configure(|config| config.segmentation.nagle = nagle)
                    }),
                    Err(_) => self.config.segmentation.nagle = nagle,
                }
            }
            "TCP_CORK" => {
                let id = self.connection(call.number(0)?)?;
                let cork = call.argument(3)? != "[0]";
                self.apply(id, |connection| connection.cork(cork));
            }
            _ => {}
        }
        Ok("0".into())
    }

    fn listen(&mut self, call: &Call) -> Result<String, String> {
        let backlog = call.number(1)?.max(1) as usize;
        let port = self.path.local.port();
        match self.endpoint.listen(port, backlog, self.config.clone()) {
            // `others` may have added the listener already.
            Ok(()) | Err(ListenError::InUse) => Ok("0".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn accept(&mut self, call: &Call) -> Result<String, String> {
        let id = self.endpoint.accept(self.path.local.port());
        let id = id.ok_or("nothing to accept")?;
        let descriptor = call.result.parse().map_err(|_| "accept gives a number")?;
        self.connections.push((descriptor, id));
        Ok(call.result.clone())
    }

    fn connect(&mut self, call: &Call) -> Result<String, String> {
        let at = self.at();
        let mut local = self.path.local;
        local.set_port(0);
        let id = self
            .endpoint
            .connect(local, self.path.remote, at)
            .map_err(|error| error.to_string())?;
        self.connections.push((call.number(0)?, id));
        // Data written now leaves with the SYN.
        if let Some(bytes) = call.arguments.get(3).and_then(|bytes| bytes.parse().ok()) {
            self.apply(id, |connection| connection.write(&vec![7; bytes]))
                .map_err(|error| error.to_string())?;
        }
        Ok(call.result.clone())
    }

    fn write(&mut self, call: &Call) -> Result<String, String> {
        let id = self.connection(call.number(0)?)?;
        let bytes = vec![7; call.number(2)? as usize];
        let flags = call.arguments.get(3).map_or("", String::as_str);
        let has = |flag| flags.split('|').any(|other| other == flag);
        let (more, ends) = (has("MSG_MORE"), has("MSG_EOR"));
        let write = |connection: &mut Connection| {
            let written = connection.write_more(&bytes, more);
            if ends {
                connection.end_record();
            }
            written
        };
        Ok(match self.apply(id, write) {
            Ok(n) => n.to_string(),
            Err(_) => "-1 EPIPE".into(),
        })
    }

    fn read(&mut self, call: &Call) -> Result<String, String> {
        let (id, at) = (self.connection(call.number(0)?)?, self.at());
        let mut buffer = vec![0; call.number(2)? as usize];
        let read = self.apply(id, |connection| connection.read(&mut buffer, at));
        Ok(match read {
            Ok(n) => n.to_string(),
            Err(ReadError::Finished) => "0".into(),
            Err(ReadError::Empty) => "-1 EAGAIN".into(),
            Err(ReadError::Ended(Ended::TimedOut)) => "-1 ETIMEDOUT".into(),
            Err(ReadError::Ended(Ended::Refused)) => "-1 ECONNREFUSED".into(),
            Err(ReadError::Ended(_)) => "-1 ECONNRESET".into(),
        })
    }

    fn connection(&self, descriptor: i64) -> Result<ConnId, String> {
        let found = self
            .connections
            .iter()
            .rev()
            .find(|(number, _)| *number == descriptor);
        found
            .map(|(_, id)| *id)
            .ok_or(format!("no connection {descriptor}"))
    }

    fn apply<R>(&mut self, id: ConnId, call: impl FnOnce(&mut Connection) -> R) -> R {
        self.endpoint
            .apply(id, call)
            .expect("the connection is there")
    }

    fn nothing_more(&mut self) -> Result<(), String> {
        self.advance(self.now);
        match self.sent.front() {
            Some((at, segment)) => Err(format!(
                "at the end, unexpected at {at:?}: {}",
                self.describe(segment)
            )),
            None => Ok(()),
        }
    }
}

fn theirs(n: u32) -> SeqNum {
    SeqNum::new(PEER) + n
}

/// First sequence number of the peer, near 2³².
const PEER: u32 = u32::MAX - 3000;
/// Tolerance of packetdrill, although time is exact here.
const TOLERANCE: Duration = Duration::from_millis(1);
