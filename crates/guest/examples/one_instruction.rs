//! Tests that one additional instruction for each segment that our TCP receives shows. Run as
//! `one_instruction KERNEL [BOOTS [SEGMENTS]]`.
//!
//! Boots guests that move segments in memory between two ends of our TCP. The receiver has an ACK
//! rule of this file, without and with one additional instruction. Prints what a segment costs in
//! each case.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tcpcost_guest::{Guest, Image, Kernel, Limit, Line, Machine, Setup, Task, init};
use tcpcost_tcp::wire::Checksum;
use tcpcost_tcp::{
    AckDecision, AckPolicy, AckRule, Arrival, Config, CongestionControl, Endpoint, OwnAckPolicy,
    OwnAcks, Pool,
};

type Failure = Box<dyn std::error::Error>;

/// Acknowledges every second segment; with `MORE`, executes one more instruction for each segment.
#[derive(Debug)]
struct EverySecond<const MORE: bool>;

impl<const MORE: bool> OwnAcks for EverySecond<MORE> {
    fn rule(&self) -> Box<dyn AckRule> {
        Box::new(EverySecond::<MORE>)
    }
}

impl<const MORE: bool> AckRule for EverySecond<MORE> {
    fn on_segment(&mut self, arrival: &Arrival) -> AckDecision {
        if MORE {
            // One instruction: `pause`.
            std::hint::spin_loop();
        }
        match arrival.unacked_bytes >= 2 * arrival.full_segment_bytes {
            true => AckDecision::Now,
            false => AckDecision::By(arrival.now + Duration::from_millis(40)),
        }
    }
}

static PLAIN: EverySecond<false> = EverySecond;
static MORE: EverySecond<true> = EverySecond;

const MSS: usize = 1448;

fn main() -> Result<(), Failure> {
    if init::is_asked() {
        init::main();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["inside", rule, segments] => inside(rule == "more", segments.parse()?),
        [kernel] => outside(kernel.into(), 3, 20_000),
        [kernel, boots] => outside(kernel.into(), boots.parse()?, 20_000),
        [kernel, boots, segments] => outside(kernel.into(), boots.parse()?, segments.parse()?),
        _ => Err("usage: one_instruction KERNEL [BOOTS [SEGMENTS]]".into()),
    }
}

/// Boots the guests and prints their results.
fn outside(kernel: PathBuf, boots: u32, segments: usize) -> Result<(), Failure> {
    let kernel = Kernel::find(Some(&kernel))?;
    let image = Image::make(&std::env::current_exe()?, &kernel, &[], &Setup::default())?;
    let guest = Guest::new(kernel, image)?;
    for rule in ["plain", "more"] {
        let mut each = Vec::new();
        for boot in 0..boots {
            let task = Task {
                arguments: vec!["inside".into(), rule.into(), segments.to_string()],
                ..Task::default()
            };
            // Each boot has another seed.
            let seed = 2 * boot + u32::from(rule == "more");
            let boot = guest.boot(&Machine::new(seed), &task, Limit::default(), &|| false)?;
            if let Some(failure) = boot.failure() {
                return Err(failure.into());
            }
            let told = boot.lines.iter().find_map(|line| match line {
                Line::Printed(text) => text.strip_prefix("instructions ")?.parse::<u64>().ok(),
                Line::ResultsFile(..) => None,
            });
            let told = told.ok_or_else(|| format!("the guest told nothing: {:?}", boot.lines))?;
            each.push(told as f64 / segments as f64);
        }
        let each: Vec<String> = each.iter().map(|count| format!("{count:.3}")).collect();
        println!("{rule}: {} instructions a segment", each.join(", "));
    }
    Ok(())
}

/// Runs in a guest: the transfer, after an equally long warm-up.
fn inside(more: bool, segments: usize) -> Result<(), Failure> {
    let config = Config {
        congestion: CongestionControl::Fixed(512 << 10),
        receive_buffer: 1 << 20,
        receive_buffer_max: 0,
        ..Config::default()
    };
    let own = OwnAckPolicy(if more { &MORE } else { &PLAIN });
    let receiver = Config {
        ack: AckPolicy::Own(own),
        ..config.clone()
    };
    let mut now = Instant::now();
    let endpoint = |config: &Config, seed| {
        let seed = [seed; 16];
        Endpoint::new(
            config.clone(),
            Pool::default(),
            seed,
            Checksum::Partial,
            now,
        )
    };
    let mut ends = [endpoint(&config, 1), endpoint(&receiver, 2)];
    // Super-segments are cut before they leave: each segment is received separately.
    ends.iter_mut()
        .for_each(|end| end.set_offloads(true, false));
    ends[1].listen(80, 5, receiver.clone())?;
    let id = ends[0].connect("10.0.0.1:5000".parse()?, "10.0.0.2:80".parse()?, now)?;
    for from in [0, 1, 0, 1] {
        pass(&mut ends, from, now);
    }
    let accepted = ends[1].accept(80).ok_or("nothing was accepted")?;
    let source = vec![7u8; 44 * MSS];
    let mut buffer = vec![0; 64 << 10];
    let mut read = 0;
    let mut began = now;
    for part in 1..=2 {
        began = Instant::now();
        while read < part * segments * MSS {
            now += Duration::from_micros(50);
            ends[0].apply(id, |connection| {
                if connection.writable() >= source.len() {
                    let _ = connection.write(&source);
                }
            });
            pass(&mut ends, 0, now);
            ends[1].apply(accepted, |connection| {
                while let Ok(bytes) = connection.read(&mut buffer, now) {
                    read += bytes;
                }
            });
            pass(&mut ends, 1, now);
        }
    }
    // A nanosecond is an instruction.
    println!("instructions {}", began.elapsed().as_nanos());
    Ok(())
}

/// Passes the packets of end `from` to the other end.
fn pass(ends: &mut [Endpoint; 2], from: usize, now: Instant) {
    let [a, b] = ends;
    let (from, to) = if from == 0 { (a, b) } else { (b, a) };
    // One at a time, because the rule is asked once for all that arrive together.
    while let Some(packet) = from.poll_packet(now) {
        to.on_packets(std::iter::once(packet), now);
    }
    to.on_timeout(now);
}
