//! The cells of the document: what was set, how many trials, estimates, profiles, warnings.

use std::collections::BTreeMap;

use serde::Serialize;
use tcpcost_study::{Figure, HostName, Knobs};

use super::estimate::EstimateJson;
use super::hosts::{HostJson, host};
use crate::derive::cell::{CellSummary, Load};
use crate::derive::estimate::Estimate;
use crate::derive::fleet::Fleet;
use crate::derive::operations::OperationSummary;
use crate::derive::warned::Warned;
use crate::summary::Summary;

#[derive(Serialize)]
pub(super) struct CellJson<'a> {
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
    ratio_to_first: Option<RatioJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_comparable: Option<String>,
    warnings: Vec<WarnedJson>,
    estimates: BTreeMap<String, EstimateJson>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<HostJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skew_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fleet: Option<FleetJson>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    operations: Vec<OperationJson<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    profiles: Vec<ProfileJson<'a>>,
}

#[derive(Serialize)]
struct FleetJson {
    rounds: usize,
    hosts: BTreeMap<HostName, BTreeMap<&'static str, EstimateJson>>,
    outliers: Vec<OutlierJson>,
}

#[derive(Serialize)]
struct OutlierJson {
    host: HostName,
    quantity: &'static str,
    estimate: EstimateJson,
    median_of_hosts: f64,
    count: Option<OutlierCountJson>,
}

#[derive(Serialize)]
struct OutlierCountJson {
    quantity: &'static str,
    median: f64,
    median_of_hosts: f64,
}

#[derive(Serialize)]
struct OperationJson<'a> {
    host: HostName,
    group: Option<HostName>,
    place: &'a str,
    operation: &'a str,
    count: u64,
    failed: u64,
    time_us_p50: Option<f64>,
    time_us_p99: Option<f64>,
    time_us_p999: Option<f64>,
}

#[derive(Serialize)]
struct ProfileJson<'a> {
    host: Option<HostName>,
    source: &'a str,
    samples: u64,
    samples_unknown: u64,
    samples_left_out: u64,
    unit: &'static str,
    layers: Vec<LayerJson>,
    functions: Vec<FunctionJson<'a>>,
}

#[derive(Serialize)]
struct LayerJson {
    layer: &'static str,
    #[serde(flatten)]
    cost: CostJson,
}

#[derive(Serialize)]
struct FunctionJson<'a> {
    function: &'a str,
    inclusive: CostJson,
    exclusive: CostJson,
}

#[derive(Serialize)]
struct CostJson {
    share_ratio: Estimate,
    cpu_us_per_s: Option<Estimate>,
    cpu_us_per_unit: Option<Estimate>,
}

#[derive(Serialize)]
struct RatioJson<'a> {
    cell: &'a str,
    #[serde(flatten)]
    estimate: Estimate,
}

#[derive(Serialize)]
pub(super) struct WarnedJson {
    code: tcpcost_study::WarningCode,
    count: usize,
    text: String,
    #[serde(flatten)]
    range: Option<RangeJson>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    hosts: BTreeMap<HostName, usize>,
}

#[derive(Serialize)]
struct RangeJson {
    least: f64,
    most: f64,
    unit: &'static str,
}

fn fleet(of: &Fleet) -> FleetJson {
    let estimate = |figure: Figure, estimate: Estimate| {
        let unit = figure.unit();
        EstimateJson { estimate, unit }
    };
    let host = |of: &BTreeMap<Figure, Estimate>| {
        let each = of.iter();
        each.map(|(&figure, &one)| (figure.name(), estimate(figure, one)))
            .collect()
    };
    FleetJson {
        rounds: of.rounds,
        hosts: of
            .hosts
            .iter()
            .map(|(&name, of)| (name, host(of)))
            .collect(),
        outliers: of
            .outliers
            .iter()
            .map(|outlier| OutlierJson {
                host: outlier.host,
                quantity: outlier.figure.name(),
                estimate: estimate(outlier.figure, outlier.estimate),
                median_of_hosts: outlier.median,
                count: outlier.because.map(|because| OutlierCountJson {
                    quantity: because.figure.name(),
                    median: because.value,
                    median_of_hosts: because.median,
                }),
            })
            .collect(),
    }
}

fn operation(of: &OperationSummary) -> OperationJson<'_> {
    let [time_us_p50, time_us_p99, time_us_p999] = of.times_us;
    OperationJson {
        host: of.host,
        group: of.group,
        place: &of.place,
        operation: &of.operation,
        count: of.count,
        failed: of.failed,
        time_us_p50,
        time_us_p99,
        time_us_p999,
    }
}

fn profile<'a>(profile: &'a crate::Profile, unit: &'static str) -> ProfileJson<'a> {
    let cost = |cost: &crate::Cost| CostJson {
        share_ratio: cost.share,
        cpu_us_per_s: cost.us_per_s,
        cpu_us_per_unit: cost.us_per_unit,
    };
    ProfileJson {
        host: profile.scope.name(),
        source: &profile.source,
        samples: profile.samples,
        samples_unknown: profile.samples_unknown,
        samples_left_out: profile.samples_left_out,
        unit,
        layers: profile
            .layers
            .iter()
            .map(|(layer, of)| LayerJson {
                layer: layer.name(),
                cost: cost(of),
            })
            .collect(),
        functions: profile
            .functions
            .iter()
            .map(|function| FunctionJson {
                function: &function.name,
                inclusive: cost(&function.inclusive),
                exclusive: cost(&function.exclusive),
            })
            .collect(),
    }
}

pub(super) fn warned(warnings: &[Warned]) -> Vec<WarnedJson> {
    warnings
        .iter()
        .map(|warned| WarnedJson {
            code: warned.code,
            count: warned.count,
            text: warned.text().to_string(),
            range: warned
                .range
                .zip(warned.code.unit())
                .map(|((least, most), unit)| RangeJson { least, most, unit }),
            hosts: warned.hosts.clone(),
        })
        .collect()
}

pub(super) fn cells(summary: &Summary) -> Vec<CellJson<'_>> {
    let groups = summary.groups();
    let group = |cell: &CellSummary| {
        let mut groups = groups.iter();
        groups.find(|group| group.cells.iter().any(|&of| std::ptr::eq(of, cell)))
    };
    let ratio = |cell: &CellSummary| {
        let group = group(cell)?;
        Some(RatioJson {
            cell: &group.cells.first()?.name,
            estimate: group.ratio_to_first(cell)?,
        })
    };
    let reason = |cell: &CellSummary| Some(group(cell)?.incomparable(cell)?.to_string());
    summary
        .cells
        .iter()
        .map(|cell| CellJson {
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
            not_comparable: reason(cell),
            warnings: warned(&cell.warnings),
            estimates: cell
                .estimates
                .iter()
                .map(|(derived, &estimate)| {
                    let unit = derived.kind.unit();
                    (derived.to_string(), EstimateJson { estimate, unit })
                })
                .collect(),
            hosts: cell.host_rows.iter().map(host).collect(),
            skew_us: cell.skew_us,
            fleet: cell.fleet.as_ref().map(fleet),
            operations: cell.operations.iter().map(operation).collect(),
            profiles: cell
                .profiles
                .iter()
                .map(|one| profile(one, cell.cost_unit()))
                .collect(),
        })
        .collect()
}
