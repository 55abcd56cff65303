//! A custom ACK policy, live. Run as root `cargo run -p tcpcost-stack --example own_policy`, then
//! `curl -T FILE http://10.99.0.2/`. Prints segments and ACKs of each upload. A number as argument
//! ends the program after this number of uploads.

use std::collections::HashMap;
use std::error::Error;
use std::process::Command;
use std::time::{Duration, Instant};

use tcpcost_link::{Layer, Offloads, Tap};
use tcpcost_stack::{SocketOptions, Stack, UserStack};
use tcpcost_tcp::{
    AckDecision, AckPolicy, AckRule, Arrival, Config, Connection, OwnAckPolicy, OwnAcks, ReadError,
};

/// Acknowledges after 1, 2, 4, … segments, at most 64; when segments stop coming, after 1 again.
#[derive(Debug)]
struct Doubling;

#[derive(Debug)]
struct Rule {
    limit: u32,
    unacked: u32,
}

impl OwnAcks for Doubling {
    fn rule(&self) -> Box<dyn AckRule> {
        let (limit, unacked) = (1, 0);
        Box::new(Rule { limit, unacked })
    }
}

impl AckRule for Rule {
    fn on_segment(&mut self, arrival: &Arrival) -> AckDecision {
        self.unacked += arrival.wire_segments;
        if self.unacked < self.limit {
            return AckDecision::By(arrival.now + Duration::from_millis(20));
        }
        self.limit = (2 * self.limit).min(64);
        AckDecision::Now
    }

    fn on_timer(&mut self) {
        self.limit = 1;
    }

    fn on_sent(&mut self) {
        self.unacked = 0;
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut uploads_left = std::env::args()
        .nth(1)
        .map_or(Ok(u32::MAX), |n| n.parse())?;
    let address = "10.99.0.2".parse()?;
    let mut tap = Tap::open("own0", Layer::Ethernet, Offloads::ALL)?;
    tap.answer_for(address);
    for words in ["address add 10.99.0.1/24 dev own0", "link set own0 up"] {
        Command::new("ip").args(words.split(' ')).status()?;
    }
    let config = Config {
        ack: AckPolicy::Own(OwnAckPolicy(&Doubling)),
        ..Config::default()
    };
    let mut stack = UserStack::new(tap, &[address], &config, &SocketOptions::default())?;
    let listener = stack.listen((address, 80).into(), 16, 0)?;
    println!("now: curl -T FILE http://{address}/");
    let (mut uploads, mut last_token) = (HashMap::new(), 0);
    while uploads_left > 0 || !uploads.is_empty() {
        for index in 0..stack.poll(None)? {
            let token = stack.ready(index).token;
            while let Ok((conn, _)) = stack.accept(listener, last_token + 1) {
                last_token += 1;
                uploads.insert(last_token, (conn, Upload::default()));
            }
            let Some((conn, upload)) = uploads.get_mut(&token) else {
                continue;
            };
            if stack.with(*conn, |connection, now| upload.serve(connection, now)) != Some(true) {
                stack.close(*conn);
                uploads.remove(&token);
                uploads_left = uploads_left.saturating_sub(1);
            }
        }
    }
    Ok(())
}

/// State of an HTTP upload, as far as curl needs it.
#[derive(Default)]
struct Upload {
    head: Vec<u8>,
    body_left: Option<usize>,
}

impl Upload {
    /// Reads received bytes. True if there may be more.
    fn serve(&mut self, connection: &mut Connection, now: Instant) -> bool {
        loop {
            let bytes = match connection.read_piece(usize::MAX, now) {
                Ok(piece) => piece,
                Err(error) => return error == ReadError::Empty,
            };
            match &mut self.body_left {
                Some(left) => *left = left.saturating_sub(bytes.len()),
                None => self.read_head(bytes.as_ref(), connection),
            }
            if self.body_left == Some(0) {
                let done = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                // An error means that the client has gone.
                let _ = connection.write(done);
                let counters = connection.counters();
                let (segments, acks) = (counters.segments_received, counters.pure_acks_sent);
                println!("{segments} segments, {acks} ACKs");
                self.body_left = Some(usize::MAX);
            }
        }
    }

    fn read_head(&mut self, bytes: &[u8], connection: &mut Connection) {
        self.head.extend_from_slice(bytes);
        let text = String::from_utf8_lossy(&self.head).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            return;
        };
        let length = head.split("content-length: ").nth(1);
        let length = length.and_then(|rest| rest.lines().next()?.parse::<usize>().ok());
        self.body_left = Some(length.unwrap_or(0).saturating_sub(body.len()));
        let _ = connection.write(b"HTTP/1.1 100 Continue\r\n\r\n");
    }
}
