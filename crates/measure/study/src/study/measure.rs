//! Table `[measure]` of a study file.

use std::time::Duration;

use tcpcost_counts::MeterName;
use tcpcost_knobs::{nearest, units};
use toml::de::DeValue;

use crate::capture::CaptureSettings;
use crate::measure::{FixedWork, Measure};
use crate::parse::{Section, StudyError, quantity};
use crate::raw::{Raw, raw};

/// Limit of repetitions in a study that runs until its contrasts are decided; `time_max` ends it
/// long before.
const REPETITIONS_MAX: u32 = 1000;

/// Limits of the interval between samples. A sample takes a tenth of a microsecond, but the
/// traffic's loop returns for it.
const SERIES_MIN: Duration = Duration::from_micros(100);
const SERIES_MAX: Duration = Duration::from_secs(1);

/// Parses the table. Keys that are missing have the defaults of [`Measure`].
pub(super) fn measure(mut section: Section<'_>) -> Result<Measure, StudyError> {
    let mut measure = Measure::default();
    if let Some(meters) = meters(&mut section)? {
        measure.meters = meters;
    }
    repetitions(&mut section, &mut measure)?;
    measure.quantity = section
        .text("quantity", |text| {
            if text == "auto" {
                Ok(None)
            } else {
                quantity(text).map(Some)
            }
        })?
        .flatten();
    interval(&mut section, &mut measure)?;
    set(
        &mut measure.seed,
        section.read("seed", "a whole number from 0", |value| match raw(value) {
            Raw::Integer(n) => u64::try_from(n).ok(),
            _ => None,
        })?,
    );
    set(
        &mut measure.others_max,
        section.text("others_max", units::ratio)?,
    );
    set(
        &mut measure.retries,
        section.read("retries", "a whole number from 0", count)?,
    );
    extra_meters(&mut section, &mut measure)?;
    if let Some(inner) = section.section("capture")? {
        measure.capture = CaptureSettings::parse(inner)?;
    }
    section.end()?;
    Ok(measure)
}

/// Replaces a default by a key's value.
fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

fn count(value: &DeValue<'_>) -> Option<u32> {
    match raw(value) {
        Raw::Integer(n) => u32::try_from(n).ok(),
        _ => None,
    }
}

fn one_or_more(value: &DeValue<'_>) -> Option<u32> {
    count(value).filter(|&n| n >= 1)
}

fn switch(value: &DeValue<'_>) -> Option<bool> {
    match raw(value) {
        Raw::Boolean(on) => Some(on),
        _ => None,
    }
}

/// Takes the meters, each once, in the order of the file. `None` if there is no such key.
fn meters(section: &mut Section<'_>) -> Result<Option<Vec<MeterName>>, StudyError> {
    let Some(value) = section.take("meters") else {
        return Ok(None);
    };
    let error = |expected: String| section.error(value.span(), "meters", expected);
    let Raw::List(items) = raw(value.get_ref()) else {
        return Err(error("expected a list of meters".into()));
    };
    if items.is_empty() {
        return Err(error(
            "expected at least one meter; leave the key out for the default ones".into(),
        ));
    }
    let mut meters = Vec::new();
    for item in items {
        let Raw::Text(name) = item else {
            return Err(error("expected names of meters in quotes".into()));
        };
        let meter = MeterName::asked_as(&name).ok_or_else(|| {
            let known = || MeterName::choices().map(MeterName::name);
            let near = nearest(&name, known()).map_or_else(
                || format!("; known: {}", known().collect::<Vec<_>>().join(", ")),
                |near| format!("; nearest is \"{near}\""),
            );
            error(format!("no such meter \"{name}\"{near}"))
        })?;
        if !meters.contains(&meter) {
            meters.push(meter);
        }
    }
    Ok(Some(meters))
}

/// Takes the keys that say how often a cell is repeated, and when a run ends.
fn repetitions(section: &mut Section<'_>, measure: &mut Measure) -> Result<(), StudyError> {
    set(
        &mut measure.repetitions,
        section.read("repetitions", "a whole number from 1", one_or_more)?,
    );
    let target = |section: &mut Section<'_>, key| -> Result<Option<f64>, StudyError> {
        let target = section.text(key, units::ratio)?;
        Ok(target.filter(|target| *target > 0.0))
    };
    measure.target = target(section, "target")?;
    measure.contrast_target = target(section, "contrast_target")?;
    if let Some(time) = section.text("time_max", units::duration)? {
        measure.time_max = Some(time);
    }
    set(
        &mut measure.min_effect,
        section.text("min_effect", units::ratio)?,
    );
    measure.repetitions_max = match (measure.contrast_target, measure.target) {
        (Some(_), _) => measure.repetitions.max(REPETITIONS_MAX),
        (None, Some(_)) => measure.repetitions.max(30),
        (None, None) => measure.repetitions,
    };
    if let Some(value) = section.take("repetitions_max") {
        let least = measure.repetitions;
        measure.repetitions_max = one_or_more(value.get_ref())
            .filter(|n| *n >= least)
            .ok_or_else(|| {
                let expected = format!("expected a whole number from {least} (repetitions)");
                section.error(value.span(), "repetitions_max", expected)
            })?;
    }
    Ok(())
}

/// Takes the keys of one trial's interval: its time, or its work.
fn interval(section: &mut Section<'_>, measure: &mut Measure) -> Result<(), StudyError> {
    set(
        &mut measure.warm_up,
        section.text("warm_up", units::duration)?,
    );
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
    let bytes = section.text("bytes", |text| match units::bytes(text) {
        Ok(bytes) if bytes > 0 => Ok(bytes),
        _ => Err("a size such as \"32MiB\", more than 0"),
    })?;
    let transactions = section.read("transactions", "a whole number from 1", |value| {
        one_or_more(value).map(u64::from)
    })?;
    if bytes.is_some() || transactions.is_some() {
        let default = FixedWork::default();
        measure.work = Some(FixedWork {
            bytes: bytes.unwrap_or(default.bytes),
            transactions: transactions.unwrap_or(default.transactions),
        });
    }
    Ok(())
}

/// Takes the keys of what is measured beside the meters' totals.
fn extra_meters(section: &mut Section<'_>, measure: &mut Measure) -> Result<(), StudyError> {
    let hz =
        |value: &DeValue<'_>| count(value).filter(|n| (1..=Measure::PROFILE_HZ_MAX).contains(n));
    set(
        &mut measure.profile_hz,
        section.read("profile_hz", "a whole number from 1 to 10000", hz)?,
    );
    set(
        &mut measure.meter_cost,
        section.read("meter_cost", "true or false", switch)?,
    );
    measure.series = section.text("series", |text| match units::duration(text) {
        Ok(time) if (SERIES_MIN..=SERIES_MAX).contains(&time) => Ok(time),
        _ => Err("a time such as \"2ms\", 100us to 1s"),
    })?;
    if let Some(value) = section.take("by_connection") {
        let has_segments = measure.meters.contains(&MeterName::Segments);
        measure.by_connection = match switch(value.get_ref()) {
            Some(true) if !has_segments => {
                Err(format!("needs the meter \"{}\"", MeterName::Segments))
            }
            Some(on) => Ok(on),
            None => Err("expected true or false".to_string()),
        }
        .map_err(|expected| section.error(value.span(), "by_connection", expected))?;
    }
    Ok(())
}
