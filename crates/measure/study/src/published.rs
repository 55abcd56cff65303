//! Parser of published figures and thresholds: `[published]`, `[published_functions]` and
//! `[[threshold]]`.

use toml::de::DeValue;

use crate::cell::Cell;
use crate::conclusion::change;
use crate::measure::{
    FunctionRatio, Published, PublishedFunctions, Series, Threshold, ThresholdOf,
};
use crate::parse::{
    Section, StudyError, any, expecting, knob_name, list, matching, number, quantity, quoted,
};
use crate::raw::raw;
use crate::statement::Statement;
use tcpcost_knobs::{HostName, find_full};

pub(crate) fn published(mut section: Section<'_>) -> Result<Published, StudyError> {
    let mut published = Published {
        source: section.required("source", quoted(any))?,
        quantity: section.required("quantity", quoted(quantity))?,
        knob: section.required("knob", quoted(knob_name))?,
        series: Vec::new(),
    };
    let knob = &published.knob;
    let row = find_full(knob).expect("just found");
    for mut series in section.sections("series")? {
        let expected = format!(
            "a list of [{knob}, figure] pairs, {knob} being {}",
            row.expected()
        );
        let pair = |pair: &DeValue<'_>| match pair {
            DeValue::Array(pair) if pair.len() == 2 => {
                let value = row.read(&raw(pair[0].get_ref()))?;
                Some((value, number(pair[1].get_ref())?))
            }
            _ => None,
        };
        let points = expecting(expected, |value| list(value, pair));
        published.series.push(Series {
            name: series.read("name", quoted(any))?.unwrap_or_default(),
            matching: matching(&mut series)?,
            points: series.required("points", points)?,
        });
        series.end()?;
    }
    section.end()?;
    Ok(published)
}

/// Parses `[published_functions]`.
pub(crate) fn functions(
    mut section: Section<'_>,
    cells: &[Cell],
    statements: &[Statement],
) -> Result<PublishedFunctions, StudyError> {
    let source = section.required("source", quoted(any))?;
    let name = |text: &str| {
        let known = cells.iter().any(|cell| cell.name == text);
        known.then(|| text.to_string()).ok_or("the name of a cell")
    };
    let cell = section.required("cell", quoted(name))?;
    let first = section.read("first", quoted(name))?;
    let mut host = section.read("host", quoted(str::parse::<HostName>))?;
    if host.is_none() {
        // Old name of the key.
        host = section.read("end", quoted(str::parse))?;
    }
    let host = host.ok_or_else(|| section.missing("host"))?;
    let ratio = |row: &DeValue<'_>| {
        let (theirs, ours, published, limits) = match &row.as_array()?[..] {
            [theirs, ours, ratio] => (theirs, ours, ratio, None),
            [theirs, ours, ratio, limits] => (theirs, ours, ratio, Some(limits)),
            _ => return None,
        };
        let tests = match limits {
            Some(limits) => Some(tested(limits.get_ref(), statements)?),
            None => None,
        };
        Some(FunctionRatio {
            theirs: quoted(any)(theirs.get_ref()).ok()?,
            ours: quoted(any)(ours.get_ref()).ok()?,
            published: number(published.get_ref())?,
            tests,
        })
    };
    let expected = "a list of [their function, ours, ratio], which { statement = \"ID\", at_least = N, at_most = N } may follow";
    let ratios = expecting(expected, |value| list(value, ratio));
    let ratios = section.required("ratios", ratios)?;
    section.end()?;
    Ok(PublishedFunctions {
        source,
        cell,
        first,
        host,
        ratios,
    })
}

/// Statement that a ratio tests, and its limits: at least, at most.
fn tested(
    limits: &DeValue<'_>,
    statements: &[Statement],
) -> Option<(String, Option<f64>, Option<f64>)> {
    let DeValue::Table(limits) = limits else {
        return None;
    };
    let known = |key: &str| matches!(key, "statement" | "at_least" | "at_most");
    if !limits.keys().all(|key| known(key.get_ref())) {
        return None;
    }
    let limit = |key| limits.get(key).map(|value| number(value.get_ref()));
    let id = quoted(any)(limits.get("statement")?.get_ref()).ok()?;
    let is_known = statements.iter().any(|one| one.id == id);
    let (at_least, at_most) = (limit("at_least"), limit("at_most"));
    let is_number = |limit: Option<Option<f64>>| limit != Some(None);
    let is_right = is_known && is_number(at_least) && is_number(at_most);
    (is_right && at_least.or(at_most).is_some())
        .then(|| (id, at_least.flatten(), at_most.flatten()))
}

pub(crate) fn threshold(mut section: Section<'_>) -> Result<Threshold, StudyError> {
    let of = section.required("quantity", quoted(quantity))?;
    let change = change(&mut section)?;
    let at_most = section.read("at_most", limit)?;
    let at_least = section.read("at_least", limit)?;
    let is_percent = match (at_most, at_least) {
        (None, None) => {
            return Err(section.error(section.start(), "at_most", "or at_least is missing"));
        }
        (Some((_, one)), Some((_, other))) if one != other => {
            let reason = "expected both limits as numbers, or both as changes in percent";
            return Err(section.error(section.start(), "at_least", reason));
        }
        (Some((_, is_percent)), _) | (_, Some((_, is_percent))) => is_percent,
    };
    let limited = match (change, is_percent) {
        (Some(change), true) => ThresholdOf::Change(change),
        (Some(_), false) => {
            let reason = "what a knob changes is limited in percent, e.g. at_most = \"+3 %\"";
            return Err(section.error(section.start(), "knob", reason));
        }
        (None, true) => ThresholdOf::Baseline,
        (None, false) => ThresholdOf::Value,
    };
    let matching = matching(&mut section)?;
    section.end()?;
    Ok(Threshold {
        quantity: of,
        of: limited,
        at_most: at_most.map(|(limit, _)| limit),
        at_least: at_least.map(|(limit, _)| limit),
        matching,
    })
}

/// Parses a number, and true if it is in percent: `0.3`, `"+3 %"`.
fn limit(value: &DeValue<'_>) -> Result<(f64, bool), &'static str> {
    let percent = || {
        let percent = value.as_str()?.trim().strip_suffix('%')?.trim();
        Some((percent.replace('\u{2212}', "-").parse().ok()?, true))
    };
    number(value)
        .map(|number| (number, false))
        .or_else(percent)
        .filter(|(limit, _)| limit.is_finite())
        .ok_or("a number (not nan or inf), or a change such as \"+3 %\"")
}
