//! One JSON document of a summary. docs/records.md describes every key.

use std::collections::BTreeMap;

use serde::Serialize;
use tcpcost_study::{HostName, Knobs, Machine, MeterName, SCHEMA_VERSION, units};

use crate::cell::{CellSummary, Load};
use crate::estimate::Estimate;
use crate::found::{Against, Found, Sign, What};
use crate::opening::Openings;
use crate::profile::table::unit;
use crate::sentences::{sentence, slope_unit};
use crate::summary::Summary;
use crate::verdict::Verdict;

/// The summary as one JSON document, indented, with a line end.
pub fn json(summary: &Summary) -> String {
    let document = Document::new(summary);
    let mut text =
        serde_json::to_string_pretty(&document).expect("text keys and finite numbers alone");
    text.push('\n');
    text
}

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    study: &'a str,
    title: &'a str,
    environment: Environment<'a>,
    measure: Measure<'a>,
    trials_done: usize,
    trials_planned: usize,
    records_of_others: usize,
    cells: Vec<Cell<'a>>,
    warnings: Vec<Warned>,
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<Published<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    published_functions: Option<PublishedFunctions<'a>>,
    thresholds: Vec<Threshold<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    meter_costs: Vec<MeterCost<'a>>,
    findings: Vec<Finding<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    openings: Option<&'a Openings>,
}

#[derive(Serialize)]
struct PublishedFunctions<'a> {
    source: &'a str,
    cell: &'a str,
    host: HostName,
    functions: Vec<PublishedFunction<'a>>,
}

#[derive(Serialize)]
struct PublishedFunction<'a> {
    published: &'a str,
    function: &'a str,
    figure: f64,
    ratio: Option<Estimate>,
}

#[derive(Serialize)]
struct MeterCost<'a> {
    cell: &'a str,
    meter: &'a str,
    quantity: &'static str,
    ratio: Option<Estimate>,
}

#[derive(Serialize)]
struct Environment<'a> {
    hosts: Vec<Machine>,
    beds: &'a [String],
    started_first: Option<&'a str>,
    started_last: Option<&'a str>,
}

#[derive(Serialize)]
struct Measure<'a> {
    meters: &'a [MeterName],
    repetitions: u32,
    repetitions_max: u32,
    target_ratio: Option<f64>,
    quantity: Option<String>,
    warm_up: String,
    duration: String,
    seed: u64,
    others_max_ratio: f64,
    retries: u32,
}

#[derive(Serialize)]
struct Cell<'a> {
    name: &'a str,
    knobs: &'a Knobs,
    n: usize,
    n_marked: usize,
    n_failed: usize,
    n_skipped: usize,
    all_marked: bool,
    failed: &'a BTreeMap<String, usize>,
    skipped: &'a BTreeMap<String, usize>,
    regime: BTreeMap<HostName, Vec<&'a str>>,
    rate: Option<&'a str>,
    main: String,
    main_stands_in: bool,
    converged: Option<bool>,
    ratio_to_first: Option<Ratio<'a>>,
    warnings: Vec<Warned>,
    estimates: BTreeMap<String, WithUnit>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    profiles: Vec<Profile<'a>>,
}

#[derive(Serialize)]
struct Profile<'a> {
    host: Option<HostName>,
    source: &'a str,
    samples: u64,
    samples_unknown: u64,
    samples_left_out: u64,
    unit: &'static str,
    layers: Vec<Layer>,
    functions: Vec<Function<'a>>,
}

#[derive(Serialize)]
struct Layer {
    layer: &'static str,
    #[serde(flatten)]
    cost: Cost,
}

#[derive(Serialize)]
struct Function<'a> {
    function: &'a str,
    inclusive: Cost,
    exclusive: Cost,
}

#[derive(Serialize)]
struct Cost {
    share_ratio: Estimate,
    cpu_us_per_s: Option<Estimate>,
    cpu_us_per_unit: Option<Estimate>,
}

#[derive(Serialize)]
struct WithUnit {
    #[serde(flatten)]
    estimate: Estimate,
    unit: &'static str,
}

#[derive(Serialize)]
struct Ratio<'a> {
    cell: &'a str,
    #[serde(flatten)]
    estimate: Estimate,
}

#[derive(Serialize)]
struct Warned {
    code: tcpcost_study::WarningCode,
    count: usize,
    text: String,
}

#[derive(Serialize)]
struct Published<'a> {
    source: &'a str,
    quantity: String,
    unit: &'static str,
    knob: &'a str,
    series: Vec<Series<'a>>,
}

#[derive(Serialize)]
struct Series<'a> {
    name: &'a str,
    #[serde(rename = "where")]
    matching: &'a Knobs,
    points: Vec<Point<'a>>,
}

#[derive(Serialize)]
struct Point<'a> {
    value: &'a tcpcost_study::Value,
    figure: f64,
    cells: Vec<&'a str>,
}

#[derive(Serialize)]
struct Threshold<'a> {
    cell: Option<&'a str>,
    quantity: String,
    unit: &'static str,
    at_most: Option<f64>,
    at_least: Option<f64>,
    estimate: Option<Estimate>,
    verdict: &'static str,
}

#[derive(Serialize)]
struct Finding<'a> {
    says: &'a str,
    sentence: String,
    quantity: String,
    #[serde(flatten)]
    what: Finds<'a>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Finds<'a> {
    Value {
        unit: &'static str,
        cells: Vec<OfCell<'a>>,
        published: Option<f64>,
    },
    Change {
        knob: &'a str,
        from: &'a tcpcost_study::Value,
        at: &'a str,
        steps: Vec<OfStep<'a>>,
    },
    Line {
        over: String,
        cells: usize,
        unit: String,
        slope: Option<Estimate>,
        intercept: Option<Estimate>,
        published: Option<f64>,
        against: Option<&'static str>,
    },
}

#[derive(Serialize)]
struct OfCell<'a> {
    cell: &'a str,
    estimate: Option<Estimate>,
    against: Option<&'static str>,
}

#[derive(Serialize)]
struct OfStep<'a> {
    to: &'a tcpcost_study::Value,
    change_percent: Option<Estimate>,
    established: bool,
    published_percent: Option<f64>,
    against: Option<&'static str>,
}

impl<'a> Document<'a> {
    fn new(summary: &'a Summary) -> Self {
        let study = &summary.study;
        let measure = &study.measure;
        Document {
            schema_version: SCHEMA_VERSION,
            study: &study.name,
            title: &study.title,
            environment: Environment {
                hosts: summary.hosts.iter().map(without_options).collect(),
                beds: &summary.beds,
                started_first: summary.started.as_ref().map(|(first, _)| first.as_str()),
                started_last: summary.started.as_ref().map(|(_, last)| last.as_str()),
            },
            measure: Measure {
                meters: &measure.meters,
                repetitions: measure.repetitions,
                repetitions_max: measure.repetitions_max,
                target_ratio: measure.target,
                quantity: measure.quantity.map(|quantity| quantity.to_string()),
                warm_up: units::show_duration(measure.warm_up),
                duration: units::show_duration(measure.duration),
                seed: measure.seed,
                others_max_ratio: measure.others_max,
                retries: measure.retries,
            },
            trials_done: summary.trials_done,
            trials_planned: summary.trials_planned,
            records_of_others: summary.records_of_others,
            cells: cells(summary),
            warnings: warned(&summary.warnings()),
            published: published(summary),
            published_functions: study
                .published_functions
                .as_ref()
                .map(|of| PublishedFunctions {
                    source: &of.source,
                    cell: &of.cell,
                    host: of.host,
                    functions: crate::profile::table::published(summary)
                        .into_iter()
                        .map(|row| PublishedFunction {
                            published: row.theirs,
                            function: row.function,
                            figure: row.published,
                            ratio: row.ours,
                        })
                        .collect(),
                }),
            thresholds: summary
                .judged
                .iter()
                .map(|judged| Threshold {
                    cell: judged.cell.as_deref(),
                    quantity: judged.quantity.to_string(),
                    unit: judged.quantity.kind.unit(),
                    at_most: judged.at_most,
                    at_least: judged.at_least,
                    estimate: judged.estimate,
                    verdict: Verdict::name(judged.verdict),
                })
                .collect(),
            meter_costs: summary
                .meter_costs
                .iter()
                .map(|cost| MeterCost {
                    cell: &cost.cell,
                    meter: cost.meter_name(),
                    quantity: cost.of.name(),
                    ratio: cost.ratio,
                })
                .collect(),
            findings: summary.found.iter().map(finding).collect(),
            openings: summary.openings.as_ref(),
        }
    }
}

fn profile<'a>(profile: &'a crate::Profile, unit: &'static str) -> Profile<'a> {
    let cost = |cost: &crate::Cost| Cost {
        share_ratio: cost.share,
        cpu_us_per_s: cost.us_per_s,
        cpu_us_per_unit: cost.us_per_unit,
    };
    Profile {
        host: profile.scope.name(),
        source: &profile.source,
        samples: profile.samples,
        samples_unknown: profile.samples_unknown,
        samples_left_out: profile.samples_left_out,
        unit,
        layers: profile
            .layers
            .iter()
            .map(|(layer, of)| Layer {
                layer: layer.name(),
                cost: cost(of),
            })
            .collect(),
        functions: profile
            .functions
            .iter()
            .map(|function| Function {
                function: &function.name,
                inclusive: cost(&function.inclusive),
                exclusive: cost(&function.exclusive),
            })
            .collect(),
    }
}

fn finding(found: &Found) -> Finding<'_> {
    let unit = found.quantity.kind.unit();
    let what = match &found.what {
        What::Value { cells, published } => Finds::Value {
            unit,
            cells: cells
                .iter()
                .map(|(cell, estimate)| OfCell {
                    cell,
                    estimate: *estimate,
                    against: against(*estimate, *published),
                })
                .collect(),
            published: *published,
        },
        What::Change {
            knob,
            from,
            at,
            steps,
        } => Finds::Change {
            knob,
            from,
            at,
            steps: steps
                .iter()
                .map(|step| OfStep {
                    to: &step.to,
                    change_percent: step.percent,
                    established: step.percent.is_some_and(|percent| {
                        matches!(Sign::of(&percent), Sign::Below | Sign::Above)
                    }),
                    published_percent: step.published_percent,
                    against: against(step.percent, step.published_percent),
                })
                .collect(),
        },
        What::Line {
            over,
            cells,
            slope,
            intercept,
            published,
        } => Finds::Line {
            over: over.to_string(),
            cells: *cells,
            unit: slope_unit(found.quantity, *over).0,
            slope: *slope,
            intercept: *intercept,
            published: *published,
            against: against(*slope, *published),
        },
    };
    Finding {
        says: &found.says,
        sentence: sentence(found),
        quantity: found.quantity.to_string(),
        what,
    }
}

fn against(estimate: Option<Estimate>, published: Option<f64>) -> Option<&'static str> {
    Some(Against::of(&estimate?, published?).name())
}

/// A machine without the options that its kernel was started with: those are in the records.
fn without_options(machine: &Machine) -> Machine {
    Machine {
        cmdline: String::new(),
        ..machine.clone()
    }
}

fn warned(warnings: &[crate::cell::Warned]) -> Vec<Warned> {
    warnings
        .iter()
        .map(|warned| Warned {
            code: warned.code,
            count: warned.count,
            text: warned.text.clone(),
        })
        .collect()
}

fn cells(summary: &Summary) -> Vec<Cell<'_>> {
    let groups = summary.groups();
    let ratio = |cell: &CellSummary| {
        let group = groups
            .iter()
            .find(|group| group.cells.iter().any(|&of| std::ptr::eq(of, cell)))?;
        Some(Ratio {
            cell: &group.cells.first()?.name,
            estimate: group.ratio_to_first(cell)?,
        })
    };
    summary
        .cells
        .iter()
        .map(|cell| Cell {
            name: &cell.name,
            knobs: &cell.knobs,
            n: cell.n,
            n_marked: cell.n_marked,
            n_failed: cell.n_failed(),
            n_skipped: cell.n_skipped(),
            all_marked: cell.all_marked,
            failed: &cell.failed,
            skipped: &cell.skipped,
            regime: cell
                .regimes
                .iter()
                .map(|(&host, regimes)| (host, regimes.iter().map(String::as_str).collect()))
                .collect(),
            rate: match &cell.load {
                Load::FixedRate(rate) => Some(rate),
                Load::CpuBound => None,
            },
            main: cell.main.to_string(),
            main_stands_in: cell.main_stands_in,
            converged: cell.converged,
            ratio_to_first: ratio(cell),
            warnings: warned(&cell.warnings),
            estimates: cell
                .estimates
                .iter()
                .map(|(derived, &estimate)| {
                    let unit = derived.kind.unit();
                    (derived.to_string(), WithUnit { estimate, unit })
                })
                .collect(),
            profiles: cell
                .profiles
                .iter()
                .map(|one| profile(one, unit(cell)))
                .collect(),
        })
        .collect()
}

fn published(summary: &Summary) -> Option<Published<'_>> {
    let published = summary.study.published.as_ref()?;
    let beside = summary.published();
    let series = published.series.iter().map(|series| Series {
        name: &series.name,
        matching: &series.matching,
        points: series
            .points
            .iter()
            .map(|(value, figure)| Point {
                value,
                figure: *figure,
                cells: beside
                    .iter()
                    .filter(|row| std::ptr::eq(row.series, series) && row.value == value)
                    .filter_map(|row| Some(row.cell?.name.as_str()))
                    .collect(),
            })
            .collect(),
    });
    Some(Published {
        source: &published.source,
        quantity: published.quantity.to_string(),
        unit: published.quantity.kind.unit(),
        knob: &published.knob,
        series: series.collect(),
    })
}
