//! Parser of published figures and thresholds: `[published]`, `[published_functions]` and
//! `[[threshold]]`.

use toml::Spanned;
use toml::de::DeValue;

use crate::cell::Cell;
use crate::conclusion::change;
use crate::measure::{Published, PublishedFunctions, Series, Threshold, ThresholdOf};
use crate::parse::{Section, StudyError, matching, number, quantity, required};
use crate::raw::Raw;
use crate::raw::raw;
use tcpcost_knobs::{HostName, Value, find_full};

pub(crate) fn published(mut section: Section<'_>) -> Result<Published, StudyError> {
    let source = section.required_string("source")?;
    let of = section.text("quantity", quantity)?;
    let of = required(&section, "quantity", of)?;
    let knob = section.text("knob", |text| match find_full(text) {
        Some(_) => Ok(text.to_string()),
        None => Err("the name of a knob"),
    })?;
    let knob = required(&section, "knob", knob)?;
    let row = find_full(&knob).expect("just found");
    let mut series = Vec::new();
    for mut one in section.sections("series")? {
        let name = one.string("name")?.unwrap_or_default();
        let matching = matching(&mut one)?;
        let expected = format!(
            "a list of [{knob}, figure] pairs, {knob} being {}",
            row.expected()
        );
        let points = one.read("points", &expected, |value| {
            let DeValue::Array(pairs) = value else {
                return None;
            };
            pairs
                .iter()
                .map(|pair| match pair.get_ref() {
                    DeValue::Array(pair) if pair.len() == 2 => Some((
                        row.read(&raw(pair[0].get_ref()))?,
                        number(pair[1].get_ref())?,
                    )),
                    _ => None,
                })
                .collect::<Option<Vec<(Value, f64)>>>()
        })?;
        let points = required(&one, "points", points)?;
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
    let source = section.required_string("source")?;
    let cell = section.text("cell", |text| {
        let known = cells.iter().any(|cell| cell.name == text);
        known.then(|| text.to_string()).ok_or("the name of a cell")
    })?;
    let cell = required(&section, "cell", cell)?;
    let mut host = section.text("host", str::parse::<HostName>)?;
    if host.is_none() {
        // Old name of the key.
        host = section.text("end", str::parse::<HostName>)?;
    }
    let host = required(&section, "host", host)?;
    let expected = "a list of [their function, ours, ratio]";
    let ratios = section.read("ratios", expected, |value| {
        let DeValue::Array(rows) = value else {
            return None;
        };
        let row = |row: &Spanned<DeValue<'_>>| match row.get_ref() {
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
        rows.iter().map(row).collect::<Option<Vec<_>>>()
    })?;
    let ratios = required(&section, "ratios", ratios)?;
    section.end()?;
    Ok(PublishedFunctions {
        source,
        cell,
        host,
        ratios,
    })
}

pub(crate) fn threshold(mut section: Section<'_>) -> Result<Threshold, StudyError> {
    let of = section.text("quantity", quantity)?;
    let of = required(&section, "quantity", of)?;
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
