//! Scenes with unusual paths, harmful or harmless.

use tcpcost_link::Impairment;

use super::programs::{Op, Play};
use super::{CLEAN, Expected, MB, Scene, everywhere, exchanges, millis, path};

pub fn scenes() -> Vec<Scene> {
    let upload = |bytes| [vec![Op::Send(bytes)], vec![Op::Receive(bytes)]];
    let mut scenes = harmless();
    let mut add = |name, play: Play, expected| scenes.push((name, play, expected));

    // Each ACK takes 0.8 ms, and two segments take 0.24 ms: the ACKs wait in a queue of their own.
    add(
        "a slow way back",
        Play::new(path(5000, 100), upload(8 * MB))
            .back(Impairment {
                rate_bits_per_s: Some(500_000),
                ..path(5000, 100)
            })
            .send_buffer(400_000),
        everywhere(&["queueing"]),
    );
    // After the cut nothing shows at the server that data were lost: the first packet that arrives
    // is the next in order.
    add(
        "a link that is cut for three seconds",
        Play::new(path(10_000, 100), upload(8 * MB))
            .send_buffer(400_000)
            .cut(millis(200), millis(3200)),
        Expected([&["loss"], &["loss"], &["loss", "sender_or_path"]]),
    );
    // The server knows nothing of a SYN that never came.
    add(
        "a SYN that is lost",
        Play::new(path(10_000, 100), exchanges(3, &[], Op::Send(1000), None))
            .cut(millis(0), millis(500)),
        Expected([
            &["syn_retransmissions"],
            &["syn_retransmissions"],
            &["round_trips"],
        ]),
    );
    let short = Impairment {
        queue_bytes: Some(6000),
        ..path(20_000, 100)
    };
    add(
        "a queue of four packets",
        Play::new(short, upload(2 * MB)),
        everywhere(&["loss"]),
    );
    let lossy = |loss, delay_us| Impairment {
        loss,
        ..path(delay_us, 100)
    };
    // Waits of 10 s in all; about 150 packets, of which four or five are lost, for a quarter of a
    // second each at most.
    let thinking = exchanges(20, &[Op::Wait(millis(500))], Op::Send(5000), None);
    add(
        "a slow server on a lossy path",
        Play::new(lossy(0.03, 10_000), thinking),
        everywhere(&["server_application"]),
    );
    // Waits of 0.8 s in all, and as much of round trips; about 30 losses, most of a flight's last
    // packets.
    let quick = exchanges(40, &[Op::Wait(millis(20))], Op::Send(8000), None);
    add(
        "a quick server on a lossy path",
        Play::new(lossy(0.08, 10_000), quick),
        everywhere(&["loss"]),
    );
    scenes
}

/// Scenes in which nothing is lost and nothing waits.
fn harmless() -> Vec<Scene> {
    let upload = |bytes| [vec![Op::Send(bytes)], vec![Op::Receive(bytes)]];
    let mut scenes = Vec::new();
    let mut add = |name, path, back| {
        let play = Play::new(path, upload(8 * MB)).back(back);
        scenes.push((name, play.send_buffer(400_000), everywhere(CLEAN)));
    };
    let usual = path(10_000, 200);
    add(
        "clean, a longer way back",
        path(1000, 200),
        path(40_000, 200),
    );
    // One or two packets of 60 µs overtake it: fewer than the three of RFC 5681.
    let reordered = Impairment {
        reorder: 0.02,
        reorder_delay: std::time::Duration::from_micros(100),
        ..usual
    };
    add("clean, reordered", reordered, reordered);
    let doubled = Impairment {
        duplicate: 0.05,
        ..usual
    };
    add("clean, packets doubled", doubled, doubled);
    let uneven = Impairment {
        jitter: millis(5),
        ..usual
    };
    add("clean, a delay that varies", uneven, uneven);
    // The next ACK covers what the lost one covered.
    let without = Impairment { loss: 0.1, ..usual };
    add("clean, ACKs lost", usual, without);
    scenes
}
