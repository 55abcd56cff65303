//! Two applications, each a list of operations, over a path whose middle is captured as well.

use std::cell::RefCell;
use std::io::Write;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tcpcost_link::{CapturingDevice, Device, Impaired, Impairment, memory};
use tcpcost_tcp::wire::Checksum;
use tcpcost_tcp::{Config, ConnId, Endpoint, Nagle, Pacing, Pool, ReadError, Segmentation};
use tcpcost_trace::{Analysis, Report, Settings, read};

use super::cut::Cut;
use super::ends::{Host, Wire, ms};

/// Operation of an application.
#[derive(Debug, Clone, Copy)]
pub enum Op {
    /// Writes this many bytes as soon as there is room.
    Send(usize),
    /// Writes `bytes` bytes, a chunk at each interval.
    SendSlowly {
        bytes: usize,
        chunk: usize,
        every: Duration,
    },
    /// Reads this many bytes as they come.
    Receive(usize),
    /// Reads `bytes` bytes, a chunk at each interval.
    ReceiveSlowly {
        bytes: usize,
        chunk: usize,
        every: Duration,
    },
    /// Waits.
    Wait(Duration),
    /// Closes the connection.
    Close,
    /// Resets the connection.
    Abort,
    /// Reads until the other end resets the connection.
    ReceiveUntilReset,
}

impl Op {
    /// Bytes that the operation sends or receives in all.
    pub fn bytes(&self) -> usize {
        match *self {
            Op::Send(bytes) | Op::Receive(bytes) => bytes,
            Op::SendSlowly { bytes, .. } | Op::ReceiveSlowly { bytes, .. } => bytes,
            Op::Wait(_) | Op::Close | Op::Abort | Op::ReceiveUntilReset => 0,
        }
    }
}

/// Point of a capture.
#[derive(Debug, Clone, Copy)]
pub enum Point {
    Client,
    Middle,
    Server,
}

/// Report of a capture.
pub struct Seen {
    pub point: Point,
    pub report: Report,
}

/// Client and server that run programs over a path.
pub struct Play {
    path: Impairment,
    /// Impairment of the way from the server to the client.
    back: Impairment,
    /// Times between which nothing passes beyond the middle.
    cut: [Duration; 2],
    /// Longest frame that passes beyond the middle, bytes.
    most: usize,
    /// Time after which the captures end, though the programs are not done.
    ends: Duration,
    config: Config,
    programs: [Vec<Op>; 2],
}

impl Play {
    pub fn new(path: Impairment, programs: [Vec<Op>; 2]) -> Play {
        let segmentation = Segmentation {
            super_segment_bytes_max: 0,
            nagle: Nagle::Off,
            ..Segmentation::default()
        };
        let config = Config {
            segmentation,
            ..Config::default()
        };
        Play {
            path,
            back: path,
            cut: [Duration::ZERO; 2],
            most: usize::MAX,
            ends: Duration::MAX,
            config,
            programs,
        }
    }

    /// Sets a receive buffer that does not grow.
    pub fn fixed_buffers(mut self, bytes: u32) -> Play {
        (self.config.receive_buffer, self.config.receive_buffer_max) = (bytes, bytes);
        self
    }

    /// Sets another path from the server to the client.
    pub fn back(mut self, back: Impairment) -> Play {
        self.back = back;
        self
    }

    /// Loses all frames beyond the middle between these times.
    pub fn cut(mut self, from: Duration, until: Duration) -> Play {
        self.cut = [from, until];
        self
    }

    /// Loses frames longer than this beyond the middle, as a path with a smaller MTU whose ICMP is filtered.
    pub fn black_hole(mut self, most: usize) -> Play {
        self.most = most;
        self
    }

    /// Ends the captures after this time.
    pub fn ends(mut self, after: Duration) -> Play {
        self.ends = after;
        self
    }

    pub fn mss(mut self, bytes: u16) -> Play {
        self.config.mss = bytes;
        self
    }

    pub fn initial_window(mut self, segments: u16) -> Play {
        self.config.initial_window = NonZeroU16::new(segments);
        self
    }

    pub fn send_buffer(mut self, bytes: u32) -> Play {
        self.config.send_buffer = bytes;
        self
    }

    pub fn nagle(mut self, nagle: Nagle) -> Play {
        self.config.segmentation.nagle = nagle;
        self
    }

    pub fn pacing(mut self, pacing: Pacing) -> Play {
        self.config.segmentation.pacing = pacing;
        self
    }

    /// Runs the programs and analyses the captures at the client, in the middle and at the server.
    /// Impairments act after the middle on the way to the server, and before it on the way back;
    /// half of the delay is on either side.
    pub fn run(&self) -> Vec<Seen> {
        [Point::Client, Point::Middle, Point::Server]
            .into_iter()
            .zip(self.run_files())
            .map(|(point, file)| seen(point, &file))
            .collect()
    }

    /// Runs the programs and returns the three captures as files.
    pub fn run_files(&self) -> Vec<Vec<u8>> {
        let delay = |of: Impairment| Impairment {
            delay: of.delay / 2,
            ..Impairment::default()
        };
        let rest = |of: Impairment| Impairment {
            delay: of.delay / 2,
            ..of
        };
        let (a, b) = memory::pair::<Wire>(1 << 20);
        let epoch = Duration::from_secs(1_700_000_000);
        let endpoint = |seed: u8| {
            let secret = [seed; 16];
            let config = self.config.clone();
            Endpoint::new(config, Pool::default(), secret, Checksum::Complete, ms(0))
        };
        let cut = Cut {
            inner: a,
            times: self.cut.map(|after| ms(0) + after),
            most: self.most,
        };
        let far = Impaired::new(cut, rest(self.path), rest(self.back), 7);
        let files = [0; 3].map(|_| File::default());
        let captured = |at: usize| files[at].clone();
        let middle = CapturingDevice::new(far, captured(1), ms(0), epoch).unwrap();
        let near = Impaired::new(middle, delay(self.path), delay(self.back), 8);
        let mut client = Host::new(
            endpoint(1),
            CapturingDevice::new(near, captured(0), ms(0), epoch).unwrap(),
        );
        let mut server = Host::new(
            endpoint(2),
            CapturingDevice::new(b, captured(2), ms(0), epoch).unwrap(),
        );
        server.endpoint.listen(80, 10, self.config.clone()).unwrap();
        let local: SocketAddr = "10.0.0.1:0".parse().unwrap();
        let remote = "10.0.0.2:80".parse().unwrap();
        let id = client.endpoint.connect(local, remote, ms(0)).unwrap();
        let mut players = self.programs.clone().map(Player::new);
        players[0].id = Some(id);
        let mut now = ms(0);
        loop {
            players[1].id = players[1].id.or_else(|| server.endpoint.accept(80));
            let mut wakes = Vec::new();
            for (player, endpoint) in players
                .iter_mut()
                .zip([&mut client.endpoint, &mut server.endpoint])
            {
                wakes.extend(player.play(endpoint, now));
            }
            pass(&mut client, &mut server, now);
            if players.iter().all(Player::is_done) {
                break;
            }
            let events = [client.next_event(), server.next_event()]
                .into_iter()
                .flatten();
            let next = events.chain(wakes).min().expect("it stalls");
            now = now.max(next);
            if now.saturating_duration_since(ms(0)) > self.ends {
                break;
            }
            assert!(now < ms(10_000_000), "it stalls");
            pass(&mut client, &mut server, now);
        }
        files.iter().map(|file| file.0.borrow().clone()).collect()
    }
}

/// Transmits and receives all frames that are due. The other end's wire takes what an end sends.
fn pass<C: Device<Wire>, S: Device<Wire>>(
    client: &mut Host<C>,
    server: &mut Host<S>,
    now: Instant,
) {
    for _ in 0..2 {
        client.transmit(now);
        server.transmit(now);
        client.receive(now);
        server.receive(now);
    }
}

/// File in memory that is read while it is still open.
#[derive(Clone, Default)]
struct File(Rc<RefCell<Vec<u8>>>);

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn seen(point: Point, capture: &[u8]) -> Seen {
    let mut analysis = Analysis::new(Settings::default());
    let (reading, outcome) = read(capture, &mut analysis);
    outcome.unwrap();
    let (report, ()) = analysis.into_report("own", &reading, Ok(()));
    Seen { point, report }
}

/// Application that runs a program.
struct Player {
    id: Option<ConnId>,
    program: Vec<Op>,
    at: usize,
    done_bytes: usize,
    wakes: Option<Instant>,
}

impl Player {
    fn new(program: Vec<Op>) -> Player {
        Player {
            id: None,
            program,
            at: 0,
            done_bytes: 0,
            wakes: None,
        }
    }

    fn is_done(&self) -> bool {
        self.at == self.program.len()
    }

    /// Does what is possible now. Returns the time when the program goes on by itself.
    fn play(&mut self, endpoint: &mut Endpoint, now: Instant) -> Option<Instant> {
        let id = self.id?;
        while let Some(&op) = self.program.get(self.at) {
            if self.wakes.is_some_and(|wakes| wakes > now) {
                return self.wakes;
            }
            if matches!(op, Op::ReceiveUntilReset) && !drain(endpoint, id, now) {
                return None;
            }
            let left = op.bytes() - self.done_bytes;
            let (moved, pause) = match op {
                Op::Send(_) => (write(endpoint, id, left), None),
                Op::SendSlowly { chunk, every, .. } => {
                    (write(endpoint, id, left.min(chunk)), Some(every))
                }
                Op::Receive(_) => (take(endpoint, id, left, now), None),
                Op::ReceiveSlowly { chunk, every, .. } => {
                    (take(endpoint, id, left.min(chunk), now), Some(every))
                }
                Op::Wait(pause) => {
                    if self.wakes.take().is_none() {
                        self.wakes = Some(now + pause);
                        continue;
                    }
                    (0, None)
                }
                Op::Close => {
                    endpoint.apply(id, |connection| connection.close());
                    (0, None)
                }
                Op::Abort => {
                    endpoint.apply(id, |connection| connection.abort());
                    (0, None)
                }
                Op::ReceiveUntilReset => (0, None),
            };
            self.done_bytes += moved;
            if self.done_bytes == op.bytes() {
                (self.at, self.done_bytes) = (self.at + 1, 0);
            } else if moved == 0 {
                return None;
            }
            self.wakes = pause.map(|pause| now + pause);
        }
        None
    }
}

fn write(endpoint: &mut Endpoint, id: ConnId, bytes: usize) -> usize {
    let mut written = 0;
    endpoint.apply(id, |connection| {
        let buffer = [7; 1 << 14];
        while written < bytes {
            match connection.write(&buffer[..buffer.len().min(bytes - written)]) {
                Ok(0) | Err(_) => break,
                Ok(count) => written += count,
            }
        }
    });
    written
}

fn take(endpoint: &mut Endpoint, id: ConnId, bytes: usize, now: Instant) -> usize {
    let mut taken = 0;
    endpoint.apply(id, |connection| {
        let mut buffer = [0; 1 << 14];
        while taken < bytes {
            let room = buffer.len().min(bytes - taken);
            match connection.read(&mut buffer[..room], now) {
                Ok(count) => taken += count,
                Err(ReadError::Empty) => break,
                Err(error) => panic!("{error} after {taken}"),
            }
        }
    });
    taken
}

/// Reads what is available. True if the connection has ended.
fn drain(endpoint: &mut Endpoint, id: ConnId, now: Instant) -> bool {
    let is_over = endpoint.apply(id, |connection| {
        let mut buffer = [0; 1 << 14];
        loop {
            match connection.read(&mut buffer, now) {
                Ok(_) => {}
                Err(ReadError::Empty) => return false,
                Err(ReadError::Finished) => panic!("closed without a reset"),
                Err(ReadError::Ended(_)) => return true,
            }
        }
    });
    is_over.unwrap_or(true)
}
