//! One test: its client's parameters, its streams, and their counts.
//!
//! If we send, our TCP's pacing keeps the rate of `-b`, and bytes count as sent once they have left: an application's writes
//! would count a full buffer more. The counts at the end of `-O`'s time are subtracted.

use std::time::{Duration, Instant};

use serde::Deserialize;
use tcpcost_tcp::{Config, Connection, Nagle, Pacing, Piece, ReadError};

use super::super::turn::{self, NextStep, turn};
use super::{
    CLIENT_TERMINATE, CREATE_STREAMS, DISPLAY_RESULTS, EXCHANGE_RESULTS, IPERF_DONE, Member, Stack,
    TEST_END, TEST_RUNNING, TEST_START, Text, UNSUPPORTED, send, take_text,
};

/// A test whose control connection has arrived.
pub(super) struct Test {
    pub(super) control: Member,
    pub(super) step: Step,
    /// Time at which the client last sent or took bytes.
    pub(super) last_active: Instant,
    parameters: Parameters,
    streams: Vec<Stream>,
    begun: Instant,
    /// Bytes of `-n` or `-k` that no stream has begun to send.
    left: u64,
    /// The time of `-O` is over.
    counts: bool,
}

struct Stream {
    member: Member,
    /// Bytes received.
    received: u64,
    /// Bytes of the current block that are not sent.
    block: u64,
    omitted: Counts,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    bytes: u64,
    retransmits: u32,
}

/// Progress of a test.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Parameters,
    Streams,
    Running,
    Results,
    Displaying,
}

/// Parameters that a client sends. The duration is not read: the client ends the test.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Parameters {
    tcp: bool,
    parallel: usize,
    reverse: bool,
    bidirectional: bool,
    nodelay: bool,
    /// Time to omit at the start (`-O`), seconds.
    omit: u64,
    /// Bytes of all streams (`-n`); 0: no limit.
    num: u64,
    /// Blocks of `len` bytes of all streams (`-k`); 0: no limit.
    blockcount: u64,
    len: u64,
    /// Bits a second of each stream (`-b`); 0: no limit.
    bandwidth: u64,
    /// Bits a second of each stream, paced by the kernel (`--fq-rate`); 0: no limit.
    fqrate: u64,
}

impl Parameters {
    fn is_possible(&self) -> bool {
        self.tcp && !self.bidirectional && (1..=PARALLEL_MAX).contains(&self.parallel)
    }

    fn block_bytes(&self) -> u64 {
        self.len.clamp(1, BLOCK_MAX)
    }

    /// Bytes that all streams send.
    fn bytes(&self) -> u64 {
        match (self.num, self.blockcount) {
            (0, 0) => u64::MAX,
            (0, blocks) => blocks.saturating_mul(self.block_bytes()),
            (bytes, _) => bytes,
        }
    }

    /// Bytes a second of a stream.
    fn rate(&self) -> Option<u64> {
        let rates = [self.bandwidth, self.fqrate];
        let bits = rates.into_iter().filter(|&bits| bits > 0).min()?;
        Some((bits / 8).max(1))
    }

    fn apply(&self, config: &mut Config) {
        if self.nodelay {
            config.segmentation.nagle = Nagle::Off;
        }
        if let Some(rate) = self.rate() {
            config.segmentation.pacing = Pacing::BytesPerSecond(rate);
            // Bytes in the send queue at the end of the test still have to leave: that takes at most a tenth of a second.
            let queue = u32::try_from(rate / 10).unwrap_or(u32::MAX);
            config.send_buffer = config.send_buffer.min(queue.max(PACED_QUEUE_MIN));
        }
    }
}

impl Test {
    pub(super) fn new(control: Member) -> Self {
        Self {
            control,
            step: Step::Parameters,
            last_active: Instant::now(),
            parameters: Parameters::default(),
            streams: Vec::new(),
            begun: Instant::now(),
            left: 0,
            counts: false,
        }
    }

    /// Data connections of the test.
    pub(super) fn members(&self) -> impl Iterator<Item = Member> {
        self.streams.iter().map(|stream| stream.member)
    }

    /// Adds a data connection and returns its index. Starts the test once all connections are there.
    pub(super) fn add(&mut self, stack: &mut Stack, member: Member) -> usize {
        self.last_active = Instant::now();
        let parameters = &self.parameters;
        stack.with(member.conn, |connection, _| {
            connection.configure(|config| parameters.apply(config));
        });
        let index = self.streams.len();
        self.streams.push(Stream {
            member,
            received: 0,
            block: 0,
            omitted: Counts::default(),
        });
        if self.streams.len() == self.parameters.parallel {
            self.step = Step::Running;
            self.begun = Instant::now();
            self.left = self.parameters.bytes();
            send(stack, self.control.conn, &[TEST_START, TEST_RUNNING]);
        }
        index
    }

    /// Acts on the client's messages. True if the test goes on.
    pub(super) fn on_messages(&mut self, stack: &mut Stack, inbox: &mut Vec<u8>) -> bool {
        let control = self.control.conn;
        loop {
            match self.step {
                Step::Parameters => match take_text(inbox) {
                    Text::Incomplete => return true,
                    Text::TooLong => return false,
                    Text::Whole(text) => {
                        self.parameters = serde_json::from_slice(&text).unwrap_or_default();
                        if !self.parameters.is_possible() {
                            send(stack, control, &UNSUPPORTED);
                            return false;
                        }
                        self.step = Step::Streams;
                        send(stack, control, &[CREATE_STREAMS]);
                    }
                },
                Step::Results => match take_text(inbox) {
                    Text::Incomplete => return true,
                    Text::TooLong => return false,
                    // The client prints its own counts.
                    Text::Whole(_) => {
                        self.step = Step::Displaying;
                        let results = self.results(stack);
                        send(stack, control, &(results.len() as u32).to_be_bytes());
                        send(stack, control, results.as_bytes());
                        send(stack, control, &[DISPLAY_RESULTS]);
                    }
                },
                Step::Streams | Step::Running | Step::Displaying => {
                    // A test has one end, so no client can make results be written over and over.
                    let has_meaning = |byte: &u8| match *byte {
                        TEST_END => self.step != Step::Displaying,
                        byte => byte == IPERF_DONE || byte == CLIENT_TERMINATE,
                    };
                    let Some(at) = inbox.iter().position(has_meaning) else {
                        inbox.clear();
                        return true;
                    };
                    let is_end = inbox[at] == TEST_END;
                    inbox.drain(..=at);
                    if !is_end {
                        return false;
                    }
                    self.on_end(stack);
                }
            }
        }
    }

    fn on_end(&mut self, stack: &mut Stack) {
        self.omit(stack);
        self.step = Step::Results;
        if self.parameters.reverse {
            // The client reads whole blocks, and nothing else until a block is complete: only the
            // end of the stream ends its read of the last block.
            for member in self.members() {
                stack.with(member.conn, |connection, _| connection.close());
            }
        }
        send(stack, self.control.conn, &[EXCHANGE_RESULTS]);
    }

    /// Takes a turn of a stream.
    pub(super) fn transfer(
        &mut self,
        stack: &mut Stack,
        index: usize,
        pattern: &Piece,
    ) -> NextStep {
        self.omit(stack);
        let (reverse, running) = (self.parameters.reverse, self.step == Step::Running);
        let block_bytes = self.parameters.block_bytes();
        let Some(stream) = self.streams.get_mut(index) else {
            return NextStep::Over;
        };
        let (left, block, received) = (&mut self.left, &mut stream.block, &mut stream.received);
        let mut moved = 0;
        let next = stack.with(stream.member.conn, |connection, now| {
            turn(|| {
                let bytes = if !reverse {
                    match connection.read_piece(usize::MAX, now) {
                        Ok(piece) => piece.len(),
                        Err(ReadError::Empty) => 0,
                        Err(_) => return turn::Step::Over,
                    }
                } else if connection.ended().is_some() {
                    return turn::Step::Over;
                } else if running {
                    fill(connection, pattern, block_bytes, block, left)
                } else {
                    0
                };
                moved += bytes as u64;
                turn::Step::Moved(bytes)
            })
        });
        if moved > 0 {
            self.last_active = Instant::now();
        }
        if !reverse {
            *received += moved;
        }
        next.unwrap_or(NextStep::Over)
    }

    /// Once the time of `-O` is over, stores the counts so far, to be subtracted from the results.
    fn omit(&mut self, stack: &Stack) {
        let omit = Duration::from_secs(self.parameters.omit);
        if self.counts || self.step != Step::Running || self.begun.elapsed() < omit {
            return;
        }
        self.counts = true;
        if omit > Duration::ZERO {
            for index in 0..self.streams.len() {
                self.streams[index].omitted = self.counted(&self.streams[index], stack);
            }
        }
    }

    fn counted(&self, stream: &Stream, stack: &Stack) -> Counts {
        let connection = stack.connection(stream.member.conn);
        let counters = connection.map(Connection::counters);
        let left = |counters: &tcpcost_tcp::Counters| {
            counters.payload_bytes_sent - counters.payload_bytes_retransmitted
        };
        Counts {
            bytes: if self.parameters.reverse {
                counters.map_or(0, left)
            } else {
                stream.received
            },
            retransmits: counters.map_or(0, |counters| counters.segments_retransmitted as u32),
        }
    }

    fn results(&self, stack: &Stack) -> String {
        let omit = if self.counts { self.parameters.omit } else { 0 };
        let seconds = (self.begun.elapsed().as_secs_f64() - omit as f64).max(0.0);
        let stream = |(index, stream): (usize, &Stream)| {
            let (all, omitted) = (self.counted(stream, stack), stream.omitted);
            serde_json::json!({
                // iperf3 numbers streams 1, 3, 4, 5.
                "id": if index == 0 { 1 } else { index + 2 },
                "bytes": all.bytes.saturating_sub(omitted.bytes),
                "retransmits": all.retransmits.saturating_sub(omitted.retransmits),
                "jitter": 0,
                "errors": 0,
                "omitted_errors": 0,
                "packets": 0,
                "omitted_packets": 0,
                "start_time": 0,
                "end_time": seconds,
            })
        };
        let streams: Vec<_> = self.streams.iter().enumerate().map(stream).collect();
        serde_json::json!({
            "cpu_util_total": 0,
            "cpu_util_user": 0,
            "cpu_util_system": 0,
            "sender_has_retransmits": i32::from(self.parameters.reverse),
            "streams": streams,
        })
        .to_string()
    }
}

/// Writes as much of the current block as there is room for. Begins a new block, of at most `left` bytes, if there is none.
/// Returns the number of bytes written.
fn fill(
    connection: &mut Connection,
    pattern: &Piece,
    block_bytes: u64,
    block: &mut u64,
    left: &mut u64,
) -> usize {
    if *block == 0 {
        *block = block_bytes.min(*left);
        *left -= *block;
    }
    let room = connection.writable().min(pattern.len());
    let len = usize::try_from(*block).unwrap_or(usize::MAX).min(room);
    if len == 0 || connection.write_piece(pattern.slice(0..len)).is_err() {
        return 0;
    }
    *block -= len as u64;
    len
}

/// iperf3's MAX_STREAMS.
const PARALLEL_MAX: usize = 128;
/// iperf3's MAX_BLOCKSIZE of TCP is 1 MiB.
const BLOCK_MAX: u64 = 1 << 20;
/// Minimum of a paced send queue: some segments, because pacing needs several to spread.
const PACED_QUEUE_MIN: u32 = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_sent_is_bytes_or_blocks() {
        let check = |num, blockcount, len, bytes| {
            let parameters = Parameters {
                num,
                blockcount,
                len,
                ..Parameters::default()
            };
            assert_eq!(parameters.bytes(), bytes);
        };
        check(0, 0, 1000, u64::MAX);
        check(5000, 0, 1000, 5000);
        check(0, 10, 1000, 10_000);
        check(0, 10, 0, 10);
    }

    #[test]
    fn the_lower_rate_counts_and_bounds_the_queue() {
        let check = |bandwidth, fqrate, rate: Option<u64>, send_buffer| {
            let parameters = Parameters {
                bandwidth,
                fqrate,
                ..Parameters::default()
            };
            let mut config = Config::default();
            parameters.apply(&mut config);
            let pacing = rate.map_or(Pacing::Off, Pacing::BytesPerSecond);
            assert_eq!(config.segmentation.pacing, pacing);
            assert_eq!(config.send_buffer, send_buffer);
        };
        check(0, 0, None, 1 << 20);
        check(8_000_000, 16_000_000, Some(1_000_000), 100_000);
        check(8000, 0, Some(1000), 16 << 10);
        check(u64::MAX, 0, Some(u64::MAX / 8), 1 << 20);
    }
}
