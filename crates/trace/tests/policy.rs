//! Tests the guess of ACK policies on captures of our own TCP under every ACK policy and every kind
//! of reader. The guess is compared with what triggered the ACKs.
//!
//! Most acts of a reader leave no trace, so a guess may name several policies. It must never say
//! "on read" if no read triggered the ACKs, nor rule out reads that did.

#[path = "../../own-tcp/tcp/tests/common/mod.rs"]
mod ends;
#[path = "truth/transfer.rs"]
mod transfer;

use std::collections::BTreeMap;
use std::time::Duration;

use tcpcost_link::Impairment;
use tcpcost_tcp::{AckPolicy, Segmentation};
use tcpcost_trace::{Policy, PolicyGuess};
use transfer::{Scene, Seen, impairments, scene};

const DELAY: Duration = Duration::from_millis(40);
const SERVER: usize = 1;

fn every(segments: u32) -> AckPolicy {
    AckPolicy::Every {
        segments,
        delay_max: DELAY,
    }
}

fn policies() -> Vec<(String, AckPolicy)> {
    let delay_max = DELAY;
    let avoidance = |limit_max| AckPolicy::Avoidance {
        limit_initial: 1,
        limit_max,
        delay_max,
    };
    let on_read = |segments| AckPolicy::OnRead {
        segments,
        delay_max: 2 * DELAY,
    };
    let mut all = vec![
        ("delayed".to_string(), AckPolicy::Delayed { delay_max }),
        ("linux-like".to_string(), AckPolicy::LinuxLike { delay_max }),
        ("on-push".to_string(), AckPolicy::OnPush { delay_max }),
        ("avoidance 8".to_string(), avoidance(8)),
        ("avoidance 22".to_string(), avoidance(22)),
        ("on-read 64".to_string(), on_read(64)),
        ("on-read 1000".to_string(), on_read(1000)),
    ];
    let segments = 8;
    all.push((
        "exactly 8".to_string(),
        AckPolicy::Exactly {
            segments,
            delay_max,
        },
    ));
    all.push((
        "requested 8".to_string(),
        AckPolicy::Requested {
            segments,
            delay_max,
        },
    ));
    all.extend([1, 2, 3, 8, 32].map(|segments| (format!("every {segments}"), every(segments))));
    all
}

/// Reader: its interval, the bytes of a read at most, and true if it reads before arrived data are
/// acknowledged.
struct Reader {
    name: &'static str,
    every: Duration,
    bytes: usize,
    first: bool,
}

/// Readers of data that come at this rate: readers of all available data, and readers of a fixed
/// size at four times the rate, at the rate, and at half of it.
fn readers(bits_per_s: u64) -> Vec<Reader> {
    let reader = |name, every, bytes| Reader {
        name,
        every,
        bytes,
        first: false,
    };
    let paced = |name, bytes: usize, pace: f64| {
        let seconds = bytes as f64 * 8.0 / bits_per_s as f64 / pace;
        reader(name, Duration::from_secs_f64(seconds), bytes)
    };
    let us = Duration::from_micros;
    vec![
        Reader {
            first: true,
            ..reader("all, polled", Duration::ZERO, usize::MAX)
        },
        reader("all, woken", Duration::ZERO, usize::MAX),
        reader("all, 0.3 ms", us(300), usize::MAX),
        reader("all, 3 ms", us(3000), usize::MAX),
        reader("all, 20 ms", us(20_000), usize::MAX),
        paced("4 KiB, fast", 4096, 4.0),
        paced("4 KiB, as fast", 4096, 1.0),
        paced("4 KiB, slow", 4096, 0.5),
        paced("64 KiB, fast", 65_536, 4.0),
        paced("64 KiB, as fast", 65_536, 1.0),
        paced("64 KiB, slow", 65_536, 0.5),
    ]
}

fn run(ack: AckPolicy, path: Impairment, reader: &Reader, offload: bool, bytes: u64) -> [Seen; 2] {
    let mut scene: Scene = scene();
    scene.bytes = bytes;
    scene.server.ack = ack;
    // The receiver delays ACKs on request only if the sender sends requests.
    if matches!(ack, AckPolicy::Requested { .. }) {
        scene.client.ack = ack;
    }
    if offload {
        scene.client.segmentation = Segmentation::default();
    }
    (scene.to_server, scene.to_client) = (path, path);
    (scene.reads_every, scene.read_bytes) = (reader.every, reader.bytes);
    scene.reads_first = reader.first;
    scene.run()
}

fn guess(seen: &Seen) -> PolicyGuess {
    seen.traced.directions[SERVER].acks.policy()
}

/// Policies that a guess names, as a column of the matrix.
fn name(guess: &PolicyGuess) -> String {
    let kind = |policy: &Policy| match policy {
        Policy::EverySegments { .. } => "every",
        Policy::GrowingAvoidance { .. } => "avoidance",
        Policy::PerBatch => "batch",
        Policy::ByTimer => "timer",
        Policy::OnRead => "READ",
        Policy::Mixed => "mixed",
        Policy::Unknown => "unknown",
    };
    let or = if guess.or.contains(&Policy::OnRead) {
        "/read"
    } else {
        ""
    };
    format!("{}{or}", kind(&guess.policy))
}

/// Counts of guesses for each policy (with a row of its own if reads triggered most of its ACKs).
type Matrix = BTreeMap<String, BTreeMap<String, u64>>;

/// Judges one transfer, seen from both ends, and adds it to the matrix.
fn judge(matrix: &mut Matrix, policy: &(String, AckPolicy), seen: &[Seen; 2], what: &str) {
    let is_on_read = matches!(policy.1, AckPolicy::OnRead { .. });
    for (end, seen) in ["sender", "receiver"].iter().zip(seen) {
        let guess = guess(seen);
        let pure_acks = seen.traced.directions[SERVER].sent.pure_acks;
        // ACKs triggered by a gap or a duplicate are never by a read.
        let mostly_by_read = seen.acks_by_read * 2 >= guess.acks.max(1);
        let all_by_read = seen.acks_by_read * 10 >= pure_acks * 9;
        let row = match (is_on_read, mostly_by_read) {
            (false, true) => format!("{} (by read)", policy.0),
            _ => policy.0.clone(),
        };
        *matrix
            .entry(row)
            .or_default()
            .entry(name(&guess))
            .or_default() += 1;
        let what = format!("{} {what}, at the {end}: {guess:?}", policy.0);
        if guess.policy == Policy::OnRead {
            assert!(is_on_read || mostly_by_read, "no read: {what}");
        }
        let rules_out_reads = !guess.or.contains(&Policy::OnRead)
            && !matches!(
                guess.policy,
                Policy::OnRead | Policy::Mixed | Policy::Unknown
            );
        assert!(!(is_on_read && all_by_read && rules_out_reads), "{what}");
        // Reads may be named in addition, but no other policy than the transfer's own.
        if let (AckPolicy::Every { segments, .. }, Policy::EverySegments { segments: guessed }) =
            (policy.1, guess.policy)
        {
            let batches = what.contains("offload") || what.contains("jitter");
            assert!(batches || guessed == u64::from(segments), "{what}");
        }
    }
}

#[test]
fn no_other_policy_is_called_on_read_and_on_read_is_not_ruled_out() {
    const RATES: [u64; 3] = [20_000_000, 200_000_000, 1_000_000_000];
    let of_reader = |place: usize| {
        let mut matrix = Matrix::new();
        for rate in RATES {
            let path = Impairment {
                rate_bits_per_s: Some(rate),
                ..scene().to_server
            };
            let reader = &readers(rate)[place];
            for (impairment, path) in impairments(path) {
                // All impairments at one rate; the other rates on a wire without impairment.
                if rate != RATES[1] && impairment != "none" {
                    continue;
                }
                for policy in policies() {
                    let what = format!("{impairment}, {rate} bit/s, reader {}", reader.name);
                    let seen = run(policy.1, path, reader, false, 1_000_000);
                    judge(&mut matrix, &policy, &seen, &what);
                    if impairment == "none" {
                        let seen = run(policy.1, path, reader, true, 1_000_000);
                        judge(&mut matrix, &policy, &seen, &format!("offload, {what}"));
                    }
                }
            }
        }
        matrix
    };
    let mut matrix = Matrix::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..readers(RATES[0]).len())
            .map(|place| scope.spawn(move || of_reader(place)))
            .collect();
        for thread in threads {
            for (row, cells) in thread.join().unwrap() {
                for (column, count) in cells {
                    *matrix
                        .entry(row.clone())
                        .or_default()
                        .entry(column)
                        .or_default() += count;
                }
            }
        }
    });
    for (row, cells) in &matrix {
        println!("{row:<24}{cells:?}");
    }
    // A guess that never decides would be no guess.
    for policy in ["on-read 64", "on-read 1000"] {
        let cells = &matrix[policy];
        let of = |column: &str| cells.get(column).copied().unwrap_or(0);
        let all: u64 = cells.values().sum();
        assert!(of("READ") * 8 >= all, "{policy}: {cells:?}");
        assert!(
            (of("mixed") + of("unknown") + of("timer")) * 8 <= all,
            "{policy}: {cells:?}"
        );
    }
}

#[test]
fn every_n_from_1_to_64_is_told() {
    let reader = &readers(200_000_000)[0];
    for segments in 1..=64 {
        for seen in run(every(segments), scene().to_server, reader, false, 2_000_000) {
            let guess = guess(&seen);
            // In slow start the window is smaller than the number of segments waited for, and the
            // timer acknowledges.
            let by_timer = seen.counted.delayed_acks_sent * 5 >= guess.acks;
            let expected = Policy::EverySegments {
                segments: u64::from(segments),
            };
            assert!(
                guess.policy == expected || (by_timer && segments > 8),
                "{segments}: {guess:?}"
            );
        }
    }
}
