//! Jones's throughput anomaly, limit by limit. A rule predicts at which of the receiver's limits 2
//! to 32 a sender of 2005 stalls; it is compared with our TCP in virtual time. Also the cost of one
//! lost ACK.

mod common;
mod face;

use std::cell::Cell;
use std::num::NonZeroU16;
use std::time::Duration;

use face::{Face, Who};
use tcpcost_tcp::{AckPolicy, Config, CongestionControl, Connection, Segmentation, WindowGrowth};

/// Values of Jones's runs: `send_buffer`, `receive_buffer`, write size.
const SEND_BUFFER: u32 = 256 << 10;
const RECEIVE_BUFFER: u32 = 128 << 10;
const WRITE: usize = 32 << 10;
/// Delay of `avoidance`, which is the length of a stall.
const DELAY: Duration = Duration::from_millis(50);
/// Default of `tcp_tso_win_divisor` in 2005.
const DIVISOR: u32 = 8;
const INITIAL_WINDOW: u32 = 3;
/// MSS for MTU 1500 with timestamps.
const MSS: u32 = 1448;

fn sender_of_2005() -> Config {
    Config {
        send_buffer: SEND_BUFFER,
        segmentation: Segmentation {
            whole_only: true,
            ..Segmentation::default()
        },
        congestion: CongestionControl::NewReno,
        window_growth: WindowGrowth::PerAck,
        // Added in Linux 3.10 (2013).
        tail_loss_probe: false,
        initial_window: NonZeroU16::new(INITIAL_WINDOW as u16),
        ..Config::default()
    }
}

fn receiver(ack: AckPolicy) -> Config {
    Config {
        ack,
        receive_buffer: RECEIVE_BUFFER,
        receive_buffer_max: 0,
        ..Config::default()
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

struct Bulk {
    face: Face,
    written: Cell<usize>,
    read: Cell<usize>,
}

impl Bulk {
    fn new(client: Config, ack: AckPolicy) -> Bulk {
        let us = Duration::from_micros;
        let mut bulk = Bulk {
            face: Face::new(client, receiver(ack), us(50), us(12)),
            written: Cell::new(0),
            read: Cell::new(0),
        };
        // A first segment teaches the receiver the segment size; before that it counts smaller
        // ones.
        let first = bulk.face.end(Who::Client).write(&[1; MSS as usize]);
        assert_eq!(first, Ok(MSS as usize));
        bulk.face.transmit();
        while bulk.face.end(Who::Client).unacknowledged() > 0 {
            assert!(bulk.face.step(|_, _, _| {}));
        }
        write(bulk.face.end(Who::Client), &bulk.written);
        bulk.face.transmit();
        bulk
    }

    fn run(&mut self, time: Duration) {
        let until = self.face.now + time;
        while self.face.now < until {
            let (written, read) = (&self.written, &self.read);
            let going = self.face.step(|connection, who, now| match who {
                Who::Client => write(connection, written),
                Who::Server => {
                    while let Ok(n) = connection.read(&mut [0; 65_536], now) {
                        read.set(read.get() + n);
                    }
                }
            });
            assert!(going, "nothing will ever happen again");
            self.face.log.clear();
        }
    }

    /// Bytes covered by the receiver's ACK that arrives in the next step; empty if none does.
    fn acks(&mut self) -> Vec<u32> {
        let una = |bulk: &mut Bulk| bulk.face.end(Who::Client).sequence().0;
        let before = una(self);
        self.run(Duration::from_nanos(1));
        let covered = una(self).since(before);
        (covered > 0).then_some(covered).into_iter().collect()
    }

    fn timer_acks(&mut self) -> u64 {
        self.face.end(Who::Server).counters().delayed_acks_sent
    }
}

fn write(connection: &mut Connection, written: &Cell<usize>) {
    while connection.writable() >= WRITE {
        written.set(written.get() + connection.write(&[1; WRITE]).unwrap());
    }
}

/// Model of both ends, in segments. An ACK opens the window by one if it found the window full. A
/// super-segment, an eighth of the window, leaves whole or not at all. The receiver acknowledges as
/// many segments as its limit, or all when its timer fires. The model has no time, no bytes and
/// nothing else of our TCP.
struct Rule {
    window: u32,
    in_flight: u32,
    /// The receiver's limit, and in `limit_max` its maximum; `exactly` changes neither.
    limit: u32,
    limit_max: u32,
    learns: bool,
}

impl Rule {
    fn new(ack: AckPolicy) -> Rule {
        let (limit, limit_max, learns) = match ack {
            AckPolicy::Avoidance {
                limit_initial,
                limit_max,
                ..
                // The ACK of the first segment has raised the limit.
            } => ((limit_initial + 1).min(limit_max), limit_max, true),
            AckPolicy::Exactly { segments, .. } => (segments, segments, false),
            _ => panic!("of no other policy"),
        };
        Rule {
            window: INITIAL_WINDOW,
            in_flight: 0,
            limit,
            limit_max,
            learns,
        }
    }

    /// Number of segments that the next ACK covers, and true if the timer sends it.
    fn next_ack(&mut self) -> (u32, bool) {
        let most = self.window.min(RECEIVE_BUFFER / MSS);
        let unit = (self.window / DIVISOR).max(1);
        self.in_flight += (most - self.in_flight) / unit * unit;
        let is_full = self.in_flight + 1 > self.window;
        self.window += u32::from(is_full);
        let is_timers = self.in_flight < self.limit;
        let covers = match is_timers {
            false => self.limit,
            true => self.in_flight,
        };
        self.in_flight -= covers;
        if self.learns {
            self.limit = (self.limit + 1).min(self.limit_max);
            if is_timers {
                // The limit has overtaken the window: its maximum falls for good, and it restarts
                // at two.
                self.limit_max = (self.limit_max - 1).max(2);
                self.limit = 2;
            }
        }
        (covers, is_timers)
    }

    /// Number of ACKs sent by the timer among the next `acks`.
    fn timer_acks(&mut self, acks: usize) -> u64 {
        (0..acks).map(|_| u64::from(self.next_ack().1)).sum()
    }
}

/// ACKs after which every limit has settled.
const SETTLED: usize = 5_000;

#[test]
fn the_rule_tells_each_ack_of_every_limit() {
    for limit in 2..=32 {
        for ack in [exactly(limit), avoidance(limit)] {
            let mut bulk = Bulk::new(sender_of_2005(), ack);
            let mut rule = Rule::new(ack);
            let mut acks = 0;
            while acks < 400 {
                for covered in bulk.acks() {
                    let expected = rule.next_ack().0;
                    assert_eq!(covered, expected * MSS, "ACK {acks} of {ack:?}");
                    acks += 1;
                }
            }
        }
    }
}

#[test]
fn a_limit_above_twice_the_divisor_stalls_for_ever_and_no_other_one_does() {
    for limit in 2..=32 {
        let mut rule = Rule::new(exactly(limit));
        let at_first = rule.timer_acks(SETTLED);
        let later = rule.timer_acks(1000);
        assert_eq!(later, if limit > 2 * DIVISOR { 1000 } else { 0 }, "{limit}");
        if limit <= 2 * DIVISOR {
            // Until the window has opened to the limit, by a segment each.
            assert_eq!(at_first, u64::from(limit.saturating_sub(INITIAL_WINDOW)));
        }
    }
}

/// Flights differ only by limits and super-segments. If both have a common factor, some window is
/// never found full.
#[test]
fn the_window_stops_where_the_super_segment_has_a_factor_in_common_with_the_limit() {
    for limit in 2..2 * DIVISOR {
        let mut rule = Rule::new(exactly(limit));
        rule.timer_acks(SETTLED);
        let mut factors = 2..=limit;
        let smallest = factors.find(|factor| limit % factor == 0).unwrap();
        let stops = (DIVISOR * smallest).min(RECEIVE_BUFFER / MSS + 1);
        assert_eq!(rule.window, stops, "{limit}");
    }
    // From there on the timer acknowledges all data, so flights are even.
    for limit in 2 * DIVISOR..=32 {
        let mut rule = Rule::new(exactly(limit));
        rule.timer_acks(SETTLED);
        assert_eq!(rule.window, 2 * DIVISOR + 1, "{limit}");
    }
}

/// HP-UX's receiver ends its stalls by itself: each stall lowers the maximum of the limit by one.
#[test]
fn a_limit_that_learns_stalls_until_it_has_learned_what_the_window_lets_out() {
    for limit in 2..=32 {
        let mut rule = Rule::new(avoidance(limit));
        let all = rule.timer_acks(SETTLED);
        let settled = rule.limit_max;
        assert_eq!(rule.timer_acks(1000), 0, "{limit}");
        assert_eq!(
            u64::from(limit - settled),
            all,
            "{limit}: one for each stall"
        );
        let expected = match limit {
            ..=16 => 0,
            17..=23 => 1,
            24..=26 => 2,
            // A window of 26 lets out at most twenty-four segments.
            _ => u64::from(limit) - 24,
        };
        assert_eq!(all, expected, "{limit}");
    }
}

/// Checks with our TCP that throughput falls where the rule predicts stalls.
#[test]
fn throughput_falls_where_the_rule_says_so() {
    for (limit, stalls) in [(8, false), (16, false), (17, true), (32, true)] {
        let mut bulk = Bulk::new(sender_of_2005(), exactly(limit));
        bulk.run(Duration::from_secs(2));
        let (acks, read) = (bulk.timer_acks(), bulk.read.get());
        bulk.run(Duration::from_secs(1));
        let (acks, read) = (bulk.timer_acks() - acks, bulk.read.get() - read);
        if stalls {
            // Twenty delays of 50 ms, each for the sixteen segments that the window lets out.
            assert!((19..=20).contains(&acks), "{limit}: {acks}");
            assert_eq!(read / MSS as usize / 16, acks as usize, "{limit}");
        } else {
            assert_eq!(acks, 0, "{limit}");
            assert!(read > 20_000_000, "{limit}: {read}");
        }
    }
}

/// Additional time to deliver the bytes of the next 100 ms if one ACK is lost.
fn one_lost_ack(client: &Config, ack: AckPolicy) -> Duration {
    let transfer = |acks_to_lose| {
        let mut bulk = Bulk::new(client.clone(), ack);
        // The window has stopped growing, and timer ACKs at the start are over.
        bulk.run(Duration::from_secs(1));
        let (from, begun) = (bulk.read.get(), bulk.face.now);
        bulk.face.acks_to_lose = acks_to_lose;
        (bulk, from, begun)
    };
    let (mut clean, from, begun) = transfer(0);
    clean.run(Duration::from_millis(100));
    let bytes = clean.read.get() - from;
    let took = clean.face.now - begun;
    let (mut lossy, from, begun) = transfer(1);
    while lossy.read.get() - from < bytes {
        lossy.run(Duration::from_micros(100));
    }
    assert_eq!(lossy.face.acks_to_lose, 0, "one was lost");
    (lossy.face.now - begun).saturating_sub(took)
}

/// The ACK after the lost one covers both if the window lets out enough segments. Otherwise the
/// sender stops and the receiver waits for its next segment until its timer fires; or until the
/// sender's timeout, if the lost ACK covered everything in flight.
#[test]
fn one_lost_ack_costs_nothing_where_the_window_lets_out_twice_the_limit_and_else_the_timer() {
    let today = Config {
        send_buffer: SEND_BUFFER,
        congestion: CongestionControl::NewReno,
        ..Config::default()
    };
    let mut seen = [0, 0];
    for limit in 2..=2 * DIVISOR {
        let mut rule = Rule::new(exactly(limit));
        rule.timer_acks(SETTLED);
        // Segments in flight as each ACK leaves: maximum and minimum of a cycle.
        let flights: Vec<u32> = (0..200)
            .map(|_| rule.next_ack().0 + rule.in_flight)
            .collect();
        let (least, most) = (flights.iter().min().unwrap(), flights.iter().max().unwrap());
        let is_free = match (*least >= 2 * limit, *most < 2 * limit) {
            (true, _) => true,
            (_, true) => false,
            // The result depends on which ACK is lost.
            _ => continue,
        };
        seen[usize::from(is_free)] += 1;
        let cost = one_lost_ack(&sender_of_2005(), exactly(limit));
        let ms = Duration::from_millis;
        let range = match is_free {
            true => Duration::ZERO..=ms(1),
            // The ACK covered everything in flight, so the receiver has nothing left to
            // acknowledge: the sender's timeout ends the wait.
            false if (*least, *most) == (limit, limit) => ms(190)..=ms(210),
            false => ms(5)..=DELAY,
        };
        assert!(range.contains(&cost), "{limit}: {cost:?} of {range:?}");
        // A window of today opens to the receiver's, and no limit takes half of that.
        let cost = one_lost_ack(&today, exactly(limit));
        assert!(cost <= Duration::from_millis(1), "{limit}: {cost:?} today");
    }
    assert!(seen.iter().all(|cases| *cases >= 4), "{seen:?}");
}
