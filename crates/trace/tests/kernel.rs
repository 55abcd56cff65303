//! Tests that a capture's headline is what its connection really waited for, with the kernel's TCP
//! and existing programs. The captures are taken at the client, in the middle of the path and at
//! the server.
//!
//! The tests run in real time. If the wire was kept from its CPU, the path was another one, and the
//! run is repeated.

#[path = "kernel/ends.rs"]
mod ends;
#[path = "common/forms.rs"]
mod forms;
#[path = "kernel/wire.rs"]
mod wire;

use std::time::Duration;

use ends::{Buffers, Op, Sockets, Web, web};
use tcpcost_link::Impairment;
use tcpcost_testbed::{can_make_namespaces, has_program};
use tcpcost_trace::{Analysis, Report, Settings, read};
use wire::Carried;

const MB: usize = 1 << 20;

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Path with this delay each way, ms, and this rate.
fn path(delay_ms: u64, mbit_per_s: u64) -> Impairment {
    Impairment {
        delay: millis(delay_ms),
        rate_bits_per_s: Some(mbit_per_s * 1_000_000),
        ..Impairment::default()
    }
}

fn lossy(loss: f64) -> Impairment {
    Impairment {
        loss,
        ..path(10, 200)
    }
}

/// Programs of `times` requests of 200 bytes, each answered by the operations `answer`, which send
/// `bytes`.
fn requests(times: usize, answer: &[Op], bytes: usize) -> [Vec<Op>; 2] {
    let mut programs = [Vec::new(), Vec::new()];
    for _ in 0..times {
        programs[0].extend([Op::Send(200), Op::Receive(bytes)]);
        programs[1].push(Op::Receive(200));
        programs[1].extend(answer);
    }
    programs
}

fn window(receive: u32) -> Buffers {
    Buffers {
        receive,
        ..Buffers::default()
    }
}

/// Name, path, buffers, both programs, true if Nagle's rule applies, and the findings that may come
/// first.
type Scene = (
    &'static str,
    Impairment,
    Buffers,
    [Vec<Op>; 2],
    bool,
    &'static [&'static str],
);

const CLEAN: &[&str] = &[
    "congestion_window",
    "sender_or_path",
    "round_trips",
    "queueing",
];
const SERVER_APPLICATION: &[&str] = &["server_application"];
const RECEIVER: &[&str] = &["receiver_window"];
const LOSS: &[&str] = &["loss"];
const QUEUEING: &[&str] = &["queueing"];
const DELAYED_ACK: &[&str] = &["delayed_ack_stalls"];

fn scenes() -> [Scene; 12] {
    let plain = Buffers::default();
    let upload = |bytes| [vec![Op::Send(bytes)], vec![Op::Receive(bytes)]];
    let mut nagle = [Vec::new(), Vec::new()];
    for _ in 0..40 {
        // Two writes, as of a program that writes its header and then its body.
        nagle[0].extend([Op::Send(100), Op::Send(100), Op::Receive(100)]);
        nagle[1].extend([Op::Receive(200), Op::Send(100)]);
    }
    [
        (
            "clean upload",
            path(10, 200),
            plain,
            upload(4 * MB),
            false,
            CLEAN,
        ),
        (
            "clean requests",
            path(10, 200),
            plain,
            requests(40, &[Op::Send(2000)], 2000),
            false,
            &["round_trips"],
        ),
        (
            "clean, a far server",
            path(60, 200),
            plain,
            requests(10, &[Op::Send(1000)], 1000),
            false,
            &["round_trips"],
        ),
        (
            "a slow server",
            path(5, 200),
            plain,
            requests(6, &[Op::Wait(millis(300)), Op::Send(20_000)], 20_000),
            false,
            SERVER_APPLICATION,
        ),
        (
            "a server that trickles",
            path(5, 200),
            plain,
            requests(2, &[Op::SendSlowly(10_000, 1000, millis(100))], 10_000),
            false,
            SERVER_APPLICATION,
        ),
        (
            "a slow producer",
            path(5, 200),
            plain,
            [
                vec![Op::SendSlowly(40_000, 2000, millis(100))],
                vec![Op::Receive(40_000)],
            ],
            false,
            &["client_application"],
        ),
        (
            "a slow reader",
            path(5, 200),
            window(65_536),
            [
                vec![Op::Send(MB)],
                vec![Op::ReceiveSlowly(MB, 16_384, millis(40))],
            ],
            false,
            RECEIVER,
        ),
        (
            "a small window",
            path(20, 200),
            window(16_384),
            upload(400_000),
            false,
            RECEIVER,
        ),
        ("3 % lost", lossy(0.03), plain, upload(2 * MB), false, LOSS),
        ("8 % lost", lossy(0.08), plain, upload(MB / 2), false, LOSS),
        (
            "a long queue",
            Impairment {
                // More than is sent: no overflow, whatever the sender does on a busy machine.
                queue_bytes: Some(3 * MB),
                ..path(10, 10)
            },
            plain,
            upload(2 * MB),
            false,
            QUEUEING,
        ),
        (
            "Nagle and delayed ACKs",
            path(2, 200),
            plain,
            nagle,
            true,
            DELAYED_ACK,
        ),
    ]
}

#[test]
fn headlines_of_the_kernels_tcp_are_what_was_waited_for() {
    if !can_make_namespaces() {
        return;
    }
    let mut told = Told::default();
    for (name, path, buffers, programs, nagle, expected) in scenes() {
        let sockets = Sockets {
            buffers,
            programs: &programs,
            nagle,
        };
        told.check_wire(name, path, expected, || sockets.over_wire(path));
    }
    told.finish(36);
}

/// A sender that paces at the rate at which its reader reads is held by the reader.
#[test]
fn a_slow_reader_is_what_was_waited_for_whatever_controls_the_congestion() {
    if !can_make_namespaces() {
        return;
    }
    let read = |name| {
        std::fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{name}")).unwrap_or_default()
    };
    // A namespace may set what anybody may use, and begins with the host's own.
    let available = read("allowed_congestion_control") + &read("congestion_control");
    let reads = |bytes, chunk, every| {
        [
            vec![Op::Send(bytes)],
            vec![Op::ReceiveSlowly(bytes, chunk, millis(every))],
        ]
    };
    let mut told = Told::default();
    let mut asked = 0;
    for congestion_control in ["reno", "cubic", "bbr"] {
        if !available.contains(congestion_control) {
            println!("skipped: this kernel has no {congestion_control}");
            continue;
        }
        for (name, receive, programs) in [
            ("a slow reader", 65_536, reads(2 * MB, 16_384, 20)),
            (
                "a slow reader, large window",
                1 << 20,
                reads(4 * MB, 65_536, 40),
            ),
            ("a reader that pauses", 262_144, reads(4 * MB, 1 << 20, 500)),
        ] {
            let sockets = Sockets {
                buffers: Buffers {
                    congestion_control,
                    ..window(receive)
                },
                programs: &programs,
                nagle: false,
            };
            let name = format!("{name}, {congestion_control}");
            let path = path(10, 200);
            told.check_wire(&name, path, RECEIVER, || sockets.over_wire(path));
            asked += 3;
        }
    }
    told.finish(asked);
}

#[test]
fn headlines_over_a_veth_with_super_segments_are_what_was_waited_for() {
    if !can_make_namespaces() || !has_program("tcpdump") {
        return;
    }
    let plain = Buffers::default();
    let mut nagle = [Vec::new(), Vec::new()];
    for _ in 0..20 {
        nagle[0].extend([Op::Send(100), Op::Send(100), Op::Receive(100)]);
        nagle[1].extend([Op::Receive(200), Op::Send(100)]);
    }
    let slow = requests(5, &[Op::Wait(millis(200)), Op::Send(200_000)], 200_000);
    let produces = [
        vec![Op::SendSlowly(2 * MB, 100_000, millis(100))],
        vec![Op::Receive(2 * MB)],
    ];
    let reads = [
        vec![Op::Send(MB)],
        vec![Op::ReceiveSlowly(MB, 16_384, millis(30))],
    ];
    let none = Impairment::default();
    let scenes: [Scene; 4] = [
        (
            "a slow server",
            none,
            plain,
            slow,
            false,
            SERVER_APPLICATION,
        ),
        (
            "a slow producer",
            none,
            plain,
            produces,
            false,
            &["client_application"],
        ),
        (
            "a slow reader",
            none,
            window(65_536),
            reads,
            false,
            RECEIVER,
        ),
        (
            "Nagle and delayed ACKs",
            none,
            plain,
            nagle,
            true,
            DELAYED_ACK,
        ),
    ];
    let mut told = Told::default();
    for (name, _, buffers, programs, nagle, expected) in scenes {
        let sockets = Sockets {
            buffers,
            programs: &programs,
            nagle,
        };
        told.check(name, &["client", "server"], expected, || {
            let files = sockets.over_veth().expect("namespaces could be made");
            Some(files.into())
        });
    }
    told.finish(8);
}

#[test]
fn headlines_of_curl_and_nginx_are_what_was_waited_for() {
    if !can_make_namespaces() || !has_program("curl") || !has_program("nginx") {
        return;
    }
    let plain = Buffers::default();
    let file = |file_bytes| Web {
        file_bytes,
        ..Web::default()
    };
    let scenes: [(&str, Impairment, Buffers, Web, &[&str]); 10] = [
        ("clean download", path(10, 200), plain, file(4 * MB), CLEAN),
        (
            "clean requests",
            path(20, 200),
            plain,
            Web {
                times: 20,
                ..file(3000)
            },
            &["round_trips"],
        ),
        (
            "a slow backend",
            path(5, 200),
            plain,
            Web {
                times: 5,
                backend: Some((millis(300), 1)),
                ..Web::default()
            },
            SERVER_APPLICATION,
        ),
        (
            "a slow reader",
            path(5, 200),
            window(65_536),
            Web {
                curl: &["--limit-rate", "400k"],
                ..file(MB)
            },
            RECEIVER,
        ),
        ("a lossy wire", lossy(0.03), plain, file(MB), LOSS),
        ("a very lossy wire", lossy(0.08), plain, file(MB / 2), LOSS),
        (
            "a small window",
            path(20, 200),
            window(16_384),
            file(400_000),
            RECEIVER,
        ),
        (
            "Nagle and delayed ACKs",
            path(2, 200),
            plain,
            Web {
                times: 30,
                backend: Some((millis(0), 2)),
                nodelay: false,
                ..Web::default()
            },
            DELAYED_ACK,
        ),
        (
            "bufferbloat",
            Impairment {
                // More than is sent: no overflow, whatever the sender does on a busy machine.
                queue_bytes: Some(3 * MB),
                ..path(10, 10)
            },
            plain,
            file(2 * MB),
            QUEUEING,
        ),
        (
            "a receiver whose CPU is busy",
            path(2, 200),
            window(65_536),
            Web {
                stopped: Some(millis(120)),
                ..file(MB)
            },
            RECEIVER,
        ),
    ];
    let mut told = Told::default();
    for (name, path, buffers, of, expected) in scenes {
        told.check_wire(name, path, expected, || web(path, buffers, &of));
    }
    told.finish(30);
}

/// Runs a scene until the machine was not too busy, five times at most. `None` if it always was.
///
/// Too busy means: the wire was late by more than a round trip and 20 ms, or a program waited for
/// its CPU for a tenth of the time. In a clean scene the limit for the wire is half of the delay,
/// because the headline would otherwise report a sender without its CPU.
fn on_time(name: &str, path: Impairment, run: impl Fn() -> Carried) -> Option<Carried> {
    let most = match name.starts_with("clean") {
        true => path.delay / 2,
        false => path.delay * 2 + millis(20),
    };
    let is_on_time = |carried: &Carried| carried.late < most && carried.waited_ratio < 0.1;
    (0..5).map(|_| run()).find(is_on_time)
}

/// Result of all scenes.
#[derive(Default)]
struct Told {
    asked: usize,
    /// Headlines of scenes for which this machine was too busy.
    not_judged: usize,
    wrong: Vec<String>,
    /// Verdicts on other forms of the captures, and those that were wrong.
    forms: usize,
    wrong_forms: Vec<String>,
    false_in_clean: Vec<String>,
}

impl Told {
    fn check_wire(
        &mut self,
        name: &str,
        path: Impairment,
        expected: &[&str],
        run: impl Fn() -> Carried,
    ) {
        self.check(name, &["client", "middle", "server"], expected, || {
            let carried = on_time(name, path, &run)?;
            println!(
                "{name}: the wire was {:?} late, a program waited for its CPU {:.2} of the time",
                carried.late, carried.waited_ratio
            );
            Some(carried.files.into())
        });
    }

    /// Checks the headlines of one run, if this machine was not too busy.
    fn check(
        &mut self,
        name: &str,
        places: &[&str],
        expected: &[&str],
        run: impl Fn() -> Option<Vec<Vec<u8>>>,
    ) {
        let Some(files) = run() else {
            println!("{name}: not judged, the wire or a program had no CPU");
            self.not_judged += places.len();
            return;
        };
        let wrong = wrong_headlines(name, places, &files, expected);
        for (place, file) in places.iter().zip(&files) {
            self.check_forms(&format!("{name} at the {place}"), file, expected);
        }
        self.asked += places.len();
        if name.starts_with("clean") {
            self.false_in_clean.extend(wrong.iter().cloned());
        }
        self.wrong.extend(wrong);
    }

    /// Checks the headlines of other forms of a capture.
    fn check_forms(&mut self, what: &str, file: &[u8], expected: &[&str]) {
        let whole = forms::segments(file);
        for form in forms::FORMS {
            let found = forms::report(&form.of(&whole)).findings;
            let first = found.first().map_or("none", |found| found.kind);
            self.forms += 1;
            if forms::judge(form, &whole, first, expected) == forms::Verdict::Wrong {
                let short: Vec<_> = found.iter().map(|found| found.in_short()).collect();
                self.wrong_forms
                    .push(format!("{form:?}, {what}: {short:?}"));
            }
        }
    }

    fn finish(self, asked: usize) {
        println!(
            "{} of {} forms wrong: {:#?}",
            self.wrong_forms.len(),
            self.forms,
            self.wrong_forms
        );
        assert!(
            self.wrong_forms.len() * 100 <= self.forms,
            "{:#?}",
            self.wrong_forms
        );
        println!("{} of {} right", self.asked - self.wrong.len(), self.asked);
        assert_eq!(self.asked + self.not_judged, asked);
        assert!(self.false_in_clean.is_empty(), "{:#?}", self.false_in_clean);
        assert!(self.wrong.len() * 20 <= self.asked, "{:#?}", self.wrong);
    }
}

/// Places at which a finding that is not expected comes first, with the findings there.
fn wrong_headlines(
    name: &str,
    places: &[&str],
    files: &[Vec<u8>],
    expected: &[&str],
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (place, file) in places.iter().zip(files) {
        if let Some(folder) = std::env::var_os("TCPCOST_KEEP_CAPTURES") {
            let file_name = format!("{name} {place}.pcapng").replace(' ', "_");
            std::fs::write(std::path::Path::new(&folder).join(file_name), file).unwrap();
        }
        let report = report(file);
        let kinds: Vec<String> = report
            .findings
            .iter()
            .map(|found| format!("{} {:.2}", found.kind, found.share_ratio))
            .collect();
        println!("{name:30} {place}: {kinds:?}");
        let first = report.findings.first().map_or("none", |found| found.kind);
        if !expected.contains(&first) {
            wrong.push(format!("{name} at the {place}: {kinds:?}"));
        }
    }
    wrong
}

fn report(file: &[u8]) -> Report {
    let mut analysis = Analysis::new(Settings::default());
    let (reading, outcome) = read(file, &mut analysis);
    outcome.unwrap();
    analysis.into_report("kernel", &reading, Ok(())).0
}
