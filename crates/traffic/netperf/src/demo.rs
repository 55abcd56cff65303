//! Interim results (`-D`; netperf's `netlib.c`, `demo_interval_display`).
//!
//! A timer prints them from counters at exactly the requested interval, while netperf checks its clock after
//! each call. For a stream to netserver they count the bytes that its TCP has acknowledged.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::options::{Direction, Form, Options, Transport};
use crate::traffic::Live;
use crate::units::Unit;

/// Count that a line shows.
#[derive(Debug, Clone, Copy)]
enum Counting {
    Acknowledged,
    /// Bytes received, or sent as datagrams, which nobody acknowledges.
    Moved,
    Transactions,
    /// Bytes of transactions, in both directions together.
    BytesOfTransactions(u64),
}

/// State at the last line.
#[derive(Debug)]
struct State {
    lines: u64,
    last: Instant,
    seen: u64,
}

/// Interim lines of one test.
#[derive(Debug, Clone)]
pub struct Interim {
    live: Arc<Live>,
    counting: Counting,
    form: Lines,
    unit: Unit,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Clone, Copy)]
enum Lines {
    Words,
    Csv,
    Keyval,
}

impl Interim {
    /// Begins to count now.
    pub fn new(options: &Options, live: &Arc<Live>) -> Interim {
        let counting = match options.direction {
            Direction::Send if options.transport == Transport::Tcp => Counting::Acknowledged,
            Direction::Send | Direction::Receive => Counting::Moved,
            Direction::Both if options.unit.counts_transactions() => Counting::Transactions,
            Direction::Both => {
                let bytes = i64::from(options.request) + i64::from(options.response);
                Counting::BytesOfTransactions(bytes.unsigned_abs())
            }
        };
        let form = match options.form {
            Form::Classic | Form::Human => Lines::Words,
            Form::Csv => Lines::Csv,
            Form::Keyval => Lines::Keyval,
        };
        let interim = Interim {
            live: Arc::clone(live),
            counting,
            form,
            unit: options.unit,
            state: Arc::new(Mutex::new(State {
                lines: 0,
                last: Instant::now(),
                seen: 0,
            })),
        };
        let seen = interim.count();
        interim
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .seen = seen;
        interim
    }

    fn count(&self) -> u64 {
        match self.counting {
            Counting::Acknowledged => self.live.acknowledged(),
            Counting::Moved => self.live.bytes(),
            Counting::Transactions => self.live.transactions(),
            Counting::BytesOfTransactions(bytes) => self.live.transactions().saturating_mul(bytes),
        }
    }

    /// Prints a line about the time since the last one. The final line is printed only if there was any
    /// progress.
    pub fn print(&self, is_last: bool) {
        let (now, count) = (Instant::now(), self.count());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let done = count.saturating_sub(state.seen);
        if is_last && done == 0 {
            return;
        }
        let text = self.text(state.lines, done, now - state.last, epoch());
        (state.lines, state.last, state.seen) = (state.lines + 1, now, count);
        // Written in one piece. A closed output does not stop the test.
        let _ = std::io::stdout().write_all(text.as_bytes());
        let _ = std::io::stdout().flush();
    }

    fn text(&self, line: u64, done: u64, span: Duration, now: Duration) -> String {
        let rate = self.unit.of(done as f64, span.as_secs_f64());
        let (unit, span) = (self.unit.name(), span.as_secs_f64());
        let ending = format!("{}.{:03}", now.as_secs(), now.subsec_millis());
        match self.form {
            Lines::Words => {
                format!(
                    "Interim result: {rate:7.2} {unit}/s over {span:.3} seconds ending at {ending}\n"
                )
            }
            Lines::Csv => format!("{rate:7.2},{unit}/s,{span:.3},{ending}\n"),
            Lines::Keyval => format!(
                "NETPERF_INTERIM_RESULT[{line}]={rate:.2}\n\
                 NETPERF_UNITS[{line}]={unit}/s\n\
                 NETPERF_INTERVAL[{line}]={span:.3}\n\
                 NETPERF_ENDING[{line}]={ending}\n"
            ),
        }
    }
}

fn epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(form: Lines) -> String {
        let interim = Interim {
            live: Arc::default(),
            counting: Counting::Moved,
            form,
            unit: Unit::MEGABITS,
            state: Arc::new(Mutex::new(State {
                lines: 0,
                last: Instant::now(),
                seen: 0,
            })),
        };
        let ms = Duration::from_millis;
        interim.text(3, 1_000_000, ms(500), ms(1_700_000_000_042))
    }

    #[test]
    fn the_three_forms_are_netperfs() {
        assert_eq!(
            line(Lines::Words),
            "Interim result:   16.00 10^6bits/s over 0.500 seconds ending at 1700000000.042\n"
        );
        assert_eq!(
            line(Lines::Csv),
            "  16.00,10^6bits/s,0.500,1700000000.042\n"
        );
        assert_eq!(
            line(Lines::Keyval),
            "NETPERF_INTERIM_RESULT[3]=16.00\nNETPERF_UNITS[3]=10^6bits/s\nNETPERF_INTERVAL[3]=0.500\nNETPERF_ENDING[3]=1700000000.042\n"
        );
    }
}
