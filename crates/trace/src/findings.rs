//! Findings about the connections of a capture, each with the knob that addresses it: what they
//! waited for most, what failed, and what costs the CPU more than necessary.
//!
//! Shares of time are shares of the time in which something was awaited: idle connections do not
//! count. Shares of packets are shares of all captured packets, each of which passes the stack
//! once. The two cannot be added, so they are two lists. Both are estimates: a capture does not
//! hold CPU time.

mod kinds;

use serde::Serialize;

use crate::connection::Spot;
use crate::evidence::Evidence;
use crate::read::Names;
use crate::waits::Wait;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Something was not done at all.
    Failure,
    /// Something took longer than necessary.
    Slow,
    /// Usual: the path, its rate, or what cannot be told.
    Usual,
}

impl Severity {
    /// Weight of a share in the order of findings.
    fn weight(self) -> f64 {
        match self {
            Severity::Failure => 2.0,
            Severity::Slow => 1.5,
            Severity::Usual => 1.0,
        }
    }

    /// Name in the page of kinds, as in JSON.
    #[cfg(test)]
    fn name(self) -> &'static str {
        match self {
            Severity::Failure => "failure",
            Severity::Slow => "slow",
            Severity::Usual => "usual",
        }
    }
}

/// Finding: one cost, with its share.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Name for scripts.
    pub kind: &'static str,
    /// Severity: findings are in the order of their shares, of which a failure weighs twice and what is slow one and a
    /// half times.
    pub severity: Severity,
    /// Cause in plain words.
    pub cause: &'static str,
    /// Estimated share of `share_of`, 0 to 1.
    pub share_ratio: f64,
    /// Quantity that the share refers to: time, packets or connections.
    pub share_of: &'static str,
    /// Time of the share, ns. `None` if the share is not one of time.
    pub time_ns: Option<u64>,
    /// Description of the evidence.
    pub text: String,
    /// Frames at which it shows. `None` if the frames are not known.
    pub frames: Option<Spot>,
    /// Remedy: a study, a knob, or a socket option.
    pub knob: &'static str,
}

impl Finding {
    /// The cause, its share, and the time if it is one of time.
    pub fn in_short(&self) -> String {
        let share = self.share_ratio * 100.0;
        let time = self.time_ns.map(|ns| format!(", {}", seconds(ns)));
        let time = time.unwrap_or_default();
        format!("{}: {share:.0} % of {}{time}", self.cause, self.share_of)
    }
}

/// Least share that is reported.
const LEAST: f64 = 0.01;

/// Limit of findings in a list.
const LINES: usize = 4;

/// Packets with payload from which advice about the CPU is given. Fewer cost less than 10 ms of it.
const COSTLY_PACKETS: u64 = 1000;

/// A kind of finding.
struct Kind {
    /// Name for scripts.
    id: &'static str,
    severity: Severity,
    /// Quantity that the share refers to.
    whole: ShareBase,
    /// Cause in plain words.
    cause: fn(&Evidence) -> &'static str,
    /// Description of `part`, for docs/trace.md.
    #[cfg_attr(not(test), allow(dead_code, reason = "the test of the page reads it"))]
    definition: &'static str,
    /// Remedy: a study, a knob, or a socket option.
    remedy: &'static str,
    /// Frames at which it shows. All packets show some kinds.
    frames: fn(&Evidence) -> Spot,
    /// Part of the whole.
    part: fn(&Evidence) -> f64,
    /// Description of the evidence.
    sentence: fn(&Evidence, &Names) -> String,
}

/// Quantity that shares refer to.
#[derive(Clone, Copy, PartialEq)]
enum ShareBase {
    Time,
    Packets,
    Connections,
}

impl ShareBase {
    fn name(self) -> &'static str {
        match self {
            ShareBase::Time => "the time in which something was awaited",
            ShareBase::Packets => "all captured packets",
            ShareBase::Connections => "all connections",
        }
    }

    fn of(self, evidence: &Evidence) -> f64 {
        match self {
            ShareBase::Time => evidence.waited_ns(),
            ShareBase::Packets => evidence.total.captured_packets as f64,
            ShareBase::Connections => evidence.connections as f64,
        }
    }
}

pub(crate) fn seconds(ns: u64) -> String {
    match ns {
        0..10_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

fn megabits(bytes_per_s: f64) -> String {
    format!("{:.1} Mbit/s", bytes_per_s * 8.0 / 1e6)
}

/// A number with its noun, in the singular or with an s.
pub(crate) fn count(n: u64, noun: &str) -> String {
    match n {
        1 => format!("1 {noun}"),
        _ => format!("{n} {noun}s"),
    }
}

impl Evidence {
    /// Findings about waits and failures, the weightiest first.
    pub(crate) fn findings(&self, names: &Names) -> Vec<Finding> {
        self.list(kinds::WAITS, names)
    }

    /// Findings about what costs the CPU more than necessary, the largest share of packets first. None of a capture that is
    /// too small to cost any.
    pub(crate) fn costs(&self, names: &Names) -> Vec<Finding> {
        if self.total.captured_data_packets < COSTLY_PACKETS {
            return Vec::new();
        }
        self.list(kinds::COSTS, names)
    }

    /// The weightiest cause of waits and failures: its id, and the cause in plain words. `None` without findings.
    pub(crate) fn leading_cause(&self) -> Option<(&'static str, &'static str)> {
        let weight = |kind: &&Kind| {
            let whole = kind.whole.of(self);
            let share = ((kind.part)(self) / whole).min(1.0);
            match whole > 0.0 && share >= LEAST {
                true => share * kind.severity.weight(),
                false => 0.0,
            }
        };
        let kinds = kinds::WAITS.iter().filter(|kind| weight(kind) > 0.0);
        let leads = kinds.max_by(|a, b| weight(a).total_cmp(&weight(b)))?;
        Some((leads.id, (leads.cause)(self)))
    }

    fn list(&self, kinds: &[Kind], names: &Names) -> Vec<Finding> {
        let finding = |kind: &Kind| {
            let whole = kind.whole.of(self);
            let part = (kind.part)(self);
            let share = part / whole;
            let spot = (kind.frames)(self);
            (whole > 0.0 && share >= LEAST).then(|| Finding {
                kind: kind.id,
                severity: kind.severity,
                cause: (kind.cause)(self),
                share_ratio: share.min(1.0),
                share_of: kind.whole.name(),
                time_ns: (kind.whole == ShareBase::Time).then_some(part as u64),
                text: (kind.sentence)(self, names),
                frames: (spot.first_frame > 0).then_some(spot),
                knob: kind.remedy,
            })
        };
        let mut list: Vec<Finding> = kinds.iter().filter_map(finding).collect();
        let weight = |of: &Finding| of.share_ratio * of.severity.weight();
        list.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
        list.truncate(LINES);
        list
    }

    fn waited_ns(&self) -> f64 {
        self.waits
            .total_ns()
            .saturating_sub(self.waits.of(Wait::Idle)) as f64
    }

    /// Remarks that are no findings: nothing waited for them, but a reader should know them.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let all = self.waits.total_ns();
        let idle = self.waits.of(Wait::Idle);
        if all > 0 && idle > all / 2 {
            notes.push(format!(
                "connections were idle for {:.0} % of their time: no exchange was under way",
                idle as f64 / all as f64 * 100.0
            ));
        }
        if self.keepalive_only > 0 {
            let some = count(self.keepalive_only, "connection");
            notes.push(format!("{some} carried nothing but keepalives"));
        }
        if self.total.is_unclear() {
            notes.push(format!(
                "{} packets were retransmitted or captured twice: the packets do not show which, so the number of retransmissions is unknown",
                self.total.repeats_unclear
            ));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_kinds_is_written_from_the_table() {
        let mut page = String::from(
            "# Findings of `tcpcost trace`\n\nWritten from the table of kinds (`crates/trace/src/findings/kinds.rs`) by a test; `TCPCOST_REWRITE=1` rewrites it.\nJSON names the id in `kind`. A share below 1 % is not reported. Findings are in the order of their shares, of which a failure\nweighs twice and what is slow one and a half times. [How a capture is judged](captures.md#how-a-capture-is-judged) explains the terms.\n",
        );
        let mut whole = "";
        for kind in kinds::WAITS.iter().chain(kinds::COSTS) {
            if kind.whole.name() != whole {
                whole = kind.whole.name();
                page += &format!(
                    "\n## Shares of {whole}\n\n| id | severity | first words | definition | remedy |\n|---|---|---|---|---|\n"
                );
            }
            let cause = (kind.cause)(&Evidence::default());
            page += &format!(
                "| `{}` | {} | {cause} | {} | {} |\n",
                kind.id,
                kind.severity.name(),
                kind.definition,
                kind.remedy
            );
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/trace.md");
        if std::env::var_os("TCPCOST_REWRITE").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(written, page, "TCPCOST_REWRITE=1 rewrites docs/trace.md");
    }
}
