//! A study file, parsed: which cells, measured how, held against what.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use crate::capture::{CaptureSettings, PublishedOpening};
use crate::cell::Cell;
use crate::conclusion::{Conclusion, Fit};
use crate::knob::{End, Knobs, UnknownKnob, find_full, nearest};
use crate::measure::{Measure, Published, PublishedFunctions, Series, Threshold};
use crate::parse::{Section, Source, StudyError, number, raw};
use crate::quick::Quick;
use crate::registry::{Group, KNOBS};
use crate::settings::WorkloadSettings;
use crate::units;
use crate::value::{Raw, Value};

/// The shipped studies: name, text.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("tour", include_str!("../../../studies/tour.toml")),
    ("acks", include_str!("../../../studies/acks.toml")),
    (
        "ack-bursts",
        include_str!("../../../studies/ack-bursts.toml"),
    ),
    ("tso-split", include_str!("../../../studies/tso-split.toml")),
    ("stacks", include_str!("../../../studies/stacks.toml")),
    (
        "accounting",
        include_str!("../../../studies/accounting.toml"),
    ),
    (
        "copy-paths",
        include_str!("../../../studies/copy-paths.toml"),
    ),
    (
        "segmentation",
        include_str!("../../../studies/segmentation.toml"),
    ),
    (
        "write-size",
        include_str!("../../../studies/write-size.toml"),
    ),
    (
        "connections",
        include_str!("../../../studies/connections.toml"),
    ),
    (
        "request-response",
        include_str!("../../../studies/request-response.toml"),
    ),
    ("profile", include_str!("../../../studies/profile.toml")),
];

/// The text of a shipped study.
pub fn built_in(name: &str) -> Option<&'static str> {
    BUILT_IN
        .iter()
        .find(|(built_in, _)| *built_in == name)
        .map(|(_, text)| *text)
}

/// One parsed study file.
#[derive(Debug, Clone, PartialEq)]
pub struct Study {
    /// Name: the file's, without ending.
    pub name: String,
    /// One line that says what it asks.
    pub title: String,
    /// More lines, shown in the report.
    pub about: String,
    /// Every combination, in the order of the file; at least one.
    pub cells: Vec<Cell>,
    /// Names of the knobs that `[vary]` and `[[cells]]` set.
    pub vary: Vec<String>,
    /// How.
    pub measure: Measure,
    /// Published figures.
    pub published: Option<Published>,
    /// Published ratios of functions.
    pub published_functions: Option<PublishedFunctions>,
    /// A published capture.
    pub published_opening: Option<PublishedOpening>,
    /// Limits.
    pub thresholds: Vec<Threshold>,
    /// Sentences to be made of the numbers.
    pub conclusions: Vec<Conclusion>,
    /// Straight lines to be laid through them.
    pub fits: Vec<Fit>,
    /// What `--quick` changes.
    pub quick: Quick,
}

impl Study {
    /// Parses a study.
    ///
    /// # Errors
    /// The first thing that is wrong: line, key, what was expected, the nearest valid name.
    pub fn parse(name: &str, text: &str, file: &str) -> Result<Study, StudyError> {
        let source = Source { file, text };
        let root = source.root()?;
        let mut top = Section::new(&source, "", root.get_ref());
        let any = |text: &str| Ok::<_, String>(text.to_string());
        let title = top.text("title", any)?.unwrap_or_else(|| name.to_string());
        let about = top.text("about", any)?.unwrap_or_default();

        let mut base = Knobs::default();
        if let Some(section) = top.section("workload")? {
            knobs_of_group(section, Group::Workload, "", &mut base)?;
        }
        if let Some(section) = top.section("bed")? {
            knobs_of_group(section, Group::Bed, "", &mut base)?;
        }
        let (cells, vary) = cells(&mut top, name, &base)?;
        let measure = top
            .section("measure")?
            .map_or_else(|| Ok(Measure::default()), measure)?;
        let published = top.section("published")?.map(published).transpose()?;
        let published_functions = top.section("published_functions")?;
        let published_functions = published_functions
            .map(|section| functions(section, &cells))
            .transpose()?;
        let published_opening = top.section("published_opening")?;
        let published_opening = published_opening.map(PublishedOpening::parse).transpose()?;
        let thresholds = top
            .sections("threshold")?
            .into_iter()
            .map(threshold)
            .collect::<Result<_, _>>()?;
        let conclusions = top
            .sections("conclusion")?
            .into_iter()
            .map(Conclusion::parse)
            .collect::<Result<_, _>>()?;
        let fits = top
            .sections("fit")?
            .into_iter()
            .map(Fit::parse)
            .collect::<Result<_, _>>()?;
        let quick = top
            .section("quick")?
            .map_or_else(|| Ok(Quick::default()), Quick::parse)?;
        top.end()?;

        for cell in &cells {
            if let Err(error) = WorkloadSettings::from_knobs(&cell.knobs) {
                return Err(source.error(0..0, &cell.name, error.to_string()));
            }
        }
        let mut study = Study {
            name: name.to_string(),
            title,
            about,
            cells,
            vary,
            measure,
            published,
            published_functions,
            published_opening,
            thresholds,
            conclusions,
            fits,
            quick,
        };
        if study.measure.meter_cost {
            study.ask_meter_cost();
        }
        study.ask_captures();
        Ok(study)
    }

    /// Sets a knob in every cell, as `--set name=value` does.
    ///
    /// # Errors
    /// No such knob, not a value of it, or one that `[vary]` varies.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), UnknownKnob> {
        if self.vary.iter().any(|varied| varied == name) {
            let expected = "varies in this study; take it out of the study file first".to_string();
            return Err(UnknownKnob {
                name: name.to_string(),
                expected,
            });
        }
        for cell in &mut self.cells {
            cell.knobs.set(name, text)?;
        }
        Ok(())
    }
}

/// Sets one knob from a file's value.
fn set(
    section: &Section<'_>,
    knobs: &mut Knobs,
    name: &str,
    key: &str,
    value: &Spanned<DeValue<'_>>,
    key_span: Range<usize>,
) -> Result<(), StudyError> {
    // An unknown name is an error of the key, a wrong value one of the value.
    let span = if find_full(name).is_some() {
        value.span()
    } else {
        key_span
    };
    knobs
        .set_raw(name, &raw(value.get_ref()))
        .map_err(|error| section.error(span, key, error.expected))
}

/// `[workload]` or `[bed]`, with `[bed.client]`, `[bed.server]` and `[bed.sysctl]` inside.
fn knobs_of_group(
    mut section: Section<'_>,
    group: Group,
    prefix: &str,
    knobs: &mut Knobs,
) -> Result<(), StudyError> {
    if group == Group::Bed {
        if prefix.is_empty() {
            for end in ["client.", "server."] {
                if let Some(inner) = section.section(end.trim_end_matches('.'))? {
                    knobs_of_group(inner, Group::Bed, end, knobs)?;
                }
            }
        }
        if let Some(mut inner) = section.section("sysctl")? {
            for (key, span, value) in inner.rest() {
                set(
                    &inner,
                    knobs,
                    &format!("{prefix}sysctl.{key}"),
                    &key,
                    value,
                    span,
                )?;
            }
        }
    }
    for (key, span, value) in section.rest() {
        let here = KNOBS
            .iter()
            .filter(|knob| knob.group == group && (prefix.is_empty() || knob.per_end));
        match here.clone().find(|knob| knob.key == key) {
            Some(knob) => set(
                &section,
                knobs,
                &format!("{prefix}{}", knob.name),
                &key,
                value,
                span,
            )?,
            None => {
                let elsewhere = KNOBS.iter().find(|knob| knob.key == key);
                let hint = match (elsewhere, nearest(&key, here.map(|knob| knob.key))) {
                    (Some(knob), _) if knob.group == group => {
                        "both ends share it: set it in [bed]".to_string()
                    }
                    (Some(_), _) if group == Group::Bed => "it belongs in [workload]".to_string(),
                    (Some(_), _) => "it belongs in [bed]".to_string(),
                    (None, Some(near)) => format!("no such knob here; nearest is \"{near}\""),
                    (None, None) => "no such knob here; `tcpcost knobs` lists them".to_string(),
                };
                return Err(section.error(span, &key, hint));
            }
        }
    }
    Ok(())
}

/// The explicit `[[cells]]` times every combination of `[vary]`.
fn cells(
    top: &mut Section<'_>,
    study: &str,
    base: &Knobs,
) -> Result<(Vec<Cell>, Vec<String>), StudyError> {
    let mut vary: Vec<String> = Vec::new();
    let mut explicit = Vec::new();
    for mut section in top.sections("cells")? {
        let name = section.text("name", |text| Ok::<_, String>(text.to_string()))?;
        let mut own = Knobs::default();
        for (key, span, value) in section.rest() {
            set(&section, &mut own, &key, &key, value, span)?;
            if !vary.contains(&key) {
                vary.push(key);
            }
        }
        let name = name.unwrap_or_else(|| own.to_string());
        explicit.push((name, own));
    }
    if explicit.is_empty() {
        explicit.push((String::new(), Knobs::default()));
    }

    let mut axes: Vec<Vec<Knobs>> = Vec::new();
    if let Some(mut section) = top.section("vary")? {
        for (key, span, value) in section.rest() {
            let DeValue::Array(items) = value.get_ref() else {
                return Err(section.error(value.span(), &key, "expected a list of values"));
            };
            if items.is_empty() {
                return Err(section.error(value.span(), &key, "expected at least one value"));
            }
            let mut axis = Vec::new();
            for item in items.iter() {
                let mut one = Knobs::default();
                set(&section, &mut one, &key, &key, item, span.clone())?;
                axis.push(one);
            }
            axes.push(axis);
            vary.push(key);
        }
    }

    let mut cells: Vec<Cell> = Vec::new();
    for (name, own) in explicit {
        let mut combinations = vec![Knobs::default()];
        for axis in &axes {
            combinations = combinations
                .iter()
                .flat_map(|so_far| axis.iter().map(|one| so_far.with(one)))
                .collect();
        }
        for varied in combinations {
            let words: Vec<String> = [name.clone(), varied.to_string()]
                .into_iter()
                .filter(|word| !word.is_empty())
                .collect();
            let name = if words.is_empty() {
                study.to_string()
            } else {
                words.join(" ")
            };
            cells.push(Cell {
                name,
                knobs: base.with(&own).with(&varied),
                meter_trial: None,
                captured: None,
            });
        }
    }
    for (index, cell) in cells.iter().enumerate() {
        if cells[..index].iter().any(|other| other.name == cell.name) {
            return Err(top.error(
                0..0,
                "cells",
                format!("two cells are called \"{}\"; give each a name", cell.name),
            ));
        }
    }
    Ok((cells, vary))
}

pub(crate) fn quantity(text: &str) -> Result<crate::Derived, String> {
    text.parse().map_err(|error| format!("a quantity: {error}"))
}

fn measure(mut section: Section<'_>) -> Result<Measure, StudyError> {
    let mut measure = Measure::default();
    if let Some(value) = section.take("meters") {
        let Raw::List(items) = raw(value.get_ref()) else {
            return Err(section.error(value.span(), "meters", "expected a list of meters"));
        };
        measure.meters.clear();
        for item in items {
            let known = || Measure::METERS.iter().map(|(name, _)| *name);
            let Raw::Text(name) = item else {
                return Err(section.error(
                    value.span(),
                    "meters",
                    "expected names of meters in quotes",
                ));
            };
            if !known().any(|meter| meter == name) {
                let near = nearest(&name, known()).map_or_else(
                    || format!("; known: {}", known().collect::<Vec<_>>().join(", ")),
                    |near| format!("; nearest is \"{near}\""),
                );
                return Err(section.error(
                    value.span(),
                    "meters",
                    format!("no such meter \"{name}\"{near}"),
                ));
            }
            if !measure.meters.contains(&name) {
                measure.meters.push(name);
            }
        }
    }
    let count = |value: &DeValue<'_>| match raw(value) {
        Raw::Integer(n) => u32::try_from(n).ok(),
        _ => None,
    };
    let one_or_more = |value: &DeValue<'_>| count(value).filter(|&n| n >= 1);
    if let Some(n) = section.read("repetitions", "a whole number from 1", one_or_more)? {
        measure.repetitions = n;
    }
    measure.target = section
        .text("target", units::ratio)?
        .filter(|target| *target > 0.0);
    measure.repetitions_max = measure.repetitions;
    if measure.target.is_some() {
        measure.repetitions_max = measure.repetitions.max(30);
    }
    if let Some(value) = section.take("repetitions_max") {
        match one_or_more(value.get_ref()) {
            Some(n) if n >= measure.repetitions => measure.repetitions_max = n,
            _ => {
                let expected = format!(
                    "expected a whole number from {} (repetitions)",
                    measure.repetitions
                );
                return Err(section.error(value.span(), "repetitions_max", expected));
            }
        }
    }
    measure.quantity = section
        .text("quantity", |text| {
            if text == "auto" {
                Ok(None)
            } else {
                quantity(text).map(Some)
            }
        })?
        .flatten();
    if let Some(time) = section.text("warm_up", units::duration)? {
        measure.warm_up = time;
    }
    if let Some(value) = section.take("duration") {
        measure.duration = match raw(value.get_ref()) {
            Raw::Text(text) => units::duration(&text).ok(),
            _ => None,
        }
        .filter(|time| !time.is_zero())
        .ok_or_else(|| {
            section.error(
                value.span(),
                "duration",
                "expected a time such as \"2s\" (ns, us, ms, s, min), more than 0",
            )
        })?;
    }
    if let Some(n) = section.read("seed", "a whole number from 0", |value| match raw(value) {
        Raw::Integer(n) => u64::try_from(n).ok(),
        _ => None,
    })? {
        measure.seed = n;
    }
    if let Some(ratio) = section.text("others_max", units::ratio)? {
        measure.others_max = ratio;
    }
    if let Some(n) = section.read("retries", "a whole number from 0", count)? {
        measure.retries = n;
    }
    let hz =
        |value: &DeValue<'_>| count(value).filter(|n| (1..=Measure::PROFILE_HZ_MAX).contains(n));
    if let Some(n) = section.read("profile_hz", "a whole number from 1 to 10000", hz)? {
        measure.profile_hz = n;
    }
    let switch = |value: &DeValue<'_>| match raw(value) {
        Raw::Boolean(on) => Some(on),
        _ => None,
    };
    if let Some(on) = section.read("meter_cost", "true or false", switch)? {
        measure.meter_cost = on;
    }
    if let Some(value) = section.take("by_connection") {
        let has_segments = measure.meters.iter().any(|meter| meter == "segments");
        measure.by_connection = match switch(value.get_ref()) {
            Some(true) if !has_segments => Err("needs the meter \"segments\""),
            Some(on) => Ok(on),
            None => Err("expected true or false"),
        }
        .map_err(|expected| section.error(value.span(), "by_connection", expected))?;
    }
    if let Some(inner) = section.section("capture")? {
        measure.capture = CaptureSettings::parse(inner)?;
    }
    section.end()?;
    Ok(measure)
}

/// `where = { knob = value }`.
pub(crate) fn matching(section: &mut Section<'_>) -> Result<Knobs, StudyError> {
    let mut knobs = Knobs::default();
    if let Some(mut inner) = section.section("where")? {
        for (key, span, value) in inner.rest() {
            set(&inner, &mut knobs, &key, &key, value, span)?;
        }
    }
    Ok(knobs)
}

pub(crate) fn required<T>(
    section: &Section<'_>,
    key: &str,
    value: Option<T>,
) -> Result<T, StudyError> {
    value.ok_or_else(|| section.error(section.start(), key, "is missing"))
}

fn published(mut section: Section<'_>) -> Result<Published, StudyError> {
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
fn functions(mut section: Section<'_>, cells: &[Cell]) -> Result<PublishedFunctions, StudyError> {
    let any = |text: &str| Ok::<_, String>(text.to_string());
    let source = section.text("source", any)?;
    let source = required(&section, "source", source)?;
    let cell = section.text("cell", |text| {
        let known = cells.iter().any(|cell| cell.name == text);
        known.then(|| text.to_string()).ok_or("the name of a cell")
    })?;
    let cell = required(&section, "cell", cell)?;
    let end = section.text("end", |text| {
        let found = End::BOTH.into_iter().find(|end| end.name() == text);
        found.ok_or("\"client\" or \"server\"")
    })?;
    let end = required(&section, "end", end)?;
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
        end,
        ratios,
    })
}

fn threshold(mut section: Section<'_>) -> Result<Threshold, StudyError> {
    let of = section.text("quantity", quantity)?;
    let of = required(&section, "quantity", of)?;
    let at_most = section.read("at_most", "a number", number)?;
    let at_least = section.read("at_least", "a number", number)?;
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

#[cfg(test)]
mod tests;
