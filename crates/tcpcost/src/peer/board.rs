//! Where the instances post what they counted: one line a second, and at the end, for all of them.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;

use super::configuration::Configuration;
use super::flags::{Flags, Task};
use super::report::Totals;
use super::rows::{self, Row};
use crate::format::Format;
use crate::output::Patient;

/// Posts of all instances.
pub struct Board {
    /// When they began.
    pub started: Instant,
    instances: usize,
    json: bool,
    /// Standard output is for what a connection brings.
    quiet: bool,
    /// Connections to say, at most.
    connections: usize,
    state: Mutex<State>,
}

/// What instances have posted of a second.
#[derive(Default)]
struct Post {
    instances: usize,
    totals: Totals,
    rows: Vec<Row>,
}

/// A line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    totals: &'a Totals,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection_table: Option<&'a [Row]>,
}

#[derive(Default)]
struct State {
    ready: usize,
    /// By the second.
    rounds: BTreeMap<u32, Post>,
    /// Of those that have ended.
    ended: Post,
    /// What was said last.
    before: Totals,
}

impl Board {
    /// As these flags ask.
    pub fn new(flags: &Flags) -> Self {
        Self {
            started: Instant::now(),
            instances: flags.instances.into(),
            json: flags.output.has(Format::Json),
            quiet: flags.service == Some(Task::Stdio),
            connections: flags.top.unwrap_or_default().into(),
            state: Mutex::default(),
        }
    }

    /// Whether connections are to be posted.
    pub fn wants_rows(&self) -> bool {
        self.connections > 0
    }

    /// What there is before anything happens.
    pub fn begin(&self, configuration: &Configuration) -> io::Result<()> {
        if !self.json {
            return Ok(());
        }
        let line = serde_json::json!({ "configuration": configuration });
        self.write(&format!("{line}\n"))
    }

    /// One more is ready; whether all are.
    pub fn is_ready(&self) -> bool {
        self.change(|state| {
            state.ready += 1;
            state.ready == self.instances
        })
    }

    /// What an instance has counted by this second; the last to post says the sum.
    pub fn post(&self, round: u32, totals: Totals, rows: Vec<Row>) -> io::Result<()> {
        self.change(|state| {
            let post = state.rounds.entry(round).or_default();
            post.add(totals, rows);
            if post.instances < self.instances {
                return Ok(());
            }
            let post = std::mem::take(post);
            // A round that one of them did not see will never be whole.
            state.rounds.retain(|known, _| *known > round);
            if self.quiet {
                return Ok(());
            }
            self.say(state, post)
        })
    }

    /// What an instance has counted altogether; the last to end says the sum.
    pub fn end(&self, totals: Totals) -> io::Result<()> {
        self.change(|state| {
            state.ended.add(totals, Vec::new());
            if state.ended.instances < self.instances {
                return Ok(());
            }
            let post = std::mem::take(&mut state.ended);
            self.say(state, post)
        })
    }

    fn say(&self, state: &mut State, post: Post) -> io::Result<()> {
        let rows = rows::busiest(post.rows, self.connections);
        let text = if self.json {
            let line = Line {
                totals: &post.totals,
                connection_table: self.wants_rows().then_some(&rows),
            };
            format!("{}\n", serde_json::to_string(&line)?)
        } else {
            // A table is looked at, not read through.
            let clear = self.wants_rows() && io::stdout().is_terminal();
            let clear = if clear { "\x1b[H\x1b[J" } else { "" };
            let line = post.totals.line(&state.before);
            format!("{clear}{line}\n{}", rows::table(&rows))
        };
        state.before = post.totals;
        self.write(&text)
    }

    fn write(&self, text: &str) -> io::Result<()> {
        if self.quiet {
            return Patient(io::stderr()).write_all(text.as_bytes());
        }
        Patient(io::stdout()).write_all(text.as_bytes())
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        // A sum is whole whoever panicked.
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Post {
    fn add(&mut self, totals: Totals, rows: Vec<Row>) {
        self.instances += 1;
        self.totals.join(&totals);
        self.rows.extend(rows);
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
        let board = Board {
            started: Instant::now(),
            instances: 2,
            json: true,
            quiet: false,
            connections: 0,
            state: Mutex::default(),
        };
        let said = || board.change(|state| (state.before.elapsed_ns, state.before.connections));
        assert!(!board.is_ready() && board.is_ready());
        board.post(1, totals(10, 1), Vec::new()).unwrap();
        board.post(2, totals(20, 1), Vec::new()).unwrap();
        assert_eq!(said(), (0, 0));
        board.post(1, totals(11, 2), Vec::new()).unwrap();
        assert_eq!(said(), (11, 3));
        board.end(totals(25, 4)).unwrap();
        board.end(totals(24, 5)).unwrap();
        assert_eq!(said(), (25, 9));
    }
}
