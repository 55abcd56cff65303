//! Findings about the connections of a capture, each with the knob that addresses it: what they
//! waited for most, what failed, and what costs the CPU more than necessary.
//!
//! Shares of time are shares of the time in which an end waited: idle connections do not count.
//! Shares of packets are shares of all captured packets, each of which passes the stack once. The
//! two cannot be added, so they are two lists. Both are estimates: a capture does not hold CPU
//! time.

mod kinds;

use serde::Serialize;

use crate::evidence::Evidence;
use crate::read::Names;
use crate::waits::Wait;

/// Finding: one cost, with its share.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Name for scripts.
    pub kind: &'static str,
    /// Estimated share of `share_of`, 0 to 1.
    pub share_ratio: f64,
    /// Quantity that the share refers to: time, packets or connections.
    pub share_of: &'static str,
    /// Description of the finding.
    pub text: String,
    /// Remedy: a study, a knob, or a socket option.
    pub knob: &'static str,
}

/// Least share that is reported.
const LEAST: f64 = 0.01;

/// Limit of findings in a list.
const LINES: usize = 4;

/// A kind of finding.
struct Kind {
    /// Name for scripts.
    id: &'static str,
    /// Quantity that the share refers to.
    whole: ShareBase,
    /// Description of `part`, for docs/trace.md.
    #[cfg_attr(not(test), allow(dead_code, reason = "the test of the page reads it"))]
    evidence: &'static str,
    /// Remedy: a study, a knob, or a socket option.
    remedy: &'static str,
    /// Part of the whole.
    part: fn(&Evidence) -> f64,
    /// Description of the finding.
    sentence: fn(&Evidence, &Names) -> String,
}

/// Quantity that shares refer to.
#[derive(Clone, Copy)]
enum ShareBase {
    Time,
    Packets,
    Connections,
}

impl ShareBase {
    fn name(self) -> &'static str {
        match self {
            ShareBase::Time => "the time in which connections were not idle",
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

fn seconds(ns: u64) -> String {
    match ns {
        0..10_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

fn megabits(bytes_per_s: f64) -> String {
    format!("{:.1} Mbit/s", bytes_per_s * 8.0 / 1e6)
}

impl Evidence {
    /// Findings about waits and failures, the largest share first.
    pub(crate) fn findings(&self, names: &Names) -> Vec<Finding> {
        self.list(kinds::WAITS, names)
    }

    /// Findings about what costs the CPU more than necessary, the largest share of packets first.
    pub(crate) fn costs(&self, names: &Names) -> Vec<Finding> {
        self.list(kinds::COSTS, names)
    }

    fn list(&self, kinds: &[Kind], names: &Names) -> Vec<Finding> {
        let finding = |kind: &Kind| {
            let whole = kind.whole.of(self);
            let share = (kind.part)(self) / whole;
            (whole > 0.0 && share >= LEAST).then(|| Finding {
                kind: kind.id,
                share_ratio: share.min(1.0),
                share_of: kind.whole.name(),
                text: (kind.sentence)(self, names),
                knob: kind.remedy,
            })
        };
        let mut list: Vec<Finding> = kinds.iter().filter_map(finding).collect();
        list.sort_by(|a, b| b.share_ratio.total_cmp(&a.share_ratio));
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
                "connections were idle for {:.0} % of their time",
                idle as f64 / all as f64 * 100.0
            ));
        }
        if self.keepalive_only > 0 {
            notes.push(format!(
                "{} connections carried nothing but keepalives",
                self.keepalive_only
            ));
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
    fn the_page_has_a_row_for_every_kind() {
        let mut table = String::from("| finding | evidence | remedy |\n|---|---|---|\n");
        let mut whole = "";
        for kind in kinds::WAITS.iter().chain(kinds::COSTS) {
            if kind.whole.name() != whole {
                whole = kind.whole.name();
                table += &format!("| | **share of {whole}** | |\n");
            }
            table += &format!("| `{}` | {} | {} |\n", kind.id, kind.evidence, kind.remedy);
        }
        let page = include_str!("../../../docs/trace.md");
        assert!(page.contains(&table), "docs/trace.md needs this:\n{table}");
    }
}
