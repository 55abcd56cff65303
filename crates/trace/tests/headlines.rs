//! Tests that a capture's headline is what its connection really waited for. Two ends of our own
//! TCP transfer data in virtual time, captured at the client, at the server and in the middle of
//! the path.

#[path = "headlines/applications.rs"]
mod applications;
#[path = "headlines/cut.rs"]
mod cut;
#[path = "../../own-tcp/tcp/tests/common/mod.rs"]
mod ends;
#[path = "common/forms.rs"]
mod forms;
#[path = "headlines/hangs.rs"]
mod hangs;
#[path = "headlines/paths.rs"]
mod paths;
#[path = "headlines/programs.rs"]
mod programs;

use std::time::Duration;

use programs::{Op, Play, Point};
use tcpcost_link::Impairment;
use tcpcost_tcp::{Nagle, Pacing};

const MB: usize = 1 << 20;

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Path with this delay each way, and this rate.
fn path(delay_us: u64, mbit_per_s: u64) -> Impairment {
    Impairment {
        delay: Duration::from_micros(delay_us),
        rate_bits_per_s: Some(mbit_per_s * 1_000_000),
        ..Impairment::default()
    }
}

/// Programs of `times` requests of 200 bytes, each answered by `answer` after the server did
/// `before`.
fn exchanges(times: usize, before: &[Op], answer: Op, think: Option<Duration>) -> [Vec<Op>; 2] {
    let mut programs = [Vec::new(), Vec::new()];
    for _ in 0..times {
        programs[0].extend([Op::Send(200), Op::Receive(answer.bytes())]);
        programs[0].extend(think.map(Op::Wait));
        programs[1].push(Op::Receive(200));
        programs[1].extend(before);
        programs[1].push(answer);
    }
    programs
}

/// Findings that may come first: at the client, in the middle, and at the server.
struct Expected([&'static [&'static str]; 3]);

const WINDOW: &[&str] = &["congestion_window", "sender_or_path", "round_trips"];
const CLEAN: &[&str] = &[
    "congestion_window",
    "sender_or_path",
    "round_trips",
    "queueing",
];

fn everywhere(kinds: &'static [&'static str]) -> Expected {
    Expected([kinds; 3])
}

/// Name, play, and findings that may come first.
type Scene = (&'static str, Play, Expected);

fn upload(bytes: usize) -> [Vec<Op>; 2] {
    [vec![Op::Send(bytes)], vec![Op::Receive(bytes)]]
}

fn download(bytes: usize) -> [Vec<Op>; 2] {
    [
        vec![Op::Send(200), Op::Receive(bytes)],
        vec![Op::Receive(200), Op::Send(bytes)],
    ]
}

fn plays() -> Vec<Scene> {
    let all = [
        clean(),
        slow_applications(),
        receivers(),
        losses(),
        senders(),
        paths::scenes(),
        applications::scenes(),
        hangs::scenes(),
    ];
    all.into_iter().flatten().collect()
}

fn clean() -> Vec<Scene> {
    let mut scenes = Vec::new();
    let mut add = |name, play: Play, expected| scenes.push((name, play, expected));
    add(
        "clean upload",
        Play::new(path(500, 1000), upload(8 * MB)).send_buffer(160_000),
        everywhere(CLEAN),
    );
    add(
        "clean download",
        Play::new(path(10_000, 200), download(8 * MB)).send_buffer(400_000),
        everywhere(CLEAN),
    );
    let quick = exchanges(50, &[], Op::Send(2000), None);
    add(
        "clean requests",
        Play::new(path(5000, 100), quick),
        everywhere(&["round_trips"]),
    );
    let far = exchanges(30, &[], Op::Send(1000), None);
    add(
        "a far server",
        Play::new(path(60_000, 100), far),
        everywhere(&["round_trips"]),
    );
    scenes
}

fn slow_applications() -> Vec<Scene> {
    let slowly = |bytes, chunk, every| Op::SendSlowly {
        bytes,
        chunk,
        every: millis(every),
    };
    let mut scenes = Vec::new();
    let mut add = |name, play: Play, expected| scenes.push((name, play, expected));
    let server: &[&str] = &["server_application"];
    let slow = exchanges(10, &[Op::Wait(millis(400))], Op::Send(20_000), None);
    add(
        "a slow backend",
        Play::new(path(5000, 100), slow),
        everywhere(server),
    );
    let trickle = exchanges(3, &[], slowly(15_000, 1000, 250), None);
    add(
        "a backend that trickles",
        Play::new(path(5000, 100), trickle),
        everywhere(server),
    );
    let idle = exchanges(
        10,
        &[Op::Wait(millis(30))],
        Op::Send(3000),
        Some(millis(20_000)),
    );
    add(
        "idle between slow requests",
        Play::new(path(1000, 100), idle),
        everywhere(server),
    );

    let client: &[&str] = &["client_application"];
    let produces = [vec![slowly(200_000, 2000, 100)], vec![Op::Receive(200_000)]];
    add(
        "a slow producer",
        Play::new(path(5000, 100), produces),
        everywhere(client),
    );
    scenes
}

fn receivers() -> Vec<Scene> {
    let reads = |bytes, chunk, every| Op::ReceiveSlowly {
        bytes,
        chunk,
        every: millis(every),
    };
    let mut scenes = Vec::new();
    let mut add = |name, play: Play, expected| scenes.push((name, play, expected));
    let receiver: &[&str] = &["receiver_window"];
    let slow_server = [vec![Op::Send(2 * MB)], vec![reads(2 * MB, 8192, 20)]];
    add(
        "a slow reader, upload",
        Play::new(path(5000, 100), slow_server).fixed_buffers(65_536),
        everywhere(receiver),
    );
    let slow_client = [
        vec![Op::Send(200), reads(2 * MB, 8192, 20)],
        vec![Op::Receive(200), Op::Send(2 * MB)],
    ];
    add(
        "a slow reader, download",
        Play::new(path(5000, 100), slow_client).fixed_buffers(65_536),
        everywhere(receiver),
    );
    add(
        "a small window",
        Play::new(path(20_000, 100), download(MB)).fixed_buffers(16_384),
        everywhere(receiver),
    );
    let busy = [vec![Op::Send(4 * MB)], vec![reads(4 * MB, 256 << 10, 300)]];
    add(
        "a receiver whose CPU is busy",
        Play::new(path(2000, 200), busy).fixed_buffers(131_072),
        everywhere(receiver),
    );
    scenes
}

fn losses() -> Vec<Scene> {
    let mut scenes = Vec::new();
    let mut add = |name, play: Play, expected| scenes.push((name, play, expected));
    let loss: &[&str] = &["loss"];
    let lossy = |loss| Impairment {
        loss,
        ..path(10_000, 100)
    };
    add(
        "2 % lost",
        Play::new(lossy(0.02), upload(2 * MB)),
        everywhere(loss),
    );
    add(
        "7 % lost",
        Play::new(lossy(0.07), download(MB)),
        everywhere(loss),
    );
    let bursts = Impairment {
        burst: 0.005,
        burst_goes_on: 0.7,
        ..path(10_000, 100)
    };
    add(
        "bursts lost",
        Play::new(bursts, upload(2 * MB)),
        everywhere(loss),
    );
    let requests = exchanges(60, &[], Op::Send(3000), None);
    add(
        "requests on a lossy path",
        Play::new(
            Impairment {
                loss: 0.05,
                ..path(2000, 100)
            },
            requests,
        ),
        everywhere(loss),
    );
    scenes
}

fn senders() -> Vec<Scene> {
    let mut scenes = Vec::new();
    let mut add = |name, play: Play, expected| scenes.push((name, play, expected));
    let mut nagle = [Vec::new(), Vec::new()];
    for _ in 0..20 {
        nagle[0].extend([
            Op::Send(100),
            Op::Wait(Duration::from_micros(50)),
            Op::Send(100),
            Op::Receive(100),
        ]);
        nagle[1].extend([Op::Receive(200), Op::Send(100)]);
    }
    add(
        "Nagle and a delayed ACK",
        Play::new(path(1000, 100), nagle).nagle(Nagle::Classic),
        everywhere(&["delayed_ack_stalls"]),
    );
    let queue = Impairment {
        queue_bytes: Some(2 * MB),
        ..path(10_000, 5)
    };
    add(
        "a long queue",
        Play::new(queue, download(3 * MB)),
        everywhere(&["queueing"]),
    );
    // The client has sent all while much of it waits in the queue, and the server confirms at once.
    let queue = Impairment {
        queue_bytes: Some(2 * MB),
        ..path(10_000, 5)
    };
    let stored = [
        vec![Op::Send(2 * MB), Op::Receive(10)],
        vec![Op::Receive(2 * MB), Op::Send(10)],
    ];
    add(
        "a long queue, uploaded",
        Play::new(queue, stored).send_buffer(2 << 20),
        everywhere(&["queueing"]),
    );
    let buffer = Play::new(path(20_000, 200), upload(2 * MB)).send_buffer(16_384);
    add(
        "a small send buffer",
        buffer,
        Expected([
            &["congestion_window"],
            &["sender_or_path"],
            &["sender_or_path"],
        ]),
    );
    let paced =
        Play::new(path(20_000, 1000), upload(2 * MB)).pacing(Pacing::BytesPerSecond(1_000_000));
    add(
        "paced",
        paced,
        Expected([
            &["paced"],
            &["sender_or_path", "paced"],
            &["sender_or_path"],
        ]),
    );
    let short = Play::new(
        path(40_000, 200),
        exchanges(6, &[], Op::Send(120_000), None),
    );
    add("short answers on a long path", short, everywhere(WINDOW));
    scenes
}

#[test]
fn the_headline_is_what_was_waited_for() {
    let (mut asked, mut clean, mut wrong, mut misplaced) = (0, true, vec![], vec![]);
    for (name, play, Expected(expected)) in plays() {
        for (seen, expected) in play.run().iter().zip(expected) {
            let rtt = |of: &tcpcost_trace::EndReport| of.rtt_min_ns;
            let kinds: Vec<String> = seen
                .report
                .findings
                .iter()
                .map(|found| format!("{} {:.2}", found.kind, found.share_ratio))
                .collect();
            let first = seen
                .report
                .findings
                .first()
                .map_or("none", |found| found.kind);
            println!("{name:30} {:?}: {kinds:?}", seen.point);
            for connection in &seen.report.connections {
                assert_eq!(
                    Some(connection.waits.total_ns()),
                    connection.duration_ns,
                    "{name}"
                );
                let at = format!("{:?}", connection.captured_at);
                let right = match seen.point {
                    Point::Client => "Client",
                    Point::Middle => "Between",
                    Point::Server => "Server",
                };
                let rtts = connection.ends.each_ref().map(rtt);
                if at != right {
                    misplaced.push(format!("{name} {at} {right} {rtts:?}"));
                }
            }
            let text = tcpcost_trace::text(&seen.report);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(100), "{text}");
            asked += 1;
            if !expected.contains(&first) {
                clean &= !name.starts_with("clean");
                wrong.push(format!("{name} {:?}: {kinds:?}", seen.point));
            }
        }
    }
    let right = format!("{} of {asked}", asked - wrong.len());
    println!("{right} right");
    let document = include_str!("../../../docs/captures.md");
    assert!(
        document.contains(&format!("{right} headlines are right")),
        "docs/captures.md says another number than {right}"
    );
    assert!(misplaced.is_empty(), "{misplaced:#?}");
    assert!(asked >= 130, "{asked}");
    assert!(clean, "a false one in a clean case: {wrong:#?}");
    assert!(
        wrong.len() * 20 <= asked,
        "{} of {asked} wrong: {wrong:#?}",
        wrong.len()
    );
}

#[test]
fn two_captures_of_one_transfer_show_what_was_lost_between_them() {
    use tcpcost_trace::{Pair, Passed};
    let lossy = Impairment {
        loss: 0.03,
        ..path(10_000, 100)
    };
    let play = Play::new(lossy, [vec![Op::Send(MB)], vec![Op::Receive(MB)]]);
    let [client, _, server] = play.run_files().try_into().expect("three captures");
    let passed = |file: &[u8]| {
        let mut passed = Passed::default();
        tcpcost_trace::read(file, &mut passed).1.unwrap();
        passed
    };
    let (a, b) = (passed(&client), passed(&server));
    let names = Vec::new();
    let files = || ["a".to_string(), "b".to_string()];
    let pair = Pair::of(files(), &a, &b, &names).expect("it is in both");
    let [up, down] = &pair.connections[0].directions;
    assert_eq!((up.first, down.first), (0, 1));
    assert_eq!(up.bytes_first - up.bytes_second, up.bytes_lost);
    assert!(up.bytes_lost > 0 && !up.frames_lost.is_empty());
    // Half of the 20 ms is on either way, and both clocks are the same.
    let apart_ms = pair.connections[0].clock_difference_ns.unwrap() / 1_000_000;
    assert!(apart_ms.abs() <= 1, "{apart_ms}");
    assert!(
        pair.connections[0].changed.is_empty(),
        "{:?}",
        pair.connections[0].changed
    );
    let same = Pair::of(files(), &a, &a, &names).unwrap();
    assert_eq!(same.connections[0].directions[0].bytes_lost, 0);
    assert!(pair.text().contains("lost between"));
}

#[test]
fn before_and_after_differ_by_their_causes() {
    use tcpcost_trace::Causes;
    let quick = exchanges(20, &[], Op::Send(20_000), None);
    let slow = exchanges(20, &[Op::Wait(millis(200))], Op::Send(20_000), None);
    let report = |programs| Play::new(path(5000, 100), programs).run().remove(0).report;
    let causes = Causes::of(&report(quick), &report(slow));
    assert_eq!(causes.time[0].cause, "server_application_ns_per_mib");
    assert!(causes.text().contains("server application"));
}

fn scene(name: &str) -> Play {
    let of_name = plays().into_iter().find(|(of, ..)| *of == name);
    of_name.expect("there is one of that name").1
}

/// Checks that the harmless disturbances happened; otherwise the clean headlines over such paths
/// would prove nothing.
#[test]
fn what_does_no_harm_did_happen() {
    let sent = |name| {
        let seen = scene(name).run();
        [0, 2].map(|at: usize| {
            let ends = &seen[at].report.connections[0].ends;
            ends.each_ref().map(|end| end.sent.clone())
        })
    };
    let [_, [data, _]] = sent("clean, reordered");
    assert!(data.reordered_packets > 0 && data.retransmitted_packets == 0);
    let [_, [data, _]] = sent("clean, packets doubled");
    assert!(data.captured_twice > 0 && data.retransmitted_packets == 0);
    let [[_, arrived], [data, left]] = sent("clean, ACKs lost");
    assert!(arrived.pure_acks < left.pure_acks && data.retransmitted_packets == 0);
}

#[test]
fn a_client_that_gives_up_has_waited_for_the_server() {
    for seen in scene("a client that gives up").run() {
        let kinds = seen.report.findings.iter().map(|found| found.kind);
        let kinds: Vec<_> = kinds.collect();
        assert_eq!(
            kinds[..2],
            ["unanswered_requests", "resets"],
            "{:?}",
            seen.point
        );
    }
}

/// Captures of both ends as one, packet by packet in the order of time.
fn merged(ends: &[Vec<tcpcost_trace::Segment>; 2]) -> Vec<tcpcost_trace::Segment> {
    let of_interface = |(interface, segments): (usize, &Vec<tcpcost_trace::Segment>)| {
        let segments = segments.iter().map(move |segment| tcpcost_trace::Segment {
            interface: interface as u32,
            ..*segment
        });
        segments.collect::<Vec<_>>()
    };
    let mut all: Vec<_> = ends.iter().enumerate().flat_map(of_interface).collect();
    all.sort_by_key(|segment| segment.at_ns);
    for (frame, segment) in (1..).zip(&mut all) {
        segment.frame = frame;
    }
    all
}

/// Checks that each finding names a frame of the capture.
fn all_name_frames(report: &tcpcost_trace::Report, frames: u64, name: &str) {
    for found in report.findings.iter().chain(&report.costs) {
        let Some(spot) = found.frames else {
            panic!("{name}: {} names no frame", found.kind);
        };
        let last = u64::from(spot.first_frame.max(spot.worst_frame));
        assert!(last <= frames, "{name}: {} names frame {last}", found.kind);
    }
}

#[test]
fn a_capture_in_another_form_tells_the_same_or_that_it_cannot_be_told() {
    use forms::{FORMS, Verdict};
    let mut counted = std::collections::BTreeMap::<String, [usize; 3]>::new();
    let mut wrong = Vec::new();
    for (name, play, Expected(expected)) in plays() {
        let points = ["client", "middle", "server"];
        let files = play.run_files();
        // Captures of both ends in one file, as mergecap joins them: two interfaces, one clock.
        let ends = [&files[0], &files[2]].map(|file| forms::segments(file));
        let merged = forms::report(&merged(&ends)).findings;
        let first = merged.first().map_or("none", |found| found.kind);
        let may_be = [expected[0], expected[2], &forms::NOT_TOLD].concat();
        let alone = forms::report(&ends[0]).findings;
        let is_alone = alone.first().is_some_and(|found| found.kind == first);
        let verdict = usize::from(!may_be.contains(&first) && !is_alone) * 2;
        counted.entry("Merged".to_string()).or_default()[verdict] += 1;
        if verdict > 0 {
            wrong.push(format!("merged, {name}: {first} for {expected:?}"));
        }
        for ((file, expected), point) in files.iter().zip(expected).zip(points) {
            let whole = forms::segments(file);
            for form in FORMS {
                let report = forms::report(&form.of(&whole));
                if form == forms::Form::Whole {
                    all_name_frames(&report, whole.len() as u64, name);
                }
                let first = report.findings.first().map_or("none", |found| found.kind);
                let verdict = forms::judge(form, &whole, first, expected);
                counted.entry(format!("{form:?}")).or_default()[verdict as usize] += 1;
                if verdict == Verdict::Wrong {
                    let kinds: Vec<String> = report
                        .findings
                        .iter()
                        .map(|found| format!("{} {:.2}", found.kind, found.share_ratio))
                        .collect();
                    wrong.push(format!(
                        "{form:?}, {name}, {point}: {kinds:?} for {expected:?}"
                    ));
                }
            }
        }
    }
    println!("right, honest, wrong: {counted:#?}");
    assert!(wrong.is_empty(), "{wrong:#?}");
    let all: usize = counted.values().flatten().sum();
    let right: usize = counted.values().map(|counts| counts[0]).sum();
    let document = include_str!("../../../docs/captures.md");
    let told = format!("Of {all} first findings {right} are right");
    assert!(document.contains(&told), "docs/captures.md: {told}");
}
