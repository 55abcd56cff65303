//! What a study set out to conclude, in numbers: its `[[conclusion]]`s and `[[fit]]`s over the cells.
//! The words are in `prose.rs`.

use std::collections::BTreeMap;

use tcpcost_study::{Change, Conclusion, Derived, Fit, Knobs, Study, Value};

use crate::cell::CellSummary;
use crate::comparable::Incomparable;
use crate::contrast::Contrast;
use crate::estimate::Estimate;
use crate::held::Held;

/// One answer to a conclusion or fit of the study, with or without an estimate.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// What was done, in the study's words.
    pub text: String,
    /// Whether it continues the sentence of the finding before.
    pub continues: bool,
    /// The quantity.
    pub quantity: Derived,
    /// The kind, with its estimates.
    pub kind: FindingKind,
    /// The published statement that it tests, by its id, and whether that holds here.
    pub tests: Option<(String, Held)>,
}

/// The kinds of findings.
#[derive(Debug, Clone, PartialEq)]
pub enum FindingKind {
    /// The quantity itself.
    Value {
        /// Cells and their estimates.
        cells: Vec<(String, Option<Estimate>)>,
        /// The published figure.
        published: Option<f64>,
    },
    /// What a knob changes.
    Change {
        /// The knob.
        knob: String,
        /// The value that the others are held against.
        from: Value,
        /// Which cells, where there are several pairs: the first one's name without the knob.
        at: String,
        /// The other values.
        steps: Vec<Step>,
    },
    /// What a knob changes, over the values of another.
    Crossover {
        /// The knob.
        knob: String,
        /// The value that the other is held against.
        from: Value,
        /// The other value.
        to: Value,
        /// The knob that it is followed over.
        over: String,
        /// Which cells, where there are several such rows: the first one's name without both knobs.
        at: String,
        /// By value of `over`, in order.
        crossings: Vec<Crossing>,
    },
    /// A straight line.
    Line {
        /// To the right.
        over: Derived,
        /// Cells it is laid through.
        cells: usize,
        /// How much the quantity grows by one of `over`.
        slope: Option<Estimate>,
        /// The quantity where `over` is 0.
        intercept: Option<Estimate>,
        /// The published slope.
        published: Option<f64>,
    },
}

/// The change in percent at one value of the knob that it is looked at over.
#[derive(Debug, Clone, PartialEq)]
pub struct Crossing {
    /// The value.
    pub at: Value,
    /// The change, trial by trial; absent where one of both cells has no number.
    pub percent: Option<Estimate>,
    /// Why there is none, of cells that are not comparable.
    pub incomparable: Option<Incomparable>,
}

/// From one value of a knob to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The other.
    pub to: Value,
    /// The change in percent of the first, trial by trial.
    pub percent: Option<Estimate>,
    /// Why there is none, of cells that are not comparable.
    pub incomparable: Option<Incomparable>,
    /// The published one.
    pub published_percent: Option<f64>,
    /// Whether what was stated of it holds, where something was.
    pub held: Option<Held>,
}

/// What an estimate says of the sign of what it estimates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// The whole interval is below zero.
    Below,
    /// The whole interval is above zero.
    Above,
    /// Zero is inside.
    Open,
    /// There is no interval: fewer than six trials.
    Unknown,
}

impl Sign {
    /// Of an estimate.
    pub fn of(estimate: &Estimate) -> Sign {
        match estimate.lo.zip(estimate.hi) {
            None => Sign::Unknown,
            Some((_, hi)) if hi < 0.0 => Sign::Below,
            Some((lo, _)) if lo > 0.0 => Sign::Above,
            Some(_) => Sign::Open,
        }
    }
}

/// Ours beside a published figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Against {
    /// It lies in our interval.
    Within,
    /// It does not, but our median is within half a percent of it: figures are published to three or
    /// four digits.
    Near,
    /// Our whole interval is below it.
    Below,
    /// Our whole interval is above it.
    Above,
    /// There is no interval.
    Unknown,
}

impl Against {
    /// Of an estimate and a figure.
    pub fn of(estimate: &Estimate, figure: f64) -> Against {
        match estimate.lo.zip(estimate.hi) {
            None => Against::Unknown,
            Some((lo, hi)) if (lo..=hi).contains(&figure) => Against::Within,
            Some(_) if (estimate.median - figure).abs() <= NEAR * figure.abs() => Against::Near,
            Some((_, hi)) if hi < figure => Against::Below,
            Some(_) => Against::Above,
        }
    }

    /// Its word in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Against::Within => "within",
            Against::Near => "near",
            Against::Below => "below",
            Against::Above => "above",
            Against::Unknown => "unknown",
        }
    }
}

/// See [`Against::Near`].
const NEAR: f64 = 0.005;

/// All that the study asks for, fits last.
pub(crate) fn findings(study: &Study, cells: &[CellSummary]) -> Vec<Finding> {
    let conclusions = study
        .conclusions
        .iter()
        .flat_map(|one| conclude(study, one, cells));
    let lines = study.fits.iter().map(|fit| line(fit, cells));
    conclusions.chain(lines).collect()
}

fn picked<'a>(
    cells: &'a [CellSummary],
    wanted: &'a tcpcost_study::Knobs,
) -> impl Iterator<Item = &'a CellSummary> {
    cells.iter().filter(move |cell| cell.knobs.has(wanted))
}

/// What is told of a cell: the quantity asked for, or its main one.
pub(crate) fn told(cell: &CellSummary, asked: Option<Derived>) -> Derived {
    asked.map_or(cell.main, |asked| cell.has_or_both(asked))
}

fn conclude(study: &Study, one: &Conclusion, cells: &[CellSummary]) -> Vec<Finding> {
    match (&one.change, &one.over) {
        (Some(change), Some(over)) => crossovers(study, one, change, over, cells),
        (Some(change), None) => changes(study, one, change, cells),
        (None, _) => {
            let cells: Vec<&CellSummary> = picked(cells, &one.matching).collect();
            let Some(quantity) = cells.first().map(|cell| told(cell, one.quantity)) else {
                return Vec::new();
            };
            let estimates: Vec<(String, Option<Estimate>)> = cells
                .iter()
                .map(|cell| (cell.name.clone(), cell.estimates.get(&quantity).copied()))
                .collect();
            let held = estimates
                .iter()
                .map(|(_, estimate)| Held::within(estimate.as_ref(), one.at_most, one.at_least));
            vec![Finding {
                tests: tests(one, held),
                text: one.text.clone(),
                continues: one.continues,
                quantity,
                kind: FindingKind::Value {
                    cells: estimates,
                    published: one.published,
                },
            }]
        }
    }
}

fn tests(one: &Conclusion, held: impl Iterator<Item = Held>) -> Option<(String, Held)> {
    Some((one.statement.clone()?, Held::all(held)))
}

/// The cell of those that match that the others are held against, and those, each with its place in `to`; one such group for
/// each setting of the other knobs. A quick run leaves cells out.
pub(crate) fn groups<'a>(
    study: &Study,
    matching: &Knobs,
    change: &Change,
    cells: &'a [CellSummary],
) -> Vec<(&'a CellSummary, Vec<(usize, &'a CellSummary)>)> {
    let others = |cell: &CellSummary| -> String {
        let names = study.vary.iter().filter(|name| **name != change.knob);
        let words = names.filter_map(|name| Some(format!("{name}={}", cell.knobs.value(name)?)));
        words.collect::<Vec<_>>().join(" ")
    };
    let mut groups: Vec<(String, Vec<&CellSummary>)> = Vec::new();
    for cell in cells.iter().filter(|cell| cell.knobs.has(matching)) {
        let key = others(cell);
        match groups.iter_mut().find(|(of, _)| *of == key) {
            Some((_, group)) => group.push(cell),
            None => groups.push((key, vec![cell])),
        }
    }
    let held: Vec<_> = groups
        .iter()
        .filter_map(|(_, group)| changed(group, change))
        .collect();
    if !held.is_empty() {
        return held;
    }
    // Cells that a study names one by one may differ in more than the knob: then those that match must be one of each value.
    let all: Vec<&CellSummary> = groups.into_iter().flat_map(|(_, group)| group).collect();
    let values: Vec<_> = all
        .iter()
        .map(|cell| cell.knobs.value(&change.knob))
        .collect();
    let is_one_each = (1..values.len()).all(|at| !values[..at].contains(&values[at]));
    let named = is_one_each.then(|| changed(&all, change)).flatten();
    named.into_iter().collect()
}

/// Of cells, the one that others are held against, and those.
fn changed<'a>(
    group: &[&'a CellSummary],
    change: &Change,
) -> Option<(&'a CellSummary, Vec<(usize, &'a CellSummary)>)> {
    let with = |value: &Value| {
        let mut cells = group.iter().copied();
        cells.find(|cell| cell.knobs.value(&change.knob).as_ref() == Some(value))
    };
    let to = change.to.iter().enumerate();
    let to = to.filter_map(|(index, to)| Some((index, with(to)?)));
    let to: Vec<_> = to.collect();
    (!to.is_empty()).then_some((with(&change.from)?, to))
}

/// One for each group of cells that differ in the knob alone.
fn changes(
    study: &Study,
    one: &Conclusion,
    change: &Change,
    cells: &[CellSummary],
) -> Vec<Finding> {
    let than = one
        .than
        .as_ref()
        .map(|than| groups(study, than, change, cells));
    let groups = groups(study, &one.matching, change, cells);
    let has_several = groups.len() > 1;
    let mut all = Vec::new();
    for (at, (first, to)) in groups.into_iter().enumerate() {
        let quantity = told(first, one.quantity);
        let steps = to.into_iter().map(|(index, cell)| {
            let contrast = match &than {
                None => Contrast::new(first, cell, quantity),
                // Group by group, in the order of both.
                Some(than) => than.get(at).and_then(|(other, others)| {
                    let (_, with) = others.iter().find(|(of, _)| *of == index)?;
                    Contrast::of_contrasts([*other, *with], [first, cell], quantity)
                }),
            };
            let percent = contrast.map(|change| change.percent());
            let expects = one.expects;
            Step {
                to: change.to[index].clone(),
                percent,
                incomparable: Incomparable::of(first, cell, quantity),
                published_percent: change.published_percent.get(index).copied(),
                held: expects.map(|expects| Held::of(percent.as_ref(), expects)),
            }
        });
        let steps: Vec<Step> = steps.collect();
        all.push(Finding {
            tests: tests(one, steps.iter().filter_map(|step| step.held)),
            text: one.text.clone(),
            continues: one.continues || !all.is_empty(),
            quantity,
            kind: FindingKind::Change {
                knob: change.knob.clone(),
                from: change.from.clone(),
                at: match has_several {
                    true => without(first, &[&change.knob]),
                    false => String::new(),
                },
                steps,
            },
        });
    }
    all
}

/// One for each other value of the knob at each setting of the knobs beside `over`.
fn crossovers(
    study: &Study,
    one: &Conclusion,
    change: &Change,
    over: &str,
    cells: &[CellSummary],
) -> Vec<Finding> {
    // Rows by the first cell's name without both knobs, and by the other value.
    let mut rows: Vec<(String, usize, Derived, Vec<Crossing>)> = Vec::new();
    for (first, to) in groups(study, &one.matching, change, cells) {
        let Some(value) = first.knobs.value(over) else {
            continue;
        };
        let quantity = told(first, one.quantity);
        let at = without(first, &[&change.knob, over]);
        for (index, cell) in to {
            let percent = Contrast::new(first, cell, quantity).map(|change| change.percent());
            let crossing = Crossing {
                at: value.clone(),
                percent,
                incomparable: Incomparable::of(first, cell, quantity),
            };
            let mut known = rows.iter_mut();
            match known.find(|(other, of, ..)| *other == at && *of == index) {
                Some((.., crossings)) => crossings.push(crossing),
                None => rows.push((at.clone(), index, quantity, vec![crossing])),
            }
        }
    }
    let has_several = rows.iter().any(|(at, ..)| *at != rows[0].0);
    let mut all = Vec::new();
    for (at, index, quantity, mut crossings) in rows {
        let number = |one: &Crossing| one.at.number().unwrap_or(f64::MAX);
        crossings.sort_by(|a, b| number(a).total_cmp(&number(b)));
        all.push(Finding {
            tests: None,
            text: one.text.clone(),
            continues: one.continues || !all.is_empty(),
            quantity,
            kind: FindingKind::Crossover {
                knob: change.knob.clone(),
                from: change.from.clone(),
                to: change.to[index].clone(),
                over: over.to_string(),
                at: if has_several { at } else { String::new() },
                crossings,
            },
        });
    }
    all
}

/// A cell's name without knobs.
fn without(cell: &CellSummary, knobs: &[&str]) -> String {
    let is_told = |word: &&str| {
        let name = word.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| knobs.contains(&name))
    };
    let words = cell.name.split(' ').filter(|word| !is_told(word));
    let name = words.collect::<Vec<_>>().join(" ");
    name.trim_end_matches(',').to_string()
}

/// One line for each repetition, through what its trials of the cells found, and the estimates of their
/// slopes and intercepts: drift that is slower than a repetition is in no slope.
fn line(fit: &Fit, cells: &[CellSummary]) -> Finding {
    let cells: Vec<&CellSummary> = picked(cells, &fit.matching).collect();
    let quantity = cells
        .first()
        .map(|cell| told(cell, fit.quantity))
        .or(fit.quantity)
        .unwrap_or(fit.over);
    let mut points: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
    let mut used = 0;
    for cell in &cells {
        let over = cell.by_repetition(fit.over);
        let mut has_any = false;
        for (repetition, y) in cell.by_repetition(quantity) {
            let x = over.iter().find(|(other, _)| *other == repetition);
            if let Some(&(_, x)) = x {
                points.entry(repetition).or_default().push((x, y));
                has_any = true;
            }
        }
        used += usize::from(has_any);
    }
    let lines: Vec<(f64, f64)> = points
        .values()
        .filter(|points| points.len() >= POINTS_MIN)
        .filter_map(|points| least_squares(points))
        .collect();
    Finding {
        tests: None,
        text: fit.text.clone(),
        continues: fit.continues,
        quantity,
        kind: FindingKind::Line {
            over: fit.over,
            cells: used,
            slope: Estimate::new(lines.iter().map(|(slope, _)| *slope)),
            intercept: Estimate::new(lines.iter().map(|(_, intercept)| *intercept)),
            published: fit.published,
        },
    }
}

/// Two points are always on a line.
const POINTS_MIN: usize = 3;

/// Slope and intercept of the ordinary least-squares line; absent where all x are the same.
fn least_squares(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let (mut above, mut below) = (0.0, 0.0);
    for point in points {
        above += (point.0 - x) * (point.1 - y);
        below += (point.0 - x) * (point.0 - x);
    }
    let slope = (below > 0.0).then(|| above / below)?;
    Some((slope, y - slope * x))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(lo: f64, hi: f64) -> Estimate {
        Estimate {
            median: (lo + hi) / 2.0,
            lo: Some(lo),
            hi: Some(hi),
            n: 6,
        }
    }

    #[test]
    fn the_line_through_exact_points_is_theirs() {
        let points: Vec<(f64, f64)> = [0.5, 1.0, 4.0, 9.0].map(|x| (x, 2.635 + 3.6 * x)).to_vec();
        let (slope, intercept) = least_squares(&points).unwrap();
        assert!((slope - 3.6).abs() < 1e-12 && (intercept - 2.635).abs() < 1e-12);
        assert_eq!(least_squares(&[(1.0, 2.0), (1.0, 3.0)]), None);
    }

    #[test]
    fn the_cost_of_an_ack_in_jones_table_is_3_6_microseconds() {
        // Jones 2005, TSO off, service demand at 2 to 32 segments per ACK; a KiB is 1024/1448 segments.
        // mechanisms: a + b/n gives b = 2.522 µs/KiB, and 2.522 / (1024/1448) = 3.57 µs.
        let points: Vec<(f64, f64)> = [
            (2.0, 3.853),
            (3.0, 3.490),
            (4.0, 3.243),
            (6.0, 3.069),
            (8.0, 2.966),
            (12.0, 2.923),
            (16.0, 2.719),
            (24.0, 2.702),
            (32.0, 2.703),
        ]
        .map(|(n, us)| (1024.0 / 1448.0 / n, us))
        .to_vec();
        let (slope, _) = least_squares(&points).unwrap();
        assert!((3.4..3.8).contains(&slope), "{slope}");
    }

    #[test]
    fn an_interval_that_holds_zero_has_no_sign() {
        assert_eq!(Sign::of(&estimate(-3.0, -1.0)), Sign::Below);
        assert_eq!(Sign::of(&estimate(1.0, 3.0)), Sign::Above);
        assert_eq!(Sign::of(&estimate(-1.0, 3.0)), Sign::Open);
        assert_eq!(Sign::of(&estimate(0.0, 3.0)), Sign::Open);
        let five = Estimate::new([1.0; 5]).unwrap();
        assert_eq!(Sign::of(&five), Sign::Unknown);
    }

    #[test]
    fn a_published_figure_is_inside_or_beyond() {
        assert_eq!(Against::of(&estimate(-30.0, -20.0), -23.0), Against::Within);
        assert_eq!(Against::of(&estimate(-30.0, -24.0), -23.0), Against::Below);
        assert_eq!(Against::of(&estimate(-20.0, -10.0), -23.0), Against::Above);
        let five = Estimate::new([1.0; 5]).unwrap();
        assert_eq!(Against::of(&five, 1.0), Against::Unknown);
        assert_eq!(Against::of(&estimate(1.999, 2.0), 2.0008), Against::Near);
    }
}
