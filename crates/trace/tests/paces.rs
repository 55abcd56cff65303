//! Tests whether a sender is recognised as waiting for ACKs, for a rate below them, or for its
//! application.

mod common;

use common::{CLIENT, ISN, SERVER, Script};
use tcpcost_trace::flag::{ACK, PSH};
use tcpcost_trace::{Reading, Report, Wait, Waits};

const MSS: u32 = 1460;

/// Sends full segments of the client from number `next` on: the first now, the others this long
/// apart.
fn send(script: &mut Script, next: &mut u32, segments: u32, apart_us: u64) {
    for segment in 0..segments {
        script.after(if segment > 0 { apart_us } else { 0 });
        let seq = ISN[CLIENT] + 1 + *next * MSS;
        script.raw(CLIENT, ACK, seq, ISN[SERVER] + 1, MSS);
        *next += 1;
    }
}

fn share(waits: &Waits, of: Wait) -> f64 {
    waits.of(of) as f64 / waits.total_ns() as f64
}

/// A sender that needs 3 ms to answer an ACK, and 1.3 ms for a packet; its handshake was 30 times
/// as fast.
#[test]
fn a_slow_answer_to_an_ack_is_still_one() {
    let mut script = Script::open();
    let mut next = 0;
    send(&mut script, &mut next, 8, 1_300);
    let mut acked = 0;
    for _ in 0..100 {
        acked += 4;
        script.after(30_000).ack(SERVER, acked * MSS);
        script.after(3_000);
        send(&mut script, &mut next, 4, 1_300);
    }
    let waits = script.one().waits();
    assert!(share(&waits, Wait::CongestionWindow) > 0.75, "{waits:?}");
    // The time that it needs between packets is its own.
    assert!(own(&waits) < 0.15, "{waits:?}");
}

/// Spans without ACKs of new data are the sender's own pace.
#[test]
fn a_pause_with_data_in_flight_and_no_ack_is_its_own_pace() {
    let mut script = Script::open();
    let mut next = 0;
    for _ in 0..9 {
        send(&mut script, &mut next, 4, 1_300);
        script.after(33_000);
    }
    let waits = script.one().waits();
    assert!(own(&waits) > 0.8, "{waits:?}");
}

/// Share of the sender's own doing, by a rate or without one.
fn own(waits: &Waits) -> f64 {
    share(waits, Wait::Paced) + share(waits, Wait::HeldUp)
}

/// A program without its CPU: time slices of others come between its packets, however many it sent.
/// Its packets are partly acknowledged before it goes on.
#[test]
fn a_sender_without_its_cpu_keeps_no_rate() {
    let mut script = Script::open();
    let mut next = 0;
    let slices_ms = [3, 40, 1, 12, 4, 70, 2, 8, 25, 4, 1, 55, 16];
    let bursts = [12, 3, 20, 7, 1, 16, 2, 20, 5, 18];
    for turn in 0..200 {
        send(&mut script, &mut next, bursts[turn % bursts.len()], 5);
        let acked = if turn % 3 == 0 { next } else { next - 1 };
        script.after(200).ack(SERVER, acked * MSS);
        script.after(slices_ms[turn % slices_ms.len()] * 1000);
    }
    let connection = script.one();
    let waits = connection.waits();
    assert!(share(&waits, Wait::HeldUp) > 0.7, "{waits:?}");
    assert!(share(&waits, Wait::Paced) < 0.15, "{waits:?}");
    let report = Report::new("starved", &Reading::default(), Ok(()), &[connection]);
    assert_eq!(report.findings[0].kind, "sender_held_up");
}

/// ACKs come together, and the program whose buffer they empty wakes up late: it waited for the
/// ACKs.
#[test]
fn of_a_late_answer_to_acks_only_what_it_is_late_is_the_senders() {
    let mut script = Script::open();
    let mut next = 0;
    let late_us = [900, 2_500, 700, 1_200, 3_000, 1_800, 600];
    let bursts = [8, 2, 16, 20, 4, 12];
    for turn in 0..200 {
        send(&mut script, &mut next, bursts[turn % bursts.len()], 5);
        script.after(20_000).ack(SERVER, next * MSS);
        script.after(late_us[turn % late_us.len()]);
    }
    let waits = script.one().waits();
    assert!(share(&waits, Wait::CongestionWindow) > 0.6, "{waits:?}");
    assert!(share(&waits, Wait::Paced) < 0.3, "{waits:?}");
}

/// Waits of a sender of two segments at a time at this rate, as by fq or by a timer. The path takes
/// 10 ms, with an ACK for eight segments.
fn paced_by(mbit_per_s: impl Fn(u64) -> f64, jitter: f64) -> Waits {
    // Time of each packet of both ends, and the number of segments sent before.
    let (mut at_us, mut events) = (1_000.0f64, Vec::new());
    for pair in 0..600u32 {
        events.push((at_us as u64, CLIENT, pair * 2));
        if pair % 4 == 3 {
            events.push((at_us as u64 + 9_400, SERVER, pair * 2 + 2));
        }
        let varies = 1.0 + jitter * f64::from(pair * 7 % 5).mul_add(0.5, -1.0);
        at_us += f64::from(2 * MSS * 8) / mbit_per_s(at_us as u64) * varies;
    }
    events.sort_unstable();
    let mut script = Script::open();
    let mut now_us = 0;
    for (at_us, from, number) in events {
        script.after(at_us - now_us);
        now_us = at_us;
        let mut next = number;
        match from {
            CLIENT => send(&mut script, &mut next, 2, 0),
            _ => _ = script.ack(SERVER, number * MSS),
        }
    }
    script.one().waits()
}

#[test]
fn a_rate_that_the_sender_keeps_is_pacing() {
    // SO_MAX_PACING_RATE: one rate, timers that are a tenth late or early.
    let waits = paced_by(|_| 18.0, 0.1);
    assert!(share(&waits, Wait::Paced) > 0.8, "{waits:?}");
    assert!(share(&waits, Wait::HeldUp) < 0.02, "{waits:?}");
    // BBR: a start that doubles each round trip, then its cycle of gains.
    let bbr = |at_us: u64| match at_us / 10_000 {
        start @ 0..4 => 2.0 * 2f64.powi(start as i32),
        turn => 16.0 * [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0][turn as usize % 8],
    };
    let waits = paced_by(bbr, 0.05);
    assert!(share(&waits, Wait::Paced) > 0.75, "{waits:?}");
    assert!(share(&waits, Wait::HeldUp) < 0.05, "{waits:?}");
}

/// Full segments that leave a queue of 50 Mbit/s before the capture. Each is acknowledged at once,
/// so nothing is ever in flight here; each tenth has PSH, as if the send buffer was full.
fn behind_a_queue() -> Script {
    let mut script = Script::open();
    for number in 0..400 {
        script.after(233);
        let flags = if number % 10 == 9 { ACK | PSH } else { ACK };
        let seq = ISN[CLIENT] + 1 + number * MSS;
        script.raw(CLIENT, flags, seq, ISN[SERVER] + 1, MSS);
        script.after(10).ack(SERVER, (number + 1) * MSS);
    }
    script
}

#[test]
fn a_rate_before_the_capture_is_no_application() {
    let connection = behind_a_queue().one();
    let waits = connection.waits();
    assert!(share(&waits, Wait::Paced) > 0.95, "{waits:?}");
    let report = Report::new("rate", &Reading::default(), Ok(()), &[connection]);
    let first = &report.findings[0];
    // 1460 bytes in 243 µs, and the handshake.
    assert_eq!(first.kind, "paced");
    assert!(first.text.contains("48.0 Mbit/s"), "{}", first.text);
}

/// Each packet is a message: the application writes at these times.
#[test]
fn messages_with_pauses_are_the_application() {
    let mut script = behind_a_queue();
    for packet in &mut script.packets[3..] {
        if packet.payload > 0 {
            packet.flags |= PSH;
        }
    }
    let waits = script.one().waits();
    assert!(share(&waits, Wait::ClientApplication) > 0.95, "{waits:?}");
}
