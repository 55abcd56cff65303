//! Steps of the two applications. A step ends when its effect has occurred, so that the
//! observations do not depend on time.

use std::io::ErrorKind;
use std::time::Instant;

use tcpcost_testbed::Random;

use super::ends::{BOUND, End, Pair, is_nothing};

/// One of the two applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Tried,
    Watched,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Writes `bytes`, in calls of at most `call`; the other end reads them in calls of at most
    /// `read`, `late` turns after it could.
    Send {
        from: Who,
        bytes: usize,
        call: usize,
        read: usize,
        late: u32,
    },
    /// Both ends write and read at once.
    Cross {
        bytes: usize,
        call: usize,
        read: usize,
    },
    /// Writes a few bytes that stay unread at the other end.
    Leave { from: Who, bytes: usize },
    /// Shuts down its direction; the other end reads until the end.
    Finish { who: Who },
}

/// Ending of a program.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// Closes; the other end reads on, and then writes until that fails.
    Close { who: Who, then_write: bool },
    /// Writes, and closes before the bytes were read.
    SendAndClose { who: Who, bytes: usize },
    /// Resets; the other end reads on.
    Abort { who: Who },
    /// Writes, and resets before the bytes were read: how much arrives is chance.
    SendAndAbort { who: Who, bytes: usize },
    /// Both ends close at once.
    Both,
}

#[derive(Debug)]
pub struct Program {
    pub tried_connects: bool,
    steps: Vec<Step>,
    ending: Ending,
}

impl Program {
    pub fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let who = |random: &mut Random| match random.below(2) {
            0 => Who::Tried,
            _ => Who::Watched,
        };
        let count = random.below(6);
        let step = |random: &mut Random| match random.below(10) {
            0..5 => {
                let bytes = size(random);
                Step::Send {
                    from: who(random),
                    bytes,
                    call: call(random, bytes),
                    read: call(random, bytes),
                    late: random.below(30) as u32,
                }
            }
            5..7 => {
                let bytes = size(random);
                Step::Cross {
                    bytes,
                    call: call(random, bytes),
                    read: call(random, bytes),
                }
            }
            7..9 => Step::Leave {
                from: who(random),
                bytes: 1 + random.below(500),
            },
            _ => Step::Finish { who: who(random) },
        };
        let tried_connects = random.below(2) == 0;
        let steps = (0..count).map(|_| step(&mut random)).collect();
        let ending = match random.below(6) {
            0 | 1 => Ending::Close {
                who: who(&mut random),
                then_write: random.below(2) == 0,
            },
            2 => Ending::SendAndClose {
                who: who(&mut random),
                bytes: size(&mut random),
            },
            3 => Ending::Abort {
                who: who(&mut random),
            },
            4 => Ending::SendAndAbort {
                who: who(&mut random),
                bytes: size(&mut random),
            },
            _ => Ending::Both,
        };
        Self {
            tried_connects,
            steps,
            ending,
        }
    }

    /// Runs the program. Returns the observations of both applications.
    pub fn run(&self, pair: Pair, case: &str) -> Vec<String> {
        let mut play = Play {
            ends: [pair.tried, pair.watched],
            sent: [0; 2],
            read: [0; 2],
            finished: [false; 2],
            seen: Vec::new(),
            case,
        };
        for step in &self.steps {
            play.step(step);
        }
        play.end(&self.ending);
        play.seen
    }
}

struct Play<'a> {
    ends: [Box<dyn End>; 2],
    /// Bytes sent, by sender.
    sent: [usize; 2],
    /// Bytes read, by sender.
    read: [usize; 2],
    /// True for an end that has shut down its direction.
    finished: [bool; 2],
    seen: Vec<String>,
    case: &'a str,
}

impl Who {
    fn other(self) -> Who {
        match self {
            Who::Tried => Who::Watched,
            Who::Watched => Who::Tried,
        }
    }
}

impl Play<'_> {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Send {
                from,
                bytes,
                call,
                read,
                late,
            } => self.transfer(&[from], bytes, call, read, late),
            Step::Cross { bytes, call, read } => {
                self.transfer(&[Who::Tried, Who::Watched], bytes, call, read, 0);
            }
            Step::Leave { from, bytes } if !self.finished[from as usize] => {
                self.write_all(from, bytes);
                let unread = self.sent[from as usize] - self.read[from as usize];
                self.until("waits", |play| {
                    play.ends[from.other() as usize].waiting() >= unread
                });
            }
            Step::Leave { .. } => {}
            Step::Finish { who } => {
                if !std::mem::replace(&mut self.finished[who as usize], true) {
                    self.ends[who as usize].shutdown();
                    self.read_on(who.other());
                }
            }
        }
    }

    fn end(&mut self, ending: &Ending) {
        match *ending {
            Ending::Close { who, then_write } => {
                self.ends[who as usize].close();
                let in_order = self.read_on(who.other());
                if in_order && then_write && !self.finished[who.other() as usize] {
                    self.write_until_it_fails(who.other());
                }
            }
            Ending::SendAndClose { who, bytes } => {
                // Writes as much as is possible while the other end does not read.
                if !self.finished[who as usize] {
                    self.write_some(who, bytes);
                }
                let unread = self.unread_by(who);
                self.ends[who as usize].close();
                self.read_on(who.other());
                if unread {
                    self.forget_how_much();
                }
            }
            Ending::Abort { who } => {
                self.ends[who as usize].abort();
                self.read_on(who.other());
            }
            Ending::SendAndAbort { who, bytes } => {
                if !self.finished[who as usize] {
                    self.write_some(who, bytes);
                }
                self.ends[who as usize].abort();
                self.read_on(who.other());
                self.forget_how_much();
            }
            Ending::Both => {
                self.ends[0].close();
                self.ends[1].close();
            }
        }
        // Sends what is still pending.
        for _ in 0..3 {
            self.ends.iter_mut().for_each(|end| end.turn());
        }
    }

    fn unread_by(&self, who: Who) -> bool {
        let from = who.other() as usize;
        self.sent[from] > self.read[from]
    }

    /// Removes byte counts from the observations, because a reset overtakes data.
    fn forget_how_much(&mut self) {
        self.seen.retain(|line| !line.contains("at the end"));
    }

    /// The ends in `from` write `bytes` each; the others read them all.
    fn transfer(&mut self, from: &[Who], bytes: usize, call: usize, read: usize, late: u32) {
        let from: Vec<Who> = from
            .iter()
            .copied()
            .filter(|who| !self.finished[*who as usize])
            .collect();
        let goals = self.sent.map(|sent| sent + bytes);
        let mut turns = 0;
        self.until("is transferred", |play| {
            turns += 1;
            let mut done = true;
            for &who in &from {
                let left = goals[who as usize] - play.sent[who as usize];
                if left > 0 {
                    play.write_some(who, left.min(call));
                }
                if turns > late {
                    play.read_some(who.other(), read);
                }
                done &= play.read[who as usize] == goals[who as usize];
            }
            done
        });
        for who in from {
            let line = format!("{:?} read {}", who.other(), self.read[who as usize]);
            self.seen.push(line);
        }
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + BOUND;
        while !done(self) {
            self.ends.iter_mut().for_each(|end| end.turn());
            assert!(
                Instant::now() < deadline,
                "never {what}: sent {:?}, read {:?}, {:?}\n{}",
                self.sent,
                self.read,
                self.seen,
                self.case
            );
        }
    }

    fn write_all(&mut self, who: Who, bytes: usize) {
        let goal = self.sent[who as usize] + bytes;
        self.until("is written", |play| {
            let left = goal - play.sent[who as usize];
            play.write_some(who, left);
            play.sent[who as usize] == goal
        });
    }

    /// Writes as much as there is room for.
    fn write_some(&mut self, who: Who, bytes: usize) {
        let at = self.sent[who as usize];
        let data: Vec<u8> = (at..at + bytes).map(|at| byte(who, at)).collect();
        match self.ends[who as usize].write(&data) {
            Ok(written) => self.sent[who as usize] += written,
            Err(error) if is_nothing(&error) => {}
            Err(error) => panic!("{who:?} cannot write: {error}\n{}", self.case),
        }
    }

    /// Makes one read call, if there are bytes.
    fn read_some(&mut self, who: Who, most: usize) {
        match self.try_read(who, most) {
            Ok(0) => panic!("{who:?} sees an end\n{}", self.case),
            Ok(_) | Err(ErrorKind::WouldBlock) => {}
            Err(error) => panic!("{who:?} cannot read: {error}\n{}", self.case),
        }
    }

    fn try_read(&mut self, who: Who, most: usize) -> Result<usize, ErrorKind> {
        let from = who.other();
        let mut buffer = vec![0; most];
        let read = self.ends[who as usize].read(&mut buffer);
        let read = read.map_err(|error| error.kind())?;
        let at = self.read[from as usize];
        for (offset, found) in buffer[..read].iter().enumerate() {
            let place = at + offset;
            assert_eq!(*found, byte(from, place), "byte {place}\n{}", self.case);
        }
        self.read[from as usize] += read;
        Ok(read)
    }

    /// Reads until the connection ends. True if the other end closed in order.
    fn read_on(&mut self, who: Who) -> bool {
        let mut end = None;
        self.until("ends", |play| {
            end = match play.try_read(who, 4000) {
                Ok(0) => Some(None),
                Ok(_) | Err(ErrorKind::WouldBlock) => None,
                Err(error) => Some(Some(error)),
            };
            end.is_some()
        });
        let all = !self.unread_by(who);
        self.seen.push(format!("{who:?} has all at the end: {all}"));
        let end = end.flatten();
        self.seen.push(format!("{who:?} reads no more: {end:?}"));
        end.is_none()
    }

    fn write_until_it_fails(&mut self, who: Who) {
        let mut why = None;
        self.until("fails", |play| {
            why = match play.ends[who as usize].write(&[0]) {
                Ok(_) => None,
                Err(error) if is_nothing(&error) => None,
                Err(error) => Some(error.kind()),
            };
            why.is_some()
        });
        self.seen.push(format!("{who:?} writes no more: {why:?}"));
    }
}

/// Returns the byte at a position of a stream: a lost, doubled or moved byte shows.
fn byte(who: Who, at: usize) -> u8 {
    (at % 251 + at / 251 % 241 + 100 * who as usize) as u8
}

/// Size of calls that move `bytes` in all; at most 100 calls.
fn call(random: &mut Random, bytes: usize) -> usize {
    size(random).max(bytes / 100)
}

/// Random size: a few bytes, about a segment, or many bytes.
fn size(random: &mut Random) -> usize {
    match random.below(4) {
        0 => 1 + random.below(10),
        1 => 1440 + random.below(20),
        2 => 1 + random.below(10_000),
        _ => 1 + random.below(300_000),
    }
}
