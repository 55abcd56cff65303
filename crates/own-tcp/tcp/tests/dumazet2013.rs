//! Exact reproduction of Dumazet's measurement of 2013: a 4 KiB request and response over MTU 1500
//! with timestamps takes three packets per transaction and end before the change, two after.

mod common;
mod face;

use std::time::{Duration, Instant};

use face::{Face, Passed, Who};
use tcpcost_tcp::{Config, Connection, Segmentation, TailRule};

const MESSAGE: usize = 4096;
const TRANSACTIONS: usize = 100;
/// Bytes of IP and TCP headers with timestamps.
const HEADERS: u32 = 52;

/// Segments that each end sent once the connection was warm, without the handshake's
/// acknowledgements.
fn run(tail: TailRule) -> Vec<Passed> {
    let config = Config {
        segmentation: Segmentation {
            tail,
            ..Segmentation::default()
        },
        ..Config::default()
    };
    let us = Duration::from_micros;
    let mut face = Face::new(config.clone(), config, us(30), us(1));
    let mut run = |transactions| {
        for _ in 0..transactions {
            face.end(Who::Client).write(&[1; MESSAGE]).unwrap();
            face.transmit();
            while face.end(Who::Client).readable() < MESSAGE {
                assert!(face.step(echo), "no response");
            }
            let now = face.now;
            let read = face.end(Who::Client).read(&mut [0; MESSAGE], now);
            assert_eq!(read, Ok(MESSAGE));
        }
        std::mem::take(&mut face.log)
    };
    run(1);
    let mut log = run(TRANSACTIONS);
    log.retain(|passed| passed.sent);
    log
}

fn echo(connection: &mut Connection, who: Who, now: Instant) {
    if who == Who::Server && connection.readable() == MESSAGE {
        let mut message = [0; MESSAGE];
        assert_eq!(connection.read(&mut message, now), Ok(MESSAGE));
        assert_eq!(connection.write(&message), Ok(MESSAGE));
    }
}

/// Packets per transaction and mean bytes per packet of one end.
fn figures(log: &[Passed], who: Who) -> (f64, f64) {
    let own = || log.iter().filter(|passed| passed.from == who);
    let (packets, octets) = (
        own().count(),
        own().map(|passed| passed.bytes + HEADERS).sum::<u32>(),
    );
    (
        packets as f64 / TRANSACTIONS as f64,
        f64::from(octets) / packets as f64,
    )
}

/// Published lines of one phase, from A's first data on: true for A, PSH, payload, wire segments.
fn published(phase: &str) -> Vec<(bool, bool, u32, u32)> {
    let rows = include_str!("data/expected_dumazet2013_skbs.csv").lines();
    let rows: Vec<Vec<&str>> = rows
        .map(|row| row.split(',').collect())
        .filter(|row: &Vec<&str>| row[0] == phase)
        .collect();
    let number = |text: &str| text.parse::<u32>().unwrap();
    rows.iter()
        .map(|row| {
            let wire_segments = number(row[9]).max(1);
            (
                row[1] == "A",
                row[3] == "PSH",
                number(row[6]),
                wire_segments,
            )
        })
        .collect()
}

fn check(tail: TailRule, phase: &str, packets: f64, octets: f64) {
    let log = run(tail);
    for who in [Who::Client, Who::Server] {
        let found = figures(&log, who);
        assert_eq!(
            found.0, packets,
            "{phase}: packets per transaction of {who:?}"
        );
        assert!(
            (found.1 - octets).abs() < 1e-9,
            "{phase}: {} octets per packet of {who:?}",
            found.1
        );
    }
    // The published lines begin with the acknowledgement that A sends before its next message.
    let published = published(phase);
    let as_his = |passed: &Passed| {
        (
            passed.from == Who::Client,
            passed.push,
            passed.bytes,
            passed.wire_segments,
        )
    };
    let ours: Vec<_> = log.iter().map(as_his).collect();
    let begin = ours
        .iter()
        .position(|packet| *packet == published[0])
        .expect("the client acknowledges");
    assert_eq!(ours[begin..][..published.len()], published, "{phase}");
}

#[test]
fn before_a_message_left_in_two_and_its_first_part_was_acknowledged() {
    check(TailRule::Split, "before", 3.0, (3.0 * 52.0 + 4096.0) / 3.0);
}

#[test]
fn after_a_message_leaves_in_one() {
    check(TailRule::Keep, "after", 2.0, 2100.0);
}
