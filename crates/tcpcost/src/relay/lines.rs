//! Standard output of a relay: lines of JSON, or a sentence at the end.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tcpcost_console::output;
use tcpcost_relay::{
    Address, Bytes, ConnectionReport, Counters, Direction, Ending, RelayMode, Totals,
};

use super::{CHECK_INTERVAL, sentence};

/// Printer of the lines about connections and totals.
pub struct Lines {
    pub upstreams: Vec<Address>,
    pub is_json: bool,
    /// True if each interval prints a line for each open connection. JSON only.
    pub each: bool,
}

impl Lines {
    /// Prints lines until the relay has ended. A closed standard output does not end the relay.
    pub fn print(
        &self,
        reports: &Receiver<ConnectionReport>,
        every: Option<Duration>,
        counters: &Counters,
        has_ended: impl Fn() -> bool,
    ) -> anyhow::Result<()> {
        let mut next = every.map(|every| Instant::now() + every);
        loop {
            // Asked before the queue is read: connections that ended just before the relay are
            // printed, too.
            let is_last = has_ended();
            let now = Instant::now();
            if next.is_some_and(|next| next <= now) {
                next = every.map(|every| now + every);
                self.interval(counters)?;
            }
            let wait = next.map_or(CHECK_INTERVAL, |next| {
                CHECK_INTERVAL.min(next.saturating_duration_since(now))
            });
            let wait = if is_last { Duration::ZERO } else { wait };
            let mut text = String::new();
            match reports.recv_timeout(wait) {
                Ok(report) => {
                    let more = reports.try_iter().take(1000);
                    for report in std::iter::once(report).chain(more) {
                        text += &format!("{}\n", self.connection(&report));
                    }
                }
                Err(RecvTimeoutError::Timeout) if is_last => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
                // The relay sends no reports of connections without `--format json`.
                Err(RecvTimeoutError::Disconnected) if is_last => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => std::thread::park_timeout(wait),
            }
            if !text.is_empty() {
                output::write(&text)?;
            }
        }
    }

    fn interval(&self, counters: &Counters) -> anyhow::Result<()> {
        let totals = counters.totals();
        let mut text = if self.is_json {
            format!("{}\n", totals_line("totals", &totals))
        } else {
            format!(
                "{} open, {}\n",
                totals.open,
                sentence(&totals, RelayMode::Copy)
            )
        };
        if self.each && self.is_json {
            for report in counters.connections() {
                text += &format!("{}\n", self.connection(&report));
            }
        }
        output::write(&text)?;
        Ok(())
    }

    /// Prints the last line: the totals.
    pub fn end(&self, totals: &Totals, mode: RelayMode) -> anyhow::Result<()> {
        let text = if self.is_json {
            totals_line("end", totals).to_string()
        } else {
            sentence(totals, mode)
        };
        output::write(&(text + "\n"))?;
        Ok(())
    }

    fn connection(&self, report: &ConnectionReport) -> Value {
        let upstream = report.upstream.and_then(|index| self.upstreams.get(index));
        let mut line = Map::new();
        line.insert("event".to_string(), json!("connection"));
        line.insert("id".to_string(), json!(report.id));
        line.insert(
            "source".to_string(),
            json!(report.source.as_ref().map(SocketAddr::to_string)),
        );
        line.insert(
            "upstream".to_string(),
            json!(upstream.map(Address::to_string)),
        );
        line.insert("age_s".to_string(), json!(report.age.as_secs_f64()));
        line.insert("ending".to_string(), json!(report.ending.map(Ending::name)));
        directions(&mut line, &report.bytes);
        Value::Object(line)
    }
}

fn totals_line(event: &str, totals: &Totals) -> Value {
    let mut line = Map::new();
    line.insert("event".to_string(), json!(event));
    line.insert("accepted".to_string(), json!(totals.accepted));
    line.insert("open".to_string(), json!(totals.open));
    directions(&mut line, &totals.bytes);
    let ended: Map<String, Value> = Ending::ALL
        .iter()
        .map(|&ending| (ending.name().to_string(), json!(totals.ended_by(ending))))
        .collect();
    line.insert("ended".to_string(), Value::Object(ended));
    for (name, count) in [
        ("accept_failures", totals.accept_failures),
        ("accept_pauses", totals.accept_pauses),
        ("connect_failures", totals.connect_failures),
        ("pipes", totals.pipes),
        ("pipe_shortages", totals.pipe_shortages),
        ("switches", totals.switches),
        ("stalls", totals.stalls),
    ] {
        line.insert(name.to_string(), json!(count));
    }
    Value::Object(line)
}

fn directions(line: &mut Map<String, Value>, bytes: &[Bytes; 2]) {
    for (direction, bytes) in Direction::ALL.into_iter().zip(bytes) {
        line.insert(
            direction.name().to_string(),
            json!({
                "copied_bytes": bytes.copied,
                "spliced_bytes": bytes.spliced,
                "redirected_bytes": bytes.redirected,
                "abandoned_bytes": bytes.abandoned,
            }),
        );
    }
}
