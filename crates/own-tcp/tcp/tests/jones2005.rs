//! Exact reproduction of Jones's trace of 2005: a 16 KB request/response between a receiver that
//! avoids ACKs and a sender whose window begins with three segments and grows by one per ACK that
//! finds it full. Also with receivers that acknowledge every second segment.

mod common;
mod face;

use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use face::{Face, Passed, Who};
use tcpcost_tcp::{
    AckPolicy, Config, CongestionControl, Connection, ReadError, Segmentation, WindowGrowth,
};

const REQUEST: usize = 128;
const RESPONSE: usize = 16 * 1024;
const DELAY: Duration = Duration::from_millis(100);

/// Runs `transactions` requests. Returns the packets seen at the sender of the responses.
fn trace(ack: AckPolicy, transactions: usize) -> Vec<Passed> {
    let plain = Config {
        timestamps: false,
        window_scaling: false,
        receive_buffer: 32_768,
        receive_buffer_max: 0,
        segmentation: Segmentation {
            super_segment_bytes_max: 0,
            ..Segmentation::default()
        },
        congestion: CongestionControl::NewReno,
        ..Config::default()
    };
    let server = Config {
        initial_window: NonZeroU16::new(3),
        window_growth: WindowGrowth::PerAck,
        ..plain.clone()
    };
    let us = Duration::from_micros;
    let mut face = Face::new(Config { ack, ..plain }, server, us(100), us(5));
    for _ in 0..transactions {
        face.end(Who::Client).write(&[1; REQUEST]).unwrap();
        face.transmit();
        let until = face.now + Duration::from_millis(50);
        while face.end(Who::Client).readable() < RESPONSE {
            assert!(face.step(answer) && face.now < until, "no response");
        }
        let now = face.now;
        let read = face.end(Who::Client).read(&mut [0; RESPONSE], now);
        assert_eq!(read, Ok(RESPONSE));
    }
    let at_the_sender = |passed: &Passed| (passed.from == Who::Server) == passed.sent;
    face.log.into_iter().filter(at_the_sender).collect()
}

/// Reads a request and writes its response.
fn answer(connection: &mut Connection, who: Who, now: Instant) {
    if who == Who::Client {
        return;
    }
    match connection.read(&mut [0; REQUEST], now) {
        Ok(read) => {
            assert_eq!(read, REQUEST);
            assert_eq!(connection.write(&[2; RESPONSE]), Ok(RESPONSE));
        }
        Err(error) => assert_eq!(error, ReadError::Empty),
    }
}

/// Rows of the receiver's acknowledgements in the format of the published table; sequence numbers
/// start at 1.
fn acks(passed: &[Passed]) -> Vec<String> {
    let mut rows = Vec::new();
    let mut acked = 1;
    for ack in passed.iter().filter(|passed| passed.from == Who::Client) {
        if ack.ack > acked {
            let covered = passed.iter().filter(|data| {
                let end = data.start + data.bytes;
                data.from == Who::Server && end > acked && end <= ack.ack
            });
            let segments: Vec<u32> = covered.map(|data| data.bytes).collect();
            let full = segments.iter().filter(|bytes| **bytes == 1460).count();
            let kind = if ack.bytes == 0 {
                "pure"
            } else {
                "piggyback_on_request"
            };
            let (count, bytes) = (segments.len(), ack.ack - acked);
            rows.push(format!("{kind},{acked},{},{bytes},{count},{full}", ack.ack));
            acked = ack.ack;
        }
    }
    rows
}

/// Runs of data or of pure ACKs without a packet of the other direction in between, by transaction.
fn bursts(passed: &[Passed]) -> Vec<String> {
    let mut rows = Vec::new();
    for (kind, from) in [("data_segments", Who::Server), ("pure_acks", Who::Client)] {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let (mut transaction, mut running) = (0, false);
        for packet in passed {
            if packet.from == Who::Client && packet.bytes > 0 {
                transaction += 1;
            }
            let counts = match from {
                Who::Server => packet.from == from && packet.bytes > 0,
                Who::Client => packet.from == from && packet.bytes == 0,
            };
            match runs.last_mut() {
                Some((_, length)) if counts && running => *length += 1,
                _ if counts => runs.push((transaction, 1)),
                _ => {}
            }
            running = counts;
        }
        let row =
            |(index, (of, length)): (usize, (u32, u32))| format!("{kind},{of},{index},{length}");
        rows.extend(runs.into_iter().enumerate().map(row));
    }
    rows
}

fn published(table: &'static str, trace: &str) -> Vec<&'static str> {
    let rows = table.lines().skip(1);
    rows.filter_map(|row| row.strip_prefix(trace)?.strip_prefix(','))
        .collect()
}

const ACKS: &str = include_str!("data/expected_jones2005_acks.csv");
const BURSTS: &str = include_str!("data/expected_jones2005_bursts.csv");

#[test]
fn avoidance_makes_the_published_acks_and_bursts() {
    let avoidance = AckPolicy::Avoidance {
        limit_initial: 1,
        limit_max: 22,
        delay_max: DELAY,
    };
    let passed = trace(avoidance, 4);
    assert_eq!(acks(&passed), published(ACKS, "ack_avoidance"));
    assert_eq!(bursts(&passed), published(BURSTS, "ack_avoidance"));
}

/// The sender's window of this trace is not known, and the ends of its bursts depend on the capture
/// point, so only the data that each ACK covers is compared.
#[test]
fn every_second_full_segment_makes_the_published_acks() {
    let rows = acks(&trace(AckPolicy::Delayed { delay_max: DELAY }, 4));
    let published = published(ACKS, "ack_every_other");
    let from = rows
        .iter()
        .position(|row| row == published[0])
        .expect("the second transaction");
    assert_eq!(rows[from..][..published.len()], published);
}

/// Main result of 2005: the same bytes with fewer ACKs, and a window that grows less.
#[test]
fn every_two_needs_three_times_as_many_acks() {
    let every = AckPolicy::Every {
        segments: 2,
        delay_max: DELAY,
    };
    let passed = trace(every, 4);
    let rows = acks(&passed);
    // The last ACK is still on its way when the last response has arrived.
    assert_eq!(rows.len(), 4 * 6 - 1, "six per transaction: {rows:?}");
    assert!(rows.iter().all(|row| row.starts_with("pure,")), "{rows:?}");
    let two = |row: &String| row.ends_with(",2920,2,2") || row.ends_with(",1784,2,1");
    assert!(rows.iter().all(two), "{rows:?}");
    let longest = |passed: &[Passed]| {
        let runs = bursts(passed);
        let data = runs.iter().filter_map(|row| row.strip_prefix("data_"));
        data.filter_map(|row| row.rsplit(',').next()?.parse::<u32>().ok())
            .max()
    };
    // 9 with avoidance, whose fewer ACKs open such a sender's window less.
    assert!(longest(&passed) > Some(9), "{:?}", longest(&passed));
}
