//! One JSON document of a summary. docs/records.md describes every key.

mod cells;
mod comparisons;
mod estimate;
mod findings;
mod hosts;

use serde::Serialize;
use tcpcost_study::{HostName, Knobs, Machine, MeterName, SCHEMA_VERSION, Study, units};

use self::cells::{CellJson, WarnedJson, cells, warned};
use self::comparisons::{ComparisonJson, UndecidedJson, comparison, undecided};
use self::findings::{
    ByInstructionsJson, EffectJson, FindingJson, by_instructions, effect, finding,
};
use crate::derive::estimate::Estimate;
use crate::derive::opening::Openings;
use crate::judge::statements::Tested;
use crate::judge::thresholds::Judged;
use crate::summary::Summary;
use crate::summary::published_functions::ratios;
use crate::summary::published_table;
use crate::words::trust::trust;

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
    environment: EnvironmentJson<'a>,
    measure: MeasureJson<'a>,
    trials_done: usize,
    trials_planned: usize,
    records_of_others: usize,
    cells: Vec<CellJson<'a>>,
    warnings: Vec<WarnedJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<PublishedJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    published_functions: Option<PublishedFunctionsJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    published_table: Option<published_table::TableJson<'a>>,
    thresholds: Vec<ThresholdJson<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    meter_costs: Vec<MeterCostJson<'a>>,
    findings: Vec<FindingJson<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    statements: &'a [Tested],
    effects: Vec<EffectJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by_instructions: Option<ByInstructionsJson<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    comparisons: Vec<ComparisonJson<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    differences: &'a [String],
    undecided: Vec<UndecidedJson<'a>>,
    trust: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    openings: Option<&'a Openings>,
}

#[derive(Serialize)]
struct PublishedFunctionsJson<'a> {
    source: &'a str,
    cell: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<&'a str>,
    host: HostName,
    functions: Vec<PublishedFunctionJson<'a>>,
}

#[derive(Serialize)]
struct PublishedFunctionJson<'a> {
    published: &'a str,
    function: &'a str,
    figure: f64,
    ratio: Option<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    statement: Option<&'a str>,
    sentence: String,
}

#[derive(Serialize)]
struct MeterCostJson<'a> {
    cell: &'a str,
    meter: &'a str,
    quantity: &'static str,
    ratio: Option<Estimate>,
}

#[derive(Serialize)]
struct EnvironmentJson<'a> {
    hosts: Vec<Machine>,
    beds: &'a [String],
    started_first: Option<&'a str>,
    started_last: Option<&'a str>,
}

#[derive(Serialize)]
struct MeasureJson<'a> {
    meters: &'a [MeterName],
    repetitions: u32,
    repetitions_max: u32,
    target_ratio: Option<f64>,
    contrast_target_ratio: Option<f64>,
    time_max: Option<String>,
    min_effect_ratio: f64,
    quantity: Option<String>,
    warm_up: String,
    duration: String,
    seed: u64,
    others_max_ratio: f64,
    retries: u32,
}

#[derive(Serialize)]
struct PublishedJson<'a> {
    source: &'a str,
    quantity: String,
    unit: &'static str,
    knob: &'a str,
    series: Vec<SeriesJson<'a>>,
}

#[derive(Serialize)]
struct SeriesJson<'a> {
    name: &'a str,
    #[serde(rename = "where")]
    matching: &'a Knobs,
    points: Vec<PointJson<'a>>,
}

#[derive(Serialize)]
struct PointJson<'a> {
    value: &'a tcpcost_study::Value,
    figure: f64,
    cells: Vec<&'a str>,
}

#[derive(Serialize)]
struct ThresholdJson<'a> {
    #[serde(flatten)]
    judged: &'a Judged,
    unit: &'static str,
}

impl<'a> MeasureJson<'a> {
    fn new(study: &'a Study) -> Self {
        let measure = &study.measure;
        MeasureJson {
            meters: &measure.meters,
            repetitions: measure.repetitions,
            repetitions_max: measure.repetitions_max,
            target_ratio: measure.target,
            contrast_target_ratio: measure.contrast_target,
            time_max: measure.time_max.map(units::show_duration),
            min_effect_ratio: measure.min_effect,
            quantity: measure.quantity.map(|quantity| quantity.to_string()),
            warm_up: units::show_duration(measure.warm_up),
            duration: units::show_duration(measure.duration),
            seed: measure.seed,
            others_max_ratio: measure.others_max,
            retries: measure.retries,
        }
    }
}

impl<'a> Document<'a> {
    fn new(summary: &'a Summary) -> Self {
        let study = &summary.study;
        Document {
            schema_version: SCHEMA_VERSION,
            study: &study.name,
            title: &study.title,
            environment: EnvironmentJson {
                hosts: summary.machines.each.iter().map(without_options).collect(),
                beds: &summary.beds,
                started_first: summary.started.as_ref().map(|(first, _)| first.as_str()),
                started_last: summary.started.as_ref().map(|(_, last)| last.as_str()),
            },
            measure: MeasureJson::new(study),
            trials_done: summary.trials_done,
            trials_planned: summary.trials_planned,
            records_of_others: summary.records_of_others,
            cells: cells(summary),
            warnings: warned(&summary.warnings()),
            published: published(summary),
            published_functions: published_functions(summary),
            published_table: published_table::json(summary),
            thresholds: summary
                .judged
                .iter()
                .map(|judged| ThresholdJson {
                    judged,
                    unit: match judged.against {
                        Some(_) => "percent",
                        None => judged.quantity.kind.unit(),
                    },
                })
                .collect(),
            meter_costs: summary
                .meter_costs
                .iter()
                .map(|cost| MeterCostJson {
                    cell: &cost.cell,
                    meter: cost.meter_name(),
                    quantity: cost.of.name(),
                    ratio: cost.ratio,
                })
                .collect(),
            findings: summary.findings.iter().map(finding).collect(),
            statements: &summary.statements,
            effects: summary.effects.iter().map(effect).collect(),
            by_instructions: summary.by_instructions.as_ref().map(by_instructions),
            comparisons: summary.comparisons.iter().map(comparison).collect(),
            differences: &summary.differences,
            undecided: summary
                .undecided()
                .map(|one| undecided(study, one))
                .collect(),
            trust: trust(summary),
            openings: summary.openings.as_ref(),
        }
    }
}

/// A machine without its kernel's boot options, which the records have.
fn without_options(machine: &Machine) -> Machine {
    Machine {
        cmdline: String::new(),
        ..machine.clone()
    }
}

fn published_functions(summary: &Summary) -> Option<PublishedFunctionsJson<'_>> {
    let of = summary.study.published_functions.as_ref()?;
    let rows = ratios(&summary.study, &summary.cells).into_iter();
    let functions = rows.map(|row| PublishedFunctionJson {
        published: &row.of.theirs,
        function: &row.of.ours,
        figure: row.of.published,
        ratio: row.ours,
        statement: row.of.tests.as_ref().map(|(id, ..)| id.as_str()),
        sentence: row.sentence(),
    });
    Some(PublishedFunctionsJson {
        source: &of.source,
        cell: &of.cell,
        first: of.first.as_deref(),
        host: of.host,
        functions: functions.collect(),
    })
}

fn published(summary: &Summary) -> Option<PublishedJson<'_>> {
    let published = summary.study.published.as_ref()?;
    let beside = summary.published();
    let series = published.series.iter().map(|series| SeriesJson {
        name: &series.name,
        matching: &series.matching,
        points: series
            .points
            .iter()
            .map(|(value, figure)| PointJson {
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
    Some(PublishedJson {
        source: &published.source,
        quantity: published.quantity.to_string(),
        unit: published.quantity.kind.unit(),
        knob: &published.knob,
        series: series.collect(),
    })
}
