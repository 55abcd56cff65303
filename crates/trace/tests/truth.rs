//! Captures of our own TCP under every ACK policy and impairment, compared with the stack's
//! counters.
//!
//! Where a count differs by definition the test says how: a capture does not see packets that did
//! not reach it, and does not verify checksums.

#[path = "../../own-tcp/tcp/tests/common/mod.rs"]
mod ends;
#[path = "truth/transfer.rs"]
mod transfer;

use std::time::Duration;

use tcpcost_tcp::{AckPolicy, Segmentation};
use tcpcost_trace::Policy;
use transfer::{Scene, Seen, impairments, scene};

const DELAY: Duration = Duration::from_millis(40);

const CLIENT: usize = 0;
const SERVER: usize = 1;

fn every(segments: u32) -> AckPolicy {
    AckPolicy::Every {
        segments,
        delay_max: DELAY,
    }
}

fn exactly(segments: u32) -> AckPolicy {
    AckPolicy::Exactly {
        segments,
        delay_max: DELAY,
    }
}

fn avoidance(limit_max: u32) -> AckPolicy {
    AckPolicy::Avoidance {
        limit_initial: 1,
        limit_max,
        delay_max: DELAY,
    }
}

fn requested(segments: u32) -> AckPolicy {
    AckPolicy::Requested {
        segments,
        delay_max: DELAY,
    }
}

/// All policies, each with the guess that fits if the reader reads everything at once.
fn policies() -> Vec<(AckPolicy, Policy)> {
    let segments = |segments| Policy::EverySegments { segments };
    vec![
        (AckPolicy::Delayed { delay_max: DELAY }, segments(2)),
        (AckPolicy::LinuxLike { delay_max: DELAY }, segments(2)),
        (every(1), segments(1)),
        (every(4), segments(4)),
        (exactly(8), segments(8)),
        (avoidance(8), Policy::GrowingAvoidance { most: 8 }),
        (avoidance(22), Policy::GrowingAvoidance { most: 22 }),
        // A read that opens the window by two segments is acknowledged.
        (
            AckPolicy::OnRead {
                segments: 64,
                delay_max: DELAY,
            },
            segments(2),
        ),
        (AckPolicy::OnPush { delay_max: DELAY }, segments(2)),
        (requested(8), segments(8)),
    ]
}

fn acknowledged(ack: AckPolicy) -> Scene {
    let mut scene = scene();
    scene.server.ack = ack;
    // The receiver delays ACKs on request only if the sender sends requests.
    if matches!(ack, AckPolicy::Requested { .. }) {
        scene.client.ack = ack;
    }
    scene
}

#[test]
fn a_wire_with_nothing_wrong_shows_each_policy_at_both_ends() {
    for (ack, expected) in policies() {
        for seen in acknowledged(ack).run() {
            let guess = seen.traced.directions[SERVER].acks.policy();
            assert_eq!(guess.policy, expected, "{ack:?}: {}", guess.evidence);
        }
    }
}

#[test]
fn super_segments_a_slow_reader_and_the_timer_show_too() {
    let offloads = Segmentation::default();
    let mut batches = acknowledged(every(2));
    batches.client.segmentation = offloads;
    let mut on_read = acknowledged(AckPolicy::OnRead {
        segments: 1000,
        delay_max: 2 * DELAY,
    });
    (on_read.reads_every, on_read.read_bytes) = (Duration::from_millis(3), 65_536);
    let mut by_timer = acknowledged(exactly(1000));
    // Six segments in flight, then it waits. At first it probes for a lost tail before the timer
    // fires.
    by_timer.client.send_buffer = 8192;
    by_timer.bytes = 160_000;
    for (name, scene, expected) in [
        ("batches", batches, Policy::PerBatch),
        // A read that empties the buffer leaves the window as it was: mixed, "or on read".
        ("on read", on_read, Policy::Mixed),
        ("by timer", by_timer, Policy::ByTimer),
    ] {
        for seen in scene.run() {
            let guess = seen.traced.directions[SERVER].acks.policy();
            assert_eq!(guess.policy, expected, "{name}: {}", guess.evidence);
            let or_on_read = guess.or.contains(&Policy::OnRead);
            assert!(or_on_read || name != "on read", "{}", guess.evidence);
        }
    }
}

/// True if this guess may be made on a bad wire, where the policy itself acts differently at times.
/// The receiver counted the ACKs that its timer sent.
fn is_plausible(ack: AckPolicy, expected: Policy, guess: Policy, server: &Seen) -> bool {
    let acks = server.traced.directions[SERVER]
        .acks
        .wire_segments_per_pure_ack
        .n();
    let by_timer = server.counted.delayed_acks_sent;
    match (ack, guess) {
        (_, guess) if guess == expected => true,
        // ACK avoidance falls back while the sender's window is below its limit, and for each
        // duplicate.
        (AckPolicy::Avoidance { limit_max, .. }, Policy::GrowingAvoidance { most: segments })
        | (AckPolicy::Avoidance { limit_max, .. }, Policy::EverySegments { segments }) => {
            segments <= u64::from(limit_max)
        }
        (AckPolicy::Avoidance { .. }, Policy::Mixed) => true,
        // Quick ACKs after each duplicate.
        (AckPolicy::LinuxLike { .. }, Policy::EverySegments { segments: 1 }) => true,
        // A window smaller than the number of segments waited for: the timer acknowledges.
        (_, Policy::Mixed | Policy::ByTimer) => by_timer * 5 >= acks,
        _ => false,
    }
}

#[test]
fn every_count_is_the_stacks_own_under_every_policy_and_impairment() {
    for (name, impairment) in impairments(scene().to_server) {
        for (ack, expected) in policies() {
            let mut scene = acknowledged(ack);
            (scene.to_server, scene.to_client) = (impairment, impairment);
            let [client, server] = scene.run();
            let what = format!("{name}, {ack:?}");
            what_it_sent_is_exact(&what, &client, CLIENT);
            what_it_sent_is_exact(&what, &server, SERVER);
            what_arrived(&what, &client, CLIENT, server.lane.corrupted);
            what_arrived(&what, &server, SERVER, client.lane.corrupted);
            repairs(&what, &client, &server);
            for seen in [&client, &server] {
                let guess = seen.traced.directions[SERVER].acks.policy();
                // Jitter bunches arrivals, and a bunch is acknowledged once.
                let bunched = name == "jitter" && guess.policy == Policy::Mixed;
                assert!(
                    bunched || is_plausible(ack, expected, guess.policy, &server),
                    "{what}: {guess:?}"
                );
            }
        }
    }
}

/// Checks that a capture at an end holds everything that this end sent.
fn what_it_sent_is_exact(what: &str, seen: &Seen, end: usize) {
    let (counted, sent) = (&seen.counted, &seen.traced.directions[end].sent);
    for (name, counted, traced) in [
        ("segments", counted.segments_sent, sent.wire_segments),
        (
            "packets",
            counted.super_segments_sent,
            sent.captured_packets,
        ),
        ("bytes", counted.payload_bytes_sent, sent.payload_bytes),
        (
            "sent again",
            counted.segments_retransmitted,
            sent.retransmitted_wire_segments,
        ),
        (
            "bytes again",
            counted.payload_bytes_retransmitted,
            sent.retransmitted_bytes,
        ),
        (
            "pure ACKs",
            counted.pure_acks_sent,
            sent.pure_acks + sent.keepalives,
        ),
        ("copies", 0, sent.captured_twice),
        ("missing", 0, sent.bytes_missing_from_capture),
    ] {
        assert_eq!(traced, counted, "{name} of {end} ({what})");
    }
}

/// Checks that a capture at an end holds everything that arrived, damaged packets too, which the
/// stack drops uncounted.
fn what_arrived(what: &str, seen: &Seen, end: usize, damaged: u64) {
    let (counted, sent) = (&seen.counted, &seen.traced.directions[1 - end].sent);
    let arrived = seen.report.packets - counted.super_segments_sent;
    assert_eq!(arrived, counted.super_segments_received + damaged, "{what}");
    let taken = &seen.traced.directions[end].acks;
    assert_eq!(taken.bytes_acked, counted.payload_bytes_received, "{what}");
    if damaged == 0 {
        // A datagram that the network duplicated has the same id as the other, like one captured
        // twice.
        let twice = sent.captured_twice;
        assert_eq!(
            sent.wire_segments + twice,
            counted.segments_received,
            "{what}"
        );
        let acks_twice = counted.pure_acks_received.checked_sub(sent.pure_acks);
        assert!(acks_twice.is_some_and(|acks| acks <= twice), "{what}");
        assert_eq!(sent.bytes_missing_from_capture, 0, "{what}");
        assert_eq!(seen.report.connections.len(), 1, "{what}");
    }
}

/// Checks counts of lost, late, duplicated and needlessly retransmitted packets.
fn repairs(what: &str, client: &Seen, server: &Seen) {
    let at_client = &client.traced.directions[CLIENT].sent;
    let at_server = &server.traced.directions[CLIENT].sent;
    let (resent, lane) = (client.counted.segments_retransmitted, client.lane);
    assert_eq!(at_client.reordered_packets, 0, "{what}");
    // The receiver sees all retransmissions except lost ones.
    let filled = at_server.retransmitted_packets + at_server.reordered_packets;
    let lost = lane.lost + lane.overflowed + lane.corrupted;
    assert!(filled + lost >= resent, "{what}: {filled} {lost} {resent}");
    assert!(
        filled <= resent + lane.reordered,
        "{what}: {filled} {resent}"
    );
    // A packet that is held back but that none overtakes is not out of order. If data after a gap
    // have the same timestamp tick as the packet that fills it, that packet may look late.
    let late = at_server.reordered_packets;
    assert!(
        late <= lane.reordered + 2 && late * 20 >= lane.reordered * 19,
        "{what}: {late}"
    );
    assert_eq!(at_server.captured_twice, lane.duplicated, "{what}");
    // Each duplicate is reported by a DSACK, unless the DSACK is lost.
    let duplicates = u64::from(server.counted.duplicates_received);
    let (told, spurious) = (at_client.dsacks, at_client.spurious_by_dsack);
    if server.lane.lost + server.lane.corrupted + server.lane.overflowed == 0 {
        assert_eq!(told, duplicates, "{what}");
    }
    assert!(told <= duplicates && spurious <= resent, "{what}");
    assert_eq!(
        told - spurious,
        told.min(lane.duplicated),
        "{what}: {told} {spurious} {lane:?} {resent}"
    );
}
