//! `--iperf3`: the server's part of iperf3's control protocol, so that its client can measure our
//! TCP: one test at a time, streams of TCP in one direction (`-R`, `-P`, `-t`, `-n`, `-l`).
//!
//! A test is one control connection and its data connections, told apart by a cookie that each
//! begins with. On the control connection the server says, a byte at a time, which state comes next;
//! parameters and results are JSON behind a length of four bytes (iperf3's `iperf_api.h`, `net.c`).
//! Not here: UDP, SCTP, both directions at once, `--get-server-output`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tcpcost_stack::{UserConn, UserStack};
use tcpcost_tcp::{Connection, Piece, ReadError};

use super::WireUnderTest;

type Stack = UserStack<WireUnderTest>;

/// All connections of iperf3 clients.
#[derive(Default)]
pub struct Server {
    roles: HashMap<u32, Role>,
    test: Option<Test>,
}

/// What a connection is.
enum Role {
    /// Not known before its cookie is complete.
    Unknown(Vec<u8>),
    /// The control connection, with what was read of a message.
    Control(Vec<u8>),
    /// Data, by its place in [`Test::streams`].
    Stream(usize),
}

/// The test that runs.
struct Test {
    cookie: Vec<u8>,
    control: Member,
    parameters: Parameters,
    step: Step,
    streams: Vec<Stream>,
    begun: Instant,
    /// When its client was last heard, or took something.
    heard: Instant,
}

#[derive(Clone, Copy)]
struct Member {
    token: u32,
    conn: UserConn,
}

struct Stream {
    member: Member,
    /// Bytes received, or written.
    bytes: u64,
}

/// How far a test is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Parameters,
    Streams,
    Running,
    Results,
    Displaying,
}

/// What a client asks for; the rest (time, bytes) is its own business.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Parameters {
    tcp: bool,
    parallel: usize,
    reverse: bool,
    bidirectional: bool,
}

impl Server {
    /// Does all that can be done now on a connection; gives the tokens of those that are over.
    pub fn serve(
        &mut self,
        stack: &mut Stack,
        token: u32,
        conn: UserConn,
        pattern: &Piece,
    ) -> Vec<u32> {
        let member = Member { token, conn };
        let mut over = Vec::new();
        let role = self.roles.remove(&token);
        match role.unwrap_or(Role::Unknown(Vec::new())) {
            Role::Unknown(mut cookie) => match read_cookie(stack, conn, &mut cookie) {
                Ok(true) => self.introduce(stack, member, cookie, pattern, &mut over),
                Ok(false) => drop(self.roles.insert(token, Role::Unknown(cookie))),
                Err(()) => over.push(token),
            },
            Role::Control(mut inbox) => {
                let before = inbox.len();
                let open = read_all(stack, conn, &mut inbox);
                if let Some(test) = self.test.as_mut().filter(|_| inbox.len() > before) {
                    test.heard = Instant::now();
                }
                let goes_on = self.obey(stack, &mut inbox);
                if open && goes_on {
                    self.roles.insert(token, Role::Control(inbox));
                } else {
                    self.end(stack, &mut over);
                }
            }
            Role::Stream(index) => {
                if self.transfer(stack, index, pattern) {
                    self.roles.insert(token, Role::Stream(index));
                } else {
                    over.push(token);
                }
            }
        }
        over
    }

    /// A connection has said its cookie.
    fn introduce(
        &mut self,
        stack: &mut Stack,
        member: Member,
        cookie: Vec<u8>,
        pattern: &Piece,
        over: &mut Vec<u32>,
    ) {
        if self.test.as_ref().is_some_and(|test| test.is_over(&cookie)) {
            self.end(stack, over);
        }
        let Some(test) = &mut self.test else {
            self.test = Some(Test {
                cookie,
                control: member,
                parameters: Parameters::default(),
                step: Step::Parameters,
                streams: Vec::new(),
                begun: Instant::now(),
                heard: Instant::now(),
            });
            self.roles.insert(member.token, Role::Control(Vec::new()));
            say(stack, member.conn, &[PARAM_EXCHANGE]);
            return;
        };
        if test.cookie != cookie || test.step != Step::Streams {
            say(stack, member.conn, &[ACCESS_DENIED]);
            over.push(member.token);
            return;
        }
        test.heard = Instant::now();
        let index = test.streams.len();
        test.streams.push(Stream { member, bytes: 0 });
        self.roles.insert(member.token, Role::Stream(index));
        if test.streams.len() < test.parameters.parallel {
            return;
        }
        test.step = Step::Running;
        test.begun = Instant::now();
        say(stack, test.control.conn, &[TEST_START, TEST_RUNNING]);
        for index in 0..=index {
            self.transfer(stack, index, pattern);
        }
    }

    /// Acts on what the client said; whether the test goes on.
    fn obey(&mut self, stack: &mut Stack, inbox: &mut Vec<u8>) -> bool {
        while let Some(test) = &mut self.test {
            let control = test.control.conn;
            match test.step {
                Step::Parameters => match take_text(inbox) {
                    Text::Incomplete => return true,
                    Text::TooLong => return false,
                    Text::Whole(text) => {
                        let parameters: Parameters =
                            serde_json::from_slice(&text).unwrap_or_default();
                        if !parameters.is_possible() {
                            say(stack, control, &UNSUPPORTED);
                            return false;
                        }
                        test.parameters = parameters;
                        test.step = Step::Streams;
                        say(stack, control, &[CREATE_STREAMS]);
                    }
                },
                Step::Results => match take_text(inbox) {
                    Text::Incomplete => return true,
                    Text::TooLong => return false,
                    // The client's own counts are the client's to show.
                    Text::Whole(_) => {
                        test.step = Step::Displaying;
                        let results = test.results(stack);
                        say(stack, control, &(results.len() as u32).to_be_bytes());
                        say(stack, control, results.as_bytes());
                        say(stack, control, &[DISPLAY_RESULTS]);
                    }
                },
                Step::Streams | Step::Running | Step::Displaying => {
                    if inbox.is_empty() {
                        return true;
                    }
                    match inbox.remove(0) {
                        TEST_END => {
                            test.step = Step::Results;
                            if test.parameters.reverse {
                                // The client reads whole blocks and looks at nothing else until one
                                // is complete: only the end of the stream gets it out of the last.
                                for Stream { member, .. } in &test.streams {
                                    stack.with(member.conn, |connection, _| connection.close());
                                }
                            }
                            say(stack, control, &[EXCHANGE_RESULTS]);
                        }
                        IPERF_DONE | CLIENT_TERMINATE => return false,
                        _ => {}
                    }
                }
            }
        }
        false
    }

    /// Moves a stream's data; whether it goes on.
    fn transfer(&mut self, stack: &mut Stack, index: usize, pattern: &Piece) -> bool {
        let Some(test) = &mut self.test else {
            return false;
        };
        let (reverse, running) = (test.parameters.reverse, test.step == Step::Running);
        let Some(stream) = test.streams.get_mut(index) else {
            return false;
        };
        let before = stream.bytes;
        let bytes = &mut stream.bytes;
        let goes_on = stack.with(stream.member.conn, |connection, now| {
            if reverse {
                if running {
                    *bytes += fill(connection, pattern);
                }
                return connection.ended().is_none();
            }
            loop {
                match connection.read_piece(usize::MAX, now) {
                    Ok(piece) => *bytes += piece.len() as u64,
                    Err(error) => return error == ReadError::Empty,
                }
            }
        });
        if stream.bytes > before {
            test.heard = Instant::now();
        }
        goes_on == Some(true)
    }

    /// The test is over: its data connections are of no use any more.
    fn end(&mut self, stack: &mut Stack, over: &mut Vec<u32>) {
        let Some(test) = self.test.take() else { return };
        self.roles.remove(&test.control.token);
        over.push(test.control.token);
        for Stream { member, .. } in test.streams {
            if self.roles.remove(&member.token).is_some() {
                stack.with(member.conn, |connection, _| connection.abort());
                over.push(member.token);
            }
        }
    }
}

impl Parameters {
    fn is_possible(&self) -> bool {
        self.tcp && !self.bidirectional && (1..=PARALLEL_MAX).contains(&self.parallel)
    }
}

impl Test {
    /// Whether another client may have its place: its own has all results and may be gone, its last words
    /// lost; or nothing was heard of it for so long that it must be.
    fn is_over(&self, cookie: &[u8]) -> bool {
        self.cookie != cookie
            && (self.step == Step::Displaying || self.heard.elapsed() >= SILENCE_MAX)
    }

    fn results(&self, stack: &Stack) -> String {
        let seconds = self.begun.elapsed().as_secs_f64();
        let stream = |(index, stream): (usize, &Stream)| {
            let connection = stack.connection(stream.member.conn);
            let again = connection.map(|connection| connection.counters().segments_retransmitted);
            serde_json::json!({
                // As iperf3 counts them: 1, 3, 4, 5.
                "id": if index == 0 { 1 } else { index + 2 },
                "bytes": stream.bytes,
                "retransmits": again.map_or(-1, |again| again.cast_signed()),
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

/// Keeps the send queue full; gives the bytes written.
fn fill(connection: &mut Connection, pattern: &Piece) -> u64 {
    let mut bytes = 0;
    while connection.writable() > 0 {
        let len = pattern.len().min(connection.writable());
        if connection.write_piece(pattern.slice(0..len)).is_err() {
            break;
        }
        bytes += len as u64;
    }
    bytes
}

/// Reads on at the cookie, no byte beyond it; whether it is complete.
fn read_cookie(stack: &mut Stack, conn: UserConn, cookie: &mut Vec<u8>) -> Result<bool, ()> {
    let mut buffer = [0; COOKIE_BYTES];
    while cookie.len() < COOKIE_BYTES {
        let left = &mut buffer[cookie.len()..];
        match stack.with(conn, |connection, now| connection.read(left, now)) {
            Some(Ok(read)) => cookie.extend_from_slice(&left[..read]),
            Some(Err(ReadError::Empty)) => return Ok(false),
            _ => return Err(()),
        }
    }
    Ok(true)
}

/// Reads everything there is; whether more may come.
fn read_all(stack: &mut Stack, conn: UserConn, to: &mut Vec<u8>) -> bool {
    loop {
        match stack.with(conn, |connection, now| {
            connection.read_piece(usize::MAX, now)
        }) {
            Some(Ok(piece)) => to.extend_from_slice(piece.as_ref()),
            Some(Err(error)) => return error == ReadError::Empty,
            None => return false,
        }
        if to.len() > TEXT_BYTES_MAX + 4 {
            return false;
        }
    }
}

enum Text {
    Incomplete,
    TooLong,
    Whole(Vec<u8>),
}

/// Takes a text behind its length out of what was read.
fn take_text(inbox: &mut Vec<u8>) -> Text {
    let Some(&[a, b, c, d]) = inbox.first_chunk() else {
        return Text::Incomplete;
    };
    let len = u32::from_be_bytes([a, b, c, d]) as usize;
    if len > TEXT_BYTES_MAX {
        return Text::TooLong;
    }
    if inbox.len() < 4 + len {
        return Text::Incomplete;
    }
    Text::Whole(inbox.drain(..4 + len).skip(4).collect())
}

/// On a control connection: a few bytes, and its send queue is never nearly full. If it has ended,
/// the next read says so.
fn say(stack: &mut Stack, conn: UserConn, bytes: &[u8]) {
    stack.with(conn, |connection, _| connection.write(bytes).is_ok());
}

/// Longer than all retransmissions of a path that still carries anything; shorter than people wait.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const COOKIE_BYTES: usize = 37;
/// Many times what a client says of 128 streams.
const TEXT_BYTES_MAX: usize = 1 << 18;
/// iperf3's MAX_STREAMS.
const PARALLEL_MAX: usize = 128;

// States of iperf_api.h.
const TEST_START: u8 = 1;
const TEST_RUNNING: u8 = 2;
const TEST_END: u8 = 4;
const PARAM_EXCHANGE: u8 = 9;
const CREATE_STREAMS: u8 = 10;
const CLIENT_TERMINATE: u8 = 12;
const EXCHANGE_RESULTS: u8 = 13;
const DISPLAY_RESULTS: u8 = 14;
const IPERF_DONE: u8 = 16;
const ACCESS_DENIED: u8 = 0xff;
/// SERVER_ERROR, then IEUNIMP ("not implemented") and no errno.
const UNSUPPORTED: [u8; 9] = [0xfe, 0, 0, 0, 13, 0, 0, 0, 0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_taken_when_it_is_whole() {
        let mut inbox = vec![0, 0, 0, 2, b'{'];
        assert!(matches!(take_text(&mut inbox), Text::Incomplete));
        inbox.extend(b"}\x04");
        assert!(matches!(take_text(&mut inbox), Text::Whole(text) if text == b"{}"));
        assert_eq!(inbox, [4], "what follows stays");
        assert!(matches!(take_text(&mut vec![0xff, 0, 0, 0]), Text::TooLong));
    }
}
