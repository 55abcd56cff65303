//! Findings as sentences for text, JSON and page.
//!
//! No sentence claims an effect if the interval includes zero or is missing.

use tcpcost_study::{Derived, Value};

use crate::derive::estimate::Estimate;
use crate::derive::number::precise;
use crate::judge::conclusions::{Against, Finding, FindingKind, Step};
use crate::judge::held::Held;
use crate::judge::second_clock::ByInstructions;
use crate::judge::sign::Sign;
use crate::summary::Summary;
use crate::words::common_words::{beginning, ending};
use crate::words::comparisons;
use crate::words::copied;
use crate::words::crossovers;
use crate::words::effects;
use crate::words::labels;
use crate::words::layers;
use crate::words::only_cell;

/// Sentences of all findings: the study's conclusions, its captures, the effects of its knobs.
pub(crate) fn found(summary: &Summary) -> Vec<String> {
    let of_captures = summary.openings.iter();
    let of_captures = of_captures.filter_map(|openings| openings.sentence.clone());
    // Cells of a comparison differ only in what is compared.
    let is_comparison = !summary.study.comparisons.is_empty();
    let effects = summary.effects.iter().filter(|_| !is_comparison);
    let verdicts = comparisons::sentences(&summary.comparisons).into_iter();
    let differences = summary
        .differences
        .iter()
        .map(|line| format!("The runs were made on {line}."));
    let lone = only_cell::sentence(summary);
    let by_instructions = summary.by_instructions.as_ref();
    let by_effects = by_instructions.map_or(&[][..], |by| &by.effects).iter();
    verdicts
        .chain(lone.filter(|_| summary.findings.is_empty()))
        .chain(differences)
        .chain(sentences(&summary.findings, by_instructions))
        .chain(of_captures)
        .chain(effects.map(effects::sentence))
        .chain(by_effects.map(|effect| format!("By instructions: {}", effects::sentence(effect))))
        .chain(layers::sentences(summary))
        .chain(copied::sentences(summary))
        .collect()
}

/// Sentences of findings, each followed by the same in instructions. A finding that continues another one shares its sentence.
fn sentences(findings: &[Finding], by_instructions: Option<&ByInstructions>) -> Vec<String> {
    let mut sentences: Vec<String> = Vec::new();
    for (index, one) in findings.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| &findings[before]);
        let counted = counted(one, by_instructions.and_then(|by| by.findings.get(&index)));
        match sentences.last_mut() {
            Some(sentence) if one.continues => {
                *sentence += &format!("; {}{counted}", clause(one, before));
            }
            _ => sentences.push(clause(one, None) + &counted),
        }
    }
    sentences
        .into_iter()
        .map(|sentence| sentence + ".")
        .collect()
}

/// Clause about a finding by instructions; empty if there is none.
fn counted(found: &Finding, by_instructions: Option<&Finding>) -> String {
    let Some(by) = by_instructions else {
        return String::new();
    };
    let told = match &by.kind {
        FindingKind::Change { steps, .. } => {
            let names = steps.len() > 1;
            let told = steps.iter().map(|one| match names {
                true => format!("{} {}", one.to, step(by.quantity, one, false)),
                false => step(by.quantity, one, false),
            });
            told.collect::<Vec<_>>().join(", ")
        }
        _ => clause(by, Some(found)),
    };
    format!("; by instructions: {told}")
}

/// Sentence of the finding with this index, followed by the same in instructions.
pub(crate) fn sentence_of(summary: &Summary, index: usize) -> String {
    let found = &summary.findings[index];
    let by = summary.by_instructions.as_ref();
    clause(found, None) + &counted(found, by.and_then(|by| by.findings.get(&index))) + "."
}

/// Sentence of one finding.
pub(crate) fn sentence(found: &Finding) -> String {
    clause(found, None) + "."
}

/// Clause of one finding, without words that the previous clause has already.
fn clause(found: &Finding, before: Option<&Finding>) -> String {
    let text = match before {
        Some(before) if before.text == found.text => String::new(),
        _ => format!("{}: ", found.text),
    };
    let said = before.map_or(String::new(), of);
    let of = match of(found) {
        of if of == said => String::new(),
        of => of,
    };
    let claim = match &found.kind {
        FindingKind::Value { cells, published } => {
            format!("{of}{}", value(found.quantity, cells, *published))
        }
        FindingKind::Change {
            knob,
            from,
            at,
            steps,
        } => {
            let first = (!of.is_empty()).then_some((knob.as_str(), from));
            which(at) + &change(found.quantity, first, steps)
        }
        FindingKind::Crossover {
            knob,
            from,
            to,
            over,
            at,
            crossings,
        } => {
            let at = which(at);
            let what = match of.is_empty() {
                true => to.to_string(),
                false => format!("{knob} {to} instead of {from}, by {over},"),
            };
            format!("{at}{what} {}", crossovers::told(crossings))
        }
        FindingKind::Line {
            over,
            slope,
            intercept,
            published,
            ..
        } => match slope {
            None => format!("no line{of}; fewer than three cells had numbers"),
            Some(slope) => line(
                found.quantity,
                *over,
                slope,
                intercept.as_ref(),
                *published,
                &of,
            ),
        },
    };
    format!("{text}{claim}")
}

/// Clauses about the changes at all values. The first one names the quantity and `knob_and_from`, if given.
fn change(of: Derived, knob_and_from: Option<(&str, &Value)>, steps: &[Step]) -> String {
    let size = |one: &Step| one.percent.map_or(0.0, |percent| percent.median.abs());
    let explained = steps.iter().enumerate();
    let largest = explained
        .filter_map(|(index, one)| Some((index, one.because?, size(one))))
        .max_by(|(_, _, one), (_, _, other)| one.total_cmp(other));
    let clauses = steps.iter().enumerate().map(|(index, one)| {
        let first = knob_and_from.filter(|_| index == 0);
        let to = match first {
            Some((knob, from)) => format!("{knob} {} instead of {from}", one.to),
            None => one.to.to_string(),
        };
        let why = largest.filter(|(at, ..)| *at == index);
        let why = why.map_or(String::new(), |(_, reason, _)| effects::because(reason));
        format!("{to} {}{why}", step(of, one, first.is_some()))
    });
    clauses.collect::<Vec<_>>().join(", ")
}

/// Prefix that names the cells, if there are several groups.
fn which(at: &str) -> String {
    match at {
        "" => String::new(),
        at => format!("{at}: "),
    }
}

/// Quantity of a finding, and what it is compared with.
fn of(found: &Finding) -> String {
    let quantity = labels::quantity(found.quantity);
    match &found.kind {
        FindingKind::Value { .. } => {
            format!("{quantity} ({}) ", found.quantity.kind.shown_unit().0)
        }
        FindingKind::Change { knob, from, .. } => format!("{quantity}, against {knob} {from}, "),
        FindingKind::Crossover {
            knob,
            from,
            to,
            over,
            ..
        } => format!("{quantity}, {knob} {to} against {from} over {over}, "),
        FindingKind::Line {
            over, cells, slope, ..
        } => {
            let each = slope.map_or(String::new(), |slope| {
                format!(" in each of {} repetitions", slope.n)
            });
            let over = labels::quantity(*over);
            format!(" through {cells} cells of {quantity} over {over}{each}")
        }
    }
}

fn value(of: Derived, cells: &[(String, Option<Estimate>)], published: Option<f64>) -> String {
    let (_, scale) = of.kind.shown_unit();
    let names: Vec<&str> = cells.iter().map(|(name, _)| name.as_str()).collect();
    let common = beginning(&names);
    // An ending that all names share distinguishes none.
    let ending = ending(&names, common);
    let shown_name = |name: &str| {
        let own = &name[common..name.len() - ending];
        own.trim_end_matches([',', ':']).to_string()
    };
    let range = |cell: &(String, Option<Estimate>)| {
        // A median of 0 is shown without an interval.
        let zero = |it: &Estimate| it.median == 0.0 && it.hi.unwrap_or(0.0) == 0.0;
        cell.1.map(|it| match zero(&it) {
            true => (0.0, None, None),
            false => (it.median, it.lo, it.hi),
        })
    };
    let shown = cells.chunk_by(|a, b| range(a) == range(b)).map(|alike| {
        let name = match alike {
            _ if cells.len() == 1 => String::new(),
            [(only, _)] => format!("{}: ", shown_name(only)),
            all if all.len() == cells.len() => format!("in all {} cells ", all.len()),
            [(first, _), .., (last, _)] => {
                format!("{} to {}: ", shown_name(first), shown_name(last))
            }
            [] => unreachable!("a chunk has at least one cell"),
        };
        let Some(estimate) = &alike[0].1 else {
            return format!("{name}not measured");
        };
        let published = published.map_or(String::new(), |figure| {
            let against = Against::of(estimate, figure);
            let figure = precise(figure * scale, decimals(estimate, scale));
            beside(&figure, against, "too few trials to show a difference")
        });
        format!("{name}{}{published}", with_interval(estimate, scale))
    });
    let shown: Vec<String> = shown.collect();
    let beginning = names.first().map_or("", |name| &name[..common]);
    // The start of a knob's value is no heading for all cells.
    let beginning = match shown.len() {
        1 if beginning.ends_with('=') => "",
        _ => beginning,
    };
    format!("{beginning}{}", shown.join(", "))
}

/// A published figure and how ours compares with it. `unknown` describes a comparison without an interval.
fn beside(figure: &str, against: Against, unknown: &str) -> String {
    let words = match against {
        Against::Within => "in the interval",
        Against::Near => "the same within 0.5 %",
        Against::Below => "less here",
        Against::Above => "more here",
        Against::Unknown => unknown,
    };
    let between = if words.is_empty() { "" } else { ", " };
    format!(" (published {figure}{between}{words})")
}

/// Clause about the change at one value. Names the quantity if it is the first.
fn step(of: Derived, step: &Step, is_first: bool) -> String {
    let Some(percent) = &step.percent else {
        return match &step.incomparable {
            Some(reason) => format!("is not comparable: {reason}"),
            None => "was not measured".to_string(),
        };
    };
    let claim = match is_first {
        true => effects::claim(of, percent),
        false => effects::again(of, percent),
    };
    let published = step.published_percent.map_or(String::new(), |figure| {
        // For a decrease, the lower end is the larger effect.
        let against = match Against::of(percent, figure) {
            Against::Below if figure < 0.0 => Against::Above,
            Against::Above if figure < 0.0 => Against::Below,
            other => other,
        };
        let signed = format!("{figure:+.1} %").replace('-', "\u{2212}");
        beside(&signed, against, "")
    });
    let held = step.held.map_or("", |held| match held {
        Held::Holds => " (as stated)",
        Held::Fails => " (not as stated)",
        Held::Undecided | Held::NotTested => " (the statement is not decided)",
    });
    format!("{claim}{published}{held}")
}

fn line(
    of: Derived,
    over: Derived,
    slope: &Estimate,
    intercept: Option<&Estimate>,
    published: Option<f64>,
    through: &str,
) -> String {
    let (unit, one) = slope_unit(of, over);
    let by = match through {
        "" => String::new(),
        through => format!(", by a line{through}"),
    };
    let published = published.map_or(String::new(), |figure| {
        let against = Against::of(slope, figure);
        let figure = precise(figure, decimals(slope, 1.0));
        beside(&figure, against, "too few repetitions to show a difference")
    });
    let shown = with_interval(slope, 1.0);
    let told = match Sign::of(slope) {
        Sign::Open => format!("no effect of {one} is established: {shown} {unit}"),
        Sign::Unknown => format!("{shown} {unit}, of too few repetitions for an interval"),
        Sign::Below | Sign::Above => format!("{shown} {unit}"),
    };
    let rest = match intercept {
        Some(intercept) if Sign::of(slope) != Sign::Open => {
            let (unit, scale) = of.kind.shown_unit();
            format!(
                " and {} {unit} without any",
                with_interval(intercept, scale)
            )
        }
        _ => String::new(),
    };
    format!("{told}{published}{rest}{by}")
}

/// Units of a slope, such as `µs per ACK` and `ACK` for µs/KiB over ACKs/KiB.
pub(crate) fn slope_unit(of: Derived, over: Derived) -> (String, String) {
    let split = |unit: &'static str| unit.split_once('/').unwrap_or((unit, ""));
    let ((up, up_by), (right, right_by)) = (split(of.kind.unit()), split(over.kind.unit()));
    if up_by == right_by {
        let one = right.strip_suffix('s').unwrap_or(right).to_string();
        (format!("{up} per {one}"), one)
    } else {
        let one = over.kind.unit().to_string();
        (format!("{} by {one}", of.kind.unit()), one)
    }
}

/// Text of an estimate with as many decimals as show two digits of its interval's half-width, at most four.
fn with_interval(estimate: &Estimate, scale: f64) -> String {
    let decimals = decimals(estimate, scale);
    let shown = |value: f64| precise(value * scale, decimals);
    match estimate.lo.zip(estimate.hi) {
        Some((lo, hi)) => format!("{} [{}, {}]", shown(estimate.median), shown(lo), shown(hi)),
        None => format!("{} [n={}]", shown(estimate.median), estimate.n),
    }
}

fn decimals(estimate: &Estimate, scale: f64) -> usize {
    let half = match estimate.lo.zip(estimate.hi) {
        Some((lo, hi)) => (hi - lo) * scale / 2.0,
        None => 0.0,
    };
    // Without an interval, or with one of no width: as if the half-width were a thousandth.
    let half = if half > 0.0 {
        half
    } else {
        (estimate.median * scale).abs() / 1000.0
    };
    let digits = if half > 0.0 {
        1.0 - half.log10().floor()
    } else {
        0.0
    };
    digits.clamp(0.0, 4.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_study::{Figure, HostName};

    fn estimate(median: f64, lo: f64, hi: f64) -> Estimate {
        Estimate {
            median,
            lo: Some(lo),
            hi: Some(hi),
            n: 6,
        }
    }

    fn fewer_acks(steps: &[(u64, Option<Estimate>, Option<f64>)]) -> Finding {
        let steps = steps
            .iter()
            .map(|&(to, percent, published_percent)| Step {
                to: Value::Count(to),
                percent,
                incomparable: None,
                published_percent,
                because: None,
                held: None,
            })
            .collect();
        Finding {
            tests: None,
            text: "Fewer ACKs".to_string(),
            continues: false,
            quantity: Derived::of(HostName::CLIENT, Figure::ExactUsPerKib),
            kind: FindingKind::Change {
                knob: "server.ack_segments".to_string(),
                from: Value::Count(2),
                at: "rate=941Mbit".to_string(),
                steps,
            },
        }
    }

    fn check_change(steps: &[(u64, Option<Estimate>, Option<f64>)], expected: &str) {
        let beginning = "Fewer ACKs: rate=941Mbit: server.ack_segments 8 instead of 2 ";
        assert_eq!(
            sentence(&fewer_acks(steps)),
            format!("{beginning}{expected}.")
        );
    }

    #[test]
    fn what_all_names_have_in_common_is_told_once_or_not_at_all() {
        let of = Derived::of(HostName::SERVER, Figure::OutOfOrderPerMib);
        let cells = |estimates: [Estimate; 3]| {
            let names = ["1 connection", "8 connections", "100 connections"];
            let named = names.iter().zip(estimates);
            named
                .map(|(name, estimate)| {
                    (format!("TSO on, {name}, write_size=64KiB"), Some(estimate))
                })
                .collect::<Vec<_>>()
        };
        let none = estimate(0.0, 0.0, 0.0);
        let alone = Estimate {
            lo: None,
            hi: None,
            n: 5,
            ..none
        };
        assert!(
            value(of, &cells([none, alone, none]), None).starts_with("TSO on, in all 3 cells 0")
        );
        let some = estimate(2.0, 1.0, 3.0);
        let told = value(of, &cells([none, some, none]), None);
        assert!(!told.contains("write_size"), "{told}");
        assert!(told.starts_with("TSO on, 1 connection: 0"), "{told}");
    }

    #[test]
    fn a_change_is_told_with_its_interval_and_beside_the_published_one() {
        check_change(
            &[
                (8, Some(estimate(-21.34, -24.0, -19.1)), Some(-23.0)),
                (16, Some(estimate(-25.2, -26.0, -24.5)), Some(-29.4)),
                (32, Some(estimate(5.0, 2.0, 8.0)), None),
            ],
            "saves 21 % [19, 24] of the client's exact CPU per KiB (published \u{2212}23.0 %, in the interval), \
             16 saves 25 % [24, 26] (published \u{2212}29.4 %, less here), \
             32 costs 5.0 % [2.0, 8.0] more",
        );
    }

    #[test]
    fn what_joins_says_only_what_was_not_said_yet() {
        let first = fewer_acks(&[(8, Some(estimate(-21.34, -24.0, -19.1)), None)]);
        let elsewhere = |at: &str| {
            let mut found = first.clone();
            let FindingKind::Change { at: place, .. } = &mut found.kind else {
                unreachable!()
            };
            *place = at.to_string();
            found.continues = true;
            found
        };
        let mut other = elsewhere("");
        other.text = "with TSO".to_string();
        let alone = Finding {
            continues: false,
            ..other.clone()
        };
        let told = sentences(&[first.clone(), elsewhere("unlimited"), other, alone], None);
        let fall = "8 saves 21 % [19, 24]";
        let named = "server.ack_segments 8 instead of 2 saves 21 % [19, 24] of the client's exact CPU per KiB";
        assert_eq!(
            told,
            [
                format!("Fewer ACKs: rate=941Mbit: {named}; unlimited: {fall}; with TSO: {fall}."),
                format!("with TSO: {named}.")
            ]
        );
    }

    #[test]
    fn nothing_is_claimed_where_the_interval_holds_zero_or_is_none() {
        check_change(
            &[
                (8, Some(estimate(-2.0, -9.0, 4.0)), Some(-23.0)),
                (16, Estimate::new([-12.0; 3]), Some(-29.4)),
                (32, None, None),
            ],
            "has no established effect on the client's exact CPU per KiB: \u{2212}2.0 % [\u{2212}9.0, 4.0] \
             (published \u{2212}23.0 %, less here), \
             16 changed it by \u{2212}12 % (3 trials: too few for an interval) (published \u{2212}29.4 %), \
             32 was not measured",
        );
    }

    fn check_line(slope: Option<Estimate>, expected: &str) {
        let found = Finding {
            tests: None,
            text: "One ACK".to_string(),
            continues: false,
            quantity: Derived::of(HostName::CLIENT, Figure::ExactUsPerKib),
            kind: FindingKind::Line {
                over: Derived::of(HostName::CLIENT, Figure::AcksPerKib),
                cells: 5,
                slope,
                intercept: Some(estimate(0.5, 0.4, 0.6)),
                published: Some(3.6),
            },
        };
        assert_eq!(sentence(&found), format!("One ACK: {expected}."));
    }

    #[test]
    fn a_line_says_what_one_costs_and_what_is_left_without() {
        let through = "through 5 cells of exact CPU per KiB, client over ACKs per KiB, client";
        check_line(
            Some(estimate(2.0, 1.9, 2.2)),
            &format!(
                "2.00 [1.90, 2.20] µs per ACK (published 3.60, less here) and 0.50 [0.40, 0.60] µs/KiB without any, by a line {through} in each of 6 repetitions"
            ),
        );
        check_line(
            Some(estimate(2.0, -1.0, 5.0)),
            &format!(
                "no effect of ACK is established: 2.0 [\u{2212}1.0, 5.0] µs per ACK (published 3.6, in the interval), by a line {through} in each of 6 repetitions"
            ),
        );
        check_line(
            None,
            &format!("no line {through}; fewer than three cells had numbers"),
        );
    }

    #[test]
    fn a_count_is_told_as_exactly_as_it_is_known() {
        let found = Finding {
            tests: None,
            text: "The old split".to_string(),
            continues: false,
            quantity: Derived::of(HostName::CLIENT, Figure::PacketsPerTransaction),
            kind: FindingKind::Value {
                cells: vec![("kernel".to_string(), Some(estimate(3.005, 3.0041, 3.0062)))],
                published: Some(3.0),
            },
        };
        assert_eq!(
            sentence(&found),
            "The old split: packets per transaction, client (packets) 3.0050 [3.0041, 3.0062] (published 3.0000, the same within 0.5 %)."
        );
    }

    #[test]
    fn cells_that_found_the_same_are_told_together() {
        let zero = Some(estimate(0.0, 0.0, 0.0));
        let cells = [
            ("x, n=1", zero),
            ("x, n=2", zero),
            ("x, n=32", Some(estimate(19.86, 19.8, 19.9))),
            ("x, n=64", None),
        ];
        let found = Finding {
            tests: None,
            text: "Waits".to_string(),
            continues: false,
            quantity: Derived::of(HostName::SERVER, Figure::AcksPerKib),
            kind: FindingKind::Value {
                cells: cells
                    .map(|(name, found)| (name.to_string(), found))
                    .to_vec(),
                published: None,
            },
        };
        assert_eq!(
            sentence(&found),
            "Waits: ACKs per KiB, server (ACKs/KiB) x, n=1 to 2: 0 [0, 0], 32: 19.860 [19.800, 19.900], 64: not measured."
        );
    }
}
