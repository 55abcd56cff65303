//! Parser of published figures and thresholds: `[published]`, `[published_functions]` and
//! `[[threshold]]`.

use toml::de::DeValue;

use crate::cell::Cell;
use crate::conclusion::change;
use crate::measure::{Published, PublishedFunctions, Series, Threshold, ThresholdOf};
use crate::parse::{Section, StudyError, any, knob_name, list, matching, number, quantity};
use crate::raw::{Raw, raw};
use tcpcost_knobs::{HostName, find_full};

pub(crate) fn published(mut section: Section<'_>) -> Result<Published, StudyError> {
    let source = section.required_text("source", any)?;
    let of = section.required_text("quantity", quantity)?;
    let knob = section.required_text("knob", knob_name)?;
    let row = find_full(&knob).expect("just found");
    let mut series = Vec::new();
    for mut one in section.sections("series")? {
        let name = one.text("name", any)?.unwrap_or_default();
        let matching = matching(&mut one)?;
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
        let points = one.required("points", &expected, |value| list(value, pair))?;
        one.end()?;
        series.push(Series {
            name,
            matching,
            points,
        });
    }
    section.end()?;
    Ok(Published {
        source,
        quantity: of,
        knob,
        series,
    })
}

/// Parses `[published_functions]`.
pub(crate) fn functions(
    mut section: Section<'_>,
    cells: &[Cell],
) -> Result<PublishedFunctions, StudyError> {
    let source = section.required_text("source", any)?;
    let cell = section.required_text("cell", |text| {
        let known = cells.iter().any(|cell| cell.name == text);
        known.then(|| text.to_string()).ok_or("the name of a cell")
    })?;
    let mut host = section.text("host", str::parse::<HostName>)?;
    if host.is_none() {
        // Old name of the key.
        host = section.text("end", str::parse::<HostName>)?;
    }
    let host = host.ok_or_else(|| section.missing("host"))?;
    let expected = "a list of [their function, ours, ratio]";
    let ratio = |row: &DeValue<'_>| match row {
        DeValue::Array(row) if row.len() == 3 => {
            match (raw(row[0].get_ref()), raw(row[1].get_ref())) {
                (Raw::Text(theirs), Raw::Text(ours)) => {
                    Some((theirs, ours, number(row[2].get_ref())?))
                }
                _ => None,
            }
        }
        _ => None,
    };
    let ratios = section.required("ratios", expected, |value| list(value, ratio))?;
    section.end()?;
    Ok(PublishedFunctions {
        source,
        cell,
        host,
        ratios,
    })
}

pub(crate) fn threshold(mut section: Section<'_>) -> Result<Threshold, StudyError> {
    let of = section.required_text("quantity", quantity)?;
    let change = change(&mut section)?;
    let expected = "a number (not nan or inf), or a change such as \"+3 %\"";
    let at_most = section.read("at_most", expected, limit)?;
    let at_least = section.read("at_least", expected, limit)?;
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
fn limit(value: &DeValue<'_>) -> Option<(f64, bool)> {
    if let Some(number) = number(value) {
        return number.is_finite().then_some((number, false));
    }
    let Raw::Text(text) = raw(value) else {
        return None;
    };
    let percent = text
        .trim()
        .strip_suffix('%')?
        .trim()
        .replace('\u{2212}', "-");
    let percent: f64 = percent.parse().ok()?;
    percent.is_finite().then_some((percent, true))
}
