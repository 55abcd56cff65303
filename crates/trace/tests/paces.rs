//! Whether a sender waits for ACKs, for a rate below it, or for its application.

mod common;

use common::{CLIENT, ISN, SERVER, Script};
use tcpcost_trace::flag::{ACK, PSH};
use tcpcost_trace::{Reading, Report, Wait, Waits};

const MSS: u32 = 1460;

/// So many full segments of the client, from this one on, the first now and the others this long apart.
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

/// A sender that needs 3 ms to answer an ACK, and 1.3 ms a packet: its handshake was 30 times as fast.
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
    // What it needs between packets is its own.
    assert!(share(&waits, Wait::Paced) < 0.15, "{waits:?}");
}

/// The same spans without ACKs that tell of anything new: its own pace.
#[test]
fn a_pause_with_data_in_flight_and_no_ack_is_its_own_pace() {
    let mut script = Script::open();
    let mut next = 0;
    for _ in 0..9 {
        send(&mut script, &mut next, 4, 1_300);
        script.after(33_000);
    }
    let waits = script.one().waits();
    assert!(share(&waits, Wait::Paced) > 0.8, "{waits:?}");
}

/// Full segments leave a queue of 50 Mbit/s before the capture, each acknowledged at once, so that
/// nothing is ever in flight here; each tenth has PSH, as where the send buffer was full.
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
    // 1460 bytes in 243 µs, and no pause before the first.
    assert_eq!(first.kind, "paced");
    assert!(first.text.contains("48.1 Mbit/s"), "{}", first.text);
}

/// The same times, but each packet a message: that is how its application writes.
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
