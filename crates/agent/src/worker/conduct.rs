//! The order of a trial's span: traffic, TCP_INFO, traffic, a snapshot, the measured traffic, a snapshot. Of one end that has
//! its thread to itself, or of two that take turns in one.
//!
//! In one thread nobody is woken, and no scheduler decides how much one end does before the other has its turn: what depends on the
//! path that a byte takes is all that is left of what an end costs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tcpcost_meter::mark;

use super::leg::{Leg, WORK_MAX};
use crate::protocol::clock_ns;

/// What came of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// This stretch is over for this end.
    Done,
    /// Some connections had something to do.
    Worked,
    /// None had.
    Idle,
}

/// An end of a trial, step by step.
pub(super) trait End {
    /// Alone: traffic until the stretch is over.
    fn drive(&mut self, leg: Leg) -> Result<(), String>;
    /// With another: begins a stretch.
    fn resume(&mut self);
    /// What is to do now, without waiting.
    fn turn(&mut self, leg: Leg, now: Instant) -> Result<Turn, String>;
    /// Waits for something to do, for so long at most.
    fn rest(&mut self, most: Duration) -> Result<(), String>;
    /// Ends a stretch.
    fn pause(&mut self) -> Result<(), String>;
    /// What a turn took.
    fn charge(&mut self, time: Duration);
    /// Reads TCP_INFO, and what else is read beside the interval.
    fn look(&mut self) -> Result<(), String>;
    /// Reads the meters: the nearer to the traffic, the later.
    fn first(&mut self) -> Result<(), String>;
    /// The same in the other order, and TCP_INFO again.
    fn second(&mut self) -> Result<(), String>;
    /// Whether it marks the interval for an emulator.
    fn marks(&self) -> bool;
    /// Whether it has an amount of work to do, and not a time.
    fn has_work(&self) -> bool;
    /// Tells whoever asked for it what it found.
    fn answer(&mut self, outcome: Result<(), String>);
}

/// Conducts one end, or two that take turns. The first one's meters are read nearest to the traffic: reading the other's is in none
/// of its counts.
pub(super) fn conduct(ends: &mut [&mut dyn End]) -> Result<(), String> {
    drive(ends, Leg::Lead)?;
    ends.iter_mut().rev().try_for_each(|end| end.look())?;
    drive(ends, Leg::Warm)?;
    if ends[0].has_work() {
        settle();
    }
    ends.iter_mut().rev().try_for_each(|end| end.first())?;
    if ends[0].marks() {
        mark::begin();
    }
    drive(ends, Leg::Measured)?;
    if ends[0].marks() {
        mark::end();
    }
    ends.iter_mut().try_for_each(|end| end.second())?;
    // Two ends that take turns are done at the same time.
    if ends.len() > 1 && ends[0].has_work() {
        return Ok(());
    }
    drive(ends, Leg::Tail)
}

fn drive(ends: &mut [&mut dyn End], leg: Leg) -> Result<(), String> {
    if let [alone] = ends {
        return alone.drive(leg);
    }
    ends.iter_mut().for_each(|end| end.resume());
    let outcome = take_turns(ends, leg);
    ends.iter_mut().try_for_each(|end| end.pause())?;
    outcome
}

fn take_turns(ends: &mut [&mut dyn End], leg: Leg) -> Result<(), String> {
    let mut now = Instant::now();
    let late = now + WORK_MAX;
    let mut idle = 0;
    loop {
        let (mut done, mut worked) = (0, false);
        for end in ends.iter_mut() {
            let turn = end.turn(leg, now)?;
            let then = Instant::now();
            end.charge(then - now);
            now = then;
            done += usize::from(turn == Turn::Done);
            worked |= turn == Turn::Worked;
        }
        if done == ends.len() {
            return Ok(());
        }
        idle = if worked { 0 } else { idle + 1 };
        // What one has sent in this round the other finds in the next.
        if idle > 1 {
            ends[idle % ends.len()].rest(REST)?;
            now = Instant::now();
            if ends[0].has_work() && now >= late {
                let seconds = WORK_MAX.as_secs();
                return Err(format!("the work was not done in {seconds} s"));
            }
        }
    }
}

/// One end waits for a timer of its own, or for what a kernel thread still has to do; the other may have something sooner.
const REST: Duration = Duration::from_millis(1);

/// Lets timers, kernel threads and RCU do what the warm-up left to them, and begins soon behind a tick, so that as many fall into
/// the interval each time. Less than the least retransmission timeout (200 ms), after which a connection would begin anew.
fn settle() {
    const TICK_NS: u64 = 4_000_000;
    const SETTLE_NS: u64 = 100_000_000;
    let until_ns = (clock_ns() + SETTLE_NS).next_multiple_of(TICK_NS) + TICK_NS / 4;
    crate::soak::sleep_until(until_ns);
}

/// Where the end that listens waits for the one that connects to take it.
#[derive(Clone, Default)]
pub struct Seat(Arc<(Mutex<Option<Sitting>>, Condvar)>);

type Sitting = Box<dyn End + Send>;

impl Seat {
    /// Takes away whom an earlier trial left.
    pub fn clear(&self) {
        drop(self.place().take());
    }

    /// Sits down.
    pub(super) fn sit(&self, end: Sitting) {
        *self.place() = Some(end);
        self.0.1.notify_all();
    }

    /// Whoever sits there, once somebody does.
    pub(super) fn other(&self, stop: &AtomicBool) -> Result<Sitting, String> {
        let mut place = self.place();
        loop {
            if let Some(end) = place.take() {
                return Ok(end);
            }
            if stop.load(Ordering::Relaxed) {
                return Err("the trial was given up".to_string());
            }
            let waited = self.0.1.wait_timeout(place, LOOK);
            place = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn place(&self) -> std::sync::MutexGuard<'_, Option<Sitting>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How late a trial that is given up may be seen.
const LOOK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    /// An end that has so many turns of work in each stretch, and notes what is asked of it.
    struct Noted {
        name: char,
        turns: usize,
        left: usize,
        notes: Arc<Mutex<String>>,
    }

    impl Noted {
        fn note(&self, what: &str) -> Result<(), String> {
            let note = format!("{}:{what} ", self.name);
            self.notes.lock().unwrap().push_str(&note);
            Ok(())
        }
    }

    impl End for Noted {
        fn drive(&mut self, leg: Leg) -> Result<(), String> {
            self.note(&format!("{leg:?}"))
        }
        fn resume(&mut self) {
            self.left = self.turns;
        }
        fn turn(&mut self, _: Leg, _: Instant) -> Result<Turn, String> {
            let Some(left) = self.left.checked_sub(1) else {
                return Ok(Turn::Done);
            };
            self.left = left;
            self.note("turn").map(|()| Turn::Worked)
        }
        fn rest(&mut self, _: Duration) -> Result<(), String> {
            Err("nobody waits while there is work".to_string())
        }
        fn pause(&mut self) -> Result<(), String> {
            Ok(())
        }
        fn charge(&mut self, _: Duration) {}
        fn look(&mut self) -> Result<(), String> {
            self.note("look")
        }
        fn first(&mut self) -> Result<(), String> {
            self.note("first")
        }
        fn second(&mut self) -> Result<(), String> {
            self.note("second")
        }
        fn marks(&self) -> bool {
            false
        }
        fn has_work(&self) -> bool {
            false
        }
        fn answer(&mut self, _: Result<(), String>) {}
    }

    fn noted(ends: &[(char, usize)]) -> String {
        let notes = Arc::new(Mutex::new(String::new()));
        let end = |&(name, turns): &(char, usize)| Noted {
            name,
            turns,
            left: 0,
            notes: Arc::clone(&notes),
        };
        let mut ends: Vec<Noted> = ends.iter().map(end).collect();
        let mut ends: Vec<&mut dyn End> = ends.iter_mut().map(|end| end as &mut dyn End).collect();
        conduct(&mut ends).unwrap();
        let notes = notes.lock().unwrap();
        notes.trim().to_string()
    }

    #[test]
    fn alone_an_end_reads_its_meters_between_its_stretches() {
        assert_eq!(
            noted(&[('a', 0)]),
            "a:Lead a:look a:Warm a:first a:Measured a:second a:Tail"
        );
    }

    #[test]
    fn of_two_the_first_reads_nearest_to_the_traffic_and_both_have_their_turns() {
        let stretch = "a:turn b:turn b:turn";
        let expected = format!(
            "{stretch} b:look a:look {stretch} b:first a:first {stretch} a:second b:second {stretch}"
        );
        assert_eq!(noted(&[('a', 1), ('b', 2)]), expected);
    }

    #[test]
    fn who_waits_for_the_other_end_hears_that_the_trial_is_given_up() {
        let seat = Seat::default();
        let stop = AtomicBool::new(true);
        assert!(seat.other(&stop).is_err());
        seat.sit(Box::new(Noted {
            name: 'a',
            turns: 0,
            left: 0,
            notes: Arc::default(),
        }));
        assert!(seat.other(&stop).is_ok());
    }
}
