//! Scenes in which the applications do more than send, request and answer.

use std::time::Duration;

use tcpcost_tcp::Nagle;

use super::programs::{Op, Play};
use super::{CLEAN, MB, Scene, everywhere, exchanges, millis, path};

pub fn scenes() -> Vec<Scene> {
    let all = [waits(), exchanges_in_parts(), resets()];
    all.into_iter().flatten().collect()
}

fn waits() -> Vec<Scene> {
    let mut scenes = Vec::new();
    let mut add = |name, play: Play, expected| scenes.push((name, play, expected));

    // Window closed for 2 s, then 16 round trips.
    let late = [
        vec![Op::Send(MB), Op::Receive(10)],
        vec![Op::Wait(millis(2000)), Op::Receive(MB), Op::Send(10)],
    ];
    add(
        "an upload that is read late",
        Play::new(path(5000, 100), late).fixed_buffers(65_536),
        everywhere(&["receiver_window"]),
    );
    // Wait of 1.5 s, then 0.6 s of round trips.
    let mut first = exchanges(1, &[Op::Wait(millis(1500))], Op::Send(2000), None);
    for (all, quick) in first
        .iter_mut()
        .zip(exchanges(60, &[], Op::Send(2000), None))
    {
        all.extend(quick);
    }
    add(
        "a server that is slow once",
        Play::new(path(5000, 100), first),
        everywhere(&["server_application"]),
    );
    // Waits of 3 s, and 0.5 s of round trips.
    let mut fifth = [Vec::new(), Vec::new()];
    for _ in 0..10 {
        let waits = exchanges(1, &[Op::Wait(millis(300))], Op::Send(2000), None);
        for quick in [exchanges(4, &[], Op::Send(2000), None), waits] {
            fifth
                .iter_mut()
                .zip(quick)
                .for_each(|(all, of)| all.extend(of));
        }
    }
    add(
        "a server that waits for another at every fifth request",
        Play::new(path(5000, 100), fifth),
        everywhere(&["server_application"]),
    );
    let mut body = [Vec::new(), Vec::new()];
    for _ in 0..3 {
        let slowly = Op::SendSlowly {
            bytes: 20_000,
            chunk: 1000,
            every: millis(200),
        };
        body[0].extend([slowly, Op::Receive(500)]);
        body[1].extend([Op::Receive(20_000), Op::Send(500)]);
    }
    add(
        "requests whose bodies trickle",
        Play::new(path(5000, 100), body),
        everywhere(&["client_application"]),
    );
    scenes
}

/// Requests and answers in parts, or in one direction after the other.
fn exchanges_in_parts() -> Vec<Scene> {
    let mut scenes = Vec::new();
    let mut add = |name, play: Play, expected| scenes.push((name, play, expected));
    let mut header = [Vec::new(), Vec::new()];
    for _ in 0..20 {
        header[0].extend([Op::Send(100), Op::Receive(400)]);
        header[1].extend([
            Op::Receive(100),
            Op::Send(150),
            Op::Wait(Duration::from_micros(50)),
            Op::Send(250),
        ]);
    }
    add(
        "Nagle and a delayed ACK, at the answers",
        Play::new(path(1000, 100), header).nagle(Nagle::Classic),
        everywhere(&["delayed_ack_stalls"]),
    );
    // Each answer begins with one segment, whose ACK takes 40 ms, and needs three round trips of 4
    // ms.
    let rests = exchanges(10, &[], Op::Send(5000), Some(millis(1000)));
    add(
        "an initial window of one segment",
        Play::new(path(2000, 100), rests).initial_window(1),
        everywhere(&["delayed_ack_stalls"]),
    );
    let whole = exchanges(10, &[], Op::Send(40_000), None);
    add(
        "answers within a large initial window",
        Play::new(path(40_000, 1000), whole).initial_window(40),
        everywhere(&["round_trips"]),
    );
    let mut pipelined = [Vec::new(), Vec::new()];
    for _ in 0..20 {
        pipelined[0].extend([Op::Send(2000), Op::Receive(10_000)]);
        pipelined[1].extend([Op::Receive(200), Op::Send(1000)].repeat(10));
    }
    add(
        "clean, pipelined requests",
        Play::new(path(10_000, 100), pipelined),
        everywhere(&["round_trips"]),
    );
    add(
        "clean, segments of 200 bytes",
        Play::new(path(2500, 100), [vec![Op::Send(MB)], vec![Op::Receive(MB)]])
            .mss(200)
            .send_buffer(40_000),
        everywhere(CLEAN),
    );
    let both = [Op::Send(200_000), Op::Receive(200_000)].repeat(20);
    add(
        "clean, both ways at once",
        Play::new(path(10_000, 100), [both.clone(), both]).send_buffer(200_000),
        everywhere(CLEAN),
    );
    scenes
}

fn resets() -> Vec<Scene> {
    let mut scenes = Vec::new();
    let mut add = |name, play: Play, expected| scenes.push((name, play, expected));
    let gives_up = [
        vec![Op::Send(200), Op::Wait(millis(2000)), Op::Abort],
        vec![Op::ReceiveUntilReset],
    ];
    add(
        "a client that gives up",
        Play::new(path(5000, 100), gives_up),
        everywhere(&["unanswered_requests"]),
    );
    let killed = [
        vec![Op::Send(200), Op::ReceiveUntilReset],
        vec![Op::Receive(200), Op::Send(2 * MB), Op::Abort],
    ];
    add(
        "a server that is killed in its answer",
        Play::new(path(5000, 100), killed).send_buffer(400_000),
        everywhere(&["resets"]),
    );
    scenes
}
