//! Table `[measure]` of a study file.

use std::time::Duration;

use tcpcost_counts::MeterName;
use tcpcost_knobs::{nearest, units};
use toml::de::DeValue;

use crate::capture::CaptureSettings;
use crate::measure::{FixedWork, Measure};
use crate::parse::{Section, StudyError, quantity, whole};
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
    section.set_text(&mut measure.quantity, "quantity", |text| match text {
        "auto" => Ok(None),
        named => quantity(named).map(Some),
    })?;
    interval(&mut section, &mut measure)?;
    section.set(&mut measure.seed, "seed", FROM_0, whole)?;
    section.set_text(&mut measure.others_max, "others_max", units::ratio)?;
    section.set(&mut measure.retries, "retries", FROM_0, whole)?;
    extra_meters(&mut section, &mut measure)?;
    if let Some(inner) = section.section("capture")? {
        measure.capture = CaptureSettings::parse(inner)?;
    }
    section.end()?;
    Ok(measure)
}

const FROM_0: &str = "a whole number from 0";

fn one_or_more(value: &DeValue<'_>) -> Option<u32> {
    whole(value).filter(|&n| n >= 1)
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
    let from_1 = "a whole number from 1";
    section.set(&mut measure.repetitions, "repetitions", from_1, one_or_more)?;
    let target = |section: &mut Section<'_>, key| -> Result<Option<f64>, StudyError> {
        let target = section.text(key, units::ratio)?;
        Ok(target.filter(|target| *target > 0.0))
    };
    measure.target = target(section, "target")?;
    measure.contrast_target = target(section, "contrast_target")?;
    measure.time_max = section.text("time_max", units::duration)?;
    section.set_text(&mut measure.min_effect, "min_effect", units::ratio)?;
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
    section.set_text(&mut measure.warm_up, "warm_up", units::duration)?;
    let expected = "a time such as \"2s\" (ns, us, ms, s, min), more than 0";
    let time = |value: &DeValue<'_>| units::duration(value.as_str()?).ok();
    section.set(&mut measure.duration, "duration", expected, |value| {
        time(value).filter(|time| !time.is_zero())
    })?;
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
        |value: &DeValue<'_>| whole(value).filter(|n| (1..=Measure::PROFILE_HZ_MAX).contains(n));
    let expected = "a whole number from 1 to 10000";
    section.set(&mut measure.profile_hz, "profile_hz", expected, hz)?;
    let switch = |value: &DeValue<'_>| value.as_bool();
    section.set(
        &mut measure.meter_cost,
        "meter_cost",
        "true or false",
        switch,
    )?;
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
