//! `--service iperf3`: the server's part of iperf3's control protocol, so that its client can measure our
//! TCP: streams of TCP in one direction (`-R`, `-P`, `-t`, `-n`, `-k`, `-l`, `-O`, `-N`, `-b`).
//!
//! A test is one control connection and its data connections. Each begins with the cookie of its test, so several clients
//! can have a test at the same time, and a silent client does not block the others. On the control connection the server
//! sends the next state, one byte each. Parameters and results are JSON after a length of four bytes (iperf3's
//! `iperf_api.h`, `net.c`).
//! Not here: UDP, SCTP, both directions at once, `--get-server-output`, `-w` (`--send-buffer`), `-M`
//! (`--mss`), and of `-b 10M/COUNT` the bursts.

mod test;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tcpcost_stack::UserConn;
use tcpcost_tcp::{Piece, ReadError};

use super::TcpUnderTest as Stack;
use super::turn::NextStep;
use test::{Step, Test};

type Cookie = [u8; COOKIE_BYTES];

/// All connections of iperf3 clients.
#[derive(Default)]
pub struct Server {
    roles: HashMap<u32, Role>,
    tests: HashMap<Cookie, Test>,
}

/// Role of a connection in iperf3's protocol.
enum Role {
    /// Not known before its cookie is complete.
    Unknown(Vec<u8>),
    /// The control connection of a test, with the part of a message that has arrived.
    Control(Cookie, Vec<u8>),
    /// A data connection of a test, with its index in [`Test::streams`].
    Stream(Cookie, usize),
}

#[derive(Clone, Copy)]
struct Member {
    token: u32,
    conn: UserConn,
}

/// Result of a connection's turn for all connections of its test, by token.
#[derive(Default)]
pub struct Outcome {
    /// Connections that are over.
    pub over: Vec<u32>,
    /// Connections that want another turn.
    pub again: Vec<u32>,
}

impl Server {
    /// Takes a turn on a connection.
    pub fn serve(
        &mut self,
        stack: &mut Stack,
        token: u32,
        conn: UserConn,
        pattern: &Piece,
    ) -> Outcome {
        let member = Member { token, conn };
        let Outcome {
            mut over,
            mut again,
        } = Outcome::default();
        let role = self.roles.remove(&token);
        match role.unwrap_or(Role::Unknown(Vec::new())) {
            Role::Unknown(mut read) => match read_cookie(stack, conn, &mut read) {
                Ok(Some(cookie)) => {
                    // The last connection of a test starts all of them.
                    again = self.add_member(stack, member, cookie, &mut over);
                }
                Ok(None) => drop(self.roles.insert(token, Role::Unknown(read))),
                Err(()) => over.push(token),
            },
            Role::Control(cookie, mut inbox) => {
                let before = inbox.len();
                let open = read_all(stack, conn, &mut inbox);
                let goes_on = self.tests.get_mut(&cookie).is_some_and(|test| {
                    if inbox.len() > before {
                        test.last_active = Instant::now();
                    }
                    test.on_messages(stack, &mut inbox)
                });
                if open && goes_on {
                    self.roles.insert(token, Role::Control(cookie, inbox));
                } else {
                    self.end(stack, &cookie, &mut over);
                }
            }
            Role::Stream(cookie, index) => {
                let test = self.tests.get_mut(&cookie);
                let next = test.map(|test| test.transfer(stack, index, pattern));
                match next {
                    Some(NextStep::Wait) => {}
                    Some(NextStep::Again) => again.push(token),
                    Some(NextStep::Over) | None => over.push(token),
                }
                if over.is_empty() {
                    self.roles.insert(token, Role::Stream(cookie, index));
                }
            }
        }
        Outcome { over, again }
    }

    /// Adds a connection whose cookie is complete to its test. Returns the tokens of the connections that can begin.
    fn add_member(
        &mut self,
        stack: &mut Stack,
        member: Member,
        cookie: Cookie,
        over: &mut Vec<u32>,
    ) -> Vec<u32> {
        if let Some(test) = self.tests.get_mut(&cookie) {
            if test.step != Step::Streams {
                send(stack, member.conn, &[ACCESS_DENIED]);
                over.push(member.token);
                return Vec::new();
            }
            let index = test.add(stack, member);
            self.roles.insert(member.token, Role::Stream(cookie, index));
            return match test.step {
                Step::Running => test.members().map(|member| member.token).collect(),
                _ => Vec::new(),
            };
        }
        if self.tests.len() >= TESTS_MAX {
            self.end_silent(stack, over);
        }
        if self.tests.len() >= TESTS_MAX {
            send(stack, member.conn, &[ACCESS_DENIED]);
            over.push(member.token);
            return Vec::new();
        }
        self.tests.insert(cookie, Test::new(member));
        self.roles
            .insert(member.token, Role::Control(cookie, Vec::new()));
        send(stack, member.conn, &[PARAM_EXCHANGE]);
        Vec::new()
    }

    /// Ends a test and aborts its data connections.
    fn end(&mut self, stack: &mut Stack, cookie: &Cookie, over: &mut Vec<u32>) {
        let Some(test) = self.tests.remove(cookie) else {
            return;
        };
        self.roles.remove(&test.control.token);
        over.push(test.control.token);
        for member in test.members() {
            // The token of a data connection that is over may belong to a connection of another test by now.
            let role = self.roles.get(&member.token);
            if matches!(role, Some(Role::Stream(of, _)) if of == cookie) {
                self.roles.remove(&member.token);
                stack.with(member.conn, |connection, _| connection.abort());
                over.push(member.token);
            }
        }
    }

    /// Ends the tests whose clients have sent nothing for [`SILENCE_MAX`].
    fn end_silent(&mut self, stack: &mut Stack, over: &mut Vec<u32>) {
        let is_silent = |test: &Test| test.last_active.elapsed() >= SILENCE_MAX;
        let silent = self.tests.iter().filter(|(_, test)| is_silent(test));
        let cookies: Vec<Cookie> = silent.map(|(cookie, _)| *cookie).collect();
        for cookie in cookies {
            self.end(stack, &cookie, over);
        }
    }
}

/// Reads more of the cookie, and no byte after it. Returns the cookie once it is complete.
fn read_cookie(
    stack: &mut Stack,
    conn: UserConn,
    read: &mut Vec<u8>,
) -> Result<Option<Cookie>, ()> {
    let mut buffer = [0; COOKIE_BYTES];
    loop {
        if let Ok(cookie) = Cookie::try_from(read.as_slice()) {
            return Ok(Some(cookie));
        }
        let left = &mut buffer[read.len()..];
        match stack.with(conn, |connection, now| connection.read(left, now)) {
            Some(Ok(bytes)) => read.extend_from_slice(&left[..bytes]),
            Some(Err(ReadError::Empty)) => return Ok(None),
            _ => return Err(()),
        }
    }
}

/// Reads all bytes that have arrived. True if more may come.
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

/// Removes the first text and its length from `inbox`, if the text is complete.
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

/// Sends bytes on a control connection. They are few, so its send queue always has room. If the connection has ended, the
/// next read fails.
fn send(stack: &mut Stack, conn: UserConn, bytes: &[u8]) {
    stack.with(conn, |connection, _| connection.write(bytes).is_ok());
}

/// Limit of tests at the same time, because each has connections.
const TESTS_MAX: usize = 64;
/// Silence after which a client counts as gone: longer than retransmissions on a working path, shorter than people wait.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const COOKIE_BYTES: usize = 37;
/// Limit of a text: many times the results of 128 streams.
const TEXT_BYTES_MAX: usize = 1 << 18;

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
