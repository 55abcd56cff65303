//! Output of `stat`: a sentence, the verdict and the rows; or one JSON document, or CSV.

use std::fmt::Write;

use serde_json::{Value, json};
use tcpcost_counts::table::{ABSENT, Align, Table, WIDTH, wrap};
use tcpcost_counts::{MeterName, csv_field, exact_cost_ns, printable};
use tcpcost_host::error::remedy;
use tcpcost_host::is_root;
use tcpcost_report::{CONFIDENCE, Decision, Estimate};

use super::Measured;
use super::measure::About;
use super::rows::{ROWS, Row, Traffic, row};
use super::versus::Verdict;

/// Version of the JSON document: docs/records.md.
const SCHEMA_VERSION: u32 = 1;

/// Results of all commands.
pub struct Document<'a> {
    pub about: About,
    pub measured: &'a [Measured],
    pub verdict: Option<&'a Verdict>,
}

impl Document<'_> {
    /// Results as text, within 100 columns.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if let Some(verdict) = self.verdict {
            let _ = writeln!(text, "\n{}", wrap(&self.verdict_text(verdict), WIDTH, ""));
        }
        for measured in self.measured {
            let _ = writeln!(text, "\n{}", wrap(&self.headline(measured), WIDTH, ""));
        }
        text += &self.rows();
        text.push('\n');
        for line in self.notes() {
            let _ = writeln!(text, "{}", wrap(&line, WIDTH, "  "));
        }
        text
    }

    /// Rows by section, with a column for each command. A row without a value, or with 0 for all commands, is
    /// omitted.
    fn rows(&self) -> String {
        let mut columns = vec![("", Align::Left)];
        columns.extend(self.measured.iter().map(|_| ("", Align::Right)));
        columns.push(("", Align::Left));
        let mut table = Table::aligned(&columns);
        let is_own = |measured: &Measured| Traffic::of(&measured.runs) == Traffic::Own;
        let are_own = self.measured.iter().all(is_own);
        let mut section = "";
        for row in ROWS {
            let estimates = self.measured.iter();
            let estimates = estimates.map(|measured| row.estimate(&measured.runs));
            let estimates: Vec<Option<Estimate>> = estimates.collect();
            let has_value =
                |estimate: &Option<Estimate>| estimate.is_some_and(|one| one.median != 0.0);
            let is_chatter = row.key.contains("_per_payload_") && !are_own;
            if is_chatter || !estimates.iter().any(has_value) {
                continue;
            }
            if row.section != section {
                section = row.section;
                table.heading(&format!("\n{section}"));
            }
            let mut cells = vec![format!("  {}", row.label)];
            cells.extend(estimates.iter().map(|estimate| match estimate {
                Some(estimate) => number(row, estimate.median),
                None => ABSENT.to_string(),
            }));
            // Two commands are compared by their ratio, whose interval is narrower than that of either command.
            let interval = match &estimates[..] {
                [Some(only)] => interval(row, only),
                _ => self.ratio(row).map(percent),
            };
            cells.push(interval.unwrap_or_default());
            table.row(cells);
        }
        table.text(0, WIDTH)
    }

    /// The command and its cost in one sentence.
    fn headline(&self, measured: &Measured) -> String {
        let name = match (&measured.command[..], self.about.is_attached) {
            ([], _) => "the attached workload".to_string(),
            (command, true) => format!("the attached workload, while `{}` ran", command.join(" ")),
            (command, false) => format!("`{}`", command.join(" ")),
        };
        let runs = match measured.runs.len() {
            1 => "1 run".to_string(),
            n => format!("{n} runs"),
        };
        let of = |key| row(key).estimate(&measured.runs);
        let value = |key| of(key).map(|estimate| number(row(key), estimate.median));
        let costs = measured
            .runs
            .iter()
            .filter_map(|run| exact_cost_ns(&run.growth));
        let cost = Estimate::new(costs);
        let Some(cost) = cost else {
            let why = if self.about.lacks_privileges {
                "not measured (needs more privileges)"
            } else {
                "not measured here"
            };
            let tasks = value("task_clock_ns").or_else(|| value("command_cpu_ns"));
            return match tasks {
                Some(tasks) => format!(
                    "{name} ({runs}) took {tasks} of CPU in its own threads; softirqs and interrupts for its sockets were {why}."
                ),
                None => format!("{name} ({runs}): CPU time {why}."),
            };
        };
        let own = of("exact_task_own_ns").map_or(0.0, |own| own.median);
        let rest = if self.about.has_owners {
            "softirqs and interrupts for its sockets"
        } else {
            "softirqs, interrupts and kernel threads, also for other programs"
        };
        let share = own_share(own, cost.median, rest);
        let mut text = format!("{name} ({runs}) cost {} of CPU, {share}", time(cost.median));
        if let Some(per) = value("exact_cpu_us_per_transaction") {
            let _ = write!(text, ": {per} a unit");
        } else if Traffic::of(&measured.runs) == Traffic::Own
            && let Some(per) = value("command_exact_cpu_us_per_payload_kib")
        {
            let _ = write!(text, ": {per} of TCP payload");
        }
        text + "."
    }

    fn verdict_text(&self, verdict: &Verdict) -> String {
        let ratio = percent(&verdict.ratio);
        let what = format!("{} ({})", verdict.of.label, verdict.of.key);
        let pairs = verdict.ratio.n;
        let mut text = match verdict.decision {
            Decision::Improves => format!("IMPROVES: the second command costs less: {ratio}"),
            Decision::Regresses => format!("REGRESSES: the second command costs more: {ratio}"),
            Decision::Equivalent => format!(
                "EQUIVALENT: their costs differ by less than {} %: {ratio}",
                100.0 * verdict.min_effect
            ),
            Decision::Inconclusive => format!("INCONCLUSIVE: no verdict at {ratio}"),
        };
        let _ = write!(text, ", {what}, {pairs} pairs.");
        match (verdict.decision, verdict.pairs_needed) {
            (Decision::Inconclusive, Some(needed)) if verdict.stops_early => {
                let _ = write!(
                    text,
                    " About {needed} pairs would be needed: allow more --time."
                );
            }
            (Decision::Inconclusive, Some(needed)) => {
                let _ = write!(text, " About {needed} pairs would be needed: -n {needed}.");
            }
            (Decision::Inconclusive, None) if verdict.stops_early => {
                text += " Fewer than 7 pairs have no interval: allow more --time.";
            }
            (Decision::Inconclusive, None) => {
                text += " Fewer than 6 pairs have no interval: -n 6 or more."
            }
            _ => {}
        }
        text
    }

    /// Ratio of the second command to the first in this row.
    fn ratio(&self, row: &Row) -> Option<&Estimate> {
        let verdict = self.verdict?;
        if row.key == verdict.of.key {
            return Some(&verdict.ratio);
        }
        let mut causes = verdict.causes.iter();
        causes
            .find(|(of, _)| of.key == row.key)
            .map(|(_, ratio)| ratio)
    }

    /// Lines about the scope of the numbers, and about missing values.
    fn notes(&self) -> Vec<String> {
        let about = &self.about;
        let namespace = match (about.is_fresh, about.is_elsewhere) {
            (true, _) => "a fresh network namespace: all TCP in it is the command's",
            (_, true) => {
                "the network namespace of the attached processes: TCP of other programs in it is counted, too"
            }
            _ => {
                "this network namespace: TCP of other programs in it is counted, too (--fresh-netns separates them)"
            }
        };
        let mut lines = vec![format!("Measured in {namespace}.")];
        if about.has_owners {
            lines.push(format!(
                "CPU time is the command's on all {} CPUs: its tasks, and softirqs and interrupts for its sockets.",
                about.cpus
            ));
        } else if about.has_exact {
            lines.push(format!(
                "CPU time is of all {} CPUs, with the softirqs, interrupts and kernel threads of all programs.",
                about.cpus
            ));
        }
        let mut measured = self.measured.iter();
        if measured.any(|measured| Traffic::of(&measured.runs) == Traffic::Shared) {
            lines.push("The payload includes other programs' TCP, so there is no cost per KiB. --fresh-netns separates them.".to_string());
        }
        let runs = self.measured.iter().map(|measured| measured.runs.len());
        let runs = runs.max().unwrap_or(0);
        lines.push(match runs {
            1 => "One run: no interval. -n 6 or more gives one.".to_string(),
            2..=5 => "Medians; fewer than 6 runs have no interval.".to_string(),
            _ => format!(
                "Medians [{:.0} % interval of the median].",
                100.0 * CONFIDENCE
            ),
        });
        if let Some(per) = &about.per {
            let has =
                |measured: &Measured| measured.runs.iter().all(|run| run.growth.units.is_some());
            if !self.measured.iter().all(has) {
                lines.push(format!(
                    "--per: no number by /{per}/ in the output of some runs."
                ));
            }
        }
        // The first run that has any speaks for all.
        let mut runs = self.measured.iter().flat_map(|measured| &measured.runs);
        let warned = runs.find(|run| !run.growth.warnings.is_empty());
        lines.extend(
            warned
                .iter()
                .flat_map(|run| run.growth.warnings.iter().cloned()),
        );
        lines.extend(about.refused.iter().cloned());
        if about.lacks_privileges {
            lines.push(advice());
        }
        lines
    }

    /// Results as one JSON document.
    pub fn json(&self) -> String {
        let commands: Vec<Value> = self
            .measured
            .iter()
            .map(|measured| self.command(measured))
            .collect();
        let verdict = self.verdict.map(|verdict| {
            let contrast = |(row, ratio): &(&Row, Estimate)| (row.key.to_string(), json!(ratio));
            json!({
                "verdict": verdict.decision.name(),
                "of": verdict.of.key,
                "ratio": verdict.ratio,
                "min_effect_ratio": verdict.min_effect,
                "pairs_needed": verdict.pairs_needed,
                "ratios": verdict.causes.iter().map(contrast).collect::<serde_json::Map<_, _>>(),
            })
        });
        let document = json!({
            "schema_version": SCHEMA_VERSION,
            "cpus": self.about.cpus,
            "network_namespace": match (self.about.is_fresh, self.about.is_elsewhere) {
                (true, _) => "fresh",
                (_, true) => "attached",
                _ => "this",
            },
            "attached": self.about.is_attached,
            "confidence": CONFIDENCE,
            "commands": commands,
            "versus": verdict,
            "unavailable": self.about.refused,
        });
        format!("{document}\n")
    }

    fn command(&self, measured: &Measured) -> Value {
        let rows: serde_json::Map<String, Value> = ROWS
            .iter()
            .filter_map(|row| {
                let estimate = row.estimate(&measured.runs)?;
                let meters: Vec<&str> = row.meters().into_iter().map(MeterName::name).collect();
                let value = json!({
                    "unit": row.unit(),
                    "meters": meters,
                    "median": estimate.median,
                    "lo": estimate.lo,
                    "hi": estimate.hi,
                    "n": estimate.n,
                });
                Some((row.key.to_string(), value))
            })
            .collect();
        let runs: Vec<Value> = measured
            .runs
            .iter()
            .map(|run| {
                let values = ROWS
                    .iter()
                    .filter_map(|row| Some((row.key.to_string(), json!(row.value(run)?))));
                json!({
                    "exit_code": run.code,
                    "values": values.collect::<serde_json::Map<_, _>>(),
                })
            })
            .collect();
        json!({"command": measured.command, "estimates": rows, "runs": runs})
    }

    /// Results as CSV: a row for each command and quantity.
    pub fn csv(&self) -> String {
        let mut text = "command,quantity,unit,median,lo,hi,n\n".to_string();
        for measured in self.measured {
            for row in ROWS {
                let Some(estimate) = row.estimate(&measured.runs) else {
                    continue;
                };
                let end = |end: Option<f64>| end.map(|end| end.to_string()).unwrap_or_default();
                let _ = writeln!(
                    text,
                    "{},{},{},{},{},{},{}",
                    quoted(&csv_field(&printable(&measured.command.join(" ")))),
                    row.key,
                    row.unit(),
                    estimate.median,
                    end(estimate.lo),
                    end(estimate.hi),
                    estimate.n
                );
            }
        }
        text
    }
}

/// Advice to one who lacks capabilities.
fn advice() -> String {
    if is_root() {
        return format!("To measure them: {}.", remedy());
    }
    let program = std::env::current_exe().map_or("tcpcost".to_string(), |path| {
        printable(&path.to_string_lossy()).to_string()
    });
    format!(
        "To measure them: sudo setcap cap_bpf,cap_perfmon,cap_net_admin=ep {program} (once; commands stay this user's), or sudo tcpcost stat … (the command runs as root)."
    )
}

/// Quotes a CSV field if it needs quotes (RFC 4180 §2).
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_string()
    }
}

/// Formats the interval of a median. `None` if there is none.
fn interval(row: &Row, estimate: &Estimate) -> Option<String> {
    let (lo, hi) = estimate.lo.zip(estimate.hi)?;
    Some(format!("[{}, {}]", bare(row, lo), bare(row, hi)))
}

/// Formats a ratio as a change: `−23.0 % [−28.0, −19.0]`.
fn percent(ratio: &Estimate) -> String {
    let of = |ratio: f64| format!("{:+.1}", (ratio - 1.0) * 100.0).replace('-', "−");
    match (ratio.lo, ratio.hi) {
        (Some(lo), Some(hi)) => format!("{} % [{}, {}]", of(ratio.median), of(lo), of(hi)),
        _ => format!("{} %", of(ratio.median)),
    }
}

/// Formats a value with its unit.
fn number(row: &Row, value: f64) -> String {
    match row.unit() {
        "ns" => time(value),
        "bytes" => bytes(value),
        "ratio" => format!("{:.1} %", 100.0 * value),
        "" | "instructions" | "cycles" | "segments" | "ACKs" => short(value),
        unit => format!("{} {unit}", digits(value)),
    }
}

/// Formats an end of an interval: like [`number`], without a unit that both ends share.
fn bare(row: &Row, value: f64) -> String {
    match row.unit() {
        "ns" | "bytes" | "ratio" => number(row, value),
        "" | "instructions" | "cycles" | "segments" | "ACKs" => short(value),
        _ => digits(value),
    }
}

/// Share of a command's cost that its own threads have. `rest`: the owners of the rest.
fn own_share(own_ns: f64, cost_ns: f64, rest: &str) -> String {
    match 100.0 * own_ns / cost_ns.max(1.0) {
        percent if percent >= 99.5 => "all of it in its own threads".to_string(),
        percent => format!("{percent:.0} % of it in its own threads and the rest in {rest}"),
    }
}

fn time(ns: f64) -> String {
    match ns {
        ns if ns >= 1e9 => format!("{} s", digits(ns / 1e9)),
        ns if ns >= 1e6 => format!("{} ms", digits(ns / 1e6)),
        ns => format!("{} µs", digits(ns / 1e3)),
    }
}

fn bytes(value: f64) -> String {
    match value {
        value if value >= 1024.0 * 1024.0 * 1024.0 => {
            format!("{} GiB", digits(value / 1_073_741_824.0))
        }
        value if value >= 1024.0 * 1024.0 => format!("{} MiB", digits(value / 1_048_576.0)),
        value if value >= 1024.0 => format!("{} KiB", digits(value / 1024.0)),
        value => format!("{} B", digits(value)),
    }
}

/// Formats a count: whole below ten thousand, then in thousands.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e9 => format!("{} G", digits(value / 1e9)),
        value if value >= 1e6 => format!("{} M", digits(value / 1e6)),
        value if value >= 1e4 => format!("{} k", digits(value / 1e3)),
        value if value.fract() == 0.0 => format!("{value:.0}"),
        value => digits(value),
    }
}

/// Formats a number with three digits.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_three_digits_in_the_unit_that_fits() {
        assert_eq!(time(1_234_567.0), "1.23 ms");
        assert_eq!(time(12.0), "0.01 µs");
        assert_eq!(bytes(3_221_225_472.0), "3.00 GiB");
        assert_eq!(short(12_345.0), "12.3 k");
        assert_eq!(short(42.0), "42");
    }

    #[test]
    fn the_share_of_the_commands_own_threads_is_of_all_that_it_cost() {
        let share = |own_ns| own_share(own_ns, 1e9, "softirqs");
        assert_eq!(
            share(9e8),
            "90 % of it in its own threads and the rest in softirqs"
        );
        assert_eq!(share(9.96e8), "all of it in its own threads");
    }

    #[test]
    fn a_command_with_commas_is_one_field() {
        assert_eq!(quoted("curl a,b"), "\"curl a,b\"");
        assert_eq!(quoted("echo \"a\""), "\"echo \"\"a\"\"\"");
        assert_eq!(quoted("true"), "true");
    }
}
