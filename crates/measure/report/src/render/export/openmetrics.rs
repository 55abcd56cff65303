//! OpenMetrics text 1.0 with timestamps, the input of `promtool tsdb create-blocks-from
//! openmetrics`: every figure of every cell, at the time of the run's last trial.
//!
//! Figures keep their names and units, so that they can be found in docs/quantities.md. (`watch
//! --metrics` exposes counters in base units; here are ratios.)

use std::collections::BTreeMap;
use std::fmt::Write;

use jiff::Timestamp;
use tcpcost_study::Figure;

use crate::derive::cell::CellSummary;
use crate::judge::thresholds::Verdict;
use crate::summary::Summary;

/// Samples by labels; each has values by time in milliseconds. Several times for the same labels
/// are several runs of one study.
type Samples = BTreeMap<String, BTreeMap<Option<i64>, f64>>;

/// Metric family.
struct Family {
    name: String,
    kind: &'static str,
    help: String,
    samples: Samples,
}

impl Family {
    fn new(name: String, kind: &'static str, help: impl Into<String>) -> Family {
        Family {
            name,
            kind,
            help: help.into(),
            samples: Samples::new(),
        }
    }

    fn add(&mut self, labels: &[(&str, &str)], at: Option<i64>, value: f64) {
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
            .collect();
        self.samples
            .entry(labels.join(","))
            .or_default()
            .insert(at, value);
    }

    fn write(&self, out: &mut String) {
        let Family {
            name,
            kind,
            help,
            samples,
        } = self;
        if samples.is_empty() {
            return;
        }
        let _ = writeln!(out, "# TYPE {name} {kind}");
        if let Some(unit) = unit(name) {
            let _ = writeln!(out, "# UNIT {name} {unit}");
        }
        let _ = writeln!(out, "# HELP {name} {}", escaped(help));
        for (labels, points) in samples {
            for (at, value) in points {
                let at = at.map_or(String::new(), |ms| {
                    format!(" {}.{:03}", ms / 1000, ms % 1000)
                });
                let _ = writeln!(out, "{name}{{{labels}}} {value}{at}");
            }
        }
    }
}

/// OpenMetrics document of all runs.
pub fn openmetrics(summaries: &[Summary]) -> String {
    let mut figures: BTreeMap<Figure, Family> = BTreeMap::new();
    let mut trials = Family::new(
        "tcpcost_trials".into(),
        "gauge",
        "Trials of a cell by what became of them.",
    );
    let mut verdicts = Family::new(
        VERDICT.into(),
        "stateset",
        "Result of a threshold: met, missed or inconclusive.",
    );
    for summary in summaries {
        let at = summary
            .started
            .as_ref()
            .and_then(|(_, last)| last.parse::<Timestamp>().ok());
        let at = at.map(Timestamp::as_millisecond);
        let study = summary.study.name.as_str();
        for cell in &summary.cells {
            of_cell(study, cell, at, &mut figures);
            for (state, count) in [
                ("used", cell.n),
                ("marked", cell.n_marked),
                ("failed", cell.n_failed()),
                ("skipped", cell.n_skipped()),
            ] {
                trials.add(
                    &[("study", study), ("cell", &cell.name), ("state", state)],
                    at,
                    count as f64,
                );
            }
        }
        for judged in &summary.judged {
            let (of, cell) = (
                judged.quantity.to_string(),
                judged.cell.as_deref().unwrap_or(""),
            );
            for verdict in [Verdict::Met, Verdict::Missed, Verdict::Inconclusive] {
                let labels = [
                    ("study", study),
                    ("cell", cell),
                    ("quantity", of.as_str()),
                    ("limits", &judged.limits()),
                    (VERDICT, verdict.name()),
                ];
                verdicts.add(&labels, at, f64::from(u8::from(judged.verdict == verdict)));
            }
        }
    }
    let mut out = String::new();
    for family in figures.values().chain([&trials, &verdicts]) {
        family.write(&mut out);
    }
    out + "# EOF\n"
}

/// A state set needs its own name as the label of its states.
const VERDICT: &str = "tcpcost_threshold_verdict";

fn of_cell(
    study: &str,
    cell: &CellSummary,
    at: Option<i64>,
    figures: &mut BTreeMap<Figure, Family>,
) {
    for (of, estimate) in &cell.estimates {
        let family = figures.entry(of.kind).or_insert_with(|| {
            Family::new(
                format!("tcpcost_{}", of.kind.name()),
                "gauge",
                of.kind.definition(),
            )
        });
        let host = of
            .scope
            .name()
            .map(|host| host.to_string())
            .unwrap_or_default();
        let values = [
            ("median", Some(estimate.median)),
            ("lo", estimate.lo),
            ("hi", estimate.hi),
        ];
        for (stat, value) in values {
            // Without a host's name, for all hosts together, the label is empty, which equals no
            // label.
            let labels = [
                ("study", study),
                ("cell", &cell.name),
                ("host", &host),
                ("stat", stat),
            ];
            if let Some(value) = value {
                family.add(&labels, at, value);
            }
        }
    }
}

/// Unit that a metric's name must end in: the words around `_per_`, or the last word. `None` if the
/// name ends in something else, for example a percentile.
fn unit(name: &str) -> Option<&str> {
    let last = name.rsplit('_').next()?;
    match name.find("_per_") {
        Some(per) => {
            let before = name[..per].rfind('_').map_or(0, |at| at + 1);
            Some(&name[before..])
        }
        None => ["ratio", "factor", "bytes", "segments"]
            .contains(&last)
            .then_some(last),
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_the_end_of_the_name() {
        assert_eq!(unit("tcpcost_exact_cpu_us_per_kib"), Some("us_per_kib"));
        assert_eq!(unit("tcpcost_goodput_bits_per_s"), Some("bits_per_s"));
        assert_eq!(unit("tcpcost_idle_ratio"), Some("ratio"));
        assert_eq!(unit("tcpcost_response_us_p99"), None);
    }

    #[test]
    fn two_runs_of_a_study_are_two_points_in_order() {
        let mut family = Family::new("x".into(), "gauge", "a \"b\"\nc");
        family.add(&[("cell", "a\\b")], Some(2_500), 2.0);
        family.add(&[("cell", "a\\b")], Some(1_000), 0.5);
        let mut out = String::new();
        family.write(&mut out);
        let expected = "# TYPE x gauge\n# HELP x a \\\"b\\\"\\nc\nx{cell=\"a\\\\b\"} 0.5 1.000\nx{cell=\"a\\\\b\"} 2 2.500\n";
        assert_eq!(out, expected);
    }
}
