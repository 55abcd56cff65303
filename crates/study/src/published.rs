//! What a study is held against: `[published]`, `[published_functions]` and `[[threshold]]`, as parsed.

use toml::Spanned;
use toml::de::DeValue;

use crate::cell::Cell;
use crate::host_name::HostName;
use crate::knob::find_full;
use crate::measure::{Published, PublishedFunctions, Series, Threshold};
use crate::parse::{Section, StudyError, matching, number, quantity, raw, required};
use crate::value::{Raw, Value};

pub(crate) fn published(mut section: Section<'_>) -> Result<Published, StudyError> {
    let source = section.text("source", |text| Ok::<_, String>(text.to_string()))?;
    let source = required(&section, "source", source)?;
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
        let name = one
            .text("name", |text| Ok::<_, String>(text.to_string()))?
            .unwrap_or_default();
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

/// `[published_functions]`.
pub(crate) fn functions(
    mut section: Section<'_>,
    cells: &[Cell],
) -> Result<PublishedFunctions, StudyError> {
    let any = |text: &str| Ok::<_, String>(text.to_string());
    let source = section.text("source", any)?;
    let source = required(&section, "source", source)?;
    let cell = section.text("cell", |text| {
        let known = cells.iter().any(|cell| cell.name == text);
        known.then(|| text.to_string()).ok_or("the name of a cell")
    })?;
    let cell = required(&section, "cell", cell)?;
    let mut host = section.text("host", str::parse::<HostName>)?;
    if host.is_none() {
        // What the key was called once.
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
    let limit = |value: &DeValue<'_>| number(value).filter(|limit| limit.is_finite());
    let at_most = section.read("at_most", "a number, which nan and inf are not", limit)?;
    let at_least = section.read("at_least", "a number, which nan and inf are not", limit)?;
    if at_most.is_none() && at_least.is_none() {
        return Err(section.error(section.start(), "at_most", "or at_least is missing"));
    }
    let matching = matching(&mut section)?;
    section.end()?;
    Ok(Threshold {
        quantity: of,
        at_most,
        at_least,
        matching,
    })
}
