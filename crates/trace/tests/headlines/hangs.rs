//! Scenes in which something is not finished, and pauses that look like it.

use tcpcost_link::Impairment;

use super::programs::{Op, Play};
use super::{CLEAN, Expected, MB, Scene, everywhere, exchanges, millis, path};

pub fn scenes() -> Vec<Scene> {
    let all = [pauses(), hangs(), reordered()];
    all.into_iter().flatten().collect()
}

/// Pauses within an exchange, and between exchanges.
fn pauses() -> Vec<Scene> {
    let mut scenes = Vec::new();
    let mut add = |name, play: Play, expected| scenes.push((name, play, expected));
    let stops = [
        vec![Op::Send(200), Op::Receive(100_000)],
        vec![
            Op::Receive(200),
            Op::Send(60_000),
            Op::Wait(millis(6000)),
            Op::Send(40_000),
        ],
    ];
    add(
        "a server that stops for 6 s within its answer",
        Play::new(path(10_000, 100), stops),
        everywhere(&["server_application"]),
    );
    // News at long intervals: nobody waits for them.
    let mut news = [
        vec![Op::Send(200), Op::Receive(20_000)],
        vec![Op::Receive(200), Op::Send(20_000)],
    ];
    for _ in 0..10 {
        news[0].push(Op::Receive(20_000));
        news[1].extend([Op::Wait(millis(5000)), Op::Send(20_000)]);
    }
    add(
        "clean, news every five seconds",
        Play::new(path(10_000, 100), news),
        everywhere(CLEAN),
    );
    let rests = exchanges(6, &[], Op::Send(30_000), Some(millis(10_000)));
    add(
        "clean, rests between exchanges",
        Play::new(path(10_000, 100), rests),
        everywhere(&["round_trips"]),
    );
    scenes
}

/// Exchanges that are not finished.
fn hangs() -> Vec<Scene> {
    let mut scenes = Vec::new();
    let mut add = |name, play: Play, expected| scenes.push((name, play, expected));
    let unanswered = |last: Op| {
        let mut programs = exchanges(3, &[], Op::Send(2000), None);
        programs[0].extend([Op::Send(200), Op::Wait(millis(8000)), last]);
        programs[1].extend([Op::Receive(200), Op::Wait(millis(8500))]);
        programs
    };
    add(
        "a request that is never answered, given up by FIN",
        Play::new(path(10_000, 100), unanswered(Op::Close)),
        everywhere(&["unanswered_requests"]),
    );
    let mut reset = unanswered(Op::Abort);
    reset[1].push(Op::ReceiveUntilReset);
    add(
        "a request that is never answered, given up by RST",
        Play::new(path(10_000, 100), reset),
        everywhere(&["unanswered_requests"]),
    );
    // The answer's full segments vanish beyond the middle, which is at the server's side. Its last, short one arrives.
    let hole = [
        vec![
            Op::Send(200),
            Op::Wait(millis(9000)),
            Op::Close,
            Op::Wait(millis(3000)),
        ],
        vec![Op::Receive(200), Op::Send(12_000), Op::Wait(millis(12_000))],
    ];
    add(
        "a black hole of the path's MTU",
        Play::new(path(10_000, 100), hole)
            .black_hole(1400)
            .ends(millis(12_000)),
        everywhere(&["undelivered_data"]),
    );
    // A path that dies in the middle of an upload.
    add(
        "a path that dies",
        Play::new(
            path(10_000, 100),
            [vec![Op::Send(8 * MB)], vec![Op::Receive(8 * MB)]],
        )
        .send_buffer(400_000)
        .cut(millis(300), millis(100_000))
        .ends(millis(20_000)),
        // At the server nothing shows any longer.
        Expected([&["undelivered_data"], &["undelivered_data"], CLEAN]),
    );
    scenes
}

/// Packets that others overtake, so far that they are taken for lost.
fn reordered() -> Vec<Scene> {
    let reordered = Impairment {
        reorder: 0.03,
        reorder_delay: millis(8),
        ..path(10_000, 100)
    };
    let upload = [vec![Op::Send(2 * MB)], vec![Op::Receive(2 * MB)]];
    vec![(
        "reordered, taken for lost",
        Play::new(reordered, upload).send_buffer(400_000),
        everywhere(&["needless_retransmissions"]),
    )]
}
