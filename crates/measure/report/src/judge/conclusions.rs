//! Conclusions of a study in numbers: its `[[conclusion]]`s and `[[fit]]`s over the cells. The words are in
//! `words/findings.rs`.

use std::collections::BTreeMap;

use tcpcost_study::{Change, Conclusion, Derived, Fit, Knobs, Study, Value};

use crate::derive::cell::CellSummary;
use crate::derive::contrast::Contrast;
use crate::derive::estimate::Estimate;
use crate::judge::comparable::Incomparable;
use crate::judge::held::Held;
use crate::judge::reason::{Reason, reason};
use crate::judge::sign::is_established;

/// Answer to a conclusion or fit of the study, with or without an estimate.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Text of the conclusion in the study.
    pub text: String,
    /// True if it continues the sentence of the previous finding.
    pub continues: bool,
    /// Quantity of the finding.
    pub quantity: Derived,
    /// Kind of finding, with its estimates.
    pub kind: FindingKind,
    /// Id of the published statement that it tests, and whether the statement holds here.
    pub tests: Option<(String, Held)>,
}

/// Kind of a finding.
#[derive(Debug, Clone, PartialEq)]
pub enum FindingKind {
    /// Value of the quantity.
    Value {
        /// Names of cells and their estimates.
        cells: Vec<(String, Option<Estimate>)>,
        /// Published figure.
        published: Option<f64>,
    },
    /// Effect of a knob.
    Change {
        /// Name of the knob.
        knob: String,
        /// Value that the others are compared with.
        from: Value,
        /// Name of the first cell without the knob, if there are several groups of cells; else empty.
        at: String,
        /// Changes to the other values.
        steps: Vec<Step>,
    },
    /// Effect of a knob, over the values of another knob.
    Crossover {
        /// Name of the knob.
        knob: String,
        /// Value that the other one is compared with.
        from: Value,
        /// The other value.
        to: Value,
        /// Name of the other knob.
        over: String,
        /// Name of the first cell without both knobs, if there are several rows of cells; else empty.
        at: String,
        /// Changes by value of `over`, in order.
        crossings: Vec<Crossing>,
    },
    /// Straight line.
    Line {
        /// Quantity of the x axis.
        over: Derived,
        /// Number of cells on the line.
        cells: usize,
        /// Growth of the quantity per unit of `over`.
        slope: Option<Estimate>,
        /// Value of the quantity where `over` is 0.
        intercept: Option<Estimate>,
        /// Published slope.
        published: Option<f64>,
    },
}

/// Change at one value of the other knob.
#[derive(Debug, Clone, PartialEq)]
pub struct Crossing {
    /// Value of the other knob.
    pub at: Value,
    /// Change in percent, trial by trial; `None` if one of the two cells has no number.
    pub percent: Option<Estimate>,
    /// Reason why the cells are not comparable.
    pub incomparable: Option<Incomparable>,
}

/// Change from one value of a knob to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The other value.
    pub to: Value,
    /// Change in percent of the first, trial by trial.
    pub percent: Option<Estimate>,
    /// Reason why the cells are not comparable.
    pub incomparable: Option<Incomparable>,
    /// Published change in percent.
    pub published_percent: Option<f64>,
    /// Result for the published statement about it; `None` without a statement.
    pub held: Option<Held>,
    /// Part that has at least half of an established change of the cells' main quantity.
    pub because: Option<Reason>,
}

/// Our estimate compared with a published figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Against {
    /// The figure is in our interval.
    Within,
    /// The figure is outside our interval, but our median is within half a percent of it: figures are
    /// published with three or four digits.
    Near,
    /// Our whole interval is below the figure.
    Below,
    /// Our whole interval is above the figure.
    Above,
    /// There is no interval.
    Unknown,
}

impl Against {
    /// Compares an estimate with a figure.
    pub fn of(estimate: &Estimate, figure: f64) -> Against {
        match estimate.lo.zip(estimate.hi) {
            None => Against::Unknown,
            Some((lo, hi)) if (lo..=hi).contains(&figure) => Against::Within,
            Some(_) if (estimate.median - figure).abs() <= NEAR * figure.abs() => Against::Near,
            Some((_, hi)) if hi < figure => Against::Below,
            Some(_) => Against::Above,
        }
    }

    /// Word in JSON.
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

/// Difference from which a figure is no longer [`Against::Near`], as a fraction.
const NEAR: f64 = 0.005;

/// All findings that the study asks for, fits last.
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

/// Quantity that is shown for a cell: the one that was asked for, or the cell's main one.
pub(crate) fn told(cell: &CellSummary, asked: Option<Derived>) -> Derived {
    asked.map_or(cell.main, |asked| cell.has_or_both(asked))
}

/// Cells that a conclusion about a change compares.
pub(crate) fn cells_of<'a>(
    study: &Study,
    one: &Conclusion,
    cells: &'a [CellSummary],
) -> Vec<&'a CellSummary> {
    let Some(change) = &one.change else {
        return Vec::new();
    };
    let of = std::iter::once(&one.matching).chain(&one.than);
    let all = of.flat_map(|matching| groups(study, matching, change, cells));
    all.flat_map(|(first, to)| std::iter::once(first).chain(to.into_iter().map(|(_, cell)| cell)))
        .collect()
}

/// Findings of one conclusion.
pub(crate) fn conclude(study: &Study, one: &Conclusion, cells: &[CellSummary]) -> Vec<Finding> {
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

/// Groups of cells, one for each setting of the other knobs. Each has the cell with the value `from`, and the
/// cells with the values `to`, with their indices in `to`. A quick run lacks some cells.
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
    // Cells that a study lists one by one may differ in more than the knob. Then there must be one matching
    // cell for each value.
    let all: Vec<&CellSummary> = groups.into_iter().flat_map(|(_, group)| group).collect();
    let values: Vec<_> = all
        .iter()
        .map(|cell| cell.knobs.value(&change.knob))
        .collect();
    let is_one_each = (1..values.len()).all(|at| !values[..at].contains(&values[at]));
    let named = is_one_each.then(|| changed(&all, change)).flatten();
    named.into_iter().collect()
}

/// The cell with the value `from`, and the cells with the values `to`.
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

/// Findings about a change: one for each group of cells that differ only in the knob.
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
        // Published figures are of the quantity that the study asks for. Where guests count instructions in its place, those of
        // instructions stand beside ours, if there are any.
        let published = match one.quantity {
            None if quantity.kind.counts_instructions() => &change.published_instructions_percent,
            _ => &change.published_percent,
        };
        let steps = to.into_iter().map(|(index, cell)| {
            let contrast = match &than {
                None => Contrast::new(first, cell, quantity),
                // Pairs of groups, in the order of both lists.
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
                published_percent: published.get(index).copied(),
                held: expects.map(|expects| match quantity.kind.counts_instructions() {
                    true => Held::of(percent.as_ref(), expects),
                    false => Held::of_measured(percent.as_ref(), expects),
                }),
                because: (than.is_none() && quantity == first.main)
                    .then(|| reason(first, cell))
                    .flatten()
                    .filter(|_| percent.is_some_and(|percent| is_established(&percent))),
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

/// Findings about a crossover: one for each other value of the knob, at each setting of the knobs other than
/// `over`.
fn crossovers(
    study: &Study,
    one: &Conclusion,
    change: &Change,
    over: &str,
    cells: &[CellSummary],
) -> Vec<Finding> {
    // Rows with the first cell's name without both knobs, and the index of the other value.
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

/// Name of a cell without the given knobs.
fn without(cell: &CellSummary, knobs: &[&str]) -> String {
    let is_told = |word: &&str| {
        let name = word.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| knobs.contains(&name))
    };
    let words = cell.name.split(' ').filter(|word| !is_told(word));
    let name = words.collect::<Vec<_>>().join(" ");
    name.trim_end_matches(',').to_string()
}

/// Fits one line for each repetition, through the values of its trials. Returns estimates of slope and
/// intercept, which therefore are free of drift that is slower than a repetition.
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

/// Fewest points of a line, because two points are always on a line.
const POINTS_MIN: usize = 3;

/// Slope and intercept of the least-squares line. `None` if all x are equal.
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
    use crate::derive::estimate::between;

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
    fn a_published_figure_is_inside_or_beyond() {
        assert_eq!(Against::of(&between(-30.0, -20.0), -23.0), Against::Within);
        assert_eq!(Against::of(&between(-30.0, -24.0), -23.0), Against::Below);
        assert_eq!(Against::of(&between(-20.0, -10.0), -23.0), Against::Above);
        let five = Estimate::new([1.0; 5]).unwrap();
        assert_eq!(Against::of(&five, 1.0), Against::Unknown);
        assert_eq!(Against::of(&between(1.999, 2.0), 2.0008), Against::Near);
    }
}
