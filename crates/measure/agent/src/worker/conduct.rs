//! The order of a trial's span: traffic, TCP_INFO, traffic, a snapshot, the measured traffic, a snapshot. A
//! thread conducts one end, or two ends that take turns.
//!
//! In one thread there are no wake-ups, and no scheduler decides how much one end does before the other's
//! turn. So the costs of an end are only those of the path that a byte takes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use tcpcost_meter::mark;

use super::GIVEN_UP;
use super::phase::{Phase, WORK_MAX};
use crate::protocol::clock_ns;

/// Result of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The end has reached the end of this phase.
    Done,
    /// Some connections had work.
    Worked,
    /// No connection had work.
    Idle,
}

/// An end of a trial, step by step.
pub(super) trait TrialEnd {
    /// Runs traffic until the phase is over. Used by an end that is alone in its thread.
    fn drive(&mut self, phase: Phase) -> anyhow::Result<()>;
    /// Begins a phase. Used by ends that take turns.
    fn resume(&mut self);
    /// Does the work that is ready, without waiting.
    fn turn(&mut self, phase: Phase, now: Instant) -> anyhow::Result<Turn>;
    /// Waits for work, at most for `most`.
    fn rest(&mut self, most: Duration) -> anyhow::Result<()>;
    /// Ends a phase.
    fn pause(&mut self) -> anyhow::Result<()>;
    /// Adds the duration of a turn to the end's time.
    fn charge(&mut self, time: Duration);
    /// Reads TCP_INFO and totals by connection, outside the interval.
    fn look(&mut self) -> anyhow::Result<()>;
    /// Takes the first snapshot. Cheap meters are read last, next to the traffic.
    fn first(&mut self) -> anyhow::Result<()>;
    /// Takes the second snapshot in the reverse order, then reads TCP_INFO again.
    fn second(&mut self) -> anyhow::Result<()>;
    /// True if this end marks the interval for an emulator.
    fn marks(&self) -> bool;
    /// True if the span has an amount of work instead of a duration.
    fn has_work(&self) -> bool;
    /// Sends the results to the agent's thread that asked for them.
    fn answer(&mut self, outcome: Result<(), &anyhow::Error>);
}

/// Conducts one end, or two that take turns. The first end's meters are read nearest to the traffic, so its
/// counts do not include the reading of the other end's meters.
pub(super) fn conduct(ends: &mut [&mut dyn TrialEnd]) -> anyhow::Result<()> {
    drive(ends, Phase::Lead)?;
    ends.iter_mut().rev().try_for_each(|end| end.look())?;
    drive(ends, Phase::Warm)?;
    if ends[0].has_work() {
        settle();
    }
    ends.iter_mut().rev().try_for_each(|end| end.first())?;
    if ends[0].marks() {
        mark::begin();
    }
    drive(ends, Phase::Measured)?;
    if ends[0].marks() {
        mark::end();
    }
    ends.iter_mut().try_for_each(|end| end.second())?;
    // Two ends that take turns finish at the same time.
    if ends.len() > 1 && ends[0].has_work() {
        return Ok(());
    }
    drive(ends, Phase::Tail)
}

fn drive(ends: &mut [&mut dyn TrialEnd], phase: Phase) -> anyhow::Result<()> {
    if let [alone] = ends {
        return alone.drive(phase);
    }
    ends.iter_mut().for_each(|end| end.resume());
    let outcome = take_turns(ends, phase);
    ends.iter_mut().try_for_each(|end| end.pause())?;
    outcome
}

fn take_turns(ends: &mut [&mut dyn TrialEnd], phase: Phase) -> anyhow::Result<()> {
    let mut now = Instant::now();
    let late = now + WORK_MAX;
    let mut idle = 0;
    loop {
        let (mut done, mut worked) = (0, false);
        for end in ends.iter_mut() {
            let turn = end.turn(phase, now)?;
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
        // Data that one end sent in this round reaches the other in the next.
        if idle > 1 {
            ends[idle % ends.len()].rest(REST)?;
            now = Instant::now();
            if ends[0].has_work() && now >= late {
                bail!("the work was not done in {} s", WORK_MAX.as_secs());
            }
        }
    }
}

/// Limit on a rest: one end waits for its own timer or a kernel thread, but the other may have work sooner.
const REST: Duration = Duration::from_millis(1);

/// Lets timers, kernel threads and RCU finish the work of the warm-up. Then traffic begins shortly after a
/// tick, so that each interval has the same number of ticks. The pause is shorter than the smallest
/// retransmission timeout (200 ms), after which a connection would begin anew.
fn settle() {
    const TICK_NS: u64 = 4_000_000;
    const SETTLE_NS: u64 = 100_000_000;
    let until_ns = (clock_ns() + SETTLE_NS).next_multiple_of(TICK_NS) + TICK_NS / 4;
    crate::soak::sleep_until(until_ns);
}

/// Place where the listening end waits until the connecting end takes it.
#[derive(Clone, Default)]
pub struct EndHandover(Arc<(Mutex<Option<WaitingEnd>>, Condvar)>);

type WaitingEnd = Box<dyn TrialEnd + Send>;

impl EndHandover {
    /// Removes an end that an earlier trial left.
    pub fn clear(&self) {
        drop(self.place().take());
    }

    /// Puts the listening end here and wakes the thread that waits for it.
    pub(super) fn put(&self, end: WaitingEnd) {
        *self.place() = Some(end);
        self.0.1.notify_all();
    }

    /// Waits for the listening end and takes it. Fails if the trial is aborted.
    pub(super) fn take(&self, stop: &AtomicBool) -> anyhow::Result<WaitingEnd> {
        let mut place = self.place();
        loop {
            if let Some(end) = place.take() {
                return Ok(end);
            }
            ensure!(!stop.load(Ordering::Relaxed), GIVEN_UP);
            let waited = self.0.1.wait_timeout(place, LOOK);
            place = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn place(&self) -> std::sync::MutexGuard<'_, Option<WaitingEnd>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Longest time until the abort of a trial is noticed.
const LOOK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    /// An end with `turns` turns of work in each phase. It notes each call.
    struct Noted {
        name: char,
        turns: usize,
        left: usize,
        notes: Arc<Mutex<String>>,
    }

    impl Noted {
        fn note(&self, what: &str) -> anyhow::Result<()> {
            let note = format!("{}:{what} ", self.name);
            self.notes.lock().unwrap().push_str(&note);
            Ok(())
        }
    }

    impl TrialEnd for Noted {
        fn drive(&mut self, phase: Phase) -> anyhow::Result<()> {
            self.note(&format!("{phase:?}"))
        }
        fn resume(&mut self) {
            self.left = self.turns;
        }
        fn turn(&mut self, _: Phase, _: Instant) -> anyhow::Result<Turn> {
            let Some(left) = self.left.checked_sub(1) else {
                return Ok(Turn::Done);
            };
            self.left = left;
            self.note("turn").map(|()| Turn::Worked)
        }
        fn rest(&mut self, _: Duration) -> anyhow::Result<()> {
            bail!("nobody waits while there is work")
        }
        fn pause(&mut self) -> anyhow::Result<()> {
            Ok(())
        }
        fn charge(&mut self, _: Duration) {}
        fn look(&mut self) -> anyhow::Result<()> {
            self.note("look")
        }
        fn first(&mut self) -> anyhow::Result<()> {
            self.note("first")
        }
        fn second(&mut self) -> anyhow::Result<()> {
            self.note("second")
        }
        fn marks(&self) -> bool {
            false
        }
        fn has_work(&self) -> bool {
            false
        }
        fn answer(&mut self, _: Result<(), &anyhow::Error>) {}
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
        let mut ends: Vec<&mut dyn TrialEnd> = ends
            .iter_mut()
            .map(|end| end as &mut dyn TrialEnd)
            .collect();
        conduct(&mut ends).unwrap();
        let notes = notes.lock().unwrap();
        notes.trim().to_string()
    }

    #[test]
    fn alone_an_end_reads_its_meters_between_its_phases() {
        assert_eq!(
            noted(&[('a', 0)]),
            "a:Lead a:look a:Warm a:first a:Measured a:second a:Tail"
        );
    }

    #[test]
    fn of_two_the_first_reads_nearest_to_the_traffic_and_both_have_their_turns() {
        let phase = "a:turn b:turn b:turn";
        let expected = format!(
            "{phase} b:look a:look {phase} b:first a:first {phase} a:second b:second {phase}"
        );
        assert_eq!(noted(&[('a', 1), ('b', 2)]), expected);
    }

    #[test]
    fn who_waits_for_the_other_end_hears_that_the_trial_is_given_up() {
        let handover = EndHandover::default();
        let stop = AtomicBool::new(true);
        assert!(handover.take(&stop).is_err());
        handover.put(Box::new(Noted {
            name: 'a',
            turns: 0,
            left: 0,
            notes: Arc::default(),
        }));
        assert!(handover.take(&stop).is_ok());
    }
}
