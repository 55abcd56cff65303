//! Adds up the counts of all instances, and prints one line each second and one at the end.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;
use tcpcost_console::format::Format;
use tcpcost_console::output::WaitingWriter;

use super::configuration::Configuration;
use super::flags::{Flags, Task};
use super::rows::{self, Row};
use super::totals::Totals;

/// Counts of all instances, and where they are printed.
pub struct Reporter {
    /// Start of all instances.
    pub started: Instant,
    instances: usize,
    json: bool,
    /// True if standard output carries the bytes of a connection, so that lines go to standard error.
    quiet: bool,
    /// Limit of connections in the table; 0: no table.
    connections: usize,
    state: Mutex<State>,
}

/// Sum of the counts that instances have added for one second, or for the end.
#[derive(Default)]
struct Sum {
    instances: usize,
    totals: Totals,
    rows: Vec<Row>,
}

/// One line of JSON.
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
    /// Sums by second, for seconds to which not all instances have added their counts.
    rounds: BTreeMap<u32, Sum>,
    /// Final counts of the instances that have ended.
    ended: Sum,
    /// Totals of the last line, from which the next line's rates are derived.
    before: Totals,
}

impl Reporter {
    /// Makes the reporter for `flags.instances` instances, with the format and table that the flags ask for.
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

    /// True if the instances must add a row for each connection.
    pub fn wants_rows(&self) -> bool {
        self.connections > 0
    }

    /// Prints the configuration, if the format is JSON.
    pub fn begin(&self, configuration: &Configuration) -> io::Result<()> {
        if !self.json {
            return Ok(());
        }
        let line = serde_json::json!({ "configuration": configuration });
        self.write(&format!("{line}\n"))
    }

    /// Counts an instance as ready. True if all are.
    pub fn mark_ready(&self) -> bool {
        self.change(|state| {
            state.ready += 1;
            state.ready == self.instances
        })
    }

    /// Adds an instance's counts up to this second. The last instance to add prints the sum.
    pub fn add_second(&self, round: u32, totals: Totals, rows: Vec<Row>) -> io::Result<()> {
        self.change(|state| {
            let sum = state.rounds.entry(round).or_default();
            sum.add(totals, rows);
            if sum.instances < self.instances {
                return Ok(());
            }
            let sum = std::mem::take(sum);
            // An earlier round that an instance skipped will never be complete.
            state.rounds.retain(|known, _| *known > round);
            if self.quiet {
                return Ok(());
            }
            self.print(state, sum)
        })
    }

    /// Adds an instance's final counts. The last instance to end prints the sum.
    pub fn end(&self, totals: Totals) -> io::Result<()> {
        self.change(|state| {
            state.ended.add(totals, Vec::new());
            if state.ended.instances < self.instances {
                return Ok(());
            }
            let sum = std::mem::take(&mut state.ended);
            self.print(state, sum)
        })
    }

    fn print(&self, state: &mut State, sum: Sum) -> io::Result<()> {
        let rows = rows::busiest(sum.rows, self.connections);
        let text = if self.json {
            let line = Line {
                totals: &sum.totals,
                connection_table: self.wants_rows().then_some(&rows),
            };
            format!("{}\n", serde_json::to_string(&line)?)
        } else {
            // On a terminal the table replaces the one before, as in top.
            let clear = self.wants_rows() && io::stdout().is_terminal();
            let clear = if clear { "\x1b[H\x1b[J" } else { "" };
            let line = sum.totals.line(&state.before);
            format!("{clear}{line}\n{}", rows::table(&rows))
        };
        state.before = sum.totals;
        self.write(&text)
    }

    fn write(&self, text: &str) -> io::Result<()> {
        if self.quiet {
            return WaitingWriter(io::stderr()).write_all(text.as_bytes());
        }
        WaitingWriter(io::stdout()).write_all(text.as_bytes())
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        // The sums stay valid after a panic of another instance.
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sum {
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
    fn a_second_is_printed_when_all_have_added_it_and_the_end_when_all_have_ended() {
        let reporter = Reporter {
            started: Instant::now(),
            instances: 2,
            json: true,
            quiet: false,
            connections: 0,
            state: Mutex::default(),
        };
        let printed =
            || reporter.change(|state| (state.before.elapsed_ns, state.before.connections));
        assert!(!reporter.mark_ready() && reporter.mark_ready());
        reporter.add_second(1, totals(10, 1), Vec::new()).unwrap();
        reporter.add_second(2, totals(20, 1), Vec::new()).unwrap();
        assert_eq!(printed(), (0, 0));
        reporter.add_second(1, totals(11, 2), Vec::new()).unwrap();
        assert_eq!(printed(), (11, 3));
        reporter.end(totals(25, 4)).unwrap();
        reporter.end(totals(24, 5)).unwrap();
        assert_eq!(printed(), (25, 9));
    }
}
