//! Where the instances post what they counted: one line a second, and at the end, for all of them.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::report::Totals;

/// Posts of all instances.
pub struct Board {
    /// When they began.
    pub started: Instant,
    instances: usize,
    json: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ready: usize,
    /// By the second: how many have posted, and their sum.
    rounds: BTreeMap<u32, (usize, Totals)>,
    /// Of those that have ended.
    ended: (usize, Totals),
    /// What was said last.
    before: Totals,
}

impl Board {
    /// For so many.
    pub fn new(instances: usize, json: bool) -> Self {
        Self {
            started: Instant::now(),
            instances,
            json,
            state: Mutex::default(),
        }
    }

    /// One more is ready; whether all are.
    pub fn is_ready(&self) -> bool {
        self.change(|state| {
            state.ready += 1;
            state.ready == self.instances
        })
    }

    /// What an instance has counted by this second; the last to post says the sum.
    pub fn post(&self, round: u32, totals: Totals) -> io::Result<()> {
        self.change(|state| {
            let (posts, sum) = state.rounds.entry(round).or_default();
            *posts += 1;
            sum.join(&totals);
            if *posts < self.instances {
                return Ok(());
            }
            let sum = *sum;
            // A round that one of them did not see will never be whole.
            state.rounds.retain(|known, _| *known > round);
            self.say(state, sum)
        })
    }

    /// What an instance has counted altogether; the last to end says the sum.
    pub fn end(&self, totals: Totals) -> io::Result<()> {
        self.change(|state| {
            state.ended.0 += 1;
            state.ended.1.join(&totals);
            if state.ended.0 < self.instances {
                return Ok(());
            }
            let sum = state.ended.1;
            self.say(state, sum)
        })
    }

    fn say(&self, state: &mut State, sum: Totals) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        if self.json {
            serde_json::to_writer(&mut stdout, &sum)?;
            writeln!(stdout)?;
        } else {
            writeln!(stdout, "{}", sum.line(&state.before))?;
        }
        state.before = sum;
        stdout.flush()
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        // A sum is whole whoever panicked.
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(elapsed_ns: u64, connections: u64) -> Totals {
        Totals {
            elapsed_ns,
            connections,
            ..Totals::default()
        }
    }

    #[test]
    fn a_second_is_said_when_all_have_posted_it_and_the_end_when_all_have_ended() {
        let board = Board::new(2, true);
        let said = || board.change(|state| (state.before.elapsed_ns, state.before.connections));
        assert!(!board.is_ready() && board.is_ready());
        board.post(1, totals(10, 1)).unwrap();
        board.post(2, totals(20, 1)).unwrap();
        assert_eq!(said(), (0, 0));
        board.post(1, totals(11, 2)).unwrap();
        assert_eq!(said(), (11, 3));
        board.end(totals(25, 4)).unwrap();
        board.end(totals(24, 5)).unwrap();
        assert_eq!(said(), (25, 9));
    }
}
